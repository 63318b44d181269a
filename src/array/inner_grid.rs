//! Inner chunks, counted over the whole array and inside their shards.

use crate::codec::Sharding;

/// Inner chunks, counted over the whole array and inside their shards.
#[derive(Debug)]
pub(super) struct InnerGrid {
    pub(super) shape: Vec<u64>,
    /// Inner chunks of the array along each axis.
    pub(super) counts: Vec<u64>,
    /// Inner chunks of a shard along each axis.
    per_shard: Vec<u64>,
}

impl InnerGrid {
    /// None if they are too many to be counted.
    pub(super) fn new(shape: &[u64], shard: &[u64], sharding: &Sharding) -> Option<Self> {
        let inner = sharding.inner_chunk_shape();
        let counts: Vec<u64> = shape
            .iter()
            .zip(inner)
            .map(|(length, inner)| length.div_ceil((*inner).max(1)))
            .collect();
        let per_shard: Vec<u64> = shard
            .iter()
            .zip(inner)
            .map(|(shard, inner)| shard / (*inner).max(1))
            .collect();
        counts
            .iter()
            .try_fold(1_u64, |n, count| n.checked_mul(*count))?;
        Some(Self {
            shape: inner.to_vec(),
            counts,
            per_shard,
        })
    }

    /// The chunk of an inner chunk, and its number inside; both in C order. `chunks` are the
    /// chunks of the array along each axis.
    pub(super) fn split(&self, number: u64, chunks: &[u64]) -> (u64, u64) {
        let (mut left, mut chunk, mut inner) = (number, 0, 0);
        let (mut chunk_stride, mut inner_stride) = (1, 1);
        let axes = self.counts.iter().zip(&self.per_shard).zip(chunks);
        for ((count, per_shard), chunks) in axes.rev() {
            let at = left % (*count).max(1);
            left /= (*count).max(1);
            chunk += at / per_shard * chunk_stride;
            inner += at % per_shard * inner_stride;
            chunk_stride *= chunks;
            inner_stride *= per_shard;
        }
        (chunk, inner)
    }
}
