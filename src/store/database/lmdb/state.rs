//! One state of an LMDB database: the tree of its keys.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::format::{Format, Head, Meta, OVERFLOW};
use super::page::{Page, Stored};
use super::{CACHE_BYTES, DataFile};
use crate::store::database::versions::identity_of;
use crate::store::database::{Columns, Failure, SMALL_BYTES, Snapshot, Value, VisitRow, corrupt};
use crate::store::{Key, StoreError};

/// One state of a database.
pub(super) struct State<'a> {
    file: &'a DataFile,
    meta: Meta,
    generation: u64,
    modified: OnceCell<SystemTime>,
    /// Branches that were read for the first time.
    read: HashMap<u64, Arc<Page>>,
    /// The leaf that was read last, by its number: the next call most likely needs the same.
    leaf: Option<(u64, Arc<Page>)>,
}

/// An entry of a leaf.
struct Place {
    leaf: Arc<Page>,
    index: usize,
    /// The smallest key behind those of the leaf; `None` in the last leaf.
    end: Option<Vec<u8>>,
}

impl<'a> State<'a> {
    pub(super) fn new(file: &'a DataFile, meta: Meta) -> Self {
        Self {
            file,
            meta,
            generation: file.generation(meta.txn),
            modified: OnceCell::new(),
            read: HashMap::new(),
            leaf: None,
        }
    }

    /// The branches that were read for the first time.
    pub(super) fn into_branches(self) -> HashMap<u64, Arc<Page>> {
        self.read
    }

    fn page(&mut self, number: u64) -> Result<Arc<Page>, Failure> {
        let Meta {
            page_bytes,
            txn,
            last_page,
            ..
        } = self.meta;
        if let Some((_, leaf)) = self.leaf.as_ref().filter(|(last, _)| *last == number) {
            return Ok(Arc::clone(leaf));
        }
        if let Some(page) = self.read.get(&number) {
            return Ok(Arc::clone(page));
        }
        if let Some(page) = self.file.cached(txn, number) {
            return Ok(page);
        }
        if !(2..=last_page).contains(&number) {
            return Err(corrupt(format!("page {number} of {last_page}")));
        }
        let mut bytes = vec![0; page_bytes];
        let offset = number.saturating_mul(page_bytes as u64);
        let read = self.file.bytes(offset, &mut bytes)?;
        read.ok_or_else(|| corrupt(format!("the file ends before page {number}")))?;
        let page = Arc::new(Page::new(self.file.format, bytes, number, txn)?);
        if page.is_leaf {
            self.leaf = Some((number, Arc::clone(&page)));
            return Ok(page);
        }
        if self.read.len() >= CACHE_BYTES / page_bytes.max(1) {
            self.read.clear();
        }
        self.read.insert(number, Arc::clone(&page));
        Ok(page)
    }

    /// The first entry at or behind a key, in the leaf that the key belongs to. It may be behind the last
    /// entry of that leaf. `None` if the database is empty.
    fn descend(&mut self, key: &[u8]) -> Result<Option<Place>, Failure> {
        let Some(mut number) = self.meta.root else {
            return Ok(None);
        };
        let (mut start, mut end): (Vec<u8>, Option<Vec<u8>>) = (Vec::new(), None);
        for level in 1..=self.meta.depth {
            let page = self.page(number)?;
            let is_last = level == self.meta.depth;
            let bad = |what: &str| corrupt(format!("page {number}: {what}"));
            if page.is_leaf != is_last {
                return Err(bad("it is of another level"));
            }
            // The first key of a branch is not used.
            let first = page.key(usize::from(!page.is_leaf));
            let last = page.key(page.len().saturating_sub(1));
            let has_keys = page.is_leaf || page.len() > 1;
            if has_keys && (first < &start[..] || end.as_ref().is_some_and(|end| last >= &end[..]))
            {
                return Err(bad("its keys belong to another page"));
            }
            if page.is_leaf {
                let index = page.first_at(key);
                return Ok(Some(Place {
                    leaf: page,
                    index,
                    end,
                }));
            }
            let index = page.branch_of(key);
            if index > 0 {
                start = page.key(index).to_vec();
            }
            if index + 1 < page.len() {
                end = Some(page.key(index + 1).to_vec());
            }
            number = page
                .child(index)
                .ok_or_else(|| bad("an entry is too short"))?;
        }
        Err(corrupt("a tree without leaves"))
    }

    fn value(&self, stored: Option<Stored<'_>>) -> Result<Value, StoreError> {
        match stored {
            Some(Stored::Inline(content)) => Ok(Value {
                size_bytes: content.len() as u64,
                identity: Some(identity_of(content)),
            }),
            Some(Stored::Long { page, size_bytes }) if size_bytes <= SMALL_BYTES => {
                let mut content = vec![0; usize::try_from(size_bytes).unwrap_or(0)];
                match self.read_long(page, size_bytes, 0, &mut content) {
                    Ok(()) => Ok(Value {
                        size_bytes,
                        identity: Some(identity_of(&content)),
                    }),
                    Err(Failure::Failed(error)) => Err(error),
                    Err(Failure::Busy(what)) => Err(StoreError::internal(what)),
                }
            }
            Some(Stored::Long { size_bytes, .. }) => Ok(Value {
                size_bytes,
                identity: None,
            }),
            Some(Stored::Other) => Err(StoreError::Unsupported {
                key: Key::root(),
                what: "a database within the LMDB database".into(),
            }),
            None => Err(StoreError::internal("an entry that was not checked")),
        }
    }

    /// Reads a part of a value that has pages of its own.
    fn read_long(
        &self,
        page: u64,
        size_bytes: u64,
        offset: u64,
        target: &mut [u8],
    ) -> Result<(), Failure> {
        let Format { head_bytes, .. } = self.file.format;
        let page_bytes = self.meta.page_bytes as u64;
        let pages = (head_bytes as u64 - 1 + size_bytes) / page_bytes + 1;
        let bad = |what: &str| corrupt(format!("page {page} of a value: {what}"));
        let last = page.checked_add(pages - 1);
        if page < 2 || last.is_none_or(|last| last > self.meta.last_page) {
            return Err(bad("it is not in the file"));
        }
        let start = page.saturating_mul(page_bytes);
        let mut head = vec![0; head_bytes];
        let ends = || bad("the file ends before it");
        self.file.bytes(start, &mut head)?.ok_or_else(ends)?;
        let head = Head::of(&self.file.format, &head).ok_or_else(ends)?;
        let is_same = head.number == page && head.flags == OVERFLOW && head.pages == pages;
        if !is_same || head.txn > self.meta.txn {
            return Err(bad("it is another page"));
        }
        let offset = start
            .saturating_add(head_bytes as u64)
            .saturating_add(offset);
        self.file.bytes(offset, target)?.ok_or_else(ends)
    }
}

impl Snapshot for State<'_> {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn modified(&self) -> SystemTime {
        let time = || self.file.file.metadata().and_then(|file| file.modified());
        *self.modified.get_or_init(|| time().unwrap_or(UNIX_EPOCH))
    }

    fn seek(&mut self, bound: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut found = None;
        self.entries(bound, &mut |_, leaf, index| {
            found = Some(leaf.key(index).to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    fn find(&mut self, key: &[u8]) -> Result<Option<Value>, Failure> {
        match self.descend(key)? {
            Some(Place { leaf, index, .. }) if index < leaf.len() && leaf.key(index) == key => {
                Ok(Some(self.value(leaf.stored(index))?))
            }
            _ => Ok(None),
        }
    }

    fn scan(
        &mut self,
        bound: &[u8],
        columns: Columns,
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure> {
        self.entries(bound, &mut |state, leaf, index| {
            let value = || state.value(leaf.stored(index)).ok();
            let value = (columns == Columns::All).then(value).flatten();
            visit(leaf.key(index), value)
        })
    }

    fn read_at(&mut self, key: &[u8], offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        let place = self.descend(key)?;
        let stored = place
            .as_ref()
            .filter(|place| place.index < place.leaf.len() && place.leaf.key(place.index) == key)
            .and_then(|place| place.leaf.stored(place.index));
        match stored {
            Some(Stored::Inline(content)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(target.len());
                let part = content
                    .get(start..end)
                    .ok_or_else(|| corrupt("a value is shorter than it was"))?;
                target.copy_from_slice(part);
                Ok(())
            }
            Some(Stored::Long { page, size_bytes }) => {
                self.read_long(page, size_bytes, offset, target)
            }
            _ => Err(corrupt("a key that was found is gone")),
        }
    }
}

/// What is called for each entry of a leaf.
type VisitEntry<'a> = dyn FnMut(&State<'_>, &Page, usize) -> ControlFlow<()> + 'a;

impl State<'_> {
    /// Visits the entries at and behind `bound`, leaf by leaf, until `visit` breaks.
    fn entries(&mut self, bound: &[u8], visit: &mut VisitEntry<'_>) -> Result<(), Failure> {
        let mut place = self.descend(bound)?;
        while let Some(Place { leaf, index, end }) = place {
            for index in index..leaf.len() {
                if visit(self, &leaf, index).is_break() {
                    return Ok(());
                }
            }
            // Keys of a page are below its end, so the end grows from leaf to leaf.
            place = match end {
                Some(end) => self.descend(&end)?,
                None => None,
            };
        }
        Ok(())
    }
}
