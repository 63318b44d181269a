//! The requests of the kernel, answered as by `src/fuse`: without waiting if possible, otherwise by
//! the future of the request.

use std::ops::ControlFlow;

use zarrfs::fs::{
    Entry, EntryAttributes, Fs, FsError, Handle, Ino, Kind, Node, OpenDir, OpenedFile, StoreError,
    Visited,
};
use zarrfs::runtime::block_on;
use zarrfs::tree::DirStream;

/// A name in the reply to READDIR or READDIRPLUS.
#[derive(Debug, Clone)]
pub struct Name {
    pub name: Vec<u8>,
    pub kind: Kind,
    pub next: u64,
    /// The number whose lookup count the reply incremented.
    pub counted: Option<Ino>,
}

/// The part of a directory that is requested.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub ino: Ino,
    pub handle: Option<Handle>,
    pub cookie: u64,
    /// The largest number of names in the reply buffer.
    pub most: usize,
    pub is_plus: bool,
}

/// LOOKUP; `None` means proven absence.
pub fn lookup(fs: &Fs, parent: Ino, name: &[u8]) -> Result<Option<Node>, FsError> {
    match block_on(fs.lookup(parent, name)) {
        Err(FsError::Store(StoreError::NotFound { .. })) => Ok(None),
        found => found.map(Some),
    }
}

pub fn getattr(fs: &Fs, ino: Ino, handle: Option<Handle>) -> Result<Node, FsError> {
    block_on(fs.getattr(ino, handle))
}

pub fn open(fs: &Fs, ino: Ino) -> Result<OpenedFile, FsError> {
    block_on(fs.open(ino))
}

pub fn opendir(fs: &Fs, ino: Ino) -> Result<Handle, FsError> {
    block_on(fs.opendir(ino))
}

/// READ with a handle, or without one if opens are not requested.
pub fn read(
    fs: &Fs,
    ino: Ino,
    handle: Option<Handle>,
    offset: u64,
    size: usize,
) -> Result<Vec<u8>, FsError> {
    let reader = block_on(fs.reader(ino, handle, offset, size))?;
    let read = match reader.read_at_hand() {
        Some(read) => read,
        None if reader.is_local() => reader.read_blocking(),
        None => block_on(reader.read()),
    };
    Ok(read?.bytes(&[])?.to_vec())
}

/// READDIR or READDIRPLUS; an empty reply means the end of the directory.
pub fn list(fs: &Fs, part: Part) -> Result<Vec<Name>, FsError> {
    let mut names = Vec::new();
    let listed = match list_at_hand(fs, part, &mut names) {
        Some(listed) => listed,
        None if !names.is_empty() => Ok(()),
        None => block_on(list_pending(fs, part, &mut names)),
    };
    match listed {
        // The kernel requests the remaining names, and that request fails.
        Err(_) if !names.is_empty() => Ok(names),
        listed => listed.map(|()| names),
    }
}

fn list_at_hand(fs: &Fs, part: Part, names: &mut Vec<Name>) -> Option<Result<(), FsError>> {
    let directory = match fs.directory(part.ino, part.handle).at_hand()? {
        Ok(directory) => directory,
        Err(error) => return Some(Err(error)),
    };
    let mut stream = directory.try_lock().ok()?;
    match fill(fs, part, &mut **stream, names) {
        Ok(Visited::Pending) => None,
        Ok(Visited::Stopped | Visited::End) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    }
}

async fn list_pending(fs: &Fs, part: Part, names: &mut Vec<Name>) -> Result<(), FsError> {
    let directory: OpenDir = fs.directory(part.ino, part.handle).await?;
    let mut stream = directory.lock().await;
    loop {
        match fill(fs, part, &mut **stream, names) {
            Ok(Visited::Pending) if names.is_empty() => stream.load().await?,
            listed => return listed.map(drop),
        }
    }
}

fn fill(
    fs: &Fs,
    part: Part,
    directory: &mut dyn DirStream,
    names: &mut Vec<Name>,
) -> Result<Visited, FsError> {
    let mut put = |entry: &Entry<'_>, attributes: EntryAttributes| {
        if names.len() == part.most {
            return ControlFlow::Break(());
        }
        names.push(Name {
            name: entry.name.to_vec(),
            kind: entry.kind,
            next: entry.next,
            counted: attributes.counted(),
        });
        ControlFlow::Continue(())
    };
    match part.is_plus {
        true => fs.readdirplus(part.ino, directory, part.cookie, &mut put),
        false => fs.readdir(directory, part.cookie, &mut |entry| {
            put(entry, EntryAttributes::None)
        }),
    }
}

/// Returns the counters of the file system: known inodes, open files, and open directories.
pub fn counts(fs: &Fs) -> [u64; 3] {
    let document = fs.document();
    ["inodes", "handles", "directory_handles"]
        .map(|name| document[name].as_u64().expect("a counter"))
}
