//! The background process: the command executes itself again and waits for the result of the mount.
//! This process starts threads only after that.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::{Failure, reexec};
use crate::store::ErrorKind;

/// The message that the mount is ready.
const OK: &str = "ok";

/// Executes this command in the background. `mountpoint` is passed on if the command line has none.
/// Returns the process ID of the daemon when the mount is ready.
pub(in crate::daemon) fn start(mountpoint: Option<&Path>) -> Result<u32, Failure> {
    let spawned = command().args(mountpoint).spawn();
    let mut child = spawned.map_err(|e| format!("starting the background process: {e}"))?;
    answer(&mut child)?;
    Ok(child.id())
}

/// Returns the command that executes this program again in the background.
pub(in crate::daemon) fn command() -> Command {
    let mut command = reexec::same_arguments();
    command
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Waits for the result of the mount.
///
/// # Errors
/// The reason why the mount failed.
pub(in crate::daemon) fn answer(child: &mut Child) -> Result<(), Failure> {
    let mut answer = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut answer)?;
    }
    match answer.as_str() {
        OK => Ok(()),
        "" => Err(format!(
            "the background process ended without a result ({})",
            child.wait()?
        )
        .into()),
        _ => {
            child.wait()?;
            Err(failure(&answer))
        }
    }
}

/// Ends this process with its parent until [`report_ready`], so that a command which is killed before
/// the mount is ready leaves no daemon.
pub(in crate::daemon) fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    // The parent may have ended before the system call.
    let stdout = rustix::stdio::stdout();
    let mut answer = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Some(&Timespec::default());
    if rustix::event::poll(&mut answer, now).is_ok() && answer[0].revents().contains(PollFlags::ERR)
    {
        std::process::exit(1);
    }
}

/// The environment variable that marks the background process.
pub(in crate::daemon) const CHILD: &str = "ZARRFS_BACKGROUND_CHILD";

/// The environment variable of the background process of `zarrfs run`: its temporary mountpoint.
pub(in crate::daemon) const PRIVATE: &str = "ZARRFS_PRIVATE_MOUNTPOINT";

/// Returns the mountpoint of the background process of `zarrfs run`.
pub fn private_mountpoint() -> Option<PathBuf> {
    std::env::var_os(PRIVATE).map(PathBuf::from)
}

/// Sends the failure of the mount to the waiting command.
pub(in crate::daemon) fn send_failure(failure: &Failure) {
    let kind = ErrorKind::of(&**failure).name();
    send_result(&format!("{kind}\n{failure}"));
}

/// Returns the failure that [`send_failure`] has sent.
fn failure(answer: &str) -> Failure {
    let parsed = answer.split_once('\n');
    let parsed =
        parsed.and_then(|(kind, message)| Some((kind.parse::<ErrorKind>().ok()?, message)));
    match parsed {
        Some((kind, message)) => kind.failure(message),
        None => answer.into(),
    }
}

/// Sends the result to the waiting command and closes the pipe.
fn send_result(message: &str) {
    let mut stdout = std::io::stdout();
    let _ = stdout
        .write_all(message.as_bytes())
        .and_then(|()| stdout.flush());
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Reports that the mount is ready, and detaches from the caller.
///
/// The process group of the caller is kept until now: systemd's autofs lets only that group access the
/// mountpoint while it waits for the mount. The daemon of `zarrfs run` still ends with its parent.
pub(in crate::daemon) fn report_ready() {
    if private_mountpoint().is_none() {
        let _ = rustix::process::set_parent_process_death_signal(None);
    }
    let _ = rustix::process::setsid();
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    send_result(OK);
}
