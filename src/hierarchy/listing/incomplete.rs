//! Prefixes whose names neither metadata nor a listing give completely.

use super::MetadataListingStore;
use super::loader::Depth;
use super::metadata::{KeyMeaning, NodeChildren, PrefixMetadata};
use super::resolve::ResolvedKey;
use crate::store::{IncompleteListing, Key, Kind, StoreError};

impl MetadataListingStore {
    /// Returns why a listing of a prefix may lack names, or may have names of keys that do not
    /// exist. `None` if the metadata name all keys.
    ///
    /// # Errors
    /// A failure that leaves open whether the metadata name all keys.
    pub(super) async fn find_incomplete(
        &self,
        prefix: &Key,
    ) -> Result<Option<IncompleteListing>, StoreError> {
        let nearest = self.resolve(prefix, Depth::Listing).await?;
        let (metadata, meaning) = match self.with_consolidated(prefix, nearest).await?.found {
            ResolvedKey::Metadata(metadata, meaning) => (metadata, meaning),
            ResolvedKey::Inner(stat) if stat.kind == Kind::Object => return Ok(None),
            ResolvedKey::Inner(_) => return self.incomplete_children(prefix).await.map(Some),
        };
        let is_understood = match meaning {
            KeyMeaning::ChunkDirectory(..) => true,
            KeyMeaning::Node(path) => match metadata.contents(&path) {
                NodeChildren::Array(_) => true,
                NodeChildren::UnknownChunks => false,
                NodeChildren::Group | NodeChildren::Unknown if metadata.is_consolidated() => {
                    return Ok(None);
                }
                NodeChildren::Group | NodeChildren::Unknown => {
                    return self.incomplete_children(prefix).await.map(Some);
                }
            },
            KeyMeaning::AbsentDocument => return Ok(None),
            // Names that the metadata do not explain are those of the inner store.
            KeyMeaning::Unknown | KeyMeaning::Undecided(_) | KeyMeaning::InnerKey => {
                return match self.inner.stat(prefix).await?.kind {
                    Kind::Object => Ok(None),
                    Kind::Prefix => self.incomplete_children(prefix).await.map(Some),
                };
            }
        };
        let chunks = self.incomplete_chunks(prefix, &metadata, is_understood);
        Ok(Some(chunks.await))
    }

    async fn incomplete_chunks(
        &self,
        prefix: &Key,
        metadata: &PrefixMetadata,
        is_understood: bool,
    ) -> IncompleteListing {
        // If consolidated metadata describe an array, the inner store does not list it.
        let uses_inner = !metadata.is_consolidated() || !is_understood;
        let is_listed = uses_inner && matches!(self.list_inner(prefix).await, Ok(Some(_)));
        let what = match (is_listed, is_understood) {
            (true, _) => "chunks: the server's listing may lack some; names can be opened",
            (false, true) => {
                "chunks: all that the shape has room for are listed; whether one is there is known \
                 when it is opened"
            }
            (false, false) => {
                "chunks: the chunk grid is not understood; names that are known otherwise can be \
                 opened"
            }
        };
        IncompleteListing {
            is_unlisted: !is_listed,
            what: what.into(),
        }
    }

    async fn incomplete_children(&self, prefix: &Key) -> Result<IncompleteListing, StoreError> {
        // Each format of a group asks this.
        let cache = &self.loader.cache;
        let is_listed = match cache.is_listed(prefix) {
            Some(is_listed) => is_listed,
            None => {
                let is_listed = self.list_inner(prefix).await?.is_some();
                cache.insert_is_listed(prefix, is_listed);
                is_listed
            }
        };
        let (is_unlisted, why) = match is_listed {
            true => (false, "the server's listing may lack some"),
            false => (true, "the server lists nothing"),
        };
        Ok(IncompleteListing {
            is_unlisted,
            what: format!(
                "children: {why} and there are no consolidated metadata; names can be opened"
            ),
        })
    }
}
