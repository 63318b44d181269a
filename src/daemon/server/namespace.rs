//! The mount namespace of the option `-N` of mount(8).

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Failure;

/// Moves this process into another mount namespace. It must have only one thread.
///
/// # Errors
/// If the file is no mount namespace, or the permission is missing.
pub(super) fn enter(file: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| format!("mount namespace {}: {e}", file.display());
    let opened = File::open(file).map_err(failed)?;
    move_into_link_name_space(opened.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|e| failed(e.into()))?;
    Ok(())
}
