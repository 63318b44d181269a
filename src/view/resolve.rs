//! Resolution of the other nodes and numbers that formats, which are pure functions, need.
//!
//! A format runs on the data that were read so far, and ends with [`ContentError::Unresolved`] if it needs more.
//! These data are read, and the format runs again. Formats need only metadata and a few numbers, so a run
//! costs little beside a read.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::content::ContentError;
use super::group_tree::TreeScope;
use super::missing::ZeroFill;
use super::nodes::Nodes;
use crate::array::ChunkTable;
use crate::node::{Value, ViewNode};
use crate::store::Key;
use crate::sync::Mutex;

/// The other nodes of a hierarchy, for formats of an array that need more than its metadata.
pub trait NodeResolver {
    /// Returns the node at a key; `None` if the store has no such prefix.
    ///
    /// # Errors
    /// Errors of the store.
    fn node(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, ContentError>;

    /// Returns all numbers of a small array in C order.
    ///
    /// # Errors
    /// [`ContentError::Absent`] for more than `most` numbers or no numbers; else why the array cannot be read.
    fn numbers(&self, node: &ViewNode, most: u64) -> Result<Vec<Value>, ContentError>;

    /// Returns all texts of a small array in C order.
    ///
    /// # Errors
    /// [`ContentError::Absent`] for too much text or no text; else why the array cannot be read.
    fn texts(&self, node: &ViewNode) -> Result<Arc<Vec<String>>, ContentError>;

    /// Returns what the `fill_value` 0 of an array means.
    ///
    /// # Errors
    /// Errors of the store.
    fn zero_fill(&self, node: &ViewNode) -> Result<ZeroFill, ContentError>;

    /// Returns whether latitudes and longitudes without a reference system are those of WGS 84.
    fn assumes_wgs84(&self) -> bool;

    /// Returns the sizes and offsets of the stored chunks of an array.
    ///
    /// # Errors
    /// [`ContentError::Absent`] if the array has too many chunks or the node is no array; errors of the store.
    fn chunk_table(&self, node: &ViewNode) -> Result<Arc<ChunkTable>, ContentError>;
}

/// The data that were read for one format of one array.
#[derive(Debug, Default)]
struct ResolvedInputs {
    nodes: HashMap<Key, Result<Option<Arc<ViewNode>>, ContentError>>,
    numbers: HashMap<(Key, u64), Result<Vec<Value>, ContentError>>,
    texts: HashMap<Key, Result<Arc<Vec<String>>, ContentError>>,
    tables: HashMap<Key, Result<Arc<ChunkTable>, ContentError>>,
    zero_fills: HashMap<Key, Result<ZeroFill, ContentError>>,
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
    /// What the `fill_value` 0 of an array means.
    ZeroFill(Key),
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

    fn zero_fill(&self, node: &ViewNode) -> Result<ZeroFill, ContentError> {
        match self.zero_fills.get(node.key()) {
            Some(found) => found.clone(),
            None => Err(self.note(MissingInput::ZeroFill(node.key().clone()))),
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
    ZeroFill(Key, Result<ZeroFill, ContentError>),
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
                    LoadedInput::ZeroFill(key, zero) => drop(resolved.zero_fills.insert(key, zero)),
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
            MissingInput::ZeroFill(key) => {
                let zero = match self.node(&key).await {
                    Ok(node) => self.zero_fill(&node).await,
                    Err(error) => Err(ContentError::Failed(error)),
                };
                LoadedInput::ZeroFill(key, zero)
            }
        }
    }
}
