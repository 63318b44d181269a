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

use super::Pin;
pub(in crate::store) use super::place::Base;
use super::place::{AllowedTarget, Place, Policy, Refused};
use super::span::{SpanObject, check_span, missing};
use crate::runtime::leave_session_thread;
use crate::store::remote::{self, First, RemoteTarget, RemoteTargets};
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

    /// Fails if the target is not the version that the reference names.
    fn check_pin(&self, key: &Key, pin: &Pin) -> Result<(), StoreError> {
        let what = match (pin, &self.bytes) {
            (Pin::ETag(wanted), Bytes::Remote(target)) => {
                let wanted = wanted.trim_start_matches("W/").trim_matches('"');
                match target.etag() {
                    Some(found) if found == wanted => return Ok(()),
                    found => format!(
                        "its entity tag is {}, the reference is to {wanted}",
                        found.unwrap_or("not sent")
                    ),
                }
            }
            (Pin::ETag(_), Bytes::Local(_)) => "a file has no entity tag to compare".into(),
            (Pin::ModifiedBefore(limit), _) => match self.modified.map(seconds) {
                Some(modified) if modified <= *limit => return Ok(()),
                Some(_) => "it was modified after its reference was written".into(),
                None => "its server does not say when it was modified".into(),
            },
        };
        Err(missing(stale(what), key, &self.label))
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

type Slot = Arc<OnceCell<Arc<Target>>>;

/// All targets of a store.
#[derive(Debug)]
pub(in crate::store) struct Targets {
    policy: Policy,
    /// When the references were written, if newer targets are refused.
    written: Option<SystemTime>,
    dir: DirOptions,
    remote: RemoteTargets,
    open: Mutex<LruCache<Arc<str>, Slot>>,
    /// The versions of all targets that were opened.
    pins: Mutex<HashMap<Arc<str>, Version>>,
    directories: Mutex<HashMap<PathBuf, Arc<DirStore>>>,
}

impl Targets {
    /// `written` is when the references were written, if known.
    pub(in crate::store) fn new(
        base: Base,
        options: &OpenOptions,
        written: Option<SystemTime>,
    ) -> Self {
        let targets = &options.targets;
        Self {
            policy: Policy::new(base, targets.allowed.clone()),
            written: written.filter(|_| !targets.allow_newer),
            dir: options.dir,
            remote: RemoteTargets::new(&options.remote, options.classes),
            open: Mutex::new(LruCache::new(MAX_OPEN)),
            pins: Mutex::default(),
            directories: Mutex::default(),
        }
    }

    /// Whether a target can be on a network.
    pub(super) fn may_be_remote(&self) -> bool {
        self.policy.may_be_remote()
    }

    /// Counters of all targets and of the store that contains the references.
    pub(super) fn transfer_stats(&self, own: Option<TransferStats>) -> Option<TransferStats> {
        if !self.may_be_remote() {
            return own;
        }
        let targets = self.remote.transfer_stats();
        Some(match own {
            Some(own) => own.with(&targets),
            None => targets,
        })
    }

    /// Returns a target that is already open.
    pub(super) fn opened(&self, key: &Key, url: &str, pin: Option<&Pin>) -> Option<Arc<Target>> {
        let target = Arc::clone(self.open.lock().get(url)?.get()?);
        self.check(key, &target, pin).ok().map(|()| target)
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
        pin: Option<&Pin>,
        first: Option<First>,
    ) -> Result<Arc<Target>, StoreError> {
        let slot = {
            let mut open = self.open.lock();
            Arc::clone(open.get_or_insert(Arc::clone(url), Slot::default))
        };
        let target = slot.get_or_try_init(|| self.load(key, url, first)).await?;
        self.check(key, target, pin)?;
        Ok(Arc::clone(target))
    }

    /// Fetches a range of a remote target that will most likely be read, or the whole target if there is no
    /// range; returns whether that was possible.
    pub(super) async fn prefetch(
        &self,
        key: &Key,
        url: &Arc<str>,
        pin: Option<&Pin>,
        range: Option<Range<u64>>,
    ) -> bool {
        let opened = match self.opened(key, url, pin) {
            Some(target) => Ok(target),
            // One prefetch permit is held until the target is open, and another one during the fetch.
            None if matches!(self.policy.place(url), Ok(Place::Remote { .. })) => {
                let Some(_place) = self.remote.prefetch_place().await else {
                    return false;
                };
                let first = |range| First {
                    range,
                    is_ahead: true,
                };
                self.open(key, url, pin, range.clone().map(first)).await
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
        first: Option<First>,
    ) -> Result<Arc<Target>, StoreError> {
        let label = match url.contains("://") {
            true => remote::label(url),
            false => url.to_string(),
        };
        let target = match self.policy.place(url) {
            Ok(Place::File { root, below }) => self.load_file(&label, &root, &below).await,
            Ok(Place::Remote { url, trust }) => {
                let opened = self.remote.open(&url, trust, first).await;
                opened.map(|target| Target {
                    label: label.clone(),
                    modified: target.modified(),
                    bytes: Bytes::Remote(target),
                })
            }
            Err(Refused::Denied(what)) => Err(StoreError::Denied {
                key: Key::root(),
                what,
                status: None,
            }),
            Err(Refused::Unsupported(what)) => Err(StoreError::Unsupported {
                key: Key::root(),
                what,
            }),
        };
        let target = target.map_err(|error| missing(error, key, &label))?;
        let version = target.version();
        let pinned = *self.pins.lock().entry(Arc::clone(url)).or_insert(version);
        if pinned != version {
            let what = "it has changed since it was first read";
            return Err(missing(stale(what), key, &label));
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

    /// Fails if a target is not the expected version: that of its pin, or one that is not newer than the
    /// references.
    fn check(&self, key: &Key, target: &Target, pin: Option<&Pin>) -> Result<(), StoreError> {
        if let Some(pin) = pin {
            return target.check_pin(key, pin);
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
        Err(missing(stale(what), key, &target.label))
    }
}
