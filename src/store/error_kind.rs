//! Kinds of failures, for programs that run commands: each has a name that stays the same in all versions.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use super::icechunk::IcechunkError;
use super::reference::ReferenceError;
use super::remote::RemoteOpenError;
use super::source::OpenError;
use super::stac::StacError;
use super::zip::ZipError;
use super::{DatabaseError, StoreError};

/// What kind of failure an error is.
///
/// # Examples
/// ```
/// use zarrfs::store::ErrorKind;
///
/// let failure = ErrorKind::NotMounted.failure("/mnt/ocean: nothing is mounted there");
/// assert_eq!(ErrorKind::of(&*failure).name(), "not_mounted");
/// assert_eq!("timed_out".parse(), Ok(ErrorKind::TimedOut));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The arguments contradict each other, the machine or the source.
    Usage,
    /// A source, a key or a file does not exist.
    NotFound,
    /// A part of a path is not a directory, or the path is a directory.
    NotADirectory,
    /// A link without a target, or a special file.
    NotAFile,
    /// The source has no Zarr or N5 hierarchy.
    NotZarr,
    /// The node has no such view.
    NoView,
    /// Permissions or a server refuse access.
    Denied,
    /// The source has changed.
    Changed,
    /// Bytes are proved to be wrong.
    Corrupt,
    /// This version cannot read the data, which may be right.
    Unsupported,
    /// More memory is needed than is allowed.
    TooLarge,
    /// No answer in time.
    TimedOut,
    /// No connection to a server.
    Unreachable,
    /// A server fails; a later request may succeed.
    Unavailable,
    /// A file exists that would be overwritten.
    Exists,
    /// The mountpoint cannot be mounted on.
    Mountpoint,
    /// Nothing is mounted there, or not by zarrfs.
    NotMounted,
    /// A program uses the mount.
    Busy,
    /// The daemon of the mount is gone or does not answer.
    NoDaemon,
    /// A system call failed.
    Io,
    /// A bug of this program.
    Internal,
    /// Another failure.
    Other,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::Usage,
        Self::NotFound,
        Self::NotADirectory,
        Self::NotAFile,
        Self::NotZarr,
        Self::NoView,
        Self::Denied,
        Self::Changed,
        Self::Corrupt,
        Self::Unsupported,
        Self::TooLarge,
        Self::TimedOut,
        Self::Unreachable,
        Self::Unavailable,
        Self::Exists,
        Self::Mountpoint,
        Self::NotMounted,
        Self::Busy,
        Self::NoDaemon,
        Self::Io,
        Self::Internal,
        Self::Other,
    ];

    /// Returns the name in JSON documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::NotADirectory => "not_a_directory",
            Self::NotAFile => "not_a_file",
            Self::NotZarr => "not_zarr",
            Self::NoView => "no_view",
            Self::Denied => "denied",
            Self::Changed => "changed",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::TooLarge => "too_large",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::Unavailable => "unavailable",
            Self::Exists => "exists",
            Self::Mountpoint => "mountpoint",
            Self::NotMounted => "not_mounted",
            Self::Busy => "busy",
            Self::NoDaemon => "no_daemon",
            Self::Io => "io",
            Self::Internal => "internal",
            Self::Other => "other",
        }
    }

    /// Returns a failure of this kind.
    pub fn failure(self, message: impl Into<String>) -> Box<dyn Error + Send + Sync> {
        Box::new(KindFailure {
            kind: self,
            message: message.into(),
        })
    }

    /// Returns the failure of an operation on a path: the kind is that of `error`.
    pub fn at(path: &Path, error: impl Error + 'static) -> Box<dyn Error + Send + Sync> {
        Self::of(&error).failure(format!("{}: {error}", path.display()))
    }

    /// Returns a failure as it is, or one of this kind if it has none.
    pub fn or(self, failure: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
        match Self::of(&*failure) {
            Self::Other => self.failure(failure.to_string()),
            _ => failure,
        }
    }

    /// Returns the kind of an error: that of the first error in its chain of causes that has one.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(kind) = own_kind(error) {
                return kind;
            }
            next = error.source();
        }
        Self::Other
    }
}

impl FromStr for ErrorKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut kinds = Self::ALL.into_iter();
        let kind = kinds.find(|kind| kind.name() == name);
        kind.ok_or_else(|| format!("no kind of errors has the name {name}"))
    }
}

/// A message with a kind.
#[derive(Debug)]
struct KindFailure {
    kind: ErrorKind,
    message: String,
}

impl fmt::Display for KindFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for KindFailure {}

fn own_kind(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    if let Some(failure) = error.downcast_ref::<KindFailure>() {
        return Some(failure.kind);
    }
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return Some(error.kind());
    }
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return Some(of_open_error(error));
    }
    if let Some(error) = error.downcast_ref::<RemoteOpenError>() {
        return Some(of_remote_error(error));
    }
    error.downcast_ref::<io::Error>().map(of_io_error)
}

fn of_io_error(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => ErrorKind::NotADirectory,
        io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        io::ErrorKind::TimedOut => ErrorKind::TimedOut,
        io::ErrorKind::OutOfMemory => ErrorKind::TooLarge,
        _ => ErrorKind::Io,
    }
}

fn of_open_error(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::UnknownScheme { .. }
        | OpenError::UnknownPart { .. }
        | OpenError::InvalidPart { .. }
        | OpenError::TwoVersions { .. }
        | OpenError::NoVersions { .. } => ErrorKind::Usage,
        OpenError::WrongKind { .. } => ErrorKind::NotAFile,
        OpenError::Truncated { .. } => ErrorKind::Corrupt,
        OpenError::OtherFormat { .. } | OpenError::NotIcechunk { .. } => ErrorKind::NotZarr,
        OpenError::Database { error, .. } => match error {
            DatabaseError::Unsupported(_) => ErrorKind::Unsupported,
            DatabaseError::Store(error) => error.kind(),
            DatabaseError::Io(error) => of_io_error(error),
        },
        OpenError::Reference { error, .. } => match error {
            ReferenceError::Invalid(_) => ErrorKind::Corrupt,
            ReferenceError::Unsupported(_) => ErrorKind::Unsupported,
            ReferenceError::TooLarge { .. } | ReferenceError::NoMemory(_) => ErrorKind::TooLarge,
            ReferenceError::Io(error) => of_io_error(error),
            ReferenceError::Store(error) => error.kind(),
        },
        OpenError::Stac { error, .. } => match error {
            StacError::NoZarr { .. } | StacError::Catalog => ErrorKind::NotZarr,
            StacError::Denied { .. } => ErrorKind::Denied,
            StacError::TooManyAssets { .. } => ErrorKind::Unsupported,
            StacError::Io(error) => of_io_error(error),
            StacError::Store(error) => error.kind(),
        },
        OpenError::Icechunk { error, .. } => match error {
            IcechunkError::UnknownRef { .. } => ErrorKind::NotFound,
            IcechunkError::Store(error) => error.kind(),
        },
        OpenError::Zip { error, .. } => match error {
            ZipError::TooLarge { .. } | ZipError::NoMemory(_) => ErrorKind::TooLarge,
            ZipError::Io(error) => of_io_error(error),
            ZipError::Source(error) => error.kind(),
            _ => ErrorKind::Corrupt,
        },
        OpenError::Remote(error) => of_remote_error(error),
        OpenError::Io { error, .. } => of_io_error(error),
    }
}

fn of_remote_error(error: &RemoteOpenError) -> ErrorKind {
    match error {
        RemoteOpenError::Invalid { .. } => ErrorKind::Usage,
        RemoteOpenError::Failed { error, .. } => error.kind(),
        RemoteOpenError::NothingThere { .. } | RemoteOpenError::OtherFormat { .. } => {
            ErrorKind::NotZarr
        }
        RemoteOpenError::System { error, .. } => of_io_error(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_has_a_name_of_its_own() {
        let names: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), ErrorKind::ALL.len());
        for kind in ErrorKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("Usage".parse::<ErrorKind>().is_err());
    }

    #[test]
    fn the_kind_is_that_of_the_first_cause_that_has_one() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(ErrorKind::of(&denied), ErrorKind::Denied);
        let wrapped = io::Error::other(StoreError::internal("x"));
        assert_eq!(ErrorKind::of(&wrapped), ErrorKind::Io);
        let text: Box<dyn Error + Send + Sync> = "x".into();
        assert_eq!(ErrorKind::of(&*text), ErrorKind::Other);
    }
}
