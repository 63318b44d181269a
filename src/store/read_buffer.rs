//! Buffers for the bytes of reads. Each thread reuses its own, because new memory is slower than used memory.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::BUFFER_HEADROOM_BYTES;

/// The largest buffer that a thread keeps in bytes: the longest read of the kernel and the headroom.
const KEPT_BYTES: usize = (1 << 20) + BUFFER_HEADROOM_BYTES;
/// The largest number of buffers that a thread keeps. A conversion needs two.
const KEPT: usize = 2;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of the bytes of a read. The thread that drops it uses its memory for its next reads.
#[derive(Debug)]
pub struct ReadBuffer {
    /// At least `length` bytes.
    memory: Vec<u8>,
    length: usize,
}

impl ReadBuffer {
    /// Returns a buffer of `length` bytes with arbitrary content, or `None` if allocation fails.
    pub fn new(length: usize) -> Option<Self> {
        let used = FREE.with_borrow_mut(|free| {
            let place = free.iter().rposition(|memory| memory.len() >= length)?;
            Some(free.swap_remove(place))
        });
        let memory = match used {
            Some(memory) => memory,
            None => bytemuck::try_zeroed_vec(length).ok()?,
        };
        Some(Self { memory, length })
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(..self.length).unwrap_or_default()
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(..self.length).unwrap_or_default()
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.is_empty() || memory.len() > KEPT_BYTES {
            return;
        }
        // Fails if the thread ends.
        let _ = FREE.try_with(|free| {
            let Ok(mut free) = free.try_borrow_mut() else {
                return;
            };
            free.push(memory);
            if free.len() > KEPT {
                let lengths = free
                    .iter()
                    .enumerate()
                    .map(|(place, memory)| (memory.len(), place));
                if let Some((_, shortest)) = lengths.min() {
                    free.swap_remove(shortest);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Vec<usize> {
        FREE.with_borrow(|free| free.iter().map(Vec::len).collect())
    }

    #[test]
    fn a_thread_keeps_its_longest_buffers_and_uses_them_for_shorter_reads() {
        let buffers: Vec<_> = [10, 30, 20]
            .map(|length| ReadBuffer::new(length).unwrap())
            .into();
        assert_eq!(buffers.iter().map(|buffer| buffer.len()).max(), Some(30));
        drop(buffers);
        let mut lengths = kept();
        lengths.sort_unstable();
        assert_eq!(lengths, [20, 30]);
        let short = ReadBuffer::new(5).unwrap();
        assert_eq!((short.len(), kept().len()), (5, 1));
        drop(short);
        drop(ReadBuffer::new(KEPT_BYTES + 1));
        assert_eq!(kept().len(), 2);
        assert!(ReadBuffer::new(isize::MAX as usize).is_none());
    }
}
