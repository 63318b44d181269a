//! Open directories of references, read page by page. A cookie is the number of names before it.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Child, Entry, Page, Shared};
use crate::store::{Key, Kind, Listed, Listing, Stat, StoreError, Visit, Visited};

/// The first names of every listing.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// An open prefix with one page in memory.
#[derive(Debug)]
pub(super) struct ReferenceListing {
    shared: Arc<Shared>,
    prefix: Key,
    /// The beginning of each known page: its first cookie and its position.
    starts: Vec<(u64, u64)>,
    /// The index in `starts` of the page in memory.
    at: usize,
    page: Page,
    /// The first cookie that the last visit did not find in the page.
    wanted: u64,
}

impl ReferenceListing {
    pub(super) async fn open(shared: &Arc<Shared>, prefix: &Key) -> Result<Self, StoreError> {
        if let Entry::Value(_) = shared.references.find(prefix).await? {
            let key = prefix.clone();
            return Err(StoreError::NotAPrefix { key });
        }
        let page = shared.references.children(prefix, 0).await?;
        let mut listing = Self {
            shared: Arc::clone(shared),
            prefix: prefix.clone(),
            starts: vec![(DOTS.len() as u64, 0)],
            at: 0,
            page,
            wanted: 0,
        };
        listing.record_next_page();
        Ok(listing)
    }

    /// Returns the first cookie of the page in memory.
    fn first(&self) -> u64 {
        self.starts.get(self.at).map_or(0, |(first, _)| *first)
    }

    /// Records where the next page begins.
    fn record_next_page(&mut self) {
        let end = self.first().saturating_add(self.page.children.len() as u64);
        if let (Some(next), true) = (self.page.next, self.starts.len() == self.at + 1) {
            self.starts.push((end, next));
        }
    }

    async fn load_page(&mut self, at: usize) -> Result<(), StoreError> {
        let Some((_, position)) = self.starts.get(at).copied() else {
            return Err(StoreError::internal("a page that no page names"));
        };
        let references = &self.shared.references;
        self.page = references.children(&self.prefix, position).await?;
        self.at = at;
        self.record_next_page();
        Ok(())
    }

    fn stat(&self, child: &Child) -> (Kind, Option<Stat>) {
        match &child.reference {
            None => (Kind::Prefix, Some(self.shared.prefix_stat())),
            Some(reference) => {
                let size_bytes = reference.size_bytes();
                let stat = size_bytes.map(|size| self.shared.object_stat(reference, size));
                (Kind::Object, stat)
            }
        }
    }
}

#[async_trait]
impl Listing for ReferenceListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let dots = (1..).zip(DOTS).filter(|(next, _)| *next > cookie);
        for (next, name) in dots {
            let (kind, stat) = (Kind::Prefix, None);
            let listed = Listed {
                name,
                kind,
                stat,
                next,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        let cookie = cookie.max(DOTS.len() as u64);
        let first = self.first();
        if cookie < first {
            self.wanted = cookie;
            return Ok(Visited::Pending);
        }
        let skip = usize::try_from(cookie - first).unwrap_or(usize::MAX);
        for (next, child) in (cookie + 1..).zip(self.page.children.iter().skip(skip)) {
            let (kind, stat) = self.stat(child);
            let listed = Listed {
                name: &child.name,
                kind,
                stat,
                next,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        self.wanted = cookie.max(first.saturating_add(self.page.children.len() as u64));
        match self.page.next {
            None => Ok(Visited::End),
            Some(_) => Ok(Visited::Pending),
        }
    }

    /// Loads the page that contains the requested cookie.
    async fn load(&mut self) -> Result<(), StoreError> {
        loop {
            let known = self
                .starts
                .partition_point(|(first, _)| *first <= self.wanted);
            let at = known.saturating_sub(1);
            self.load_page(at).await?;
            let is_beyond = self
                .starts
                .get(at + 1)
                .is_some_and(|(first, _)| *first <= self.wanted);
            if !is_beyond {
                return Ok(());
            }
        }
    }
}
