//! An asset as a member of the collection: it is opened when a key in it is used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use url::Url;

use super::document::{Asset, AssetKind};
use crate::clock::Instant;
use crate::runtime::leave_session_thread;
use crate::store::reference::{BaseLocation, TargetError, TargetLocation, TargetPolicy};
use crate::store::remote::{lists_all_names, target_options};
use crate::store::source::SourceLocation;
use crate::store::{
    ErrorKind, Key, ListingSupport, OpenError, OpenOptions, SourceName, Store, StoreError,
    has_escaped_path,
};
use crate::sync::Mutex;

/// The time after which an asset that could not be opened is tried again, unless the options say otherwise.
const MAX_FAILURE_TTL: Duration = Duration::from_secs(1);

/// An asset, and its store once it is open.
#[derive(Debug)]
pub(super) struct Member {
    /// The name of the asset, as a key.
    pub(super) key: Key,
    /// Where the asset is, or why it may not or cannot be read.
    location: Result<TargetLocation, TargetError>,
    /// The version of an Icechunk repository; `None` if the asset can be anything else.
    version: Option<Option<String>>,
    store: OnceCell<Arc<dyn Store>>,
    /// The last failure to open the asset.
    failure: Mutex<Option<(Instant, StoreError)>>,
}

impl Member {
    /// `base` is the location of the document.
    pub(super) fn new(key: Key, asset: &Asset, base: &BaseLocation, policy: &TargetPolicy) -> Self {
        let is_repository = asset.kind() == Some(AssetKind::Icechunk);
        Self {
            key,
            location: policy.resolve(&absolute(base, &asset.href)),
            version: is_repository.then(|| asset.version.clone()),
            store: OnceCell::new(),
            failure: Mutex::default(),
        }
    }

    /// Returns why the asset may not or cannot be read, if the document alone says so.
    pub(super) fn denial(&self) -> Option<&str> {
        match &self.location {
            Ok(_) => None,
            Err(TargetError::Denied(what) | TargetError::Unsupported(what)) => Some(what),
        }
    }

    /// Returns whether the asset is at a web server, if it may be read.
    #[cfg(feature = "fuzzing")]
    pub(super) fn is_at(&self, host: &str) -> bool {
        match &self.location {
            Ok(TargetLocation::Remote { url, .. }) => {
                Url::parse(url).is_ok_and(|url| url.host_str() == Some(host))
            }
            Ok(TargetLocation::File { .. }) => false,
            Err(_) => true,
        }
    }

    /// Returns the store, if it is open.
    pub(super) fn opened(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    /// Returns whether the listings of the store are complete, as far as known.
    pub(super) fn listing(&self) -> ListingSupport {
        match (self.opened(), &self.location) {
            (Some(store), _) => store.capabilities().listing,
            (None, Ok(TargetLocation::Remote { url, .. })) if !lists_all_names(url) => {
                ListingSupport::BestEffort
            }
            (None, _) => ListingSupport::Complete,
        }
    }

    /// Returns the store, which is opened now if it is not open. After a failure it is not tried again for
    /// [`OpenOptions::failure_ttl`].
    ///
    /// # Errors
    /// The error of the member, never [`StoreError::NotFound`].
    pub(super) async fn store(
        &self,
        policy: &Arc<TargetPolicy>,
        options: &OpenOptions,
    ) -> Result<&Arc<dyn Store>, StoreError> {
        self.store
            .get_or_try_init(|| self.open(policy, options))
            .await
    }

    async fn open(
        &self,
        policy: &Arc<TargetPolicy>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Store>, StoreError> {
        let of_source = options.remote.absent_ttl.min(MAX_FAILURE_TTL);
        let failure_ttl = options.failure_ttl.unwrap_or(of_source);
        if let Some(error) = self.last_failure(failure_ttl) {
            return Err(error);
        }
        leave_session_thread().await;
        let opened = self.open_now(policy, options).await;
        if let Err(error) = &opened
            && !error.lacks_memory()
        {
            *self.failure.lock() = Some((Instant::now(), error.clone()));
        }
        opened
    }

    /// Returns the last failure, if it is not older than `ttl`.
    fn last_failure(&self, ttl: Duration) -> Option<StoreError> {
        let failure = self.failure.lock();
        let (since, error) = failure.as_ref()?;
        (since.elapsed() < ttl).then(|| error.clone())
    }

    async fn open_now(
        &self,
        policy: &Arc<TargetPolicy>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Store>, StoreError> {
        let mut options = options.clone();
        // `--ref` is the version of the document, which has none.
        options.icechunk.reference = None;
        let location = match &self.location {
            Ok(TargetLocation::File { root, below }) => {
                let path = root.join(below);
                let follows = options.dir.follow_symlinks;
                SourceLocation::Path(
                    checked_links(path, policy, follows).map_err(|error| self.refused(&error))?,
                )
            }
            Ok(TargetLocation::Remote { url, allowed_by }) => {
                let redirects = Arc::clone(policy) as _;
                options.remote = target_options(&options.remote, url, *allowed_by, redirects);
                SourceLocation::Url(url.clone())
            }
            Err(error) => return Err(self.refused(error)),
        };
        let source = SourceName::asset(location, self.version.clone());
        // The future of a source that can itself be a collection would contain itself.
        let opened = Box::pin(source.open(&options)).await;
        match opened {
            Ok(store) => Ok(Arc::from(store)),
            Err(error) => Err(self.unopened(&error)),
        }
    }

    fn refused(&self, error: &TargetError) -> StoreError {
        let key = self.key.clone();
        match error {
            TargetError::Denied(what) => StoreError::Denied {
                key,
                what: format!("the asset: {what}"),
                status: None,
            },
            TargetError::Unsupported(what) => StoreError::Unsupported {
                key,
                what: format!("the asset: {what}"),
            },
        }
    }

    /// Converts the failure to open the asset: its name exists, but its keys are unknown.
    fn unopened(&self, error: &OpenError) -> StoreError {
        let key = self.key.clone();
        let what = format!("the asset cannot be opened: {error}");
        if error.lacks_memory() {
            let source = Arc::new(io::Error::new(io::ErrorKind::OutOfMemory, what));
            return StoreError::Io { key, source };
        }
        match ErrorKind::of(error) {
            ErrorKind::Denied => StoreError::Denied {
                key,
                what,
                status: None,
            },
            ErrorKind::Corrupt => StoreError::Corrupt { key, what },
            ErrorKind::Unsupported => StoreError::Unsupported { key, what },
            ErrorKind::Unreachable => StoreError::Unreachable { key, what },
            ErrorKind::Changed => StoreError::Stale { key, what },
            _ => StoreError::Unavailable { key, what },
        }
    }
}

/// Resolves an `href`, which is a URI reference, against the URL of the document. Other references are resolved by the
/// policy, as names of files.
fn absolute(base: &BaseLocation, href: &str) -> String {
    match base {
        BaseLocation::Url(base) if has_escaped_path(base) => {
            let joined = Url::parse(base).and_then(|base| base.join(href));
            joined.map_or_else(|_| href.to_owned(), String::from)
        }
        _ => href.to_owned(),
    }
}

/// Returns a path that is allowed, unless its links lead to one that is not.
fn checked_links(
    path: PathBuf,
    policy: &TargetPolicy,
    follows: bool,
) -> Result<PathBuf, TargetError> {
    let real = match follows {
        true => None,
        // The open reports a path that does not exist.
        false => std::fs::canonicalize::<&Path>(&path).ok(),
    };
    match real.map(|real| policy.file(&real)) {
        Some(Err(TargetError::Denied(what))) => {
            Err(TargetError::Denied(format!("it is a link: {what}")))
        }
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fallible::NoMemory;
    use crate::store::ZipError;

    #[test]
    fn an_asset_without_memory_for_its_index_can_be_opened_later() {
        let member = Member {
            key: Key::new(b"asset").unwrap(),
            location: Err(TargetError::Unsupported(String::new())),
            version: None,
            store: OnceCell::new(),
            failure: Mutex::default(),
        };
        let error = member.unopened(&OpenError::Zip {
            source_name: "a.zip".into(),
            error: ZipError::NoMemory(NoMemory(7)),
        });
        assert!(error.lacks_memory() && !error.is_lasting());
        let message = "asset: the asset cannot be opened: a.zip: no memory for the index of the archive: it needs 7 \
                       bytes of memory, and the system has none left";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn references_are_relative_to_the_url_of_the_document() {
        let base = BaseLocation::Url("https://h/a/item.json?key=1".into());
        for (href, expected) in [
            ("./x.zarr", "https://h/a/x.zarr"),
            ("../b/x%20y.zarr?s=1", "https://h/b/x%20y.zarr?s=1"),
            ("/x.zarr", "https://h/x.zarr"),
            ("//other/x.zarr", "https://other/x.zarr"),
            ("s3://b/x.zarr", "s3://b/x.zarr"),
            ("file:///etc", "file:///etc"),
        ] {
            assert_eq!(absolute(&base, href), expected, "{href}");
        }
        let bucket = BaseLocation::Url("s3://b/a/item.json".into());
        assert_eq!(absolute(&bucket, "x.zarr"), "x.zarr");
    }
}
