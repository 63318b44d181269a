//! Tests with a database in memory whose values change while it is read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::runtime::block_on;
use crate::store::remote::request::Depth;

/// The content of a key: a value, or `None` for an object of another type.
type Content = Option<Vec<u8>>;

/// The number of a request, and the value that a key gets before that request.
type Change = (usize, &'static str, Vec<u8>);

#[derive(Debug, Default, Clone)]
struct Memory {
    content: Arc<crate::sync::Mutex<BTreeMap<Vec<u8>, Content>>>,
    next: Arc<crate::sync::Mutex<Option<Change>>>,
    requests: Arc<AtomicUsize>,
}

impl Memory {
    fn set(&self, key: &str, value: &[u8]) {
        let value = Some(value.to_vec());
        self.content.lock().insert(key.as_bytes().to_vec(), value);
    }

    fn request(&self) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut next = self.next.lock();
        if let Some((_, key, value)) = next.take_if(|(at, ..)| *at == number) {
            self.set(key, &value);
        }
    }

    fn content(&self, key: &Key) -> Result<Option<Vec<u8>>, RequestError> {
        match self.content.lock().get(key.as_bytes()) {
            Some(None) => Err(RequestError::lasting("it is no string")),
            Some(Some(value)) => Ok(Some(value.clone())),
            None => Ok(None),
        }
    }
}

impl KeyValueClient for Memory {
    fn find<'a>(
        &'a self,
        key: &'a Key,
        below: &'a [Key],
    ) -> BoxFuture<'a, Result<KeyLookup, RequestError>> {
        self.request();
        let has = |key: &Key| self.content.lock().contains_key(key.as_bytes());
        let found = self.content(key).map(|value| KeyLookup {
            size_bytes: value.map(|value| value.len() as u64),
            below: below.iter().position(has),
        });
        async move { found }.boxed()
    }

    fn value<'a>(
        &'a self,
        key: &'a Key,
        most: u64,
    ) -> BoxFuture<'a, Result<Option<ReadValue>, RequestError>> {
        self.request();
        let stored = |value: Vec<u8>| match value.len() as u64 {
            length if length > most => ReadValue::TooLong(length),
            _ => ReadValue::Value(value),
        };
        let value = self.content(key).map(|value| value.map(stored));
        async move { value }.boxed()
    }

    fn keys<'a>(&'a self, keys: &'a mut Keys) -> BoxFuture<'a, Result<(), RequestError>> {
        self.request();
        let content = self.content.lock();
        let added = content.iter().try_for_each(|(key, value)| {
            let size = value.as_ref().map(|value| value.len() as u64);
            keys.add(key, size)
        });
        drop(content);
        async move { added }.boxed()
    }
}

fn database(ttl: Duration) -> (Memory, KeyValues) {
    let memory = Memory::default();
    let classes = KeyClasses {
        is_document: |key| key.as_bytes().ends_with(b".zgroup"),
        node_documents: &[".zgroup"],
        ..KeyClasses::default()
    };
    let options = KeyValueOptions {
        classes,
        timeout: Duration::from_secs(1),
        ttl,
        memory_bytes: 64 << 20,
    };
    let values = KeyValues::new(Box::new(memory.clone()), options);
    (memory, values)
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn get(values: &KeyValues, name: &str, range: ByteRange) -> Result<Got, RequestError> {
    block_on(values.get(&Get::new(&key(name), range)))
}

fn head(values: &KeyValues, name: &str) -> Result<Meta, RequestError> {
    block_on(values.head(&key(name)))
}

fn list(values: &KeyValues, prefix: &str, most: Option<usize>) -> Page {
    let list = List {
        prefix: key(prefix),
        depth: Depth::All,
        page: None,
        after: None,
        most,
    };
    block_on(values.list(&list)).unwrap()
}

#[test]
fn a_content_of_the_same_length_is_another_version() {
    let (memory, values) = database(Duration::ZERO);
    memory.set("a", b"one");
    let looked_up = head(&values, "a").unwrap();
    assert_eq!(
        list(&values, "", None).objects[0].1,
        Some(looked_up.clone())
    );
    let first = get(&values, "a", ByteRange::Whole(9)).unwrap();
    assert_eq!(
        (first.bytes.into_bytes(), first.meta),
        (b"one".to_vec(), looked_up.clone())
    );
    assert_eq!(head(&values, "a").unwrap(), looked_up);
    // A listing does not read the value, so it does not know the version.
    assert_eq!(list(&values, "", None).objects[0].1, None);
    memory.set("a", b"two");
    let second = head(&values, "a").unwrap();
    assert!(!second.is_same(&looked_up));
    let mut expecting = Get::new(&key("a"), ByteRange::Bounded(0..2));
    expecting.expected = Some(looked_up);
    let changed = block_on(values.get(&expecting));
    assert!(
        matches!(changed, Err(RequestError::Changed(_))),
        "{changed:?}"
    );
    expecting.expected = Some(second.clone());
    assert_eq!(
        block_on(values.get(&expecting)).unwrap().bytes.into_bytes(),
        b"tw"
    );
    let mut knowing = Get::new(&key("a"), ByteRange::Whole(9));
    knowing.cached = Some(second);
    let response = block_on(values.get(&knowing));
    assert!(
        matches!(response, Err(RequestError::NotModified)),
        "{response:?}"
    );
}

#[test]
fn a_long_value_is_read_at_once_or_not_at_all() {
    let (memory, values) = database(Duration::ZERO);
    let long = vec![1; 3 << 20];
    memory.set("a", &long);
    let too_long = get(&values, "a", ByteRange::Whole(5));
    match too_long {
        Err(RequestError::TooLong(meta)) => assert_eq!(meta.size_bytes, 3 << 20),
        other => panic!("{other:?}"),
    }
    let tail = get(&values, "a", ByteRange::Suffix(2)).unwrap();
    assert_eq!(
        (tail.start, tail.bytes.into_bytes()),
        ((3 << 20) - 2, vec![1, 1])
    );
    // From now on the version of the value depends on its content, whatever its length.
    let too_long = get(&values, "a", ByteRange::Whole(5));
    assert!(matches!(too_long, Err(RequestError::TooLong(meta)) if meta.is_same(&tail.meta)));
    // A longer value is written between the request for the length and the request for the value.
    let at = memory.requests.load(Ordering::Relaxed) + 1;
    *memory.next.lock() = Some((at, "a", vec![2; 4 << 20]));
    let grown = get(&values, "a", ByteRange::Bounded(0..1));
    assert!(
        matches!(&grown, Err(RequestError::Failed(failed)) if failed.is_transient),
        "{grown:?}"
    );
    assert_eq!(
        get(&values, "a", ByteRange::Bounded(0..1))
            .unwrap()
            .bytes
            .into_bytes(),
        [2]
    );
}

#[test]
fn a_key_of_another_type_is_an_error_and_never_absent() {
    let (memory, values) = database(Duration::from_secs(60));
    memory.content.lock().insert(b"hash".to_vec(), None);
    memory.set("empty", b"");
    assert!(matches!(
        head(&values, "hash"),
        Err(RequestError::Failed(_))
    ));
    assert!(matches!(
        get(&values, "hash", ByteRange::Whole(1)),
        Err(RequestError::Failed(_))
    ));
    let listed = list(&values, "", None);
    assert_eq!(listed.objects[1], (b"hash".to_vec(), None));
    assert!(matches!(head(&values, "none"), Err(RequestError::NotFound)));
    assert!(matches!(
        get(&values, "none", ByteRange::Whole(1)),
        Err(RequestError::NotFound)
    ));
    assert_eq!(head(&values, "empty").unwrap().size_bytes, 0);
    assert!(
        get(&values, "empty", ByteRange::Bounded(0..1))
            .unwrap()
            .bytes
            .is_empty()
    );
}

#[test]
fn all_keys_are_read_once_and_only_if_single_keys_are_inconclusive() {
    let (memory, values) = database(Duration::from_secs(60));
    memory.set("g/.zgroup", b"{}");
    memory.set("g/x/0", b"0");
    let requests = || memory.requests.swap(0, Ordering::Relaxed);
    assert!(matches!(head(&values, "g"), Err(RequestError::IsPrefix)));
    assert_eq!(head(&values, "g/x/0").unwrap().size_bytes, 1);
    assert_eq!(requests(), 2);
    assert!(matches!(head(&values, "g/x"), Err(RequestError::NotFound)));
    assert_eq!(list(&values, "g/x", Some(1)).objects.len(), 1);
    assert!(list(&values, "g/y", Some(1)).objects.is_empty());
    assert_eq!(list(&values, "", None).objects.len(), 2);
    // One request each for the key, for documents below it, and for all keys.
    assert_eq!(requests(), 3);
    assert!(matches!(head(&values, "g/x"), Err(RequestError::IsPrefix)));
}
