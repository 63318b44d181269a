//! Requests that workers have: each is answered once, by whoever takes its reply first, and nobody
//! waits for one longer than he wants to or than the deadline says.
//!
//! One thread looks after all of them. It answers a request whose caller has been told to end
//! (`signals`) and one that is too old, whatever may be stuck below; a worker that comes later
//! finds the reply gone and takes back what it had counted.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{Errno, INodeNo};

use super::reply::report;
use super::signals::is_told_to_end;
use crate::fs::{Fs, FsError};

/// A reply of any kind that can say that a request failed.
pub(super) trait Refuse: Send + 'static {
    fn refuse(self, errno: Errno);
}

/// How often requests are looked after, and how old they are when that begins.
const PERIOD: Duration = Duration::from_millis(200);
/// Rounds without any request before the watching thread sleeps: waking it up for each one of many
/// short requests would cost more than a look now and then.
const IDLE_ROUNDS: u32 = 5;
/// The most of its time that the watching thread spends on looking, as a part.
const SHARE: u32 = 10;
/// What is below has its own deadline, and knows better what was late.
const GRACE: Duration = Duration::from_secs(1);
/// A failure that took so long to come is given again to who asks the same again in the next
/// moment. The kernel does so by itself: behind a failed read-ahead comes a read of its first
/// page, and who waited for another's lookup or read then asks himself. Each would wait for
/// another deadline.
const LONG: Duration = Duration::from_secs(1);
/// That moment.
const MOMENT: Duration = Duration::from_millis(500);

/// What a request asks for: for the log, and to know it again.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) operation: &'static str,
    pub(super) ino: INodeNo,
    pub(super) name: Option<OsString>,
    pub(super) bytes: Option<Range<u64>>,
}

impl Asked {
    /// Whether the kernel asks this again by itself when it fails.
    fn is_repeated(&self) -> bool {
        matches!(self.operation, "lookup" | "read")
    }

    fn is_of(&self, earlier: &Self) -> bool {
        let is_within = match (&self.bytes, &earlier.bytes) {
            (Some(now), Some(then)) => now.start < then.end && then.start < now.end,
            (now, then) => now == then,
        };
        self.operation == earlier.operation
            && self.ino == earlier.ino
            && self.name == earlier.name
            && is_within
    }
}

/// A request that a worker has, for the thread that looks after it.
trait Pending: Send + Sync {
    fn is_answered(&self) -> bool;
    fn since(&self) -> Instant;
    fn tid(&self) -> u32;
    fn refuse(&self, error: &FsError);
}

/// A request with its reply.
struct Slot<R> {
    asked: Asked,
    /// The calling thread; 0 if it is not known.
    tid: u32,
    since: Instant,
    reply: Mutex<Option<R>>,
    is_answered: AtomicBool,
    fs: Arc<Fs>,
    watch: Arc<Watch>,
}

impl<R> Slot<R> {
    fn reply(&self) -> MutexGuard<'_, Option<R>> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<R> {
        let reply = self.reply().take();
        self.is_answered.store(true, Ordering::Release);
        reply
    }
}

impl<R: Refuse> Pending for Slot<R> {
    fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn tid(&self) -> u32 {
        self.tid
    }

    fn refuse(&self, error: &FsError) {
        let Some(reply) = self.take() else { return };
        // Before the answer: who gets it asks again at once.
        if self.asked.is_repeated()
            && !matches!(error, FsError::Interrupted)
            && self.since.elapsed() >= LONG
        {
            let failure = (Instant::now(), self.asked.clone(), error.clone());
            self.watch.lock().failures.push_back(failure);
        }
        let Asked {
            operation,
            ino,
            ref name,
            ..
        } = self.asked;
        reply.refuse(report(&self.fs, operation, ino, name.as_deref(), error));
    }
}

/// A worker's hold on a request; dropped unanswered, it says EIO and counts as a panic.
pub(super) struct Claim<R: Refuse>(Arc<Slot<R>>);

impl<R: Refuse> Claim<R> {
    /// Whether nobody waits for an answer any more.
    pub(super) fn is_answered(&self) -> bool {
        self.0.is_answered()
    }

    /// The reply, to answer with; none if another has answered.
    pub(super) fn take(&self) -> Option<R> {
        self.0.take()
    }

    /// Puts something into the reply, unless another has answered.
    pub(super) fn with<T>(&self, put: impl FnOnce(&mut R) -> T) -> Option<T> {
        self.0.reply().as_mut().map(put)
    }

    /// Answers that the request failed, unless another has answered.
    pub(super) fn refuse(&self, error: &FsError) {
        self.0.refuse(error);
    }
}

impl<R: Refuse> Drop for Claim<R> {
    fn drop(&mut self) {
        if !self.is_answered() {
            self.0.fs.stats().panicked();
            self.refuse(&FsError::Panicked);
        }
    }
}

/// All requests that workers have, and the thread that looks after them.
#[derive(Debug)]
pub(super) struct Watch {
    deadline: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// From the oldest to the newest; some are answered.
    pending: VecDeque<Arc<dyn Pending>>,
    /// Failures that took long to come, from the oldest to the newest.
    failures: VecDeque<(Instant, Asked, FsError)>,
    is_asleep: bool,
    has_ended: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} requests)", self.pending.len())
    }
}

impl Watch {
    /// Begins to look after requests; each is answered a little later than after `deadline`.
    ///
    /// # Errors
    /// The system's, if there is no thread for it.
    pub(super) fn start(deadline: Duration) -> io::Result<Arc<Self>> {
        let watch = Arc::new(Self {
            deadline: deadline.saturating_add(GRACE),
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let looking = Arc::clone(&watch);
        thread::Builder::new()
            .name("zarrfs-watch".into())
            .spawn(move || looking.look_after_all())?;
        Ok(watch)
    }

    /// Takes a request before a worker gets it; none if its answer is known already, and given.
    pub(super) fn begin<R: Refuse>(
        self: &Arc<Self>,
        fs: &Arc<Fs>,
        tid: u32,
        asked: Asked,
        reply: R,
    ) -> Option<Claim<R>> {
        let slot = Arc::new(Slot {
            asked,
            tid,
            since: Instant::now(),
            reply: Mutex::new(Some(reply)),
            is_answered: AtomicBool::new(false),
            fs: Arc::clone(fs),
            watch: Arc::clone(self),
        });
        let mut state = self.lock();
        let known = state.failure(&slot.asked);
        if let Some(error) = known {
            drop(state);
            slot.refuse(&error);
            return None;
        }
        // One comes, at most two go: answered ones do not pile up between two rounds.
        for _ in 0..2 {
            if state.pending.front().is_some_and(|old| old.is_answered()) {
                state.pending.pop_front();
            }
        }
        state.pending.push_back(Arc::clone(&slot) as _);
        if state.is_asleep {
            state.is_asleep = false;
            self.wake.notify_one();
        }
        Some(Claim(slot))
    }

    /// Ends the thread; requests that are left are for the workers alone.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let left = std::mem::take(&mut state.pending);
        drop(state);
        self.wake.notify_one();
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_after_all(&self) {
        let mut idle_rounds = 0;
        let mut pause = PERIOD;
        loop {
            let Some(old) = self.next_round(&mut idle_rounds, pause) else {
                return;
            };
            let begun = Instant::now();
            self.look_after(&old);
            // Of very many requests not each one can be looked after so often.
            pause = PERIOD.max(begun.elapsed().saturating_mul(SHARE));
        }
    }

    /// Waits for the next round; the requests that are to be looked after in it.
    fn next_round(&self, idle_rounds: &mut u32, pause: Duration) -> Option<Vec<Arc<dyn Pending>>> {
        let mut state = self.lock();
        let from = Instant::now();
        loop {
            if state.has_ended {
                return None;
            }
            if state.is_asleep {
                state = self
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = pause.saturating_sub(from.elapsed());
            if left.is_zero() {
                break;
            }
            (state, _) = self
                .wake
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.pending.retain(|request| !request.is_answered());
        *idle_rounds = match state.pending.is_empty() {
            true => idle_rounds.saturating_add(1),
            false => 0,
        };
        if *idle_rounds > IDLE_ROUNDS {
            *idle_rounds = 0;
            state.is_asleep = true;
            state.pending.shrink_to_fit();
        }
        let old = |request: &&Arc<dyn Pending>| request.since().elapsed() >= PERIOD;
        Some(state.pending.iter().take_while(old).cloned().collect())
    }

    fn look_after(&self, requests: &[Arc<dyn Pending>]) {
        let mut told: HashMap<u32, bool> = HashMap::new();
        for request in requests {
            let tid = request.tid();
            if request.since().elapsed() >= self.deadline {
                request.refuse(&FsError::TimedOut);
            } else if tid != 0 && *told.entry(tid).or_insert_with(|| is_told_to_end(tid)) {
                request.refuse(&FsError::Interrupted);
            }
        }
    }
}

impl State {
    /// The failure of the same question a moment ago.
    fn failure(&mut self, asked: &Asked) -> Option<FsError> {
        while let Some((at, ..)) = self.failures.front()
            && at.elapsed() > MOMENT
        {
            self.failures.pop_front();
        }
        let mut failures = self.failures.iter();
        let found = failures.find(|(_, earlier, _)| asked.is_of(earlier));
        found.map(|(.., error)| error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Policy;
    use crate::store::{Key, MemoryStore};
    use std::sync::mpsc::{Receiver, Sender, channel};

    impl Refuse for Sender<i32> {
        fn refuse(self, errno: Errno) {
            self.send(errno.code()).unwrap();
        }
    }

    fn fs() -> Arc<Fs> {
        let store = Arc::new(MemoryStore::new([(Key::new(b"a").unwrap(), vec![1])]));
        let policy = Policy {
            ttl: Duration::ZERO,
            absent_ttl: Duration::ZERO,
            uid: 0,
            gid: 0,
            umask: 0,
            workers: 1,
        };
        let tree = crate::tree::native(store, &Key::root()).unwrap();
        Arc::new(Fs::new(tree, policy).unwrap())
    }

    fn read(bytes: Range<u64>) -> Asked {
        Asked {
            operation: "read",
            ino: INodeNo(7),
            name: None,
            bytes: Some(bytes),
        }
    }

    fn said(receiver: &Receiver<i32>) -> Option<i32> {
        receiver.recv_timeout(Duration::from_secs(10)).ok()
    }

    #[test]
    fn who_waits_is_answered_once_and_late_failures_are_not_waited_for_again() {
        let (watch, fs) = (Watch::start(Duration::from_millis(100)).unwrap(), fs());
        let begin = |asked| {
            let (sender, receiver) = channel();
            (watch.begin(&fs, 0, asked, sender), receiver)
        };
        let (stuck, answer) = begin(read(0..100));
        let (known, other) = begin(read(200..300));
        let (known, stuck) = (known.unwrap(), stuck.unwrap());
        known.take().unwrap().send(0).unwrap();
        assert_eq!(said(&answer), Some(Errno::ETIMEDOUT.code()));
        assert_eq!(said(&other), Some(0));
        assert!(stuck.is_answered() && stuck.take().is_none() && known.take().is_none());

        let (claim, again) = begin(read(99..101));
        assert!(claim.is_none());
        assert_eq!(said(&again), Some(Errno::ETIMEDOUT.code()));
        let (claim, elsewhere) = begin(read(100..101));
        claim.unwrap().refuse(&FsError::Interrupted);
        assert_eq!(said(&elsewhere), Some(Errno::EINTR.code()));

        let (lost, answer) = begin(read(400..401));
        drop(lost);
        assert_eq!(said(&answer), Some(Errno::EIO.code()));
        drop((stuck, known));

        watch.end();
        let end = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&watch) > 1 {
            assert!(Instant::now() < end, "the thread does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
