//! The value of a key, and the bytes that reads of it return.

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Key, ReadBuffer, Stat, StoreError, Version};
use crate::runtime::{leave_session_thread, may_block};

/// Bytes that a read returned: in the caller's buffer, in a buffer of their own, or shared with a cache.
#[derive(Debug)]
pub enum Data {
    /// This part of the buffer with which a [`LocalObject`] was read.
    Filled(Range<usize>),
    /// This part of a buffer that belongs to the reply.
    Owned(ReadBuffer, Range<usize>),
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
            Self::Owned(own, range) => (&own[..], range),
            Self::Shared(bytes, range) => (&bytes[..], range),
        };
        part(all, range.clone())
    }

    /// Returns no bytes.
    pub fn empty() -> Self {
        Self::Filled(0..0)
    }

    /// Returns all bytes of a buffer.
    pub fn all_of(buffer: ReadBuffer) -> Self {
        let length = buffer.len();
        Self::Owned(buffer, 0..length)
    }

    /// Returns `size_bytes` bytes of a value from `offset`, fewer only at its end.
    pub fn part_of(value: &Arc<Vec<u8>>, offset: u64, size_bytes: usize) -> Self {
        let length = value.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(length);
        let end = start.saturating_add(size_bytes).min(length);
        Self::Shared(Arc::clone(value), start..end)
    }

    /// Returns `size` of these bytes from `start`, fewer only at their end.
    #[must_use]
    pub fn cut(mut self, start: usize, size: usize) -> Self {
        let (Self::Filled(range) | Self::Owned(_, range) | Self::Shared(_, range)) = &mut self;
        range.start = range.start.saturating_add(start).min(range.end);
        range.end = range.start.saturating_add(size).min(range.end);
        self
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

/// Whether a read of a local value may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// Return [`LocalReadError::WouldBlock`] instead of waiting for a disk or decoding much.
    NonBlocking,
    /// Wait for the disk.
    Blocking,
}

/// Why a read of a local value failed.
#[derive(Debug)]
pub enum LocalReadError {
    /// A non-blocking read would have to wait for the disk or for a decoder.
    WouldBlock,
    /// The read failed, in any mode.
    Failed(StoreError),
}

impl From<StoreError> for LocalReadError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl LocalReadError {
    /// Returns the error of a blocking read.
    pub fn of_blocking(self) -> StoreError {
        match self {
            Self::WouldBlock => StoreError::internal("a blocking read that would block"),
            Self::Failed(error) => error,
        }
    }
}

/// The value of one key, at one version.
///
/// A [`LocalObject`] is read without a future, because its only waiting is a system call. The future of
/// [`Object::read`] is polled once by a session thread, and then by the CPU pool: it must be ready at the
/// first poll if the bytes are in memory, and must not block that poll.
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

    /// Reads `size_bytes` from `offset`, fewer only at the end of the value. Objects that are not local
    /// implement it.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if the value has changed since it was opened;
    /// [`StoreError::Corrupt`] if the value is proved to be damaged; [`StoreError::TooLarge`] if memory
    /// cannot be allocated.
    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        match self.as_local() {
            Some(local) => read_local(local, offset, size_bytes).await,
            None => Err(StoreError::internal("an object without a way to read it")),
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

    /// Whether reading a part takes as long as reading the whole value, as in a compressed entry of an archive.
    fn is_decoded_whole(&self) -> bool {
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
    /// Reads `size_bytes` from `offset`, fewer only at the end of the value.
    ///
    /// `buffer` has room for `size_bytes` + [`BUFFER_HEADROOM_BYTES`].
    ///
    /// # Errors
    /// [`LocalReadError::WouldBlock`] only for [`ReadMode::NonBlocking`]; the errors of [`Object::read`].
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError>;
}

/// Reads a local object into a buffer of the reply.
///
/// # Errors
/// As [`LocalObject::read_local`]; [`StoreError::TooLarge`] if memory cannot be allocated.
pub fn read_owned(
    local: &dyn LocalObject,
    offset: u64,
    size_bytes: usize,
    mode: ReadMode,
) -> Result<Data, LocalReadError> {
    let length = size_bytes.saturating_add(BUFFER_HEADROOM_BYTES);
    // The key of the object is not known here.
    let mut buffer = ReadBuffer::new(length).ok_or_else(|| StoreError::TooLarge {
        key: Key::root(),
        need_bytes: length as u64,
        limit_bytes: 0,
    })?;
    Ok(
        match local.read_local(offset, size_bytes, &mut buffer, mode)? {
            Data::Filled(range) => Data::Owned(buffer, range),
            data => data,
        },
    )
}

async fn read_local(
    local: &dyn LocalObject,
    offset: u64,
    size_bytes: usize,
) -> Result<Data, StoreError> {
    nonblocking_first(|mode| read_owned(local, offset, size_bytes, mode)).await
}

/// Calls `read` without blocking, and if that is not possible, from a thread that may block.
///
/// # Errors
/// The errors of `read`.
pub async fn nonblocking_first<T: Send>(
    mut read: impl FnMut(ReadMode) -> Result<T, LocalReadError> + Send,
) -> Result<T, StoreError> {
    if !may_block() {
        match read(ReadMode::NonBlocking) {
            Err(LocalReadError::WouldBlock) => {}
            read => return read.map_err(LocalReadError::of_blocking),
        }
        leave_session_thread().await;
    }
    read(ReadMode::Blocking).map_err(LocalReadError::of_blocking)
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

#[async_trait]
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

    async fn read(&self, offset: u64, size_bytes: usize) -> Result<Data, StoreError> {
        Ok(Data::part_of(&self.bytes, offset, size_bytes))
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

    #[test]
    fn a_cut_ends_at_the_end_of_the_bytes() {
        let data = || Data::part_of(&Arc::new(vec![1, 2, 3, 4]), 1, 3);
        let cases: [(usize, usize, &[u8]); 4] = [
            (0, 9, &[2, 3, 4]),
            (1, 1, &[3]),
            (3, 1, &[]),
            (usize::MAX, usize::MAX, &[]),
        ];
        for (start, size, expected) in cases {
            assert_eq!(data().cut(start, size).bytes(&[]).unwrap(), expected);
        }
    }
}
