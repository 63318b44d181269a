//! Databases that another one of the same size and the same counters overwrites or replaces during a mount.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::support::clients::Killed;
use crate::support::*;
use crate::writers::{LENGTHS, byte_of, errno, line, start};
use crate::{KINDS, write, write_dbm};

/// The kinds of `write_dbm.py`. An index of `dbm.dumb` that is not made anew after its values is refused.
const DBM_KINDS: [&str; 6] = ["gnu", "ndbm", "hash", "btree", "hash-big", "btree-big"];

/// Commands that put the content of `$1` into the file `$2`.
const OVERWRITES: [&str; 5] = [
    r#"cp "$1" "$2""#,
    r#"cp -p "$1" "$2""#,
    r#"dd if="$1" of="$2" conv=notrunc bs=64k status=none"#,
    r#"rsync --inplace --ignore-times --times "$1" "$2""#,
    r#"cp "$1" "$2.new" && mv "$2.new" "$2""#,
];

/// Writes the values of a number into a new database, and returns its files.
fn database(kind: &str, directory: &Path, number: u8) -> (PathBuf, Vec<PathBuf>) {
    fs::create_dir(directory).unwrap();
    let path = directory.join("d");
    let mut command = match KINDS.contains(&kind) {
        true => write(),
        false => write_dbm(),
    };
    run(command
        .args(["once", kind])
        .arg(&path)
        .arg(number.to_string()));
    let with = |extension| path.with_extension(extension);
    match kind {
        "ndbm" => (with("db"), vec![with("db")]),
        _ if path.is_dir() => (path.clone(), vec![path.join("data.mdb")]),
        _ => (path.clone(), vec![path]),
    }
}

/// Opens the values and reads their first bytes.
fn open(mount: &Mount, number: u8) -> Vec<(usize, File)> {
    let values = LENGTHS.into_iter().map(|length| {
        let file = File::open(mount.join(format!("v/{length}"))).unwrap();
        let mut first = [0; 50];
        file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first, [number; 50]);
        (length, file)
    });
    values.collect()
}

/// Asserts that an open file returns its old content or `ESTALE`, and that a file opened now has the new one.
fn is_old_or_stale(kind: &str, mount: &Mount, files: Vec<(usize, File)>, old: u8, new: u8) {
    for (length, file) in files {
        let mut rest = vec![0; length];
        match file.read_exact_at(&mut rest, 0) {
            Ok(()) => assert!(
                rest.iter().all(|byte| *byte == old),
                "{kind}: the open value of {length} bytes has parts of the new one"
            ),
            Err(error) => assert_eq!(errno(&error), Some(Errno::STALE), "{kind}: {error}"),
        }
    }
    let begun = Instant::now();
    for length in LENGTHS {
        let value = mount.join(format!("v/{length}"));
        // The kernel and the cache of short values know the old one for a moment.
        let is_new = || match byte_of(&value, length) {
            Ok(byte) => {
                assert!([old, new].contains(&byte));
                byte == new
            }
            Err(error) => {
                assert_eq!(errno(&error), Some(Errno::STALE), "{kind}: {error}");
                false
            }
        };
        assert!(
            wait_until(Duration::from_secs(3), is_new),
            "{kind}: {value:?} is old after {:?}",
            begun.elapsed()
        );
    }
}

fn is_never_mixed(kind: &str, scratch: &Path) {
    let (mounted, files) = database(kind, &scratch.join("mounted"), 1);
    let originals = [1, 2].map(|number| {
        let directory = scratch.join(number.to_string());
        (number, database(kind, &directory, number).1)
    });
    for (one, other) in originals[0].1.iter().zip(&originals[1].1) {
        let sizes = [one, other].map(|file| file.metadata().unwrap().len());
        assert_eq!(sizes[0], sizes[1], "{kind}");
        // `cp -p` sets the modification time that the file has.
        let time = Command::new("touch").arg("-r").args([one, other]).status();
        assert!(time.unwrap().success());
    }
    for file in files.iter().zip(&originals[0].1) {
        let time = Command::new("touch")
            .arg("-r")
            .args([file.1, file.0])
            .status();
        assert!(time.unwrap().success());
    }
    let mount = Mount::with(&mounted, &["--ttl", "0"]);
    let mut old = 1;
    // Twice, because reads without locks begin after some reads.
    for overwrite in OVERWRITES.into_iter().chain(OVERWRITES) {
        let (new, content) = originals.iter().find(|(number, _)| *number != old).unwrap();
        let open = open(&mount, old);
        for (content, file) in content.iter().zip(&files) {
            let mut command = Command::new("sh");
            command.args(["-ec", overwrite, "sh"]).args([content, file]);
            run(&mut command);
        }
        is_old_or_stale(kind, &mount, open, old, *new);
        for _ in 0..8 {
            drop(self::open(&mount, *new));
        }
        old = *new;
    }
}

#[test]
fn i10_an_overwritten_database_is_never_mixed_with_its_old_content() {
    let scratch = scratch();
    std::thread::scope(|scope| {
        for kind in KINDS.into_iter().chain(DBM_KINDS) {
            let directory = scratch.path().join(kind);
            fs::create_dir(&directory).unwrap();
            scope.spawn(move || is_never_mixed(kind, &directory));
        }
    });
}

#[test]
fn an_unchanged_value_stays_readable_while_a_writer_has_the_database_open() {
    let scratch = scratch();
    for kind in ["wal", "lmdb0", "lmdb1"] {
        let path = scratch.path().join(kind);
        let (mut writer, mut output): (Killed, _) = start(write(), &["grow", kind], &path);
        assert_eq!(line(&mut output), "ready");
        let mount = Mount::with(&path, &["--ttl", "0"]);
        // The writer can commit between the lookup and the open.
        let opened = || File::open(mount.join("v/300000"));
        let stale = |opened: &std::io::Result<File>| {
            let error = opened.as_ref().err();
            error.is_some_and(|error| error.kind() == std::io::ErrorKind::StaleNetworkFileHandle)
        };
        let mut opens = std::iter::repeat_with(opened).take(20);
        let value = opens
            .find(|opened| !stale(opened))
            .expect("an open that is not stale");
        let value = value.unwrap();
        let begun = Instant::now();
        // Its commits write checkpoints, or change pages before they are committed.
        while writer.0.try_wait().unwrap().is_none() {
            let mut bytes = [0; 5000];
            let read = value.read_exact_at(&mut bytes, 200_000);
            read.unwrap_or_else(|error| panic!("{kind}: {error} after {:?}", begun.elapsed()));
            assert!(bytes.iter().all(|byte| *byte == 1), "{kind}");
            if begun.elapsed() > Duration::from_secs(1) {
                writer.0.stdin.take();
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{kind}");
        }
        assert_eq!(byte_of(&mount.join("v/300000"), 300_000).unwrap(), 1);
    }
}
