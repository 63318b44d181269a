//! `zarrfs check`: reads every key and decodes every chunk, in parallel and within a memory limit.

use std::io;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::keys::KeyWalk;
use super::merge::merge;
use super::part::Part;
use super::presence::{NamedChunks, Unread};
use super::progress::{Amount, Progress};
use super::report::{ArrayTotals, Report, Severity};
use super::walk::{CheckTask, CheckedChunks, TaskSink, walk};
use super::{Failure, OpenedSource, default_memory_limit_bytes, engine};
use crate::array::{Engine, read_through};
use crate::cli::CheckArgs;
use crate::machine::cores;
use crate::runtime::{block_on, spawn};
use crate::store::{ErrorKind, Key, ListingSupport, Store, StoreError};
use crate::sync::Mutex;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The check has no finding that counts as failure.
    Good,
    /// The check printed at least one failure.
    Bad,
}

/// The largest number of queued tasks.
const MAX_QUEUED: usize = 1024;
/// The smallest number of workers for a remote source, because they mostly wait for the network.
const REMOTE_JOBS: usize = 16;

/// Checks a source and prints the findings.
///
/// # Errors
/// If the source cannot be opened, `--path` leads to no directory in it, or the findings cannot be
/// written.
pub fn check(args: &CheckArgs) -> Result<Verdict, Failure> {
    if args.merge {
        let mut files = vec![args.source.source.clone()];
        files.extend(args.key.iter().map(PathBuf::from));
        files.extend(args.more_results.iter().cloned());
        return merge(&files, args.json, args.strict);
    }
    block_on(run(args))
}

async fn run(args: &CheckArgs) -> Result<Verdict, Failure> {
    let limit = args.memory_limit.unwrap_or_else(default_memory_limit_bytes);
    let opened = OpenedSource::new(&args.source.at(&args.key), args.strict, limit).await?;
    let capabilities = opened.store.capabilities();
    // Without a listing, the check tries every chunk of the grid, so the total is unknown.
    let has_total = capabilities.listing == ListingSupport::Complete && args.part.is_none();
    let total = match has_total {
        true => Some(total(&*opened.store, &opened.root).await),
        false => None,
    };
    let checker = Arc::new(Checker {
        engine: engine(limit)?,
        progress: Progress::new(total),
        store: Arc::clone(&opened.store),
        report: Mutex::new(Report::new(args.json, args.part)),
        part: args.part,
        failure: Mutex::new(None),
        is_stopped: AtomicBool::new(false),
    });
    let started = Instant::now();
    let jobs = match (args.jobs, capabilities.is_remote) {
        (Some(jobs), _) => usize::from(jobs),
        (None, true) => cores().max(REMOTE_JOBS),
        (None, false) => cores(),
    };
    checker.run(&opened, jobs).await;
    checker.progress.finish();
    let label = checker.store.label();
    if let Some(failure) = checker.failure.lock().take() {
        return Err(failure.into());
    }
    let report = std::mem::take(&mut *checker.report.lock());
    let verdict = match report.is_bad(args.strict) {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    report.finish(label, started.elapsed(), args.strict)?;
    Ok(verdict)
}

/// Counts the keys below `root` and the bytes of their values, as far as they are listed.
async fn total(store: &dyn Store, root: &Key) -> Amount {
    let mut amount = Amount::default();
    let mut keys = KeyWalk::new(store, root, None);
    while let Some(listed) = keys.next().await {
        if listed.is_value {
            amount.keys += 1;
            let bytes = listed.size_bytes.unwrap_or(0);
            amount.bytes = amount.bytes.saturating_add(bytes);
        }
    }
    amount
}

/// The state that the workers of a check share. Lock order: the report is locked last.
#[derive(Debug)]
struct Checker {
    store: Arc<dyn Store>,
    engine: Engine,
    progress: Progress,
    /// The share of the keys that this process reads.
    part: Option<Part>,
    report: Mutex<Report>,
    /// The error of writing a finding.
    failure: Mutex<Option<io::Error>>,
    is_stopped: AtomicBool,
}

impl Checker {
    /// Walks the source on the current thread; `jobs` workers on the CPU pool perform the tasks.
    async fn run(self: &Arc<Self>, opened: &OpenedSource, jobs: usize) {
        let (sender, receiver) = channel(MAX_QUEUED);
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let workers = (0..jobs.max(1)).map(|_| {
            let (checker, receiver) = (Arc::clone(self), Arc::clone(&receiver));
            spawn(async move { checker.work(&receiver).await })
        });
        let workers: Vec<_> = workers.collect();
        let mut walker = Walker {
            checker: self,
            sender,
            walked: Vec::new(),
        };
        let _ = walk(opened, &self.engine, &mut walker).await;
        let Walker { sender, walked, .. } = walker;
        drop(sender);
        join_all(workers).await;
        walked.iter().for_each(|chunks| self.report_chunks(chunks));
    }

    /// Reports the chunks of an array that reads have found absent.
    fn report_chunks(&self, chunks: &CheckedChunks) {
        if let Some(absent) = chunks.absent() {
            self.report
                .lock()
                .unread(chunks.array, Unread::Absent, absent);
        }
    }

    async fn work(&self, receiver: &tokio::sync::Mutex<Receiver<CheckTask>>) {
        loop {
            let task = receiver.lock().await.recv().await;
            let Some(task) = task else {
                return;
            };
            if !self.is_stopped.load(Ordering::Relaxed) {
                self.perform(task).await;
            }
        }
    }

    async fn perform(&self, task: CheckTask) {
        let (array, key) = match &task {
            CheckTask::Chunk {
                chunk, verifier, ..
            } => (Some(chunk.array.array), verifier.chunk_key(chunk.number)),
            CheckTask::Other { key, .. } => (None, key.clone()),
        };
        let decoded = AssertUnwindSafe(self.decode(&task, array, &key)).catch_unwind();
        let decoded = decoded.await.unwrap_or_else(|_| {
            self.report(|report| {
                let cause = "bug: the decoder panicked".to_owned();
                report.add(Severity::Bad(ErrorKind::Internal), array, &key, cause)
            });
            ArrayTotals {
                chunks: 1,
                bad: 1,
                ..ArrayTotals::default()
            }
        });
        self.report.lock().decoded(array, &decoded);
        self.progress.advance(decoded.stored_bytes);
    }

    async fn decode(&self, task: &CheckTask, array: Option<usize>, key: &Key) -> ArrayTotals {
        let mut bad = 0;
        match task {
            CheckTask::Chunk {
                chunk,
                verifier,
                size_bytes,
            } => {
                let report_bad = &mut |error| {
                    bad += 1;
                    self.report_bad(array, key, &error);
                };
                let verified = verifier
                    .verify(chunk.number, &self.engine, report_bad)
                    .await;
                if !verified.is_present && !chunk.array.is_listed {
                    chunk.add_absent();
                    return ArrayTotals::default();
                }
                if !verified.is_present {
                    self.report_absent(key);
                }
                ArrayTotals {
                    chunks: 1,
                    inner_chunks: verified.chunks,
                    stored_bytes: self.size_bytes(key, *size_bytes),
                    decoded_bytes: verified.decoded_bytes,
                    bad,
                }
            }
            CheckTask::Other {
                size_bytes, chunk, ..
            } => {
                let unlisted = chunk.as_ref().filter(|chunk| !chunk.array.is_listed);
                let stored_bytes = match (read_through(&*self.store, key).await, unlisted) {
                    (Ok(bytes), _) => bytes,
                    (Err(StoreError::NotFound { .. }), Some(chunk)) => {
                        chunk.add_absent();
                        return ArrayTotals::default();
                    }
                    (Err(StoreError::NotFound { .. }), None) => {
                        self.report_absent(key);
                        0
                    }
                    (Err(error), _) => {
                        bad = 1;
                        self.report_bad(array, key, &error);
                        self.size_bytes(key, *size_bytes)
                    }
                };
                ArrayTotals {
                    chunks: 1,
                    stored_bytes,
                    bad,
                    ..ArrayTotals::default()
                }
            }
        }
    }

    /// Returns the size of a value that was read. A remote store has cached its attributes.
    fn size_bytes(&self, key: &Key, listed: Option<u64>) -> u64 {
        let stat = || self.store.try_stat(key)?.ok();
        let size = listed.or_else(|| Some(stat()?.size_bytes));
        size.unwrap_or(0)
    }

    fn report_bad(&self, array: Option<usize>, key: &Key, error: &StoreError) {
        self.report(|report| report.bad(array, key, error));
    }

    /// Reports a key that is listed and proven absent: it was deleted meanwhile.
    fn report_absent(&self, key: &Key) {
        let cause = "listed, but there is no such key".to_owned();
        self.report(|report| report.add(Severity::Warning, None, key, cause));
    }

    /// Adds to the report, and stops the check if the report cannot be written.
    fn report(&self, add: impl FnOnce(&mut Report) -> io::Result<()>) {
        let added = self.progress.suspend(|| add(&mut self.report.lock()));
        if let Err(error) = added {
            self.is_stopped.store(true, Ordering::Relaxed);
            self.failure.lock().get_or_insert(error);
        }
    }

    fn flow(&self) -> ControlFlow<()> {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Sends the tasks of a walk to the workers.
struct Walker<'a> {
    checker: &'a Checker,
    sender: Sender<CheckTask>,
    /// The chunks of arrays that were walked and may have tasks.
    walked: Vec<Arc<CheckedChunks>>,
}

impl Walker<'_> {
    /// Returns whether this process reports what the walk itself finds, which is the same in all parts.
    fn reports_walk(&self) -> bool {
        self.checker.part.is_none_or(Part::is_first)
    }
}

impl TaskSink for Walker<'_> {
    fn array(&mut self, key: Key, not_checked: Option<String>) -> usize {
        self.checker.report.lock().array(key, not_checked)
    }

    async fn task(&mut self, task: CheckTask) -> ControlFlow<()> {
        let is_own = self.checker.part.is_none_or(|part| match &task {
            CheckTask::Chunk {
                chunk, verifier, ..
            } => part.has(&verifier.chunk_key(chunk.number)),
            CheckTask::Other { key, .. } => part.has(key),
        });
        if is_own {
            // Fails only if all workers have ended, which they do after the sender is dropped.
            let _ = self.sender.send(task).await;
        }
        self.checker.flow()
    }

    fn unread(&mut self, array: usize, why: Unread, chunks: NamedChunks) {
        if self.reports_walk() {
            self.checker.report.lock().unread(array, why, chunks);
        }
    }

    fn walked(&mut self, chunks: Arc<CheckedChunks>) {
        self.walked.push(chunks);
        // Those that no task has any more are reported, so that few are kept.
        self.walked.retain(|chunks| {
            let is_in_use = Arc::strong_count(chunks) > 1;
            if !is_in_use {
                self.checker.report_chunks(chunks);
            }
            is_in_use
        });
    }

    fn finding(
        &mut self,
        severity: Severity,
        array: Option<usize>,
        key: &Key,
        cause: String,
    ) -> ControlFlow<()> {
        if !self.reports_walk() {
            return self.checker.flow();
        }
        self.checker
            .report(|report| report.add(severity, array, key, cause));
        self.checker.flow()
    }
}
