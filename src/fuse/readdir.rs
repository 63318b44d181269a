//! READDIR and READDIRPLUS: entries are written directly into the reply buffer.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};

use super::Service;
use super::in_flight::{Refuse, RequestId};
use super::reply::{file_attr, kind, report, without_attributes};
use crate::fs::{Attributes, Entry, Fs, FsError, Handle, Ino, Kind, OpenDir, Visited};
use crate::tree::DirStream;

/// The number of names in the first READDIRPLUS reply. The kernel starts each listing with
/// READDIRPLUS, and every name in it costs an inode. It continues with READDIRPLUS only if a
/// program then looks names up, so that a listing of names alone stays cheap.
const FIRST_PLUS_NAMES: usize = 16;

/// The requested part of a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) ino: INodeNo,
    pub(super) handle: Option<Handle>,
    pub(super) offset: u64,
}

/// The reply buffer of a listing.
pub(super) trait Page: Refuse {
    const OPERATION: &'static str;

    /// Visits the names of a part of a directory.
    fn visit(
        fs: &Fs,
        part: &Part,
        directory: &mut dyn DirStream,
        visit: &mut dyn FnMut(&Entry<'_>, Attributes) -> ControlFlow<()>,
    ) -> Result<Visited, FsError>;

    /// Adds a name; breaks if the name does not fit.
    fn put(&mut self, fs: &Fs, entry: &Entry<'_>, attributes: Attributes) -> ControlFlow<()>;

    fn send(self);
}

impl Page for ReplyDirectory {
    const OPERATION: &'static str = "readdir";

    fn visit(
        fs: &Fs,
        part: &Part,
        directory: &mut dyn DirStream,
        visit: &mut dyn FnMut(&Entry<'_>, Attributes) -> ControlFlow<()>,
    ) -> Result<Visited, FsError> {
        fs.readdir(directory, part.offset, &mut |entry| {
            visit(entry, Attributes::None)
        })
    }

    fn put(&mut self, _: &Fs, entry: &Entry<'_>, _: Attributes) -> ControlFlow<()> {
        let name = OsStr::from_bytes(entry.name);
        let kind = kind(entry.kind == Kind::Prefix);
        full(self.add(INodeNo(entry.ino.0), entry.next, kind, name))
    }

    fn send(self) {
        self.ok();
    }
}

impl Page for ReplyDirectoryPlus {
    const OPERATION: &'static str = "readdirplus";

    fn visit(
        fs: &Fs,
        part: &Part,
        directory: &mut dyn DirStream,
        visit: &mut dyn FnMut(&Entry<'_>, Attributes) -> ControlFlow<()>,
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

    fn put(&mut self, fs: &Fs, entry: &Entry<'_>, attributes: Attributes) -> ControlFlow<()> {
        // With a TTL of zero, the kernel looks the name up before it uses it. It only lists `.` and `..`.
        let (ttl, node) = match attributes {
            Attributes::Current(node) => (fs.policy().ttl, node),
            Attributes::Known(node) => (Duration::ZERO, node),
            Attributes::Placeholder(_) | Attributes::None => {
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

/// A reply buffer and its names.
struct Filled<P> {
    fs: Arc<Fs>,
    page: P,
    has_names: bool,
    /// Inodes whose lookup count the reply increments.
    adopted: Vec<Ino>,
}

impl<P: Page> Filled<P> {
    fn new(fs: &Arc<Fs>, page: P) -> Self {
        Self {
            fs: Arc::clone(fs),
            page,
            has_names: false,
            adopted: Vec::new(),
        }
    }

    /// Adds the names that can be listed without waiting.
    fn fill(
        &mut self,
        fs: &Fs,
        part: &Part,
        directory: &mut dyn DirStream,
    ) -> Result<Visited, FsError> {
        P::visit(fs, part, directory, &mut |entry, attributes| {
            let flow = self.page.put(fs, entry, attributes);
            if flow.is_continue() {
                self.has_names = true;
                self.adopted.extend(attributes.adopted());
            }
            flow
        })
    }
}

impl<P: Page> Refuse for Filled<P> {
    fn refuse(self, errno: fuser::Errno) {
        // The kernel does not receive these names.
        self.adopted.iter().for_each(|ino| self.fs.forget(*ino, 1));
        self.page.refuse(errno);
    }
}

impl Service {
    /// Lists a part of a directory: the names that need no waiting, or, if there are none, the next
    /// names of the source.
    ///
    /// Collected names are sent even if the listing fails after them. The kernel then requests the
    /// rest, and that request waits or fails.
    pub(super) fn list<P: Page>(self: &Arc<Self>, request: &Request, part: Part, page: P) {
        let mut filled = Filled::new(&self.fs, page);
        match self.try_list(part, &mut filled) {
            Some(Err(error)) if !filled.has_names => {
                let errno = report(&self.fs, P::OPERATION, part.ino, None, &error);
                filled.refuse(errno);
            }
            Some(_) => filled.page.send(),
            None if filled.has_names => filled.page.send(),
            None => self.start_list(request.pid(), part, filled),
        }
    }

    /// Adds names to the buffer; returns `None` if more names have to be fetched.
    fn try_list<P: Page>(&self, part: Part, filled: &mut Filled<P>) -> Option<Result<(), FsError>> {
        let directory = match self.fs.try_directory(Ino(part.ino.0), part.handle)? {
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

    fn start_list<P: Page>(self: &Arc<Self>, tid: u32, part: Part, filled: Filled<P>) {
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
                        filled.page.send();
                    }
                }
            }
        });
    }
}
