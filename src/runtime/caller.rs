//! The program whose request is answered.
//!
//! The handler of a request sets the thread that has sent it; code that answers the request asks for its process. Work
//! that requests share, such as a single flight, has no caller.

use std::fs;
use std::future::Future;

tokio::task_local! {
    static THREAD: u32;
}

/// Polls the work of a request of a thread.
pub async fn on_behalf_of<T>(tid: u32, work: impl Future<Output = T>) -> T {
    THREAD.scope(tid, work).await
}

/// Runs `work`, which does not wait, for a request of a thread.
pub fn at_once_for<T>(tid: u32, work: impl FnOnce() -> T) -> T {
    THREAD.sync_scope(tid, work)
}

/// Returns the process that has sent the request; `None` outside of requests. Callers in other PID namespaces, whose
/// number is 0, count as one process.
pub fn process() -> Option<u32> {
    let tid = THREAD.try_with(|tid| *tid).ok()?;
    Some(process_of(tid).unwrap_or(tid))
}

/// Returns the process of a thread; `None` if the thread has ended, or `/proc` does not show it.
fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let mut lines = status.lines();
    let process = lines.find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}

#[test]
fn threads_have_the_process_that_they_belong_to() {
    use std::process::id;

    use crate::runtime::block_on;

    assert_eq!(process(), None);
    let tid = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get());
    assert_ne!(tid.join().unwrap().cast_unsigned(), id());
    let inside = std::thread::spawn(|| {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let tid = tid.cast_unsigned();
        let at_once = at_once_for(tid, process);
        (at_once, block_on(on_behalf_of(tid, async { process() })))
    });
    assert_eq!(inside.join().unwrap(), (Some(id()), Some(id())));
    assert_eq!(at_once_for(0, process), Some(0));
}
