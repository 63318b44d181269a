//! Object stores (S3, Google Cloud Storage, Azure Blob Storage) through `object_store`, which
//! signs requests, refreshes credentials and parses listings. The HTTP service of this crate
//! (`service`) records each response, so that failures are classified exactly.

mod aws;
mod build;
mod issued;
mod names;
mod service;

use std::borrow::Cow;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use http::StatusCode;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};

use aws::Chain;
pub(in crate::store::remote) use build::{AZURE, GOOGLE, S3};
use build::{Provider, S3Clients};
#[cfg(feature = "fuzzing")]
pub use names::fuzz_listing;
use service::{RequestKind, ResponseInfo, watched};

use crate::clock::Instant;
use crate::store::remote::protocol::credential_command::CredentialCommand;
use crate::store::remote::request::body::Body;
use crate::store::remote::request::{
    ByteRange, Depth, Failed, FailureKind, Get, Got, List, Meta, Page, Refusal, Remote,
    RequestError,
};
use crate::store::{Key, check_component};

/// Combines the two traits of a client.
pub(in crate::store::remote) trait Client:
    ObjectStore + PaginatedListStore
{
}
impl<T: ObjectStore + PaginatedListStore> Client for T {}

/// A client, and the region for which it signs, if the provider has regions.
#[derive(Debug)]
pub(in crate::store::remote) struct RegionalClient {
    client: Arc<dyn Client>,
    region: Option<String>,
    /// Whether the user or a response has named the region, so that it no longer changes.
    is_settled: bool,
}

/// The keys below a prefix of a bucket.
#[derive(Debug)]
pub(in crate::store::remote) struct Objects {
    first: RegionalClient,
    /// The client for the region that a response named; all further requests use it.
    other: OnceLock<RegionalClient>,
    /// Creates `other`; `None` if the provider has no regions.
    s3: Option<S3Clients>,
    /// The prefix of every key, without slashes at its ends.
    prefix: String,
    provider: Provider,
    /// The source of credentials, if they can be renewed.
    credentials: Option<Renewable>,
}

/// A source of credentials that can be asked for others.
#[derive(Debug)]
enum Renewable {
    Chain(Arc<Chain>),
    Command(Arc<CredentialCommand>),
}

/// Most bytes that are allocated for the body of a range before any of it has arrived.
const FIRST_RESERVED_BYTES: u64 = 32 << 20;

impl Objects {
    /// Returns the client for the region of the bucket, as far as the region is known.
    fn client(&self) -> &RegionalClient {
        self.other.get().unwrap_or(&self.first)
    }

    /// Returns the client for the region that a response has named; the first named region is kept.
    fn in_region(&self, region: String) -> Result<&RegionalClient, RequestError> {
        if let (None, Some(s3)) = (self.other.get(), &self.s3) {
            log::info!("the bucket is in the region {region}, which is used from now on");
            let client = s3.client(&region).map_err(RequestError::lasting)?;
            let other = RegionalClient {
                client,
                region: Some(region),
                is_settled: true,
            };
            // A concurrent request may have set it first.
            let _ = self.other.set(other);
        }
        Ok(self.client())
    }

    /// Sends a request, and repeats it once if the response names another region.
    async fn send_to_region<'a, T, F: Future<Output = Result<T, RequestError>>>(
        &'a self,
        request: impl Fn(&'a RegionalClient) -> F,
    ) -> Result<T, RequestError> {
        match request(self.client()).await {
            Err(RequestError::OtherRegion(region)) => request(self.in_region(region)?).await,
            response => response,
        }
    }

    /// As [`send_to_region`](Self::send_to_region), and repeats the request once with new credentials if those
    /// that were used have expired.
    async fn send<'a, T, F: Future<Output = Result<T, RequestError>>>(
        &'a self,
        request: impl Fn(&'a RegionalClient) -> F,
    ) -> Result<T, RequestError> {
        let sent_at = Instant::now();
        match (self.send_to_region(&request).await, &self.credentials) {
            (Err(RequestError::Expired(_)), Some(Renewable::Chain(chain))) => {
                chain.invalidate_older_than(sent_at).await;
                self.send_to_region(&request).await
            }
            (Err(error), Some(Renewable::Command(command))) => {
                let renews = match &error {
                    RequestError::Expired(_) => command.renews_refused(sent_at, true).await,
                    RequestError::Denied(Refusal {
                        status: Some(_), ..
                    }) => command.renews_refused(sent_at, false).await,
                    _ => false,
                };
                match renews {
                    true => self.send_to_region(&request).await,
                    false => Err(error),
                }
            }
            (response, _) => response,
        }
    }

    /// Returns the key in the bucket.
    fn full(&self, key: &Key) -> Result<String, RequestError> {
        let below = std::str::from_utf8(key.as_bytes())
            .map_err(|_| RequestError::lasting("object stores have keys in UTF-8 only"))?;
        Ok(match (self.prefix.is_empty(), below.is_empty()) {
            (_, true) => self.prefix.clone(),
            (true, _) => below.to_owned(),
            (false, _) => format!("{}/{below}", self.prefix),
        })
    }

    fn path(&self, key: &Key) -> Result<Path, RequestError> {
        let full = self.full(key)?;
        let path = Path::parse(&full).map_err(|error| RequestError::lasting(error.to_string()))?;
        match path.as_ref() == full {
            true => Ok(path),
            false => Err(RequestError::lasting("no object can have this key")),
        }
    }

    async fn get_once(&self, from: &RegionalClient, get: &Get) -> Result<Got, RequestError> {
        let path = self.path(&get.key)?;
        let range = match &get.range {
            ByteRange::Whole(_) => None,
            ByteRange::Bounded(range) if range.is_empty() => None,
            ByteRange::Bounded(range) => Some(GetRange::Bounded(range.clone())),
            ByteRange::Suffix(bytes) if self.provider.has_suffix_ranges() => {
                Some(GetRange::Suffix(*bytes))
            }
            ByteRange::Suffix(bytes) => {
                let meta = self.head_of(from, &get.key).await?;
                let start = meta.size_bytes.saturating_sub(*bytes);
                if meta.size_bytes == 0 {
                    let (start, bytes) = (0, Body::default());
                    return Ok(Got { meta, start, bytes });
                }
                Some(GetRange::Bounded(start..meta.size_bytes))
            }
        };
        let tag = |meta: &Option<Meta>| meta.as_ref().and_then(Meta::strong_tag);
        let options = GetOptions {
            range,
            if_match: tag(&get.expected),
            if_none_match: tag(&get.cached),
            ..GetOptions::default()
        };
        let (response, info) =
            watched(RequestKind::Object, from.client.get_opts(&path, options)).await;
        let response = match response {
            Ok(response) => response,
            Err(_) if info.status == Some(StatusCode::RANGE_NOT_SATISFIABLE) => {
                return self.nothing_there(from, get).await;
            }
            Err(error) => return Err(from.refusal(&error, &info)),
        };
        let meta = check_response(get, &response, &info)?;
        get.headers_received(&meta);
        receive(get, meta, response).await
    }

    /// Handles a range outside of the object, which may be empty or have another version by now.
    async fn nothing_there(&self, from: &RegionalClient, get: &Get) -> Result<Got, RequestError> {
        let meta = self.head_of(from, &get.key).await?;
        match (&get.expected, meta.size_bytes) {
            (Some(expected), _) if !expected.is_same(&meta) => {
                let what = format!("it has {} bytes by now", meta.size_bytes);
                Err(RequestError::Changed(what))
            }
            (_, 0) => {
                let (start, bytes) = (0, Body::default());
                Ok(Got { meta, start, bytes })
            }
            _ => Err(RequestError::NoSuchRange),
        }
    }

    async fn head_of(&self, from: &RegionalClient, key: &Key) -> Result<Meta, RequestError> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let path = self.path(key)?;
        match watched(RequestKind::Object, from.client.get_opts(&path, options)).await {
            (Ok(response), _) => Ok(of_object(&response.meta)),
            (Err(error), seen) => Err(from.refusal(&error, &seen)),
        }
    }

    async fn page(&self, from: &RegionalClient, list: &List) -> Result<Page, RequestError> {
        let full = self.full(&list.prefix)?;
        let prefix = match full.is_empty() {
            true => String::new(),
            false => format!("{full}/"),
        };
        let offset = list.after.as_ref().map(|after| {
            let after = String::from_utf8_lossy(after);
            format!("{prefix}{after}")
        });
        let options = PaginatedListOptions {
            offset,
            delimiter: (list.depth == Depth::One).then_some(Cow::Borrowed("/")),
            max_keys: list.most,
            page_token: list.page.clone(),
            ..PaginatedListOptions::default()
        };
        let in_prefix = (!prefix.is_empty()).then_some(prefix.as_str());
        let listed = from.client.list_paginated(in_prefix, options);
        let (response, seen) = watched(RequestKind::Listing, listed).await;
        let response = match response {
            Ok(response) if seen.is_listing => response,
            Ok(_) => {
                let code = seen.code.unwrap_or_else(|| "no whole listing".into());
                return Err(RequestError::transient(format!("200 with {code}")));
            }
            Err(error) => {
                return Err(match from.refusal(&error, &seen) {
                    // Without this error, a prefix without keys would be an empty listing.
                    RequestError::NotFound => RequestError::lasting(format!(
                        "the {} does not exist",
                        self.provider.unit()
                    )),
                    error => error,
                });
            }
        };
        let below = |path: &str| {
            let name = path.as_bytes().strip_prefix(prefix.as_bytes())?;
            let is_key = name
                .split(|byte| *byte == b'/')
                .all(|part| check_component(part).is_ok());
            (is_key && !name.is_empty()).then(|| name.to_vec())
        };
        let objects = response.result.objects.iter();
        let prefixes = response.result.common_prefixes.iter();
        let prefixes = prefixes.filter_map(|path| below(path.as_ref()));
        let directories = seen.directories.iter().filter_map(|path| below(path));
        let is_wanted = |path: &Vec<u8>| list.depth == Depth::All || !path.contains(&b'/');
        Ok(Page {
            objects: objects
                .filter_map(|object| {
                    let key = below(object.location.as_ref())?;
                    Some((key, Some(of_object(object))))
                })
                .collect(),
            prefixes: prefixes.chain(directories.filter(is_wanted)).collect(),
            is_marked: !full.is_empty() && seen.directories.contains(&full),
            next: response.page_token,
            is_complete: true,
            since: None,
        })
    }
}

/// Returns the attributes of the object, after checking that the response is what was requested.
fn check_response(
    get: &Get,
    response: &GetResult,
    info: &ResponseInfo,
) -> Result<Meta, RequestError> {
    if let Some(encoding) = &info.encoding {
        return Err(RequestError::lasting(format!(
            "it is stored with Content-Encoding {encoding}"
        )));
    }
    if let Some(code) = &info.code {
        return Err(RequestError::transient(format!(
            "200 with the error {code}"
        )));
    }
    let meta = of_object(&response.meta);
    if let Some(expected) = &get.expected
        && !expected.is_same(&meta)
    {
        return Err(RequestError::Changed("it is another one by now".into()));
    }
    match get.range {
        ByteRange::Whole(most) if length_of(&response.range) > most => {
            Err(RequestError::TooLong(meta))
        }
        _ => Ok(meta),
    }
}

fn length_of(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Receives the body of a response. If the connection breaks, the error has the bytes that came.
async fn receive(get: &Get, meta: Meta, response: GetResult) -> Result<Got, RequestError> {
    let start = response.range.start;
    let length = length_of(&response.range);
    let arrival = get.begin_arrival(Some(&meta));
    let first_bytes = usize::try_from(length.min(FIRST_RESERVED_BYTES)).unwrap_or(0);
    if arrival.reserve(first_bytes).is_err() {
        return Err(RequestError::no_memory());
    }
    let mut stream = response.into_stream();
    let mut failure = None;
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) if (arrival.len() + chunk.len()) as u64 <= length => {
                if arrival.extend(&chunk).is_err() {
                    return Err(RequestError::no_memory());
                }
            }
            Ok(_) => {
                let what = format!("the server sends more than {length} bytes");
                return Err(RequestError::lasting(what));
            }
            Err(error) => {
                failure = Some(format!("{error} behind {} bytes", arrival.len()));
                break;
            }
        }
    }
    let bytes = arrival.take();
    if failure.is_none() && bytes.len() as u64 == length {
        return Ok(Got { meta, start, bytes });
    }
    let short = || format!("{} of {length} bytes came", bytes.len());
    Err(RequestError::Failed(Failed {
        what: failure.unwrap_or_else(short),
        kind: FailureKind::Other,
        is_transient: true,
        retry_after: None,
        partial: (!bytes.is_empty()).then(|| Box::new(Got { meta, start, bytes })),
    }))
}

/// Converts the attributes in a listing or a response.
fn of_object(object: &ObjectMeta) -> Meta {
    Meta {
        size_bytes: object.size,
        etag: object.e_tag.clone(),
        modified: Some(SystemTime::from(object.last_modified)),
    }
}

impl RegionalClient {
    /// Converts a failure. `seen` is the last response.
    fn refusal(&self, error: &object_store::Error, seen: &ResponseInfo) -> RequestError {
        let refused = refusal(error, seen);
        let (Some(own), Some(region)) = (&self.region, &seen.region) else {
            return refused;
        };
        if own == region {
            return refused;
        }
        if !self.is_settled {
            return RequestError::OtherRegion(region.clone());
        }
        let hint = format!("; the bucket is in the region {region}, not in {own} (see --region)");
        let with_hint = |refusal: Refusal| Refusal {
            what: refusal.what + &hint,
            ..refusal
        };
        match refused {
            RequestError::Denied(refusal) => RequestError::Denied(with_hint(refusal)),
            RequestError::Expired(refusal) => RequestError::Expired(with_hint(refusal)),
            RequestError::Failed(failed) => RequestError::Failed(Failed {
                what: failed.what + &hint,
                ..failed
            }),
            refused => refused,
        }
    }
}

/// Converts a failure. `seen` is the last response.
fn refusal(error: &object_store::Error, seen: &ResponseInfo) -> RequestError {
    use object_store::Error;
    if let Some(why) = &seen.no_credentials {
        return RequestError::Denied(Refusal {
            what: why.clone(),
            status: None,
        });
    }
    let what = seen.message(error);
    let refused = |what: String| Refusal {
        what,
        status: seen.status.map(|status| status.as_u16()),
    };
    if seen.is_cut_off {
        return RequestError::Failed(Failed {
            what,
            is_transient: true,
            ..Failed::default()
        });
    }
    match (error, seen.status.map(|status| status.as_u16())) {
        // The library could not send a request.
        (_, None) => match seen.is_lasting {
            true => RequestError::lasting(what),
            false => RequestError::Failed(Failed {
                what,
                kind: seen.kind,
                is_transient: true,
                ..Failed::default()
            }),
        },
        (Error::NotModified { .. }, _) | (_, Some(304)) => RequestError::NotModified,
        (Error::Precondition { .. }, _) | (_, Some(412)) => RequestError::Changed(what),
        (_, Some(401)) => RequestError::Expired(refused(what)),
        (_, Some(407)) => RequestError::Denied(refused(what)),
        (_, Some(400 | 403)) if seen.has_expired() => RequestError::Expired(refused(format!(
            "{what}: the credentials have expired, renew them"
        ))),
        (_, Some(403)) if !matches!(seen.code.as_deref(), None | Some("AccessDenied")) => {
            RequestError::Denied(refused(what))
        }
        (_, Some(403)) => RequestError::Denied(refused(format!(
            "{what}: the key may be absent, or not be allowed; servers answer so for both unless \
             listing is allowed (s3:ListBucket, storage.objects.list); --missing-status 403 takes \
             it for absent"
        ))),
        // A 404 that is not about the object, such as that of a credential service, proves nothing about
        // the object.
        (Error::NotFound { .. }, Some(404)) if !seen.lacks_bucket() => RequestError::NotFound,
        (_, Some(404)) if seen.lacks_bucket() => RequestError::lasting(format!(
            "{what}: there is no such bucket; check its name, and --endpoint-url"
        )),
        (_, Some(408 | 429 | 500 | 502..=504 | 506..=599)) => RequestError::Failed(Failed {
            what,
            kind: seen.kind,
            is_transient: true,
            retry_after: seen.retry_after,
            partial: None,
        }),
        // Status 200 with a body that is an error, or is no listing.
        (_, Some(200..=299)) if seen.code.is_some() => RequestError::transient(what),
        _ => RequestError::lasting(what),
    }
}

impl Remote for Objects {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        self.send(|from| self.get_once(from, get)).boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.send(|from| self.head_of(from, key)).boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.send(|from| self.page(from, list)).boxed()
    }
}
