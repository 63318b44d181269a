//! SIGTERM, SIGINT, SIGHUP and SIGQUIT unmount; a second one ends the process at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::mountpoint::{MountEntry, current_path, entry};
use super::{default_mountpoint, kernel, outcome};

/// The time until a busy mount is detached, and after that until the process ends.
const BUSY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(100);
/// Added to the number of a signal that has ended the process, as in shells.
const SIGNALLED: i32 = 128;

/// The signals, with handlers that replace their default actions and queue the signals for [`Signals::watch`].
#[derive(Debug)]
pub(super) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// Registers the handlers. Signals that arrive before [`Signals::watch`] are handled then.
    pub(super) fn register() -> io::Result<Self> {
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2])
            .map(Self)
    }

    /// Unmounts `path` on a signal, if `mount` is still mounted there. Calls `close` before it ends
    /// the process by force.
    pub(super) fn watch(
        mut self,
        path: PathBuf,
        mount: Option<MountEntry>,
        close: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new()
            .name("zarrfs-signals".into())
            .spawn(move || {
                for signal in self.0.forever() {
                    // These signals have no meaning here, but their default action would end the process.
                    if matches!(signal, SIGUSR1 | SIGUSR2) {
                        continue;
                    }
                    // The receiver lives as long as the process.
                    let _ = sender.send(signal);
                }
            })?;
        thread::Builder::new()
            .name("zarrfs-end".into())
            .spawn(move || {
                if let Ok(signal) = receiver.recv() {
                    log::info!("signal {signal}: unmounting {}", path.display());
                    end(&path, mount.as_ref(), &receiver);
                    close();
                    // After a second signal, the process does not wait for the session, which otherwise
                    // removes the directory. A killed parent with several threads sends two signals.
                    default_mountpoint::remove(&path);
                    std::process::exit(exit_code(signal, &path, mount.as_ref()));
                }
            })?;
        Ok(())
    }
}

/// Returns the exit code after a signal: 0 only if the mount was unmounted.
fn exit_code(signal: i32, path: &Path, mount: Option<&MountEntry>) -> i32 {
    let dead = match mount {
        None => "was mounted by another program",
        Some(mount) if outcome::is_mounted(mount) => "cannot be unmounted",
        Some(_) => return 0,
    };
    let shown = path.display();
    log::error!("{shown} {dead}: it is dead from now on, because signal {signal} ends the daemon");
    SIGNALLED.saturating_add(signal)
}

/// Unmounts, lazily if the mount stays busy, and then waits for the last open files, unless
/// another signal arrives.
fn end(path: &Path, mount: Option<&MountEntry>, signals: &mpsc::Receiver<i32>) {
    let mut again = false;
    let mut waited = Duration::ZERO;
    while let Some(path) = uncovered(path, mount) {
        if kernel::unmount(&path, false).is_ok() {
            break;
        }
        if again || waited >= BUSY {
            log::warn!("{} is busy: detaching it", path.display());
            let _ = kernel::unmount(&path, true);
            break;
        }
        again = signals.recv_timeout(RETRY).is_ok();
        waited = waited.saturating_add(RETRY);
    }
    if !again && mount.is_some() {
        // The session ends the process when the last file is closed.
        let _ = signals.recv_timeout(BUSY);
    }
}

/// Returns the mountpoint, if the mount exists and is the topmost one.
fn uncovered(path: &Path, mount: Option<&MountEntry>) -> Option<PathBuf> {
    let mount = mount?;
    let is_topmost = |path: &Path| entry(path).is_ok_and(|now| now.as_ref() == Some(mount));
    if is_topmost(path) {
        return Some(path.to_owned());
    }
    current_path(mount)
        .ok()
        .flatten()
        .filter(|path| is_topmost(path))
}
