//! The value of a key, and the bytes that reads of it return.

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Key, Stat, StoreError, Version};

/// Bytes that a read returned: in the caller's buffer, or shared with a cache.
#[derive(Debug)]
pub enum Data {
    /// This part of the caller's buffer.
    Filled(Range<usize>),
    /// This part of a decoded value.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Data {
    /// Returns the bytes; `buffer` is the buffer that the read was called with.
    ///
    /// # Errors
    /// [`StoreError::Internal`] if the range is not in the buffer or the value. Fewer bytes are never
    /// returned, because a caller would take them for the end of the file.
    pub fn bytes<'a>(&'a self, buffer: &'a [u8]) -> Result<&'a [u8], StoreError> {
        let (all, range) = match self {
            Self::Filled(range) => (buffer, range),
            Self::Shared(bytes, range) => (&bytes[..], range),
        };
        part(all, range.clone())
    }

    /// Returns `size_bytes` bytes of a value from `offset`, fewer only at its end.
    pub fn part_of(value: &Arc<Vec<u8>>, offset: u64, size_bytes: usize) -> Self {
        let length = value.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let end = start.saturating_add(size_bytes).min(length);
        Self::Shared(Arc::clone(value), start..end)
    }
}

/// Returns a part of `bytes`, for ranges that this program has computed.
///
/// # Errors
/// [`StoreError::Internal`] if `range` is out of bounds.
pub fn part(bytes: &[u8], range: Range<usize>) -> Result<&[u8], StoreError> {
    let length = bytes.len();
    bytes
        .get(range.clone())
        .ok_or_else(|| StoreError::internal(format!("{range:?} of {length} bytes")))
}

/// As [`part`], for a mutable slice.
///
/// # Errors
/// As [`part`].
pub fn part_mut(bytes: &mut [u8], range: Range<usize>) -> Result<&mut [u8], StoreError> {
    let length = bytes.len();
    bytes
        .get_mut(range.clone())
        .ok_or_else(|| StoreError::internal(format!("{range:?} of {length} bytes")))
}

/// Converts a size or an offset that must fit into memory.
///
/// # Errors
/// [`StoreError::Internal`] if it does not fit.
pub fn in_memory(bytes: u64) -> Result<usize, StoreError> {
    usize::try_from(bytes)
        .map_err(|_| StoreError::internal(format!("{bytes} bytes are no size in memory")))
}

/// Extra bytes that the caller's buffer has beyond the longest read, for the local header of a zip
/// entry: one system call then reads the header and the data of a small entry.
pub const BUFFER_HEADROOM_BYTES: usize = 192 * 1024;

/// The value of one key, at one version.
///
/// A session thread calls [`Object::try_read`] first. If that returns `None`, a thread of the local I/O
/// pool reads a [`LocalObject`], and [`Object::read`] is awaited for any other object.
#[async_trait]
pub trait Object: Debug + Send + Sync {
    /// Exact size in bytes.
    fn size_bytes(&self) -> u64;

    /// The version of the content.
    fn version(&self) -> Version;

    /// Attributes of the object; they follow the object even if its key is gone.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the value has changed since it was opened.
    fn stat(&self) -> Result<Stat, StoreError>;

    /// Reads `size_bytes` from `offset`, fewer only at the end of the value; returns `None` if that
    /// needs a disk, a network or a decoder.
    ///
    /// `buffer` has room for `size_bytes` + [`BUFFER_HEADROOM_BYTES`].
    ///
    /// # Errors
    /// As [`Object::read`].
    fn try_read(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
    ) -> Option<Result<Data, StoreError>>;

    /// Reads `size_bytes` from `offset`, fewer only at the end of the value, into a new buffer. Objects that are
    /// neither local nor in memory implement it.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the value has changed since it was opened;
    /// [`StoreError::Corrupt`] if the value is proved to be damaged; [`StoreError::TooLarge`] if memory
    /// cannot be allocated.
    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        match self.as_local() {
            Some(local) => local.read_owned(offset, size_bytes),
            None => (self.try_read(offset, size_bytes, &mut []))
                .unwrap_or_else(|| Err(StoreError::internal("an object without a way to read it"))),
        }
    }

    /// The object as a local one, whose reads may block on a disk, but never on a network.
    fn as_local(&self) -> Option<&dyn LocalObject> {
        None
    }

    /// Verifies that an empty value is not a corrupt one, since no read would do so.
    ///
    /// # Errors
    /// As [`Object::read`].
    async fn verify_empty(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether concurrent reads in any order are as fast as sequential ones, so that reads need not be
    /// kept in order.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Whether pages that the kernel caches for the same inode are valid for this object too.
    fn is_constant(&self) -> bool {
        true
    }

    /// Fetches ranges of the value that will be read soon, each separately, in one batch. A range that
    /// cannot be fetched fails when it is read.
    async fn prefetch(&self, _ranges: &[Range<u64>]) {}

    /// Fetches the whole value before it is read, as [`Store::prefetch`](super::Store::prefetch).
    async fn prefetch_whole(&self) -> bool {
        false
    }

    /// The open file that holds exactly these bytes, if one exists (for kernel passthrough).
    fn backing(&self) -> Option<Arc<dyn AsFd>> {
        None
    }
}

/// An [`Object`] on this machine.
pub trait LocalObject: Send + Sync {
    /// Reads `size_bytes` from `offset`, fewer only at the end of the value; blocks on a disk.
    ///
    /// `buffer` has room for `size_bytes` + [`BUFFER_HEADROOM_BYTES`].
    ///
    /// # Errors
    /// As [`Object::read`].
    fn read_blocking(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
    ) -> Result<Data, StoreError>;

    /// As [`LocalObject::read_blocking`], into a new buffer.
    ///
    /// # Errors
    /// As [`Object::read`].
    fn read_owned(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        let length = size_bytes.saturating_add(BUFFER_HEADROOM_BYTES);
        // The key of the object is not known here.
        let no_memory = |()| StoreError::TooLarge {
            key: Key::root(),
            need_bytes: length as u64,
            limit_bytes: 0,
        };
        let mut buffer = bytemuck::try_zeroed_vec(length).map_err(no_memory)?;
        Ok(match self.read_blocking(offset, size_bytes, &mut buffer)? {
            Data::Filled(range) => Data::Shared(Arc::new(buffer), range),
            shared @ Data::Shared(..) => shared,
        })
    }
}

/// An object whose bytes are in memory.
#[derive(Debug)]
pub struct InMemoryObject {
    bytes: Arc<Vec<u8>>,
    stat: Stat,
}

impl InMemoryObject {
    /// Creates an object from all its bytes and its attributes.
    pub fn new(bytes: Arc<Vec<u8>>, stat: Stat) -> Self {
        Self { bytes, stat }
    }
}

impl Object for InMemoryObject {
    fn size_bytes(&self) -> u64 {
        self.stat.size_bytes
    }

    fn version(&self) -> Version {
        self.stat.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        Ok(self.stat)
    }

    fn try_read(
        &self,
        offset: u64,
        size_bytes: usize,
        _: &mut [u8],
    ) -> Option<Result<Data, StoreError>> {
        Some(Ok(Data::part_of(&self.bytes, offset, size_bytes)))
    }

    fn is_parallel(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_internal<T: Debug>(result: Result<T, StoreError>) {
        match result {
            Err(StoreError::Internal { what, .. }) => {
                assert!(what.contains("of 4 bytes"), "{what}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    fn a_range_outside_of_the_bytes_is_an_error_and_not_the_end_of_the_file() {
        let mut buffer = [1, 2, 3, 4];
        let shared = Arc::new(buffer.to_vec());
        for range in [2..5, 5..6, 3..2] {
            is_internal(Data::Filled(range.clone()).bytes(&buffer));
            is_internal(Data::Shared(Arc::clone(&shared), range.clone()).bytes(&[]));
            is_internal(part(&buffer, range.clone()));
            is_internal(part_mut(&mut buffer, range));
        }
        assert_eq!(Data::Filled(1..3).bytes(&buffer).unwrap(), [2, 3]);
        assert_eq!(Data::Shared(shared, 1..3).bytes(&[]).unwrap(), [2, 3]);
        assert!(Data::Filled(4..4).bytes(&buffer).unwrap().is_empty());
    }
}
