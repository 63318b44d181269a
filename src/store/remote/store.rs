//! A tree of keys that is somewhere else, as a [`Store`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use super::bodies::{Bodies, Reserved};
use super::facts::{Fact, Facts};
use super::listing::{Listings, MAX_EMPTY_PAGES, RemoteListing};
use super::runtime::Network;
use super::segments::{Segment, Segments};
use super::traffic::{Counters, TransferStats};
use super::value::{RemoteObject, Value};
use super::{Depth, Get, Got, List, Meta, Page, Part, Remote, RequestError};
use crate::store::flight::Flights;
use crate::store::waiting::may_wait;
use crate::store::{
    AccessHint, Capabilities, DiskCache, Extent, Key, Kind, Listing, ListingSupport, Object, Stat,
    Store, StoreError, Version,
};

/// What a store and its open objects share.
#[derive(Debug)]
pub(super) struct Far {
    pub(super) remote: Arc<dyn Remote>,
    pub(super) network: Network,
    pub(super) label: String,
    /// What tells the source from any other one, for the disk cache.
    pub(super) identity: String,
    /// Whether it lists; found out when it is opened.
    pub(super) can_list: AtomicBool,
    pub(super) timeout: Duration,
    pub(super) facts: Facts,
    pub(super) listings: Listings,
    pub(super) segments: Segments,
    pub(super) bodies: Bodies,
    pub(super) disk: Option<Arc<DiskCache>>,
    pub(super) counters: Arc<Counters>,
    /// A key that was there when the source was opened: without it nothing is absent, all is gone.
    pub(super) anchor: OnceLock<Key>,
    /// When the source was changed, as far as it tells.
    pub(super) modified: OnceLock<SystemTime>,
    pub(super) questions: Flights<Key, Fact>,
    pub(super) wholes: Flights<(Key, Part), Value>,
    pub(super) parts: Flights<Segment, Arc<Vec<u8>>>,
}

/// Absence is believed for so long without looking whether the source itself is still there.
const ANCHOR_TTL: Duration = Duration::from_secs(1);
/// Documents of metadata are not longer than this; a value that looks like one is fetched whole.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

impl Far {
    pub(super) fn can_list(&self) -> bool {
        self.can_list.load(Ordering::Relaxed)
    }

    pub(super) fn listings(&self) -> &Listings {
        &self.listings
    }

    /// What was asked for and what is kept.
    pub(super) fn usage(&self) -> TransferStats {
        TransferStats {
            total: self.counters.total(),
            arrays: self.counters.by_prefix(),
            disk: self.disk.as_ref().map(|disk| disk.counters()),
            memory_bytes: self.segments.bytes(),
        }
    }

    /// Memory for a body of so many bytes that is copied once; waits for it.
    pub(super) fn reserve(&self, key: &Key, bytes: u64) -> Result<Reserved, StoreError> {
        let bytes = bytes.saturating_mul(2);
        let reserved = self.bodies.reserve(bytes, &self.network, self.timeout);
        reserved.ok_or_else(|| self.late(key))
    }

    /// The same for what is read ahead; none if readers need it.
    pub(super) fn reserve_spare(&self, bytes: u64) -> Option<Reserved> {
        self.bodies.reserve_spare(bytes.saturating_mul(2))
    }

    /// When who asks now wants to have an answer.
    pub(super) fn deadline(&self) -> Instant {
        // The request itself ends by its own deadline; what follows it gets some time more.
        Instant::now() + self.timeout + Duration::from_secs(1)
    }

    pub(super) fn late(&self, key: &Key) -> StoreError {
        StoreError::TimedOut {
            key: key.clone(),
            what: format!("answer ({:.1?})", self.timeout),
        }
    }

    /// What is told of a prefix: nothing but that it is one.
    pub(super) fn prefix_stat(&self) -> Stat {
        Stat {
            kind: Kind::Prefix,
            size_bytes: 0,
            modified: self
                .modified
                .get()
                .copied()
                .unwrap_or(SystemTime::UNIX_EPOCH),
            version: Version(0),
            links: 2,
        }
    }

    /// One page of names.
    pub(super) fn list(&self, list: &List) -> Result<Page, StoreError> {
        may_wait(&list.prefix)?;
        let page = self.network.wait(self.remote.list(list));
        page.map_err(|error| error.of(&list.prefix))
    }

    /// Bytes of an object; what the answer says of it is known from then on.
    pub(super) fn get(&self, get: &Get) -> Result<Got, RequestError> {
        let asked = Instant::now();
        let answer = self.network.wait(self.remote.get(get));
        match &answer {
            Ok(Got { meta, .. }) | Err(RequestError::TooLong(meta)) => {
                self.facts.put(&get.key, Fact::Object(meta.clone()), asked);
            }
            Err(RequestError::IsPrefix) => self.facts.put(&get.key, Fact::Prefix, asked),
            Err(RequestError::Changed(_)) => self.forget(&get.key),
            // It was there.
            Err(RequestError::NotFound) if get.expected.is_some() => self.forget(&get.key),
            Err(_) => {}
        }
        answer
    }

    /// What is known of a key is not so any more.
    fn forget(&self, key: &Key) {
        self.facts.forget(key);
        self.listings.forget(&key.parent());
    }

    /// A fact that needs no request.
    fn known(&self, key: &Key) -> Option<Fact> {
        if key.is_root() {
            return Some(Fact::Prefix);
        }
        let is_settled = is_document(key);
        let fact = self.facts.get(key);
        fact.or_else(|| self.listings.find(key, is_settled))
    }

    /// What a key leads to.
    pub(super) fn fact(&self, key: &Key) -> Result<Fact, StoreError> {
        if let Some(fact) = self.known(key) {
            return Ok(fact);
        }
        may_wait(key)?;
        let ask = || self.find_out(key);
        let answer = self.questions.answer(key.clone(), self.deadline(), ask);
        answer.unwrap_or_else(|| Err(self.late(key)))
    }

    fn find_out(&self, key: &Key) -> Result<Fact, StoreError> {
        if is_document(key) {
            // Who wants to know it will read it.
            return match self.whole(key, MAX_DOCUMENT_BYTES) {
                Ok(value) => Ok(Fact::Object(value.meta)),
                Err(StoreError::NotFound { .. }) => Ok(Fact::Absent),
                Err(StoreError::NotAPrefix { .. }) => Ok(Fact::Prefix),
                Err(error) => Err(error),
            };
        }
        let asked = Instant::now();
        let below = List {
            prefix: key.clone(),
            depth: Depth::All,
            page: None,
            after: None,
            most: Some(1),
        };
        let (head, page) = match self.can_list() {
            true => {
                let both = async {
                    let head = self.head(key);
                    futures_util::future::join(head, self.first_page(below)).await
                };
                let (head, page) = self.network.wait(both);
                (head, Some(page))
            }
            false => (self.network.wait(self.head(key)), None),
        };
        let (is_prefix, refusal) = match page {
            Some(Ok(has_names)) => (has_names, None),
            // Who may not list may still read.
            Some(Err(error @ (RequestError::Denied(_) | RequestError::Expired(_)))) => {
                (false, Some(error))
            }
            None => (false, None),
            Some(Err(error)) => return Err(error.of(key)),
        };
        let fact = match (head, refusal) {
            _ if is_prefix => Fact::Prefix,
            (Ok(meta), _) => Fact::Object(meta),
            (Err(RequestError::IsPrefix), _) => Fact::Prefix,
            (Err(RequestError::NotFound), Some(refusal)) => return Err(refusal.of(key)),
            (Err(RequestError::NotFound), None) => {
                self.check_anchor(key)?;
                Fact::Absent
            }
            (Err(error), _) => return Err(error.of(key)),
        };
        self.facts.put(key, fact.clone(), asked);
        Ok(fact)
    }

    /// What is known of an object. That it is empty is believed only if GET brings nothing, too:
    /// some servers answer every HEAD with `Content-Length: 0`.
    async fn head(&self, key: &Key) -> Result<Meta, RequestError> {
        let meta = self.remote.head(key).await?;
        if meta.size_bytes > 0 {
            return Ok(meta);
        }
        let first_byte = Get::new(key, Part::Range(0..1));
        match self.remote.get(&first_byte).await {
            Ok(got) => Ok(got.meta),
            Err(RequestError::NoSuchRange) => Ok(meta),
            Err(error) => Err(error),
        }
    }

    /// Whether a listing has any name: its first pages can be empty.
    async fn first_page(&self, mut list: List) -> Result<bool, RequestError> {
        for _ in 0..MAX_EMPTY_PAGES {
            let page = self.remote.list(&list).await?;
            if !page.objects.is_empty() || !page.prefixes.is_empty() {
                return Ok(true);
            }
            match page.next {
                None => return Ok(false),
                next => list.page = next,
            }
        }
        let what = "the listing has page after page without a name";
        Err(RequestError::lasting(what))
    }

    /// Fails if the source itself is gone, so that its keys are not taken for absent.
    fn check_anchor(&self, key: &Key) -> Result<(), StoreError> {
        let Some(anchor) = self.anchor.get().filter(|anchor| *anchor != key) else {
            return Ok(());
        };
        if self.facts.is_fresh(anchor, ANCHOR_TTL) {
            return Ok(());
        }
        let gone = || StoreError::Unavailable {
            key: key.clone(),
            what: format!("not there, and neither is {anchor}: the whole source is gone"),
        };
        let asked = Instant::now();
        let ask = || match self.network.wait(self.head(anchor)) {
            Ok(meta) => {
                // Another content is still there; what is known of it is older.
                match self.facts.last(anchor) {
                    Some(last) if !last.is_same(&meta) => self.facts.forget(anchor),
                    _ => {}
                }
                let fact = Fact::Object(meta);
                self.facts.put(anchor, fact.clone(), asked);
                Ok(fact)
            }
            Err(RequestError::NotFound) => Err(gone()),
            Err(error) => Err(error.of(key)),
        };
        let answer = self.questions.answer(anchor.clone(), self.deadline(), ask);
        match answer.unwrap_or_else(|| Err(self.late(key)))? {
            Fact::Object(_) => Ok(()),
            // Somebody else has asked for it, and it is not there.
            Fact::Prefix | Fact::Absent => Err(gone()),
        }
    }

    /// A whole value of at most `at_most` bytes; only what is told of it, if it is longer.
    pub(super) fn whole(&self, key: &Key, at_most: u64) -> Result<Value, StoreError> {
        match self.known(key) {
            Some(Fact::Absent) => return Err(StoreError::NotFound { key: key.clone() }),
            Some(Fact::Prefix) => return Err(StoreError::NotAPrefix { key: key.clone() }),
            Some(Fact::Object(meta)) if meta.size_bytes > at_most => {
                return Ok(Value { meta, bytes: None });
            }
            Some(Fact::Object(meta)) => {
                if let Some(bytes) = self.at_hand(key, &meta, 0..meta.size_bytes) {
                    self.counters.hit(key);
                    let bytes = Some(bytes);
                    return Ok(Value { meta, bytes });
                }
            }
            None => {}
        }
        may_wait(key)?;
        let question = (key.clone(), Part::All(at_most));
        let ask = || self.fetch_whole(key, at_most);
        let answer = self.wholes.answer(question, self.deadline(), ask);
        answer.unwrap_or_else(|| Err(self.late(key)))
    }

    fn fetch_whole(&self, key: &Key, at_most: u64) -> Result<Value, StoreError> {
        let mut get = Get::new(key, Part::All(at_most));
        let last = self.facts.last(key).or_else(|| self.last_on_disk(key));
        let kept = last.and_then(|meta| {
            meta.etag.as_ref()?;
            let bytes = self.at_hand(key, &meta, 0..meta.size_bytes)?;
            Some((meta, bytes))
        });
        get.known = kept.as_ref().map(|(meta, _)| meta.clone());
        let asked = Instant::now();
        match (self.get(&get), kept) {
            (Ok(got), _) => {
                let bytes = Arc::new(got.bytes);
                self.keep(key, &got.meta, 0, &bytes);
                Ok(Value {
                    meta: got.meta,
                    bytes: Some(bytes),
                })
            }
            (Err(RequestError::NotModified), Some((meta, bytes))) => {
                self.facts.put(key, Fact::Object(meta.clone()), asked);
                self.counters.hit(key);
                let bytes = Some(bytes);
                Ok(Value { meta, bytes })
            }
            (Err(RequestError::TooLong(meta)), _) => Ok(Value { meta, bytes: None }),
            (Err(RequestError::NotFound), _) => {
                self.check_anchor(key)?;
                self.facts.put(key, Fact::Absent, asked);
                Err(StoreError::NotFound { key: key.clone() })
            }
            (Err(error), _) => Err(error.of(key)),
        }
    }

    /// What is told of a value, and its last bytes at hand.
    fn tail(&self, key: &Key, bytes: u64) -> Result<Meta, StoreError> {
        match self.known(key) {
            Some(Fact::Absent) => return Err(StoreError::NotFound { key: key.clone() }),
            Some(Fact::Prefix) => return Err(StoreError::NotAPrefix { key: key.clone() }),
            Some(Fact::Object(meta)) => return Ok(meta),
            None => {}
        }
        may_wait(key)?;
        let question = (key.clone(), Part::Tail(bytes));
        let ask = || {
            let asked = Instant::now();
            let mut get = Get::new(key, Part::Tail(bytes));
            let last = self.facts.last(key).or_else(|| self.last_on_disk(key));
            get.known = last.filter(|meta| {
                let tail = meta.size_bytes.saturating_sub(bytes)..meta.size_bytes;
                meta.etag.is_some() && self.at_hand(key, meta, tail).is_some()
            });
            let known = get.known.clone();
            match (self.get(&get), known) {
                (Err(RequestError::NotModified), Some(meta)) => {
                    self.facts.put(key, Fact::Object(meta.clone()), asked);
                    self.counters.hit(key);
                    Ok(Value { meta, bytes: None })
                }
                (Ok(got), _) => {
                    self.keep(key, &got.meta, got.start, &Arc::new(got.bytes));
                    let (meta, bytes) = (got.meta, None);
                    Ok(Value { meta, bytes })
                }
                (Err(RequestError::NotFound), _) => {
                    self.check_anchor(key)?;
                    self.facts.put(key, Fact::Absent, asked);
                    Err(StoreError::NotFound { key: key.clone() })
                }
                (Err(error), _) => Err(error.of(key)),
            }
        };
        let answer = self.wholes.answer(question, self.deadline(), ask);
        Ok(answer.unwrap_or_else(|| Err(self.late(key)))?.meta)
    }
}

/// Whether a key has a name that documents of metadata have.
pub(super) fn is_document(key: &Key) -> bool {
    let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
    let name = name.unwrap_or_default();
    name == b"zarr.json" || name.starts_with(b".z")
}

/// A tree of keys that is somewhere else.
#[derive(Debug)]
pub(super) struct RemoteStore {
    pub(super) far: Arc<Far>,
}

impl RemoteStore {
    fn object(&self, key: &Key, value: Value, is_exact: bool) -> Arc<dyn Object> {
        Arc::new(RemoteObject::new(&self.far, key, value, is_exact))
    }
}

impl Store for RemoteStore {
    fn label(&self) -> &str {
        &self.far.label
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            immutable: false,
            open_infallible: false,
            is_remote: true,
            listing: match self.far.can_list() {
                true => ListingSupport::Complete,
                false => ListingSupport::BestEffort,
            },
        }
    }

    fn extent(&self) -> Extent {
        Extent::default()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.far.fact(key)? {
            Fact::Prefix => Ok(self.far.prefix_stat()),
            Fact::Object(meta) => Ok(meta.stat()),
            Fact::Absent => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        match self.far.fact(key)? {
            Fact::Object(meta) => {
                let value = Value { meta, bytes: None };
                Ok(self.object(key, value, false))
            }
            Fact::Prefix => Err(StoreError::NotAPrefix { key: key.clone() }),
            Fact::Absent => Err(StoreError::NotFound { key: key.clone() }),
        }
    }

    fn open_for(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let value = match hint {
            AccessHint::Ranges => return self.open(key),
            AccessHint::Whole(at_most) => self.far.whole(key, at_most)?,
            AccessHint::Tail(bytes) => {
                let (meta, bytes) = (self.far.tail(key, bytes)?, None);
                Value { meta, bytes }
            }
        };
        Ok(self.object(key, value, true))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        if !prefix.is_root() {
            match self.far.known(prefix) {
                Some(Fact::Object(_)) => {
                    return Err(StoreError::NotAPrefix {
                        key: prefix.clone(),
                    });
                }
                Some(Fact::Absent) => {
                    return Err(StoreError::NotFound {
                        key: prefix.clone(),
                    });
                }
                _ => {}
            }
        }
        Ok(Box::new(RemoteListing::open(&self.far, prefix)?))
    }

    fn doubt(&self, key: &Key) {
        self.far.forget(key);
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        Some(self.far.usage())
    }
}
