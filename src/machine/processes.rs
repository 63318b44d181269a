//! The processes of this PID namespace.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Returns the process of a thread; `None` if the thread has ended, or `/proc` does not show it.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let mut lines = status.lines();
    let process = lines.find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}

/// Returns whether a process or thread does not exist. One that may not be signalled exists, and so does 0, which stands
/// for those of other namespaces.
pub fn is_gone(id: u32) -> bool {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    id.is_some_and(|id| test_kill_process(id) == Err(Errno::SRCH))
}

#[test]
fn threads_have_the_process_that_they_belong_to() {
    let own = std::process::id();
    let thread = std::thread::spawn(move || {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let tid = tid.cast_unsigned();
        assert_ne!(tid, own);
        process_of(tid)
    });
    assert_eq!(thread.join().unwrap(), Some(own));
    assert_eq!(process_of(0), None);
    assert!(!is_gone(own) && !is_gone(1) && !is_gone(0));
    // Above the largest number that Linux gives.
    assert!(is_gone(1 << 30));
}
