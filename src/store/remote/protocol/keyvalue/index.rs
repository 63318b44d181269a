//! All keys of a database in byte order, with their sizes.
//!
//! Keys that are no file names are left out. A value whose key is also a prefix of other keys is
//! hidden by that prefix, as in a local database. The log has one example of each.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::clock::Instant;
use crate::store::Key;
use crate::store::remote::request::{Depth, List, Meta, Page, RequestError};

/// Estimated bytes of a key besides its text.
const ENTRY_BYTES: u64 = 48;
/// Largest number of keys below a prefix that are listed together with the whole subtree.
const MAX_TREE_KEYS: usize = 1 << 16;
/// Number of names in one page of a directory.
const PAGE_NAMES: usize = 1 << 13;

/// Collects keys while they are read.
#[derive(Debug)]
pub(super) struct Keys {
    read: Vec<Entry>,
    bytes: u64,
    limit_bytes: u64,
    since: Instant,
    has_invalid: bool,
}

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    /// `None` if only a lookup returns the size.
    size_bytes: Option<u64>,
}

impl Keys {
    /// Starts to collect the keys of a database; they may take `limit_bytes` of memory.
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            read: Vec::new(),
            bytes: 0,
            limit_bytes,
            since: Instant::now(),
            has_invalid: false,
        }
    }

    /// Adds a key. `size_bytes` is `None` if only a lookup returns the size.
    ///
    /// # Errors
    /// If the keys exceed the memory limit.
    pub(super) fn add(&mut self, key: &[u8], size_bytes: Option<u64>) -> Result<(), RequestError> {
        if key.is_empty() || Key::new(key).is_err() {
            if !std::mem::replace(&mut self.has_invalid, true) {
                let key = key.get(..80).unwrap_or(key).escape_ascii();
                log::warn!("keys that are no file names are left out, such as \"{key}\"");
            }
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(key.len() as u64 + ENTRY_BYTES);
        if self.bytes > self.limit_bytes {
            return Err(RequestError::lasting(format!(
                "its {} first keys take more than {} bytes of memory; a larger --cache-size permits more",
                self.read.len(),
                self.limit_bytes
            )));
        }
        let key = key.into();
        self.read.push(Entry { key, size_bytes });
        Ok(())
    }

    /// Number of keys collected so far.
    pub(super) fn len(&self) -> usize {
        self.read.len()
    }

    /// Sorts the keys.
    pub(super) fn into_index(self) -> Index {
        let mut entries = self.read;
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        entries.dedup_by(|one, other| one.key == other.key);
        entries.shrink_to_fit();
        Index {
            entries,
            since: self.since,
        }
    }
}

/// All keys, sorted.
#[derive(Debug)]
pub(super) struct Index {
    entries: Vec<Entry>,
    since: Instant,
}

/// Returns the attributes for a listing, given a key and the size of its value.
type MetaOf<'a> = dyn Fn(&Key, u64) -> Option<Meta> + 'a;

/// Returns the common prefix of all keys below `prefix`, with the slash.
fn directory(prefix: &Key) -> Vec<u8> {
    match prefix.is_root() {
        true => Vec::new(),
        false => [prefix.as_bytes(), b"/"].concat(),
    }
}

impl Index {
    /// How long ago the keys were read.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the position of the first key at or after `bound`.
    fn seek(&self, bound: &[u8]) -> usize {
        self.entries.partition_point(|entry| *entry.key < *bound)
    }

    /// Whether a key begins with `directory`.
    fn has_below_directory(&self, directory: &[u8]) -> bool {
        let first = self.entries.get(self.seek(directory));
        first.is_some_and(|entry| entry.key.starts_with(directory))
    }

    /// Whether keys exist below a prefix.
    pub(super) fn has_below(&self, prefix: &Key) -> bool {
        self.has_below_directory(&directory(prefix))
    }

    /// Returns a page of names: those behind the page token, or behind the name after which names are wanted.
    pub(super) fn page(&self, list: &List, meta: &MetaOf<'_>) -> Page {
        let directory = directory(&list.prefix);
        let mut page = Page {
            is_complete: true,
            since: Some(self.since),
            ..Page::default()
        };
        if list.depth == Depth::All && list.most.is_none() && list.page.is_none() {
            self.tree(&directory, meta, &mut page);
            return page;
        }
        let mut bound = directory.clone();
        if let Some(token) = &list.page {
            bound.extend(percent_decode_str(token));
        } else if let Some(after) = &list.after {
            bound.extend([after, &b"\0"[..]].concat());
        }
        let most = list.most.unwrap_or(PAGE_NAMES).min(PAGE_NAMES);
        self.names(&directory, &bound, most, meta, &mut page);
        page
    }

    fn meta(&self, entry: &Entry, meta: &MetaOf<'_>) -> Option<Meta> {
        let key = Key::new(&entry.key).ok()?;
        meta(&key, entry.size_bytes?)
    }

    /// Lists all keys below a directory; if there are too many, only announces that there are pages.
    fn tree(&self, directory: &[u8], meta: &MetaOf<'_>, page: &mut Page) {
        let first = self.seek(directory);
        let below = self.entries.get(first..).unwrap_or_default();
        let end = below.partition_point(|entry| entry.key.starts_with(directory));
        if end > MAX_TREE_KEYS {
            page.next = Some(String::new());
            return;
        }
        let all = below.iter().take(end).filter_map(|entry| {
            let name = entry.key.strip_prefix(directory)?;
            Some((name.to_vec(), self.meta(entry, meta)))
        });
        page.objects = all.collect();
    }

    /// Lists names directly below a directory, from a bound on.
    fn names(
        &self,
        directory: &[u8],
        bound: &[u8],
        most: usize,
        meta: &MetaOf<'_>,
        page: &mut Page,
    ) {
        let mut place = self.seek(bound);
        while let Some(entry) = self.entries.get(place) {
            let Some(below) = entry.key.strip_prefix(directory) else {
                return;
            };
            if page.objects.len() + page.prefixes.len() >= most {
                page.next = Some(percent_encode(below, NON_ALPHANUMERIC).to_string());
                return;
            }
            if let Some(end) = below.iter().position(|byte| *byte == b'/') {
                let name = below.get(..end).unwrap_or(below);
                page.prefixes.push(name.to_vec());
                // `0` follows `/` in byte order.
                place = self.seek(&[directory, name, b"0"].concat());
                continue;
            }
            match self.has_below_directory(&[&entry.key[..], b"/"].concat()) {
                true => log::debug!(
                    "the value \"{}\" is hidden by the prefix of the same name",
                    entry.key.escape_ascii()
                ),
                false => page.objects.push((below.to_vec(), self.meta(entry, meta))),
            }
            place += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(keys: &[&str]) -> Index {
        let mut read = Keys::new(16 << 20);
        for key in keys {
            read.add(key.as_bytes(), Some(key.len() as u64)).unwrap();
        }
        read.into_index()
    }

    fn meta(_: &Key, size_bytes: u64) -> Option<Meta> {
        Some(Meta {
            size_bytes,
            etag: None,
            modified: None,
        })
    }

    fn list(prefix: &str, depth: Depth) -> List {
        List {
            prefix: Key::new(prefix.as_bytes()).unwrap(),
            depth,
            page: None,
            after: None,
            most: None,
        }
    }

    fn names(page: &Page) -> Vec<String> {
        let objects = page.objects.iter().map(|(name, _)| name.clone());
        let prefixes = page.prefixes.iter().map(|name| [name, &b"/"[..]].concat());
        let mut names: Vec<_> = objects
            .chain(prefixes)
            .map(|name| String::from_utf8(name).unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn keys_that_are_no_file_names_are_left_out_and_prefixes_hide_values() {
        let long = "x".repeat(256);
        let index = index(&[
            "b", "a/0", "a", "a-b", "a/0", "", "/x", "c//d", "..", "e/../f", "g/\0", "h/", &long,
        ]);
        let root = index.page(&list("", Depth::One), &meta);
        assert_eq!(names(&root), ["a-b", "a/", "b"]);
        assert!(root.next.is_none() && root.is_complete);
        let all = index.page(&list("", Depth::All), &meta);
        assert_eq!(names(&all), ["a", "a-b", "a/0", "b"]);
        let below = index.page(&list("a", Depth::All), &meta);
        assert_eq!(names(&below), ["0"]);
        assert_eq!(below.objects[0].1.as_ref().unwrap().size_bytes, 3);
        let has = |key: &str| index.has_below(&Key::new(key.as_bytes()).unwrap());
        assert!(has("a") && has("") && !has("b") && !has("a-b") && !has("c"));
    }

    #[test]
    fn long_directories_have_pages_and_large_trees_only_directories() {
        let keys: Vec<String> = (0..20_000).map(|n| format!("a %b/{n:05}")).collect();
        let more = (0..50_000).map(|n| format!("z/{n}/0"));
        let all: Vec<String> = keys.iter().cloned().chain(more).collect();
        let index = index(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let tree = index.page(&list("", Depth::All), &meta);
        assert!(tree.objects.is_empty() && tree.next.is_some());
        let root = index.page(&list("", Depth::One), &meta);
        assert_eq!(names(&root), ["a %b/", "z/"]);
        let mut ask = list("a %b", Depth::One);
        let mut found = Vec::new();
        loop {
            let page = index.page(&ask, &meta);
            found.extend(names(&page));
            ask.page = page.next;
            if ask.page.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), keys.len());
        assert_eq!(found.last().unwrap(), "19999");
        let mut one = list("z", Depth::All);
        one.most = Some(1);
        assert_eq!(names(&index.page(&one, &meta)), ["0/"]);
    }

    #[test]
    fn the_memory_of_an_index_is_limited() {
        let mut keys = Keys::new(2 * ENTRY_BYTES + 2);
        keys.add(b"a", None).unwrap();
        keys.add(b"b", None).unwrap();
        assert!(keys.add(b"c", None).is_err());
        assert_eq!(keys.len(), 2);
    }
}
