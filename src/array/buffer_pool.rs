//! A pool of buffers: reused memory is faster than newly allocated memory.

use crate::sync::{Mutex, MutexGuard};

/// A few free buffers.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Mutex<FreeBuffers>);

#[derive(Debug, Default)]
struct FreeBuffers {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// The largest total size of the free buffers in bytes, and their largest number.
const KEPT_BYTES: usize = 32 << 20;
const KEPT: usize = 64;

impl BufferPool {
    fn lock(&self) -> MutexGuard<'_, FreeBuffers> {
        self.0.lock()
    }

    /// Returns a buffer of exactly `bytes` with arbitrary content, or `None` if allocation fails.
    pub(super) fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut free = self.lock();
        if let Some(place) = free
            .buffers
            .iter()
            .rposition(|buffer| buffer.len() == bytes)
        {
            free.bytes -= bytes;
            return Some(free.buffers.swap_remove(place));
        }
        drop(free);
        bytemuck::try_zeroed_vec(bytes).ok()
    }

    /// Returns a buffer to the pool.
    pub(super) fn give(&self, buffer: Vec<u8>) {
        let mut free = self.lock();
        if buffer.len() > KEPT_BYTES / 2 || buffer.is_empty() {
            return;
        }
        free.bytes += buffer.len();
        free.buffers.push(buffer);
        while free.bytes > KEPT_BYTES || free.buffers.len() > KEPT {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_for_its_own_size_only() {
        let buffers = BufferPool::default();
        buffers.give(vec![7; 100]);
        assert_eq!(buffers.take(99).unwrap(), vec![0; 99]);
        assert_eq!(buffers.take(100).unwrap(), vec![7; 100]);
        assert_eq!(buffers.take(100).unwrap(), vec![0; 100]);
        assert!(buffers.take(isize::MAX as usize).is_none());
    }

    #[test]
    fn the_pool_holds_a_limited_number_of_buffers() {
        let buffers = BufferPool::default();
        for _ in 0..100 {
            buffers.give(vec![1; 1 << 20]);
        }
        assert_eq!(buffers.lock().buffers.len(), 32);
    }
}
