//! How a mount has ended. Only a mount that was served until it was unmounted has ended well.

use super::Failure;
use super::mountpoint::{MountEntry, current_path};
use crate::fuse::{Mounted, ends_session_thread};

/// Serves until the mount ends; a failure if it was not unmounted. `mount` is the mount of this process; `None` if
/// another program has mounted. `has_log` tells whether the log is not on standard error.
pub(super) fn run(
    session: Mounted,
    shown: &str,
    mount: Option<&MountEntry>,
    has_log: bool,
) -> Result<(), Failure> {
    end_with_session_threads(shown);
    let reason = match session.run() {
        Err(error) => error.to_string(),
        Ok(()) if mount.is_some_and(is_mounted) => "the kernel has aborted it".into(),
        Ok(()) => {
            log::info!("{shown} is unmounted");
            return Ok(());
        }
    };
    let failure = format!(
        "{shown}: the connection to the kernel has ended before the unmount, and the mount is dead: {reason}"
    );
    // Otherwise the message that ends the command is in the same place.
    if has_log {
        log::error!("{failure}");
    }
    Err(failure.into())
}

/// Ends this process if a session thread panics outside of a handler. Requests fail with ENOTCONN from then on; a
/// request of that thread would wait for ever.
fn end_with_session_threads(shown: &str) {
    let log_panic = std::panic::take_hook();
    let shown = shown.to_owned();
    std::panic::set_hook(Box::new(move |panic| {
        log_panic(panic);
        if ends_session_thread() {
            log::error!("{shown} is dead from now on, because the daemon ends with this bug");
            std::process::exit(1);
        }
    }));
}

/// Returns whether a mount is still in the mount table.
pub(super) fn is_mounted(mount: &MountEntry) -> bool {
    current_path(mount).is_ok_and(|path| path.is_some())
}
