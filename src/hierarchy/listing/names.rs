//! A listing of single names, followed by the names of a chunk grid.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::unchecked::Shown;
use crate::store::{Key, Kind, Listed, Listing, Stat, StoreError, Visit, Visited, visit_all};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};

/// The assembled listing of one prefix. A cookie is the number of names before it.
#[derive(Debug)]
pub(crate) struct AssembledListing {
    prefix: Key,
    names: Vec<Name>,
    seen: HashSet<Box<[u8]>>,
    chunks: Option<(Arc<ChunkNames>, ChunkDir)>,
    shown: Option<Shown>,
}

#[derive(Debug)]
struct Name {
    name: Box<[u8]>,
    kind: Kind,
    stat: Option<Stat>,
}

/// The largest cookie. The kernel treats cookies as signed offsets and reserves the last ones.
const LAST_COOKIE: u64 = (i64::MAX as u64) - (1 << 16);

impl AssembledListing {
    /// Creates a listing of `.` and `..`.
    pub(crate) fn new(prefix: Key) -> Self {
        let mut names = Self {
            prefix,
            names: Vec::new(),
            seen: HashSet::new(),
            chunks: None,
            shown: None,
        };
        names.push(b".", Kind::Prefix, None);
        names.push(b"..", Kind::Prefix, None);
        names
    }

    /// Adds a name, unless the listing already has it.
    pub(crate) fn push(&mut self, name: &[u8], kind: Kind, stat: Option<Stat>) {
        if self.seen.insert(name.into()) {
            let name = name.into();
            self.names.push(Name { name, kind, stat });
        }
    }

    /// Adds the names of a directory of chunks.
    pub(crate) fn push_chunks(&mut self, chunks: Arc<ChunkNames>, cell: ChunkDir) {
        self.chunks = Some((chunks, cell));
    }

    /// Sets what is recorded when a program reads the listing.
    pub(super) fn set_shown(&mut self, shown: Option<Shown>) {
        self.shown = shown;
    }

    /// Adds all names of another listing.
    ///
    /// # Errors
    /// The errors of that listing.
    pub(crate) async fn push_listing(
        &mut self,
        mut listing: Box<dyn Listing>,
    ) -> Result<(), StoreError> {
        visit_all(&mut *listing, &mut |listed| {
            self.push(listed.name, listed.kind, listed.stat);
            ControlFlow::Continue(())
        })
        .await
    }
}

impl Listing for AssembledListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let single = self.names.len() as u64;
        let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
        for (next, name) in (1_u64..).zip(&self.names).skip(skip) {
            let listed = Listed {
                name: &name.name,
                kind: name.kind,
                stat: name.stat,
                next,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        let Some((chunks, cell)) = &self.chunks else {
            return Ok(Visited::End);
        };
        for place in cookie.saturating_sub(single).. {
            let Some((name, found)) = chunks.nth(*cell, place) else {
                break;
            };
            let next = place.saturating_add(single).saturating_add(1);
            if next > LAST_COOKIE {
                return Err(StoreError::Unsupported {
                    key: self.prefix.clone(),
                    what: "more names than a listing can count".into(),
                });
            }
            if self.seen.contains(name.as_bytes()) {
                continue;
            }
            let kind = match found {
                ChunkEntry::Directory(_) => Kind::Prefix,
                ChunkEntry::Chunk(_) => Kind::Object,
            };
            let listed = Listed {
                name: name.as_bytes(),
                kind,
                stat: None,
                next,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        Ok(Visited::End)
    }

    fn record_shown(&self) {
        if let Some(shown) = &self.shown {
            shown.record();
        }
    }
}
