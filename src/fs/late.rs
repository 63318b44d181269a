//! Reads that have just failed for want of time.
//!
//! The kernel asks twice for a page that it could not get: once ahead of the reader, and once for
//! the reader. Who has waited until the deadline must not wait for another one.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::store::StoreError;
use crate::tree::Ino;

/// The second question comes within this, and a source that is back is not kept waiting for long.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Files that are remembered; of each the latest failure.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// The latest failures.
#[derive(Debug)]
pub(super) struct Late(Mutex<LruCache<Ino, (Range<u64>, Instant, StoreError)>>);

impl Default for Late {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_FILES)))
    }
}

impl Late {
    /// Notes how a read has ended.
    pub(super) fn note<T>(&self, ino: Ino, range: &Range<u64>, result: &Result<T, StoreError>) {
        if let Err(error @ StoreError::TimedOut { .. }) = result {
            let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            late.put(ino, (range.clone(), Instant::now(), error.clone()));
        }
    }

    /// Why a read of these bytes has just failed, if it has.
    pub(super) fn find(&self, ino: Ino, range: &Range<u64>) -> Option<StoreError> {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (failed, since, error) = late.peek(&ino)?;
        if since.elapsed() >= REMEMBERED {
            late.pop(&ino);
            return None;
        }
        let overlap = failed.start < range.end && range.start < failed.end;
        overlap.then(|| error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Key;

    #[test]
    fn only_what_was_late_is_late_again() {
        let late = Late::default();
        let key = Key::root();
        let what = || "answer".to_owned();
        let timed_out = StoreError::TimedOut {
            key: key.clone(),
            what: what(),
        };
        late.note(Ino(7), &(0..10), &Err::<(), _>(timed_out));
        let other = StoreError::Unavailable { key, what: what() };
        late.note(Ino(8), &(0..10), &Err::<(), _>(other));
        assert!(late.find(Ino(7), &(5..20)).is_some());
        assert!(late.find(Ino(7), &(10..20)).is_none());
        assert!(late.find(Ino(8), &(0..10)).is_none());
    }
}
