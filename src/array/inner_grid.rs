//! The numbering of inner chunks in the whole array and in their shards.

use crate::codec::Sharding;

/// The grid of inner chunks, in the whole array and in a shard.
#[derive(Debug)]
pub(super) struct InnerGrid {
    pub(super) shape: Vec<u64>,
    /// The number of inner chunks of the array along each axis.
    pub(super) counts: Vec<u64>,
    /// The number of inner chunks of a shard along each axis.
    per_shard: Vec<u64>,
}

impl InnerGrid {
    /// Creates the grid; `None` if the number of inner chunks overflows.
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

    /// Returns the chunk of an inner chunk and its number in the chunk, both in C order. `chunks`
    /// is the number of chunks of the array along each axis.
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
