//! E7, E8: mounts that share a disk cache and are killed, a cache that is damaged, full, read-only or removed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clients::{Extra, gauge};
use crate::remote::*;
use crate::stories::files;
use crate::support::place::kill_daemon;
use crate::support::*;

/// Values beside the arrays. Together they take more than the cache may.
const VALUES: usize = 64;
/// An ordinary run is short; `ZARRFS_CRASHES=1000` is a long one.
const CRASHES: u64 = 16;

/// A generator of numbers that has the same sequence in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Returns a value whose words differ from those of all others.
fn value(i: usize) -> Vec<u8> {
    let words = (0..8_000).map(|word| (i * 8_000 + word) as u32);
    words.flat_map(u32::to_le_bytes).collect()
}

/// Ends the readers, also if the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One of the mounts, and whether its daemon was killed since it was mounted.
struct Slot {
    mount: RwLock<Mount>,
    is_killed: AtomicBool,
}

impl Slot {
    /// Reads something that was chosen at random. Only a mount whose daemon was killed may fail.
    fn read(&self, remote: &Remote, numbers: &mut Numbers) {
        let mount = self.mount.read().unwrap();
        let i = numbers.below(4);
        let (path, expected) = match numbers.below(8) {
            0 => (remote.view(&mount, "z", i), chunk(i)),
            1 => (whole_of(&mount, "a"), whole()),
            2 => (mount.join(remote.key("good", i)), chunk(i)),
            _ => {
                let i = numbers.below(VALUES);
                (mount.join(format!("load/{i}")), value(i))
            }
        };
        match read(&path) {
            Ok(bytes) => assert!(bytes == expected, "wrong bytes: {path:?}"),
            Err(e) => assert!(
                self.is_killed.load(Ordering::SeqCst),
                "{path:?}: {e}\n{}",
                mount.log()
            ),
        }
    }
}

/// Truncates, extends, changes, removes or exchanges files of the cache.
fn damage(cache: &Path, numbers: &mut Numbers) {
    // The daemons remove files at the same time.
    let found = files(cache);
    for _ in 0..found.len().min(4) {
        let path = &found[numbers.below(found.len())];
        let Ok(file) = OpenOptions::new().write(true).open(path) else {
            continue;
        };
        let length = file.metadata().unwrap().len() as usize;
        let _ = match numbers.below(5) {
            0 => file.set_len(numbers.below(length.max(1)) as u64),
            1 => file.write_all_at(&[0x55; 5000], length as u64),
            2 => file.write_all_at(b"x", numbers.below(length.max(1)) as u64),
            3 => fs::remove_file(path),
            _ => fs::rename(path, &found[numbers.below(found.len())]),
        };
    }
}

fn put_values(remote: &Remote) {
    for i in 0..VALUES {
        remote.put(&format!("load/{i}"), value(i));
    }
}

#[test]
fn e08_mounts_of_a_shared_cache_that_are_killed_under_load_never_cause_a_wrong_byte_or_a_later_error()
 {
    let crashes = std::env::var("ZARRFS_CRASHES").map_or(CRASHES, |text| text.parse().unwrap());
    let scratch = scratch();
    let cache = scratch.path().join("cache");
    let remote = Remote::new(Backend::Http);
    put_values(&remote);
    let directory = cache.to_str().unwrap();
    let args = [
        "--ttl",
        "1s",
        "--timeout",
        "30s",
        "--disk-cache",
        directory,
        "--disk-cache-size",
        "1MiB",
    ];
    let new_slot = |_| Slot {
        mount: RwLock::new(remote.mount(&args)),
        is_killed: AtomicBool::new(false),
    };
    let slots = [0, 1, 2, 3].map(new_slot);
    let (is_over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ending = Ending(&is_over);
        let readers: Vec<_> = (0..8)
            .map(|reader| {
                let (slots, remote, is_over, reads) = (&slots, &remote, &is_over, &reads);
                scope.spawn(move || {
                    let mut numbers = Numbers(reader);
                    while !is_over.load(Ordering::Relaxed) {
                        slots[numbers.below(4)].read(remote, &mut numbers);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut numbers = Numbers(99);
        for _ in 0..crashes {
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
            let slot = &slots[numbers.below(4)];
            std::thread::sleep(Duration::from_millis(numbers.below(100) as u64));
            slot.is_killed.store(true, Ordering::SeqCst);
            let pid = slot.mount.read().unwrap().pid();
            kill_daemon(pid);
            damage(&cache, &mut numbers);
            let mut mount = slot.mount.write().unwrap();
            *mount = remote.mount(&args);
            slot.is_killed.store(false, Ordering::SeqCst);
        }
    });
    let mut numbers = Numbers(7);
    for slot in &slots {
        (0..50).for_each(|_| slot.read(&remote, &mut numbers));
        remote.reads(&slot.mount.read().unwrap(), "a");
    }
    println!("{crashes} crashes, {} reads", reads.load(Ordering::Relaxed));
}

/// Reads everything with a cache that `spoil` makes useless while the mount uses it, and with a new mount.
fn reads_with_spoilt_cache(remote: &Remote, cache: &Path, spoil: impl Fn(&Path)) {
    let args = ["--disk-cache", cache.to_str().unwrap()];
    let mount = remote.mount(&args);
    let reads = |mount: &Mount| {
        for i in 0..VALUES {
            assert!(
                read(mount.join(format!("load/{i}"))).unwrap() == value(i),
                "{i}"
            );
        }
        remote.reads(mount, "a");
        remote.siblings_work(mount);
    };
    remote.reads(&mount, "z");
    spoil(cache);
    reads(&mount);
    let refused_or_mounted = remote.attempt(&args);
    if let Ok(mount) = refused_or_mounted {
        reads(&mount);
    }
    assert_eq!(gauge(mount.path(), "panics"), 0);
}

#[test]
fn e07_a_cache_that_is_full_read_only_or_removed_causes_no_error() {
    let remote = Remote::new(Backend::Http);
    put_values(&remote);
    let place = scratch();
    let removed = place.path().join("removed");
    reads_with_spoilt_cache(&remote, &removed, |cache| {
        fs::remove_dir_all(cache).unwrap()
    });
    if !is_root() {
        return;
    }
    let on_tmpfs = |name: &str, options: &str| -> (Extra, PathBuf) {
        let path = place.path().join(name);
        let mounted = Extra::new("tmpfs", &path);
        sh(&format!("mount -o remount,{options} {}", path.display()));
        (mounted, path.join("cache"))
    };
    // Less than the values take.
    let (_full, cache) = on_tmpfs("full", "size=256k");
    reads_with_spoilt_cache(&remote, &cache, |_| ());
    let (_read_only, cache) = on_tmpfs("read-only", "size=8m");
    reads_with_spoilt_cache(&remote, &cache, |cache| {
        // A file that is open for writing would refuse the remount, but not for long.
        let parent = cache.parent().unwrap().display();
        sh(&format!(
            "for i in $(seq 50); do mount -o remount,ro {parent} && exit; sleep 0.1; done; exit 1"
        ));
    });
}
