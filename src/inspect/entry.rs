//! A node of the hierarchy with the names of its children. Where each document takes a request, they come from
//! consolidated metadata if available; elsewhere from the documents, which are compared with the consolidated
//! metadata.

use std::collections::HashSet;
use std::sync::Arc;

use super::is_listed_here;
use super::node::{self, NodeState};
use crate::store::{Key, Store, list_prefixes};
use crate::zarr::Consolidated;

/// A node in consolidated metadata.
#[derive(Debug, Clone)]
pub(super) struct ConsolidatedNode {
    pub(super) metadata: Arc<Consolidated>,
    pub(super) path: String,
}

/// A node of the tree.
pub(super) struct Entry {
    pub(super) state: NodeState,
    pub(super) notes: Vec<String>,
    pub(super) children: Vec<Vec<u8>>,
    /// Whether there may be children that the store does not list.
    pub(super) has_unlisted: bool,
    pub(super) consolidated: Option<ConsolidatedNode>,
}

impl ConsolidatedNode {
    pub(super) fn child(&self, name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        let path = match self.path.is_empty() {
            true => name.into_owned(),
            false => format!("{}/{name}", self.path),
        };
        Self {
            metadata: Arc::clone(&self.metadata),
            path,
        }
    }

    fn child_names(&self) -> Vec<Vec<u8>> {
        let names = self.metadata.children(&self.path).into_iter();
        names.map(|name| name.as_bytes().to_vec()).collect()
    }
}

impl Entry {
    fn new(state: NodeState) -> Self {
        Self {
            state,
            notes: Vec::new(),
            children: Vec::new(),
            has_unlisted: false,
            consolidated: None,
        }
    }

    pub(super) fn broken(document: &str, reason: &dyn std::fmt::Display) -> Self {
        Self::new(NodeState::Broken {
            document: document.to_owned(),
            reason: reason.to_string(),
            failure: None,
        })
    }

    /// Reads the node at a key; that of a remote store from consolidated metadata if available.
    pub(super) async fn read(
        store: &dyn Store,
        key: &Key,
        consolidated: Option<ConsolidatedNode>,
        with_children: bool,
    ) -> Self {
        let is_listed = is_listed_here(store);
        if let Some(node) = consolidated.clone().filter(|_| !is_listed) {
            return Self::from_consolidated(node, with_children);
        }
        let copies = consolidated.as_ref();
        let copies = copies.map(|node| (&*node.metadata, node.path.as_str()));
        let directory = node::read_compared(store, key, copies).await;
        let mut entry = Self {
            notes: directory
                .ignored
                .into_iter()
                .chain(directory.stale)
                .collect(),
            consolidated,
            ..Self::new(directory.state)
        };
        let is_group = match &entry.state {
            NodeState::Node(node) => node.as_group().is_some(),
            NodeState::Directory => true,
            NodeState::Broken { .. } => false,
        };
        if !with_children || !is_group {
            return entry;
        }
        if let NodeState::Node(node) = &entry.state
            && entry.consolidated.is_none()
        {
            match node::consolidated(store, key, node).await {
                Ok(Some(metadata)) => {
                    let node = ConsolidatedNode {
                        metadata: Arc::new(metadata),
                        path: String::new(),
                    };
                    entry.children = node.child_names();
                    entry.consolidated = Some(node);
                }
                Ok(None) => {}
                Err(error) => {
                    entry
                        .notes
                        .push(format!("consolidated metadata: {}", error.reason));
                }
            }
            if entry.consolidated.is_some() && !is_listed {
                return entry;
            }
        }
        match list_prefixes(store, key, usize::MAX).await {
            Ok(names) => {
                entry.notes.extend(entry.missing_children(&names));
                entry.children = names;
                let unknown = store.incomplete_listing(key).await;
                // A listing that failed names nothing.
                entry.has_unlisted =
                    unknown.map_or(true, |names| names.is_some_and(|names| names.is_unlisted));
            }
            Err(error) => {
                let reason = node::cause(key, &error);
                entry.notes.push(format!("cannot be listed: {reason}"));
            }
        }
        entry
    }

    /// Returns a note about the children in consolidated metadata that a complete listing lacks.
    fn missing_children(&self, listed: &[Vec<u8>]) -> Option<String> {
        let listed: HashSet<&[u8]> = listed.iter().map(Vec::as_slice).collect();
        let names = self.consolidated.as_ref()?.child_names();
        let missing = names
            .iter()
            .filter(|name| !listed.contains(name.as_slice()));
        let missing: Vec<_> = missing.map(|name| String::from_utf8_lossy(name)).collect();
        let names = missing.join(", ");
        (!missing.is_empty()).then(|| {
            format!("the consolidated metadata are stale: in them, and not there any more: {names}")
        })
    }

    fn from_consolidated(node: ConsolidatedNode, with_children: bool) -> Self {
        let state = match node.metadata.node(&node.path) {
            Some(Ok(node)) => NodeState::Node(Box::new(node)),
            Some(Err(error)) => return Self::broken("consolidated metadata", &error),
            None => NodeState::Directory,
        };
        let is_array = matches!(&state, NodeState::Node(node) if node.as_array().is_some());
        let mut entry = Self::new(state);
        if with_children && !is_array {
            entry.children = node.child_names();
        }
        entry.consolidated = Some(node);
        entry
    }
}
