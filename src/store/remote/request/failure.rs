//! Why a request failed.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use rustix::io::Errno;

use super::{Got, Meta};
use crate::store::{Key, StoreError};

/// Why a request failed.
#[derive(Debug)]
pub(in crate::store::remote) enum RequestError {
    /// The object does not exist; this is proven.
    NotFound,
    /// The version that the caller has is current.
    NotModified,
    /// The server reports that the key is a directory.
    IsPrefix,
    /// The object is longer than the requested limit.
    TooLong(Meta),
    /// The object no longer has the expected version.
    Changed(String),
    /// The source refuses the request.
    Denied(Refusal),
    /// The source refuses credentials that were valid before.
    Expired(Refusal),
    /// The bucket is in this region, and not in that of the request (S3).
    OtherRegion(String),
    /// The source cannot list.
    NoListing(String),
    /// The range does not lie within the object (416), and the response does not report its size.
    NoSuchRange,
    /// The source redirects to a storage that is no web server, which is read in another way.
    OtherStorage(String),
    /// The response does not mark the end of its body, so a truncated body would look complete.
    Unframed,
    /// No response arrived in time.
    TimedOut(String),
    /// Any other failure.
    Failed(Failed),
}

/// A refused request, or one that could not be signed.
#[derive(Debug)]
pub(in crate::store::remote) struct Refusal {
    pub(in crate::store::remote) what: String,
    /// The HTTP status; `None` if nothing was sent.
    pub(in crate::store::remote) status: Option<u16>,
}

/// The kind of a failure.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::remote) enum FailureKind {
    /// The server has too many requests (429, 503).
    Throttled,
    /// No connection: the host name does not resolve, or the host refuses or has no route.
    Unreachable,
    /// The system had no memory for the response.
    NoMemory,
    #[default]
    Other,
}

impl FailureKind {
    pub(in crate::store::remote) fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Self::Throttled,
            _ => Self::Other,
        }
    }
}

/// A request that failed.
#[derive(Debug, Default)]
pub(in crate::store::remote) struct Failed {
    pub(in crate::store::remote) what: String,
    pub(in crate::store::remote) kind: FailureKind,
    /// Whether another attempt may succeed.
    pub(in crate::store::remote) is_transient: bool,
    /// The delay that the source asks for before another attempt.
    pub(in crate::store::remote) retry_after: Option<Duration>,
    /// The bytes that arrived before the response broke off.
    pub(in crate::store::remote) partial: Option<Box<Got>>,
}

impl RequestError {
    /// A failure that would recur with every attempt.
    pub(in crate::store::remote) fn lasting(what: impl Into<String>) -> Self {
        Self::Failed(Failed {
            what: what.into(),
            ..Failed::default()
        })
    }

    pub(in crate::store::remote) fn no_memory() -> Self {
        Self::Failed(Failed {
            what: "there is no memory for it".into(),
            kind: FailureKind::NoMemory,
            ..Failed::default()
        })
    }

    /// A failure that may be temporary.
    pub(in crate::store::remote) fn transient(what: impl Into<String>) -> Self {
        Self::Failed(Failed {
            what: what.into(),
            is_transient: true,
            ..Failed::default()
        })
    }

    /// Converts the failure to an error of a key.
    pub(in crate::store::remote) fn of(self, key: &Key) -> StoreError {
        let key = key.clone();
        match self {
            Self::NotFound => StoreError::NotFound { key },
            Self::Changed(what) => StoreError::Stale { key, what },
            Self::Denied(Refusal { what, status }) | Self::Expired(Refusal { what, status }) => {
                StoreError::Denied { key, what, status }
            }
            Self::OtherRegion(region) => StoreError::Unavailable {
                key,
                what: format!("the bucket is in the region {region}"),
            },
            Self::NoListing(what) => StoreError::Unsupported { key, what },
            Self::NoSuchRange => StoreError::Unavailable {
                key,
                what: "416: the server does not send this range".into(),
            },
            Self::OtherStorage(label) => StoreError::Unsupported {
                key,
                what: format!(
                    "it is redirected to {label}: only the URL of an Icechunk repository leads to another storage"
                ),
            },
            Self::Unframed => StoreError::Unsupported {
                key,
                what: "the server sends neither its length (Content-Length) nor chunks: where the \
                       connection ends, all of it may have come or a part"
                    .into(),
            },
            Self::TimedOut(what) => StoreError::TimedOut { key, what },
            Self::Failed(Failed {
                what,
                kind: FailureKind::Unreachable,
                ..
            }) => StoreError::Unreachable { key, what },
            Self::Failed(Failed {
                kind: FailureKind::NoMemory,
                ..
            }) => StoreError::Io {
                key,
                source: Arc::new(Errno::NOMEM.into()),
            },
            Self::Failed(failed) => StoreError::Unavailable {
                key,
                what: failed.what,
            },
            Self::IsPrefix => StoreError::NotAPrefix { key },
            Self::TooLong(meta) => StoreError::Unavailable {
                key,
                what: format!("{} bytes, which was not expected", meta.size_bytes),
            },
            Self::NotModified => StoreError::Unavailable {
                key,
                what: "\"not modified\" to a question without a condition".into(),
            },
        }
    }
}
