//! `zarrfs check`: reads every key and decodes every chunk, in parallel and within a memory limit.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::keys;
use super::progress::{Amount, Progress};
use super::report::{Decoded, Report, Severity};
use super::walk::{Sink, Task, walk};
use super::{Failure, Opened, default_memory_limit_bytes, engine};
use crate::array::{Engine, read_through};
use crate::cli::CheckArgs;
use crate::machine::cores;
use crate::store::{Key, ListingSupport, Store, StoreError, never_waiting};

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The check found nothing that counts as failure.
    Good,
    /// The check printed at least one failure.
    Bad,
}

/// Tasks in the queue of the worker threads.
const MAX_QUEUED: usize = 1024;
/// The least number of threads for a remote source: they wait for the network most of the time.
const REMOTE_JOBS: usize = 16;

/// Checks a source and prints the findings.
///
/// # Errors
/// If the source cannot be opened, `--path` leads to no directory in it, or the findings cannot be
/// written.
pub fn check(args: &CheckArgs) -> Result<Verdict, Failure> {
    let limit = args.memory_limit.unwrap_or_else(default_memory_limit_bytes);
    let opened = Opened::new(&args.source, args.strict, limit)?;
    let capabilities = opened.store.capabilities();
    // Without a listing, the check tries every chunk of the grid, and the total is unknown.
    let is_listed = capabilities.listing == ListingSupport::Complete;
    let checker = Checker {
        engine: engine(limit)?,
        progress: Progress::new(is_listed.then(|| total(&*opened.store, &opened.root))),
        store: Arc::clone(&opened.store),
        is_listed,
        report: Mutex::new(Report::new(args.json)),
        failure: Mutex::new(None),
        is_stopped: AtomicBool::new(false),
    };
    let started = Instant::now();
    let jobs = match (args.jobs, capabilities.is_remote) {
        (Some(jobs), _) => usize::from(jobs),
        (None, true) => cores().max(REMOTE_JOBS),
        (None, false) => cores(),
    };
    checker.run(&opened, jobs)?;
    checker.progress.finish();
    let label = checker.store.label();
    if let Some(failure) = lock(&checker.failure).take() {
        return Err(failure.into());
    }
    let report = std::mem::take(&mut *lock(&checker.report));
    let verdict = match report.is_bad(args.strict) {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    report.finish(label, started.elapsed(), args.strict)?;
    Ok(verdict)
}

/// Counts the keys below `root` and the bytes of their values, as far as they can be listed.
fn total(store: &dyn Store, root: &Key) -> Amount {
    let mut amount = Amount::default();
    let _ = keys::visit(store, root, None, &mut |visited| {
        if visited.is_value {
            amount.keys += 1;
            let bytes = visited.size_bytes.unwrap_or(0);
            amount.bytes = amount.bytes.saturating_add(bytes);
        }
        ControlFlow::Continue(())
    });
    amount
}

/// The state that the threads of a check share. The lock of the report is taken last.
#[derive(Debug)]
struct Checker {
    store: Arc<dyn Store>,
    /// Whether a listing has exactly the keys that exist.
    is_listed: bool,
    engine: Engine,
    progress: Progress,
    report: Mutex<Report>,
    /// The error of writing a finding.
    failure: Mutex<Option<io::Error>>,
    is_stopped: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checker {
    /// Walks the source on the current thread; `jobs` threads perform the tasks.
    fn run(&self, opened: &Opened, jobs: usize) -> io::Result<()> {
        let (sender, receiver) = sync_channel(MAX_QUEUED);
        let receiver = Arc::new(Mutex::new(receiver));
        thread::scope(|scope| {
            for number in 0..jobs.max(1) {
                let receiver = Arc::clone(&receiver);
                let started = thread::Builder::new()
                    .name(format!("zarrfs-check-{number}"))
                    .spawn_scoped(scope, move || self.work(&receiver));
                match started {
                    Ok(_) => {}
                    Err(error) if number == 0 => return Err(error),
                    Err(error) => {
                        log::warn!("only {number} of {jobs} threads could be started: {error}");
                        break;
                    }
                }
            }
            drop(receiver);
            let mut walker = Walker {
                checker: self,
                sender,
            };
            let (root, no_metadata) = (&opened.root, opened.no_metadata.as_ref());
            let _ = walk(&self.store, &self.engine, root, no_metadata, &mut walker);
            Ok(())
        })
    }

    fn work(&self, receiver: &Mutex<Receiver<Task>>) {
        loop {
            let task = lock(receiver).recv();
            let Ok(task) = task else {
                return;
            };
            if !self.is_stopped.load(Ordering::Relaxed) {
                self.perform(&task);
            }
        }
    }

    fn perform(&self, task: &Task) {
        let (key, listed_bytes) = match task {
            Task::Chunk {
                verifier,
                chunk,
                size_bytes,
                ..
            } => (verifier.chunk_key(*chunk), *size_bytes),
            Task::Other { key, size_bytes } => (key.clone(), *size_bytes),
        };
        // After a read, a remote store has the attributes in its cache.
        let size_bytes = || {
            let stat = || never_waiting(|| self.store.stat(&key).ok());
            listed_bytes.or_else(|| Some(stat()?.size_bytes))
        };
        let done = catch_unwind(AssertUnwindSafe(|| match task {
            Task::Chunk {
                verifier, chunk, ..
            } => {
                let mut bad = 0;
                let verified = verifier.verify(*chunk, &self.engine, &mut |error| {
                    bad += 1;
                    self.report_bad(&key, &error);
                });
                if !verified.is_present && !self.is_listed {
                    // An absent chunk of the grid, which was not listed.
                    return Decoded::default();
                }
                if !verified.is_present {
                    self.report_absent(&key);
                }
                Decoded {
                    chunks: 1,
                    inner_chunks: verified.pieces,
                    stored_bytes: size_bytes().unwrap_or(0),
                    decoded_bytes: verified.decoded_bytes,
                    bad,
                }
            }
            Task::Other { .. } => {
                let mut decoded = Decoded {
                    chunks: 1,
                    ..Decoded::default()
                };
                match read_through(&*self.store, &key) {
                    Ok(bytes) => decoded.stored_bytes = bytes,
                    Err(StoreError::NotFound { .. }) => self.report_absent(&key),
                    Err(error) => {
                        decoded.bad = 1;
                        decoded.stored_bytes = size_bytes().unwrap_or(0);
                        self.report_bad(&key, &error);
                    }
                }
                decoded
            }
        }));
        let decoded = done.unwrap_or_else(|_| {
            self.report(|report| {
                let cause = "bug: the decoder panicked".to_owned();
                report.add(Severity::Bad, &key, cause)
            });
            Decoded {
                chunks: 1,
                bad: 1,
                ..Decoded::default()
            }
        });
        let array = match task {
            Task::Chunk { array, .. } => Some(*array),
            Task::Other { .. } => None,
        };
        lock(&self.report).decoded(array, &decoded);
        self.progress.advance(decoded.stored_bytes);
    }

    fn report_bad(&self, key: &Key, error: &StoreError) {
        self.report(|report| report.bad(key, error));
    }

    /// Reports a key that is listed and proven absent: a dangling link, or a key deleted meanwhile.
    fn report_absent(&self, key: &Key) {
        let cause = "listed, but there is no such key".to_owned();
        self.report(|report| report.add(Severity::Warning, key, cause));
    }

    /// Adds to the report, and stops the check if the report cannot be written.
    fn report(&self, add: impl FnOnce(&mut Report) -> io::Result<()>) {
        let added = self.progress.suspend(|| add(&mut lock(&self.report)));
        if let Err(error) = added {
            self.is_stopped.store(true, Ordering::Relaxed);
            lock(&self.failure).get_or_insert(error);
        }
    }

    fn flow(&self) -> ControlFlow<()> {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Sends the tasks of a walk to the threads.
struct Walker<'a> {
    checker: &'a Checker,
    sender: SyncSender<Task>,
}

impl Sink for Walker<'_> {
    fn array(&mut self, key: Key, not_checked: Option<String>) -> usize {
        lock(&self.checker.report).array(key, not_checked)
    }

    fn task(&mut self, task: Task) -> ControlFlow<()> {
        // Fails only if all threads have ended, which they do after the sender is dropped.
        let _ = self.sender.send(task);
        self.checker.flow()
    }

    fn finding(&mut self, severity: Severity, key: &Key, cause: String) -> ControlFlow<()> {
        self.checker
            .report(|report| report.add(severity, key, cause));
        self.checker.flow()
    }
}
