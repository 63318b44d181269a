//! Open directories, read in batches. A cookie is the number of names before it.
//!
//! A batch has only names, from the index of the keys, until a program has requested the attributes of
//! most names of the batch before. While a program consumes a batch, the next one is read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_task::FallibleTask;
use async_trait::async_trait;

use super::tree::{self, Child, NameList, TreeEntry};
use super::versions::Digest;
use super::{Columns, Failure, Shared, Snapshot, ValueMeta, object_stat, prefix_stat};
use crate::runtime;
use crate::store::{Key, Kind, Listed, Listing, Stat, StoreError, Visit, Visited};

/// Number of names in the first batch, and in the longest one.
const FIRST_BATCH: usize = 128;
const LONGEST_BATCH: usize = 4096;
/// Number of names that a listing keeps for programs that seek backwards.
const MAX_KEPT: usize = 16 * LONGEST_BATCH;
/// How old a batch may be that was read ahead.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Information about a listed name.
#[derive(Debug, Clone, Copy)]
struct ListedName {
    kind: Kind,
    stat: Option<Stat>,
}

/// Names, and the bound of the next batch, which is `None` after the last name.
#[derive(Debug)]
struct NameBatch {
    names: NameList<ListedName>,
    next: Option<Vec<u8>>,
}

/// The next batch, which is read ahead.
#[derive(Debug)]
struct PrefetchedBatch {
    begun: Instant,
    batch: FallibleTask<Result<NameBatch, StoreError>>,
}

/// An open prefix of a database.
#[derive(Debug)]
pub(super) struct DatabaseListing {
    shared: Arc<Shared>,
    prefix: Key,
    kept: VecDeque<NameList<ListedName>>,
    /// Number of names that were dropped from the beginning.
    dropped: usize,
    /// The bound of the next batch; `None` after the last name.
    next: Option<Vec<u8>>,
    ahead: Option<PrefetchedBatch>,
    columns: Columns,
    batch: usize,
    /// The number of lookups in the store before the last batch was returned.
    lookups: u64,
}

impl DatabaseListing {
    /// Opens a prefix and reads its first names.
    pub(super) async fn open(shared: &Arc<Shared>, prefix: &Key) -> Result<Self, StoreError> {
        let work = |snapshot: &mut dyn Snapshot| {
            match tree::find(snapshot, prefix, &shared.notes)? {
                TreeEntry::Prefix => {}
                TreeEntry::Object(_) => {
                    let key = prefix.clone();
                    return Err(Failure::Failed(StoreError::NotAPrefix { key }));
                }
            }
            let start = tree::directory(prefix);
            read_names(shared, snapshot, prefix, &start, Columns::Keys, FIRST_BATCH)
        };
        let NameBatch { names, next } = shared.read(prefix, work).await?;
        Ok(Self {
            shared: Arc::clone(shared),
            prefix: prefix.clone(),
            kept: VecDeque::from([names]),
            dropped: 0,
            next,
            ahead: None,
            columns: Columns::Keys,
            batch: FIRST_BATCH,
            lookups: shared.lookups.load(Ordering::Relaxed),
        })
    }

    /// Reads the batch at `bound`, with the current columns.
    fn read(
        &self,
        bound: Vec<u8>,
    ) -> impl Future<Output = Result<NameBatch, StoreError>> + Send + 'static {
        let (shared, prefix) = (Arc::clone(&self.shared), self.prefix.clone());
        let (columns, most) = (self.columns, self.batch);
        async move {
            let work = |snapshot: &mut dyn Snapshot| {
                read_names(&shared, snapshot, &prefix, &bound, columns, most)
            };
            shared.read(&prefix, work).await
        }
    }

    /// Chooses the columns and the size of the next batch.
    fn choose(&mut self) {
        let lookups = self.shared.lookups.load(Ordering::Relaxed);
        // The kernel requests the attributes of the first names, whatever the program needs.
        if self.batch > FIRST_BATCH && lookups.wrapping_sub(self.lookups) > self.batch as u64 / 2 {
            self.columns = Columns::All;
        }
        self.lookups = lookups;
        self.batch = self.batch.saturating_mul(2).min(LONGEST_BATCH);
    }

    fn keep(&mut self, names: NameList<ListedName>) {
        self.kept.push_back(names);
        let mut kept: usize = self.kept.iter().map(NameList::len).sum();
        while kept > MAX_KEPT
            && let Some(first) = self.kept.pop_front()
        {
            kept = kept.saturating_sub(first.len());
            self.dropped = self.dropped.saturating_add(first.len());
        }
    }

    /// Returns the kept names without the first `skip` ones.
    fn kept_from(&self, mut skip: usize) -> impl Iterator<Item = (&[u8], &ListedName)> {
        self.kept.iter().flat_map(move |names| {
            let first = skip.min(names.len());
            skip = skip.saturating_sub(first);
            names.iter_from(first)
        })
    }
}

/// Reads a batch of names.
fn read_names(
    shared: &Shared,
    snapshot: &mut dyn Snapshot,
    prefix: &Key,
    bound: &[u8],
    columns: Columns,
    most: usize,
) -> Result<NameBatch, Failure> {
    let directory = tree::directory(prefix);
    let tree::ChildBatch { names, next } =
        tree::children(snapshot, &directory, bound, columns, most, &shared.notes)?;
    let names = names.try_map(|name, child| {
        Ok::<_, Failure>(match child {
            Child::Prefix => ListedName {
                kind: Kind::Prefix,
                stat: Some(prefix_stat(snapshot)),
            },
            Child::Object(value) => ListedName {
                kind: Kind::Object,
                stat: match value {
                    Some(value) => stat_of(shared, snapshot, prefix, name, value)?,
                    None => None,
                },
            },
        })
    })?;
    Ok(NameBatch { names, next })
}

/// Returns the attributes of a listed value, unless that requires reads of a long value.
fn stat_of(
    shared: &Shared,
    snapshot: &mut dyn Snapshot,
    prefix: &Key,
    name: &[u8],
    value: ValueMeta,
) -> Result<Option<Stat>, Failure> {
    let key = prefix
        .join(name)
        .map_err(|e| StoreError::internal(format!("an invalid name in a listing: {e}")))?;
    let version = shared
        .versions
        .version(snapshot, &key, value, Digest::Forbidden)?;
    Ok(version.map(|version| object_stat(snapshot, value, version)))
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
            // The listing starts again from the beginning.
            self.kept.clear();
            self.dropped = 0;
            self.ahead = None;
            self.next = Some(tree::directory(&self.prefix));
        }
        let skip = before
            .checked_sub(self.dropped as u64)
            .ok_or_else(|| StoreError::Stale {
                key: self.prefix.clone(),
                what: "a listing is not kept that far back".into(),
            })?;
        for (name, what) in self.kept_from(usize::try_from(skip).unwrap_or(usize::MAX)) {
            next = next.saturating_add(1);
            let listed = Listed {
                name,
                kind: what.kind,
                stat: what.stat,
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
        let Some(bound) = self.next.clone() else {
            return Ok(());
        };
        self.choose();
        let lost = || StoreError::internal("a batch of names that was not read");
        let ahead = self.ahead.take();
        let NameBatch { names, next } = match ahead.filter(|ahead| ahead.begun.elapsed() < MAX_AGE)
        {
            Some(ahead) => ahead.batch.await.ok_or_else(lost)??,
            None => self.read(bound).await?,
        };
        if let Some(bound) = next.clone().filter(|_| self.batch > 2 * FIRST_BATCH) {
            self.ahead = Some(PrefetchedBatch {
                begun: Instant::now(),
                batch: runtime::spawn(self.read(bound)).fallible(),
            });
        }
        self.keep(names);
        self.next = next;
        Ok(())
    }
}
