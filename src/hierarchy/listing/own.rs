//! The own documents of nodes that consolidated metadata name.
//!
//! Consolidated metadata are a copy of these documents, and may be older. The own documents decide, because the
//! mount serves them. They are compared with the copy
//! - if the inner store has their attributes in its cache, so that the answer agrees with what was served;
//! - before a directory is listed, if programs look up documents and not only names. A program that copies the
//!   directory reads its document anyway, so the comparison costs no request that is not needed later.
//!
//! A program that has opened a document may copy its node, and would miss the keys that an older copy lacks. So for a
//! day after it was opened, the node is not listed by the copy while the document is denied or absent: that is an error.
//!
//! A program that reads only names, such as `find`, takes no request for each node. What such programs have listed is
//! recorded (`unchecked`).

use std::sync::Arc;

use super::documents::{Documents, FetchedDocument, fetch};
use super::loader::Depth;
use super::metadata::{KeyMeaning, NodeChildren, PrefixMetadata};
use super::resolve::{Resolved, ResolvedKey};
use super::unchecked::Shown;
use super::{MetadataListingStore, below};
use crate::clock::Instant;
use crate::hierarchy::document::{Document, is_document};
use crate::store::{Key, StoreError, Version};

/// What the own documents of a node say beside the consolidated metadata that name it.
#[derive(Debug, Clone)]
pub(super) enum OwnDocuments {
    /// The consolidated metadata name the same keys.
    Same,
    /// A group with consolidated metadata of its own, whose nodes count too.
    More(Arc<PrefixMetadata>),
    /// The node has other keys, or no documents.
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

    /// Returns the metadata that decide instead of the consolidated ones.
    pub(super) fn instead(&self) -> Option<&Arc<PrefixMetadata>> {
        match self {
            Self::Other(own) => Some(own),
            Self::Same | Self::More(_) | Self::Denied(_) => None,
        }
    }

    /// Returns whether the node has no documents.
    pub(super) fn is_absent(&self) -> bool {
        self.instead().is_some_and(|own| !own.is_node())
    }

    /// Returns the failure that prevented the comparison.
    pub(super) fn denied(&self) -> Option<&StoreError> {
        match self {
            Self::Denied(error) => Some(error),
            Self::Same | Self::More(_) | Self::Other(_) => None,
        }
    }
}

/// A comparison, with the versions of the documents (`None` for a document that did not exist), and the time when
/// their fetch began.
#[derive(Debug, Clone)]
pub(super) struct ComparedDocuments {
    /// What the consolidated metadata said.
    copied: NodeChildren,
    pub(super) own: OwnDocuments,
    pub(super) versions: Vec<(Document, Option<Version>)>,
    pub(super) since: Instant,
}

/// A node that consolidated metadata name.
#[derive(Debug)]
pub(super) struct CopiedNode {
    metadata: Arc<PrefixMetadata>,
    /// The path of the node below the prefix with the consolidated metadata.
    path: String,
    pub(super) key: Key,
}

/// The node at or above a key that was resolved by consolidated metadata.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) node: CopiedNode,
    /// The comparison that decided, if there was one.
    pub(super) own: Option<OwnDocuments>,
}

impl CopiedNode {
    /// Returns the node at or above a key, if consolidated metadata at the prefix `at` name it below the prefix.
    pub(super) fn of(key: &Key, at: &Key, metadata: &Arc<PrefixMetadata>) -> Option<Self> {
        let path = metadata.copied_node(below(key, at))?.to_owned();
        let key = at.join_key(&Key::new(path.as_bytes()).ok()?);
        Some(Self {
            metadata: Arc::clone(metadata),
            path,
            key,
        })
    }

    /// Returns the kind of children that the consolidated metadata name.
    fn contents(&self) -> NodeChildren {
        self.metadata.contents(&self.path)
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

    /// Returns whether the document at a key is one of those that are compared.
    fn compares(&self, key: &Key) -> bool {
        let document = Document::from_key(key).filter(|_| key.parent() == self.key);
        document.is_some_and(|document| self.documents().contains(document))
    }

    /// Returns whether the documents that are compared and that the consolidated metadata name were all fetched. One
    /// that they do not name can be denied because it does not exist.
    fn has_named(&self, own: &PrefixMetadata) -> bool {
        let named = self.metadata.documents(&self.path);
        let compared = named.intersection(self.documents());
        compared.difference(own.documents("")).is_empty()
    }

    /// Returns whether the array can have a directory of chunks at a key.
    fn can_have_directory(&self, key: &Key) -> bool {
        let below = below(key, &self.key);
        match self.contents() {
            NodeChildren::Array(names) => {
                !below.is_empty() && !is_document(key) && names.can_have_directory(below)
            }
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
        own.is_some_and(|compared| compared.own.is_absent())
    }

    /// Returns the cached comparison of a node. That with other consolidated metadata says only what its own documents
    /// are, unless they were the same.
    pub(super) fn known(&self, node: &CopiedNode) -> Option<OwnDocuments> {
        let compared = self.loader.own(&node.key)?;
        match compared.own {
            own @ (OwnDocuments::Same | OwnDocuments::More(_)) => {
                (compared.copied == node.contents()).then_some(own)
            }
            own => Some(own),
        }
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
        let own = self.known(&node);
        match own.as_ref().map(OwnDocuments::instead) {
            Some(Some(own)) => {
                let meaning = own.classify(below(key, &node.key), true);
                Some(Some((Arc::clone(own), meaning)))
            }
            Some(None) => Some(Some((metadata, meaning))),
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
            let own = node.map(|node| self.known(&node));
            own.is_some_and(|own| own.is_none_or(|own| own.denied().is_some()))
        })
    }

    /// Returns whether the inner store has the attributes of a document in its cache.
    fn is_any_document_known(&self, node: &CopiedNode) -> bool {
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
        node: &CopiedNode,
        needed: bool,
    ) -> Result<Option<OwnDocuments>, StoreError> {
        if let Some(own) = self.known(node) {
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
            Some(error @ StoreError::Denied { .. }) if !node.has_named(&metadata) => {
                OwnDocuments::Denied(error.clone())
            }
            None | Some(StoreError::Denied { .. }) => {
                self.compared(node, &fetched, &metadata).await?
            }
            Some(error) => return Err(error.clone()),
        };
        if own.denied().is_none() && !matches!(own, OwnDocuments::Same) {
            let node = &node.key;
            log::warn!(
                "{node}: the consolidated metadata are older than its documents, which decide"
            );
        }
        let mut versions = metadata.versions().to_vec();
        // The comparison ends when one that is denied can be read.
        let failed = fetched.iter().filter_map(|(document, fetched)| {
            matches!(fetched, FetchedDocument::Failed(_)).then_some((*document, None))
        });
        versions.extend(failed);
        let compared = ComparedDocuments {
            copied: node.contents(),
            own: own.clone(),
            versions,
            since,
        };
        self.loader.cache.insert_own(&node.key, compared);
        Ok(Some(own))
    }

    async fn compared(
        &self,
        node: &CopiedNode,
        fetched: &[(Document, FetchedDocument)],
        own: &PrefixMetadata,
    ) -> Result<OwnDocuments, StoreError> {
        let copied = node.contents();
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
    /// The documents cannot be read for now. The key is listed, programs have opened a document of the node, and it is
    /// denied, or removed ([`StoreError::NotFound`]): they may copy the node, and would miss what the document names.
    pub(super) async fn by_own_documents(
        &self,
        key: &Key,
        at: &Key,
        copied: (Arc<PrefixMetadata>, KeyMeaning),
        depth: Depth,
    ) -> Result<Resolved, StoreError> {
        let (metadata, meaning) = copied;
        let Some(node) = CopiedNode::of(key, at, &metadata) else {
            return Ok(ResolvedKey::Metadata(metadata, meaning).into());
        };
        let is_listed = depth == Depth::Listing;
        let is_read = is_listed && self.unchecked.is_document_read(&node.key);
        let is_directory = || meaning == KeyMeaning::InnerKey && node.can_have_directory(key);
        let needed =
            is_listed && (is_read || self.unchecked.are_documents_read() || is_directory());
        let own = self.compare(&node, needed).await?;
        let found = match (&own, own.as_ref().and_then(OwnDocuments::instead)) {
            (Some(OwnDocuments::Denied(error)), _) if is_read => return Err(error.clone()),
            (_, Some(own)) if !own.is_node() && is_read => {
                ResolvedKey::Inner(self.inner.stat(key).await?)
            }
            // A directory that was found before keeps its names, each of which turns out to be absent.
            (_, Some(own)) if !own.is_node() && is_listed => {
                ResolvedKey::Metadata(metadata, meaning)
            }
            (_, Some(own)) => {
                let meaning = own.classify(below(key, &node.key), true);
                ResolvedKey::Metadata(Arc::clone(own), meaning)
            }
            _ => ResolvedKey::Metadata(metadata, meaning),
        };
        let copied = Some(Copied { node, own });
        Ok(Resolved { found, copied })
    }

    /// Returns the directory of chunks at a key that the inner store does not have, and consolidated metadata do not
    /// name, if the document of the array names it.
    ///
    /// # Errors
    /// The document cannot be read for now, or is denied.
    pub(super) async fn directory_by_document(
        &self,
        key: &Key,
        copied: Option<Copied>,
    ) -> Result<Option<Resolved>, StoreError> {
        let copied = copied.filter(|copied| copied.node.can_have_directory(key));
        let Some(Copied { node, own }) = copied else {
            return Ok(None);
        };
        let own = match own {
            None => self.compare(&node, true).await?,
            own => own,
        };
        if let Some(error) = own.as_ref().and_then(OwnDocuments::denied) {
            return Err(error.clone());
        }
        let instead = own.as_ref().and_then(OwnDocuments::instead);
        let Some(metadata) = instead.map(Arc::clone) else {
            return Ok(None);
        };
        let meaning = metadata.classify(below(key, &node.key), true);
        let is_directory = matches!(meaning, KeyMeaning::ChunkDirectory(..));
        Ok(is_directory.then_some(Resolved {
            found: ResolvedKey::Metadata(metadata, meaning),
            copied: Some(Copied { node, own }),
        }))
    }

    /// Returns what is recorded when a program reads a listing of `prefix` by `resolved`.
    pub(super) fn shown(&self, prefix: &Key, resolved: &Resolved) -> Option<Shown> {
        let Copied { node, own } = resolved.copied.as_ref()?;
        let listed = match &resolved.found {
            ResolvedKey::Metadata(listed, KeyMeaning::Node(path)) => listed.contents(path),
            ResolvedKey::Metadata(_, KeyMeaning::ChunkDirectory(names, _)) => {
                NodeChildren::Array(Arc::clone(names))
            }
            _ => node.contents(),
        };
        let is_compared = match own {
            None => node.documents().is_empty(),
            Some(own) => !own.is_absent() && own.denied().is_none(),
        };
        let not_compared = (!is_compared).then_some(listed);
        Some(Shown::new(
            &self.unchecked,
            node.key.clone(),
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
        // With a short `--ttl`, those that gave the names can have expired.
        let copied = self.last_meaning(&directory);
        let node = copied.and_then(|(at, metadata, _)| CopiedNode::of(&directory, &at, &metadata));
        let (now, has_more) = match &node {
            None => (
                self.load(&directory, Depth::Node).await?.contents(""),
                false,
            ),
            Some(node) => match self.compare(node, true).await? {
                // Another document of the node can be read, and says nothing about chunks.
                Some(OwnDocuments::Denied(_)) if !node.compares(key) => return Ok(()),
                Some(OwnDocuments::Denied(error)) => return Err(error),
                None | Some(OwnDocuments::Same) => (node.contents(), false),
                Some(OwnDocuments::Other(own)) => (own.contents(""), false),
                Some(OwnDocuments::More(own)) => {
                    let listed = node.metadata.children(&node.path);
                    let has_more = own.children("").iter().any(|name| !listed.contains(name));
                    (node.contents(), has_more)
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
