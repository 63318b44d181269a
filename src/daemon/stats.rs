//! The counters of a running mount, as its daemon tells them.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::{Map, Value};

use super::answer::{self, LIMIT};
use super::{Failure, kernel, mountpoint, socket};

/// Where the root of a mount tells that its daemon listens.
const SOCKET: &str = "user.zarrfs.socket";
/// What it tells itself, if there is no socket: totals only.
const TOTALS: &str = "user.zarrfs.stats";
/// No document is longer: it has some thousand arrays, whose names are those of keys.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// The counters and gauges of the mount on `mountpoint`, as the daemon names them.
///
/// # Errors
/// If nothing of ours is mounted there, or it does not answer.
pub fn stats(given: &Path) -> Result<Map<String, Value>, Failure> {
    let shown = given.display();
    let path = mountpoint::resolve(given).map_err(|e| format!("{shown}: {e}"))?;
    match mountpoint::entry(&path)? {
        None => return Err(format!("{shown}: nothing is mounted there").into()),
        Some(entry) if entry.kind != kernel::FS_TYPE => {
            let what = format!("the mount there is of type {}, not zarrfs", entry.kind);
            return Err(format!("{shown}: {what}").into());
        }
        Some(_) => {}
    }
    let attribute = |name| match answer::attribute(&path, name) {
        Err(Errno::NOTCONN) => Err(format!("{shown}: the daemon of this mount is gone")),
        Err(Errno::TIMEDOUT) => Err(format!("{shown}: the daemon has not answered in {LIMIT:?}")),
        Err(Errno::NODATA) => Ok(None),
        Err(e) => Err(format!("{shown}: {e}")),
        Ok(value) => Ok(Some(value)),
    };
    let document = match attribute(SOCKET)? {
        Some(socket) => {
            let socket = PathBuf::from(OsStr::from_bytes(&socket));
            ask(&socket).map_err(|e| format!("{shown}: {}: {}", socket.display(), why(&e)))?
        }
        None => attribute(TOTALS)?.ok_or_else(|| format!("{shown}: it tells no counters"))?,
    };
    serde_json::from_slice(&document).map_err(|e| format!("{shown}: {e}").into())
}

fn ask(path: &Path) -> io::Result<Vec<u8>> {
    let mut document = Vec::new();
    let stream = socket::connect(path, LIMIT)?;
    stream.take(MAX_DOCUMENT_BYTES).read_to_end(&mut document)?;
    match document.is_empty() {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(document),
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "only the user that the daemon runs as, and root, are told".into()
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("the daemon does not listen there ({error})")
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the daemon has not answered in {LIMIT:?}")
        }
        _ => error.to_string(),
    }
}
