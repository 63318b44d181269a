//! The life cycle of a mount: checks, mount, background process, signals, unmount.
//!
//! Options, source and mountpoint are checked before the mount: a failed check leaves no mount behind. The
//! mount is ready when FUSE_INIT is negotiated. Then the command returns.
//!
//! # The end of a daemon
//!
//! The main thread serves in `outcome::run` until the connection to the kernel ends. An unmount ends it well: the mount
//! is no longer in the mount table, `serve` closes the metrics socket, removes a mountpoint that zarrfs has chosen, and
//! the process exits with 0, which ends all other threads. `zarrfs umount` holds a descriptor of this process and waits
//! for its exit.
//!
//! A signal ends the daemon by an unmount. The handlers are registered before the mount (`signals`), so no signal can
//! leave a mount behind. One thread receives signals, a second one acts: it unmounts, tries again for 5 s while files
//! are open, then detaches the mount, and waits 5 s more for the last close. In that time the main thread may end the
//! process first, as after any unmount. A second signal skips the waiting. Before the second thread ends the process,
//! it closes the socket and removes the mountpoint itself, because the session may still be running. The status is 0
//! only if the mount is gone, otherwise 128 and the signal.
//!
//! All other ends leave a dead mount, and say so. If the connection is aborted, `outcome::run` finds the mount still
//! in the mount table, and the daemon fails with a message in the log. A panic of a session thread outside of a handler
//! exits at once, because its request would never be answered. After SIGKILL the kernel answers with ENOTCONN, and the
//! next mount on the same mountpoint removes the dead one (`mountpoint`). A daemon that is not ready yet ends with its
//! command (`background::die_with_parent`); if the session does not start, `serve` unmounts.

mod client;
mod environment;
mod fusermount;
mod kernel;
mod logging;
mod mountpoint;
mod probe;
mod reexec;
mod server;
mod socket;
mod source;
mod state_log;

pub use client::{
    MountedSource, mountpoints, mounts, path, run, run_command, stats, umount, views,
};
pub use environment::restart_with_env_file;
pub use logging::log_warnings;
pub use probe::run_probe;
pub use server::{is_background, mount, private_mountpoint};
pub use source::Source;

/// A failure with a message for users.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
