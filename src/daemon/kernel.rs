//! mount(2) and umount(2), or fusermount3 if the permission is missing.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::{Failure, fusermount};

/// The file system type in /proc/mounts.
pub(super) const FS_TYPE: &str = "fuse.zarrfs";
/// The type of mounts that other programs make and zarrfs serves.
pub(super) const PASSED_FS_TYPE: &str = "fuse";

/// A mountpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct MountDirectory<'a> {
    /// The open directory.
    pub(super) directory: BorrowedFd<'a>,
    /// The path of the directory.
    pub(super) path: &'a Path,
}

/// The FUSE device.
const DEVICE: &str = "/dev/fuse";

/// Mounts and returns the open `/dev/fuse`. `name` is the source in the mount table.
pub(super) fn mount(
    target: MountDirectory<'_>,
    name: &str,
    allow_other: bool,
) -> Result<OwnedFd, Failure> {
    if rustix::process::geteuid().is_root() {
        match mount_directly(target, name, allow_other) {
            Err(MountStepError::Mount(Errno::PERM)) => {}
            Err(refused) => return Err(explain(target, &refused)),
            Ok(device) => return Ok(device),
        }
    }
    mount_with_helper(target, name, allow_other)
}

/// The step at which a mount failed.
#[derive(Debug)]
enum MountStepError {
    Device(io::Error),
    Mount(Errno),
}

/// Advice for a mount in a container.
const CONTAINER: &str = "a container needs --device /dev/fuse and --cap-add SYS_ADMIN, and where \
                         AppArmor is, --security-opt apparmor=unconfined";

fn explain(target: MountDirectory<'_>, refused: &MountStepError) -> Failure {
    let shown = target.path.display();
    match refused {
        MountStepError::Device(error) => format!(
            "mounting on {shown}: {DEVICE}: {error} ({})",
            of_device(error)
        )
        .into(),
        MountStepError::Mount(Errno::NODEV) => format!(
            "mounting on {shown}: this kernel knows no FUSE (load its module: modprobe fuse)"
        )
        .into(),
        MountStepError::Mount(Errno::NOENT) => {
            format!("mounting on {shown}: the directory was removed meanwhile").into()
        }
        MountStepError::Mount(error) => {
            format!("mounting on {shown}: mount(2): {}", io::Error::from(*error)).into()
        }
    }
}

/// Returns advice for an error of opening the device.
fn of_device(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            format!("load the kernel's module: modprobe fuse; {CONTAINER}")
        }
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files: ulimit -n".into(),
        _ => format!("this user cannot open it, it usually has mode 0666; {CONTAINER}"),
    }
}

fn mount_directly(
    target: MountDirectory<'_>,
    name: &str,
    allow_other: bool,
) -> Result<OwnedFd, MountStepError> {
    let device = OwnedFd::from(open_device().map_err(MountStepError::Device)?);
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
    let data = CString::new(data).map_err(|_| MountStepError::Mount(Errno::INVAL))?;
    // Mounts through the open directory, because that is the directory that was checked.
    let target = format!("/proc/self/fd/{}", target.directory.as_raw_fd());
    let name = name.replace('\0', "");
    rustix::mount::mount(
        name.as_str(),
        target.as_str(),
        FS_TYPE,
        flags,
        Some(data.as_c_str()),
    )
    .map_err(MountStepError::Mount)?;
    Ok(device)
}

fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

/// Mounts with fusermount3, which is setuid root and sends the open `/dev/fuse` over a socket.
fn mount_with_helper(
    target: MountDirectory<'_>,
    name: &str,
    allow_other: bool,
) -> Result<OwnedFd, Failure> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let name = name
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('\0', "");
    let mut options =
        format!("ro,nosuid,nodev,noexec,noatime,default_permissions,subtype=zarrfs,fsname={name}");
    if allow_other {
        options.push_str(",allow_other");
    }
    let output = fusermount::command()
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(target.path)
        // The socket is its standard input, because no other program that starts now may inherit it.
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .output()
        .map_err(|e| {
            let shown = target.path.display();
            format!(
                "mounting on {shown}: fusermount3 could not be run ({e}); it comes with the \
                 package fuse3 (such as: apt install fuse3)"
            )
        })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let message = message.trim();
        let advice = advice(message);
        return Err(match message {
            "" => format!("fusermount3 has failed ({}){advice}", output.status).into(),
            _ => format!("{message}{advice}").into(),
        });
    }
    let device = received_descriptor(ours.as_fd())?;
    device.ok_or_else(|| {
        let _ = unmount(target.path, true);
        "fusermount3 mounted, but sent no device".into()
    })
}

/// Receives a descriptor from a unix socket (`SCM_RIGHTS` of unix(7)), if the message has one. Its bytes are ignored.
pub(super) fn received_descriptor(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut message = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut message)];
    rustix::net::recvmsg(socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(descriptor)
}

/// EPERM in the messages of fusermount3.
const NOT_PERMITTED: &str = "Operation not permitted";

/// Returns advice for a message of fusermount3.
fn advice(message: &str) -> String {
    if message.contains("user_allow_other") {
        return " (an administrator can set user_allow_other there; without --allow-other it is \
                not needed)"
            .into();
    }
    if let Err(error) = open_device() {
        return format!(" ({})", of_device(&error));
    }
    if message.contains(NOT_PERMITTED) {
        let reason = fusermount::missing_rights();
        return format!(" ({})", reason.as_deref().unwrap_or(CONTAINER));
    }
    if message.contains("write access") || message.contains("not owned") {
        return " (an ordinary user can mount only on a directory of their own)".into();
    }
    String::new()
}

/// Unmounts; the error of a busy mount is [`io::ErrorKind::ResourceBusy`].
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
    let output = fusermount::command()
        .arg(mode)
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let mut message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains(NOT_PERMITTED)
        && let Some(reason) = fusermount::missing_rights()
    {
        message = format!("{message} ({reason})");
    }
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
