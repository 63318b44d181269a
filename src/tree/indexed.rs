//! Inode numbers that are places in the store's index: no table, nothing to forget.

use std::sync::Arc;

use super::{Directory, Entry, Ino, Names, Node, Tree, Visit, unknown};
use crate::store::{Index, Key, Kind, Object, Position, Stat, Store, StoreError};

/// The tree of a pinned store with an index, or of a part of it.
#[derive(Debug)]
pub struct IndexedTree {
    store: Arc<dyn Store>,
    root: Position,
}

/// Number of the first place; 1 is the root, whichever place that is.
const FIRST: u64 = 2;

/// Children come behind `.` and `..`.
const DOTS: u64 = 2;

impl IndexedTree {
    /// A tree with the prefix `root` at its root.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such prefix or the store has no index.
    pub fn new(store: Arc<dyn Store>, root: &Key) -> Result<Self, StoreError> {
        let missing = || StoreError::NotFound { key: root.clone() };
        let index = store.index().ok_or_else(missing)?;
        let mut position = Position(0);
        for name in root
            .as_bytes()
            .split(|b| *b == b'/')
            .filter(|name| !name.is_empty())
        {
            position = index.child(position, name).ok_or_else(missing)?;
        }
        Ok(Self {
            store,
            root: position,
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

impl Tree for IndexedTree {
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, StoreError> {
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

    fn adopt(&self, _: Ino, entry: &Entry<'_>) -> Result<Node, StoreError> {
        self.node(self.position(entry.ino)?)
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn stat(&self, ino: Ino) -> Result<Stat, StoreError> {
        Ok(self.node(self.position(ino)?)?.stat)
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        let position = self.position(ino)?;
        self.node(position)?;
        Ok(self.index().key(position))
    }

    fn open(&self, ino: Ino) -> Result<Arc<dyn Object>, StoreError> {
        let position = self.position(ino)?;
        self.node(position)?;
        self.index().open(position)
    }

    fn open_dir(&self, ino: Ino) -> Result<Directory, StoreError> {
        let position = self.position(ino)?;
        if self.node(position)?.stat.kind != Kind::Prefix {
            return Err(StoreError::NotAPrefix {
                key: self.index().key(position),
            });
        }
        let parent = if ino == Ino::ROOT {
            ino
        } else {
            self.ino(self.index().parent(position))
        };
        Ok(Directory {
            ino,
            parent,
            key: Key::root(),
            names: Names::Tree,
        })
    }

    /// Cookies are counts: `.`, `..`, then the children in the order of the index.
    fn visit(
        &self,
        directory: &mut Directory,
        cookie: u64,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        for (next, name, ino) in [
            (1, &b"."[..], directory.ino),
            (DOTS, b"..", directory.parent),
        ] {
            let entry = Entry {
                name,
                ino,
                kind: Kind::Prefix,
                stat: None,
                next,
            };
            if next > cookie && visit(entry).is_break() {
                return Ok(());
            }
        }
        let position = self.position(directory.ino)?;
        let mut next = cookie.max(DOTS);
        self.index().children(
            position,
            next.saturating_sub(DOTS),
            &mut |name, kind, child| {
                next = next.saturating_add(1);
                visit(Entry {
                    name,
                    ino: self.ino(child),
                    kind,
                    stat: None,
                    next,
                })
            },
        );
        Ok(())
    }

    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn known_inodes(&self) -> usize {
        1
    }
}
