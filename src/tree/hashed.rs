//! Inode numbers for stores that can change or that have no index: a hash of the key and, for a
//! file, of its version. The table has only the numbers that the kernel has looked up and not
//! forgotten.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::Hasher;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

use super::{Answer, DirStream, Entry, Ino, Node, Tree, Visit, unknown};
use crate::prefetch::{FileNumbers, KeyOrders, KeyReadahead};
use crate::store::{
    self, AccessHint, Key, Kind, Listed, Listing, ListingSupport, Object, Prefetch, Stat, Store,
    StoreError, Version, Visited, check_component,
};
use crate::sync::{Mutex, MutexGuard};

/// The tree of a store without an index, or of a prefix of such a store.
#[derive(Debug)]
pub struct HashedTree {
    store: Arc<dyn Store>,
    root: Key,
    inodes: InodeRange,
    /// The numbers that the kernel holds.
    held: Mutex<HashMap<Ino, InodeEntry>>,
    /// The readahead of values, for a remote store.
    values: Option<KeyReadahead>,
    /// The readahead of attributes, for a remote store whose listings are not complete.
    attributes: Option<KeyReadahead>,
}

/// The range of the inode numbers of one tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct InodeRange {
    /// The number of the root.
    root: Ino,
    /// The bits that all other numbers have; `mask` selects the bits of the hash.
    base: u64,
    mask: u64,
}

/// The largest cookie of a listing that fits into a number.
const MAX_PLACE: u64 = (1 << 40) - 1;

impl InodeRange {
    /// Numbers that are positive as signed integers and differ from the root's.
    pub(super) const NATIVE: Self = Self {
        root: Ino::ROOT,
        base: 1 << 62,
        mask: u64::MAX >> 1,
    };

    fn of(self, hash: u64) -> Ino {
        let ino = Ino((hash & self.mask) | self.base);
        if ino == self.root {
            self.after(ino)
        } else {
            ino
        }
    }

    fn after(self, ino: Ino) -> Ino {
        self.of(ino.0.wrapping_add(1))
    }

    /// Returns the number of a key, unless another key has the same number (see [`HashedTree::intern`]).
    fn number(self, root: &Key, key: &Key, stat: &Stat) -> Ino {
        match key == root {
            true => self.root,
            false => self.hashed(&[key.as_bytes()], Some(stat)),
        }
    }

    /// Returns the number of a listed name, as a directory shows it; `None` for a name that no key can have.
    ///
    /// A file without attributes has no version yet, so its number changes with the lookup. Until then, the
    /// number contains the position in the listing. fts(3), which `find`, `du` and `rm` use, sorts long
    /// directories by number, and so keeps the order of the store.
    pub(super) fn listed(self, prefix: &Key, listed: &Listed<'_>) -> Option<Ino> {
        check_component(listed.name).ok()?;
        let (prefix, name) = (prefix.as_bytes(), listed.name);
        Some(match &listed.stat {
            None if listed.kind == Kind::Object && listed.next <= MAX_PLACE => {
                let directory = self.hashed(&[prefix], None).0 & !MAX_PLACE & !self.directory_bit();
                self.of(directory | listed.next)
            }
            stat if prefix.is_empty() => self.hashed(&[name], stat.as_ref()),
            stat => self.hashed(&[prefix, b"/", name], stat.as_ref()),
        })
    }

    fn directory_number(self, root: &Key, key: &Key) -> Ino {
        match key == root {
            true => self.root,
            false => self.hashed(&[key.as_bytes()], None),
        }
    }

    /// Hashes a key, which is given in parts, and the version of a value to a number.
    fn hashed(self, key: &[&[u8]], stat: Option<&Stat>) -> Ino {
        let mut hasher = SipHasher13::new();
        for part in key {
            hasher.write(part);
        }
        if let Some(stat) = stat.filter(|stat| stat.kind == Kind::Object) {
            hasher.write_u8(0);
            hasher.write_u64(stat.version.0);
        }
        let ino = self.of(hasher.finish() >> 1);
        match stat.is_some_and(|stat| stat.kind == Kind::Object) {
            true => Ino(ino.0 & !self.directory_bit()),
            false => Ino(ino.0 | self.directory_bit()),
        }
    }

    /// Returns the bit that only the numbers of directories have: a program that sorts a directory by number, as cp(1)
    /// does, reads the values in a directory, with its documents, before the directories in it.
    fn directory_bit(self) -> u64 {
        let bits = (self.mask & !self.base).checked_ilog2().unwrap_or_default();
        (1 << bits) & self.mask & !self.base
    }
}

/// The entry of a number: its key, attributes and lookup count.
#[derive(Debug)]
struct InodeEntry {
    key: Key,
    /// The attributes that the last lookup has returned.
    stat: Stat,
    lookups: u64,
}

impl HashedTree {
    /// Creates a tree with the prefix `root` at its root.
    pub fn new(store: Arc<dyn Store>, root: Key) -> Self {
        Self::numbered(store, root, InodeRange::NATIVE)
    }

    /// Creates a tree beside others. Its root has the number `base`; the lower `bits` bits identify its keys.
    pub(super) fn beside(store: Arc<dyn Store>, root: Key, base: u64, bits: u32) -> Self {
        let numbers = InodeRange {
            root: Ino(base),
            base,
            mask: (1 << bits) - 1,
        };
        Self::numbered(store, root, numbers)
    }

    fn numbered(store: Arc<dyn Store>, root: Key, inodes: InodeRange) -> Self {
        let capabilities = store.capabilities();
        let orders = KeyOrders::new(Arc::clone(&store), inodes);
        let orders = Arc::new(orders);
        let readahead = |what| KeyReadahead::new(Arc::clone(&store), Arc::clone(&orders), what);
        let is_remote = capabilities.is_remote;
        let lists_none = is_remote && capabilities.listing == ListingSupport::BestEffort;
        Self {
            values: is_remote.then(|| readahead(Prefetch::Value)),
            attributes: lists_none.then(|| readahead(Prefetch::Attributes)),
            store,
            root,
            inodes,
            held: Mutex::default(),
        }
    }

    fn held_numbers(&self) -> MutexGuard<'_, HashMap<Ino, InodeEntry>> {
        self.held.lock()
    }

    /// Assigns a number to the key, and increments its lookup count.
    fn intern(&self, key: Key, stat: Stat) -> Node {
        let mut ino = self.inodes.number(&self.root, &key, &stat);
        if ino == self.inodes.root {
            return Node { ino, stat };
        }
        let mut held = self.held_numbers();
        loop {
            match held.entry(ino) {
                Slot::Vacant(slot) => {
                    slot.insert(InodeEntry {
                        key,
                        stat,
                        lookups: 1,
                    });
                    return Node { ino, stat };
                }
                Slot::Occupied(mut slot) => {
                    let there = slot.get_mut();
                    let (kind, version) = (there.stat.kind, there.stat.version);
                    if there.key == key && kind == stat.kind && version == stat.version {
                        there.stat = stat;
                        there.lookups = there.lookups.saturating_add(1);
                        return Node { ino, stat };
                    }
                    // Two keys have the same hash: the later one takes the next free number.
                    ino = self.inodes.after(ino);
                }
            }
        }
    }

    /// Returns the key, kind and version of a number.
    fn find(&self, ino: Ino) -> Result<(Key, Kind, Version), StoreError> {
        if ino == self.inodes.root {
            return Ok((self.root.clone(), Kind::Prefix, Version(0)));
        }
        let held = self.held_numbers();
        let found = held.get(&ino).ok_or_else(|| unknown(ino))?;
        Ok((found.key.clone(), found.stat.kind, found.stat.version))
    }

    fn child(&self, parent: Ino, name: &[u8]) -> Result<Key, StoreError> {
        let (parent, ..) = self.find(parent)?;
        parent
            .join(name)
            .map_err(|_| StoreError::NotFound { key: parent })
    }
}

impl HashedTree {
    fn looked_up(&self, key: &Key, stat: &Stat) {
        if let (Some(attributes), Kind::Object) = (&self.attributes, stat.kind) {
            attributes.observe(key, None);
        }
    }

    /// Returns the attributes `stat` of a number, if its key still has the same content.
    fn current(&self, ino: Ino, stat: Stat) -> Result<Stat, StoreError> {
        let (key, kind, version) = self.find(ino)?;
        match stat.kind == kind && stat.version == version {
            true => Ok(stat),
            false => Err(changed(key)),
        }
    }

    /// Returns an opened object if it has the version of its number, and reports the opening to readahead.
    fn opened(
        &self,
        key: &Key,
        version: Version,
        object: Arc<dyn Object>,
    ) -> Result<Arc<dyn Object>, StoreError> {
        if object.version() != version {
            return Err(changed(key.clone()));
        }
        if let Some(values) = &self.values {
            values.observe(key, Some(&object));
        }
        if let Some(attributes) = &self.attributes {
            attributes.record_opened();
        }
        Ok(object)
    }

    fn directory(&self, ino: Ino, key: Key, listing: Box<dyn Listing>) -> Box<dyn DirStream> {
        listing.record_shown();
        for readahead in self.values.iter().chain(&self.attributes) {
            readahead.record_listed(&key);
        }
        let parent = match key == self.root {
            true => self.inodes.root,
            false => self.inodes.directory_number(&self.root, &key.parent()),
        };
        Box::new(HashedDir {
            inodes: self.inodes,
            ino,
            parent,
            key,
            listing,
        })
    }
}

impl HashedTree {
    /// Returns the node of a key that was looked up, and counts the lookup.
    fn found(&self, key: Key, stat: Result<Stat, StoreError>) -> Result<Node, StoreError> {
        let stat = stat?;
        self.looked_up(&key, &stat);
        Ok(self.intern(key, stat))
    }
}

fn changed(key: Key) -> StoreError {
    StoreError::Stale {
        key,
        what: "it has another content by now".into(),
    }
}

impl FileNumbers for InodeRange {
    fn listed(&self, prefix: &Key, listed: &Listed<'_>) -> Option<u64> {
        Self::listed(*self, prefix, listed).map(|number| number.0)
    }
}

#[async_trait]
impl Tree for HashedTree {
    fn lookup<'a>(&'a self, parent: Ino, name: &'a [u8]) -> Answer<'a, Node> {
        let key = match self.child(parent, name) {
            Ok(key) => key,
            Err(error) => return Answer::now(Err(error)),
        };
        match self.store.try_stat(&key) {
            Some(stat) => Answer::now(self.found(key, stat)),
            None => Answer::later(async move {
                if let Some(values) = &self.values {
                    values.anticipate(&key);
                }
                if let Some(attributes) = &self.attributes {
                    attributes.anticipate_documents(&key);
                }
                let stat = self.store.stat(&key).await;
                self.found(key, stat)
            }),
        }
    }

    fn lookup_entry(&self, parent: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>> {
        let key = match self.child(parent, entry.name) {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        match entry.stat {
            Some(stat) => Some(Ok(self.intern(key, stat))),
            None => {
                let stat = self.store.try_stat(&key)?;
                Some(self.found(key, stat))
            }
        }
    }

    fn count_lookup(&self, ino: Ino) -> Option<Stat> {
        let mut held = self.held_numbers();
        let there = held.get_mut(&ino)?;
        there.lookups = there.lookups.saturating_add(1);
        Some(there.stat)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        let mut held = self.held_numbers();
        if let Slot::Occupied(mut slot) = held.entry(ino) {
            let left = slot.get().lookups.saturating_sub(lookups);
            slot.get_mut().lookups = left;
            if left == 0 {
                slot.remove();
            }
        }
        if held.capacity() > 1024 && held.len() < held.capacity() / 8 {
            held.shrink_to_fit();
        }
    }

    fn stat(&self, ino: Ino) -> Answer<'_, Stat> {
        let key = match self.key(ino) {
            Ok(key) => key,
            Err(error) => return Answer::now(Err(error)),
        };
        match self.store.try_stat(&key) {
            Some(stat) => Answer::now(stat.and_then(|stat| self.current(ino, stat))),
            None => Answer::later(async move {
                let stat = self.store.stat(&key).await?;
                self.current(ino, stat)
            }),
        }
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        Ok(self.find(ino)?.0)
    }

    fn open(&self, ino: Ino) -> Answer<'_, Arc<dyn Object>> {
        let (key, _, version) = match self.find(ino) {
            Ok(found) => found,
            Err(error) => return Answer::now(Err(error)),
        };
        if let Some(opened) = self.store.try_open(&key, AccessHint::Ranges) {
            return Answer::now(opened.and_then(|object| self.opened(&key, version, object)));
        }
        Answer::later(async move {
            if let Some(values) = &self.values {
                values.anticipate_open(&key);
            }
            let object = self.store.open(&key, AccessHint::Ranges).await?;
            self.opened(&key, version, object)
        })
    }

    fn open_dir(&self, ino: Ino) -> Answer<'_, Box<dyn DirStream>> {
        let key = match self.key(ino) {
            Ok(key) => key,
            Err(error) => return Answer::now(Err(error)),
        };
        if let Some(store) = self.store.as_sync() {
            let listing = store.list(&key);
            return Answer::now(listing.map(|listing| self.directory(ino, key, listing)));
        }
        Answer::later(async move {
            let listing = self.store.list(&key).await?;
            Ok(self.directory(ino, key, listing))
        })
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn known_inodes(&self) -> usize {
        self.held_numbers().len().saturating_add(1)
    }
}

/// An open directory, with the cookies of the store's listing.
#[derive(Debug)]
struct HashedDir {
    inodes: InodeRange,
    ino: Ino,
    parent: Ino,
    key: Key,
    listing: Box<dyn Listing>,
}

#[async_trait]
impl DirStream for HashedDir {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit_with(visit, |listing, visit| listing.visit(cookie, visit))
    }

    fn visit_names(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit_with(visit, |listing, visit| listing.visit_names(cookie, visit))
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        self.listing.load().await
    }
}

impl HashedDir {
    /// Visits the names of the listing with `list`, each with its inode number.
    fn visit_with(
        &mut self,
        visit: &mut Visit<'_>,
        list: impl Fn(&mut dyn Listing, &mut store::Visit<'_>) -> Result<Visited, StoreError>,
    ) -> Result<Visited, StoreError> {
        let Self {
            inodes,
            ino: here,
            parent,
            key,
            listing,
        } = self;
        list(&mut **listing, &mut |listed| {
            let ino = match listed.name {
                b"." => *here,
                b".." => *parent,
                _ => match inodes.listed(key, &listed) {
                    Some(ino) => ino,
                    None => return ControlFlow::Continue(()),
                },
            };
            let (name, kind, stat, next) = (listed.name, listed.kind, listed.stat, listed.next);
            visit(Entry {
                name,
                ino,
                kind,
                stat,
                next,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    fn tree() -> HashedTree {
        let key = |name: &str| Key::new(name.as_bytes()).unwrap();
        let values = [
            (key("a/0"), vec![1]),
            (key("a/1"), vec![2, 3]),
            (key(".zgroup"), vec![4]),
        ];
        HashedTree::new(Arc::new(MemoryStore::new(values)), Key::root())
    }

    #[test]
    fn an_inode_number_is_valid_from_lookup_to_the_last_forget() {
        let tree = tree();
        let a = block_on(tree.lookup(Ino::ROOT, b"a")).unwrap();
        assert_eq!(block_on(tree.lookup(Ino::ROOT, b"a")).unwrap().ino, a.ino);
        assert_eq!(tree.known_inodes(), 2);
        tree.forget(a.ino, 1);
        assert_eq!(tree.key(a.ino).unwrap().as_bytes(), b"a");
        tree.forget(a.ino, 1);
        assert!(matches!(tree.key(a.ino), Err(StoreError::Stale { .. })));
        assert_eq!(tree.known_inodes(), 1);
    }

    #[test]
    fn inode_numbers_are_the_same_in_another_mount_and_in_listings() {
        let (one, two) = (tree(), tree());
        let a = block_on(one.lookup(Ino::ROOT, b"a")).unwrap().ino;
        assert_eq!(a, block_on(two.lookup(Ino::ROOT, b"a")).unwrap().ino);
        let mut listed = Vec::new();
        let mut directory = block_on(two.open_dir(a)).unwrap();
        let mut note = |entry: Entry<'_>| {
            listed.push((entry.name.to_vec(), entry.kind));
            ControlFlow::Continue(())
        };
        directory.visit(0, &mut note).unwrap();
        let names: Vec<&[u8]> = listed.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"."[..], b"..", b"0", b"1"]);
    }

    #[test]
    fn separate_trees_share_no_inode_number() {
        let native = tree();
        let beside = HashedTree::beside(Arc::clone(&native.store), Key::root(), 3 << 58, 58);
        let root = Ino(3 << 58);
        assert_eq!(block_on(beside.stat(root)).unwrap().kind, Kind::Prefix);
        assert!(block_on(beside.stat(Ino::ROOT)).is_err());
        let a = block_on(beside.lookup(root, b"a")).unwrap().ino;
        assert!(a.0 > root.0 && a.0 < 1 << 60, "{a:?}");
        assert_eq!(
            block_on(native.lookup(Ino::ROOT, b"a")).unwrap().ino.0 >> 62,
            1
        );
        assert_eq!(beside.key(a).unwrap().as_bytes(), b"a");
        beside.forget(a, 1);
        assert_eq!(beside.known_inodes(), 1);
        let numbers = beside.inodes;
        assert_eq!(numbers.of(0), Ino(root.0 + 1), "the root's is taken");
        assert_eq!(numbers.after(Ino(root.0 + (1 << 58) - 1)), Ino(root.0 + 1));
    }

    #[test]
    fn inode_numbers_of_names_without_attributes_have_the_order_of_the_listing() {
        let number = |place: u64| {
            let name = format!("{}", 100 - place);
            let listed = Listed {
                name: name.as_bytes(),
                kind: Kind::Object,
                stat: None,
                next: place,
            };
            InodeRange::NATIVE.listed(&Key::new(b"a").unwrap(), &listed)
        };
        let numbers: Vec<_> = (1..50).map(number).collect();
        assert!(numbers.iter().all(Option::is_some));
        assert!(numbers.is_sorted());
    }
}
