//! Web servers: each call sends one request and returns the exact result (RFC 9110).
//!
//! Redirects are followed by this module and not by the library. At most five are followed, never from
//! https to http, never from a public address to a private one or to a metadata service of a machine, unless the user names it.
//! Neither credentials nor the user's headers are sent to another host. A redirect of a target of references leads only
//! where a target may be.

mod address;
mod failure;
mod index;
mod netrc;
mod redirects;
mod resolve;
mod response;
mod scope;
mod storage;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap,
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE,
    TRANSFER_ENCODING,
};
use http::{Method, StatusCode};
use reqwest::{Client, Response, Url, redirect};

pub(in crate::store::remote) use address::{Address, is_same_host};
pub(in crate::store::remote) use failure::{causes, failure, is_lasting};
use failure::{has_proxy, sending};
#[cfg(feature = "fuzzing")]
pub use index::fuzz_page;
use redirects::{Redirects, is_redirect};
use resolve::Reach;
#[cfg(test)]
pub(in crate::store::remote) use response::of_head;
pub(in crate::store::remote) use response::{
    ALL_BYTES, body, is_markup, of_get, refusal, retry_after, wanted,
};
pub(in crate::store) use scope::is_public;
pub(in crate::store) use storage::{may_be_redirected, redirected_storage};
pub use tls::TlsOptions;

use crate::clock::Instant;
use crate::store::remote::protocol::credential_command::CredentialCommand;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::{Location, NameListing, Protocol, Syntax, Traits, label};
use crate::store::remote::request::transfer_stats::{headers_received, request_sent};
use crate::store::remote::request::{
    ByteRange, Get, Got, List, Meta, Page, Refusal, Remote, RequestError,
};
use crate::store::{Key, KeyClasses};

/// The protocol of web servers.
pub(in crate::store::remote) const PROTOCOL: Protocol = Protocol {
    schemes: &["https", "http"],
    example: "https://HOST/PATH",
    traits: Traits {
        syntax: Syntax::Escaped,
        has_aliases: false,
        listing: NameListing::Pages,
        has_credentials: true,
        reads_ranges: true,
    },
    parse: |url, _| {
        let parsed = Url::parse(url).map_err(|error| error.to_string())?;
        match parsed.has_host() {
            true => Ok(Box::new(Address::new(&parsed))),
            false => Err("no host in the URL".into()),
        }
    },
    denied: |status| match status {
        Some(401) => " (a password goes into the URL, a token into --header)",
        _ => {
            " (a password goes into the URL, a token into --header; --missing-status 403 where a server says so \
             of what is not there)"
        }
    },
};

/// Number of redirects that are followed for one request.
const MAX_REDIRECTS: usize = 5;
/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of idle connections that are kept.
const IDLE_CONNECTIONS: usize = 64;

/// A tree of keys on a web server.
#[derive(Debug)]
pub(in crate::store::remote) struct Web {
    client: Client,
    address: Address,
    /// The user's headers, which are sent to this server only.
    headers: HeaderMap,
    /// The command that prints more headers, or a query, for this server.
    credentials: Option<Arc<CredentialCommand>>,
    classes: KeyClasses,
    /// Whether the server labels documents, and so probably everything, as HTML pages.
    labels_all: AtomicBool,
    redirects: Redirects,
}

/// Selects the TLS cryptography of the process.
pub(in crate::store::remote) fn install_tls() {
    // This build has only one provider, so an earlier call has installed the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Creates the HTTP client for all kinds of sources.
fn client(timeout: Duration, reach: Reach, tls: &TlsOptions) -> Result<Client, String> {
    let builder = match reach {
        Reach::Any => Client::builder(),
        // A proxy resolves names itself, and may have a private address.
        _ if has_proxy() => Client::builder(),
        reach => Client::builder().dns_resolver(Arc::new(reach)),
    };
    let built = builder
        .tls_backend_preconfigured(tls.config()?)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_only()
        .tcp_nodelay(true)
        .user_agent(concat!("zarrfs/", env!("CARGO_PKG_VERSION")))
        .build();
    built.map_err(|error| causes(&error))
}

/// Headers that this module sets: they select the bytes, their version and their encoding.
const OURS: [HeaderName; 10] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    RANGE,
    TRANSFER_ENCODING,
];

/// Parses a header of the user, `Name: value`.
///
/// # Errors
/// The reason why the header is invalid, without its value.
pub(in crate::store::remote) fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("not of the form `Name: value`")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "not a name of a header")?;
    if OURS.contains(&name) {
        return Err(format!("{name}: zarrfs sets this one itself"));
    }
    let mut value: HeaderValue = value
        .trim()
        .parse()
        .map_err(|_| format!("{name}: not a value of a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

impl Web {
    pub(in crate::store::remote) fn new(
        client: Client,
        address: Address,
        mut headers: HeaderMap,
        credentials: Option<Arc<CredentialCommand>>,
        classes: KeyClasses,
        redirects: Redirects,
    ) -> Self {
        if let Some(authorization) = address.authorization() {
            headers.entry(AUTHORIZATION).or_insert(authorization);
        }
        Self {
            client,
            address,
            headers,
            credentials,
            classes,
            labels_all: AtomicBool::new(false),
            redirects,
        }
    }

    pub(in crate::store::remote) fn address(&self) -> &Address {
        &self.address
    }

    /// Sends one request and follows redirects. A redirect to the same URL with a slash appended means that
    /// the URL is a directory. The request is repeated once with new credentials if the server refuses those of the
    /// command. `follows` gets the headers of each redirect, and returns whether to follow it; otherwise the redirect is
    /// the response.
    pub(in crate::store::remote) async fn send(
        &self,
        method: Method,
        url: Url,
        extra: HeaderMap,
        follows: &mut (dyn FnMut(&HeaderMap) -> Result<bool, RequestError> + Send),
    ) -> Result<Response, RequestError> {
        let sent_at = Instant::now();
        let request = (method, url, extra);
        let response = self.send_once(request.clone(), follows).await?;
        let Some(credentials) = &self.credentials else {
            return Ok(response);
        };
        let renews = match response.status() {
            StatusCode::UNAUTHORIZED => credentials.renews_refused(sent_at, true).await,
            StatusCode::FORBIDDEN => credentials.renews_refused(sent_at, false).await,
            _ => false,
        };
        match renews {
            true => self.send_once(request, follows).await,
            false => Ok(response),
        }
    }

    async fn send_once(
        &self,
        (method, url, extra): (Method, Url, HeaderMap),
        follows: &mut (dyn FnMut(&HeaderMap) -> Result<bool, RequestError> + Send),
    ) -> Result<Response, RequestError> {
        let issued = match &self.credentials {
            Some(command) => Some(
                command
                    .credentials()
                    .await
                    .map_err(|what| RequestError::Denied(Refusal { what, status: None }))?,
            ),
            None => None,
        };
        let first = url.clone();
        let mut url = url;
        let mut client = &self.client;
        for _ in 0..=MAX_REDIRECTS {
            let is_own = is_same_host(&first, &url);
            let issued = issued.as_ref().filter(|_| is_own);
            let query = issued.and_then(|issued| issued.query.as_deref());
            let mut request = client.request(method.clone(), with_query(url.clone(), query));
            request = request.headers(extra.clone());
            if is_own {
                request = request.headers(self.headers.clone());
            }
            if let Some(issued) = issued {
                request = request.headers(issued.headers.clone());
            }
            request_sent();
            let response = request.send().await.map_err(|error| sending(&error))?;
            headers_received(response.headers());
            if !is_redirect(response.status()) || !follows(response.headers())? {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION);
            let location = location.and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            let (Some(location), Some(next)) = (location, next) else {
                let status = response.status();
                return Err(RequestError::lasting(format!(
                    "{status} without a place to go to"
                )));
            };
            if address::is_directory_of(&url, &next, location) {
                return Err(RequestError::IsPrefix);
            }
            let by = (&response, &url);
            if storage::location(response.headers()).is_some() {
                self.redirects.judge(&first, &next)?;
                return Err(RequestError::OtherStorage(label(location)));
            }
            client = self.redirects.client(&self.client, &first, by, &next)?;
            url = next;
        }
        let what = format!("more than {MAX_REDIRECTS} redirects");
        Err(RequestError::lasting(what))
    }

    /// Sends a request for a key.
    ///
    /// # Errors
    /// [`RequestError::NotFound`] only if the server says so about the same key: after a redirect to
    /// another host or another key, the link may be wrong or have expired.
    async fn ask(
        &self,
        method: Method,
        key: &Key,
        headers: HeaderMap,
    ) -> Result<Response, RequestError> {
        let url = self.address.of(key)?;
        let response = self.send(method, url.clone(), headers, &mut always).await?;
        let (mut end, status) = (response.url().clone(), response.status());
        if self.credentials.is_some() {
            // The command prints a part of it.
            end.set_query(url.query());
        }
        if status == StatusCode::NOT_FOUND && !self.address.is_same_key(&url, &end) {
            return Err(RequestError::lasting(format!(
                "{status} from {}, where a redirect led: that does not prove that it is absent",
                end.host_str().unwrap_or_default()
            )));
        }
        // `rclone serve webdav` answers 405 to GET for a directory without a slash at the end.
        let may_be_directory =
            response::is_page(&response) || status == StatusCode::METHOD_NOT_ALLOWED;
        if may_be_directory && self.is_listed_directory(key).await? {
            return Err(RequestError::IsPrefix);
        }
        if response::is_page(&response) && !self.may_be_page(key) {
            return Err(in_place_of("value"));
        }
        Ok(response)
    }

    /// Whether the value of a key may be labelled as an HTML page. Servers that ask for a login, or that have a
    /// page for unknown names, send it with status 200 for every key.
    fn may_be_page(&self, key: &Key) -> bool {
        let name = key.as_bytes().to_ascii_lowercase();
        let is_named = [&b".html"[..], b".htm", b".xhtml"]
            .iter()
            .any(|suffix| name.ends_with(suffix));
        // A directory of hierarchies has a page, and the text of a document shows what it is.
        is_named
            || key.is_root()
            || self.classes.is_document(key)
            || self.labels_all.load(Ordering::Relaxed)
    }

    /// Fails if a document is markup. Otherwise remembers whether the server labels what is no page as one.
    fn check_document(&self, is_page: bool, got: &Got) -> Result<(), RequestError> {
        let start = got.bytes.first_piece();
        if got.start > 0 || start.is_empty() {
            return Ok(());
        }
        if response::is_markup(start) {
            return Err(in_place_of("document"));
        }
        if is_page {
            self.labels_all.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the page of the parent directory lists a key as a directory. Some servers answer requests for
    /// a directory even without a slash at the end of its URL, instead of redirecting.
    async fn is_listed_directory(&self, key: &Key) -> Result<bool, RequestError> {
        let name = key.as_bytes().rsplit(|byte| *byte == b'/').next();
        let name = name.filter(|_| !key.is_root() && !self.classes.is_document(key));
        let Some(name) = name else {
            return Ok(false);
        };
        match self.page(&key.parent()).await {
            Ok(page) => Ok(page.prefixes.iter().any(|prefix| prefix == name)),
            Err(RequestError::NoListing(_) | RequestError::Denied(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Requests the page that many servers generate for a directory.
    async fn page(&self, prefix: &Key) -> Result<Page, RequestError> {
        let url = self.address.of_directory(prefix)?;
        let mut headers = identity();
        let accept = HeaderValue::from_static("application/json, text/html;q=0.9");
        headers.insert(ACCEPT, accept);
        let response = self
            .send(Method::GET, url.clone(), headers, &mut always)
            .await;
        match response {
            Ok(response) => index::read(&url, response).await,
            Err(RequestError::IsPrefix) => Err(RequestError::NoListing(
                "the server sends in circles".into(),
            )),
            Err(error) => Err(error),
        }
    }

    /// Requests the attributes of an object: with HEAD, or with a request for one byte if the server does
    /// not support HEAD.
    async fn meta(&self, key: &Key) -> Result<Meta, RequestError> {
        let response = self.ask(Method::HEAD, key, identity()).await?;
        match response::of_head(&response) {
            Ok(Some(meta)) => return Ok(meta),
            Ok(None) => {}
            // The signature in a URL can be for GET alone.
            Err(RequestError::Denied(_)) if self.address.has_query() => {}
            Err(error) => return Err(error),
        }
        let get = Get::new(key, ByteRange::Bounded(0..1));
        let response = self.ask(Method::GET, key, headers_of(&get)).await?;
        let is_document = self.classes.is_document;
        let got = of_get(&get, is_document, response, None).await?;
        Ok(got.meta)
    }
}

/// The error for a page that a server sends in place of a `what`.
fn in_place_of(what: &str) -> RequestError {
    RequestError::lasting(format!(
        "a page in HTML or XML is there in place of the {what}; the server may send it for every name (check the \
         URL in a browser)"
    ))
}

/// Follows each redirect: the argument of [`Web::send`] for requests that have no other rule.
pub(in crate::store::remote) fn always(_: &HeaderMap) -> Result<bool, RequestError> {
    Ok(true)
}

/// Returns the headers of a request for bytes: their range, and the versions that are expected and known.
fn headers_of(get: &Get) -> HeaderMap {
    let mut headers = identity();
    let mut set = |name: HeaderName, value: Option<&str>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    };
    let expected = get.expected.as_ref().and_then(Meta::strong_tag);
    set(IF_MATCH, expected.as_deref());
    let known = get.cached.as_ref().and_then(|meta| meta.etag.as_deref());
    set(IF_NONE_MATCH, known);
    if let Some(range) = range_header(&get.range) {
        headers.insert(RANGE, range);
    }
    headers
}

/// Returns the headers of a request for bytes without an encoding.
pub(in crate::store::remote) fn identity() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

/// Returns the header of a request for a range; `None` if the whole value is requested.
pub(in crate::store::remote) fn range_header(range: &ByteRange) -> Option<HeaderValue> {
    let text = match range {
        ByteRange::Whole(_) => return None,
        ByteRange::Bounded(range) if range.is_empty() => return None,
        ByteRange::Bounded(range) => format!("bytes={}-{}", range.start, range.end - 1),
        ByteRange::Suffix(bytes) => format!("bytes=-{bytes}"),
    };
    HeaderValue::from_str(&text).ok()
}

/// Appends to the query of a URL.
fn with_query(mut url: Url, more: Option<&str>) -> Url {
    if let Some(more) = more {
        let query = match url.query() {
            Some(own) => format!("{own}&{more}"),
            None => more.to_owned(),
        };
        url.set_query(Some(&query));
    }
    url
}

impl Remote for Web {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        async move {
            let response = self.ask(Method::GET, &get.key, headers_of(get)).await?;
            let is_sized = get.expected.is_some() || !response::is_unframed(&response);
            let size_bytes = match is_sized || response.status() != StatusCode::OK {
                true => None,
                false => Some(self.meta(&get.key).await?.size_bytes),
            };
            let is_page = response::is_page(&response);
            let got = of_get(get, self.classes.is_document, response, size_bytes).await?;
            if self.classes.is_document(&get.key) {
                self.check_document(is_page, &got)?;
            }
            Ok(got)
        }
        .boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.meta(key).boxed()
    }

    /// The page of a directory is never treated as complete, because servers omit names that begin
    /// with a dot.
    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.page(&list.prefix).boxed()
    }
}

impl Location for Address {
    fn label(&self) -> String {
        Address::label(self)
    }

    fn identity(&self, _: &RemoteOptions) -> String {
        Address::identity(self)
    }

    fn file_name(&self) -> String {
        Address::file_name(self)
    }

    fn open(
        &self,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Arc<dyn Remote>, String> {
        Ok(Arc::new(self.web(options, classes)?))
    }
}

impl Address {
    /// Creates the client of the address with the user's headers, or with the password of `.netrc`.
    fn web(&self, options: &RemoteOptions, classes: KeyClasses) -> Result<Web, String> {
        let mut headers: HeaderMap = options.headers()?.into_iter().collect();
        let is_known = self.authorization().is_some() || headers.contains_key(AUTHORIZATION);
        if !is_known
            && !options.anonymous
            && options.credential_command.is_none()
            && let Some(authorization) = netrc::authorization(self.host())
        {
            headers.insert(AUTHORIZATION, authorization);
        }
        open(self.clone(), headers, options, classes)
    }
}

/// Creates the client of a tree of keys on a web server.
pub(in crate::store::remote) fn open(
    address: Address,
    headers: HeaderMap,
    options: &RemoteOptions,
    classes: KeyClasses,
) -> Result<Web, String> {
    let reach = match options.is_public_only {
        true => Reach::Public,
        false => Reach::Any,
    };
    let own = client(options.timeout, reach, &options.tls)?;
    let redirects = Redirects::new(options)?;
    let credentials = options.credential_command.clone();
    let credentials = credentials.filter(|_| !options.anonymous);
    Ok(Web::new(
        own,
        address,
        headers,
        credentials,
        classes,
        redirects,
    ))
}

/// Creates the client of an object store, whose redirects are not followed.
pub(in crate::store::remote) fn object_client(
    timeout: Duration,
    tls: &TlsOptions,
) -> Result<Client, String> {
    client(timeout, Reach::Any, tls)
}
