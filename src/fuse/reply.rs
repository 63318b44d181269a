//! Replies to the kernel, and the log line of a failed request.

use std::ffi::OsStr;
use std::time::SystemTime;

use fuser::{
    Errno, FileAttr, FileType, INodeNo, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEntry, ReplyOpen, ReplyXattr,
};

use super::in_flight::ErrorReply;
use crate::errno::{errno, errno_name};
use crate::fs::{Fs, FsError, Ino, Node, Policy, StoreError};
use crate::recent_errors::RecentError;
use crate::store::{Key, Kind, Stat, Version};

/// Logs a failed request once and returns its errno.
pub(super) fn report(
    fs: &Fs,
    operation: &str,
    ino: INodeNo,
    name: Option<&OsStr>,
    error: &FsError,
) -> Errno {
    let errno = errno(error);
    let said = || match (error, name) {
        // The messages of store errors contain the key.
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
        | FsError::NameTooLong
        | FsError::Interrupted => log::debug!("{}", line()),
        _ => {
            fs.stats().failed(errno_name(errno));
            fs.recent_errors()
                .add(recent(fs, operation, ino, name, error));
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

/// Returns the entry of a failed request for `errors.txt`.
fn recent(
    fs: &Fs,
    operation: &str,
    ino: INodeNo,
    name: Option<&OsStr>,
    error: &FsError,
) -> RecentError {
    let own = match error {
        FsError::Store(error) => error.key().clone(),
        _ => Key::root(),
    };
    let mut key = match own.is_root() {
        true => fs.key(Ino(ino.0)).to_string(),
        false => own.to_string(),
    };
    if let Some(name) = name.filter(|_| own.is_root()) {
        key = format!("{key}/{}", name.to_string_lossy());
    }
    let text = error.to_string();
    let cause = text.strip_prefix(&format!("{own}: ")).unwrap_or(&text);
    RecentError {
        time: SystemTime::now(),
        operation: operation.to_owned(),
        key,
        errno: errno_name(errno(error)),
        cause: cause.to_owned(),
    }
}

/// Returns the attributes of a node as the kernel expects them.
pub(super) fn file_attr(node: &Node, policy: &Policy) -> FileAttr {
    let Node { ino, stat } = node;
    let is_directory = stat.kind == Kind::Prefix;
    // The mount is read-only whatever the modes are. The write bits let users change and remove copies.
    let full: u16 = if is_directory { 0o755 } else { 0o644 };
    FileAttr {
        ino: INodeNo(ino.0),
        size: stat.size_bytes,
        // Set for every object. `tar -S` and other programs take a file with fewer blocks for a sparse file,
        // and a file without blocks for an empty one.
        blocks: stat.size_bytes.div_ceil(512),
        atime: stat.modified,
        mtime: stat.modified,
        ctime: stat.modified,
        crtime: stat.modified,
        kind: kind(is_directory),
        perm: full & !policy.umask,
        nlink: stat.links,
        uid: policy.uid,
        gid: policy.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Returns a node with only an inode number and a kind, and neutral attributes. With inode 0, it is
/// a negative entry, which the kernel may cache.
pub(super) fn without_attributes(ino: Ino, kind: Kind) -> Node {
    let stat = Stat {
        kind,
        size_bytes: 0,
        modified: SystemTime::UNIX_EPOCH,
        version: Version(0),
        links: 1,
    };
    Node { ino, stat }
}

pub(super) fn kind(is_directory: bool) -> FileType {
    if is_directory {
        FileType::Directory
    } else {
        FileType::RegularFile
    }
}

/// Replies with the value, or with its size if `room` is 0.
pub(super) fn send_xattr(value: &[u8], room: u32, reply: ReplyXattr) {
    match u32::try_from(value.len()) {
        Ok(size) if room == 0 => reply.size(size),
        Ok(size) if size <= room => reply.data(value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(_) => reply.error(Errno::E2BIG),
    }
}

macro_rules! can_refuse {
    ($($reply:ty),*) => {
        $(impl ErrorReply for $reply {
            fn refuse(self, errno: Errno) {
                self.error(errno);
            }
        })*
    };
}

can_refuse!(
    ReplyAttr,
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEntry,
    ReplyOpen,
    ReplyXattr
);
