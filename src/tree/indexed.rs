//! Inode numbers that are positions in the store's index, without a table and without forgetting.

use std::sync::Arc;

use async_trait::async_trait;

use super::hashed::InodeRange;
use super::{Answer, DOTS, DirStream, Entry, Ino, Node, Tree, Visit, unknown, visit_dots};
use crate::prefetch::{KeyOrders, KeyReadahead};
use crate::store::{
    Index, Key, Kind, Object, Position, Prefetch, Stat, Store, StoreError, Visited,
};

/// The tree of a store with an index, or of a part of it.
#[derive(Debug, Clone)]
pub struct IndexedTree {
    store: Arc<dyn Store>,
    root: Position,
    /// Observes which keys of a remote store are opened. The kernel does not open the files of some stores;
    /// then each read is an open.
    readahead: Option<Arc<KeyReadahead>>,
}

/// The number of the first index position. Number 1 is the root, whatever its position is.
const FIRST: u64 = 2;

impl IndexedTree {
    /// Creates the tree of the prefix `root`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the prefix does not exist or the store has no index.
    pub fn new(store: Arc<dyn Store>, root: &Key) -> Result<Self, StoreError> {
        let missing = || StoreError::NotFound { key: root.clone() };
        let index = store.index().ok_or_else(missing)?;
        let root = index.find(root).ok_or_else(missing)?;
        let readahead = store.capabilities().is_remote.then(|| {
            let orders = KeyOrders::new(Arc::clone(&store), InodeRange::NATIVE);
            KeyReadahead::new(Arc::clone(&store), Arc::new(orders), Prefetch::Value)
        });
        Ok(Self {
            store,
            root,
            readahead: readahead.map(Arc::new),
        })
    }

    fn index(&self) -> &dyn Index {
        match self.store.index() {
            Some(index) => index,
            None => unreachable!("new() has seen the index"),
        }
    }

    fn ino(&self, position: Position) -> Ino {
        if position == self.root {
            Ino::ROOT
        } else {
            Ino(u64::from(position.0) + FIRST)
        }
    }

    fn position(&self, ino: Ino) -> Result<Position, StoreError> {
        if ino == Ino::ROOT {
            return Ok(self.root);
        }
        let place = ino
            .0
            .checked_sub(FIRST)
            .and_then(|place| u32::try_from(place).ok());
        place.map(Position).ok_or_else(|| unknown(ino))
    }

    fn node(&self, position: Position) -> Result<Node, StoreError> {
        let ino = self.ino(position);
        let stat = self.index().stat(position).ok_or_else(|| unknown(ino))?;
        Ok(Node { ino, stat })
    }
}

impl IndexedTree {
    fn find(&self, parent: Ino, name: &[u8]) -> Result<Node, StoreError> {
        let parent = self.position(parent)?;
        match self.index().child(parent, name) {
            Some(child) => self.node(child),
            None => {
                let key = self.index().key(parent);
                Err(StoreError::NotFound {
                    key: key.join(name).unwrap_or(key),
                })
            }
        }
    }

    fn object(&self, ino: Ino) -> Result<Arc<dyn Object>, StoreError> {
        let position = self.position(ino)?;
        self.node(position)?;
        let object = self.index().open(position)?;
        if let Some(readahead) = &self.readahead {
            let key = self.index().key(position);
            readahead.anticipate_open(&key);
            readahead.observe(&key, Some(&object));
        }
        Ok(object)
    }

    fn directory(&self, ino: Ino) -> Result<Box<dyn DirStream>, StoreError> {
        let position = self.position(ino)?;
        if self.node(position)?.stat.kind != Kind::Prefix {
            return Err(StoreError::NotAPrefix {
                key: self.index().key(position),
            });
        }
        if let Some(readahead) = &self.readahead {
            readahead.record_listed(&self.index().key(position));
        }
        let parent = match ino {
            Ino::ROOT => ino,
            _ => self.ino(self.index().parent(position)),
        };
        Ok(Box::new(IndexedDir {
            tree: self.clone(),
            ino,
            parent,
            position,
        }))
    }
}

#[async_trait]
impl Tree for IndexedTree {
    fn lookup<'a>(&'a self, parent: Ino, name: &'a [u8]) -> Answer<'a, Node> {
        Answer::now(self.find(parent, name))
    }

    fn lookup_entry(&self, _: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>> {
        let position = self.position(entry.ino);
        Some(position.and_then(|position| self.node(position)))
    }

    fn count_lookup(&self, ino: Ino) -> Option<Stat> {
        self.stat(ino).at_hand()?.ok()
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn stat(&self, ino: Ino) -> Answer<'_, Stat> {
        let node = self.position(ino).and_then(|position| self.node(position));
        Answer::now(node.map(|node| node.stat))
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        let position = self.position(ino)?;
        self.node(position)?;
        Ok(self.index().key(position))
    }

    fn open(&self, ino: Ino) -> Answer<'_, Arc<dyn Object>> {
        match self.object(ino) {
            Ok(object) if object.size_bytes() == 0 => Answer::later(async move {
                object.verify_empty().await?;
                Ok(object)
            }),
            opened => Answer::now(opened),
        }
    }

    fn open_dir(&self, ino: Ino) -> Answer<'_, Box<dyn DirStream>> {
        Answer::now(self.directory(ino))
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn known_inodes(&self) -> usize {
        1
    }
}

/// An open directory.
#[derive(Debug)]
struct IndexedDir {
    tree: IndexedTree,
    ino: Ino,
    parent: Ino,
    position: Position,
}

impl DirStream for IndexedDir {
    /// Visits entries. Cookies are counts: `.`, `..`, then the children in the order of the index.
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        if visit_dots(self.ino, self.parent, cookie, visit) {
            return Ok(Visited::Stopped);
        }
        let mut next = cookie.max(DOTS);
        let (skip, mut visited) = (next.saturating_sub(DOTS), Visited::End);
        let tree = &self.tree;
        tree.index()
            .children(self.position, skip, &mut |name, kind, child| {
                next = next.saturating_add(1);
                let flow = visit(Entry {
                    name,
                    ino: tree.ino(child),
                    kind,
                    stat: None,
                    next,
                });
                if flow.is_break() {
                    visited = Visited::Stopped;
                }
                flow
            });
        Ok(visited)
    }
}
