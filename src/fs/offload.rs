//! Work that a session thread must not do itself: decoding, and reads that wait for a disk.
//!
//! Jobs of one file are done one after the other, by whichever worker began with them, so that
//! many readers of one entry have it decoded once and occupy one worker; jobs of different files,
//! and those that ask for no order, are done by as many workers as there are.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// What a worker takes next.
enum Turn {
    /// The jobs of a file, until there are none.
    File(u64),
    /// One job that waits for no other.
    Alone(Job),
}

/// A pool of workers. They end when it is dropped.
#[derive(Debug)]
pub(super) struct Offload {
    sender: Sender<Turn>,
    queues: Arc<Queues>,
}

/// Jobs by file. A file is in the map exactly as long as a worker has it or will get it.
#[derive(Default)]
struct Queues(Mutex<HashMap<u64, VecDeque<Job>>>);

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queues({} files)", self.lock().len())
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, VecDeque<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job of a file; none ends the file's turn.
    fn next(&self, file: u64) -> Option<Job> {
        let mut queues = self.lock();
        let job = queues.get_mut(&file).and_then(VecDeque::pop_front);
        if job.is_none() {
            queues.remove(&file);
        }
        job
    }
}

impl Offload {
    /// Starts up to `workers` threads; fewer if the system gives no more.
    pub(super) fn new(workers: usize) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let queues = Arc::new(Queues::default());
        for number in 0..workers.max(1) {
            let (receiver, queues) = (Arc::clone(&receiver), Arc::clone(&queues));
            let started = thread::Builder::new()
                .name(format!("zarrfs-work-{number}"))
                .spawn(move || work(&receiver, &queues));
            match started {
                Ok(_) => {}
                Err(e) if number == 0 => return Err(e),
                Err(e) => {
                    log::warn!("only {number} of {workers} workers could be started: {e}");
                    break;
                }
            }
        }
        Ok(Self { sender, queues })
    }

    /// Has a job done, behind the other jobs of the same file.
    ///
    /// A job that panics is dropped; what it holds must answer its request when it is dropped.
    pub(super) fn submit(&self, file: u64, job: impl FnOnce() + Send + 'static) {
        let mut queues = self.queues.lock();
        let queue = queues.entry(file);
        let is_new = matches!(queue, std::collections::hash_map::Entry::Vacant(_));
        queue.or_default().push_back(Box::new(job));
        drop(queues);
        if is_new {
            // Only fails if all workers are gone, and then the dropped jobs answer.
            let _ = self.sender.send(Turn::File(file));
        }
    }

    /// Has a job done as soon as there is a worker; otherwise as [`Offload::submit`].
    pub(super) fn submit_alone(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.sender.send(Turn::Alone(Box::new(job)));
    }
}

fn run(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        log::error!("bug: a worker's job panicked");
    }
}

fn work(receiver: &Mutex<Receiver<Turn>>, queues: &Queues) {
    loop {
        let next = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match next {
            Ok(Turn::File(file)) => {
                while let Some(job) = queues.next(file) {
                    run(job);
                }
            }
            Ok(Turn::Alone(job)) => run(job),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn jobs_of_a_file_keep_their_order_and_a_panic_stops_nothing() {
        let offload = Offload::new(3).unwrap();
        let (sender, receiver) = mpsc::channel();
        for i in 0..300_u64 {
            let sender = sender.clone();
            offload.submit(i % 3, move || {
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
        assert!(offload.queues.lock().is_empty());
    }

    #[test]
    fn a_job_alone_waits_for_no_file() {
        let offload = Offload::new(2).unwrap();
        let (block, blocked) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel();
        offload.submit(1, move || {
            let _ = blocked.recv();
        });
        for i in 0..10 {
            let sender = sender.clone();
            offload.submit_alone(move || {
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
        let offload = Offload::new(2).unwrap();
        let (block, blocked) = mpsc::channel::<()>();
        let done = Arc::new(AtomicUsize::new(0));
        offload.submit(1, move || {
            let _ = blocked.recv();
        });
        let (sender, receiver) = mpsc::channel();
        let counter = Arc::clone(&done);
        offload.submit(2, move || {
            counter.fetch_add(1, Ordering::SeqCst);
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 1);
        drop(block);
    }
}
