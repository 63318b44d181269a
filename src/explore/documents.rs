//! The documents of a prefix: which there are, and reading several of them at the same time.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::store::{AccessHint, Key, Kind, Store, StoreError, map_concurrent, read_to_end};
use crate::zarr::document::MAX_DOCUMENT_BYTES;

/// Longer documents are not read.
const LIMIT_BYTES: u64 = MAX_DOCUMENT_BYTES as u64;

/// A document that may be at a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    ZarrJson,
    Zarray,
    Zgroup,
    Zattrs,
    Zmetadata,
}

impl Document {
    /// All of them.
    const ALL: [Self; 5] = [
        Self::ZarrJson,
        Self::Zarray,
        Self::Zgroup,
        Self::Zattrs,
        Self::Zmetadata,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ZarrJson => "zarr.json",
            Self::Zarray => ".zarray",
            Self::Zgroup => ".zgroup",
            Self::Zattrs => ".zattrs",
            Self::Zmetadata => ".zmetadata",
        }
    }

    /// The document of that name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|document| document.name().as_bytes() == name)
    }

    /// The document that a whole key leads to.
    pub(super) fn at(key: &Key) -> Option<Self> {
        Self::named(key.as_bytes().rsplit(|byte| *byte == b'/').next()?)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Some of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Documents(u8);

impl Documents {
    pub(super) fn insert(&mut self, document: Document) {
        self.0 |= document.bit();
    }

    pub(super) fn has(self, document: Document) -> bool {
        self.0 & document.bit() != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Document> {
        Document::ALL.into_iter().filter(move |d| self.has(*d))
    }
}

impl<const N: usize> From<[Document; N]> for Documents {
    fn from(documents: [Document; N]) -> Self {
        let mut set = Self::default();
        documents.into_iter().for_each(|d| set.insert(d));
        set
    }
}

/// What became of asking for a document.
#[derive(Debug)]
pub(super) enum Asked {
    /// There is such a document.
    Present {
        /// Its bytes; none if it can never be read, or was not to be.
        text: Option<Vec<u8>>,
        modified: SystemTime,
    },
    /// Proven: there is none.
    Absent,
    /// It is not known.
    Failed(StoreError),
}

/// Asks for documents of a prefix at the same time where asking takes long, unless this thread does
/// not wait.
pub(super) fn ask(store: &dyn Store, prefix: &Key, documents: Documents) -> Vec<(Document, Asked)> {
    let documents: Vec<Document> = documents.iter().collect();
    let one = |document: &Document| (*document, ask_one(store, prefix, *document));
    map_concurrent(store, prefix, &documents, one).collect()
}

fn ask_one(store: &dyn Store, prefix: &Key, document: Document) -> Asked {
    let key = match prefix.join(document.name().as_bytes()) {
        Ok(key) => key,
        Err(error) => {
            return Asked::Failed(StoreError::Unsupported {
                key: prefix.clone(),
                what: error.to_string(),
            });
        }
    };
    let asked = match document {
        // Only names count here.
        Document::Zattrs => exists(store, &key),
        _ => read(store, &key),
    };
    asked.unwrap_or_else(|error| match error {
        StoreError::NotFound { .. } | StoreError::NotAPrefix { .. } => Asked::Absent,
        StoreError::Corrupt { .. }
        | StoreError::Unsupported { .. }
        | StoreError::TooLarge { .. } => {
            log::warn!("{error}");
            Asked::Present {
                text: None,
                modified: UNIX_EPOCH,
            }
        }
        error => Asked::Failed(error),
    })
}

fn exists(store: &dyn Store, key: &Key) -> Result<Asked, StoreError> {
    let stat = store.stat(key)?;
    Ok(match stat.kind {
        Kind::Prefix => Asked::Absent,
        Kind::Object => Asked::Present {
            text: None,
            modified: stat.modified,
        },
    })
}

fn read(store: &dyn Store, key: &Key) -> Result<Asked, StoreError> {
    let object = store.open_for(key, AccessHint::Whole(LIMIT_BYTES))?;
    let modified = object.stat().map_or(UNIX_EPOCH, |stat| stat.modified);
    let text = match read_to_end(&*object, key, LIMIT_BYTES) {
        Ok(text) => Some(text),
        // It went between the two calls: not a proof that there is none.
        Err(StoreError::NotFound { key }) => {
            return Err(StoreError::Stale {
                key,
                what: "it went while it was read".into(),
            });
        }
        Err(
            error @ (StoreError::Corrupt { .. }
            | StoreError::Unsupported { .. }
            | StoreError::TooLarge { .. }),
        ) => {
            log::warn!("{error}");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(Asked::Present { text, modified })
}
