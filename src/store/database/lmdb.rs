//! LMDB data files, read without a lock file and without a memory map.
//!
//! Liblmdb needs to write to the lock file beside the data, maps a file of up to 1 TiB, and crashes if a
//! mapped file is truncated. This reader reads pages with pread(2) and takes no part in the locking.
//!
//! **Invariant:** an answer is given if the meta page of its state is the same before and behind the
//! reads. A commit of transaction N writes the meta page that N - 2 has written, and a writer takes only
//! pages that transactions up to two before its own have freed. A page of state N is freed by N + 1 at
//! the earliest, so it is written again by N + 3 at the earliest, which begins when N + 2 has replaced
//! the meta page of N.
//!
//! Pages are untrusted: numbers, kinds, levels, bounds, and the order of keys within a page and between
//! a page and those above it are checked. Damage is an error, and never the absence of a key.

mod format;
mod page;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use siphasher::sip::SipHasher13;

use self::format::{Format, Head, META_BYTES, Meta, OVERFLOW, format_of};
use self::page::{Page, Stored};
use super::versions::identity_of;
use super::{
    Columns, Database, Failure, SMALL_BYTES, Snapshot, Value, VisitRow, Wait, Work, corrupt, gone,
};
use crate::store::{Extent, Key, StoreError};
use crate::sync::Mutex;

/// The name of the data file in the directory of a database.
pub(super) const DATA_FILE: &str = "data.mdb";

/// Whether a file begins as an LMDB data file.
pub(super) fn is_lmdb(header: &[u8]) -> bool {
    format_of(header).is_some()
}

/// An LMDB database.
#[derive(Debug)]
pub(super) struct LmdbDatabase {
    path: PathBuf,
    file: Mutex<Arc<DataFile>>,
}

/// An open data file.
#[derive(Debug)]
struct DataFile {
    file: File,
    device: u64,
    inode: u64,
    format: Format,
    cache: Mutex<Cache>,
}

/// Branches of one state, which was proved.
#[derive(Debug, Default)]
struct Cache {
    txn: u64,
    pages: HashMap<u64, Arc<Page>>,
}

/// Pages that are kept, in bytes.
const CACHE_BYTES: usize = 8 << 20;
/// States that one call tries before it waits.
const MAX_ATTEMPTS: usize = 16;

impl LmdbDatabase {
    /// Opens a data file.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let file = Mutex::new(Arc::new(DataFile::open(&path)?));
        Ok(Self { path, file })
    }

    /// The file that the path leads to.
    fn current(&self) -> Result<Arc<DataFile>, Failure> {
        let failed = |error| Failure::Failed(gone(error));
        let there = fs::metadata(&self.path).map_err(failed)?;
        let mut file = self.file.lock();
        if (file.device, file.inode) != (there.dev(), there.ino()) {
            *file = Arc::new(DataFile::open(&self.path).map_err(failed)?);
        }
        Ok(Arc::clone(&file))
    }
}

impl Database for LmdbDatabase {
    fn read(&self, _: Wait, work: &mut Work<'_>) -> Result<(), Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let file = self.current()?;
            let Some((meta, before)) = file.state()? else {
                continue;
            };
            let mut snapshot = State {
                file: &file,
                meta,
                generation: file.generation(meta.txn),
                modified: OnceCell::new(),
                read: HashMap::new(),
                leaf: None,
            };
            let result = work(&mut snapshot);
            let read = snapshot.read;
            if file.meta_page(meta.page_bytes, meta.txn & 1)? == before {
                file.remember(&meta, read);
                return result;
            }
        }
        Err(Failure::Busy(
            "state of the database that lasts for one read",
        ))
    }

    fn extent(&self) -> Extent {
        // The apparent size is often that of the map, which was chosen to be large.
        let blocks = |file: fs::Metadata| file.blocks().saturating_mul(512);
        let state = || self.current().ok()?.state().ok()?;
        Extent {
            bytes: fs::metadata(&self.path).map_or(0, blocks),
            keys: state().map_or(0, |(meta, _)| meta.entries),
        }
    }
}

impl DataFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let there = file.metadata()?;
        let mut header = [0; 64];
        let filled = file.read_at(&mut header, 0)?;
        let header = header.get(..filled).unwrap_or_default();
        let format = format_of(header).ok_or_else(|| io::Error::other("no LMDB data file"))?;
        Ok(Self {
            file,
            device: there.dev(),
            inode: there.ino(),
            format,
            cache: Mutex::default(),
        })
    }

    /// Bytes of the file; `None` if it ends before them.
    fn bytes(&self, offset: u64, target: &mut [u8]) -> Result<Option<()>, Failure> {
        match self.file.read_exact_at(target, offset) {
            Ok(()) => Ok(Some(())),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Failure::Failed(StoreError::from_io(&Key::root(), e))),
        }
    }

    /// The head and the body of a meta page.
    fn meta_page(&self, page_bytes: usize, number: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; self.format.head_bytes + META_BYTES];
        let offset = (page_bytes as u64).saturating_mul(number);
        let read = self.bytes(offset, &mut bytes)?;
        let ends = || corrupt(format!("the file ends in meta page {number}"));
        read.map(|()| bytes).ok_or_else(ends)
    }

    /// The present state, and the bytes of its meta page; `None` if a commit came between.
    ///
    /// The first page is read again behind the second: a page that is being written is that of the older
    /// state, and both would have to change to make the older one look like the newer one.
    fn state(&self) -> Result<Option<(Meta, Vec<u8>)>, Failure> {
        let first = self.meta_page(0, 0)?;
        let state = self.parse_metas(&first);
        if self.meta_page(0, 0)? != first {
            return Ok(None);
        }
        match state {
            Ok(state) => Ok(Some(state)),
            // A second page that was being written is read again.
            Err(error) => match self.parse_metas(&first) {
                Ok(_) => Ok(None),
                Err(_) => Err(error),
            },
        }
    }

    fn parse_metas(&self, first: &[u8]) -> Result<(Meta, Vec<u8>), Failure> {
        let zero = Meta::parse(&self.format, first, 0)?;
        let second = self.meta_page(zero.page_bytes, 1)?;
        let one = Meta::parse(&self.format, &second, 1)?;
        if zero.page_bytes != one.page_bytes {
            return Err(corrupt("its meta pages have different page sizes"));
        }
        // Commits take turns, so the pages are of consecutive transactions.
        if zero.txn.abs_diff(one.txn) > 1 {
            return Err(corrupt("its meta pages are of transactions far apart"));
        }
        Ok(match zero.txn < one.txn {
            true => (one, second),
            false => (zero, first.to_vec()),
        })
    }

    fn generation(&self, txn: u64) -> u64 {
        let mut hasher = SipHasher13::new();
        (self.device, self.inode, txn).hash(&mut hasher);
        hasher.finish()
    }

    fn cached(&self, txn: u64, number: u64) -> Option<Arc<Page>> {
        let cache = self.cache.lock();
        let page = cache.pages.get(&number).filter(|_| cache.txn == txn);
        page.cloned()
    }

    /// Keeps branches of a state that was proved.
    fn remember(&self, meta: &Meta, pages: HashMap<u64, Arc<Page>>) {
        let most = CACHE_BYTES / meta.page_bytes.max(1);
        let mut cache = self.cache.lock();
        if cache.txn != meta.txn || cache.pages.len().saturating_add(pages.len()) > most {
            cache.pages.clear();
        }
        cache.txn = meta.txn;
        cache.pages.extend(pages);
    }
}

/// One state of a database.
struct State<'a> {
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

impl State<'_> {
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
