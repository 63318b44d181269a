//! What a seed chooses: the source, the server, the options, and how the source is mounted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use super::content::Writer;
use super::program::World;
use super::session::Session;
use super::shown::Shown;
use crate::array::{Engine, EngineOptions};
use crate::clock;
use crate::fs::{Fs, Policy};
use crate::hierarchy::{KEY_CLASSES, MetadataListingStore};
use crate::runtime::simulated::{below, record};
use crate::store::simulated::{ArchiveOptions, SimulatedServer, SimulatedSource, Tags};
use crate::store::{
    Key, ListingSupport, RemoteMemory, RemoteOptions, SimulatedDisk, Store, StoreError, Ttl,
    ZipOptions,
};
use crate::sync::Mutex;
use crate::tree::{self, MountedTrees, MuxTree};
use crate::view::{Nodes, NodesOptions};

/// A source, and how it is mounted.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) server: Arc<SimulatedServer>,
    pub(super) writer: Arc<Writer>,
    options: RemoteOptions,
    /// The directory of the disk caches of all mounts.
    pub(super) disk: Option<SimulatedDisk>,
    pub(super) archive: Option<ArchiveOptions>,
    /// The number of programs that copy arrays.
    pub(super) copiers: u64,
    mounts: AtomicUsize,
    pub(super) broken: Arc<Mutex<Vec<String>>>,
}

/// A simulated mount.
#[derive(Debug)]
pub(super) struct Mount {
    pub(super) source: SimulatedSource,
    engine: Arc<Engine>,
    pub(super) world: Arc<World>,
}

fn one_of<T: Copy>(values: &[T]) -> T {
    let number = usize::try_from(below(values.len() as u64)).expect("short");
    values[number]
}

/// Returns random options of a remote source.
pub(super) fn options() -> RemoteOptions {
    let ttl = one_of(&[0, 1000, 5000]);
    RemoteOptions {
        timeout: Duration::from_secs(one_of(&[2, 5])),
        retries: one_of(&[0, 3, 10]),
        parallel: one_of(&[1, 2, 4, 16]),
        ttl: Duration::from_millis(ttl),
        absent_ttl: Duration::from_millis(ttl.min(1000)),
        memory_bytes: one_of(&[256 << 10, 1 << 20, 16 << 20]),
        ..RemoteOptions::default()
    }
}

/// Returns random options of an archive.
pub(super) fn archive_options() -> ArchiveOptions {
    ArchiveOptions {
        tail_bytes: one_of(&[30, 300, 3000, 256 << 10]),
        zip: ZipOptions {
            verify: below(3) == 0,
            strict: false,
            cache_bytes: one_of(&[0, 2000, 20_000, 1 << 20]),
            memory_limit_bytes: 16 << 20,
        },
    }
}

impl Scenario {
    /// Returns a random scenario: three of five are keys without a disk cache.
    pub(super) fn random() -> Self {
        match below(5) {
            3 => Self::of(false, true),
            4 => Self::of(true, below(2) == 0),
            _ => Self::of_keys(),
        }
    }

    /// Returns a random scenario of keys without a disk cache.
    pub(super) fn of_keys() -> Self {
        Self::of(false, false)
    }

    fn of(is_archive: bool, has_disk: bool) -> Self {
        let page_names = (below(2) == 0).then(|| one_of(&[3, 10, 1000]));
        let mut server = SimulatedServer::new(KEY_CLASSES, page_names);
        // Buckets have strong tags.
        if page_names.is_none() {
            server = match below(3) {
                0 => server.with_tags(Tags::Weak),
                1 if is_archive => server.with_tags(Tags::None),
                _ => server,
            };
        }
        let server = Arc::new(server);
        let is_consolidated = page_names.is_none();
        let writer = Writer::new(&server, is_consolidated, is_archive);
        let mut scenario = Self::new(server, writer, options());
        scenario.archive = is_archive.then(archive_options);
        let disk_bytes = has_disk.then(|| one_of(&[40 << 10, 300 << 10, 64 << 20]));
        scenario.disk = disk_bytes.map(SimulatedDisk::new);
        let (tags, options, archive) =
            (scenario.server.tags(), &scenario.options, scenario.archive);
        record(format!(
            "{page_names:?} {tags:?} {archive:?} disk {disk_bytes:?} {options:?}"
        ));
        scenario
    }

    /// Returns a source of keys without a disk cache.
    pub(super) fn new(
        server: Arc<SimulatedServer>,
        writer: Writer,
        options: RemoteOptions,
    ) -> Self {
        Self {
            server,
            writer: Arc::new(writer),
            options,
            disk: None,
            archive: None,
            copiers: 0,
            mounts: AtomicUsize::new(0),
            broken: Arc::default(),
        }
    }

    /// Whether a later mount can find what an earlier one left, or another version of the source.
    pub(super) fn is_mounted_again(&self) -> bool {
        self.disk.is_some() || self.archive.is_some()
    }

    pub(super) fn breaks(&self, what: String) {
        record(format!("BROKEN {what}"));
        self.broken.lock().push(what);
    }

    /// Mounts the source. Later mounts are those of other processes.
    ///
    /// # Errors
    /// The message of the failure.
    pub(super) async fn mount(&self) -> Result<Mount, String> {
        let mounted_at = clock::virtual_now().unwrap_or_default();
        let mounted = self.mount_at(mounted_at).await;
        if let Err(error) = &mounted {
            record(format!("the mount failed: {error}"));
            let is_cut = |archive: &super::archive::ArchiveWriter| archive.was_cut(mounted_at);
            let is_found = error.contains("central directory");
            if is_found && !self.writer.archive().is_some_and(is_cut) {
                self.breaks(format!("the mount found damage: {error}"));
            }
        }
        mounted
    }

    async fn mount_at(&self, mounted_at: Duration) -> Result<Mount, String> {
        let mut options = self.options.clone();
        options.memory = RemoteMemory::default();
        options.disk = self.disk.as_ref().map(SimulatedDisk::open);
        let number = self.mounts.fetch_add(1, Ordering::Relaxed);
        let opened = self.server.open(number, &options, self.archive.as_ref());
        let source = opened.await?;
        let mut store: Arc<dyn Store> = Arc::clone(&source.store);
        let lists_keys = store.capabilities().listing == ListingSupport::Complete;
        if !lists_keys {
            let listing = MetadataListingStore::new(store, options.ttl, options.absent_ttl);
            store = Arc::new(listing);
        }
        let engine = Engine::new(EngineOptions {
            cache_bytes: one_of(&[0, 400, 1 << 20]),
            memory_limit_bytes: 16 << 20,
            parallel: one_of(&[1, 4, 64]),
            timeout: options.timeout,
        });
        let engine = Arc::new(engine.map_err(|error| error.to_string())?);
        let fs = file_system(store, &engine, &options).await?;
        let (server, writer) = (Arc::clone(&self.server), Arc::clone(&self.writer));
        let hot = writer.hot();
        let shown = match (&source.pinned, self.writer.archive()) {
            (Some(version), Some(archive)) => Shown::Archive {
                server,
                content: archive.version(&version.etag).ok_or("never published")?,
                mounted_at,
            },
            _ => Shown::Keys(server, writer),
        };
        let world = World {
            session: Session {
                fs: Arc::new(fs),
                timeout: options.timeout,
            },
            server: Arc::clone(&self.server),
            shown,
            hot,
            ttl: options.ttl,
            lists_keys,
            processes: AtomicU32::new(0),
            is_calm: AtomicBool::new(false),
            broken: Arc::clone(&self.broken),
        };
        Ok(Mount {
            source,
            engine,
            world: Arc::new(world),
        })
    }
}

async fn file_system(
    store: Arc<dyn Store>,
    engine: &Arc<Engine>,
    options: &RemoteOptions,
) -> Result<Fs, String> {
    let root = Key::root();
    let failed = |error: StoreError| error.to_string();
    let native = tree::native(Arc::clone(&store), &root).await;
    let native = native.map_err(failed)?;
    let nodes = Nodes::new(
        store,
        Arc::clone(engine),
        NodesOptions {
            root: root.clone(),
            formats: "npy".parse().map_err(|_| "no formats")?,
            ttl: Ttl {
                present: options.ttl,
                absent: options.absent_ttl,
            },
            assume_wgs84: false,
        },
    );
    let tree = MuxTree::new(native, root, Arc::new(nodes), MountedTrees::Native, false);
    let tree = Box::new(tree.await.map_err(failed)?);
    let policy = Policy {
        ttl: options.ttl,
        absent_ttl: options.absent_ttl,
        uid: 0,
        gid: 0,
        umask: 0,
        local_io_threads: 1,
    };
    let fs = Fs::new(tree, policy).await;
    fs.map_err(|error| error.to_string())
}

impl Mount {
    /// Returns what is in use; nothing if no request is in flight.
    pub(super) fn in_use(&self) -> Vec<String> {
        let used = self.source.in_use();
        used.into_iter().chain(self.engine.in_use()).collect()
    }

    /// Returns the handles that are open; none after all programs have ended.
    pub(super) fn open_handles(&self) -> Vec<String> {
        let counts = self.world.session.fs.document();
        let names = ["handles", "directory_handles"].into_iter();
        let open = names.filter(|name| counts[*name] != 0);
        open.map(|name| format!("{name}: {}", counts[name]))
            .collect()
    }
}
