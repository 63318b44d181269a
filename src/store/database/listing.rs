//! Open directories, read in batches. A cookie is the number of names before it.
//!
//! A batch has names only, from the index of the keys, until a program has asked for the attributes of
//! most names of the batch before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;

use super::tree::{self, ChildKind, Found};
use super::versions::Hash;
use super::{Columns, Failure, Shared, Snapshot, object_stat, prefix_stat};
use crate::store::{Key, Kind, Listed, Listing, Stat, StoreError, Visit, Visited};

/// Names of the first batch, and of the longest one.
const FIRST_BATCH: usize = 128;
const LONGEST_BATCH: usize = 4096;
/// Names that a listing keeps for programs that go back in it.
const MAX_KEPT: usize = 16 * LONGEST_BATCH;

/// A name that was read.
#[derive(Debug)]
struct Name {
    name: Box<[u8]>,
    kind: Kind,
    stat: Option<Stat>,
}

/// A prefix of a database that is open.
#[derive(Debug)]
pub(super) struct DatabaseListing {
    shared: Arc<Shared>,
    prefix: Key,
    kept: VecDeque<Name>,
    /// Names that were dropped before those that are kept.
    dropped: u64,
    /// The bound of the next batch; `None` behind the last name.
    next: Option<Vec<u8>>,
    columns: Columns,
    batch: usize,
    /// The lookups of the store before the last batch was given out.
    lookups: u64,
}

impl DatabaseListing {
    /// Opens a prefix and reads its first names.
    pub(super) async fn open(shared: &Arc<Shared>, prefix: &Key) -> Result<Self, StoreError> {
        let work = |snapshot: &mut dyn Snapshot| {
            match tree::find(snapshot, prefix, &shared.notes)? {
                Found::Prefix => {}
                Found::Object(_) => {
                    let key = prefix.clone();
                    return Err(Failure::Failed(StoreError::NotAPrefix { key }));
                }
            }
            let start = tree::directory(prefix);
            read_names(shared, snapshot, prefix, &start, Columns::Keys, FIRST_BATCH)
        };
        let (names, next) = shared.read(prefix, work).await?;
        Ok(Self {
            shared: Arc::clone(shared),
            prefix: prefix.clone(),
            kept: names.into(),
            dropped: 0,
            next,
            columns: Columns::Keys,
            batch: FIRST_BATCH,
            lookups: shared.lookups.load(Ordering::Relaxed),
        })
    }
}

/// Reads a batch of names, and the bound of the batch that follows.
fn read_names(
    shared: &Shared,
    snapshot: &mut dyn Snapshot,
    prefix: &Key,
    bound: &[u8],
    columns: Columns,
    most: usize,
) -> Result<(Vec<Name>, Option<Vec<u8>>), Failure> {
    let directory = tree::directory(prefix);
    let batch = tree::children(snapshot, &directory, bound, columns, most, &shared.notes)?;
    let mut names = Vec::with_capacity(batch.children.len());
    for child in batch.children {
        let (kind, stat) = match child.kind {
            ChildKind::Prefix => (Kind::Prefix, Some(prefix_stat(snapshot))),
            ChildKind::Object(None) => (Kind::Object, None),
            ChildKind::Object(Some(value)) => {
                let key = prefix.join(&child.name).map_err(|e| {
                    StoreError::internal(format!("an invalid name in a listing: {e}"))
                })?;
                let versions = &shared.versions;
                let version = versions.version(snapshot, &key, value, Hash::Forbidden)?;
                let stat = version.map(|version| object_stat(snapshot, value, version));
                (Kind::Object, stat)
            }
        };
        names.push(Name {
            name: child.name,
            kind,
            stat,
        });
    }
    Ok((names, batch.next))
}

/// `.` and `..`, which precede all names.
const DOTS: [&[u8]; 2] = [b".", b".."];

#[async_trait]
impl Listing for DatabaseListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let mut next = cookie;
        let dots = DOTS
            .iter()
            .skip(usize::try_from(cookie).unwrap_or(DOTS.len()));
        for name in dots {
            next = next.saturating_add(1);
            let listed = Listed {
                name,
                kind: Kind::Prefix,
                stat: None,
                next,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        let before = next.saturating_sub(DOTS.len() as u64);
        if before == 0 && self.dropped > 0 {
            // From the beginning again.
            self.kept.clear();
            self.dropped = 0;
            self.next = Some(tree::directory(&self.prefix));
        }
        let skip = before
            .checked_sub(self.dropped)
            .ok_or_else(|| StoreError::Stale {
                key: self.prefix.clone(),
                what: "a listing is not kept that far back".into(),
            })?;
        for name in self
            .kept
            .iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
        {
            next = next.saturating_add(1);
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
        Ok(match self.next {
            Some(_) => Visited::Pending,
            None => Visited::End,
        })
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        let Some(bound) = &self.next else {
            return Ok(());
        };
        let lookups = self.shared.lookups.load(Ordering::Relaxed);
        // The kernel asks for the attributes of the first names whatever a program wants.
        if self.batch > FIRST_BATCH && lookups.wrapping_sub(self.lookups) > self.batch as u64 / 2 {
            self.columns = Columns::All;
        }
        self.lookups = lookups;
        self.batch = self.batch.saturating_mul(2).min(LONGEST_BATCH);
        let (shared, prefix, columns, most) =
            (&*self.shared, &self.prefix, self.columns, self.batch);
        let work = |snapshot: &mut dyn Snapshot| {
            read_names(shared, snapshot, prefix, bound, columns, most)
        };
        let (names, next) = shared.read(prefix, work).await?;
        let excess = self.kept.len().saturating_sub(MAX_KEPT);
        self.kept.drain(..excess);
        self.dropped = self.dropped.saturating_add(excess as u64);
        self.kept.extend(names);
        self.next = next;
        Ok(())
    }
}
