//! A mount in the process of the test, without the kernel, and its requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zarrfs::array::{Engine, EngineOptions};
use zarrfs::errno::{errno, errno_name};
use zarrfs::fs::{Fs, FsError, Ino, Kind, Policy};
use zarrfs::hierarchy::{KEY_CLASSES, MetadataListingStore};
use zarrfs::runtime::block_on;
use zarrfs::store::{Key, OpenOptions, RemoteOptions, SourceName, Store, StoreError};
use zarrfs::tree::{self, MountedTrees, MuxTree};
use zarrfs::view::{Nodes, NodesOptions};

use crate::kernel::{self, Part};

/// The size of a read in bytes: the longest one of the kernel.
const READ_BYTES: usize = 1 << 20;
/// The number of names in the reply to a listing.
const NAMES: usize = 100;

/// The content of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The names in a directory, and whether each is a directory.
    Names(Vec<(String, bool)>),
    /// The size and the checksum of a file.
    File(u64, u32),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) => {
                let names = names.iter().flat_map(|(name, _)| [name.as_bytes(), b"/"]);
                let sum = names.fold(0, crc32c::crc32c_append);
                write!(f, "directory {sum:08x}")
            }
            Self::File(size, sum) => write!(f, "{size} bytes {sum:08x}"),
        }
    }
}

/// Why a request failed: its errno, and the message.
#[derive(Debug)]
pub struct Failed {
    pub errno: &'static str,
    pub message: String,
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Self {
        Self {
            errno: errno_name(errno(&error)),
            message: error.to_string(),
        }
    }
}

/// Mounts a source as the daemon does, without a cache of decoded chunks.
///
/// # Errors
/// The message of the failure.
pub fn mount(source: &str) -> Result<Fs, String> {
    let options = OpenOptions {
        classes: KEY_CLASSES,
        list_by_metadata: Some(MetadataListingStore::boxed),
        remote: RemoteOptions {
            timeout: Duration::from_secs(20),
            ..RemoteOptions::default()
        },
        ..OpenOptions::default()
    };
    let name = SourceName::parse(source.as_ref()).map_err(|error| error.to_string())?;
    let store = block_on(name.open(&options)).map_err(|error| error.to_string())?;
    let failed = |error: StoreError| error.to_string();
    let (store, root): (Arc<dyn Store>, _) = (Arc::from(store), Key::root());
    let native = block_on(tree::native(Arc::clone(&store), &root)).map_err(failed)?;
    let engine = Engine::new(EngineOptions {
        cache_bytes: 0,
        memory_limit_bytes: 256 << 20,
        parallel: 2,
        timeout: Duration::from_secs(20),
    });
    let engine = Arc::new(engine.map_err(|error| error.to_string())?);
    let options = NodesOptions {
        root: root.clone(),
        formats: "all".parse()?,
        ttl: Duration::from_secs(60).into(),
        assume_wgs84: false,
    };
    let nodes = Arc::new(Nodes::new(store, engine, options));
    let tree = MuxTree::new(native, root, nodes, MountedTrees::Native, true);
    let tree = block_on(tree).map_err(failed)?;
    let policy = Policy {
        ttl: Duration::ZERO,
        absent_ttl: Duration::ZERO,
        uid: 0,
        gid: 0,
        umask: 0,
        local_io_threads: 1,
    };
    block_on(Fs::new(Box::new(tree), policy)).map_err(|error| error.to_string())
}

/// Looks up a path from the root, and lists or reads it.
///
/// # Errors
/// The errno of the request that failed.
pub fn visit(fs: &Fs, path: &str) -> Result<Found, Failed> {
    let (mut counted, mut ino, mut kind) = (Vec::new(), Ino::ROOT, Kind::Prefix);
    let looked_up = path
        .split('/')
        .filter(|name| !name.is_empty())
        .try_for_each(|name| -> Result<(), FsError> {
            let node = kernel::lookup(fs, ino, name.as_bytes())?;
            let absent = || StoreError::NotFound {
                key: Key::new(path.trim_start_matches('/').as_bytes()).unwrap_or_default(),
            };
            let node = node.ok_or_else(absent)?;
            (ino, kind) = (node.ino, node.stat.kind);
            counted.push(ino);
            Ok(())
        });
    let found = looked_up.and_then(|()| match kind {
        Kind::Prefix => list(fs, ino),
        Kind::Object => read(fs, ino),
    });
    counted.into_iter().for_each(|ino| fs.forget(ino, 1));
    Ok(found?)
}

fn list(fs: &Fs, ino: Ino) -> Result<Found, FsError> {
    let handle = kernel::opendir(fs, ino)?;
    let mut names = Vec::new();
    let mut part = Part {
        ino,
        handle: Some(handle),
        cookie: 0,
        most: NAMES,
        is_plus: true,
    };
    let listed = loop {
        let listed = match kernel::list(fs, part) {
            Ok(listed) => listed,
            Err(error) => break Err(error),
        };
        let Some(last) = listed.last() else {
            break Ok(());
        };
        part.cookie = last.next;
        for name in listed {
            name.counted.into_iter().for_each(|ino| fs.forget(ino, 1));
            names.push((
                String::from_utf8(name.name).unwrap(),
                name.kind == Kind::Prefix,
            ));
        }
    };
    fs.releasedir(handle);
    listed?;
    names.retain(|(name, _)| name != "." && name != "..");
    names.sort();
    Ok(Found::Names(names))
}

fn read(fs: &Fs, ino: Ino) -> Result<Found, FsError> {
    let handle = kernel::open(fs, ino)?.handle;
    let (mut size, mut sum) = (0, 0);
    let mut part = || {
        let reader = block_on(fs.reader(ino, Some(handle), size, READ_BYTES))?;
        let read = match reader.read_at_hand() {
            Some(read) => read,
            None if reader.is_local() => reader.read_blocking(),
            None => block_on(reader.read()),
        };
        let read = read?;
        let bytes = read.bytes(&[])?;
        size += bytes.len() as u64;
        sum = crc32c::crc32c_append(sum, bytes);
        Ok(bytes.len() == READ_BYTES)
    };
    let read = loop {
        match part() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    fs.release(handle);
    read.map(|()| Found::File(size, sum))
}
