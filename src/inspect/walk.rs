//! The walk over a source for a check, which turns every key into one task.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::OpenedSource;
use super::keys::{ChunkKeyParser, KeyClass, KeyWalk, ListedKey};
use super::node::{self, ArrayProblem, DirectoryNode, NodeState};
use super::presence::{ChunkSet, NamedChunks, Unread};
use super::report::Severity;
use crate::array::{Engine, Verifier};
use crate::conventions::members;
use crate::hierarchy::not_shown;
use crate::store::{ErrorKind, Key, ListingSupport, Store, StoreError, Version};
use crate::sync::Mutex;
use crate::zarr::node::Group;
use crate::zarr::{Array, Consolidated, FillValue, Node, ZarrFormat};

/// The severity of metadata or keys that are wrong in themselves.
const CORRUPT: Severity = Severity::Bad(ErrorKind::Corrupt);

/// A key to read.
#[derive(Debug)]
pub(super) enum CheckTask {
    /// A chunk to decode.
    Chunk {
        chunk: GridChunk,
        verifier: Arc<Verifier>,
        size_bytes: Option<u64>,
    },
    /// A value to read without decoding, such as a chunk that cannot be decoded.
    Other {
        key: Key,
        size_bytes: Option<u64>,
        chunk: Option<GridChunk>,
    },
}

/// A chunk of the grid of an array.
#[derive(Debug, Clone)]
pub(super) struct GridChunk {
    pub(super) array: Arc<CheckedChunks>,
    /// The number of the chunk in C order.
    pub(super) number: u64,
}

/// The chunks of an array, while they are read.
#[derive(Debug)]
pub(super) struct CheckedChunks {
    /// The number of the array in the report.
    pub(super) array: usize,
    names: ChunkKeyParser,
    /// Whether a listing has exactly the keys that exist.
    pub(super) is_listed: bool,
    /// The chunks that a read has found absent, if the listing can be wrong.
    absent: Mutex<ChunkSet>,
}

impl GridChunk {
    /// Adds the chunk, which a read has found absent, to those of its array.
    pub(super) fn add_absent(&self) {
        self.array.absent.lock().add(self.number);
    }
}

impl CheckedChunks {
    /// Returns the chunks that reads have found absent; `None` if a listing has told it, or the array has too many.
    pub(super) fn absent(&self) -> Option<NamedChunks> {
        (!self.is_listed).then(|| self.absent.lock().members(&self.names))?
    }
}

/// Receives tasks and findings; breaks to stop the walk.
pub(super) trait TaskSink {
    /// Adds an array and returns its number.
    fn array(&mut self, key: Key, not_checked: Option<String>) -> usize;
    /// Waits until a worker takes the task.
    async fn task(&mut self, task: CheckTask) -> ControlFlow<()>;
    /// Reports chunks of the array with this number for which there is no task.
    fn unread(&mut self, array: usize, why: Unread, chunks: NamedChunks);
    /// Takes the chunks of an array for which no more tasks will come.
    fn walked(&mut self, chunks: Arc<CheckedChunks>);
    /// Reports a finding about a key, for the array with this number.
    fn finding(
        &mut self,
        severity: Severity,
        array: Option<usize>,
        key: &Key,
        cause: String,
    ) -> ControlFlow<()>;
}

/// The largest number of stray keys of one array that are reported individually.
const MAX_STRAY_NAMES: u64 = 20;

/// Walks the root of a source and all keys below it.
pub(super) async fn walk(
    opened: &OpenedSource,
    engine: &Engine,
    sink: &mut impl TaskSink,
) -> ControlFlow<()> {
    let (store, root) = (&opened.store, &opened.root);
    // First, so that the examples are those of the other commands.
    let _ = store.omissions().await;
    let mut pending = vec![root.clone()];
    let mut copies = ConsolidatedCopies::default();
    let mut is_zarr = false;
    while let Some(key) = pending.pop() {
        let directory = copies.read(&**store, &key).await;
        is_zarr |= !matches!(directory.state, NodeState::Directory);
        let mut reported = None;
        if key != *root {
            absent(opened, &key, directory.state.node(), sink).await?;
        }
        for warning in directory.ignored.into_iter().chain(directory.stale) {
            sink.finding(Severity::Warning, None, &key, warning)?;
        }
        match directory.state {
            NodeState::Node(node) => match *node {
                Node::Array(array) => {
                    walk_array(store, engine, &key, (&array, directory.document), sink).await?;
                    continue;
                }
                Node::Group(ref group) => {
                    check_group(group, &key, sink)?;
                    match node::consolidated(&**store, &key, &node).await {
                        Ok(Some(consolidated)) => copies.add(&key, consolidated),
                        Ok(None) => {}
                        Err(error) => {
                            let cause = format!("consolidated metadata: {}", error.reason);
                            sink.finding(Severity::Bad(error.kind()), None, &key, cause)?;
                        }
                    }
                }
            },
            NodeState::Directory => {}
            NodeState::Broken {
                document,
                reason,
                failure,
            } => {
                let document = key.join(document.as_bytes());
                let document = document.unwrap_or_else(|_| key.clone());
                let kind = failure.unwrap_or(ErrorKind::Corrupt);
                let cause = format!("metadata: {reason}");
                sink.finding(Severity::Bad(kind), None, &document, cause)?;
                reported = failure.map(|_| document);
            }
        }
        walk_directory(&**store, &key, reported.as_ref(), &mut pending, sink).await?;
        let incomplete = store.incomplete_listing(&key).await;
        if incomplete.map_or(true, |names| names.is_some_and(|names| names.is_unlisted)) {
            let cause = "its children cannot be listed and are not checked".to_owned();
            sink.finding(Severity::Unlisted, None, &key, cause)?;
        }
    }
    // Where all keys are listed, `not_shown` names these nodes.
    if store.capabilities().listing != ListingSupport::Complete {
        for (key, warning) in copies.missing(&**store).await {
            sink.finding(Severity::Warning, None, &key, warning)?;
        }
    }
    // At the end, because some sources notice only in a listing what they leave out.
    let state = node::read(&**store, root).await.state;
    absent(opened, root, state.node(), sink).await?;
    if !is_zarr {
        let cause = opened.nothing_found(false).await;
        sink.finding(Severity::Bad(ErrorKind::NotZarr), None, root, cause)?;
    }
    ControlFlow::Continue(())
}

/// Reports what a mount does not show of a node.
async fn absent(
    opened: &OpenedSource,
    key: &Key,
    node: Option<&Node>,
    sink: &mut impl TaskSink,
) -> ControlFlow<()> {
    for absent in not_shown(&*opened.store, &opened.root, key, node, members::named).await {
        let severity = match absent.is_lost {
            true => Severity::Bad(ErrorKind::Unsupported),
            false => Severity::Warning,
        };
        sink.finding(severity, None, &absent.key, absent.what)?;
    }
    ControlFlow::Continue(())
}

/// The consolidated metadata of the groups that were walked.
#[derive(Debug, Default)]
struct ConsolidatedCopies {
    groups: Vec<(Key, Consolidated)>,
    /// The nodes that were read.
    read: HashSet<Key>,
}

impl ConsolidatedCopies {
    fn add(&mut self, group: &Key, consolidated: Consolidated) {
        self.groups.push((group.clone(), consolidated));
    }

    /// Reads the documents of a directory, and compares them with the copies nearest to the root.
    async fn read(&mut self, store: &dyn Store, key: &Key) -> DirectoryNode {
        if !self.groups.is_empty() {
            self.read.insert(key.clone());
        }
        let copies = self.groups.iter().find_map(|(group, consolidated)| {
            let path = std::str::from_utf8(key.below(group)?).ok()?;
            Some((consolidated, path))
        });
        node::read_compared(store, key, copies).await
    }

    /// Returns the nodes in consolidated metadata that were not read, if they do not exist.
    async fn missing(self, store: &dyn Store) -> Vec<(Key, String)> {
        let mut missing = Vec::new();
        for (group, consolidated) in &self.groups {
            for path in consolidated.paths() {
                let Ok(below) = Key::new(path.as_bytes()) else {
                    continue;
                };
                let key = group.join_key(&below);
                if below.is_root() || self.read.contains(&key) {
                    continue;
                }
                let copies = Some((consolidated, path));
                let node = node::read_compared(store, &key, copies).await;
                let is_missing = matches!(node.state, NodeState::Directory);
                missing.extend(node.stale.filter(|_| is_missing).map(|stale| (key, stale)));
            }
        }
        missing
    }
}

fn check_group(group: &Group, key: &Key, sink: &mut impl TaskSink) -> ControlFlow<()> {
    if let Err(error) = &group.attributes {
        sink.finding(CORRUPT, None, key, error.to_string())?;
    }
    for extension in &group.extensions {
        sink.finding(Severity::Warning, None, key, extension.to_string())?;
    }
    ControlFlow::Continue(())
}

/// Walks the values of a directory that is not an array, except `reported`, whose error is already
/// reported. Its directories are added to `pending`.
async fn walk_directory(
    store: &dyn Store,
    key: &Key,
    reported: Option<&Key>,
    pending: &mut Vec<Key>,
    sink: &mut impl TaskSink,
) -> ControlFlow<()> {
    let mut keys = KeyWalk::of_directory(store, key);
    while let Some(listed) = keys.next().await {
        let ListedKey {
            key, size_bytes, ..
        } = listed;
        match listed.class {
            KeyClass::Unlistable(error) => unlistable(None, &key, &error, sink)?,
            _ if reported == Some(&key) => {}
            _ if listed.is_value => {
                let chunk = None;
                let task = CheckTask::Other {
                    key,
                    size_bytes,
                    chunk,
                };
                sink.task(task).await?;
            }
            _ => pending.push(key),
        }
    }
    ControlFlow::Continue(())
}

fn unlistable(
    array: Option<usize>,
    key: &Key,
    error: &StoreError,
    sink: &mut impl TaskSink,
) -> ControlFlow<()> {
    let cause = format!("cannot be listed: {}", node::cause(key, error));
    sink.finding(Severity::Bad(error.kind()), array, key, cause)
}

async fn walk_array(
    store: &Arc<dyn Store>,
    engine: &Engine,
    key: &Key,
    (array, document): (&Array, Option<(Key, Version)>),
    sink: &mut impl TaskSink,
) -> ControlFlow<()> {
    if let Err(error) = &array.attributes {
        sink.finding(CORRUPT, None, key, format!("metadata: {error}"))?;
    }
    if array.format == ZarrFormat::V3 && array.fill_value == Ok(FillValue::Undefined) {
        let cause = "fill_value: null is not in the specification; it is read as zero".to_owned();
        sink.finding(Severity::Warning, None, key, cause)?;
    }
    let (verifier, problems) = verifier(store, engine, key, (array, document));
    for problem in &problems {
        let (severity, cause) = match problem {
            ArrayProblem::Unsupported(reason) => (Severity::NotChecked, reason.clone()),
            ArrayProblem::Invalid(reason) => (CORRUPT, format!("metadata: {reason}")),
        };
        sink.finding(severity, None, key, cause)?;
    }
    let number = sink.array(key.clone(), problems.first().map(ToString::to_string));
    let names = ChunkKeyParser::of(array);
    // A collection has members of both kinds.
    let is_listed = matches!(store.incomplete_listing(key).await, Ok(None));
    let chunks = names.as_ref().map(|names| {
        Arc::new(CheckedChunks {
            array: number,
            names: names.clone(),
            is_listed,
            absent: Mutex::new(ChunkSet::of(names)),
        })
    });
    let keys = KeyWalk::new(&**store, key, names.as_ref());
    let mut tried = names.as_ref().map(ChunkSet::of);
    let walked = walk_keys(keys, number, (&chunks, verifier), &mut tried, sink).await?;
    let stray = walked.stray;
    if let (true, Some(names), Some(tried)) = (walked.is_complete, &names, tried)
        && let Some(others) = tried.others(names)
    {
        let why = match is_listed {
            true => Unread::Absent,
            false => Unread::NotListed,
        };
        sink.unread(number, why, others);
    }
    chunks.into_iter().for_each(|chunks| sink.walked(chunks));
    if stray > MAX_STRAY_NAMES {
        let more = stray - MAX_STRAY_NAMES;
        let cause = format!("{more} more keys are not chunks of the array's grid");
        sink.finding(Severity::Warning, None, key, cause)?;
    }
    ControlFlow::Continue(())
}

/// Returns the verifier of an array's chunks, or the problems because of which they cannot be decoded.
fn verifier(
    store: &Arc<dyn Store>,
    engine: &Engine,
    key: &Key,
    (array, document): (&Array, Option<(Key, Version)>),
) -> (Option<Arc<Verifier>>, Vec<ArrayProblem>) {
    let mut problems: Vec<ArrayProblem> = array.problems().map(ArrayProblem::from).collect();
    if problems.is_empty() {
        problems.extend(node::pipeline(array).err());
    }
    if !problems.is_empty() {
        return (None, problems);
    }
    match Verifier::open(Arc::clone(store), key.clone(), array, engine, document) {
        Ok(verifier) => (Some(Arc::new(verifier)), problems),
        Err(error) => {
            let reason = node::cause(key, &error);
            let problem = match error {
                StoreError::Unsupported { .. } => ArrayProblem::Unsupported(reason),
                _ => ArrayProblem::Invalid(reason),
            };
            (None, vec![problem])
        }
    }
}

/// The keys of an array that were walked.
struct WalkedKeys {
    /// The number of stray keys.
    stray: u64,
    /// Whether all keys were listed.
    is_complete: bool,
}

/// Walks the keys of the array `number`. Adds its chunks to `tried`.
async fn walk_keys(
    mut keys: KeyWalk<'_>,
    number: usize,
    (chunks, verifier): (&Option<Arc<CheckedChunks>>, Option<Arc<Verifier>>),
    tried: &mut Option<ChunkSet>,
    sink: &mut impl TaskSink,
) -> ControlFlow<(), WalkedKeys> {
    let (mut stray, mut is_complete) = (0, true);
    while let Some(listed) = keys.next().await {
        let ListedKey {
            key,
            class,
            is_value,
            size_bytes,
        } = listed;
        let mut chunk = None;
        match class {
            KeyClass::Chunk(index) => {
                tried.iter_mut().for_each(|tried| tried.add(index));
                chunk = chunks.clone().map(|array| GridChunk {
                    array,
                    number: index,
                });
            }
            KeyClass::Other => {}
            KeyClass::Stray => {
                stray += 1;
                if stray <= MAX_STRAY_NAMES {
                    let cause = "not a chunk of the array's grid".to_owned();
                    sink.finding(Severity::Warning, None, &key, cause)?;
                }
            }
            KeyClass::Misplaced(cause) => {
                sink.finding(CORRUPT, Some(number), &key, cause.to_owned())?
            }
            KeyClass::Unlistable(error) => {
                is_complete = false;
                unlistable(Some(number), &key, &error, sink)?;
            }
        }
        let task = match (chunk, &verifier) {
            (Some(chunk), Some(verifier)) => CheckTask::Chunk {
                chunk,
                verifier: Arc::clone(verifier),
                size_bytes,
            },
            (chunk, _) if is_value => CheckTask::Other {
                key,
                size_bytes,
                chunk,
            },
            _ => continue,
        };
        sink.task(task).await?;
    }
    ControlFlow::Continue(WalkedKeys { stray, is_complete })
}
