//! Values read whole, however many parts their store gives them in.

use super::{BUFFER_HEADROOM_BYTES, Key, Object, Patience, StoreError, part_mut};

/// Values that do not come in one piece are put together from parts of this size.
const PART_BYTES: usize = 1 << 20;

/// Fills `target` with the bytes from `offset` of a value.
///
/// # Errors
/// As [`Object::read`]; [`StoreError::Corrupt`] if the value ends before `target` is full.
pub fn read_into(
    object: &dyn Object,
    key: &Key,
    offset: u64,
    target: &mut [u8],
    patience: Patience,
) -> Result<(), StoreError> {
    let mut filled = 0;
    let mut buffer = Vec::new();
    while filled < target.len() {
        let size = (target.len() - filled).min(PART_BYTES);
        buffer.resize(size + BUFFER_HEADROOM_BYTES, 0);
        let at = offset.saturating_add(filled as u64);
        let data = object.read(at, size, &mut buffer, patience)?;
        let bytes = data.bytes(&buffer)?;
        if bytes.is_empty() {
            return Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("ends {} bytes too early", target.len() - filled),
            });
        }
        part_mut(target, filled..filled + bytes.len())?.copy_from_slice(bytes);
        filled += bytes.len();
    }
    Ok(())
}

/// Reads all of a value that is not longer than `limit_bytes`.
///
/// # Errors
/// As [`read_into`]; [`StoreError::TooLarge`] if it is longer, or there is no memory for it.
pub fn read_to_end(
    object: &dyn Object,
    key: &Key,
    limit_bytes: u64,
) -> Result<Vec<u8>, StoreError> {
    let size = object.size_bytes();
    let too_large = || StoreError::TooLarge {
        key: key.clone(),
        need_bytes: size,
        limit_bytes,
    };
    let length = usize::try_from(size).map_err(|_| too_large())?;
    if size > limit_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| too_large())?;
    bytes.resize(length, 0);
    read_into(object, key, 0, &mut bytes, Patience::Wait)?;
    Ok(bytes)
}
