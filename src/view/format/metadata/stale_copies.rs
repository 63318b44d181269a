//! Nodes whose documents differ from their copies in the consolidated metadata of a group.

use crate::hierarchy::{Document, read_document};
use crate::node::ViewNode;
use crate::store::{Key, StoreError, list_prefixes, map_concurrent};
use crate::view::file::nodes::Nodes;
use crate::zarr::{Consolidated, Documents, Node, ZarrFormat};

/// The largest number of nodes that are compared.
const MAX_COMPARED: usize = 1000;
/// The largest number of nodes that are named.
const MAX_NAMED: usize = 10;

impl Nodes {
    /// Returns sentences about the nodes whose documents differ from their copies in the consolidated metadata of a
    /// group. Of a remote store, only nodes are compared whose documents were read for the views.
    ///
    /// # Errors
    /// The errors of the store.
    pub(in crate::view) async fn stale_copies(
        &self,
        group: &ViewNode,
    ) -> Result<Vec<String>, StoreError> {
        let Some(consolidated) = self.consolidated(group).await? else {
            return Ok(Vec::new());
        };
        let nodes = self.compared_nodes(group, &consolidated).await?;
        let consolidated = &consolidated;
        let compare = |(path, key): (String, Key)| async move {
            let difference = self.difference(consolidated, &path, &key).await?;
            Ok(difference.map(|what| format!("{path}: {what}")))
        };
        let compared = map_concurrent(nodes, compare).await.into_iter();
        let stale: Result<Vec<Option<String>>, StoreError> = compared.collect();
        let mut stale: Vec<String> = stale?.into_iter().flatten().collect();
        if let Some(more @ 1..) = stale.len().checked_sub(MAX_NAMED) {
            stale.truncate(MAX_NAMED);
            stale.push(format!(
                "the consolidated metadata are stale for {more} more nodes"
            ));
        }
        Ok(stale)
    }

    /// Returns the paths and keys of the nodes that are compared: those in the consolidated metadata, and the children
    /// of the group that they lack.
    async fn compared_nodes(
        &self,
        group: &ViewNode,
        consolidated: &Consolidated,
    ) -> Result<Vec<(String, Key)>, StoreError> {
        let is_remote = self.store().capabilities().is_remote;
        let mut paths: Vec<String> = Vec::new();
        if !is_remote {
            for name in list_prefixes(&**self.store(), group.key(), MAX_COMPARED).await? {
                let name = String::from_utf8(name).unwrap_or_default();
                if consolidated.documents(&name).next().is_none() {
                    paths.push(name);
                }
            }
        }
        paths.extend(consolidated.paths().map(str::to_owned));
        let mut nodes = Vec::new();
        for path in paths.into_iter().filter(|path| !path.is_empty()) {
            let Ok(below) = Key::new(path.as_bytes()) else {
                continue;
            };
            let key = group.key().join_key(&below);
            if nodes.len() < MAX_COMPARED && (!is_remote || self.cached_node(&key).is_some()) {
                nodes.push((path, key));
            }
        }
        Ok(nodes)
    }

    /// Returns the consolidated metadata of a group, if it has some that are valid.
    async fn consolidated(&self, group: &ViewNode) -> Result<Option<Consolidated>, StoreError> {
        let document = match group.metadata() {
            Node::Group(group) if group.format == ZarrFormat::V3 => Document::ZarrJson,
            Node::Group(group) if group.format == ZarrFormat::V2 => Document::Zmetadata,
            _ => return Ok(None),
        };
        let read = read_document(&**self.store(), group.key(), document).await?;
        let Some(text) = read.and_then(|read| read.text.ok()) else {
            return Ok(None);
        };
        if document == Document::Zmetadata {
            return Ok(Consolidated::from_zmetadata(&text).ok());
        }
        // The group of the views is kept without them.
        let documents = Documents {
            zarr_json: Some(&text),
            ..Documents::default()
        };
        let node = documents.node().and_then(|detected| detected.node.ok());
        Ok(match node {
            Some(Node::Group(group)) => group.consolidated,
            _ => None,
        })
    }

    /// Returns how the documents of a node differ from their copies. A document that cannot be read is not compared.
    async fn difference(
        &self,
        consolidated: &Consolidated,
        path: &str,
        key: &Key,
    ) -> Result<Option<String>, StoreError> {
        let [own @ .., _] = Document::ALL;
        let read = |document| read_document(&**self.store(), key, document);
        let mut texts: [Option<Vec<u8>>; 4] = Default::default();
        for (text, found) in texts.iter_mut().zip(map_concurrent(own, read).await) {
            if let Some(found) = found? {
                let Ok(found) = found.text else {
                    return Ok(None);
                };
                *text = Some(found);
            }
        }
        let [zarr_json, zarray, zgroup, zattrs] = &texts;
        let own = Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
            attributes_json: None,
        };
        Ok(consolidated.difference(path, &own))
    }
}
