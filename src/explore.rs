//! The names of a store that does not list: a plain web server, a bucket that refuses. They are
//! learnt from the metadata: consolidated ones name a whole hierarchy in one or two requests, the
//! document of an array names its chunks by arithmetic, and for the rest the documents of a prefix
//! are asked for when the prefix is.
//!
//! What the metadata say is used for names only: values, their sizes and whether a chunk is there
//! are always the inner store's.
//!
//! **Architecture Invariant:** [`StoreError::NotFound`] is said where the inner store has proved it
//! of a key and of the documents that could be below it, or where consolidated metadata name all
//! documents of a node. No other failure becomes it.
//!
//! Lock order: none is taken below another.

mod documents;
mod kept;
mod known;
mod listing;
#[cfg(test)]
mod tests;
mod unknown;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::documents::{Asked, Document, Documents, ask};
use self::kept::{Kept, Told};
use self::known::{Known, Said, What};
use self::listing::Names;
use crate::store::{
    AccessHint, Capabilities, Extent, Flights, IncompleteListing, Key, Kind, Listing,
    ListingSupport, Object, Stat, Store, StoreError, TransferStats, may_wait,
};

/// Documents of more than so many bytes are read one at a time, and not by threads that never wait.
const LONG_BYTES: usize = 64 << 10;

/// A store with the names that the metadata in it tell.
#[derive(Debug)]
pub struct ExploredStore {
    inner: Arc<dyn Store>,
    kept: Kept,
    flights: Flights<(Key, Depth), Arc<Known>>,
    parsing: Mutex<()>,
    /// The inner store has said that there is no way to list it.
    lists_nothing: AtomicBool,
}

/// How much has to be known of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Depth {
    /// What it is.
    Node,
    /// All documents that it has.
    Listing,
}

/// What a key is.
enum Answer {
    /// What the metadata say.
    Known(Arc<Known>, Said),
    /// What the inner store says.
    Told(Stat),
}

impl ExploredStore {
    /// Names of `inner` as its metadata tell them. What was learnt is used for `ttl`, that something
    /// is absent for `absent_ttl` at most; both for good if the store can not change.
    pub fn new(inner: Arc<dyn Store>, ttl: Duration, absent_ttl: Duration) -> Self {
        let (ttl, absent_ttl) = match inner.capabilities().immutable {
            true => (Duration::MAX, Duration::MAX),
            false => (ttl, absent_ttl.min(ttl)),
        };
        Self {
            inner,
            kept: Kept::new(ttl, absent_ttl),
            flights: Flights::default(),
            parsing: Mutex::default(),
            lists_nothing: AtomicBool::new(false),
        }
    }

    /// What the metadata at a prefix say, asked for unless it is known.
    ///
    /// # Errors
    /// Why nothing is known. What is known in part holds why it is not more.
    fn explore(&self, prefix: &Key, depth: Depth) -> Result<Arc<Known>, StoreError> {
        let is_enough = |known: &Known| depth == Depth::Node || known.unasked().is_empty();
        let before = self.kept.known(prefix);
        if let Some((known, _)) = before.as_ref().filter(|(known, _)| is_enough(known)) {
            return Ok(Arc::clone(known));
        }
        let ask = || self.ask(prefix, depth, before);
        if may_wait(prefix).is_err() {
            return ask();
        }
        self.flights.once((prefix.clone(), depth), ask)
    }

    fn ask(
        &self,
        prefix: &Key,
        depth: Depth,
        before: Option<(Arc<Known>, Instant)>,
    ) -> Result<Arc<Known>, StoreError> {
        let (mut known, since) = match before {
            Some(before) => before,
            None => {
                let since = Instant::now();
                (Arc::new(self.ask_node(prefix)?), since)
            }
        };
        let unasked = known.unasked();
        if depth == Depth::Listing && !unasked.is_empty() {
            let asked = ask(&*self.inner, prefix, unasked);
            known = Arc::new(self.parse(prefix, &asked, |asked| known.deepened(asked))?);
        }
        match &known.failure {
            None => {}
            // The store refuses; that is not remembered, but what it gave is.
            Some(StoreError::Denied { .. }) if known.is_node() || prefix.is_root() => {}
            Some(error @ StoreError::WouldWait { .. }) => return Err(error.clone()),
            // Enough to go on with, for now.
            Some(_) if known.is_node() => return Ok(known),
            Some(error) => return Err(error.clone()),
        }
        self.kept.keep(prefix, &known, since);
        Ok(known)
    }

    /// Asks for what a prefix is: the root for copies of all documents first.
    fn ask_node(&self, prefix: &Key) -> Result<Known, StoreError> {
        let v2: Documents = [Document::Zgroup, Document::Zarray].into();
        let first = match prefix.is_root() {
            true => [Document::ZarrJson, Document::Zmetadata].into(),
            false => v2.with([Document::ZarrJson].into()),
        };
        let mut asked = ask(&*self.inner, prefix, first);
        let known = self.parse(prefix, &asked, Known::of)?;
        if !prefix.is_root() || known.is_settled() {
            return Ok(known);
        }
        asked.extend(ask(&*self.inner, prefix, v2));
        self.parse(prefix, &asked, Known::of)
    }

    /// Runs `parse` on documents; on long ones one at a time, since their parsed form is many times
    /// as large.
    fn parse(
        &self,
        prefix: &Key,
        asked: &[(Document, Asked)],
        parse: impl FnOnce(&[(Document, Asked)]) -> Known,
    ) -> Result<Known, StoreError> {
        let lengths = asked.iter().map(|(_, asked)| match asked {
            Asked::Present {
                text: Some(text), ..
            } => text.len(),
            _ => 0,
        });
        if lengths.fold(0, usize::saturating_add) <= LONG_BYTES {
            return Ok(parse(asked));
        }
        may_wait(prefix)?;
        let _one_at_a_time = self.parsing.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(parse(asked))
    }

    /// What is known of a key without asking for anything: what the root tells comes first, then what
    /// the nearest prefix does.
    fn recall(&self, key: &Key) -> Option<(Arc<Known>, Said)> {
        std::iter::once(Key::root())
            .chain(ancestors(key))
            .find_map(|above| {
                let (known, since) = self.kept.known(&above)?;
                let is_absence_fresh = self.kept.is_absence_fresh(since);
                let said = known.say(below(key, &above), is_absence_fresh);
                (said != Said::Nothing).then_some((known, said))
            })
    }

    /// What a key is. Names that its own documents would tell are known after this to `depth`.
    fn resolve(&self, key: &Key, depth: Depth) -> Result<Answer, StoreError> {
        let root = Key::root();
        let known = self.explore(&root, if key.is_root() { depth } else { Depth::Node })?;
        let since = self.kept.known(&root).map(|(_, since)| since);
        let is_absence_fresh = since.is_none_or(|since| self.kept.is_absence_fresh(since));
        let said = known.say(key.as_bytes(), is_absence_fresh);
        if said != Said::Nothing {
            return Ok(Answer::Known(known, said));
        }
        if let Some((known, said)) = self.recall(key) {
            // Its own documents tell of a node; it may have more of them than are known.
            let is_own = said == Said::Node(String::new());
            let known = match is_own && depth == Depth::Listing {
                true => self.explore(key, depth)?,
                false => known,
            };
            return Ok(Answer::Known(known, said));
        }
        if Document::at(key).is_some() {
            return self.inner.stat(key).map(Answer::Told);
        }
        let stat = match self.kept.told(key) {
            Some(Told::Absent) => return Err(StoreError::NotFound { key: key.clone() }),
            Some(Told::Prefix(stat)) => stat,
            None => match self.inner.stat(key) {
                Ok(stat) if stat.kind == Kind::Object => return Ok(Answer::Told(stat)),
                Ok(stat) => {
                    self.kept.tell(key, Told::Prefix(stat));
                    stat
                }
                Err(why @ (StoreError::NotFound { .. } | StoreError::Denied { .. })) => {
                    return self.resolve_unlisted(key, depth, why);
                }
                Err(error) => return Err(error),
            },
        };
        match depth {
            Depth::Node => Ok(Answer::Told(stat)),
            Depth::Listing => self.resolve_listed(key, stat),
        }
    }

    /// A prefix that the inner store knows: its documents may tell more.
    fn resolve_listed(&self, key: &Key, stat: Stat) -> Result<Answer, StoreError> {
        let known = match self.explore(key, Depth::Listing) {
            Ok(known) if known.is_node() => known,
            // It is what it was, whatever may stand in documents that are refused.
            Ok(_) | Err(StoreError::Denied { .. }) => return Ok(Answer::Told(stat)),
            Err(error) => return Err(error),
        };
        let said = known.say(b"", true);
        Ok(Answer::Known(known, said))
    }

    /// A key that the inner store says nothing of: it may be a directory of chunks, or a node.
    fn resolve_unlisted(
        &self,
        key: &Key,
        depth: Depth,
        why: StoreError,
    ) -> Result<Answer, StoreError> {
        let mut above: Vec<Key> = ancestors(key).collect();
        above.push(Key::root());
        for above in above.into_iter().rev() {
            let own = if above == *key { depth } else { Depth::Node };
            let known = self.explore(&above, own)?;
            match known.say(below(key, &above), true) {
                Said::Nothing => {}
                Said::Value | Said::NoDocument => return Err(why),
                said => return Ok(Answer::Known(known, said)),
            }
            if let Some(error) = known.failure.as_ref().filter(|_| !known.is_certain()) {
                // What could tell of the key is not known.
                return Err(error.clone());
            }
        }
        if matches!(why, StoreError::NotFound { .. }) {
            self.kept.tell(key, Told::Absent);
        }
        Err(why)
    }

    /// Says what can be said of a value without the inner store.
    ///
    /// # Errors
    /// It is known not to be one.
    fn check_value(&self, key: &Key) -> Result<(), StoreError> {
        if Document::at(key).is_some() {
            // Documents are asked for by those who look for what there is not.
            self.explore(&Key::root(), Depth::Node)?;
        }
        let found = self.recall(key);
        match found {
            Some((_, Said::NoDocument)) => Err(StoreError::NotFound { key: key.clone() }),
            Some((_, Said::Node(_) | Said::Chunks(..))) => {
                Err(StoreError::NotAPrefix { key: key.clone() })
            }
            _ => Ok(()),
        }
    }

    /// All names of a node.
    fn names(&self, prefix: &Key, known: &Known, path: &str) -> Result<Names, StoreError> {
        let mut names = Names::new(prefix.clone());
        for document in known.documents(path).iter() {
            names.push(document.name().as_bytes(), Kind::Object, None);
        }
        for child in known.children(path) {
            names.push(child.as_bytes(), Kind::Prefix, None);
        }
        let is_listed = match known.what(path) {
            What::Array(Some(chunks)) => {
                if known.is_consolidated() || !self.push_inner(&mut names, prefix)? {
                    names.push_chunks(chunks, Default::default());
                }
                true
            }
            What::Array(None) => false,
            What::Group => known.is_consolidated(),
        };
        match &known.failure {
            None | Some(StoreError::Denied { .. }) => {}
            Some(_) if known.is_consolidated() => {}
            Some(error) => return Err(error.clone()),
        }
        if !is_listed {
            self.push_inner(&mut names, prefix)?;
        }
        Ok(names)
    }

    /// Adds what the inner store lists; says whether it does.
    ///
    /// # Errors
    /// It lists, but failed to.
    fn push_inner(&self, names: &mut Names, prefix: &Key) -> Result<bool, StoreError> {
        if self.lists_nothing.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let listing = self.inner.list(prefix);
        let listed = listing.and_then(|listing| names.push_listing(listing));
        match listed {
            // It is a prefix all the same: there is something below it.
            Err(StoreError::Unsupported { .. }) => {
                self.lists_nothing.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(StoreError::Denied { .. } | StoreError::NotFound { .. }) => Ok(false),
            listed => listed.map(|()| true),
        }
    }
}

impl Store for ExploredStore {
    fn label(&self) -> &str {
        self.inner.label()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            listing: ListingSupport::BestEffort,
            ..self.inner.capabilities()
        }
    }

    fn extent(&self) -> Extent {
        self.inner.extent()
    }

    fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        match self.resolve(key, Depth::Node)? {
            Answer::Told(stat) => Ok(stat),
            Answer::Known(_, Said::NoDocument) => Err(StoreError::NotFound { key: key.clone() }),
            Answer::Known(_, Said::Value | Said::Nothing) => self.inner.stat(key),
            Answer::Known(known, said) => Ok(known.stat(&said)),
        }
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
        self.check_value(key)?;
        self.inner.open(key)
    }

    fn open_for(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        self.check_value(key)?;
        self.inner.open_for(key, hint)
    }

    fn incomplete_listing(&self, prefix: &Key) -> Option<IncompleteListing> {
        self.find_unknown(prefix)
    }

    fn doubt(&self, key: &Key) {
        self.inner.doubt(key);
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        let not_a_prefix = || StoreError::NotAPrefix {
            key: prefix.clone(),
        };
        let names = match self.resolve(prefix, Depth::Listing)? {
            Answer::Known(known, Said::Node(path)) => self.names(prefix, &known, &path)?,
            Answer::Known(known, Said::Chunks(chunks, cell)) => {
                let mut names = Names::new(prefix.clone());
                if known.is_consolidated() || !self.push_inner(&mut names, prefix)? {
                    names.push_chunks(chunks, cell);
                }
                names
            }
            Answer::Known(_, Said::NoDocument) => {
                return Err(StoreError::NotFound {
                    key: prefix.clone(),
                });
            }
            Answer::Known(_, Said::Value | Said::Nothing) => {
                if self.inner.stat(prefix)?.kind != Kind::Prefix {
                    return Err(not_a_prefix());
                }
                let mut names = Names::new(prefix.clone());
                self.push_inner(&mut names, prefix)?;
                names
            }
            Answer::Told(stat) if stat.kind == Kind::Prefix => {
                let mut names = Names::new(prefix.clone());
                self.push_inner(&mut names, prefix)?;
                names
            }
            Answer::Told(_) => return Err(not_a_prefix()),
        };
        Ok(Box::new(names))
    }

    fn transfer_stats(&self) -> Option<TransferStats> {
        self.inner.transfer_stats()
    }
}

/// A key and the prefixes above it without the root, the nearest first.
fn ancestors(key: &Key) -> impl Iterator<Item = Key> {
    let first = (!key.is_root()).then(|| key.clone());
    std::iter::successors(first, |key| {
        let parent = key.parent();
        (!parent.is_root()).then_some(parent)
    })
}

/// The part of a key below a prefix of it.
fn below<'a>(key: &'a Key, prefix: &Key) -> &'a [u8] {
    let rest = key.as_bytes().get(prefix.as_bytes().len()..);
    let rest = rest.unwrap_or_default();
    rest.strip_prefix(b"/").unwrap_or(rest)
}
