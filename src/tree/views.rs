//! The computed files as a namespace: `.zarrfs` in every directory of the native tree, and the
//! view tree, a directory for each group.
//!
//! An inode number is a hash of the node, of the content of its metadata and of what is made of
//! it: it is the same after a remount, and another one when the metadata change. The table holds
//! only numbers that the kernel has looked up and not forgotten.

mod current;
mod find;
mod names;
mod place;
mod translated;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::place::{Known, Spotted, VIEW_BIT, What};
pub(super) use self::place::{Made, Place};
use self::translated::Translations;
use super::{Directory, Entry, HashedTree, Ino, Names, Node, Tree, Visit, unknown};
use crate::store::{Key, Kind, ListingSupport, Object, Stat, Store, StoreError, may_wait};
use crate::view::{Format, Nodes, ViewFile};

/// What is at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The native tree, with `.zarrfs` in its directories.
    Native,
    /// The view tree.
    Views,
    /// Both, as `native` and `views`.
    Both,
}

/// A native tree and what is computed of it.
#[derive(Debug)]
pub struct ViewTree {
    native: Box<dyn Tree>,
    root: Key,
    nodes: Arc<Nodes>,
    shown: Shown,
    /// Whether `.zarrfs` is listed.
    is_listed: bool,
    translations: Translations,
    known: Mutex<HashMap<Ino, Known>>,
}

/// The directory of computed files.
const HIDDEN: &[u8] = b".zarrfs";
/// The root of the native tree where it is not the root of the mount.
const NATIVE_ROOT: Ino = Ino(VIEW_BIT);
/// Follows `.zarrfs` in listings of native directories; no file system's cookie.
const BEHIND_HIDDEN: u64 = i64::MAX.unsigned_abs() - 1;

/// What a number stands for.
enum Spot<'a> {
    Native(Ino),
    Top,
    View(Place),
    /// Of a translation, which has the same number.
    Translated(&'a HashedTree),
}

impl ViewTree {
    /// Shows `native`, the tree of the prefix `root`, and what is computed of its `nodes`.
    ///
    /// # Errors
    /// Those of reading the metadata of the root, where it is shown.
    pub fn new(
        native: Box<dyn Tree>,
        root: Key,
        nodes: Nodes,
        shown: Shown,
        is_listed: bool,
    ) -> Result<Self, StoreError> {
        if shown != Shown::Native || !nodes.store().capabilities().is_remote {
            nodes.node(&root)?;
        }
        Ok(Self {
            native,
            translations: Translations::new(&nodes, &root),
            root,
            nodes: Arc::new(nodes),
            shown,
            is_listed,
            known: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Ino, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spot(&self, ino: Ino) -> Result<Spot<'_>, StoreError> {
        match (ino, self.shown) {
            (Ino::ROOT, Shown::Both) => return Ok(Spot::Top),
            (Ino::ROOT, Shown::Views) => return Ok(Spot::View(self.top_group()?)),
            (NATIVE_ROOT, _) => return Ok(Spot::Native(Ino::ROOT)),
            _ => {}
        }
        if let Some(tree) = self.translations.tree(ino) {
            return Ok(Spot::Translated(tree));
        }
        if ino.0 & VIEW_BIT == 0 || ino.0 >= VIEW_BIT << 1 {
            return Ok(Spot::Native(ino));
        }
        let known = self.known();
        let found = known.get(&ino).ok_or_else(|| unknown(ino))?;
        Ok(Spot::View(found.place.clone()))
    }

    /// The directory of computed files in a native directory.
    fn hidden(&self, native: Ino, parent: Ino) -> Result<Node, StoreError> {
        let node = self.nodes.node(&self.native.key(native)?)?;
        let what = What::Hidden;
        self.intern(Place { node, what }, parent)
    }

    /// A number of the native tree as it is shown.
    fn outer(&self, ino: Ino) -> Ino {
        match (ino, self.shown) {
            (Ino::ROOT, Shown::Both) => NATIVE_ROOT,
            _ => ino,
        }
    }

    fn top_group(&self) -> Result<Place, StoreError> {
        Ok(Place {
            node: self.nodes.node(&self.root)?,
            what: What::Group,
        })
    }

    /// Gives a place its number and counts a lookup.
    fn intern(&self, spotted: impl Into<Spotted>, parent: Ino) -> Result<Node, StoreError> {
        let Spotted { place, content } = spotted.into();
        let object = place.object(content, &self.nodes);
        let stat = place.stat(object.as_deref())?;
        if self.shown == Shown::Views && place.is_group_at(&self.root) {
            return Ok(Node {
                ino: Ino::ROOT,
                stat,
            });
        }
        let mut ino = place.number();
        let mut known = self.known();
        loop {
            match known.entry(ino) {
                _ if ino == NATIVE_ROOT => {}
                Slot::Vacant(slot) => {
                    slot.insert(Known {
                        place,
                        parent,
                        object,
                        lookups: 1,
                    });
                    return Ok(Node { ino, stat });
                }
                Slot::Occupied(mut slot) => {
                    let is_retired = || {
                        let object = slot.get().object.as_deref();
                        object.is_some_and(ViewFile::is_retired)
                    };
                    if slot.get().place == place && !is_retired() {
                        let there = slot.get_mut();
                        there.lookups = there.lookups.saturating_add(1);
                        return Ok(Node { ino, stat });
                    }
                }
            }
            // Two places with one hash, or content that has changed while it is open: the later
            // one takes the next free number.
            ino = Ino((ino.0.wrapping_add(1) & (VIEW_BIT - 1)) | VIEW_BIT);
        }
    }
}

/// Stands between name and format of a file where a group or another file has the plain name.
const ESCAPE: &str = "~view";

impl Tree for ViewTree {
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, StoreError> {
        match self.spot(parent)? {
            Spot::View(place) => match self.find(&place, name) {
                Err(absent @ StoreError::NotFound { .. }) => {
                    self.find_translation(&place, name)?.ok_or(absent)
                }
                found => self.intern(found?, parent),
            },
            Spot::Translated(tree) => tree.lookup(parent, name),
            Spot::Top => match name {
                b"native" => {
                    let stat = self.native.stat(Ino::ROOT)?;
                    Ok(Node {
                        ino: NATIVE_ROOT,
                        stat,
                    })
                }
                b"views" => self.intern(self.top_group()?, Ino::ROOT),
                _ => Err(StoreError::NotFound {
                    key: Key::new(name).unwrap_or_default(),
                }),
            },
            // What does not list can not prove that it has no such name for less than a request
            // for each directory: there the computed files win.
            Spot::Native(ino)
                if name == HIDDEN
                    && self.nodes.store().capabilities().listing == ListingSupport::BestEffort =>
            {
                self.hidden(ino, parent)
            }
            Spot::Native(ino) => match self.native.lookup(ino, name) {
                Err(StoreError::NotFound { .. }) if name == HIDDEN => self.hidden(ino, parent),
                found => found,
            },
        }
    }

    /// Metadata have to be read, and a text of elements is known only once they are decoded. A
    /// store that is far away says itself which metadata are not at hand.
    fn lookup_waits(&self, parent: Ino, name: &[u8]) -> bool {
        let is_remote = self.store().capabilities().is_remote;
        if self.translations.tree(parent).is_some() {
            return !is_remote;
        }
        match self.known().get(&parent) {
            _ if is_remote && !Format::may_be_costly(name) => false,
            Some(known) => matches!(known.place.what, What::Hidden | What::Group),
            None => name == HIDDEN || (parent == Ino::ROOT && self.shown != Shown::Native),
        }
    }

    fn adopt(&self, parent: Ino, entry: &Entry<'_>) -> Result<Node, StoreError> {
        match self.spot(parent)? {
            Spot::Native(ino) if entry.name != HIDDEN => {
                let entry = Entry {
                    name: entry.name,
                    ino: entry.ino,
                    kind: entry.kind,
                    stat: entry.stat,
                    next: entry.next,
                };
                self.native.adopt(ino, &entry)
            }
            // What is said of it has to be read first.
            Spot::Translated(_) if entry.stat.is_none() => Err(StoreError::WouldWait {
                key: Key::new(entry.name).unwrap_or_default(),
            }),
            Spot::Translated(tree) => tree.adopt(parent, entry),
            // Decoded only if somebody looks at it.
            Spot::View(_) if Format::may_be_costly(entry.name) => Err(StoreError::WouldWait {
                key: Key::new(entry.name).unwrap_or_default(),
            }),
            _ => self.lookup(parent, entry.name),
        }
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(tree) = self.translations.tree(ino) {
            return tree.forget(ino, lookups);
        }
        let mut known = self.known();
        match known.entry(ino) {
            Slot::Occupied(mut slot) => {
                let left = slot.get().lookups.saturating_sub(lookups);
                slot.get_mut().lookups = left;
                if left == 0 {
                    slot.remove();
                }
            }
            Slot::Vacant(_) => {
                drop(known);
                self.native.forget(ino, lookups);
                return;
            }
        }
        if known.capacity() > 1024 && known.len() < known.capacity() / 8 {
            known.shrink_to_fit();
        }
    }

    fn stat(&self, ino: Ino) -> Result<Stat, StoreError> {
        match self.spot(ino)? {
            Spot::Native(ino) => self.native.stat(ino),
            Spot::Translated(tree) => tree.stat(ino),
            Spot::Top => self.native.stat(Ino::ROOT),
            Spot::View(place) => {
                self.check(&place)?;
                let object = self
                    .known()
                    .get(&ino)
                    .and_then(|known| known.object.clone());
                place.stat(object.as_deref())
            }
        }
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        match self.spot(ino)? {
            Spot::Native(ino) => self.native.key(ino),
            Spot::Translated(tree) => tree.key(ino),
            Spot::Top => Ok(self.root.clone()),
            Spot::View(place) => Ok(place.key()),
        }
    }

    fn open(&self, ino: Ino) -> Result<Arc<dyn Object>, StoreError> {
        match self.spot(ino)? {
            Spot::Native(ino) => self.native.open(ino),
            Spot::Translated(tree) => tree.open(ino),
            Spot::Top => Err(StoreError::NotAPrefix {
                key: self.root.clone(),
            }),
            Spot::View(place) => {
                self.check(&place)?;
                let object = self
                    .known()
                    .get(&ino)
                    .and_then(|known| known.object.clone());
                let object = object.ok_or_else(|| StoreError::NotAPrefix { key: place.key() });
                object?.open()
            }
        }
    }

    fn open_dir(&self, ino: Ino) -> Result<Directory, StoreError> {
        let mut directory = match self.spot(ino)? {
            Spot::Translated(tree) => return tree.open_dir(ino),
            Spot::Native(inner) => {
                let mut directory = self.native.open_dir(inner)?;
                directory.ino = self.outer(directory.ino);
                directory.parent = match inner {
                    Ino::ROOT => Ino::ROOT,
                    _ => self.outer(directory.parent),
                };
                return Ok(directory);
            }
            Spot::Top => {
                let views = self.top_group()?.number();
                let made = |name: &[u8], ino| Made {
                    name: name.to_vec(),
                    ino,
                    kind: Kind::Prefix,
                };
                let names = vec![made(b"native", NATIVE_ROOT), made(b"views", views)];
                Directory::made(ino, Names::Made(names))
            }
            Spot::View(place) => {
                self.check(&place)?;
                match &place.what {
                    What::Hidden | What::Group => {
                        // All children are read.
                        may_wait(place.node.key())?;
                        let mut names = self.names(&place)?;
                        self.add_translations(&place, &mut names)?;
                        Directory::made(ino, Names::Made(names))
                    }
                    What::Cells { .. } => Directory::made(ino, Names::Cells(place)),
                    What::File(..) | What::Chunk(_) | What::Inner(_) => {
                        return Err(StoreError::NotAPrefix { key: place.key() });
                    }
                }
            }
        };
        directory.parent = self
            .known()
            .get(&ino)
            .map_or(Ino::ROOT, |known| known.parent);
        Ok(directory)
    }

    fn visit(
        &self,
        directory: &mut Directory,
        cookie: u64,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        match &directory.names {
            Names::Made(names) => {
                let nth = |place| names.get(usize::try_from(place).ok()?).cloned();
                self.visit_made(directory, names.len() as u64, nth, cookie, visit);
                return Ok(());
            }
            Names::Cells(place) => {
                if let What::Cells { names, cell, .. } = &place.what {
                    let nth = |number| Self::nth_cell(place, names, number);
                    self.visit_made(directory, names.len(*cell), nth, cookie, visit);
                }
                return Ok(());
            }
            Names::Tree | Names::Store(_) => {}
        }
        if let Some(tree) = self.translations.tree(directory.ino) {
            return tree.visit(directory, cookie, visit);
        }
        if cookie == BEHIND_HIDDEN {
            return Ok(());
        }
        let mut is_full = false;
        let (here, shown) = (directory.ino, self.shown);
        if shown == Shown::Both && here == NATIVE_ROOT {
            directory.ino = Ino::ROOT;
        }
        let result = self.native.visit(directory, cookie, &mut |mut entry| {
            match entry.name {
                b"." => entry.ino = here,
                _ => entry.ino = self.outer(entry.ino),
            }
            let flow = visit(entry);
            is_full = flow.is_break();
            flow
        });
        directory.ino = here;
        result?;
        if self.is_listed && !is_full {
            let inner = if here == NATIVE_ROOT { Ino::ROOT } else { here };
            let key = self.native.key(inner)?;
            let hidden = key.join(HIDDEN).unwrap_or_default();
            let found = self.nodes.store().stat(&hidden);
            if let Err(error @ StoreError::WouldWait { .. }) = found {
                return Err(error);
            }
            if matches!(found, Err(StoreError::NotFound { .. })) {
                let node = self.nodes.node(&key)?;
                let place = Place {
                    node,
                    what: What::Hidden,
                };
                let _ = visit(Entry {
                    name: HIDDEN,
                    ino: place.number(),
                    kind: Kind::Prefix,
                    stat: None,
                    next: BEHIND_HIDDEN,
                });
            }
        }
        Ok(())
    }

    fn attributes(&self, ino: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let node = match self.spot(ino)? {
            Spot::View(place) => place.node,
            Spot::Top => return Ok(Vec::new()),
            Spot::Translated(tree) => return Self::translated_attributes(tree, ino),
            Spot::Native(ino) if self.native.stat(ino)?.kind == Kind::Prefix => {
                self.nodes.node(&self.native.key(ino)?)?
            }
            Spot::Native(_) => return Ok(Vec::new()),
        };
        Ok(node.extended_attributes())
    }

    fn store(&self) -> &dyn Store {
        self.native.store()
    }

    fn known_inodes(&self) -> usize {
        self.native
            .known_inodes()
            .saturating_add(self.known().len())
            .saturating_add(self.translations.known_inodes())
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        self.nodes.engine().gauges().to_vec()
    }
}
