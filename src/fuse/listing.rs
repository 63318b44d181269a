//! READDIR and READDIRPLUS: names go straight into the kernel's page, here or on a worker.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};

use super::Service;
use super::reply::{file_attr, kind, report};
use super::waiting::{Asked, Refuse};
use crate::fs::{Attr, Entry, Fs, FsError, Handle, Ino, Kind, Patience};

/// Names in the first answer to READDIRPLUS. The kernel always begins a directory with it, and
/// every name in it costs the kernel an inode; it goes on with it only if the names are then
/// looked at, so that a listing of names alone stays one.
const FIRST_PLUS_NAMES: usize = 16;

/// A worker that has names to send waits no longer than this for more of them, where each page of
/// the source's own listing takes a request.
const MORE_NAMES_TIME: Duration = Duration::from_millis(100);

/// The part of a directory that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) ino: INodeNo,
    pub(super) handle: Option<Handle>,
    pub(super) offset: u64,
}

/// The page that names are put into.
pub(super) trait Page: Refuse {
    const OPERATION: &'static str;

    /// Visits the names of a part of a directory.
    fn visit(
        fs: &Fs,
        part: &Part,
        patience: Patience,
        visit: impl FnMut(&Entry<'_>, Option<Attr>) -> ControlFlow<()>,
    ) -> Result<(), FsError>;

    /// Puts a name in; breaks if it does not fit.
    fn put(&mut self, fs: &Fs, entry: &Entry<'_>, attr: Option<Attr>) -> ControlFlow<()>;

    fn send(self);
}

impl Page for ReplyDirectory {
    const OPERATION: &'static str = "readdir";

    fn visit(
        fs: &Fs,
        part: &Part,
        patience: Patience,
        mut visit: impl FnMut(&Entry<'_>, Option<Attr>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let ino = Ino(part.ino.0);
        fs.readdir(ino, part.handle, part.offset, patience, |entry| {
            visit(entry, None)
        })
    }

    fn put(&mut self, _: &Fs, entry: &Entry<'_>, _: Option<Attr>) -> ControlFlow<()> {
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
        patience: Patience,
        mut visit: impl FnMut(&Entry<'_>, Option<Attr>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let mut left = match part.offset {
            0 => FIRST_PLUS_NAMES,
            _ => usize::MAX,
        };
        let ino = Ino(part.ino.0);
        fs.readdirplus(ino, part.handle, part.offset, patience, |entry, attr| {
            let Some(fewer) = left.checked_sub(1) else {
                return ControlFlow::Break(());
            };
            left = fewer;
            visit(entry, attr)
        })
    }

    fn put(&mut self, fs: &Fs, entry: &Entry<'_>, attr: Option<Attr>) -> ControlFlow<()> {
        // Without attributes (or with `.` and `..`, which the kernel only lists) the name is to be
        // looked up again before it is believed.
        let ttl = attr.map_or(Duration::ZERO, |_| fs.policy().ttl);
        let attr = file_attr(&attr.unwrap_or_else(|| fs.unproven(entry)));
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

impl Service {
    /// Lists a part of a directory: what is at hand here, and if that is nothing, by a worker.
    ///
    /// Names that were put in are sent whatever comes behind them: the kernel asks for the rest,
    /// which then waits or fails by itself.
    pub(super) fn list<P: Page>(self: &Arc<Self>, request: &Request, part: Part, mut page: P) {
        let mut has_names = false;
        let visited = P::visit(&self.fs, &part, Patience::Now, |entry, attr| {
            let flow = page.put(&self.fs, entry, attr);
            has_names |= flow.is_continue();
            flow
        });
        match visited {
            Err(error) if error.would_wait() && !has_names => {
                self.list_later(request.pid(), part, page);
            }
            Err(error) if !has_names => {
                page.refuse(report(&self.fs, P::OPERATION, part.ino, None, &error));
            }
            _ => page.send(),
        }
    }

    fn list_later<P: Page>(self: &Arc<Self>, tid: u32, part: Part, page: P) {
        let asked = Asked {
            operation: P::OPERATION,
            ino: part.ino,
            name: None,
            bytes: None,
        };
        let Some(claim) = self.watch.begin(&self.fs, tid, asked, page) else {
            return;
        };
        let fs = Arc::clone(&self.fs);
        self.fs.offload(Ino(part.ino.0), move || {
            if claim.is_answered() {
                return;
            }
            let mut first_name: Option<Instant> = None;
            let mut known = Vec::new();
            let visited = P::visit(&fs, &part, Patience::Wait, |entry, attr| {
                if first_name.is_some_and(|at| at.elapsed() > MORE_NAMES_TIME) {
                    return ControlFlow::Break(());
                }
                let flow = claim.with(|page| page.put(&fs, entry, attr));
                if flow.is_some_and(|flow| flow.is_continue()) {
                    first_name.get_or_insert_with(Instant::now);
                    known.extend(attr.map(|attr| attr.ino));
                }
                flow.unwrap_or(ControlFlow::Break(()))
            });
            match visited {
                Err(error) if first_name.is_none() => claim.refuse(&error),
                _ => match claim.take() {
                    Some(page) => page.send(),
                    None => known.into_iter().for_each(|ino| fs.forget(ino, 1)),
                },
            }
        });
    }
}
