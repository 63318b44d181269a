//! Opens a file, a remote object or an open store as a store of references.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use flate2::write::MultiGzDecoder;
use memchr::memmem;
use zstd::stream::write::Decoder as ZstdDecoder;

use super::kerchunk::{JsonError, JsonReader, JsonReferences, ParquetReferences};
use super::{BaseLocation, ReferenceError, ReferenceStore, Targets};
use crate::fallible;
use crate::store::ReadMode;
use crate::store::snapshot::{SnapshotError, SnapshotFile};
use crate::store::{
    AccessHint, Key, Kind, OpenOptions, SnapshotReader, Store, read_to_end, visit_all,
};

/// File name endings of references in JSON.
const JSON_ENDS: [&str; 3] = [".json", ".json.gz", ".json.zst"];
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes of the first read of a local file, which shows what it is; of each other one, and of each of a remote object.
const HEAD_BYTES: usize = 4 << 10;
const FILE_PIECE_BYTES: usize = 1 << 20;
const REMOTE_PIECE_BYTES: usize = 8 << 20;

/// The metadata document of Parquet references.
const ZMETADATA: &[u8] = b".zmetadata";

/// Whether a file name is that of a JSON document, compressed or not.
pub(in crate::store) fn is_json(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    JSON_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a file that begins with these bytes can be JSON, compressed or not.
pub(in crate::store) fn looks_like_json(head: &[u8]) -> bool {
    let text = head.strip_prefix(MARK).unwrap_or(head).trim_ascii_start();
    text.starts_with(b"{") || head.starts_with(GZIP) || head.starts_with(ZSTD)
}

/// The reader of a JSON document, behind a decompressor if needed.
enum Input {
    Plain(Box<JsonReader>),
    Gzip(Box<MultiGzDecoder<JsonReader>>),
    Zstd(Box<ZstdDecoder<'static, JsonReader>>),
}

impl Input {
    fn new(head: &[u8], limit_bytes: u64) -> io::Result<Self> {
        let reader = JsonReader::references(limit_bytes);
        Ok(match head {
            head if head.starts_with(GZIP) => Self::Gzip(Box::new(MultiGzDecoder::new(reader))),
            head if head.starts_with(ZSTD) => Self::Zstd(Box::new(ZstdDecoder::new(reader)?)),
            _ => Self::Plain(Box::new(reader)),
        })
    }

    fn reader(&mut self) -> &mut JsonReader {
        match self {
            Self::Plain(reader) => reader,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), JsonError> {
        let written = match self {
            Self::Plain(reader) => reader.write_all(bytes),
            Self::Gzip(decoder) => decoder.write_all(bytes),
            Self::Zstd(decoder) => decoder.write_all(bytes),
        };
        self.check(written)
    }

    /// Returns the error of a write: that of the reader, or else that of the decompressor.
    fn check(&mut self, written: io::Result<()>) -> Result<(), JsonError> {
        match (self.reader().failure(), written) {
            (Some(failure), _) => Err(failure),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => Err(self.reader().syntax(&error.to_string())),
        }
    }

    fn finish(mut self) -> Result<JsonReader, JsonError> {
        let flushed = match &mut self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Zstd(decoder) => decoder.flush(),
        };
        self.check(flushed)?;
        Ok(match self {
            Self::Plain(reader) => *reader,
            Self::Gzip(decoder) => decoder.finish().map_err(ReferenceError::Io)?,
            Self::Zstd(decoder) => decoder.into_inner(),
        })
    }
}

/// Converts [`JsonError::Other`] to `None`.
fn unless_other<T>(read: Result<T, JsonError>) -> Result<Option<T>, ReferenceError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(JsonError::Other) => Ok(None),
        Err(JsonError::Reference(error)) => Err(error),
    }
}

fn snapshot_error(error: SnapshotError) -> ReferenceError {
    match error {
        SnapshotError::Io(error) => ReferenceError::Io(error),
        SnapshotError::Store(error) => ReferenceError::Store(error),
        error => ReferenceError::Io(io::Error::other(error.to_string())),
    }
}

/// Opens a local file of references in JSON; `None` for any other file.
///
/// # Errors
/// [`ReferenceError`].
pub(in crate::store) fn open_file(
    path: &Path,
    label: &str,
    options: &OpenOptions,
) -> Result<Option<ReferenceStore>, ReferenceError> {
    let file = SnapshotFile::new(File::open(path)?)?;
    let Some(references) = unless_other(read_file(&file, label, options))? else {
        return Ok(None);
    };
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let base = BaseLocation::Directory(directory.unwrap_or(Path::new(".")).to_owned());
    let targets = Targets::new(base, options, Some(file.modified()));
    let references = Box::new(references);
    let store = ReferenceStore::new(label.to_owned(), references, None, targets);
    Ok(Some(store))
}

fn read_file(
    file: &SnapshotFile,
    label: &str,
    options: &OpenOptions,
) -> Result<JsonReferences, JsonError> {
    let failed = |error| JsonError::from(snapshot_error(error));
    let size_bytes = file.size_bytes();
    let (mut input, mut offset) = (None, 0);
    let mut buffer = fallible::zeros(HEAD_BYTES).map_err(ReferenceError::from)?;
    while offset < size_bytes {
        let left = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let piece = buffer.get_mut(..length).unwrap_or_default();
        file.read_exact_at(piece, offset, ReadMode::Blocking)
            .map_err(failed)?;
        offset += piece.len() as u64;
        write(&mut input, piece, options)?;
        if offset < size_bytes && buffer.len() < FILE_PIECE_BYTES {
            buffer = fallible::zeros(FILE_PIECE_BYTES).map_err(ReferenceError::from)?;
        }
    }
    let reader = input.ok_or(JsonError::Other)?.finish()?;
    let index = reader.finish(&label)?;
    Ok(JsonReferences::new(index, file.modified(), size_bytes))
}

/// Writes a chunk of a document; the first chunk determines the compression.
fn write(input: &mut Option<Input>, piece: &[u8], options: &OpenOptions) -> Result<(), JsonError> {
    let input = match input {
        Some(input) => input,
        None if !looks_like_json(piece) => return Err(JsonError::Other),
        None => {
            let limit_bytes = options.zip.memory_limit_bytes;
            input.insert(Input::new(piece, limit_bytes).map_err(ReferenceError::Io)?)
        }
    };
    input.write(piece)
}

/// Opens a remote object of references in JSON; `None` for any other object. `tail` is its end.
///
/// # Errors
/// [`ReferenceError`].
pub(in crate::store) async fn open_remote(
    object: &dyn SnapshotReader,
    tail: &[u8],
    url: &str,
    label: &str,
    options: &OpenOptions,
) -> Result<Option<ReferenceStore>, ReferenceError> {
    let read = read_remote(object, tail, label, options).await;
    let Some(references) = unless_other(read)? else {
        return Ok(None);
    };
    let written = Some(object.modified()).filter(|time| *time != std::time::UNIX_EPOCH);
    let targets = Targets::new(BaseLocation::Url(url.to_owned()), options, written);
    let references = Box::new(references);
    let store = ReferenceStore::new(label.to_owned(), references, None, targets);
    Ok(Some(store))
}

async fn read_remote(
    object: &dyn SnapshotReader,
    tail: &[u8],
    label: &str,
    options: &OpenOptions,
) -> Result<JsonReferences, JsonError> {
    let failed = |error| JsonError::from(snapshot_error(error));
    let size_bytes = object.size_bytes();
    let mut input = None;
    // The bytes in `tail` are not fetched again.
    let tail_start = size_bytes.saturating_sub(tail.len() as u64);
    let mut offset = 0;
    while offset < tail_start {
        let left = usize::try_from(tail_start - offset).unwrap_or(usize::MAX);
        let length = left.min(REMOTE_PIECE_BYTES);
        let piece = object.read_once_at(offset, length).await.map_err(failed)?;
        offset += piece.len() as u64;
        write(&mut input, &piece, options)?;
    }
    write(&mut input, tail, options)?;
    let reader = input.ok_or(JsonError::Other)?.finish()?;
    let index = reader.finish(&label)?;
    Ok(JsonReferences::new(index, object.modified(), size_bytes))
}

/// Returns a store of the references in another store below `root`; without references, returns that
/// store. `base` is the location of relative targets.
///
/// # Errors
/// [`ReferenceError`].
pub(in crate::store) async fn detect(
    store: Box<dyn Store>,
    root: &Key,
    base: BaseLocation,
    options: &OpenOptions,
) -> Result<Box<dyn Store>, ReferenceError> {
    let root = &match store.index() {
        Some(_) => only_prefix(&*store, root).await,
        None => root.clone(),
    };
    let Ok(key) = root.join(ZMETADATA) else {
        return Ok(store);
    };
    // By now a remote store has cached which documents exist.
    let stat = match (store.try_stat(&key), store.capabilities().is_remote) {
        (Some(stat), _) => stat,
        (None, true) => return Ok(store),
        (None, false) => store.stat(&key).await,
    };
    let Ok(stat) = stat else { return Ok(store) };
    let has_group = root
        .join(b".zgroup")
        .ok()
        .and_then(|key| store.try_stat(&key));
    if matches!(has_group, Some(Ok(_))) {
        return Ok(store);
    }
    let limit_bytes = options.zip.memory_limit_bytes / 2;
    let opened = store.open(&key, AccessHint::Whole(limit_bytes)).await;
    // The next reader of the document reports why it cannot be read.
    let Ok(object) = opened else {
        return Ok(store);
    };
    let Ok(bytes) = read_to_end(&*object, &key, limit_bytes).await else {
        return Ok(store);
    };
    if memmem::find(&bytes, b"record_size").is_none() {
        return Ok(store);
    }
    let mut reader = JsonReader::metadata(options.zip.memory_limit_bytes / 2);
    let written = reader.write_all(&bytes);
    let label = store.label().to_owned();
    let read = match (reader.failure(), written) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => return Err(error.into()),
        (None, Ok(())) => reader.finish_metadata(&label),
    };
    drop(bytes);
    let Some((metadata, record_size)) = unless_other(read)? else {
        return Ok(store);
    };
    let root_stat = store.stat(root).await.map_err(ReferenceError::Store)?;
    let modified = stat.modified.max(root_stat.modified);
    let store: Arc<dyn Store> = Arc::from(store);
    let references = ParquetReferences::new(
        Arc::clone(&store),
        root.clone(),
        (metadata, record_size),
        (modified, object.version()),
        options.zip.memory_limit_bytes,
    )?;
    let written = Some(modified).filter(|time| *time != std::time::UNIX_EPOCH);
    let targets = Targets::new(base, options, written);
    let references = Box::new(references);
    let container = Some(store);
    Ok(Box::new(ReferenceStore::new(
        label, references, container, targets,
    )))
}

/// Returns the only prefix below `root`, such as the directory that an archive was made of; else `root`.
async fn only_prefix(store: &dyn Store, root: &Key) -> Key {
    let mut names = Vec::new();
    let Ok(mut listing) = store.list(root).await else {
        return root.clone();
    };
    let visited = visit_all(&mut *listing, &mut |listed| {
        if !matches!(listed.name, b"." | b"..") {
            names.push((listed.name.to_vec(), listed.kind));
        }
        match names.len() {
            0 | 1 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })
    .await;
    match (visited, &names[..]) {
        (Ok(()), [(name, Kind::Prefix)]) => root.join(name).unwrap_or_else(|_| root.clone()),
        _ => root.clone(),
    }
}
