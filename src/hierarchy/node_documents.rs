//! The documents of one node, as the mount and the commands read them.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::join3;
use siphasher::sip::SipHasher13;

use super::document::{
    Document, MAX_DOCUMENT_BYTES, StoredDocument, read_document, read_stored, read_v1,
};
use super::n5;
use super::separator::with_separator;
use crate::store::{Key, Kind, Store, StoreError, Version, read_with_document};
use crate::zarr;

/// The documents of a node.
#[derive(Debug)]
pub struct NodeDocuments {
    /// The texts of the documents, in the order of [`NODE_DOCUMENT_NAMES`](super::NODE_DOCUMENT_NAMES).
    pub texts: [Option<Vec<u8>>; 5],
    /// A hash of the names and versions of the documents.
    pub version: u64,
    /// The time of the last modification of any document.
    pub modified: SystemTime,
    /// The document that is too long, so that no text is used.
    pub too_long: Option<LongDocument>,
    /// The key and version of the document that describes an array, if the node is one.
    pub array: Option<(Key, Version)>,
    /// The versions of the Zarr documents, if `version` depends on nothing else.
    pub own_versions: Option<OwnVersions>,
    /// The `.zarray` as it is stored, if its text has a separator that the keys of the chunks decide.
    stored_zarray: Option<Vec<u8>>,
}

/// A document of more than [`MAX_DOCUMENT_BYTES`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongDocument {
    /// The document.
    pub document: Document,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl fmt::Display for LongDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, size) = (self.document.name(), self.size_bytes);
        write!(
            f,
            "{name}: {size} bytes of metadata, {MAX_DOCUMENT_BYTES} are read at most"
        )
    }
}

/// A document that cannot be read.
#[derive(Debug)]
pub struct UnreadableDocument {
    /// The document.
    pub document: Document,
    /// The error of the store.
    pub error: StoreError,
}

/// The versions of the Zarr documents of one node, in the order of [`Document::ALL`]; `None` for those that it lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnVersions([Option<Version>; 4]);

impl OwnVersions {
    /// Returns whether the node at a key still has the documents of these versions, and no others; false if that
    /// cannot be determined.
    pub fn are_current(&self, store: &dyn crate::store::SyncStore, key: &Key) -> bool {
        let documents = Document::ALL.into_iter().zip(self.0);
        documents.into_iter().all(|(document, version)| {
            let Ok(key) = key.join(document.name().as_bytes()) else {
                return false;
            };
            match store.stat(&key) {
                Ok(stat) => stat.kind == Kind::Object && Some(stat.version) == version,
                Err(StoreError::NotFound { .. }) => version.is_none(),
                Err(_) => false,
            }
        })
    }
}

impl NodeDocuments {
    /// Returns documents that do not come from the keys of a node, with the hash of their versions and the last time
    /// of a modification.
    pub fn of_texts(texts: [Option<Vec<u8>>; 5], version: u64, modified: SystemTime) -> Self {
        Self {
            texts,
            version,
            modified,
            too_long: None,
            array: None,
            own_versions: None,
            stored_zarray: None,
        }
    }

    /// Reads the documents of the node at a key.
    ///
    /// # Errors
    /// The error of the first document that cannot be read.
    pub async fn read(store: &dyn Store, key: &Key) -> Result<Self, StoreError> {
        let read = Self::read_naming(store, key).await;
        read.map_err(|unreadable| unreadable.error)
    }

    /// Reads the documents of the node at a key, and names the one that cannot be read.
    ///
    /// # Errors
    /// The first document that cannot be read.
    pub async fn read_naming(store: &dyn Store, key: &Key) -> Result<Self, UnreadableDocument> {
        let mut node = Self::of_texts(Default::default(), 0, UNIX_EPOCH);
        let mut own_versions = OwnVersions::default();
        let mut hasher = SipHasher13::new();
        let [own @ .., _] = Document::ALL;
        let documents = read_own(store, key).await;
        for ((document, stored), version) in own.into_iter().zip(documents).zip(&mut own_versions.0)
        {
            let Some(stored) = named(document, stored)? else {
                continue;
            };
            *version = Some(stored.version);
            if !node.add(document, stored, &mut hasher)? {
                break;
            }
        }
        let [zarr_json, zarray, zgroup, ..] = &node.texts;
        let is_zarr = [zarr_json, zarray, zgroup].into_iter().any(Option::is_some);
        let n5 = Document::AttributesJson;
        if !is_zarr
            && node.too_long.is_none()
            && let Some(stored) = named(n5, n5::read_attributes_json(store, key).await)?
        {
            node.add(n5, stored, &mut hasher)?;
        } else if !is_zarr && node.too_long.is_none() {
            node.read_v1(store, key, &mut hasher).await?;
        } else if node.complete_zarray(store, key, &mut hasher).await? && node.too_long.is_none() {
            node.own_versions = Some(own_versions);
        }
        node.version = hasher.finish();
        Ok(node)
    }

    /// Adds the separator of chunk keys to the `.zarray` of an array, if the store decides it. Returns whether the
    /// documents decide it.
    async fn complete_zarray(
        &mut self,
        store: &dyn Store,
        key: &Key,
        hasher: &mut SipHasher13,
    ) -> Result<bool, UnreadableDocument> {
        let [None, Some(zarray), ..] = &mut self.texts else {
            return Ok(true);
        };
        if zarr::chunk_names_without_separator(zarray).is_none() {
            return Ok(true);
        }
        let complete = with_separator(store, key, zarray).await;
        if let Cow::Owned(complete) = named(Document::Zarray, complete)? {
            self.stored_zarray = Some(std::mem::replace(zarray, complete));
            hasher.write(b"/");
        }
        Ok(false)
    }

    /// Reads the document of a version 1 array as that of a version 2 array.
    async fn read_v1(
        &mut self,
        store: &dyn Store,
        key: &Key,
        hasher: &mut SipHasher13,
    ) -> Result<(), UnreadableDocument> {
        let (meta, attrs) = (Document::Meta, Document::Attrs);
        let Some(stored) = named(meta, read_v1(store, key).await)? else {
            return Ok(());
        };
        if self.add(meta, stored, hasher)?
            && let Some(stored) = named(attrs, read_document(store, key, attrs).await)?
        {
            self.add(attrs, stored, hasher)?;
        }
        Ok(())
    }

    /// Adds a document. Returns whether it is short enough to be read.
    fn add(
        &mut self,
        document: Document,
        stored: StoredDocument,
        hasher: &mut SipHasher13,
    ) -> Result<bool, UnreadableDocument> {
        let [zarr_json, zarray, zgroup, zattrs, attributes_json] = &mut self.texts;
        // The documents of version 1 are read as those of version 2.
        let (slot, name, describes_array) = match document {
            Document::ZarrJson => (zarr_json, Document::ZarrJson, true),
            Document::Zarray | Document::Meta => (zarray, Document::Zarray, true),
            Document::Zgroup => (zgroup, Document::Zgroup, false),
            Document::Zattrs | Document::Attrs => (zattrs, Document::Zattrs, false),
            Document::AttributesJson => (attributes_json, Document::AttributesJson, true),
            Document::Zmetadata => {
                let error = StoreError::internal("consolidated metadata describe no node");
                return Err(UnreadableDocument { document, error });
            }
        };
        hasher.write(name.name().as_bytes());
        hasher.write_u64(stored.version.0);
        self.modified = self.modified.max(stored.modified);
        if stored.size_bytes > MAX_DOCUMENT_BYTES {
            // No other document may describe the node instead of the long one.
            self.texts = Default::default();
            self.too_long = Some(LongDocument {
                document,
                size_bytes: stored.size_bytes,
            });
            return Ok(false);
        }
        *slot = Some(named(document, stored.text)?);
        if self.array.is_none() && describes_array {
            self.array = Some((stored.key, stored.version));
        }
        Ok(true)
    }

    /// Returns whether the node is an array of version 1.
    pub fn is_v1(&self) -> bool {
        let document = self.array.as_ref();
        document.is_some_and(|(key, _)| {
            let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
            name == Some(zarr::v1::META.as_bytes())
        })
    }

    /// Returns the texts for the parser.
    pub fn documents(&self) -> zarr::Documents<'_> {
        let [zarr_json, zarray, zgroup, zattrs, attributes_json] = &self.texts;
        zarr::Documents {
            zarr_json: zarr_json.as_deref(),
            zarray: zarray.as_deref(),
            zgroup: zgroup.as_deref(),
            zattrs: zattrs.as_deref(),
            attributes_json: attributes_json.as_deref(),
        }
    }

    /// Returns the texts as they are stored: without the separator that the keys of the chunks decide.
    pub fn stored_documents(&self) -> zarr::Documents<'_> {
        let mut documents = self.documents();
        if let Some(zarray) = &self.stored_zarray {
            documents.zarray = Some(zarray);
        }
        documents
    }
}

/// Reads the documents of [`OwnVersions`] at the same time.
async fn read_own(
    store: &dyn Store,
    node: &Key,
) -> [Result<Option<StoredDocument>, StoreError>; 4] {
    let read = |document| read_document(store, node, document);
    // Attributes from before the array was written may be those of another array.
    let array = async {
        let [zarray, zattrs] =
            [Document::Zarray, Document::Zattrs].map(|it| node.join(it.name().as_bytes()));
        match (&zarray, &zattrs) {
            (Ok(zarray), Ok(zattrs)) => {
                read_with_document(store, zarray, zattrs, |key| read_stored(store, key)).await
            }
            // Both names have the same length.
            _ => [Ok(None), Ok(None)],
        }
    };
    let (zarr_json, zgroup) = (read(Document::ZarrJson), read(Document::Zgroup));
    let (zarr_json, [zarray, zattrs], zgroup) = join3(zarr_json, array, zgroup).await;
    [zarr_json, zarray, zgroup, zattrs]
}

/// Names the document whose reading failed.
fn named<T>(document: Document, read: Result<T, StoreError>) -> Result<T, UnreadableDocument> {
    read.map_err(|error| UnreadableDocument { document, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use async_trait::async_trait;
    use tokio::sync::Barrier;

    use crate::hierarchy::is_document;
    use crate::runtime::block_on;
    use crate::store::{
        AccessHint, Capabilities, Listing, ListingSupport, MemoryStore, Object, Stat,
    };

    /// A store whose opens complete only when four Zarr metadata documents are being opened.
    #[derive(Debug)]
    struct Remote {
        values: MemoryStore,
        all: Barrier,
        denies: &'static str,
    }

    impl Remote {
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

    #[async_trait]
    impl Store for Remote {
        fn label(&self) -> &str {
            "remote"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                immutable: false,
                open_infallible: false,
                is_remote: true,
                listing: ListingSupport::Complete,
                joins_prefetches: false,
                lists_without_requests: false,
            }
        }

        async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
            self.values.stat(key).await
        }

        async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
            if is_document(key) {
                self.all.wait().await;
            }
            match key.as_bytes().ends_with(self.denies.as_bytes()) && !self.denies.is_empty() {
                true => Err(StoreError::Denied {
                    key: key.clone(),
                    what: "as the test wants it".into(),
                    status: None,
                }),
                false => self.values.open(key, hint).await,
            }
        }

        async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
            self.values.list(prefix).await
        }
    }

    fn read(store: &dyn Store) -> Result<NodeDocuments, StoreError> {
        block_on(NodeDocuments::read(store, &key("a")))
    }

    #[test]
    fn documents_of_a_remote_store_are_read_together_and_are_the_same() {
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
            let store = Remote::new(case);
            let (remote, local) = (read(&store).unwrap(), read(&store.values).unwrap());
            assert_eq!(format!("{remote:?}"), format!("{local:?}"));
            let is_long = case.len() == 3;
            assert_eq!(remote.too_long.is_some(), is_long, "{remote:?}");
            assert!(!is_long || remote.texts.iter().all(Option::is_none));
        }
    }

    #[test]
    fn an_error_is_returned_unless_an_earlier_document_is_too_long() {
        let long = vec![b' '; usize::try_from(MAX_DOCUMENT_BYTES).unwrap() + 1];
        let mut store = Remote::new(&[("a/.zarray", &long)]);
        store.denies = ".zgroup";
        assert!(read(&store).unwrap().too_long.is_some());
        store.denies = "zarr.json";
        let error = read(&store).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    }

    #[test]
    fn an_array_of_version_1_has_the_documents_of_version_2() {
        let meta = br#"{"zarr_format": 1, "shape": [2], "chunks": [2], "dtype": "<i4",
            "compression": null, "compression_opts": null, "fill_value": 0, "order": "C"}"#;
        let values: &[(&str, &[u8])] = &[("a/meta", meta), ("a/attrs", b"{\"b\": 1}")];
        let store = Remote::new(values);
        let documents = read(&store.values).unwrap();
        assert_eq!(documents.array.as_ref().unwrap().0, key("a/meta"));
        let node = documents.documents().node().unwrap().node.unwrap();
        assert_eq!(node.as_array().unwrap().shape, [2]);
        assert_eq!(node.attributes().unwrap().len(), 1);
        // Below the root of a remote store, `meta` is not looked for.
        assert!(read(&store).unwrap().documents().node().is_none());
        let both = Remote::new(&[("a/meta", meta), ("a/.zgroup", b"{\"zarr_format\":2}")]);
        let documents = read(&both.values).unwrap();
        let node = documents.documents().node().unwrap().node.unwrap();
        assert!(node.as_group().is_some());
        let other = Remote::new(&[("a/meta", b"{}")]);
        assert!(read(&other.values).unwrap().documents().node().is_none());
    }
}
