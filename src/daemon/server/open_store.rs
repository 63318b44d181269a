//! Opens the source of a mount as the options say.

use std::io::{self, Write};
use std::sync::Arc;

use super::memory_budget::MemoryBudget;
use super::{Failure, LOCAL_TTL, is_background};
use crate::cli::MountOptions;
use crate::hierarchy::{KEY_CLASSES, MetadataListingStore};
use crate::store::{
    DatabaseOptions, DirOptions, DiskCache, DiskCacheError, FaultStore, HangingStore,
    IcechunkOptions, Key, OpenOptions, SourceName, Store, ZipOptions, open_demo,
};

/// The divisor of the memory limit that gives the share of Icechunk metadata: one eighth.
const ICECHUNK_SHARE: u64 = 8;
/// The largest size of the in-memory cache of fetched bytes, in bytes.
const MAX_REMOTE_BYTES: u64 = 256 << 20;

/// Opens a source, or the demo without one.
pub(super) async fn open_store(
    source: Option<&SourceName>,
    options: &MountOptions,
    memory: MemoryBudget,
) -> Result<Box<dyn Store>, Failure> {
    let open = open_options(options, memory)?;
    let store = match source {
        Some(source) => source.open(&open).await?,
        None => open_demo(&open)?,
    };
    match cfg!(feature = "test-faults") {
        true => with_test_faults(store, options),
        false => Ok(store),
    }
}

fn open_options(options: &MountOptions, memory: MemoryBudget) -> Result<OpenOptions, Failure> {
    let remote_bytes = (memory.limit_bytes / 8).min(MAX_REMOTE_BYTES);
    let mut remote = options.remote.options(options.ttl(), remote_bytes);
    remote.disk = open_disk_cache(options)?;
    Ok(OpenOptions {
        remote,
        zip: ZipOptions {
            verify: options.verify,
            strict: options.strict,
            cache_bytes: memory.cache_bytes,
            memory_limit_bytes: memory.limit_bytes,
        },
        dir: DirOptions {
            follow_symlinks: options.follow_symlinks,
        },
        database: DatabaseOptions {
            timeout: options.remote.timeout,
            memory_limit_bytes: memory.limit_bytes,
            ttl: options.ttl().unwrap_or(LOCAL_TTL),
        },
        targets: options.targets.options(),
        icechunk: IcechunkOptions {
            reference: options.reference.clone(),
            ttl: options.ttl(),
            memory_limit_bytes: memory.limit_bytes / ICECHUNK_SHARE,
        },
        failure_ttl: None,
        classes: KEY_CLASSES,
        list_by_metadata: Some(MetadataListingStore::boxed),
    })
}

/// Opens the disk cache. If the disk is full or read-only, the mount works without a disk cache.
fn open_disk_cache(options: &MountOptions) -> Result<Option<Arc<DiskCache>>, Failure> {
    let Some(directory) = &options.disk_cache else {
        return Ok(None);
    };
    match DiskCache::open(directory, options.disk_cache_size) {
        Ok(cache) => Ok(Some(Arc::new(cache))),
        Err(e @ DiskCacheError::Io { .. }) => {
            log::warn!("--disk-cache: {e}; it is not used");
            if is_background() {
                // The log of a background process does not appear on the user's terminal.
                let _ = writeln!(io::stderr(), "zarrfs: --disk-cache: {e}; it is not used");
            }
            Ok(None)
        }
        Err(e) => Err(format!("--disk-cache: {e}").into()),
    }
}

/// Returns the store with the fault that the environment selects.
fn with_test_faults(
    store: Box<dyn Store>,
    options: &MountOptions,
) -> Result<Box<dyn Store>, Failure> {
    // Simulates a panic in a decoder.
    if let Ok(key) = std::env::var("ZARRFS_TEST_PANIC") {
        return Ok(Box::new(FaultStore::new(store, Key::new(key.as_bytes())?)));
    }
    // Simulates a network that hangs.
    if let Some(gate) = std::env::var_os("ZARRFS_TEST_HANG") {
        let timeout = options.remote.timeout;
        return Ok(Box::new(HangingStore::new(store, gate.into(), timeout)));
    }
    Ok(store)
}
