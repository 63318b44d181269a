//! A read transaction of an LMDB database: one state of the tree of its keys.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use super::DataFile;
use super::format::{Format, Head, Meta, OVERFLOW};
use super::lock_file::LockFiles;
use super::page::{LeafValue, Page};
use crate::store::database::versions::identity_of;
use crate::store::database::{
    Columns, Failure, FoundValue, FoundWithNext, ReadValue, SMALL_BYTES, Snapshot, ValueMeta,
    VisitRow, WHOLE_BYTES, corrupt,
};
use crate::store::{Key, StoreError, in_memory};

/// A read transaction: one state of a database.
pub(super) struct ReadTxn<'a> {
    file: &'a DataFile,
    meta: Meta,
    generation: u64,
    lock_files: &'a LockFiles,
    /// Branches that this state has read and that are not in the cache.
    read: HashMap<u64, Arc<Page>>,
    /// The leaf that was read last, and its number; the next call most likely needs the same leaf.
    leaf: Option<(u64, Arc<Page>)>,
    ahead: LeafReadahead,
}

/// Pages that are read together for a scan: leaves that follow each other in the tree are often close to each
/// other in the file.
#[derive(Default)]
struct LeafReadahead {
    /// The number of the first page in `bytes`.
    first: u64,
    bytes: Vec<u8>,
    /// The number of leaves that the scan has read one after the other.
    leaves: usize,
}

/// Limit of the pages that are read together, in bytes.
const MAX_AHEAD_BYTES: u64 = 128 << 10;

impl LeafReadahead {
    /// Returns the bytes of a page.
    fn page(&self, number: u64, page_bytes: usize) -> Option<&[u8]> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let start = index.checked_mul(page_bytes)?;
        self.bytes.get(start..start.checked_add(page_bytes)?)
    }
}

/// The position of an entry in a leaf.
struct Cursor {
    leaf: Arc<Page>,
    index: usize,
    /// The upper bound of the keys in the leaf; `None` in the last leaf.
    end: Option<KeyBound>,
    /// `None` if the root is a leaf.
    parent: Option<ParentBranch>,
}

impl Cursor {
    fn stored(&self) -> Option<LeafValue<'_>> {
        self.leaf.stored(self.index)
    }
}

/// The branch above a leaf.
struct ParentBranch {
    branch: Arc<Page>,
    /// The entry of the leaf in the branch.
    index: usize,
    /// The upper bound of the keys below the branch; `None` in the last branch.
    end: Option<KeyBound>,
}

/// A key of a branch. Keys of the pages before it are less; keys of the pages after it are not.
#[derive(Clone)]
struct KeyBound {
    branch: Arc<Page>,
    index: usize,
}

impl KeyBound {
    /// The bound between an entry of a branch and the entry before it, if both exist.
    fn before(branch: &Arc<Page>, index: usize) -> Option<Self> {
        (1..branch.len()).contains(&index).then(|| Self {
            branch: Arc::clone(branch),
            index,
        })
    }

    fn key(&self) -> &[u8] {
        self.branch.key(self.index)
    }
}

/// Fails unless a page is of the type that its level requires, and its keys are at least `start` and less
/// than `end`.
fn check(
    page: &Page,
    number: u64,
    is_leaf: bool,
    start: Option<&KeyBound>,
    end: Option<&KeyBound>,
) -> Result<(), Failure> {
    let (start, end) = (start.map(KeyBound::key), end.map(KeyBound::key));
    if page.is_leaf != is_leaf {
        return Err(corrupt(format!("page {number}: it is of another level")));
    }
    // The key of the first entry of a branch is not used.
    let first = page.key(usize::from(!page.is_leaf));
    let last = page.key(page.len().saturating_sub(1));
    let has_keys = page.is_leaf || page.len() > 1;
    match has_keys
        && (start.is_some_and(|start| first < start) || end.is_some_and(|end| last >= end))
    {
        true => Err(corrupt(format!(
            "page {number}: its keys belong to another page"
        ))),
        false => Ok(()),
    }
}

/// Returns the page below an entry of a branch.
fn child(branch: &Page, index: usize) -> Result<u64, Failure> {
    let child = branch.child(index);
    child.ok_or_else(|| corrupt("an entry of a branch is too short"))
}

impl<'a> ReadTxn<'a> {
    pub(super) fn new(file: &'a DataFile, meta: Meta, lock_files: &'a LockFiles) -> Self {
        Self {
            file,
            meta,
            generation: file.generation(meta.txn),
            lock_files,
            read: HashMap::new(),
            leaf: None,
            ahead: LeafReadahead::default(),
        }
    }

    /// Returns the branches that were not in the cache.
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
        let bytes = match self.ahead.page(number, page_bytes) {
            Some(bytes) => bytes.to_vec(),
            None => {
                let mut bytes = vec![0; page_bytes];
                let offset = number.saturating_mul(page_bytes as u64);
                let read = self.file.bytes(offset, &mut bytes)?;
                read.ok_or_else(|| corrupt(format!("the file ends before page {number}")))?;
                bytes
            }
        };
        let page = Arc::new(Page::new(self.file.format, bytes, number, txn)?);
        if page.is_leaf {
            self.leaf = Some((number, Arc::clone(&page)));
            return Ok(page);
        }
        if self.read.len() >= self.file.cache_bytes / page_bytes.max(1) {
            self.read.clear();
        }
        self.read.insert(number, Arc::clone(&page));
        Ok(page)
    }

    /// Returns the first entry at or after a key, in the leaf that the key belongs to. The entry may be past
    /// the end of that leaf. `None` if the database is empty.
    fn descend(&mut self, key: &[u8]) -> Result<Option<Cursor>, Failure> {
        let Some(mut number) = self.meta.root else {
            return Ok(None);
        };
        let (mut start, mut end): (Option<KeyBound>, Option<KeyBound>) = (None, None);
        let mut parent = None;
        for level in 1..=self.meta.depth {
            let page = self.page(number)?;
            check(
                &page,
                number,
                level == self.meta.depth,
                start.as_ref(),
                end.as_ref(),
            )?;
            if page.is_leaf {
                let index = page.first_at(key);
                return Ok(Some(Cursor {
                    leaf: page,
                    index,
                    end,
                    parent,
                }));
            }
            let index = page.branch_of(key);
            number = child(&page, index)?;
            let branch_end = end.clone();
            start = KeyBound::before(&page, index).or(start);
            end = KeyBound::before(&page, index + 1).or(end);
            parent = Some(ParentBranch {
                branch: page,
                index,
                end: branch_end,
            });
        }
        Err(corrupt("a tree without leaves"))
    }

    /// Returns the first entry of the next leaf; `None` after the last leaf.
    fn next_leaf(&mut self, cursor: Cursor) -> Result<Option<Cursor>, Failure> {
        let Cursor { end, parent, .. } = cursor;
        let Some(start) = end else {
            return Ok(None);
        };
        let next = |parent: &ParentBranch| parent.index + 1 < parent.branch.len();
        let Some(ParentBranch { branch, index, end }) = parent.filter(next) else {
            // The keys of a page are less than its end, so the end grows from leaf to leaf.
            return self.descend(start.key());
        };
        let index = index + 1;
        let number = child(&branch, index)?;
        let leaf_end = KeyBound::before(&branch, index + 1).or_else(|| end.clone());
        self.read_ahead(&branch, index, number)?;
        let leaf = self.page(number)?;
        check(&leaf, number, true, Some(&start), leaf_end.as_ref())?;
        Ok(Some(Cursor {
            leaf,
            index: 0,
            end: leaf_end,
            parent: Some(ParentBranch { branch, index, end }),
        }))
    }

    /// Reads the leaf `number`, which is entry `index` of the branch, together with leaves after it: a range of
    /// pages of which at least half are these leaves. Each read of a scan has up to twice as many as the one before.
    fn read_ahead(&mut self, branch: &Page, index: usize, number: u64) -> Result<(), Failure> {
        let page_bytes = self.meta.page_bytes;
        self.ahead.leaves = self.ahead.leaves.saturating_add(1);
        if self.ahead.page(number, page_bytes).is_some() {
            return Ok(());
        }
        let most_pages = MAX_AHEAD_BYTES / page_bytes as u64;
        let (mut first, mut last) = (number, number);
        let (mut start, mut pages) = (number, 1);
        let next_leaves = (index + 1..branch.len()).take(self.ahead.leaves);
        for (leaves, entry) in (2..).zip(next_leaves) {
            let Some(next) = branch.child(entry) else {
                break;
            };
            (first, last) = (first.min(next), last.max(next));
            let span = last - first;
            if first < 2 || last > self.meta.last_page || span >= most_pages {
                break;
            }
            if span < leaves * 2 {
                (start, pages) = (first, span + 1);
            }
        }
        self.ahead.bytes.clear();
        if pages == 1 {
            return Ok(());
        }
        self.ahead.first = start;
        let bytes = in_memory(pages)?.saturating_mul(page_bytes);
        self.ahead.bytes.resize(bytes, 0);
        let offset = start.saturating_mul(page_bytes as u64);
        // A page that the file lacks is an error for the caller that needs it.
        if self.file.bytes(offset, &mut self.ahead.bytes)?.is_none() {
            self.ahead.bytes.clear();
        }
        Ok(())
    }

    /// Returns a value, and its bytes if it has at most `most` of them.
    fn value<'p>(
        &self,
        stored: Option<LeafValue<'p>>,
        most: u64,
    ) -> Result<ReadValue<'p>, StoreError> {
        let read = |content: Cow<'p, [u8]>| {
            let size_bytes = content.len() as u64;
            let value = ValueMeta {
                size_bytes,
                identity: (size_bytes <= SMALL_BYTES).then(|| identity_of(&content)),
            };
            (value, Some(content))
        };
        match stored {
            Some(LeafValue::Inline(content)) => Ok(read(content.into())),
            Some(LeafValue::Long { page, size_bytes }) if size_bytes <= most => {
                let mut content = vec![0; in_memory(size_bytes)?];
                match self.read_long(page, size_bytes, 0, &mut content) {
                    Ok(()) => Ok(read(content.into())),
                    Err(Failure::Failed(error)) => Err(error),
                    Err(Failure::Busy(what)) => Err(StoreError::internal(what)),
                }
            }
            Some(LeafValue::Long { size_bytes, .. }) => {
                let identity = None;
                Ok((
                    ValueMeta {
                        size_bytes,
                        identity,
                    },
                    None,
                ))
            }
            Some(LeafValue::Other) => Err(StoreError::Unsupported {
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

impl Snapshot for ReadTxn<'_> {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn modified(&self) -> SystemTime {
        self.file.state.modified()
    }

    fn may_have_writer(&self) -> bool {
        self.lock_files.are_in_use()
    }

    fn seek(&mut self, bound: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut found = None;
        self.entries(bound, &mut |_, leaf, index| {
            found = Some(leaf.key(index).to_vec());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    fn find(&mut self, key: &[u8]) -> Result<Option<FoundValue>, Failure> {
        match self.find_entry(key)? {
            Some(cursor) => self.found(&cursor).map(Some),
            None => Ok(None),
        }
    }

    fn find_with_next(&mut self, key: &[u8], bound: &[u8]) -> Result<FoundWithNext, Failure> {
        let Some(cursor) = self.find_entry(key)? else {
            return Ok(None);
        };
        let next = cursor.leaf.first_at(bound);
        let next = match (next < cursor.leaf.len(), &cursor.end) {
            (true, _) => cursor.leaf.key(next).to_vec(),
            // Keys in later leaves are at or after the end of this one.
            (false, Some(end)) if end.key() >= bound => end.key().to_vec(),
            (false, _) => return Ok(None),
        };
        Ok(Some((self.found(&cursor)?, next)))
    }

    fn scan(
        &mut self,
        bound: &[u8],
        columns: Columns,
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure> {
        self.entries(bound, &mut |state, leaf, index| {
            let value = match columns {
                Columns::Keys => None,
                Columns::All => state.value(leaf.stored(index), SMALL_BYTES).ok(),
            };
            visit(leaf.key(index), value)
        })
    }

    fn read_at(&mut self, key: &[u8], offset: u64, target: &mut [u8]) -> Result<(), Failure> {
        let cursor = self.find_entry(key)?;
        match cursor.as_ref().and_then(Cursor::stored) {
            Some(LeafValue::Inline(content)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(target.len());
                let part = content
                    .get(start..end)
                    .ok_or_else(|| corrupt("a value is shorter than it was"))?;
                target.copy_from_slice(part);
                Ok(())
            }
            Some(LeafValue::Long { page, size_bytes }) => {
                self.read_long(page, size_bytes, offset, target)
            }
            _ => Err(corrupt("a key that was found is gone")),
        }
    }
}

/// The callback for each entry of a leaf.
type VisitEntry<'a> = dyn FnMut(&ReadTxn<'_>, &Page, usize) -> ControlFlow<()> + 'a;

impl ReadTxn<'_> {
    /// Returns the entry of a key.
    fn find_entry(&mut self, key: &[u8]) -> Result<Option<Cursor>, Failure> {
        let is_key = |cursor: &Cursor| {
            cursor.index < cursor.leaf.len() && cursor.leaf.key(cursor.index) == key
        };
        Ok(self.descend(key)?.filter(is_key))
    }

    /// Returns the value of an entry.
    fn found(&self, cursor: &Cursor) -> Result<FoundValue, Failure> {
        let (value, content) = self.value(cursor.stored(), WHOLE_BYTES)?;
        let content = content.map(Cow::into_owned);
        Ok(FoundValue { value, content })
    }

    /// Visits the entries at and after `bound`, leaf by leaf, until `visit` breaks.
    fn entries(&mut self, bound: &[u8], visit: &mut VisitEntry<'_>) -> Result<(), Failure> {
        let mut next = self.descend(bound)?;
        while let Some(cursor) = next {
            for index in cursor.index..cursor.leaf.len() {
                if visit(self, &cursor.leaf, index).is_break() {
                    return Ok(());
                }
            }
            next = self.next_leaf(cursor)?;
        }
        Ok(())
    }
}
