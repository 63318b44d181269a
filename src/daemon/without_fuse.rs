//! The module in a build without the feature `mount`: commands that need FUSE fail with a message.

mod client;
mod environment;
mod logging;
mod probe;
mod reexec;
mod source;
mod state_log;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::{HelperOptions, MountOptions, RunArgs, StatsArgs, UmountArgs};
pub use crate::inspect::Failure;
pub use client::{path, views};
pub use environment::restart_with_env_file;
pub use logging::log_warnings;
pub use probe::run_probe;
pub use source::Source;

/// The error message of each command that needs FUSE.
const NO_FUSE: &str = "this zarrfs has no FUSE support (it was built without the feature `mount`): \
                       `zarrfs export` writes a view to a file without a mount; to mount, install a \
                       package of zarrfs, or build it with its default features";

/// A mount of zarrfs.
#[derive(Debug, Clone)]
pub struct MountedSource {
    /// The mountpoint.
    pub mountpoint: PathBuf,
    /// The source, as in the mount table.
    pub source: String,
    /// The process of the daemon; `None` if it has ended, or does not answer this user.
    pub pid: Option<i32>,
    /// Whether the daemon has ended without unmounting: the kernel answers all calls with ENOTCONN.
    pub has_ended: bool,
    /// The user ID of the mount.
    pub uid: Option<u32>,
}

/// Fails: this build cannot mount.
///
/// # Errors
/// Always.
pub fn mount(
    _source: &Source,
    _mountpoint: Option<&Path>,
    _options: MountOptions,
    _helper: Option<&HelperOptions>,
) -> Result<(), Failure> {
    Err(NO_FUSE.into())
}

/// Fails: this build cannot unmount.
///
/// # Errors
/// Always.
pub fn umount(_arguments: &UmountArgs) -> Result<(), Failure> {
    Err(NO_FUSE.into())
}

/// Fails: this build has no mounts.
///
/// # Errors
/// Always.
pub fn mounts() -> Result<Vec<MountedSource>, Failure> {
    Err(NO_FUSE.into())
}

/// Fails: this build has no mounts.
///
/// # Errors
/// Always.
pub fn mountpoints() -> Result<Vec<PathBuf>, Failure> {
    Err(NO_FUSE.into())
}

/// Fails: this build cannot run a command on a mount.
///
/// # Errors
/// Always.
pub fn run(_arguments: &RunArgs) -> Result<u8, Failure> {
    Err(NO_FUSE.into())
}

/// Returns `None`: this process is not that of a command of `zarrfs run`.
pub fn run_command() -> Option<ExitCode> {
    None
}

/// Returns `None`: no process serves a private mount.
pub fn private_mountpoint() -> Option<PathBuf> {
    None
}

/// Fails: this build has no metrics.
///
/// # Errors
/// Always.
pub fn stats(_arguments: &StatsArgs) -> Result<(), Failure> {
    Err(NO_FUSE.into())
}

/// Returns `false`: no process is in the background.
pub fn is_background() -> bool {
    false
}
