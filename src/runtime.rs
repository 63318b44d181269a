//! Executors, for work that a session thread must not do itself.
//!
//! - The **CPU pool** has one thread for each core. It decodes ([`compute`]), and polls a pending
//!   request when it is woken ([`spawn_polled`]), so the thread that finished the work sends the
//!   reply.
//! - The **network runtime** (tokio) waits for sockets and timers ([`on_network`], [`timeout`]).
//!
//! Both executors start on first use and live as long as the process. Nothing in this module may
//! block on a future, except [`block_on`] on the own thread of a command.
//!
//! In unit tests, a thread can be its own executor, with a virtual clock (`simulated`).

pub mod caller;
#[cfg(test)]
#[cfg_attr(feature = "schedules", allow(dead_code))]
pub(crate) mod simulated;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use async_task::{Runnable, Task};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// The urgency of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request waits for the job.
    Demand,
    /// A later request may need the result of the job.
    Prefetch,
}

/// The result of a job was lost because the job panicked or was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abandoned;

/// The threads of the CPU pool.
struct CpuPool {
    queues: Mutex<Queues>,
    ready: Condvar,
}

#[derive(Default)]
struct Queues {
    /// Woken requests. They run before all jobs.
    woken: VecDeque<Runnable>,
    demand: VecDeque<Runnable>,
    prefetch: VecDeque<Runnable>,
}

/// The number of threads that copy bytes between sockets and memory.
const NETWORK_THREADS: usize = 2;

/// The longest time that the start of these threads takes.
const NETWORK_START: Duration = Duration::from_secs(10);

/// The largest number of queued prefetch jobs. A longer queue would delay later demand jobs.
const MAX_PREFETCH_JOBS: usize = 256;

thread_local! {
    /// Whether this is a thread of the CPU pool.
    static IS_CPU_THREAD: Cell<bool> = const { Cell::new(false) };
}

static THREADS: OnceLock<usize> = OnceLock::new();
static CPU_POOL: OnceLock<Arc<CpuPool>> = OnceLock::new();
static NETWORK: OnceLock<Runtime> = OnceLock::new();

impl fmt::Debug for CpuPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuPool").finish_non_exhaustive()
    }
}

impl CpuPool {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }

    fn next(&self) -> Runnable {
        let mut queues = self.lock();
        loop {
            let next = queues.woken.pop_front();
            let next = next.or_else(|| queues.demand.pop_front());
            if let Some(runnable) = next.or_else(|| queues.prefetch.pop_front()) {
                return runnable;
            }
            queues = self.ready.wait(queues);
        }
    }

    fn work(&self) {
        IS_CPU_THREAD.set(true);
        loop {
            let runnable = self.next();
            let done = catch_unwind(AssertUnwindSafe(|| runnable.run()));
            if done.is_err() {
                log::error!("bug: a job of the CPU pool panicked");
            }
        }
    }
}

/// Sets the number of CPU pool threads and starts both executors, so that a lack of threads is an
/// error at the start.
///
/// # Errors
/// The error of the system, if a thread cannot be started.
pub fn start(threads: usize) -> io::Result<()> {
    // Under a model checker, each job has a thread of its own.
    if cfg!(all(test, feature = "schedules")) {
        return Ok(());
    }
    let _ = THREADS.set(threads.max(1));
    start_cpu_pool()?;
    network()?;
    Ok(())
}

fn start_cpu_pool() -> io::Result<&'static Arc<CpuPool>> {
    static STARTING: Mutex<()> = Mutex::new(());
    if let Some(pool) = CPU_POOL.get() {
        return Ok(pool);
    }
    let _starting = STARTING.lock();
    if let Some(pool) = CPU_POOL.get() {
        return Ok(pool);
    }
    let pool = Arc::new(CpuPool {
        queues: Mutex::default(),
        ready: Condvar::new(),
    });
    let threads = threads();
    for number in 0..threads {
        let own = Arc::clone(&pool);
        let spawned = thread::Builder::new()
            .name(format!("zarrfs-cpu-{number}"))
            .spawn(move || own.work());
        match spawned {
            Ok(_) => {}
            Err(error) if number == 0 => return Err(error),
            Err(error) => {
                log::warn!("only {number} of {threads} CPU threads could be started: {error}");
                break;
            }
        }
    }
    // Only now: jobs of a pool without threads would wait forever. The next caller tries again.
    Ok(CPU_POOL.get_or_init(|| pool))
}

/// Returns the CPU pool, or `None` if it has no thread.
fn cpu_pool() -> Option<&'static Arc<CpuPool>> {
    match start_cpu_pool() {
        Ok(pool) => Some(pool),
        Err(error) => {
            log::error!("no thread for decoding: {error}");
            None
        }
    }
}

/// Returns the handle of the network runtime.
///
/// # Errors
/// The error of the system, if the threads of the runtime cannot be started.
pub fn network() -> io::Result<&'static Handle> {
    if let Some(runtime) = NETWORK.get() {
        return Ok(runtime.handle());
    }
    let build = || {
        Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .thread_name("zarrfs-net")
            .enable_all()
            .build()
    };
    // If the system refuses a thread, tokio panics, and then waits forever for the threads that it has started.
    let (sender, receiver) = mpsc::channel();
    let starter = thread::Builder::new().name("zarrfs-net-start".into());
    starter.spawn(move || sender.send(build()))?;
    let no_thread = |_| io::Error::other("the threads for the network cannot be started");
    let runtime = receiver.recv_timeout(NETWORK_START).map_err(no_thread)??;
    Ok(NETWORK.get_or_init(|| runtime).handle())
}

/// Runs a job on the CPU pool; dropping the future does not stop the job.
///
/// A prefetch job is dropped if too many are queued.
pub fn compute<T: Send + 'static>(
    priority: Priority,
    job: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, Abandoned>> + Send {
    let (sender, receiver) = oneshot::channel();
    spawn_detached(priority, async move {
        let _ = sender.send(job());
    });
    async move { receiver.await.map_err(|_| Abandoned) }
}

/// Runs a future on the CPU pool, whose result is not awaited. It is a job until its first poll; once it is woken, it
/// runs before all jobs.
///
/// A prefetch job is dropped if too many are queued.
pub fn spawn_detached(priority: Priority, future: impl Future<Output = ()> + Send + 'static) {
    let (runnable, task) = async_task::spawn(future, schedule);
    task.detach();
    enqueue(priority, runnable);
}

#[cfg(all(test, feature = "schedules"))]
fn enqueue(_: Priority, runnable: Runnable) {
    schedule(runnable);
}

#[cfg(not(all(test, feature = "schedules")))]
fn enqueue(priority: Priority, runnable: Runnable) {
    #[cfg(test)]
    if simulated::is_running() {
        return simulated::run(move || {
            runnable.run();
        });
    }
    let Some(pool) = cpu_pool() else { return };
    let mut queues = pool.lock();
    match priority {
        Priority::Demand => queues.demand.push_back(runnable),
        Priority::Prefetch if queues.prefetch.len() < MAX_PREFETCH_JOBS => {
            queues.prefetch.push_back(runnable);
        }
        Priority::Prefetch => return,
    }
    drop(queues);
    pool.ready.notify_one();
}

/// Returns whether the queue has space for `jobs` more prefetch jobs.
pub fn accepts_prefetch(jobs: usize) -> bool {
    #[cfg(test)]
    if simulated::is_running() {
        return jobs <= MAX_PREFETCH_JOBS;
    }
    cpu_pool().is_some_and(|pool| pool.lock().prefetch.len() + jobs <= MAX_PREFETCH_JOBS)
}

/// Moves queued prefetch jobs to the demand queue, because a request now waits for one of them.
pub fn promote_prefetch() {
    #[cfg(test)]
    if simulated::is_running() {
        return;
    }
    if let Some(pool) = cpu_pool() {
        let mut queues = pool.lock();
        let mut prefetch = std::mem::take(&mut queues.prefetch);
        queues.demand.append(&mut prefetch);
    }
}

/// Polls a future once on this thread. If it is pending, the CPU pool polls it when it is woken.
///
/// Dropping the task cancels the future. A panic in the first poll reaches the caller.
pub fn spawn_polled(future: impl Future<Output = ()> + Send + 'static) -> Task<()> {
    let (runnable, task) = async_task::spawn(future, schedule);
    runnable.run();
    task
}

/// Runs a future on the CPU pool without polling it here; dropping the task cancels it.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    let (runnable, task) = async_task::spawn(future, schedule);
    runnable.schedule();
    task
}

/// Queues a future that was woken. Under the model checker, it has a thread of its own.
#[cfg(all(test, feature = "schedules"))]
fn schedule(runnable: Runnable) {
    crate::sync::thread::spawn(move || {
        runnable.run();
    });
}

#[cfg(not(all(test, feature = "schedules")))]
fn schedule(runnable: Runnable) {
    #[cfg(test)]
    if simulated::is_running() {
        return simulated::schedule(runnable);
    }
    if let Some(pool) = cpu_pool() {
        pool.lock().woken.push_back(runnable);
        pool.ready.notify_one();
    }
}

/// Returns whether this thread may wait for a disk and decode: it is a thread of the CPU pool, and not a
/// session thread, which polls the future of each request once.
pub fn may_block() -> bool {
    IS_CPU_THREAD.get()
}

/// Returns the number of threads of the CPU pool.
pub fn threads() -> usize {
    *THREADS.get_or_init(crate::machine::cores)
}

/// Moves the future off the calling thread: it is pending once, and then polled by the CPU pool. Ready at once on a
/// thread of that pool.
///
/// A request awaits this before work that a session thread must not do, such as reading metadata
/// from a disk and parsing it.
pub async fn leave_session_thread() {
    let mut is_woken = may_block();
    std::future::poll_fn(|context| {
        if is_woken {
            return Poll::Ready(());
        }
        is_woken = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A task of the network runtime, aborted on drop.
#[derive(Debug)]
enum NetworkTask<T> {
    Runtime(JoinHandle<T>),
    /// The task cancels itself on drop.
    #[cfg(test)]
    Simulated(Task<T>),
}

impl<T: Send + 'static> NetworkTask<T> {
    fn spawn(future: impl Future<Output = T> + Send + 'static) -> io::Result<Self> {
        #[cfg(test)]
        if simulated::is_running() {
            return Ok(Self::Simulated(simulated::on_network(future)));
        }
        Ok(Self::Runtime(network()?.spawn(future)))
    }
}

impl<T> Drop for NetworkTask<T> {
    fn drop(&mut self) {
        match self {
            Self::Runtime(task) => task.abort(),
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }
}

impl<T> Future for NetworkTask<T> {
    type Output = Result<T, Abandoned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Runtime(task) => Pin::new(task)
                .poll(context)
                .map(|result| result.map_err(|_| Abandoned)),
            #[cfg(test)]
            Self::Simulated(task) => Pin::new(task).poll(context).map(Ok),
        }
    }
}

/// Runs a future on the network runtime, where sockets work; dropping the result cancels it.
pub fn on_network<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, Abandoned>> + Send {
    let task = NetworkTask::spawn(future);
    async move {
        match task {
            Ok(task) => task.await,
            Err(_) => Err(Abandoned),
        }
    }
}

/// Awaits a future, because time does not pass under a model checker: a wake-up that is lost is a deadlock.
#[cfg(all(test, feature = "schedules"))]
pub async fn timeout<T>(_: Duration, future: impl Future<Output = T>) -> Option<T> {
    Some(future.await)
}

/// Awaits a future for at most `limit`; returns `None` after that.
#[cfg(not(all(test, feature = "schedules")))]
pub async fn timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    #[cfg(test)]
    if simulated::is_running() {
        return simulated::timeout(limit, future).await;
    }
    let Ok(network) = network() else {
        return Some(future.await);
    };
    let timed = {
        let _entered = network.enter();
        tokio::time::timeout(limit, future)
    };
    timed.await.ok()
}

/// Waits for `time`.
pub async fn sleep(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

/// Returns a random number; in a simulation, the next one of its seed.
pub fn random() -> u64 {
    #[cfg(test)]
    if simulated::is_running() {
        return simulated::random();
    }
    // Each state has keys of its own.
    RandomState::new().build_hasher().finish()
}

/// Blocks this thread until a future is ready.
#[cfg(all(test, feature = "schedules"))]
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    shuttle::future::block_on(future)
}

/// Blocks this thread until a future is ready. Only the thread of a command or of a test may do so,
/// never a session thread or an executor thread.
#[cfg(not(all(test, feature = "schedules")))]
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// Wakes a parked thread.
    struct ThreadWaker(thread::Thread);

    impl std::task::Wake for ThreadWaker {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(ThreadWaker(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_panic_in_a_job_is_reported_and_ends_no_thread() {
        for _ in 0..8 {
            let job: fn() -> u8 = || panic!("as a decoder with a bug would");
            assert_eq!(block_on(compute(Priority::Demand, job)), Err(Abandoned));
        }
        assert_eq!(block_on(compute(Priority::Prefetch, || 7)), Ok(7));
    }

    #[test]
    fn a_pending_future_continues_where_it_stopped_and_can_be_cancelled() {
        let (sender, receiver) = mpsc::channel();
        let (done, wait) = oneshot::channel::<u8>();
        let caller = thread::current().id();
        let task = spawn_polled(async move {
            let first = thread::current().id();
            let value = wait.await;
            let _ = sender.send((first, thread::current().id(), value));
        });
        done.send(9).unwrap();
        let (first, second, value) = receiver.recv_timeout(LIMIT).unwrap();
        assert_eq!((first, value), (caller, Ok(9)));
        assert_ne!(second, caller);
        drop(task);

        let (sender, receiver) = mpsc::channel::<()>();
        let task = spawn_polled(async move {
            let _sender = sender;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert!(
            receiver.recv_timeout(LIMIT).is_err(),
            "its future is dropped"
        );
    }

    #[test]
    fn a_future_leaves_the_thread_that_polls_it_first() {
        let (sender, receiver) = mpsc::channel();
        let task = spawn_polled(async move {
            leave_session_thread().await;
            let _ = sender.send(thread::current().id());
        });
        assert_ne!(
            receiver.recv_timeout(LIMIT).unwrap(),
            thread::current().id()
        );
        drop(task);
    }

    #[test]
    fn a_timeout_ends_a_wait_outside_of_the_network_runtime() {
        let limit = Duration::from_millis(10);
        assert_eq!(block_on(timeout(limit, std::future::pending::<()>())), None);
        assert_eq!(block_on(timeout(limit, async { 3 })), Some(3));
    }
}
