//! Cases: archives with their expected results. The submodules have the cases, by row of the fault
//! table.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::zipmaker::{Entry, Zip};

mod content;
mod directory;
mod features;
mod headers;
mod methods;
mod names;
mod places;
mod segments;

pub use content::{a09, a10};
pub use directory::{a01, a02, a14, a17};
pub use features::{a13, a15, a16};
pub use headers::a08;
pub use methods::a12;
pub use names::{a03, a04, a05, a06};
pub use places::a07;
pub use segments::{a11, long_text};

/// The expected result of one file.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Exactly these bytes.
    Bytes(Vec<u8>),
    /// open(2) fails, and the log contains this reason.
    FailsToOpen(Errno, &'static str),
    /// Opening or reading the file fails with one of these errnos, and the log contains this reason.
    Fails(&'static [Errno], &'static str),
    /// Exactly these bytes, or EIO.
    BytesOrFails(Vec<u8>),
}

/// The expected result of an archive.
#[derive(Debug, Clone)]
pub enum Expect {
    /// The mount fails, and the message contains this reason.
    Refused(&'static str),
    /// The mount shows exactly the files and empty directories of the case, and their parent directories.
    Served,
    /// Either of the results above.
    RefusedOrServed,
}

/// A named archive.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub archive: Vec<u8>,
    pub expect: Expect,
    pub files: BTreeMap<Vec<u8>, Outcome>,
    /// The expected directories without files.
    pub empty: Vec<Vec<u8>>,
    /// The finding that the log contains after the mount, and for which `--strict` refuses the archive.
    pub note: Option<&'static str>,
    /// The value of `--memory-limit`, in bytes.
    pub memory_limit_bytes: Option<u64>,
}

impl Case {
    fn new(name: impl Into<String>, archive: Vec<u8>, expect: Expect) -> Self {
        Self {
            name: name.into(),
            archive,
            expect,
            files: BTreeMap::new(),
            empty: Vec::new(),
            note: None,
            memory_limit_bytes: None,
        }
    }

    pub fn refused(name: impl Into<String>, archive: Vec<u8>, gist: &'static str) -> Self {
        Self::new(name, archive, Expect::Refused(gist))
    }

    pub fn served(name: impl Into<String>, archive: Vec<u8>) -> Self {
        Self::new(name, archive, Expect::Served)
    }

    pub fn refused_or_served(name: impl Into<String>, archive: Vec<u8>) -> Self {
        Self::new(name, archive, Expect::RefusedOrServed)
    }

    /// Creates a case of `entries` between two good ones, which must be served in any case.
    pub fn between_good_entries(name: impl Into<String>, entries: Vec<Entry>) -> Self {
        Self::served(name, between_good_entries(entries).build()).good()
    }

    /// Expects the two good files of [`between_good_entries`].
    pub fn good(self) -> Self {
        self.file("good/first", &first()).file("good/last", &last())
    }

    pub fn file(mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Self {
        let outcome = Outcome::Bytes(content.to_vec());
        self.files.insert(path.as_ref().to_vec(), outcome);
        self
    }

    pub fn file_or_fails(mut self, path: impl AsRef<[u8]>, content: &[u8]) -> Self {
        let outcome = Outcome::BytesOrFails(content.to_vec());
        self.files.insert(path.as_ref().to_vec(), outcome);
        self
    }

    /// Expects EIO from opening or reading the file.
    pub fn corrupt(self, path: impl AsRef<[u8]>, gist: &'static str) -> Self {
        self.fails(path, &[Errno::IO], gist)
    }

    pub fn fails(
        mut self,
        path: impl AsRef<[u8]>,
        errnos: &'static [Errno],
        gist: &'static str,
    ) -> Self {
        let outcome = Outcome::Fails(errnos, gist);
        self.files.insert(path.as_ref().to_vec(), outcome);
        self
    }

    pub fn fails_to_open(
        mut self,
        path: impl AsRef<[u8]>,
        errno: Errno,
        gist: &'static str,
    ) -> Self {
        let outcome = Outcome::FailsToOpen(errno, gist);
        self.files.insert(path.as_ref().to_vec(), outcome);
        self
    }

    pub fn empty(mut self, path: impl AsRef<[u8]>) -> Self {
        self.empty.push(path.as_ref().to_vec());
        self
    }

    pub fn note(mut self, gist: &'static str) -> Self {
        self.note = Some(gist);
        self
    }

    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Returns every path that must be listed; true for directories.
    pub fn listing(&self) -> BTreeMap<Vec<u8>, bool> {
        let mut all = BTreeMap::new();
        for (path, is_directory) in self
            .files
            .keys()
            .map(|path| (path, false))
            .chain(self.empty.iter().map(|path| (path, true)))
        {
            for (at, _) in path.iter().enumerate().filter(|(_, b)| **b == b'/') {
                all.insert(path[..at].to_vec(), true);
            }
            all.insert(path.clone(), is_directory);
        }
        all
    }
}

/// Returns the content of `good/first`.
pub fn first() -> Vec<u8> {
    noise(1, 700)
}

/// Returns the content of `good/last`.
pub fn last() -> Vec<u8> {
    text(3000)
}

/// Returns an archive of `entries` between `good/first`, which is stored, and `good/last`, which is deflated.
pub fn between_good_entries(entries: Vec<Entry>) -> Zip {
    let mut all = vec![Entry::stored("good/first", &first())];
    all.extend(entries);
    all.push(Entry::deflated("good/last", &last()));
    Zip::of(all)
}

/// Returns bytes without a central header, so that the entry before them does not overlap the next one.
pub fn spare() -> Entry {
    Entry::stored("spare", &[b' '; 300]).with(|entry| entry.only_local = true)
}

/// Returns an archive of only the two good entries.
pub fn only_good_entries() -> Zip {
    between_good_entries(Vec::new())
}

/// Returns the next number of a random number generator (xorshift) with this state.
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns `len` bytes that no coder compresses.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random(&mut state).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns `len` bytes of numbered lines, which every coder compresses, but which do not repeat.
pub fn text(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 32);
    let mut line = 0_u64;
    while bytes.len() < len {
        bytes.extend_from_slice(format!("line {line} of the text\n").as_bytes());
        line += 1;
    }
    bytes.truncate(len);
    bytes
}
