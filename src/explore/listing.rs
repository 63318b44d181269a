//! A listing that is put together: names that are known one by one, then those of a chunk grid.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::store::{Key, Kind, Listed, Listing, Stat, StoreError, Visit};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};

/// Names of one prefix. A cookie is the number of names before it.
#[derive(Debug)]
pub(super) struct Names {
    prefix: Key,
    names: Vec<Name>,
    seen: HashSet<Box<[u8]>>,
    chunks: Option<(Arc<ChunkNames>, ChunkDir)>,
}

#[derive(Debug)]
struct Name {
    name: Box<[u8]>,
    kind: Kind,
    stat: Option<Stat>,
}

/// Cookies are offsets to the kernel, and the last ones have a meaning of their own.
const LAST_COOKIE: u64 = (i64::MAX as u64) - (1 << 16);

impl Names {
    /// Only `.` and `..`.
    pub(super) fn new(prefix: Key) -> Self {
        let mut names = Self {
            prefix,
            names: Vec::new(),
            seen: HashSet::new(),
            chunks: None,
        };
        names.push(b".", Kind::Prefix, None);
        names.push(b"..", Kind::Prefix, None);
        names
    }

    /// Adds a name unless it is there.
    pub(super) fn push(&mut self, name: &[u8], kind: Kind, stat: Option<Stat>) {
        if self.seen.insert(name.into()) {
            let name = name.into();
            self.names.push(Name { name, kind, stat });
        }
    }

    /// Adds the names of a directory of chunks.
    pub(super) fn push_chunks(&mut self, chunks: Arc<ChunkNames>, cell: ChunkDir) {
        self.chunks = Some((chunks, cell));
    }

    /// Adds all that another listing has.
    ///
    /// # Errors
    /// The listing's.
    pub(super) fn push_listing(&mut self, mut listing: Box<dyn Listing>) -> Result<(), StoreError> {
        listing.visit(0, &mut |listed| {
            self.push(listed.name, listed.kind, listed.stat);
            ControlFlow::Continue(())
        })
    }
}

impl Listing for Names {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
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
                return Ok(());
            }
        }
        let Some((chunks, cell)) = &self.chunks else {
            return Ok(());
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
                break;
            }
        }
        Ok(())
    }
}
