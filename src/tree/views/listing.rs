//! Open directories of the native tree and of views.

use async_trait::async_trait;

use super::path::{ListedView, ViewPath};
use super::{HIDDEN, NATIVE_ROOT, Shown, ViewTree};
use crate::store::{Kind, StoreError, Visited};
use crate::tree::{DOTS, DirStream, Entry, Ino, Visit, visit_dots};

/// Follows `.zarrfs` in listings of native directories; no file system's cookie.
const BEHIND_HIDDEN: u64 = i64::MAX.unsigned_abs() - 1;

/// A directory of the native tree, with the directory of its views if that is listed.
#[derive(Debug)]
pub(super) struct NativeDir {
    pub(super) stream: Box<dyn DirStream>,
    pub(super) ino: Ino,
    pub(super) shown: Shown,
    pub(super) hidden: Option<Ino>,
}

#[async_trait]
impl DirStream for NativeDir {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        if cookie == BEHIND_HIDDEN {
            return Ok(Visited::End);
        }
        let (here, shown) = (self.ino, self.shown);
        let visited = self.stream.visit(cookie, &mut |mut entry| {
            entry.ino = match entry.name {
                b"." => here,
                // The root of the native tree has the root of the mount above it.
                b".." if here == NATIVE_ROOT => Ino::ROOT,
                _ => ViewTree::outer(shown, entry.ino),
            };
            visit(entry)
        })?;
        let (Visited::End, Some(hidden)) = (visited, self.hidden) else {
            return Ok(visited);
        };
        let flow = visit(Entry {
            name: HIDDEN,
            ino: hidden,
            kind: Kind::Prefix,
            stat: None,
            next: BEHIND_HIDDEN,
        });
        Ok(match flow.is_break() {
            true => Visited::Stopped,
            false => Visited::End,
        })
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        self.stream.load().await
    }
}

/// A directory of views, whose names were made when it was opened. Cookies are counts.
#[derive(Debug)]
pub(super) struct ViewDir {
    pub(super) ino: Ino,
    pub(super) parent: Ino,
    pub(super) names: Vec<ListedView>,
}

impl DirStream for ViewDir {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let nth = |number| self.names.get(usize::try_from(number).ok()?).cloned();
        let length = self.names.len() as u64;
        Ok(visit_views(
            self.ino,
            self.parent,
            length,
            nth,
            cookie,
            visit,
        ))
    }
}

/// A directory of chunks, whose names are made as they are read. Cookies are counts.
#[derive(Debug)]
pub(super) struct ChunksDir {
    pub(super) ino: Ino,
    pub(super) parent: Ino,
    pub(super) place: ViewPath,
}

impl DirStream for ChunksDir {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let length = self.place.chunk_entries();
        let nth = |number| self.place.nth_chunk_entry(number);
        Ok(visit_views(
            self.ino,
            self.parent,
            length,
            nth,
            cookie,
            visit,
        ))
    }
}

fn visit_views(
    ino: Ino,
    parent: Ino,
    length: u64,
    nth: impl Fn(u64) -> Option<ListedView>,
    cookie: u64,
    visit: &mut Visit<'_>,
) -> Visited {
    if visit_dots(ino, parent, cookie, visit) {
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
