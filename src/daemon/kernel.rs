//! mount(2) and umount(2), or fusermount3 for who may not call them.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::Failure;

/// What /proc/mounts says.
pub(super) const FS_TYPE: &str = "fuse.zarrfs";

/// What is mounted on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The open directory.
    pub(super) directory: BorrowedFd<'a>,
    /// Its path.
    pub(super) path: &'a Path,
}

/// Mounts and returns the open `/dev/fuse` of it.
pub(super) fn mount(
    target: Target<'_>,
    label: &str,
    allow_other: bool,
) -> Result<OwnedFd, Failure> {
    if rustix::process::geteuid().is_root() {
        match mount_directly(target, label, allow_other) {
            Err(Errno::PERM) => {}
            Err(e) => return Err(explain(target, e)),
            Ok(device) => return Ok(device),
        }
    }
    mount_with_helper(target, label, allow_other)
}

fn explain(target: Target<'_>, error: Errno) -> Failure {
    let shown = target.path.display();
    match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => format!(
            "/dev/fuse: {}: is the kernel module `fuse` loaded?",
            io::Error::from(error)
        )
        .into(),
        error => format!("mounting on {shown}: {}", io::Error::from(error)).into(),
    }
}

fn mount_directly(
    target: Target<'_>,
    label: &str,
    allow_other: bool,
) -> rustix::io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = OwnedFd::from(device.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?);
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if allow_other {
        data.push_str(",allow_other");
    }
    let flags = MountFlags::RDONLY
        | MountFlags::NODEV
        | MountFlags::NOSUID
        | MountFlags::NOEXEC
        | MountFlags::NOATIME;
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    // Through the open directory: what was checked is what is mounted on.
    let target = format!("/proc/self/fd/{}", target.directory.as_raw_fd());
    let label = label.replace('\0', "");
    rustix::mount::mount(
        label.as_str(),
        target.as_str(),
        FS_TYPE,
        flags,
        Some(data.as_c_str()),
    )?;
    Ok(device)
}

/// Has fusermount3, which may, mount and send the open `/dev/fuse` back over a socket.
fn mount_with_helper(
    target: Target<'_>,
    label: &str,
    allow_other: bool,
) -> Result<OwnedFd, Failure> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    let name = label
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('\0', "");
    let mut options =
        format!("ro,nosuid,nodev,noexec,noatime,default_permissions,subtype=zarrfs,fsname={name}");
    if allow_other {
        options.push_str(",allow_other");
    }
    let output = Command::new("fusermount3")
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(target.path)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            format!("fusermount3 could not be run ({e}); it comes with the package fuse3")
        })?;
    drop(theirs);
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let mut message = message.trim().to_owned();
        if message.contains("user_allow_other") {
            message.push_str(" (an administrator can set user_allow_other there)");
        } else if File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_err()
        {
            message.push_str(" (this user can not open /dev/fuse; it usually has mode 0666)");
        }
        return Err(message.into());
    }
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(
        &ours,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let device = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    device.ok_or_else(|| "fusermount3 mounted, but sent no device".into())
}

/// Unmounts; busy is [`io::ErrorKind::ResourceBusy`].
pub(super) fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW
        | if lazy {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
    match rustix::mount::unmount(path, flags) {
        Err(Errno::PERM) => {}
        result => return Ok(result?),
    }
    let mode = if lazy { "-uz" } else { "-u" };
    let output = Command::new("fusermount3")
        .arg(mode)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if message.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, message))
}

/// Waits for a process to end, for at most `limit`.
pub(super) fn wait_for_end(process: &OwnedFd, limit: Duration) {
    let timeout = Timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let _ = rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout));
}
