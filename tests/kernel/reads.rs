//! G5: every way to read a file returns the content of the source file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

const BIG: usize = (3 << 20) + 12_345;

/// Mounts each kind of source with the files `big`, `small` and `empty`. Calls `check` with a
/// directory of these files and the mount.
fn on_each_kind(check: impl Fn(&Path, &Mount)) {
    let source = scratch();
    let files = [("big", BIG), ("small", 10), ("page", 4096), ("empty", 0)];
    let files = files.map(|(name, len)| (name.to_owned(), pattern(len as u64, len)));
    let [directory, deflated] = both_kinds(source.path(), &files);
    let stored = source.path().join("stored.zip");
    fs::write(&stored, zip_bytes(&files, false)).unwrap();
    for passthrough in PASSTHROUGH {
        check(
            &directory,
            &Mount::of_keys(&directory, &["--passthrough", passthrough]),
        );
    }
    check(&directory, &Mount::of_keys(&deflated, &[]));
    check(&directory, &Mount::of_keys(&stored, &[]));
    check(&directory, &Mount::of_keys(&stored, &["--verify"]));
}

#[test]
fn g05_reads_at_any_offset_are_as_of_the_local_file() {
    on_each_kind(|source, mount| {
        for name in ["big", "small", "page", "empty"] {
            let (local, mounted) = (
                File::open(source.join(name)).unwrap(),
                File::open(mount.join(name)).unwrap(),
            );
            let size = local.metadata().unwrap().len();
            assert_eq!(mounted.metadata().unwrap().len(), size, "size of {name}");
            let around = [0, 1, 511, 4095, 4096, 4097, 1 << 20, size / 2 + 3, size];
            let ends = [size.saturating_sub(1), size + 1, size + 4096, 1 << 40];
            let edge = i64::MAX as u64;
            let huge = [edge - (1 << 20), edge - 4096, edge - 4095, edge - 1, edge];
            for offset in around.into_iter().chain(ends).chain(huge) {
                for len in [0, 1, 13, 4096, 4097, 131_073, 5 << 20] {
                    expect_same_read(&local, &mounted, offset, len, name);
                }
            }
        }
    });
}

#[test]
fn g05_random_reads_are_as_of_the_local_file() {
    on_each_kind(|source, mount| {
        let (local, mounted) = (
            File::open(source.join("big")).unwrap(),
            File::open(mount.join("big")).unwrap(),
        );
        let mut state = 5;
        for round in 0..600 {
            if round % 20 == 0 {
                rustix::fs::fadvise(&mounted, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            let offset = random(&mut state) % (BIG as u64 + 5000);
            let len = random(&mut state) as usize % (1 << (random(&mut state) % 20));
            expect_same_read(&local, &mounted, offset, len, "big");
        }
    });
}

#[test]
fn g05_mmap_direct_sendfile_and_splice_are_as_of_the_local_file() {
    on_each_kind(|source, mount| {
        client("reads.py", &[&source.join("big"), &mount.join("big")]);
    });
}

/// Asserts that pread(2) has the same result in both files, either bytes or an error.
fn expect_same_read(local: &File, mounted: &File, offset: u64, len: usize, name: &str) {
    let outcome = |file: &File| {
        let mut buffer = vec![0xee; len];
        let read = file
            .read_at(&mut buffer, offset)
            .map_err(|e| e.raw_os_error());
        if let Ok(n) = read {
            buffer.truncate(n);
        }
        (read, buffer)
    };
    let (expected, got) = (outcome(local), outcome(mounted));
    assert_eq!(got.0, expected.0, "{len} bytes of {name} at {offset}");
    assert!(
        got.1 == expected.1,
        "{len} bytes of {name} at {offset} are other ones"
    );
}
