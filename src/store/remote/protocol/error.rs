//! Why a remote source cannot be opened, and advice for users.

use crate::store::StoreError;
use crate::store::remote::protocol::Protocol;

/// Why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The name of the source is invalid.
    #[error("{label}: {what}")]
    Invalid {
        /// The source, without secrets.
        label: String,
        /// The reason.
        what: String,
    },
    /// The source does not respond properly, or refuses access.
    #[error("{label}: {}{}", cause(error), advice(label, error))]
    Failed {
        /// The source, without secrets.
        label: String,
        /// The request and its response.
        error: StoreError,
    },
    /// The source responds, but has no Zarr data.
    #[error("{label}: there is neither a Zarr hierarchy nor a zip archive: {what}")]
    NothingThere {
        /// The source, without secrets.
        label: String,
        /// The documents that were looked for.
        what: String,
    },
    /// The source is a single object of an unsupported format.
    #[error(
        "{label}: {what}; zarrfs mounts the URL of a Zarr hierarchy, of a zip archive of one, or of \
         references (kerchunk, VirtualiZarr) to such files"
    )]
    OtherFormat {
        /// The source, without secrets.
        label: String,
        /// The format of the object.
        what: String,
    },
    /// Threads could not be created.
    #[error("{label}: {error}")]
    System {
        /// The source, without secrets.
        label: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
}

/// The message of a failure; an unreachable server is reported without a key.
fn cause(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable { what, .. } => what.clone(),
        error => error.to_string(),
    }
}

/// Advice for a source that refuses access or is late.
fn advice(label: &str, error: &StoreError) -> &'static str {
    match error {
        StoreError::Denied { status, .. } => {
            Protocol::of_url(label).map_or("", |protocol| (protocol.denied)(*status))
        }
        StoreError::TimedOut { .. } => " (--timeout sets the limit)",
        _ => "",
    }
}
