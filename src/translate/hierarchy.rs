//! The documents of a node and of all nodes below it, as a tree.
//!
//! `read` reads a tree from a store, `serialize` converts it to one document.

mod read;
mod serialize;

use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

use serde_json::Value;

use super::node::{JsonDocuments, Translation, implicit_group, translate};
use super::{Target, fill_mask};
use crate::hierarchy::{NODE_DOCUMENT_NAMES, is_document_name};
use crate::store::{Key, StoreError};
use crate::zarr::{Detected, Documents, MetadataError, Node, ZarrFormat, is_n5_dataset};

pub use read::Hierarchy;
pub(super) use read::consolidated_at;
pub(super) use serialize::text;
pub use serialize::{HierarchyDocument, RenderHierarchy, zmetadata_json, zom_json};

/// The largest number of nodes in a tree.
pub(super) const MAX_NODES: usize = 10_000;

/// The documents of a node and of the nodes below it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DocumentTree {
    /// The parsed documents, in the order of [`NODE_DOCUMENT_NAMES`].
    documents: [Option<Value>; 5],
    parsed: ParsedDocuments,
    problem: Option<DocumentProblem>,
    /// Whether the node is an array of objects that are all text.
    is_text: bool,
    members: BTreeMap<String, DocumentTree>,
}

/// The node that documents describe, from its first use on: each translation and each diagnostic asks for it.
#[derive(Debug, Default)]
struct ParsedDocuments(OnceLock<Option<Detected>>);

impl PartialEq for ParsedDocuments {
    /// The documents decide.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The reason why the documents of a node do not describe it.
#[derive(Debug, PartialEq)]
enum DocumentProblem {
    /// The documents, or the names below the node, could not be read.
    Unreadable(String),
    /// The documents are not valid metadata.
    Invalid(String),
}

impl DocumentProblem {
    fn reason(&self) -> &str {
        match self {
            Self::Unreadable(reason) | Self::Invalid(reason) => reason,
        }
    }
}

/// The reason why a hierarchy has no document as a whole.
#[derive(Debug, Clone)]
pub enum HierarchyError {
    /// The document would be too large, take a request for each node, or lack unreadable nodes.
    Absent(String),
    /// The store failed.
    Failed(StoreError),
}

impl From<StoreError> for HierarchyError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl DocumentTree {
    /// Returns why one of the nodes could not be read, if any could not.
    pub(super) fn unreadable(&self) -> Option<&str> {
        match &self.problem {
            Some(DocumentProblem::Unreadable(why)) => Some(why),
            _ => self.members.values().find_map(Self::unreadable),
        }
    }

    fn is_array(&self) -> bool {
        match &self.documents {
            [Some(document), ..] => document.get("node_type") == Some(&"array".into()),
            [None, Some(_), ..] => true,
            [None, None, zgroup, _, attributes_json] => {
                let dataset = attributes_json.as_ref().is_some_and(is_n5_dataset);
                zgroup.is_none() && dataset
            }
        }
    }

    /// Returns the node that the documents describe, if it has documents.
    fn node(&self) -> Option<&Result<Node, MetadataError>> {
        self.detected().map(|detected| &detected.node)
    }

    fn detected(&self) -> Option<&Detected> {
        self.parsed.0.get_or_init(|| self.detect()).as_ref()
    }

    /// Returns the documents, for a change.
    fn documents_mut(&mut self) -> &mut [Option<Value>; 5] {
        self.parsed = ParsedDocuments::default();
        &mut self.documents
    }

    fn detect(&self) -> Option<Detected> {
        let text = |document: &Option<Value>| {
            document
                .as_ref()
                .map(|document| document.to_string().into_bytes())
        };
        let [zarr_json, zarray, zgroup, zattrs, attributes_json] =
            self.documents.each_ref().map(text);
        let documents = Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
            attributes_json: attributes_json.as_deref(),
        };
        documents.node()
    }

    /// Returns the translation of the node; `None` if its document is invalid and stays as it is.
    fn translation(&self, target: Target) -> Option<Translation> {
        if let Some(problem) = &self.problem {
            return Some(Translation::Unsupported(problem.reason().to_owned()));
        }
        let Some(detected) = self.detected() else {
            return Some(Translation::Directory);
        };
        match &detected.node {
            Err(_) if target.shows_broken(detected.format) => None,
            Err(error) => Some(Translation::Unsupported(error.to_string())),
            Ok(node) => {
                let [zarr_json, zarray, ..] = &self.documents;
                let raw = zarr_json.as_ref().or(zarray.as_ref());
                Some(translate(target, node, raw, self.is_text))
            }
        }
    }

    /// Returns the paths of the arrays whose documents in v2 depend on whether they have all chunks.
    pub(super) fn completable(&self) -> Vec<String> {
        let depends =
            |member: &Self| match member.is_array().then(|| member.translation(Target::V2)) {
                Some(Some(Translation::Array(_, chunks))) => chunks.complete.is_some(),
                _ => false,
            };
        let below = self.below().into_iter();
        let own = depends(self).then(String::new);
        own.into_iter()
            .chain(
                below
                    .filter(|(_, member)| depends(member))
                    .map(|(path, _)| path),
            )
            .collect()
    }

    /// Replaces the documents of the node at a path.
    pub(super) fn replace(&mut self, path: &str, documents: JsonDocuments) {
        let mut node = self;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Some(member) = node.members.get_mut(name) else {
                return;
            };
            node = member;
        }
        *node.documents_mut() = Default::default();
        node.set_documents(documents);
    }

    fn set_documents(&mut self, documents: JsonDocuments) {
        let own = self.documents_mut();
        for (name, text) in documents {
            let place = NODE_DOCUMENT_NAMES.iter().position(|at| *at == name);
            let slot = place.and_then(|at| own.get_mut(at));
            if let Some(slot) = slot {
                *slot = Some(text);
            }
        }
    }

    /// Returns the tree of a translation, without left out nodes.
    pub(super) fn translated(&self, target: Target) -> Option<Self> {
        let translation = self.translation(target)?;
        self.translated_to(target, translation)
    }

    fn translated_to(&self, target: Target, translation: Translation) -> Option<Self> {
        let mut translated = Self::default();
        match translation {
            Translation::Same | Translation::Group(None) => {
                translated.documents.clone_from(&self.documents);
            }
            Translation::Group(Some(texts)) | Translation::Array(texts, _) => {
                translated.set_documents(texts);
            }
            Translation::Directory => {}
            Translation::Unsupported(_) => return None,
        }
        for (name, member) in &self.members {
            if is_document_name(name.as_bytes()) {
                continue;
            }
            let translation = match member.translation(target) {
                None => continue,
                Some(Translation::Directory) => implicit_group(target),
                Some(translation) => translation,
            };
            if let Some(member) = member.translated_to(target, translation) {
                translated.members.insert(name.clone(), member);
            }
        }
        Some(translated)
    }

    /// Calls `report` with the key and the reason for each node that a translation leaves out, or
    /// that xarray masks differently. `complete` are the arrays of [`Shared::complete_arrays`](super::Shared).
    pub(super) fn diagnostics(
        &self,
        target: Target,
        key: &Key,
        complete: &HashSet<Key>,
        report: &mut dyn FnMut(&Key, &str),
    ) {
        match self.translation(target) {
            None => {}
            Some(Translation::Unsupported(why)) => report(key, &why),
            Some(Translation::Array(texts, chunks)) => {
                if let Some(why) = &chunks.lost_mask {
                    report(key, why);
                }
                if let Some(complete_texts) = &chunks.complete
                    && !complete.contains(key)
                {
                    report(key, &fill_mask::lost(&texts, complete_texts));
                }
            }
            Some(_) => {
                for (name, member) in &self.members {
                    let Ok(below) = key.join(name.as_bytes()) else {
                        continue;
                    };
                    match is_document_name(name.as_bytes()) {
                        true => report(&below, "its name is that of a document"),
                        false => member.diagnostics(target, &below, complete, report),
                    }
                }
            }
        }
    }

    /// Returns whether a translation generates the consolidated metadata of this node.
    pub(super) fn is_consolidated(&self, target: Target) -> bool {
        let translation = self.translation(target);
        matches!(translation, Some(Translation::Group(Some(_))))
    }

    /// Returns the problem of the first invalid version 2 document, if any.
    fn invalid_v2(&self) -> Option<String> {
        if let Some(DocumentProblem::Invalid(why)) = &self.problem {
            // Readers of version 2 ignore `zarr.json`, and consolidated metadata have no `attributes.json`.
            let [zarr_json, .., attributes_json] = NODE_DOCUMENT_NAMES;
            let is_other = why.starts_with(zarr_json) || why.starts_with(attributes_json);
            return (!is_other).then(|| why.clone());
        }
        let mut members = self.members.iter();
        members.find_map(|(name, member)| Some(format!("{name}/{}", member.invalid_v2()?)))
    }

    /// Returns the trees of all nodes below this one, by their paths.
    fn below(&self) -> Vec<(String, &Self)> {
        let mut found = Vec::new();
        for (name, member) in &self.members {
            found.push((name.clone(), member));
            if !member.is_array() {
                let below = member.below().into_iter();
                found.extend(below.map(|(path, member)| (format!("{name}/{path}"), member)));
            }
        }
        found
    }

    /// Returns whether the node is an N5 node.
    fn is_n5(&self) -> bool {
        let detected = self.detected();
        detected.is_some_and(|detected| detected.format == ZarrFormat::N5)
    }

    /// Returns whether the node, or any node below it, has a document.
    fn has_documents(&self) -> bool {
        self.documents.iter().any(Option::is_some)
            || self.problem.is_some()
            || self.members.values().any(Self::has_documents)
    }
}

#[cfg(test)]
mod tests;
