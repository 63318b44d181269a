//! The background: the command starts itself again and waits until that process says how the
//! mount went. Nothing is forked once there are threads.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::Failure;

/// What the background process says when the mount answers.
const OK: &str = "ok";

/// Starts this command again in the background; returns when the mount answers.
pub(super) fn start() -> Result<(), Failure> {
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let mut child = command
        .args(arguments)
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("starting the background process: {e}"))?;
    let mut answer = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut answer)?;
    }
    match answer.as_str() {
        OK => Ok(()),
        "" => Err(format!(
            "the background process ended without a word ({})",
            child.wait()?
        )
        .into()),
        _ => {
            child.wait()?;
            Err(answer.into())
        }
    }
}

/// Ties this process to who waits for it, until [`ready`]: a command that is ended before the
/// mount answers leaves none behind.
pub(super) fn tie() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    // It may have ended already.
    let stdout = rustix::stdio::stdout();
    let mut answer = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Some(&Timespec::default());
    if rustix::event::poll(&mut answer, now).is_ok() && answer[0].revents().contains(PollFlags::ERR)
    {
        std::process::exit(1);
    }
}

/// Set for the process in the background.
pub(super) const CHILD: &str = "ZARRFS_BACKGROUND_CHILD";

/// Tells the waiting command how the mount went, and lets go of it.
pub(super) fn tell(message: &str) {
    let mut stdout = std::io::stdout();
    let _ = stdout
        .write_all(message.as_bytes())
        .and_then(|()| stdout.flush());
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// The mount answers: from now on nothing of the caller's is kept.
///
/// Its process group was, until now: systemd's autofs lets that one alone reach the place where it
/// waits for this mount.
pub(super) fn ready() {
    let _ = rustix::process::set_parent_process_death_signal(None);
    let _ = rustix::process::setsid();
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    tell(OK);
}
