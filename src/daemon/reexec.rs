//! Commands that execute this program again.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The name of the program in its first argument.
const NAME: &str = "zarrfs";

/// Returns the command that executes this program with other arguments.
pub(super) fn with_arguments(arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).args(arguments);
    command
}

/// Returns the command that executes this program with its name and arguments.
pub(super) fn same_arguments() -> Command {
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    let mut command = with_arguments(arguments);
    command.arg0(name.unwrap_or_else(|| NAME.into()));
    command
}
