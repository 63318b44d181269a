//! Every array that zarr-python 2 and 3 write, as a directory and as a stored and a deflated zip.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stores::may_run;
use crate::support::*;

/// Returns a path in the repository.
fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn matrix(name: &str) -> PathBuf {
    let path = in_repository("target/fixtures/matrix").join(name);
    assert!(path.exists(), "run tests/fixtures/setup.sh: no {path:?}");
    path
}

fn interpreter() -> PathBuf {
    let venv = std::env::var_os("ZARRFS_VENV3")
        .map_or_else(|| in_repository("tests/fixtures/.venv3"), PathBuf::from);
    venv.join("bin/python")
}

/// Returns a command of a Python client with numpy and the shared modules of the matrix generators.
fn python(program: &str, mount: &Mount, half: &str) -> Command {
    let mut command = Command::new(interpreter());
    command
        .env("PYTHONPATH", in_repository("tests/fixtures/matrix"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(in_repository(program))
        .arg(mount.path())
        .arg(matrix(&format!("expected/{half}.json")))
        .arg(half);
    command
}

/// Compares every view of a mount with the expected bytes.
fn check(half: &str, source: &str, args: &[&str], wrap: fn(Command) -> Command) {
    if !may_run(&interpreter()) {
        return;
    }
    let mount = Mount::with(matrix(source), args);
    // Opens the scratch directory of the mountpoint for other users.
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(mount.path().parent().unwrap(), open).unwrap();
    let output = run(&mut wrap(python(
        "tests/fixtures/matrix/check_views.py",
        &mount,
        half,
    )));
    let counts: Vec<u64> = output
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [arrays, files, 0] = counts[..] else {
        panic!("{source}: {output}");
    };
    let (least_arrays, least_files) = if half == "v2" {
        (380, 4000)
    } else {
        (250, 3000)
    };
    assert!(
        arrays >= least_arrays && files >= least_files,
        "{source}: {output}"
    );
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}

#[test]
fn every_view_of_the_v2_matrix_in_a_directory_equals_the_reference() {
    check("v2", "v2", &[], |command| command);
}

#[test]
fn every_view_of_the_v2_matrix_in_a_stored_zip_equals_the_reference() {
    check("v2", "v2-stored.zip", &[], |command| command);
}

#[test]
fn every_view_of_the_v2_matrix_in_a_deflated_zip_equals_the_reference() {
    check("v2", "v2-deflated.zip", &[], |command| command);
}

#[test]
fn every_view_of_the_v3_matrix_in_a_directory_equals_the_reference() {
    check("v3", "v3", &[], |command| command);
}

#[test]
fn every_view_of_the_v3_matrix_in_a_stored_zip_equals_the_reference() {
    check("v3", "v3-stored.zip", &[], |command| command);
}

#[test]
fn every_view_of_the_v3_matrix_in_a_deflated_zip_equals_the_reference() {
    check("v3", "v3-deflated.zip", &[], |command| command);
}

/// Switches to `nobody` after all imports, because other users may not be able to read the interpreter.
const AS_NOBODY: &str = "
import ast, base64, hashlib, json, mmap, os, pwd, sys, numpy, fixturelib
nobody = pwd.getpwnam('nobody')
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
sys.argv = sys.argv[1:]
exec(open(sys.argv[0]).read())
";

#[test]
fn another_user_sees_the_same_views() {
    if !is_root() {
        return skipped("needs root");
    }
    let mut test = Command::new("test");
    test.arg("-r").arg(in_repository("Cargo.toml"));
    if !as_nobody(&test).status().unwrap().success() {
        return skipped("other users may not read the repository");
    }
    check("v3", "v3-stored.zip", &["--allow-other"], |command| {
        let mut wrapped = Command::new(command.get_program());
        wrapped.args(["-c", AS_NOBODY]).args(command.get_args());
        for (key, value) in command.get_envs() {
            wrapped.env(key, value.unwrap());
        }
        wrapped
    });
}

#[test]
fn views_read_at_random_and_mapped_and_through_their_sidecars_are_the_same_bytes() {
    for (half, source) in [
        ("v2", "v2"),
        ("v2", "v2-deflated.zip"),
        ("v3", "v3"),
        ("v3", "v3-stored.zip"),
    ] {
        if !may_run(&interpreter()) {
            return;
        }
        let mount = Mount::new(matrix(source));
        let output = run(python("tests/views/reads.py", &mount, half).arg("2500"));
        let counts: serde_json::Value = serde_json::from_str(output.trim()).unwrap();
        let least = [
            ("reads", 2400),
            ("maps", 100),
            ("hdr", 100),
            ("vrt", 100),
            ("nhdr", 100),
        ];
        for (what, least) in least {
            assert!(
                counts[what].as_u64().unwrap() >= least,
                "{source}: {counts}"
            );
        }
        assert_eq!(counts["differences"], 0);
    }
}
