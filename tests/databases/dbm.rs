//! The databases of Python's `dbm` modules and of bsddb3, during writes and after damage.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use zarrfs::store::{Key, StoreError};

use crate::damage::{keys, open, read};
use crate::support::*;
use crate::write_dbm;
use crate::writers::{LENGTHS, byte_of, errno, line, reads_while_it_is_written, start};

/// The kinds of `write_dbm.py`, with the file of each that contains the keys.
const KINDS: [(&str, &str); 7] = [
    ("gnu", ""),
    ("ndbm", ".db"),
    ("dumb", ".dir"),
    ("hash", ""),
    ("btree", ""),
    ("hash-big", ""),
    ("btree-big", ""),
];

fn with(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(extension);
    name.into()
}

#[test]
fn i09_a_change_of_a_writer_is_seen_whole_or_not_at_all() {
    let scratch = scratch();
    std::thread::scope(|scope| {
        for kind in ["gnu", "ndbm", "dumb", "hash", "btree"] {
            let path = scratch.path().join(kind);
            scope.spawn(move || reads_while_it_is_written(write_dbm(), kind, &path));
        }
    });
}

/// Mounts a database whose writer has changed values and keeps it open.
fn held(kind: &str, path: &Path) -> (impl Drop + use<>, Mount) {
    let (mut writer, mut output) = start(write_dbm(), &["hold", kind], path);
    assert_eq!(line(&mut output), "ready");
    let mount = Mount::with(path, &["--ttl", "0", "--timeout", "300ms"]);
    for length in LENGTHS {
        assert_eq!(
            byte_of(&mount.join(format!("v/{length}")), length).unwrap(),
            1
        );
    }
    // GNU dbm cannot be opened while a reader has the lock, so the writer retries.
    writeln!(writer.0.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(line(&mut output), "holding");
    (writer, mount)
}

#[test]
fn i09_a_database_that_is_open_for_writing_times_out_and_is_never_read_mid_change() {
    let scratch = scratch();
    for kind in ["gnu", "dumb"] {
        let path = scratch.path().join(kind);
        let (writer, mount) = held(kind, &path);
        for name in ["v/100", "v/absent"] {
            let error = fs::read(mount.join(name)).unwrap_err();
            assert_eq!(
                errno(&error),
                Some(Errno::TIMEDOUT),
                "{kind}: {name}: {error}"
            );
        }
        let refused = Mount::attempt(&path, &["--timeout", "300ms"]).unwrap_err();
        let reason = match kind {
            "gnu" => "open for writing",
            _ => "was made after the last change",
        };
        assert!(refused.stderr.contains(reason), "{refused:?}");
        drop(writer);
        if kind == "dumb" {
            // The sizes of values were lost with the writer.
            let error = fs::read(mount.join("v/100")).unwrap_err();
            assert_eq!(errno(&error), Some(Errno::TIMEDOUT), "{error}");
        }
        run(write_dbm().args(["write", kind]).arg(&path));
        assert_eq!(fs::read(mount.join("v/more")).unwrap(), b"1", "{kind}");
        assert_eq!(
            byte_of(&mount.join("v/20000"), 20_000).unwrap(),
            2,
            "{kind}"
        );
    }
}

#[test]
fn i09_a_killed_writer_of_gnu_dbm_leaves_its_written_values() {
    let scratch = scratch();
    let path = scratch.path().join("gnu");
    let (writer, mount) = held("gnu", &path);
    drop(writer);
    for length in [3000, 20_000, 300_000] {
        let byte = byte_of(&mount.join(format!("v/{length}")), length).unwrap();
        assert_eq!(byte, 2, "{length}");
    }
    assert_eq!(byte_of(&mount.join("v/100"), 50).unwrap(), b'2');
}

#[test]
fn i09_an_idle_mount_blocks_no_writer() {
    // On tmpfs, the times of a file do not reveal a writer.
    let tmpfs = Path::new("/dev/shm");
    let mut places = vec![scratch()];
    if tmpfs.is_dir() {
        places.push(tempfile::tempdir_in(tmpfs).unwrap());
    }
    for place in places {
        let path = place.path().join("gnu");
        run(write_dbm().args(["small", "gnu"]).arg(&path));
        let mount = Mount::with(&path, &["--ttl", "0"]);
        let long = fs::File::open(mount.join("long/0")).unwrap();
        for offset in [0, 10_000] {
            std::thread::sleep(Duration::from_millis(100));
            let mut part = [0; 10];
            std::os::unix::fs::FileExt::read_exact_at(&long, &mut part, offset).unwrap();
            assert_eq!(&part, b"0123456789", "{path:?}");
        }
        for content in 0..3_u8 {
            assert!(fs::read(mount.join("a3/3")).is_ok());
            let script = "import dbm.gnu, sys; d = dbm.gnu.open(sys.argv[1], 'w'); d['a3/3'] = sys.argv[2] * 16";
            let changed = wait_until(Duration::from_secs(10), || {
                std::process::Command::new("/usr/bin/python3")
                    .args(["-c", script])
                    .arg(&path)
                    .arg(content.to_string())
                    .stderr(std::process::Stdio::null())
                    .status()
                    .unwrap()
                    .success()
            });
            assert!(changed, "{path:?}");
            let found = fs::read(mount.join("a3/3")).unwrap();
            assert_eq!(
                found,
                content.to_string().repeat(16).into_bytes(),
                "{path:?}"
            );
        }
    }
}

/// Returns the keys and values of a database.
fn contents(kind: &str, path: &Path) -> (Vec<Key>, BTreeMap<Key, Vec<u8>>) {
    let store = open(path).unwrap_or_else(|| panic!("{kind}"));
    let mut all = Vec::new();
    keys(&*store, &Key::root(), &mut all).unwrap();
    assert_eq!(all.len(), 153, "{kind}");
    let values = all
        .iter()
        .map(|key| (key.clone(), read(&*store, key).unwrap()));
    let values = values.collect();
    (all, values)
}

const PAGE_BYTES: usize = 4096;

#[test]
fn a18_a_damaged_page_is_an_error_or_affects_bytes_of_values_only() {
    let scratch = scratch();
    std::thread::scope(|scope| {
        for (kind, extension) in KINDS {
            let path = scratch.path().join(kind);
            scope.spawn(move || damage_pages(kind, &path, extension));
        }
    });
}

fn damage_pages(kind: &str, path: &Path, extension: &str) {
    run(write_dbm().args(["small", kind]).arg(path));
    let file = with(path, extension);
    let (all, values) = contents(kind, &file);
    let original = fs::read(&file).unwrap();
    let mut refused = 0;
    for start in (0..original.len()).step_by(PAGE_BYTES) {
        let range = start..original.len().min(start + PAGE_BYTES);
        for fill in [Some(0), Some(0xff), Some(b'a'), None] {
            let mut content = original.clone();
            match fill {
                Some(byte) => content[range.clone()].fill(byte),
                // Simulates a lost write: the page has the content of another page.
                None => content.copy_within(0..range.len(), range.start),
            }
            replace(&file, &content);
            let Some(store) = open(&file) else {
                refused += 1;
                continue;
            };
            let mut wrong = 0;
            for (key, value) in &values {
                match read(&*store, key) {
                    Ok(found) => {
                        assert_eq!(found.len(), value.len(), "{kind}: {start}: {key}");
                        wrong += found.iter().zip(value).filter(|(a, b)| a != b).count();
                    }
                    Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
                        panic!("{kind}: {start}, {fill:?}: {key} is said to be absent")
                    }
                    Err(_) => {}
                }
            }
            assert!(wrong <= PAGE_BYTES, "{kind}: {start}: {wrong} bytes");
            let mut found = Vec::new();
            keys(&*store, &Key::root(), &mut found).unwrap();
            assert_eq!(found, all, "{kind}: {start}: a listing lacks names");
        }
    }
    assert!(refused >= 3, "{kind}: {refused} refused");
}

#[test]
fn a18_a_truncated_file_is_an_error_and_never_absence() {
    let scratch = scratch();
    for (kind, extension) in KINDS {
        let path = scratch.path().join(kind);
        run(write_dbm().args(["small", kind]).arg(&path));
        let file = with(&path, extension);
        let (_, values) = contents(kind, &file);
        let original = fs::read(&file).unwrap();
        for length in (1..original.len()).step_by(original.len() / 40 + 1) {
            // A text that is cut at the end of a line is valid.
            if kind == "dumb" && original[length - 1] == b'\n' {
                continue;
            }
            replace(&file, &original[..length]);
            let Some(store) = open(&file) else { continue };
            for key in values.keys() {
                let found = read(&*store, key);
                let is_absent = matches!(found, Err(StoreError::NotFound { .. }));
                assert!(!is_absent, "{kind}: {key} of {length} bytes");
            }
        }
    }
    let path = scratch.path().join("values");
    run(write_dbm().args(["small", "dumb"]).arg(&path));
    let content = fs::read(with(&path, ".dat")).unwrap();
    fs::write(with(&path, ".dat"), &content[..content.len() - 1]).unwrap();
    renew(&with(&path, ".dir"));
    let refused = Mount::attempt(&path, &[]).unwrap_err();
    assert!(
        refused.stderr.contains("not in the file of values"),
        "{refused:?}"
    );
}

/// Replaces a file by one with a new inode and change time, but an old modification time.
fn replace(path: &Path, content: &[u8]) {
    let new = with(path, ".new");
    fs::write(&new, content).unwrap();
    // A Berkeley DB file that was just written may still have a writer.
    let file = fs::File::options().write(true).open(&new).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000))
        .unwrap();
    fs::rename(new, path).unwrap();
}

/// Replaces a file with a copy of itself.
fn renew(path: &Path) {
    replace(path, &fs::read(path).unwrap());
}

#[test]
fn a18_changed_bytes_end_no_reader() {
    let scratch = scratch();
    for (kind, extension) in KINDS {
        let path = scratch.path().join(kind);
        run(write_dbm().args(["small", kind]).arg(&path));
        let file = with(&path, extension);
        let original = fs::read(&file).unwrap();
        let mut state = 1_u64;
        for _ in 0..60 {
            let mut content = original.clone();
            for _ in 0..4 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // The headers of pages contain offsets, sizes and page numbers.
                let start = (state >> 33) as usize % content.len() / 512 * 512;
                let byte = start + (state >> 20) as usize % 128;
                if let Some(byte) = content.get_mut(byte) {
                    *byte ^= 1 << ((state >> 50) % 8);
                }
            }
            replace(&file, &content);
            let Some(store) = open(&file) else { continue };
            let mut found = Vec::new();
            let _ = keys(&*store, &Key::root(), &mut found);
            for key in found {
                let _ = read(&*store, &key);
            }
        }
    }
}

#[test]
fn a_copy_of_a_dumb_database_is_read_if_its_index_is_the_newer_file() {
    let scratch = scratch();
    let path = scratch.path().join("dumb");
    run(write_dbm().args(["small", "dumb"]).arg(&path));
    for (first, second) in [(".dir", ".dat"), (".dat", ".dir")] {
        for (options, is_read) in [("-p", true), ("", first == ".dat")] {
            let copy = scratch.path().join(format!("copy{options}{first}"));
            let (from, to) = (path.display(), copy.display());
            sh(&format!(
                "cp {options} {from}{first} {to}{first}; sleep 0.1; cp {options} {from}{second} {to}{second}"
            ));
            if !is_read {
                let refused = Mount::attempt(&copy, &["--timeout", "300ms"]).unwrap_err();
                assert!(refused.stderr.contains("a copy of it"), "{refused:?}");
                renew(&with(&copy, ".dir"));
            }
            contents("dumb", &with(&copy, ".dat"));
        }
    }
}

#[test]
fn files_that_are_no_plain_database_are_refused_by_name() {
    let scratch = scratch();
    let path = scratch.path().join("duplicates");
    let load = format!(
        "printf 'k\\n1\\nk\\n2\\n' | $(command -v db_load || command -v db5.3_load) -T -t btree -c duplicates=1 {}",
        path.display()
    );
    sh(&load);
    let refused = Mount::attempt(&path, &["--force"]).unwrap_err();
    assert!(refused.stderr.contains("several values"), "{refused:?}");
    let old = scratch.path().join("old");
    fs::write(&old, b"\x61\x15\x06\x00\x02\x00\x00\x00").unwrap();
    let refused = Mount::attempt(&old, &["--force"]).unwrap_err();
    assert!(refused.stderr.contains("Berkeley DB 1.85"), "{refused:?}");
}
