//! Scenarios beyond a single case: reads before the failing one, the memory of a daemon with
//! `--verify`, and an archive of more than 4 GiB.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::Advice;
use rustix::io::Errno;
use zarrfs::store::{Key, ZipOptions};

use crate::cases::{long_text, noise, random, text};
use crate::coders::{deflate_fast, zstd_frame_claiming};
use crate::in_process::{
    errno_and_message, memory_file, open_file, open_object, read_range, read_to_end,
};
use crate::records::local_header;
use crate::support::{Mount, errno, read, scratch};
use crate::zipmaker::{DEFLATED, End, End64, Entry, Offset, ZSTD, Zip};

const SIZE: usize = 3 << 20;

/// Returns a zip with a good and a bad stored entry of the same size.
fn good_and_bad(size: usize) -> Vec<u8> {
    let content = noise(21, size);
    let bad = Entry::stored("bad", &content).with(|entry| entry.data[size / 2] ^= 1);
    Zip::of(vec![Entry::stored("good", &content), bad]).build()
}

/// Returns reads that precede the read of the whole entry, as offsets and sizes.
fn earlier_reads(size: u64) -> Vec<(&'static str, Vec<(u64, usize)>)> {
    let mut state = 99;
    let scattered = (0..200)
        .map(|_| (random(&mut state) % (size - 100), 100))
        .collect();
    vec![
        ("nothing", Vec::new()),
        ("the beginning", vec![(0, 4096)]),
        ("a range in the middle", vec![(size / 3 + 1, 10_000)]),
        ("the end", vec![(size - 10, 10)]),
        ("the same range twice", vec![(1000, 5000), (1000, 5000)]),
        (
            "ranges that overlap",
            vec![(1000, 5000), (3000, 5000), (500, 600)],
        ),
        ("200 scattered ranges", scattered),
    ]
}

#[test]
fn a09_a_whole_stored_entry_is_verified_regardless_of_earlier_ranges() {
    let mut problems = Vec::new();
    for size in [200_000, SIZE] {
        let archive = good_and_bad(size);
        let file = memory_file(&archive);
        for (before, ranges) in earlier_reads(size as u64) {
            for piece in [64 << 10, 1 << 20] {
                let store = open_file(&file, ZipOptions::default()).unwrap();
                let open = |name: &str| open_object(&store, &Key::new(name.as_bytes()).unwrap());
                for name in ["good", "bad"] {
                    let object = open(name).unwrap();
                    for (offset, length) in &ranges {
                        // Not verified yet, so that both the bytes and EIO are allowed.
                        let _ = read_range(object.as_ref(), *offset, *length);
                    }
                }
                let good = read_to_end(open("good").unwrap().as_ref(), piece);
                assert!(good.is_ok_and(|bytes| bytes == noise(21, size)));
                for round in 0..2 {
                    let bad = open("bad").and_then(|object| read_to_end(object.as_ref(), piece));
                    match bad.map_err(errno_and_message) {
                        Err((Errno::IO, words)) if words.contains("crc32 mismatch") => {}
                        other => problems.push(format!(
                            "{size} bytes, {before} read before, pieces of {piece}, read {round}: \
                             {:?}",
                            other.map(|bytes| bytes.len())
                        )),
                    }
                }
            }
        }
    }
    assert!(
        problems.is_empty(),
        "served whole:\n{}",
        problems.join("\n")
    );
}

#[test]
fn a09_a_bad_stored_entry_stays_bad_for_every_range_once_it_was_read_whole() {
    let file = memory_file(&good_and_bad(SIZE));
    let store = open_file(&file, ZipOptions::default()).unwrap();
    let key = Key::new(b"bad").unwrap();
    let early = open_object(&store, &key).unwrap();
    assert!(read_to_end(early.as_ref(), 1 << 20).is_err());
    for (_, ranges) in earlier_reads(SIZE as u64) {
        for (offset, length) in ranges {
            let (errno, words) =
                errno_and_message(read_range(early.as_ref(), offset, length).unwrap_err());
            assert_eq!(errno, Errno::IO);
            assert!(words.contains("crc32 mismatch"), "{words}");
        }
    }
    assert!(open_object(&store, &key).is_err(), "it can be opened again");
}

/// Drops the cached pages of a file, so that the kernel requests them again.
fn forget_pages(path: &Path) {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn a09_a_mounted_bad_stored_entry_fails_regardless_of_earlier_ranges() {
    let dir = scratch();
    let source = dir.path().join("order.zip");
    fs::write(&source, good_and_bad(SIZE)).unwrap();
    let mut problems = Vec::new();
    for (before, ranges) in earlier_reads(SIZE as u64) {
        for forgotten in [false, true] {
            let mount = Mount::of_keys(&source, &[]);
            for name in ["good", "bad"] {
                let path = mount.join(name);
                let file = File::open(&path).unwrap();
                for (offset, length) in &ranges {
                    let _ = file.read_at(&mut vec![0; *length], *offset);
                    if forgotten {
                        forget_pages(&path);
                    }
                }
            }
            assert!(read(mount.join("good")).is_ok_and(|bytes| bytes == noise(21, SIZE)));
            for round in 0..2 {
                let bad = read(mount.join("bad"));
                if !bad.as_ref().is_err_and(|e| e.raw_os_error() == Some(5)) {
                    problems.push(format!(
                        "{before} read before{}, read {round}: {:?}",
                        if forgotten { " and forgotten" } else { "" },
                        bad.map(|bytes| bytes.len())
                    ));
                }
            }
        }
    }
    assert!(
        problems.is_empty(),
        "served whole:\n{}",
        problems.join("\n")
    );
}

#[test]
fn a09_verify_serves_no_byte_of_a_bad_entry() {
    let content = noise(22, SIZE);
    let zeros = vec![0; 70 << 20];
    let spoilt = |entry: Entry| entry.both(|f| f.crc ^= 1);
    let zip = Zip::of(vec![
        spoilt(Entry::stored("stored", &content)),
        spoilt(Entry::stored("small", &content[..100])),
        spoilt(Entry::deflated("deflated", &content)),
        spoilt(Entry::zstd("zstd", &content)),
        spoilt(Entry::deflated("segments", &zeros)),
        Entry::stored("good/stored", &content),
        Entry::deflated("good/deflated", &content),
        Entry::deflated("good/segments", &zeros),
    ]);
    let dir = scratch();
    let source = dir.path().join("verify.zip");
    fs::write(&source, zip.build()).unwrap();
    let mut problems = Vec::new();
    let mount = Mount::of_keys(&source, &["--verify"]);
    for name in ["stored", "small", "deflated", "zstd", "segments"] {
        let size = fs::metadata(mount.join(name)).unwrap().len();
        for offset in [size / 2, 0, size - 1] {
            let result =
                File::open(mount.join(name)).and_then(|file| file.read_exact_at(&mut [0], offset));
            match result {
                Ok(()) => problems.push(format!("{name} serves the byte at {offset}")),
                failed => assert_eq!(errno(failed), Errno::IO.raw_os_error(), "{name}"),
            }
        }
    }
    for (name, expected) in [
        ("stored", &content),
        ("deflated", &content),
        ("segments", &zeros),
    ] {
        let file = File::open(mount.join("good").join(name)).unwrap();
        let mut byte = [0xa5];
        file.read_exact_at(&mut byte, 2_000_000).unwrap();
        assert_eq!(byte[0], expected[2_000_000], "{name}");
        assert!(
            read(mount.join("good").join(name)).unwrap() == *expected,
            "{name}"
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a13_entries_and_a_directory_beyond_four_gib_are_served() {
    let far_at = 5_u64 << 30;
    let far = Entry::deflated("far", b"very far away").with(|entry| {
        entry.only_central = true;
        entry.offset = Offset::At(far_at);
    });
    let mut far_bytes = Vec::new();
    local_header(&mut far_bytes, &far.local);
    far_bytes.extend_from_slice(&far.data);
    let directory_at = far_at + far_bytes.len() as u64;
    let referring = End {
        entries: Some(u16::MAX),
        directory_bytes: Some(u32::MAX),
        directory_offset: Some(u32::MAX),
        ..End::default()
    };
    let mut zip = Zip::of(vec![Entry::stored("near", b"near"), far]).with(|zip| {
        zip.end = referring;
        zip.end64 = Some(End64::default());
    });
    let (bytes, layout) = zip.build_with_layout();
    // The zip64 record and its locator precede the end record.
    let directory_bytes = layout.end - 56 - 20 - layout.directory;
    assert!(bytes.len() > layout.end);
    zip.end64 = Some(End64 {
        directory_offset: Some(directory_at),
        locator_offset: Some(directory_at + directory_bytes as u64),
        ..End64::default()
    });
    let bytes = zip.build();
    let dir = scratch();
    let source = dir.path().join("far.zip");
    let file = File::create(&source).unwrap();
    file.write_all_at(&bytes[..layout.directory], 0).unwrap();
    file.write_all_at(&far_bytes, far_at).unwrap();
    file.write_all_at(&bytes[layout.directory..], directory_at)
        .unwrap();
    let mount = Mount::of_keys(&source, &[]);
    assert_eq!(read(mount.join("near")).unwrap(), b"near");
    assert_eq!(read(mount.join("far")).unwrap(), b"very far away");
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 2);
}

/// Reads a file to its end. Returns the number of bytes, or the errno.
fn length_read(path: &Path) -> Result<u64, i32> {
    let mut file = File::open(path).map_err(|e| e.raw_os_error().unwrap())?;
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        match file
            .read(&mut buffer)
            .map_err(|e| e.raw_os_error().unwrap())?
        {
            0 => return Ok(done),
            n => done += n as u64,
        }
    }
}

/// The RSS stays within the memory limit plus this number of bytes.
const BESIDES_THE_LIMIT: u64 = 64 << 20;

#[test]
fn a10_bombs_leave_the_daemon_within_its_memory_limit() {
    let zeros = vec![0; 200 << 20];
    let claim = |entry: Entry, size: u64| {
        entry.both(|f| {
            f.size = size;
            f.zip64 = true;
        })
    };
    let frame = |claimed: u64| {
        let content = text(1000);
        Entry::coded("", ZSTD, &content, zstd_frame_claiming(claimed, &content))
    };
    let bomb = Entry::deflated("", &zeros);
    let most = bomb.data.len() as u64 * 1032;
    let entries = vec![
        claim(bomb.clone(), 10),
        claim(bomb.clone(), 10 << 20),
        claim(bomb, most),
        claim(Entry::zstd("", &zeros), 10),
        claim(Entry::zstd("", &zeros), 20 << 20),
        Entry::zstd("", &zeros),
        frame(900 << 20),
        claim(frame(900 << 20), 900 << 20),
        claim(frame(1 << 40), 1 << 40),
    ];
    let named = (b'a'..)
        .zip(entries)
        .map(|(name, entry)| entry.both(|f| f.name = vec![name]));
    let zip = Zip::of(named.collect());
    let dir = scratch();
    let source = dir.path().join("bombs.zip");
    fs::write(&source, zip.build()).unwrap();
    let arguments = ["--memory-limit", "32MiB", "--cache-size", "16MiB"];
    let mount = Mount::of_keys(&source, &arguments);
    for entry in &zip.entries {
        let name = String::from_utf8(entry.central.name.clone()).unwrap();
        let errno = length_read(&mount.join(&name)).expect_err(&name);
        assert!(matches!(errno, 5 | 12), "{name}: errno {errno}");
        let peak = mount.memory("VmHWM");
        assert!(
            peak < (32 << 20) + BESIDES_THE_LIMIT,
            "{name}: a peak of {peak} bytes"
        );
    }
}

#[test]
fn decoded_entries_stay_within_the_memory_limit() {
    let zeros = vec![0; 300 << 20];
    let long = long_text();
    let zip = Zip::of(vec![
        Entry::deflated("zeros", &zeros),
        Entry::coded("text", DEFLATED, &long, deflate_fast(&long)),
    ]);
    let dir = scratch();
    let source = dir.path().join("big.zip");
    fs::write(&source, zip.build()).unwrap();
    let mount = Mount::of_keys(&source, &["--memory-limit", "32MiB"]);
    for (name, length) in [("zeros", zeros.len()), ("text", long.len())] {
        assert_eq!(length_read(&mount.join(name)), Ok(length as u64), "{name}");
        let peak = mount.memory("VmHWM");
        assert!(
            peak < (32 << 20) + BESIDES_THE_LIMIT,
            "{name}: a peak of {peak} bytes"
        );
    }
}
