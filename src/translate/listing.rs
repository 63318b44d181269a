//! Directory listings of a translation.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;

use super::node::Translation;
use super::rendered_document::document_stat;
use super::resolve::Resolved;
use super::{NodeView, Shared};
use crate::hierarchy::{AssembledListing, is_document_name};
use crate::runtime::leave_session_thread;
use crate::store::{
    IncompleteListing, Key, Kind, Listing, Stat, StoreError, Visit, Visited, visit_all,
};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};

/// The largest number of chunks in a directory of a local store for which each chunk is looked up.
/// In larger directories, all chunks of the grid are listed.
const MAX_LOOKED_UP: u64 = 1 << 16;
/// The number of chunks that are looked up at a time.
const BATCH: u64 = 1024;

/// A listing of a chunk directory that looks up each chunk.
#[derive(Debug)]
struct ChunkListing {
    shared: Arc<Shared>,
    node: Arc<NodeView>,
    array: Key,
    dir: ChunkDir,
    /// Looked up names that exist.
    names: AssembledListing,
    /// The index of the next name to look up; `None` after the last one.
    next: Option<u64>,
}

impl Shared {
    /// Opens a directory.
    ///
    /// # Errors
    /// The errors of [`Shared::resolve`], and [`StoreError::NotAPrefix`] if the key is not a directory.
    pub(super) async fn list(
        self: &Arc<Self>,
        prefix: &Key,
    ) -> Result<Box<dyn Listing>, StoreError> {
        let names = AssembledListing::new(prefix.clone());
        match self.resolve(prefix).await? {
            Resolved::Same(key) => self.store.list(&key).await,
            Resolved::Document(..) | Resolved::Chunk(..) => Err(StoreError::NotAPrefix {
                key: prefix.clone(),
            }),
            Resolved::ChunkDir(node, array, dir) => {
                self.chunk_dir_stat(&node, &array, dir).await?;
                Ok(self.list_chunks(names, node, array, dir))
            }
            Resolved::Directory(node, key) => self.list_node(names, node, key).await,
        }
    }

    async fn list_node(
        self: &Arc<Self>,
        mut names: AssembledListing,
        node: Arc<NodeView>,
        key: Key,
    ) -> Result<Box<dyn Listing>, StoreError> {
        let consolidated = match key == self.root {
            true => self.consolidated(&node).await,
            false => Ok(None),
        };
        let own = node.texts.iter();
        let own = own.map(|(name, text)| (*name, Arc::clone(text), node.modified));
        let mut texts: Vec<_> = own.collect();
        let name = self.target.consolidated();
        match consolidated {
            Ok(None) => {}
            Ok(Some((text, modified))) => {
                texts.retain(|(own, ..)| *own != name);
                texts.push((name, text, modified));
            }
            // An unreadable node does not hide the other nodes.
            Err(error) if error.is_lasting() => {
                log::warn!("{name} of {} is not listed: {error}", self.target.name());
            }
            // Listed despite a temporary failure: a lookup then returns the error.
            Err(_) => {
                texts.retain(|(own, ..)| *own != name);
                names.push(name.as_bytes(), Kind::Object, None);
            }
        }
        for (name, text, modified) in texts {
            let stat = document_stat(&text, modified);
            names.push(name.as_bytes(), Kind::Object, Some(stat));
        }
        if node.chunks().is_some() {
            return Ok(self.list_chunks(names, node, key, ChunkDir::default()));
        }
        self.push_members(&node, &key, &mut names).await?;
        Ok(Box::new(names))
    }

    fn list_chunks(
        self: &Arc<Self>,
        mut names: AssembledListing,
        node: Arc<NodeView>,
        array: Key,
        dir: ChunkDir,
    ) -> Box<dyn Listing> {
        let Some(chunks) = node.chunks() else {
            return Box::new(names);
        };
        if !self.looks_up(&chunks.names, dir) {
            names.push_chunks(Arc::clone(&chunks.names), dir);
            return Box::new(names);
        }
        Box::new(ChunkListing {
            shared: Arc::clone(self),
            node,
            array,
            dir,
            names,
            next: Some(0),
        })
    }

    /// Returns why a listing of a directory may lack names, or may have names without a key.
    ///
    /// # Errors
    /// A failure that leaves open whether the listing is complete.
    pub(super) async fn incomplete_listing(
        self: &Arc<Self>,
        prefix: &Key,
    ) -> Result<Option<IncompleteListing>, StoreError> {
        let incomplete = |what: &str| IncompleteListing {
            is_unlisted: false,
            what: what.to_owned(),
        };
        let of_chunks = |node: &NodeView, dir: ChunkDir| {
            let names = &node.chunks()?.names;
            let what = "chunks are those that there can be";
            (!self.looks_up(names, dir)).then(|| incomplete(what))
        };
        match self.resolve(prefix).await {
            Ok(Resolved::Same(key)) => self.store.incomplete_listing(&key).await,
            Ok(Resolved::ChunkDir(node, _, dir)) => Ok(of_chunks(&node, dir)),
            Ok(Resolved::Directory(node, _)) if node.chunks().is_some() => {
                Ok(of_chunks(&node, ChunkDir::default()))
            }
            Ok(Resolved::Directory(_, key)) => {
                let of_store = self.store.incomplete_listing(&key).await?;
                let what = "nodes that are left out may be listed";
                Ok(of_store.or_else(|| self.is_remote().then(|| incomplete(what))))
            }
            Ok(Resolved::Document(..) | Resolved::Chunk(..))
            | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether each chunk is looked up, so that only existing chunks are listed.
    fn looks_up(&self, names: &ChunkNames, dir: ChunkDir) -> bool {
        !self.is_remote() && names.len(dir) <= MAX_LOOKED_UP
    }

    /// Adds the members of a group, or of a directory without documents.
    async fn push_members(
        self: &Arc<Self>,
        node: &NodeView,
        key: &Key,
        names: &mut AssembledListing,
    ) -> Result<(), StoreError> {
        let is_same = matches!(node.translation, Translation::Group(None));
        let mut members = Vec::new();
        let mut listing = self.store.list(key).await?;
        visit_all(&mut *listing, &mut |listed| {
            match listed.kind {
                Kind::Object if is_same && self.is_own_document(listed.name) => {
                    names.push(listed.name, Kind::Object, listed.stat);
                }
                _ if listed.is_below() && !is_document_name(listed.name) => {
                    members.push(listed.name.to_vec());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .await?;
        let is_remote = self.is_remote();
        for name in members {
            // In a remote store, each check takes requests, so a left out node fails only at its lookup.
            if is_remote || self.is_member(key, &name).await {
                names.push(&name, Kind::Prefix, None);
            }
        }
        Ok(())
    }

    /// Returns whether a directory is not left out. An unreadable one is listed, and its lookup
    /// fails.
    async fn is_member(self: &Arc<Self>, key: &Key, name: &[u8]) -> bool {
        let Ok(below) = key.join(name) else {
            return false;
        };
        match self.node(&below).await {
            Ok(Some(node)) => !matches!(node.translation, Translation::Unsupported(_)),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Returns the kind of a chunk or a directory of chunks, and the attributes of a chunk; `None`
    /// if it does not exist. An unreadable chunk is returned, and its open fails.
    async fn look_up(
        &self,
        node: &NodeView,
        array: &Key,
        found: ChunkEntry,
    ) -> Option<(Kind, Option<Stat>)> {
        let (kind, stat) = match found {
            ChunkEntry::Directory(dir) => {
                (Kind::Prefix, self.chunk_dir_stat(node, array, dir).await)
            }
            ChunkEntry::Chunk(chunk) => (Kind::Object, self.chunk_stat(node, array, chunk).await),
        };
        match stat {
            Ok(stat) => Some((kind, Some(stat).filter(|stat| stat.kind == Kind::Object))),
            Err(StoreError::NotFound { .. }) => None,
            Err(_) => Some((kind, None)),
        }
    }
}

#[async_trait]
impl Listing for ChunkListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        Ok(match self.names.visit(cookie, visit)? {
            Visited::End if self.next.is_some() => Visited::Pending,
            visited => visited,
        })
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        let (Some(start), Some(chunks)) = (self.next, self.node.chunks()) else {
            return Ok(());
        };
        leave_session_thread().await;
        for place in start..start + BATCH {
            let Some((name, found)) = chunks.names.nth(self.dir, place) else {
                self.next = None;
                return Ok(());
            };
            let looked_up = self.shared.look_up(&self.node, &self.array, found).await;
            if let Some((kind, stat)) = looked_up {
                self.names.push(name.as_bytes(), kind, stat);
            }
            self.next = Some(place + 1);
        }
        Ok(())
    }
}
