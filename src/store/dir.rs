//! A local directory: keys are the paths below it, flat (`0.0.0`) and nested (`0/0/0`) alike.
//!
//! Every path is resolved by the kernel beneath the open root (`openat2`, `RESOLVE_BENEATH`), so
//! neither `..` nor a link can lead out of it. Only regular files and directories are shown;
//! FIFOs, sockets and devices are never opened for reading.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat as FileStat};
use rustix::io::Errno;

use super::open_files::{OpenFileId, OpenFiles};
use super::snapshot::{SnapshotError, SnapshotFile, object_stat, time};
use super::system::{self, NamesBuffer, PATH_ONLY};
use super::{
    AccessHint, Capabilities, Data, Extent, Key, Kind, Listed, Listing, ListingSupport,
    LocalObject, LocalReadError, Object, ReadMode, Stat, StoreError, SyncStore, Version, Visit,
    Visited, part_mut,
};
use crate::sync::Mutex;

/// Options of a directory store.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirOptions {
    /// Follow symbolic links that lead out of the root.
    pub follow_symlinks: bool,
}

/// Which symbolic links on a path are followed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Links {
    /// None.
    Refused,
    /// Those that stay below the root.
    Beneath,
    /// All.
    Followed,
}

/// How often to retry the resolution of a path that is being renamed.
const RESOLVE_ATTEMPTS: usize = 32;

/// The root of a store. If a writer removes the directory and creates it again, as zarr-python does with mode
/// `w`, the new one becomes the root. A directory that is renamed stays the root.
#[derive(Debug)]
struct Root {
    opened: Mutex<Arc<OwnedFd>>,
    /// The directory that contains the root, and the name in it; `None` if it cannot be opened.
    parent: Option<(OwnedFd, OsString)>,
}

impl Root {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = ROOT_FLAGS;
        let opened = rustix::fs::open(path, flags, Mode::empty())?;
        let parent = std::fs::canonicalize(path).ok().and_then(|path| {
            let flags = PATH_ONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?;
            Some((parent, path.file_name()?.to_owned()))
        });
        Ok(Self {
            opened: Mutex::new(Arc::new(opened)),
            parent,
        })
    }

    fn opened(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.opened.lock())
    }

    /// Returns the directory that has taken the place of `removed`; `None` if that still exists, or none has.
    fn renewed(&self, removed: &Arc<OwnedFd>) -> Option<Arc<OwnedFd>> {
        match rustix::fs::fstat(&**removed) {
            Ok(stat) if stat.st_nlink > 0 => return None,
            Ok(_) | Err(Errno::STALE) => {}
            Err(_) => return None,
        }
        let (parent, name) = self.parent.as_ref()?;
        let new = Arc::new(system::open_on_same_mount(parent, name, ROOT_FLAGS).ok()?);
        let mut opened = self.opened.lock();
        if Arc::ptr_eq(&opened, removed) {
            log::info!("the directory was removed and created again: the new one is read");
            *opened = new;
        }
        Some(Arc::clone(&opened))
    }
}

const ROOT_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A store in a local directory.
#[derive(Debug)]
pub struct DirStore {
    root: Arc<Root>,
    label: String,
    options: DirOptions,
    open_files: &'static OpenFiles,
}

impl DirStore {
    /// Opens a directory.
    ///
    /// # Errors
    /// The system's error, if the directory cannot be opened or the kernel lacks `openat2` (Linux 5.6).
    pub fn open(path: &Path, options: DirOptions) -> io::Result<Self> {
        let root = Arc::new(Root::open(path)?);
        // `.` and `..` do not name the source.
        let label = match path.file_name() {
            Some(_) => path.to_string_lossy().into_owned(),
            None => std::fs::canonicalize(path)?.to_string_lossy().into_owned(),
        };
        let store = Self {
            root,
            label,
            options,
            open_files: OpenFiles::of_process(),
        };
        store
            .resolve(&Key::root(), PATH_ONLY)
            .map_err(|e| match Errno::from_io_error(&e) {
                Some(Errno::NOSYS) => {
                    io::Error::other("the kernel lacks openat2 (Linux 5.6 or newer is needed)")
                }
                _ => e,
            })?;
        Ok(store)
    }

    /// Returns the same store, without its label.
    fn handle(&self) -> Self {
        Self {
            root: Arc::clone(&self.root),
            label: String::new(),
            options: self.options,
            open_files: self.open_files,
        }
    }

    /// Opens a key without access to its content, following the links that the options allow.
    fn place(&self, key: &Key) -> Result<Place, StoreError> {
        // Most paths have no links. Then one call finds the file, or proves that it is absent.
        match self.resolve_with(key, PATH_ONLY, Links::Refused) {
            Ok(fd) => Ok(Place {
                fd,
                has_links: false,
            }),
            Err(error) if is_refused_link(&error) => {
                let fd = self.resolve(key, PATH_ONLY);
                let fd = fd.map_err(|error| self.failed(key, error))?;
                Ok(Place {
                    fd,
                    has_links: true,
                })
            }
            Err(error) => Err(StoreError::from_io(key, error)),
        }
    }

    /// Opens a key, following the links that the options allow.
    fn resolve(&self, key: &Key, flags: OFlags) -> io::Result<OwnedFd> {
        let links = match self.options.follow_symlinks {
            true => Links::Followed,
            false => Links::Beneath,
        };
        self.resolve_with(key, flags, links)
    }

    fn resolve_with(&self, key: &Key, flags: OFlags, links: Links) -> io::Result<OwnedFd> {
        let path = if key.is_root() { b"." } else { key.as_bytes() };
        let mut flags = flags | OFlags::CLOEXEC;
        if !flags.contains(PATH_ONLY) {
            flags |= OFlags::NOCTTY | OFlags::NONBLOCK;
        }
        let path = OsStr::from_bytes(path);
        self.open_files
            .with_descriptor(|| self.open_beneath(path, flags, links, key.is_root()))
    }

    /// Opens a path below the root. If the root was removed and created again, opens it in the new one.
    fn open_beneath(
        &self,
        path: &OsStr,
        flags: OFlags,
        links: Links,
        is_root: bool,
    ) -> io::Result<OwnedFd> {
        let mut root = self.root.opened();
        let mut result = Err(Errno::AGAIN);
        for _ in 0..RESOLVE_ATTEMPTS {
            // EAGAIN: the kernel could not prove that a concurrent rename kept the path beneath,
            // or another process holds a lease on the file.
            result = system::open_beneath(&root, path, flags, links);
            match &result {
                Err(Errno::INTR | Errno::AGAIN) => continue,
                // The path `.` of a removed directory can be opened.
                Err(Errno::NOENT | Errno::STALE) => {}
                Ok(_) if is_root => {}
                Ok(_) | Err(_) => break,
            }
            match self.root.renewed(&root) {
                Some(new) => root = new,
                None => break,
            }
        }
        Ok(result?)
    }

    /// Stats a key, following links; a key that is neither file nor directory does not exist in this store.
    fn file_stat(&self, key: &Key) -> Result<FileStat, StoreError> {
        let place = self.place(key)?;
        let stat = rustix::fs::fstat(&place.fd);
        let stat = stat.map_err(|error| StoreError::from_io(key, error.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(stat),
            FileType::Directory if place.has_links && self.is_its_own_ancestor(key, &stat)? => {
                Err(StoreError::Denied {
                    key: key.clone(),
                    what: "the link leads to a directory that contains it".into(),
                    status: None,
                })
            }
            FileType::Directory => Ok(stat),
            kind => Err(special(key, kind)),
        }
    }

    /// Opens a regular file for reading.
    fn open_file(&self, key: &Key) -> Result<SnapshotFile, StoreError> {
        let failed = |e| StoreError::from_io(key, e);
        let place = self.place(key)?.fd;
        let stat = rustix::fs::fstat(&place).map_err(|e| failed(e.into()))?;
        // The type is checked first, because open(2) of a device can have side effects.
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(StoreError::NotAPrefix { key: key.clone() }),
            kind => return Err(special(key, kind)),
        }
        let file = self.open_files.with_descriptor(|| reopen(&place));
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            // The path exists: it is `/proc` that is not there.
            Some(Errno::NOENT) => StoreError::Io {
                key: key.clone(),
                source: Arc::new(error),
            },
            _ => failed(error),
        })?;
        SnapshotFile::new(file).map_err(failed)
    }

    /// Converts the error of resolving a key. A link without a target does not prove that the value is absent:
    /// git-annex has such links for values that are not on this machine.
    fn failed(&self, key: &Key, error: io::Error) -> StoreError {
        let is_absent = Errno::from_io_error(&error) == Some(Errno::NOENT);
        if is_absent && self.has_dangling_link(key) {
            return StoreError::NotAFile {
                key: key.clone(),
                what: "a link without a target",
            };
        }
        StoreError::from_io(key, error)
    }

    /// Returns whether a key that cannot be resolved leads through a link without a target.
    fn has_dangling_link(&self, key: &Key) -> bool {
        let is_missing = |result: io::Result<OwnedFd>| {
            let error = result.err().and_then(|error| Errno::from_io_error(&error));
            error == Some(Errno::NOENT)
        };
        let mut at = key.clone();
        while !at.is_root() && is_missing(self.resolve(&at, PATH_ONLY)) {
            if self.resolve(&at, PATH_ONLY | OFlags::NOFOLLOW).is_ok() {
                return true;
            }
            at = at.parent();
        }
        false
    }

    /// Returns whether a directory contains itself, which only links make possible. Below two such links, a
    /// walk of the tree would meet 2^40 paths until the kernel follows no more links.
    fn is_its_own_ancestor(&self, key: &Key, stat: &FileStat) -> Result<bool, StoreError> {
        let mut ancestor = key.clone();
        while !ancestor.is_root() {
            ancestor = ancestor.parent();
            let place = self.resolve(&ancestor, PATH_ONLY);
            let found = place.and_then(|fd| rustix::fs::fstat(&fd).map_err(Into::into));
            let found = found.map_err(|error| StoreError::from_io(key, error))?;
            if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A key that was opened without access to its content.
struct Place {
    fd: OwnedFd,
    /// Whether a component of the path is a link.
    has_links: bool,
}

/// Returns whether a path was not resolved because a component is a link.
fn is_refused_link(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::XDEV))
}

/// Returns the error of a name that is neither a file nor a directory.
fn special(key: &Key, kind: FileType) -> StoreError {
    let what = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "a file of an unknown type",
    };
    let key = key.clone();
    StoreError::NotAFile { key, what }
}

/// Reopens an `O_PATH` descriptor for reading: the same file, even if it was renamed.
fn reopen(place: &OwnedFd) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    for _ in 1..RESOLVE_ATTEMPTS {
        // EAGAIN: another process holds a lease on the file.
        match system::reopen(place, flags) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            opened => return Ok(File::from(opened?)),
        }
    }
    Ok(File::from(system::reopen(place, flags)?))
}

/// Converts the result of stat(2); `None` for files that the store does not show.
fn stat_of(stat: &FileStat) -> Option<Stat> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(object_stat(stat)),
        FileType::Directory => Some(Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: time(system::modified(stat)),
            version: Version(0),
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        }),
        _ => None,
    }
}

impl SyncStore for DirStore {
    fn label(&self) -> &str {
        &self.label
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: false,
            listing: ListingSupport::Complete,
            joins_prefetches: false,
            lists_without_requests: true,
        }
    }

    fn extent(&self) -> Extent {
        // The file system may hold much more than the directory.
        Extent::default()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        stat_of(&self.file_stat(key)?).ok_or_else(|| StoreError::NotFound { key: key.clone() })
    }

    fn open(&self, key: &Key, _: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let file = Arc::new(self.open_file(key)?);
        Ok(Arc::new(DirObject {
            size_bytes: file.size_bytes(),
            version: file.version(),
            id: self.open_files.add(file),
            key: key.clone(),
            store: self.handle(),
        }))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let fd = self
            .resolve(prefix, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|e| StoreError::from_io(prefix, e))?;
        Ok(Box::new(DirListing {
            fd,
            prefix: prefix.clone(),
            store: self.handle(),
            buffer: NamesBuffer::default(),
        }))
    }
}

/// One open regular file, whose descriptor may be closed while it is idle.
#[derive(Debug)]
struct DirObject {
    id: OpenFileId,
    size_bytes: u64,
    version: Version,
    key: Key,
    store: DirStore,
}

impl Drop for DirObject {
    fn drop(&mut self) {
        self.store.open_files.remove(self.id);
    }
}

impl DirObject {
    /// Returns the file, after opening it again if its descriptor was closed.
    fn file(&self) -> Result<Arc<SnapshotFile>, SnapshotError> {
        if let Some(file) = self.store.open_files.get(self.id) {
            return Ok(file);
        }
        let changed = |what: &str| SnapshotError::Changed(format!("{what} while it was open"));
        let file = match self.store.open_file(&self.key) {
            Ok(file) => Arc::new(file),
            Err(StoreError::NotFound { .. }) => return Err(changed("removed or renamed")),
            Err(error) => return Err(SnapshotError::Store(error)),
        };
        if file.version() != self.version {
            return Err(changed("written or replaced"));
        }
        self.store.open_files.put(self.id, Arc::clone(&file));
        Ok(file)
    }

    fn read_with(
        &self,
        file: &SnapshotFile,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, SnapshotError> {
        let left = self.size_bytes.saturating_sub(offset);
        let size = size_bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
        let target = part_mut(buffer, 0..size).map_err(SnapshotError::Store)?;
        file.read_exact_at(target, offset, mode)?;
        Ok(Data::Filled(0..size))
    }

    fn error(&self, error: SnapshotError) -> StoreError {
        let key = self.key.clone();
        match error {
            SnapshotError::Changed(what) => StoreError::Stale { key, what },
            SnapshotError::WouldBlock => StoreError::internal("a blocking read that would block"),
            SnapshotError::Short {
                offset,
                wanted,
                got,
            } => StoreError::Stale {
                key,
                what: format!("{wanted} bytes expected at {offset}, {got} there"),
            },
            SnapshotError::Io(source) => StoreError::from_io(&key, source),
            SnapshotError::Store(error) => error.with_key(key),
        }
    }
}

impl Object for DirObject {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn version(&self) -> Version {
        self.version
    }

    fn stat(&self) -> Result<Stat, StoreError> {
        let stat = self.file().and_then(|file| file.stat());
        stat.map_err(|e| self.error(e))
    }

    fn as_local(&self) -> Option<&dyn LocalObject> {
        Some(self)
    }

    fn backing(&self) -> Option<Arc<dyn AsFd>> {
        Some(self.file().ok()?)
    }
}

impl LocalObject for DirObject {
    fn read_local(
        &self,
        offset: u64,
        size_bytes: usize,
        buffer: &mut [u8],
        mode: ReadMode,
    ) -> Result<Data, LocalReadError> {
        let file = match mode {
            // Opening the file again may block.
            ReadMode::NonBlocking => {
                let open = self.store.open_files.get(self.id);
                open.ok_or(SnapshotError::WouldBlock)
            }
            ReadMode::Blocking => self.file(),
        };
        let read = file.and_then(|file| self.read_with(&file, offset, size_bytes, buffer, mode));
        read.map_err(|error| match error {
            SnapshotError::WouldBlock => LocalReadError::WouldBlock,
            error => self.error(error).into(),
        })
    }
}

/// An open directory; its cookies are those of the file system.
#[derive(Debug)]
struct DirListing {
    fd: OwnedFd,
    prefix: Key,
    store: DirStore,
    buffer: NamesBuffer,
}

impl Listing for DirListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        self.visit_with(cookie, visit, DirStore::listed)
    }

    fn visit_names(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let by_type = |store: &DirStore, fd: &OwnedFd, prefix: &Key, name: &[u8], file_type| {
            match file_type {
                FileType::RegularFile => Some((Kind::Object, None)),
                _ => store.listed(fd, prefix, name, file_type),
            }
        };
        self.visit_with(cookie, visit, by_type)
    }
}

impl DirListing {
    /// Visits the names of the directory, each with the kind and the attributes that `found` returns for it.
    fn visit_with(
        &mut self,
        cookie: u64,
        visit: &mut Visit<'_>,
        found: impl Fn(&DirStore, &OwnedFd, &Key, &[u8], FileType) -> Option<(Kind, Option<Stat>)>,
    ) -> Result<Visited, StoreError> {
        let Self {
            fd,
            prefix,
            store,
            buffer,
        } = self;
        let mut put = |name: &CStr, file_type, next| {
            let name = name.to_bytes();
            let (kind, stat) = match name {
                b"." | b".." => (Kind::Prefix, None),
                _ => match found(store, fd, prefix, name, file_type) {
                    Some(found) => found,
                    None => return ControlFlow::Continue(()),
                },
            };
            visit(Listed {
                name,
                kind,
                stat,
                next,
            })
        };
        match system::visit_names(fd, buffer, cookie, &mut put) {
            Ok(true) => Ok(Visited::Stopped),
            Ok(false) => Ok(Visited::End),
            Err(error) => Err(StoreError::from_io(prefix, error.into())),
        }
    }
}

impl DirStore {
    /// Returns kind and stat of one name of a directory; `None` for files that the store does not show.
    ///
    /// A name whose stat fails (no permission, a link that leads out) is listed anyway, so that an
    /// access to it fails visibly.
    fn listed(
        &self,
        dir: &OwnedFd,
        prefix: &Key,
        name: &[u8],
        file_type: FileType,
    ) -> Option<(Kind, Option<Stat>)> {
        match file_type {
            FileType::Directory => return Some((Kind::Prefix, None)),
            FileType::RegularFile | FileType::Symlink | FileType::Unknown => {}
            _ => return None,
        }
        let key = prefix.join(name).ok()?;
        let name = OsStr::from_bytes(name);
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Some((Kind::Object, None));
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return stat_of(&stat).map(|stat| (stat.kind, Some(stat)));
        }
        match self.stat(&key) {
            Ok(stat) => Some((stat.kind, Some(stat))),
            Err(_) => Some((Kind::Object, None)),
        }
    }
}
