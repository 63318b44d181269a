//! G1, G2, G3, G4: a handler that panics, readers that are killed, unmounts and aborts.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

#[test]
fn g01_a_panic_in_a_handler_is_eio_for_its_request_only() {
    let source = scratch();
    let files = [("bad", pattern(1, 10_000)), ("good", pattern(2, 10_000))];
    write_directory(
        source.path(),
        &files.map(|(name, content)| (name.to_owned(), content)),
    );
    let env = [("ZARRFS_TEST_PANIC", "bad")];
    let mount = Foreground::new(
        &[],
        &env,
        source.path(),
        &["--passthrough", "off", "--threads", "2"],
    );

    // A direct read is exactly one request.
    let bad = rustix::fs::open(
        mount.join("bad"),
        OFlags::RDONLY | OFlags::DIRECT,
        Mode::empty(),
    )
    .unwrap();
    assert_eq!(rustix::io::read(&bad, &mut [0; 4096]), Err(Errno::IO));
    assert_eq!(gauge(&mount.path, "panics"), 1);

    for _ in 0..10 {
        assert_eq!(errno(read(mount.join("bad"))), EIO);
        assert!(read(mount.join("good")).unwrap() == pattern(2, 10_000));
    }
    assert!(gauge(&mount.path, "panics") > 10);
    assert!(
        mount.log().contains("bad"),
        "the log does not name the key: {}",
        mount.log()
    );
}

#[test]
fn g01_a_panic_outside_of_handlers_ends_the_daemon_and_no_caller_waits() {
    let source = scratch();
    fs::write(source.path().join("key"), pattern(1, 10_000)).unwrap();
    let env = [("ZARRFS_TEST_SESSION_PANIC", "1")];
    let mut mount = Foreground::new(&[], &env, source.path(), &["--threads", "2"]);
    let file = File::open(mount.join("key")).unwrap();
    // isatty(3) is an ioctl, whose handler panics on purpose.
    let mut caller = Command::new("timeout")
        .args(["20", "test", "-t", "0"])
        .stdin(file)
        .spawn()
        .unwrap();
    let status = wait_for(&mut mount.daemon, Duration::from_secs(10));
    let caller = wait_for(&mut caller, Duration::from_secs(10));
    assert_eq!(status.expect("the daemon does not end").code(), Some(1));
    assert_eq!(caller.expect("the caller waits").code(), Some(1));
    let log = mount.log();
    assert!(log.contains("bug:") && log.contains("is dead"), "{log}");
    assert_eq!(errno(fs::metadata(&mount.path)), ENOTCONN);
}

#[test]
fn g02_a_killed_reader_ends_while_its_request_waits() {
    let source = scratch();
    let names = ["killed", "interrupted", "direct", "after"];
    for (i, name) in names.iter().enumerate() {
        fs::write(source.path().join(name), pattern(i as u64, 100_000)).unwrap();
    }
    // The store of the second mount is the first mount, whose daemon can be stopped.
    let store = Mount::of_keys(source.path(), &["--passthrough", "off"]);
    let mount = Mount::of_keys(store.path(), &["--passthrough", "off"]);
    let cases = [
        ("killed", Signal::KILL, false),
        ("interrupted", Signal::INT, false),
        ("direct", Signal::KILL, true),
    ];
    for (name, signal, direct) in cases {
        let mut reader = waiting_reader(&mount.join(name), direct);
        let stopped = Stopped::new(store.pid());
        writeln!(reader.0.stdin.as_ref().unwrap(), "go").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let ended = reader.0.try_wait().unwrap();
        assert!(
            ended.is_none(),
            "the reader of {name} did not wait: {ended:?}"
        );
        kill_process(Pid::from_child(&reader.0), signal).unwrap();
        // A direct read that the daemon has started ends with its reply.
        if !direct {
            assert!(
                wait_for(&mut reader.0, Duration::from_secs(1)).is_some(),
                "the reader of {name} stays"
            );
        }
        drop(stopped);
        assert!(
            wait_for(&mut reader.0, Duration::from_secs(2)).is_some(),
            "the reader of {name} stays"
        );
    }
    for (i, name) in names.iter().enumerate() {
        assert!(
            read_uncached(&mount.join(name)).unwrap() == pattern(i as u64, 100_000),
            "{name} afterwards"
        );
    }
    mount.unmount();
}

/// Starts a process that opens `path`, and reads it after a line on standard input.
fn waiting_reader(path: &Path, direct: bool) -> Killed {
    const SCRIPT: &str = "\
import mmap, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
fd = os.open(sys.argv[1], os.O_RDONLY | (os.O_DIRECT if sys.argv[2] == 'true' else 0))
buffer = mmap.mmap(-1, 4096)
print('open', flush=True)
sys.stdin.readline()
os.preadv(fd, [buffer], 0)
";
    let mut command = Command::new("python3");
    command
        .args(["-c", SCRIPT])
        .arg(path)
        .arg(direct.to_string());
    let mut reader = Killed(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(reader.0.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "open\n");
    reader
}

#[test]
fn g03_a_busy_mount_is_ebusy_and_a_lazy_unmount_waits_for_the_last_file() {
    let source = scratch();
    let content = pattern(3, 2_000_000);
    for source in both_kinds(source.path(), &[("big".to_owned(), content.clone())]) {
        let mount = Mount::of_keys(&source, &[]);
        let daemon = format!("/proc/{}", mount.pid());
        let alive = || Path::new(&daemon).exists();
        let mut file = File::open(mount.join("big")).unwrap();
        let mut first = vec![0; 1000];
        file.read_exact(&mut first).unwrap();

        let plain = unmount_command(&[]).arg(mount.path()).output().unwrap();
        let output = String::from_utf8_lossy(&plain.stderr).into_owned();
        assert!(
            !plain.status.success() && output.contains("busy"),
            "umount while busy: {output}"
        );
        let ours = run_for(
            zarrfs().arg("umount").arg(mount.path()),
            Duration::from_secs(20),
        );
        let output = String::from_utf8_lossy(&ours.stderr).into_owned();
        assert_eq!(
            ours.status.code(),
            Some(1),
            "zarrfs umount while busy: {output}"
        );
        assert!(
            is_mounted(mount.path()) && alive(),
            "an unmount that failed took something away"
        );
        assert!(read(mount.join("big")).unwrap() == content);

        assert!(
            unmount_command(&["-l"])
                .arg(mount.path())
                .status()
                .unwrap()
                .success()
        );
        assert!(!is_mounted(mount.path()));
        std::thread::sleep(Duration::from_millis(300));
        assert!(alive(), "the daemon left while a file was open");
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        assert!(
            rest == content[1000..],
            "wrong bytes after the lazy unmount"
        );
        drop(file);
        assert!(
            wait_until(Duration::from_secs(5), || !alive()),
            "the daemon stays after the last file was closed"
        );
    }
}

/// Returns the command umount of the system, or fusermount3 for ordinary users.
fn unmount_command(args: &[&str]) -> Command {
    let mut command = Command::new(if is_root() { "umount" } else { "fusermount3" });
    command.env("LC_ALL", "C");
    match is_root() {
        true => command.args(args),
        false => command.arg(if args.is_empty() { "-u" } else { "-uz" }),
    };
    command
}

#[test]
fn g04_an_aborted_connection_ends_the_daemon_with_a_failure_and_a_line_in_the_log() {
    if !is_root() {
        return skipped("needs root");
    }
    let dir = scratch();
    let connections = dir.path().join("connections");
    let _fusectl = Extra::new("fusectl", &connections);
    let sources = both_kinds(dir.path(), &[("big".to_owned(), pattern(4, 4_000_000))]);
    for source in &sources {
        let mut mount = Foreground::new(&[], &[], source, &["--passthrough", "off"]);
        let device = fs::metadata(&mount.path).unwrap().dev();
        let connection = connections.join(rustix::fs::minor(device).to_string());
        let lines_before = mount.log().lines().count();
        let file = File::open(mount.join("big")).unwrap();
        let readers: Vec<_> = (0..2)
            .map(|_| read_until_error(file.try_clone().unwrap()))
            .collect();
        std::thread::sleep(Duration::from_millis(100));

        fs::write(connection.join("abort"), "1").unwrap();
        let status =
            wait_for(&mut mount.daemon, Duration::from_secs(5)).expect("the daemon does not end");
        assert_eq!(status.code(), Some(32), "{}", mount.log());
        assert!(
            mount.log().lines().count() > lines_before,
            "no line about it: {}",
            mount.log()
        );
        for reader in readers {
            let ended = reader.join().unwrap();
            let expected = [ENOTCONN, EIO, Errno::CONNABORTED.raw_os_error()];
            assert!(
                expected.contains(&ended),
                "a reader ended with errno {ended}"
            );
        }
    }
}

/// Reads repeatedly without the page cache; returns the errno of the first failure.
fn read_until_error(file: File) -> std::thread::JoinHandle<i32> {
    std::thread::spawn(move || {
        let end = Instant::now() + Duration::from_secs(20);
        let mut buffer = vec![0; 1 << 20];
        while Instant::now() < end {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            if let Err(e) = file.read_at(&mut buffer, 0) {
                return e.raw_os_error().unwrap();
            }
        }
        panic!("reads go on after the abort")
    })
}
