//! Reads stored bytes for a decoder.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::codec;
use crate::store::{
    BUFFER_HEADROOM_BYTES, Key, LocalObject, LocalReadError, Object, ReadMode, StoreError,
    in_memory, nonblocking_first, read_range,
};

/// The maximum total size of the scratch buffers of all threads, in bytes.
const SCRATCH_BYTES: u64 = 32 << 20;
/// The scratch buffers take at most this fraction (1/16) of the memory limit.
const SCRATCH_PART: u64 = 16;
/// The largest scratch buffer that a thread keeps, in bytes.
static SCRATCH_KEPT_BYTES: AtomicUsize = AtomicUsize::new(16 << 20);

/// Shares the scratch memory among the threads that decode: for encoded bytes, and as much between codecs.
pub(super) fn share_scratch(threads: usize, memory_limit_bytes: u64) {
    let all = SCRATCH_BYTES.min(memory_limit_bytes / SCRATCH_PART);
    let share = usize::try_from(all).unwrap_or(usize::MAX) / threads.max(1);
    SCRATCH_KEPT_BYTES.store(share.clamp(256 << 10, 16 << 20), Ordering::Relaxed);
    codec::keep_scratch(share);
}

thread_local! {
    /// The buffer for encoded bytes.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_bytes` with a range of a value. A read of a local object that would block leaves the session thread.
pub(super) async fn with_bytes<T: Send>(
    object: &dyn Object,
    key: &Key,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> Result<T, StoreError> + Send,
) -> Result<T, StoreError> {
    if let Some(local) = object.as_local() {
        let mut use_bytes = Some(use_bytes);
        let read = |mode| with_local_bytes(local, key, &range, mode, &mut use_bytes);
        return nonblocking_first(read).await;
    }
    let data = read_range(object, key, range).await?;
    use_bytes(data.bytes(&[])?)
}

/// Takes and calls `use_bytes`, unless the read fails or would block.
fn with_local_bytes<T>(
    object: &dyn LocalObject,
    key: &Key,
    range: &Range<u64>,
    mode: ReadMode,
    use_bytes: &mut Option<impl FnOnce(&[u8]) -> Result<T, StoreError>>,
) -> Result<T, LocalReadError> {
    let length = in_memory(range.end - range.start)?;
    SCRATCH.with_borrow_mut(|scratch| {
        let needed = length + BUFFER_HEADROOM_BYTES;
        if scratch.len() < needed {
            scratch
                .try_reserve_exact(needed - scratch.len())
                .map_err(|_| StoreError::TooLarge {
                    key: key.clone(),
                    need_bytes: needed as u64,
                    limit_bytes: 0,
                })?;
            scratch.resize(needed, 0);
        }
        let data = object.read_local(range.start, length, scratch, mode)?;
        let bytes = data.bytes(scratch)?;
        let use_bytes = use_bytes.take().filter(|_| bytes.len() == length);
        let result = match use_bytes {
            Some(use_bytes) => use_bytes(bytes),
            None => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{} bytes, expected {length}", bytes.len()),
            }),
        };
        let kept = SCRATCH_KEPT_BYTES.load(Ordering::Relaxed);
        if scratch.len() > kept {
            scratch.truncate(kept);
            scratch.shrink_to_fit();
        }
        Ok(result?)
    })
}
