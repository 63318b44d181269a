//! Panics on session threads. One in a handler fails its request; any other would leave a request without a reply,
//! and its caller waiting for ever.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// The prefix of the names that `fuser` gives its threads.
const SESSION_THREAD: &str = "fuser-";

thread_local! {
    static IS_IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler and catches its panic.
pub(super) fn catch_in_handler(handler: impl FnOnce()) -> thread::Result<()> {
    let is_nested = IS_IN_HANDLER.replace(true);
    let result = catch_unwind(AssertUnwindSafe(handler));
    IS_IN_HANDLER.set(is_nested);
    result
}

/// Returns whether the panic of this thread, which is on its way, ends a session thread.
pub fn ends_session_thread() -> bool {
    let thread = thread::current();
    let is_session = thread
        .name()
        .is_some_and(|name| name.starts_with(SESSION_THREAD));
    is_session && !IS_IN_HANDLER.get()
}

/// Simulates a bug of the transport, for tests.
#[cfg(feature = "test-faults")]
pub(super) fn inject() {
    assert!(
        std::env::var_os("ZARRFS_TEST_SESSION_PANIC").is_none(),
        "outside of handlers"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_panic_outside_of_handlers_ends_a_session_thread() {
        let on = |name: &str| {
            let spawned = thread::Builder::new().name(name.into()).spawn(|| {
                let mut inside = None;
                let caught = catch_in_handler(|| inside = Some(ends_session_thread()));
                assert!(caught.is_ok());
                (inside, ends_session_thread())
            });
            spawned.unwrap().join().unwrap()
        };
        assert_eq!(on("fuser-0"), (Some(false), true));
        assert_eq!(on("zarrfs-cpu-0"), (Some(false), false));
    }
}
