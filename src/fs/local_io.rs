//! Blocking reads of local files, which a session thread must not do itself.
//!
//! Jobs of one file are done one after the other, by whichever worker began with them, so that
//! many readers of one entry have it decoded once and occupy one worker; jobs of different files,
//! and those that ask for no order, are done by as many workers as there are.

use std::collections::{HashMap, VecDeque, hash_map};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crate::sync::{Condvar, Mutex, MutexGuard};

type Job = Box<dyn FnOnce() + Send>;

/// What a worker takes next.
enum Work {
    /// The jobs of a file, until there are none.
    File(u64),
    /// One job that waits for no other.
    Alone(Job),
}

/// A pool of workers. They end when it is dropped.
#[derive(Debug)]
pub(super) struct LocalIoPool(Arc<Pool>);

struct Pool {
    state: Mutex<State>,
    /// One for each worker.
    wake: Vec<Condvar>,
}

#[derive(Default)]
struct State {
    /// Jobs by file. A file is here exactly as long as a worker has it or will get it.
    files: HashMap<u64, VecDeque<Job>>,
    work: VecDeque<Work>,
    /// Workers that sleep. The last one is woken first, so that few do what few can: each has a
    /// stack and an arena of the allocator that stay as large as they once were.
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

    /// Has a worker begin with something.
    fn begin(&self, mut state: MutexGuard<'_, State>, turn: Work) {
        state.work.push_back(turn);
        let worker = state.idle.pop();
        drop(state);
        if let Some(wake) = worker.and_then(|worker| self.wake.get(worker)) {
            wake.notify_one();
        }
    }

    /// What a worker does next, once there is something; none when it is to end.
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
            // Still there, if nobody has woken it.
            state.idle.retain(|idle| *idle != worker);
        }
    }

    /// The next job of a file; none ends the work on the file.
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
    /// Starts up to `workers` threads; fewer if the system gives no more.
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

    /// Has a job done, behind the other jobs of the same file.
    ///
    /// A job that panics is dropped; what it holds must answer its request when it is dropped.
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

    /// Has a job done as soon as there is a worker; otherwise as [`LocalIoPool::submit`].
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
        // A worker forgets a file after its last job has ended.
        let begun = Instant::now();
        while !pool.0.lock().files.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10), "a file is left");
            thread::yield_now();
        }
    }

    #[test]
    fn workers_end_with_the_pool_and_few_do_what_few_can() {
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
    fn a_job_alone_waits_for_no_file() {
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
