//! J3, J4, J7, J8, J11 and NOTIFY_SOCKET: the meaning of the command's exit code, and the state
//! that the daemon inherits from its caller.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::place::*;
use crate::support::*;

#[test]
fn j03_a_start_that_fails_exits_32_with_its_reason_and_leaves_nothing() {
    let place = Place::new();
    let store = place.store();
    let truncated = place.join("truncated.zip");
    let zip = fs::read(place.zip_of(&store)).unwrap();
    fs::write(&truncated, &zip[..zip.len() / 2]).unwrap();
    let text = place.join("notes.txt");
    fs::write(&text, "no archive").unwrap();
    let empty = place.join("empty.zip");
    fs::write(&empty, "").unwrap();

    for foreground in [&[][..], &["-f"]] {
        let failed = |source: &Path, words: &[&str]| {
            place.attempt(source, foreground).failed(32, words);
            place.assert_untouched();
        };
        failed(&place.join("missing"), &["missing", "no such file"]);
        failed(&truncated, &["truncated.zip"]);
        failed(&text, &["notes.txt"]);
        failed(&empty, &["empty.zip"]);
    }
}

#[test]
fn j03_a_log_file_that_cannot_be_written_fails_the_start() {
    let place = Place::new();
    let log = place.join("missing/log");
    let args = ["--log-file", log.to_str().unwrap()];
    place
        .attempt(place.store(), &args)
        .failed(32, &["missing/log"]);
    place.assert_untouched();
}

#[test]
fn j03_a_killed_caller_leaves_a_usable_mount_or_none() {
    let place = Place::new();
    let store = place.store();
    for delay in (0..30).step_by(3) {
        let mut caller = place.command(&store, &[]);
        let mut caller = caller.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        caller.kill().unwrap();
        caller.wait().unwrap();
        // The daemon may be ending until it is gone, so a mount in the mount table may not work.
        let is_gone = || place.processes().is_empty() && !place.is_mounted();
        let settled = || is_gone() || assert_served_bytes(&place.path).is_ok();
        assert!(
            wait_until(Duration::from_secs(5), settled),
            "half a mount is left"
        );
        let unmounted = place.unmount(&[]);
        if !wait_until(Duration::from_secs(5), is_gone) {
            unmounted.ok();
        }
        place.assert_untouched();
    }
}

#[test]
fn j03_a_caller_that_ends_before_the_mount_responds_leaves_no_process() {
    let place = Place::new();
    // The listener accepts no connection, so that the mount waits.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/store", listener.local_addr().unwrap());
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let mut caller = place.command(&url, &[]);
        let mut caller = caller.stderr(Stdio::null()).spawn().unwrap();
        assert!(wait_until(Duration::from_secs(10), || {
            place.processes().len() == 2
        }));
        std::thread::sleep(Duration::from_millis(200));
        kill(caller.id(), signal);
        assert!(!caller.wait().unwrap().success());
        let ended = || place.processes().is_empty();
        assert!(wait_until(Duration::from_secs(5), ended), "{signal:?}");
        place.assert_untouched();
    }
}

#[test]
fn j03_a_start_that_runs_out_of_descriptors_leaves_no_mount() {
    let place = Place::new();
    let store = place.store();
    let mut failed = 0;
    for most in 5..40 {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={most}"));
        let command = place.command(&store, &[]);
        limited.arg(command.get_program()).args(command.get_args());
        let all = output_of(&mut limited);
        if all.code == Some(0) {
            place.unmount(&[]).ok();
        } else {
            failed += 1;
        }
        place.assert_untouched();
    }
    assert!((5..30).contains(&failed), "{failed}");
}

#[test]
fn j03_a_log_pipe_without_a_reader_fails_the_start() {
    let place = Place::new();
    let pipe = place.join("pipe");
    run(Command::new("mkfifo").arg(&pipe));
    let args = ["--log-file", pipe.to_str().unwrap()];
    place.attempt(place.store(), &args).failed(32, &["pipe"]);
    place.assert_untouched();
}

#[test]
fn the_daemon_has_the_name_of_the_program() {
    let place = Place::new();
    let pid = place.mount(place.store(), &[]);
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name, "zarrfs\n");
    // Signals that request nothing do not end the daemon.
    kill(pid, Signal::USR1);
    kill(pid, Signal::USR2);
    std::thread::sleep(Duration::from_millis(300));
    assert_serves(&place.path);
    place.unmount(&[]).ok();
}

#[test]
fn j04_a_mount_is_usable_when_the_command_returns() {
    let place = Place::new();
    let store = place.store();
    let sources = [place.zip_of(&store), store];
    for cycle in 0..50 {
        let pid = place.mount(&sources[cycle % 2], &[]);
        assert_serves(&place.path);
        place.unmount(&[]).ok();
        assert!(
            !runs(pid),
            "cycle {cycle}: umount returned before the daemon had ended"
        );
        assert!(!place.is_mounted());
    }
    place.assert_untouched();
}

#[test]
fn j07_of_eight_daemons_that_race_for_a_mountpoint_one_wins() {
    let place = Place::new();
    let store = place.store();
    for source in [&store, &place.zip_of(&store)] {
        for _ in 0..4 {
            let all: Vec<CommandOutput> = std::thread::scope(|scope| {
                let one = || scope.spawn(|| place.attempt(source, &[]));
                let all: Vec<_> = std::iter::repeat_with(one).take(8).collect();
                all.into_iter().map(|t| t.join().unwrap()).collect()
            });
            let (won, lost): (Vec<_>, Vec<_>) = all.iter().partition(|s| s.code == Some(0));
            assert_eq!(won.len(), 1, "{all:?}");
            for loser in lost {
                loser.failed(32, &["mnt"]);
            }
            assert_eq!(place.mounted().len(), 1);
            let mut findmnt = Command::new("findmnt");
            let shown = run(findmnt.args(["-n", "-o", "FSTYPE"]).arg(&place.path));
            assert_eq!(shown, "fuse.zarrfs\n");
            assert_serves(&place.path);
            assert!(
                wait_until(Duration::from_secs(5), || place.processes().len() == 1),
                "losers are left: {:?}",
                place.processes()
            );
            assert_eq!(place.processes(), [daemon_of(&place.path)]);
            place.unmount(&[]).ok();
            place.assert_untouched();
        }
    }
}

#[test]
fn j07_one_source_is_mounted_in_many_places() {
    let places: Vec<_> = std::iter::repeat_with(Place::new).take(4).collect();
    let zip = places[0].zip_of(&places[0].store());
    for place in &places {
        place.mount(&zip, &[]);
    }
    for place in &places {
        assert_serves(&place.path);
        place.unmount(&[]).ok();
    }
}

#[test]
fn j08_a_mount_starts_with_closed_standard_streams() {
    let place = Place::new();
    let store = place.store();
    for closed in [
        "<&-",
        ">&-",
        "2>&-",
        "<&- >&- 2>&-",
        "<&- 2>&-",
        "</dev/full >/dev/full 2>/dev/full",
    ] {
        let script = format!(r#"exec "$@" {closed}"#);
        let closed_for = |source: &Path| {
            let mut shell = Command::new("bash");
            shell.args(["-c", &script, "bash"]);
            shell.arg(zarrfs().get_program()).arg(source);
            output_of(shell.arg(&place.path))
        };
        closed_for(&store).ok();
        assert_serves(&place.path);
        place.unmount(&[]).ok();

        let failed = closed_for(&place.join("missing"));
        assert_eq!(failed.code, Some(32), "{closed}: {failed:?}");
        place.assert_untouched();
    }
}

#[test]
fn a_mount_whose_report_cannot_be_written_is_a_failure_that_leaves_nothing() {
    let place = Place::new();
    let mut shell = Command::new("bash");
    shell.args(["-c", r#"exec "$@" >/dev/full"#, "bash"]);
    shell.arg(zarrfs().get_program()).args(["--json", "-f"]);
    let failed = output_of(shell.arg(place.store()).arg(&place.path));
    assert_eq!(failed.code, Some(32), "{failed:?}");
    place.assert_untouched();
}

#[test]
fn j08_a_mount_starts_in_a_deleted_working_directory() {
    let place = Place::new();
    let script = r#"cd "$1"; rmdir "$1"; shift; exec "$@""#;
    for foreground in [false, true] {
        let gone = place.make_dir(format!("gone-{foreground}"));
        let store = place.store_named(format!("store-{foreground}"));
        let mut shell = Command::new("bash");
        shell.args(["-ec", script, "bash"]).arg(&gone);
        shell
            .arg(zarrfs().get_program())
            .arg(&store)
            .arg(&place.path);
        if foreground {
            let mut daemon = Daemon::new(shell.arg("-f"), place.join("none"));
            assert!(wait_until(Duration::from_secs(10), || place.is_mounted()));
            assert_serves(&place.path);
            daemon.signal(Signal::TERM);
            daemon.ends_well(Duration::from_secs(3));
        } else {
            output_of(&mut shell).ok();
            assert_serves(&place.path);
            place.unmount(&[]).ok();
        }
    }
}

#[test]
fn j08_relative_paths_are_those_of_the_caller_and_the_daemon_stays_in_the_root() {
    let place = Place::new();
    let store = place.store();
    place.zip_of(&store);
    for source in ["store", "./store/../store.zip"] {
        let mut command = zarrfs();
        command.args([source, "mnt", "--log-file", "log"]);
        output_of(command.current_dir(place.dir())).ok();
        assert_serves(&place.path);
        assert!(place.join("log").exists());
        let pid = daemon_of(&place.path);
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(cwd, Path::new("/"));

        let mut unmount = zarrfs();
        unmount.args(["umount", "mnt/"]);
        output_of(unmount.current_dir(place.dir())).ok();
        assert!(!runs(pid));
        assert!(!place.is_mounted());
    }
}

#[test]
fn j08_a_caller_that_reads_the_output_does_not_wait_for_the_daemon() {
    let place = Place::new();
    let mut command = place.command(place.store(), &[]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (done, output) = mpsc::channel();
    std::thread::spawn(move || done.send(command.output().unwrap()));
    let output = output
        .recv_timeout(Duration::from_secs(15))
        .expect("the daemon keeps its caller's pipe open");
    assert!(output.status.success());
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    assert_serves(&place.path);
    place.unmount(&[]).ok();
}

#[test]
fn j08_the_daemon_survives_the_terminal_of_its_caller() {
    let place = Place::new();
    let script = r#""$@" && echo mounted && exec sleep 60"#;
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash"]);
    shell.arg(zarrfs().get_program()).arg(place.store());
    shell
        .arg(&place.path)
        .stdout(Stdio::piped())
        .process_group(0);
    let mut shell = shell.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(shell.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    // The signals of a terminal for ctrl-C and for closing it.
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        let _ = kill_process_group(Pid::from_child(&shell), signal);
    }
    shell.wait().unwrap();
    assert_eq!(line, "mounted\n");
    std::thread::sleep(Duration::from_millis(300));
    assert_serves(&place.path);
    place.unmount(&[]).ok();
}

/// The kernel assigns the /proc files of a process that is not dumpable to root.
#[test]
fn j11_proc_files_of_a_daemon_belong_to_root() {
    let place = Place::new();
    let store = place.store();
    let pid = if is_root() {
        let binary = place.open_to_nobody();
        output_of(&mut as_nobody(
            Command::new(binary).arg(&store).arg(&place.path),
        ))
        .ok();
        place.processes()[0]
    } else {
        place.mount(&store, &[])
    };
    let me = fs::metadata(format!("/proc/{pid}")).unwrap();
    for name in ["environ", "maps", "mem", "fd"] {
        let owner = fs::metadata(format!("/proc/{pid}/{name}")).unwrap().uid();
        assert_eq!(owner, 0, "/proc/PID/{name} of a process of {}", me.uid());
    }
    if is_root() {
        let environ = format!("/proc/{pid}/environ");
        let denied = output_of(as_nobody(Command::new("cat").arg(&environ)).env("LC_ALL", "C"));
        denied.failed(1, &["permission denied"]);
    }
}

#[test]
fn readiness_is_reported_over_notify_socket_after_mounting() {
    let place = Place::new();
    let path = place.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let stderr = place.join("stderr");
    let mut command = place.command(place.store(), &["-f"]);
    command
        .env("NOTIFY_SOCKET", &path)
        .stderr(File::create(&stderr).unwrap());
    let mut daemon = Daemon::new(&mut command, stderr);

    let end = Instant::now() + Duration::from_secs(10);
    let mut message = [0; 4096];
    loop {
        let n = socket.recv(&mut message).expect("no READY=1");
        let text = std::str::from_utf8(&message[..n]).unwrap();
        if text.lines().any(|line| line == "READY=1") {
            break;
        }
        assert!(Instant::now() < end, "no READY=1 but {text:?}");
    }
    assert!(place.is_mounted());
    assert_serves(&place.path);
    daemon.signal(Signal::TERM);
    daemon.ends_well(Duration::from_secs(3));
}

#[test]
fn a_missing_notify_socket_does_not_fail_the_mount() {
    let place = Place::new();
    let mut command = place.command(place.store(), &[]);
    output_of(command.env("NOTIFY_SOCKET", place.join("missing"))).ok();
    assert_serves(&place.path);
    place.unmount(&[]).ok();
}

#[test]
fn a_failed_mount_reports_no_readiness() {
    let place = Place::new();
    let path = place.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut command = place.command(place.join("missing"), &["-f"]);
    output_of(command.env("NOTIFY_SOCKET", &path)).failed(32, &["missing"]);
    let mut message = [0; 4096];
    while let Ok(n) = socket.recv(&mut message) {
        let text = String::from_utf8_lossy(&message[..n]);
        assert!(!text.contains("READY=1"), "{text}");
    }
}

#[test]
fn a_time_limit_of_the_kernel_lowers_the_timeout_and_the_log_says_so() {
    let name = "/proc/sys/fs/fuse/max_request_timeout";
    if !is_root() || !Path::new(name).exists() {
        return skipped("needs root and Linux 6.15");
    }
    let place = Place::new();
    // The setting is that of the machine, so another file hides it in this namespace.
    let script = r#"
        echo 20 > "$2/limit"
        mount --bind "$2/limit" /proc/sys/fs/fuse/max_request_timeout
        "$0" demo: "$1" --log-file "$2/log"
        "$0" umount "$1"
        "$0" demo: "$1" --log-file "$2/log" --timeout 5s
        "$0" umount "$1"
    "#;
    let mut alone = Command::new("unshare");
    alone.args([
        "--mount",
        "--propagation",
        "private",
        "bash",
        "-euc",
        script,
    ]);
    let output = output_of(
        alone
            .arg(zarrfs().get_program())
            .args([&*place.path, place.dir()]),
    );
    let warning = "--timeout is 17s instead of 30s";
    assert!(output.ok().err.contains(warning), "{output:?}");
    let log = fs::read_to_string(place.join("log")).unwrap();
    assert_eq!(log.matches("--timeout is").count(), 1, "{log}");
    assert!(
        log.contains(warning) && log.contains("fs.fuse.max_request_timeout"),
        "{log}"
    );
}
