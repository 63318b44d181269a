//! The databases of Python's `dbm` modules: GNU dbm, Berkeley DB and `dbm.dumb`.
//!
//! - `gnu`, `berkeley` and `dumb` read the keys of their formats; `index` keeps them sorted.
//! - `files` has the locks, and proves that files have not changed.
//!
//! The formats store keys in no useful order, so all keys are read once for each state of the files.
//! Values are read by ranges.
//!
//! **Invariant:** an index is complete and describes one state of the files. Damage anywhere in it is an
//! error for every key. Values have no checksums in these formats.
//!
//! Lock order: the lock of loads, then the lock of the index, then the locks of `files`.

mod berkeley;
mod bytes;
mod dumb;
mod files;
mod gnu;
mod index;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use siphasher::sip::SipHasher13;

use self::berkeley::Chains;
use self::bytes::Bytes;
use self::files::{Files, FilesState, OpenFiles, OpenState};
use self::index::{Builder, Duplicates, Index, StoredValue, ValueLocation};
use super::versions::identity_of;
use super::{
    Columns, Database, Failure, FoundValue, HEADER_BYTES, SMALL_BYTES, Snapshot, ValueMeta,
    VisitRow, WHOLE_BYTES, Wait, Work, corrupt,
};
use crate::store::{Extent, StoreError, in_memory};
use crate::sync::Mutex;

/// The format of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Gnu,
    Berkeley,
    Dumb,
}

impl Format {
    /// The format of a file that begins with `header`, if `header` identifies it.
    fn of(header: &[u8]) -> Option<Self> {
        match header {
            header if gnu::is_gnu(header) => Some(Self::Gnu),
            header if berkeley::is_berkeley(header) => Some(Self::Berkeley),
            _ => None,
        }
    }
}

/// A database and its index.
#[derive(Debug)]
pub(super) struct DbmDatabase {
    format: Format,
    files: Files,
    memory_limit_bytes: u64,
    /// The index that was read last.
    loaded: Mutex<Option<Arc<LoadedIndex>>>,
    /// Held while an index is read.
    loading: Mutex<()>,
}

/// The index of one state of the files.
#[derive(Debug)]
struct LoadedIndex {
    state: FilesState,
    generation: u64,
    content: Result<LoadedContent, StoreError>,
}

#[derive(Debug)]
struct LoadedContent {
    index: Index,
    /// Reads the long values of Berkeley DB.
    chains: Option<Chains>,
}

/// Opens a database that begins with `header`; `None` if it has none of these formats.
pub(super) fn open(
    path: &Path,
    header: &[u8],
    memory_limit_bytes: u64,
) -> io::Result<Option<DbmDatabase>> {
    let (format, files) = match (Format::of(header), dumb_files(path)) {
        (Some(format), _) => (format, Files::single(path, format == Format::Gnu)?),
        (None, Some((index, values))) => (Format::Dumb, Files::pair(&index, &values)?),
        (None, None) => return Ok(None),
    };
    Ok(Some(DbmDatabase {
        format,
        files,
        memory_limit_bytes,
        loaded: Mutex::default(),
        loading: Mutex::default(),
    }))
}

/// The paths of index and values of a `dbm.dumb` database, given one of them.
fn dumb_files(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let extension = path.extension()?;
    if extension != "dir" && extension != "dat" {
        return None;
    }
    let index = path.with_extension("dir");
    let values = path.with_extension("dat");
    let is_dumb = values.is_file() && dumb::is_dumb(&header_of(&index)?);
    is_dumb.then_some((index, values))
}

fn header_of(path: &Path) -> Option<Vec<u8>> {
    let mut header = vec![0; HEADER_BYTES];
    let file = File::open(path).ok().filter(|_| path.is_file())?;
    let filled = file.read_at(&mut header, 0).ok()?;
    header.truncate(filled);
    Some(header)
}

/// Returns the file of a database that Python opens as `stem`, to which the module adds an extension.
pub(in crate::store) fn file_of_stem(stem: &Path) -> Option<PathBuf> {
    let with = |extension: &str| {
        let mut name: OsString = stem.file_name().map(OsStr::to_owned)?;
        name.push(extension);
        Some(stem.with_file_name(name))
    };
    let is_single =
        |path: &PathBuf| header_of(path).is_some_and(|header| Format::of(&header).is_some());
    let singles = [".db", ".pag"].into_iter().filter_map(with);
    let dumb = with(".dir").filter(|index| dumb_files(index).is_some());
    singles.filter(is_single).chain(dumb).next()
}

/// Number of file states that one call tries before it waits.
const MAX_ATTEMPTS: usize = 4;

impl Database for DbmDatabase {
    fn read(&self, wait: Wait, work: &mut Work<'_>) -> Result<(), Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let reading = self.files.current()?;
            let Some(loaded) = self.loaded(&reading, wait)? else {
                continue;
            };
            let result = match &loaded.content {
                Ok(content) => work(&mut View {
                    loaded: &loaded,
                    content,
                    open: reading.open(),
                }),
                Err(error) => Err(Failure::Failed(error.clone())),
            };
            if self.files.are_in(&reading.state)? {
                return match result {
                    Err(Failure::Failed(StoreError::Corrupt { .. }))
                        if self.may_be_unfinished(&reading.state) =>
                    {
                        Err(UNFINISHED)
                    }
                    result => result,
                };
            }
        }
        Err(Failure::Busy("database that stays as it is for one read"))
    }

    fn extent(&self) -> Extent {
        let loaded = self.loaded.lock();
        let content = loaded
            .as_ref()
            .and_then(|loaded| loaded.content.as_ref().ok());
        Extent {
            bytes: self.files.size_bytes(),
            keys: content.map_or(0, |content| content.index.len() as u64),
        }
    }
}

/// After a writer has closed or synced a Berkeley DB file, its pages belong together.
const UNFINISHED: Failure = Failure::Busy("database whose pages belong together");
/// Longest time between two writes of a Berkeley DB writer that closes or syncs a database.
const BETWEEN_WRITES: Duration = Duration::from_secs(2);

impl DbmDatabase {
    /// Whether apparent damage can be a change that a writer is about to finish.
    fn may_be_unfinished(&self, state: &FilesState) -> bool {
        let age = SystemTime::now().duration_since(state.modified());
        self.format == Format::Berkeley && age.is_ok_and(|age| age < BETWEEN_WRITES)
    }

    /// Returns the index of the present state; `None` if the files changed while it was read.
    fn loaded(&self, reading: &OpenState, wait: Wait) -> Result<Option<Arc<LoadedIndex>>, Failure> {
        if let Some(loaded) = self.cached(&reading.state) {
            return Ok(Some(loaded));
        }
        if wait == Wait::NonBlocking {
            return Err(Failure::Busy("index of the database"));
        }
        let _loading = self.loading.lock();
        if let Some(loaded) = self.cached(&reading.state) {
            return Ok(Some(loaded));
        }
        // Drop the old index first, so that memory never holds two of them.
        *self.loaded.lock() = None;
        let content = match self.load(reading) {
            Ok(content) => Ok(content),
            Err(Failure::Failed(error)) if error.is_lasting() => Err(error),
            Err(failure) => return Err(failure),
        };
        if !self.files.are_in(&reading.state)? {
            return Ok(None);
        }
        let mut hasher = SipHasher13::new();
        reading.state.hash(&mut hasher);
        let loaded = Arc::new(LoadedIndex {
            state: reading.state,
            generation: hasher.finish(),
            content,
        });
        *self.loaded.lock() = Some(Arc::clone(&loaded));
        Ok(Some(loaded))
    }

    fn cached(&self, state: &FilesState) -> Option<Arc<LoadedIndex>> {
        let loaded = self.loaded.lock();
        loaded
            .as_ref()
            .filter(|loaded| loaded.state == *state)
            .cloned()
    }

    fn load(&self, reading: &OpenState) -> Result<LoadedContent, Failure> {
        let (open, state) = (reading.open(), &reading.state);
        let (index, values) = (open.index(state), open.values(state));
        LoadedContent::load(self.format, index, values, self.memory_limit_bytes)
    }
}

impl LoadedContent {
    /// Reads all keys.
    fn load(
        format: Format,
        index: Bytes<'_>,
        values: Bytes<'_>,
        memory_limit_bytes: u64,
    ) -> Result<Self, Failure> {
        let mut builder = Builder::new(memory_limit_bytes);
        let (mut chains, mut duplicates) = (None, Duplicates::Corrupt);
        match format {
            Format::Gnu => gnu::read_index(index, &mut builder)?,
            Format::Berkeley => {
                chains = Some(Chains::new(berkeley::read_index(index, &mut builder)?));
            }
            Format::Dumb => {
                dumb::read_index(index, values.size_bytes, &mut builder)?;
                duplicates = Duplicates::Replace;
            }
        }
        let index = builder.finish(duplicates)?;
        Ok(Self { index, chains })
    }

    /// Fills `target` from `offset` of a value.
    fn read(
        &self,
        values: Bytes<'_>,
        value: StoredValue,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), Failure> {
        let StoredValue {
            location,
            size_bytes,
        } = value;
        let end = offset.checked_add(target.len() as u64);
        if end.is_none_or(|end| end > size_bytes) {
            return Err(StoreError::internal("a range that is not inside of its value").into());
        }
        match (location, &self.chains) {
            (ValueLocation::Offset(start), _) => values.read(start.saturating_add(offset), target),
            (ValueLocation::Chain(first), Some(chains)) => {
                chains.read(values, first, size_bytes, offset, target)
            }
            (ValueLocation::Chain(_), None) => {
                Err(StoreError::internal("a chain of no pages").into())
            }
        }
    }
}

/// Reads all keys of a file in one of the formats, and the ends of some values; returns the number of keys.
/// Used by tests/fuzz.
#[cfg(feature = "fuzzing")]
pub fn fuzz_dbm(file: &File) -> Option<usize> {
    const MEMORY_BYTES: u64 = 16 << 20;
    let mut header = [0; HEADER_BYTES];
    let filled = file.read_at(&mut header, 0).ok()?;
    let format = Format::of(header.get(..filled)?).unwrap_or(Format::Dumb);
    let bytes = Bytes::new(file, file.metadata().ok()?.len());
    let content = LoadedContent::load(format, bytes, bytes, MEMORY_BYTES).ok()?;
    let mut target = [0; 1000];
    for (key, value) in (0..256).map_while(|number| content.index.get(number)) {
        assert_eq!(content.index.find(key), Some(value));
        let length = target
            .len()
            .min(usize::try_from(value.size_bytes).unwrap_or(usize::MAX));
        let part = target.get_mut(..length)?;
        let end = value.size_bytes - length as u64;
        for offset in [end, end / 2, 0] {
            let _ = content.read(bytes, value, offset, part);
        }
    }
    Some(content.index.len())
}

/// One state of a database.
struct View<'a> {
    loaded: &'a LoadedIndex,
    content: &'a LoadedContent,
    open: &'a OpenFiles,
}

impl View<'_> {
    fn read(&self, value: StoredValue, offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        let values = self.open.values(&self.loaded.state);
        self.content.read(values, value, offset, target)
    }

    /// Returns a value, and its bytes if it has at most `most` of them.
    fn value(&self, value: StoredValue, most: u64) -> Result<FoundValue, Failure> {
        let StoredValue { size_bytes, .. } = value;
        let mut content = None;
        if size_bytes <= most {
            let mut bytes = vec![0; in_memory(size_bytes)?];
            self.read(value, 0, &mut bytes)?;
            content = Some(bytes);
        }
        let small = content.as_deref().filter(|_| size_bytes <= SMALL_BYTES);
        let identity = small.map(identity_of);
        let value = ValueMeta {
            size_bytes,
            identity,
        };
        Ok(FoundValue { value, content })
    }
}

impl Snapshot for View<'_> {
    fn generation(&self) -> u64 {
        self.loaded.generation
    }

    fn modified(&self) -> SystemTime {
        self.loaded.state.modified()
    }

    fn seek(&mut self, bound: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let index = &self.content.index;
        let found = index.get(index.first_at(bound));
        Ok(found.map(|(key, _)| key.to_vec()))
    }

    fn find(&mut self, key: &[u8]) -> Result<Option<FoundValue>, Failure> {
        let value = self.content.index.find(key);
        value
            .map(|value| self.value(value, WHOLE_BYTES))
            .transpose()
    }

    fn scan(
        &mut self,
        bound: &[u8],
        columns: Columns,
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure> {
        let index = &self.content.index;
        let mut number = index.first_at(bound);
        while let Some((key, value)) = index.get(number) {
            let value = match columns {
                Columns::Keys => None,
                Columns::All => self.value(value, SMALL_BYTES).ok(),
            };
            let value = value.map(|found| (found.value, found.content.map(Cow::Owned)));
            if visit(key, value).is_break() {
                break;
            }
            number = number.saturating_add(1);
        }
        Ok(())
    }

    fn read_at(&mut self, key: &[u8], offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        match self.content.index.find(key) {
            Some(value) => self.read(value, offset, target),
            None => Err(corrupt("a key that was found is gone")),
        }
    }
}
