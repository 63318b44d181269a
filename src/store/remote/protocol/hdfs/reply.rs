//! JSON replies of HDFS servers ("JSON Schemas" and "Error Responses" of the WebHDFS REST API).

use std::time::{Duration, UNIX_EPOCH};

use reqwest::Response;
use serde_json::Value;

use crate::store::check_component;
use crate::store::remote::protocol::web::{ALL_BYTES, body, refusal};
use crate::store::remote::request::arrival::Arrival;
use crate::store::remote::request::{Meta, Page, Refusal, RequestError};

/// Size limit of an error reply in bytes.
const MAX_EXCEPTION_BYTES: u64 = 256 << 10;
/// Number of characters of an error message that are shown.
const MAX_SHOWN_CHARS: usize = 300;

/// The error for a malformed reply.
pub(super) fn unknown(operation: &str) -> RequestError {
    RequestError::lasting(format!(
        "the answer to {operation} is not one of WebHDFS (is host and port that of the name node's web interface?)"
    ))
}

/// A parsed `FileStatus`.
#[derive(Debug, PartialEq)]
pub(super) enum Status {
    File(Meta),
    Directory,
    /// A symbolic link, or a newer kind of file.
    Other,
}

impl Status {
    pub(super) fn parse(status: &Value) -> Option<Self> {
        Some(match status["type"].as_str()? {
            "FILE" => {
                let size_bytes = status["length"].as_u64()?;
                let milliseconds = status["modificationTime"].as_u64()?;
                // Servers before Hadoop 2.2 do not send file IDs.
                let number = status["fileId"].as_u64().unwrap_or(0);
                Self::File(Meta {
                    size_bytes,
                    etag: Some(format!("\"{number}-{milliseconds}\"")),
                    modified: UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)),
                })
            }
            "DIRECTORY" => Self::Directory,
            _ => Self::Other,
        })
    }
}

/// Parses the names in a `FileStatuses`.
fn page(statuses: &Value) -> Option<Page> {
    let mut page = Page {
        is_complete: true,
        ..Page::default()
    };
    for status in statuses["FileStatuses"]["FileStatus"].as_array()? {
        let name = status["pathSuffix"].as_str()?.as_bytes().to_vec();
        if check_component(&name).is_err() {
            page.is_complete = false;
            continue;
        }
        match Status::parse(status)? {
            Status::File(meta) => page.objects.push((name, Some(meta))),
            Status::Directory => page.prefixes.push(name),
            Status::Other => page.is_complete = false,
        }
    }
    Some(page)
}

/// Parses the reply to `LISTSTATUS`.
pub(super) fn all(reply: &Value) -> Result<Page, RequestError> {
    page(reply).ok_or_else(|| unknown("LISTSTATUS"))
}

/// Parses the reply to `LISTSTATUS_BATCH`; the next page begins after its last name.
pub(super) fn batch(reply: &Value) -> Result<Page, RequestError> {
    let listing = &reply["DirectoryListing"];
    let partial = &listing["partialListing"];
    let read = || {
        let mut page = page(partial)?;
        if listing["remainingEntries"].as_u64()? > 0 {
            let last = partial["FileStatuses"]["FileStatus"].as_array()?.last()?;
            page.next = Some(last["pathSuffix"].as_str()?.to_owned());
        }
        Some(page)
    };
    read().ok_or_else(|| unknown("LISTSTATUS_BATCH"))
}

/// A `RemoteException`.
#[derive(Debug)]
pub(super) struct Exception;

impl Exception {
    /// Converts a response with another status than 200.
    pub(super) async fn read(response: Response) -> RequestError {
        let (status, headers) = (response.status(), response.headers().clone());
        let by_status = match refusal(status, &headers) {
            // A 404 without an exception in its body does not come from WebHDFS, so it proves no absence.
            RequestError::NotFound => RequestError::lasting(format!(
                "{status}, and not from WebHDFS (is host and port that of the name node's web interface?)"
            )),
            other => other,
        };
        let Ok(received) = body(
            response,
            None,
            MAX_EXCEPTION_BYTES,
            ALL_BYTES,
            &Arrival::default(),
        )
        .await
        else {
            return by_status;
        };
        let bytes = received.bytes.into_bytes();
        let reply: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let exception = &reply["RemoteException"];
        let Some(name) = exception["exception"].as_str() else {
            return by_status;
        };
        let message = exception["message"].as_str().unwrap_or_default();
        Self::error(status.as_u16(), name, message).unwrap_or(by_status)
    }

    /// Converts an exception; `None` if the status is sufficient.
    fn error(status: u16, name: &str, message: &str) -> Option<RequestError> {
        let line = message.lines().next().unwrap_or_default();
        let what: String = format!("{status}: {name}: {line}")
            .chars()
            .take(MAX_SHOWN_CHARS)
            .collect();
        let refusal = |what| Refusal {
            what,
            status: Some(status),
        };
        Some(match name {
            "FileNotFoundException" if message.contains("is not a file") => RequestError::IsPrefix,
            "FileNotFoundException" => RequestError::NotFound,
            "InvalidToken" => RequestError::Expired(refusal(what)),
            "AccessControlException"
            | "SecurityException"
            | "AuthorizationException"
            | "AuthenticationException" => RequestError::Denied(refusal(what)),
            // The other name node may become active, and safe mode ends.
            "StandbyException" | "RetriableException" | "SafeModeException" => {
                RequestError::transient(what)
            }
            "UnsupportedOperationException" | "IllegalArgumentException" if status == 400 => {
                RequestError::NoListing(what)
            }
            _ if status < 500 && status != 429 => RequestError::lasting(what),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_of_a_directory_follow_each_other() {
        let file = json!({"pathSuffix": "0.0", "type": "FILE", "length": 7, "modificationTime": 1500, "fileId": 3});
        let directory =
            json!({"pathSuffix": "a", "type": "DIRECTORY", "length": 0, "modificationTime": 0});
        let link =
            json!({"pathSuffix": "b", "type": "SYMLINK", "length": 0, "modificationTime": 0});
        let statuses = |all: &[&Value]| json!({"FileStatuses": {"FileStatus": all}});
        let reply = |all: &[&Value], rest: u64| json!({"DirectoryListing": {"partialListing": statuses(all), "remainingEntries": rest}});
        let page = batch(&reply(&[&file, &directory], 5)).unwrap();
        assert_eq!(page.next.as_deref(), Some("a"));
        assert_eq!(
            (page.prefixes, page.is_complete),
            (vec![b"a".to_vec()], true)
        );
        let (name, meta) = page.objects.first().cloned().unwrap();
        let meta = meta.unwrap();
        assert_eq!((&name[..], meta.size_bytes), (&b"0.0"[..], 7));
        assert_eq!(meta.etag.as_deref(), Some("\"3-1500\""));
        assert_eq!(
            meta.modified,
            Some(UNIX_EPOCH + Duration::from_millis(1500))
        );
        assert!(batch(&reply(&[&file], 0)).unwrap().next.is_none());
        assert!(!all(&statuses(&[&link])).unwrap().is_complete);
        for wrong in [
            json!({}),
            json!([]),
            reply(&[&json!({"type": "FILE"})], 0),
            reply(&[], 1),
        ] {
            assert!(batch(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn exceptions_of_hdfs_have_their_errors() {
        let error = |status, name, message| Exception::error(status, name, message);
        assert!(matches!(
            error(404, "FileNotFoundException", "File does not exist: /a"),
            Some(RequestError::NotFound)
        ));
        assert!(matches!(
            error(404, "FileNotFoundException", "Path is not a file: /a"),
            Some(RequestError::IsPrefix)
        ));
        assert!(matches!(
            error(403, "AccessControlException", "Permission denied: user=x"),
            Some(RequestError::Denied(_))
        ));
        let Some(RequestError::Failed(failed)) = error(403, "StandbyException", "not here") else {
            panic!("a failure");
        };
        assert!(failed.is_transient);
        assert!(error(500, "RuntimeException", "").is_none());
    }
}
