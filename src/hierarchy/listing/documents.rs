//! Concurrent fetches of several documents of a prefix.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::hierarchy::document::{Document, read_document};
use crate::store::{Key, Kind, Store, StoreError, Version, map_concurrent};

/// A set of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Documents(u8);

fn bit(document: Document) -> u8 {
    1 << document as u8
}

impl Documents {
    pub(super) fn insert(&mut self, document: Document) {
        self.0 |= bit(document);
    }

    pub(super) fn contains(self, document: Document) -> bool {
        self.0 & bit(document) != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) fn intersection(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    pub(super) fn difference(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Document> {
        Document::ALL
            .into_iter()
            .chain([Document::AttributesJson])
            .filter(move |document| self.contains(*document))
    }
}

impl<const N: usize> From<[Document; N]> for Documents {
    fn from(documents: [Document; N]) -> Self {
        let mut set = Self::default();
        documents
            .into_iter()
            .for_each(|document| set.insert(document));
        set
    }
}

/// The result of fetching a document.
#[derive(Debug)]
pub(super) enum FetchedDocument {
    /// The document exists.
    Present {
        /// The text; `None` if only its name is needed, or if the document can never be read.
        text: Option<Vec<u8>>,
        modified: SystemTime,
        /// The version; `None` if the document cannot be read.
        version: Option<Version>,
    },
    /// The store proves that the document does not exist.
    Absent,
    /// It is unknown whether the document exists.
    Failed(StoreError),
}

/// Fetches documents of a prefix.
pub(super) async fn fetch(
    store: &dyn Store,
    prefix: &Key,
    documents: Documents,
) -> Vec<(Document, FetchedDocument)> {
    let documents: Vec<Document> = documents.iter().collect();
    let one = |document| async move {
        let fetched = match document {
            Document::Zattrs => stat(store, prefix, document).await,
            document => read(store, prefix, document).await,
        };
        (document, fetched.unwrap_or_else(from_error))
    };
    map_concurrent(documents, one).await
}

fn from_error(error: StoreError) -> FetchedDocument {
    match error {
        StoreError::NotFound { .. } | StoreError::NotAPrefix { .. } => FetchedDocument::Absent,
        error if is_unreadable(&error) => {
            log::warn!("{error}");
            FetchedDocument::Present {
                text: None,
                modified: UNIX_EPOCH,
                version: None,
            }
        }
        error => FetchedDocument::Failed(error),
    }
}

/// Returns whether the document exists, but no further attempt can read it.
fn is_unreadable(error: &StoreError) -> bool {
    error.is_lasting()
        && matches!(
            error,
            StoreError::Corrupt { .. }
                | StoreError::Unsupported { .. }
                | StoreError::TooLarge { .. }
        )
}

async fn stat(
    store: &dyn Store,
    prefix: &Key,
    document: Document,
) -> Result<FetchedDocument, StoreError> {
    let Ok(key) = prefix.join(document.name().as_bytes()) else {
        return Ok(FetchedDocument::Absent);
    };
    let stat = store.stat(&key).await?;
    Ok(match stat.kind {
        Kind::Prefix => FetchedDocument::Absent,
        Kind::Object => FetchedDocument::Present {
            text: None,
            modified: stat.modified,
            version: Some(stat.version),
        },
    })
}

async fn read(
    store: &dyn Store,
    prefix: &Key,
    document: Document,
) -> Result<FetchedDocument, StoreError> {
    let Some(stored) = read_document(store, prefix, document).await? else {
        return Ok(FetchedDocument::Absent);
    };
    let text = match stored.text {
        Ok(text) => Some(text),
        Err(error) if is_unreadable(&error) => {
            log::warn!("{error}");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(FetchedDocument::Present {
        text,
        modified: stored.modified,
        version: Some(stored.version),
    })
}
