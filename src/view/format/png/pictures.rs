//! The content of pictures, rendered as a whole and cached.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt, stream};

use super::{Block, Picture};
use crate::array::{ArrayReader, ServedVersions};
use crate::runtime::leave_session_thread;
use crate::store::{StoreError, in_memory, part};
use crate::view::content::CachedFile;
use crate::view::nodes::Nodes;

/// The maximum number of parallel reads.
const PARALLEL_READS: usize = 8;

impl Nodes {
    /// Returns a number that identifies the content of an open picture in the cache.
    pub(in crate::view) fn new_picture_id(&self) -> u64 {
        self.picture_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the content of a picture, if it is cached.
    pub(in crate::view) fn cached_picture(&self, id: u64) -> Option<Arc<Vec<u8>>> {
        self.pictures.lock().get(&id).map(Arc::clone)
    }

    /// Returns the content of a picture: from the cache, or rendered once for all callers. `served` has the
    /// versions of the chunks that the file was served from, if the store is mutable.
    ///
    /// # Errors
    /// As [`ArrayReader::read`]; or the memory limit leaves no memory for the samples.
    pub(in crate::view) async fn picture(
        self: &Arc<Self>,
        id: u64,
        file: &Arc<CachedFile>,
        served: Option<&Arc<ServedVersions>>,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(picture) = self.cached_picture(id) {
            return Ok(picture);
        }
        let (nodes, file, served) = (Arc::clone(self), Arc::clone(file), served.map(Arc::clone));
        let load = move || async move {
            leave_session_thread().await;
            let content = Arc::new(nodes.render_picture(&file, served).await?);
            let weight = content.len() as u64;
            let evicted = nodes
                .pictures
                .lock()
                .insert(id, Arc::clone(&content), weight);
            drop(evicted);
            Ok(content)
        };
        let panicked = StoreError::internal("a panic while a picture was rendered");
        self.picture_loads.run(id, load, panicked).await
    }

    async fn render_picture(
        &self,
        file: &CachedFile,
        served: Option<Arc<ServedVersions>>,
    ) -> Result<Vec<u8>, StoreError> {
        let broken = || StoreError::internal("a picture that contradicts its layout");
        let layout = &file.file.layout;
        let picture = layout.picture().ok_or_else(broken)?;
        let reader = file.file.sources.first().ok_or_else(broken)?;
        // The samples and a copy of them; rows, image data and file.
        let count = picture.sample_count();
        let bytes = count * (2 * size_of::<f64>() as u64) + 4 * layout.size_bytes();
        let _memory = self.engine().reserve(reader.key(), bytes).await?;
        let samples = samples(picture, reader, served).await?;
        let mut content: Vec<u8> = layout.headers().flatten().copied().collect();
        content.extend(picture.body(&samples).ok_or_else(broken)?);
        match content.len() as u64 == layout.size_bytes() {
            true => Ok(content),
            false => Err(broken()),
        }
    }
}

/// Reads the samples of a picture, in the order of their indices.
async fn samples(
    picture: &Picture,
    reader: &Arc<ArrayReader>,
    served: Option<Arc<ServedVersions>>,
) -> Result<Vec<f64>, StoreError> {
    let blocks = picture.blocks(reader);
    let blocks = blocks.ok_or_else(|| StoreError::internal("a picture beyond its array"))?;
    let mut samples = vec![f64::NAN; in_memory(picture.sample_count())?];
    let element_bytes = picture.element_bytes();
    let mut reads = stream::iter(blocks.into_iter().map(|block| {
        let (reader, served) = (Arc::clone(reader), served.clone());
        async move {
            let size = in_memory(block.size_bytes(element_bytes as u64))?;
            let read = reader.read(block.extent, block.offset, size, served.as_deref());
            Ok::<_, StoreError>((block, read.await?))
        }
    }))
    .buffer_unordered(PARALLEL_READS);
    while let Some(read) = reads.next().await {
        let (block, data) = read?;
        put(
            picture,
            &block,
            data.bytes(&[])?,
            element_bytes,
            &mut samples,
        )?;
    }
    Ok(samples)
}

/// Copies the samples of a block to their indices in the picture.
fn put(
    picture: &Picture,
    block: &Block,
    bytes: &[u8],
    element_bytes: usize,
    samples: &mut [f64],
) -> Result<(), StoreError> {
    for (place, offset) in block.samples() {
        let start = in_memory(offset)?;
        let element = part(bytes, start..start.saturating_add(element_bytes))?;
        let value = picture.sample(element);
        let value = value.ok_or_else(|| StoreError::internal("an element that is no number"))?;
        let target = samples.get_mut(in_memory(picture.place(place))?);
        *target.ok_or_else(|| StoreError::internal("a sample outside its picture"))? = value;
    }
    Ok(())
}
