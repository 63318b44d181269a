//! The namespace of views. Each node has a directory of views, which the mount shows as `.zarrfs` in
//! the directories of the native tree. The view tree has a directory for each group.
//!
//! An inode number is a hash of the node, the content of its metadata, and the kind of the view. It is
//! the same after a remount, and changes with the metadata. The table has only the numbers that the
//! kernel has looked up and not forgotten.

mod current;
mod examples;
mod files_ahead;
mod find;
mod listing;
mod names;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;

use self::files_ahead::FilesAhead;
use self::find::find_chunk;
use self::listing::ChunkDirStream;
pub(super) use self::listing::{ListedDir, ListedName};
use self::view::{FoundView, View, ViewKind};
use super::mux::{NATIVE_ROOT, VIEW_BIT};
use super::{Answer, DirStream, Entry, Ino, Node, Tree, ViewsOfDir, unknown};
use crate::recent_errors::RecentErrors;
use crate::store::{Key, Object, Stat, Store, StoreError};
use crate::sync::{Mutex, MutexGuard};
use crate::view::{Nodes, ViewFile};

/// The views of the nodes of a hierarchy.
#[derive(Debug)]
pub(super) struct ViewTree {
    root: Key,
    nodes: Arc<Nodes>,
    /// Whether the root of the view tree is the root of the mount.
    is_mount_root: bool,
    recent_errors: Arc<RecentErrors>,
    held: Mutex<HashMap<Ino, ViewInode>>,
}

/// A view whose number the kernel holds.
#[derive(Debug)]
struct ViewInode {
    view: View,
    parent: Ino,
    /// The file, if the view is one.
    object: Option<Arc<ViewFile>>,
    lookups: u64,
}

/// The name of the file of the last failed requests, among the views of the root; it is not listed.
pub const ERRORS_FILE: &[u8] = b"errors.txt";
/// The name of the directory of views.
pub(super) const VIEWS_DIR: &[u8] = b".zarrfs";

impl ViewTree {
    pub(super) fn new(nodes: Arc<Nodes>, root: Key, is_mount_root: bool) -> Self {
        Self {
            root,
            nodes,
            is_mount_root,
            recent_errors: Arc::default(),
            held: Mutex::default(),
        }
    }

    /// Looks up the directory of views of a native directory, whose number is `parent`.
    pub(super) async fn lookup_views_dir(
        &self,
        key: &Key,
        parent: Ino,
    ) -> Result<Node, StoreError> {
        self.intern(self.hidden(key).await?, parent)
    }

    /// Returns the number of the directory of views of a native directory.
    pub(super) async fn views_dir_number(&self, key: &Key) -> Result<Ino, StoreError> {
        Ok(self.hidden(key).await?.number())
    }

    /// Looks up the root of the view tree in the directory `parent`.
    pub(super) async fn lookup_group(&self, parent: Ino) -> Result<Node, StoreError> {
        self.intern(self.group().await?, parent)
    }

    /// Returns the number of the root of the view tree.
    pub(super) async fn group_number(&self) -> Result<Ino, StoreError> {
        Ok(self.group().await?.number())
    }

    /// Returns whether a number is that of a directory of views of the root.
    pub(super) fn is_of_root(&self, ino: Ino) -> bool {
        let held = self.held_numbers();
        ino == Ino::ROOT
            || held
                .get(&ino)
                .is_some_and(|it| it.view.is_dir_of(&self.root))
    }

    /// As [`Tree::open_dir`], with the names in `more` after the views, except those that a view has.
    pub(super) async fn open_dir_with(
        &self,
        ino: Ino,
        more: Vec<ListedName>,
    ) -> Result<Box<dyn DirStream>, StoreError> {
        let view = self.view(ino).await?;
        let parent = self.parent(ino);
        self.check(&view).await?;
        match &view.kind {
            ViewKind::Hidden | ViewKind::Group => {
                let mut names = self.names(&view).await?;
                for name in more {
                    if names.iter().all(|taken| taken.name != name.name) {
                        names.push(name);
                    }
                }
                let ahead = FilesAhead::of(&self.nodes, &view);
                let listed = ListedDir::new(ino, parent, names).with_files_ahead(ahead);
                Ok(Box::new(listed))
            }
            ViewKind::Chunks { .. } => Ok(Box::new(ChunkDirStream { ino, parent, view })),
            ViewKind::File(..) | ViewKind::Chunk(_) | ViewKind::Inner(_) | ViewKind::Errors(_) => {
                Err(StoreError::NotAPrefix { key: view.key() })
            }
        }
    }

    async fn hidden(&self, key: &Key) -> Result<View, StoreError> {
        Ok(View {
            node: self.nodes.node(key).await?,
            kind: ViewKind::Hidden,
        })
    }

    async fn group(&self) -> Result<View, StoreError> {
        Ok(View {
            node: self.nodes.node(&self.root).await?,
            kind: ViewKind::Group,
        })
    }

    fn held_numbers(&self) -> MutexGuard<'_, HashMap<Ino, ViewInode>> {
        self.held.lock()
    }

    /// Returns the view and the file of a number from a lookup.
    fn looked_up(&self, ino: Ino) -> Result<(View, Option<Arc<ViewFile>>), StoreError> {
        let held = self.held_numbers();
        let found = held.get(&ino).ok_or_else(|| unknown(ino))?;
        Ok((found.view.clone(), found.object.clone()))
    }

    /// Returns the view of a number.
    async fn view(&self, ino: Ino) -> Result<View, StoreError> {
        match ino {
            Ino::ROOT => self.group().await,
            _ => Ok(self.looked_up(ino)?.0),
        }
    }

    fn parent(&self, ino: Ino) -> Ino {
        let held = self.held_numbers();
        held.get(&ino).map_or(Ino::ROOT, |view| view.parent)
    }

    /// Assigns a number to a view, and increments its lookup count.
    fn intern(&self, found: impl Into<FoundView>, parent: Ino) -> Result<Node, StoreError> {
        let FoundView { view, content } = found.into();
        let object = view.object(content, &self.nodes);
        let stat = view.stat(object.as_deref());
        if self.is_mount_root && view.kind == ViewKind::Group && *view.node.key() == self.root {
            return Ok(Node {
                ino: Ino::ROOT,
                stat,
            });
        }
        let mut ino = view.number();
        let mut held = self.held_numbers();
        loop {
            match held.entry(ino) {
                _ if ino == NATIVE_ROOT => {}
                MapEntry::Vacant(slot) => {
                    slot.insert(ViewInode {
                        view,
                        parent,
                        object,
                        lookups: 1,
                    });
                    return Ok(Node { ino, stat });
                }
                MapEntry::Occupied(mut slot) => {
                    let is_retired = || {
                        let object = slot.get().object.as_deref();
                        object.is_some_and(ViewFile::is_retired)
                    };
                    if slot.get().view == view && !is_retired() {
                        let there = slot.get_mut();
                        there.lookups = there.lookups.saturating_add(1);
                        return Ok(Node { ino, stat });
                    }
                }
            }
            // Two views have the same hash, or the content has changed while it is open: the
            // later one takes the next free number.
            ino = Ino((ino.0.wrapping_add(1) & (VIEW_BIT - 1)) | VIEW_BIT);
        }
    }
}

#[async_trait]
impl Tree for ViewTree {
    fn lookup<'a>(&'a self, parent: Ino, name: &'a [u8]) -> Answer<'a, Node> {
        let known = match parent {
            Ino::ROOT => None,
            _ => Some(self.looked_up(parent)),
        };
        match known {
            Some(Err(error)) => return Answer::now(Err(error)),
            Some(Ok((view, _))) => {
                if let Some(found) = find_chunk(&view, name) {
                    return Answer::now(found.and_then(|found| self.intern(found, parent)));
                }
            }
            None => {}
        }
        Answer::later(async move {
            let view = self.view(parent).await?;
            self.intern(self.find(&view, name).await?, parent)
        })
    }

    fn lookup_entry(&self, parent: Ino, entry: &Entry<'_>) -> Option<Result<Node, StoreError>> {
        if parent == Ino::ROOT {
            return None;
        }
        let (view, _) = self.looked_up(parent).ok()?;
        if let Some(found) = find_chunk(&view, entry.name) {
            return Some(found.and_then(|found| self.intern(found, parent)));
        }
        if !self.is_cached(&view, entry.name) {
            return None;
        }
        let found = self.find(&view, entry.name).now_or_never()?;
        Some(found.and_then(|found| self.intern(found, parent)))
    }

    fn count_lookup(&self, ino: Ino) -> Option<Stat> {
        let mut held = self.held_numbers();
        let there = held.get_mut(&ino)?;
        there.lookups = there.lookups.saturating_add(1);
        Some(there.view.stat(there.object.as_deref()))
    }

    fn forget(&self, ino: Ino, lookups: u64) {
        let mut held = self.held_numbers();
        let mut forgotten = None;
        if let MapEntry::Occupied(mut slot) = held.entry(ino) {
            let left = slot.get().lookups.saturating_sub(lookups);
            slot.get_mut().lookups = left;
            if left == 0 {
                forgotten = Some(slot.remove());
            }
        }
        if held.capacity() > 1024 && held.len() < held.capacity() / 8 {
            held.shrink_to_fit();
        }
        // Dropped without the lock, because a file may own much memory.
        drop(held);
        drop(forgotten);
    }

    fn stat(&self, ino: Ino) -> Answer<'_, Stat> {
        let known = match ino {
            Ino::ROOT => None,
            _ => Some(self.looked_up(ino)),
        };
        let known = match known {
            Some(Err(error)) => return Answer::now(Err(error)),
            Some(Ok((view, object))) if self.is_current(&view) => {
                return Answer::now(Ok(view.stat(object.as_deref())));
            }
            Some(Ok(known)) => Some(known),
            None => None,
        };
        Answer::later(async move {
            let (view, object) = match known {
                Some(known) => known,
                None => (self.group().await?, None),
            };
            self.check(&view).await?;
            Ok(view.stat(object.as_deref()))
        })
    }

    fn key(&self, ino: Ino) -> Result<Key, StoreError> {
        match ino {
            Ino::ROOT => Ok(self.root.clone()),
            _ => Ok(self.looked_up(ino)?.0.key()),
        }
    }

    fn open(&self, ino: Ino) -> Answer<'_, Arc<dyn Object>> {
        Answer::later(async move {
            let (view, object) = match ino {
                Ino::ROOT => (self.group().await?, None),
                _ => self.looked_up(ino)?,
            };
            self.check(&view).await?;
            let not_a_file = || StoreError::NotAPrefix { key: view.key() };
            let object = object.ok_or_else(not_a_file)?;
            let opened = object.open().await?;
            object.check_beginning(&*opened).await?;
            Ok(opened)
        })
    }

    fn open_dir(&self, ino: Ino) -> Answer<'_, Box<dyn DirStream>> {
        Answer::later(self.open_dir_with(ino, Vec::new()))
    }

    async fn attributes(&self, ino: Ino) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(self.view(ino).await?.node.extended_attributes())
    }

    async fn views(&self, ino: Ino) -> Result<Option<ViewsOfDir>, StoreError> {
        let View { node, kind } = self.view(ino).await?;
        let is_dir_of_views = matches!(kind, ViewKind::Hidden | ViewKind::Group);
        Ok(is_dir_of_views.then(|| ViewsOfDir {
            path: ".",
            name: node.name().to_owned(),
        }))
    }

    async fn example_views(&self) -> Vec<String> {
        self.examples().await
    }

    fn recent_errors(&self) -> Arc<RecentErrors> {
        Arc::clone(&self.recent_errors)
    }

    fn store(&self) -> &dyn Store {
        &**self.nodes.store()
    }

    fn known_inodes(&self) -> usize {
        self.held_numbers().len()
    }
}
