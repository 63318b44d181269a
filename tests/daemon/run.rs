//! `zarrfs run`: a mount for one command, of which nothing is left, however the command ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::place::*;
use crate::support::*;

/// Returns `zarrfs run SOURCE -- COMMAND...`, with its private mountpoint in the scratch directory.
fn run_in(place: &Place, source: &str, options: &[&str], command: &[&str]) -> Command {
    let mut run = zarrfs();
    run.arg("run")
        .arg(source)
        .args(options)
        .arg("--")
        .args(command);
    run.env("TMPDIR", place.dir());
    run
}

fn left(place: &Place) -> Vec<String> {
    let names = fs::read_dir(place.dir()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("zarrfs-run"))
        .collect()
}

#[track_caller]
fn assert_nothing_is_left(place: &Place) {
    let is_gone = || place.mounted().is_empty() && left(place).is_empty();
    assert!(
        wait_until(Duration::from_secs(10), is_gone),
        "{:?} {:?}",
        place.mounted(),
        left(place)
    );
    place.assert_untouched();
}

#[test]
fn the_command_gets_the_paths_of_views_and_its_exit_code_is_returned() {
    let place = Place::new();
    let run = |options: &[&str], command: &[&str]| {
        output_of(&mut run_in(&place, "demo:", options, command))
    };
    let script = "for path do test -e \"$path\" && echo \"${{path##*zarrfs-run-}}\"; done; true";
    let placeholders = [
        "{path}",
        "{views}",
        "{nc}",
        "{as-v2}",
        "{v3/t2m.npy}",
        "{v3/t2m/chunks}",
        "{README.txt}",
        "{{x}}",
        "--in={nc}",
    ];
    let command = [&["sh", "-c", script, "sh"], &placeholders[..]].concat();
    let out = run(&[], &command).ok().out.clone();
    let paths: Vec<&str> = out
        .lines()
        .map(|line| line.split_once('/').map_or("", |p| p.1))
        .collect();
    let expected = [
        "",
        ".zarrfs",
        ".zarrfs/demo.nc",
        ".zarrfs/as-v2",
        "v3/.zarrfs/t2m.npy",
        "v3/t2m/.zarrfs/chunks",
        ".zarrfs/README.txt",
    ];
    assert_eq!(paths, expected, "{out}");
    let output = run(&[], &["printf", "%s %s", "{{nc}}", "a={nc}"])
        .ok()
        .out
        .clone();
    assert!(
        output.starts_with("{nc} a=/") && output.ends_with("/.zarrfs/demo.nc"),
        "{output}"
    );
    for (options, name, end) in [
        (&["--tree", "views"][..], "{v3/t2m.npy}", "/v3/t2m.npy"),
        (
            &["--tree", "both"],
            "{v3/t2m.npy}",
            "/native/v3/.zarrfs/t2m.npy",
        ),
        (&["--path", "v3/t2m"], "{npy}", "/.zarrfs/t2m.npy"),
        (&["-o", "path=v3"], "{nc}", "/.zarrfs/v3.nc"),
    ] {
        let output = run(options, &["echo", name]);
        assert!(output.ok().out.trim_end().ends_with(end), "{output:?}");
    }
    let whole = run(&[], &["cat", "{v3/lat.npy}"]);
    assert!(whole.code == Some(0) && whole.err.is_empty(), "{whole:?}");
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let ended = run(&[], &["sh", "-c", script]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
    run(&[], &["/nowhere/at/all"]).failed(127, &["/nowhere/at/all"]);
    run(&[], &["/tmp"]).failed(126, &["/tmp"]);
    run(&[], &["echo", "{v3/nope.npy}"]).failed(125, &["v3/nope.npy", "it has"]);
    run(&[], &["echo", "{npy}"]).failed(125, &["{npy}", "no `npy`", "nc"]);
    run(&[], &["awk", "{print $1}"]).failed(125, &["{print $1}", "{{ and }}"]);
    run(&["--views", "off"], &["echo", "{nc}"]).failed(125, &["--views off"]);
    run(&["--views", "off"], &["test", "-d", "{path}"]).ok();
    output_of(&mut run_in(&place, "/nowhere", &[], &["true"])).failed(125, &["/nowhere"]);
    output_of(zarrfs().args(["run", "demo:"])).failed(2, &["COMMAND"]);
    assert_nothing_is_left(&place);
}

#[test]
fn a_command_that_fails_is_followed_by_the_errors_of_the_mount() {
    let place = Place::new();
    let store = place.make_dir("bad.zarr");
    let array = r#"{"zarr_format":3,"node_type":"array","shape":[4],"data_type":"int32","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},"chunk_key_encoding":{"name":"default"},"fill_value":0,"codecs":[{"name":"bytes","configuration":{"endian":"little"}},{"name":"crc32c"}]}"#;
    fs::write(store.join("zarr.json"), array).unwrap();
    fs::create_dir(store.join("c")).unwrap();
    fs::write(store.join("c/0"), [1; 20]).unwrap();
    let source = store.to_str().unwrap();
    let failed = output_of(&mut run_in(&place, source, &[], &["cat", "{npy}"]));
    failed.failed(
        1,
        &["input/output error", "read c/0: eio: corrupt", "crc32c"],
    );
    let good = output_of(&mut run_in(
        &place,
        source,
        &[],
        &["sh", "-c", "cat \"$1\" || true", "sh", "{npy}"],
    ));
    assert!(!good.ok().err.contains("crc32c"), "{good:?}");
    assert_nothing_is_left(&place);
}

/// Starts a command that waits; returns its mountpoint and its process ID when it runs.
fn waiting(place: &Place) -> (Daemon, String, u32) {
    let ready = place.join("ready");
    let script = format!(
        "echo \"$1:$$\" > {0}.new; mv {0}.new {0}; exec sleep 60",
        ready.display()
    );
    let mut run = run_in(place, "demo:", &[], &["sh", "-c", &script, "sh", "{path}"]);
    run.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let run = Daemon::new(&mut run, place.join("stderr"));
    assert!(wait_until(Duration::from_secs(30), || ready.exists()));
    let output = fs::read_to_string(&ready).unwrap();
    let (mountpoint, command) = output.trim().rsplit_once(':').unwrap();
    assert!(is_mounted(Path::new(mountpoint)));
    (run, mountpoint.to_owned(), command.parse().unwrap())
}

#[test]
fn signals_reach_the_command_and_the_mount_ends() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let place = Place::new();
        let (mut run, mountpoint, _) = waiting(&place);
        run.signal(signal);
        let status = run.ended(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(code), "{signal:?}");
        assert!(!is_mounted(Path::new(&mountpoint)));
        assert_nothing_is_left(&place);
    }
}

#[test]
fn the_mount_and_the_command_end_when_zarrfs_is_killed() {
    let place = Place::new();
    let (mut run, mountpoint, command) = waiting(&place);
    let daemon = daemon_of(Path::new(&mountpoint));
    run.signal(Signal::KILL);
    run.ended(Duration::from_secs(10)).unwrap();
    assert!(wait_until(Duration::from_secs(15), || !runs(daemon)));
    assert!(!is_mounted(Path::new(&mountpoint)));
    assert!(left(&place).is_empty(), "{:?}", left(&place));
    assert!(wait_until(Duration::from_secs(10), || !runs(command)));
}

#[test]
fn a_process_that_outlives_the_command_does_not_delay_the_unmount() {
    let place = Place::new();
    let script = "cd \"$1\" && sleep 3 >/dev/null 2>&1 &";
    let ended = output_of(&mut run_in(
        &place,
        "demo:",
        &[],
        &["sh", "-c", script, "sh", "{path}"],
    ));
    ended.ok();
    assert!(place.mounted().is_empty());
    assert_nothing_is_left(&place);
}

#[test]
fn the_variables_of_an_env_file_are_not_those_of_the_command() {
    let place = Place::new();
    let file = place.join("env");
    fs::write(&file, "AWS_SECRET_ACCESS_KEY=hidden\n").unwrap();
    run(Command::new("chmod").arg("600").arg(&file));
    let options = ["--env-file", file.to_str().unwrap()];
    let output = output_of(&mut run_in(&place, "demo:", &options, &["env"]));
    assert!(!output.ok().out.contains("hidden"), "{output:?}");
    assert_nothing_is_left(&place);
}
