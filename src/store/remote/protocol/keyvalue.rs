//! Key-value databases behind a network that report neither versions nor modification times.
//!
//! - [`KeyValueClient`] is implemented by each kind of server (`redis`, `mongodb`): one key, one whole
//!   value, all keys.
//! - `index` is the sorted list of all keys, from which listings are answered; `versions` distinguishes
//!   contents.
//!
//! **Invariant:** a value is read whole, by one command that the server executes atomically: bytes of two
//! contents are never mixed.
//!
//! A lookup of a key requests only that key. All keys are read once per `--ttl` at most, for a listing, or
//! for a key that has no value and may be a prefix.

mod index;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "redis")]
mod redis;
mod url;
mod versions;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use self::index::{Index, Keys};
use self::versions::ContentVersions;
use super::web::wanted;
use crate::store::remote::memory::BodyBudget;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::{NameListing, Syntax, Traits};
use crate::store::remote::request::{ByteRange, Get, Got, List, Meta, Page, Remote, RequestError};
use crate::store::{Key, KeyClasses};
#[cfg(feature = "mongodb")]
pub(in crate::store::remote) use mongodb::PROTOCOL as MONGODB;
#[cfg(feature = "redis")]
pub(in crate::store::remote) use redis::PROTOCOL as REDIS;

/// The result of reading a key.
#[derive(Debug, PartialEq, Eq)]
enum ReadValue {
    /// The whole value.
    Value(Vec<u8>),
    /// The value is longer than requested; its size in bytes.
    TooLong(u64),
}

/// The result of looking up a key without reading its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeyLookup {
    /// The size of the value in bytes; `None` proves that the key has no value.
    size_bytes: Option<u64>,
    /// The index of the first existing key among the requested keys below.
    below: Option<usize>,
}

/// A server of keys and values; each call sends one attempt.
trait KeyValueClient: Debug + Send + Sync {
    /// Returns the size of the value of a key, and which of the keys `below` exists.
    fn find<'a>(
        &'a self,
        key: &'a Key,
        below: &'a [Key],
    ) -> BoxFuture<'a, Result<KeyLookup, RequestError>>;

    /// Returns the whole value of a key, if it has at most `most` bytes or the server stores no long values.
    /// `None` proves that the key has no value.
    fn value<'a>(
        &'a self,
        key: &'a Key,
        most: u64,
    ) -> BoxFuture<'a, Result<Option<ReadValue>, RequestError>>;

    /// Reads all keys, with sizes, into `keys`. A key may be added twice.
    fn keys<'a>(&'a self, keys: &'a mut Keys) -> BoxFuture<'a, Result<(), RequestError>>;
}

/// Options for reading a database.
#[derive(Debug, Clone, Copy)]
struct KeyValueOptions {
    classes: KeyClasses,
    timeout: Duration,
    /// How long the keys that were read are trusted.
    ttl: Duration,
    /// Memory limit in bytes of the index, and also of values that are being received.
    memory_bytes: u64,
}

impl KeyValueOptions {
    fn new(options: &RemoteOptions, classes: KeyClasses) -> Self {
        Self {
            classes,
            timeout: options.timeout,
            ttl: options.ttl,
            memory_bytes: options.memory_bytes,
        }
    }
}

/// A database as a remote source.
#[derive(Debug)]
struct KeyValues {
    client: Box<dyn KeyValueClient>,
    options: KeyValueOptions,
    versions: ContentVersions,
    /// The keys that were read last.
    index: Mutex<Option<Arc<Index>>>,
    body_budget: BodyBudget,
}

/// Values up to this size, in bytes, are requested without reserving memory.
const SMALL_BYTES: u64 = 1 << 20;

impl KeyValues {
    fn new(client: Box<dyn KeyValueClient>, options: KeyValueOptions) -> Self {
        let is_immutable = options.ttl == Duration::MAX;
        Self {
            client,
            options,
            versions: ContentVersions::new(is_immutable, options.memory_bytes),
            index: Mutex::default(),
            body_budget: BodyBudget::new(options.memory_bytes.saturating_mul(2)),
        }
    }

    /// Returns the keys of the database. For a listing that continues, they may be older than `--ttl`.
    async fn index(&self, goes_on: bool) -> Result<Arc<Index>, RequestError> {
        let mut index = self.index.lock().await;
        let is_fresh = |index: &&Arc<Index>| goes_on || index.age() < self.options.ttl;
        if let Some(index) = index.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(index));
        }
        *index = None;
        let mut keys = Keys::new(self.options.memory_bytes);
        self.client.keys(&mut keys).await?;
        let read = Arc::new(keys.into_index());
        *index = Some(Arc::clone(&read));
        Ok(read)
    }

    /// Returns the keys, if they were read less than `--ttl` ago and are not being read now.
    fn known_index(&self) -> Option<Arc<Index>> {
        let index = self.index.try_lock().ok()?.clone()?;
        (index.age() < self.options.ttl).then_some(index)
    }

    /// Returns the keys of documents that make a prefix a node; none for a prefix named like a document.
    fn documents(&self, prefix: &Key) -> Vec<Key> {
        let classes = &self.options.classes;
        if classes.is_document(prefix) {
            return Vec::new();
        }
        let names = classes.node_documents.iter();
        names
            .filter_map(|name| prefix.join(name.as_bytes()).ok())
            .collect()
    }

    /// Fetches a whole value of at most `most` bytes. A value that was fetched before is fetched whatever its
    /// size, because its version depends on its content.
    async fn fetch(&self, key: &Key, most: u64) -> Result<ReadValue, RequestError> {
        let most = match self.versions.is_known(key) {
            true => u64::MAX,
            false => most,
        };
        // If memory for the longest acceptable value can be reserved, one request is enough.
        let spare = (most > SMALL_BYTES).then(|| self.body_budget.try_reserve_spare(most));
        let first = match spare {
            Some(None) => SMALL_BYTES,
            _ => most,
        };
        let stored = self.client.value(key, first).await?;
        let size = match stored.ok_or(RequestError::NotFound)? {
            ReadValue::TooLong(size) if size <= most => size,
            stored => return Ok(stored),
        };
        drop(spare);
        let reserved = self.body_budget.reserve(size, self.options.timeout).await;
        let _reserved = reserved.ok_or_else(|| {
            RequestError::TimedOut(format!(
                "memory for the answer ({:.1?})",
                self.options.timeout
            ))
        })?;
        match self.client.value(key, size).await? {
            Some(ReadValue::TooLong(_)) => {
                Err(RequestError::transient("it was replaced by a longer value"))
            }
            Some(stored) => Ok(stored),
            None => Err(RequestError::NotFound),
        }
    }

    /// Returns the attributes of a value that was just fetched.
    fn meta_of(&self, key: &Key, stored: &ReadValue) -> Meta {
        let (size_bytes, tag) = match stored {
            ReadValue::Value(bytes) => (bytes.len() as u64, self.versions.tag(key, bytes)),
            ReadValue::TooLong(size) => (*size, self.versions.unread_tag()),
        };
        Meta {
            size_bytes,
            etag: Some(tag),
            modified: None,
        }
    }

    async fn read(&self, get: &Get) -> Result<Got, RequestError> {
        let most = match get.range {
            ByteRange::Whole(most) => most,
            ByteRange::Bounded(_) | ByteRange::Suffix(_) => u64::MAX,
        };
        let stored = self.fetch(&get.key, most).await?;
        let meta = self.meta_of(&get.key, &stored);
        let is = |other: &Option<Meta>| other.as_ref().map(|other| other.is_same(&meta));
        if is(&get.expected) == Some(false) {
            return Err(RequestError::Changed(
                "it has another content by now".into(),
            ));
        }
        if is(&get.cached) == Some(true) {
            return Err(RequestError::NotModified);
        }
        let ReadValue::Value(mut bytes) = stored else {
            return Err(RequestError::TooLong(meta));
        };
        if matches!(get.range, ByteRange::Whole(_)) && meta.size_bytes > most {
            return Err(RequestError::TooLong(meta));
        }
        get.headers_received(&meta);
        let range = wanted(&get.range, meta.size_bytes);
        let start = range.start;
        let in_memory = |place: u64| usize::try_from(place).unwrap_or(bytes.len());
        let (first, end) = (in_memory(start), in_memory(range.end));
        bytes.truncate(end);
        bytes.drain(..first.min(end));
        Ok(Got {
            meta,
            start,
            bytes: bytes.into(),
        })
    }

    async fn meta(&self, key: &Key) -> Result<Meta, RequestError> {
        if self.versions.is_known(key) {
            let stored = self.fetch(key, u64::MAX).await?;
            return Ok(self.meta_of(key, &stored));
        }
        let found = self.client.find(key, &self.documents(key)).await?;
        let has_below = |index: Arc<Index>| index.has_below(key);
        if found.below.is_some() || self.known_index().is_some_and(has_below) {
            return Err(RequestError::IsPrefix);
        }
        let size_bytes = found.size_bytes.ok_or(RequestError::NotFound)?;
        Ok(self.meta_of(key, &ReadValue::TooLong(size_bytes)))
    }

    /// Returns a document that makes a prefix a node; `None` if all keys are known, which tells more.
    async fn document(&self, prefix: &Key) -> Result<Option<Key>, RequestError> {
        let mut documents = self.documents(prefix);
        if self.known_index().is_some() || documents.is_empty() {
            return Ok(None);
        }
        let found = self.client.find(prefix, &documents).await?;
        let place = found.below.filter(|place| *place < documents.len());
        Ok(place.map(|place| documents.swap_remove(place)))
    }

    async fn page(&self, list: &List) -> Result<Page, RequestError> {
        // If the prefix is a node, this proves that it has a key without listing all keys.
        if list.most.is_some()
            && let Some(document) = self.document(&list.prefix).await?
            && let Some(name) = document.below(&list.prefix)
        {
            return Ok(Page {
                objects: vec![(name.to_vec(), None)],
                ..Page::default()
            });
        }
        let index = self.index(list.page.is_some()).await?;
        let meta = |key: &Key, size: u64| {
            let is_known = self.versions.is_known(key);
            (!is_known).then(|| self.meta_of(key, &ReadValue::TooLong(size)))
        };
        Ok(index.page(list, &meta))
    }
}

impl Remote for KeyValues {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        self.read(get).boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.meta(key).boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.page(list).boxed()
    }
}

/// What all databases have in common.
const TRAITS: Traits = Traits {
    syntax: Syntax::Host,
    has_aliases: false,
    listing: NameListing::Keys,
    has_credentials: false,
    reads_ranges: false,
};

/// Returns a database as a remote source.
fn source(client: impl KeyValueClient + 'static, options: KeyValueOptions) -> Arc<dyn Remote> {
    Arc::new(KeyValues::new(Box::new(client), options))
}

#[cfg(test)]
mod tests;
