//! Stored bytes on their way to a decoder.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::codec::CodecError;
use crate::store::{
    self, BUFFER_HEADROOM_BYTES, Data, Key, Object, Patience, Store, StoreError, Version, read_into,
};

/// What all threads together keep for encoded bytes, about.
const SCRATCH_BYTES: usize = 32 << 20;
/// The largest buffer that a thread keeps.
static SCRATCH_KEPT_BYTES: AtomicUsize = AtomicUsize::new(16 << 20);

/// So many threads will decode.
pub(super) fn share_scratch(threads: usize) {
    let kept = (SCRATCH_BYTES / threads.max(1)).clamp(256 << 10, 16 << 20);
    SCRATCH_KEPT_BYTES.store(kept, Ordering::Relaxed);
}

thread_local! {
    /// Where encoded bytes are read to.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A decoder's error as that of a chunk.
pub(super) fn codec_error(key: &Key, inner: Option<u64>, error: CodecError) -> StoreError {
    let key = key.clone();
    let within = |text: String| match inner {
        Some(inner) => format!("inner chunk {inner}: {text}"),
        None => text,
    };
    match error {
        CodecError::Unsupported { name } => StoreError::Unsupported {
            key,
            what: within(format!("codec {name}")),
        },
        CodecError::TooLarge {
            needed_bytes,
            limit_bytes,
            ..
        } => StoreError::TooLarge {
            key,
            need_bytes: needed_bytes,
            limit_bytes,
        },
        error => StoreError::Corrupt {
            key,
            what: within(error.to_string()),
        },
    }
}

/// Calls `use_bytes` with a range of a value.
pub(super) fn with_bytes<T>(
    object: &dyn Object,
    key: &Key,
    range: Range<u64>,
    use_bytes: impl FnOnce(&[u8]) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    if object.is_shared() {
        let data = object.read(range.start, length, &mut [], Patience::Wait)?;
        let bytes = data.bytes(&[])?;
        return match bytes.len() == length {
            true => use_bytes(bytes),
            false => Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("{} bytes, expected {length}", bytes.len()),
            }),
        };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let needed = length.saturating_add(BUFFER_HEADROOM_BYTES);
        if scratch.len() < needed {
            scratch
                .try_reserve_exact(needed.saturating_sub(scratch.len()))
                .map_err(|_| StoreError::TooLarge {
                    key: key.clone(),
                    need_bytes: needed as u64,
                    limit_bytes: 0,
                })?;
            scratch.resize(needed, 0);
        }
        let first = object.read(range.start, length, scratch, Patience::Wait)?;
        let result = match &first {
            // All of it, where it lies.
            Data::Shared(bytes, part) if part.len() == length => {
                use_bytes(store::part(bytes, part.clone())?)
            }
            Data::Filled(part) if part.len() == length => {
                use_bytes(store::part(scratch, part.clone())?)
            }
            _ => {
                drop(first);
                let mut whole = std::mem::take(scratch);
                let target = store::part_mut(&mut whole, 0..length)?;
                read_into(object, key, range.start, target, Patience::Wait)?;
                let result = use_bytes(target);
                *scratch = whole;
                result
            }
        };
        let kept = SCRATCH_KEPT_BYTES.load(Ordering::Relaxed);
        if scratch.len() > kept {
            scratch.truncate(kept);
            scratch.shrink_to_fit();
        }
        result
    })
}

/// Fails if a document of metadata is not any more the one of that version.
///
/// # Errors
/// [`StoreError::Stale`], or why it can not be found out.
pub fn check_version(store: &dyn Store, key: &Key, version: Version) -> Result<(), StoreError> {
    let stale = |what: &str| StoreError::Stale {
        key: key.clone(),
        what: what.into(),
    };
    match store.stat(key) {
        Ok(stat) if stat.version == version => Ok(()),
        Ok(_) => Err(stale("the metadata of the array have changed")),
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {
            Err(stale("the array is gone"))
        }
        Err(error) => Err(error),
    }
}
