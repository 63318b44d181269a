//! File reads: in place if the bytes are at hand, otherwise on the local I/O pool or in the future of the
//! request.

use std::sync::Arc;

use super::{Answer, Fs, FsAnswer, FsError, Handle};
use crate::store::{Data, LocalReadError, Object, ReadMode, StoreError, read_owned};
use crate::tree::Ino;

/// A read request: an opened file, an offset and a size in bytes.
#[derive(Debug)]
pub struct Reader {
    object: Arc<dyn Object>,
    ino: Ino,
    offset: u64,
    size: usize,
}

impl Fs {
    /// Returns the read of a file by its handle, or by its inode number if it has no handle.
    ///
    /// # Errors
    /// [`FsError::BadHandle`], or those of [`Fs::open`].
    pub fn reader(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        size: usize,
    ) -> FsAnswer<'_, Reader> {
        match handle {
            Some(handle) => {
                let object = self.files.get(handle).ok_or(FsError::BadHandle);
                Answer::now(object.map(|object| Reader::new(object, ino, offset, size)))
            }
            None => {
                (self.tree.open(ino)).map(move |object| Ok(Reader::new(object?, ino, offset, size)))
            }
        }
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

    /// Reads a local object without blocking; `None` if that is not possible, or the object is not local.
    /// Fewer bytes than requested mean the end of the file.
    pub fn read_at_hand(&self) -> Option<Result<Data, FsError>> {
        let local = self.object.as_local()?;
        match read_owned(local, self.offset, self.size, ReadMode::NonBlocking) {
            Err(LocalReadError::WouldBlock) => None,
            read => Some(read.map_err(|error| error.of_blocking().into())),
        }
    }

    /// Reads a local object, and may block on the disk.
    ///
    /// # Errors
    /// The errors of the object.
    pub fn read_blocking(&self) -> Result<Data, FsError> {
        let local = self.object.as_local().ok_or_else(|| {
            StoreError::internal("a blocking read of an object that is not local")
        })?;
        let read = read_owned(local, self.offset, self.size, ReadMode::Blocking);
        Ok(read.map_err(LocalReadError::of_blocking)?)
    }

    /// Reads. The future is ready at the first poll, which is on a session thread, if the bytes are in memory.
    ///
    /// # Errors
    /// The errors of the object.
    pub async fn read(&self) -> Result<Data, FsError> {
        Ok(self.object.read(self.offset, self.size).await?)
    }
}
