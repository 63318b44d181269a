//! Targets: each is opened at its first read. From then on it is pinned to the version that it had at that
//! moment, for as long as the store is open.
//!
//! Lock order: no lock is held while another one is taken, nor during a wait.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lru::LruCache;
use tokio::sync::OnceCell;

use super::Precondition;
use super::span::{SpanObject, check_span, target_error};
pub(in crate::store) use super::target_policy::BaseLocation;
use super::target_policy::{AllowedTarget, TargetError, TargetLocation, TargetPolicy};
use crate::cache::bounded_lru;
use crate::runtime::leave_session_thread;
use crate::store::remote::{self, FirstRead, RemoteTarget, RemoteTargets};
use crate::store::{
    AccessHint, DirOptions, DirStore, Key, Object, OpenOptions, Stat, StoreError, SyncStore,
    TransferStats, Version,
};
use crate::sync::Mutex;

/// Number of open targets; each local one takes a file descriptor.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// Options of targets.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// Allowed targets besides those below the directory, or at the server or bucket, of the references.
    pub allowed: Vec<AllowedTarget>,
    /// Whether to read targets that are newer than their references.
    pub allow_newer: bool,
}

/// An open target.
#[derive(Debug)]
pub(super) struct Target {
    /// The target without secrets, for messages.
    label: String,
    modified: Option<SystemTime>,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Local(Arc<dyn Object>),
    Remote(Arc<RemoteTarget>),
}

impl Target {
    pub(super) fn size_bytes(&self) -> u64 {
        match &self.bytes {
            Bytes::Local(object) => object.size_bytes(),
            Bytes::Remote(target) => target.size_bytes(),
        }
    }

    fn version(&self) -> Version {
        match &self.bytes {
            Bytes::Local(object) => object.version(),
            Bytes::Remote(target) => target.version(),
        }
    }

    /// Returns a range of the target as the value of a key.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the target is too short.
    pub(super) fn span(
        &self,
        key: &Key,
        range: Range<u64>,
        stat: Stat,
        hint: AccessHint,
    ) -> Result<Arc<dyn Object>, StoreError> {
        check_span(key, &self.label, &range, self.size_bytes())?;
        match &self.bytes {
            Bytes::Local(object) => {
                SpanObject::open(Arc::clone(object), key, &self.label, range, stat)
            }
            Bytes::Remote(target) => {
                let is_exact = hint != AccessHint::Ranges;
                let span = target.span(range, is_exact);
                let all = 0..span.size_bytes();
                SpanObject::open(span, key, &self.label, all, stat)
            }
        }
    }

    /// Fails if the target does not meet the precondition of a reference.
    fn check_precondition(&self, key: &Key, precondition: &Precondition) -> Result<(), StoreError> {
        let what = match (precondition, &self.bytes) {
            (Precondition::ETag(wanted), Bytes::Remote(target)) => {
                let wanted = wanted.trim_start_matches("W/").trim_matches('"');
                match target.etag() {
                    Some(found) if found == wanted => return Ok(()),
                    found => format!(
                        "its entity tag is {}, the reference is to {wanted}",
                        found.unwrap_or("not sent")
                    ),
                }
            }
            (Precondition::ETag(_), Bytes::Local(_)) => {
                "a file has no entity tag to compare".into()
            }
            (Precondition::NotModifiedSince(limit), _) => match self.modified.map(seconds) {
                Some(modified) if modified <= *limit => return Ok(()),
                Some(_) => "it was modified after its reference was written".into(),
                None => "its server does not say when it was modified".into(),
            },
        };
        Err(target_error(stale(what), key, &self.label))
    }
}

fn stale(what: impl Into<String>) -> StoreError {
    StoreError::Stale {
        key: Key::root(),
        what: what.into(),
    }
}

/// Returns whole seconds since 1970, which is the precision of HTTP headers.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

type TargetCell = Arc<OnceCell<Arc<Target>>>;

/// All targets of a store.
#[derive(Debug)]
pub(in crate::store) struct Targets {
    policy: Arc<TargetPolicy>,
    /// When the references were written, if newer targets are refused.
    written: Option<SystemTime>,
    dir: DirOptions,
    remote: RemoteTargets,
    open: Mutex<LruCache<Arc<str>, TargetCell>>,
    /// The version of each target when it was first opened.
    versions: Mutex<HashMap<Arc<str>, Version>>,
    directories: Mutex<HashMap<PathBuf, Arc<DirStore>>>,
}

impl Targets {
    /// `written` is when the references were written, if known.
    pub(in crate::store) fn new(
        base: BaseLocation,
        options: &OpenOptions,
        written: Option<SystemTime>,
    ) -> Self {
        let targets = &options.targets;
        let policy = TargetPolicy::new(base, targets.allowed.clone(), "the references");
        let policy = Arc::new(policy);
        Self {
            policy: Arc::clone(&policy),
            written: written.filter(|_| !targets.allow_newer),
            dir: options.dir,
            remote: RemoteTargets::new(&options.remote, options.classes, policy),
            open: Mutex::new(bounded_lru(MAX_OPEN)),
            versions: Mutex::default(),
            directories: Mutex::default(),
        }
    }

    /// Whether a target can be on a network.
    pub(super) fn may_be_remote(&self) -> bool {
        self.policy.may_be_remote()
    }

    /// Counters of all targets and of the store that contains the references.
    pub(super) fn transfer_stats(&self, container: Option<TransferStats>) -> Option<TransferStats> {
        if !self.may_be_remote() {
            return container;
        }
        let targets = self.remote.transfer_stats();
        Some(match container {
            Some(container) => container.with(&targets),
            None => targets,
        })
    }

    /// Returns a target that is already open.
    pub(super) fn get_open(
        &self,
        key: &Key,
        url: &str,
        precondition: Option<&Precondition>,
    ) -> Option<Arc<Target>> {
        let target = Arc::clone(self.open.lock().get(url)?.get()?);
        self.check(key, &target, precondition).ok().map(|()| target)
    }

    /// Opens a target; `first` is the range that will be read first.
    ///
    /// # Errors
    /// [`StoreError::Denied`] if the target may not be read, [`StoreError::Stale`] if its version is not the
    /// expected one; never [`StoreError::NotFound`].
    pub(super) async fn open(
        &self,
        key: &Key,
        url: &Arc<str>,
        precondition: Option<&Precondition>,
        first: Option<FirstRead>,
    ) -> Result<Arc<Target>, StoreError> {
        let slot = {
            let mut open = self.open.lock();
            Arc::clone(open.get_or_insert(Arc::clone(url), TargetCell::default))
        };
        let target = slot.get_or_try_init(|| self.load(key, url, first)).await?;
        self.check(key, target, precondition)?;
        Ok(Arc::clone(target))
    }

    /// Fetches a range of a remote target that will most likely be read, or the whole target if there is no
    /// range; returns whether that was possible.
    pub(super) async fn prefetch(
        &self,
        key: &Key,
        url: &Arc<str>,
        precondition: Option<&Precondition>,
        range: Option<Range<u64>>,
    ) -> bool {
        let opened = match self.get_open(key, url, precondition) {
            Some(target) => Ok(target),
            // One prefetch permit is held until the target is open, and another one during the fetch.
            None if matches!(self.policy.resolve(url), Ok(TargetLocation::Remote { .. })) => {
                let Some(_permit) = self.remote.prefetch_permit().await else {
                    return false;
                };
                let first = |range| FirstRead {
                    range,
                    is_prefetch: true,
                };
                self.open(key, url, precondition, range.clone().map(first))
                    .await
            }
            None => return false,
        };
        // On failure, the next read opens the target again and returns the error.
        match opened.as_ref().map(|target| (target, &target.bytes)) {
            Ok((target, Bytes::Remote(remote))) => {
                let range = range.unwrap_or(0..target.size_bytes());
                remote.prefetch(range).await
            }
            Ok((_, Bytes::Local(_))) | Err(_) => false,
        }
    }

    async fn load(
        &self,
        key: &Key,
        url: &Arc<str>,
        first: Option<FirstRead>,
    ) -> Result<Arc<Target>, StoreError> {
        let label = match url.contains("://") {
            true => remote::label(url),
            false => url.to_string(),
        };
        let target = match self.policy.resolve(url) {
            Ok(TargetLocation::File { root, below }) => self.load_file(&label, &root, &below).await,
            Ok(TargetLocation::Remote { url, allowed_by }) => {
                let opened = self.remote.open(&url, allowed_by, first).await;
                opened.map(|target| Target {
                    label: label.clone(),
                    modified: target.modified(),
                    bytes: Bytes::Remote(target),
                })
            }
            Err(TargetError::Denied(what)) => Err(StoreError::Denied {
                key: Key::root(),
                what,
                status: None,
            }),
            Err(TargetError::Unsupported(what)) => Err(StoreError::Unsupported {
                key: Key::root(),
                what,
            }),
        };
        let target = target.map_err(|error| target_error(error, key, &label))?;
        let version = target.version();
        let first_version = *self
            .versions
            .lock()
            .entry(Arc::clone(url))
            .or_insert(version);
        if first_version != version {
            let what = "it has changed since it was first read";
            return Err(target_error(stale(what), key, &label));
        }
        Ok(Arc::new(target))
    }

    async fn load_file(
        &self,
        label: &str,
        root: &Path,
        below: &Path,
    ) -> Result<Target, StoreError> {
        leave_session_thread().await;
        let key =
            Key::new(below.as_os_str().as_bytes()).map_err(|error| StoreError::Unsupported {
                key: Key::root(),
                what: error.to_string(),
            })?;
        let object = self.directory(root)?.open(&key, AccessHint::Ranges)?;
        let modified = object.stat()?.modified;
        Ok(Target {
            label: label.to_owned(),
            modified: Some(modified),
            bytes: Bytes::Local(object),
        })
    }

    fn directory(&self, root: &Path) -> Result<Arc<DirStore>, StoreError> {
        if let Some(store) = self.directories.lock().get(root) {
            return Ok(Arc::clone(store));
        }
        let store = DirStore::open(root, self.dir);
        let store = Arc::new(store.map_err(|error| StoreError::from_io(&Key::root(), error))?);
        let mut directories = self.directories.lock();
        Ok(Arc::clone(
            directories.entry(root.to_owned()).or_insert(store),
        ))
    }

    /// Fails if a target does not meet the precondition of its reference; without one, if it is newer than the
    /// references.
    fn check(
        &self,
        key: &Key,
        target: &Target,
        precondition: Option<&Precondition>,
    ) -> Result<(), StoreError> {
        if let Some(precondition) = precondition {
            return target.check_precondition(key, precondition);
        }
        let (Some(written), Some(modified)) = (self.written, target.modified) else {
            return Ok(());
        };
        if seconds(modified) <= seconds(written) {
            return Ok(());
        }
        let what = format!(
            "it was modified {}, after its references were written, {} (--allow-newer-targets reads \
             it all the same)",
            httpdate::fmt_http_date(modified),
            httpdate::fmt_http_date(written)
        );
        Err(target_error(stale(what), key, &target.label))
    }
}
