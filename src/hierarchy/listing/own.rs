//! The own documents of nodes that consolidated metadata name.
//!
//! Consolidated metadata are a copy of these documents, and may be older. The own documents decide, because the
//! mount serves them. They are compared with the copy
//! - if the inner store has their attributes in its cache, so that the answer agrees with what was served;
//! - before a directory is listed, if programs look up documents and not only names. A program that copies the
//!   directory reads its document anyway, so the comparison costs no request that is not needed later.
//!
//! A program that reads only names, such as `find`, takes no request for each node. What such programs have listed is
//! recorded (`unchecked`).

use std::sync::Arc;

use super::documents::{Documents, FetchedDocument, fetch};
use super::loader::Depth;
use super::metadata::{KeyMeaning, NodeChildren, PrefixMetadata};
use super::unchecked::Shown;
use super::{MetadataListingStore, ResolvedKey, below};
use crate::clock::Instant;
use crate::hierarchy::document::{Document, is_document};
use crate::store::{Key, Stat, StoreError, Version};

/// What the own documents of a node say beside the consolidated metadata that name it.
#[derive(Debug, Clone)]
pub(super) enum OwnDocuments {
    /// The consolidated metadata name the same keys.
    Same,
    /// A group with consolidated metadata of its own, whose nodes count too.
    More(Arc<PrefixMetadata>),
    /// The node has other keys, or is no node any more.
    Other(Arc<PrefixMetadata>),
    /// The documents could not be compared, because one is denied.
    Denied(StoreError),
}

impl OwnDocuments {
    /// Returns the approximate size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Same | Self::Denied(_) => 64,
            Self::More(metadata) | Self::Other(metadata) => metadata.memory_bytes(),
        }
    }
}

/// A comparison, with the versions of the documents (`None` for a document that did not exist), and the time when
/// their fetch began.
#[derive(Debug, Clone)]
pub(super) struct ComparedDocuments {
    pub(super) own: OwnDocuments,
    pub(super) versions: Vec<(Document, Option<Version>)>,
    pub(super) since: Instant,
}

/// A node that consolidated metadata name.
pub(super) struct CopiedNode<'a> {
    metadata: &'a PrefixMetadata,
    /// The path of the node below the prefix with the consolidated metadata.
    path: String,
    pub(super) key: Key,
}

impl<'a> CopiedNode<'a> {
    /// Returns the node at or above a key, if consolidated metadata at the prefix `at` name it below the prefix.
    pub(super) fn of(key: &Key, at: &Key, metadata: &'a PrefixMetadata) -> Option<Self> {
        let path = metadata.copied_node(below(key, at))?.to_owned();
        let key = at.join_key(&Key::new(path.as_bytes()).ok()?);
        Some(Self {
            metadata,
            path,
            key,
        })
    }

    /// Returns the documents that are compared: those that say what the node is.
    fn documents(&self) -> Documents {
        let listed = self.metadata.listed();
        let zarr_json: Documents = [Document::ZarrJson].into();
        let named = self.metadata.documents(&self.path);
        let main = [Document::ZarrJson, Document::Zarray].into();
        match named.intersection(main).is_empty() {
            // A `.zgroup` of version 2 says nothing that its name does not say.
            true if listed.contains(Document::ZarrJson) => Documents::default(),
            _ => named.intersection(main).union(zarr_json.difference(listed)),
        }
    }

    /// Returns whether the array can have a directory of chunks at a key. If the grid in the consolidated metadata is
    /// empty, programs know of chunks only from the document of the array.
    fn can_have_directory(&self, key: &Key) -> bool {
        let below = below(key, &self.key);
        let components = below.split(|byte| *byte == b'/').count();
        match self.metadata.contents(&self.path) {
            NodeChildren::Array(names) => !below.is_empty() && names.can_have_directory(components),
            _ => false,
        }
    }
}

impl MetadataListingStore {
    /// Returns whether the own documents of a child, which consolidated metadata name, are known not to exist.
    pub(super) fn is_known_absent(&self, group: &Key, child: &str) -> bool {
        let own = group
            .join(child.as_bytes())
            .ok()
            .and_then(|node| self.loader.own(&node));
        matches!(own, Some(OwnDocuments::Other(own)) if !own.is_node())
    }

    /// Returns the meaning of a key by cached metadata. The own documents of a node decide, if they were compared; `None`
    /// if the answer must wait for a comparison that needs no request.
    pub(super) fn compared_meaning(
        &self,
        key: &Key,
    ) -> Option<Option<(Arc<PrefixMetadata>, KeyMeaning)>> {
        let Some((at, metadata, meaning)) = self.copied_meaning(key) else {
            return Some(None);
        };
        let Some(node) = CopiedNode::of(key, &at, &metadata) else {
            return Some(Some((metadata, meaning)));
        };
        match self.loader.own(&node.key) {
            Some(OwnDocuments::Other(own)) => {
                let meaning = own.classify(below(key, &node.key), true);
                Some(Some((own, meaning)))
            }
            Some(_) => Some(Some((metadata, meaning))),
            None if self.is_any_document_known(&node) => None,
            None => Some(Some((metadata, meaning))),
        }
    }

    /// Returns whether a key that the inner store does not have may be a directory of chunks that only the document of
    /// its array names, which was not compared with consolidated metadata.
    pub(super) fn is_unchecked(&self, key: &Key) -> bool {
        self.copied_meaning(key).is_some_and(|(at, metadata, _)| {
            let node = CopiedNode::of(key, &at, &metadata);
            let node = node.filter(|node| node.can_have_directory(key));
            node.is_some_and(|node| self.loader.own(&node.key).is_none())
        })
    }

    /// Returns whether the inner store has the attributes of a document in its cache.
    fn is_any_document_known(&self, node: &CopiedNode<'_>) -> bool {
        let mut documents = node.documents().iter();
        let inner = &self.loader.inner;
        documents.any(|document| {
            let key = node.key.join(document.name().as_bytes());
            key.is_ok_and(|key| inner.try_stat(&key).is_some())
        })
    }

    /// Compares the own documents of a node with consolidated metadata. `None` if they were not compared, because
    /// the comparison is not `needed` and takes a request.
    ///
    /// # Errors
    /// A document cannot be read for now.
    async fn compare(
        &self,
        node: &CopiedNode<'_>,
        needed: bool,
    ) -> Result<Option<OwnDocuments>, StoreError> {
        if let Some(own) = self.loader.own(&node.key) {
            return Ok(Some(own));
        }
        let documents = node.documents();
        if documents.is_empty() {
            return Ok(Some(OwnDocuments::Same));
        }
        if !needed && !self.is_any_document_known(node) {
            return Ok(None);
        }
        let since = Instant::now();
        let fetched = fetch(&*self.loader.inner, &node.key, documents).await;
        let metadata = self.loader.parse(&fetched, PrefixMetadata::new).await;
        let own = match &metadata.failure {
            // A program that copies the directory cannot read the document either, and fails.
            Some(error @ StoreError::Denied { .. }) => OwnDocuments::Denied(error.clone()),
            Some(error) => return Err(error.clone()),
            None => self.compared(node, &fetched, &metadata).await?,
        };
        if matches!(own, OwnDocuments::More(_) | OwnDocuments::Other(_)) {
            let node = &node.key;
            log::warn!(
                "{node}: the consolidated metadata are older than its documents, which decide"
            );
        }
        let compared = ComparedDocuments {
            own: own.clone(),
            versions: metadata.versions().to_vec(),
            since,
        };
        self.loader.cache.insert_own(&node.key, compared);
        Ok(Some(own))
    }

    async fn compared(
        &self,
        node: &CopiedNode<'_>,
        fetched: &[(Document, FetchedDocument)],
        own: &PrefixMetadata,
    ) -> Result<OwnDocuments, StoreError> {
        let copied = node.metadata.contents(&node.path);
        let main = node.documents();
        let named = node.metadata.documents(&node.path);
        let is_complete = own.documents("") == named.intersection(main);
        let has_contents = own.contents("") == copied;
        Ok(match (is_complete, has_contents, own.contents("")) {
            (true, true, _) if !own.is_consolidated() => OwnDocuments::Same,
            (true, true, _) => OwnDocuments::More(Arc::new(PrefixMetadata::new(fetched))),
            (true, false, NodeChildren::Array(_)) => {
                let listed = node.metadata.listed();
                let own = PrefixMetadata::new(fetched).of_copied_array(named, listed);
                OwnDocuments::Other(Arc::new(own))
            }
            _ => match self.load(&node.key, Depth::Listing).await {
                Ok(own) => OwnDocuments::Other(own),
                Err(error @ StoreError::Denied { .. }) => OwnDocuments::Denied(error),
                Err(error) => return Err(error),
            },
        })
    }

    /// Returns the meaning of a key by the documents of its node, instead of by the consolidated metadata at `at`.
    ///
    /// # Errors
    /// The documents cannot be read for now.
    pub(super) async fn by_own_documents(
        &self,
        key: &Key,
        at: &Key,
        copied: (Arc<PrefixMetadata>, KeyMeaning),
        depth: Depth,
    ) -> Result<ResolvedKey, StoreError> {
        let (metadata, meaning) = copied;
        let Some(node) = CopiedNode::of(key, at, &metadata) else {
            return Ok(ResolvedKey::Metadata(metadata, meaning));
        };
        let needed = depth == Depth::Listing && self.unchecked.are_documents_read();
        let own = self.compare(&node, needed).await?;
        match own {
            // A directory that was found before keeps its names, each of which turns out to be absent.
            Some(OwnDocuments::Other(own)) if own.is_node() || depth == Depth::Node => {
                let meaning = own.classify(below(key, &node.key), true);
                Ok(ResolvedKey::Metadata(own, meaning))
            }
            _ => Ok(ResolvedKey::Metadata(metadata, meaning)),
        }
    }

    /// Returns the attributes of a directory of chunks that the inner store does not have, and consolidated
    /// metadata do not name, if the document of the array names it.
    ///
    /// # Errors
    /// The document cannot be read for now.
    pub(super) async fn directory_by_document(
        &self,
        key: &Key,
    ) -> Result<Option<Stat>, StoreError> {
        let Some((at, metadata, _)) = self.copied_meaning(key) else {
            return Ok(None);
        };
        let node = CopiedNode::of(key, &at, &metadata);
        let Some(node) = node.filter(|node| node.can_have_directory(key)) else {
            return Ok(None);
        };
        let Some(OwnDocuments::Other(own)) = self.compare(&node, true).await? else {
            return Ok(None);
        };
        let meaning = own.classify(below(key, &node.key), true);
        let is_directory = matches!(meaning, KeyMeaning::ChunkDirectory(..));
        Ok(is_directory.then(|| own.stat(&meaning)))
    }

    /// Returns the comparison of the node at or above a prefix, if consolidated metadata name the node.
    pub(super) fn own_of(&self, prefix: &Key) -> Option<OwnDocuments> {
        let (at, metadata, _) = self.copied_meaning(prefix)?;
        let node = CopiedNode::of(prefix, &at, &metadata)?;
        self.loader.own(&node.key)
    }

    /// Returns what is recorded when a program reads a listing of `prefix` by `resolved`; `own` is the comparison before
    /// the names were assembled.
    pub(super) fn shown(
        &self,
        prefix: &Key,
        resolved: &ResolvedKey,
        own: Option<&OwnDocuments>,
    ) -> Option<Shown> {
        // With a short `--ttl`, those that gave the names can have expired.
        let (at, metadata, _) = self.last_meaning(prefix)?;
        let node = CopiedNode::of(prefix, &at, &metadata)?;
        let listed = match resolved {
            ResolvedKey::Metadata(listed, KeyMeaning::Node(path)) => listed.contents(path),
            ResolvedKey::Metadata(_, KeyMeaning::ChunkDirectory(names, _)) => {
                NodeChildren::Array(Arc::clone(names))
            }
            _ => metadata.contents(&node.path),
        };
        // The comparison may be newer than the names.
        let is_compared = match own {
            None => node.documents().is_empty(),
            Some(OwnDocuments::Other(own)) if own.is_node() => own.contents("") == listed,
            Some(OwnDocuments::Denied(_)) => false,
            Some(_) => metadata.contents(&node.path) == listed,
        };
        let not_compared = (!is_compared).then_some(listed);
        Some(Shown::new(
            &self.unchecked,
            node.key,
            prefix.clone(),
            not_compared,
        ))
    }

    /// Fails if the document at a key names keys that a listing without a comparison lacks, if the caller has read one,
    /// or else if other programs have.
    ///
    /// # Errors
    /// The document names other keys, once for each process; or it cannot be read for now, or is denied.
    pub(super) async fn check_listed(&self, key: &Key) -> Result<(), StoreError> {
        let directory = key.parent();
        if !is_document(key) || !self.unchecked.contains(&directory) {
            return Ok(());
        }
        let copied = self.copied_meaning(&directory);
        let node = copied
            .as_ref()
            .and_then(|(at, metadata, _)| CopiedNode::of(&directory, at, metadata));
        let (now, has_more) = match &node {
            None => (
                self.load(&directory, Depth::Node).await?.contents(""),
                false,
            ),
            Some(node) => match self.compare(node, true).await? {
                None | Some(OwnDocuments::Same) => (node.metadata.contents(&node.path), false),
                Some(OwnDocuments::Other(own)) => (own.contents(""), false),
                // Another document of the node can be read, and says nothing about chunks.
                Some(OwnDocuments::Denied(error)) if error.key() != key => return Ok(()),
                Some(OwnDocuments::Denied(error)) => return Err(error),
                Some(OwnDocuments::More(own)) => {
                    let listed = node.metadata.children(&node.path);
                    let has_more = own.children("").iter().any(|name| !listed.contains(name));
                    (node.metadata.contents(&node.path), has_more)
                }
            },
        };
        let listed = self.unchecked.take(&directory);
        match listed.is_none_or(|listed| listed == now) && !has_more {
            true => Ok(()),
            false => Err(StoreError::Unavailable {
                key: key.clone(),
                what: "the directory was listed by consolidated metadata that are older than this document, so the \
                       listing may lack keys: list the directory again, then open the document; consolidate the \
                       metadata to avoid this"
                    .into(),
            }),
        }
    }
}
