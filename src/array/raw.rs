//! Reads stored bytes for a decoder.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::codec;
use crate::store::{
    AsOf, BUFFER_HEADROOM_BYTES, Key, LocalObject, Object, Stat, Store, StoreError, Version,
    in_memory, read_range,
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

/// Calls `use_bytes` with a range of a value. Blocks on the disk for a local object.
pub(super) async fn with_bytes<T>(
    object: &dyn Object,
    key: &Key,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if let Some(local) = object.as_local() {
        return with_local_bytes(local, key, range, use_bytes);
    }
    let data = read_range(object, key, range).await?;
    use_bytes(data.bytes(&[])?)
}

fn with_local_bytes<T>(
    object: &dyn LocalObject,
    key: &Key,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
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
        let data = object.read_blocking(range.start, length, scratch)?;
        let bytes = data.bytes(scratch)?;
        let result = match bytes.len() == length {
            true => use_bytes(bytes),
            false => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{} bytes, expected {length}", bytes.len()),
            }),
        };
        let kept = SCRATCH_KEPT_BYTES.load(Ordering::Relaxed);
        if scratch.len() > kept {
            scratch.truncate(kept);
            scratch.shrink_to_fit();
        }
        result
    })
}

/// Fills `target` from `offset` of a local object without blocking.
pub(super) fn try_read_into(
    object: &dyn Object,
    key: &Key,
    offset: u64,
    target: &mut [u8],
) -> Option<Result<(), StoreError>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let needed = target.len() + BUFFER_HEADROOM_BYTES;
        if scratch.len() < needed {
            scratch.resize(needed, 0);
        }
        let read = object.try_read(offset, target.len(), scratch)?;
        let copied = read.and_then(|data| {
            let bytes = data.bytes(scratch)?;
            match bytes.len() == target.len() {
                true => target.copy_from_slice(bytes),
                false => {
                    return Err(StoreError::Corrupt {
                        key: key.clone(),
                        what: format!("ends {} bytes too early", target.len() - bytes.len()),
                    });
                }
            }
            Ok(())
        });
        Some(copied)
    })
}

/// Fails if a metadata document did not have that version at a point in time or later.
///
/// # Errors
/// [`StoreError::Stale`], or the error of reading the version.
pub async fn check_version(
    store: &dyn Store,
    key: &Key,
    version: Version,
    as_of: AsOf<'_>,
) -> Result<(), StoreError> {
    compare_version(key, version, store.stat_as_of(key, as_of).await)
}

/// As [`check_version`], with attributes that the store has returned.
pub(super) fn compare_version(
    key: &Key,
    version: Version,
    found: Result<Stat, StoreError>,
) -> Result<(), StoreError> {
    let stale = |what: &str| StoreError::Stale {
        key: key.clone(),
        what: what.into(),
    };
    match found {
        Ok(stat) if stat.version == version => Ok(()),
        Ok(_) => Err(stale("the metadata of the array have changed")),
        Err(
            StoreError::NotFound { .. }
            | StoreError::NotAPrefix { .. }
            | StoreError::NotAFile { .. },
        ) => Err(stale("the array is gone")),
        Err(error) => Err(error),
    }
}
