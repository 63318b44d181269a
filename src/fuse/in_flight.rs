//! Requests in flight: pending futures and blocking reads, each with its reply.
//!
//! One thread watches all requests in flight. It fails and cancels a request whose caller has a
//! fatal signal (`signals`) or whose deadline has passed. Work that completes later finds the reply
//! gone, and undoes its lookup and open counts.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_task::Task;
use fuser::{Errno, INodeNo};

use super::reply::report;
use super::signals::has_fatal_signal;
use crate::fs::{Fs, FsError};
use crate::runtime::{spawn, spawn_polled};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, thread};

/// A reply of any type that can carry an errno.
pub(super) trait ErrorReply: Send + 'static {
    fn refuse(self, errno: Errno);
}

/// The interval between two rounds, and the age from which requests are watched.
const PERIOD: Duration = Duration::from_millis(match cfg!(all(test, feature = "schedules")) {
    // Time does not pass under a model checker.
    true => 0,
    false => 200,
});
/// The number of rounds without requests before the watching thread sleeps. Waking it for each of
/// many short requests would cost more than an occasional round.
const IDLE_ROUNDS: u32 = 5;
/// The watching thread is busy for at most `1 / SHARE` of the time.
const SHARE: u32 = match cfg!(all(test, feature = "schedules")) {
    // A round takes no time under a model checker.
    true => 0,
    false => 10,
};
/// Added to the deadline, because the store has its own and reports the cause of a timeout in more detail.
const GRACE: Duration = PERIOD.saturating_mul(5);
/// A failure after at least this time also answers a repetition of the request. The kernel repeats requests by
/// itself: after a failed readahead it reads the first page. Callers that waited for the lookup or read of
/// another caller send their own. Each would wait for another deadline.
const SLOW_FAILURE: Duration = Duration::from_secs(1);
/// The time that a slow failure answers repetitions.
const FAILURE_TTL: Duration = Duration::from_millis(500);

/// The identity of a request, for the log and to recognise repetitions.
#[derive(Debug, Clone)]
pub(super) struct RequestId {
    pub(super) operation: &'static str,
    pub(super) ino: INodeNo,
    pub(super) name: Option<OsString>,
    pub(super) bytes: Option<Range<u64>>,
}

impl RequestId {
    /// Returns whether the kernel repeats the request by itself when it fails.
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

/// A request in flight, as the watching thread sees it.
trait InFlightRequest: Send + Sync {
    fn is_answered(&self) -> bool;
    fn since(&self) -> Instant;
    fn tid(&self) -> u32;
    fn refuse(&self, error: &FsError);
}

/// The state of a request: its reply, and the future that answers it.
struct RequestState<R> {
    id: RequestId,
    /// The calling thread; 0 if unknown.
    tid: u32,
    since: Instant,
    reply: Mutex<Option<R>>,
    is_answered: AtomicBool,
    fs: Arc<Fs>,
    tracker: Arc<RequestTracker>,
    /// The future of the request; dropping it cancels the request.
    task: Mutex<Option<Task<()>>>,
}

impl<R> RequestState<R> {
    fn reply(&self) -> MutexGuard<'_, Option<R>> {
        self.reply.lock()
    }

    fn take(&self) -> Option<R> {
        let reply = self.reply().take();
        self.is_answered.store(true, Ordering::Release);
        reply
    }
}

impl<R: ErrorReply> InFlightRequest for RequestState<R> {
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
        // Recorded before the reply is sent, because the caller may repeat the request at once.
        if self.id.is_repeated()
            && !matches!(error, FsError::Interrupted)
            && self.since.elapsed() >= SLOW_FAILURE
        {
            self.tracker.record_failure(&self.id, error);
        }
        let RequestId {
            operation,
            ino,
            ref name,
            ..
        } = self.id;
        reply.refuse(report(&self.fs, operation, ino, name.as_deref(), error));
        // Cancels the pending work of the request.
        drop(task);
    }
}

/// The obligation to reply to a request. If it is dropped by a panic or without a reply, it counts a panic and
/// sends EIO.
pub(super) struct ReplyGuard<R: ErrorReply>(Arc<RequestState<R>>);

/// A request whose future has not been polled yet.
pub(super) struct UnpolledRequest<R: ErrorReply>(Arc<RequestState<R>>);

impl<R: ErrorReply> UnpolledRequest<R> {
    /// Polls the future of the request once. If it is pending, the request is in flight.
    pub(super) fn poll(self, future: impl Future<Output = ()> + Send + 'static) {
        let request = self.0;
        let Ok(task) = catch_unwind(AssertUnwindSafe(|| spawn_polled(future))) else {
            // The future is dropped, and with it the guard, which has counted the panic and replied.
            log::error!("bug: panic in {}", request.id.operation);
            return;
        };
        if request.is_answered() {
            return task.detach();
        }
        *request.task.lock() = Some(task);
        let tracker = Arc::clone(&request.tracker);
        tracker.watch(request);
    }

    /// Runs a future that was polled before on the CPU pool.
    pub(super) fn spawn(self, future: impl Future<Output = ()> + Send + 'static) {
        let request = self.0;
        *request.task.lock() = Some(spawn(future));
        let tracker = Arc::clone(&request.tracker);
        tracker.watch(request);
    }

    /// Watches the request, which a blocking read answers.
    pub(super) fn watch(self) {
        let tracker = Arc::clone(&self.0.tracker);
        tracker.watch(self.0);
    }
}

impl<R: ErrorReply> ReplyGuard<R> {
    /// Returns whether the request has a reply.
    pub(super) fn is_answered(&self) -> bool {
        self.0.is_answered()
    }

    /// Takes the reply, unless another thread has sent it.
    pub(super) fn take(&self) -> Option<R> {
        self.0.take()
    }

    /// Calls `put` with the reply, unless another thread has sent it.
    pub(super) fn with<T>(&self, put: impl FnOnce(&mut R) -> T) -> Option<T> {
        self.0.reply().as_mut().map(put)
    }

    /// Returns the time since the request was received.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.since.elapsed()
    }

    /// Returns the file system of the request.
    pub(super) fn fs(&self) -> &Fs {
        &self.0.fs
    }

    /// Fails the request, unless another thread has replied.
    pub(super) fn refuse(&self, error: &FsError) {
        self.0.refuse(error);
    }
}

impl<R: ErrorReply> Drop for ReplyGuard<R> {
    fn drop(&mut self) {
        if thread::panicking() || !self.is_answered() {
            self.0.fs.stats().panicked();
            self.refuse(&FsError::Panicked);
        }
    }
}

/// All requests in flight, and the state of the thread that watches them.
#[derive(Debug)]
pub(super) struct RequestTracker {
    deadline: Duration,
    state: Mutex<State>,
    wake: Condvar,
    /// Whether `state` may have slow failures. Most requests look no further.
    has_failures: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Requests from the oldest to the newest, some of them already answered.
    pending: VecDeque<Arc<dyn InFlightRequest>>,
    /// Slow failures, from the oldest to the newest.
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
    /// Starts to watch requests. A request fails [`GRACE`] after `deadline`, at the next round.
    ///
    /// # Errors
    /// The error of the system, if the thread cannot be started.
    pub(super) fn start(deadline: Duration) -> io::Result<Arc<Self>> {
        let tracker = Arc::new(Self {
            deadline: deadline.saturating_add(GRACE),
            state: Mutex::default(),
            wake: Condvar::new(),
            has_failures: AtomicBool::new(false),
        });
        let watching = Arc::clone(&tracker);
        thread::Builder::new()
            .name("zarrfs-watch".into())
            .spawn(move || watching.watch_all())?;
        Ok(tracker)
    }

    /// Registers a request before its work starts. If a recent failure answers it, sends the failure and
    /// returns `None`.
    pub(super) fn begin<R: ErrorReply>(
        self: &Arc<Self>,
        fs: &Arc<Fs>,
        tid: u32,
        id: RequestId,
        reply: R,
    ) -> Option<(ReplyGuard<R>, UnpolledRequest<R>)> {
        let request = Arc::new(RequestState {
            id,
            tid,
            since: Instant::now(),
            reply: Mutex::new(Some(reply)),
            is_answered: AtomicBool::new(false),
            fs: Arc::clone(fs),
            tracker: Arc::clone(self),
            task: Mutex::default(),
        });
        let known = match self.has_failures.load(Ordering::Relaxed) {
            true => self.failure(&request.id),
            false => None,
        };
        if let Some(error) = known {
            request.refuse(&error);
            return None;
        }
        Some((ReplyGuard(Arc::clone(&request)), UnpolledRequest(request)))
    }

    /// Returns whether a recent failure may answer a request before its work starts.
    pub(super) fn may_repeat_a_failure(&self) -> bool {
        self.has_failures.load(Ordering::Relaxed)
    }

    fn record_failure(&self, id: &RequestId, error: &FsError) {
        let mut state = self.lock();
        let failure = (Instant::now(), id.clone(), error.clone());
        state.failures.push_back(failure);
        self.has_failures.store(true, Ordering::Relaxed);
    }

    /// Returns the recent slow failure of the same request.
    fn failure(&self, id: &RequestId) -> Option<FsError> {
        let mut state = self.lock();
        while let Some((at, ..)) = state.failures.front()
            && at.elapsed() > FAILURE_TTL
        {
            state.failures.pop_front();
        }
        let has_failures = !state.failures.is_empty();
        self.has_failures.store(has_failures, Ordering::Relaxed);
        let mut failures = state.failures.iter();
        let found = failures.find(|(_, earlier, _)| id.repeats(earlier));
        found.map(|(.., error)| error.clone())
    }

    fn watch<R: ErrorReply>(&self, request: Arc<RequestState<R>>) {
        let mut state = self.lock();
        // Removes up to two answered requests for each new one, so that they do not pile up between
        // rounds.
        for _ in 0..2 {
            if state.pending.front().is_some_and(|old| old.is_answered()) {
                state.pending.pop_front();
            }
        }
        state.pending.push_back(request);
        if state.is_asleep {
            state.is_asleep = false;
            self.wake.notify_one();
        }
    }

    /// Ends the thread. Requests in flight are no longer watched.
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
            // Without this thread, no request would have a deadline.
            pause = match catch_unwind(AssertUnwindSafe(|| self.watch_round(&old))) {
                // The more requests are in flight, the less often they are watched.
                Ok(()) => PERIOD.max(begun.elapsed().saturating_mul(SHARE)),
                // The report of a panic takes long, and the other requests still have to be watched.
                Err(_) => {
                    log::error!("bug: panic while a request was cancelled");
                    PERIOD
                }
            };
        }
    }

    /// Waits for the next round; returns the requests to watch, or `None` at the end.
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

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fs::Policy;
    use crate::runtime::block_on;
    use crate::store::{Key, MemoryStore};
    use std::sync::mpsc::{Receiver, Sender, channel};

    impl ErrorReply for Sender<i32> {
        fn refuse(self, errno: Errno) {
            self.send(errno.code()).unwrap();
        }
    }

    pub(in crate::fuse) fn fs() -> Arc<Fs> {
        let objects = [b"a", b"b"].map(|key| (Key::new(key).unwrap(), vec![1]));
        let store = Arc::new(MemoryStore::new(objects));
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

    /// A reply that panics when it is sent.
    struct PanickingReply;

    impl ErrorReply for PanickingReply {
        fn refuse(self, _: Errno) {
            panic!("a bug");
        }
    }

    #[test]
    fn a_panic_of_one_reply_leaves_the_deadlines_of_other_requests() {
        let (tracker, fs) = (
            RequestTracker::start(Duration::from_millis(1)).unwrap(),
            fs(),
        );
        let (_bad, hanging) = tracker.begin(&fs, 0, read(0..1), PanickingReply).unwrap();
        hanging.poll(std::future::pending());
        let (sender, receiver) = channel();
        let (_good, hanging) = tracker.begin(&fs, 0, read(5..6), sender).unwrap();
        hanging.poll(std::future::pending());
        assert_eq!(said(&receiver), Some(Errno::ETIMEDOUT.code()));
        tracker.end();
    }

    #[test]
    fn a_panic_in_the_first_poll_is_counted_once() {
        let (tracker, fs) = (
            RequestTracker::start(Duration::from_secs(60)).unwrap(),
            fs(),
        );
        for is_answered in [false, true] {
            let (sender, receiver) = channel();
            let (guard, starting) = tracker.begin(&fs, 0, read(0..1), sender).unwrap();
            starting.poll(async move {
                if is_answered {
                    guard.take().unwrap().send(0).unwrap();
                }
                panic!("a bug");
            });
            let expected = if is_answered { 0 } else { Errno::EIO.code() };
            assert_eq!(said(&receiver), Some(expected));
        }
        assert_eq!(fs.document()["panics"], 2);
        tracker.end();
    }
}
