//! The mapping from errors to errno values.

use std::io::ErrorKind;

use rustix::io::Errno;

use crate::fs::FsError;
use crate::store::StoreError;

/// Returns the errno of a failed request.
pub fn errno(error: &FsError) -> Errno {
    match error {
        FsError::Store(error) => store_errno(error),
        FsError::ReadOnly => Errno::ROFS,
        FsError::NotADirectory => Errno::NOTDIR,
        FsError::IsADirectory => Errno::ISDIR,
        FsError::NameTooLong => Errno::NAMETOOLONG,
        FsError::BadHandle => Errno::BADF,
        FsError::NoAttribute => Errno::NODATA,
        FsError::NoSuchAttributeSpace => Errno::OPNOTSUPP,
        FsError::Interrupted => Errno::INTR,
        FsError::TimedOut => Errno::TIMEDOUT,
        FsError::Panicked => Errno::IO,
    }
}

fn store_errno(error: &StoreError) -> Errno {
    match error {
        StoreError::NotFound { .. } | StoreError::NotAFile { .. } => Errno::NOENT,
        StoreError::NotAPrefix { .. } => Errno::NOTDIR,
        StoreError::Denied { .. } => Errno::ACCESS,
        StoreError::Stale { .. } => Errno::STALE,
        StoreError::Corrupt { .. } => Errno::IO,
        StoreError::Unsupported { .. } => Errno::OPNOTSUPP,
        StoreError::TooLarge { .. } => Errno::NOMEM,
        StoreError::TimedOut { .. } => Errno::TIMEDOUT,
        StoreError::Unreachable { .. } | StoreError::Unavailable { .. } => Errno::IO,
        StoreError::Internal { .. } => Errno::IO,
        // If the caller can act on the errno of the system, it is passed on; otherwise it becomes EIO.
        StoreError::Io { source, .. } if source.kind() == ErrorKind::OutOfMemory => Errno::NOMEM,
        StoreError::Io { source, .. } => match Errno::from_io_error(source) {
            Some(errno @ (Errno::MFILE | Errno::NFILE | Errno::NAMETOOLONG)) => errno,
            Some(Errno::INTR) => Errno::INTR,
            Some(Errno::TIMEDOUT) => Errno::TIMEDOUT,
            _ => Errno::IO,
        },
    }
}

/// Returns the symbol of an errno of [`errno`], for the log.
pub fn errno_name(errno: Errno) -> &'static str {
    match errno {
        Errno::ROFS => "EROFS",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::BADF => "EBADF",
        Errno::NODATA => "ENODATA",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::NOENT => "ENOENT",
        Errno::ACCESS => "EACCES",
        Errno::STALE => "ESTALE",
        Errno::NOMEM => "ENOMEM",
        Errno::MFILE => "EMFILE",
        Errno::NFILE => "ENFILE",
        Errno::INTR => "EINTR",
        Errno::TIMEDOUT => "ETIMEDOUT",
        _ => "EIO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Key;
    use std::io;
    use std::sync::Arc;

    #[test]
    fn every_error_has_the_errno_of_the_contract() {
        let key = Key::root;
        let what = || String::from("x");
        let system = |errno: Errno| StoreError::Io {
            key: key(),
            source: Arc::new(io::Error::from(errno)),
        };
        let cases = [
            (StoreError::NotFound { key: key() }, Errno::NOENT),
            (StoreError::NotAPrefix { key: key() }, Errno::NOTDIR),
            (
                StoreError::NotAFile {
                    key: key(),
                    what: "a FIFO",
                },
                Errno::NOENT,
            ),
            (
                StoreError::Denied {
                    key: key(),
                    what: what(),
                    status: None,
                },
                Errno::ACCESS,
            ),
            (
                StoreError::Stale {
                    key: key(),
                    what: what(),
                },
                Errno::STALE,
            ),
            (
                StoreError::Corrupt {
                    key: key(),
                    what: what(),
                },
                Errno::IO,
            ),
            (
                StoreError::Unsupported {
                    key: key(),
                    what: what(),
                },
                Errno::OPNOTSUPP,
            ),
            (
                StoreError::TooLarge {
                    key: key(),
                    need_bytes: 2,
                    limit_bytes: 1,
                },
                Errno::NOMEM,
            ),
            (
                StoreError::TimedOut {
                    key: key(),
                    what: what(),
                },
                Errno::TIMEDOUT,
            ),
            (
                StoreError::Unavailable {
                    key: key(),
                    what: what(),
                },
                Errno::IO,
            ),
            (StoreError::internal("x"), Errno::IO),
            (system(Errno::MFILE), Errno::MFILE),
            (system(Errno::NOMEM), Errno::NOMEM),
            (
                StoreError::Io {
                    key: key(),
                    source: Arc::new(io::Error::new(ErrorKind::OutOfMemory, "no memory")),
                },
                Errno::NOMEM,
            ),
            (system(Errno::TIMEDOUT), Errno::TIMEDOUT),
            (system(Errno::NOSPC), Errno::IO),
        ];
        for (error, expected) in cases {
            let found = errno(&FsError::Store(error.clone()));
            assert_eq!(found, expected, "{error}");
            assert_eq!(errno_name(found) == "EIO", found == Errno::IO, "{error}");
        }
        assert_eq!(errno(&FsError::ReadOnly), Errno::ROFS);
        assert_eq!(errno(&FsError::NoAttribute), Errno::NODATA);
        assert_eq!(errno(&FsError::Interrupted), Errno::INTR);
        assert_eq!(errno(&FsError::TimedOut), Errno::TIMEDOUT);
        assert_eq!(errno(&FsError::Panicked), Errno::IO);
    }
}
