//! Detection of fatal signals of the caller of a request.
//!
//! The kernel reports a signal with FUSE_INTERRUPT, which `fuser` answers with ENOSYS before any
//! handler sees it. After that, a thread whose request has been read waits uninterruptibly, even
//! for SIGKILL. The signal stays pending, though, and `/proc` shows it.

use std::fs;

use rustix::process::Signal;

use crate::machine::processes::is_gone;

/// Signals that end a program, or make it stop its work and read its input again.
const ENDING: [Signal; 5] = [
    Signal::KILL,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
];

/// Returns whether a thread that waits in a system call has a pending signal of [`ENDING`], or any thread
/// SIGKILL. During a page fault, other signals do not count, because the failed fault would end a program
/// that handles them.
///
/// A thread that no longer exists counts too: readahead that it started can remain. Other callers may wait
/// for those pages without a request that could be interrupted; once it is cancelled, they send their own.
pub(super) fn has_fatal_signal(tid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{tid}/status")) else {
        return is_gone(tid);
    };
    if status.contains("\nState:\tZ") || status.contains("\nState:\tX") {
        return true;
    }
    let pending = pending(&status);
    if pending & bit(Signal::KILL) != 0 {
        return true;
    }
    let ending = ENDING
        .into_iter()
        .fold(0, |bits, signal| bits | bit(signal));
    pending & ending != 0 && !is_in_page_fault(tid)
}

fn bit(signal: Signal) -> u64 {
    1_u64
        .checked_shl(signal.as_raw().unsigned_abs().saturating_sub(1))
        .unwrap_or(0)
}

/// Returns the pending signals of a thread that are not blocked, from its status.
fn pending(status: &str) -> u64 {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let sent = field("SigPnd:").unwrap_or(0) | field("ShdPnd:").unwrap_or(0);
    sent & !field("SigBlk:").unwrap_or(0)
}

/// Returns whether a thread waits outside of a system call. `false` if `/proc` does not tell.
fn is_in_page_fault(tid: u32) -> bool {
    fs::read_to_string(format!("/proc/{tid}/syscall")).is_ok_and(|call| call.starts_with("-1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_pending_unless_they_are_blocked() {
        let status = "Name:\tcat\nSigQ:\t1/94\nSigPnd:\t0000000000000100\n\
            ShdPnd:\t0000000000000003\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000000000\n";
        assert_eq!(pending(status), bit(Signal::KILL) | bit(Signal::HUP));
        assert_eq!(pending("Name:\tcat\n"), 0);
        assert_eq!(pending("SigPnd:\tnonsense\n"), 0);
    }

    #[test]
    fn an_exited_thread_has_a_fatal_signal() {
        assert!(!has_fatal_signal(std::process::id()));
        assert!(!has_fatal_signal(u32::MAX), "there is no such number");
        let tid = std::thread::spawn(rustix::thread::gettid).join().unwrap();
        let tid = tid.as_raw_nonzero().get().unsigned_abs();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !has_fatal_signal(tid) {
            assert!(std::time::Instant::now() < end);
        }
    }
}
