//! The mount namespace that mount(8) is told of with `-N`.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Failure;

/// Moves this process into another mount namespace. It must have one thread yet.
///
/// # Errors
/// The file is none of a mount namespace, or this process may not.
pub(super) fn enter(file: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| format!("mount namespace {}: {e}", file.display());
    let opened = File::open(file).map_err(failed)?;
    move_into_link_name_space(opened.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|e| failed(e.into()))?;
    Ok(())
}
