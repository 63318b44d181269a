//! The computed files as a namespace: `.zarrfs` in every directory of the native tree, and the
//! view tree, a directory for each group.
//!
//! An inode number is a hash of the node, of the content of its metadata and of what is made of
//! it: it is the same after a remount, and another one when the metadata change. The table holds
//! only numbers that the kernel has looked up and not forgotten.

mod current;
mod examples;
mod find;
mod listing;
mod names;
mod path;
mod translated;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use async_trait::async_trait;

use self::listing::{ChunksDir, NativeDir, ViewDir};
use self::path::{FoundView, InodeEntry, VIEW_BIT, ViewKind};
pub(super) use self::path::{ListedView, ViewPath};
use self::translated::Translations;
use super::{DirStream, Entry, HashedTree, Ino, Node, Tree, ViewsOfDir, unknown};
use crate::recent_errors::RecentErrors;
use crate::store::{Key, Kind, ListingSupport, Object, Stat, Store, StoreError};
use crate::sync::{Mutex, MutexGuard};
use crate::view::{Nodes, ViewFile};

/// ViewKind is at the root.
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
    recent_errors: Arc<RecentErrors>,
    known: Mutex<HashMap<Ino, InodeEntry>>,
}

/// The file of the last failed requests, among the views of the root; it is not listed.
pub const ERRORS_FILE: &[u8] = b"errors.txt";
/// The directory of computed files.
const HIDDEN: &[u8] = b".zarrfs";
/// The root of the native tree where it is not the root of the mount.
const NATIVE_ROOT: Ino = Ino(VIEW_BIT);

/// ViewKind a number stands for.
enum Resolved<'a> {
    Native(Ino),
    /// The directory of `native` and `views`.
    Top,
    /// The root of the view tree, as the root of the mount.
    TopGroup,
    View(ViewPath),
    /// Of a translation, which has the same number.
    Translated(&'a HashedTree),
}

impl ViewTree {
    /// Shows `native`, the tree of the prefix `root`, and what is computed of its `nodes`.
    ///
    /// # Errors
    /// Those of reading the metadata of the root, where it is shown.
    pub async fn new(
        native: Box<dyn Tree>,
        root: Key,
        nodes: Arc<Nodes>,
        shown: Shown,
        is_listed: bool,
    ) -> Result<Self, StoreError> {
        if shown != Shown::Native || !nodes.store().capabilities().is_remote {
            nodes.node(&root).await?;
        }
        Ok(Self {
            native,
            translations: Translations::new(&nodes, &root),
            root,
            nodes,
            shown,
            is_listed,
            recent_errors: Arc::default(),
            known: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Ino, InodeEntry>> {
        self.known.lock()
    }

    fn resolved(&self, ino: Ino) -> Result<Resolved<'_>, StoreError> {
        match (ino, self.shown) {
            (Ino::ROOT, Shown::Both) => return Ok(Resolved::Top),
            (Ino::ROOT, Shown::Views) => return Ok(Resolved::TopGroup),
            (NATIVE_ROOT, _) => return Ok(Resolved::Native(Ino::ROOT)),
            _ => {}
        }
        if let Some(tree) = self.translations.tree(ino) {
            return Ok(Resolved::Translated(tree));
        }
        if ino.0 & VIEW_BIT == 0 || ino.0 >= VIEW_BIT << 1 {
            return Ok(Resolved::Native(ino));
        }
        let known = self.known();
        let found = known.get(&ino).ok_or_else(|| unknown(ino))?;
        Ok(Resolved::View(found.place.clone()))
    }

    /// The view that a resolved number stands for.
    async fn view(&self, resolved: Resolved<'_>) -> Result<ViewPath, StoreError> {
        match resolved {
            Resolved::View(place) => Ok(place),
            Resolved::TopGroup => self.top_group().await,
            _ => Err(StoreError::internal("a number that is not of a view")),
        }
    }

    /// The directory of the views of a native directory.
    async fn hidden(&self, native: Ino, parent: Ino) -> Result<Node, StoreError> {
        let node = self.nodes.node(&self.native.key(native)?).await?;
        let what = ViewKind::Hidden;
        self.intern(ViewPath { node, what }, parent)
    }

    /// A number of the native tree as it is shown.
    fn outer(shown: Shown, ino: Ino) -> Ino {
        match (ino, shown) {
            (Ino::ROOT, Shown::Both) => NATIVE_ROOT,
            _ => ino,
        }
    }

    async fn top_group(&self) -> Result<ViewPath, StoreError> {
        Ok(ViewPath {
            node: self.nodes.node(&self.root).await?,
            what: ViewKind::Group,
        })
    }

    fn object(&self, ino: Ino) -> Option<Arc<ViewFile>> {
        let known = self.known();
        known.get(&ino).and_then(|known| known.object.clone())
    }

    fn parent(&self, ino: Ino) -> Ino {
        let known = self.known();
        known.get(&ino).map_or(Ino::ROOT, |known| known.parent)
    }

    /// Shows a directory of the native tree; `hidden` is the number of its views if they are listed.
    fn native_dir(
        &self,
        ino: Ino,
        stream: Box<dyn DirStream>,
        hidden: Option<Ino>,
    ) -> Box<dyn DirStream> {
        Box::new(NativeDir {
            stream,
            ino,
            shown: self.shown,
            hidden,
        })
    }

    /// The number of the views of a native directory, if they are listed and no key has their name.
    async fn listed_views(&self, native: Ino) -> Result<Option<Ino>, StoreError> {
        if !self.is_listed || !self.has_views(native).await? {
            return Ok(None);
        }
        let node = self.nodes.node(&self.native.key(native)?).await?;
        let what = ViewKind::Hidden;
        Ok(Some(ViewPath { node, what }.number()))
    }

    /// Whether no key in a native directory has the name of the views.
    async fn has_views(&self, native: Ino) -> Result<bool, StoreError> {
        let key = self.native.key(native)?;
        let hidden = key.join(HIDDEN).unwrap_or_default();
        match self.nodes.store().stat(&hidden).await {
            Err(StoreError::NotFound { .. }) => Ok(true),
            Err(error) if !error.is_lasting() => Err(error),
            _ => Ok(false),
        }
    }

    /// Gives a place its number and counts a lookup.
    fn intern(&self, found: impl Into<FoundView>, parent: Ino) -> Result<Node, StoreError> {
        let FoundView { place, content } = found.into();
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
                    slot.insert(InodeEntry {
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

#[async_trait]
impl Tree for ViewTree {
    fn try_lookup(&self, parent: Ino, name: &[u8]) -> Option<Result<Node, StoreError>> {
        match self.resolved(parent) {
            Ok(Resolved::Native(ino)) if name != HIDDEN => self.native.try_lookup(ino, name),
            Ok(Resolved::Translated(tree)) => tree.try_lookup(parent, name),
            Ok(Resolved::View(place)) => {
                let found = self.try_find(&place, name)?;
                Some(found.and_then(|found| self.intern(found, parent)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Node, StoreError> {
        match self.resolved(parent)? {
            Resolved::Translated(tree) => tree.lookup(parent, name).await,
            Resolved::Top => match name {
                b"native" => {
                    let stat = self.native.stat(Ino::ROOT).await?;
                    Ok(Node {
                        ino: NATIVE_ROOT,
                        stat,
                    })
                }
                b"views" => self.intern(self.top_group().await?, Ino::ROOT),
                _ => Err(StoreError::NotFound {
                    key: Key::new(name).unwrap_or_default(),
                }),
            },
            // A store that does not list proves the absence of such a name only with a request for
            // each directory: there the views win.
            Resolved::Native(ino)
                if name == HIDDEN
                    && self.nodes.store().capabilities().listing == ListingSupport::BestEffort =>
            {
                self.hidden(ino, parent).await
            }
            Resolved::Native(ino) => match self.native.lookup(ino, name).await {
                Err(StoreError::NotFound { .. }) if name == HIDDEN => {
                    self.hidden(ino, parent).await
                }
                found => found,
            },
            resolved => {
                let place = self.view(resolved).await?;
                match self.find(&place, name).await {
                    Err(absent @ StoreError::NotFound { .. }) => {
                        self.find_translation(&place, name).await?.ok_or(absent)
                    }
                    found => self.intern(found?, parent),
                }
            }
        }
    }

    fn try_adopt(&self, parent: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>> {
        match self.resolved(parent) {
            Ok(Resolved::Native(ino)) if entry.name != HIDDEN => self.native.try_adopt(ino, entry),
            // Its attributes have to be read first.
            Ok(Resolved::Translated(_)) if entry.stat.is_none() => None,
            Ok(Resolved::Translated(tree)) => tree.try_adopt(parent, entry),
            Ok(_) => self.try_lookup(parent, entry.name),
            Err(error) => Some(Err(error)),
        }
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(tree) = self.translations.tree(ino) {
            return tree.forget(ino, lookups);
        }
        let mut known = self.known();
        let mut forgotten = None;
        match known.entry(ino) {
            Slot::Occupied(mut slot) => {
                let left = slot.get().lookups.saturating_sub(lookups);
                slot.get_mut().lookups = left;
                if left == 0 {
                    forgotten = Some(slot.remove());
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
        drop(known);
        drop(forgotten);
    }

    fn try_stat(&self, ino: Ino) -> Option<Result<Stat, StoreError>> {
        match self.resolved(ino) {
            Ok(Resolved::Native(ino)) => self.native.try_stat(ino),
            Ok(Resolved::Translated(tree)) => tree.try_stat(ino),
            Ok(Resolved::Top) => self.native.try_stat(Ino::ROOT),
            Ok(Resolved::View(place)) if self.nodes.store().capabilities().immutable => {
                Some(place.stat(self.object(ino).as_deref()))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn stat(&self, ino: Ino) -> Result<Stat, StoreError> {
        match self.resolved(ino)? {
            Resolved::Native(ino) => self.native.stat(ino).await,
            Resolved::Translated(tree) => tree.stat(ino).await,
            Resolved::Top => self.native.stat(Ino::ROOT).await,
            resolved => {
                let place = self.view(resolved).await?;
                self.check(&place).await?;
                place.stat(self.object(ino).as_deref())
            }
        }
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        match self.resolved(ino)? {
            Resolved::Native(ino) => self.native.key(ino),
            Resolved::Translated(tree) => tree.key(ino),
            Resolved::Top | Resolved::TopGroup => Ok(self.root.clone()),
            Resolved::View(place) => Ok(place.key()),
        }
    }

    fn try_open(&self, ino: Ino) -> Option<Result<Arc<dyn Object>, StoreError>> {
        match self.resolved(ino) {
            Ok(Resolved::Native(ino)) => self.native.try_open(ino),
            Ok(Resolved::Translated(tree)) => tree.try_open(ino),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn open(&self, ino: Ino) -> Result<Arc<dyn Object>, StoreError> {
        match self.resolved(ino)? {
            Resolved::Native(ino) => self.native.open(ino).await,
            Resolved::Translated(tree) => tree.open(ino).await,
            Resolved::Top | Resolved::TopGroup => Err(StoreError::NotAPrefix {
                key: self.root.clone(),
            }),
            Resolved::View(place) => {
                self.check(&place).await?;
                let not_a_file = || StoreError::NotAPrefix { key: place.key() };
                let object = self.object(ino).ok_or_else(not_a_file)?;
                object.open().await
            }
        }
    }

    fn try_open_dir(&self, ino: Ino) -> Option<Result<Box<dyn DirStream>, StoreError>> {
        match self.resolved(ino) {
            Ok(Resolved::Native(inner)) if !self.is_listed => {
                let opened = self.native.try_open_dir(inner)?;
                Some(opened.map(|stream| self.native_dir(ino, stream, None)))
            }
            Ok(Resolved::Translated(tree)) => tree.try_open_dir(ino),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn open_dir(&self, ino: Ino) -> Result<Box<dyn DirStream>, StoreError> {
        let parent = self.parent(ino);
        match self.resolved(ino)? {
            Resolved::Translated(tree) => tree.open_dir(ino).await,
            Resolved::Native(inner) => {
                let stream = self.native.open_dir(inner).await?;
                let hidden = self.listed_views(inner).await?;
                Ok(self.native_dir(ino, stream, hidden))
            }
            Resolved::Top => {
                let views = self.top_group().await?.number();
                let listed = |name: &[u8], ino| ListedView {
                    name: name.to_vec(),
                    ino,
                    kind: Kind::Prefix,
                };
                let names = vec![listed(b"native", NATIVE_ROOT), listed(b"views", views)];
                Ok(Box::new(ViewDir { ino, parent, names }))
            }
            resolved => {
                let place = self.view(resolved).await?;
                self.check(&place).await?;
                match &place.what {
                    ViewKind::Hidden | ViewKind::Group => {
                        let mut names = self.names(&place).await?;
                        self.add_translations(&place, &mut names).await?;
                        Ok(Box::new(ViewDir { ino, parent, names }))
                    }
                    ViewKind::Chunks { .. } => Ok(Box::new(ChunksDir { ino, parent, place })),
                    ViewKind::File(..)
                    | ViewKind::Chunk(_)
                    | ViewKind::Inner(_)
                    | ViewKind::Errors(_) => Err(StoreError::NotAPrefix { key: place.key() }),
                }
            }
        }
    }

    async fn attributes(&self, ino: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let node = match self.resolved(ino)? {
            Resolved::Top => return Ok(Vec::new()),
            Resolved::Translated(tree) => return Self::translated_attributes(tree, ino).await,
            Resolved::Native(ino) if self.native.stat(ino).await?.kind == Kind::Prefix => {
                self.nodes.node(&self.native.key(ino)?).await?
            }
            Resolved::Native(_) => return Ok(Vec::new()),
            resolved => self.view(resolved).await?.node,
        };
        Ok(node.extended_attributes())
    }

    async fn views(&self, ino: Ino) -> Result<Option<ViewsOfDir>, StoreError> {
        let (path, node) = match self.resolved(ino)? {
            Resolved::Translated(_) => return Ok(None),
            Resolved::Native(native) => {
                let is_directory = self.native.stat(native).await?.kind == Kind::Prefix;
                // There the views win.
                let is_sure =
                    self.nodes.store().capabilities().listing == ListingSupport::BestEffort;
                if !is_directory || !(is_sure || self.has_views(native).await?) {
                    return Ok(None);
                }
                (".zarrfs", self.nodes.node(&self.native.key(native)?).await?)
            }
            Resolved::Top => ("views", self.nodes.node(&self.root).await?),
            resolved => match self.view(resolved).await? {
                ViewPath {
                    node,
                    what: ViewKind::Hidden | ViewKind::Group,
                } => (".", node),
                _ => return Ok(None),
            },
        };
        let name = node.name().to_owned();
        Ok(Some(ViewsOfDir { path, name }))
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

    async fn example_views(&self) -> Vec<String> {
        self.examples().await
    }

    fn recent_errors(&self) -> Arc<RecentErrors> {
        Arc::clone(&self.recent_errors)
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        self.nodes.engine().gauges().to_vec()
    }
}
