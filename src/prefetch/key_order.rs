//! The orders in which programs visit the keys of a store: as listed, by name, by inode number, or by the
//! numbers in names. A shell's `*` sorts by name, `cp -r` and `find` by inode number. Chunks follow the numbers
//! of their grid.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::WeightedLru;
use crate::clock::Instant;
use crate::hierarchy::is_document;
use crate::store::{Index, Key, Kind, Listed, Store, Visited};
use crate::sync::Mutex;

/// An order of the names in one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOrder {
    /// The order of the store's listing. Chunks listed from metadata are in C order over their grid.
    Listing,
    /// By the bytes of the name.
    Name,
    /// By the number of the file ([`FileNumbers`]), which is that of its inode.
    FileNumber,
    /// By the numbers in the name: chunks in C order over their grid, independent of the listing.
    Number,
}

/// Compares names by the numbers between their dots.
fn by_numbers(one: &[u8], other: &[u8]) -> Ordering {
    let part = |part| match <[u8]>::iter(part).all(u8::is_ascii_digit) {
        true => (part.len(), part),
        false => (0, part),
    };
    let parts = |name| <[u8]>::split(name, |byte| *byte == b'.').map(part);
    parts(one).cmp(parts(other))
}

/// A rule that leads from one key to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The order in each directory.
    pub(super) order: KeyOrder,
    /// The number of ranks from one key to the next, in the directory of the first key.
    pub(super) stride: usize,
    /// The prefix that contains all keys of the step. Prefixes below it are visited depth first.
    pub(super) top: Key,
}

/// The names of one directory in all orders.
#[derive(Debug)]
struct Directory {
    names: NameList,
    by_name: Permutation,
    by_file_number: Permutation,
    by_number: Permutation,
}

/// Names in listing order, concatenated in memory.
#[derive(Debug, Default)]
struct NameList {
    bytes: Vec<u8>,
    /// The end of each name in `bytes`.
    ends: Vec<u32>,
    kinds: Vec<Kind>,
}

impl NameList {
    /// Adds a name; returns whether more names are allowed.
    fn push(&mut self, name: &[u8], kind: Kind) -> bool {
        self.bytes.extend_from_slice(name);
        self.ends.extend(u32::try_from(self.bytes.len()));
        self.kinds.push(kind);
        self.kinds.len() < MAX_NAMES && self.bytes.len() < MAX_NAMES_BYTES
    }

    fn get(&self, index: usize) -> Option<(&[u8], Kind)> {
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let name = self
            .bytes
            .get(start as usize..*self.ends.get(index)? as usize)?;
        Some((name, *self.kinds.get(index)?))
    }
}

/// A map from ranks in an order to indexes in listing order, and back.
#[derive(Debug)]
struct Permutation {
    index_at: Vec<u32>,
    rank_of: Vec<u32>,
}

impl Permutation {
    fn sorted_by(count: usize, compare: impl Fn(usize, usize) -> Ordering) -> Self {
        let index = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let mut index_at: Vec<u32> = (0..count).map(index).collect();
        index_at.sort_by(|one, other| compare(*one as usize, *other as usize));
        let mut rank_of = vec![0; count];
        for (rank, at) in index_at.iter().enumerate() {
            if let Some(slot) = rank_of.get_mut(*at as usize) {
                *slot = index(rank);
            }
        }
        Self { index_at, rank_of }
    }

    fn rank(&self, index: usize) -> Option<usize> {
        Some(*self.rank_of.get(index)? as usize)
    }

    fn at(&self, rank: usize) -> Option<usize> {
        Some(*self.index_at.get(rank)? as usize)
    }
}

impl Directory {
    fn new(names: NameList, numbers: &[u64]) -> Self {
        let count = names.kinds.len();
        let name = |index| names.get(index).map_or(&b""[..], |(name, _)| name);
        Self {
            by_name: Permutation::sorted_by(count, |one, other| name(one).cmp(name(other))),
            by_file_number: Permutation::sorted_by(count, |one, other| {
                numbers.get(one).cmp(&numbers.get(other))
            }),
            by_number: Permutation::sorted_by(count, |one, other| {
                by_numbers(name(one), name(other))
            }),
            names,
        }
    }

    fn rank(&self, name: &[u8], order: KeyOrder) -> Option<usize> {
        let by_name = &self.by_name.index_at;
        let compare = |index: &u32| {
            let there = self.names.get(*index as usize);
            there.map(|(there, _)| there).cmp(&Some(name))
        };
        let at = by_name.binary_search_by(compare).ok()?;
        let index = *by_name.get(at)? as usize;
        match order {
            KeyOrder::Listing => Some(index),
            KeyOrder::Name => Some(at),
            KeyOrder::FileNumber => self.by_file_number.rank(index),
            KeyOrder::Number => self.by_number.rank(index),
        }
    }

    fn at(&self, rank: usize, order: KeyOrder) -> Option<(&[u8], Kind)> {
        self.names.get(match order {
            KeyOrder::Listing => rank,
            KeyOrder::Name => self.by_name.at(rank)?,
            KeyOrder::FileNumber => self.by_file_number.at(rank)?,
            KeyOrder::Number => self.by_number.at(rank)?,
        })
    }

    fn bytes(&self) -> u64 {
        let names = (self.names.kinds.len() as u64).saturating_mul(NAME_BYTES);
        names.saturating_add(self.names.bytes.len() as u64)
    }
}

/// The bytes that a name takes beside its text: its end, its kind, and its entries in three permutations.
const NAME_BYTES: u64 = 32;
/// The largest number and total bytes of names in a directory. The order of more is not worth its memory.
const MAX_NAMES: usize = 1 << 18;
const MAX_NAMES_BYTES: usize = 8 << 20;
/// The largest number of pages of a listing that are fetched for an order, if a page takes a request.
const MAX_PAGES: usize = 4;
/// The largest size of all directories of a tree in bytes. A single directory may take twice as much.
const BUDGET_BYTES: u64 = 8 << 20;
/// The largest number of cached directories.
const MAX_DIRECTORIES: usize = 4096;
/// The largest number of directories without a value that are skipped for the next key.
const MAX_SKIPPED: usize = 64;
/// The largest number of directories inside each other in which the first value is searched.
const MAX_DEPTH: usize = 64;
/// The number of latest keys in which pairs are searched.
const MAX_PAIRED: usize = 5;
/// The time that an order is trusted. A wrong order costs a prefetch, and never causes a wrong reply.
const TTL: Duration = Duration::from_secs(60);

/// The names of a directory, and the time when they were listed.
type CachedDirectory = (Option<Arc<Directory>>, Instant);

/// Returns the names of a prefix from an index, whose positions are the inode numbers; `None` for too many names.
fn load_from_index(index: &dyn Index, prefix: &Key) -> Option<Directory> {
    let position = index.find(prefix)?;
    let (mut names, mut numbers, mut is_complete) = (NameList::default(), Vec::new(), true);
    index.children(position, 0, &mut |name, kind, child| {
        numbers.push(child.0.into());
        is_complete = names.push(name, kind);
        match is_complete {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    is_complete.then(|| Directory::new(names, &numbers))
}

/// The numbers by which programs such as `cp -r` and `find` sort the names of a directory: those of its inodes.
pub trait FileNumbers: Debug + Send + Sync {
    /// Returns the number of a listed name; `None` if the name is not shown.
    fn listed(&self, prefix: &Key, listed: &Listed<'_>) -> Option<u64>;
}

/// The orders of the directories of one tree.
#[derive(Debug)]
pub struct KeyOrders {
    store: Arc<dyn Store>,
    numbers: Box<dyn FileNumbers>,
    /// The cached directories; `None` if the names could not be listed or are too many.
    known: Mutex<WeightedLru<Key, CachedDirectory>>,
}

impl KeyOrders {
    /// Creates the orders of a store. The numbers of a store with an index are its positions.
    pub fn new(store: Arc<dyn Store>, numbers: impl FileNumbers + 'static) -> Self {
        Self {
            store,
            numbers: Box::new(numbers),
            known: Mutex::new(WeightedLru::new(BUDGET_BYTES, MAX_DIRECTORIES)),
        }
    }

    async fn directory(&self, prefix: &Key) -> Option<Arc<Directory>> {
        if let Some((directory, since)) = self.known.lock().get(prefix)
            && since.elapsed() < TTL
        {
            return directory.clone();
        }
        let directory = self.load(prefix).await.map(Arc::new);
        let bytes = directory.as_ref().map_or(0, |known| known.bytes());
        let known = (directory.clone(), Instant::now());
        let evicted = self.known.lock().insert(prefix.clone(), known, bytes);
        drop(evicted);
        directory
    }

    /// Lists a directory; `None` if listing fails or returns too many names.
    async fn load(&self, prefix: &Key) -> Option<Directory> {
        if let Some(index) = self.store.index() {
            return load_from_index(index, prefix);
        }
        let mut listing = self.store.list(prefix).await.ok()?;
        let (mut names, mut numbers) = (NameList::default(), Vec::new());
        let mut cookie = 0;
        let pages = match self.store.capabilities().lists_without_requests {
            true => usize::MAX,
            false => MAX_PAGES,
        };
        for _ in 0..=pages {
            let visited = listing.visit(cookie, &mut |listed| {
                cookie = listed.next;
                let number = self.numbers.listed(prefix, &listed);
                let Some(number) = number.filter(|_| !matches!(listed.name, b"." | b"..")) else {
                    return ControlFlow::Continue(());
                };
                numbers.push(number);
                match names.push(listed.name, listed.kind) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            match visited.ok()? {
                Visited::End => return Some(Directory::new(names, &numbers)),
                Visited::Stopped => return None,
                Visited::Pending => listing.load().await.ok()?,
            }
        }
        None
    }

    /// Returns the step of the recently used keys. The last two keys of a program with one thread show it,
    /// unless `needs_two_pairs`; two pairs among the latest keys show it for several threads.
    /// Three keys of one directory show a stride. If several orders match, `last_order`, the order of the
    /// stream that was continued last, takes precedence.
    pub(super) async fn step(
        &self,
        newest: &Key,
        older: &[Key],
        needs_two_pairs: bool,
        last_order: Option<KeyOrder>,
    ) -> Option<Step> {
        let [previous, ..] = older else { return None };
        let latest = older.get(..MAX_PAIRED).unwrap_or(older);
        let all = [
            KeyOrder::Listing,
            KeyOrder::Name,
            KeyOrder::FileNumber,
            KeyOrder::Number,
        ];
        let others = all.into_iter().filter(|order| Some(*order) != last_order);
        for order in last_order.into_iter().chain(others) {
            let stride = 1;
            if !needs_two_pairs && let Some(top) = self.is_next(previous, newest, order).await {
                return Some(Step { order, stride, top });
            }
            let mut tops = Vec::new();
            for one in latest {
                tops.extend(self.is_next(one, newest, order).await);
                for other in latest {
                    tops.extend(self.is_next(one, other, order).await);
                }
            }
            let is_twice = |top: &&Key| tops.iter().filter(|other| other == top).count() > 1;
            let is_above = |top: &&Key| newest.below(top).is_some();
            let mut found = tops.iter().filter(is_above);
            if let Some(top) = found.find(is_twice).cloned() {
                return Some(Step { order, stride, top });
            }
        }
        self.stride(newest, previous, older).await
    }

    /// Returns the step that begins at a key, if the key is the first value of its directory in some order.
    /// The order `last_order` is tried first. Documents are not counted.
    pub(super) async fn first_step(&self, key: &Key, last_order: Option<KeyOrder>) -> Option<Step> {
        let top = key.parent();
        let directory = self.directory(&top).await?;
        let all = [KeyOrder::Name, KeyOrder::FileNumber, KeyOrder::Listing];
        let mut orders = last_order.into_iter().chain(all);
        let order = orders.find(|order| {
            let names = (0..).map_while(|rank| directory.at(rank, *order));
            let mut values = names.filter(|(name, kind)| {
                *kind == Kind::Object && top.join(name).is_ok_and(|key| !is_document(&key))
            });
            values
                .next()
                .is_some_and(|(name, _)| child(key, &top) == Some(name))
        })?;
        let stride = 1;
        Some(Step { order, stride, top })
    }

    /// Returns the prefix in which `other` directly follows `one`, if it does. The prefix is the directory of
    /// both keys, or that of a chunk grid, whose names are numbers. Keys of different arrays are no evidence of
    /// the arrays that follow.
    async fn is_next(&self, one: &Key, other: &Key, order: KeyOrder) -> Option<Key> {
        let top = common_prefix(one, other);
        let is_directory = one.parent() == top && other.parent() == top;
        let is_number =
            |key| child(key, &top).is_some_and(|name| name.iter().all(u8::is_ascii_digit));
        let is_grid = is_number(one) && is_number(other);
        if !is_directory && !is_grid {
            return None;
        }
        let directory = self.directory(&top).await?;
        let rank = |key: &Key| directory.rank(child(key, &top)?, order);
        (rank(one)?.checked_add(1) == rank(other)).then_some(top)
    }

    /// Returns the step of three keys of one directory in equal strides, the last of which is `newest`.
    async fn stride(&self, newest: &Key, middle: &Key, older: &[Key]) -> Option<Step> {
        let top = newest.parent();
        let first = older.iter().skip(1).find(|key| key.parent() == top)?;
        let directory = self.directory(&top).await?;
        let order = KeyOrder::Listing;
        let rank = |key: &Key| directory.rank(child(key, &top)?, order);
        let (first, middle, last) = (rank(first)?, rank(middle)?, rank(newest)?);
        let stride = middle.checked_sub(first).filter(|stride| *stride > 0)?;
        (middle.checked_add(stride) == Some(last)).then_some(Step { order, stride, top })
    }

    /// Returns the next key of a step; `None` at its end, or after more than [`MAX_SKIPPED`] directories
    /// without a value. Each directory may take requests.
    pub(super) async fn after(&self, key: &Key, step: &Step) -> Option<Key> {
        let (mut at, mut stride) = (key.clone(), step.stride);
        let mut skipped = 0;
        loop {
            let prefix = at.parent();
            let directory = self.directory(&prefix).await?;
            let mut rank = directory.rank(child(&at, &prefix)?, step.order)?;
            loop {
                rank = rank.checked_add(stride)?;
                let Some((name, kind)) = directory.at(rank, step.order) else {
                    break;
                };
                let next = prefix.join(name).ok()?;
                if kind == Kind::Object {
                    return Some(next);
                }
                if let Some(first) = self.first(next, step.order).await {
                    return Some(first);
                }
                skipped += 1;
                if skipped > MAX_SKIPPED {
                    return None;
                }
            }
            // A stride ends with its directory.
            if prefix == step.top || prefix.is_root() || stride > 1 {
                return None;
            }
            (at, stride) = (prefix, 1);
        }
    }

    /// Returns the documents of the same directory that directly follow a key in its listing, `most` at most.
    pub(super) async fn documents_after(&self, key: &Key, most: usize) -> Vec<Key> {
        let (top, order) = (key.parent(), KeyOrder::Listing);
        let Some(directory) = self.directory(&top).await else {
            return Vec::new();
        };
        let rank = child(key, &top).and_then(|name| directory.rank(name, order));
        let following = rank.into_iter().flat_map(|rank| rank.saturating_add(1)..);
        let listed = following.map_while(|rank| directory.at(rank, order));
        let objects = listed.map_while(|(name, kind)| match kind {
            Kind::Object => top.join(name).ok(),
            Kind::Prefix => None,
        });
        objects.take_while(is_document).take(most).collect()
    }

    /// Returns the first value below a prefix.
    async fn first(&self, mut prefix: Key, order: KeyOrder) -> Option<Key> {
        for _ in 0..MAX_DEPTH {
            let directory = self.directory(&prefix).await?;
            let (name, kind) = directory.at(0, order)?;
            prefix = prefix.join(name).ok()?;
            if kind == Kind::Object {
                return Some(prefix);
            }
        }
        None
    }
}

/// Returns the longest prefix that contains both keys.
fn common_prefix(one: &Key, other: &Key) -> Key {
    let mut prefix = one.parent();
    while !prefix.is_root() && child(other, &prefix).is_none() {
        prefix = prefix.parent();
    }
    prefix
}

/// Returns the first component of a key below a prefix.
fn child<'a>(key: &'a Key, prefix: &Key) -> Option<&'a [u8]> {
    let below = key.below(prefix)?;
    let below = below.strip_prefix(b"/").unwrap_or(below);
    below.split(|byte| *byte == b'/').next()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::prefetch::Backwards;
    use crate::runtime::block_on;
    use crate::store::{MemoryStore, OpenOptions, SourceName};

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn orders(keys: &[&str]) -> KeyOrders {
        let values = keys.iter().map(|name| (key(name), vec![1]));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(values));
        KeyOrders::new(store, Backwards)
    }

    /// Returns the keys that follow `from` in a step.
    fn all_after(orders: &KeyOrders, from: &str, step: &Step) -> Vec<String> {
        let mut found = Vec::new();
        let mut at = key(from);
        while let Some(next) = block_on(orders.after(&at, step)) {
            found.push(next.to_string());
            at = next;
        }
        found
    }

    #[test]
    fn two_consecutive_keys_predict_the_rest_of_their_directory() {
        let orders = orders(&["a/.zarray", "a/0", "a/1", "a/2", "a/3", "b/0"]);
        let older = [key("a/0"), key("b/0")];
        assert_eq!(
            block_on(orders.step(&key("a/1"), &older[..1], true, None)),
            None
        );
        let step = block_on(orders.step(&key("a/1"), &older, false, None)).unwrap();
        assert_eq!((step.stride, &step.top), (1, &key("a")));
        assert_eq!(all_after(&orders, "a/1", &step), ["a/2", "a/3"]);
        let elsewhere = [key("a/1"), key("a/2"), key("a/3")];
        assert_eq!(
            block_on(orders.step(&key("b/0"), &elsewhere, true, None)),
            None
        );
        // With several threads, the last two keys need not follow each other.
        let older = [key("a/1"), key("a/2"), key("a/0")];
        let step = block_on(orders.step(&key("a/3"), &older, true, None)).unwrap();
        assert_eq!((step.stride, &step.top), (1, &key("a")));
    }

    #[test]
    fn the_first_value_of_a_directory_starts_a_step_in_the_order_that_has_it_first() {
        let orders = orders(&["a/.zarray", "a/0", "a/1", "a/10", "b/zarr.json"]);
        let first = |name: &str| block_on(orders.first_step(&key(name), None));
        let by_file_number = {
            let directory = block_on(orders.directory(&key("a"))).unwrap();
            let mut names = (0..).map_while(|rank| directory.at(rank, KeyOrder::FileNumber));
            let (name, _) = names.find(|(name, _)| *name != b".zarray").unwrap();
            key("a").join(name).unwrap()
        };
        for name in ["a/0", "a/1", "a/10"] {
            let expected = match name {
                "a/0" => Some(KeyOrder::Name),
                _ => (key(name) == by_file_number).then_some(KeyOrder::FileNumber),
            };
            assert_eq!(first(name).map(|step| step.order), expected, "{name}");
        }
        assert_eq!(first("a/.zarray"), None);
        assert_eq!(first("b/zarr.json"), None);
    }

    #[test]
    fn keys_are_visited_depth_first_below_the_common_prefix_of_two_keys() {
        let chunks = [
            "a/c/0/0", "a/c/0/1", "a/c/1/0", "a/c/1/1", "a/c/2/0", "b/c/0/0",
        ];
        let orders = orders(&chunks);
        let step = block_on(orders.step(&key("a/c/1/0"), &[key("a/c/0/1")], false, None)).unwrap();
        assert_eq!(step.top, key("a/c"));
        assert_eq!(all_after(&orders, "a/c/1/0", &step), ["a/c/1/1", "a/c/2/0"]);
    }

    #[test]
    fn chunks_in_the_order_of_their_grid_are_a_step_in_any_listing() {
        let names: Vec<String> = (0..3)
            .flat_map(|row| (0..12).map(move |column| format!("a/{row}.{column}")))
            .collect();
        let mut listed: Vec<&str> = names.iter().map(String::as_str).collect();
        listed.sort_unstable();
        let orders = orders(&listed);
        let step = |last_order| {
            block_on(orders.step(&key("a/0.1"), &[key("a/0.0")], false, last_order)).unwrap()
        };
        let first = step(None);
        assert_eq!(all_after(&orders, "a/0.1", &first)[0], "a/0.10");
        let listing = Some(KeyOrder::Listing);
        let later = block_on(orders.step(&key("a/0.3"), &[key("a/0.2")], false, listing));
        assert_eq!(later.unwrap().order, KeyOrder::Listing);
        let later = block_on(orders.step(&key("a/0.10"), &[key("a/0.9")], false, None)).unwrap();
        assert_eq!(later.order, KeyOrder::Number);
        assert_eq!(all_after(&orders, "a/0.1", &later), names[2..]);
        assert_eq!(step(Some(KeyOrder::Number)).order, KeyOrder::Number);
    }

    #[test]
    fn a_long_directory_has_an_order_if_its_listing_takes_no_requests() {
        let keys = (0..10_000).map(|number| format!("\"a/{number:04}\": [\"target\", 0, 1]"));
        let keys: Vec<String> = keys.collect();
        let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        let json = format!("{{\"version\": 1, \"refs\": {{{}}}}}", keys.join(","));
        file.write_all(json.as_bytes()).unwrap();
        let source = SourceName::parse(file.path()).unwrap();
        let store = block_on(source.open(&OpenOptions::default())).unwrap();
        let orders = KeyOrders::new(Arc::from(store), Backwards);
        let step = block_on(orders.step(&key("a/0001"), &[key("a/0000")], false, None)).unwrap();
        let next = block_on(orders.after(&key("a/9998"), &step));
        assert_eq!(next, Some(key("a/9999")));
    }

    #[test]
    fn equal_strides_over_three_keys_are_a_step() {
        let names: Vec<String> = (0..20).map(|number| format!("a/{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let orders = orders(&names);
        let step = |older: &[Key]| block_on(orders.step(&key("a/08"), older, true, None));
        assert_eq!(step(&[key("a/04"), key("a/01")]), None);
        let step = step(&[key("a/04"), key("a/00")]).unwrap();
        assert_eq!(step.stride, 4);
        assert_eq!(all_after(&orders, "a/08", &step), ["a/12", "a/16"]);
    }
}
