//! Whether the caller of a request has a fatal signal.
//!
//! The kernel says so with FUSE_INTERRUPT, which `fuser` answers with ENOSYS before any handler sees
//! it. From then on a thread in a request that has been read waits whatever comes, SIGKILL too;
//! but what was sent to it stays pending, and that is for everybody to see.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, test_kill_process};

/// After these a program ends, or stops what it does and reads its input again.
const ENDING: [Signal; 5] = [
    Signal::KILL,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
];

/// Whether a thread that waits in a system call has a signal to end before it, or any thread
/// SIGKILL. An interrupted page fault would end a program that only wanted to hear of a signal.
///
/// A thread that is no more has left read-ahead behind, for whose pages others may wait without
/// a request of their own that could be interrupted: they ask again when it is given up.
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

/// Whether there is no such thread, and not only none that may be seen.
fn is_gone(tid: u32) -> bool {
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    tid.is_some_and(|tid| test_kill_process(tid) == Err(Errno::SRCH))
}

fn bit(signal: Signal) -> u64 {
    1_u64
        .checked_shl(signal.as_raw().unsigned_abs().saturating_sub(1))
        .unwrap_or(0)
}

/// The signals that wait to be taken by a thread and are not blocked, from its status.
fn pending(status: &str) -> u64 {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let sent = field("SigPnd:").unwrap_or(0) | field("ShdPnd:").unwrap_or(0);
    sent & !field("SigBlk:").unwrap_or(0)
}

/// Whether a thread waits outside of any system call; no, where that may not be seen.
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
    fn a_thread_that_is_gone_has_a_fatal_signal() {
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
