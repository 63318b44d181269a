//! Reads values into one buffer, whatever parts their store returns.

use std::ops::Range;

use super::{Data, Key, Object, StoreError, in_memory, part_mut};

/// Fills `target` with the bytes from `offset` of a value.
///
/// # Errors
/// As [`Object::read`]; [`StoreError::Corrupt`] if the value ends before `target` is full.
pub async fn read_into(
    object: &dyn Object,
    key: &Key,
    offset: u64,
    target: &mut [u8],
) -> Result<(), StoreError> {
    let mut filled = 0;
    while filled < target.len() {
        let at = offset.saturating_add(filled as u64);
        let left = target.len() - filled;
        let data = object.read(at, left).await?;
        let bytes = data.bytes(&[])?;
        if bytes.is_empty() {
            return Err(StoreError::Corrupt {
                key: key.clone(),
                what: format!("ends {left} bytes too early"),
            });
        }
        part_mut(target, filled..filled + bytes.len())?.copy_from_slice(bytes);
        filled += bytes.len();
    }
    Ok(())
}

/// Reads a range of a value, without a copy if the store returns it in one part.
///
/// # Errors
/// As [`read_into`].
pub async fn read_range(
    object: &dyn Object,
    key: &Key,
    range: Range<u64>,
) -> Result<Data, StoreError> {
    let need_bytes = range.end.saturating_sub(range.start);
    let length = in_memory(need_bytes)?;
    let data = object.read(range.start, length).await?;
    if data.bytes(&[])?.len() == length {
        return Ok(data);
    }
    drop(data);
    let no_memory = |()| StoreError::TooLarge {
        key: key.clone(),
        need_bytes,
        limit_bytes: 0,
    };
    let mut bytes = bytemuck::try_zeroed_vec(length).map_err(no_memory)?;
    read_into(object, key, range.start, &mut bytes).await?;
    Ok(Data::Shared(bytes.into(), 0..length))
}

/// Reads a whole value that is not longer than `limit_bytes`.
///
/// # Errors
/// As [`read_into`]; [`StoreError::TooLarge`] if the value is longer, or memory cannot be allocated.
pub async fn read_to_end(
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
    let no_memory = |()| StoreError::TooLarge {
        key: key.clone(),
        need_bytes: size,
        limit_bytes: 0,
    };
    let mut bytes = bytemuck::try_zeroed_vec(length).map_err(no_memory)?;
    read_into(object, key, 0, &mut bytes).await?;
    Ok(bytes)
}
