//! The commands that are about mounts: they find and unmount them, ask their daemons, and run programs in them.

mod discovery;
#[cfg(feature = "mount")]
mod every_mount;
mod mounted_views;
#[cfg(feature = "mount")]
mod placeholders;
#[cfg(feature = "mount")]
mod run;
#[cfg(feature = "mount")]
mod run_command;
#[cfg(feature = "mount")]
mod stats;
#[cfg(feature = "mount")]
mod umount;

use super::{Failure, probe};
#[cfg(feature = "mount")]
use super::{kernel, mountpoint, reexec, server::background, socket};
pub use discovery::{path, views};
#[cfg(feature = "mount")]
pub use run::run;
#[cfg(feature = "mount")]
pub use run_command::run_command;
#[cfg(feature = "mount")]
pub use stats::stats;
#[cfg(feature = "mount")]
pub use umount::{MountedSource, mountpoints, mounts, umount};
