//! The immutable files of a repository: snapshots and manifests.

use std::sync::Arc;

use super::format::FormatError;
use super::id::ObjectId;
use super::manifest::Manifest;
use super::snapshot::Snapshot;
use crate::cache::{SingleFlight, WeightedLru};
use crate::runtime::{self, Priority, leave_session_thread};
use crate::store::{AccessHint, Data, Key, Store, StoreError, read_range};
use crate::sync::Mutex;

/// Largest number of cached manifests, whatever their size.
const MAX_MANIFESTS: usize = 4096;

/// Reads snapshots and manifests, and caches manifests within a budget.
#[derive(Debug)]
pub(super) struct Files {
    store: Arc<dyn Store>,
    /// Memory limit for one file, in bytes.
    limit_bytes: u64,
    manifests: Mutex<WeightedLru<ObjectId, Arc<Manifest>>>,
    loads: SingleFlight<ObjectId, Arc<Manifest>, StoreError>,
}

/// The key of a file in the repository.
///
/// # Errors
/// [`StoreError::Internal`], which does not occur: identifiers are valid names.
pub(super) fn file_key(directory: &str, id: ObjectId) -> Result<Key, StoreError> {
    let key = Key::new(format!("{directory}/{id}").as_bytes());
    key.map_err(|error| StoreError::internal(format!("the name of a file: {error}")))
}

/// Reads a whole file.
pub(super) async fn read(
    store: &dyn Store,
    key: &Key,
    limit_bytes: u64,
) -> Result<Data, StoreError> {
    leave_session_thread().await;
    let object = store.open(key, AccessHint::Whole(limit_bytes)).await?;
    let need_bytes = object.size_bytes();
    if need_bytes > limit_bytes {
        return Err(StoreError::TooLarge {
            key: key.clone(),
            need_bytes,
            limit_bytes,
        });
    }
    read_range(&*object, key, 0..need_bytes).await
}

/// Reads a file that another file refers to, and decodes it on the CPU pool.
async fn load<T: Send + 'static>(
    store: &dyn Store,
    key: &Key,
    limit_bytes: u64,
    decode: impl FnOnce(&[u8], u64) -> Result<T, FormatError> + Send + 'static,
) -> Result<T, StoreError> {
    let file = match read(store, key, limit_bytes).await {
        Err(
            StoreError::NotFound { .. }
            | StoreError::NotAPrefix { .. }
            | StoreError::NotAFile { .. },
        ) => {
            return Err(StoreError::Corrupt {
                key: key.clone(),
                what: "the repository has no such file".into(),
            });
        }
        file => file?,
    };
    let name = key.to_string();
    let decoded = runtime::compute(Priority::Demand, move || {
        let bytes = file.bytes(&[])?;
        decode(bytes, limit_bytes).map_err(|error| error.of(&Key::root(), &name))
    });
    let decoded = decoded.await;
    let decoded = decoded.map_err(|_| StoreError::internal("a file that was not decoded"))?;
    decoded.map_err(|error| error.with_key(key.clone()))
}

impl Files {
    /// `limit_bytes` limits the memory of one file, and that of all cached manifests.
    pub(super) fn new(store: Arc<dyn Store>, limit_bytes: u64) -> Self {
        Self {
            store,
            limit_bytes,
            manifests: Mutex::new(WeightedLru::new(limit_bytes, MAX_MANIFESTS)),
            loads: SingleFlight::default(),
        }
    }

    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether a snapshot exists.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn has_snapshot(&self, id: ObjectId) -> Result<bool, StoreError> {
        match self.store.stat(&file_key("snapshots", id)?).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a snapshot.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the file is damaged or missing; errors of the store.
    pub(super) async fn snapshot(&self, id: ObjectId) -> Result<Snapshot, StoreError> {
        let key = file_key("snapshots", id)?;
        load(&*self.store, &key, self.limit_bytes, move |file, limit| {
            Snapshot::decode(id, file, limit)
        })
        .await
    }

    /// Returns a manifest if it is cached.
    pub(super) fn cached_manifest(&self, id: ObjectId) -> Option<Arc<Manifest>> {
        self.manifests.lock().get(&id).cloned()
    }

    /// Returns a manifest, reading it if it is not cached.
    ///
    /// # Errors
    /// As [`Files::snapshot`].
    pub(super) async fn manifest(
        self: &Arc<Self>,
        id: ObjectId,
    ) -> Result<Arc<Manifest>, StoreError> {
        if let Some(manifest) = self.cached_manifest(id) {
            return Ok(manifest);
        }
        let own = Arc::clone(self);
        let load = move || async move { own.load_manifest(id).await };
        let panicked = StoreError::internal("a panic while a manifest was read");
        self.loads.run(id, load, panicked).await
    }

    async fn load_manifest(&self, id: ObjectId) -> Result<Arc<Manifest>, StoreError> {
        let key = file_key("manifests", id)?;
        let manifest = load(&*self.store, &key, self.limit_bytes, move |file, limit| {
            Manifest::decode(id, file, limit)
        });
        let manifest = Arc::new(manifest.await?);
        let weight = manifest.memory_bytes();
        let mut manifests = self.manifests.lock();
        let evicted = manifests.insert(id, Arc::clone(&manifest), weight);
        drop(manifests);
        drop(evicted);
        Ok(manifest)
    }
}
