//! The fixed scenario: every listed name is looked up and read, as by `find` and `cat`, and for
//! every n, the n-th call of the store in each step fails.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;

use zarrfs::fs::{Fs, FsError, Ino, Kind, StoreError};

use crate::arrays::{self, Array};
use crate::assembly::{Access, Assembly, Mounted, Source};
use crate::failing::{self, Failure, Plan};
use crate::is_long;
use crate::kernel::{self, Part};
use crate::reference::{Expected, Reference};

/// The bytes of files that the model does not compute, by path, from a run without failures.
type OtherFiles = BTreeMap<Vec<u8>, Vec<u8>>;

/// Names with their kinds.
type Names = BTreeMap<Vec<u8>, Kind>;

/// More loads than one failed run leaves behind.
const MAX_LEFT_LOADS: usize = 64;

/// The result of a lookup: nothing, a directory, or a file with its bytes.
#[derive(Debug, Clone, PartialEq)]
enum Found {
    Absent,
    Directory,
    File(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failures {
    None,
    /// This call of each step fails, and all calls after it if the failure is lasting.
    Call {
        first: u64,
        is_lasting: bool,
    },
    /// Every call of each step fails in turn. For a store without cached values; a short run leaves
    /// out some calls of long steps.
    EveryCall,
}

struct Walk<'a> {
    mounted: &'a Mounted,
    reference: &'a Reference,
    other: &'a mut OtherFiles,
    failures: Failures,
    /// The number of steps so far.
    steps: Cell<u64>,
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

impl Walk<'_> {
    /// Runs a step with and without failures. The result must be right or an injected failure, and
    /// after a failure the next attempt must be right.
    fn step<T: PartialEq + Debug>(
        &self,
        path: &[u8],
        expected: &T,
        run: impl Fn() -> Result<T, FsError>,
    ) {
        let step = self.steps.get();
        self.steps.set(step + 1);
        match self.failures {
            Failures::None => self.run_with(None, path, expected, &run),
            Failures::Call { first, is_lasting } => {
                let plan = plan(first, is_lasting, step);
                self.run_with(Some(plan), path, expected, &run);
            }
            Failures::EveryCall => {
                let mut first = 0;
                loop {
                    let fired = self.mounted.faults.fired();
                    for is_lasting in [false, true] {
                        let plan = plan(first, is_lasting, step);
                        self.run_with(Some(plan), path, expected, &run);
                    }
                    if self.mounted.faults.fired() == fired {
                        return;
                    }
                    // Different steps leave out different calls.
                    first += if is_long() {
                        1
                    } else {
                        1 + (first + step) % (1 + first / 3)
                    };
                }
            }
        }
    }

    fn run_with<T: PartialEq + Debug>(
        &self,
        plan: Option<Plan>,
        path: &[u8],
        expected: &T,
        run: impl Fn() -> Result<T, FsError>,
    ) {
        let faults = &self.mounted.faults;
        let fired = faults.fired();
        faults.set(plan.map(|plan| Plan {
            first: faults.calls() + plan.first,
            ..plan
        }));
        let answer = run();
        faults.set(None);
        let has_failed = faults.fired() > fired;
        // `README.txt` may contain a diagnostic of the failure.
        let is_report = path.ends_with(b"/README.txt");
        let is_allowed = has_failed
            && match &answer {
                Ok(answer) => is_report && answer != expected,
                Err(FsError::Store(StoreError::Stale { .. })) => is_report,
                Err(error) => failing::is_injected(error),
            };
        if is_allowed {
            // Loads that the failed run has left behind may fail for the next one that joins them; loads that
            // begin now cannot.
            let runs = (0..MAX_LEFT_LOADS).map(|_| run());
            let mut ended = runs
                .skip_while(|answer| matches!(answer, Err(error) if failing::is_injected(error)));
            let again = ended.next().unwrap_or_else(&run);
            let again = again.unwrap_or_else(|error| panic!("{} again: {error}", shown(path)));
            assert!(
                again == *expected,
                "{} after a failure: {again:?}",
                shown(path)
            );
        } else {
            let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", shown(path)));
            assert!(
                answer == *expected,
                "{}: {answer:?}, not {expected:?}",
                shown(path)
            );
        }
    }

    fn directory(&mut self, path: &[u8], ino: Ino) {
        let fs = &self.mounted.fs;
        let names = self.reference.names(path);
        let possible = self.reference.possible_names(path);
        self.step(path, &names, || {
            let fired = self.mounted.faults.fired();
            let mut listed = list(fs, ino)?;
            if self.mounted.faults.fired() > fired {
                listed.retain(|name, _| names.contains_key(name) || !possible.contains_key(name));
            }
            Ok(listed)
        });
        let is_node = matches!(path, b"" | b"g" | b"g/a");
        let hidden = is_node && self.reference.views == Some(false);
        let hidden = hidden.then(|| b".zarrfs".to_vec());
        for name in names.into_keys().chain(hidden).chain([b"absent".to_vec()]) {
            self.name(path, ino, &name);
        }
    }

    /// Looks up a name, and reads the file or lists the directory.
    fn name(&mut self, parent: &[u8], parent_ino: Ino, name: &[u8]) {
        let fs = &self.mounted.fs;
        let path = match parent {
            b"" => name.to_vec(),
            _ => [parent, b"/", name].concat(),
        };
        let expected = match self.reference.expected(&path) {
            Expected::Absent => Found::Absent,
            Expected::Directory => Found::Directory,
            Expected::File(file) => Found::File(file.bytes.to_vec()),
            Expected::OtherFile => {
                let first = || match read(fs, parent_ino, name) {
                    Ok(Found::File(bytes)) => bytes,
                    other => panic!("{}: {other:?}", shown(&path)),
                };
                let bytes = self.other.entry(path.clone()).or_insert_with(first);
                Found::File(bytes.clone())
            }
        };
        self.step(&path, &expected, || read(fs, parent_ino, name));
        if expected == Found::Directory {
            let found = kernel::lookup(fs, parent_ino, name).unwrap().unwrap();
            self.directory(&path, found.ino);
            fs.forget(found.ino, 1);
        }
    }
}

/// Lists a directory by pages of a few names, and asserts that each name occurs once.
fn list(fs: &Fs, ino: Ino) -> Result<Names, FsError> {
    let handle = kernel::opendir(fs, ino)?;
    let (mut names, mut cookie) = (Names::new(), 0);
    let listed = loop {
        let part = Part {
            ino,
            handle: Some(handle),
            cookie,
            most: 3,
            is_plus: ino.0.is_multiple_of(2),
        };
        let page = match kernel::list(fs, part) {
            Ok(page) => page,
            Err(error) => break Err(error),
        };
        let Some(last) = page.last() else {
            break Ok(());
        };
        cookie = last.next;
        for name in page {
            name.counted.inspect(|ino| fs.forget(*ino, 1));
            let twice = names.insert(name.name.clone(), name.kind);
            assert_eq!(twice, None, "{:?} twice", name.name);
        }
    };
    fs.releasedir(handle);
    listed?;
    for dots in [&b"."[..], b".."] {
        assert_eq!(names.remove(dots), Some(Kind::Prefix));
    }
    Ok(names)
}

/// Looks up a name and reads the file.
fn read(fs: &Fs, parent: Ino, name: &[u8]) -> Result<Found, FsError> {
    let Some(node) = kernel::lookup(fs, parent, name)? else {
        return Ok(Found::Absent);
    };
    let read = match node.stat.kind {
        Kind::Prefix => kernel::getattr(fs, node.ino, None).map(|_| Found::Directory),
        Kind::Object => read_file(fs, node.ino).map(|bytes| {
            assert_eq!(bytes.len() as u64, node.stat.size_bytes);
            Found::File(bytes)
        }),
    };
    fs.forget(node.ino, 1);
    read
}

fn read_file(fs: &Fs, ino: Ino) -> Result<Vec<u8>, FsError> {
    const PART_BYTES: usize = 100;
    let handle = kernel::open(fs, ino)?.handle;
    let mut bytes = Vec::new();
    let read = loop {
        let offset = bytes.len() as u64;
        match kernel::read(fs, ino, Some(handle), offset, PART_BYTES) {
            Ok(part) if part.is_empty() => break Ok(bytes),
            Ok(part) => bytes.extend_from_slice(&part),
            Err(error) => break Err(error),
        }
    };
    fs.release(handle);
    read
}

/// Returns a plan whose kind of failure depends on the call and on the step.
fn plan(first: u64, is_lasting: bool, step: u64) -> Plan {
    Plan {
        first,
        is_lasting,
        failure: match (first + step) % 3 {
            0 => Failure::Unavailable,
            1 => Failure::TimedOut,
            _ => Failure::Io,
        },
    }
}

/// Returns a group with an array that lacks one chunk, and a value outside of Zarr.
fn hierarchy(array: Array, assembly: Assembly) -> Reference {
    let mut reference = Reference::new(array.is_v3, assembly.access, assembly.views);
    reference.add_array("g/a", array);
    reference.set_chunk("g/a", 0, Some(7));
    if reference.is_listed {
        reference.set(b"other", Some(b"some text".to_vec()));
    }
    reference
}

/// Walks through a new file system. Returns the number of failures.
fn walk(
    reference: &Reference,
    assembly: Assembly,
    failures: Failures,
    other: &mut OtherFiles,
) -> u64 {
    let mounted = Mounted::new(reference, assembly);
    let before = kernel::counts(&mounted.fs);
    let mut walk = Walk {
        mounted: &mounted,
        reference,
        other,
        failures,
        steps: Cell::new(0),
    };
    walk.directory(b"", Ino::ROOT);
    assert_eq!(
        kernel::counts(&mounted.fs),
        before,
        "something is not forgotten"
    );
    mounted.faults.fired()
}

fn every_call_fails(source: Source, access: Access, is_v3: bool) {
    let assembly = Assembly {
        source,
        access,
        views: Some(false),
        has_cache: true,
    };
    let reference = hierarchy(arrays::sample(is_v3), assembly);
    let mut other = OtherFiles::new();
    walk(&reference, assembly, Failures::None, &mut other);
    if source == Source::Directory {
        // With a time to live of zero, nothing is cached.
        assert!(walk(&reference, assembly, Failures::EveryCall, &mut other) > 0);
        return;
    }
    for first in 0.. {
        let mut walk = |is_lasting| {
            let failures = Failures::Call { first, is_lasting };
            walk(&reference, assembly, failures, &mut other)
        };
        if walk(false) + walk(true) == 0 {
            assert!(first > 5);
            return;
        }
    }
}

macro_rules! every_call_fails {
    ($($name:ident: $source:ident $access:ident $is_v3:expr;)*) => {
        $(#[test]
        fn $name() {
            every_call_fails(Source::$source, Access::$access, $is_v3);
        })*
    };
}

every_call_fails! {
    every_failure_of_a_store_in_memory_is_an_error_and_is_not_cached: Memory Local false;
    every_failure_of_a_zip_is_an_error_and_is_not_cached: Zip Local true;
    every_failure_of_a_directory_is_an_error_and_is_not_cached: Directory Local true;
    every_failure_of_a_remote_store_is_an_error_and_is_not_cached: Memory Remote true;
    every_failure_of_a_remote_store_that_changes_is_an_error: Directory Remote false;
    every_failure_of_a_store_without_listings_is_an_error: Memory Unlisted true;
    every_failure_of_a_store_without_listings_that_changes_is_an_error: Directory Unlisted false;
}
