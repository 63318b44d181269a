//! The source of a mount: SOURCE of the command line, or the demo store.

use std::path::PathBuf;

/// The source of a mount.
#[derive(Debug, Clone)]
pub enum Source {
    /// The SOURCE of the command line.
    Argument(PathBuf),
    /// The demo store inside the binary.
    Demo,
}

impl Source {
    /// Creates the source from SOURCE of the command line.
    pub fn new(given: PathBuf) -> Self {
        match given.as_os_str() == crate::cli::DEMO {
            true => Self::Demo,
            false => Self::Argument(given),
        }
    }
}
