//! Requests in flight: pending futures and blocking reads, each with its reply.
//!
//! One thread watches them. It answers and cancels a request whose caller has a fatal signal
//! (`signals`), and one whose deadline is over; work that completes later finds the reply gone and
//! undoes what it had counted.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_task::Task;
use fuser::{Errno, INodeNo};

use super::reply::report;
use super::signals::has_fatal_signal;
use crate::fs::{Fs, FsError};
use crate::runtime::spawn_polled;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A reply of any kind that can say that a request failed.
pub(super) trait Refuse: Send + 'static {
    fn refuse(self, errno: Errno);
}

/// How often requests are watched, and how old they are when that begins.
const PERIOD: Duration = Duration::from_millis(200);
/// Rounds without any request before the watching thread sleeps: waking it for each one of many short
/// requests would cost more than a round now and then.
const IDLE_ROUNDS: u32 = 5;
/// The watching thread spends at most one part in so many of its time.
const SHARE: u32 = 10;
/// What is below has its own deadline, and knows better what was late.
const GRACE: Duration = Duration::from_secs(1);
/// A failure that took so long is the answer to the same request if that comes soon after. The kernel
/// repeats requests by itself: after a failed readahead it reads the first page, and callers that waited
/// for the lookup or read of another one send their own. Each would wait for another deadline.
const SLOW_FAILURE: Duration = Duration::from_secs(1);
/// How long such a failure is the answer.
const FAILURE_TTL: Duration = Duration::from_millis(500);

/// What a request is about, for the log and to recognise its repetition.
#[derive(Debug, Clone)]
pub(super) struct RequestId {
    pub(super) operation: &'static str,
    pub(super) ino: INodeNo,
    pub(super) name: Option<OsString>,
    pub(super) bytes: Option<Range<u64>>,
}

impl RequestId {
    /// Whether the kernel asks this again by itself when it fails.
    fn is_repeated(&self) -> bool {
        matches!(self.operation, "lookup" | "read")
    }

    fn repeats(&self, earlier: &Self) -> bool {
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

/// A request in flight, for the thread that watches it.
trait InFlightRequest: Send + Sync {
    fn is_answered(&self) -> bool;
    fn since(&self) -> Instant;
    fn tid(&self) -> u32;
    fn refuse(&self, error: &FsError);
}

/// A request with its reply.
struct Slot<R> {
    id: RequestId,
    /// The calling thread; 0 if it is not known.
    tid: u32,
    since: Instant,
    reply: Mutex<Option<R>>,
    is_answered: AtomicBool,
    fs: Arc<Fs>,
    tracker: Arc<RequestTracker>,
    /// The future that answers the request; dropping it cancels it.
    task: Mutex<Option<Task<()>>>,
}

impl<R> Slot<R> {
    fn reply(&self) -> MutexGuard<'_, Option<R>> {
        self.reply.lock()
    }

    fn take(&self) -> Option<R> {
        let reply = self.reply().take();
        self.is_answered.store(true, Ordering::Release);
        reply
    }
}

impl<R: Refuse> InFlightRequest for Slot<R> {
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
        let task = self.task.lock().take();
        // Before the answer: the caller may repeat the request at once.
        if self.id.is_repeated()
            && !matches!(error, FsError::Interrupted)
            && self.since.elapsed() >= SLOW_FAILURE
        {
            let failure = (Instant::now(), self.id.clone(), error.clone());
            self.tracker.lock().failures.push_back(failure);
        }
        let RequestId {
            operation,
            ino,
            ref name,
            ..
        } = self.id;
        reply.refuse(report(&self.fs, operation, ino, name.as_deref(), error));
        // Cancels what is still pending for the request.
        drop(task);
    }
}

/// The duty to answer a request; dropped unanswered, it replies EIO and counts as a panic.
pub(super) struct ReplyGuard<R: Refuse>(Arc<Slot<R>>);

/// A request whose future is about to be polled.
pub(super) struct Starting<R: Refuse>(Arc<Slot<R>>);

impl<R: Refuse> Starting<R> {
    /// Polls the future of the request once; if it is pending, the request is in flight.
    pub(super) fn poll(self, future: impl Future<Output = ()> + Send + 'static) {
        let task = spawn_polled(future);
        let slot = self.0;
        if slot.is_answered() {
            return task.detach();
        }
        *slot.task.lock() = Some(task);
        let tracker = Arc::clone(&slot.tracker);
        tracker.watch(slot);
    }

    /// The request is in flight: a blocking read answers it.
    pub(super) fn watch(self) {
        let tracker = Arc::clone(&self.0.tracker);
        tracker.watch(self.0);
    }
}

impl<R: Refuse> ReplyGuard<R> {
    /// Whether the request is answered.
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

impl<R: Refuse> Drop for ReplyGuard<R> {
    fn drop(&mut self) {
        if !self.is_answered() {
            self.0.fs.stats().panicked();
            self.refuse(&FsError::Panicked);
        }
    }
}

/// All requests in flight, and the thread that watches them.
#[derive(Debug)]
pub(super) struct RequestTracker {
    deadline: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// From the oldest to the newest; some are answered.
    pending: VecDeque<Arc<dyn InFlightRequest>>,
    /// Failures that took long to come, from the oldest to the newest.
    failures: VecDeque<(Instant, RequestId, FsError)>,
    is_asleep: bool,
    has_ended: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} requests)", self.pending.len())
    }
}

impl RequestTracker {
    /// Starts to watch requests; each is answered a little later than after `deadline`.
    ///
    /// # Errors
    /// The system's, if there is no thread for it.
    pub(super) fn start(deadline: Duration) -> io::Result<Arc<Self>> {
        let tracker = Arc::new(Self {
            deadline: deadline.saturating_add(GRACE),
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let watching = Arc::clone(&tracker);
        thread::Builder::new()
            .name("zarrfs-watch".into())
            .spawn(move || watching.watch_all())?;
        Ok(tracker)
    }

    /// Takes a request before its work starts; `None` if its answer is a recent failure, which is sent.
    pub(super) fn begin<R: Refuse>(
        self: &Arc<Self>,
        fs: &Arc<Fs>,
        tid: u32,
        id: RequestId,
        reply: R,
    ) -> Option<(ReplyGuard<R>, Starting<R>)> {
        let slot = Arc::new(Slot {
            id,
            tid,
            since: Instant::now(),
            reply: Mutex::new(Some(reply)),
            is_answered: AtomicBool::new(false),
            fs: Arc::clone(fs),
            tracker: Arc::clone(self),
            task: Mutex::default(),
        });
        let known = self.lock().failure(&slot.id);
        if let Some(error) = known {
            slot.refuse(&error);
            return None;
        }
        Some((ReplyGuard(Arc::clone(&slot)), Starting(slot)))
    }

    fn watch<R: Refuse>(&self, slot: Arc<Slot<R>>) {
        let mut state = self.lock();
        // One comes, at most two go: answered ones do not pile up between two rounds.
        for _ in 0..2 {
            if state.pending.front().is_some_and(|old| old.is_answered()) {
                state.pending.pop_front();
            }
        }
        state.pending.push_back(slot);
        if state.is_asleep {
            state.is_asleep = false;
            self.wake.notify_one();
        }
    }

    /// Ends the thread; requests in flight are no longer watched.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let left = std::mem::take(&mut state.pending);
        drop(state);
        self.wake.notify_one();
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn watch_all(&self) {
        let mut idle_rounds = 0;
        let mut pause = PERIOD;
        loop {
            let Some(old) = self.next_round(&mut idle_rounds, pause) else {
                return;
            };
            let begun = Instant::now();
            self.watch_round(&old);
            // Very many requests are watched less often.
            pause = PERIOD.max(begun.elapsed().saturating_mul(SHARE));
        }
    }

    /// Waits for the next round; returns the requests that are watched in it.
    fn next_round(
        &self,
        idle_rounds: &mut u32,
        pause: Duration,
    ) -> Option<Vec<Arc<dyn InFlightRequest>>> {
        let mut state = self.lock();
        let from = Instant::now();
        loop {
            if state.has_ended {
                return None;
            }
            if state.is_asleep {
                state = self.wake.wait(state);
                continue;
            }
            let left = pause.saturating_sub(from.elapsed());
            if left.is_zero() {
                break;
            }
            state = self.wake.wait_timeout(state, left);
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
        let old = |request: &&Arc<dyn InFlightRequest>| request.since().elapsed() >= PERIOD;
        Some(state.pending.iter().take_while(old).cloned().collect())
    }

    fn watch_round(&self, requests: &[Arc<dyn InFlightRequest>]) {
        let mut fatal: HashMap<u32, bool> = HashMap::new();
        for request in requests {
            let tid = request.tid();
            if request.since().elapsed() >= self.deadline {
                request.refuse(&FsError::TimedOut);
            } else if tid != 0 && *fatal.entry(tid).or_insert_with(|| has_fatal_signal(tid)) {
                request.refuse(&FsError::Interrupted);
            }
        }
    }
}

impl State {
    /// The recent slow failure of the same request.
    fn failure(&mut self, id: &RequestId) -> Option<FsError> {
        while let Some((at, ..)) = self.failures.front()
            && at.elapsed() > FAILURE_TTL
        {
            self.failures.pop_front();
        }
        let mut failures = self.failures.iter();
        let found = failures.find(|(_, earlier, _)| id.repeats(earlier));
        found.map(|(.., error)| error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Policy;
    use crate::runtime::block_on;
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
            local_io_threads: 1,
        };
        let tree = block_on(crate::tree::native(store, &Key::root())).unwrap();
        Arc::new(block_on(Fs::new(tree, policy)).unwrap())
    }

    fn read(bytes: Range<u64>) -> RequestId {
        RequestId {
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
    fn a_request_is_answered_once_and_a_slow_failure_answers_its_repetition() {
        let (tracker, fs) = (
            RequestTracker::start(Duration::from_millis(100)).unwrap(),
            fs(),
        );
        let begin = |id| {
            let (sender, receiver) = channel();
            (tracker.begin(&fs, 0, id, sender), receiver)
        };
        let (stuck, answer) = begin(read(0..100));
        let (known, other) = begin(read(200..300));
        let ((known, starting), (stuck, hanging)) = (known.unwrap(), stuck.unwrap());
        hanging.poll(std::future::pending());
        starting.watch();
        known.take().unwrap().send(0).unwrap();
        assert_eq!(said(&answer), Some(Errno::ETIMEDOUT.code()));
        assert_eq!(said(&other), Some(0));
        assert!(stuck.is_answered() && stuck.take().is_none() && known.take().is_none());

        let (repeated, again) = begin(read(99..101));
        assert!(repeated.is_none());
        assert_eq!(said(&again), Some(Errno::ETIMEDOUT.code()));
        let (other_read, elsewhere) = begin(read(100..101));
        other_read.unwrap().0.refuse(&FsError::Interrupted);
        assert_eq!(said(&elsewhere), Some(Errno::EINTR.code()));

        let (lost, answer) = begin(read(400..401));
        drop(lost);
        assert_eq!(said(&answer), Some(Errno::EIO.code()));
        drop((stuck, known));

        tracker.end();
        let end = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(&tracker) > 1 {
            assert!(Instant::now() < end, "the thread does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
