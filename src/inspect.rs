//! The commands that look at a source and mount nothing: what is in it, what was understood of it,
//! and whether all of it can be read.
//!
//! A node that can not be understood is shown with the reason and stops nothing. What comes from
//! the source is printed with its control characters escaped.
//!
//! **Architecture Invariant:** nothing here knows the kernel, inodes or mounts.

mod check;
mod counters;
mod hierarchy;
mod info;
mod keys;
mod output;
mod progress;
mod report;
mod rows;
mod summary;
mod top;
mod tree;
mod walk;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::array::{Engine, EngineOptions};
use crate::cli::{DEMO, SourceArgs};
use crate::explore::ExploredStore;
use crate::machine::memory_bytes;
use crate::store::{
    DirOptions, Key, Kind, ListingSupport, OpenOptions, SourceName, Store, ZipOptions, open_demo,
};
use crate::units::FOREVER;

pub use check::{Verdict, check};
pub use counters::counters;
pub use info::info;
pub use output::{print, printable};
pub use summary::summary;
pub use top::{METADATA, NoZarr, no_zarr};
pub use tree::tree;

/// A failure, for a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// An open source and where in it to look.
#[derive(Debug)]
struct Opened {
    store: Arc<dyn Store>,
    root: Key,
    /// What is at `root` instead of Zarr metadata; none if metadata are there, or may be.
    no_zarr: Option<NoZarr>,
}

impl Opened {
    /// Opens a source; `--path` has to lead to a directory in it.
    fn new(args: &SourceArgs, strict: bool, memory_limit_bytes: u64) -> Result<Self, Failure> {
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
        };
        let (store, base) = if args.source == Path::new(DEMO) {
            (open_demo(&options)?, Key::root())
        } else {
            let source = SourceName::parse(&args.source)?;
            (source.open(&options)?, source.root().clone())
        };
        let store = match store.capabilities().listing {
            ListingSupport::Complete => store,
            ListingSupport::BestEffort => {
                Box::new(ExploredStore::new(Arc::from(store), FOREVER, FOREVER))
            }
        };
        let root = match &args.path {
            Some(path) => {
                let below = Key::new(path.trim_matches('/').as_bytes());
                base.join_key(&below.map_err(|e| format!("--path {path}: {e}"))?)
            }
            None => base.clone(),
        };
        let label = store.label();
        let stat = store.stat(&root).map_err(|e| format!("{label}: {e}"))?;
        if stat.kind != Kind::Prefix {
            return Err(format!("{label}: {root}: a value, not a group or an array").into());
        }
        let no_zarr = is_listed_here(&*store)
            .then(|| no_zarr(&*store, &base, &root))
            .flatten();
        Ok(Self {
            store: Arc::from(store),
            root,
            no_zarr,
        })
    }

    /// Tells a reader of lines or of JSON that there is no Zarr metadata.
    fn warn(&self) {
        if let Some(no_zarr) = &self.no_zarr {
            // A standard error that cannot be written to changes nothing.
            let _ = writeln!(io::stderr(), "zarrfs: {no_zarr}");
        }
    }
}

/// Whether names of a store are listed without a network: a remote hierarchy has been looked for
/// when it was opened.
pub fn is_listed_here(store: &dyn Store) -> bool {
    !store.capabilities().is_remote || store.index().is_some()
}

/// What decodes for a command; it keeps nothing that was decoded.
fn engine(memory_limit_bytes: u64) -> Result<Engine, Failure> {
    Ok(Engine::new(EngineOptions {
        cache_bytes: 0,
        memory_limit_bytes,
        threads: 1,
        timeout: FOREVER,
    })?)
}

fn default_memory_limit_bytes() -> u64 {
    memory_bytes() / 2
}
