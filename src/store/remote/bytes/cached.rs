//! Bytes that need no request: in memory, and in the disk cache. Names of blocks contain source, key and
//! version.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::runtime::{self, Priority, leave_session_thread, may_block};
use crate::store::Key;
use crate::store::remote::memory::RangeKey;
use crate::store::remote::request::{Meta, Page};
use crate::store::remote::store::RemoteSource;

/// Limit of cached attributes of an object, in bytes.
const MAX_META_BYTES: u64 = 4096;

impl RemoteSource {
    /// Identifies a range of a version of an object, for caches and loads.
    pub(in crate::store::remote) fn range_key(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
    ) -> RangeKey {
        RangeKey {
            source: self.number,
            key: key.clone(),
            version: meta.version(),
            start: range.start,
            end: range.end,
        }
    }

    /// Returns a range of a version of an object, if it is in memory.
    pub(in crate::store::remote) fn in_memory(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        self.ranges.get(&self.range_key(key, meta, range))
    }

    /// Returns a range of a version of an object, if it is in memory or in the disk cache. May block on
    /// the disk.
    pub(in crate::store::remote) fn cached(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        if let Some(bytes) = self.in_memory(key, meta, range) {
            return Some(bytes);
        }
        let length = range.end.saturating_sub(range.start);
        let name = self.block_name(key, meta, range)?;
        let bytes = self.disk.as_ref()?.get(&name, length)?;
        if bytes.len() as u64 != length {
            return None;
        }
        let bytes = Arc::new(bytes);
        self.ranges
            .insert(self.range_key(key, meta, range), Arc::clone(&bytes));
        Some(bytes)
    }

    /// As [`RemoteSource::cached`], and leaves the session thread before it asks the disk.
    pub(in crate::store::remote) async fn find_cached(
        &self,
        key: &Key,
        meta: &Meta,
        range: &Range<u64>,
    ) -> Option<Arc<Vec<u8>>> {
        let found = self.in_memory(key, meta, range);
        if found.is_some() || self.disk.is_none() {
            return found;
        }
        if !may_block() {
            leave_session_thread().await;
        }
        self.cached(key, meta, range)
    }

    /// Caches bytes of a version of an object.
    pub(in crate::store::remote) fn insert(
        &self,
        key: &Key,
        meta: &Meta,
        start: u64,
        bytes: &Arc<Vec<u8>>,
    ) {
        let range = start..start.saturating_add(bytes.len() as u64);
        self.ranges
            .insert(self.range_key(key, meta, &range), Arc::clone(bytes));
        if let (Some(disk), Some(name)) = (&self.disk, self.block_name(key, meta, &range)) {
            disk.put(&name, bytes);
            disk.put(&self.meta_name(key), &meta_bytes(meta));
        }
    }

    /// Returns the attributes of an object in the disk cache, for a conditional request.
    pub(in crate::store::remote) fn last_meta_from_disk(&self, key: &Key) -> Option<Meta> {
        let disk = self.disk.as_ref()?;
        let bytes = disk.get(&self.meta_name(key), MAX_META_BYTES)?;
        meta_from(&bytes)
    }

    /// Caches a complete listing, if the source is immutable.
    pub(in crate::store::remote) fn cache_listing(&self, prefix: &Key, page: &Page) {
        if let (true, Some(disk)) = (self.is_immutable, &self.disk) {
            disk.put(&self.listing_name(prefix), &page_bytes(page));
        }
    }

    /// Returns a complete listing from the disk cache, if the source is immutable.
    pub(in crate::store::remote) async fn listing_from_disk(&self, prefix: &Key) -> Option<Page> {
        let disk = self.disk.as_ref().filter(|_| self.is_immutable)?;
        leave_session_thread().await;
        let budget_bytes = self.ranges.budget_bytes() / 4;
        page_from(&disk.get(&self.listing_name(prefix), budget_bytes)?)
    }

    /// Returns bytes that were derived from a version of an object, if they are in the disk cache. May block
    /// on the disk.
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

    /// Caches bytes that were derived from a version of an object on disk. Another thread writes them
    /// later.
    pub(in crate::store::remote) fn cache_derived(
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
            runtime::run(Priority::Prefetch, move || disk.put(&name, &bytes));
        }
    }

    /// `None` for an object whose versions cannot be distinguished.
    fn derived_name(&self, key: &Key, meta: &Meta, what: &str) -> Option<Vec<u8>> {
        let all = self.block_name(key, meta, &(0..meta.size_bytes))?;
        Some([what.as_bytes(), &all].join(&0))
    }

    fn listing_name(&self, prefix: &Key) -> Vec<u8> {
        [b"list", self.identity.as_bytes(), prefix.as_bytes()].join(&0)
    }

    fn meta_name(&self, key: &Key) -> Vec<u8> {
        [b"meta", self.identity.as_bytes(), key.as_bytes()].join(&0)
    }

    /// `None` for an object whose versions cannot be distinguished.
    fn block_name(&self, key: &Key, meta: &Meta, range: &Range<u64>) -> Option<Vec<u8>> {
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
