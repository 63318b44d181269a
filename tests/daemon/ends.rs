//! J1, J2: daemons that are ended by signals, and daemons that are killed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::place::*;
use crate::support::*;

const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

#[test]
fn j01_every_ending_signal_unmounts_and_exits_0() {
    let place = Place::new();
    let store = place.store();
    for source in [&store, &place.zip_of(&store)] {
        for signal in ENDING {
            let mut daemon = place.foreground(source, &[]);
            assert_serves(&place.path);
            daemon.signal(signal);
            daemon.ends_well(Duration::from_secs(3));
            place.assert_untouched();
        }
    }
}

#[test]
fn j01_every_ending_signal_ends_a_daemon_in_the_background() {
    let place = Place::new();
    let store = place.store();
    for signal in ENDING {
        let pid = place.mount(&store, &[]);
        kill(pid, signal);
        assert!(wait_until(Duration::from_secs(3), || !runs(pid)));
        place.assert_untouched();
    }
}

#[test]
fn j01_a_signal_right_after_the_start_leaves_nothing_mounted() {
    let place = Place::new();
    let store = place.store();
    for delay in (0..30).step_by(2) {
        let stderr = place.join("stderr");
        let mut command = place.command(&store, &["-f"]);
        command.stderr(File::create(&stderr).unwrap());
        let mut daemon = Daemon::new(&mut command, stderr);
        std::thread::sleep(Duration::from_millis(delay));
        daemon.signal(Signal::TERM);
        let ended = daemon.ended(Duration::from_secs(5));
        assert!(ended.is_some(), "still running: {}", daemon.stderr());
        place.assert_untouched();
    }
}

#[test]
fn j01_a_busy_mount_ends_as_soon_as_its_files_are_closed() {
    let place = Place::new();
    let mut daemon = place.foreground(place.store(), &[]);
    let file = File::open(place.path.join("a/c/0")).unwrap();
    daemon.signal(Signal::TERM);
    assert!(daemon.ended(Duration::from_secs(1)).is_none());
    drop(file);
    daemon.ends_well(Duration::from_secs(2));
    place.assert_untouched();
}

#[test]
fn j01_a_busy_mount_is_detached_after_five_seconds() {
    let place = Place::new();
    let mut daemon = place.foreground(place.store(), &["--passthrough", "off"]);
    let file = File::open(place.path.join("a/c/0")).unwrap();
    let start = Instant::now();
    daemon.signal(Signal::TERM);
    let early = Duration::from_secs(4).saturating_sub(start.elapsed());
    assert!(
        daemon.ended(early).is_none(),
        "it ended while a file was open"
    );
    assert!(place.is_mounted(), "it did not wait for five seconds");
    let mut bytes = vec![0; 1000];
    file.read_exact_at(&mut bytes, 200_000).unwrap();
    assert!(bytes == chunk()[200_000..201_000]);
    assert!(wait_until(Duration::from_secs(3), || !place.is_mounted()));
    drop(file);
    daemon.ends_well(Duration::from_secs(2));
    place.assert_untouched();
}

#[test]
fn j01_a_second_signal_ends_a_busy_mount_at_once() {
    let place = Place::new();
    let store = place.store();
    for second in ENDING {
        let mut daemon = place.foreground(&store, &["--passthrough", "off"]);
        let file = File::open(place.path.join("a/c/0")).unwrap();
        daemon.signal(Signal::TERM);
        assert!(daemon.ended(Duration::from_millis(500)).is_none());
        daemon.signal(second);
        let ended = daemon.ended(Duration::from_secs(1));
        assert!(ended.is_some(), "still running after a second signal");
        place.assert_untouched();
        // The client gets an error, instead of waiting for a reply that never comes.
        assert_eq!(
            errno(file.read_at(&mut [0; 4096], 250_000)),
            Errno::NOTCONN.raw_os_error()
        );
    }
}

#[test]
fn j01_the_daemon_ends_on_signals_that_its_caller_ignores() {
    let place = Place::new();
    let store = place.store();
    let script = r#"trap '' TERM INT HUP; exec "$@""#;
    let mut command = place.command(&store, &[]);
    command = wrapped(&["bash", "-c", script, "bash"], &command);
    output_of(&mut command).ok();
    let pid = daemon_of(&place.path);
    kill(pid, Signal::TERM);
    assert!(wait_until(Duration::from_secs(3), || !runs(pid)));
    place.assert_untouched();
}

/// Returns the same command with a wrapper program before it.
fn wrapped(wrapper: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(wrapper[0]);
    outer
        .args(&wrapper[1..])
        .arg(command.get_program())
        .args(command.get_args());
    outer
}

#[test]
fn j02_a_killed_daemon_is_recovered_by_the_next_mount() {
    let place = Place::new();
    let store = place.store();
    for source in [&store, &place.zip_of(&store)] {
        for _ in 0..3 {
            let pid = place.mount(source, &[]);
            assert_serves(&place.path);
            kill_daemon(pid);
            // The last descriptor of /dev/fuse may close shortly after the process has ended. (The
            // kernel may still cache names and attributes of an immutable source.)
            let dead = || rustix::fs::statvfs(&place.path).err() == Some(Errno::NOTCONN);
            assert!(wait_until(Duration::from_secs(5), dead));
        }
        place.mount(source, &[]);
        assert_serves(&place.path);
        assert_eq!(
            place.mounted().len(),
            1,
            "the dead mounts are still mounted"
        );
        place.unmount(&[]).ok();
    }
}

#[test]
fn j02_clients_of_a_killed_daemon_get_enotconn_and_do_not_block_the_next_mount() {
    let place = Place::new();
    let store = place.store();
    let pid = place.mount(&store, &["--passthrough", "off"]);
    let file = File::open(place.path.join("a/c/0")).unwrap();
    kill_daemon(pid);
    let enotconn = Errno::NOTCONN.raw_os_error();
    assert_eq!(errno(file.read_at(&mut [0; 4096], 250_000)), enotconn);
    assert_eq!(errno(fs::read_dir(&place.path)), enotconn);
    assert_eq!(errno(File::open(place.path.join("zarr.json"))), enotconn);

    place.mount(&store, &[]);
    assert_serves(&place.path);
    assert_eq!(place.mounted().len(), 1);
    assert_eq!(errno(file.read_at(&mut [0; 4096], 250_000)), enotconn);
    place.unmount(&[]).ok();
}

#[test]
fn j02_a_mount_that_is_killed_while_it_starts_does_not_block_the_next_mount() {
    let place = Place::new();
    let store = place.store();
    for delay in (0..30).step_by(3) {
        let stderr = place.join("stderr");
        let mut command = place.command(&store, &["-f"]);
        command.stderr(File::create(&stderr).unwrap());
        let daemon = Daemon::new(&mut command, stderr);
        std::thread::sleep(Duration::from_millis(delay));
        drop(daemon);
        place.mount(&store, &[]);
        assert_serves(&place.path);
        place.unmount(&[]).ok();
        place.assert_untouched();
    }
}
