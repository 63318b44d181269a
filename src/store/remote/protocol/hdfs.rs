//! A directory of HDFS, through the REST API of its name node (Apache Hadoop 3, "WebHDFS REST API").
//!
//! - `GETFILESTATUS` returns the size, modification time and ID of a file, which are its version.
//! - `OPEN` redirects to a data node, which sends a range without its version. Once its response has begun,
//!   the name node is asked for the version: the file that was opened has that version or an older one. If
//!   the version has changed, the response is not used.
//! - `LISTSTATUS_BATCH` lists a directory in pages; `LISTSTATUS` lists it at once, for servers without pages.
//!
//! The user is sent as `user.name`, or as a delegation token. Kerberos (SPNEGO) is not built in.

mod reply;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use http::Method;
use reqwest::{Response, Url};
use serde_json::Value;

use super::web::{self, ALL_BYTES, Address, Web, always, body, identity, wanted};
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::{Location, NameListing, Protocol, Syntax, Traits};
use crate::store::remote::request::arrival::Arrival;
use crate::store::remote::request::body::Body;
use crate::store::remote::request::{ByteRange, Get, Got, List, Meta, Page, Remote, RequestError};
use crate::store::{Key, KeyClasses};
use reply::{Exception, Status};
use url::HdfsUrl;

/// The protocol of HDFS.
pub(in crate::store::remote) const PROTOCOL: Protocol = Protocol {
    schemes: &["hdfs", "webhdfs", "swebhdfs"],
    example: "hdfs://HOST/PATH",
    traits: Traits {
        syntax: Syntax::Host,
        has_aliases: false,
        listing: NameListing::Directories,
        has_credentials: true,
        reads_ranges: true,
    },
    parse: |url, variable| HdfsUrl::parse(url, variable).map(|url| Box::new(url) as _),
    denied: |_| {
        " (the user comes from the URL or from HADOOP_USER_NAME, a token from WEBHDFS_DELEGATION_TOKEN, in the \
         environment or in --env-file)"
    },
};

/// Size limit of JSON replies in bytes.
const MAX_REPLY_BYTES: u64 = 64 << 20;

/// A directory of HDFS.
#[derive(Debug)]
pub(in crate::store::remote) struct Hdfs {
    web: Web,
    url: HdfsUrl,
    /// Set if the server has no `LISTSTATUS_BATCH`.
    lists_at_once: AtomicBool,
}

impl Hdfs {
    fn new(web: Web, url: HdfsUrl) -> Self {
        Self {
            web,
            url,
            lists_at_once: AtomicBool::new(false),
        }
    }

    /// Sends one operation and follows redirects.
    ///
    /// # Errors
    /// The error of the server; [`RequestError::NotFound`] only if the server names it in an exception.
    async fn ask(
        &self,
        key: &Key,
        operation: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Response, RequestError> {
        let mut url: Url = self.web.address().of(key)?;
        url.query_pairs_mut()
            .append_pair("op", operation)
            .extend_pairs(parameters)
            .extend_pairs(self.url.credentials());
        let response = self
            .web
            .send(Method::GET, url, identity(), &mut always)
            .await?;
        match response.status().as_u16() {
            200 => Ok(response),
            _ => Err(Exception::read(response).await),
        }
    }

    /// Returns the JSON reply to an operation.
    async fn reply(
        &self,
        key: &Key,
        operation: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Value, RequestError> {
        let response = self.ask(key, operation, parameters).await?;
        let received = body(
            response,
            None,
            MAX_REPLY_BYTES,
            ALL_BYTES,
            &Arrival::default(),
        )
        .await;
        let bytes = received.map_err(|(error, _)| error)?.bytes.into_bytes();
        serde_json::from_slice(&bytes).map_err(|_| reply::unknown(operation))
    }

    async fn status(&self, key: &Key) -> Result<Status, RequestError> {
        let reply = self.reply(key, "GETFILESTATUS", &[]).await?;
        Status::parse(&reply["FileStatus"]).ok_or_else(|| reply::unknown("GETFILESTATUS"))
    }

    /// Returns the version of the file at a key.
    async fn meta(&self, key: &Key) -> Result<Meta, RequestError> {
        match self.status(key).await? {
            Status::File(meta) => Ok(meta),
            Status::Directory => Err(RequestError::IsPrefix),
            Status::Other => Err(RequestError::lasting(
                "neither a file nor a directory of HDFS",
            )),
        }
    }

    async fn read(&self, get: &Get) -> Result<Got, RequestError> {
        let meta = match &get.expected {
            Some(expected) => expected.clone(),
            None => self.meta(&get.key).await?,
        };
        if get
            .cached
            .as_ref()
            .is_some_and(|known| known.is_same(&meta))
        {
            return Err(RequestError::NotModified);
        }
        let range = wanted(&get.range, meta.size_bytes);
        let length = range.end - range.start;
        if let ByteRange::Whole(most) = get.range
            && length > most
        {
            return Err(RequestError::TooLong(meta));
        }
        get.headers_received(&meta);
        let start = range.start;
        if length == 0 {
            let bytes = Body::default();
            return Ok(Got { meta, start, bytes });
        }
        let (offset, count) = (start.to_string(), length.to_string());
        let parameters = [("offset", &offset[..]), ("length", &count[..])];
        let response = match self.ask(&get.key, "OPEN", &parameters).await {
            Ok(response) => response,
            Err(error @ (RequestError::NotFound | RequestError::Failed(_))) => {
                // If the file has another version, the range may be invalid.
                self.check(get, &meta).await?;
                return Err(match error {
                    // A data node cannot prove absence.
                    RequestError::NotFound => RequestError::transient(
                        "the data node does not have the file that the name node has",
                    ),
                    error => error,
                });
            }
            Err(error) => return Err(error),
        };
        // Not published: the version is checked meanwhile.
        let arrival = get.begin_arrival(None);
        let body = body(response, Some(length), length, ALL_BYTES, &arrival);
        let (received, is_same) = join(body, self.check(get, &meta)).await;
        is_same?;
        let bytes = received.map_err(|(error, _)| error)?.bytes;
        Ok(Got { meta, start, bytes })
    }

    /// Fails if a file no longer has the version that was found first.
    async fn check(&self, get: &Get, meta: &Meta) -> Result<(), RequestError> {
        let changed = |what: &str| match get.expected {
            Some(_) => RequestError::Changed(what.into()),
            // The next attempt reads the new version.
            None => RequestError::transient(what),
        };
        match self.meta(&get.key).await {
            Ok(now) if now.is_same(meta) => Ok(()),
            Ok(_) => Err(changed("it was replaced while it was read")),
            Err(RequestError::NotFound) => Err(changed("it was removed while it was read")),
            Err(error) => Err(error),
        }
    }

    async fn list_page(&self, list: &List) -> Result<Page, RequestError> {
        if !self.lists_at_once.load(Ordering::Relaxed) {
            let after = list.page.as_deref().map(|name| ("startAfter", name));
            let after: Vec<_> = after.into_iter().collect();
            match self.reply(&list.prefix, "LISTSTATUS_BATCH", &after).await {
                Ok(reply) => return reply::batch(&reply),
                // The server is older than this operation.
                Err(RequestError::NoListing(_)) if list.page.is_none() => {
                    self.lists_at_once.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let reply = self.reply(&list.prefix, "LISTSTATUS", &[]).await?;
        reply::all(&reply)
    }
}

impl Remote for Hdfs {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        self.read(get).boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.meta(key).boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.list_page(list).boxed()
    }
}

impl Location for HdfsUrl {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn identity(&self, _: &RemoteOptions) -> String {
        HdfsUrl::identity(self)
    }

    fn file_name(&self) -> String {
        HdfsUrl::file_name(self)
    }

    fn open(
        &self,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Arc<dyn Remote>, String> {
        let headers = options.headers()?.into_iter().collect();
        // Name nodes redirect reads to data nodes.
        let options = RemoteOptions {
            redirects: None,
            ..options.clone()
        };
        let web = web::open(Address::new(&self.http), headers, &options, classes)?;
        Ok(Arc::new(Hdfs::new(web, self.clone())))
    }
}
