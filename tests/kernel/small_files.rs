//! Small files whose content the kernel gets with the open, so that no READ follows.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::Advice;

use crate::clients::*;
use crate::sources::*;
use crate::support::*;

const SIZES: [usize; 6] = [1, 500, 4096, 5000, 16_384, 65_535];

/// The number of requests of this kind in the log of a daemon that logs each request.
fn requests(mount: &Foreground, kind: &str) -> usize {
    let is_request = |line: &&str| line.contains("FUSE(") && line.contains(&format!(" {kind} "));
    mount.log().lines().filter(is_request).count()
}

#[test]
fn a_small_file_is_read_without_a_read_request_and_a_larger_one_with() {
    let source = scratch();
    let sizes = SIZES.into_iter().chain([65_536, 100_000]);
    let files: Vec<_> = sizes
        .enumerate()
        .map(|(i, size)| (format!("c/{i}"), pattern(i as u64, size)))
        .collect();
    write_directory(source.path(), &files);
    // A file that was written just now can change again without a change of its time, so its first read waits.
    let before = SystemTime::now() - Duration::from_secs(60);
    for (name, _) in &files {
        let file = File::options().write(true).open(source.path().join(name));
        file.unwrap().set_modified(before).unwrap();
    }
    let env = [("ZARRFS_LOG", "fuser=debug")];
    let mount = Foreground::new(&[], &env, source.path(), &["--passthrough", "off"]);
    for (name, content) in &files[..SIZES.len()] {
        assert!(read(mount.join(name)).unwrap() == *content, "{name}");
    }
    assert!(requests(&mount, "OPEN") >= SIZES.len(), "{}", mount.log());
    assert_eq!(requests(&mount, "READ"), 0, "{}", mount.log());
    for (name, content) in &files[SIZES.len()..] {
        assert!(read(mount.join(name)).unwrap() == *content, "{name}");
    }
    assert!(requests(&mount, "READ") >= 2, "{}", mount.log());
}

#[test]
fn pages_that_are_evicted_while_handles_are_open_are_read_again_and_no_session_thread_waits_for_them()
 {
    const FILES: u64 = 3;
    let source = scratch();
    let content = |file: u64| pattern(file, SIZES[2 + file as usize]);
    let files: Vec<_> = (0..FILES).map(|i| (format!("c/{i}"), content(i))).collect();
    write_directory(source.path(), &files);
    for threads in ["1", "2", "4"] {
        let args = ["--passthrough", "off", "--threads", threads];
        let mount = Mount::of_keys(source.path(), &args);
        let end = Instant::now() + Duration::from_secs(1);
        let reads = AtomicU64::new(0);
        let client = |seed: u64| {
            let mut state = seed;
            while Instant::now() < end {
                let file = random(&mut state) % FILES;
                let opened = File::open(mount.join(format!("c/{file}"))).unwrap();
                if random(&mut state).is_multiple_of(2) {
                    rustix::fs::fadvise(&opened, 0, None, Advice::DontNeed).unwrap();
                }
                let mut bytes = vec![0; content(file).len()];
                opened.read_exact_at(&mut bytes, 0).unwrap();
                assert!(bytes == content(file), "c/{file} has other bytes");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            for seed in 1..=8 {
                scope.spawn(move || client(seed));
            }
        });
        assert!(
            reads.load(Ordering::Relaxed) > 100,
            "{threads} threads hardly read"
        );
    }
}

#[test]
fn each_open_of_a_file_that_is_rewritten_in_place_shows_what_is_there() {
    let source = scratch();
    let path = source.path().join("chunk");
    for size in SIZES {
        fs::write(&path, pattern(0, size)).unwrap();
        let mount = Mount::of_keys(source.path(), &["--ttl", "20ms", "--passthrough", "off"]);
        for seed in 0..20 {
            // The size stays, so only the time of the write differs.
            fs::write(&path, pattern(seed, size)).unwrap();
            std::thread::sleep(Duration::from_millis(30));
            let bytes = read(mount.join("chunk")).unwrap();
            assert!(bytes == pattern(seed, size), "{size} bytes, version {seed}");
        }
    }
}
