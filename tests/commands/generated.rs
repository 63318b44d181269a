//! `zarrfs completions`, `zarrfs man` and `zarrfs stats`.

use std::process::Command;

use crate::place::said;
use crate::stores::*;
use crate::support::*;

const COMMANDS: [&str; 12] = [
    "mount",
    "umount",
    "demo",
    "tree",
    "info",
    "check",
    "views",
    "path",
    "run",
    "stats",
    "completions",
    "man",
];

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = look("completions", shell, &[]);
        for command in COMMANDS {
            assert!(text.ok().out.contains(command), "{shell}: no {command}");
        }
        assert!(text.out.contains("memory-limit"), "{shell}");
    }
    look("completions", "dos", &[]).failed(2, &["dos"]);
}

#[test]
fn bash_takes_its_completions() {
    let script = r#"eval "$("$1" completions bash)"
        COMP_WORDS=(zarrfs che) COMP_CWORD=1; _zarrfs zarrfs che zarrfs; echo "${COMPREPLY[@]}""#;
    let reply = said(
        Command::new("bash")
            .args(["-c", script, "bash"])
            .arg(env!("CARGO_BIN_EXE_zarrfs")),
    );
    assert_eq!(reply.ok().out, "check\n", "{reply:?}");
}

#[test]
fn there_is_a_manual_page_for_zarrfs_and_for_each_command() {
    let whole = said(zarrfs().arg("man"));
    assert!(whole.ok().out.contains(".TH zarrfs 1"), "{whole:?}");
    for command in COMMANDS {
        assert!(
            whole.out.contains(&format!("\n.B zarrfs {command}\n")),
            "no {command}: {whole:?}"
        );
        let page = look("man", command, &[]);
        let title = format!(".TH zarrfs-{command} 1");
        assert!(page.ok().out.contains(&title), "{page:?}");
    }
    assert!(look("man", "check", &[]).ok().out.contains("\\-\\-jobs"));
    look("man", "bogus", &[]).failed(1, &["bogus"]);
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

#[test]
fn the_manual_page_has_what_options_do_not_say_and_man_finds_no_fault_with_it() {
    let whole = said(zarrfs().arg("man"));
    for section in [
        "EXAMPLES",
        "FSTAB",
        "ENVIRONMENT",
        "EXIT STATUS",
        "FILES",
        "SEE ALSO",
    ] {
        let title = whole
            .ok()
            .out
            .lines()
            .any(|l| l.starts_with(".SH") && l.contains(section));
        assert!(title, "no {section}");
    }
    if !std::path::Path::new("/usr/bin/man").exists() {
        return;
    }
    let dir = scratch();
    let page = dir.path().join("zarrfs.1");
    std::fs::write(&page, &whole.out).unwrap();
    let mut man = Command::new("man");
    man.args(["--warnings", "-l"]).arg(page);
    man.env("MANROFFSEQ", "")
        .env("MANWIDTH", "100")
        .env("LC_ALL", "C.UTF-8");
    let shown = said(&mut man);
    // A system without manual pages may have a program that says so.
    if shown.code == Some(0) && shown.out.contains("EXIT STATUS") {
        assert_eq!(shown.err, "");
    }
}
