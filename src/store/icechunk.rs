//! Icechunk repositories (versions 1 and 2 of the format): the keys of one snapshot, from its metadata.
//!
//! - [`Icechunk`] follows a branch, or stays on the snapshot of a tag.
//! - `refs` reads branches and tags, the only files that change; `files` reads all other files.
//! - `index` maps keys to nodes and chunks of a snapshot.
//! - `snapshot`, `manifest`, `repository`, `containers` decode files: bytes in, values out. `flatbuffers`
//!   checks every offset.
//!
//! Source: `icechunk.io/en/latest/reference/spec` and the schemas that it names.
//!
//! **Architecture Invariant:** a snapshot, or the manifests of an array, prove the absence of a key. If a
//! file is missing or damaged, every key that needs it fails.

mod chunk_key;
mod containers;
mod files;
mod flatbuffers;
mod format;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod history;
mod id;
mod index;
mod location;
mod manifest;
mod open;
mod refs;
mod repository;
mod snapshot;
#[cfg(test)]
mod tests;

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz_icechunk;
pub(super) use open::{detect_local, open};
pub(super) use refs::{Layout, detect};

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use self::files::Files;
use self::format::FormatError;
use self::id::ObjectId;
use self::index::SnapshotIndex;
use self::refs::{MAIN, Refs};
use super::reference::{Entry, Page, References};
use super::{History, Key, Omission, Store, StoreError};
use crate::cache::SingleFlight;
use crate::clock::Instant;
use crate::sync::Mutex;

/// Options for opening a repository.
#[derive(Debug, Clone)]
pub struct IcechunkOptions {
    /// The branch, tag or snapshot to show; `None` is the branch `main`.
    pub reference: Option<String>,
    /// How long the position of a branch is trusted; `None` is the default of the source.
    pub ttl: Option<Duration>,
    /// Memory limit in bytes, for one metadata file and for all cached manifests.
    pub memory_limit_bytes: u64,
}

impl Default for IcechunkOptions {
    fn default() -> Self {
        Self {
            reference: None,
            ttl: None,
            memory_limit_bytes: 1 << 30,
        }
    }
}

/// Why a repository cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IcechunkError {
    /// The repository has no branch, tag or snapshot of this name.
    #[error("--ref {name}: the repository has no branch, tag or snapshot of this name; {known}")]
    UnknownRef {
        /// The requested name.
        name: String,
        /// The branches and tags that exist.
        known: String,
    },
    /// The repository cannot be read.
    #[error("the Icechunk repository: {0}")]
    Store(#[from] StoreError),
}

/// Names of containers of virtual chunks and their URL prefixes, or why they cannot be read.
type Containers = Result<Vec<(String, String)>, FormatError>;

/// How long the position of a branch of a local repository is trusted.
const LOCAL_TTL: Duration = Duration::from_secs(1);
/// An open repository.
#[derive(Debug)]
pub(super) struct Icechunk {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    refs: Refs,
    files: Arc<Files>,
    /// The name that the user gave for the version that is shown.
    name: String,
    /// The branch that is followed; `None` for a tag or snapshot.
    branch: Option<String>,
    ttl: Duration,
    state: Mutex<State>,
    refreshes: SingleFlight<(), Arc<SnapshotIndex>, StoreError>,
}

#[derive(Debug)]
struct State {
    index: Arc<SnapshotIndex>,
    /// When the branch was last known to be at this snapshot.
    checked: Instant,
}

impl Icechunk {
    /// Opens a repository: `refs` is its store for files that change, `files` its store for all other files.
    /// `remote_ttl` is the default for remote sources.
    ///
    /// # Errors
    /// [`IcechunkError`].
    pub(super) async fn open(
        layout: Layout,
        refs: Arc<dyn Store>,
        files: Arc<dyn Store>,
        options: &IcechunkOptions,
        remote_ttl: Duration,
    ) -> Result<Self, IcechunkError> {
        let default_ttl = match files.capabilities().is_remote {
            true => remote_ttl,
            false => LOCAL_TTL,
        };
        let refs = Refs::new(refs, layout, options.memory_limit_bytes);
        let files = Arc::new(Files::new(files, options.memory_limit_bytes));
        let name = options.reference.clone().unwrap_or_else(|| MAIN.to_owned());
        let checked = Instant::now();
        let resolved = refs.resolve(&name).await?;
        if resolved.is_by_id && !files.has_snapshot(resolved.snapshot).await? {
            return Err(refs.unknown(&name).await);
        }
        let index = load(&files, resolved.snapshot, resolved.containers).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                refs,
                files,
                name,
                branch: resolved.branch,
                ttl: options.ttl.unwrap_or(default_ttl),
                state: Mutex::new(State { index, checked }),
                refreshes: SingleFlight::default(),
            }),
        })
    }

    /// Returns the shown snapshot, if its branch need not be checked.
    fn cached(&self) -> Option<Arc<SnapshotIndex>> {
        let state = self.shared.state.lock();
        let is_fresh = self.shared.branch.is_none() || state.checked.elapsed() < self.shared.ttl;
        is_fresh.then(|| Arc::clone(&state.index))
    }

    /// Returns the shown snapshot.
    async fn current(&self, key: &Key) -> Result<Arc<SnapshotIndex>, StoreError> {
        if let Some(index) = self.cached() {
            return Ok(index);
        }
        let own = Arc::clone(&self.shared);
        let refresh = move || async move { own.refresh().await };
        let panicked = StoreError::internal("a panic while a branch was read");
        let current = self.shared.refreshes.run((), refresh, panicked).await;
        current.map_err(|error| error.with_key(key.clone()))
    }
}

/// Reads a snapshot.
async fn load(
    files: &Arc<Files>,
    id: ObjectId,
    containers: Containers,
) -> Result<Arc<SnapshotIndex>, StoreError> {
    let snapshot = files.snapshot(id).await?;
    let hidden = snapshot.hidden_nodes();
    if hidden > 0 {
        log::warn!(
            "snapshot {id}: {hidden} nodes are not shown: no path on Linux can lead to them"
        );
    }
    let index = SnapshotIndex::new(snapshot, Arc::clone(files), containers);
    Ok(Arc::new(index))
}

impl Shared {
    /// Checks the position of the branch, and reads its snapshot if it has moved.
    async fn refresh(&self) -> Result<Arc<SnapshotIndex>, StoreError> {
        let checked = Instant::now();
        let index = Arc::clone(&self.state.lock().index);
        let Some(branch) = &self.branch else {
            return Ok(index);
        };
        let Some((id, containers)) = self.refs.branch(branch).await? else {
            return Err(StoreError::Stale {
                key: Key::root(),
                what: format!("the branch {branch} is gone"),
            });
        };
        let index = match index.snapshot().id() == id {
            true => index,
            false => {
                log::info!("the branch {branch} has moved to the snapshot {id}");
                load(&self.files, id, containers).await?
            }
        };
        *self.state.lock() = State {
            index: Arc::clone(&index),
            checked,
        };
        Ok(index)
    }
}

#[async_trait]
impl References for Icechunk {
    fn try_find(&self, key: &Key) -> Option<Result<Entry, StoreError>> {
        self.cached()?.try_find(key)
    }

    async fn find(&self, key: &Key) -> Result<Entry, StoreError> {
        self.current(key).await?.find(key).await
    }

    async fn children(&self, prefix: &Key, position: u64) -> Result<Page, StoreError> {
        self.current(prefix).await?.children(prefix, position).await
    }

    fn modified(&self) -> SystemTime {
        time(self.shared.state.lock().index.snapshot().flushed_at_us())
    }

    fn is_immutable(&self) -> Option<bool> {
        Some(self.shared.branch.is_none())
    }

    fn omissions(&self) -> Vec<Omission> {
        let index = Arc::clone(&self.shared.state.lock().index);
        match index.snapshot().hidden_nodes() {
            0 => Vec::new(),
            hidden => vec![Omission::lost(format!(
                "{hidden} nodes are not shown: no path on Linux can lead to them"
            ))],
        }
    }

    async fn history(&self) -> Option<Result<History, StoreError>> {
        Some(self.shared.history().await)
    }
}

fn time(microseconds: u64) -> SystemTime {
    let since = Duration::from_micros(microseconds);
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}
