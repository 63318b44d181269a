//! Requests that are asked of the file system once or twice: by the thread that took them, for
//! what is at hand, and if it would have to wait, by a worker.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEntry, ReplyOpen, ReplyXattr,
    Request,
};

use super::Service;
use super::reply::{absent, file_attr, report, send_xattr};
use super::waiting::{Asked, Refuse};
use crate::fs::{Attr, Fs, FsError, Handle, Ino, Opened, Patience, StoreError};

/// A request and how it is answered.
pub(super) trait Question {
    const OPERATION: &'static str;
    type Found;
    type Reply: Refuse;
    /// The same, for another thread.
    type Owned: Question<Found = Self::Found, Reply = Self::Reply> + Send + 'static;

    fn ino(&self) -> INodeNo;

    fn name(&self) -> Option<&OsStr> {
        None
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Self::Found, FsError>;

    fn answer(&self, service: &Service, found: Self::Found, reply: Self::Reply);

    /// Takes back what finding has counted, where nobody was told of it.
    fn take_back(_: &Fs, _: Self::Found) {}

    fn owned(self) -> Self::Owned;
}

impl Service {
    /// Answers a request, here if nothing has to be waited for.
    pub(super) fn serve<Q: Question>(
        self: &Arc<Self>,
        request: &Request,
        question: Q,
        reply: Q::Reply,
    ) {
        match question.ask(&self.fs, Patience::Now) {
            Ok(found) => question.answer(self, found, reply),
            Err(error) if error.would_wait() => {
                self.hand_over(request.pid(), question.owned(), reply);
            }
            Err(error) => {
                let (ino, name) = (question.ino(), question.name());
                reply.refuse(report(&self.fs, Q::OPERATION, ino, name, &error));
            }
        }
    }

    fn hand_over<Q>(self: &Arc<Self>, tid: u32, question: Q, reply: Q::Reply)
    where
        Q: Question + Send + 'static,
    {
        let ino = question.ino();
        let asked = Asked {
            operation: Q::OPERATION,
            ino,
            name: question.name().map(OsStr::to_owned),
            bytes: None,
        };
        let Some(claim) = self.watch.begin(&self.fs, tid, asked, reply) else {
            return;
        };
        let service = Arc::clone(self);
        self.fs.offload(Ino(ino.0), move || {
            if claim.is_answered() {
                return;
            }
            match question.ask(&service.fs, Patience::Wait) {
                Ok(found) => match claim.take() {
                    Some(reply) => question.answer(&service, found, reply),
                    None => Q::take_back(&service.fs, found),
                },
                Err(error) => claim.refuse(&error),
            }
        });
    }
}

/// LOOKUP.
pub(super) struct Lookup<'a> {
    pub(super) parent: INodeNo,
    pub(super) name: Cow<'a, OsStr>,
}

impl Question for Lookup<'_> {
    const OPERATION: &'static str = "lookup";
    /// Nothing, where the kernel may keep that there is no such name.
    type Found = Option<Attr>;
    type Reply = ReplyEntry;
    type Owned = Lookup<'static>;

    fn ino(&self) -> INodeNo {
        self.parent
    }

    fn name(&self) -> Option<&OsStr> {
        Some(&self.name)
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Option<Attr>, FsError> {
        match fs.lookup(Ino(self.parent.0), self.name.as_bytes(), patience) {
            Err(FsError::Store(StoreError::NotFound { .. }))
                if !fs.policy().absent_ttl.is_zero() =>
            {
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    fn answer(&self, service: &Service, found: Option<Attr>, reply: ReplyEntry) {
        let policy = service.fs.policy();
        match found {
            Some(attr) => reply.entry(&policy.ttl, &file_attr(&attr), Generation(0)),
            None => reply.entry(&policy.absent_ttl, &file_attr(&absent()), Generation(0)),
        }
    }

    fn take_back(fs: &Fs, found: Option<Attr>) {
        if let Some(attr) = found {
            fs.forget(attr.ino, 1);
        }
    }

    fn owned(self) -> Lookup<'static> {
        Lookup {
            parent: self.parent,
            name: Cow::Owned(self.name.into_owned()),
        }
    }
}

/// GETATTR.
pub(super) struct Getattr {
    pub(super) ino: INodeNo,
    pub(super) handle: Option<Handle>,
}

impl Question for Getattr {
    const OPERATION: &'static str = "getattr";
    type Found = Attr;
    type Reply = ReplyAttr;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.ino
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Attr, FsError> {
        fs.getattr(Ino(self.ino.0), self.handle, patience)
    }

    fn answer(&self, service: &Service, found: Attr, reply: ReplyAttr) {
        reply.attr(&service.fs.policy().ttl, &file_attr(&found));
    }

    fn owned(self) -> Self {
        self
    }
}

/// OPEN.
pub(super) struct Open(pub(super) INodeNo);

/// Files smaller than this cost more to hand to the kernel than to read.
const PASSTHROUGH_MIN_BYTES: u64 = 64 << 10;

impl Question for Open {
    const OPERATION: &'static str = "open";
    type Found = Opened;
    type Reply = ReplyOpen;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.0
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Opened, FsError> {
        fs.open(Ino(self.0.0), patience)
    }

    fn answer(&self, service: &Service, opened: Opened, mut reply: ReplyOpen) {
        // What is open that way must be opened that way.
        let passthrough =
            service.passthrough.load(Ordering::Relaxed) || service.has_backing(self.0);
        if passthrough
            && opened.object.size_bytes() >= PASSTHROUGH_MIN_BYTES
            && let Some(file) = opened.object.backing()
        {
            match service.open_passthrough(self.0, opened.handle, file, reply) {
                None => return,
                Some(back) => reply = back,
            }
        }
        // An inode has one content (see `tree`). A view of what can change says itself whether the
        // pages of its inode are current.
        let flags = match opened.object.is_constant() {
            true => FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::empty(),
        };
        reply.opened(FileHandle(opened.handle.0), flags);
    }

    fn take_back(fs: &Fs, opened: Opened) {
        fs.release(opened.handle);
    }

    fn owned(self) -> Self {
        self
    }
}

/// OPENDIR.
pub(super) struct Opendir(pub(super) INodeNo);

impl Question for Opendir {
    const OPERATION: &'static str = "opendir";
    type Found = Handle;
    type Reply = ReplyOpen;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.0
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Handle, FsError> {
        fs.opendir(Ino(self.0.0), patience)
    }

    fn answer(&self, _: &Service, handle: Handle, reply: ReplyOpen) {
        reply.opened(FileHandle(handle.0), FopenFlags::empty());
    }

    fn take_back(fs: &Fs, handle: Handle) {
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

impl Question for Getxattr<'_> {
    const OPERATION: &'static str = "getxattr";
    type Found = Vec<u8>;
    type Reply = ReplyXattr;
    type Owned = Getxattr<'static>;

    fn ino(&self) -> INodeNo {
        self.ino
    }

    fn name(&self) -> Option<&OsStr> {
        Some(&self.name)
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Vec<u8>, FsError> {
        fs.getxattr(Ino(self.ino.0), self.name.as_bytes(), patience)
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

impl Question for Listxattr {
    const OPERATION: &'static str = "listxattr";
    type Found = Vec<String>;
    type Reply = ReplyXattr;
    type Owned = Self;

    fn ino(&self) -> INodeNo {
        self.ino
    }

    fn ask(&self, fs: &Fs, patience: Patience) -> Result<Vec<String>, FsError> {
        fs.listxattr(Ino(self.ino.0), patience)
    }

    fn answer(&self, _: &Service, names: Vec<String>, reply: ReplyXattr) {
        let names = names.iter().flat_map(|name| name.bytes().chain([0]));
        send_xattr(&names.collect::<Vec<u8>>(), self.room, reply);
    }

    fn owned(self) -> Self {
        self
    }
}
