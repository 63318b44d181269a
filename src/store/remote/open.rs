//! Determines what a URL refers to: a tree of keys, an archive, a repository, or references.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::archive::RemoteArchive;
use super::bytes::PinnedObject;
use super::client::{Client, Shared};
use super::known::{Attrs, RemoteListing};
use super::protocol::NameListing;
use super::protocol::error::RemoteError;
use super::protocol::options::RemoteOptions;
use super::protocol::web::is_markup;
use super::store::RemoteSource;
use crate::store::file_type::{self, HEADER_BYTES};
use crate::store::icechunk::{self, Layout};
use crate::store::reference::{is_json, looks_like_json};
use crate::store::{Key, KeyClasses, SnapshotError, SnapshotReader, Store, StoreError};

/// The kind of source at a URL.
#[derive(Debug)]
pub(in crate::store) enum OpenedSource {
    /// A tree of keys.
    Tree(Box<dyn Store>),
    /// A zip archive, and its last bytes.
    Archive(Arc<RemoteArchive>, Arc<Vec<u8>>),
    /// An Icechunk repository.
    Icechunk {
        layout: Layout,
        /// A store for the files that change: every use sends a request.
        refs: Arc<dyn Store>,
        /// A store for the files that never change: cached data is trusted without limit.
        files: Arc<dyn Store>,
    },
    /// An object that may be a JSON document: references, or one of STAC.
    Json {
        object: Arc<RemoteArchive>,
        /// Its first bytes.
        head: Vec<u8>,
        /// Its last bytes.
        tail: Arc<Vec<u8>>,
    },
}

/// Bytes at the end of an archive that are fetched first; most central directories fit into them.
const TAIL_BYTES: u64 = 256 << 10;
/// Size limit of metadata documents in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// Opens a URL of any remote source. `is_zip` means that the source must be an archive;
/// `classes` classifies the keys of a tree.
///
/// # Errors
/// [`RemoteError`], which names the source without secrets.
pub(in crate::store) async fn open(
    url: &str,
    is_zip: bool,
    options: &RemoteOptions,
    classes: KeyClasses,
) -> Result<OpenedSource, RemoteError> {
    let client = Client::new(url, options, classes)?;
    let shared = Shared::new(options, classes);
    let source = client.clone().source(options, classes, &shared)?;
    open_source(client, source, &shared, is_zip, options).await
}

/// As [`open`], given the client of the URL and the source of its keys.
pub(super) async fn open_source(
    client: Client,
    source: RemoteSource,
    shared: &Shared,
    is_zip: bool,
    options: &RemoteOptions,
) -> Result<OpenedSource, RemoteError> {
    let (traits, label) = (client.protocol.traits, client.label.clone());
    let failed = |error: StoreError| RemoteError::Failed {
        label: label.clone(),
        error,
    };
    if !traits.reads_ranges {
        return open_keys(&client, is_zip, &source).await;
    }
    let looks_zipped = [".zip", ".ozx"]
        .iter()
        .any(|end| client.file_name.to_ascii_lowercase().ends_with(end));
    if is_zip || looks_zipped {
        match archive(&source, TAIL_BYTES).await.map_err(failed)? {
            Some((archive, tail)) => return Ok(OpenedSource::Archive(archive, tail)),
            None if is_zip => {
                let what = "no such object".into();
                return Err(RemoteError::NothingThere { label, what });
            }
            None => {}
        }
    }
    if !is_zip
        && is_json(&client.file_name)
        && let Some((object, tail)) = archive(&source, TAIL_BYTES).await.map_err(failed)?
    {
        let head = head(&object).await.map_err(failed)?;
        if looks_like_json(&head) {
            return Ok(OpenedSource::Json { object, head, tail });
        }
    }
    let is_tree = match traits.listing {
        NameListing::Keys => open_bucket(&source).await,
        NameListing::Pages | NameListing::Directories => open_web(&source).await,
    };
    let is_tree = is_tree.map_err(failed)?;
    if let Some(layout) = repository(&source, is_tree).await.map_err(failed)? {
        let shared = shared.with_own_counters();
        let part = |ttl| part(&source, &client, options, ttl, &shared);
        return Ok(OpenedSource::Icechunk {
            layout,
            refs: part(Duration::ZERO)?,
            files: part(Duration::MAX)?,
        });
    }
    if is_tree {
        return Ok(OpenedSource::Tree(Box::new(source)));
    }
    if !looks_zipped
        && let Some((object, tail)) = archive(&source, TAIL_BYTES).await.map_err(failed)?
    {
        if is_archive(&tail) {
            return Ok(OpenedSource::Archive(object, tail));
        }
        let head = head(&object).await.map_err(failed)?;
        if looks_like_json(&head) {
            return Ok(OpenedSource::Json { object, head, tail });
        }
        return Err(other_format(&object, &head));
    }
    let what = client.nothing_there;
    Err(RemoteError::NothingThere { label, what })
}

/// Returns the layout of the Icechunk repository in a source without documents; else `None`.
async fn repository(source: &RemoteSource, is_tree: bool) -> Result<Option<Layout>, StoreError> {
    let is_empty = !is_tree && source.names.can_list();
    if source.names.has_root_document() || is_empty {
        return Ok(None);
    }
    if is_tree && let Ok(listing) = RemoteListing::open(&source.names, &Key::root()).await {
        let has_files = || {
            let names = [&b"repo"[..], b"refs"];
            names.iter().any(|name| listing.lists(name))
        };
        if listing.is_at_end() && !has_files() {
            return Ok(None);
        }
    }
    icechunk::detect(source).await
}

/// Opens the objects of a repository as a store that trusts cached attributes for `ttl`.
fn part(
    source: &RemoteSource,
    client: &Client,
    options: &RemoteOptions,
    ttl: Duration,
    shared: &Shared,
) -> Result<Arc<dyn Store>, RemoteError> {
    let options = RemoteOptions {
        ttl,
        absent_ttl: options.absent_ttl.min(ttl),
        ..options.clone()
    };
    let part = client
        .clone()
        .source(&options, KeyClasses::default(), shared)?;
    // Files that never change need no listings.
    let can_list = source.names.can_list() && ttl == Duration::ZERO;
    part.names.set_can_list(can_list);
    Ok(Arc::new(part))
}

fn document(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap_or_default()
}

/// Records a key that exists for as long as the source does.
async fn set_root_document(source: &RemoteSource, name: &str) {
    let key = document(name);
    let meta = match source.bytes.attrs(&key).await {
        Ok(Attrs::Object(meta)) => Some(meta),
        _ => None,
    };
    source.names.set_root_document(key, meta.as_ref());
}

/// Lists the keys of a bucket; if that is not allowed, looks for documents.
async fn open_bucket(source: &RemoteSource) -> Result<bool, StoreError> {
    source.names.set_can_list(true);
    let listing = match RemoteListing::open(&source.names, &Key::root()).await {
        Ok(listing) => listing,
        Err(StoreError::Denied { what, .. }) => {
            log::warn!("{}: it may not be listed: {what}", source.identity.label());
            source.names.set_can_list(false);
            return open_web(source).await;
        }
        Err(error) => return Err(error),
    };
    if listing.is_empty() {
        return Ok(false);
    }
    let listed = |name: &&str| listing.lists(name.as_bytes());
    let mut names = source.identity.node_documents().iter().copied();
    let found = match names.find(listed) {
        // One of the next pages may have a document.
        None if !listing.is_at_end() => first_document(source).await?,
        found => found,
    };
    if let Some(name) = found {
        set_root_document(source, name).await;
    }
    Ok(true)
}

/// Opens a source whose values are fetched whole: a key-value database.
async fn open_keys(
    client: &Client,
    is_zip: bool,
    source: &RemoteSource,
) -> Result<OpenedSource, RemoteError> {
    let label = source.identity.label().to_owned();
    if is_zip {
        let what = "a zip archive in a database of keys cannot be mounted".into();
        return Err(RemoteError::Invalid { label, what });
    }
    source.names.set_can_list(true);
    let failed = |error: StoreError| RemoteError::Failed {
        label: label.clone(),
        error,
    };
    match first_document(source).await.map_err(failed)? {
        Some(name) => set_root_document(source, name).await,
        None => {
            let listing = RemoteListing::open(&source.names, &Key::root()).await;
            if listing.map_err(failed)?.is_empty() {
                let what = client.nothing_there.clone();
                return Err(RemoteError::NothingThere { label, what });
            }
        }
    }
    let source = source.clone();
    Ok(OpenedSource::Tree(Box::new(source)))
}

/// Returns the first document that exists, requesting one after the other.
async fn first_document(source: &RemoteSource) -> Result<Option<&'static str>, StoreError> {
    for name in source.identity.node_documents() {
        if matches!(source.bytes.attrs(&document(name)).await?, Attrs::Object(_)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Looks for the documents of a root, two at a time, so that most sources are recognised within the
/// time of one request.
async fn open_web(source: &RemoteSource) -> Result<bool, StoreError> {
    for pair in source.identity.node_documents().chunks(2) {
        let loads = pair.iter().map(|name| {
            let key = document(name);
            async move { source.bytes.read_whole(&key, MAX_DOCUMENT_BYTES).await }
        });
        let answers = join_all(loads).await;
        let mut found = None;
        for (name, response) in pair.iter().zip(answers) {
            match response {
                Ok(value) if value.bytes.as_ref().is_some_and(|bytes| is_markup(bytes)) => {
                    return Err(StoreError::Corrupt {
                        key: document(name),
                        what:
                            "a page in HTML or XML is there in place of the document; the server \
                               may send it for every name (check the URL in a browser)"
                                .into(),
                    });
                }
                Ok(_) => found = found.or(Some(*name)),
                Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(name) = found {
            set_root_document(source, name).await;
            return Ok(true);
        }
    }
    // The URL may be a directory of hierarchies, if the server lists it.
    match RemoteListing::open(&source.names, &Key::root()).await {
        Ok(_) => Ok(true),
        Err(StoreError::Unsupported { .. } | StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// An object that may be an archive, and its last bytes.
pub(super) type ObjectWithTail = (Arc<RemoteArchive>, Arc<Vec<u8>>);

/// Returns the object at the root, and its last bytes, at most `tail_bytes`; `None` if it does not exist.
pub(super) async fn archive(
    source: &RemoteSource,
    tail_bytes: u64,
) -> Result<Option<ObjectWithTail>, StoreError> {
    match source.bytes.fetch_tail(&Key::root(), tail_bytes).await {
        Ok(value) => {
            let tail = value.bytes.unwrap_or_default();
            let object = PinnedObject::new(&source.bytes, &Key::root(), value.meta);
            let archive = RemoteArchive::new(source.identity.label(), object, Arc::clone(&tail));
            Ok(Some((Arc::new(archive), tail)))
        }
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the first bytes of an object, which identify its format.
async fn head(object: &RemoteArchive) -> Result<Vec<u8>, StoreError> {
    let size_bytes = usize::try_from(object.size_bytes()).unwrap_or(usize::MAX);
    let length = size_bytes.min(HEADER_BYTES);
    match object.read_exact_at(0, length).await {
        Ok(head) => Ok(head.to_vec()),
        Err(SnapshotError::Store(error)) => Err(error),
        Err(error) => Err(StoreError::Unavailable {
            key: Key::root(),
            what: error.to_string(),
        }),
    }
}

/// Returns the error for an object that is no source, describing it by its first bytes.
fn other_format(object: &RemoteArchive, head: &[u8]) -> RemoteError {
    let size_bytes = object.size_bytes();
    let what = match file_type::of_source(head) {
        Some(what) => what.to_owned(),
        None if head.starts_with(file_type::ZIP_ENTRY) => {
            format!("the zip archive is truncated, {size_bytes} bytes are there; store it again")
        }
        None => format!("a file of {size_bytes} bytes in an unknown format"),
    };
    let label = object.label().to_owned();
    RemoteError::OtherFormat { label, what }
}

/// Returns the error for an object that looked like an archive or like JSON.
pub(in crate::store) async fn other_format_error(object: &RemoteArchive) -> RemoteError {
    match head(object).await {
        Ok(head) => other_format(object, &head),
        Err(error) => RemoteError::Failed {
            label: object.label().to_owned(),
            error,
        },
    }
}

/// Whether the end of an object has the signature of a zip archive.
fn is_archive(tail: &[u8]) -> bool {
    tail.windows(4).any(|bytes| bytes == b"PK\x05\x06")
}
