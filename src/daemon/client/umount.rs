//! `zarrfs umount` and `zarrfs mounts`.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::every_mount::ask_all;
use super::{Failure, kernel, mountpoint, probe};
use crate::cli::UmountArgs;
use crate::daemon::mountpoint::MountEntry;
use crate::store::ErrorKind;

/// A mount of zarrfs.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Lists the mounts of zarrfs that this process sees.
///
/// # Errors
/// If the mount table cannot be read.
pub fn mounts() -> Result<Vec<MountedSource>, Failure> {
    let all = mountpoint::all(kernel::FS_TYPE)?;
    let answers = ask_all(&all, |(path, _)| probe::pid_of(path));
    let mounted = all.into_iter().zip(answers);
    let mounted = mounted.map(|((path, entry), answer)| MountedSource {
        has_ended: answer == Err(Errno::NOTCONN),
        pid: answer.ok().flatten(),
        uid: entry.user_id,
        mountpoint: path,
        source: entry.source,
    });
    Ok(mounted.collect())
}

/// Returns the mountpoints of zarrfs that this process sees, without a request to a daemon.
///
/// # Errors
/// If the mount table cannot be read.
pub fn mountpoints() -> Result<Vec<PathBuf>, Failure> {
    let all = mountpoint::all(kernel::FS_TYPE)?;
    Ok(all.into_iter().map(|(path, _)| path).collect())
}

/// Unmounts and waits for the daemons to end. Prints each mount that `--all`, `--all-users` or `--below` ends.
///
/// # Errors
/// An error for each mountpoint that is not a mount of zarrfs, or is busy. The others are unmounted.
pub fn umount(arguments: &UmountArgs) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for path in &arguments.mountpoints {
        failures.extend(one(path, arguments.lazy).err());
    }
    for (path, source) in selected(arguments)? {
        match one(&path, arguments.lazy) {
            Ok(()) => writeln!(io::stdout(), "{} ({source})", path.display())?,
            Err(failure) => failures.push(failure),
        }
    }
    let Some(first) = failures.first() else {
        return Ok(());
    };
    let messages: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Err(ErrorKind::of(&**first).failure(messages.join("\nzarrfs: ")))
}

/// Returns the mounts that `--all`, `--all-users` and `--below` select with their sources; mounts inside other mounts come first.
fn selected(arguments: &UmountArgs) -> Result<Vec<(PathBuf, String)>, Failure> {
    if !(arguments.all || arguments.all_users || arguments.below.is_some()) {
        return Ok(Vec::new());
    }
    let user = rustix::process::geteuid();
    if arguments.all_users && !user.is_root() {
        let message = "only root can unmount the mounts of all users: leave out --all-users";
        return Err(ErrorKind::Denied.failure(message));
    }
    let below = arguments.below.as_ref().map(|directory| {
        let found = mountpoint::resolve(directory);
        found.map_err(|e| ErrorKind::at(directory, e))
    });
    let below = below.transpose()?;
    let is_selected = |(path, entry): &(PathBuf, mountpoint::MountEntry)| {
        let is_own = entry.user_id.is_none_or(|owner| owner == user.as_raw());
        let is_below = below.as_ref().is_none_or(|below| path.starts_with(below));
        (is_own || arguments.all_users) && is_below
    };
    let all = mountpoint::all(kernel::FS_TYPE)?;
    let selected = all.into_iter().rev().filter(is_selected);
    Ok(selected.map(|(path, entry)| (path, entry.source)).collect())
}

fn one(given: &Path, lazy: bool) -> Result<(), Failure> {
    let path = mountpoint::resolve(given).map_err(|e| ErrorKind::at(given, e))?;
    let shown = path.display();
    let Some(entry) = mountpoint::entry(&path)? else {
        return Err(ErrorKind::NotMounted.failure(not_mounted(&path)?));
    };
    if entry.kind != kernel::FS_TYPE {
        return Err(ErrorKind::NotMounted.failure(format!(
            "{shown}: the mount there is of type {}, not zarrfs (`zarrfs mounts` lists those of zarrfs)",
            entry.kind
        )));
    }
    if let Some(owner) = entry.user_id
        && !may_unmount(&entry)
    {
        return Err(ErrorKind::Denied.failure(format!(
            "{shown}: mounted by the user {owner}; only that user and root can unmount it"
        )));
    }
    let daemon = match lazy {
        true => None,
        false => daemon_of(&path, &entry)?,
    };
    kernel::unmount(&path, lazy).map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => ErrorKind::Busy.failure(format!(
            "{shown}: busy: files are open or a process works there{} (end them, or detach the mount \
             with --lazy)",
            users(&path)
        )),
        _ => ErrorKind::at(&path, e),
    })?;
    if let Some(daemon) = daemon {
        kernel::wait_for_end(&daemon, Duration::from_secs(10));
    }
    Ok(())
}

/// Returns whether this user may unmount a mount: root any mount, others their own.
fn may_unmount(entry: &mountpoint::MountEntry) -> bool {
    let user = rustix::process::geteuid();
    let owner = entry.user_id;
    user.is_root() || owner.is_none_or(|owner| owner == user.as_raw())
}

/// Returns the reason why a path that is not a mountpoint cannot be unmounted.
fn not_mounted(path: &Path) -> io::Result<String> {
    let shown = path.display();
    let all = mountpoint::all(kernel::FS_TYPE)?;
    let above = all
        .into_iter()
        .rev()
        .find(|(mount, _)| path.starts_with(mount));
    Ok(match above {
        Some((mount, _)) => {
            let mount = mount.display();
            format!("{shown}: it is a part of the mount {mount} (zarrfs umount {mount})")
        }
        None => format!("{shown}: nothing is mounted there (`zarrfs mounts` lists the mounts)"),
    })
}

/// The largest number of process names in a message.
const MAX_USERS: usize = 5;

/// Returns the processes that use a mount and that are visible to this user, for a message.
fn users(mount: &Path) -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        if pid == std::process::id() {
            return None;
        }
        is_user(&process.path(), mount).then_some((pid, process.path()))
    });
    let names = numbered.map(|(pid, process)| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        format!("{} ({pid})", name.trim().escape_debug())
    });
    let names: Vec<String> = names.collect();
    match names.get(..MAX_USERS) {
        _ if names.is_empty() => String::new(),
        Some(first) if names.len() > MAX_USERS => {
            format!(
                ": {} and {} more",
                first.join(", "),
                names.len() - MAX_USERS
            )
        }
        _ => format!(": {}", names.join(", ")),
    }
}

/// Returns whether a process has its working directory, an open file or a mapped file below a
/// mount. The links in /proc are read without a request to the mount.
fn is_user(process: &Path, mount: &Path) -> bool {
    let is_below = |link: &Path| fs::read_link(link).is_ok_and(|path| path.starts_with(mount));
    if is_below(&process.join("cwd")) || is_below(&process.join("root")) {
        return true;
    }
    let open = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    let is_open = open.into_iter().any(|file| is_below(&file.path()));
    is_open || maps_below(&fs::read(process.join("maps")).unwrap_or_default(), mount)
}

/// Returns whether a mapped file of a process (proc_pid_maps(5)) is below a mount.
fn maps_below(maps: &[u8], mount: &Path) -> bool {
    let lines = maps.split(|byte| *byte == b'\n');
    let mut paths = lines.filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        Some(Path::new(OsStr::from_bytes(line.get(start..)?)))
    });
    paths.any(|path| path.starts_with(mount))
}

/// Returns the daemon of a mount, if it is running.
fn daemon_of(path: &Path, entry: &MountEntry) -> Result<Option<OwnedFd>, Failure> {
    let pid = match probe::pid_of(path) {
        Ok(pid) => pid.and_then(rustix::process::Pid::from_raw),
        // The unanswered request keeps the mount busy until this process ends.
        Err(Errno::TIMEDOUT) => {
            let waiting = entry.waiting_requests().map(|waiting| {
                // One of them is that of this process.
                let others = waiting.saturating_sub(1);
                format!(", waiting requests of programs: {others}")
            });
            return Err(ErrorKind::NoDaemon.failure(format!(
                "{}: the daemon has not answered in {:?}{} (--lazy detaches the mount all the same)",
                path.display(),
                probe::TIMEOUT,
                waiting.unwrap_or_default()
            )));
        }
        Err(_) => return Ok(None),
    };
    let flags = rustix::process::PidfdFlags::empty();
    Ok(pid.and_then(|pid| rustix::process::pidfd_open(pid, flags).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_is_found_by_its_path() {
        let maps = b"7f0-7f1 rw-p 00000000 00:00 0 \n\
                     7f2-7f3 r--s 00000000 00:41 3   /mnt/my ocean/.zarrfs/sst.npy\n";
        assert!(maps_below(maps, Path::new("/mnt/my ocean")));
        assert!(!maps_below(maps, Path::new("/mnt/my")));
        assert!(!maps_below(b"", Path::new("/mnt")));
    }
}
