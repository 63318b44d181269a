//! G7, I1, I2, I3, I7: sources that change during a mount.
//!
//! Promise: a read returns the old file, the new file, or ESTALE, but never a mixture.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

const SOON: Duration = Duration::from_secs(3);

/// Returns whether the file is seen with these bytes and this size, whichever is read first.
fn shows(path: &Path, content: &[u8]) -> bool {
    fs::metadata(path).is_ok_and(|m| m.len() == content.len() as u64)
        && read(path).is_ok_and(|bytes| bytes == content)
}

/// Asserts that a read failed because the source changed.
fn expect_stale(result: io::Result<Vec<u8>>, what: &str) {
    let e = result.map(|bytes| bytes.len()).expect_err(what);
    assert_eq!(e.raw_os_error(), Some(ESTALE), "{what}: {e}");
}

#[test]
fn g07_a_replaced_file_has_its_new_bytes_after_the_ttl() {
    for args in [
        &[][..],
        &["--passthrough", "off"],
        &["--ttl", "100ms", "--passthrough", "off"],
    ] {
        let (source, spare) = (scratch(), scratch());
        let path = source.path().join("chunk");
        fs::write(&path, pattern(1, 100_000)).unwrap();
        let mount = Mount::of_keys(source.path(), args);
        assert!(shows(&mount.join("chunk"), &pattern(1, 100_000)));
        for (seed, len) in [(2, 100_000), (3, 250_000), (4, 7), (5, 0), (6, 4096)] {
            replace(&path, &pattern(seed, len), &spare.path().join("new"));
            let new = || shows(&mount.join("chunk"), &pattern(seed, len));
            assert!(
                wait_until(SOON, new),
                "{args:?}: {len} new bytes are not seen"
            );
            std::thread::sleep(Duration::from_millis(50));
            assert!(new(), "{args:?}: other bytes later");
        }
    }
}

#[test]
fn g07_a_rewritten_file_has_no_stale_pages_after_the_ttl() {
    for args in [
        &[][..],
        &["--passthrough", "off"],
        &["--ttl", "100ms", "--passthrough", "off"],
    ] {
        let source = scratch();
        let path = source.path().join("chunk");
        fs::write(&path, pattern(1, 100_000)).unwrap();
        let mount = Mount::of_keys(source.path(), args);
        assert!(shows(&mount.join("chunk"), &pattern(1, 100_000)));
        for (seed, len) in [(2, 100_000), (3, 250_000), (4, 7), (5, 0), (6, 4096)] {
            fs::write(&path, pattern(seed, len)).unwrap();
            let new = || shows(&mount.join("chunk"), &pattern(seed, len));
            assert!(
                wait_until(SOON, new),
                "{args:?}: {len} written bytes are not seen"
            );
        }
        // Overwrites a few bytes in the middle without a change of the size.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"changed", 2000).unwrap();
        let mut expected = pattern(6, 4096);
        expected[2000..2007].copy_from_slice(b"changed");
        assert!(
            wait_until(SOON, || shows(&mount.join("chunk"), &expected)),
            "{args:?}: a stale page"
        );
    }
}

#[test]
fn g07_a_new_file_is_seen_after_the_ttl() {
    let source = scratch();
    fs::create_dir(source.path().join("d")).unwrap();
    let mount = Mount::of_keys(source.path(), &[]);
    assert_eq!(errno(read(mount.join("d/chunk"))), ENOENT);
    assert_eq!(fs::read_dir(mount.join("d")).unwrap().count(), 0);
    fs::write(source.path().join("d/chunk"), "new").unwrap();
    assert!(wait_until(SOON, || shows(&mount.join("d/chunk"), b"new")));
    assert_eq!(fs::read_dir(mount.join("d")).unwrap().count(), 1);
}

#[test]
fn i01_a_zip_replaced_by_rename_is_served_as_it_was() {
    let (dir, old) = (scratch(), tree());
    let new: Vec<_> = old
        .iter()
        .map(|(name, content)| (name.clone(), pattern(99, content.len())))
        .collect();
    let zip = dir.path().join("archive.zip");
    fs::write(&zip, zip_bytes(&old, true)).unwrap();
    let mount = Mount::of_keys(&zip, &[]);
    assert!(read(mount.join("a/big")).unwrap() == pattern(3, 300_000));
    replace(&zip, &zip_bytes(&new, true), &dir.path().join("new"));
    let second = Mount::of_keys(&zip, &[]);
    for ((name, before), (_, after)) in old.iter().zip(&new) {
        assert!(
            read_uncached(&mount.join(name)).unwrap() == *before,
            "{name} of the old zip"
        );
        assert!(
            read_uncached(&second.join(name)).unwrap() == *after,
            "{name} of the new zip"
        );
    }
}

/// Returns two zips with the same names and sizes, also of deflated entries, but with other bytes.
fn twin_zips(entries: u64, len: usize) -> [Vec<(String, Vec<u8>)>; 2] {
    [0, 1000].map(|seed| {
        (0..entries)
            .map(|i| (format!("c/{i}"), pattern(seed + i, len)))
            .collect()
    })
}

#[test]
fn i02_zip_overwritten_in_place_reads_estale_never_a_mix() {
    let dir = scratch();
    let zip = dir.path().join("archive.zip");
    let [old, new] = twin_zips(20, 150_000);
    for deflate in [false, true] {
        let ways: [Overwrite; 3] = [write, write_without_truncating, truncate_to_half];
        for overwrite in ways {
            fs::write(&zip, zip_bytes(&old, deflate)).unwrap();
            let mount = Mount::of_keys(&zip, &[]);
            for (name, content) in &old[..5] {
                assert!(read(mount.join(name)).unwrap() == *content);
            }
            let mut open = File::open(mount.join("c/6")).unwrap();
            overwrite(&zip, &zip_bytes(&new, deflate)).unwrap();

            for (name, content) in &old[..5] {
                match read(mount.join(name)) {
                    Ok(bytes) => assert!(
                        bytes == *content,
                        "{name} was in the page cache and has other bytes"
                    ),
                    error => expect_stale(error, name),
                }
                expect_stale(read_uncached(&mount.join(name)), name);
            }
            for (name, _) in &old[5..] {
                expect_stale(read(mount.join(name)), name);
            }
            let mut bytes = Vec::new();
            expect_stale(
                open.read_to_end(&mut bytes).map(|_| bytes),
                "a file that was open before",
            );
            assert_eq!(fs::read_dir(mount.join("c")).unwrap().count(), 20);
            assert!(mount.log().contains("WARN"), "nothing in the log");
        }
    }
}

/// A function that overwrites a zip without a change of its inode.
type Overwrite = fn(&Path, &[u8]) -> io::Result<()>;

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)
}

fn write_without_truncating(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all_at(bytes, 0)
}

fn truncate_to_half(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .set_len(bytes.len() as u64 / 2)
}

#[test]
fn i02_zip_overwritten_while_it_is_read_is_never_a_mix() {
    let dir = scratch();
    let zip = dir.path().join("archive.zip");
    let [old, new] = twin_zips(8, 400_000);
    for round in 0..12 {
        let deflate = round % 2 == 0;
        fs::write(&zip, zip_bytes(&old, deflate)).unwrap();
        let new = zip_bytes(&new, deflate);
        let mount = Mount::of_keys(&zip, &[]);
        let read_on = |seed: u64| {
            let (mut state, mut stale) = (seed, 0);
            while stale < 20 {
                let (name, content) = &old[random(&mut state) as usize % old.len()];
                match read_uncached(&mount.join(name)) {
                    Ok(bytes) => assert!(
                        bytes == *content,
                        "{name} of a zip that changes has other bytes"
                    ),
                    Err(e) => {
                        assert_eq!(e.raw_os_error(), Some(ESTALE), "{name}: {e}");
                        stale += 1;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..=2 {
                scope.spawn(move || read_on(seed));
            }
            std::thread::sleep(Duration::from_millis(20 + 7 * round));
            write_without_truncating(&zip, &new).unwrap();
        });
    }
}

/// A function that puts a new version of the file in place.
type Put = fn(&Path, &[u8], &Path);

/// Writes `versions` versions of a file while two kinds of clients read it; `len` returns the size
/// of each version.
fn read_while_versions_change(args: &[&str], versions: u32, len: fn(u32) -> usize, put: Put) {
    let (source, spare) = (scratch(), scratch());
    let path = source.path().join("chunk");
    fs::write(&path, of_version(0, len(0))).unwrap();
    let mount = Mount::of_keys(source.path(), args);
    let (current, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let check = |bytes: &[u8]| {
        let newest = current.load(Ordering::Relaxed) + 1;
        let Some(version) = version_of(bytes) else {
            panic!(
                "{args:?}: {} bytes, not of one version, before version {newest}",
                bytes.len()
            );
        };
        assert!(
            version <= newest,
            "{args:?}: version {version} does not exist yet"
        );
        assert_eq!(
            bytes.len(),
            len(version),
            "{args:?}: the length of version {version}"
        );
    };
    let mount = &mount;
    let client = |read: fn(&Path) -> io::Result<Vec<u8>>| {
        let mut whole = 0_u32;
        while !done.load(Ordering::Relaxed) {
            match read(&mount.join("chunk")) {
                Ok(bytes) => {
                    check(&bytes);
                    whole += 1;
                }
                Err(e) => assert_eq!(e.raw_os_error(), Some(ESTALE), "{args:?}: {e}"),
            }
        }
        whole
    };
    let whole = std::thread::scope(|scope| {
        let clients = [
            scope.spawn(|| client(|path| fs::read(path))),
            scope.spawn(|| client(read_in_two_halves)),
        ];
        let writer = scope.spawn(|| {
            for version in 1..=versions {
                put(
                    &path,
                    &of_version(version, len(version)),
                    &spare.path().join("new"),
                );
                current.store(version, Ordering::Relaxed);
                // Without occasional pauses, no read of a file that is overwritten in place could
                // be proven right.
                let rest_us = if version % 50 == 0 {
                    60_000
                } else {
                    u64::from(version % 8) * 200
                };
                std::thread::sleep(Duration::from_micros(rest_us));
            }
        });
        let written = writer.join();
        done.store(true, Ordering::Relaxed);
        written.unwrap();
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum::<u32>()
    });
    assert!(
        whole > 20,
        "{args:?}: only {whole} reads of {versions} versions succeeded"
    );
    let last = of_version(versions, len(versions));
    assert!(
        wait_until(SOON, || shows(&mount.join("chunk"), &last)),
        "{args:?}: the last version is not seen"
    );
}

/// Reads both halves through one handle, and yields in between.
fn read_in_two_halves(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.size();
    let mut bytes = vec![0; usize::try_from(size).unwrap() / 2];
    file.read_exact(&mut bytes)?;
    std::thread::sleep(Duration::from_millis(1));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn put_by_rename(path: &Path, content: &[u8], spare: &Path) {
    replace(path, content, spare);
}

fn put_in_place(path: &Path, content: &[u8], _: &Path) {
    OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .write_all_at(content, 0)
        .unwrap();
}

#[test]
fn i03_a_chunk_replaced_2000_times_is_read_whole() {
    for passthrough in PASSTHROUGH {
        for ttl in ["1s", "1ms"] {
            let args = ["--passthrough", passthrough, "--ttl", ttl];
            read_while_versions_change(&args, 2000, |_| 200_000, put_by_rename);
        }
    }
}

#[test]
fn i03_a_chunk_replaced_by_longer_and_shorter_ones_is_read_whole() {
    for passthrough in PASSTHROUGH {
        for ttl in ["1s", "1ms"] {
            let args = ["--passthrough", passthrough, "--ttl", ttl];
            let len = |version| 4 * (1000 + 9_999 * (version as usize * 7 % 10));
            read_while_versions_change(&args, 2000, len, put_by_rename);
        }
    }
}

#[test]
fn i03_a_chunk_rewritten_in_place_is_read_whole_or_stale() {
    for ttl in ["1s", "1ms"] {
        let args = ["--passthrough", "off", "--ttl", ttl];
        read_while_versions_change(&args, 2000, |_| 200_000, put_in_place);
    }
}

#[test]
fn i03_an_open_file_that_is_rewritten_shorter_is_stale_and_not_short() {
    for ttl in ["1s", "1ms"] {
        let source = scratch();
        let path = source.path().join("chunk");
        let old = pattern(1, 2_000_000);
        fs::write(&path, &old).unwrap();
        let mount = Mount::of_keys(source.path(), &["--passthrough", "off", "--ttl", ttl]);
        let mut file = File::open(mount.join("chunk")).unwrap();
        let mut bytes = vec![0; 4096];
        file.read_exact(&mut bytes).unwrap();
        fs::write(&path, pattern(2, 500_000)).unwrap();
        std::thread::sleep(Duration::from_millis(1200));
        let _ = file.metadata();
        match file.read_to_end(&mut bytes) {
            Ok(_) => assert!(
                bytes == old,
                "{ttl}: {} bytes of {}",
                bytes.len(),
                old.len()
            ),
            Err(e) => assert_eq!(e.raw_os_error(), Some(ESTALE), "{ttl}: {e}"),
        }
    }
}

#[test]
fn i07_a_removed_file_is_enoent_after_the_ttl() {
    for passthrough in PASSTHROUGH {
        let source = scratch();
        let content = pattern(7, 500_000);
        write_directory(source.path(), &[("d/chunk".to_owned(), content.clone())]);
        let mount = Mount::of_keys(source.path(), &["--passthrough", passthrough]);
        let open = File::open(mount.join("d/chunk")).unwrap();
        let mut first = [0; 100];
        open.read_exact_at(&mut first, 0).unwrap();
        fs::remove_file(source.path().join("d/chunk")).unwrap();
        let gone =
            || fs::metadata(mount.join("d/chunk")).is_err_and(|e| e.raw_os_error() == Some(ENOENT));
        assert!(wait_until(SOON, gone), "a removed file still exists");
        assert_eq!(errno(File::open(mount.join("d/chunk"))), ENOENT);
        assert_eq!(fs::read_dir(mount.join("d")).unwrap().count(), 0);

        // The next file may get the inode number of the removed one.
        fs::write(source.path().join("d/next"), pattern(8, 500_000)).unwrap();
        assert!(wait_until(SOON, || shows(
            &mount.join("d/next"),
            &pattern(8, 500_000)
        )));
        let _ = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
        let mut bytes = vec![0; content.len()];
        match open.read_exact_at(&mut bytes, 0) {
            Ok(()) => assert!(
                bytes == content,
                "an open file that was removed has other bytes"
            ),
            Err(e) => assert!([Some(ESTALE), Some(EIO)].contains(&e.raw_os_error()), "{e}"),
        }

        // Removes a directory, and replaces a file by a directory.
        fs::remove_dir_all(source.path().join("d")).unwrap();
        let gone =
            || fs::metadata(mount.join("d/next")).is_err_and(|e| e.raw_os_error() == Some(ENOENT));
        assert!(wait_until(SOON, gone));
        fs::write(source.path().join("d"), "a file now").unwrap();
        assert!(wait_until(SOON, || shows(&mount.join("d"), b"a file now")));
    }
}
