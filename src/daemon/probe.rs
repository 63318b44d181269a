//! System calls on a mount whose daemon may be stopped or dead, with a time limit.
//!
//! A process in such a call cannot be killed once the daemon has received the request. A child
//! process makes the call, and is abandoned after the time limit.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};

use super::reexec;
#[cfg(feature = "mount")]
use crate::fs::xattr;

/// The time limit. A running daemon answers at once.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// The environment variable of the child process: the name of an extended attribute, or [`STATVFS`].
const PROBE: &str = "ZARRFS_PROBE";
/// The value of the variable that selects statvfs(2).
const STATVFS: &str = "statvfs";
/// The largest size of an extended attribute in bytes (xattr(7)).
const MAX_VALUE_BYTES: usize = 64 << 10;

/// Returns an extended attribute, or ETIMEDOUT after the time limit.
pub(super) fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    probe(path, name)
}

/// Returns the process ID of the daemon of a mount.
///
/// # Errors
/// As [`attribute`].
#[cfg(feature = "mount")]
pub(super) fn pid_of(path: &Path) -> Result<Option<i32>, Errno> {
    let value = attribute(path, xattr::PID)?;
    let text = std::str::from_utf8(&value).ok();
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Returns whether the daemon of a mount has ended, in which case the kernel returns ENOTCONN.
#[cfg(feature = "mount")]
pub(super) fn is_dead(path: &Path) -> bool {
    probe(path, STATVFS) == Err(Errno::NOTCONN)
}

/// Makes the call, if this process is such a child process. The exit code is the errno.
pub fn run_probe() -> Option<ExitCode> {
    let probe = std::env::var_os(PROBE)?;
    let path = PathBuf::from(std::env::args_os().nth(1)?);
    let output = match probe.as_bytes() {
        name if name == STATVFS.as_bytes() => rustix::fs::statvfs(&path).map(|_| Vec::new()),
        name => {
            let mut value = vec![0; MAX_VALUE_BYTES];
            rustix::fs::getxattr(&path, name, &mut value).map(|length| {
                value.truncate(length);
                value
            })
        }
    };
    let code = match output.map(|value| io::stdout().write_all(&value)) {
        Ok(Ok(())) => 0,
        Ok(Err(_)) => Errno::IO.raw_os_error(),
        Err(errno) => errno.raw_os_error(),
    };
    Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

fn probe(path: &Path, probe: &str) -> Result<Vec<u8>, Errno> {
    let of_system = |e: io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let deadline = Instant::now() + TIMEOUT;
    let mut child = reexec::with_arguments([path])
        .env(PROBE, probe)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(of_system)?;
    let mut output = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        let mut part = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut ready = [PollFd::new(stdout, PollFlags::IN)];
            if retry_on_intr(|| rustix::event::poll(&mut ready, Some(&left)))? == 0 {
                // A process in an uninterruptible call ends later or never.
                let _ = child.kill();
                return Err(Errno::TIMEDOUT);
            }
            match stdout.read(&mut part).map_err(of_system)? {
                0 => break,
                length => output.extend_from_slice(part.get(..length).unwrap_or_default()),
            }
        }
    }
    match child.wait().map_err(of_system)?.code() {
        Some(0) => Ok(output),
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::IO),
    }
}
