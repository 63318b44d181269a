//! The target of a mount: a directory, or an open `/dev/fuse` that another program has mounted.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::mountpoint::{Mountpoint, MountpointError};
use super::{Failure, kernel};

/// The target of a mount.
#[derive(Debug)]
pub(super) enum MountTarget {
    /// A directory.
    Directory(Mountpoint),
    /// The FUSE device, which is already mounted.
    Device(OwnedFd),
}

/// The numbers of the FUSE device (Documentation/admin-guide/devices.txt).
const FUSE_DEVICE: (u32, u32) = (10, 229);

impl MountTarget {
    /// Claims a directory, or duplicates the descriptor that `/dev/fd/N` names.
    pub(super) fn claim(given: &Path, nonempty: bool) -> Result<Self, MountpointError> {
        match descriptor(given) {
            Some(number) => device(number).map(Self::Device).map_err(|failure| {
                let shown = given.display();
                MountpointError::Other(format!("mountpoint {shown}: {failure}").into())
            }),
            None => Mountpoint::claim(given, nonempty).map(Self::Directory),
        }
    }

    /// Returns the directory, if the target is one.
    pub(super) fn directory(&self) -> Option<&Mountpoint> {
        match self {
            Self::Directory(mountpoint) => Some(mountpoint),
            Self::Device(_) => None,
        }
    }

    /// Mounts, unless the device is already mounted. Returns the device, and the mountpoint of a new mount.
    pub(super) fn mount(
        self,
        name: &str,
        allow_other: bool,
    ) -> Result<(OwnedFd, Option<PathBuf>), Failure> {
        match self {
            Self::Directory(mountpoint) => {
                let device = kernel::mount(mountpoint.target(), name, allow_other)?;
                Ok((device, Some(mountpoint.release())))
            }
            Self::Device(device) => Ok((device, None)),
        }
    }
}

/// Returns the number N of `/dev/fd/N`.
pub(super) fn descriptor(path: &Path) -> Option<i32> {
    let number = path.as_os_str().as_bytes().strip_prefix(b"/dev/fd/")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Duplicates a descriptor of this process, which must be of the FUSE device.
fn device(number: i32) -> Result<OwnedFd, Failure> {
    // Opening the path would create a new connection to the kernel, without a mount.
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let device = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).map_err(|e| {
        format!("the descriptor cannot be used: {e} (Linux 5.6 or newer is needed)")
    })?;
    let stat = rustix::fs::fstat(&device)?;
    let numbers = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if numbers == FUSE_DEVICE => Ok(device),
        _ => Err("the descriptor is not of an open /dev/fuse".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_of_a_descriptor_is_one() {
        for (path, expected) in [
            ("/dev/fd/5", Some(5)),
            ("/dev/fd/x", None),
            ("/dev/fd/", None),
            ("/mnt/fd/5", None),
        ] {
            assert_eq!(descriptor(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_descriptor_of_another_file_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = device(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap_err();
        assert!(
            error.to_string().contains("not of an open /dev/fuse"),
            "{error}"
        );
        assert!(device(9999).unwrap_err().to_string().contains("descriptor"));
    }
}
