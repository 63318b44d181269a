//! The target of a mount: a directory, or an open `/dev/fuse` that another program has mounted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use filedescriptor::FileDescriptor;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};

use super::mountpoint::{Mountpoint, MountpointError};
use super::{Failure, kernel, socket};

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
    /// Claims a directory, duplicates the descriptor that `/dev/fd/N` names, or receives one from a socket.
    pub(super) fn claim(given: &Path, nonempty: bool) -> Result<Self, MountpointError> {
        let device = match descriptor(given) {
            Some(number) => device(number),
            None if is_socket(given) => receive(given),
            None => return Mountpoint::claim(given, nonempty).map(Self::Directory),
        };
        device.map(Self::Device).map_err(|failure| {
            let shown = given.display();
            MountpointError::Other(format!("mountpoint {shown}: {failure}").into())
        })
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

/// The time limit of a program that passes the device. It mounts before it does.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether a path names a device, or a socket that passes one.
pub(super) fn is_device(path: &Path) -> bool {
    descriptor(path).is_some() || is_socket(path)
}

/// Returns whether a path is that of a socket. The kernel answers without the daemon of a mount, which may hang, and
/// starts no automount, whose mount would take the place of this one.
fn is_socket(path: &Path) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::TYPE)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Socket)
}

/// Returns the number N of `/dev/fd/N`.
fn descriptor(path: &Path) -> Option<i32> {
    let number = path.as_os_str().as_bytes().strip_prefix(b"/dev/fd/")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Takes over a descriptor of this process, which must be of the FUSE device.
///
/// Needs nothing but the descriptor: opening the path would create a new connection to the kernel, without a mount,
/// and pidfd_getfd(2) is forbidden in many containers.
fn device(number: i32) -> Result<OwnedFd, Failure> {
    let unusable = |error: &dyn std::fmt::Display| -> Failure {
        format!("the descriptor cannot be used: {error}").into()
    };
    let device = FileDescriptor::dup(&number).map_err(|e| match &e {
        filedescriptor::Error::Dup { source, .. } => unusable(source),
        _ => unusable(&e),
    })?;
    // The second duplicate is of a type of the standard library.
    let device = OwnedFd::from(device.as_file().map_err(|e| unusable(&e))?);
    check_device(&device)?;
    close(number)?;
    Ok(device)
}

/// Receives an open FUSE device that another program has mounted, from the socket on which that program listens.
fn receive(path: &Path) -> Result<OwnedFd, Failure> {
    let stream = socket::connect(path, RECEIVE_TIMEOUT)?;
    let device = kernel::received_descriptor(stream.as_fd())?;
    let device = device.ok_or("the program that listens on the socket passes no descriptor")?;
    check_device(&device)?;
    Ok(device)
}

/// Checks that a descriptor is of the FUSE device.
fn check_device(device: &OwnedFd) -> Result<(), Failure> {
    let stat = rustix::fs::fstat(device)?;
    let numbers = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if numbers == FUSE_DEVICE => Ok(()),
        _ => Err("the descriptor is not of an open /dev/fuse".into()),
    }
}

/// Closes descriptors of the caller but that of the mount, so that a daemon holds no lock, pipe or file of another
/// program. An argument such as `/dev/fd/3` may name one of them; then all stay open.
pub(super) fn close_inherited(descriptors: &[i32], target: &Path) {
    let is_named = |argument: OsString| argument.as_bytes().windows(4).any(|part| part == b"/fd/");
    let own = descriptor(target);
    let mut arguments = std::env::args_os().filter(|argument| own.is_none() || argument != target);
    if arguments.any(is_named) {
        return;
    }
    for number in descriptors.iter().filter(|number| own != Some(**number)) {
        let _ = nix::unistd::close(*number);
    }
}

/// Closes the inherited descriptor, which programs that this process starts would inherit too.
fn close(number: i32) -> Result<(), Failure> {
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    match number {
        // The numbers of standard input, output and error must not be those of files that are opened later.
        0 => rustix::stdio::dup2_stdin(null()?)?,
        1 => rustix::stdio::dup2_stdout(null()?)?,
        2 => rustix::stdio::dup2_stderr(null()?)?,
        _ => nix::unistd::close(number).map_err(std::io::Error::from)?,
    }
    Ok(())
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
