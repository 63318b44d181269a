//! Snapshots: every read returns bytes of the version that was opened, or fails.

use std::any::Any;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rustix::fs::Stat as FileStat;
use rustix::io::Errno;

use super::{Data, Kind, ReadMode, Stat, StoreError, TransferStats, Version, system};

/// Keeps the readahead of a part of an archive, see [`SnapshotReader::keep_span`].
pub type SpanGuard = Arc<dyn Any + Send + Sync>;

/// Reads the bytes of one version of a remote archive.
#[async_trait]
pub trait SnapshotReader: Debug + Send + Sync {
    /// Exact size in bytes.
    fn size_bytes(&self) -> u64;

    /// When this version was written, as reported by the source.
    fn modified(&self) -> SystemTime;

    /// Returns `length` bytes from `offset`, fetched with one request unless they are cached.
    ///
    /// # Errors
    /// [`SnapshotError`].
    async fn read_exact_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError>;

    /// As [`SnapshotReader::read_exact_at`], for bytes that are not read again, so they are not cached.
    ///
    /// # Errors
    /// As [`SnapshotReader::read_exact_at`].
    async fn read_once_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError> {
        self.read_exact_at(offset, length).await
    }

    /// Returns the bytes that [`SnapshotReader::cache_derived`] stored for this version of the archive, in
    /// this or another process, unless they are longer than `max_bytes`. May block on the disk.
    fn derived(&self, _name: &str, _max_bytes: u64) -> Option<Vec<u8>> {
        None
    }

    /// Stores bytes that were derived from this version of the archive, if a cache is available; `make` is
    /// called only in that case.
    fn cache_derived(&self, _name: &str, _make: &mut dyn FnMut() -> Option<Vec<u8>>) {}

    /// Returns a value that keeps the readahead of a span, which is read like a file, while the value exists.
    fn keep_span(&self, _span: Range<u64>) -> Option<SpanGuard> {
        None
    }

    /// As [`SnapshotReader::read_exact_at`], for a range within `span`, which is read like a file: larger
    /// parts of the span may be fetched, and readahead may start, but nothing outside of it is fetched.
    ///
    /// # Errors
    /// As [`SnapshotReader::read_exact_at`].
    async fn read_within(
        &self,
        offset: u64,
        length: usize,
        _span: Range<u64>,
    ) -> Result<Data, SnapshotError> {
        let bytes = self.read_exact_at(offset, length).await?;
        Ok(Data::part_of(&bytes, 0, length))
    }

    /// Whether fetched ranges are cached on disk, for this and other processes.
    fn is_on_disk(&self) -> bool {
        false
    }

    /// Records that `bytes` bytes from `start` are fetched before a read. Returns false, and records nothing,
    /// if they do not fit into `budget_bytes` with those that wait for a read.
    fn begin_prefetch(&self, _start: u64, _bytes: u64, _budget_bytes: u64) -> bool {
        false
    }

    /// Records the end of a prefetch that [`SnapshotReader::begin_prefetch`] has recorded.
    fn end_prefetch(&self, _start: u64, _bytes: u64, _is_fetched: bool) {}

    /// Records a read of bytes that may have been prefetched.
    fn record_read(&self, _start: u64, _bytes: u64) {}

    /// Fails if this version is known to be outdated. Sends no request.
    ///
    /// # Errors
    /// [`SnapshotError::Changed`].
    fn check(&self) -> Result<(), SnapshotError>;

    /// Counters of network transfers.
    fn transfer_stats(&self) -> Option<TransferStats> {
        None
    }
}

/// Identifies the content of a file: its identity, its size, and the modification time, which every
/// write changes. (The change time is omitted, because a new link, name or mode is no new content.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    device: u64,
    inode: u64,
    pub(super) size_bytes: u64,
    modified: (i64, u64),
}

impl Fingerprint {
    pub(super) fn of(stat: &FileStat) -> Self {
        Self {
            device: system::device(stat),
            inode: stat.st_ino,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: system::modified(stat),
        }
    }

    /// The version of the content.
    pub(super) fn version(&self) -> Version {
        use std::hash::{Hash, Hasher};
        let mut hasher = siphasher::sip::SipHasher13::new();
        (self.device, self.inode, self.size_bytes, self.modified).hash(&mut hasher);
        Version(hasher.finish())
    }
}

/// Converts the result of stat(2) for an object.
pub(super) fn object_stat(stat: &FileStat) -> Stat {
    let fingerprint = Fingerprint::of(stat);
    Stat {
        kind: Kind::Object,
        size_bytes: fingerprint.size_bytes,
        modified: time(fingerprint.modified),
        version: fingerprint.version(),
        links: 1,
    }
}

/// Converts a kernel timestamp, seconds and nanoseconds, to [`SystemTime`].
pub(super) fn time((seconds, nanoseconds): (i64, u64)) -> SystemTime {
    let nanoseconds = Duration::from_nanos(nanoseconds);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    base.and_then(|t| t.checked_add(nanoseconds))
        .unwrap_or(UNIX_EPOCH)
}

/// Why a read of a snapshot failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The content has changed; the text says what differs.
    #[error("changed: {0}")]
    Changed(String),
    /// A non-blocking read would have to wait for the disk.
    #[error("would block")]
    WouldBlock,
    /// The file ends before the range does.
    #[error("{wanted} bytes expected at {offset:#x}, {got} there")]
    Short {
        /// The offset of the range in bytes.
        offset: u64,
        /// The length of the range in bytes.
        wanted: usize,
        /// The number of bytes that could be read.
        got: usize,
    },
    /// The system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The remote source failed; the reader replaces the key in the error.
    #[error(transparent)]
    Store(StoreError),
}

/// An open file and its fingerprint at the time when it was opened.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    file: File,
    fingerprint: Fingerprint,
    /// Whether the file system supports non-blocking reads (`RWF_NOWAIT`).
    nowait: AtomicBool,
    /// From when on another write cannot have the same time; `None` if that was so when the file was opened.
    settles: Option<SystemTime>,
}

/// Longer than the granularity of write times in file systems (10 ms at most). Within that time two
/// contents can have one fingerprint, so no read is proven.
pub(super) const SETTLING: Duration = Duration::from_millis(20);

impl AsFd for SnapshotFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl SnapshotFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        let modified = time(system::modified(&stat));
        // A time in the future does not tell when it was set.
        let is_fresh = SystemTime::now()
            .duration_since(modified)
            .is_ok_and(|age| age < SETTLING);
        Ok(Self {
            file,
            fingerprint: Fingerprint::of(&stat),
            nowait: AtomicBool::new(true),
            settles: is_fresh.then(|| modified.checked_add(SETTLING)).flatten(),
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.fingerprint.size_bytes
    }

    pub(super) fn version(&self) -> Version {
        self.fingerprint.version()
    }

    /// When the opened content was written.
    pub(super) fn modified(&self) -> SystemTime {
        time(self.fingerprint.modified)
    }

    /// Returns the attributes of the file, if it is unchanged since it was opened.
    pub(super) fn stat(&self) -> Result<Stat, SnapshotError> {
        let stat = rustix::fs::fstat(&self.file).map_err(|e| SnapshotError::Io(e.into()))?;
        self.compare(&Fingerprint::of(&stat))?;
        Ok(object_stat(&stat))
    }

    /// The file itself, for reads that a later [`SnapshotFile::check`] proves.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Fails if the content of the file has changed since it was opened.
    ///
    /// A call after a read proves the bytes, because a write updates the times before the bytes.
    pub(super) fn check(&self) -> Result<(), SnapshotError> {
        let stat = rustix::fs::fstat(&self.file).map_err(|e| SnapshotError::Io(e.into()))?;
        self.compare(&Fingerprint::of(&stat))
    }

    fn compare(&self, now: &Fingerprint) -> Result<(), SnapshotError> {
        let then = &self.fingerprint;
        if now.size_bytes != then.size_bytes {
            return Err(SnapshotError::Changed(format!(
                "size was {}, is {}",
                then.size_bytes, now.size_bytes
            )));
        }
        if now.modified != then.modified {
            return Err(SnapshotError::Changed("modification time".into()));
        }
        Ok(())
    }

    /// Waits until any later change would be visible in the times.
    fn settle(&self, mode: ReadMode) -> Result<(), SnapshotError> {
        let left = |end: SystemTime| end.duration_since(SystemTime::now()).ok();
        match self.settles.and_then(left) {
            None => Ok(()),
            Some(_) if mode == ReadMode::NonBlocking => Err(SnapshotError::WouldBlock),
            Some(left) => {
                std::thread::sleep(left.min(SETTLING));
                Ok(())
            }
        }
    }

    /// Fills `buffer` from `offset`, then proves that the file has not changed.
    pub(super) fn read_exact_at(
        &self,
        buffer: &mut [u8],
        offset: u64,
        mode: ReadMode,
    ) -> Result<(), SnapshotError> {
        self.settle(mode)?;
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(filled as u64);
            let nowait = mode == ReadMode::NonBlocking && self.nowait.load(Ordering::Relaxed);
            let result = if nowait {
                system::read_cached(&self.file, rest, at)
            } else {
                rustix::io::pread(&self.file, rest, at)
            };
            match result {
                Ok(0) => {
                    self.check()?;
                    return Err(SnapshotError::Short {
                        offset,
                        wanted: buffer.len(),
                        got: filled,
                    });
                }
                Ok(n) => filled += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(SnapshotError::WouldBlock),
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if nowait => {
                    self.nowait.store(false, Ordering::Relaxed);
                }
                Err(e) => return Err(SnapshotError::Io(e.into())),
            }
        }
        self.check()
    }
}
