//! Builds an index from a central directory, and decides which claims of its records are accepted.

use std::sync::atomic::AtomicU32;

use rawzip::{CompressionMethod, ReaderAt, ZipArchive, ZipFileHeaderRecord};

use super::name_table::{NameTable, NameTableError};
use super::record::{data_end, is_valid_key, path_of, unix_seconds};

use super::{Directory, EntryMethod, HIDDEN_FILES, INVALID_NAMES, Node, ZipIndex, name_of};
use crate::fallible::{self, List, NoMemory};
use crate::machine;
use crate::store::zip::{ZipError, ZipOptions};
use crate::store::{Position, StoreError};

/// Bytes reserved per entry before the directory is read: node, order, hash table and hash, name.
const BYTES_PER_ENTRY: u64 = 88;
/// The smallest size of a record in a central directory, in bytes.
const RECORD_BYTES: u64 = 46;
/// Largest compression ratio of deflate (258 bytes from two bits).
const MAX_DEFLATE_RATIO: u64 = 1032;

/// Reads the whole central directory. `held_bytes` of the memory limit are already in use.
pub(in crate::store::zip) fn build<R: ReaderAt>(
    archive: &ZipArchive<R>,
    buffer: &mut [u8],
    split: bool,
    held_bytes: u64,
    options: &ZipOptions,
) -> Result<Directory, ZipError> {
    let claimed = archive.entries_hint();
    let directory_bytes = archive
        .eocd_offset()
        .saturating_sub(archive.directory_offset());
    if claimed > directory_bytes / RECORD_BYTES {
        return Err(ZipError::BadDirectory(format!(
            "{claimed} entries claimed, but its {directory_bytes} bytes have room for {} at most",
            directory_bytes / RECORD_BYTES
        )));
    }
    let too_large = |need_bytes| ZipError::TooLarge {
        entries: claimed,
        need_bytes,
        limit_bytes: options.memory_limit_bytes,
    };
    let need = claimed
        .saturating_mul(BYTES_PER_ENTRY)
        .saturating_add(held_bytes);
    if need > options.memory_limit_bytes || claimed >= u64::from(u32::MAX) {
        return Err(too_large(need));
    }
    let mut read = |names| -> Result<Builder, ZipError> {
        let claimed_entries = usize::try_from(claimed).unwrap_or(0);
        let mut builder = Builder::new(claimed_entries, archive.directory_offset(), split, names)?;
        let mut records = archive.entries(buffer);
        let mut count: u64 = 0;
        while let Some(record) = records
            .next_entry()
            .map_err(|e| ZipError::BadDirectory(format!("entry {count} of {claimed}: {e}")))?
        {
            count = count.saturating_add(1);
            builder.add(&record)?;
            let taken = builder.bytes().saturating_add(held_bytes);
            if taken > options.memory_limit_bytes {
                return Err(too_large(taken));
            }
        }
        // Writers without zip64 let the 16-bit count wrap; any other difference is an error.
        if count != claimed && (count & 0xFFFF != claimed || claimed > 0xFFFF) {
            return Err(ZipError::BadDirectory(format!(
                "{claimed} entries claimed, {count} found"
            )));
        }
        Ok(builder)
    };
    match read(NameUniqueness::Assumed)?.finish() {
        Ok(directory) => Ok(directory),
        Err(NameTableError::Duplicate) => match read(NameUniqueness::Checked)?.finish() {
            Ok(directory) => Ok(directory),
            Err(NameTableError::NoMemory(failure)) => Err(failure.into()),
            Err(NameTableError::Duplicate) => {
                let what =
                    "names of an archive are not unique after their duplicates were replaced";
                Err(ZipError::Source(StoreError::internal(what)))
            }
        },
        Err(NameTableError::NoMemory(failure)) => Err(failure.into()),
    }
}

/// Whether a directory is read under the assumption that its names are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameUniqueness {
    /// No name occurs twice, which is nearly always true. The table of names is filled after all records
    /// were read, on all cores.
    Assumed,
    /// Of entries with one name the last counts, and a directory wins over a file: each name is looked up.
    Checked,
}

/// Counts, for the log, of entries that were left out or are not readable.
#[derive(Debug, Default)]
struct Counts {
    invalid: u64,
    /// The beginning of the first invalid name.
    first_invalid: Option<String>,
    duplicates: Vec<String>,
    more_duplicates: u64,
    hidden_files: u64,
}

#[derive(Debug)]
struct Builder {
    index: ZipIndex,
    data_end: u64,
    split: bool,
    names: NameUniqueness,
    /// The directory of the previous entry, which is nearly always that of the next one too.
    last_directory: (Vec<u8>, u32),
    /// End of the previous entry in the file; if entries do not ascend, overlaps are checked.
    last_end: u64,
    ascending: bool,
    counts: Counts,
}

impl Builder {
    /// Creates a builder for `claimed` entries.
    ///
    /// # Errors
    /// Memory could not be allocated.
    fn new(
        claimed: usize,
        data_end: u64,
        split: bool,
        names: NameUniqueness,
    ) -> Result<Self, NoMemory> {
        let mut nodes = Vec::new();
        let most = claimed.saturating_add(16);
        (nodes.try_reserve_exact(most)).map_err(|_| NoMemory::of::<Node>(most))?;
        let table = match names {
            NameUniqueness::Assumed => NameTable::default(),
            NameUniqueness::Checked => NameTable::with_capacity(claimed)?,
        };
        let mut index = ZipIndex {
            nodes,
            names: Vec::new(),
            order: Vec::new(),
            by_name: table,
            open_infallible: !split,
        };
        index.nodes.push(Node::directory(0, 0, 0));
        Ok(Self {
            index,
            data_end,
            split,
            names,
            last_directory: (Vec::new(), 0),
            last_end: 0,
            ascending: true,
            counts: Counts::default(),
        })
    }

    /// Bytes that the index takes so far.
    fn bytes(&self) -> u64 {
        let node = size_of::<Node>() + 2 * size_of::<u32>();
        (self.index.nodes.len().saturating_mul(node)).saturating_add(self.index.names.len()) as u64
    }

    fn add(&mut self, record: &ZipFileHeaderRecord<'_>) -> Result<(), NoMemory> {
        let raw = record.file_path();
        let raw: &[u8] = raw.as_ref();
        let path = path_of(record, raw);
        let (path, is_directory) = match &*path {
            [path @ .., b'/'] => (path, true),
            // The root, as `./`.
            [] if !raw.is_empty() => return Ok(()),
            path => (path, false),
        };
        if !is_valid_key(path)
            || u32::try_from(self.index.names.len().saturating_add(raw.len())).is_err()
        {
            self.counts.invalid = self.counts.invalid.saturating_add(1);
            let name = raw.get(..80).unwrap_or(raw);
            let first = || name.escape_ascii().to_string();
            self.counts.first_invalid.get_or_insert_with(first);
            return Ok(());
        }
        let modified = u32::try_from(unix_seconds(record)).unwrap_or(0);
        if is_directory {
            let at = self.directory(path)?;
            if let Some(node) = self.index.nodes.get_mut(at as usize) {
                node.modified_unix = modified;
            }
            return Ok(());
        }
        let cut = path.iter().rposition(|b| *b == b'/');
        let (directory, name) = match cut {
            Some(cut) => (
                path.get(..cut).unwrap_or_default(),
                path.get(cut + 1..).unwrap_or_default(),
            ),
            None => (&b""[..], path),
        };
        let parent = self.directory(directory)?;
        let node = self.file(record, raw.len(), parent, modified);
        // An empty file is never read, so it is checked when it is opened.
        self.index.open_infallible &= node.method.is_readable() && node.size_bytes > 0;
        let there = match self.names {
            NameUniqueness::Assumed => None,
            NameUniqueness::Checked => self.index.child(Position(parent), name),
        };
        match there {
            Some(there) => self.replace(there, node),
            None => {
                self.insert(parent, name, node)?;
            }
        }
        Ok(())
    }

    /// Returns the node of a file, checked as far as possible without its local header.
    fn file(
        &mut self,
        record: &ZipFileHeaderRecord<'_>,
        name_bytes: usize,
        parent: u32,
        modified_unix: u32,
    ) -> Node {
        let (header_offset, compressed_bytes, size_bytes) = (
            record.local_header_offset(),
            record.compressed_size_hint(),
            record.uncompressed_size_hint(),
        );
        let end = data_end(header_offset, name_bytes as u64, compressed_bytes);
        self.ascending &= header_offset >= self.last_end;
        self.last_end = end.unwrap_or(u64::MAX);
        let method = record.compression_method();
        let mut crc = record.crc32();
        let method = if self.split {
            EntryMethod::Split
        } else if record.flags().is_encrypted() || record.flags().has_strong_encryption() {
            EntryMethod::Encrypted
        } else if end.is_none_or(|end| end > self.data_end) {
            EntryMethod::OutOfBounds
        } else if method == CompressionMethod::STORE {
            if compressed_bytes == size_bytes {
                EntryMethod::Stored
            } else {
                EntryMethod::ImpossibleSize
            }
        } else if method == CompressionMethod::DEFLATE {
            let most = compressed_bytes.saturating_mul(MAX_DEFLATE_RATIO);
            if size_bytes <= most {
                EntryMethod::Deflated
            } else {
                EntryMethod::ImpossibleSize
            }
        } else {
            let coded = [
                EntryMethod::Zstd,
                EntryMethod::Bzip2,
                EntryMethod::Lzma,
                EntryMethod::Xz,
            ];
            let number = method.as_u16();
            let known = coded.into_iter().find(|own| own.number() == Some(number));
            known.unwrap_or_else(|| {
                crc = number.into();
                EntryMethod::UnsupportedMethod
            })
        };
        Node {
            name_start: 0,
            parent,
            crc,
            modified_unix,
            state: AtomicU32::new(0),
            name_length: 0,
            method,
            header_offset,
            compressed_bytes,
            size_bytes,
        }
    }

    /// Returns the index of a directory, adding it and its parents if they are missing.
    fn directory(&mut self, path: &[u8]) -> Result<u32, NoMemory> {
        if path == self.last_directory.0 {
            return Ok(self.last_directory.1);
        }
        let mut at = 0;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            at = match self.index.child(Position(at), name) {
                Some(child) => {
                    if self.index.node(child).method != EntryMethod::Directory {
                        self.counts.hidden_files = self.counts.hidden_files.saturating_add(1);
                        if let Some(node) = self.index.nodes.get_mut(child.0 as usize) {
                            let kept =
                                Node::directory(node.name_start, node.name_length, node.parent);
                            *node = kept;
                        }
                    }
                    child.0
                }
                None => self.insert(at, name, Node::directory(0, 0, at))?,
            };
        }
        self.last_directory.0.clear();
        self.last_directory.0.extend_from_slice(path);
        self.last_directory.1 = at;
        Ok(at)
    }

    /// Handles a second entry with the same name: the last one counts, and a directory wins over a file.
    fn replace(&mut self, there: Position, node: Node) {
        if self.index.node(there).method == EntryMethod::Directory {
            self.counts.hidden_files = self.counts.hidden_files.saturating_add(1);
            return;
        }
        if self.counts.duplicates.len() < 5 {
            let key = self.index.key(there);
            self.counts.duplicates.push(key.to_string());
        } else {
            self.counts.more_duplicates = self.counts.more_duplicates.saturating_add(1);
        }
        if let Some(old) = self.index.nodes.get_mut(there.0 as usize) {
            *old = Node {
                name_start: old.name_start,
                name_length: old.name_length,
                ..node
            };
        }
    }

    fn insert(&mut self, parent: u32, name: &[u8], mut node: Node) -> Result<u32, NoMemory> {
        let index = &mut self.index;
        (index.names.try_reserve(name.len()))
            .map_err(|_| NoMemory::of::<u8>(index.names.len().saturating_add(name.len())))?;
        let length = index.nodes.len();
        if length == index.nodes.capacity() {
            // More directories than claimed entries; a list of twice the length would waste memory.
            let more = length / 8 + 16;
            (index.nodes.try_reserve_exact(more))
                .map_err(|_| NoMemory::of::<Node>(length.saturating_add(more)))?;
        }
        // Both conversions succeed: names end below 4 GiB and components have at most 255 bytes (see `add`).
        node.name_start = u32::try_from(index.names.len()).unwrap_or(u32::MAX);
        node.name_length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        node.parent = parent;
        let at = u32::try_from(length).unwrap_or(u32::MAX);
        index.names.extend_from_slice(name);
        let is_directory = node.method == EntryMethod::Directory;
        index.nodes.push(node);
        if self.names == NameUniqueness::Checked || is_directory {
            let name_of = name_of(&index.nodes, &index.names);
            index.by_name.insert(at, name_of)?;
        }
        Ok(at)
    }

    fn finish(mut self) -> Result<Directory, NameTableError> {
        let index = &mut self.index;
        if self.names == NameUniqueness::Assumed {
            let name_of = name_of(&index.nodes, &index.names);
            index.by_name = NameTable::of_nodes(index.nodes.len(), machine::cores(), name_of)?;
        }
        self.order_children()?;
        let overlapping = if self.ascending {
            0
        } else {
            self.mark_overlaps()?
        };
        self.index.open_infallible &= overlapping == 0;
        let mut notes = Vec::new();
        let counts = &self.counts;
        if counts.invalid > 0 {
            let first = counts.first_invalid.as_deref().unwrap_or_default();
            notes.push(format!(
                "skipped {} {INVALID_NAMES}, such as \"{first}\"",
                counts.invalid
            ));
        }
        if !counts.duplicates.is_empty() {
            let more = match counts.more_duplicates {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            notes.push(format!(
                "names that occur twice, the last one counts: {}{more}",
                counts.duplicates.join(", ")
            ));
        }
        if counts.hidden_files > 0 {
            notes.push(format!(
                "{} {HIDDEN_FILES} of the same name",
                counts.hidden_files
            ));
        }
        if overlapping > 0 {
            notes.push(format!(
                "{overlapping} entries overlap others and cannot be read"
            ));
        }
        let unreadable = match self.index.open_infallible {
            true => 0,
            false => self
                .index
                .nodes
                .iter()
                .filter(|node| !node.method.is_readable())
                .count(),
        };
        if unreadable > overlapping {
            notes.push(format!(
                "{} entries cannot be read (encrypted, unknown method, or impossible)",
                unreadable.saturating_sub(overlapping)
            ));
        }
        self.index.names = fallible::compact(self.index.names);
        self.index.nodes = fallible::compact(self.index.nodes);
        Ok(Directory {
            index: self.index,
            data_end: self.data_end,
            notes,
        })
    }

    /// Groups nodes by their directory, in the order of the archive (a counting sort).
    fn order_children(&mut self) -> Result<(), NoMemory> {
        let ZipIndex { nodes, order, .. } = &mut self.index;
        let link = |node: &Node| (node.parent, node.method == EntryMethod::Directory);
        let links = fallible::collect(nodes.iter().skip(1).map(link))?;
        for (parent, is_directory) in &links {
            if let Some(parent) = nodes.get_mut(*parent as usize) {
                parent.compressed_bytes = parent.compressed_bytes.saturating_add(1);
                parent.size_bytes = parent.size_bytes.saturating_add((*is_directory).into());
            }
        }
        let mut first = 0_u64;
        for node in nodes
            .iter_mut()
            .filter(|node| node.method == EntryMethod::Directory)
        {
            node.header_offset = first;
            first = first.saturating_add(node.compressed_bytes);
            node.compressed_bytes = 0;
        }
        *order = fallible::repeat(Position(0), links.len())?;
        for (child, (parent, _)) in (1_u32..).zip(links) {
            let Some(parent) = nodes.get_mut(parent as usize) else {
                continue;
            };
            let place = parent.header_offset.saturating_add(parent.compressed_bytes);
            parent.compressed_bytes = parent.compressed_bytes.saturating_add(1);
            if let Some(slot) = usize::try_from(place)
                .ok()
                .and_then(|place| order.get_mut(place))
            {
                *slot = Position(child);
            }
        }
        Ok(())
    }

    /// Marks files whose bytes, including the local header, overlap another file's; returns their number.
    fn mark_overlaps(&mut self) -> Result<usize, NoMemory> {
        let files = (0_u32..)
            .zip(&self.index.nodes)
            .filter(|(_, node)| node.method.number().is_some())
            .map(|(at, node)| (node.header_offset, at));
        let mut files = fallible::collect(files)?;
        files.sort_unstable();
        let mut marked = List::default();
        let (mut furthest, mut owner) = (0, 0);
        for (start, at) in files {
            let node = self.index.node(Position(at));
            let name_bytes = self.index.key_length(Position(at));
            let end = data_end(start, name_bytes, node.compressed_bytes).unwrap_or(u64::MAX);
            if start < furthest {
                marked.extend([owner, at]);
            }
            if end > furthest {
                (furthest, owner) = (end, at);
            }
        }
        let mut marked = marked.finish()?;
        marked.sort_unstable();
        marked.dedup();
        for at in &marked {
            if let Some(node) = self.index.nodes.get_mut(*at as usize) {
                node.method = EntryMethod::Overlapping;
            }
        }
        Ok(marked.len())
    }
}

impl Node {
    fn directory(name_start: u32, name_length: u8, parent: u32) -> Self {
        Self {
            name_start,
            parent,
            crc: 0,
            modified_unix: 0,
            state: AtomicU32::new(0),
            name_length,
            method: EntryMethod::Directory,
            header_offset: 0,
            compressed_bytes: 0,
            size_bytes: 0,
        }
    }
}
