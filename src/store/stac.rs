//! STAC items and collections: a store of the Zarr hierarchies, Icechunk repositories and references that are assets of
//! the document, each below its name.
//!
//! - `document` reads a document and chooses the assets: bytes in, values out.
//! - `member` is an asset, which is opened when a key in it is used; `object` is a value in it.
//! - `collection` is the store.
//!
//! Sources: `github.com/radiantearth/stac-spec` (`commons/assets.md`), and for media types, roles and versions what
//! `xpystac` opens.
//!
//! **Architecture Invariant:** a document decides only names and locations. Where an asset may be is judged by the policy
//! that references have ([`TargetPolicy`]), and so is each redirect.

mod collection;
mod document;
mod member;
mod object;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memchr::memmem;

use self::collection::StacStore;
use self::document::{Document, DocumentKind};
use super::reference::{BaseLocation, TargetPolicy};
use super::{OpenOptions, SnapshotError, SnapshotReader, StoreError};

/// The member that each STAC object has.
const STAC_VERSION: &[u8] = b"\"stac_version\"";
/// The size of the longest document that is read, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;
/// The largest number of assets in a message.
const MAX_NAMED: usize = 20;
/// The largest number of characters of a name or of a media type in a message.
const MAX_CHARS: usize = 100;

/// Why a STAC document cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StacError {
    /// The document is a catalog.
    #[error(
        "a STAC catalog, which has no assets; links are not followed: name one of its items or collections"
    )]
    Catalog,
    /// No asset is a Zarr hierarchy.
    #[error("the STAC {kind} has no Zarr asset; {assets}")]
    NoZarr {
        /// The kind of the document.
        kind: &'static str,
        /// The assets and their media types.
        assets: String,
    },
    /// No asset may be read.
    #[error("no Zarr asset of the STAC {kind} may be read: {reasons}")]
    Denied {
        /// The kind of the document.
        kind: &'static str,
        /// The assets, and why each may not be read.
        reasons: String,
    },
    /// The document has too many assets.
    #[error("the STAC {kind} has more than {limit} assets")]
    TooManyAssets {
        /// The kind of the document.
        kind: &'static str,
        /// The largest number that is read.
        limit: usize,
    },
    /// The document could not be read.
    #[error("reading the STAC document: {0}")]
    Io(#[from] io::Error),
    /// The source that contains the document failed.
    #[error("reading the STAC document: {0}")]
    Store(#[from] StoreError),
}

/// Opens a local STAC document; `None` for any other file.
///
/// # Errors
/// [`StacError`].
pub(super) fn open_file(
    path: &Path,
    label: &str,
    options: &OpenOptions,
) -> Result<Option<StacStore>, StacError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > MAX_DOCUMENT_BYTES {
        return Ok(None);
    }
    let mut text = Vec::new();
    // A file of another format is not read whole.
    (&file).take(1).read_to_end(&mut text)?;
    if !matches!(text.first(), Some(byte) if b"{\xef".contains(byte) || byte.is_ascii_whitespace())
    {
        return Ok(None);
    }
    (&file).take(MAX_DOCUMENT_BYTES).read_to_end(&mut text)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let base = BaseLocation::Directory(directory.unwrap_or(Path::new(".")).to_owned());
    let modified = metadata.modified()?;
    open(&text, base, label, options, modified)
}

/// Opens a remote STAC document; `None` for any other object. `head` and `tail` are its first and last bytes.
///
/// # Errors
/// [`StacError`].
pub(super) async fn open_remote(
    object: &dyn SnapshotReader,
    (head, tail): (&[u8], &[u8]),
    url: &str,
    label: &str,
    options: &OpenOptions,
) -> Result<Option<StacStore>, StacError> {
    let size_bytes = object.size_bytes();
    // References can be long, and need not be read for this.
    if size_bytes > MAX_DOCUMENT_BYTES || !(is_mentioned(head) || is_mentioned(tail)) {
        return Ok(None);
    }
    let before = usize::try_from(size_bytes.saturating_sub(tail.len() as u64));
    let before = before.unwrap_or(usize::MAX);
    let mut text = Vec::new();
    if before > 0 {
        text = object
            .read_once_at(0, before)
            .await
            .map_err(snapshot_error)?
            .to_vec();
    }
    text.extend_from_slice(tail);
    let base = BaseLocation::Url(url.to_owned());
    open(&text, base, label, options, object.modified())
}

fn snapshot_error(error: SnapshotError) -> StacError {
    match error {
        SnapshotError::Io(error) => StacError::Io(error),
        SnapshotError::Store(error) => StacError::Store(error),
        error => StacError::Io(io::Error::other(error.to_string())),
    }
}

fn is_mentioned(text: &[u8]) -> bool {
    memmem::find(text, STAC_VERSION).is_some()
}

fn open(
    text: &[u8],
    base: BaseLocation,
    label: &str,
    options: &OpenOptions,
    modified: std::time::SystemTime,
) -> Result<Option<StacStore>, StacError> {
    if !is_mentioned(text) {
        return Ok(None);
    }
    let Some(document) = Document::parse(text) else {
        return Ok(None);
    };
    let kind = document.kind.name();
    if document.kind == DocumentKind::Catalog {
        return Err(StacError::Catalog);
    }
    if document.is_cut {
        let limit = document::MAX_ASSETS;
        return Err(StacError::TooManyAssets { kind, limit });
    }
    if !document.has_zarr() {
        let assets = document.describe_assets();
        return Err(StacError::NoZarr { kind, assets });
    }
    let policy = TargetPolicy::new(
        base.clone(),
        options.targets.allowed.clone(),
        "the STAC document",
    );
    let store = StacStore::new(label, document, &base, policy, options, modified);
    match store.denials() {
        Some(reasons) => Err(StacError::Denied { kind, reasons }),
        None => Ok(Some(store)),
    }
}

/// Joins texts for a message: the first ones, and the number of all others.
fn joined(texts: impl Iterator<Item = String>, separator: &str) -> String {
    let mut texts = texts;
    let mut first: Vec<String> = texts.by_ref().take(MAX_NAMED).collect();
    match texts.count() {
        0 => {}
        more => first.push(format!("and {more} more")),
    }
    first.join(separator)
}

/// Returns a text of a document for a message, without control characters and not longer than is useful.
fn short(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(MAX_CHARS).collect();
    if chars.next().is_some() {
        short.push_str("...");
    }
    short.escape_debug().to_string()
}

/// Reads bytes as a STAC document; no asset has a name that is no name of a file, and none is at a place that is not
/// allowed.
#[cfg(feature = "fuzzing")]
pub fn fuzz_stac(bytes: &[u8]) {
    let base = BaseLocation::Url("https://example.org/items/item.json".into());
    let opened = open(
        bytes,
        base,
        "fuzz",
        &OpenOptions::default(),
        std::time::UNIX_EPOCH,
    );
    if let Ok(Some(store)) = opened {
        store.check_members();
    }
}

#[cfg(test)]
mod tests;
