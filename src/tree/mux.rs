//! The namespace of a mount. It consists of the native tree, the views and the translations, and of
//! the directories that contain the root of another tree.
//!
//! Each tree has its own range of inode numbers, and sees only its own numbers:
//!
//! | numbers | tree |
//! |---|---|
//! | 1 | the root of the mount: of the native tree, of the views, or the directory of both |
//! | 2 to 2^60 - 1, and from 2^62 | the native tree ([`IndexedTree`](super::IndexedTree), [`HashedTree`]) |
//! | 2^60 to 2^61 - 1 | translations ([`Translations`]) |
//! | 2^61 | the root of the native tree, if it is not the root of the mount |
//! | 2^61 + 1 to 2^62 - 1 | views ([`ViewTree`]) |

use std::sync::Arc;

use async_trait::async_trait;

use super::translations::Translations;
use super::views::{ListedDir, ListedName, VIEWS_DIR, ViewTree};
use super::{Answer, DirStream, Entry, HashedTree, Ino, Node, Tree, ViewsOfDir, Visit};
use crate::node::attributes_at;
use crate::recent_errors::RecentErrors;
use crate::store::{Key, Kind, ListingSupport, Object, Stat, Store, StoreError, Visited};
use crate::view::Nodes;

/// The content of the root of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountedTrees {
    /// The native tree, with `.zarrfs` in its directories.
    Native,
    /// The views, with a directory for each group.
    Views,
    /// Both trees, as `native` and `views`.
    Both,
}

/// The namespace of a mount.
#[derive(Debug)]
pub struct MuxTree {
    native: Box<dyn Tree>,
    views: ViewTree,
    translations: Translations,
    nodes: Arc<Nodes>,
    root: Key,
    trees: MountedTrees,
    /// Whether `.zarrfs` is listed.
    is_listed: bool,
}

/// The bit of view numbers. Numbers of the native tree below 2^62 do not have it.
pub(super) const VIEW_BIT: u64 = 1 << 61;
/// The bit of translation numbers, which are below [`VIEW_BIT`].
pub(super) const TRANSLATED_BIT: u64 = VIEW_BIT >> 1;
/// The number of the native root if it is not the root of the mount.
pub(super) const NATIVE_ROOT: Ino = Ino(VIEW_BIT);

/// The name of the native tree in the root of [`MountedTrees::Both`].
const NATIVE: &[u8] = b"native";
/// The name of the views in the root of [`MountedTrees::Both`].
const VIEWS: &[u8] = b"views";

/// The tree to which a number belongs.
enum Owner<'a> {
    /// The directory of [`NATIVE`] and [`VIEWS`], which has the attributes of the native root.
    Both,
    /// The native tree, with the number inside that tree.
    Native(Ino),
    Views(&'a ViewTree),
    Translation(&'a HashedTree),
}

impl MuxTree {
    /// Combines `native`, the tree of the prefix `root`, with the views and translations of its `nodes`.
    ///
    /// # Errors
    /// The errors of reading the metadata of the root, if `trees` needs them.
    pub async fn new(
        native: Box<dyn Tree>,
        root: Key,
        nodes: Arc<Nodes>,
        trees: MountedTrees,
        is_listed: bool,
    ) -> Result<Self, StoreError> {
        if trees != MountedTrees::Native || !nodes.store().capabilities().is_remote {
            nodes.node(&root).await?;
        }
        Ok(Self {
            native,
            views: ViewTree::new(
                Arc::clone(&nodes),
                root.clone(),
                trees == MountedTrees::Views,
            ),
            translations: Translations::new(&nodes, &root),
            nodes,
            root,
            trees,
            is_listed,
        })
    }

    fn owner(&self, ino: Ino) -> Owner<'_> {
        match (ino, self.trees) {
            (Ino::ROOT, MountedTrees::Both) => return Owner::Both,
            (Ino::ROOT, MountedTrees::Views) => return Owner::Views(&self.views),
            (NATIVE_ROOT, _) => return Owner::Native(Ino::ROOT),
            _ => {}
        }
        match self.translations.tree(ino) {
            Some(tree) => Owner::Translation(tree),
            None if ino.0 & VIEW_BIT != 0 && ino.0 < VIEW_BIT << 1 => Owner::Views(&self.views),
            None => Owner::Native(ino),
        }
    }

    /// Returns the tree of a number, and the number inside that tree.
    fn tree(&self, ino: Ino) -> (&dyn Tree, Ino) {
        match self.owner(ino) {
            Owner::Both => (&*self.native, Ino::ROOT),
            Owner::Native(ino) => (&*self.native, ino),
            Owner::Views(tree) => (tree, ino),
            Owner::Translation(tree) => (tree, ino),
        }
    }

    /// Returns whether views take precedence over keys of the same name. A store without listings
    /// proves the absence of such a key only with a request for each directory.
    fn views_hide_keys(&self) -> bool {
        self.nodes.store().capabilities().listing == ListingSupport::BestEffort
    }

    /// Returns whether no key in a native directory has the name of the directory of views.
    async fn has_views(&self, native: Ino) -> Result<bool, StoreError> {
        let key = self.native.key(native)?;
        let hidden = key.join(VIEWS_DIR).unwrap_or_default();
        match self.nodes.store().stat(&hidden).await {
            Err(StoreError::NotFound { .. }) => Ok(true),
            Err(error) if !error.is_lasting() => Err(error),
            _ => Ok(false),
        }
    }

    /// Opens a directory of the native tree; `ino` is its number in the mount, `inner` in the tree.
    async fn open_native_dir(&self, ino: Ino, inner: Ino) -> Result<NativeDir, StoreError> {
        let mut directory = self.native_dir(ino, self.native.open_dir(inner).await?);
        if self.is_listed && self.has_views(inner).await? {
            let views = self
                .views
                .views_dir_number(&self.native.key(inner)?)
                .await?;
            directory.views = Some(views);
        }
        Ok(directory)
    }

    fn native_dir(&self, ino: Ino, stream: Box<dyn DirStream>) -> NativeDir {
        let root = match self.trees {
            MountedTrees::Both => NATIVE_ROOT,
            MountedTrees::Native | MountedTrees::Views => Ino::ROOT,
        };
        NativeDir {
            stream,
            ino,
            root,
            views: None,
        }
    }

    /// Looks up a name in the root of [`MountedTrees::Both`].
    async fn lookup_root(&self, name: &[u8]) -> Result<Node, StoreError> {
        match name {
            NATIVE => Ok(Node {
                ino: NATIVE_ROOT,
                stat: self.native.stat(Ino::ROOT).await?,
            }),
            VIEWS => self.views.lookup_group(Ino::ROOT).await,
            _ => Err(StoreError::NotFound {
                key: Key::new(name).unwrap_or_default(),
            }),
        }
    }

    /// Looks up [`VIEWS_DIR`] in a native directory: `outer` is its number in the mount, `inner` in the tree.
    async fn lookup_views_dir(&self, outer: Ino, inner: Ino) -> Result<Node, StoreError> {
        if !self.views_hide_keys() {
            match self.native.lookup(inner, VIEWS_DIR).await {
                Err(StoreError::NotFound { .. }) => {}
                found => return found,
            }
        }
        let key = self.native.key(inner)?;
        self.views.lookup_views_dir(&key, outer).await
    }

    /// Opens the root of [`MountedTrees::Both`].
    async fn open_root_dir(&self, ino: Ino) -> Result<Box<dyn DirStream>, StoreError> {
        let views = self.views.group_number().await?;
        let names = [(NATIVE, NATIVE_ROOT), (VIEWS, views)];
        let names = names.map(|(name, ino)| ListedName::directory(name, ino));
        Ok(Box::new(ListedDir::new(ino, ino, names.into())))
    }
}

#[async_trait]
impl Tree for MuxTree {
    fn lookup<'a>(&'a self, parent: Ino, name: &'a [u8]) -> Answer<'a, Node> {
        match self.owner(parent) {
            Owner::Both => Answer::later(self.lookup_root(name)),
            Owner::Native(native) if name == VIEWS_DIR => {
                Answer::later(self.lookup_views_dir(parent, native))
            }
            Owner::Native(native) => self.native.lookup(native, name),
            Owner::Views(views) => match views.lookup(parent, name) {
                Answer::Later(found) if views.is_of_root(parent) => Answer::later(async move {
                    match found.await {
                        Err(StoreError::NotFound { key }) => {
                            let root = self.translations.root(name).await?;
                            root.ok_or(StoreError::NotFound { key })
                        }
                        found => found,
                    }
                }),
                found => found,
            },
            Owner::Translation(tree) => tree.lookup(parent, name),
        }
    }

    fn lookup_entry(&self, parent: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>> {
        match self.owner(parent) {
            Owner::Native(parent) if entry.name != VIEWS_DIR => {
                self.native.lookup_entry(parent, entry)
            }
            // The attributes have to be read first.
            Owner::Translation(_) if entry.stat.is_none() => None,
            Owner::Translation(tree) => tree.lookup_entry(parent, entry),
            Owner::Views(views) => views.lookup_entry(parent, entry),
            _ => self.lookup(parent, entry.name).at_hand(),
        }
    }

    fn count_lookup(&self, ino: Ino) -> Option<Stat> {
        let (tree, ino) = self.tree(ino);
        tree.count_lookup(ino)
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        let (tree, ino) = self.tree(ino);
        tree.forget(ino, lookups);
    }

    fn stat(&self, ino: Ino) -> Answer<'_, Stat> {
        let (tree, ino) = self.tree(ino);
        tree.stat(ino)
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        let (tree, ino) = self.tree(ino);
        tree.key(ino)
    }

    fn open(&self, ino: Ino) -> Answer<'_, Arc<dyn Object>> {
        let (tree, ino) = self.tree(ino);
        tree.open(ino)
    }

    fn open_dir(&self, ino: Ino) -> Answer<'_, Box<dyn DirStream>> {
        match self.owner(ino) {
            Owner::Both => Answer::later(self.open_root_dir(ino)),
            Owner::Native(inner) if self.is_listed => Answer::later(async move {
                let directory = self.open_native_dir(ino, inner).await?;
                Ok(Box::new(directory) as Box<dyn DirStream>)
            }),
            Owner::Native(inner) => (self.native.open_dir(inner))
                .map(move |stream| Ok(Box::new(self.native_dir(ino, stream?)) as _)),
            Owner::Views(views) if views.is_of_root(ino) => Answer::later(async move {
                let formats = &self.nodes.options().formats;
                let translations = self.translations.listed(formats).await;
                views.open_dir_with(ino, translations).await
            }),
            Owner::Views(views) => views.open_dir(ino),
            Owner::Translation(tree) => tree.open_dir(ino),
        }
    }

    async fn attributes(&self, ino: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let (tree, inner) = self.tree(ino);
        match self.owner(ino) {
            Owner::Both => Ok(Vec::new()),
            Owner::Views(views) => views.attributes(ino).await,
            _ if tree.stat(inner).await?.kind != Kind::Prefix => Ok(Vec::new()),
            Owner::Native(native) => {
                let node = self.nodes.node(&self.native.key(native)?).await?;
                Ok(node.extended_attributes())
            }
            Owner::Translation(tree) => {
                attributes_at(tree.store(), &tree.key(ino)?, self.nodes.engine()).await
            }
        }
    }

    async fn views(&self, ino: Ino) -> Result<Option<ViewsOfDir>, StoreError> {
        let (path, key) = match self.owner(ino) {
            Owner::Both => ("views", self.root.clone()),
            Owner::Native(native) => {
                let is_directory = self.native.stat(native).await?.kind == Kind::Prefix;
                if !is_directory || !(self.views_hide_keys() || self.has_views(native).await?) {
                    return Ok(None);
                }
                (".zarrfs", self.native.key(native)?)
            }
            Owner::Views(views) => return views.views(ino).await,
            Owner::Translation(_) => return Ok(None),
        };
        let name = self.nodes.node(&key).await?.name().to_owned();
        Ok(Some(ViewsOfDir { path, name }))
    }

    fn store(&self) -> &dyn Store {
        self.native.store()
    }

    fn known_inodes(&self) -> usize {
        let trees: [usize; 3] = [
            self.native.known_inodes(),
            self.views.known_inodes(),
            self.translations.known_inodes(),
        ];
        trees.into_iter().fold(0, usize::saturating_add)
    }

    async fn example_views(&self) -> Vec<String> {
        self.views.example_views().await
    }

    fn recent_errors(&self) -> Arc<RecentErrors> {
        self.views.recent_errors()
    }

    fn gauges(&self) -> Vec<(&'static str, u64)> {
        self.nodes.engine().gauges().to_vec()
    }
}

/// A directory of the native tree as the mount shows it: with the numbers of the mount, and the directory of
/// views if the mount lists it.
#[derive(Debug)]
struct NativeDir {
    stream: Box<dyn DirStream>,
    ino: Ino,
    /// The number of the native root in the mount.
    root: Ino,
    /// The number of the directory of views.
    views: Option<Ino>,
}

/// The cookie after [`VIEWS_DIR`], which no file system uses.
const BEHIND_HIDDEN: u64 = i64::MAX.unsigned_abs() - 1;

#[async_trait]
impl DirStream for NativeDir {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit_with(cookie, visit, |stream, visit| stream.visit(cookie, visit))
    }

    fn visit_names(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit_with(cookie, visit, |stream, visit| {
            stream.visit_names(cookie, visit)
        })
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        self.stream.load().await
    }
}

impl NativeDir {
    /// Visits the names of the stream with `list`, and the name of the directory of views after them.
    fn visit_with(
        &mut self,
        cookie: u64,
        visit: &mut Visit<'_>,
        list: impl Fn(&mut dyn DirStream, &mut Visit<'_>) -> Result<Visited, StoreError>,
    ) -> Result<Visited, StoreError> {
        if cookie == BEHIND_HIDDEN {
            return Ok(Visited::End);
        }
        let (here, root) = (self.ino, self.root);
        let visited = list(&mut *self.stream, &mut |mut entry| {
            // Only `.` and `..` can be the root, which may have another number in the mount.
            match entry.name {
                b"." => entry.ino = here,
                b".." if here == root => entry.ino = Ino::ROOT,
                b".." if entry.ino == Ino::ROOT => entry.ino = root,
                _ => {}
            }
            visit(entry)
        })?;
        let (Visited::End, Some(views)) = (visited, self.views) else {
            return Ok(visited);
        };
        let flow = visit(Entry {
            name: VIEWS_DIR,
            ino: views,
            kind: Kind::Prefix,
            stat: None,
            next: BEHIND_HIDDEN,
        });
        Ok(match flow.is_break() {
            true => Visited::Stopped,
            false => Visited::End,
        })
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;
