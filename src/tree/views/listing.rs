//! Open directories of views, whose cookies are counts.

use async_trait::async_trait;

use super::files_ahead::FilesAhead;
use super::view::View;
use crate::store::{Kind, StoreError, Visited};
use crate::tree::{DOTS, DirStream, Entry, Ino, Visit, visit_dots};

/// A name of a directory with its inode number and kind.
#[derive(Debug, Clone)]
pub(in crate::tree) struct ListedName {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) kind: Kind,
}

impl ListedName {
    /// Creates the entry of a directory.
    pub(in crate::tree) fn directory(name: &[u8], ino: Ino) -> Self {
        Self {
            name: name.to_vec(),
            ino,
            kind: Kind::Prefix,
        }
    }
}

/// A directory whose names are computed when it is opened.
#[derive(Debug)]
pub(in crate::tree) struct ListedDir {
    ino: Ino,
    parent: Ino,
    names: Vec<ListedName>,
    ahead: Option<FilesAhead>,
}

impl ListedDir {
    /// Creates a directory of these names.
    pub(in crate::tree) fn new(ino: Ino, parent: Ino, names: Vec<ListedName>) -> Self {
        Self {
            ino,
            parent,
            names,
            ahead: None,
        }
    }

    /// Renders files ahead of the requests for their attributes.
    pub(super) fn with_files_ahead(self, ahead: Option<FilesAhead>) -> Self {
        Self { ahead, ..self }
    }

    /// Visits the names before `end`.
    fn visit_until(&self, end: usize, cookie: u64, visit: &mut Visit<'_>) -> Visited {
        let nth = |number| self.names.get(usize::try_from(number).ok()?).cloned();
        let numbers = (self.ino, self.parent);
        let length = self.names.len().min(end);
        match visit_names(numbers, length as u64, nth, cookie, visit) {
            Visited::End if length < self.names.len() => Visited::Pending,
            visited => visited,
        }
    }
}

#[async_trait]
impl DirStream for ListedDir {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let first = usize::try_from(cookie.saturating_sub(DOTS)).unwrap_or(usize::MAX);
        let all = self.names.len();
        let end = self.ahead.as_mut().map_or(all, |it| it.end(first, all));
        Ok(self.visit_until(end, cookie, visit))
    }

    fn visit_names(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        Ok(self.visit_until(usize::MAX, cookie, visit))
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        if let Some(ahead) = &mut self.ahead {
            ahead
                .render(self.names.iter().map(|listed| &listed.name[..]))
                .await;
        }
        Ok(())
    }
}

/// A directory of chunks, whose names are computed as they are read.
#[derive(Debug)]
pub(super) struct ChunkDirStream {
    pub(super) ino: Ino,
    pub(super) parent: Ino,
    pub(super) view: View,
}

impl DirStream for ChunkDirStream {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let nth = |number| self.view.nth_chunk_entry(number);
        let numbers = (self.ino, self.parent);
        Ok(visit_names(
            numbers,
            self.view.chunk_entries(),
            nth,
            cookie,
            visit,
        ))
    }
}

/// Visits `.`, `..` and `length` names. `numbers` are the inode numbers of the directory and its parent.
fn visit_names(
    numbers: (Ino, Ino),
    length: u64,
    nth: impl Fn(u64) -> Option<ListedName>,
    cookie: u64,
    visit: &mut Visit<'_>,
) -> Visited {
    if visit_dots(numbers.0, numbers.1, cookie, visit) {
        return Visited::Stopped;
    }
    for number in cookie.saturating_sub(DOTS)..length {
        let Some(listed) = nth(number) else {
            break;
        };
        let entry = Entry {
            name: &listed.name,
            ino: listed.ino,
            kind: listed.kind,
            stat: None,
            next: number.saturating_add(DOTS + 1),
        };
        if visit(entry).is_break() {
            return Visited::Stopped;
        }
    }
    Visited::End
}
