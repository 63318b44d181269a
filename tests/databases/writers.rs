//! Writers that run, and writers that are killed, during a mount of their database.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;

use crate::support::clients::Killed;
use crate::support::*;
use crate::{KINDS, write};

/// The lengths of the values of `write.py`.
pub(crate) const LENGTHS: [usize; 4] = [100, 3000, 20_000, 300_000];

pub(crate) fn start(
    mut command: Command,
    arguments: &[&str],
    path: &Path,
) -> (Killed, BufReader<ChildStdout>) {
    let (first, last) = arguments.split_at(2);
    command.args(first).arg(path).args(last);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (Killed(child), output)
}

pub(crate) fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Returns the byte of which a value consists, and asserts that it has no other.
pub(crate) fn byte_of(path: &Path, length: usize) -> std::io::Result<u8> {
    let bytes = fs::read(path)?;
    assert_eq!(bytes.len(), length, "{path:?}");
    let first = bytes[0];
    assert!(
        bytes.iter().all(|byte| *byte == first),
        "{path:?} is a mixture"
    );
    Ok(first)
}

pub(crate) fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[test]
fn changes_of_a_running_writer_are_seen_whole() {
    let scratch = scratch();
    std::thread::scope(|scope| {
        for kind in KINDS {
            let path = scratch.path().join(kind);
            scope.spawn(move || reads_while_it_is_written(write(), kind, &path));
        }
    });
}

pub(crate) fn reads_while_it_is_written(command: Command, kind: &str, path: &Path) {
    let (mut writer, mut output) = start(command, &["update", kind, "3"], path);
    assert_eq!(line(&mut output), "ready");
    let mount = Mount::with(path, &["--ttl", "0"]);
    let (mut read, mut seen) = (0, BTreeSet::new());
    while writer.0.try_wait().unwrap().is_none() {
        for length in LENGTHS {
            match byte_of(&mount.join(format!("v/{length}")), length) {
                Ok(byte) => {
                    read += 1;
                    seen.insert(byte);
                }
                Err(e) => assert_eq!(errno(&e), Some(Errno::STALE), "{kind}: {e}"),
            }
        }
    }
    assert!(
        read > 4 && seen.len() > 1,
        "{kind}: {read} read of {}",
        seen.len()
    );
    eprintln!("{kind}: {read} values read, {} contents", seen.len());
    let last: u8 = line(&mut output).parse().unwrap();
    for length in LENGTHS {
        let found = byte_of(&mount.join(format!("v/{length}")), length).unwrap();
        assert_eq!(found, last, "{kind}: {length}");
    }
}

/// Mounts a database with an open transaction, whose writer waits.
fn hanging(kind: &str, path: &Path) -> (Killed, Mount) {
    let (mut writer, mut output) = start(write(), &["hang", kind], path);
    assert_eq!(line(&mut output), "ready");
    let mount = Mount::with(path, &["--ttl", "0", "--timeout", "300ms"]);
    for length in LENGTHS {
        assert_eq!(
            byte_of(&mount.join(format!("v/{length}")), length).unwrap(),
            1
        );
    }
    writeln!(writer.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(line(&mut output), "hanging");
    (writer, mount)
}

fn assert_first_state(mount: &Mount) {
    for length in LENGTHS {
        assert_eq!(
            byte_of(&mount.join(format!("v/{length}")), length).unwrap(),
            1
        );
    }
    let error = fs::read(mount.join("v/new")).unwrap_err();
    assert_eq!(errno(&error), Some(Errno::NOENT));
}

#[test]
fn a_transaction_of_a_writer_that_is_killed_is_not_seen() {
    let scratch = scratch();
    for kind in ["wal", "lmdb0", "lmdb1"] {
        let path = scratch.path().join(kind);
        let (writer, mount) = hanging(kind, &path);
        assert_first_state(&mount);
        drop(writer);
        assert_first_state(&mount);
        mount.unmount();
        assert_first_state(&Mount::new(&path));
    }
}

#[test]
fn a_hot_journal_is_an_error_until_a_writer_rolls_it_back() {
    let scratch = scratch();
    let path: PathBuf = scratch.path().join("sqlite");
    let (writer, mount) = hanging("sqlite", &path);
    let file = mount.join("v/100");
    // The writer has the lock.
    let locked = fs::read(&file).unwrap_err();
    assert_eq!(errno(&locked), Some(Errno::TIMEDOUT), "{locked}");
    drop(writer);
    let before = fs::read(&path).unwrap();
    let interrupted = fs::read(&file).unwrap_err();
    assert_eq!(errno(&interrupted), Some(Errno::IO), "{interrupted}");
    let absent = fs::read(mount.join("v/absent")).unwrap_err();
    assert_eq!(errno(&absent), Some(Errno::IO), "{absent}");
    let refused = Mount::attempt(&path, &[]).unwrap_err();
    assert!(refused.stderr.contains("interrupted"), "{refused:?}");
    assert_eq!(fs::read(&path).unwrap(), before, "the database was written");
    sh(&format!(
        "python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute(\"SELECT count(*) FROM zarr\")' {}",
        path.display()
    ));
    assert!(wait_until(Duration::from_secs(5), || fs::read(&file).is_ok()));
    assert_first_state(&mount);
}

#[test]
fn a_write_ahead_log_without_its_index_is_refused() {
    let scratch = scratch();
    let path = scratch.path().join("wal");
    let (writer, mount) = hanging("wal", &path);
    mount.unmount();
    drop(writer);
    fs::remove_file(scratch.path().join("wal-shm")).unwrap();
    let refused = Mount::attempt(&path, &[]).unwrap_err();
    assert!(refused.stderr.contains("-shm"), "{refused:?}");
    assert!(!scratch.path().join("wal-shm").exists());
}

#[test]
fn an_idle_mount_lets_the_last_writer_remove_its_log() {
    let scratch = scratch();
    let path = scratch.path().join("wal");
    let (mut writer, mut output) = start(write(), &["hang", "wal"], &path);
    assert_eq!(line(&mut output), "ready");
    let mount = Mount::with(&path, &["--ttl", "0"]);
    assert_eq!(byte_of(&mount.join("v/100"), 100).unwrap(), 1);
    let log = scratch.path().join("wal-wal");
    assert!(log.exists());
    // Longer than a connection stays open.
    std::thread::sleep(Duration::from_secs(5));
    writeln!(writer.0.stdin.as_mut().unwrap(), "close").unwrap();
    assert!(writer.0.wait().unwrap().success());
    assert!(!log.exists());
    assert_eq!(byte_of(&mount.join("v/300000"), 300_000).unwrap(), 1);
}
