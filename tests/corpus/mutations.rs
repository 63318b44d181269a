//! Good archives with random bytes changed, removed, moved or inserted. For every mutant, no code
//! panics, no allocation is disproportionate, and every completely served file has the checksum
//! that the directory has for its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use zarrfs::store::{BUFFER_HEADROOM_BYTES, Key, Object, StoreError, ZipOptions};

use crate::allocations;
use crate::cases::{noise, random, text};
use crate::in_process::{listing, memory_file, open_file, open_object, read_blocking};
use crate::records::extra_field;
use crate::remote;
use crate::support::{Mount, scratch};
use crate::zipmaker::{End64, Entry, Zip};

/// The number of mutants of each archive.
const ROUNDS: u64 = 4000;
/// The size of a read in bytes.
const PIECE: usize = 64 << 10;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns an archive and its expected contents.
fn archive(change: impl FnOnce(&mut Zip)) -> (Vec<u8>, Contents) {
    let files: [(&str, Vec<u8>); 7] = [
        ("zarr.json", b"{\"zarr_format\":3}".to_vec()),
        ("a/.zarray", text(300)),
        ("a/0.0", noise(1, 900)),
        ("a/0.1", text(2500)),
        ("a/b/c/0", vec![0; 5000]),
        ("a/b/c/1", text(40_000)),
        ("empty", Vec::new()),
    ];
    let coders = [Entry::stored, Entry::deflated, Entry::zstd];
    let entries = files
        .iter()
        .enumerate()
        .map(|(i, (name, content))| coders[i % 3](name, content));
    let mut zip = Zip::of(entries.collect());
    zip.entries.push(Entry::directory("nothing/"));
    change(&mut zip);
    let contents = files
        .into_iter()
        .map(|(name, content)| (name.into(), content));
    (zip.build(), contents.collect())
}

fn archives() -> Vec<(Vec<u8>, Contents)> {
    vec![
        archive(|_| {}),
        archive(|zip| {
            zip.entries.iter_mut().for_each(|entry| {
                *entry = entry.clone().streamed(true, false);
            });
            zip.comment = b"a comment".to_vec();
        }),
        archive(|zip| {
            zip.end64 = Some(End64::default());
            zip.entries.iter_mut().for_each(|entry| {
                *entry = entry.clone().both(|fields| fields.zip64 = true);
            });
        }),
        archive(|zip| {
            zip.prefix = noise(3, 300);
            zip.prefix_uncounted = true;
        }),
        archive(|zip| {
            zip.entries.reverse();
            zip.entries.iter_mut().for_each(|entry| {
                entry.local.extra = extra_field(0x5455, b"\x01\x10\x20\x30\x40");
                entry.central.extra = entry.local.extra.clone();
                entry.comment = b"c".to_vec();
            });
        }),
    ]
}

/// Makes 1 to 4 changes.
fn mutate(state: &mut u64, original: &[u8], donor: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=random(state) % 4 {
        let mut below = |n: usize| (random(state) % (n.max(1) as u64)) as usize;
        // Half of the changes are in the last 1,500 bytes, where the directory is.
        let mut at = below(bytes.len());
        if below(2) == 0 {
            at = bytes.len().saturating_sub(1 + below(1500));
        }
        let length = below(60);
        let end = bytes.len().min(at + length);
        match below(12) {
            0 => bytes.truncate(at),
            1 => {
                bytes.drain(at..end);
            }
            2 => {
                let copy = bytes[at..end].to_vec();
                let to = below(bytes.len());
                bytes.splice(to..to, copy);
            }
            3 => {
                let from = below(donor.len());
                let part = &donor[from..donor.len().min(from + length)];
                bytes.splice(at..end, part.iter().copied());
            }
            4 | 5 => {
                let width = [2, 4, 8][below(3)];
                let values = [
                    0,
                    1,
                    u64::MAX,
                    1 << 31,
                    1 << 63,
                    0xffff,
                    bytes.len() as u64,
                    70_000,
                ];
                let value = values[below(values.len())].to_le_bytes();
                let end = bytes.len().min(at + width);
                let width = end.saturating_sub(at);
                if let Some(target) = bytes.get_mut(at..end) {
                    target.copy_from_slice(&value[..width]);
                }
            }
            6 | 7 => {
                let value = below(256) as u8;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            _ => {
                let bit = below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
        }
    }
    bytes
}

/// Returns the checksums for each name in all parts of the file that look like a directory record.
fn declared_checksums(bytes: &[u8]) -> BTreeMap<&[u8], BTreeSet<u32>> {
    let mut all: BTreeMap<&[u8], BTreeSet<u32>> = BTreeMap::new();
    for at in 0..bytes.len().saturating_sub(45) {
        let Some(rest) = bytes[at..].strip_prefix(b"PK\x01\x02") else {
            continue;
        };
        let crc = u32::from_le_bytes(rest[12..16].try_into().unwrap());
        let length = usize::from(u16::from_le_bytes(rest[24..26].try_into().unwrap()));
        if let Some(name) = rest.get(42..42 + length) {
            all.entry(name).or_default().insert(crc);
        }
    }
    all
}

fn read_to_end(object: &dyn Object, buffer: &mut [u8]) -> Result<Vec<u8>, StoreError> {
    let mut all = Vec::new();
    loop {
        let data = read_blocking(object, all.len() as u64, PIECE, buffer)?;
        let bytes = data.bytes(buffer)?;
        all.extend_from_slice(bytes);
        if bytes.len() < PIECE {
            return Ok(all);
        }
    }
}

/// The results of the mutants of an archive.
#[derive(Debug, Default)]
struct Tally {
    refused: u64,
    opened: u64,
    right: u64,
    changed: u64,
    failed: u64,
}

/// Opens, lists and reads an archive; with `verify`, all served bytes must already be verified.
fn check_archive(
    bytes: &[u8],
    contents: &Contents,
    verify: bool,
    buffer: &mut [u8],
    tally: &mut Tally,
) {
    let options = ZipOptions {
        verify,
        memory_limit_bytes: 16 << 20,
        ..ZipOptions::default()
    };
    let file = memory_file(bytes);
    let (opened, biggest) = allocations::biggest_during(|| {
        let store = open_file(&file, options)?;
        let listed = listing(&store);
        Ok::<_, zarrfs::store::ZipError>((store, listed))
    });
    assert!(
        biggest <= allocations::allowed(bytes.len()),
        "{biggest} bytes at once for an archive of {}",
        bytes.len()
    );
    let Ok((store, listed)) = opened else {
        tally.refused += 1;
        return;
    };
    tally.opened += 1;
    let claimed = declared_checksums(bytes);
    for (path, (is_directory, size)) in &listed {
        let shown = path.escape_ascii();
        if *is_directory {
            continue;
        }
        let object = open_object(&store, &Key::new(path).unwrap());
        let read = object.and_then(|object| {
            let middle = read_blocking(&*object, size / 2, 1, buffer);
            let whole = read_to_end(object.as_ref(), buffer);
            assert!(
                !verify || middle.is_ok() == whole.is_ok(),
                "{shown}: {middle:?}"
            );
            whole
        });
        let Ok(served) = read else {
            tally.failed += 1;
            continue;
        };
        assert_eq!(served.len() as u64, *size, "{shown}");
        let checksums = claimed.get(&path[..]);
        let checksums = checksums.unwrap_or_else(|| panic!("no record is named {shown}"));
        assert!(
            checksums.contains(&crc32fast::hash(&served)),
            "{shown}: {size} bytes whose checksum no record has"
        );
        let original = contents.get(path);
        let is_unmodified =
            original.is_some_and(|original| checksums.iter().eq([&crc32fast::hash(original)]));
        if is_unmodified {
            assert!(Some(&served) == original, "{shown} has other bytes");
            tally.right += 1;
        } else {
            tally.changed += 1;
        }
    }
}

/// Mutates the archive with this number, and checks every mutant.
fn run(number: usize) {
    let all = archives();
    let (original, contents) = &all[number];
    let donor = &all[(number + 1) % all.len()].0;
    let mut buffer = vec![0xa5; PIECE + BUFFER_HEADROOM_BYTES];
    let mut tally = Tally::default();
    check_archive(original, contents, false, &mut buffer, &mut tally);
    assert_eq!((tally.right, tally.changed, tally.failed), (7, 0, 0));
    for round in 1..=ROUNDS {
        let mut state = (number as u64 + 1) << 32 | round;
        let _ = random(&mut state);
        let mutant = mutate(&mut state, original, donor);
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let options = ZipOptions {
                memory_limit_bytes: 16 << 20,
                ..ZipOptions::default()
            };
            let differences = remote::differences(&mutant, options);
            assert!(differences.is_empty(), "{}", differences.join("\n"));
            check_archive(&mutant, contents, round % 2 == 0, &mut buffer, &mut tally);
        }));
        assert!(
            judged.is_ok(),
            "archive {number}, round {round}: see the panic above"
        );
    }
    // Each of these results occurred often.
    for (what, count) in [
        ("refused", tally.refused),
        ("opened", tally.opened),
        ("right", tally.right),
        ("failed", tally.failed),
    ] {
        assert!(count > ROUNDS / 40, "{what}: {tally:?}");
    }
}

#[test]
fn mutants_of_a_plain_archive_are_refused_or_right() {
    run(0);
}

#[test]
fn mutants_of_a_streamed_archive_are_refused_or_right() {
    run(1);
}

#[test]
fn mutants_of_a_zip64_archive_are_refused_or_right() {
    run(2);
}

#[test]
fn mutants_of_an_archive_behind_a_prefix_are_refused_or_right() {
    run(3);
}

#[test]
fn mutants_of_an_archive_with_extra_fields_are_refused_or_right() {
    run(4);
}

#[test]
fn an_archive_cut_at_any_length_is_refused() {
    let (original, contents) = &archives()[1];
    let mut tally = Tally::default();
    let mut buffer = vec![0xa5; PIECE + BUFFER_HEADROOM_BYTES];
    let ends = original.len().saturating_sub(2000)..original.len();
    for length in (0..original.len()).step_by(13).chain(ends) {
        check_archive(
            &original[..length],
            contents,
            false,
            &mut buffer,
            &mut tally,
        );
    }
    assert_eq!(tally.opened, 0, "{tally:?}");
}

/// The number of mounted mutants of each archive.
const MOUNTS: u64 = 24;

#[test]
fn mounted_mutants_are_refused_or_right_and_never_end_the_daemon() {
    let all = archives();
    let dir = scratch();
    let source = dir.path().join("mutant.zip");
    let mut problems = Vec::new();
    let mut mounts = 0;
    for (number, (original, _)) in all.iter().enumerate() {
        let donor = &all[(number + 1) % all.len()].0;
        for round in 0..MOUNTS {
            let mut state = (number as u64 + 77) << 32 | round;
            let _ = random(&mut state);
            let mutant = mutate(&mut state, original, donor);
            fs::write(&source, &mutant).unwrap();
            let Ok(mount) = Mount::attempt(&source, &["--force", "--memory-limit", "16MiB"]) else {
                continue;
            };
            mounts += 1;
            let claimed = declared_checksums(&mutant);
            for path in files_below(mount.path()) {
                let Ok(served) = fs::read(&path) else {
                    continue;
                };
                let name = path
                    .strip_prefix(mount.path())
                    .unwrap()
                    .as_os_str()
                    .as_bytes();
                let checksum = crc32fast::hash(&served);
                if !claimed.get(name).is_some_and(|all| all.contains(&checksum)) {
                    let name = name.escape_ascii();
                    let size = served.len();
                    problems.push(format!(
                        "archive {number}, round {round}: {size} bytes of {name}"
                    ));
                }
            }
            assert!(
                !mount.log().contains("bug:"),
                "archive {number}, round {round}: {}",
                mount.log()
            );
            mount.unmount();
        }
    }
    assert!(mounts > 20, "{mounts} could be mounted");
    assert!(
        problems.is_empty(),
        "no record has the checksum of:\n{}",
        problems.join("\n")
    );
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files
}
