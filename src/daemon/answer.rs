//! Questions to a mount whose daemon may be stopped, or gone: none is waited for without end.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;

/// A daemon answers at once.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// No extended attribute is longer (xattr(7)).
const MAX_VALUE_BYTES: usize = 64 << 10;

/// An extended attribute; ETIMEDOUT if nobody answers.
pub(super) fn attribute(path: &Path, name: &'static str) -> Result<Vec<u8>, Errno> {
    let path = path.to_owned();
    within(LIMIT, move || {
        let mut value = vec![0; MAX_VALUE_BYTES];
        let length = rustix::fs::getxattr(&path, name, &mut value)?;
        value.truncate(length);
        Ok(value)
    })
}

/// Whether the daemon of a mount is gone for good, which the kernel knows.
pub(super) fn is_dead(path: &Path) -> bool {
    let path = path.to_owned();
    let answer = within(LIMIT, move || rustix::fs::statvfs(&path).map(|_| ()));
    answer == Err(Errno::NOTCONN)
}

/// What a call says that the kernel may not come back from.
fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    let (sender, receiver) = mpsc::channel();
    let asking = std::thread::Builder::new().name("zarrfs-ask".into());
    // Nobody listens any more when the limit has passed.
    let started = asking.spawn(move || _ = sender.send(call()));
    started.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))?;
    receiver.recv_timeout(limit).unwrap_or(Err(Errno::TIMEDOUT))
}
