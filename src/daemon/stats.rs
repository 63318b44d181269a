//! The metrics of a running mount.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::{Map, Value};

use super::probe::{self, TIMEOUT};
use super::{Failure, kernel, mountpoint, socket};

/// The extended attribute with the path of the metrics socket.
const SOCKET: &str = "user.zarrfs.socket";
/// The extended attribute with the totals, for a daemon without a socket.
const TOTALS: &str = "user.zarrfs.stats";
/// The size of the largest document, which has some thousand arrays.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// Returns the metrics of the mount on `mountpoint`.
///
/// # Errors
/// If no zarrfs is mounted there, or the daemon does not answer.
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
    let attribute = |name| match probe::attribute(&path, name) {
        Err(Errno::NOTCONN) => Err(format!("{shown}: the daemon of this mount is gone")),
        Err(Errno::TIMEDOUT) => Err(format!(
            "{shown}: the daemon has not answered in {TIMEOUT:?}"
        )),
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
    let stream = socket::connect(path, TIMEOUT)?;
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
            format!("the daemon has not answered in {TIMEOUT:?}")
        }
        _ => error.to_string(),
    }
}
