//! File systems over the content of a reference model, assembled as by the daemon.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::TempDir;
use zarrfs::array::{Engine, EngineOptions};
use zarrfs::fs::{Fs, Policy};
use zarrfs::hierarchy::MetadataListingStore;
use zarrfs::runtime::block_on;
use zarrfs::store::{DirOptions, DirStore, Key, MemoryStore, Store, ZipOptions, ZipStore};
use zarrfs::tree::{self, MountedTrees, MuxTree, Tree};
use zarrfs::view::{Nodes, NodesOptions};

use crate::failing::{Faults, LocalStore, RemoteStore};
use crate::reference::{FORMATS, Reference};
use crate::zipmaker::{Entry, Zip};

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source {
    Memory,
    Directory,
    Zip,
}

/// The kind of access to the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Access {
    /// Keys are available without waiting.
    Local,
    /// Every access has to wait.
    Remote,
    /// Every access has to wait, and the store has no listings.
    Unlisted,
}

/// The parts of a file system.
#[derive(Debug, Clone, Copy)]
pub struct Assembly {
    pub source: Source,
    pub access: Access,
    /// Whether views exist, and whether they are listed.
    pub views: Option<bool>,
    /// Whether decoded chunks are cached.
    pub has_cache: bool,
}

pub fn assembly() -> impl Strategy<Value = Assembly> {
    let source = prop::sample::select(vec![Source::Directory, Source::Memory, Source::Zip]);
    let access = prop::sample::select(vec![Access::Local, Access::Remote, Access::Unlisted]);
    let views = prop::sample::select(vec![Some(true), Some(false), None]);
    let all = (source, access, views, any::<bool>());
    all.prop_map(|(source, access, views, has_cache)| Assembly {
        source,
        access,
        views,
        has_cache,
    })
}

/// A file system, the failures of its store, and the directory that can change.
#[derive(Debug)]
pub struct Mounted {
    pub fs: Fs,
    pub faults: Arc<Faults>,
    directory: Option<ChangingDirectory>,
}

/// A directory whose files are replaced by rename.
#[derive(Debug)]
struct ChangingDirectory {
    scratch: TempDir,
    /// The time of the last change, in seconds since the epoch.
    clock: u64,
}

impl ChangingDirectory {
    fn root(&self) -> PathBuf {
        self.scratch.path().join("source")
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        self.root()
            .join(Path::new(std::ffi::OsStr::from_bytes(key)))
    }

    /// Writes a value as a new file, or in place. Each write has its own modification time: files
    /// written within one clock step are indistinguishable, and are served only after that step.
    fn write(&mut self, key: &[u8], value: &[u8], in_place: bool) {
        self.clock += 1;
        let target = self.path(key);
        let new = self.scratch.path().join("new");
        let file = if in_place { &target } else { &new };
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(file, value).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.clock);
        let written = File::options().write(true).open(file).unwrap();
        written.set_modified(time).unwrap();
        if !in_place {
            fs::rename(new, target).unwrap();
        }
    }

    /// Removes a value, and directories that become empty.
    fn remove(&self, key: &[u8]) {
        let path = self.path(key);
        fs::remove_file(&path).unwrap();
        let above = path.ancestors().skip(1);
        for directory in above.take_while(|directory| *directory != self.root()) {
            if fs::remove_dir(directory).is_err() {
                return;
            }
        }
    }
}

impl Mounted {
    /// Mounts the content of the model.
    ///
    /// # Panics
    /// If the mount fails.
    pub fn new(reference: &Reference, assembly: Assembly) -> Self {
        let keys = || {
            let contents = reference.keys.iter();
            contents.map(|(key, content)| (Key::new(key).unwrap(), content.bytes.to_vec()))
        };
        let mut directory = None;
        let store: Arc<dyn Store> = match assembly.source {
            Source::Memory => Arc::new(MemoryStore::new(keys())),
            Source::Zip => {
                let entries =
                    (0..)
                        .zip(&reference.keys)
                        .map(|(number, (key, content))| match number % 2 {
                            0 => Entry::stored(key, &content.bytes),
                            _ => Entry::deflated(key, &content.bytes),
                        });
                let file = tempfile::tempfile().unwrap();
                let bytes = Zip::of(entries.collect()).build();
                std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
                file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                Arc::new(ZipStore::open(file, "zip", ZipOptions::default()).unwrap())
            }
            Source::Directory => {
                let scratch = tempfile::tempdir().unwrap();
                let mut new = ChangingDirectory { scratch, clock: 0 };
                fs::create_dir(new.root()).unwrap();
                for (key, content) in &reference.keys {
                    new.write(key, &content.bytes, false);
                }
                let store = DirStore::open(&new.root(), DirOptions::default()).unwrap();
                directory = Some(new);
                Arc::new(store)
            }
        };
        let faults = Arc::<Faults>::default();
        let failing = Arc::clone(&faults);
        let (ttl, store): (_, Arc<dyn Store>) = (
            Duration::ZERO,
            match assembly.access {
                Access::Local => Arc::new(LocalStore::new(store, failing)),
                Access::Remote => Arc::new(RemoteStore::new(store, failing, true)),
                Access::Unlisted => {
                    let store = Arc::new(RemoteStore::new(store, failing, false));
                    Arc::new(MetadataListingStore::new(
                        store,
                        Duration::ZERO,
                        Duration::ZERO,
                    ))
                }
            },
        );
        let policy = Policy {
            ttl,
            absent_ttl: ttl,
            uid: 0,
            gid: 0,
            umask: 0,
            local_io_threads: 1,
        };
        let tree = block_on(tree(store, assembly, ttl));
        let fs = block_on(Fs::new(tree, policy)).unwrap();
        Self {
            fs,
            faults,
            directory,
        }
    }

    /// Returns whether the source can change.
    pub fn can_change(&self) -> bool {
        self.directory.is_some()
    }

    /// Updates the directory to the model's content of a key.
    pub fn change(&mut self, reference: &Reference, key: &[u8], in_place: bool) {
        let directory = self.directory.as_mut().expect("a directory");
        match reference.keys.get(key) {
            Some(content) => {
                let in_place = in_place && directory.path(key).exists();
                directory.write(key, &content.bytes, in_place);
            }
            None => directory.remove(key),
        }
    }
}

async fn tree(store: Arc<dyn Store>, assembly: Assembly, ttl: Duration) -> Box<dyn Tree> {
    let root = Key::root();
    let native = tree::native(Arc::clone(&store), &root).await.unwrap();
    let Some(is_listed) = assembly.views else {
        return native;
    };
    let options = EngineOptions {
        cache_bytes: if assembly.has_cache { 1 << 20 } else { 0 },
        memory_limit_bytes: 64 << 20,
        parallel: 2,
        timeout: Duration::from_secs(60),
    };
    let engine = Arc::new(Engine::new(options).unwrap());
    let options = NodesOptions {
        root: root.clone(),
        formats: FORMATS.parse().unwrap(),
        ttl: ttl.into(),
        assume_wgs84: false,
    };
    let nodes = Arc::new(Nodes::new(store, engine, options));
    let tree = MuxTree::new(native, root, nodes, MountedTrees::Native, is_listed);
    Box::new(tree.await.unwrap())
}
