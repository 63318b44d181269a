//! The commands `tree`, `info` and `check`, which read a source without a mount.
//!
//! A broken node is shown with the reason, and the command continues. Texts of the source are
//! printed with control characters escaped.
//!
//! **Architecture Invariant:** this module names neither the kernel, nor inodes, nor mounts.

mod check;
mod children;
mod info;
mod keys;
mod metrics;
mod no_metadata;
mod node;
mod output;
mod progress;
mod report;
mod summary;
mod table;
mod tree;
mod views;
mod walk;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::array::{Engine, EngineOptions};
use crate::cli::{DEMO, SourceArgs};
use crate::hierarchy::{KEY_CLASSES, MetadataListingStore};
use crate::machine::{cores, memory_bytes};
use crate::store::{
    DatabaseOptions, DirOptions, IcechunkOptions, Key, Kind, ListingSupport, OpenOptions,
    SourceName, Store, ZipOptions, open_demo,
};
use crate::units::FOREVER;

pub use check::{Verdict, check};
pub use children::child_nodes;
pub use info::info;
pub use metrics::metrics_table;
pub use no_metadata::{NODE_DOCUMENTS, NoMetadata, no_metadata};
pub use output::{print, printable};
pub(crate) use progress::Transfer;
pub use summary::summary;
pub use tree::tree;
pub use views::view_list;

/// A failure with a message for users.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An open source, and the directory in it that a command reads.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) root: Key,
    /// Set if the absence of Zarr metadata at `root` is proven.
    no_metadata: Option<NoMetadata>,
}

impl Opened {
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
            },
            targets: args.targets.options(),
            icechunk: IcechunkOptions {
                reference: args.reference.clone(),
                ttl: Some(FOREVER),
                memory_limit_bytes: memory_limit_bytes / 8,
            },
            classes: KEY_CLASSES,
        };
        let (store, base) = if args.source == Path::new(DEMO) {
            (open_demo(&options)?, Key::root())
        } else {
            let source = SourceName::parse(&args.source)?;
            (source.open(&options).await?, source.root().clone())
        };
        let store = match store.capabilities().listing {
            ListingSupport::Complete => store,
            ListingSupport::BestEffort => Box::new(MetadataListingStore::new(
                Arc::from(store),
                FOREVER,
                FOREVER,
            )),
        };
        let root = match &args.path {
            Some(path) => {
                let below = Key::new(path.trim_matches('/').as_bytes());
                base.join_key(&below.map_err(|e| format!("--path {path}: {e}"))?)
            }
            None => base.clone(),
        };
        let label = store.label();
        let stat = store.stat(&root).await;
        let stat = stat.map_err(|e| format!("{label}: {e}"))?;
        if stat.kind != Kind::Prefix {
            return Err(format!("{label}: {root}: a value, neither a group nor an array").into());
        }
        let no_metadata = match is_listed_here(&*store) {
            true => no_metadata(&*store, &base, &root).await,
            false => None,
        };
        Ok(Self {
            store: Arc::from(store),
            root,
            no_metadata,
        })
    }

    /// Warns on standard error if there are no Zarr metadata.
    fn warn(&self) {
        if let Some(no_metadata) = &self.no_metadata {
            // The result does not depend on this line.
            let _ = writeln!(io::stderr(), "zarrfs: {no_metadata}");
        }
    }
}

/// Returns whether names of a store are listed without network requests. A remote store has been
/// searched for metadata when it was opened.
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
