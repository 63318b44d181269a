//! From a URL to what is there: a tree of keys, or an archive of one.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use siphasher::sip::SipHasher13;
use tokio::sync::Semaphore;

use super::Remote;
use super::archive::RemoteArchive;
use super::attr_cache::{AttrCache, Attrs};
use super::bodies::BodyBudget;
use super::bucket::{self, Bucket, BucketOptions};
use super::hdfs::{self, HdfsUrl};
use super::keyvalue::{self, KeyValueOptions, KeyValueUrl};
use super::limit::Limited;
use super::listing::{ListingCache, RemoteListing};
use super::missing::Missing;
use super::range_cache::RangeCache;
use super::retry::Retry;
use super::speculation::Speculation;
use super::store::{RemoteSource, RemoteStore};
use super::traffic::{Counted, Counters};
use super::web::{self, Address};
use crate::cache::SingleFlight;
use crate::runtime;
use crate::store::icechunk::{self, Layout};
use crate::store::reference::{is_json, looks_like_json};
use crate::store::{DiskCache, Key, KeyClasses, SnapshotError, SnapshotReader, Store, StoreError};

/// How remote sources are read.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Ask without credentials.
    pub anonymous: bool,
    /// Where the object store is, if not where its provider is.
    pub endpoint_url: Option<String>,
    /// The region of a bucket.
    pub region: Option<String>,
    /// Which profile of the AWS configuration is used.
    pub profile: Option<String>,
    /// Headers to send, `Name: value`.
    pub headers: Vec<String>,
    /// Refusals that mean that there is no such key.
    pub missing_statuses: Vec<u16>,
    /// When every request has to be answered.
    pub timeout: Duration,
    /// How often a request is sent again.
    pub retries: u32,
    /// Requests at a time.
    pub parallel: usize,
    /// How long names, sizes and versions are trusted.
    pub ttl: Duration,
    /// How long absence is.
    pub absent_ttl: Duration,
    /// What bytes may take in memory.
    pub memory_bytes: u64,
    /// Where bytes are kept for the next time.
    pub disk: Option<Arc<DiskCache>>,
    /// No name of a host may lead to a private address.
    pub is_public_only: bool,
}

impl RemoteOptions {
    /// Whether headers and an endpoint can be meant.
    ///
    /// # Errors
    /// Says which one cannot; values of headers are not repeated.
    pub fn check(headers: &[String], endpoint_url: Option<&str>) -> Result<(), String> {
        self::headers(headers)?;
        let Some(endpoint) = endpoint_url else {
            return Ok(());
        };
        match Url::parse(endpoint) {
            Ok(url) if url.has_host() && matches!(url.scheme(), "http" | "https") => Ok(()),
            _ => Err("--endpoint-url: not a URL such as https://host:9000".to_owned()),
        }
    }
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            anonymous: false,
            endpoint_url: None,
            region: None,
            profile: None,
            headers: Vec::new(),
            missing_statuses: Vec::new(),
            timeout: Duration::from_secs(30),
            retries: 10,
            parallel: 64,
            ttl: Duration::from_secs(60),
            absent_ttl: Duration::from_secs(1),
            memory_bytes: 128 << 20,
            disk: None,
            is_public_only: false,
        }
    }
}

/// Why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// It is not written as a source is.
    #[error("{label}: {what}")]
    Invalid {
        /// The source, without secrets.
        label: String,
        /// What is wrong.
        what: String,
    },
    /// It does not answer as it should, or refuses.
    #[error("{label}: {}{}", cause(error), advice(label, error))]
    Failed {
        /// The source, without secrets.
        label: String,
        /// What was asked and what came back.
        error: StoreError,
    },
    /// It answers, and nothing of Zarr is there.
    #[error("{label}: there is neither a Zarr hierarchy nor a zip archive: {what}")]
    NothingThere {
        /// The source, without secrets.
        label: String,
        /// What was looked for.
        what: String,
    },
    /// The system gives no threads.
    #[error("{label}: {error}")]
    System {
        /// The source, without secrets.
        label: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// The message of a failure; a server that cannot be reached is about no key.
fn cause(error: &StoreError) -> String {
    match error {
        StoreError::Unreachable { what, .. } => what.clone(),
        error => error.to_string(),
    }
}

/// What can be done about a refusal.
fn advice(label: &str, error: &StoreError) -> &'static str {
    let is_web = label.starts_with("http");
    match error {
        StoreError::Denied { .. } if label.starts_with("mongodb") => {
            " (credentials come from MONGODB_USERNAME and MONGODB_PASSWORD in the environment or in \
             --env-file, or from the URL)"
        }
        StoreError::Denied { .. } if label.starts_with("redis") => {
            " (credentials come from REDIS_PASSWORD and REDIS_USERNAME in the environment or in \
             --env-file, or from the URL)"
        }
        StoreError::Denied {
            status: Some(401), ..
        } if is_web => " (a password goes into the URL, a token into --header)",
        StoreError::Denied { .. } if is_web => {
            " (a password goes into the URL, a token into --header; --missing-status 403 where a \
             server says so of what is not there)"
        }
        StoreError::Denied { status: None, .. } => {
            " (they come from the environment, --env-file or --profile)"
        }
        StoreError::Denied { .. } => {
            " (credentials come from the environment, --env-file or --profile; --anonymous asks \
             without any)"
        }
        _ => "",
    }
}

/// What is at a URL.
#[derive(Debug)]
pub(in crate::store) enum Found {
    /// A tree of keys.
    Tree(Box<dyn Store>),
    /// A zip archive, and its last bytes.
    Archive(Arc<RemoteArchive>, Arc<Vec<u8>>),
    /// An Icechunk repository.
    Icechunk {
        layout: Layout,
        /// The repository as far as it changes: nothing is trusted without a request.
        refs: Arc<dyn Store>,
        /// The repository as far as it never changes: nothing is asked for twice.
        files: Arc<dyn Store>,
    },
    /// What may be a JSON document of references, and its last bytes.
    Json(Arc<RemoteArchive>, Arc<Vec<u8>>),
}

/// What of an archive is fetched first: most directories fit in.
const TAIL_BYTES: u64 = 256 << 10;
/// Metadata documents are not longer.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

/// Opens `http(s)://`, `s3://`, `gs://` and `az://` URLs; `is_zip` says that it has to be an archive,
/// `classes` what the keys of a tree are.
///
/// # Errors
/// [`RemoteError`], which names the source and no secret of it.
pub(in crate::store) async fn open(
    url: &str,
    is_zip: bool,
    options: &RemoteOptions,
    classes: KeyClasses,
) -> Result<Found, RemoteError> {
    let (label, identity, name, remote) = client(url, options, classes)?;
    let failed = |error: StoreError| RemoteError::Failed {
        label: label.clone(),
        error,
    };
    let (client, kind) = remote;
    let names = (label.clone(), identity);
    let shared = Shared::new(options, classes);
    let remote = (Arc::clone(&client), kind);
    let source = layered(names.clone(), remote, options, classes, &shared)?;
    if let Kind::Keys = kind {
        return open_keys(url, is_zip, &source).await;
    }
    let looks_zipped = [".zip", ".ozx"]
        .iter()
        .any(|end| name.to_ascii_lowercase().ends_with(end));
    if is_zip || looks_zipped {
        match archive(&source).await.map_err(failed)? {
            Some((archive, tail)) => return Ok(Found::Archive(archive, tail)),
            None if is_zip => {
                let what = "no such object".into();
                return Err(RemoteError::NothingThere { label, what });
            }
            None => {}
        }
    }
    if !is_zip
        && is_json(&name)
        && let Some((object, tail)) = archive(&source).await.map_err(failed)?
        && has_json(&object, &tail).await.map_err(failed)?
    {
        return Ok(Found::Json(object, tail));
    }
    let is_tree = match kind {
        Kind::Bucket => open_bucket(&source).await.map_err(failed)?,
        Kind::Web | Kind::Hdfs | Kind::Keys => open_web(&source).await.map_err(failed)?,
    };
    if let Some(layout) = repository(&source, is_tree).await.map_err(failed)? {
        let shared = Shared {
            counters: Arc::new(Counters::new(KeyClasses::default())),
            ..shared
        };
        let part = |ttl| part(&source, &names, (&client, kind), options, ttl, &shared);
        return Ok(Found::Icechunk {
            layout,
            refs: part(Duration::ZERO)?,
            files: part(Duration::MAX)?,
        });
    }
    if is_tree {
        return Ok(Found::Tree(Box::new(RemoteStore { source })));
    }
    if !looks_zipped && let Some((archive, tail)) = archive(&source).await.map_err(failed)? {
        if is_archive(&tail) {
            return Ok(Found::Archive(archive, tail));
        }
        if has_json(&archive, &tail).await.map_err(failed)? {
            return Ok(Found::Json(archive, tail));
        }
    }
    let what = match kind {
        Kind::Bucket => "no key begins with it (are bucket and prefix right?)".into(),
        Kind::Web | Kind::Hdfs | Kind::Keys => format!(
            "none of {} is there, and it is not listed (is it the URL of the hierarchy itself?)",
            classes.node_documents.join(", ")
        ),
    };
    Err(RemoteError::NothingThere { label, what })
}

/// Where the branches are of a source without documents that is an Icechunk repository.
async fn repository(
    source: &Arc<RemoteSource>,
    is_tree: bool,
) -> Result<Option<Layout>, StoreError> {
    let is_empty = !is_tree && source.can_list();
    if source.anchor.get().is_some() || is_empty {
        return Ok(None);
    }
    if is_tree && let Ok(listing) = RemoteListing::open(source, &Key::root()).await {
        let has_files = || {
            let names = [&b"repo"[..], b"refs"];
            names.iter().any(|name| listing.lists(name))
        };
        if listing.is_at_end() && !has_files() {
            return Ok(None);
        }
    }
    let store = RemoteStore {
        source: Arc::clone(source),
    };
    icechunk::recognise(&store).await
}

/// The objects of a repository as a store that trusts for `ttl` what it knows of them.
fn part(
    source: &RemoteSource,
    names: &(String, String),
    (client, kind): (&Arc<dyn Remote>, Kind),
    options: &RemoteOptions,
    ttl: Duration,
    shared: &Shared,
) -> Result<Arc<dyn Store>, RemoteError> {
    let options = RemoteOptions {
        ttl,
        absent_ttl: options.absent_ttl.min(ttl),
        ..options.clone()
    };
    let remote = (Arc::clone(client), kind);
    let part = layered(
        names.clone(),
        remote,
        &options,
        KeyClasses::default(),
        shared,
    )?;
    // Files that never change are never listed.
    let can_list = source.can_list() && ttl == Duration::ZERO;
    part.can_list.store(can_list, Ordering::Relaxed);
    Ok(Arc::new(RemoteStore { source: part }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Web,
    Bucket,
    Hdfs,
    Keys,
}

type Client = (String, String, String, (Arc<dyn Remote>, Kind));

fn headers(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |text: &String| web::header(text).map_err(|what| format!("--header: {what}"));
    given.iter().map(header).collect()
}

/// The URL as messages have it, without secrets.
pub(in crate::store) fn label(url: &str) -> String {
    if let Some(Ok(hdfs)) = HdfsUrl::parse(url, |_| None) {
        return hdfs.label();
    }
    if let Some(keys) = KeyValueUrl::parse(url, |_| None) {
        return keys.map_or_else(|_| hidden(url), |keys| keys.label());
    }
    match (Bucket::parse(url), Url::parse(url)) {
        (Some(Ok(bucket)), _) => bucket.label(),
        (None, Ok(parsed)) if parsed.has_host() => Address::new(&parsed).label(),
        _ => hidden(url),
    }
}

/// What can be repeated of a URL that may have secrets anywhere.
fn hidden(url: &str) -> String {
    let scheme = url.split("://").next().unwrap_or_default();
    format!("{scheme}://...")
}

/// The client of a URL, with the source's label, what identifies it and its last name.
fn client(url: &str, options: &RemoteOptions, classes: KeyClasses) -> Result<Client, RemoteError> {
    let hidden = || hidden(url);
    let invalid = |label: String| move |what: String| RemoteError::Invalid { label, what };
    let headers = headers(&options.headers).map_err(invalid(hidden()))?;
    if let Some(bucket) = Bucket::parse(url) {
        let bucket = bucket.map_err(invalid(hidden()))?;
        let label = bucket.label();
        let bucket_options = BucketOptions {
            anonymous: options.anonymous,
            endpoint_url: options.endpoint_url.clone(),
            region: options.region.clone(),
            profile: options.profile.clone(),
            headers,
            timeout: options.timeout,
        };
        let remote = bucket::open(&bucket, &bucket_options).map_err(invalid(label.clone()))?;
        let endpoint = options.endpoint_url.as_deref().unwrap_or_default();
        let identity = format!("{label} {endpoint}");
        let name = label.clone();
        return Ok((label, identity, name, (remote, Kind::Bucket)));
    }
    let headers: HeaderMap = headers.into_iter().collect();
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(hdfs) = HdfsUrl::parse(url, variable) {
        let hdfs = hdfs.map_err(invalid(hidden()))?;
        let (label, identity, name) = (hdfs.label(), hdfs.identity(), hdfs.file_name());
        let address = Address::new(&hdfs.http);
        let web = web::open(address, headers, options, classes);
        let web = web.map_err(invalid(label.clone()))?;
        let remote = (hdfs::open(web, hdfs), Kind::Hdfs);
        return Ok((label, identity, name, remote));
    }
    if let Some(keys) = KeyValueUrl::parse(url, variable) {
        let keys = keys.map_err(invalid(hidden()))?;
        let label = keys.label();
        let own = KeyValueOptions {
            classes,
            timeout: options.timeout,
            ttl: options.ttl,
            memory_bytes: options.memory_bytes,
        };
        let remote = keyvalue::open(&keys, own).map_err(invalid(label.clone()))?;
        return Ok((label.clone(), label.clone(), label, (remote, Kind::Keys)));
    }
    let parsed = Url::parse(url).map_err(|error| invalid(hidden())(error.to_string()))?;
    if parsed.host().is_none() {
        return Err(invalid(hidden())("no host in the URL".into()));
    }
    let address = Address::new(&parsed);
    let (label, identity, name) = (address.label(), address.identity(), address.file_name());
    let web = web::open(address, headers, options, classes);
    let web = web.map_err(invalid(label.clone()))?;
    Ok((label, identity, name, (Arc::new(web), Kind::Web)))
}

/// What several sources can have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ranges: Arc<RangeCache>,
    bodies: Arc<BodyBudget>,
    pub(super) counters: Arc<Counters>,
}

impl Shared {
    pub(super) fn new(options: &RemoteOptions, classes: KeyClasses) -> Self {
        Self {
            ranges: Arc::new(RangeCache::new(options.memory_bytes)),
            bodies: Arc::new(BodyBudget::new(options.memory_bytes.saturating_mul(2))),
            counters: Arc::new(Counters::new(classes)),
        }
    }
}

/// A source whose objects are asked for by their keys: nothing of it is looked for.
pub(super) fn objects(
    url: &str,
    options: &RemoteOptions,
    classes: KeyClasses,
    shared: &Shared,
) -> Result<Arc<RemoteSource>, RemoteError> {
    let (label, identity, _, remote) = client(url, options, classes)?;
    layered((label, identity), remote, options, classes, shared)
}

/// Puts the layers on top of a client; `names` are the source's label and what identifies it.
fn layered(
    names: (String, String),
    (remote, kind): (Arc<dyn Remote>, Kind),
    options: &RemoteOptions,
    classes: KeyClasses,
    shared: &Shared,
) -> Result<Arc<RemoteSource>, RemoteError> {
    let (label, identity) = names;
    runtime::network().map_err(|error| RemoteError::System {
        label: label.clone(),
        error,
    })?;
    let counters = Arc::clone(&shared.counters);
    let mut hasher = SipHasher13::new();
    identity.hash(&mut hasher);
    let is_immutable = options.ttl == Duration::MAX;
    let reads_whole = kind == Kind::Keys;
    let mut remote: Arc<dyn Remote> = Arc::new(Counted::new(remote, Arc::clone(&counters)));
    remote = Arc::new(Limited::new(remote, options.parallel, classes));
    let (retries, timeout) = (options.retries, options.timeout);
    remote = Arc::new(Retry::new(remote, retries, timeout, Arc::clone(&counters)));
    if !options.missing_statuses.is_empty() {
        let statuses = &options.missing_statuses;
        log::warn!("{label}: {statuses:?} is taken for a proof of absence (--missing-status)");
        remote = Arc::new(Missing::new(remote, statuses.clone()));
    }
    Ok(Arc::new(RemoteSource {
        remote,
        number: hasher.finish(),
        label,
        identity,
        classes,
        can_list: AtomicBool::new(false),
        lists_directories: kind == Kind::Hdfs,
        reads_whole,
        timeout: options.timeout,
        is_immutable,
        attrs: AttrCache::new(options.ttl, options.absent_ttl),
        listings: ListingCache::new(options.memory_bytes / 2, options.ttl, options.absent_ttl),
        ranges: Arc::clone(&shared.ranges),
        bodies: Arc::clone(&shared.bodies),
        // What tells contents apart that may change is forgotten with the process.
        disk: options
            .disk
            .clone()
            .filter(|_| is_immutable || !reads_whole),
        counters,
        speculation: Speculation::default(),
        prefetches: Semaphore::new((options.parallel / 2).max(1)),
        value_lookups: Arc::new(Semaphore::new((options.parallel / 2).max(1))),
        anchor: OnceLock::new(),
        modified: OnceLock::new(),
        attr_loads: SingleFlight::default(),
        value_loads: SingleFlight::default(),
        range_loads: SingleFlight::default(),
    }))
}

fn document(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap_or_default()
}

/// Notes a key that is there for as long as the source is.
async fn set_anchor(source: &Arc<RemoteSource>, name: &str) {
    let key = document(name);
    if let Ok(Attrs::Object(meta)) = source.attrs(&key).await
        && let Some(modified) = meta.modified
    {
        let _ = source.modified.set(modified);
    }
    let _ = source.anchor.set(key);
}

/// Lists the keys of a bucket, or finds documents where listing is not allowed.
async fn open_bucket(source: &Arc<RemoteSource>) -> Result<bool, StoreError> {
    source.can_list.store(true, Ordering::Relaxed);
    let listing = match RemoteListing::open(source, &Key::root()).await {
        Ok(listing) => listing,
        Err(StoreError::Denied { what, .. }) => {
            log::warn!("{}: it may not be listed: {what}", source.label);
            source.can_list.store(false, Ordering::Relaxed);
            return open_web(source).await;
        }
        Err(error) => return Err(error),
    };
    if listing.is_empty() {
        return Ok(false);
    }
    let listed = |name: &&str| listing.lists(name.as_bytes());
    let mut names = source.classes.node_documents.iter().copied();
    let found = match names.find(listed) {
        // The pages that follow may have it.
        None if !listing.is_at_end() => first_document(source).await?,
        found => found,
    };
    if let Some(name) = found {
        set_anchor(source, name).await;
    }
    Ok(true)
}

/// Opens a database of keys and values.
async fn open_keys(
    url: &str,
    is_zip: bool,
    source: &Arc<RemoteSource>,
) -> Result<Found, RemoteError> {
    let label = source.label.clone();
    if is_zip {
        let what = "a zip archive in a database of keys cannot be mounted".into();
        return Err(RemoteError::Invalid { label, what });
    }
    source.can_list.store(true, Ordering::Relaxed);
    let failed = |error: StoreError| RemoteError::Failed {
        label: label.clone(),
        error,
    };
    match first_document(source).await.map_err(failed)? {
        Some(name) => set_anchor(source, name).await,
        None => {
            let listing = RemoteListing::open(source, &Key::root()).await;
            if listing.map_err(failed)?.is_empty() {
                let keys = KeyValueUrl::parse(url, |_| None).and_then(Result::ok);
                let what = keys.map_or_else(String::new, |keys| keys.nothing_there());
                return Err(RemoteError::NothingThere { label, what });
            }
        }
    }
    let source = Arc::clone(source);
    Ok(Found::Tree(Box::new(RemoteStore { source })))
}

/// The first document that is there, asked for one by one.
async fn first_document(source: &Arc<RemoteSource>) -> Result<Option<&'static str>, StoreError> {
    for name in source.classes.node_documents {
        if matches!(source.attrs(&document(name)).await?, Attrs::Object(_)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Looks for the documents of a root: two at a time, so that most sources are known after the
/// time of one request.
async fn open_web(source: &Arc<RemoteSource>) -> Result<bool, StoreError> {
    for pair in source.classes.node_documents.chunks(2) {
        let loads = pair.iter().map(|name| {
            let key = document(name);
            async move { source.whole(&key, MAX_DOCUMENT_BYTES).await }
        });
        let answers = join_all(loads).await;
        let mut found = None;
        for (name, answer) in pair.iter().zip(answers) {
            match answer {
                Ok(value) if value.bytes.as_ref().is_some_and(|bytes| is_page(bytes)) => {
                    return Err(StoreError::Corrupt {
                        key: document(name),
                        what:
                            "a page in HTML or XML is there in place of the document; the server \
                               may send it for every name"
                                .into(),
                    });
                }
                Ok(_) => found = found.or(Some(*name)),
                Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(name) = found {
            set_anchor(source, name).await;
            return Ok(true);
        }
    }
    // A directory of hierarchies, if the server lists it.
    match RemoteListing::open(source, &Key::root()).await {
        Ok(_) => Ok(true),
        Err(StoreError::Unsupported { .. } | StoreError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether something is markup, which no metadata document is.
fn is_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'<')
}

/// An object that may be an archive, and its last bytes.
type Tailed = (Arc<RemoteArchive>, Arc<Vec<u8>>);

/// The object at the root, if there is one.
async fn archive(source: &Arc<RemoteSource>) -> Result<Option<Tailed>, StoreError> {
    match Arc::clone(source)
        .fetch_tail(&Key::root(), TAIL_BYTES)
        .await
    {
        Ok(value) => {
            let tail = value.bytes.unwrap_or_default();
            let archive = RemoteArchive::new(source, value.meta, Arc::clone(&tail));
            Ok(Some((Arc::new(archive), tail)))
        }
        Err(StoreError::NotFound { .. } | StoreError::NotAPrefix { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What tells whether an object is a JSON document.
const HEAD_BYTES: usize = 64;

/// Whether the beginning of an object looks like that of a JSON document, compressed or not.
async fn has_json(object: &RemoteArchive, tail: &[u8]) -> Result<bool, StoreError> {
    let size_bytes = object.size_bytes();
    if tail.len() as u64 >= size_bytes {
        return Ok(looks_like_json(tail));
    }
    let length = usize::try_from(size_bytes)
        .unwrap_or(usize::MAX)
        .min(HEAD_BYTES);
    match object.read_exact_at(0, length).await {
        Ok(head) => Ok(looks_like_json(&head)),
        Err(SnapshotError::Store(error)) => Err(error),
        Err(error) => Err(StoreError::Unavailable {
            key: Key::root(),
            what: error.to_string(),
        }),
    }
}

/// Whether the end of an object looks like that of an archive.
fn is_archive(tail: &[u8]) -> bool {
    tail.windows(4).any(|bytes| bytes == b"PK\x05\x06")
}
