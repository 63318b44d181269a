//! The terminal of standard output: its size, and its answers to requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::retry_on_intr;
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr, ttyname,
};

/// The largest size of answers, in bytes.
const MAX_ANSWERS: usize = 4096;

/// The size of a terminal. A number that it does not tell is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TerminalSize {
    /// The number of columns of characters.
    pub columns: u32,
    /// The number of rows of characters.
    pub rows: u32,
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
}

/// Returns the size of the terminal; `None` if standard output is none.
pub fn size_of_stdout() -> Option<TerminalSize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(TerminalSize {
        columns: size.ws_col.into(),
        rows: size.ws_row.into(),
        width: size.ws_xpixel.into(),
        height: size.ws_ypixel.into(),
    })
}

/// The modes of a terminal, which are restored at the end.
struct Restored<'a> {
    terminal: BorrowedFd<'a>,
    modes: Termios,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.modes);
    }
}

/// Sends requests to the terminal of standard output. Returns its answers once they are complete; `None` if it cannot be
/// asked, because it is none or another process has it, or if it has not answered in time.
pub fn ask_stdout(
    requests: &[u8],
    time_limit: Duration,
    is_complete: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    // Standard input may be a file.
    let name = ttyname(io::stdout(), Vec::new()).ok()?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal: OwnedFd = open(name, flags, Mode::empty()).ok()?;
    // Another process would get the answers, or this one a signal that stops it.
    if tcgetpgrp(&terminal).ok()? != getpgrp() {
        return None;
    }
    let modes = tcgetattr(&terminal).ok()?;
    let mut changed = modes.clone();
    // With signals, Ctrl-C would leave a terminal that shows no input.
    let removed = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
    changed.local_modes.remove(removed);
    changed.special_codes[SpecialCodeIndex::VMIN] = 0;
    changed.special_codes[SpecialCodeIndex::VTIME] = 0;
    let restored = Restored {
        terminal: terminal.as_fd(),
        modes,
    };
    tcsetattr(&terminal, OptionalActions::Now, &changed).ok()?;
    let answers = exchange(&terminal, requests, time_limit, is_complete);
    drop(restored);
    answers
}

fn exchange(
    terminal: &OwnedFd,
    mut requests: &[u8],
    time_limit: Duration,
    is_complete: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    while !requests.is_empty() {
        let count = retry_on_intr(|| rustix::io::write(terminal, requests)).ok()?;
        requests = requests.get(count..)?;
    }
    let deadline = Instant::now() + time_limit;
    let mut received = Vec::new();
    while received.len() < MAX_ANSWERS {
        let left = deadline.checked_duration_since(Instant::now())?;
        let left = Timespec::try_from(left).ok()?;
        let mut ready = [PollFd::new(terminal, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut ready, Some(&left))).ok()? == 0 {
            return None;
        }
        let mut bytes = [0; 256];
        let count = retry_on_intr(|| rustix::io::read(terminal, &mut bytes)).ok()?;
        // The terminal is gone.
        let bytes = bytes.get(..count).filter(|bytes| !bytes.is_empty())?;
        received.extend(bytes);
        if is_complete(&received) {
            return Some(received);
        }
    }
    None
}
