//! Threads that must not wait.
//!
//! Who takes requests from the kernel answers what is at hand and hands the rest over. Whether an
//! answer is at hand is known only deep below, by the store that would have to ask a network, or
//! by what would have to read and decode many chunks. So such a thread says once that it does not
//! wait, and who would have to says [`StoreError::WouldWait`] instead.

use std::cell::Cell;

use super::{Key, StoreError};

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Runs `ask` on this thread without letting it wait for a network or decode: what is not at hand is
/// [`StoreError::WouldWait`].
pub fn never_waiting<T>(ask: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also when `ask` panics.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            MAY_WAIT.set(self.0);
        }
    }
    let _before = Before(MAY_WAIT.replace(false));
    ask()
}

/// Whether this thread may wait.
///
/// # Errors
/// [`StoreError::WouldWait`] below [`never_waiting`].
pub fn may_wait(key: &Key) -> Result<(), StoreError> {
    match MAY_WAIT.get() {
        true => Ok(()),
        false => Err(StoreError::WouldWait { key: key.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_wait_again_when_the_question_is_over() {
        let key = Key::root();
        assert!(may_wait(&key).is_ok());
        never_waiting(|| {
            assert!(may_wait(&key).is_err());
            never_waiting(|| ());
            assert!(may_wait(&key).is_err(), "the outer question goes on");
        });
        assert!(may_wait(&key).is_ok());
        let panicked = std::panic::catch_unwind(|| never_waiting(|| panic!("as a bug would")));
        assert!(panicked.is_err() && may_wait(&key).is_ok());
    }
}
