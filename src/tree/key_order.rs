//! The orders in which programs visit the keys of a store: as they are listed, by name (a shell's
//! `*`), or by inode number (`cp -r`, `find`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Ino;
use super::hashed::Numbers;
use crate::cache::WeightedLru;
use crate::store::{Key, Kind, Store, Visited};
use crate::sync::Mutex;

/// An order of the names in one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOrder {
    /// As the store lists them: chunks in C order over their grid where names come from metadata.
    Listing,
    /// By the bytes of the name.
    Name,
    /// By inode number.
    Inode,
}

/// A way from one key to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The order in each directory.
    pub(super) order: KeyOrder,
    /// Ranks from one key to the next in the directory that the first one is in.
    pub(super) stride: usize,
    /// The prefix that is not left. Prefixes below it are visited depth first.
    pub(super) top: Key,
}

/// The names of one directory in all orders.
#[derive(Debug)]
struct Directory {
    /// In listing order.
    names: Vec<(Box<[u8]>, Kind)>,
    by_name: Permutation,
    by_inode: Permutation,
}

/// An order as indexes in listing order, and back.
#[derive(Debug)]
struct Permutation {
    index_at: Vec<u32>,
    rank_of: Vec<u32>,
}

impl Permutation {
    fn sorted_by_key<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> Self {
        let index = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let mut index_at: Vec<u32> = (0..count).map(index).collect();
        index_at.sort_by_key(|index| key(*index as usize));
        let mut rank_of = vec![0; count];
        for (rank, at) in index_at.iter().enumerate() {
            if let Some(slot) = rank_of.get_mut(*at as usize) {
                *slot = index(rank);
            }
        }
        Self { index_at, rank_of }
    }
}

impl Directory {
    fn new(names: Vec<(Box<[u8]>, Kind)>, numbers: &[Ino]) -> Self {
        let name = |index: usize| names.get(index).map(|(name, _)| name);
        Self {
            by_name: Permutation::sorted_by_key(names.len(), name),
            by_inode: Permutation::sorted_by_key(names.len(), |index| numbers.get(index)),
            names,
        }
    }

    fn rank(&self, name: &[u8], order: KeyOrder) -> Option<usize> {
        let at = self.by_name.index_at.binary_search_by(|index| {
            let there = self.names.get(*index as usize);
            there.map_or(b"".as_slice(), |(name, _)| name).cmp(name)
        });
        let index = *self.by_name.index_at.get(at.ok()?)? as usize;
        match order {
            KeyOrder::Listing => Some(index),
            KeyOrder::Name => at.ok(),
            KeyOrder::Inode => self.by_inode.rank_of.get(index).map(|rank| *rank as usize),
        }
    }

    fn at(&self, rank: usize, order: KeyOrder) -> Option<(&[u8], Kind)> {
        let index = match order {
            KeyOrder::Listing => rank,
            KeyOrder::Name => *self.by_name.index_at.get(rank)? as usize,
            KeyOrder::Inode => *self.by_inode.index_at.get(rank)? as usize,
        };
        self.names.get(index).map(|(name, kind)| (&**name, *kind))
    }

    fn bytes(&self) -> u64 {
        let names = self.names.iter().map(|(name, _)| name.len() as u64);
        names.map(|bytes| bytes + NAME_BYTES).sum::<u64>() + NAME_BYTES
    }
}

/// A name takes so much beside its bytes.
const NAME_BYTES: u64 = 64;
/// Directories with more names have no order that is worth its memory.
const MAX_NAMES: usize = 1 << 18;
/// Pages of names that are fetched to know an order.
const MAX_PAGES: usize = 4;
/// All directories together take at most so much.
const BUDGET_BYTES: u64 = 32 << 20;
/// How long an order is trusted. A wrong one costs a prefetch, never a wrong answer.
const TTL: Duration = Duration::from_secs(60);

/// The orders of the directories of one tree.
#[derive(Debug)]
pub(super) struct KeyOrders {
    store: Arc<dyn Store>,
    root: Key,
    numbers: Numbers,
    /// `None` is a directory with too many names.
    known: Mutex<WeightedLru<Key, (Option<Arc<Directory>>, Instant)>>,
}

impl KeyOrders {
    pub(super) fn new(store: Arc<dyn Store>, root: Key, numbers: Numbers) -> Self {
        Self {
            store,
            root,
            numbers,
            known: Mutex::new(WeightedLru::new(BUDGET_BYTES, usize::MAX)),
        }
    }

    async fn directory(&self, prefix: &Key) -> Option<Arc<Directory>> {
        if let Some((directory, since)) = self.known.lock().get(prefix)
            && since.elapsed() < TTL
        {
            return directory.clone();
        }
        let directory = self.load(prefix).await.map(Arc::new);
        let bytes = directory.as_ref().map_or(NAME_BYTES, |known| known.bytes());
        let known = (directory.clone(), Instant::now());
        let evicted = self.known.lock().insert(prefix.clone(), known, bytes);
        drop(evicted);
        directory
    }

    /// `None` if the names are not known, or too many.
    async fn load(&self, prefix: &Key) -> Option<Directory> {
        let mut listing = self.store.list(prefix).await.ok()?;
        let (mut names, mut inodes) = (Vec::new(), Vec::new());
        let mut cookie = 0;
        for _ in 0..=MAX_PAGES {
            let visited = listing.visit(cookie, &mut |listed| {
                cookie = listed.next;
                let number = self.numbers.listed(&self.root, prefix, &listed);
                if let Some(number) = number.filter(|_| !matches!(listed.name, b"." | b"..")) {
                    inodes.push(number);
                    names.push((listed.name.into(), listed.kind));
                }
                match names.len() > MAX_NAMES {
                    true => std::ops::ControlFlow::Break(()),
                    false => std::ops::ControlFlow::Continue(()),
                }
            });
            match visited.ok()? {
                Visited::End => return Some(Directory::new(names, &inodes)),
                Visited::Stopped => return None,
                Visited::Pending => listing.load().await.ok()?,
            }
        }
        None
    }

    /// The step that leads from the older of two keys to the newer one, which follows it at once in
    /// some order; or one in equal strides over three keys of one directory.
    pub(super) async fn step(&self, newest: &Key, older: &[Key]) -> Option<Step> {
        for (place, other) in older.iter().enumerate() {
            let top = common_prefix(other, newest);
            let directory = self.directory(&top).await?;
            let rank = |key: &Key, order| directory.rank(child(key, &top)?, order);
            for order in [KeyOrder::Listing, KeyOrder::Name, KeyOrder::Inode] {
                let (from, to) = (rank(other, order), rank(newest, order));
                if let (Some(from), Some(to)) = (from, to)
                    && from + 1 == to
                {
                    return Some(Step {
                        order,
                        stride: 1,
                        top,
                    });
                }
            }
            if top != newest.parent() || top != other.parent() {
                continue;
            }
            let order = KeyOrder::Listing;
            let third = older.iter().skip(place + 1).find(|key| key.parent() == top);
            if let (Some(last), Some(middle), Some(first)) = (
                rank(newest, order),
                rank(other, order),
                third.and_then(|third| rank(third, order)),
            ) && first < middle
                && middle.checked_add(middle - first) == Some(last)
            {
                return Some(Step {
                    order,
                    stride: middle - first,
                    top,
                });
            }
        }
        None
    }

    /// The next key of a step; `None` at its end.
    pub(super) async fn after(&self, key: &Key, step: &Step) -> Option<Key> {
        let (mut at, mut stride) = (key.clone(), step.stride);
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
            }
            // A stride does not lead from one directory to another.
            if prefix == step.top || prefix.is_root() || stride > 1 {
                return None;
            }
            (at, stride) = (prefix, 1);
        }
    }

    /// The first value below a prefix.
    async fn first(&self, mut prefix: Key, order: KeyOrder) -> Option<Key> {
        loop {
            let directory = self.directory(&prefix).await?;
            let (name, kind) = directory.at(0, order)?;
            prefix = prefix.join(name).ok()?;
            if kind == Kind::Object {
                return Some(prefix);
            }
        }
    }
}

/// The longest prefix that both keys are below.
fn common_prefix(one: &Key, other: &Key) -> Key {
    let mut prefix = one.parent();
    while !prefix.is_root() && child(other, &prefix).is_none() {
        prefix = prefix.parent();
    }
    prefix
}

/// The name below a prefix that leads to a key.
fn child<'a>(key: &'a Key, prefix: &Key) -> Option<&'a [u8]> {
    let below = key.below(prefix)?;
    let below = below.strip_prefix(b"/").unwrap_or(below);
    below.split(|byte| *byte == b'/').next()
}
