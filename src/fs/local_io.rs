//! The local I/O pool: blocking reads of local files, which must not run on a session thread.
//!
//! The jobs of one file run in order on one worker: concurrent readers of one zip entry decode it once and
//! occupy one worker. Jobs of different files, and parallel jobs, run on all
//! workers.

use std::collections::{HashMap, VecDeque, hash_map};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::sync::{Condvar, Mutex, MutexGuard, thread};

type Job = Box<dyn FnOnce() + Send>;

/// A unit of work that a worker takes from the queue.
enum Work {
    /// The jobs of a file, until its queue is empty.
    File(u64),
    /// One job without an order.
    Alone(Job),
}

/// A pool of worker threads, which end when the pool is dropped.
#[derive(Debug)]
pub(super) struct LocalIoPool(Arc<Pool>);

struct Pool {
    state: Mutex<State>,
    /// One condition variable for each worker.
    wake: Vec<Condvar>,
}

#[derive(Default)]
struct State {
    /// Jobs by file. A file is in the map exactly as long as a worker has the file or the file is in `work`.
    files: HashMap<u64, VecDeque<Job>>,
    work: VecDeque<Work>,
    /// Sleeping workers. The last one is woken first, so that few workers are used. Each keeps a stack and an
    /// allocator arena of the largest size that it ever needed.
    idle: Vec<usize>,
    has_ended: bool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} files)", self.lock().files.len())
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Queues work and wakes a worker.
    fn begin(&self, mut state: MutexGuard<'_, State>, turn: Work) {
        state.work.push_back(turn);
        let worker = state.idle.pop();
        drop(state);
        if let Some(wake) = worker.and_then(|worker| self.wake.get(worker)) {
            wake.notify_one();
        }
    }

    /// Waits for the next work of a worker; returns `None` if the pool has ended.
    fn next_work(&self, worker: usize) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(turn) = state.work.pop_front() {
                return Some(turn);
            }
            if state.has_ended {
                return None;
            }
            state.idle.push(worker);
            state = self.wake.get(worker)?.wait(state);
            // The worker is still in the list if it woke without being notified.
            state.idle.retain(|idle| *idle != worker);
        }
    }

    /// Returns the next job of a file, or removes the file from the map if it has none left.
    fn next_job(&self, file: u64) -> Option<Job> {
        let mut state = self.lock();
        let job = state.files.get_mut(&file).and_then(VecDeque::pop_front);
        if job.is_none() {
            state.files.remove(&file);
        }
        job
    }

    fn run_worker(&self, worker: usize) {
        while let Some(turn) = self.next_work(worker) {
            match turn {
                Work::File(file) => {
                    while let Some(job) = self.next_job(file) {
                        run(job);
                    }
                }
                Work::Alone(job) => run(job),
            }
        }
    }
}

fn run(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        log::error!("bug: a worker's job panicked");
    }
}

impl LocalIoPool {
    /// Starts up to `workers` threads, or fewer if the system refuses more.
    pub(super) fn new(workers: usize) -> io::Result<Self> {
        let workers = workers.max(1);
        let pool = Arc::new(Pool {
            state: Mutex::default(),
            wake: (0..workers).map(|_| Condvar::new()).collect(),
        });
        let handle = Self(Arc::clone(&pool));
        for number in 0..workers {
            let pool = Arc::clone(&pool);
            let started = thread::Builder::new()
                .name(format!("zarrfs-io-{number}"))
                .spawn(move || pool.run_worker(number));
            match started {
                Ok(_) => {}
                Err(e) if number == 0 => return Err(e),
                Err(e) => {
                    log::warn!("only {number} of {workers} workers could be started: {e}");
                    break;
                }
            }
        }
        Ok(handle)
    }

    /// Runs a job on a worker, after the earlier jobs of the same file.
    ///
    /// A job that panics is dropped; a reply in it must be sent by its `Drop`.
    pub(super) fn submit(&self, file: u64, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        match state.files.entry(file) {
            hash_map::Entry::Occupied(mut queue) => queue.get_mut().push_back(Box::new(job)),
            hash_map::Entry::Vacant(queue) => {
                queue.insert(VecDeque::from([Box::new(job) as Job]));
                self.0.begin(state, Work::File(file));
            }
        }
    }

    /// Runs a job on the next free worker, without an order. Otherwise as [`LocalIoPool::submit`].
    pub(super) fn submit_parallel(&self, job: impl FnOnce() + Send + 'static) {
        self.0.begin(self.0.lock(), Work::Alone(Box::new(job)));
    }
}

impl Drop for LocalIoPool {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.wake.iter().for_each(Condvar::notify_one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn jobs_of_a_file_keep_their_order_and_a_panic_stops_nothing() {
        let pool = LocalIoPool::new(3).unwrap();
        let (sender, receiver) = mpsc::channel();
        for i in 0..300_u64 {
            let sender = sender.clone();
            pool.submit(i % 3, move || {
                assert_ne!(i, 30, "one job panics");
                sender.send(i).unwrap();
            });
        }
        drop(sender);
        let mut last = [None; 3];
        let mut count = 0;
        while let Ok(i) = receiver.recv_timeout(Duration::from_secs(10)) {
            let file = usize::try_from(i % 3).unwrap();
            assert!(last[file] < Some(i));
            last[file] = Some(i);
            count += 1;
        }
        assert_eq!(count, 299);
        // A worker removes a file from the map after its last job has ended.
        let begun = Instant::now();
        while !pool.0.lock().files.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10), "a file is left");
            thread::yield_now();
        }
    }

    #[test]
    fn workers_end_with_the_pool_and_sequential_jobs_use_one_thread() {
        let threads = LocalIoPool::new(8).unwrap();
        let (sender, receiver) = mpsc::channel();
        let pool = Arc::clone(&threads.0);
        let is_idle = || pool.lock().idle.len() == 8;
        let mut used = std::collections::HashSet::new();
        for _ in 0..100 {
            while !is_idle() {
                thread::yield_now();
            }
            let sender = sender.clone();
            threads.submit_parallel(move || sender.send(thread::current().id()).unwrap());
            used.insert(receiver.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        assert_eq!(used.len(), 1);
        drop(threads);
        while Arc::strong_count(&pool) > 1 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_parallel_job_does_not_wait_for_jobs_of_files() {
        let pool = LocalIoPool::new(2).unwrap();
        let (block, blocked) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        pool.submit(1, move || {
            let _ = blocked.recv();
        });
        for i in 0..10 {
            let sender = sender.clone();
            pool.submit_parallel(move || {
                assert_ne!(i, 3, "one job panics");
                sender.send(i).unwrap();
            });
        }
        for _ in 0..9 {
            receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        drop(block);
    }

    #[test]
    fn files_do_not_wait_for_each_other() {
        let pool = LocalIoPool::new(2).unwrap();
        let (block, blocked) = mpsc::channel::<()>();
        let done = Arc::new(AtomicUsize::new(0));
        pool.submit(1, move || {
            let _ = blocked.recv();
        });
        let (sender, receiver) = mpsc::channel();
        let counter = Arc::clone(&done);
        pool.submit(2, move || {
            counter.fetch_add(1, Ordering::SeqCst);
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1);
        drop(block);
    }
}
