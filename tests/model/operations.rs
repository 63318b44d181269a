//! Random requests and source changes; each reply is checked against the reference model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use zarrfs::fs::{FsError, Handle, Ino, Kind, Node, OpenedFile, StoreError};

use crate::arrays::{self, Array};
use crate::assembly::{Access, Assembly, Mounted, assembly};
use crate::failing::{self, Failure, Plan};
use crate::kernel::{self, Part};
use crate::reference::{Expected, File, Reference};

/// An operation; its numbers select among the existing objects.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Looks up a path from the root.
    Lookup(Index),
    /// Looks up and opens a file with elements, and reads a part.
    ReadElements(Index, Range),
    LookupAbsent(Index, Index),
    Getattr(Index),
    Open(Index),
    Read(Index, Range),
    /// Reads without a handle.
    ReadInode(Index, Range),
    Release(Index),
    Opendir(Index),
    /// Lists from a name that was listed before, or from the last one; at most this number of names.
    List(Index, Option<Index>, u8, bool),
    Releasedir(Index),
    Forget(Index),
    SetChunk(Index, Index, Option<u64>, bool),
    SetAttributes(Index, u64),
    SetValue(Index, Option<u16>, bool),
    Fail(Plan),
}

/// An offset in a file, which may be its end, and a number of bytes.
type Range = (Index, u16);

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let index = any::<Index>;
    let failure = prop::sample::select(vec![Failure::Unavailable, Failure::TimedOut, Failure::Io]);
    let range = || (any::<Index>(), 0..300_u16);
    let first = prop_oneof![0..3_u64, 0..20_u64];
    let plan = (first, any::<bool>(), failure).prop_map(|(first, is_lasting, failure)| Plan {
        first,
        is_lasting,
        failure,
    });
    prop_oneof![
        6 => index().prop_map(Lookup),
        1 => (index(), index()).prop_map(|(parent, name)| LookupAbsent(parent, name)),
        2 => index().prop_map(Getattr),
        4 => index().prop_map(Open),
        8 => (index(), range()).prop_map(|(path, range)| ReadElements(path, range)),
        8 => (index(), range()).prop_map(|(file, range)| Read(file, range)),
        1 => (index(), range()).prop_map(|(ino, range)| ReadInode(ino, range)),
        2 => index().prop_map(Release),
        3 => index().prop_map(Opendir),
        8 => (index(), prop::option::weighted(0.2, index()), 1..6_u8, any::<bool>())
            .prop_map(|(directory, from, most, is_plus)| List(directory, from, most, is_plus)),
        1 => index().prop_map(Releasedir),
        2 => index().prop_map(Forget),
        6 => (index(), index(), prop::option::weighted(0.8, any::<u64>()), any::<bool>())
            .prop_map(|(array, chunk, seed, in_place)| SetChunk(array, chunk, seed, in_place)),
        1 => (index(), any::<u64>()).prop_map(|(array, number)| SetAttributes(array, number)),
        2 => (index(), prop::option::weighted(0.7, 0..400_u16), any::<bool>())
            .prop_map(|(name, size, in_place)| SetValue(name, size, in_place)),
        4 => plan.prop_map(Fail),
    ]
}

/// A source, its mount options, and the operations.
#[derive(Debug, Clone)]
pub struct Case {
    assembly: Assembly,
    arrays: Vec<(Array, Vec<Option<u64>>)>,
    values: Vec<(Index, u16)>,
    operations: Vec<Operation>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.assembly)?;
        for (array, seeds) in &self.arrays {
            writeln!(f, "{array:?} {seeds:?}")?;
        }
        writeln!(f, "values: {:?}", self.values)?;
        let mut operations = self.operations.iter();
        operations.try_for_each(|operation| writeln!(f, "{operation:?}"))
    }
}

pub fn case() -> impl Strategy<Value = Case> {
    let arrays = any::<bool>().prop_flat_map(|is_v3| {
        let seeds = prop::collection::vec(prop::option::weighted(0.7, any::<u64>()), 8);
        prop::collection::vec((arrays::array(is_v3), seeds), 1..3)
    });
    let values = prop::collection::vec((any::<Index>(), 0..400_u16), 0..4);
    let operations = prop::collection::vec(operation(), 1..60);
    (assembly(), arrays, values, operations).prop_map(|(assembly, arrays, values, operations)| {
        Case {
            assembly,
            arrays,
            values,
            operations,
        }
    })
}

/// An open that takes longer may have had no time to compare chunks.
const COMPARE_TIME: Duration = Duration::from_millis(50);

/// The keys of the arrays.
const ARRAYS: [&str; 2] = ["g/a", "b"];
/// The keys of values that do not belong to Zarr.
const VALUES: [&[u8]; 6] = [
    b"other",
    b"g/with space",
    "g/\u{fc}/deep/er".as_bytes(),
    b"g/\xff\xfe",
    b"plain/0",
    b"plain/1",
];

/// Returns bytes that are derived from a number.
fn value(size: u16, number: u64) -> Vec<u8> {
    let start = number.wrapping_mul(31);
    (0..u64::from(size))
        .map(|at| (start.wrapping_add(at * at) >> 3) as u8)
        .collect()
}

/// An inode number that the kernel knows.
#[derive(Debug)]
struct Inode {
    ino: Ino,
    path: Vec<u8>,
    lookups: u64,
    expected: Expected,
    /// The versions on which the content depends.
    identity: Vec<u64>,
    /// For a view, the version of each chunk that was served to pages that the kernel caches.
    served: BTreeMap<usize, Option<u64>>,
    /// Whether a read has failed, which may have served some chunks before.
    is_uncertain: bool,
    /// Whether an open was refused, so that the name leads to another number.
    is_retired: bool,
}

#[derive(Debug)]
struct OpenFile {
    ino: Ino,
    handle: Handle,
}

#[derive(Debug)]
struct OpenDirectory {
    ino: Ino,
    path: Vec<u8>,
    handle: Handle,
    /// Names with their next cookies, as far as the directory was read.
    listed: Vec<(Vec<u8>, u64)>,
    /// The names that existed all the time, and those that existed at any time.
    always: BTreeMap<Vec<u8>, Kind>,
    ever: BTreeMap<Vec<u8>, Kind>,
    /// Whether the directory was removed; a new one may have its path.
    is_removed: bool,
}

struct State {
    mounted: Mounted,
    reference: Reference,
    inodes: Vec<Inode>,
    files: Vec<OpenFile>,
    directories: Vec<OpenDirectory>,
    changes: u64,
    paths: Vec<Vec<u8>>,
    /// The paths of files with elements.
    elements: Vec<Vec<u8>>,
}

fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

fn pick<'a, T>(all: &'a [T], index: &Index) -> Option<&'a T> {
    (!all.is_empty()).then(|| index.get(all))
}

fn is_stale(error: &FsError) -> bool {
    matches!(error, FsError::Store(StoreError::Stale { .. }))
}

fn is_absent(error: &FsError) -> bool {
    matches!(
        error,
        FsError::Store(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. })
    )
}

/// Runs a case.
///
/// # Panics
/// If a reply is wrong.
pub fn run(case: &Case) {
    let Assembly { access, views, .. } = case.assembly;
    let mut reference = Reference::new(case.arrays[0].0.is_v3, access, views);
    for (key, (array, seeds)) in ARRAYS.iter().zip(&case.arrays) {
        reference.add_array(key, array.clone());
        for chunk in 0..array.chunk_count() {
            let seed = seeds[chunk % seeds.len()];
            if seed.is_some() {
                reference.set_chunk(key, chunk, seed);
            }
        }
    }
    for (index, size) in &case.values {
        if access != Access::Unlisted {
            reference.set(VALUES[index.index(VALUES.len())], Some(value(*size, 0)));
        }
    }
    let mounted = Mounted::new(&reference, case.assembly);
    let before = kernel::counts(&mounted.fs);
    let mut state = State {
        paths: Vec::new(),
        elements: Vec::new(),
        mounted,
        reference,
        inodes: Vec::new(),
        files: Vec::new(),
        directories: Vec::new(),
        changes: 0,
    };
    state.find_paths();
    for operation in &case.operations {
        state.apply(operation);
    }
    state.forget_all();
    assert_eq!(
        kernel::counts(&state.mounted.fs),
        before,
        "something is not forgotten"
    );
}

impl State {
    /// Sends a request. After an injected failure, sends the request again, without failures.
    fn send<T>(&self, send: impl Fn(&Self) -> Result<T, FsError>) -> Result<T, FsError> {
        let faults = &self.mounted.faults;
        let answer = send(self);
        match answer {
            Err(error) if failing::is_injected(&error) => {
                assert!(faults.fired() > 0, "{error}");
                faults.set(None);
                let again = send(self);
                if let Err(error) = &again {
                    assert!(!failing::is_injected(error), "a failure is cached: {error}");
                }
                again
            }
            answer => answer,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Lookup(index) => {
                let path = index.get(&self.paths).clone();
                let _ = self.lookup(&path);
            }
            Operation::LookupAbsent(parent, name) => {
                let mut path = parent.get(&self.paths).clone();
                let name = name.get(&self.reference.all_names()).clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend(name);
                if !self.reference.is_unlisted_view(&path) {
                    self.lookup(&path);
                }
            }
            Operation::Getattr(index) => self.getattr(index),
            Operation::Open(index) => {
                if let Some(inode) = pick(&self.inodes, index)
                    && inode.expected.kind() == Some(Kind::Object)
                {
                    self.open(inode.ino);
                }
            }
            Operation::ReadElements(index, range) => {
                let Some(path) = pick(&self.elements, index).cloned() else {
                    return;
                };
                let ino = self.lookup(&path).expect("it is there");
                let before = self.files.len();
                self.open(ino);
                if let Some(file) = self.files.get(before) {
                    self.read(ino, Some(file.handle), range);
                }
            }
            Operation::Read(index, range) => {
                let found = pick(&self.files, index).map(|file| (file.ino, file.handle));
                if let Some((ino, handle)) = found {
                    self.read(ino, Some(handle), range);
                }
            }
            Operation::ReadInode(index, range) => {
                if self.mounted.fs.is_open_infallible()
                    && let Some(inode) = pick(&self.inodes, index)
                    && inode.expected.kind() == Some(Kind::Object)
                    && !inode
                        .path
                        .split(|byte| *byte == b'/')
                        .any(|part| part == b".zarrfs")
                {
                    self.read(inode.ino, None, range);
                }
            }
            Operation::Release(index) => {
                if !self.files.is_empty() {
                    let file = self.files.swap_remove(index.index(self.files.len()));
                    self.mounted.fs.release(file.handle);
                }
            }
            Operation::Opendir(index) => self.opendir(index),
            Operation::List(index, from, most, is_plus) => {
                if !self.directories.is_empty() {
                    let at = index.index(self.directories.len());
                    self.list(at, from.as_ref(), usize::from(*most), *is_plus);
                }
            }
            Operation::Releasedir(index) => {
                if !self.directories.is_empty() {
                    let at = index.index(self.directories.len());
                    let directory = self.directories.swap_remove(at);
                    self.mounted.fs.releasedir(directory.handle);
                }
            }
            Operation::Forget(index) => {
                if !self.inodes.is_empty() {
                    self.forget(index.index(self.inodes.len()));
                }
            }
            Operation::Fail(plan) => {
                let faults = &self.mounted.faults;
                let first = faults.calls() + plan.first;
                faults.set(Some(Plan { first, ..*plan }));
            }
            change => {
                if self.mounted.can_change() {
                    self.change(change);
                }
            }
        }
    }

    fn find_paths(&mut self) {
        self.paths = self.reference.paths(500);
        let has_elements = |path: &Vec<u8>| match self.reference.expected(path) {
            Expected::File(file) => file.elements.is_some(),
            _ => false,
        };
        let paths = self.paths.iter().cloned();
        self.elements = paths.filter(has_elements).collect();
    }

    /// Applies a change to the model and to the source.
    fn change(&mut self, change: &Operation) {
        let arrays: Vec<String> = self.reference.arrays.keys().cloned().collect();
        let reference = &mut self.reference;
        let (key, in_place) = match change {
            Operation::SetChunk(array, chunk, seed, in_place) => {
                let array = &arrays[array.index(arrays.len())];
                let chunk = chunk.index(reference.arrays[array].array.chunk_count());
                if seed.is_none() && reference.chunk_content(array, chunk).is_none() {
                    return;
                }
                (reference.set_chunk(array, chunk, *seed), *in_place)
            }
            // The root document contains a copy of the attributes.
            Operation::SetAttributes(array, number) if reference.is_listed => {
                let array = &arrays[array.index(arrays.len())];
                (reference.set_attributes(array, *number), false)
            }
            Operation::SetValue(name, size, in_place) if reference.is_listed => {
                let key = VALUES[name.index(VALUES.len())];
                if size.is_none() && !reference.keys.contains_key(key) {
                    return;
                }
                let value = size.map(|size| value(size, self.changes));
                reference.set(key, value);
                (key.to_vec(), *in_place)
            }
            _ => return,
        };
        self.mounted.change(&self.reference, &key, in_place);
        self.changes += 1;
        self.find_paths();
        for directory in &mut self.directories {
            let found = self.reference.expected(&directory.path);
            directory.is_removed |= !matches!(found, Expected::Directory);
            let now = self.reference.names(&directory.path);
            directory
                .always
                .retain(|name, kind| now.get(name) == Some(kind));
            // A rename over a name can change the position of the name in its directory.
            let name = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            directory.always.remove(name);
            directory
                .ever
                .extend(self.reference.possible_names(&directory.path));
        }
    }

    /// Returns the versions on which the content of a path depends, apart from chunks.
    fn identity(&self, path: &[u8], expected: &Expected) -> Vec<u64> {
        match expected {
            Expected::File(File {
                elements: Some(elements),
                ..
            }) => self.reference.document_contents(&elements.array),
            Expected::File(_) => match self.reference.keys.get(path) {
                Some(content) => vec![content.number],
                None => vec![self.changes],
            },
            Expected::Directory if !path.windows(7).any(|part| part == b".zarrfs") => Vec::new(),
            _ => vec![self.changes],
        }
    }

    /// Looks up a path from the root, like a kernel without cached names.
    fn lookup(&mut self, path: &[u8]) -> Option<Ino> {
        if path.is_empty() {
            return None;
        }
        let expected = self.reference.expected(path);
        let found = self.send(|state| state.walk(path));
        // The path continues below a file.
        let found = match found {
            Err(error) if is_absent(&error) => None,
            found => found.unwrap_or_else(|error| panic!("lookup {}: {error}", shown(path))),
        };
        let kind = found.map(|node| node.stat.kind);
        let kind_is_right = kind == expected.kind();
        assert!(
            kind_is_right,
            "lookup {}: {kind:?}, not {expected:?}",
            shown(path)
        );
        let node = found?;
        if let Expected::File(file) = &expected {
            assert_eq!(
                node.stat.size_bytes,
                file.bytes.len() as u64,
                "size of {}",
                shown(path)
            );
        }
        let identity = self.identity(path, &expected);
        let known = self.inodes.iter_mut().find(|inode| inode.ino == node.ino);
        let Some(known) = known else {
            self.inodes.push(Inode {
                ino: node.ino,
                path: path.to_vec(),
                lookups: 1,
                expected,
                identity,
                served: BTreeMap::new(),
                is_uncertain: false,
                is_retired: false,
            });
            return Some(node.ino);
        };
        known.lookups += 1;
        // An inode number stands for one content of one key. Some views have two paths.
        if !path.windows(7).any(|part| part == b".zarrfs") {
            assert_eq!(shown(&known.path), shown(path), "inode {:?}", node.ino);
            assert_eq!(known.identity, identity, "two contents of {}", shown(path));
        }
        if let (Expected::File(known), Expected::File(now)) = (&known.expected, &expected)
            && now.elements.is_none()
        {
            assert_eq!(known.bytes, now.bytes, "two contents of {}", shown(path));
        }
        Some(node.ino)
    }

    fn walk(&self, path: &[u8]) -> Result<Option<Node>, FsError> {
        let fs = &self.mounted.fs;
        let mut at = Ino::ROOT;
        let mut parts = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = parts.next() {
            let found = kernel::lookup(fs, at, name);
            if at != Ino::ROOT {
                fs.forget(at, 1);
            }
            match found? {
                Some(node) if parts.peek().is_some() => at = node.ino,
                found => return Ok(found),
            }
        }
        Ok(None)
    }

    fn inode(&self, ino: Ino) -> &Inode {
        let found = self.inodes.iter().find(|inode| inode.ino == ino);
        found.expect("open files are known")
    }

    fn inode_mut(&mut self, ino: Ino) -> &mut Inode {
        let found = self.inodes.iter_mut().find(|inode| inode.ino == ino);
        found.expect("open files are known")
    }

    /// Returns whether the path of an inode still has the same content.
    fn is_current(&self, inode: &Inode) -> bool {
        // After a failure, the file contains a diagnostic until the failure is over.
        if inode.path.ends_with(b"README.txt") && self.mounted.faults.fired() > 0 {
            return false;
        }
        let now = self.reference.expected(&inode.path);
        now.kind() == inode.expected.kind() && self.identity(&inode.path, &now) == inode.identity
    }

    /// Returns whether a served chunk has changed.
    fn has_changed(&self, inode: &Inode) -> bool {
        let Expected::File(File {
            elements: Some(elements),
            ..
        }) = &inode.expected
        else {
            return false;
        };
        let content = |chunk: &usize| self.reference.chunk_content(&elements.array, *chunk);
        inode
            .served
            .iter()
            .any(|(chunk, served)| content(chunk) != *served)
    }

    fn may_have_changed(&self, inode: &Inode) -> bool {
        inode.is_uncertain || self.has_changed(inode)
    }

    fn getattr(&mut self, index: &Index) {
        let Some(inode) = pick(&self.inodes, index) else {
            return;
        };
        let found = self.send(|state| kernel::getattr(&state.mounted.fs, inode.ino, None));
        let path = shown(&inode.path);
        match found {
            Ok(node) => {
                assert_eq!(Some(node.stat.kind), inode.expected.kind(), "{path}");
                let is_native = self.reference.keys.contains_key(&inode.path);
                assert!(!is_native || self.is_current(inode), "{path} has changed");
                if let Expected::File(file) = &inode.expected {
                    assert_eq!(node.stat.size_bytes, file.bytes.len() as u64, "{path}");
                }
            }
            Err(error) => {
                assert!(
                    is_stale(&error) || is_absent(&error),
                    "getattr {path}: {error}"
                );
                assert!(!self.is_current(inode), "getattr {path}: {error}");
            }
        }
    }

    fn open(&mut self, ino: Ino) {
        let inode = self.inode(ino);
        let path = inode.path.clone();
        let (fired, start) = (self.mounted.faults.fired(), Instant::now());
        let opened = self.send(|state| kernel::open(&state.mounted.fs, ino));
        match opened {
            Ok(opened) => self.opened(ino, &opened),
            Err(error) => {
                let is_open = self.files.iter().any(|file| file.ino == ino);
                // The open of an open number is refused if chunks have changed, or if that is unknown.
                let may_differ = is_open
                    && (self.may_have_changed(inode)
                        || self.mounted.faults.fired() > fired
                        || start.elapsed() > COMPARE_TIME);
                // With a remote store, chunks are not compared, and a lookup can retire the number.
                let is_retired = inode.is_retired || may_differ || self.reference.is_remote;
                let is_gone = !self.is_current(inode);
                let is_right = is_stale(&error) || is_absent(&error) && is_gone;
                assert!(is_right, "open {}: {error}", shown(&path));
                assert!(is_retired || is_gone, "open {}: {error}", shown(&path));
                if !is_gone {
                    self.inode_mut(ino).is_retired = true;
                    self.open_again(&path);
                }
            }
        }
    }

    /// Opens a path after its number was refused. Another number has the current content; it may
    /// also be open, and be refused in turn.
    fn open_again(&mut self, path: &[u8]) {
        for _ in 0..=self.files.len() {
            let found = self.send(|state| state.walk(path)).unwrap().unwrap();
            let opened = self.send(|state| kernel::open(&state.mounted.fs, found.ino));
            let fs = &self.mounted.fs;
            fs.forget(found.ino, 1);
            match opened {
                Ok(opened) => return fs.release(opened.handle),
                Err(error) => assert!(is_stale(&error), "open {} again: {error}", shown(path)),
            }
            if let Some(inode) = self.inodes.iter_mut().find(|inode| inode.ino == found.ino) {
                inode.is_retired = true;
            }
        }
        panic!("no inode of {} can be opened", shown(path));
    }

    fn opened(&mut self, ino: Ino, opened: &OpenedFile) {
        let is_open = self.files.iter().any(|file| file.ino == ino);
        let inode = self.inode(ino);
        if opened.object.is_constant() {
            assert!(
                !self.has_changed(inode),
                "pages of {} stay cached",
                shown(&inode.path)
            );
        } else if !is_open {
            let inode = self.inode_mut(ino);
            inode.served.clear();
            inode.is_uncertain = false;
        }
        let handle = opened.handle;
        self.files.push(OpenFile { ino, handle });
    }

    fn read(&mut self, ino: Ino, handle: Option<Handle>, range: &Range) {
        let length = match &self.inode(ino).expected {
            Expected::File(file) => file.bytes.len(),
            _ => 1000,
        };
        let (offset, size) = (range.0.index(length + 2), usize::from(range.1));
        let fired = self.mounted.faults.fired();
        let read =
            self.send(|state| kernel::read(&state.mounted.fs, ino, handle, offset as u64, size));
        let may_differ = self.may_have_changed(self.inode(ino));
        let has_failed = self.mounted.faults.fired() > fired;
        self.inode_mut(ino).is_uncertain |= has_failed || read.is_err();
        let inode = self.inode(ino);
        let is_current = self.is_current(inode);
        let path = shown(&inode.path);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                let is_allowed = !is_current || may_differ;
                assert!(is_stale(&error) && is_allowed, "read {path}: {error}");
                return;
            }
        };
        let Expected::File(opened) = &inode.expected else {
            return;
        };
        let part = |all: &[u8]| {
            let start = offset.min(all.len());
            all[start..(start + size).min(all.len())].to_vec()
        };
        let Some(elements) = &opened.elements else {
            assert!(
                bytes == part(&opened.bytes),
                "{size} bytes at {offset} of {path}"
            );
            return;
        };
        let Expected::File(now) = self.reference.expected(&inode.path) else {
            panic!("{path} is no view any more");
        };
        let what = format!("{size} bytes at {offset} of {path}");
        assert!(
            bytes == part(&now.bytes),
            "{what}: {bytes:?}, not {:?}",
            part(&now.bytes)
        );
        let start = offset
            .saturating_sub(elements.start)
            .min(elements.chunks.len());
        let end = (offset + size).saturating_sub(elements.start);
        let end = end.clamp(start, elements.chunks.len());
        let chunks: BTreeSet<usize> = elements.chunks[start..end].iter().copied().collect();
        let array = elements.array.clone();
        for chunk in chunks {
            let content = self.reference.chunk_content(&array, chunk);
            let served = *self.inode_mut(ino).served.entry(chunk).or_insert(content);
            assert_eq!(served, content, "two versions of chunk {chunk}: {what}");
        }
    }

    fn opendir(&mut self, index: &Index) {
        let at = index.index(self.inodes.len() + 1);
        let (ino, path) = match self.inodes.get(at) {
            Some(inode) => (inode.ino, inode.path.clone()),
            None => (Ino::ROOT, Vec::new()),
        };
        let is_directory = match self.inodes.get(at) {
            Some(inode) => inode.expected.kind() == Some(Kind::Prefix),
            None => true,
        };
        if !is_directory {
            return;
        }
        let opened = self.send(|state| kernel::opendir(&state.mounted.fs, ino));
        let names = self.reference.names(&path);
        match opened {
            Ok(handle) => self.directories.push(OpenDirectory {
                ever: self.reference.possible_names(&path),
                ino,
                path,
                handle,
                listed: Vec::new(),
                always: names,
                is_removed: false,
            }),
            Err(error) => {
                let inode = &self.inodes[at];
                let is_gone = (is_stale(&error) || is_absent(&error)) && !self.is_current(inode);
                assert!(is_gone, "opendir {}: {error}", shown(&path));
            }
        }
    }

    fn list(&mut self, at: usize, from: Option<&Index>, most: usize, is_plus: bool) {
        let directory = &mut self.directories[at];
        if let Some(from) = from {
            let length = from.index(directory.listed.len() + 1);
            directory.listed.truncate(length);
        }
        let directory = &self.directories[at];
        let part = Part {
            ino: directory.ino,
            handle: Some(directory.handle),
            cookie: directory.listed.last().map_or(0, |(_, next)| *next),
            most,
            is_plus,
        };
        let page = self.send(|state| kernel::list(&state.mounted.fs, part));
        let path = shown(&directory.path);
        let is_there = !directory.is_removed;
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                assert!(!is_there, "readdir {path}: {error}");
                return;
            }
        };
        for name in &page {
            // The model does not track the lookup, so the kernel forgets it at once.
            name.counted.inspect(|ino| self.mounted.fs.forget(*ino, 1));
        }
        let directory = &mut self.directories[at];
        if page.is_empty() {
            let missing = directory
                .always
                .keys()
                .find(|name| !directory.listed.iter().any(|(listed, _)| listed == *name));
            assert!(missing.is_none(), "{missing:?} is not listed in {path}");
            for dots in [&b"."[..], b".."] {
                let count = directory
                    .listed
                    .iter()
                    .filter(|(name, _)| name == dots)
                    .count();
                assert!(count == 1, "{count} times {} in {path}", shown(dots));
            }
        }
        for name in page {
            let is_dots = matches!(&name.name[..], b"." | b"..");
            let is_twice = directory
                .listed
                .iter()
                .any(|(listed, _)| *listed == name.name);
            let is_stable = is_dots || directory.always.contains_key(&name.name);
            assert!(
                !is_twice || !is_stable,
                "{} twice in {path}",
                shown(&name.name)
            );
            let kind = directory.ever.get(&name.name);
            let kind = kind.or(is_dots.then_some(&Kind::Prefix));
            assert_eq!(kind, Some(&name.kind), "{} in {path}", shown(&name.name));
            directory.listed.push((name.name, name.next));
        }
    }

    /// Forgets an inode number that is not open.
    fn forget(&mut self, at: usize) {
        let ino = self.inodes[at].ino;
        let is_open = self.files.iter().any(|file| file.ino == ino)
            || self
                .directories
                .iter()
                .any(|directory| directory.ino == ino);
        if !is_open {
            let inode = self.inodes.swap_remove(at);
            self.mounted.fs.forget(ino, inode.lookups);
        }
    }

    fn forget_all(&mut self) {
        for file in self.files.drain(..) {
            self.mounted.fs.release(file.handle);
        }
        for directory in self.directories.drain(..) {
            self.mounted.fs.releasedir(directory.handle);
        }
        while !self.inodes.is_empty() {
            self.forget(0);
        }
    }
}
