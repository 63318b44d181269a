//! The documents of a node, as they were found.

use std::hash::Hasher;
use std::time::{SystemTime, UNIX_EPOCH};

use siphasher::sip::SipHasher13;

use crate::store::{AccessHint, Key, Store, StoreError, Version, map_concurrent, read_to_end};
use crate::zarr;

/// Longer documents are not read.
const MAX_DOCUMENT_BYTES: u64 = zarr::document::MAX_DOCUMENT_BYTES as u64;
/// The documents of a node, in the order of the fields of [`zarr::Documents`].
pub(crate) const NAMES: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zattrs"];

/// What was found of the documents of a node.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) texts: [Option<Vec<u8>>; 4],
    pub(crate) version: u64,
    pub(crate) modified: SystemTime,
    pub(crate) problem: Option<String>,
    /// The document that makes an array of it, and its version.
    pub(crate) array: Option<(Key, Version)>,
}

/// A document that is there.
#[derive(Debug)]
struct Document {
    key: Key,
    version: Version,
    modified: SystemTime,
    size_bytes: u64,
    /// None if it is too long.
    text: Option<Vec<u8>>,
}

impl Found {
    /// Reads the documents of the node at a key.
    ///
    /// # Errors
    /// Those of the store, for the first document that has one.
    pub(crate) fn read(store: &dyn Store, key: &Key) -> Result<Self, StoreError> {
        let mut found = Self {
            texts: Default::default(),
            version: 0,
            modified: UNIX_EPOCH,
            problem: None,
            array: None,
        };
        let mut hasher = SipHasher13::new();
        let read = |name: &&str| Document::read(store, key, name);
        let documents = map_concurrent(store, key, &NAMES, read);
        for ((slot, name), document) in found.texts.iter_mut().zip(NAMES).zip(documents) {
            let Some(document) = document? else {
                continue;
            };
            hasher.write(name.as_bytes());
            hasher.write_u64(document.version.0);
            found.modified = found.modified.max(document.modified);
            let Some(text) = document.text else {
                // Another document must not speak for this one.
                found.texts = Default::default();
                found.problem = Some(format!(
                    "{name}: {} bytes of metadata, {MAX_DOCUMENT_BYTES} are read at most",
                    document.size_bytes
                ));
                break;
            };
            if found.array.is_none() && matches!(name, "zarr.json" | ".zarray") {
                found.array = Some((document.key, document.version));
            }
            *slot = Some(text);
        }
        found.version = hasher.finish();
        Ok(found)
    }
}

impl Found {
    /// The texts by their names.
    pub(crate) fn documents(&self) -> zarr::Documents<'_> {
        let [zarr_json, zarray, zgroup, zattrs] = &self.texts;
        zarr::Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
        }
    }
}

impl Document {
    /// Reads a document of the node at a key; none if it is proven that there is none.
    ///
    /// # Errors
    /// Those of the store.
    fn read(store: &dyn Store, node: &Key, name: &str) -> Result<Option<Self>, StoreError> {
        let Ok(key) = node.join(name.as_bytes()) else {
            return Ok(None);
        };
        let object = match store.open_for(&key, AccessHint::Whole(MAX_DOCUMENT_BYTES)) {
            Ok(object) => object,
            Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let modified = object.stat()?.modified;
        let size_bytes = object.size_bytes();
        let text = match size_bytes > MAX_DOCUMENT_BYTES {
            true => None,
            false => Some(read_to_end(&*object, &key, MAX_DOCUMENT_BYTES)?),
        };
        Ok(Some(Self {
            version: object.version(),
            key,
            modified,
            size_bytes,
            text,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    use crate::store::{Capabilities, Extent, Listing, ListingSupport, MemoryStore, Object, Stat};

    /// Four have to ask before one gets an answer.
    #[derive(Debug)]
    struct Far {
        values: MemoryStore,
        all: Barrier,
        denies: &'static str,
    }

    impl Far {
        fn new(values: &[(&str, &[u8])]) -> Self {
            let values = values.iter();
            let values = values.map(|(name, value)| (key(name), value.to_vec()));
            Self {
                values: MemoryStore::new(values),
                all: Barrier::new(4),
                denies: "",
            }
        }
    }

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    impl Store for Far {
        fn label(&self) -> &str {
            "far"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                immutable: false,
                open_infallible: false,
                is_remote: true,
                listing: ListingSupport::Complete,
            }
        }

        fn extent(&self) -> Extent {
            self.values.extent()
        }

        fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
            self.values.stat(key)
        }

        fn open(&self, key: &Key) -> Result<Arc<dyn Object>, StoreError> {
            self.all.wait();
            match key.as_bytes().ends_with(self.denies.as_bytes()) && !self.denies.is_empty() {
                true => Err(StoreError::Denied {
                    key: key.clone(),
                    what: "as the test wants it".into(),
                    status: None,
                }),
                false => self.values.open(key),
            }
        }

        fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
            self.values.list(prefix)
        }
    }

    fn is_same(one: &Found, two: &Found) -> bool {
        format!("{one:?}") == format!("{two:?}")
    }

    #[test]
    fn documents_of_a_far_store_are_read_together_and_say_the_same() {
        let long = vec![b' '; usize::try_from(MAX_DOCUMENT_BYTES).unwrap() + 1];
        let cases: [&[(&str, &[u8])]; 4] = [
            &[],
            &[("a/.zarray", b"{}"), ("a/.zattrs", b"[]")],
            &[("a/zarr.json", b"3"), ("a/.zgroup", b"2")],
            &[
                ("a/.zarray", b"{}"),
                ("a/.zgroup", &long),
                ("a/.zattrs", b"[]"),
            ],
        ];
        for case in cases {
            let far = Far::new(case);
            let found = Found::read(&far, &key("a")).unwrap();
            let near = Found::read(&far.values, &key("a")).unwrap();
            assert!(is_same(&found, &near), "{found:?} {near:?}");
            let is_long = case.len() == 3;
            assert_eq!(found.problem.is_some(), is_long, "{found:?}");
            assert!(!is_long || found.texts.iter().all(Option::is_none));
        }
    }

    #[test]
    fn an_error_counts_unless_a_document_before_it_is_too_long() {
        let long = vec![b' '; usize::try_from(MAX_DOCUMENT_BYTES).unwrap() + 1];
        let mut far = Far::new(&[("a/.zarray", &long)]);
        far.denies = ".zgroup";
        assert!(Found::read(&far, &key("a")).unwrap().problem.is_some());
        far.denies = "zarr.json";
        let error = Found::read(&far, &key("a")).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    }
}
