//! File reads: on the session thread if that does not block, otherwise on the local I/O pool or by
//! awaiting the object.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Fs, FsError, Handle};
use crate::store::{BUFFER_HEADROOM_BYTES, Data, Object, StoreError};
use crate::tree::Ino;

thread_local! {
    /// The read buffer of each thread, which is not allocated per request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A read request: an opened file, an offset and a size in bytes.
#[derive(Debug)]
pub struct Reader {
    object: Arc<dyn Object>,
    ino: Ino,
    offset: u64,
    size: usize,
}

impl Fs {
    /// Returns the read of a file by its handle, or by its inode number if it has no handle. `None`
    /// if opening the file would block.
    ///
    /// # Errors
    /// [`FsError::BadHandle`], or those of [`Fs::open`].
    pub fn try_reader(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        size: usize,
    ) -> Option<Result<Reader, FsError>> {
        let object = match handle {
            Some(handle) => self.files.get(handle).ok_or(FsError::BadHandle),
            None => self.tree.try_open(ino)?.map_err(Into::into),
        };
        Some(object.map(|object| Reader::new(object, ino, offset, size)))
    }

    /// As [`Fs::try_reader`], for a file without a handle.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn reader(&self, ino: Ino, offset: u64, size: usize) -> Result<Reader, FsError> {
        let object = self.tree.open(ino).await?;
        Ok(Reader::new(object, ino, offset, size))
    }

    /// Runs a blocking read on the local I/O pool. Unless a file can be read in parallel, its reads
    /// keep their order, so that an entry that must be decoded whole is decoded once.
    pub fn run_local_io(&self, reader: &Reader, job: impl FnOnce() + Send + 'static) {
        self.stats.offloaded();
        match reader.object.is_parallel() {
            true => self.local_io.submit_parallel(job),
            false => self.local_io.submit(reader.ino.0, job),
        }
    }
}

impl Reader {
    fn new(object: Arc<dyn Object>, ino: Ino, offset: u64, size: usize) -> Self {
        Self {
            object,
            ino,
            offset,
            // Never less than the request: to the kernel, a short read is the end of the file.
            size,
        }
    }

    /// Returns whether the object is local, so that its reads block on a disk.
    pub fn is_local(&self) -> bool {
        self.object.as_local().is_some()
    }

    /// Reads without blocking, or returns `None`. Fewer bytes than requested mean the end of the file.
    pub fn try_read<'a>(&self, buffer: &'a mut Buffer<'_>) -> Option<Result<Bytes<'a>, FsError>> {
        let Some(buffer) = buffer.get(self.size) else {
            return Some(Err(FsError::OutOfMemory));
        };
        let read = self.object.try_read(self.offset, self.size, buffer)?;
        Some(Bytes::new(read, buffer))
    }

    /// Reads, and may block on the disk.
    ///
    /// # Errors
    /// The errors of the object.
    pub fn read_blocking<'a>(&self, buffer: &'a mut Buffer<'_>) -> Result<Bytes<'a>, FsError> {
        let buffer = buffer.get(self.size).ok_or(FsError::OutOfMemory)?;
        let local = self.object.as_local().ok_or_else(|| {
            StoreError::internal("a blocking read of an object that is not local")
        })?;
        Bytes::new(local.read_blocking(self.offset, self.size, buffer), buffer)
    }

    /// Reads, and awaits the object.
    ///
    /// # Errors
    /// The errors of the object.
    pub async fn read(&self) -> Result<Data, FsError> {
        Ok(self.object.read(self.offset, self.size).await?)
    }
}

/// Bytes of a read, in a buffer or shared with a cache.
#[derive(Debug)]
pub struct Bytes<'a> {
    data: Data,
    buffer: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn new(read: Result<Data, StoreError>, buffer: &'a [u8]) -> Result<Self, FsError> {
        Ok(Self {
            data: read?,
            buffer,
        })
    }

    /// Returns the bytes.
    ///
    /// # Errors
    /// As [`Data::bytes`].
    pub fn get(&self) -> Result<&[u8], FsError> {
        Ok(self.data.bytes(self.buffer)?)
    }
}

/// The read buffer of this thread.
#[derive(Debug)]
pub struct Buffer<'a>(&'a mut Vec<u8>);

impl Buffer<'_> {
    /// Returns `size` bytes plus the headroom of the store, or `None` if the system has no memory left.
    fn get(&mut self, size: usize) -> Option<&mut [u8]> {
        let needed = size.saturating_add(BUFFER_HEADROOM_BYTES);
        let missing = needed.saturating_sub(self.0.len());
        if self.0.try_reserve_exact(missing).is_ok() {
            let length = self.0.len().max(needed);
            self.0.resize(length, 0);
        }
        self.0.get_mut(..needed)
    }
}

/// Calls `read` with the read buffer of this thread.
pub fn with_buffer<T>(read: impl FnOnce(&mut Buffer<'_>) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(&mut Buffer(buffer)))
}
