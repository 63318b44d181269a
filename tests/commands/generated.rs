//! `zarrfs completions` and `zarrfs stats`.

use crate::stores::*;
use crate::support::*;

#[test]
fn completions_of_shells_that_do_not_ask_know_every_command() {
    let commands = [
        "mount", "umount", "demo", "tree", "info", "check", "stats", "man",
    ];
    for shell in ["elvish", "powershell"] {
        let text = look("completions", shell, &[]);
        for command in commands {
            assert!(text.ok().out.contains(command), "{shell}: no {command}");
        }
        assert!(text.out.contains("memory-limit"), "{shell}");
    }
    look("completions", "dos", &[]).failed(2, &["dos"]);
}

#[test]
fn stats_are_those_of_the_mount() {
    let mount = Mount::new(fixture("dir/v3"));
    let table = look("stats", mount.path(), &[]);
    let json = look("stats", mount.path(), &["--json"]);
    let stats = json_of(json.ok());
    assert_eq!(stats["panics"], 0, "{stats}");
    for name in stats.as_object().unwrap().keys() {
        assert!(
            table.ok().out.lines().any(|line| line.starts_with(name)),
            "{table:?}"
        );
    }
    look("stats", mount.join("a"), &[]).failed(1, &["nothing is mounted there"]);
    let path = mount.path().to_owned();
    mount.unmount();
    assert!(look("stats", &path, &[]).code == Some(1));
    look("stats", "/proc", &[]).failed(1, &["/proc", "proc, not zarrfs"]);
}
