//! Repositories and buckets of Hugging Face, through the HTTP API of the Hub ("Hub API Endpoints"; the client
//! `huggingface_hub` sends the same requests).
//!
//! - `ENDPOINT/datasets/OWNER/NAME/resolve/REVISION/PATH` is a file. The Hub sends small files itself. For others
//!   it redirects to a content delivery network, and the redirect has the version and size of the file:
//!   `X-Linked-ETag` and `X-Linked-Size`, in buckets `X-Xet-Hash`. The URL that it leads to names this content, so
//!   that bytes and version belong together.
//! - `ENDPOINT/api/datasets/OWNER/NAME/tree/REVISION/PATH` lists a directory in pages. Each file has the hash that
//!   is its ETag.
//!
//! Both hashes are those of the content: a file that a branch has again after it moved is not fetched again. A
//! revision that is the hash of a commit never changes.
//!
//! The token is a header for the endpoint. `web` sends it to no other host, and no message contains it.

mod reply;
mod token;
mod url;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, IF_NONE_MATCH, RANGE};
use http::{Method, StatusCode};
use reqwest::{Response, Url};

use super::web::{
    self, ALL_BYTES, Address, Web, always, body, identity, is_same_host, of_get, range_header,
};
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::protocol::{Location, NameListing, Protocol, Syntax, Traits};
use crate::store::remote::request::arrival::Arrival;
use crate::store::remote::request::{
    ByteRange, Get, Got, List, Meta, Page, Refusal, Remote, RequestError,
};
use crate::store::{Key, KeyClasses};
use reply::Described;
#[cfg(feature = "fuzzing")]
pub use reply::fuzz_hub_page;
use url::HfUrl;

/// The protocol of the Hub.
pub(in crate::store::remote) const PROTOCOL: Protocol = Protocol {
    schemes: &["hf"],
    example: "hf://datasets/OWNER/NAME/PATH",
    traits: Traits {
        syntax: Syntax::Name {
            components: url::components,
        },
        has_aliases: false,
        listing: NameListing::Directories,
        has_credentials: true,
        reads_ranges: true,
    },
    parse: |url, variable| HfUrl::parse(url, variable).map(|url| Box::new(url) as _),
    denied: |_| {
        " (a token comes from HF_TOKEN in the environment or in --env-file, or from `hf auth login`; it must be \
         allowed to read the repository, whose conditions must be accepted on its page if it is gated)"
    },
};

/// Size limit of a page of a listing in bytes.
const MAX_PAGE_BYTES: u64 = 4 << 20;

/// A directory of a repository or of a bucket.
#[derive(Debug)]
struct Hf {
    web: Web,
    url: HfUrl,
    classes: KeyClasses,
}

impl Hf {
    /// Requests a file. Returns the response that ends the redirects, and what the Hub says of the file.
    /// `follows` judges the attributes in a redirect; if it returns `false`, the redirect is the response.
    ///
    /// # Errors
    /// [`RequestError::NotFound`] only if the Hub itself says that the file does not exist.
    async fn resolve(
        &self,
        method: Method,
        key: &Key,
        headers: HeaderMap,
        mut follows: impl FnMut(&Meta) -> Result<bool, RequestError> + Send,
    ) -> Result<(Response, Described), RequestError> {
        let url = self.web.address().of(key)?;
        let mut described = Described::default();
        let mut watch = |headers: &HeaderMap| {
            described.add(headers, self.url.commit())?;
            described.linked.as_ref().map_or(Ok(true), &mut follows)
        };
        let response = self.web.send(method, url.clone(), headers, &mut watch);
        let response = response.await?;
        let status = response.status();
        if status.is_success() || status.is_redirection() && described.linked.is_some() {
            return Ok((response, described));
        }
        Err(match is_same_host(&url, response.url()) {
            true => reply::refusal(response.status(), response.headers()),
            // A network that delivers contents proves nothing about the repository.
            false => match web::refusal(status, response.headers()) {
                error @ (RequestError::Failed(_) | RequestError::NoSuchRange) => error,
                _ => {
                    let host = response.url().host_str().unwrap_or_default();
                    RequestError::transient(format!(
                        "{status} from {host}, where the Hub redirects to"
                    ))
                }
            },
        })
    }

    async fn meta(&self, key: &Key) -> Result<Meta, RequestError> {
        let found = self
            .resolve(Method::HEAD, key, identity(), |_| Ok(false))
            .await;
        match found {
            Ok((response, described)) => match described.linked {
                Some(meta) => Ok(meta),
                None => reply::of_head(&response),
            },
            Err(error) => Err(self.prefix_or(key, error).await),
        }
    }

    /// Returns the error for a key that has no file: whether it is a directory.
    async fn prefix_or(&self, key: &Key, error: RequestError) -> RequestError {
        let is_absent = matches!(error, RequestError::NotFound);
        if !is_absent || key.is_root() || self.classes.is_document(key) {
            return error;
        }
        match self.page(key, Some(1), None).await {
            // A bucket has an empty listing for a prefix that does not exist.
            Ok(page) if page.is_complete && page.objects.is_empty() && page.prefixes.is_empty() => {
                error
            }
            Ok(_) => RequestError::IsPrefix,
            Err(error) => error,
        }
    }

    async fn read(&self, get: &Get) -> Result<Got, RequestError> {
        let mut headers = identity();
        if let Some(range) = range_header(&get.range) {
            headers.insert(RANGE, range);
        }
        let known = get.cached.as_ref().and_then(|meta| meta.etag.as_deref());
        if let Some(Ok(tag)) = known.map(HeaderValue::from_str) {
            headers.insert(IF_NONE_MATCH, tag);
        }
        let found = self.resolve(Method::GET, &get.key, headers, |meta| {
            check(get, meta)?;
            Ok(true)
        });
        let (response, described) = match found.await {
            Ok(found) => found,
            Err(error) => return Err(self.prefix_or(&get.key, error).await),
        };
        let Some(meta) = described.linked else {
            reply::check_version(&response)?;
            return of_get(get, self.classes.is_document, response, None).await;
        };
        if let ByteRange::Whole(most) = get.range
            && meta.size_bytes > most
        {
            return Err(RequestError::TooLong(meta));
        }
        get.headers_received(&meta);
        // The network that delivers the content has other ETags than the Hub.
        let linked = Get {
            expected: None,
            cached: None,
            early: None,
            arrival: None,
            ..get.clone()
        };
        let got = of_get(&linked, self.classes.is_document, response, None).await;
        let got = got.map_err(|error| with_meta(error, &meta))?;
        match got.meta.size_bytes == meta.size_bytes {
            true => Ok(Got { meta, ..got }),
            false => Err(RequestError::transient(format!(
                "{} bytes, where the Hub names {}",
                got.meta.size_bytes, meta.size_bytes
            ))),
        }
    }

    /// Requests one page of a directory; `page` is the query of a page that another one has named.
    async fn page(
        &self,
        prefix: &Key,
        most: Option<usize>,
        page: Option<&str>,
    ) -> Result<Page, RequestError> {
        let mut url: Url = self.url.tree(prefix)?;
        match (page, most) {
            (Some(query), _) => url.set_query(Some(query)),
            (None, Some(most)) => url.set_query(Some(&format!("recursive=false&limit={most}"))),
            (None, None) => url.set_query(Some("recursive=false")),
        }
        let response = self
            .web
            .send(Method::GET, url, identity(), &mut always)
            .await?;
        if response.status() != StatusCode::OK {
            return Err(reply::refusal(response.status(), response.headers()));
        }
        let next = reply::next_page(response.headers())?;
        let received = body(
            response,
            None,
            MAX_PAGE_BYTES,
            ALL_BYTES,
            &Arrival::default(),
        )
        .await;
        let bytes = received.map_err(|(error, _)| error)?.bytes.into_bytes();
        let mut page = reply::page(&bytes, &self.url.path_of(prefix), self.url.lists_by_text())?;
        page.next = next;
        Ok(page)
    }
}

/// Gives the part of a body that broke off the version that the Hub names, with which the rest is requested.
fn with_meta(error: RequestError, meta: &Meta) -> RequestError {
    let RequestError::Failed(mut failed) = error else {
        return error;
    };
    failed.partial = failed
        .partial
        .filter(|part| part.meta.size_bytes == meta.size_bytes);
    if let Some(part) = &mut failed.partial {
        part.meta = meta.clone();
    }
    RequestError::Failed(failed)
}

/// Judges the attributes of the file that a redirect leads to.
fn check(get: &Get, meta: &Meta) -> Result<(), RequestError> {
    if get.cached.as_ref().is_some_and(|known| known.is_same(meta)) {
        return Err(RequestError::NotModified);
    }
    match &get.expected {
        Some(expected) if !expected.is_same(meta) => Err(RequestError::Changed(format!(
            "the revision has another file by now, of {} bytes",
            meta.size_bytes
        ))),
        _ => Ok(()),
    }
}

impl Remote for Hf {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        self.read(get).boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.meta(key).boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.page(&list.prefix, list.most, list.page.as_deref())
            .boxed()
    }
}

impl Location for HfUrl {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn identity(&self, options: &RemoteOptions) -> String {
        let endpoint = options.endpoint_url.as_deref().unwrap_or(&self.endpoint);
        format!("{} {endpoint}", self.label)
    }

    fn is_immutable(&self) -> bool {
        self.commit().is_some()
    }

    fn open(
        &self,
        options: &RemoteOptions,
        classes: KeyClasses,
    ) -> Result<Arc<dyn Remote>, String> {
        let url = match &options.endpoint_url {
            Some(endpoint) => self.clone().at(endpoint)?,
            None => self.clone(),
        };
        let mut headers: HeaderMap = options.headers()?.into_iter().collect();
        let token = match options.anonymous || headers.contains_key(AUTHORIZATION) {
            true => None,
            false => url.token.read()?,
        };
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token);
        }
        // The Hub redirects reads to networks that deliver contents.
        let options = RemoteOptions {
            redirects: None,
            ..options.clone()
        };
        let web = web::open(Address::new(&url.files()?), headers, &options, classes)?;
        Ok(Arc::new(Hf { web, url, classes }))
    }
}

/// Returns the error of a request that the Hub refuses.
fn denied(what: String, status: StatusCode) -> RequestError {
    RequestError::Denied(Refusal {
        what,
        status: Some(status.as_u16()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_to_another_version_is_not_followed() {
        let meta = |tag: &str| Meta {
            size_bytes: 3,
            etag: Some(format!("\"{tag}\"")),
            modified: None,
        };
        let mut get = Get::new(&Key::root(), ByteRange::Bounded(0..3));
        assert!(check(&get, &meta("a")).is_ok());
        get.expected = Some(meta("a"));
        assert!(check(&get, &meta("a")).is_ok());
        let changed = check(&get, &meta("b"));
        assert!(matches!(changed, Err(RequestError::Changed(_))));
        get.cached = Some(meta("b"));
        let same = check(&get, &meta("b"));
        assert!(matches!(same, Err(RequestError::NotModified)));
    }
}
