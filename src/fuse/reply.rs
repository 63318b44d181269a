//! What is said to the kernel, and to the log when a request fails.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyData, ReplyEntry};

use crate::errno::{errno, errno_name};
use crate::fs::{Attr, Fs, FsError, Ino, ReadReply, StoreError};

/// Logs a failed request, once, and says its errno.
pub(super) fn report(
    fs: &Fs,
    operation: &str,
    ino: INodeNo,
    name: Option<&OsStr>,
    error: &FsError,
) -> Errno {
    let errno = errno(error);
    let said = || match (error, name) {
        // These name their key themselves.
        (FsError::Store(error), _) => error.to_string(),
        (error, None) => format!("{}: {error}", fs.key(Ino(ino.0))),
        (error, Some(name)) => {
            let name = name.to_string_lossy();
            format!("{} {}: {error}", fs.key(Ino(ino.0)), name.escape_debug())
        }
    };
    let line = || format!("{operation} {} ({})", said(), errno_name(errno));
    match error {
        FsError::Store(StoreError::NotFound { .. })
        | FsError::ReadOnly
        | FsError::NoAttribute
        | FsError::NoSuchAttributeSpace
        | FsError::NameTooLong => log::debug!("{}", line()),
        _ => {
            fs.stats().failed();
            match fs.stats().may_log() {
                Some(0) => log::warn!("{}", line()),
                Some(left_out) => {
                    log::warn!("{}; {left_out} failures before it are not shown", line());
                }
                None => {}
            }
        }
    }
    Errno::from_i32(errno.raw_os_error())
}

/// The reply to a read; dropped unanswered, it says EIO and counts as a panic.
#[derive(Debug)]
pub(super) struct PendingRead {
    reply: Option<ReplyData>,
    fs: Arc<Fs>,
    ino: INodeNo,
}

impl PendingRead {
    pub(super) fn new(reply: ReplyData, fs: Arc<Fs>, ino: INodeNo) -> Self {
        Self {
            reply: Some(reply),
            fs,
            ino,
        }
    }
}

impl ReadReply for PendingRead {
    fn answer(mut self, result: Result<&[u8], FsError>) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        match result {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(report(&self.fs, "read", self.ino, None, &error)),
        }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            self.fs.stats().panicked();
            reply.error(report(&self.fs, "read", self.ino, None, &FsError::Panicked));
        }
    }
}

/// What stat(2) tells, as the kernel wants it.
pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: attr.modified,
        mtime: attr.modified,
        ctime: attr.modified,
        crtime: attr.modified,
        kind: kind(attr.is_directory),
        perm: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn kind(is_directory: bool) -> FileType {
    if is_directory {
        FileType::Directory
    } else {
        FileType::RegularFile
    }
}

/// Finds a name and says so; a name that is proven absent may be kept as that.
pub(super) fn answer_lookup(fs: &Fs, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
    let policy = fs.policy();
    match fs.lookup(Ino(parent.0), name.as_bytes()) {
        Ok(attr) => reply.entry(&policy.ttl, &file_attr(&attr), Generation(0)),
        Err(FsError::Store(StoreError::NotFound { .. })) if !policy.absent_ttl.is_zero() => {
            // Inode 0 is an answer that the kernel may keep.
            let absent = Attr {
                ino: Ino(0),
                is_directory: false,
                size_bytes: 0,
                blocks: 0,
                modified: SystemTime::UNIX_EPOCH,
                mode: 0,
                links: 0,
                uid: 0,
                gid: 0,
            };
            reply.entry(&policy.absent_ttl, &file_attr(&absent), Generation(0));
        }
        Err(error) => reply.error(report(fs, "lookup", parent, Some(name), &error)),
    }
}
