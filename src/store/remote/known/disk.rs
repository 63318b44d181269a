//! What the disk cache has of one source, from this mount and from earlier ones. Names of entries contain source, key
//! and version.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::runtime::{self, Priority, leave_session_thread};
use crate::store::disk::TryLock;
use crate::store::remote::request::{Meta, Page};
use crate::store::{DiskCache, DiskCounters, Key};

/// Limit of cached attributes of an object, in bytes.
const MAX_META_BYTES: u64 = 4096;

/// The disk cache of one source, if there is one.
#[derive(Debug)]
pub(in crate::store::remote) struct SourceDisk {
    disk: Option<Arc<DiskCache>>,
    /// Identifies the source in the cache, as this user sees it.
    identity: String,
    /// The time limit of a request with all of its retries.
    timeout: Duration,
}

impl SourceDisk {
    pub(in crate::store::remote) fn new(
        disk: Option<Arc<DiskCache>>,
        identity: String,
        timeout: Duration,
    ) -> Self {
        Self {
            disk,
            identity,
            timeout,
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether there is a disk cache.
    pub(in crate::store::remote) fn is_present(&self) -> bool {
        self.disk.is_some()
    }

    pub(in crate::store::remote) fn counters(&self) -> Option<DiskCounters> {
        self.disk.as_ref().map(|disk| disk.counters())
    }

    /// Returns a range of a version of an object. May block on the disk.
    pub(in crate::store::remote) fn range(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
    ) -> Option<Vec<u8>> {
        let disk = self.disk.as_ref()?;
        let length = range.end.saturating_sub(range.start);
        let bytes = disk.get(&self.range_name(key, meta, range)?, length)?;
        (bytes.len() as u64 == length).then_some(bytes)
    }

    /// Caches a range of a version of an object, and the attributes of the version.
    pub(in crate::store::remote) fn insert(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
        bytes: &Arc<Vec<u8>>,
    ) {
        if let (Some(disk), Some(name)) = (&self.disk, self.range_name(key, meta, range)) {
            disk.put(&name, bytes);
            disk.put(&self.meta_name(key), &meta_bytes(meta));
        }
    }

    /// Returns the attributes of the version of an object of which a range was cached last. They are confirmed by a
    /// conditional request, unless the source is immutable.
    pub(in crate::store::remote) fn last_meta(&self, key: &Key) -> Option<Meta> {
        let bytes = self
            .disk
            .as_ref()?
            .get(&self.meta_name(key), MAX_META_BYTES)?;
        meta_from(&bytes)
    }

    /// Caches a complete listing of an immutable source.
    pub(in crate::store::remote) fn insert_listing(&self, prefix: &Key, page: &Page) {
        if let Some(disk) = &self.disk {
            disk.put(&self.listing_name(prefix), &page_bytes(page));
        }
    }

    /// Returns a complete listing of an immutable source of at most `max_bytes`.
    pub(in crate::store::remote) async fn listing(
        &self,
        prefix: &Key,
        max_bytes: u64,
    ) -> Option<Page> {
        let disk = self.disk.as_ref()?;
        leave_session_thread().await;
        page_from(&disk.get(&self.listing_name(prefix), max_bytes)?)
    }

    /// Returns bytes that were derived from a version of an object. May block on the disk.
    pub(in crate::store::remote) fn derived(
        &self,
        key: &Key,
        meta: &Meta,
        what: &str,
        max_bytes: u64,
    ) -> Option<Vec<u8>> {
        let name = self.derived_name(key, meta, what)?;
        self.disk.as_ref()?.get(&name, max_bytes)
    }

    /// Caches bytes that were derived from a version of an object. Another thread writes them later.
    pub(in crate::store::remote) fn insert_derived(
        &self,
        key: &Key,
        meta: &Meta,
        what: &str,
        make: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) {
        if let Some(disk) = self.disk.clone()
            && let Some(name) = self.derived_name(key, meta, what)
            && let Some(bytes) = make()
        {
            runtime::spawn_detached(Priority::Prefetch, async move { disk.put(&name, &bytes) });
        }
    }

    /// Tries to get the lock for a fetch of `name`, of at most `bytes`.
    pub(super) fn fetch_lock(&self, name: &[&[u8]], bytes: u64) -> TryLock {
        let Some(disk) = &self.disk else {
            return TryLock::Unsupported;
        };
        let name = [&[b"turn", self.identity.as_bytes()], name].concat();
        disk.try_fetch_lock(&name.join(&0), bytes)
    }

    /// `None` for an object whose versions cannot be distinguished.
    fn derived_name(&self, key: &Key, meta: &Meta, what: &str) -> Option<Vec<u8>> {
        let all = self.range_name(key, meta, &(0..meta.size_bytes))?;
        Some([what.as_bytes(), &all].join(&0))
    }

    fn listing_name(&self, prefix: &Key) -> Vec<u8> {
        [b"list", self.identity.as_bytes(), prefix.as_bytes()].join(&0)
    }

    fn meta_name(&self, key: &Key) -> Vec<u8> {
        [b"meta", self.identity.as_bytes(), key.as_bytes()].join(&0)
    }

    /// `None` for an object whose versions cannot be distinguished.
    fn range_name(&self, key: &Key, meta: &Meta, range: &Range<u64>) -> Option<Vec<u8>> {
        let version = match (meta.opaque_tag(), meta.modified_seconds()) {
            (Some(tag), _) => format!("tag {tag}"),
            (None, Some(seconds)) => format!("time {seconds}"),
            (None, None) => return None,
        };
        let place = format!("{} {} {}", meta.size_bytes, range.start, range.end);
        let parts = [
            b"data",
            self.identity.as_bytes(),
            key.as_bytes(),
            version.as_bytes(),
            place.as_bytes(),
        ];
        Some(parts.join(&0))
    }
}

fn meta_bytes(meta: &Meta) -> Vec<u8> {
    let seconds = meta.modified_seconds().map_or(u64::MAX, |seconds| seconds);
    let tag = meta.etag.as_deref().unwrap_or_default();
    let numbers = [meta.size_bytes.to_le_bytes(), seconds.to_le_bytes()].concat();
    [&numbers, tag.as_bytes()].concat()
}

/// Serializes the objects and prefixes of a page, each as its kind, its length and its bytes; for an object,
/// its attributes follow.
fn page_bytes(page: &Page) -> Vec<u8> {
    let mut all = Vec::new();
    let mut put = |kind: u8, bytes: &[u8]| {
        all.push(kind);
        all.extend((bytes.len() as u64).to_le_bytes());
        all.extend(bytes);
    };
    for (key, meta) in &page.objects {
        put(b'o', key);
        if let Some(meta) = meta {
            put(b'm', &meta_bytes(meta));
        }
    }
    for prefix in &page.prefixes {
        put(b'p', prefix);
    }
    all
}

fn page_from(mut bytes: &[u8]) -> Option<Page> {
    let mut page = Page {
        is_complete: true,
        ..Page::default()
    };
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (field, rest) = rest.split_at_checked(length)?;
        match kind {
            b'o' => page.objects.push((field.to_vec(), None)),
            b'm' => page.objects.last_mut()?.1 = Some(meta_from(field)?),
            b'p' => page.prefixes.push(field.to_vec()),
            _ => return None,
        }
        bytes = rest;
    }
    Some(page)
}

fn meta_from(bytes: &[u8]) -> Option<Meta> {
    let (size, rest) = bytes.split_first_chunk::<8>()?;
    let (seconds, tag) = rest.split_first_chunk::<8>()?;
    let tag = std::str::from_utf8(tag).ok()?;
    let modified: Option<SystemTime> = match u64::from_le_bytes(*seconds) {
        u64::MAX => None,
        seconds => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
    };
    Some(Meta {
        size_bytes: u64::from_le_bytes(*size),
        etag: (!tag.is_empty()).then(|| tag.to_owned()),
        modified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_an_object_survive_the_disk() {
        for (etag, modified) in [
            (Some("W/\"x\""), Some(UNIX_EPOCH + Duration::from_secs(7))),
            (None, None),
        ] {
            let meta = Meta {
                size_bytes: 9,
                etag: etag.map(str::to_owned),
                modified,
            };
            assert_eq!(meta_from(&meta_bytes(&meta)), Some(meta));
        }
        assert_eq!(meta_from(b"short"), None);
    }

    #[test]
    fn a_listing_survives_the_disk() {
        let meta = Meta {
            size_bytes: 9,
            etag: Some("\"x\"".into()),
            modified: Some(UNIX_EPOCH + Duration::from_secs(7)),
        };
        let page = Page {
            objects: vec![(b"a/0".to_vec(), Some(meta)), (b"b".to_vec(), None)],
            prefixes: vec![b"c".to_vec()],
            ..Page::default()
        };
        let bytes = page_bytes(&page);
        let read = page_from(&bytes).unwrap();
        assert_eq!((read.objects, read.prefixes), (page.objects, page.prefixes));
        assert!(read.is_complete);
        for end in 1..bytes.len() {
            let cut = page_from(bytes.get(..end).unwrap());
            assert!(cut.is_none_or(|page| page.objects.len() + page.prefixes.len() < 3));
        }
    }
}
