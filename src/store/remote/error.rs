//! Why a remote source cannot be opened, and what can be done about it.

use crate::store::StoreError;

/// Why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It is not written as a source is.
    #[error("{label}: {what}")]
    Invalid {
        /// The source, without secrets.
        label: String,
        /// What is wrong.
        what: String,
    },
    /// It does not answer as it should, or refuses.
    #[error("{label}: {}{}", cause(error), advice(label, error))]
    Failed {
        /// The source, without secrets.
        label: String,
        /// What was asked and what came back.
        error: StoreError,
    },
    /// It answers, and nothing of Zarr is there.
    #[error("{label}: there is neither a Zarr hierarchy nor a zip archive: {what}")]
    NothingThere {
        /// The source, without secrets.
        label: String,
        /// What was looked for.
        what: String,
    },
    /// A single object is there, in a format that is no source.
    #[error(
        "{label}: {what}; zarrfs mounts the URL of a Zarr hierarchy, of a zip archive of one, or of \
         references (kerchunk, VirtualiZarr) to such files"
    )]
    OtherFormat {
        /// The source, without secrets.
        label: String,
        /// What the object is.
        what: String,
    },
    /// The system gives no threads.
    #[error("{label}: {error}")]
    System {
        /// The source, without secrets.
        label: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// The message of a failure; a server that cannot be reached is about no key.
fn cause(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable { what, .. } => what.clone(),
        error => error.to_string(),
    }
}

/// What can be done about a refusal.
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
