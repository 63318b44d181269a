//! The content of pictures, which is rendered as a whole.

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use super::{Block, Picture};
use crate::array::{ArrayReader, ServedVersions};
use crate::store::{StoreError, in_memory, part};
use crate::view::file::layout::SegmentSlice;
use crate::view::file::segment_content::{RenderedContent, SegmentContent, source};

/// The maximum number of parallel reads.
const PARALLEL_READS: usize = 8;

impl SegmentContent for Picture {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.body_bytes())
    }

    fn memory_bytes(&self) -> u64 {
        size_of::<Self>() as u64
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        // Scale, missing values and directions may come from other nodes than the array.
        hasher.write(format!("{self:?}").as_bytes());
    }

    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>> {
        Some(SegmentSlice::Rendered(self, range))
    }

    fn whole_read_bytes(&self) -> Option<u64> {
        // The samples and a copy of them; rows, image data and body.
        Some(self.sample_count() * (2 * size_of::<f64>() as u64) + 3 * self.body_bytes())
    }
}

#[async_trait]
impl RenderedContent for Picture {
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        if range != (0..self.body_bytes()) {
            return Err(StoreError::internal("a part of a picture"));
        }
        let samples = samples(self, source(sources, 0)?, served).await?;
        let body = self.body(&samples);
        let body = body.filter(|body| body.len() == target.len());
        let broken = || StoreError::internal("a picture that contradicts its layout");
        target.copy_from_slice(&body.ok_or_else(broken)?);
        Ok(())
    }
}

/// Reads the samples of a picture, in the order of their indices.
async fn samples(
    picture: &Picture,
    reader: &Arc<ArrayReader>,
    served: Option<&ServedVersions>,
) -> Result<Vec<f64>, StoreError> {
    let blocks = picture.blocks(reader);
    let blocks = blocks.ok_or_else(|| StoreError::internal("a picture beyond its array"))?;
    let mut samples = vec![f64::NAN; in_memory(picture.sample_count())?];
    let element_bytes = picture.element_bytes();
    let mut reads = stream::iter(blocks.into_iter().map(|block| async move {
        let size = in_memory(block.size_bytes(element_bytes as u64))?;
        let read = reader.read(block.extent, block.offset, size, served);
        Ok::<_, StoreError>((block, read.await?))
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
