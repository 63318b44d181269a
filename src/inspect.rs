//! The commands `tree`, `info` and `check`, which read a source without a mount.
//!
//! A broken node is shown with the reason, and the command continues. Texts of the source are
//! printed with control characters escaped.
//!
//! **Architecture Invariant:** this module names neither the kernel, nor inodes, nor mounts.

mod check;
mod children;
mod dataset;
mod describe;
mod entry;
mod info;
mod info_text;
mod keys;
mod merge;
mod metrics;
mod no_metadata;
mod node;
mod output;
mod part;
mod presence;
mod preview;
mod progress;
mod prometheus;
mod report;
mod stored;
mod summary;
mod table;
mod totals;
mod tree;
mod values;
mod views;
mod walk;

use std::path::Path;
use std::sync::Arc;

use crate::array::{Engine, EngineOptions};
use crate::cli::{DEMO, SourceArgs, key_of};
use crate::hierarchy::{Collection, KEY_CLASSES, MetadataListingStore, find_hierarchies};
use crate::machine::{cores, memory_bytes};
use crate::store::{
    DatabaseOptions, DirOptions, ErrorKind, IcechunkOptions, Key, Kind, OpenOptions, SourceName,
    Store, StoreError, ZipOptions, list_prefixes, open_demo,
};
use crate::units::FOREVER;

pub use check::{Verdict, check};
pub use children::child_nodes;
pub use info::info;
pub use metrics::metrics_text;
pub use no_metadata::{NoMetadata, no_metadata};
pub use output::{document, print, printable};
pub use part::Part;
pub(crate) use progress::Transfer;
pub use prometheus::{MountMetrics, prometheus};
pub use summary::summary;
pub use tree::tree;
pub use views::view_list;

/// A failure with a message for users.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An open source, and the directory in it that a command reads.
#[derive(Debug)]
pub(crate) struct OpenedSource {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) root: Key,
    /// The key in the name of the source.
    base: Key,
    /// Set if the absence of Zarr metadata at `root` is proven.
    no_metadata: Option<NoMetadata>,
}

impl OpenedSource {
    /// Opens a source; `--path` must lead to a directory in it.
    pub(crate) async fn new(
        args: &SourceArgs,
        strict: bool,
        memory_limit_bytes: u64,
    ) -> Result<Self, Failure> {
        let remote_bytes = memory_limit_bytes / 8;
        let options = OpenOptions {
            remote: args.remote.options(Some(FOREVER), remote_bytes),
            zip: ZipOptions {
                strict,
                memory_limit_bytes,
                ..ZipOptions::default()
            },
            dir: DirOptions {
                follow_symlinks: args.follow_symlinks,
            },
            database: DatabaseOptions {
                timeout: args.remote.timeout,
                memory_limit_bytes,
                ttl: FOREVER,
            },
            targets: args.targets.options(),
            icechunk: IcechunkOptions {
                reference: args.reference.clone(),
                ttl: Some(FOREVER),
                memory_limit_bytes: memory_limit_bytes / 8,
            },
            // A command waits once for a server that does not answer.
            failure_ttl: Some(FOREVER),
            classes: KEY_CLASSES,
            list_by_metadata: Some(MetadataListingStore::boxed),
        };
        let (store, base) = if args.source == Path::new(DEMO) {
            (open_demo(&options)?, Key::root())
        } else {
            let source = SourceName::parse(&args.source)?;
            (source.open(&options).await?, source.root().clone())
        };
        let root = match &args.path {
            Some(path) => {
                let invalid = |error| ErrorKind::Usage.failure(format!("--path {error}"));
                base.join_key(&key_of(path).map_err(invalid)?)
            }
            None => base.clone(),
        };
        let label = store.label();
        let stat = match store.stat(&root).await {
            Ok(stat) => stat,
            Err(error) => return Err(failed_key(&*store, &root, &error).await),
        };
        if stat.kind != Kind::Prefix {
            let message = format!("{label}: {root}: a value, neither a group nor an array");
            return Err(ErrorKind::NotADirectory.failure(message));
        }
        let no_metadata = match is_listed_here(&*store) {
            true => no_metadata(&*store, &base, &root).await,
            false => None,
        };
        Ok(Self {
            store: Arc::from(store),
            root,
            base,
            no_metadata,
        })
    }

    /// Opens a source for a command that shows hierarchies.
    ///
    /// # Errors
    /// As [`OpenedSource::new`], and if no hierarchy is in the source, as far as that is known without requests.
    pub(crate) async fn with_hierarchy(
        args: &SourceArgs,
        memory_limit_bytes: u64,
    ) -> Result<Self, Failure> {
        let opened = Self::new(args, false, memory_limit_bytes).await?;
        opened.check_hierarchy()?;
        Ok(opened)
    }

    /// Checks that a hierarchy is in the source.
    ///
    /// # Errors
    /// What is there instead, as far as that is known without requests.
    fn check_hierarchy(&self) -> Result<(), Failure> {
        match &self.no_metadata {
            Some(no_metadata) if no_metadata.is_proven() => {
                Err(ErrorKind::NotZarr.failure(no_metadata.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the hierarchies below a root that is no node.
    async fn collection(&self) -> Collection {
        match &self.no_metadata {
            Some(no_metadata) => no_metadata.found().clone(),
            None => find_hierarchies(&*self.store, &self.root).await,
        }
    }

    /// Checks that a key, if it is the root and no node, contains a hierarchy.
    ///
    /// # Errors
    /// The description of the root.
    async fn check_collection(&self, key: &Key) -> Result<(), Failure> {
        let is_directory = || async {
            let state = node::read(&*self.store, key).await.state;
            matches!(state, node::NodeState::Directory)
        };
        if *key == self.root && is_directory().await {
            let found = self.collection().await;
            if found.is_empty() && !found.is_partial {
                let message = self.nothing_found(true).await;
                return Err(ErrorKind::NotZarr.failure(message));
            }
        }
        Ok(())
    }

    /// Describes a source in which a command has found no node, with or without its name.
    async fn nothing_found(&self, is_named: bool) -> String {
        let read;
        let found = match &self.no_metadata {
            Some(found) => Some(found),
            None => {
                read = no_metadata(&*self.store, &self.base, &self.root).await;
                read.as_ref()
            }
        };
        let label = self.store.label();
        match (found, is_named) {
            (Some(found), true) => found.to_string(),
            (Some(found), false) => found.description(),
            (None, true) => format!("{label}: neither a group nor an array is here"),
            (None, false) => "neither a group nor an array is here".to_owned(),
        }
    }
}

/// The largest number of names in the message about a missing key.
const MAX_NAMES: usize = 5;

/// Returns the failure to open a key of a source. For a missing key, the message has the most similar names.
pub async fn failed_key(store: &dyn Store, key: &Key, error: &StoreError) -> Failure {
    let message = failed_key_message(store, key, error).await;
    error.kind().failure(message)
}

async fn failed_key_message(store: &dyn Store, key: &Key, error: &StoreError) -> String {
    let message = format!("{}: {error}", store.label());
    if !matches!(error, StoreError::NotFound { .. }) || !is_listed_here(store) {
        return message;
    }
    let path = String::from_utf8_lossy(key.as_bytes()).into_owned();
    let mut path = path.as_str();
    loop {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = Key::new(above.as_bytes()).unwrap_or_default();
        let names = list_prefixes(store, &directory, MAX_SEARCHED).await;
        if let Some(names) = names.ok().filter(|names| !names.is_empty()) {
            return format!("{message} ({})", printable(&nodes_at(above, name, &names)));
        }
        if above.is_empty() {
            return message;
        }
        path = above;
    }
}

/// The largest number of names that are compared with a missing one.
const MAX_SEARCHED: usize = 10_000;

/// Returns the names of a directory, those most similar to `name` first.
fn nodes_at(directory: &str, name: &str, names: &[Vec<u8>]) -> String {
    let names = names.iter().map(|name| String::from_utf8_lossy(name));
    let mut names: Vec<_> = names
        .map(|other| (strsim::damerau_levenshtein(name, &other), other))
        .collect();
    names.sort();
    let more = if names.len() > MAX_NAMES { ", ..." } else { "" };
    let first: Vec<&str> = names
        .iter()
        .take(MAX_NAMES)
        .map(|(_, name)| &**name)
        .collect();
    let place = match directory.is_empty() {
        true => "there are".to_owned(),
        false => format!("in {directory} there are"),
    };
    format!("{place} {}{more}", first.join(", "))
}

/// Returns whether names of a store are listed without network requests. Of a remote store, the
/// metadata were searched when it was opened.
pub fn is_listed_here(store: &dyn Store) -> bool {
    !store.capabilities().is_remote || store.index().is_some()
}

/// Returns an engine without a cache of decoded chunks.
fn engine(memory_limit_bytes: u64) -> Result<Engine, Failure> {
    Ok(Engine::new(EngineOptions {
        cache_bytes: 0,
        memory_limit_bytes,
        parallel: cores(),
        timeout: FOREVER,
    })?)
}

pub(crate) fn default_memory_limit_bytes() -> u64 {
    memory_bytes() / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;
    use crate::store::MemoryStore;

    #[test]
    fn a_key_that_does_not_exist_is_compared_with_those_that_do() {
        let names = ["a/sst/0", "a/lat/0", "a/time/0"];
        let store =
            MemoryStore::new(names.map(|name| (Key::new(name.as_bytes()).unwrap(), vec![])));
        let message = |path: &str| {
            let key = Key::new(path.as_bytes()).unwrap();
            let error = StoreError::NotFound { key: key.clone() };
            block_on(failed_key(&store, &key, &error)).to_string()
        };
        let text = message("a/ssh");
        assert!(
            text.ends_with("a/ssh: no such key (in a there are sst, lat, time)"),
            "{text}"
        );
        let text = message("b/c");
        assert!(text.ends_with("b/c: no such key (there are a)"), "{text}");
    }
}
