//! The process of the command of `zarrfs run`.
//!
//! This program starts first, requests a signal for the end of `zarrfs run` (PR_SET_PDEATHSIG), and
//! then executes the command. So no command outlives its mount, even if SIGKILL ends `zarrfs run`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::reexec;

/// The environment variable of the process: the process ID of `zarrfs run`.
const PARENT: &str = "ZARRFS_RUN_PARENT";
/// The exit codes of env(1) for a command that cannot be started, and that of a shell for SIGTERM.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;
const TERMINATED: u8 = 143;

/// Returns the command that executes `words`, a program and its arguments.
pub(super) fn command(words: &[OsString]) -> Command {
    let mut command = reexec::with_arguments(words);
    command.env(PARENT, std::process::id().to_string());
    command
}

/// Executes the command in a process started for that. Returns an exit code if that fails.
pub fn run_command() -> Option<ExitCode> {
    let parent = std::env::var(PARENT).ok()?;
    let mut words = std::env::args_os().skip(1);
    let program = words.next()?;
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    // The parent may have ended before the system call.
    let is_alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().to_string() == parent);
    if !is_alive {
        return Some(ExitCode::from(TERMINATED));
    }
    let error = Command::new(&program).args(words).env_remove(PARENT).exec();
    // The exit code does not depend on this message.
    let _ = writeln!(io::stderr(), "zarrfs: {}: {error}", program.display());
    Some(ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_EXECUTE,
    }))
}
