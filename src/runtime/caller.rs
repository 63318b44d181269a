//! The program whose request is answered.
//!
//! The handler of a request sets the thread that has sent it; code that answers the request asks for its process. Work
//! that requests share, such as a single flight, has no caller.

use std::future::Future;

use crate::machine::processes::process_of;

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

/// Returns the process that has sent the request; `None` outside of requests. A thread that `/proc` does not show counts
/// as a process of its own; all callers in other PID namespaces, whose number is 0, count as one.
pub fn process() -> Option<u32> {
    let tid = THREAD.try_with(|tid| *tid).ok()?;
    Some(process_of(tid).unwrap_or(tid))
}

#[test]
fn only_the_work_of_a_request_has_a_caller() {
    let own = std::process::id();
    assert_eq!(process(), None);
    assert_eq!(at_once_for(own, process), Some(own));
    let nested = on_behalf_of(own, async { (process(), at_once_for(0, process)) });
    assert_eq!(super::block_on(nested), (Some(own), Some(0)));
    assert_eq!(process(), None);
}
