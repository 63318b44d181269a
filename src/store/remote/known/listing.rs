//! Names of prefixes: listed page by page while a program reads, and cached once they are complete.
//!
//! One request for all keys below a prefix often returns the whole hierarchy. If it fits on one page,
//! every prefix below is known from then on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::KnownNames;
use super::attr_cache::{Attrs, CachedAttrs};
use crate::cache::WeightedLru;
use crate::clock::Instant;
#[cfg(test)]
use crate::runtime::simulated::{Mutation, is_mutated};
use crate::store::remote::request::{Depth, List, MAX_EMPTY_PAGES, Meta, Page, RequestError};
use crate::store::{Key, Kind, Listed, Listing, StoreError, Visit, Visited};
use crate::sync::Mutex;

/// One listed name.
#[derive(Debug, Clone)]
pub(in crate::store::remote) struct ListedName {
    name: Box<[u8]>,
    kind: Kind,
    meta: Option<Meta>,
}

/// Estimated bytes of a name, and of an empty listing, besides the text of the names.
const NAME_BYTES: u64 = 160;
/// A page whose prefixes would take more bytes than this is not expanded to a tree.
const MAX_TREE_BYTES: usize = 16 << 20;
/// Limit of one listing, as a multiple of the budget of all cached listings.
const LONGEST: u64 = 4;

/// All names of a prefix, sorted.
#[derive(Debug)]
pub(in crate::store::remote) struct SortedNames(Vec<ListedName>);

impl SortedNames {
    /// Sorts names; a name that is listed both as a value and as a prefix becomes a prefix.
    fn new(mut names: Vec<ListedName>) -> Self {
        let is_object = |name: &ListedName| name.kind == Kind::Object;
        names.sort_by(|one, other| {
            let by_name = one.name.cmp(&other.name);
            by_name.then(is_object(one).cmp(&is_object(other)))
        });
        names.dedup_by(|one, other| one.name == other.name);
        Self(names)
    }

    fn find(&self, name: &[u8]) -> Option<&ListedName> {
        let place = self.0.binary_search_by(|there| (*there.name).cmp(name));
        place.ok().and_then(|place| self.0.get(place))
    }

    fn bytes(&self) -> u64 {
        let names = self.0.iter().map(|name| name.name.len() as u64);
        let each = names.map(|length| length.saturating_add(NAME_BYTES));
        each.sum::<u64>().saturating_add(NAME_BYTES)
    }
}

/// A complete listing.
#[derive(Debug, Clone)]
struct CachedListing {
    names: Arc<SortedNames>,
    /// When the request for the first page was sent.
    requested_at: Instant,
    /// When the last page had arrived.
    received_at: Instant,
    /// Whether the listing is known to be wrong; it still tells which keys were absent before.
    is_outdated: bool,
}

/// Number of names of a listing that is requested again for a key that it lacked: one page of a bucket.
const MAX_REPEATED: usize = 1000;

/// Complete listings; the least recently used ones are evicted first.
#[derive(Debug)]
pub(in crate::store::remote) struct ListingCache {
    listings: Mutex<WeightedLru<Key, CachedListing>>,
    budget_bytes: u64,
    ttl: Duration,
    /// How long the absence of a name is trusted if a writer may add it at any moment.
    absent_ttl: Duration,
}

impl ListingCache {
    pub(in crate::store::remote) fn new(
        budget_bytes: u64,
        ttl: Duration,
        absent_ttl: Duration,
    ) -> Self {
        Self {
            listings: Mutex::new(WeightedLru::new(budget_bytes, usize::MAX)),
            budget_bytes,
            ttl,
            absent_ttl,
        }
    }

    fn get(&self, prefix: &Key) -> Option<CachedListing> {
        let mut listings = self.listings.lock();
        let listing = listings.get(prefix)?;
        let is_trusted = !listing.is_outdated && listing.requested_at.elapsed() < self.ttl;
        is_trusted.then(|| listing.clone())
    }

    /// Returns the prefix of a short listing, of any age, that lacked a key; `None` if no listing did.
    pub(in crate::store::remote) fn absent_before(&self, key: &Key) -> Option<Key> {
        let (mut below, mut prefix) = (key.clone(), key.parent());
        while !below.is_root() {
            if let Some(listing) = self.listings.lock().get(&prefix) {
                let name = below.as_bytes().rsplit(|byte| *byte == b'/').next()?;
                let is_short = listing.names.0.len() <= MAX_REPEATED;
                let is_absent = is_short && listing.names.find(name).is_none();
                return is_absent.then_some(prefix);
            }
            (below, prefix) = (prefix.clone(), prefix.parent());
        }
        None
    }

    /// Looks up a key in the complete listings. `is_settled` means that a key which is absent now is not
    /// added later, unlike a chunk. The absence of other keys is trusted for a while, or if they were listed
    /// after `since`.
    pub(in crate::store::remote) fn find(
        &self,
        key: &Key,
        is_settled: bool,
        since: Option<Instant>,
    ) -> Option<CachedAttrs> {
        let known = |listing: CachedListing, attrs| {
            Some(CachedAttrs {
                attrs,
                requested_at: listing.requested_at,
                received_at: listing.received_at,
                is_checked: false,
            })
        };
        if let Some(own) = self.get(key).filter(|own| !own.names.0.is_empty()) {
            return known(own, Attrs::Prefix);
        }
        let (mut below, mut prefix) = (key.clone(), key.parent());
        while !below.is_root() {
            if let Some(listing) = self.get(&prefix) {
                let name = below.as_bytes().rsplit(|byte| *byte == b'/').next();
                let is_recent = || {
                    listing.requested_at.elapsed() < self.absent_ttl
                        || since.is_some_and(|since| listing.requested_at >= since)
                };
                let attrs = match name.and_then(|name| listing.names.find(name)) {
                    None if is_settled || is_recent() => Attrs::Absent,
                    // A listing of a prefix above proves only that the key is absent.
                    Some(name) if below == *key => match (name.kind, name.meta.clone()) {
                        (Kind::Prefix, _) => Attrs::Prefix,
                        (Kind::Object, Some(meta)) => Attrs::Object(meta),
                        (Kind::Object, None) => return None,
                    },
                    _ => return None,
                };
                return known(listing, attrs);
            }
            (below, prefix) = (prefix.clone(), prefix.parent());
        }
        None
    }

    /// Marks the listing of a prefix as outdated.
    pub(in crate::store::remote) fn invalidate(&self, prefix: &Key) {
        if let Some(listing) = self.listings.lock().get_mut(prefix) {
            listing.is_outdated = true;
        }
    }

    /// Marks the listings as outdated that tell about a key and were requested before a moment.
    pub(in crate::store::remote) fn invalidate_before(&self, key: &Key, moment: Instant) {
        let mut listings = self.listings.lock();
        let mut below = key.clone();
        while !below.is_root() {
            below = below.parent();
            if let Some(listing) = listings.get_mut(&below) {
                listing.is_outdated |= listing.requested_at < moment;
            }
        }
    }

    fn insert(&self, prefix: Key, names: Arc<SortedNames>, requested_at: Instant) {
        let weight = names.bytes();
        if weight <= self.budget_bytes {
            let listing = CachedListing {
                names,
                requested_at,
                received_at: Instant::now(),
                is_outdated: false,
            };
            let evicted = self.listings.lock().insert(prefix, listing, weight);
            drop(evicted);
        }
    }

    /// Caches the names that one page holds for a prefix and for every prefix below it.
    fn insert_tree(&self, root: &Key, page: Page, since: Instant) -> Arc<SortedNames> {
        let mut prefixes: BTreeMap<Vec<u8>, Vec<ListedName>> = BTreeMap::new();
        let own = page.prefixes.into_iter();
        let own = own.map(|key| (key, Kind::Prefix, None));
        let objects = page.objects.into_iter();
        let objects = objects.map(|(key, meta)| (key, Kind::Object, meta));
        prefixes.insert(Vec::new(), Vec::new());
        for (key, kind, meta) in own.chain(objects) {
            let mut prefix: &[u8] = &[];
            let mut rest = &key[..];
            while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
                let name = rest.get(..slash).unwrap_or_default();
                let end = key.len() - rest.len() + slash;
                let below = key.get(..end).unwrap_or_default();
                if !prefixes.contains_key(below) {
                    prefixes
                        .entry(prefix.to_vec())
                        .or_default()
                        .push(ListedName {
                            name: name.into(),
                            kind: Kind::Prefix,
                            meta: None,
                        });
                    prefixes.insert(below.to_vec(), Vec::new());
                }
                prefix = below;
                rest = rest.get(slash + 1..).unwrap_or_default();
            }
            prefixes
                .entry(prefix.to_vec())
                .or_default()
                .push(ListedName {
                    name: rest.into(),
                    kind,
                    meta,
                });
        }
        let mut top = Arc::new(SortedNames(Vec::new()));
        for (below, names) in prefixes {
            let names = Arc::new(SortedNames::new(names));
            let Ok(below) = Key::new(&below) else {
                continue;
            };
            if below.is_root() {
                top = Arc::clone(&names);
            }
            self.insert(root.join_key(&below), names, since);
        }
        top
    }
}

/// A listing that requests pages while it is read.
#[derive(Debug)]
pub(in crate::store::remote) struct RemoteListing {
    known: Arc<KnownNames>,
    prefix: Key,
    names: Arc<SortedNames>,
    /// The unread rest of the listing; `None` once `names` is complete.
    rest: Option<OpenListing>,
}

/// The state of a listing of which pages are still to be requested.
#[derive(Debug)]
struct OpenListing {
    next: NextPage,
    /// The last name from a listing of all keys. A server that does not support listings after a name
    /// lists the names up to this one again.
    listed: Option<Vec<u8>>,
    since: Instant,
    /// Estimated bytes of its names so far.
    bytes: u64,
    /// Number of consecutive pages without a name.
    empty: u32,
    /// Whether all pages together hold all names.
    is_complete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NextPage {
    Page(Option<String>),
    /// After this name, the last one from a listing of all keys.
    After(Vec<u8>),
}

/// The first names of every listing.
const DOTS: [&[u8]; 2] = [b".", b".."];

impl KnownNames {
    /// Requests one page of names.
    async fn list(&self, list: List) -> Result<Page, StoreError> {
        let prefix = list.prefix.clone();
        let page = self.requests.list(list).await;
        #[cfg(test)]
        let page = page.map(|page| Page {
            next: page.next.filter(|_| !is_mutated(Mutation::FirstPageOnly)),
            ..page
        });
        page.map_err(|error| error.of(&prefix))
    }

    /// Caches a complete listing on disk, if the source is immutable.
    fn store_listing(&self, prefix: &Key, page: &Page) {
        if self.identity.is_immutable() {
            self.disk.insert_listing(prefix, page);
        }
    }

    /// Returns a complete listing from the disk cache, if the source is immutable.
    async fn stored_listing(&self, prefix: &Key) -> Option<Page> {
        match self.identity.is_immutable() {
            true => {
                self.disk
                    .listing(prefix, self.listings.budget_bytes / 2)
                    .await
            }
            false => None,
        }
    }
}

impl RemoteListing {
    /// Opens a prefix, from a cached listing or with its first page.
    pub(in crate::store::remote) async fn open(
        known: &Arc<KnownNames>,
        prefix: &Key,
    ) -> Result<Self, StoreError> {
        match known.listings.get(prefix) {
            Some(listing) => Ok(Self::complete(known, prefix, listing.names)),
            None => Self::request(known, prefix).await,
        }
    }

    fn complete(known: &Arc<KnownNames>, prefix: &Key, names: Arc<SortedNames>) -> Self {
        Self {
            known: Arc::clone(known),
            prefix: prefix.clone(),
            names,
            rest: None,
        }
    }

    /// Requests the first page of a prefix.
    pub(in crate::store::remote) async fn request(
        known: &Arc<KnownNames>,
        prefix: &Key,
    ) -> Result<Self, StoreError> {
        let complete = |names| Self::complete(known, prefix, names);
        let since = Instant::now();
        if let Some(page) = known.stored_listing(prefix).await {
            return Ok(complete(known.listings.insert_tree(prefix, page, since)));
        }
        let mut next = NextPage::Page(None);
        let mut names = Vec::new();
        let mut listed = None;
        if known.can_list() {
            let page = known.list(list_of(prefix, Depth::All, &next)).await?;
            let since = page.since.unwrap_or(since);
            if is_whole_tree(&page) {
                known.store_listing(prefix, &page);
                return Ok(complete(known.listings.insert_tree(prefix, page, since)));
            }
            let is_flat = |(key, _): &(Vec<u8>, _)| !key.contains(&b'/');
            // Directory buckets of S3 list in no order, so that the last name says nothing about the rest.
            let is_sorted = page.objects.is_sorted_by_key(|(key, _)| key);
            if is_sorted
                && page.prefixes.is_empty()
                && page.objects.iter().all(is_flat)
                && let Some((last, _)) = page.objects.last()
            {
                // The rest is listed one level deep, because a prefix may follow.
                next = NextPage::After(last.clone());
                listed = Some(last.clone());
                names = names_of(page);
            }
        }
        let mut listing = Self {
            known: Arc::clone(known),
            prefix: prefix.clone(),
            names: Arc::new(SortedNames(names)),
            rest: Some(OpenListing {
                next,
                listed,
                since,
                bytes: 0,
                empty: 0,
                is_complete: known.lists_completely(),
            }),
        };
        while listing.is_empty() && listing.rest.is_some() {
            listing.load_page().await?;
        }
        Ok(listing)
    }

    /// Whether all names are listed.
    pub(in crate::store::remote) fn is_at_end(&self) -> bool {
        self.rest.is_none()
    }

    /// Whether no name is listed so far.
    pub(in crate::store::remote) fn is_empty(&self) -> bool {
        self.names.0.is_empty()
    }

    /// Whether the names listed so far contain `name`.
    pub(in crate::store::remote) fn lists(&self, name: &[u8]) -> bool {
        self.names.0.iter().any(|there| *there.name == *name)
    }

    /// Loads and adds a page.
    async fn load_page(&mut self) -> Result<(), StoreError> {
        let Some(rest) = &mut self.rest else {
            return Ok(());
        };
        let page = self
            .known
            .list(list_of(&self.prefix, Depth::One, &rest.next))
            .await?;
        let fails = |what: &str| RequestError::lasting(what).of(&self.prefix);
        rest.is_complete &= page.is_complete;
        rest.since = page.since.map_or(rest.since, |since| since.min(rest.since));
        let next = page.next.clone().map(|token| NextPage::Page(Some(token)));
        let more = names_of(page);
        // A page without a name may return its own token again.
        if next.as_ref() == Some(&rest.next) && !more.is_empty() {
            return Err(fails("the listing comes to the same page again"));
        }
        rest.empty = if more.is_empty() { rest.empty + 1 } else { 0 };
        if rest.empty > MAX_EMPTY_PAGES {
            return Err(fails("the listing has page after page without a name"));
        }
        let is_new = |name: &ListedName| {
            let listed = rest.listed.as_deref();
            name.kind == Kind::Prefix || listed.is_none_or(|listed| *name.name > *listed)
        };
        let more: Vec<ListedName> = more.into_iter().filter(is_new).collect();
        let (since, is_complete) = (rest.since, rest.is_complete);
        let is_last = next.is_none();
        if let Some(next) = next {
            rest.next = next;
        }
        let added = more.iter().map(|name| name.name.len() as u64 + NAME_BYTES);
        rest.bytes = rest.bytes.saturating_add(added.sum());
        let limit_bytes = self.known.listings.budget_bytes.saturating_mul(LONGEST);
        if rest.bytes > limit_bytes {
            return Err(StoreError::TooLarge {
                key: self.prefix.clone(),
                need_bytes: rest.bytes,
                limit_bytes,
            });
        }
        match Arc::get_mut(&mut self.names) {
            Some(names) => names.0.extend(more),
            None => {
                let both = self.names.0.iter().cloned().chain(more);
                self.names = Arc::new(SortedNames(both.collect()));
            }
        }
        if is_last {
            self.rest = None;
            // Names that will not be cached are not copied.
            if is_complete && self.names.bytes() <= self.known.listings.budget_bytes {
                let names = Arc::new(SortedNames::new(self.names.0.clone()));
                self.known.store_listing(&self.prefix, &page_of(&names));
                self.known
                    .listings
                    .insert(self.prefix.clone(), names, since);
            }
        }
        Ok(())
    }
}

/// Whether a page has all keys below its prefix, and few enough to be expanded to a tree.
fn is_whole_tree(page: &Page) -> bool {
    page.next.is_none() && page.is_complete && tree_bytes(page) <= MAX_TREE_BYTES
}

/// Upper bound of the bytes of the prefixes in a page, because keys can have very many components.
fn tree_bytes(page: &Page) -> usize {
    let objects = page.objects.iter().map(|(key, _)| key);
    let keys = objects.chain(&page.prefixes).map(|key| {
        let parts = key.iter().filter(|byte| **byte == b'/').count();
        key.len().saturating_mul(parts)
    });
    keys.fold(0, usize::saturating_add)
}

fn list_of(prefix: &Key, depth: Depth, next: &NextPage) -> List {
    let (page, after) = match next {
        NextPage::Page(page) => (page.clone(), None),
        NextPage::After(after) => (None, Some(after.clone())),
    };
    List {
        prefix: prefix.clone(),
        depth,
        page,
        after,
        most: None,
    }
}

/// Converts names to a page.
fn page_of(names: &SortedNames) -> Page {
    let mut page = Page {
        is_complete: true,
        ..Page::default()
    };
    for name in &names.0 {
        match name.kind {
            Kind::Object => page.objects.push((name.name.to_vec(), name.meta.clone())),
            Kind::Prefix => page.prefixes.push(name.name.to_vec()),
        }
    }
    page
}

/// Returns the names of a page; a name that is both an object and a prefix becomes a prefix.
fn names_of(page: Page) -> Vec<ListedName> {
    let prefixes: std::collections::BTreeSet<&[u8]> =
        page.prefixes.iter().map(Vec::as_slice).collect();
    let objects = page.objects.iter();
    let objects = objects.filter(|(name, _)| !prefixes.contains(&name[..]));
    let objects = objects.map(|(name, meta)| ListedName {
        name: name.as_slice().into(),
        kind: Kind::Object,
        meta: meta.clone(),
    });
    let prefixes = prefixes.iter().map(|name| ListedName {
        name: (*name).into(),
        kind: Kind::Prefix,
        meta: None,
    });
    prefixes.chain(objects).collect()
}

#[async_trait]
impl Listing for RemoteListing {
    fn visit(&mut self, cookie: u64, visit: &mut Visit<'_>) -> Result<Visited, StoreError> {
        let mut at = cookie;
        for (next, name) in (1_u64..).zip(DOTS) {
            if next <= at {
                continue;
            }
            let listed = Listed {
                name,
                kind: Kind::Prefix,
                stat: None,
                next,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
            at = next;
        }
        let skip = usize::try_from(at.saturating_sub(DOTS.len() as u64)).unwrap_or(usize::MAX);
        for name in self.names.0.iter().skip(skip) {
            at = at.saturating_add(1);
            let stat = match name.kind {
                Kind::Prefix => Some(self.known.prefix_stat()),
                Kind::Object => name.meta.as_ref().map(Meta::stat),
            };
            let listed = Listed {
                name: &name.name,
                kind: name.kind,
                stat,
                next: at,
            };
            if visit(listed).is_break() {
                return Ok(Visited::Stopped);
            }
        }
        Ok(match self.rest {
            Some(_) => Visited::Pending,
            None => Visited::End,
        })
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        self.load_page().await
    }
}
