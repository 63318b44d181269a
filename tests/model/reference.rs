//! The reference model: keys and values in a map, and the expected content of the file system.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Value, json};
use zarrfs::store::Kind;

use crate::arrays::{Array, Chunk, Chunks, key_of};
use crate::assembly::Access;

/// One version of a key; two versions never have the same number.
#[derive(Debug, Clone)]
pub struct Content {
    pub number: u64,
    pub bytes: Rc<Vec<u8>>,
}

/// The bytes of a file, and the versions on which they depend.
#[derive(Debug, Clone)]
pub struct File {
    pub bytes: Rc<Vec<u8>>,
    /// The elements of a view, if it has any.
    pub elements: Option<Elements>,
}

/// The elements of a view.
#[derive(Debug, Clone)]
pub struct Elements {
    /// The key of the array.
    pub array: String,
    /// The offset of the elements in bytes.
    pub start: usize,
    /// The chunk of each byte.
    pub chunks: Vec<usize>,
}

/// The expected meaning of a path.
#[derive(Debug, Clone)]
pub enum Expected {
    Absent,
    Directory,
    File(File),
    /// A file whose bytes the model does not compute.
    OtherFile,
}

impl Expected {
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Absent => None,
            Self::Directory => Some(Kind::Prefix),
            Self::File(_) | Self::OtherFile => Some(Kind::Object),
        }
    }
}

/// Files and empty directories below a directory, by their path. `Absent` marks a chunk, or a
/// directory of chunks, of a translation: a remote store lists all chunks of the grid.
type Files = BTreeMap<Vec<u8>, Expected>;

/// An array of the hierarchy.
#[derive(Debug, Clone)]
pub struct StoredArray {
    pub array: Array,
    pub chunks: Chunks,
    attributes: Value,
}

/// The content of the source.
#[derive(Debug, Clone)]
pub struct Reference {
    pub is_v3: bool,
    /// Whether every access has to wait.
    pub is_remote: bool,
    /// Whether the store has listings; otherwise names come from consolidated metadata.
    pub is_listed: bool,
    /// Whether `.zarrfs` exists, and whether it is listed.
    pub views: Option<bool>,
    pub arrays: BTreeMap<String, StoredArray>,
    pub keys: BTreeMap<Vec<u8>, Content>,
    last: u64,
    /// The views of each directory.
    cache: RefCell<BTreeMap<Vec<u8>, Rc<Files>>>,
}

/// The formats that are listed in addition to those of every node.
pub const FORMATS: &str = "npy,bin,chunks,inner,as-v2,as-v3,unsharded";
const HIDDEN: &[u8] = b".zarrfs";
const OF_NODES: [&str; 3] = ["attributes.json", "info.json", "README.txt"];

fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    match prefix {
        b"" => name.to_vec(),
        _ => [prefix, b"/", name].concat(),
    }
}

/// Returns the path below a prefix; `None` if it is not below it.
fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    match prefix {
        b"" => Some(path).filter(|path| !path.is_empty()),
        _ => path.strip_prefix(prefix)?.strip_prefix(b"/"),
    }
}

/// Returns the names of files and directories directly below a prefix.
fn children<'a>(
    paths: impl Iterator<Item = (&'a Vec<u8>, Kind)>,
    prefix: &[u8],
) -> BTreeMap<Vec<u8>, Kind> {
    let mut names = BTreeMap::new();
    for (path, kind) in paths {
        let Some(rest) = below(path, prefix) else {
            continue;
        };
        match rest.iter().position(|byte| *byte == b'/') {
            Some(end) => names.insert(rest[..end].to_vec(), Kind::Prefix),
            None => names.insert(rest.to_vec(), kind),
        };
    }
    names
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

fn known(bytes: Vec<u8>) -> Expected {
    Expected::File(File {
        bytes: bytes.into(),
        elements: None,
    })
}

impl Reference {
    pub fn new(is_v3: bool, access: Access, views: Option<bool>) -> Self {
        let mut new = Self {
            is_v3,
            is_remote: access != Access::Local,
            is_listed: access != Access::Unlisted,
            views,
            arrays: BTreeMap::new(),
            keys: BTreeMap::new(),
            last: 0,
            cache: RefCell::default(),
        };
        new.write_groups();
        new
    }

    /// Sets a key, or removes it.
    pub fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.last += 1;
        self.cache.borrow_mut().clear();
        match value {
            None => drop(self.keys.remove(key)),
            Some(bytes) => {
                let (number, bytes) = (self.last, Rc::new(bytes));
                self.keys.insert(key.to_vec(), Content { number, bytes });
            }
        }
    }

    /// Writes the documents of the root and of the group `g`. For a store without listings, those
    /// of the root contain all others.
    fn write_groups(&mut self) {
        let (document, group) = match self.is_v3 {
            true => ("zarr.json", json!({"zarr_format": 3, "node_type": "group"})),
            false => (".zgroup", json!({"zarr_format": 2})),
        };
        let mut root = group.clone();
        self.set(format!("g/{document}").as_bytes(), Some(pretty(&group)));
        if !self.is_listed {
            let mut copies = serde_json::Map::new();
            for (key, stored) in &self.arrays {
                for (name, value) in stored.array.documents(&stored.attributes) {
                    let path = if self.is_v3 {
                        key.clone()
                    } else {
                        format!("{key}/{name}")
                    };
                    copies.insert(path, value);
                }
            }
            let path = if self.is_v3 {
                "g".into()
            } else {
                format!("g/{document}")
            };
            copies.insert(path, group.clone());
            if self.is_v3 {
                root["consolidated_metadata"] =
                    json!({"kind": "inline", "must_understand": false, "metadata": copies});
            } else {
                copies.insert(document.into(), group);
                let copies = json!({"zarr_consolidated_format": 1, "metadata": copies});
                self.set(b".zmetadata", Some(pretty(&copies)));
            }
        }
        self.set(document.as_bytes(), Some(pretty(&root)));
    }

    /// Adds an array without chunks.
    pub fn add_array(&mut self, key: &str, array: Array) {
        let attributes = json!({"number": 0});
        for (name, value) in array.documents(&attributes) {
            self.set(format!("{key}/{name}").as_bytes(), Some(pretty(&value)));
        }
        let stored = StoredArray {
            array,
            chunks: Chunks::new(),
            attributes,
        };
        self.arrays.insert(key.into(), stored);
        self.write_groups();
    }

    /// Writes the document of an array with other attributes, and returns its key.
    pub fn set_attributes(&mut self, key: &str, number: u64) -> Vec<u8> {
        let stored = self.arrays.get_mut(key).expect("an array");
        stored.attributes = json!({"number": number});
        let mut documents = stored.array.documents(&stored.attributes);
        let (name, value) = documents.pop().expect("a document");
        let document = format!("{key}/{name}").into_bytes();
        self.set(&document, Some(pretty(&value)));
        document
    }

    /// Writes or removes a chunk, and returns its key.
    pub fn set_chunk(&mut self, key: &str, chunk: usize, seed: Option<u64>) -> Vec<u8> {
        let stored = self.arrays.get_mut(key).expect("an array");
        let path = format!("{key}/{}", stored.array.chunk_key(chunk)).into_bytes();
        let written: Option<Rc<Chunk>> = seed.map(|seed| stored.array.write_chunk(seed).into());
        match &written {
            Some(written) => stored.chunks.insert(chunk, Rc::clone(written)),
            None => stored.chunks.remove(&chunk),
        };
        self.set(&path, written.map(|written| written.encoded.clone()));
        path
    }

    /// Returns the version number of a chunk; `None` for an absent chunk.
    pub fn chunk_content(&self, key: &str, chunk: usize) -> Option<u64> {
        let array = &self.arrays[key].array;
        let path = format!("{key}/{}", array.chunk_key(chunk));
        self.keys.get(path.as_bytes()).map(|content| content.number)
    }

    /// Returns the version numbers of an array's documents.
    pub fn document_contents(&self, key: &str) -> Vec<u64> {
        let names = ["zarr.json", ".zarray", ".zattrs"];
        let paths = names.map(|name| format!("{key}/{name}"));
        let found = paths
            .iter()
            .filter_map(|path| self.keys.get(path.as_bytes()));
        found.map(|content| content.number).collect()
    }

    /// Returns the chunk directories of arrays that appear without keys, because a store without
    /// listings shows all chunks of the grid.
    fn possible_keys(&self) -> Vec<Vec<u8>> {
        let mut found: Vec<_> = self.keys.keys().cloned().collect();
        for (key, stored) in self.arrays.iter().filter(|_| !self.is_listed) {
            let chunks = 0..stored.array.chunk_count();
            found.extend(
                chunks.map(|chunk| format!("{key}/{}", stored.array.chunk_key(chunk)).into_bytes()),
            );
        }
        found
    }

    fn native(&self, path: &[u8]) -> Expected {
        let keys = self.possible_keys();
        let is_directory =
            |path: &[u8]| path.is_empty() || keys.iter().any(|key| below(key, path).is_some());
        match self.keys.get(path) {
            Some(content) => Expected::File(File {
                bytes: Rc::clone(&content.bytes),
                elements: None,
            }),
            None if is_directory(path) => Expected::Directory,
            None => Expected::Absent,
        }
    }

    /// Returns the native directory whose views contain a path, and the path below `.zarrfs`.
    fn split(path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut parts = path.split(|byte| *byte == b'/');
        let before: Vec<&[u8]> = parts.by_ref().take_while(|part| *part != HIDDEN).collect();
        let after: Vec<&[u8]> = parts.collect();
        let before = before.join(&b'/');
        (before.len() < path.len()).then(|| (before, after.join(&b'/')))
    }

    /// Returns the views in the `.zarrfs` of a native directory.
    fn views(&self, prefix: &[u8]) -> Rc<Files> {
        if let Some(files) = self.cache.borrow().get(prefix) {
            return Rc::clone(files);
        }
        let files = Rc::new(self.compute_views(prefix));
        let mut cache = self.cache.borrow_mut();
        cache.insert(prefix.to_vec(), Rc::clone(&files));
        files
    }

    fn compute_views(&self, prefix: &[u8]) -> Files {
        let mut files = Files::new();
        for name in OF_NODES {
            files.insert(name.into(), Expected::OtherFile);
        }
        let Ok(prefix) = std::str::from_utf8(prefix) else {
            return files;
        };
        if let Some(stored) = self.arrays.get(prefix) {
            let attributes = match self.is_v3 {
                true => pretty(&stored.attributes),
                false => self.keys[format!("{prefix}/.zattrs").as_bytes()]
                    .bytes
                    .to_vec(),
            };
            files.insert("attributes.json".into(), known(attributes));
            let name = prefix.rsplit('/').next().expect("a name");
            self.add_views(prefix, stored, name, "", &mut files);
        }
        for (key, stored) in &self.arrays {
            let name = below(key.as_bytes(), prefix.as_bytes());
            if let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok())
                && !name.contains('/')
            {
                self.add_views(key, stored, name, &format!("{name}."), &mut files);
            }
        }
        if prefix.is_empty() {
            self.add_translations(&mut files);
        }
        files
    }

    fn add_views(
        &self,
        key: &str,
        stored: &StoredArray,
        name: &str,
        before: &str,
        files: &mut Files,
    ) {
        let StoredArray { array, chunks, .. } = stored;
        let (elements, owners) = array.decoded(chunks);
        let (npy, start) = array.npy(&elements);
        let view = |bytes: Vec<u8>, start, chunks| {
            Expected::File(File {
                bytes: bytes.into(),
                elements: Some(Elements {
                    array: key.into(),
                    start,
                    chunks,
                }),
            })
        };
        files.insert(
            format!("{name}.npy").into(),
            view(npy, start, owners.clone()),
        );
        files.insert(format!("{name}.bin").into(), view(elements, 0, owners));
        for chunk in 0..array.chunk_count() {
            let bytes = array.chunk_view(chunks, chunk);
            let owners = vec![chunk; bytes.len()];
            let path = format!("{before}chunks/{}", array.chunk_key(chunk));
            files.insert(path.into(), view(bytes, 0, owners));
        }
        if array.is_sharded {
            for part in array.part_positions() {
                let bytes = array.part_view(chunks, &part);
                let owners = vec![array.place_of_part(&part).0; bytes.len()];
                let path = format!("{before}inner/{}", key_of(&part, false, true));
                files.insert(path.into(), view(bytes, 0, owners));
            }
        }
    }

    /// Returns the root and all directories outside of arrays, with a trailing `/`.
    fn groups(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::from([String::new()]);
        let keys = self
            .keys
            .keys()
            .filter_map(|key| std::str::from_utf8(key).ok());
        let is_of_array = |key: &str| {
            let mut arrays = self.arrays.keys();
            arrays.any(|array| below(key.as_bytes(), array.as_bytes()).is_some())
        };
        for key in keys {
            let directories = key.match_indices('/').map(|(end, _)| &key[..=end]);
            found.extend(
                directories
                    .filter(|path| !is_of_array(path))
                    .map(str::to_owned),
            );
        }
        found
    }

    /// Adds the translations: documents whose bytes the model does not compute, and chunks with
    /// their stored bytes.
    fn add_translations(&self, files: &mut Files) {
        let targets = match self.is_v3 {
            true => &["as-v2", "unsharded"][..],
            false => &["as-v3"],
        };
        for target in targets {
            let to_v3 = *target != "as-v2";
            let (of_array, of_group) = match to_v3 {
                true => (&["zarr.json"][..], &["zarr.json"][..]),
                false => (&[".zarray", ".zattrs"][..], &[".zgroup"][..]),
            };
            let mut documents = Vec::new();
            // In a translation, a directory without a document becomes a group.
            for group in self.groups() {
                documents.extend(of_group.iter().map(|name| format!("{group}{name}")));
            }
            if !to_v3 && (!self.is_remote || !self.is_listed) {
                documents.push(".zmetadata".into());
            }
            for (key, stored) in &self.arrays {
                if *target == "unsharded" && !stored.array.is_sharded {
                    // The chunks of the same array.
                    let array = format!("{key}/").into_bytes();
                    for key in self.possible_keys() {
                        let path = [target.as_bytes(), b"/", &key].concat();
                        if !key.starts_with(&array) {
                            continue;
                        }
                        let directories = (0..path.len()).filter(|end| path[*end] == b'/');
                        for end in directories.filter(|_| !self.is_listed) {
                            files.insert(path[..end].to_vec(), Expected::Directory);
                        }
                        files.insert(path, self.native(&key));
                    }
                    continue;
                }
                documents.extend(of_array.iter().map(|name| format!("{key}/{name}")));
                let StoredArray { array, chunks, .. } = stored;
                for part in array.part_positions() {
                    let is_slash = array.is_slash || !array.is_v3;
                    let name = key_of(&part, to_v3, is_slash);
                    let path = format!("{target}/{key}/{name}").into_bytes();
                    let bytes = array.encoded_part(chunks, &part);
                    let expected = bytes.map_or(Expected::Absent, |bytes| known(bytes.to_vec()));
                    files.insert(path, expected);
                    for axes in usize::from(!to_v3)..part.len() * usize::from(is_slash) {
                        let source = array.directory_key(&part[..axes]);
                        let source = format!("{key}{source}").into_bytes();
                        let exists = matches!(self.native(&source), Expected::Directory);
                        let name = key_of(&part[..axes], to_v3, true);
                        let path = format!("{target}/{key}/{name}").into_bytes();
                        if exists || !array.is_slash {
                            files.insert(path, Expected::Directory);
                        }
                    }
                }
            }
            for document in documents {
                files.insert(format!("{target}/{document}").into(), Expected::OtherFile);
            }
        }
    }

    /// Returns the expected meaning of a path of the mount.
    pub fn expected(&self, path: &[u8]) -> Expected {
        let split = self.views.and_then(|_| Self::split(path));
        let Some((prefix, rest)) = split else {
            return self.native(path);
        };
        if !matches!(self.native(&prefix), Expected::Directory) {
            return Expected::Absent;
        }
        let files = self.views(&prefix);
        match files.get(&rest) {
            Some(found) => found.clone(),
            None if rest.is_empty() => Expected::Directory,
            None => {
                let exists = |(path, expected): (&Vec<u8>, &Expected)| {
                    expected.kind().is_some() && below(path, &rest).is_some()
                };
                match files.iter().any(exists) {
                    true => Expected::Directory,
                    false => Expected::Absent,
                }
            }
        }
    }

    /// Returns the names that a directory lists, without `.` and `..`.
    pub fn names(&self, path: &[u8]) -> BTreeMap<Vec<u8>, Kind> {
        self.names_with(path, self.is_remote)
    }

    /// Returns the names that a directory may list during store failures. A translation lists names
    /// that it cannot look up, and they fail when they are opened.
    pub fn possible_names(&self, path: &[u8]) -> BTreeMap<Vec<u8>, Kind> {
        let mut names = self.names_with(path, true);
        let more: &[(&str, Kind)] = match (self.views, path) {
            (Some(_), b".zarrfs") => &[
                ("as-v2", Kind::Prefix),
                ("as-v3", Kind::Prefix),
                ("unsharded", Kind::Prefix),
            ],
            (Some(_), b".zarrfs/as-v2") => &[(".zmetadata", Kind::Object)],
            _ => &[],
        };
        names.extend(
            more.iter()
                .map(|(name, kind)| (name.as_bytes().to_vec(), *kind)),
        );
        names
    }

    fn names_with(&self, path: &[u8], has_all_chunks: bool) -> BTreeMap<Vec<u8>, Kind> {
        if let Some((prefix, rest)) = self.views.and_then(|_| Self::split(path)) {
            let files = self.views(&prefix);
            let listed = files
                .iter()
                .filter_map(|(path, expected)| match expected.kind() {
                    None if !has_all_chunks => None,
                    kind => Some((path, kind.unwrap_or(Kind::Object))),
                });
            return children(listed, &rest);
        }
        let keys = self.possible_keys();
        let mut names = children(keys.iter().map(|key| (key, Kind::Object)), path);
        if !self.is_listed {
            names.retain(|name, kind| *kind == Kind::Prefix || self.is_in_metadata(path, name));
        }
        if self.views == Some(true) {
            names.insert(HIDDEN.into(), Kind::Prefix);
        }
        names
    }

    /// Returns whether metadata contain the name of a value.
    fn is_in_metadata(&self, prefix: &[u8], name: &[u8]) -> bool {
        let is_document = name.starts_with(b".z") || name == b"zarr.json";
        let key = join(prefix, name);
        let is_chunk = |(array, stored): (&String, &StoredArray)| {
            let mut chunks = 0..stored.array.chunk_count();
            chunks
                .any(|chunk| format!("{array}/{}", stored.array.chunk_key(chunk)).as_bytes() == key)
        };
        is_document || self.arrays.iter().any(is_chunk)
    }

    /// Returns the listed paths from the root, at most `most`.
    pub fn paths(&self, most: usize) -> Vec<Vec<u8>> {
        let mut found = vec![Vec::new()];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            let is_directory = matches!(self.expected(&path), Expected::Directory);
            for name in self.names(&path).into_keys().filter(|_| is_directory) {
                found.push(join(&path, &name));
            }
            if self.views == Some(false) && is_directory && Self::split(&path).is_none() {
                found.push(join(&path, HIDDEN));
            }
            if found.len() > most {
                break;
            }
        }
        found
    }

    /// Returns whether an unlisted view may have this path.
    pub fn is_unlisted_view(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next();
        Self::split(path).is_some() && name == Some(b".zmetadata")
    }

    /// Returns the names used anywhere at any time, for lookups of absent names.
    pub fn all_names(&self) -> Vec<Vec<u8>> {
        let parts = self
            .keys
            .keys()
            .flat_map(|key| key.split(|byte| *byte == b'/'));
        let names: BTreeSet<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
        names.into_iter().collect()
    }
}
