//! What is said to the kernel, and to the log, when a request fails.

use std::ffi::OsStr;
use std::sync::Arc;

use fuser::{Errno, INodeNo, ReplyData};

use crate::errno::{errno, errno_name};
use crate::fs::{Fs, FsError, Ino, ReadReply, StoreError};

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
