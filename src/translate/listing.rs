//! What stands in the directories that are shown.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::node::Translation;
use super::resolve::{DOCUMENTS, Place};
use super::text::Text;
use super::whole::Dated;
use super::{Shared, Shown};
use crate::store::{
    IncompleteListing, Key, Kind, Listed, Listing, Object, Stat, StoreError, Visit, may_wait,
};
use crate::zarr::chunk_names::{ChunkDir, ChunkEntry, ChunkNames};

/// Names of chunks are asked for one by one in directories of a near store with at most so many;
/// else all of the grid are listed.
const MAX_ASKED: u64 = 1 << 16;

/// Cookies are offsets to the kernel, and the last ones have a meaning of their own.
const LAST_COOKIE: u64 = (i64::MAX as u64) - (1 << 16);

/// A name, what it is, and what is known of it.
type Fixed = (Vec<u8>, Kind, Option<Stat>);

/// Names of one directory. A cookie is the number of names before it.
#[derive(Debug)]
struct Names {
    shared: Arc<Shared>,
    prefix: Key,
    fixed: Vec<Fixed>,
    chunks: Option<(Arc<Shown>, Key, ChunkDir)>,
}

impl Shared {
    /// Opens a directory that is shown.
    ///
    /// # Errors
    /// As [`Shared::resolve`]; [`StoreError::NotAPrefix`] if it is none.
    pub(super) fn list(shared: &Arc<Self>, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let dots = [b"." as &[u8], b".."].map(|dot| (dot.to_vec(), Kind::Prefix, None));
        let mut names = Names {
            shared: Arc::clone(shared),
            prefix: prefix.clone(),
            fixed: dots.into(),
            chunks: None,
        };
        match shared.resolve(prefix)? {
            Place::Same(key) => return shared.store.list(&key),
            Place::Document(..) | Place::Chunk(..) => {
                return Err(StoreError::NotAPrefix {
                    key: prefix.clone(),
                });
            }
            Place::Cell(node, array, cell) => {
                shared.cell_stat(&node, &array, cell)?;
                names.chunks = Some((node, array, cell));
            }
            Place::Directory(node, key) => {
                let whole = match key == shared.root {
                    true => shared.whole(&node)?,
                    false => None,
                };
                let own = node.texts.iter();
                let own = own.map(|(name, text)| (*name, Arc::clone(text), node.modified));
                let mut texts: Vec<_> = own.collect();
                if let Some((text, modified)) = whole {
                    let name = shared.target.consolidated();
                    texts.retain(|(own, ..)| *own != name);
                    texts.push((name, text, modified));
                }
                for (name, text, modified) in texts {
                    let stat = Text::new(text, modified).stat()?;
                    names.fixed.push((name.into(), Kind::Object, Some(stat)));
                }
                match &node.translation {
                    Translation::Array(..) => {
                        names.chunks = Some((node, key, ChunkDir::default()));
                    }
                    _ => shared.push_members(&node, &key, &mut names.fixed)?,
                }
            }
        }
        Ok(Box::new(names))
    }

    /// What is not known of the names in a directory.
    pub(super) fn incomplete_listing(&self, prefix: &Key) -> Option<IncompleteListing> {
        let is_not_asked = |what: &str| IncompleteListing {
            is_unlisted: false,
            what: what.to_owned(),
        };
        let of_chunks = |node: &Shown, cell: ChunkDir| {
            let names = &node.chunks()?.names;
            let what = "chunks are those that there can be";
            (!self.asks_for(names, cell)).then(|| is_not_asked(what))
        };
        match self.resolve(prefix) {
            Ok(Place::Same(key)) => self.store.incomplete_listing(&key),
            Ok(Place::Cell(node, _, cell)) => of_chunks(&node, cell),
            Ok(Place::Directory(node, _)) if node.chunks().is_some() => {
                of_chunks(&node, ChunkDir::default())
            }
            Ok(Place::Directory(_, key)) => self.store.incomplete_listing(&key).or_else(|| {
                let what = "nodes that are left out may be listed";
                self.store
                    .capabilities()
                    .is_remote
                    .then(|| is_not_asked(what))
            }),
            Ok(Place::Document(..) | Place::Chunk(..))
            | Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => None,
            Err(error) => Some(IncompleteListing {
                is_unlisted: true,
                what: error.to_string(),
            }),
        }
    }

    /// Whether chunks are listed that are there, each asked for, and not all that there can be.
    fn asks_for(&self, names: &ChunkNames, cell: ChunkDir) -> bool {
        !self.store.capabilities().is_remote && names.len(cell) <= MAX_ASKED
    }

    /// Adds what is in a group, or in a directory without documents.
    fn push_members(
        &self,
        node: &Shown,
        key: &Key,
        names: &mut Vec<Fixed>,
    ) -> Result<(), StoreError> {
        let is_same = matches!(node.translation, Translation::Group(None));
        let mut members = Vec::new();
        self.store.list(key)?.visit(0, &mut |listed| {
            match listed.kind {
                Kind::Object if is_same && self.is_own_document(listed.name) => {
                    names.push((listed.name.to_vec(), Kind::Object, listed.stat));
                }
                _ if listed.is_below() && !DOCUMENTS.contains(&listed.name) => {
                    members.push(listed.name.to_vec());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        let is_remote = self.store.capabilities().is_remote;
        for name in members {
            // Far away it takes requests to know what a node is; looked up it is known.
            if !is_remote && !self.is_shown(key, &name)? {
                continue;
            }
            names.push((name, Kind::Prefix, None));
        }
        Ok(())
    }

    /// The document of the root that has the copies of all others, if it has one.
    fn whole(&self, root: &Shown) -> Result<Option<Dated>, StoreError> {
        match self.consolidated(root) {
            Ok(whole) => Ok(whole),
            Err(error @ StoreError::WouldWait { .. }) => Err(error),
            // One node that can not be had does not hide the others.
            Err(error) => {
                let (name, target) = (self.target.consolidated(), self.target.word());
                log::warn!("{name} of {target} is not listed: {error}");
                Ok(None)
            }
        }
    }

    fn is_shown(&self, key: &Key, name: &[u8]) -> Result<bool, StoreError> {
        let Ok(below) = key.join(name) else {
            return Ok(false);
        };
        match self.node(&below) {
            Ok(Some(node)) => Ok(!matches!(node.translation, Translation::LeftOut(_))),
            Ok(None) => Ok(false),
            Err(error @ StoreError::WouldWait { .. }) => Err(error),
            // It may well be there: that it can not be read is said when it is looked up.
            Err(_) => Ok(true),
        }
    }

    /// What is known of a chunk, or of a directory of chunks, if it is there.
    fn found(
        &self,
        node: &Shown,
        array: &Key,
        found: ChunkEntry,
    ) -> Result<Option<Option<Stat>>, StoreError> {
        let stat = match found {
            ChunkEntry::Directory(cell) => self.cell_stat(node, array, cell),
            ChunkEntry::Chunk(chunk) => self.chunk_stat(node, array, chunk),
        };
        match stat {
            Ok(stat) => Ok(Some(Some(stat).filter(|stat| stat.kind == Kind::Object))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error @ StoreError::WouldWait { .. }) => Err(error),
            // One chunk that can not be had does not hide the others.
            Err(_) => Ok(Some(None)),
        }
    }
}

impl Listing for Names {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let fixed = self.fixed.len() as u64;
        let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
        for (next, (name, kind, stat)) in (1_u64..).zip(&self.fixed).skip(skip) {
            let listed = Listed {
                name,
                kind: *kind,
                stat: *stat,
                next,
            };
            if visit(listed).is_break() {
                return Ok(());
            }
        }
        let Some((node, array, cell)) = &self.chunks else {
            return Ok(());
        };
        let Some(names) = node.chunks().map(|chunks| &chunks.names) else {
            return Ok(());
        };
        let is_asked = self.shared.asks_for(names, *cell);
        if is_asked {
            may_wait(&self.prefix)?;
        }
        for place in cookie.saturating_sub(fixed).. {
            let Some((name, found)) = names.nth(*cell, place) else {
                break;
            };
            let next = place.saturating_add(fixed).saturating_add(1);
            if next > LAST_COOKIE {
                return Err(StoreError::Unsupported {
                    key: self.prefix.clone(),
                    what: "more names than a listing can count".into(),
                });
            }
            let stat = match is_asked {
                true => match self.shared.found(node, array, found)? {
                    Some(stat) => stat,
                    None => continue,
                },
                false => None,
            };
            let kind = match found {
                ChunkEntry::Directory(_) => Kind::Prefix,
                ChunkEntry::Chunk(_) => Kind::Object,
            };
            let listed = Listed {
                name: name.as_bytes(),
                kind,
                stat,
                next,
            };
            if visit(listed).is_break() {
                break;
            }
        }
        Ok(())
    }
}
