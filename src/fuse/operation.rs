//! Requests with a single reply. The session thread replies if it need not wait, otherwise the
//! future of the request does.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEntry, ReplyOpen, ReplyXattr,
    Request,
};

use super::Service;
use super::in_flight::{ErrorReply, RequestId};
use super::reply::{file_attr, report, send_xattr, without_attributes};
use super::small_files::SMALL_BYTES;
use crate::fs::{Answer, Fs, FsAnswer, FsError, Handle, Ino, Kind, Node, OpenedFile, StoreError};
use crate::runtime::caller;

/// A request that has a single reply.
pub(super) trait Operation {
    const NAME: &'static str;
    type Output: Send;
    type Reply: ErrorReply;
    /// The same request without borrowed data, for a future.
    type Owned: Operation<Output = Self::Output, Reply = Self::Reply> + Send + Sync + 'static;

    fn ino(&self) -> INodeNo;

    fn name(&self) -> Option<&OsStr> {
        None
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, Self::Output>;

    fn answer(&self, service: &Service, output: Self::Output, reply: Self::Reply);

    /// Undoes the lookup or open count of the operation, if the request was answered otherwise.
    fn undo(_: &Fs, _: Self::Output) {}

    fn owned(self) -> Self::Owned;
}

impl Service {
    /// Runs an operation and replies.
    pub(super) fn serve<O: Operation>(
        self: &Arc<Self>,
        request: &Request,
        operation: O,
        reply: O::Reply,
    ) {
        let run = || operation.run(&self.fs).at_hand();
        match caller::at_once_for(request.pid(), run) {
            Some(Ok(output)) => operation.answer(self, output, reply),
            Some(Err(error)) => {
                let (ino, name) = (operation.ino(), operation.name());
                reply.refuse(report(&self.fs, O::NAME, ino, name, &error));
            }
            None => self.start(request.pid(), operation.owned(), reply),
        }
    }

    fn start<O>(self: &Arc<Self>, tid: u32, operation: O, reply: O::Reply)
    where
        O: Operation + Send + Sync + 'static,
    {
        let id = RequestId {
            operation: O::NAME,
            ino: operation.ino(),
            name: operation.name().map(OsStr::to_owned),
            bytes: None,
        };
        let Some((guard, starting)) = self.tracker.begin(&self.fs, tid, id, reply) else {
            return;
        };
        let service = Arc::clone(self);
        starting.poll(caller::on_behalf_of(tid, async move {
            match operation.run(&service.fs).await {
                Ok(output) => match guard.take() {
                    Some(reply) => operation.answer(&service, output, reply),
                    None => O::undo(&service.fs, output),
                },
                Err(error) => guard.refuse(&error),
            }
        }));
    }
}

/// LOOKUP.
pub(super) struct Lookup<'a> {
    pub(super) parent: INodeNo,
    pub(super) name: Cow<'a, OsStr>,
}

impl Operation for Lookup<'_> {
    const NAME: &'static str = "lookup";
    /// `None` if the kernel may cache the absence of the name.
    type Output = Option<Node>;
    type Reply = ReplyEntry;
    type Owned = Lookup<'static>;

    fn ino(&self) -> INodeNo {
        self.parent
    }

    fn name(&self) -> Option<&OsStr> {
        Some(&self.name)
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, Option<Node>> {
        let found = fs.lookup(Ino(self.parent.0), self.name.as_bytes());
        found.map(|found| negative(fs, found))
    }

    fn answer(&self, service: &Service, found: Option<Node>, reply: ReplyEntry) {
        let policy = service.fs.policy();
        let (ttl, node) = match found {
            Some(node) => (service.fs.entry_ttl(self.name.as_bytes()), node),
            None => (policy.absent_ttl, without_attributes(Ino(0), Kind::Object)),
        };
        reply.entry(&ttl, &file_attr(&node, policy), Generation(0));
    }

    fn undo(fs: &Fs, found: Option<Node>) {
        if let Some(node) = found {
            fs.forget(node.ino, 1);
        }
    }

    fn owned(self) -> Lookup<'static> {
        Lookup {
            parent: self.parent,
            name: Cow::Owned(self.name.into_owned()),
        }
    }
}

/// Turns an absence into a negative entry, if the kernel may cache it.
fn negative(fs: &Fs, found: Result<Node, FsError>) -> Result<Option<Node>, FsError> {
    match found {
        Err(FsError::Store(StoreError::NotFound { .. })) if !fs.policy().absent_ttl.is_zero() => {
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// GETATTR.
pub(super) struct Getattr {
    pub(super) ino: INodeNo,
    pub(super) handle: Option<Handle>,
}

impl Operation for Getattr {
    const NAME: &'static str = "getattr";
    type Output = Node;
    type Reply = ReplyAttr;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.ino
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, Node> {
        fs.getattr(Ino(self.ino.0), self.handle)
    }

    fn answer(&self, service: &Service, found: Node, reply: ReplyAttr) {
        let policy = service.fs.policy();
        reply.attr(&policy.ttl, &file_attr(&found, policy));
    }

    fn owned(self) -> Self {
        self
    }
}

/// OPEN.
pub(super) struct Open(pub(super) INodeNo);

impl Operation for Open {
    const NAME: &'static str = "open";
    type Output = OpenedFile;
    type Reply = ReplyOpen;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.0
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, OpenedFile> {
        fs.open(Ino(self.0.0))
    }

    fn answer(&self, service: &Service, opened: OpenedFile, mut reply: ReplyOpen) {
        // If an inode has a backing file, all its opens must use passthrough.
        let passthrough =
            service.passthrough.load(Ordering::Relaxed) || service.has_backing(self.0);
        if passthrough
            && opened.object.size_bytes() >= SMALL_BYTES
            && let Some(file) = opened.object.backing()
        {
            match service.open_passthrough(self.0, opened.handle, file.as_fd(), reply) {
                None => return,
                Some(back) => reply = back,
            }
        }
        service.store_small_file(self.0, &opened);
        // An inode has one content (see `tree`). `is_constant` of a view of a mutable source tells
        // whether cached pages of its inode are current.
        let flags = match opened.object.is_constant() {
            true => FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::empty(),
        };
        reply.opened(FileHandle(opened.handle.0), flags);
    }

    fn undo(fs: &Fs, opened: OpenedFile) {
        fs.release(opened.handle);
    }

    fn owned(self) -> Self {
        self
    }
}

/// OPENDIR.
pub(super) struct Opendir(pub(super) INodeNo);

impl Operation for Opendir {
    const NAME: &'static str = "opendir";
    type Output = Handle;
    type Reply = ReplyOpen;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.0
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, Handle> {
        fs.opendir(Ino(self.0.0))
    }

    fn answer(&self, _: &Service, handle: Handle, reply: ReplyOpen) {
        reply.opened(FileHandle(handle.0), FopenFlags::empty());
    }

    fn undo(fs: &Fs, handle: Handle) {
        fs.releasedir(handle);
    }

    fn owned(self) -> Self {
        self
    }
}

/// GETXATTR.
pub(super) struct Getxattr<'a> {
    pub(super) ino: INodeNo,
    pub(super) name: Cow<'a, OsStr>,
    pub(super) room: u32,
}

impl Operation for Getxattr<'_> {
    const NAME: &'static str = "getxattr";
    type Output = Vec<u8>;
    type Reply = ReplyXattr;
    type Owned = Getxattr<'static>;

    fn ino(&self) -> INodeNo {
        self.ino
    }

    fn name(&self) -> Option<&OsStr> {
        Some(&self.name)
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, Vec<u8>> {
        fs.getxattr(Ino(self.ino.0), self.name.as_bytes())
    }

    fn answer(&self, _: &Service, value: Vec<u8>, reply: ReplyXattr) {
        send_xattr(&value, self.room, reply);
    }

    fn owned(self) -> Getxattr<'static> {
        Getxattr {
            ino: self.ino,
            name: Cow::Owned(self.name.into_owned()),
            room: self.room,
        }
    }
}

/// LISTXATTR.
pub(super) struct Listxattr {
    pub(super) ino: INodeNo,
    pub(super) room: u32,
}

impl Operation for Listxattr {
    const NAME: &'static str = "listxattr";
    type Output = Vec<String>;
    type Reply = ReplyXattr;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.ino
    }

    fn run<'a>(&'a self, fs: &'a Fs) -> FsAnswer<'a, Vec<String>> {
        Answer::later(fs.listxattr(Ino(self.ino.0)))
    }

    fn answer(&self, _: &Service, names: Vec<String>, reply: ReplyXattr) {
        let names = names.iter().flat_map(|name| name.bytes().chain([0]));
        send_xattr(&names.collect::<Vec<u8>>(), self.room, reply);
    }

    fn owned(self) -> Self {
        self
    }
}
