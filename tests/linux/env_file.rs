//! `--env-file`: variables for a command without them in its environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::place::*;
use crate::support::*;

fn file(place: &Place, text: &str, mode: u32) -> String {
    let path = place.join("env");
    let _ = fs::remove_file(&path);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn environment(pid: u32) -> String {
    let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\0', "\n")
}

#[test]
fn variables_of_an_env_file_reach_the_daemon_in_both_modes() {
    let place = Place::new();
    let store = place.store();
    let env = file(
        &place,
        "# a comment\nA_NAME=a value = $HOME\nexport B='b'\n",
        0o600,
    );
    let has = |pid| {
        let text = environment(pid);
        text.contains("A_NAME=a value = $HOME\n") && text.contains("\nB=b\n")
    };
    let pid = place.mount(&store, &["--env-file", &env]);
    // Only root can read the environment of the daemon.
    assert!(!is_root() || has(pid), "{}", environment(pid));
    place.unmount(&[]).ok();
    let mut daemon = place.foreground(&store, &["-o", &format!("env_file={env}")]);
    assert_eq!(daemon.id(), daemon_of(&place.path));
    assert!(!is_root() || has(daemon.id()));
    place.unmount(&[]).ok();
    daemon.ends_well(std::time::Duration::from_secs(3));
    let tree = output_of(zarrfs().args(["tree", "demo:", "--env-file", &env]));
    assert!(tree.ok().out.starts_with("demo"));
}

#[test]
fn an_invalid_env_file_is_named_and_its_values_are_not() {
    let place = Place::new();
    let store = place.store();
    let missing = place.join("missing");
    let directory = place.make_dir("directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let refused = |env: &Path, words: &[&str]| {
        let env = env.to_str().unwrap();
        for args in [&["--env-file", env][..], &["-f", "--env-file", env]] {
            let output = place.attempt(&store, args);
            output.failed(32, &[&["--env-file", env], words].concat());
            assert!(!output.err.contains("hunter2"), "{output:?}");
        }
        let tree = output_of(zarrfs().args(["tree", "demo:", "--env-file", env]));
        tree.failed(1, words);
        place.assert_untouched();
    };
    refused(&missing, &["no such file"]);
    refused(&directory, &["is a directory"]);
    for (text, word) in [
        ("ZARRFS_BACKGROUND_CHILD=1", "ZARRFS_BACKGROUND_CHILD"),
        ("A=\"hunter2", "quote"),
    ] {
        refused(Path::new(&file(&place, text, 0o600)), &["line 1", word]);
    }
    for text in ["hunter2", "A=1\n\nB hunter2", "A-B=hunter2"] {
        let line = format!("line {}", text.lines().count());
        refused(
            Path::new(&file(&place, text, 0o600)),
            &[&line, "NAME=VALUE"],
        );
    }
}

#[test]
fn root_accepts_only_an_env_file_of_root() {
    if !is_root() {
        return skipped("needs root");
    }
    let place = Place::new();
    let store = place.store();
    for (mode, words) in [
        (0o644, &["0644", "read it", "chmod 600"][..]),
        (0o604, &["0604", "read it"]),
        (0o620, &["0620", "change it"]),
        (0o602, &["0602", "change it"]),
    ] {
        let env = file(&place, "A=hunter2", mode);
        place
            .attempt(&store, &["--env-file", &env])
            .failed(32, words);
    }
    for mode in [0o400, 0o600, 0o640] {
        let env = file(&place, "A=1", mode);
        output_of(zarrfs().args(["tree", "demo:", "--env-file", &env])).ok();
    }
    let env = file(&place, "A=hunter2", 0o600);
    run(Command::new("chown").args(["nobody", &env]));
    place
        .attempt(&store, &["--env-file", &env])
        .failed(32, &["belongs to user"]);
    place.assert_untouched();

    // An ordinary user may make their own file readable.
    let binary = place.open_to_nobody();
    fs::set_permissions(&env, fs::Permissions::from_mode(0o644)).unwrap();
    let mut tree = Command::new(binary);
    tree.args(["tree", "demo:", "--env-file", &env]);
    output_of(&mut as_nobody(&tree)).ok();
}
