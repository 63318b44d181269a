use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::SystemTime;

use rustix::fs::{CWD, FlockOperation, Mode, flock, mkfifoat};
use tempfile::TempDir;

use super::*;

const MIB: u64 = 1024 * 1024;
const HOUR: Duration = Duration::from_secs(3600);
/// Timeout for operations that take milliseconds on an idle machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

fn cache(directory: &Path) -> DiskCache {
    DiskCache::open(directory, 100 * MIB).unwrap()
}

fn new_cache() -> (TempDir, DiskCache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = cache(directory.path());
    (directory, cache)
}

/// The path of the block with this name.
fn file(directory: &Path, name: &[u8]) -> PathBuf {
    let path = BlockPath::of(name);
    directory
        .join(cache_dir::VERSION_NAME)
        .join(path.subdir)
        .join(path.file)
}

/// The size of all files below, as the budget counts it.
fn usage(directory: &Path) -> u64 {
    let mut total = 0;
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        total += if metadata.is_dir() {
            usage(&entry.path())
        } else {
            eviction::allocated_bytes(metadata.len())
        };
    }
    total
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + TIME_LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn wait_for_the_count(cache: &DiskCache) {
    wait_until("counted", || cache.shared.budget.is_counted());
}

fn set_age(path: &Path, age: Duration) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn a_block_is_found_under_its_name_only_and_survives_reopening() {
    let (directory, first) = new_cache();
    let long_name = [b'n'; 5000];
    let big = vec![3; 300_000];
    first.put(b"a/b c\0\xff", b"one");
    first.put(b"", b"");
    first.put(&long_name, &big);
    first.put(b"twice", b"before");
    first.put(b"twice", b"after");
    assert_eq!(first.directory(), directory.path());
    let both = [&first, &cache(directory.path())];
    for cache in both {
        assert_eq!(cache.get(b"a/b c\0\xff", 3).unwrap(), b"one");
        assert_eq!(cache.get(b"", 10).unwrap(), b"");
        assert_eq!(cache.get(&long_name, u64::MAX).unwrap(), big);
        assert_eq!(cache.get(b"twice", 100).unwrap(), b"after");
        assert_eq!(cache.get(b"never", 100), None);
        let counters = cache.counters();
        assert_eq!(
            (counters.hits, counters.misses, counters.dropped),
            (4, 1, 0)
        );
        assert!(!counters.is_off);
    }
    assert!(first.counters().written_bytes > 300_000);
    assert_eq!(both[1].counters().written_bytes, 0);
}

#[test]
fn only_the_owner_can_read_the_cache() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("made/by/us");
    cache(&directory).put(b"n", b"data");
    let block = file(&directory, b"n");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&block), 0o600);
    for above in block.ancestors().skip(1).take(5) {
        assert_eq!(mode(above), 0o700, "{}", above.display());
    }
}

#[test]
fn every_flipped_bit_is_a_miss_and_the_block_is_gone() {
    let (directory, cache) = new_cache();
    let path = file(directory.path(), b"name");
    cache.put(b"name", b"twenty bytes of data");
    let whole = fs::read(&path).unwrap();
    for byte in 0..whole.len() {
        for bit in 0..8 {
            let mut bad = whole.clone();
            bad[byte] ^= 1 << bit;
            fs::write(&path, &bad).unwrap();
            assert_eq!(cache.get(b"name", 1000), None, "{byte}.{bit}");
            assert!(!path.exists(), "{byte}.{bit}");
        }
    }
    let flips = u64::try_from(whole.len() * 8).unwrap();
    let counters = cache.counters();
    assert_eq!((counters.misses, counters.dropped), (flips, flips));
    fs::write(&path, &whole).unwrap();
    assert!(cache.get(b"name", 1000).is_some());
}

#[test]
fn a_block_of_another_length_is_a_miss_and_gone() {
    let (directory, cache) = new_cache();
    let path = file(directory.path(), b"name");
    cache.put(b"name", b"twenty bytes of data");
    let whole = fs::read(&path).unwrap();
    for length in (0..whole.len()).chain([whole.len() + 1, whole.len() * 2]) {
        let mut bad = whole.clone();
        bad.resize(length, 0);
        fs::write(&path, &bad).unwrap();
        assert_eq!(cache.get(b"name", 1000), None, "{length}");
        assert!(!path.exists(), "{length}");
    }
    let sparse = fs::File::create(&path).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_eq!(cache.get(b"name", u64::MAX), None);
    cache.put(b"name", b"12345");
    assert_eq!(cache.get(b"name", 4), None, "more than the caller allows");
}

#[test]
fn a_block_under_the_path_of_another_name_is_a_miss() {
    let (directory, cache) = new_cache();
    cache.put(b"one", b"1");
    cache.put(b"two", b"2");
    fs::copy(
        file(directory.path(), b"one"),
        file(directory.path(), b"two"),
    )
    .unwrap();
    assert_eq!(cache.get(b"two", 100), None);
    assert_eq!(cache.get(b"one", 100).unwrap(), b"1");
}

#[test]
fn a_non_regular_file_in_place_of_a_block_does_not_block_and_is_replaced() {
    let (directory, cache) = new_cache();
    cache.put(b"other", b"data");
    let other = file(directory.path(), b"other");
    let path = file(directory.path(), b"name");
    let make: [(&str, &dyn Fn()); 5] = [
        ("link", &|| symlink(&other, &path).unwrap()),
        ("dangling link", &|| symlink("nowhere", &path).unwrap()),
        ("fifo", &|| mkfifoat(CWD, &path, Mode::RUSR).unwrap()),
        ("directory", &|| fs::create_dir(&path).unwrap()),
        ("socket", &|| {
            // A short path, because the path of a socket has 108 bytes at most.
            let near = directory.path().join("s");
            std::os::unix::net::UnixListener::bind(&near).unwrap();
            fs::rename(near, &path).unwrap();
        }),
    ];
    for (what, make) in make {
        cache.put(b"name", b"right");
        fs::remove_file(&path).unwrap();
        make();
        assert_eq!(cache.get(b"name", 100), None, "{what}");
        assert!(path.symlink_metadata().is_err(), "{what} is still there");
        make();
        cache.put(b"name", b"right");
        assert_eq!(
            cache.get(b"name", 100).is_some(),
            what != "directory",
            "{what}"
        );
    }
    assert_eq!(cache.get(b"other", 100).unwrap(), b"data");
    assert!(!cache.counters().is_off);
}

#[test]
fn a_link_in_place_of_a_directory_is_not_followed() {
    let (directory, cache) = new_cache();
    cache.put(b"name", b"data");
    let path = file(directory.path(), b"name");
    let subdir = path.parent().unwrap();
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(subdir, &elsewhere).unwrap();
    symlink(&elsewhere, subdir).unwrap();
    assert_eq!(cache.get(b"name", 100), None);
    cache.shared.count_and_evict();
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[test]
fn a_directory_that_other_users_can_write_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cache");
    drop(cache(&directory));
    for path in [&directory, &directory.join(cache_dir::VERSION_NAME)] {
        for mode in [0o770, 0o702, 0o777] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            let error = DiskCache::open(&directory, MIB).unwrap_err();
            assert!(matches!(error, DiskCacheError::Writable { .. }), "{error}");
            assert!(error.to_string().contains(&format!("{mode:o}")), "{error}");
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        drop(cache(&directory));
        // Only root can change the owner of a directory.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(65534), None).unwrap();
            let error = DiskCache::open(&directory, MIB).unwrap_err();
            assert!(matches!(error, DiskCacheError::Foreign { .. }), "{error}");
            std::os::unix::fs::chown(path, Some(0), None).unwrap();
        }
    }
}

#[test]
fn a_link_to_a_directory_is_refused_in_each_notation() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cache");
    drop(cache(&directory));
    let link = parent.path().join("link");
    symlink(&directory, &link).unwrap();
    let plain = parent.path().join("file");
    fs::write(&plain, b"").unwrap();
    for path in [&link, &link.join(""), &link.join("."), &plain] {
        let error = DiskCache::open(path, MIB).unwrap_err();
        assert!(
            matches!(error, DiskCacheError::NotADirectory { .. }),
            "{error}"
        );
    }
    let version = directory.join(cache_dir::VERSION_NAME);
    fs::remove_dir_all(&version).unwrap();
    symlink(parent.path(), &version).unwrap();
    let error = DiskCache::open(&directory, MIB).unwrap_err();
    assert!(
        matches!(error, DiskCacheError::NotADirectory { .. }),
        "{error}"
    );
    assert!(DiskCache::open(Path::new(""), MIB).is_err());
}

#[test]
fn writes_of_ten_times_the_budget_never_exceed_it() {
    let directory = tempfile::tempdir().unwrap();
    let budget_bytes = MIB;
    let cache = DiskCache::open(directory.path(), budget_bytes).unwrap();
    wait_for_the_count(&cache);
    let block = vec![0; 50_000];
    let limit = budget_bytes + eviction::allocated_bytes(50_100);
    let end = Instant::now() + TIME_LIMIT;
    for number in 0_u64.. {
        let before = cache.counters();
        if before.written_bytes > 10 * budget_bytes {
            break;
        }
        assert!(Instant::now() < end, "{before:?}");
        cache.put(&number.to_le_bytes(), &block);
        assert!(usage(directory.path()) <= limit, "block {number}");
        if cache.counters().skipped > before.skipped {
            thread::sleep(Duration::from_millis(2));
        }
    }
    let counters = cache.counters();
    assert!(counters.evicted > 150 && !counters.is_off, "{counters:?}");
    wait_until("space is free", || {
        usage(directory.path()) <= budget_bytes - budget_bytes / 20
    });
    assert!(usage(directory.path()) > budget_bytes / 2);
}

#[test]
fn recently_used_blocks_are_not_evicted() {
    let directory = tempfile::tempdir().unwrap();
    let cache = DiskCache::open(directory.path(), MIB).unwrap();
    wait_for_the_count(&cache);
    let block = vec![0; 40_000];
    let name = |number: u8| [b'n', number];
    for number in 0..20 {
        cache.put(&name(number), &block);
        let age = HOUR * u32::from(40 - number);
        set_age(&file(directory.path(), &name(number)), age);
    }
    for number in 0..5 {
        assert!(cache.get(&name(number), MIB).is_some());
    }
    let mut more = 100;
    while cache.counters().evicted < 8 {
        cache.put(&name(more), &block);
        more += 1;
        thread::sleep(Duration::from_millis(5));
    }
    let evicted = usize::try_from(cache.counters().evicted).unwrap();
    for number in 0..20 {
        let is_there = file(directory.path(), &name(number)).exists();
        let expected = number < 5 || usize::from(number) >= 5 + evicted;
        assert_eq!(is_there, expected, "{number} of {evicted}");
    }
    let after = cache.shared.touch_after_ms.load(Ordering::Relaxed);
    assert_eq!(after, TOUCH_AFTER_MS, "blocks live for a day");
}

#[test]
fn a_use_updates_the_mtime_once_an_hour_and_a_future_mtime_is_corrected() {
    let (directory, cache) = new_cache();
    cache.put(b"n", b"data");
    let path = file(directory.path(), b"n");
    let age_after_use = |age: Duration| {
        set_age(&path, age);
        assert!(cache.get(b"n", 100).is_some());
        path.metadata().unwrap().modified().unwrap().elapsed()
    };
    assert!(age_after_use(HOUR / 2).unwrap() > HOUR / 3);
    assert!(age_after_use(HOUR * 2).unwrap() < HOUR / 3);
    fs::File::open(&path)
        .unwrap()
        .set_modified(SystemTime::now() + HOUR)
        .unwrap();
    assert!(cache.get(b"n", 100).is_some());
    assert!(path.metadata().unwrap().modified().unwrap() <= SystemTime::now());
    let soon = TOUCH_AFTER_MIN_MS;
    cache.shared.touch_after_ms.store(soon, Ordering::Relaxed);
    assert!(age_after_use(HOUR / 2).unwrap() < HOUR / 3);
}

#[test]
fn a_smaller_budget_applies_after_reopening() {
    let (directory, first) = new_cache();
    for number in 0..100_u8 {
        first.put(&[number], &[number; 30_000]);
    }
    drop(first);
    assert!(usage(directory.path()) > 3 * MIB);
    let second = DiskCache::open(directory.path(), MIB).unwrap();
    wait_until("space is free", || usage(directory.path()) <= MIB);
    wait_for_the_count(&second);
    let kept = (0..100_u8).filter(|n| second.get(&[*n], MIB) == Some(vec![*n; 30_000]));
    assert!(kept.count() > 20);
    assert!(second.counters().evicted > 60);
}

#[test]
fn a_block_of_more_than_a_quarter_of_the_budget_is_not_cached() {
    let directory = tempfile::tempdir().unwrap();
    let cache = DiskCache::open(directory.path(), MIB).unwrap();
    let quarter = usize::try_from(MIB / 4).unwrap();
    cache.put(b"big", &vec![0; quarter]);
    cache.put(b"fits", &vec![0; quarter - 100]);
    cache.put(&vec![0; 100_000], b"the name is too long");
    assert_eq!(cache.get(b"big", MIB), None);
    assert!(cache.get(b"fits", MIB).is_some());
    assert_eq!(cache.get(&vec![0; 100_000], MIB), None);
    assert_eq!(cache.counters().skipped, 2);
    let none = DiskCache::open(directory.path(), 0).unwrap();
    none.put(b"n", b"");
    assert_eq!(none.counters().skipped, 1);
}

#[test]
fn a_failed_write_ends_all_writes_and_reads_continue() {
    let (directory, cache) = new_cache();
    cache.put(b"kept", b"data");
    let subdir = |name: &[u8]| file(directory.path(), name).parent().unwrap().to_path_buf();
    let blocked = (0..100_u8)
        .map(|number| [number])
        .find(|name| !subdir(name).exists())
        .unwrap();
    fs::write(subdir(&blocked), b"").unwrap();
    cache.put(&blocked, b"data");
    assert!(cache.counters().is_off);
    cache.put(b"later", b"data");
    assert_eq!(cache.get(b"later", 100), None);
    assert_eq!(cache.get(&blocked, 100), None);
    assert_eq!(cache.get(b"kept", 100).unwrap(), b"data");
}

#[test]
fn a_directory_that_is_removed_ends_all_writing() {
    let (directory, cache) = new_cache();
    cache.put(b"n", b"data");
    fs::remove_dir_all(directory.path()).unwrap();
    assert_eq!(cache.get(b"n", 100), None);
    cache.put(b"n", b"data");
    assert!(cache.counters().is_off);
    assert_eq!(cache.get(b"n", 100), None);
    assert!(!directory.path().exists());
}

#[test]
fn a_removed_directory_of_blocks_is_created_again() {
    let (directory, cache) = new_cache();
    cache.put(b"n", b"data");
    let path = file(directory.path(), b"n");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    cache.put(b"n", b"data");
    assert!(cache.get(b"n", 100).is_some());
}

/// A small file system, unmounted at the end of the test.
struct Tmpfs(TempDir);

impl Tmpfs {
    /// Mounts the file system; `None` if the test has no permission to mount.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = c"size=128k,mode=0700";
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", directory.path(), "tmpfs", flags, options).ok()?;
        Some(Self(directory))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let detach = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(self.0.path(), detach);
    }
}

#[test]
fn reads_continue_on_a_full_disk_and_on_a_read_only_disk() {
    let Some(disk) = Tmpfs::new() else {
        eprintln!("not tested: no right to mount");
        return;
    };
    let directory = disk.0.path();
    let full = cache(directory);
    let data = [7; 10_000];
    for number in 0..50 {
        full.put(&[number], &data);
    }
    let hits = |cache: &DiskCache| {
        let found = (0..50).filter_map(|number| cache.get(&[number], MIB));
        found.inspect(|found| assert_eq!(*found, data)).count()
    };
    let kept = hits(&full);
    assert!(full.counters().is_off && kept > 5 && kept < 20, "{kept}");
    assert_eq!(full.counters().dropped, 0);
    let read_only = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(directory, read_only, c"").unwrap();
    let reopened = cache(directory);
    assert_eq!(hits(&reopened), kept);
    reopened.put(b"n", b"data");
    assert!(reopened.counters().is_off);
    let missing = DiskCache::open(&directory.join("below"), MIB).unwrap_err();
    assert!(matches!(missing, DiskCacheError::Io { .. }), "{missing}");
    let narrow = DiskCache::open(directory, 4096 * 4).unwrap();
    wait_until("writing is off", || narrow.counters().is_off);
    assert_eq!(hits(&narrow), kept);
}

#[test]
fn old_files_of_ended_writers_and_links_are_removed() {
    let (directory, first) = new_cache();
    first.put(b"n", b"data");
    drop(first);
    let block = file(directory.path(), b"n");
    let beside = |name: &str| block.with_file_name(name);
    for (name, age) in [
        ("tmp-old", HOUR * 2),
        ("tmp-new", HOUR / 2),
        ("README", HOUR * 2),
    ] {
        fs::write(beside(name), b"x").unwrap();
        set_age(&beside(name), age);
    }
    let link = beside(&"0".repeat(32));
    symlink("nowhere", &link).unwrap();
    let second = cache(directory.path());
    wait_for_the_count(&second);
    assert!(!beside("tmp-old").exists() && link.symlink_metadata().is_err());
    assert!(beside("tmp-new").exists() && beside("README").exists() && block.exists());
}

#[test]
fn other_versions_are_never_read_and_removed_unless_they_are_in_use() {
    let (directory, first) = new_cache();
    first.put(b"n", b"data");
    drop(first);
    let path = |name: &str| directory.path().join(name);
    wait_until("no longer in use", || {
        let version = fs::File::open(path(cache_dir::VERSION_NAME)).unwrap();
        flock(version, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    fs::rename(path(cache_dir::VERSION_NAME), path("zarrfs-v0")).unwrap();
    fs::create_dir_all(path("zarrfs-v3.removed-12/ab/cd")).unwrap();
    fs::write(path("zarrfs-v3.removed-12/ab/cd/ef"), b"").unwrap();
    symlink(path("zarrfs-view"), path("zarrfs-v3.removed-12/link")).unwrap();
    for kept in ["zarrfs-view", "zarrfs-v2"] {
        fs::create_dir(path(kept)).unwrap();
        fs::write(path(kept).join("file"), b"").unwrap();
    }
    let in_use = fs::File::open(path("zarrfs-v2")).unwrap();
    flock(&in_use, FlockOperation::LockShared).unwrap();

    let second = cache(directory.path());
    assert_eq!(second.get(b"n", 100), None);
    let temporary_files = || {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut temporary_files: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        temporary_files.sort();
        temporary_files
    };
    let expected = ["zarrfs-v1", "zarrfs-v2", "zarrfs-view"];
    wait_until("removed", || temporary_files() == expected);
    assert!(path("zarrfs-view/file").exists() && path("zarrfs-v2/file").exists());
}

#[test]
fn a_directory_in_removal_is_not_used() {
    let (directory, first) = new_cache();
    drop(first);
    let path = directory.path().join(cache_dir::VERSION_NAME);
    let remover = fs::File::open(&path).unwrap();
    wait_until("no longer in use", || {
        flock(&remover, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    let away = directory.path().join("zarrfs-v1.removed-0");
    let second = thread::scope(|scope| {
        let opening = scope.spawn(|| cache(directory.path()));
        thread::sleep(Duration::from_millis(5));
        fs::rename(&path, &away).unwrap();
        opening.join().unwrap()
    });
    second.put(b"n", b"data");
    assert!(file(directory.path(), b"n").exists());
}

#[test]
fn the_thread_ends_with_the_cache() {
    let (_directory, cache) = new_cache();
    let shared = Arc::downgrade(&cache.shared);
    drop(cache);
    wait_until("ended", || shared.upgrade().is_none());
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// About six times as many blocks as fit into the budget of the test.
const NAMES: u64 = 600;

/// Bytes that identify their block: the name, a seed, and bytes derived from both.
fn block_of(name: u64, seed: u64) -> Vec<u8> {
    let mut random = Random((name << 32) | (seed + 1));
    let words = 2 + random.next() % 2000;
    let rest = (0..words).map(|_| random.next());
    let all = [name, seed].into_iter().chain(rest);
    all.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn two_caches_on_a_directory_with_modified_files_return_no_wrong_byte() {
    let directory = tempfile::tempdir().unwrap();
    let budget_bytes = MIB;
    let caches = [(); 2].map(|()| DiskCache::open(directory.path(), budget_bytes).unwrap());
    let counters = || caches.each_ref().map(DiskCache::counters);
    let is_enough = || {
        let all = counters();
        all.iter().map(|c| c.hits).sum::<u64>() > 2000
            && all.iter().map(|c| c.dropped).sum::<u64>() > 50
            && all.iter().all(|c| c.evicted > 0)
    };
    let end = Instant::now() + TIME_LIMIT;
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let (caches, is_enough, directory) = (&caches, &is_enough, directory.path());
            scope.spawn(move || {
                let cache = &caches[usize::from(number.is_multiple_of(2))];
                let mut random = Random(number + 1);
                while Instant::now() < end && !is_enough() {
                    let name = random.next() % NAMES;
                    if random.next().is_multiple_of(3) {
                        cache.put(&name.to_le_bytes(), &block_of(name, random.next() % 1000));
                    } else if let Some(found) = cache.get(&name.to_le_bytes(), MIB) {
                        let seed = u64::from_le_bytes(found[8..16].try_into().unwrap());
                        assert!(found == block_of(name, seed), "block {name}");
                    }
                    if random.next().is_multiple_of(20) {
                        tamper(directory, &mut random);
                    }
                }
            });
        }
    });
    assert!(is_enough(), "{:?}", counters());
    assert!(counters().iter().all(|c| !c.is_off), "{:?}", counters());
    // A cache does not know at once what the other one has written.
    wait_until("the budget is kept", || {
        for cache in &caches {
            cache.shared.count_and_evict();
        }
        usage(directory.path()) <= budget_bytes
    });
}

/// Flips a bit of a block, truncates it or replaces it with another block.
fn tamper(directory: &Path, random: &mut Random) {
    use std::os::unix::fs::FileExt;
    let path = |random: &mut Random| file(directory, &(random.next() % NAMES).to_le_bytes());
    let victim = path(random);
    if random.next().is_multiple_of(4) {
        let _ = fs::hard_link(path(random), victim.with_extension("new"));
        let _ = fs::rename(victim.with_extension("new"), &victim);
        return;
    }
    let options = fs::OpenOptions::new().read(true).write(true).open(&victim);
    let Ok(file) = options else { return };
    let length = file.metadata().unwrap().len().max(1);
    let at = random.next() % length;
    if random.next().is_multiple_of(4) {
        file.set_len(at).unwrap();
        return;
    }
    let mut byte = [0];
    if file.read_at(&mut byte, at).unwrap() == 1 {
        file.write_at(&[byte[0] ^ (1 << (random.next() % 8))], at)
            .unwrap();
    }
}
