//! READDIR and READDIRPLUS: entries are written directly into the reply buffer.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};

use super::Service;
use super::in_flight::{ErrorReply, RequestId};
use super::reply::{file_attr, kind, report, without_attributes};
use crate::fs::{Entry, EntryAttributes, Fs, FsError, Handle, Ino, Kind, OpenDir, Visited};
use crate::tree::DirStream;

/// The number of names in the first READDIRPLUS reply. The kernel starts each listing with
/// READDIRPLUS, and every name in it costs an inode. It continues with READDIRPLUS only if a
/// program then looks names up, so that a listing of names alone stays cheap.
const FIRST_PLUS_NAMES: usize = 16;

/// The requested part of a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectoryRange {
    pub(super) ino: INodeNo,
    pub(super) handle: Option<Handle>,
    pub(super) offset: u64,
}

/// The reply buffer of a listing.
pub(super) trait DirectoryReply: ErrorReply {
    const OPERATION: &'static str;

    /// Visits the names of a part of a directory.
    fn visit(
        fs: &Fs,
        part: &DirectoryRange,
        directory: &mut dyn DirStream,
        visit: &mut dyn FnMut(&Entry<'_>, EntryAttributes) -> ControlFlow<()>,
    ) -> Result<Visited, FsError>;

    /// Adds a name; breaks if the name does not fit.
    fn put(&mut self, fs: &Fs, entry: &Entry<'_>, attributes: EntryAttributes) -> ControlFlow<()>;

    fn send(self);
}

impl DirectoryReply for ReplyDirectory {
    const OPERATION: &'static str = "readdir";

    fn visit(
        fs: &Fs,
        part: &DirectoryRange,
        directory: &mut dyn DirStream,
        visit: &mut dyn FnMut(&Entry<'_>, EntryAttributes) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        fs.readdir(directory, part.offset, &mut |entry| {
            visit(entry, EntryAttributes::None)
        })
    }

    fn put(&mut self, _: &Fs, entry: &Entry<'_>, _: EntryAttributes) -> ControlFlow<()> {
        let name = OsStr::from_bytes(entry.name);
        let kind = kind(entry.kind == Kind::Prefix);
        full(self.add(INodeNo(entry.ino.0), entry.next, kind, name))
    }

    fn send(self) {
        self.ok();
    }
}

impl DirectoryReply for ReplyDirectoryPlus {
    const OPERATION: &'static str = "readdirplus";

    fn visit(
        fs: &Fs,
        part: &DirectoryRange,
        directory: &mut dyn DirStream,
        visit: &mut dyn FnMut(&Entry<'_>, EntryAttributes) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        let mut left = match part.offset {
            0 => FIRST_PLUS_NAMES,
            _ => usize::MAX,
        };
        let ino = Ino(part.ino.0);
        fs.readdirplus(ino, directory, part.offset, &mut |entry, attributes| {
            let Some(fewer) = left.checked_sub(1) else {
                return ControlFlow::Break(());
            };
            left = fewer;
            visit(entry, attributes)
        })
    }

    fn put(&mut self, fs: &Fs, entry: &Entry<'_>, attributes: EntryAttributes) -> ControlFlow<()> {
        // With a TTL of zero, the kernel looks the name up before it uses it. It only lists `.` and `..`.
        let (ttl, node) = match attributes {
            EntryAttributes::Current(node) => (fs.policy().ttl, node),
            EntryAttributes::Cached(node) => (Duration::ZERO, node),
            EntryAttributes::Placeholder(_) | EntryAttributes::None => {
                (Duration::ZERO, without_attributes(entry.ino, entry.kind))
            }
        };
        let attr = file_attr(&node, fs.policy());
        let name = OsStr::from_bytes(entry.name);
        full(self.add(attr.ino, entry.next, name, &ttl, &attr, Generation(0)))
    }

    fn send(self) {
        self.ok();
    }
}

fn full(is_full: bool) -> ControlFlow<()> {
    match is_full {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Inodes whose lookup count a reply increments. Unless the reply is sent, the drop decrements the counts.
struct LookupCounts {
    fs: Arc<Fs>,
    inos: Vec<Ino>,
}

impl Drop for LookupCounts {
    fn drop(&mut self) {
        for ino in &self.inos {
            self.fs.forget(*ino, 1);
        }
    }
}

/// A reply buffer and its names.
struct FilledReply<P> {
    counted: LookupCounts,
    page: P,
    has_names: bool,
}

impl<P: DirectoryReply> FilledReply<P> {
    fn new(fs: &Arc<Fs>, page: P) -> Self {
        Self {
            counted: LookupCounts {
                fs: Arc::clone(fs),
                inos: Vec::new(),
            },
            page,
            has_names: false,
        }
    }

    fn send(mut self) {
        self.counted.inos.clear();
        self.page.send();
    }

    /// Adds the names that can be listed without waiting.
    fn fill(
        &mut self,
        fs: &Fs,
        part: &DirectoryRange,
        directory: &mut dyn DirStream,
    ) -> Result<Visited, FsError> {
        P::visit(fs, part, directory, &mut |entry, attributes| {
            let before = self.counted.inos.len();
            self.counted.inos.extend(attributes.counted());
            let flow = self.page.put(fs, entry, attributes);
            match flow {
                ControlFlow::Continue(()) => self.has_names = true,
                // `Fs::readdirplus` decrements the count of a name that does not fit.
                ControlFlow::Break(()) => self.counted.inos.truncate(before),
            }
            flow
        })
    }
}

impl<P: DirectoryReply> ErrorReply for FilledReply<P> {
    fn refuse(self, errno: fuser::Errno) {
        drop(self.counted);
        self.page.refuse(errno);
    }
}

impl Service {
    /// Lists a part of a directory: the names that need no waiting, or else the next names of the source.
    ///
    /// Collected names are sent even if the listing fails after them. The kernel then requests the
    /// rest, and that request waits or fails.
    pub(super) fn list<P: DirectoryReply>(
        self: &Arc<Self>,
        request: &Request,
        part: DirectoryRange,
        page: P,
    ) {
        let mut filled = FilledReply::new(&self.fs, page);
        match self.list_at_hand(part, &mut filled) {
            Some(Err(error)) if !filled.has_names => {
                let errno = report(&self.fs, P::OPERATION, part.ino, None, &error);
                filled.refuse(errno);
            }
            Some(_) => filled.send(),
            None if filled.has_names => filled.send(),
            None => self.start_list(request.pid(), part, filled),
        }
    }

    /// Adds names to the buffer; returns `None` if more names have to be fetched.
    fn list_at_hand<P: DirectoryReply>(
        &self,
        part: DirectoryRange,
        filled: &mut FilledReply<P>,
    ) -> Option<Result<(), FsError>> {
        let directory = self.fs.directory(Ino(part.ino.0), part.handle);
        let directory = match directory.at_hand()? {
            Ok(directory) => directory,
            Err(error) => return Some(Err(error)),
        };
        // If the lock is taken, another request is fetching names.
        let mut stream = directory.try_lock().ok()?;
        match filled.fill(&self.fs, &part, &mut **stream) {
            Ok(Visited::Pending) => None,
            Ok(Visited::Stopped | Visited::End) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn start_list<P: DirectoryReply>(
        self: &Arc<Self>,
        tid: u32,
        part: DirectoryRange,
        filled: FilledReply<P>,
    ) {
        let id = RequestId {
            operation: P::OPERATION,
            ino: part.ino,
            name: None,
            bytes: None,
        };
        let Some((guard, starting)) = self.tracker.begin(&self.fs, tid, id, filled) else {
            return;
        };
        let service = Arc::clone(self);
        starting.poll(async move {
            let fs = &service.fs;
            let listed = async {
                let directory: OpenDir = fs.directory(Ino(part.ino.0), part.handle).await?;
                let mut stream = directory.lock().await;
                loop {
                    let visited = guard.with(|page| {
                        let visited = page.fill(fs, &part, &mut **stream);
                        (visited, page.has_names)
                    });
                    match visited {
                        // The tracker has already replied.
                        None => return Ok(()),
                        Some((Ok(Visited::Pending), false)) => stream.load().await?,
                        Some((Err(error), false)) => return Err(error),
                        Some(_) => return Ok(()),
                    }
                }
            };
            let listed: Result<(), FsError> = listed.await;
            match listed {
                Err(error) => guard.refuse(&error),
                Ok(()) => {
                    if let Some(filled) = guard.take() {
                        filled.send();
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::in_flight::tests::fs;
    use crate::runtime::block_on;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A reply buffer that panics at the name `b`.
    struct Panicking;

    impl ErrorReply for Panicking {
        fn refuse(self, _: fuser::Errno) {}
    }

    impl DirectoryReply for Panicking {
        const OPERATION: &'static str = ReplyDirectoryPlus::OPERATION;

        fn visit(
            fs: &Fs,
            part: &DirectoryRange,
            directory: &mut dyn DirStream,
            visit: &mut dyn FnMut(&Entry<'_>, EntryAttributes) -> ControlFlow<()>,
        ) -> Result<Visited, FsError> {
            ReplyDirectoryPlus::visit(fs, part, directory, visit)
        }

        fn put(&mut self, _: &Fs, entry: &Entry<'_>, _: EntryAttributes) -> ControlFlow<()> {
            assert_ne!(entry.name, b"b");
            ControlFlow::Continue(())
        }

        fn send(self) {}
    }

    #[test]
    fn a_panic_while_listing_leaves_no_lookup_counts() {
        let fs = fs();
        let part = DirectoryRange {
            ino: INodeNo(Ino::ROOT.0),
            handle: None,
            offset: 0,
        };
        let directory = block_on(fs.directory(Ino::ROOT, None)).unwrap();
        let mut stream = block_on(directory.lock());
        while let Ok(Visited::Pending) =
            fs.readdir(&mut **stream, 0, &mut |_| ControlFlow::Continue(()))
        {
            block_on(stream.load()).unwrap();
        }
        let inodes = || fs.document()["inodes"].as_u64().unwrap();
        let before = inodes();
        let mut filled = FilledReply::new(&fs, Panicking);
        let listed = catch_unwind(AssertUnwindSafe(|| filled.fill(&fs, &part, &mut **stream)));
        assert!(listed.is_err());
        assert_eq!(inodes(), before + 2);
        drop(filled);
        assert_eq!(inodes(), before);
    }
}
