//! What programs have listed by consolidated metadata that were not compared with the own documents of the node.
//!
//! If a document turns out to name more than a program has listed, the first attempt of the program to open it fails: a
//! program that copies the directory would lose the keys that the listing lacks. What one process has listed is not
//! complete because another one has listed or opened it later. For a process that has listed nothing, the last listing
//! of any other counts, as programs pass names to each other. Listings of zarrfs itself, such as those of readahead, are
//! not recorded: they may have been compared when that of the program was not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::metadata::NodeChildren;
use crate::cache::WeightedLru;
use crate::clock::Instant;
use crate::hierarchy::document::{Document, is_document};
use crate::machine::processes::is_gone;
use crate::runtime::caller;
use crate::store::{Key, Kind, Stat};
use crate::sync::Mutex;

/// How long after the last lookup of a document programs count as readers of documents.
const DOCUMENTS_WINDOW: Duration = Duration::from_secs(600);
/// How long a program may copy a node after it has opened its document.
const COPY_WINDOW: Duration = Duration::from_secs(24 * 3600);
/// The largest number of nodes whose opened documents are remembered. A program copies few of them at a time.
const MAX_OPENED: usize = 1 << 16;
/// The largest size of their keys, in bytes.
const MAX_OPENED_BYTES: u64 = 8 << 20;
/// The largest number of recorded listings, two for each node that one process lists. If there are more, each listing
/// compares the documents.
const MAX_RECORDED: usize = 1 << 17;

/// Which directories programs have listed without a comparison, and whether programs read documents.
#[derive(Debug)]
pub(super) struct Unchecked {
    listed: Mutex<Recorded>,
    last_document: Mutex<Option<Instant>>,
    /// The nodes whose documents programs have opened, and when.
    opened: Mutex<WeightedLru<Key, Instant>>,
}

impl Default for Unchecked {
    fn default() -> Self {
        Self {
            listed: Mutex::default(),
            last_document: Mutex::default(),
            opened: Mutex::new(WeightedLru::new(MAX_OPENED_BYTES, MAX_OPENED)),
        }
    }
}

#[derive(Debug, Default)]
struct Recorded {
    nodes: HashMap<Key, Vec<ListedBy>>,
    entries: usize,
    is_full: bool,
}

/// A listing without a comparison.
#[derive(Debug)]
struct ListedBy {
    /// The process that has read the listing. `None` for the entry that counts for processes without one: programs can
    /// get their names from others.
    process: Option<u32>,
    /// The directory: the highest one, if a process has listed several of a node.
    directory: Key,
    contents: NodeChildren,
}

impl ListedBy {
    /// Returns whether a later listing of `directory` takes the place of this one: it is the same directory, or one above,
    /// or the names in this one are the same for each grid.
    fn is_covered_by(&self, node: &Key, directory: &Key) -> bool {
        let is_fixed = match &self.contents {
            NodeChildren::Array(names) => self.directory == *node && names.has_fixed_root(),
            _ => false,
        };
        is_fixed || self.directory.below(directory).is_some()
    }
}

impl Recorded {
    fn record(
        &mut self,
        node: &Key,
        directory: &Key,
        contents: &NodeChildren,
        process: Option<u32>,
    ) {
        let entries = self.nodes.entry(node.clone()).or_default();
        let new = ListedBy {
            process,
            directory: directory.clone(),
            contents: contents.clone(),
        };
        match entries.iter_mut().find(|entry| entry.process == process) {
            Some(entry) if entry.is_covered_by(node, directory) => *entry = new,
            // What that listing lacks, this one need not show.
            Some(_) => {}
            None => {
                entries.push(new);
                self.entries += 1;
            }
        }
    }

    /// Removes the entries of a node that are not retained.
    fn retain(&mut self, node: &Key, retain: impl Fn(&ListedBy) -> bool) {
        let Some(entries) = self.nodes.get_mut(node) else {
            return;
        };
        let before = entries.len();
        entries.retain(retain);
        self.entries -= before - entries.len();
        if entries.is_empty() {
            self.nodes.remove(node);
        }
    }

    /// Removes the entries of processes that have ended.
    fn remove_ended(&mut self) {
        let processes = self.nodes.values().flatten();
        let processes: HashSet<u32> = processes.filter_map(|entry| entry.process).collect();
        let ended: HashSet<u32> = processes.into_iter().filter(|id| is_gone(*id)).collect();
        self.nodes.retain(|_, entries| {
            let has_ended = |entry: &ListedBy| entry.process.is_some_and(|id| ended.contains(&id));
            entries.retain(|entry| !has_ended(entry));
            !entries.is_empty()
        });
        self.entries = self.nodes.values().map(Vec::len).sum();
    }
}

impl Unchecked {
    /// Records that a program has looked up a key.
    pub(super) fn stat_found(&self, key: &Key, stat: &Stat) {
        if stat.kind == Kind::Object && is_document(key) {
            *self.last_document.lock() = Some(Instant::now());
        }
    }

    /// Records that a program has opened the value at a key, which can be a document that names chunks.
    pub(super) fn value_opened(&self, key: &Key) {
        if let Some(Document::ZarrJson | Document::Zarray) = Document::from_key(key) {
            let node = key.parent();
            let bytes = node.as_bytes().len() as u64;
            let _evicted = self.opened.lock().insert(node, Instant::now(), bytes);
        }
    }

    /// Returns whether a program that copies a node may have its document already.
    pub(super) fn is_document_read(&self, node: &Key) -> bool {
        let opened = self.opened.lock().get(node).copied();
        opened.is_some_and(|opened| opened.elapsed() < COPY_WINDOW)
    }

    /// Returns whether listings must be compared with documents.
    pub(super) fn are_documents_read(&self) -> bool {
        let last = *self.last_document.lock();
        last.is_some_and(|last| last.elapsed() < DOCUMENTS_WINDOW) || self.listed.lock().is_full
    }

    /// Records that the caller has listed a directory of a node without a comparison.
    fn record(&self, node: &Key, directory: &Key, contents: &NodeChildren) {
        let process = caller::process();
        let mut recorded = self.listed.lock();
        if recorded.entries >= MAX_RECORDED && !recorded.is_full {
            recorded.remove_ended();
            recorded.is_full = recorded.entries > MAX_RECORDED / 2;
        }
        if recorded.entries < MAX_RECORDED {
            recorded.record(node, directory, contents, None);
            if process.is_some() {
                recorded.record(node, directory, contents, process);
            }
        }
    }

    /// Records that the caller has listed a directory of a node as its documents say.
    fn record_complete(&self, node: &Key, directory: &Key) {
        if !self.contains(node) {
            return;
        }
        let process = caller::process();
        self.listed.lock().retain(node, |entry| {
            let is_own = entry.process.is_none() || entry.process == process;
            !(is_own && entry.is_covered_by(node, directory))
        });
    }

    /// Removes and returns what the caller has listed of a node, or else what others have.
    pub(super) fn take(&self, node: &Key) -> Option<NodeChildren> {
        let process = caller::process();
        let mut recorded = self.listed.lock();
        let entries = recorded.nodes.get(node)?;
        let of = |process: Option<u32>| entries.iter().find(|entry| entry.process == process);
        let own = process.and_then(|process| of(Some(process)));
        let contents = own.or_else(|| of(None)).map(|entry| entry.contents.clone());
        recorded.retain(node, |entry| {
            entry.process.is_some() && entry.process != process
        });
        contents
    }

    /// Returns whether any program has listed the node without a comparison.
    pub(super) fn contains(&self, node: &Key) -> bool {
        self.listed.lock().nodes.contains_key(node)
    }
}

/// What is recorded when a program reads a listing of a node that consolidated metadata name.
#[derive(Debug)]
pub(super) struct Shown {
    unchecked: Arc<Unchecked>,
    node: Key,
    directory: Key,
    /// The contents that the listing shows; `None` if they were compared with the own documents.
    not_compared: Option<NodeChildren>,
}

impl Shown {
    pub(super) fn new(
        unchecked: &Arc<Unchecked>,
        node: Key,
        directory: Key,
        not_compared: Option<NodeChildren>,
    ) -> Self {
        Self {
            unchecked: Arc::clone(unchecked),
            node,
            directory,
            not_compared,
        }
    }

    /// Records that a program reads the listing.
    pub(super) fn record(&self) {
        match &self.not_compared {
            Some(listed) => self.unchecked.record(&self.node, &self.directory, listed),
            None => self.unchecked.record_complete(&self.node, &self.directory),
        }
    }
}
