//! Tests of remote archives: which ranges are requested, and how failures are reported.

#![allow(clippy::single_range_in_vec_init, clippy::cast_possible_truncation)]

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::FutureExt;

use super::builder::ZipBuilder;
use super::{ZipError, ZipOptions, ZipStore};
use crate::runtime::block_on;
use crate::store::{AccessHint, Key, Object, SnapshotError, SnapshotReader, StoreError, SyncStore};

/// Remote bytes that record the requests for them.
#[derive(Debug, Default)]
struct RemoteBytes {
    content: Vec<u8>,
    requested: Mutex<Vec<Range<u64>>>,
    failure: Mutex<Option<StoreError>>,
    is_changed: AtomicBool,
    delay: Duration,
}

impl RemoteBytes {
    fn of(content: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            content,
            ..Self::default()
        })
    }

    fn tail(&self, bytes: usize) -> Vec<u8> {
        self.content[self.content.len().saturating_sub(bytes)..].to_vec()
    }

    fn requested(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.requested.lock().unwrap())
    }

    fn fail(&self, error: StoreError) {
        *self.failure.lock().unwrap() = Some(error);
    }

    fn open(self: &Arc<Self>, tail: usize) -> Result<ZipStore, ZipError> {
        self.open_with(tail, ZipOptions::default())
    }

    fn open_with(self: &Arc<Self>, tail: usize, o: ZipOptions) -> Result<ZipStore, ZipError> {
        block_on(ZipStore::open_remote(
            Arc::clone(self) as _,
            self.tail(tail),
            "remote",
            o,
        ))
    }
}

#[async_trait]
impl SnapshotReader for RemoteBytes {
    fn size_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn modified(&self) -> SystemTime {
        UNIX_EPOCH
    }

    async fn read_exact_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError> {
        assert!(length > 0, "a request for nothing");
        std::thread::sleep(self.delay);
        let end = offset + length as u64;
        self.requested.lock().unwrap().push(offset..end);
        if let Some(error) = &*self.failure.lock().unwrap() {
            return Err(SnapshotError::Store(error.clone()));
        }
        self.check()?;
        let there = self.content.get(offset as usize..end as usize);
        let there = there.expect("a request behind the end");
        Ok(Arc::new(there.to_vec()))
    }

    fn check(&self) -> Result<(), SnapshotError> {
        match self.is_changed.load(Ordering::Relaxed) {
            true => Err(SnapshotError::Changed("another ETag".into())),
            false => Ok(()),
        }
    }
}

impl ZipBuilder {
    /// An archive of `count` tiny files.
    fn many(count: usize) -> Self {
        let mut maker = Self::default();
        for i in 0..count {
            maker.add(
                format!("c/{}/{i}", i / 1000),
                vec![i as u8; 1 + i % 7],
                false,
            );
        }
        maker
    }

    fn remote(&self) -> (Arc<RemoteBytes>, Range<u64>) {
        let (content, directory) = self.make();
        (RemoteBytes::of(content), directory)
    }
}

/// Returns bytes that compress to about half their size.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & 0x0f
    };
    (0..length).map(|_| next()).collect()
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn open(store: &ZipStore, name: &str) -> Result<Arc<dyn Object>, StoreError> {
    let object = store.open(&key(name), AccessHint::Ranges)?;
    if object.size_bytes() == 0 {
        block_on(object.verify_empty())?;
    }
    Ok(object)
}

fn read(object: &dyn Object, offset: u64, size: usize) -> Result<Vec<u8>, StoreError> {
    Ok(block_on(object.read(offset, size))?.bytes(&[])?.to_vec())
}

/// Returns the bytes that can be read without waiting.
fn at_hand(object: &dyn Object, offset: u64, size: usize) -> Option<Result<Vec<u8>, StoreError>> {
    let data = object.read(offset, size).now_or_never()?;
    Some(data.and_then(|data| Ok(data.bytes(&[])?.to_vec())))
}

fn read_all(store: &ZipStore, name: &str) -> Result<Vec<u8>, StoreError> {
    let object = open(store, name)?;
    let size = usize::try_from(object.size_bytes()).unwrap();
    read(object.as_ref(), 0, size)
}

fn assert_serves(store: &ZipStore, maker: &ZipBuilder) {
    assert!(store.extent().keys > maker.entries.len() as u64);
    let step = (maker.entries.len() / 50).max(1);
    for (name, content, _) in maker.entries.iter().step_by(step) {
        assert_eq!(read_all(store, name).unwrap(), *content, "{name}");
    }
}

#[test]
fn a_directory_in_the_tail_costs_nothing_and_one_before_it_one_range() {
    let maker = ZipBuilder::many(100);
    let (remote, _) = maker.remote();
    let store = remote.open(64 << 10).unwrap();
    assert_eq!(remote.requested(), []);
    assert!(store.capabilities().is_remote);
    assert_serves(&store, &maker);
    // 1,000 entries; the tail begins in the middle of the directory or in its last record.
    let maker = ZipBuilder::many(1000);
    let (remote, directory) = maker.remote();
    let size = remote.content.len() as u64;
    for tail in [30_000, size - directory.end + 50] {
        let store = remote.open(tail as usize).unwrap();
        assert_eq!(remote.requested(), [directory.start..size - tail]);
        assert_serves(&store, &maker);
        remote.requested();
    }
}

#[test]
fn a_directory_of_200_000_entries_is_one_range() {
    for zip64 in [false, true] {
        let mut maker = ZipBuilder::many(200_000);
        maker.zip64 = zip64;
        let (remote, directory) = maker.remote();
        let store = remote.open(64 << 10).unwrap();
        let tail_start = remote.content.len() as u64 - (64 << 10);
        assert_eq!(remote.requested(), [directory.start..tail_start]);
        assert_serves(&store, &maker);
    }
}

#[test]
fn a_tail_of_any_length_yields_the_same_directory() {
    for (zip64, prefix) in [(false, 0), (false, 10), (false, 5000), (true, 0)] {
        let mut maker = ZipBuilder::many(30);
        maker.zip64 = zip64;
        maker.prefix = vec![0; prefix];
        maker.comment = b"about this and that".to_vec();
        let (remote, _) = maker.remote();
        let size = remote.content.len();
        // Tails that begin between the ends of a long prefix differ in nothing.
        let within = size.saturating_sub(prefix) + 50..size.saturating_sub(50);
        for tail in (0..=size).filter(|tail| !within.contains(tail) || tail % 100 == 0) {
            let store = remote.open(tail).unwrap();
            let fetched = remote.requested();
            assert!(fetched.len() <= 2, "{tail}: {fetched:?}");
            assert_serves(&store, &maker);
            remote.requested();
        }
    }
}

#[test]
fn one_range_finds_the_end_record_before_a_comment() {
    for (comment, fetches) in [(2000, 1), (60_000, 1), (65_535, 1)] {
        let mut maker = ZipBuilder::many(3000);
        maker.comment = vec![b'x'; comment];
        let (remote, _) = maker.remote();
        let store = remote.open(64 << 10).unwrap();
        let fetched = remote.requested();
        assert_eq!(fetched.len(), fetches, "{comment}: {fetched:?}");
        assert_serves(&store, &maker);
    }
    // A directory longer than the searched bytes, followed by a long comment.
    let mut maker = ZipBuilder::many(60_000);
    maker.comment = b"PK\x05\x06 and so on ".repeat(20);
    maker.comment.resize(60_000, b' ');
    let (remote, directory) = maker.remote();
    assert!(directory.end - directory.start > 2 << 20);
    let store = remote.open(50_000).unwrap();
    assert_eq!(remote.requested().len(), 2);
    assert_serves(&store, &maker);
}

#[test]
fn bytes_before_the_archive_are_not_fetched() {
    for (entries, prefix) in [
        (100, 50),
        (100, 10 << 20),
        (5000, 50),
        (5000, 60_000),
        (5000, 10 << 20),
        (50_000, 40 << 20),
    ] {
        let mut maker = ZipBuilder::many(entries);
        maker.prefix = noise(1, prefix);
        let (remote, directory) = maker.remote();
        let store = remote.open(64 << 10).unwrap();
        let fetched = remote.requested();
        let bytes: u64 = fetched.iter().map(|range| range.end - range.start).sum();
        let most = directory.end - directory.start + (70 << 10);
        assert!(
            fetched.len() <= 2 && bytes <= most,
            "{entries}, {prefix}: {fetched:?}"
        );
        assert_serves(&store, &maker);
    }
}

#[test]
fn a_long_directory_is_fetched_when_its_first_record_was_seen() {
    let mut maker = ZipBuilder::default();
    for i in 0..150_000 {
        maker.add(format!("{:0>230}", i), Vec::new(), false);
    }
    let (remote, directory) = maker.remote();
    assert!(directory.end - directory.start > super::prefetched_tail::UNSEEN_MAX_BYTES);
    let store = remote.open(64 << 10).unwrap();
    let fetched = remote.requested();
    assert_eq!(fetched.len(), 2);
    assert_eq!(fetched[0].start, directory.start);
    assert_eq!(fetched[0].end, fetched[1].start);
    assert_eq!(store.extent().keys, 150_001);
}

#[test]
fn every_entry_that_is_read_whole_is_one_range_and_nothing_is_read_twice() {
    let mut maker = ZipBuilder::default();
    for i in 0..40 {
        let content = noise(i, 10_000 + 31_337 * i as usize);
        maker.add(format!("a/{i}"), content, i % 2 == 1);
    }
    maker.add("last", noise(9, 10_000), false);
    for (extra, requests) in [(0, 1), (28, 1), (64, 1), (300, 2), (60_000, 2)] {
        maker.extra = extra;
        let (remote, directory) = maker.remote();
        let store = remote.open(64 << 10).unwrap();
        remote.requested();
        let (mut ends, mut bytes) = (0, 0);
        for (name, content, _) in &maker.entries {
            assert_eq!(read_all(&store, name).unwrap(), *content);
            let requested = remote.requested();
            assert_eq!(requested.len(), requests, "{name}: {requested:?}");
            for range in requested {
                assert!(range.start >= ends, "{name}: read twice");
                assert!(range.end <= directory.start);
                ends = range.end.min(directory.start);
                bytes += range.end - range.start;
                // The bytes read in case of a longer extra field belong to the next entry.
                ends = ends.saturating_sub(64);
            }
        }
        assert!(bytes <= directory.start * 105 / 100, "{bytes}");
        // Read again: headers are known now, and the largest decoded entries are cached.
        for (name, content, _) in &maker.entries {
            assert_eq!(read_all(&store, name).unwrap(), *content);
            assert!(remote.requested().len() <= 1, "{name}");
        }
    }
}

#[test]
fn ranges_of_long_stored_entries_are_exact() {
    // Shorter entries are fetched whole.
    let content = noise(5, 9 << 20);
    let mut maker = ZipBuilder::default();
    maker.add("near", content.clone(), false);
    maker.add("away", content.clone(), false);
    let (remote, _) = maker.remote();
    let store = remote.open(64 << 10).unwrap();
    let data = 30 + 4;
    let open = |name: &str| open(&store, name).unwrap();
    let part = |object: &Arc<dyn Object>, offset: usize, size: usize| {
        let bytes = read(object.as_ref(), offset as u64, size).unwrap();
        assert_eq!(bytes, content[offset..offset + size]);
        remote.requested()
    };
    let near = open("near");
    assert_eq!(part(&near, 50_000, 70_000), [0..data + 64 + 120_000]);
    let start = data + 2_000_000;
    assert_eq!(part(&near, 2_000_000, 100), [start..start + 100]);
    assert_eq!(part(&near, 0, 1 << 20), [data..data + (1 << 20)]);
    let header = data + content.len() as u64;
    let away = open("away");
    let start = header + data + 2_000_000;
    let expected = [header..header + data + 64, start..start + 100];
    assert_eq!(part(&away, 2_000_000, 100), expected);
    assert_eq!(part(&away, 2_000_000, 100), [start..start + 100]);
}

#[test]
fn an_entry_is_fetched_as_the_same_range_whether_its_header_is_known_or_not() {
    let mut maker = ZipBuilder::default();
    for number in 0..20 {
        maker.add(format!("{number}"), noise(number, 4000), number % 2 == 1);
    }
    let (remote, _) = maker.remote();
    // Half of the entries fit into the cache, so each is evicted before it is read again.
    let options = ZipOptions {
        cache_bytes: 40_000,
        ..ZipOptions::default()
    };
    let store = remote.open_with(64 << 10, options).unwrap();
    let mut rounds = [(); 2].map(|()| {
        for (name, content, _) in &maker.entries {
            assert_eq!(read_all(&store, name).unwrap(), *content);
        }
        remote.requested()
    });
    let [first, second] = &mut rounds;
    assert_eq!(first.len(), 20);
    assert_eq!(first, second);
}

#[test]
fn short_entries_of_a_remote_archive_are_fetched_whole_and_cached() {
    let mut maker = ZipBuilder::default();
    maker.add("stored", noise(1, 5000), false);
    maker.add("deflated", noise(2, 5000), true);
    maker.add("empty", Vec::new(), false);
    let (remote, _) = maker.remote();
    let store = remote.open(64 << 10).unwrap();
    assert!(!store.capabilities().open_infallible);
    for name in ["stored", "deflated"] {
        open(&store, name).unwrap();
    }
    assert_eq!(remote.requested(), []);
    for (name, content, _) in &maker.entries {
        assert_eq!(read_all(&store, name).unwrap(), *content);
    }
    assert_eq!(remote.requested().len(), 3);
    let object = open(&store, "deflated").unwrap();
    let again = at_hand(object.as_ref(), 10, 100).unwrap().unwrap();
    assert_eq!(again, maker.entries[1].1[10..110]);
    let object = open(&store, "stored").unwrap();
    let again = at_hand(object.as_ref(), 10, 100).unwrap().unwrap();
    assert_eq!(again, maker.entries[0].1[10..110]);
    open(&store, "empty").unwrap();
    assert_eq!(remote.requested(), []);
    remote.is_changed.store(true, Ordering::Relaxed);
    let stale = read_all(&store, "deflated");
    assert!(matches!(stale, Err(StoreError::Stale { .. })), "{stale:?}");
    assert_eq!(remote.requested(), [], "a request was sent");
}

#[test]
fn readers_of_one_entry_fetch_it_once() {
    let mut maker = ZipBuilder::default();
    maker.add("a", noise(2, 500_000), true);
    let remote = Arc::new(RemoteBytes {
        content: maker.make().0,
        delay: Duration::from_millis(200),
        ..RemoteBytes::default()
    });
    let store = remote.open(1 << 10).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(read_all(&store, "a").unwrap(), maker.entries[0].1));
        }
    });
    assert_eq!(remote.requested().len(), 1);
}

#[test]
fn a_long_deflated_entry_is_fetched_once_and_decoded_in_segments() {
    let mut maker = ZipBuilder::default();
    for name in ["a", "b"] {
        maker.add(name, noise(2, 30 << 20), true);
    }
    let (remote, directory) = maker.remote();
    let piece = 1 << 20;
    let pieces: Vec<usize> = (0..30).collect();
    let read_pieces = |store: &ZipStore, names: &[&str]| {
        for i in pieces.iter().map(|i| i * 7 % 30) {
            for name in names {
                let object = open(store, name).unwrap();
                let offset = i * piece;
                let bytes = read(object.as_ref(), offset as u64, piece).unwrap();
                assert!(bytes == maker.entries[0].1[offset..offset + piece]);
            }
        }
        remote.requested()
    };
    let options = ZipOptions {
        cache_bytes: 8 << 20,
        ..ZipOptions::default()
    };
    let store = remote.open_with(64 << 10, options).unwrap();
    let requested = read_pieces(&store, &["a", "b"]);
    assert_eq!(requested.len(), 2, "{requested:?}");
    assert!(requested.iter().all(|range| range.end <= directory.start));
    // The cache has room for one of the two entries, so the other one is read piece by piece.
    let compressed = directory.start / 2;
    let options = ZipOptions {
        memory_limit_bytes: 8 * (compressed + 1000),
        ..options
    };
    let store = remote.open_with(64 << 10, options).unwrap();
    let object = open(&store, "a").unwrap();
    read(object.as_ref(), 0, piece).unwrap();
    let requested = read_pieces(&store, &["b", "a"]);
    let whole = requested.iter().filter(|r| r.end - r.start >= compressed);
    assert_eq!(whole.count(), 2, "{requested:?}");
    // The cache has room for neither entry.
    let options = ZipOptions {
        memory_limit_bytes: 64 << 20,
        ..options
    };
    let store = remote.open_with(64 << 10, options).unwrap();
    let requested = read_pieces(&store, &["a"]);
    let most = super::entry::remote::SEGMENT_INPUT_BYTES;
    assert!(
        requested
            .iter()
            .all(|range| range.end - range.start <= most)
    );
}

#[test]
fn failures_keep_their_kind_and_name_the_entry() {
    let mut maker = ZipBuilder::default();
    maker.add("stored", noise(1, 5000), false);
    maker.add("deflated", noise(2, 5000), true);
    let (remote, _) = maker.remote();
    let store = remote.open(1000).unwrap();
    let what = || "it".to_owned();
    let elsewhere = || key("elsewhere");
    for error in [
        StoreError::TimedOut {
            key: elsewhere(),
            what: what(),
        },
        StoreError::Denied {
            key: elsewhere(),
            what: what(),
            status: None,
        },
        StoreError::Unavailable {
            key: elsewhere(),
            what: what(),
        },
        StoreError::Stale {
            key: elsewhere(),
            what: what(),
        },
    ] {
        remote.fail(error.clone());
        for name in ["stored", "deflated"] {
            let told = read_all(&store, name).unwrap_err();
            assert_eq!(
                std::mem::discriminant(&told),
                std::mem::discriminant(&error)
            );
            assert!(told.to_string().starts_with(name), "{told}");
        }
        match remote.open(30) {
            Err(ZipError::Source(told)) => {
                assert_eq!(
                    std::mem::discriminant(&told),
                    std::mem::discriminant(&error)
                );
            }
            other => panic!("{other:?}"),
        }
    }
    // An archive that no longer exists does not prove absence of its entries.
    remote.fail(StoreError::NotFound { key: elsewhere() });
    for name in ["stored", "deflated"] {
        let told = read_all(&store, name).unwrap_err();
        assert!(matches!(told, StoreError::Stale { .. }), "{told}");
    }
    remote.failure.lock().unwrap().take();
    remote.is_changed.store(true, Ordering::Relaxed);
    for name in ["stored", "deflated"] {
        let told = read_all(&store, name).unwrap_err();
        assert!(
            matches!(told, StoreError::Stale { .. }) && told.to_string().contains("another ETag"),
            "{told}"
        );
    }
    let refused = remote.open(30);
    assert!(
        matches!(refused, Err(ZipError::Source(StoreError::Stale { .. }))),
        "{refused:?}"
    );
    remote.is_changed.store(false, Ordering::Relaxed);
    for (name, content, _) in &maker.entries {
        assert_eq!(read_all(&store, name).unwrap(), *content);
    }
}

#[test]
fn invalid_archives_are_refused_without_a_large_read() {
    let small = ZipOptions {
        memory_limit_bytes: 1 << 20,
        ..ZipOptions::default()
    };
    // 3 MiB of noise without an end record.
    let remote = RemoteBytes::of(noise(3, 3 << 20));
    let refused = remote.open(64 << 10);
    assert!(matches!(refused, Err(ZipError::NoDirectory)), "{refused:?}");
    assert_eq!(remote.requested().len(), 1);
    // Truncated: the end record is gone.
    let (mut content, directory) = ZipBuilder::many(1000).make();
    content.truncate(directory.end as usize - 10);
    let remote = RemoteBytes::of(content);
    for tail in [0, 100, 10_000] {
        let refused = remote.open(tail);
        assert!(matches!(refused, Err(ZipError::NoDirectory)), "{refused:?}");
        assert!(remote.requested().len() <= 1);
    }
    // False claims: a directory whose size or place is wrong, or one that would take everything.
    for claims in [(0, 50), (0, u32::MAX), (10, 20 << 20), (5 << 20, 20)] {
        let mut maker = ZipBuilder::many(10);
        maker.prefix = noise(1, 20 << 20);
        maker.claims = Some(claims);
        let (remote, _) = maker.remote();
        let local = ZipStore::open(memory_file(&remote.content), "local", small);
        let refused = remote.open_with(64 << 10, small);
        assert!(local.is_err() && refused.is_err(), "{local:?}, {refused:?}");
        let requested = remote.requested();
        let bytes: u64 = requested.iter().map(|range| range.end - range.start).sum();
        assert!(bytes <= 1 << 20, "{claims:?}: {requested:?}");
    }
    // An honest directory that is too long for the limit.
    let (remote, directory) = ZipBuilder::many(30_000).remote();
    assert!(directory.end - directory.start > 1 << 20);
    match remote.open_with(64 << 10, small) {
        Err(ZipError::TooLarge {
            entries: 30_000,
            limit_bytes: 0x10_0000,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(remote.requested(), []);
    let longer = block_on(ZipStore::open_remote(
        RemoteBytes::of(vec![0; 10]),
        vec![0; 11],
        "longer",
        small,
    ));
    assert!(matches!(longer, Err(ZipError::BadDirectory(_))));
}

fn memory_file(content: &[u8]) -> File {
    use std::io::Write;
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create("archive", flags).unwrap());
    file.write_all(content).unwrap();
    file
}

#[test]
fn verified_entries_are_read_whole_first() {
    let mut maker = ZipBuilder::default();
    let content = noise(1, 20 << 20);
    maker.add("a", content.clone(), false);
    let (mut bytes, _) = maker.make();
    let options = ZipOptions {
        verify: true,
        ..ZipOptions::default()
    };
    let remote = RemoteBytes::of(bytes.clone());
    let store = remote.open_with(64 << 10, options).unwrap();
    let object = open(&store, "a").unwrap();
    let part = read(object.as_ref(), 1000, 10).unwrap();
    assert_eq!(part, content[1000..1010]);
    assert_eq!(
        remote.requested().len(),
        5,
        "the header, three pieces, the part"
    );
    bytes[10 << 20] ^= 1;
    let remote = RemoteBytes::of(bytes);
    let store = remote.open_with(64 << 10, options).unwrap();
    let object = open(&store, "a").unwrap();
    let bad = read(object.as_ref(), 1000, 10);
    assert!(matches!(bad, Err(StoreError::Corrupt { .. })), "{bad:?}");
}
