//! Errors of stores.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::{ErrorKind, Key};
use crate::fallible::NoMemory;

/// A failed operation on a store. Every variant names the key and says what was found.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The key does not exist; this is proven.
    #[error("{key}: no such key")]
    NotFound {
        /// The key that does not exist.
        key: Key,
    },
    /// The key is a prefix that was opened as a value, or a component in the middle of the key is a value.
    #[error("{key}: a directory, or a part of it is not one")]
    NotAPrefix {
        /// The requested key.
        key: Key,
    },
    /// A link without a target, a FIFO, a socket or a device has the name of the key. It is hidden, and does not
    /// prove that the value is absent.
    #[error("{key}: {what}, neither a file nor a directory")]
    NotAFile {
        /// The requested key.
        key: Key,
        /// What was found.
        what: &'static str,
    },
    /// The source refuses, or the key leads out of the source.
    #[error("{key}: access denied: {what}")]
    Denied {
        /// The requested key.
        key: Key,
        /// The reason for the refusal.
        what: String,
        /// The HTTP status, if a server refused.
        status: Option<u16>,
    },
    /// The source has changed since it was opened.
    #[error("{key}: changed at the source: {what}")]
    Stale {
        /// The requested key.
        key: Key,
        /// What differs.
        what: String,
    },
    /// The bytes are proved to be wrong.
    #[error("{key}: {}{what}", if what.contains("corrupt chunk: ") { "" } else { "corrupt: " })]
    Corrupt {
        /// The requested key.
        key: Key,
        /// The expected and the actual value.
        what: String,
    },
    /// The bytes may be right, but this program cannot read them.
    #[error("{key}: not supported: {what}")]
    Unsupported {
        /// The requested key.
        key: Key,
        /// The name of the missing feature.
        what: String,
    },
    /// One request needs more memory than is allowed.
    #[error("{key}: needs {need_bytes} bytes of memory, {}", limit(*limit_bytes))]
    TooLarge {
        /// The requested key.
        key: Key,
        /// Bytes that the request needs.
        need_bytes: u64,
        /// Bytes that are allowed; 0 if the system cannot allocate memory.
        limit_bytes: u64,
    },
    /// The deadline passed without an answer.
    #[error("{key}: no {what} in time")]
    TimedOut {
        /// The requested key.
        key: Key,
        /// What the operation waited for.
        what: String,
    },
    /// No connection to the server of the source.
    #[error("{key}: {what}")]
    Unreachable {
        /// The requested key.
        key: Key,
        /// The host and port, and what to check.
        what: String,
    },
    /// The source failed to answer properly; a later request may succeed.
    #[error("{key}: the source failed: {what}")]
    Unavailable {
        /// The requested key.
        key: Key,
        /// What was tried, and the answer.
        what: String,
    },
    /// A bug: this program found its own data inconsistent. No bytes are served.
    #[error("{key}: internal error: {what}")]
    Internal {
        /// The requested key; the root if it is not known.
        key: Key,
        /// The violated rule.
        what: String,
    },
    /// A system call failed.
    #[error("{key}: {source}")]
    Io {
        /// The requested key.
        key: Key,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
}

fn limit(bytes: u64) -> String {
    match bytes {
        0 => "and the system has none left".into(),
        bytes => format!("the limit is {bytes}"),
    }
}

impl From<NoMemory> for StoreError {
    /// Returns the failure without its key, which [`StoreError::of`] adds.
    fn from(failure: NoMemory) -> Self {
        Self::TooLarge {
            key: Key::root(),
            need_bytes: failure.0,
            limit_bytes: 0,
        }
    }
}

impl StoreError {
    /// Names the key of a lack of memory that has none.
    pub fn of(mut self, named: &Key) -> Self {
        if let Self::TooLarge {
            key,
            limit_bytes: 0,
            ..
        } = &mut self
            && key.is_root()
        {
            key.clone_from(named);
        }
        self
    }

    /// Whether the system had no memory. The same request may succeed later, so nothing may be concluded from it.
    pub fn lacks_memory(&self) -> bool {
        match self {
            Self::TooLarge { limit_bytes, .. } => *limit_bytes == 0,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }

    /// Whether the value exists and will stay unreadable, however often it is read.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::NotAFile { .. }
            | Self::Denied { .. }
            | Self::Corrupt { .. }
            | Self::Unsupported { .. } => true,
            // The system may have memory again.
            Self::TooLarge { limit_bytes, .. } => *limit_bytes > 0,
            Self::NotFound { .. }
            | Self::NotAPrefix { .. }
            | Self::Stale { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Unavailable { .. }
            | Self::Internal { .. }
            | Self::Io { .. } => false,
        }
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::NotAPrefix { .. } => ErrorKind::NotADirectory,
            Self::NotAFile { .. } => ErrorKind::NotAFile,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Stale { .. } => ErrorKind::Changed,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Internal { .. } => ErrorKind::Internal,
            Self::Io { .. } => ErrorKind::Io,
        }
    }

    /// The key of the failed operation.
    pub fn key(&self) -> &Key {
        match self {
            Self::NotFound { key }
            | Self::NotAPrefix { key }
            | Self::NotAFile { key, .. }
            | Self::Denied { key, .. }
            | Self::Stale { key, .. }
            | Self::Corrupt { key, .. }
            | Self::Unsupported { key, .. }
            | Self::TooLarge { key, .. }
            | Self::TimedOut { key, .. }
            | Self::Unreachable { key, .. }
            | Self::Unavailable { key, .. }
            | Self::Internal { key, .. }
            | Self::Io { key, .. } => key,
        }
    }

    /// An internal error, without a key.
    pub fn internal(what: impl Into<String>) -> Self {
        Self::Internal {
            key: Key::root(),
            what: what.into(),
        }
    }

    /// The same failure with another key: that of a value which depends on the failed one.
    pub fn with_key(mut self, to: Key) -> Self {
        let (Self::NotFound { key }
        | Self::NotAPrefix { key }
        | Self::NotAFile { key, .. }
        | Self::Denied { key, .. }
        | Self::Stale { key, .. }
        | Self::Corrupt { key, .. }
        | Self::Unsupported { key, .. }
        | Self::TooLarge { key, .. }
        | Self::TimedOut { key, .. }
        | Self::Unreachable { key, .. }
        | Self::Unavailable { key, .. }
        | Self::Internal { key, .. }
        | Self::Io { key, .. }) = &mut self;
        *key = to;
        self
    }

    /// Converts a failed system call on `key`.
    pub(super) fn from_io(key: &Key, source: io::Error) -> Self {
        let key = key.clone();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => Self::NotFound { key },
            Some(Errno::NOTDIR) => Self::NotAPrefix { key },
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied {
                key,
                what: "by the source's permissions".into(),
                status: None,
            },
            Some(Errno::XDEV) => Self::Denied {
                key,
                what: "the link leads out of the source".into(),
                status: None,
            },
            Some(Errno::LOOP) => Self::Denied {
                key,
                what: "too many links, or one that is not followed".into(),
                status: None,
            },
            Some(Errno::STALE) => Self::Stale {
                key,
                what: source.to_string(),
            },
            _ => Self::Io {
                key,
                source: Arc::new(source),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_readable_again_when_the_system_has_memory_again() {
        let too_large = |limit_bytes| StoreError::TooLarge {
            key: Key::root(),
            need_bytes: 2,
            limit_bytes,
        };
        assert!(too_large(1).is_lasting());
        assert!(!too_large(0).is_lasting());
    }
}
