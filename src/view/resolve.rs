//! Resolution of the other nodes and numbers that formats, which are pure functions, need.
//!
//! A format runs on the data that were read so far, and ends with [`ContentError::Unresolved`] if it needs more.
//! These data are read, and the format runs again. Formats need only metadata and a few numbers, so a run
//! costs little beside a read.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::file::nodes::Nodes;
use super::group::tree::TreeScope;
use crate::array::ChunkTable;
use crate::node::{ContentError, Members, NodeResolver, Value, ViewNode};
use crate::store::{Key, ListingSupport};
use crate::sync::Mutex;

/// The data that were read for one format of one array.
#[derive(Debug, Default)]
struct ResolvedInputs {
    nodes: HashMap<Key, Result<Option<Arc<ViewNode>>, ContentError>>,
    numbers: HashMap<(Key, u64), Result<Vec<Value>, ContentError>>,
    texts: HashMap<Key, Result<Arc<Vec<String>>, ContentError>>,
    tables: HashMap<Key, Result<Arc<ChunkTable>, ContentError>>,
    members: HashMap<(Key, usize), Result<Arc<Members>, ContentError>>,
    missing: Mutex<Vec<MissingInput>>,
    assumes_wgs84: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum MissingInput {
    Node(Key),
    /// The numbers of an array, and the maximum of their count.
    Numbers(Key, u64),
    /// The texts of an array.
    Texts(Key),
    /// The sizes and offsets of the stored chunks of an array.
    Table(Key),
    /// The arrays and groups of a group, and the maximum of their count.
    Members(Key, usize),
}

impl ResolvedInputs {
    fn note(&self, missing: MissingInput) -> ContentError {
        let mut all = self.missing.lock();
        if !all.contains(&missing) {
            all.push(missing);
        }
        ContentError::Unresolved
    }
}

impl NodeResolver for ResolvedInputs {
    fn node(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, ContentError> {
        match self.nodes.get(key) {
            Some(loaded) => loaded.clone(),
            None => Err(self.note(MissingInput::Node(key.clone()))),
        }
    }

    fn numbers(&self, node: &ViewNode, most: u64) -> Result<Vec<Value>, ContentError> {
        match self.numbers.get(&(node.key().clone(), most)) {
            Some(loaded) => loaded.clone(),
            None => Err(self.note(MissingInput::Numbers(node.key().clone(), most))),
        }
    }

    fn texts(&self, node: &ViewNode) -> Result<Arc<Vec<String>>, ContentError> {
        match self.texts.get(node.key()) {
            Some(found) => found.clone(),
            None => Err(self.note(MissingInput::Texts(node.key().clone()))),
        }
    }

    fn members(&self, group: &Key, most: usize) -> Result<Arc<Members>, ContentError> {
        match self.members.get(&(group.clone(), most)) {
            Some(found) => found.clone(),
            None => Err(self.note(MissingInput::Members(group.clone(), most))),
        }
    }

    fn assumes_wgs84(&self) -> bool {
        self.assumes_wgs84
    }

    fn chunk_table(&self, node: &ViewNode) -> Result<Arc<ChunkTable>, ContentError> {
        match self.tables.get(node.key()) {
            Some(loaded) => loaded.clone(),
            None => Err(self.note(MissingInput::Table(node.key().clone()))),
        }
    }
}

/// The result of reading a [`MissingInput`].
enum LoadedInput {
    Node(Key, Result<Option<Arc<ViewNode>>, ContentError>),
    Numbers((Key, u64), Result<Vec<Value>, ContentError>),
    Texts(Key, Result<Arc<Vec<String>>, ContentError>),
    Table(Key, Result<Arc<ChunkTable>, ContentError>),
    Members((Key, usize), Result<Arc<Members>, ContentError>),
}

impl Nodes {
    /// Runs a format until all data that it needs are read.
    ///
    /// # Errors
    /// As the format.
    pub(super) async fn resolve<T>(
        self: &Arc<Self>,
        format: impl Fn(&dyn NodeResolver) -> Result<T, ContentError>,
    ) -> Result<T, ContentError> {
        let mut resolved = ResolvedInputs {
            assumes_wgs84: self.options().assume_wgs84,
            ..ResolvedInputs::default()
        };
        loop {
            let rendered = format(&resolved);
            let missing = std::mem::take(&mut *resolved.missing.lock());
            // A format may ignore that data were missing: such a result does not count.
            if missing.is_empty() {
                return rendered;
            }
            drop(rendered);
            for found in join_all(missing.into_iter().map(|missing| self.load(missing))).await {
                match found {
                    LoadedInput::Node(key, node) => drop(resolved.nodes.insert(key, node)),
                    LoadedInput::Numbers(key, numbers) => {
                        drop(resolved.numbers.insert(key, numbers))
                    }
                    LoadedInput::Texts(key, texts) => drop(resolved.texts.insert(key, texts)),
                    LoadedInput::Table(key, table) => drop(resolved.tables.insert(key, table)),
                    LoadedInput::Members(key, found) => drop(resolved.members.insert(key, found)),
                }
            }
        }
    }

    async fn load(self: &Arc<Self>, missing: MissingInput) -> LoadedInput {
        match missing {
            MissingInput::Node(key) => {
                let node = self.node_if_present(&key).await;
                LoadedInput::Node(key, node)
            }
            MissingInput::Numbers(key, most) => {
                let numbers = match self.node(&key).await {
                    Ok(node) => self.numbers(&node, most).await,
                    Err(error) => Err(ContentError::Failed(error)),
                };
                LoadedInput::Numbers((key, most), numbers)
            }
            MissingInput::Texts(key) => {
                let texts = match self.node(&key).await {
                    Ok(node) => self.texts_of(&node, TreeScope::Group).await,
                    Err(error) => Err(ContentError::Failed(error)),
                };
                let none = || Err("no text".to_owned());
                let texts = texts.and_then(|found| Ok(found.unwrap_or_else(none)?));
                LoadedInput::Texts(key, texts)
            }
            MissingInput::Table(key) => {
                let table = match self.node(&key).await {
                    Ok(node) => self.chunk_table(&node).await,
                    Err(error) => Err(ContentError::Failed(error)),
                };
                LoadedInput::Table(key, table)
            }
            MissingInput::Members(key, most) => {
                let members = self.members(&key, most).await;
                LoadedInput::Members((key, most), members)
            }
        }
    }

    /// Returns at most `most` arrays and groups of a group; none if the store does not list all of them.
    async fn members(&self, group: &Key, most: usize) -> Result<Arc<Members>, ContentError> {
        let is_complete = self.store().capabilities().listing == ListingSupport::Complete;
        if !is_complete && self.store().incomplete_listing(group).await?.is_some() {
            return Ok(Arc::default());
        }
        Ok(self.first_members(group, most).await?)
    }
}
