//! The counters of a running mount.

use std::path::Path;

use rustix::io::Errno;
use serde_json::{Map, Value};

use super::{Failure, kernel, mountpoint};

/// What the root of every mount tells of it.
const ATTRIBUTE: &str = "user.zarrfs.stats";
/// No extended attribute is longer (xattr(7)).
const MAX_VALUE_BYTES: usize = 64 << 10;

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
    let mut value = vec![0; MAX_VALUE_BYTES];
    let length = rustix::fs::getxattr(&path, ATTRIBUTE, &mut value).map_err(|e| match e {
        Errno::NOTCONN => format!("{shown}: the daemon of this mount is gone"),
        e => format!("{shown}: {e}"),
    })?;
    let text = value.get(..length).unwrap_or_default();
    serde_json::from_slice(text).map_err(|e| format!("{shown}: {ATTRIBUTE}: {e}").into())
}
