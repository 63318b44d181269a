//! A simulated source as a mount has opened it, and the requests of that mount.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, ETAG};

use super::fault::Fault;
use super::{SimulatedServer, Value, empty, header, headers_received, request_line, value_headers};
use crate::clock;
use crate::store::remote::archive::RemoteArchive;
use crate::store::remote::client::{Client, Shared};
use crate::store::remote::open::{OpenedSource, archive, open_source};
use crate::store::remote::protocol::Protocol;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::web::{of_get, of_head};
use crate::store::remote::request::{Get, Got, List, Meta, Page, Remote, RequestError};
use crate::store::remote::store::RemoteSource;
use crate::store::{DiskCache, Key, SnapshotReader, Store, ZipOptions, ZipStore};

/// How an archive is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArchiveOptions {
    /// The bytes at its end that are fetched first.
    pub(crate) tail_bytes: u64,
    pub(crate) zip: ZipOptions,
}

/// A source that was opened from a simulated server, with what a simulation checks.
#[derive(Debug)]
pub(crate) struct SimulatedSource {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) disk: Option<Arc<DiskCache>>,
    /// For an archive: the version to which it is pinned.
    pub(crate) pinned: Option<Value>,
    source: RemoteSource,
    shared: Shared,
    parallel: usize,
}

/// The connections of one mount to a server.
#[derive(Debug)]
struct Connections {
    server: Arc<SimulatedServer>,
    /// What tells its requests from those of other mounts.
    by: String,
}

impl SimulatedSource {
    /// Returns what is in use; nothing if no request is in flight.
    pub(crate) fn in_use(&self) -> Vec<String> {
        let mut used = self.shared.in_use();
        let prefetches = (self.parallel / 2).max(1) - self.shared.free_prefetches();
        if prefetches > 0 {
            used.push(format!("{prefetches} permits for prefetches"));
        }
        used.extend(self.source.bytes.in_use(self.parallel));
        used.extend(self.source.names.in_use());
        used.extend(self.disk.iter().flat_map(|disk| disk.in_use()));
        used
    }
}

impl SimulatedServer {
    /// Opens the source as a mount does. `mount` is the number of the mount.
    ///
    /// # Errors
    /// The message of the failure.
    pub(crate) async fn open(
        self: &Arc<Self>,
        mount: usize,
        options: &RemoteOptions,
        as_archive: Option<&ArchiveOptions>,
    ) -> Result<SimulatedSource, String> {
        let scheme = if self.page_names.is_some() {
            "s3"
        } else {
            "http"
        };
        let protocol = Protocol::of_scheme(scheme).ok_or("the build has no buckets")?;
        let connections = Connections {
            server: Arc::clone(self),
            by: match mount {
                0 => String::new(),
                mount => format!(" by mount {mount}"),
            },
        };
        let client = Client::fake(Arc::new(connections), protocol);
        let shared = Shared::new(options, self.classes);
        let source = client.clone().source(options, self.classes, &shared);
        let source = source.map_err(|error| error.to_string())?;
        let mut pinned = None;
        let store = match as_archive {
            Some(archive) => {
                let (store, version) = self.open_archive(&source, archive).await?;
                pinned = Some(version);
                Arc::new(store) as _
            }
            None => {
                let opened = open_source(client, source.clone(), &shared, false, options).await;
                match opened.map_err(|error| error.to_string())? {
                    OpenedSource::Tree(store) => Arc::from(store),
                    other => return Err(format!("{other:?}")),
                }
            }
        };
        Ok(SimulatedSource {
            store,
            disk: options.disk.clone(),
            pinned,
            source,
            shared,
            parallel: options.parallel,
        })
    }

    /// Opens the archive at the root; also returns the version to which it is pinned.
    async fn open_archive(
        &self,
        source: &RemoteSource,
        options: &ArchiveOptions,
    ) -> Result<(ZipStore, Value), String> {
        let found = archive(source, options.tail_bytes).await;
        let (archive, tail) = found
            .map_err(|error| error.to_string())?
            .ok_or("there is no archive")?;
        let version = self.version_of(&archive);
        let reader = Arc::clone(&archive) as Arc<dyn SnapshotReader>;
        let opened = ZipStore::open_remote(reader, tail, "fake", options.zip).await;
        let store = opened.map_err(|error| error.to_string())?;
        Ok((store, version.ok_or("a version that never was there")?))
    }

    /// Returns the version to which an archive is pinned, as far as it can tell versions apart.
    fn version_of(&self, archive: &RemoteArchive) -> Option<Value> {
        let meta = archive.meta();
        self.history(|history| {
            let mut versions = history.values("").rev();
            let is_pinned = |value: &&Value| match meta.opaque_tag() {
                Some(tag) => tag == value.etag.trim_matches('"'),
                None => {
                    let modified = Some(clock::system_time_at(value.since));
                    let whole = Meta {
                        size_bytes: value.bytes.len() as u64,
                        etag: None,
                        modified,
                    };
                    meta.is_same(&whole)
                }
            };
            versions.find(is_pinned).cloned()
        })
    }
}

impl Remote for Connections {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        async move {
            let server = &self.server;
            let request = request_line(get) + &self.by;
            let (mut sent, fault) = server.receive(request).await?;
            let response = server.respond(get, fault, sent.is_slow);
            sent.latency().await;
            headers_received(response.headers());
            let tag = response.headers().get(ETAG).cloned();
            let status = response.status().as_u16();
            let got = of_get(get, server.classes.is_document, response, None).await;
            let end = match &got {
                Ok(got) => format!("{} bytes", got.bytes.len()),
                Err(error) => format!("{error:?}").chars().take(80).collect(),
            };
            sent.status = Some(format!("{status} {tag:?} {fault:?} {end}"));
            got
        }
        .boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        async move {
            let server = &self.server;
            let request = format!("HEAD {key}{}", self.by);
            let (mut sent, fault) = server.receive(request).await?;
            let response = match (fault, server.value(key)) {
                (Fault::Status(status, _), _) => SimulatedServer::refusal(status, fault),
                (_, None) => SimulatedServer::refusal(404, fault),
                (_, Some(value)) => {
                    let mut headers = value_headers(&value, server.tag(&value).as_deref());
                    let length = value.bytes.len().to_string();
                    headers.insert(CONTENT_LENGTH, header(&length));
                    empty(200, headers)
                }
            };
            sent.latency().await;
            headers_received(response.headers());
            sent.status = Some(response.status().to_string());
            let meta = of_head(&response)?;
            meta.ok_or_else(|| RequestError::lasting("no length"))
        }
        .boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.server.page(list, &self.by).boxed()
    }
}
