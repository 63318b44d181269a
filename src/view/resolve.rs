//! Provides formats, which are pure functions, with the nodes and numbers around an array.
//!
//! A format runs on the data that were read so far, and ends with [`NoContent::Unresolved`] if it needs more.
//! These data are read, and the format runs again. Formats need only metadata and a few numbers, so a run
//! costs little beside a read.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::around::NodeResolver;
use super::content::NoContent;
use super::node::ViewNode;
use super::nodes::Nodes;
use super::number::Value;
use crate::array::ChunkTable;
use crate::store::Key;
use crate::sync::Mutex;

/// The data that were read for one format of one array.
#[derive(Debug, Default)]
struct Resolved {
    nodes: HashMap<Key, Result<Option<Arc<ViewNode>>, NoContent>>,
    numbers: HashMap<(Key, u64), Result<Vec<Value>, NoContent>>,
    tables: HashMap<Key, Result<Arc<ChunkTable>, NoContent>>,
    missing: Mutex<Vec<Missing>>,
    assumes_wgs84: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Missing {
    Node(Key),
    /// The numbers of an array, and the maximum of their count.
    Numbers(Key, u64),
    /// The sizes and offsets of the stored chunks of an array.
    Table(Key),
}

impl Resolved {
    fn note(&self, missing: Missing) -> NoContent {
        let mut all = self.missing.lock();
        if !all.contains(&missing) {
            all.push(missing);
        }
        NoContent::Unresolved
    }
}

impl NodeResolver for Resolved {
    fn node(&self, key: &Key) -> Result<Option<Arc<ViewNode>>, NoContent> {
        match self.nodes.get(key) {
            Some(found) => found.clone(),
            None => Err(self.note(Missing::Node(key.clone()))),
        }
    }

    fn numbers(&self, node: &ViewNode, most: u64) -> Result<Vec<Value>, NoContent> {
        match self.numbers.get(&(node.key().clone(), most)) {
            Some(found) => found.clone(),
            None => Err(self.note(Missing::Numbers(node.key().clone(), most))),
        }
    }

    fn assumes_wgs84(&self) -> bool {
        self.assumes_wgs84
    }

    fn chunk_table(&self, node: &ViewNode) -> Result<Arc<ChunkTable>, NoContent> {
        match self.tables.get(node.key()) {
            Some(found) => found.clone(),
            None => Err(self.note(Missing::Table(node.key().clone()))),
        }
    }
}

/// The result of reading a [`Missing`].
enum Found {
    Node(Key, Result<Option<Arc<ViewNode>>, NoContent>),
    Numbers((Key, u64), Result<Vec<Value>, NoContent>),
    Table(Key, Result<Arc<ChunkTable>, NoContent>),
}

impl Nodes {
    /// Runs a format until all data that it needs are read.
    ///
    /// # Errors
    /// As the format.
    pub(super) async fn resolve<T>(
        self: &Arc<Self>,
        format: impl Fn(&dyn NodeResolver) -> Result<T, NoContent>,
    ) -> Result<T, NoContent> {
        let mut resolved = Resolved {
            assumes_wgs84: self.options().assume_wgs84,
            ..Resolved::default()
        };
        loop {
            let rendered = format(&resolved);
            let missing = std::mem::take(&mut *resolved.missing.lock());
            // A format may ignore that data were missing: such a result does not count.
            if missing.is_empty() {
                return rendered;
            }
            drop(rendered);
            for found in join_all(missing.into_iter().map(|missing| self.find(missing))).await {
                match found {
                    Found::Node(key, node) => drop(resolved.nodes.insert(key, node)),
                    Found::Numbers(key, numbers) => drop(resolved.numbers.insert(key, numbers)),
                    Found::Table(key, table) => drop(resolved.tables.insert(key, table)),
                }
            }
        }
    }

    async fn find(self: &Arc<Self>, missing: Missing) -> Found {
        match missing {
            Missing::Node(key) => {
                let node = self.node_if_present(&key).await;
                Found::Node(key, node)
            }
            Missing::Numbers(key, most) => {
                let numbers = match self.node(&key).await {
                    Ok(node) => self.numbers(&node, most).await,
                    Err(error) => Err(NoContent::Failed(error)),
                };
                Found::Numbers((key, most), numbers)
            }
            Missing::Table(key) => {
                let table = match self.node(&key).await {
                    Ok(node) => self.chunk_table(&node).await,
                    Err(error) => Err(NoContent::Failed(error)),
                };
                Found::Table(key, table)
            }
        }
    }
}
