//! The document of an array whose translation is made from a copy in consolidated metadata.
//!
//! A copy may be older than the array. Chunks of an array that was written again with another data type, chunk
//! shape, key encoding, fill value or codecs would be wrong under the copy, so they fail. An array that only grew or
//! shrank is read in the shape of its copy, as by readers of the source that use consolidated metadata.

use super::{NodeView, Shared};
use crate::hierarchy::{Document, NodeDocuments, read_document};
use crate::store::{DocumentStore, Key, StoreError, Version};
use crate::zarr::{Documents, Node};

/// The document of an array, and its version.
pub(super) type DocumentVersion = (Key, Version);

impl NodeDocuments {
    /// Returns whether the document that describes the array at a key is that of another node.
    pub(super) fn is_copy(&self, key: &Key) -> bool {
        let other = |(document, _): &DocumentVersion| document.parent() != *key;
        self.array.as_ref().is_some_and(other)
    }
}

impl Shared {
    /// Returns the source of the chunks of the array at a key. If `node` was made from a copy of the document, the
    /// array's own document is compared with it at the first call, with one request, and the result is kept.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the copy describes other chunks, and the errors of the store.
    pub(super) async fn source_of<'a>(
        &self,
        key: &Key,
        node: &'a NodeView,
    ) -> Result<&'a DocumentStore, StoreError> {
        if !node.is_copy {
            return Ok(&node.source);
        }
        if node.compared.get().is_none() {
            let compared = match self.compare_with_copy(key, node).await {
                Ok(own) => Ok(self.source(Some(own))),
                // A stale copy stays stale as long as the node is cached.
                Err(error @ StoreError::Stale { .. }) => Err(error),
                Err(error) => return Err(error),
            };
            // Another read may have been faster.
            let _ = node.compared.set(compared);
        }
        match node.compared.get() {
            Some(Ok(source)) => Ok(source),
            Some(Err(error)) => Err(error.clone()),
            None => Err(StoreError::internal("a comparison that is not kept")),
        }
    }

    async fn compare_with_copy(
        &self,
        key: &Key,
        node: &NodeView,
    ) -> Result<DocumentVersion, StoreError> {
        let stale = |what: &str| StoreError::Stale {
            key: key.clone(),
            what: format!(
                "the consolidated metadata are stale: {what}; consolidate the metadata of the source again, or read \
                 the array outside of {}",
                self.target.name()
            ),
        };
        let copied = self
            .cached_documents_at(key)
            .filter(|documents| documents.version == node.version);
        let Some(copied) = copied else {
            // They have expired or changed since the node was made from them.
            self.nodes.lock().remove(key);
            return Err(StoreError::Stale {
                key: key.clone(),
                what: "the consolidated metadata have changed".into(),
            });
        };
        let [zarr_json, ..] = &copied.texts;
        let document = match zarr_json {
            Some(_) => Document::ZarrJson,
            None => Document::Zarray,
        };
        let Some(own) = read_document(&*self.store, key, document).await? else {
            return Err(stale("the array is not there any more"));
        };
        let text = own.text?;
        let mut documents = Documents::default();
        match document {
            Document::ZarrJson => documents.zarr_json = Some(&text),
            _ => documents.zarray = Some(&text),
        }
        let [own_node, copy] = [documents, copied.documents()].map(|documents| documents.node());
        let [own_node, copy] = [own_node, copy].map(|node| node.and_then(|node| node.node.ok()));
        match (own_node, copy) {
            (Some(Node::Array(own_array)), Some(Node::Array(copy)))
                if own_array.has_chunks_like(&copy) =>
            {
                Ok((own.key, own.version))
            }
            _ => Err(stale("the array was written again, with other chunks")),
        }
    }
}
