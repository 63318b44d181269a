//! The beginning of NetCDF files, which netCDF-C 4.10 reads to open them.
//!
//! In a small file, elements follow the header, so that the file is small. If one of the elements at its beginning
//! cannot be read, netCDF-C takes the whole file for none of its formats. So the beginning is read when the file is
//! opened. If that fails, or takes too long, the name leads to another file from then on, whose elements begin behind
//! a gap: the open gives ESTALE, after which the kernel looks the name up again. stat(2) and listings read no
//! elements, and a file whose beginning can be read stays small.

use std::num::NonZeroUsize;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use lru::LruCache;

use super::nodes::{FileId, Nodes};
use super::view_file::ViewFile;
use crate::cache::bounded_lru;
use crate::clock::Instant;
use crate::runtime;
use crate::store::{Object, StoreError};
use crate::sync::Mutex;

/// The number of bytes of one read, and of reads at the same time.
const STEP_BYTES: usize = 256 << 10;
const READS: usize = 16;
/// The beginning is read within this fraction (1/4) of the time limit of a request.
const TIME_PART: u32 = 4;
/// How long a beginning that was read is not read again.
const TRUST: Duration = Duration::from_secs(1);
/// How long files have a gap after their beginning could not be read.
const GAP_TIME: Duration = Duration::from_secs(60);
/// The number of files that are known to need a gap.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// The files that need a gap, and since when.
#[derive(Debug)]
pub(in crate::view) struct FilesWithGap(Mutex<LruCache<FileId, Instant>>);

impl Default for FilesWithGap {
    fn default() -> Self {
        Self(Mutex::new(bounded_lru(MAX_FILES)))
    }
}

impl FilesWithGap {
    /// Returns whether a file needs a gap.
    pub(in crate::view) fn has(&self, id: &FileId) -> bool {
        let mut files = self.0.lock();
        files
            .get(id)
            .is_some_and(|since| since.elapsed() < GAP_TIME)
    }

    fn add(&self, id: &FileId) {
        self.0.lock().put(id.clone(), Instant::now());
    }
}

/// When the beginning of a file was last read without an error.
#[derive(Debug, Default)]
pub(in crate::view) struct LastRead(Mutex<Option<Instant>>);

impl ViewFile {
    /// Reads the beginning of an opened file, if programs need it to open the file.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if it cannot be read: its name leads to another file from now on;
    /// [`StoreError::TooLarge`] if the system has no memory.
    pub async fn check_beginning(&self, opened: &dyn Object) -> Result<(), StoreError> {
        let Some((nodes, file, last)) = self.netcdf() else {
            return Ok(());
        };
        let end = file
            .file
            .readability
            .read_to_open_bytes
            .min(file.size_bytes());
        let is_recent = |read: Instant| read.elapsed() < TRUST;
        if end == 0 || last.0.lock().is_some_and(is_recent) {
            return Ok(());
        }
        let begun = Instant::now();
        let limit = nodes.engine().timeout() / TIME_PART;
        let what = match runtime::timeout(limit, read_all(opened, end)).await {
            Some(Ok(())) => {
                *last.0.lock() = Some(begun);
                return Ok(());
            }
            Some(Err(stale @ StoreError::Stale { .. })) => return Err(stale),
            // The system may have memory again, and the elements are readable.
            Some(Err(error)) if error.lacks_memory() => return Err(error),
            Some(Err(error)) => error.to_string(),
            None => format!(
                "its first {end} bytes take more than {} ms",
                limit.as_millis()
            ),
        };
        nodes.needs_gap(&file.id);
        Err(StoreError::Stale {
            key: file.id.0.clone(),
            what: format!(
                "{what}; the name of the file leads to one whose elements begin behind 4 MiB"
            ),
        })
    }
}

async fn read_all(opened: &dyn Object, end: u64) -> Result<(), StoreError> {
    let starts = (0..end).step_by(STEP_BYTES);
    let reads = stream::iter(starts.map(|start| opened.read(start, STEP_BYTES)));
    let done = reads.buffer_unordered(READS);
    done.try_for_each(|_| std::future::ready(Ok(()))).await
}

impl Nodes {
    /// Makes the elements of a file begin behind a gap, from its next lookup on.
    fn needs_gap(&self, id: &FileId) {
        self.files_with_gap.add(id);
        let without = self.files.lock().remove(id);
        drop(without);
    }
}
