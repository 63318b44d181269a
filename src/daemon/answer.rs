//! Questions to a mount whose daemon may be stopped, or gone: none is waited for without end.
//!
//! Who waits for an answer that a daemon has begun with can not even be killed. So another process
//! asks, and is left alone if it does not come back.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};

/// A daemon answers at once.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// Set for the process that asks: the name of an extended attribute, or [`IS_THERE`].
const QUESTION: &str = "ZARRFS_QUESTION";
/// Asks whether a daemon answers at all.
const IS_THERE: &str = "statvfs";
/// No extended attribute is longer (xattr(7)).
const MAX_VALUE_BYTES: usize = 64 << 10;

/// An extended attribute; ETIMEDOUT if nobody answers.
pub(super) fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    ask(path, name)
}

/// Whether the daemon of a mount is gone for good, which the kernel knows.
pub(super) fn is_dead(path: &Path) -> bool {
    ask(path, IS_THERE) == Err(Errno::NOTCONN)
}

/// Asks, if this process was started for that; its exit code is the errno.
pub fn answer_question() -> Option<ExitCode> {
    let question = std::env::var_os(QUESTION)?;
    let path = PathBuf::from(std::env::args_os().nth(1)?);
    let answer = match question.as_bytes() {
        name if name == IS_THERE.as_bytes() => rustix::fs::statvfs(&path).map(|_| Vec::new()),
        name => {
            let mut value = vec![0; MAX_VALUE_BYTES];
            rustix::fs::getxattr(&path, name, &mut value).map(|length| {
                value.truncate(length);
                value
            })
        }
    };
    let code = match answer.map(|value| io::stdout().write_all(&value)) {
        Ok(Ok(())) => 0,
        Ok(Err(_)) => Errno::IO.raw_os_error(),
        Err(errno) => errno.raw_os_error(),
    };
    Some(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

fn ask(path: &Path, question: &str) -> Result<Vec<u8>, Errno> {
    let of_system = |e: io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    let deadline = Instant::now() + LIMIT;
    let mut child = Command::new("/proc/self/exe")
        .arg0("zarrfs")
        .arg(path)
        .env(QUESTION, question)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(of_system)?;
    let mut answer = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        let mut part = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut ready = [PollFd::new(stdout, PollFlags::IN)];
            if retry_on_intr(|| rustix::event::poll(&mut ready, Some(&left)))? == 0 {
                // It may come back one day, or never.
                let _ = child.kill();
                return Err(Errno::TIMEDOUT);
            }
            match stdout.read(&mut part).map_err(of_system)? {
                0 => break,
                length => answer.extend_from_slice(part.get(..length).unwrap_or_default()),
            }
        }
    }
    match child.wait().map_err(of_system)?.code() {
        Some(0) => Ok(answer),
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
        None => Err(Errno::IO),
    }
}
