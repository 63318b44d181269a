//! The threads that decode: one for each core, fed with what a reader waits for first and with
//! what it may want next behind that.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Something to decode. It answers those who wait when it is dropped, done or not.
type Task = Box<dyn FnOnce() + Send>;

/// How urgent a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// A reader waits for it.
    Wanted,
    /// A reader may come to it.
    Ahead,
}

/// Threads that decode, until the pool is dropped.
pub(super) struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queues: Mutex<Queues>,
    ready: Condvar,
}

#[derive(Default)]
struct Queues {
    wanted: VecDeque<Task>,
    ahead: VecDeque<Task>,
    is_closed: bool,
}

/// More than this is not begun ahead: what a reader wants must not stand behind a long queue.
const MAX_AHEAD: usize = 256;
/// Tasks that one reader begins ahead at a time.
pub(super) const ROOM: usize = 64;

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut queues = self.lock();
            let task = loop {
                if queues.is_closed {
                    return;
                }
                let next = queues.wanted.pop_front();
                if let Some(task) = next.or_else(|| queues.ahead.pop_front()) {
                    break task;
                }
                queues = self
                    .ready
                    .wait(queues)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(queues);
            if catch_unwind(AssertUnwindSafe(task)).is_err() {
                log::error!("bug: a decoder panicked");
            }
        }
    }
}

impl Pool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// The system's, if not even one can be started.
    pub(super) fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let pool = Self(Arc::clone(&shared));
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            let started = thread::Builder::new()
                .name(format!("zarrfs-code-{number}"))
                .spawn(move || shared.work());
            match started {
                Ok(_) => {}
                Err(e) if number == 0 => return Err(e),
                Err(e) => {
                    log::warn!("only {number} of {threads} decoders could be started: {e}");
                    break;
                }
            }
        }
        Ok(pool)
    }

    /// Whether [`ROOM`] tasks more can be begun ahead.
    pub(super) fn has_room(&self) -> bool {
        self.0.lock().ahead.len() + ROOM <= MAX_AHEAD
    }

    /// Somebody waits for what was begun ahead: it is no less urgent than anything else now.
    pub(super) fn promote(&self) {
        let mut queues = self.0.lock();
        let mut ahead = std::mem::take(&mut queues.ahead);
        queues.wanted.append(&mut ahead);
    }

    /// Has a task done; one that is only ahead of its time is dropped if there are too many.
    pub(super) fn submit(&self, lane: Lane, task: impl FnOnce() + Send + 'static) {
        let mut queues = self.0.lock();
        match lane {
            Lane::Wanted => queues.wanted.push_back(Box::new(task)),
            Lane::Ahead if queues.ahead.len() < MAX_AHEAD => queues.ahead.push_back(Box::new(task)),
            Lane::Ahead => return,
        }
        drop(queues);
        self.0.ready.notify_one();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queues = self.0.lock();
        queues.is_closed = true;
        let left = (
            std::mem::take(&mut queues.wanted),
            std::mem::take(&mut queues.ahead),
        );
        drop(queues);
        drop(left);
        self.0.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn what_is_wanted_comes_before_what_is_ahead() {
        let pool = Pool::new(1).unwrap();
        let (sender, receiver) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        pool.submit(Lane::Wanted, move || gate.recv().unwrap_or_default());
        for (lane, name) in [(Lane::Ahead, "ahead"), (Lane::Wanted, "wanted")] {
            let sender = sender.clone();
            pool.submit(lane, move || sender.send(name).unwrap());
        }
        open.send(()).unwrap();
        assert_eq!(receiver.recv_timeout(SOON), Ok("wanted"));
        assert_eq!(receiver.recv_timeout(SOON), Ok("ahead"));
    }

    #[test]
    fn a_panic_ends_no_thread() {
        let pool = Pool::new(1).unwrap();
        let (sender, receiver) = mpsc::channel();
        pool.submit(Lane::Wanted, || panic!("as a decoder with a bug would"));
        pool.submit(Lane::Wanted, move || sender.send(()).unwrap());
        assert_eq!(receiver.recv_timeout(SOON), Ok(()));
    }

    #[test]
    fn a_dropped_pool_drops_what_was_not_begun() {
        let (sender, receiver) = mpsc::channel::<()>();
        let pool = Pool::new(1).unwrap();
        let (open, gate) = mpsc::channel::<()>();
        pool.submit(Lane::Wanted, move || gate.recv().unwrap_or_default());
        pool.submit(Lane::Ahead, move || drop(sender));
        drop(pool);
        assert!(receiver.recv_timeout(SOON).is_err(), "its sender is gone");
        drop(open);
    }
}
