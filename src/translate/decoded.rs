//! Decoded chunks: chunks whose translation consists of all their elements, decoded.

use std::sync::Arc;

use async_trait::async_trait;

use super::unreadable_chunk::UnreadableChunk;
use super::{NodeView, Shared, hash};
use crate::array::{ArrayReader, not_a_chunk};
use crate::store::{Data, Key, Kind, Object, Stat, StoreError, Version};

/// A version of a chunk, which is decoded when it is read.
#[derive(Debug)]
struct DecodedChunk {
    reader: Arc<ArrayReader>,
    number: u64,
    /// The version of the stored chunk.
    source: Version,
    stat: Stat,
}

impl Shared {
    /// Returns the attributes of a decoded chunk, and the version of the stored chunk. A directory
    /// at the key of a chunk is an error.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the absence is proven, and the errors of the store.
    async fn decoded_stat(
        &self,
        node: &NodeView,
        reader: &ArrayReader,
        number: u64,
        source: &Key,
    ) -> Result<(Stat, Version), StoreError> {
        // Decoded arrays are those of N5, which has no consolidated metadata: the node is no copy.
        let stat = node.source.stat_stored(source).await.map_err(not_a_chunk)?;
        if stat.kind != Kind::Object {
            let key = source.clone();
            return Err(not_a_chunk(StoreError::NotAPrefix { key }));
        }
        let size_bytes = reader.chunk_bytes(number);
        let version = Version(hash(&[stat.version.0, node.version, size_bytes]));
        let decoded = Stat {
            size_bytes,
            version,
            ..stat
        };
        Ok((decoded, stat.version))
    }

    /// Opens a decoded chunk. A chunk that can never be read becomes an object whose reads fail,
    /// since programs treat a chunk that cannot be opened as absent.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the absence is proven, and the errors of the store.
    pub(super) async fn open_decoded(
        &self,
        node: &NodeView,
        array: &Key,
        reader: &Arc<ArrayReader>,
        number: u64,
    ) -> Result<Arc<dyn Object>, StoreError> {
        let absent = || StoreError::NotFound { key: array.clone() };
        let (source, _) = Self::source_key(node, array, number).ok_or_else(absent)?;
        match self.decoded_stat(node, reader, number, &source).await {
            Ok((stat, version)) => Ok(Arc::new(DecodedChunk {
                reader: Arc::clone(reader),
                number,
                source: version,
                stat,
            })),
            Err(error @ StoreError::Corrupt { .. }) => {
                let stat = self.unreadable(node, &source, &error).await?;
                Ok(Arc::new(UnreadableChunk { stat, error }))
            }
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Object for DecodedChunk {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        self.reader
            .read_chunk(self.number, self.source, offset, size_bytes)
            .await
    }

    fn is_parallel(&self) -> bool {
        true
    }
}
