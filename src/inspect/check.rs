//! `zarrfs check`: reads every key and decodes every chunk, in parallel and within a limit of
//! memory.

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

/// What a check has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was read.
    Good,
    /// Something is bad; it was named.
    Bad,
}

/// Tasks that wait for a thread.
const MAX_WAITING: usize = 1024;
/// Threads that wait for a network most of the time.
const FAR_JOBS: usize = 16;

/// Checks a source and says what it finds.
///
/// # Errors
/// If the source can not be opened, `--path` leads to no directory in it, or the findings can not
/// be written: then nothing is proven.
pub fn check(args: &CheckArgs) -> Result<Verdict, Failure> {
    let limit = args.memory_limit.unwrap_or_else(default_memory_limit_bytes);
    let opened = Opened::new(&args.source, args.strict, limit)?;
    let capabilities = opened.store.capabilities();
    // Names that nobody lists are not counted, but asked for one by one.
    let is_listed = capabilities.listing == ListingSupport::Complete;
    let checker = Checker {
        engine: engine(limit)?,
        progress: Progress::new(is_listed.then(|| amount(&*opened.store, &opened.root))),
        store: Arc::clone(&opened.store),
        is_listed,
        report: Mutex::new(Report::new(args.json)),
        failure: Mutex::new(None),
        is_stopped: AtomicBool::new(false),
    };
    let started = Instant::now();
    let jobs = match (args.jobs, capabilities.is_remote) {
        (Some(jobs), _) => usize::from(jobs),
        (None, true) => cores().max(FAR_JOBS),
        (None, false) => cores(),
    };
    checker.run(&opened, jobs)?;
    checker.progress.end();
    let label = checker.store.label();
    if let Some(failure) = lock(&checker.failure).take() {
        return Err(failure.into());
    }
    let report = std::mem::take(&mut *lock(&checker.report));
    let verdict = match report.is_bad(args.strict) {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    report.end(label, started.elapsed(), args.strict)?;
    Ok(verdict)
}

/// All keys below `root` and their bytes, as far as they can be listed.
fn amount(store: &dyn Store, root: &Key) -> Amount {
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

/// What the threads of a check share. The report's lock is taken last.
#[derive(Debug)]
struct Checker {
    store: Arc<dyn Store>,
    /// Names that are listed are those that there are.
    is_listed: bool,
    engine: Engine,
    progress: Progress,
    report: Mutex<Report>,
    /// Why findings could not be said.
    failure: Mutex<Option<io::Error>>,
    is_stopped: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checker {
    /// Walks the source here and has `jobs` threads read what is found.
    fn run(&self, opened: &Opened, jobs: usize) -> io::Result<()> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let receiver = Arc::new(Mutex::new(receiver));
        thread::scope(|scope| {
            for number in 0..jobs.max(1) {
                let receiver = Arc::clone(&receiver);
                let started = thread::Builder::new()
                    .name(format!("zarrfs-check-{number}"))
                    .spawn_scoped(scope, move || self.work(&receiver));
                match started {
                    Ok(_) => {}
                    // Dropping the sender ends those that were started: none.
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
            let (root, no_zarr) = (&opened.root, opened.no_zarr.as_ref());
            let _ = walk(&self.store, &self.engine, root, no_zarr, &mut walker);
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
            Task::Plain { key, size_bytes } => (key.clone(), *size_bytes),
        };
        // What was read is known, also of a store that is far away.
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
                    self.bad(&key, &error);
                });
                if !verified.is_present && !self.is_listed {
                    // The grid has room for it; that is all that was known.
                    return Decoded::default();
                }
                if !verified.is_present {
                    self.is_gone(&key);
                }
                Decoded {
                    chunks: 1,
                    pieces: verified.pieces,
                    stored_bytes: size_bytes().unwrap_or(0),
                    decoded_bytes: verified.decoded_bytes,
                    bad,
                }
            }
            Task::Plain { .. } => {
                let mut decoded = Decoded {
                    chunks: 1,
                    ..Decoded::default()
                };
                match read_through(&*self.store, &key) {
                    Ok(bytes) => decoded.stored_bytes = bytes,
                    Err(StoreError::NotFound { .. }) => self.is_gone(&key),
                    Err(error) => {
                        decoded.bad = 1;
                        decoded.stored_bytes = size_bytes().unwrap_or(0);
                        self.bad(&key, &error);
                    }
                }
                decoded
            }
        }));
        let decoded = done.unwrap_or_else(|_| {
            self.say(|report| {
                let what = "bug: the decoder panics on it".to_owned();
                report.add(Severity::Bad, &key, what)
            });
            Decoded {
                chunks: 1,
                bad: 1,
                ..Decoded::default()
            }
        });
        let array = match task {
            Task::Chunk { array, .. } => Some(*array),
            Task::Plain { .. } => None,
        };
        lock(&self.report).decoded(array, &decoded);
        self.progress.advance(decoded.stored_bytes);
    }

    fn bad(&self, key: &Key, error: &StoreError) {
        self.say(|report| report.bad(key, error));
    }

    /// Listed, and then proven not to be there: a link to nowhere, or gone in between.
    fn is_gone(&self, key: &Key) {
        let what = "listed, but there is no such key".to_owned();
        self.say(|report| report.add(Severity::Warning, key, what));
    }

    /// Adds to the report; if nobody reads it any more, the check is over.
    fn say(&self, say: impl FnOnce(&mut Report) -> io::Result<()>) {
        let said = self.progress.aside(|| say(&mut lock(&self.report)));
        if let Err(error) = said {
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

/// Hands what is found on the way to the threads.
struct Walker<'a> {
    checker: &'a Checker,
    sender: SyncSender<Task>,
}

impl Sink for Walker<'_> {
    fn array(&mut self, key: Key, not_checked: Option<String>) -> usize {
        lock(&self.checker.report).array(key, not_checked)
    }

    fn task(&mut self, task: Task) -> ControlFlow<()> {
        // The threads go only after the sender has.
        let _ = self.sender.send(task);
        self.checker.flow()
    }

    fn finding(&mut self, severity: Severity, key: &Key, cause: String) -> ControlFlow<()> {
        self.checker.say(|report| report.add(severity, key, cause));
        self.checker.flow()
    }
}
