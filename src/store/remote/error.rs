//! Why a remote source cannot be opened, and advice for users.

use crate::store::StoreError;

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

/// Advice for a source that refuses access.
fn advice(label: &str, error: &StoreError) -> &'static str {
    let is_web = label.starts_with("http");
    match error {
        StoreError::Denied { .. } if label.starts_with("mongodb") => {
            " (credentials come from MONGODB_USERNAME and MONGODB_PASSWORD in the environment or in \
             --env-file, or from the URL)"
        }
        StoreError::Denied { .. } if label.starts_with("redis") => {
            " (credentials come from REDIS_PASSWORD and REDIS_USERNAME in the environment or in \
             --env-file, or from the URL)"
        }
        StoreError::Denied {
            status: Some(401), ..
        } if is_web => " (a password goes into the URL, a token into --header)",
        StoreError::Denied { .. } if is_web => {
            " (a password goes into the URL, a token into --header; --missing-status 403 where a \
             server says so of what is not there)"
        }
        StoreError::Denied { status: None, .. } => {
            " (credentials come from the environment, --env-file or --profile; --anonymous sends none)"
        }
        StoreError::Denied { .. } => {
            " (credentials come from the environment, --env-file or --profile; --anonymous asks \
             without any)"
        }
        StoreError::TimedOut { .. } => " (--timeout sets the limit)",
        _ => "",
    }
}
