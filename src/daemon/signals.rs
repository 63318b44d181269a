//! SIGTERM, SIGINT, SIGHUP and SIGQUIT unmount; a second one ends the process at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::kernel;
use super::mountpoint::{MountEntry, entry, place_of};

/// How long a busy mount is tried before it is detached, and then served before the end.
const BUSY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(100);

/// The signals, caught from now on.
#[derive(Debug)]
pub(super) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// Catches the signals; they wait until [`Signals::watch`].
    pub(super) fn block() -> io::Result<Self> {
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2])
            .map(Self)
    }

    /// Unmounts `path` when a signal comes, if what is mounted there is still `ours`.
    /// If the process has to be ended, `last` is done before.
    pub(super) fn watch(
        mut self,
        path: PathBuf,
        ours: Option<MountEntry>,
        last: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new()
            .name("zarrfs-signals".into())
            .spawn(move || {
                for signal in self.0.forever() {
                    // Nothing is asked by them, and they would end the process.
                    if matches!(signal, SIGUSR1 | SIGUSR2) {
                        continue;
                    }
                    // The receiver never ends before the process.
                    let _ = sender.send(signal);
                }
            })?;
        thread::Builder::new()
            .name("zarrfs-end".into())
            .spawn(move || {
                if let Ok(signal) = receiver.recv() {
                    log::info!("signal {signal}: unmounting {}", path.display());
                    end(&path, ours.as_ref(), &receiver);
                    last();
                    std::process::exit(0);
                }
            })?;
        Ok(())
    }
}

/// Unmounts, lazily if it stays busy, and gives the last files that stay open some time; none if
/// another signal comes.
fn end(path: &Path, ours: Option<&MountEntry>, signals: &mpsc::Receiver<i32>) {
    let mut again = false;
    let mut waited = Duration::ZERO;
    while let Some(path) = uncovered(path, ours) {
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
    if !again {
        // The session ends the process itself when the last file is closed.
        let _ = signals.recv_timeout(BUSY);
    }
}

/// Where our mount is, if it is there and nothing is mounted on top of it.
fn uncovered(path: &Path, ours: Option<&MountEntry>) -> Option<PathBuf> {
    let ours = ours?;
    let is_ours = |path: &Path| entry(path).is_ok_and(|now| now.as_ref() == Some(ours));
    if is_ours(path) {
        return Some(path.to_owned());
    }
    place_of(ours).ok().flatten().filter(|path| is_ours(path))
}
