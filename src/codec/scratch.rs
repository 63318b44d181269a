//! Buffers between two codecs, with a pool per thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::{DecodeError, part, part_mut};

/// The number of a thread's pooled buffers. Small chunks decode without allocation, and idle threads hold little
/// memory.
const POOLED_BUFFERS: usize = 2;
/// The maximum size of a pooled buffer in bytes.
static POOLED_BYTES: AtomicUsize = AtomicUsize::new(4 << 20);

/// Sets the memory that each thread keeps in its pool, in bytes.
pub fn keep_scratch(thread_bytes: usize) {
    let most = (thread_bytes / POOLED_BUFFERS).clamp(64 << 10, 4 << 20);
    POOLED_BYTES.store(most, Ordering::Relaxed);
}

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer with arbitrary initial content; dropping it returns it to the thread's pool.
#[derive(Debug)]
pub(super) struct Scratch {
    buffer: Vec<u8>,
    len: usize,
}

impl Scratch {
    /// # Errors
    /// The system is out of memory.
    pub(super) fn new(len: usize) -> Result<Self, DecodeError> {
        let mut buffer = POOL
            .with_borrow_mut(|pool| {
                let fit = pool.iter().position(|b| b.capacity() >= len);
                fit.map(|i| pool.swap_remove(i))
            })
            .unwrap_or_default();
        if buffer.len() < len {
            // The system zeroes pages on first access; most pages of an upper limit are never touched.
            buffer = bytemuck::try_zeroed_vec(len).map_err(|()| DecodeError::Memory {
                needed: len,
                limit: 0,
            })?;
        }
        Ok(Self { buffer, len })
    }

    pub(super) fn bytes(&self) -> Result<&[u8], DecodeError> {
        part(&self.buffer, 0..self.len)
    }

    pub(super) fn bytes_mut(&mut self) -> Result<&mut [u8], DecodeError> {
        part_mut(&mut self.buffer, 0..self.len)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if (1..=POOLED_BYTES.load(Ordering::Relaxed)).contains(&self.buffer.capacity()) {
            let buffer = std::mem::take(&mut self.buffer);
            // At the end of the thread its pool no longer exists; the buffer is then freed.
            let _ = POOL.try_with(|pool| {
                let mut pool = pool.borrow_mut();
                if pool.len() == POOLED_BUFFERS {
                    pool.remove(0);
                }
                pool.push(buffer);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_a_huge_one_is_refused() {
        let first = Scratch::new(1000).unwrap().bytes().unwrap().as_ptr();
        let second = Scratch::new(500).unwrap();
        assert_eq!(second.bytes().unwrap().as_ptr(), first);
        assert!(Scratch::new(usize::MAX / 2).is_err());
        assert_eq!(Scratch::new(0).unwrap().bytes_mut().unwrap(), b"");
    }
}
