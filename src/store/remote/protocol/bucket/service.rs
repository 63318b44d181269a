//! Sends the requests of `object_store`, and records the responses: the status, the delay that the
//! server asks for, and the code in the body of an error.

use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, RANGE,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use super::names::without_odd_keys;
use crate::store::remote::protocol::web;
use crate::store::remote::request::FailureKind;
use crate::store::remote::request::transfer_stats::{headers_received, request_sent};

/// Size limit of errors and listings in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// The last response to a request.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseInfo {
    pub(super) status: Option<StatusCode>,
    pub(super) retry_after: Option<Duration>,
    /// The `Content-Encoding` of a successful response, if it is not the identity.
    pub(super) encoding: Option<String>,
    /// The error code in the body.
    pub(super) code: Option<String>,
    /// The region of the bucket, if an error response names it.
    pub(super) region: Option<String>,
    /// Why no request could be sent.
    failure: Option<String>,
    pub(super) kind: FailureKind,
    /// Why credentials are missing.
    pub(super) no_credentials: Option<String>,
    /// Whether a retry cannot help.
    pub(super) is_lasting: bool,
    /// Whether the body of a successful response is a complete listing.
    pub(super) is_listing: bool,
    /// Objects of a listing that stand for directories, without the slash at the end of their keys.
    pub(super) directories: Vec<String>,
    /// Whether the connection broke before the end of the body.
    pub(super) is_cut_off: bool,
}

impl ResponseInfo {
    fn of_headers(status: StatusCode, headers: &HeaderMap) -> Self {
        Self {
            status: Some(status),
            kind: FailureKind::of_status(status),
            retry_after: web::retry_after(headers),
            encoding: header(headers, CONTENT_ENCODING)
                .filter(|encoding| !matches!(*encoding, "" | "identity" | "aws-chunked"))
                .map(str::to_owned),
            ..Self::default()
        }
    }

    /// Whether the bucket does not exist, which proves nothing about a key.
    pub(super) fn lacks_bucket(&self) -> bool {
        matches!(
            self.code.as_deref(),
            Some("NoSuchBucket" | "ContainerNotFound" | "AccountNotFound" | "ResourceNotFound")
        )
    }

    /// Whether the credentials have expired.
    pub(super) fn has_expired(&self) -> bool {
        matches!(
            self.code.as_deref(),
            Some("ExpiredToken" | "TokenRefreshRequired" | "InvalidToken" | "RequestExpired")
        )
    }

    /// The message for users. It omits the URL, which may contain a signature.
    pub(super) fn message(&self, error: &object_store::Error) -> String {
        match (&self.status, &self.code, &self.failure) {
            (Some(status), Some(code), _) => format!("{status} ({code})"),
            (Some(status), None, _) if !status.is_success() => status.to_string(),
            (None, _, Some(failure)) => failure.clone(),
            // Credentials that cannot be obtained, or a listing that is not XML.
            _ => error.to_string(),
        }
    }
}

/// The kind of a request to the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A value, or its attributes.
    Object,
    /// A listing.
    Listing,
}

tokio::task_local! {
    static RESPONSE: (RequestKind, RefCell<ResponseInfo>);
}

/// Runs one request of the library; also returns the last response to it.
pub(super) async fn watched<T>(
    kind: RequestKind,
    request: impl Future<Output = T>,
) -> (T, ResponseInfo) {
    RESPONSE
        .scope((kind, RefCell::default()), async {
            let response = request.await;
            (response, RESPONSE.with(|(_, seen)| seen.borrow().clone()))
        })
        .await
}

fn record(response: ResponseInfo) {
    // Outside of `watched` the response is not needed.
    let _ = RESPONSE.try_with(|(_, last)| *last.borrow_mut() = response);
}

/// Records that no credentials are available.
pub(super) fn record_no_credentials(reason: &str) {
    record(ResponseInfo {
        no_credentials: Some(reason.to_owned()),
        ..ResponseInfo::default()
    });
}

fn is_listing_requested() -> bool {
    RESPONSE.try_with(|(kind, _)| *kind) == Ok(RequestKind::Listing)
}

/// Makes the library use the HTTP client of this crate.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    pub(super) client: reqwest::Client,
    /// Headers that the user wants to be sent with every request.
    pub(super) headers: HeaderMap,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.clone())))
    }
}

#[derive(Debug)]
struct Service(Connector);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let requests_range = request.headers().contains_key(RANGE);
        let response: http::Response<reqwest::Body> = self.send(request).await?.into();
        let (mut parts, body) = response.into_parts();
        headers_received(&parts.headers);
        // `rclone serve s3` sends a range with status 200. The library still compares the returned range with
        // the requested one.
        if requests_range
            && parts.status == StatusCode::OK
            && parts.headers.contains_key(CONTENT_RANGE)
        {
            parts.status = StatusCode::PARTIAL_CONTENT;
        }
        let mut info = ResponseInfo::of_headers(parts.status, &parts.headers);
        if parts.status.is_success() && !is_text(&parts.headers) {
            record(info);
            let body = body
                .map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error.without_url()));
            return Ok(http::Response::from_parts(
                parts,
                HttpResponseBody::new(body),
            ));
        }
        let bytes = match Limited::new(body, MAX_TEXT_BYTES).collect().await {
            Ok(bytes) => bytes.to_bytes(),
            Err(error) => {
                // Transient: without a retry, one broken connection of a listing made a mount fail.
                info.is_cut_off = !error.is::<LengthLimitError>();
                record(info);
                return Err(HttpError::new_boxed(HttpErrorKind::Decode, error));
            }
        };
        info.code = code_of(&bytes);
        info.region = region_of(parts.status, &parts.headers, &bytes);
        info.is_listing = is_listing(&bytes);
        let cleaned = info.is_listing.then(|| without_odd_keys(&bytes)).flatten();
        let bytes = match cleaned {
            Some(cleaned) if cleaned.odd > 0 || !cleaned.directories.is_empty() => {
                if cleaned.odd > 0 {
                    log::debug!("{} keys of a listing cannot be shown as files", cleaned.odd);
                }
                info.directories = cleaned.directories;
                Bytes::from(cleaned.listing)
            }
            _ => bytes,
        };
        record(info);
        let body = Full::new(bytes).map_err(|never| match never {});
        Ok(http::Response::from_parts(
            parts,
            HttpResponseBody::new(body),
        ))
    }
}

impl Service {
    /// Sends a request; records why it failed.
    async fn send(&self, request: HttpRequest) -> Result<reqwest::Response, HttpError> {
        let (parts, body) = request.into_parts();
        let Connector { client, headers } = &self.0;
        let mut send = client
            .request(parts.method, parts.uri.to_string())
            .headers(headers.clone())
            .headers(parts.headers);
        if let Some(bytes) = body.as_bytes() {
            send = send.body(bytes.clone());
        }
        request_sent();
        send.send().await.map_err(|error| {
            let (failure, failure_kind) = web::failure(&error);
            record(ResponseInfo {
                failure: Some(failure),
                kind: failure_kind,
                is_lasting: web::is_lasting(&error),
                ..ResponseInfo::default()
            });
            let kind = match error.is_connect() {
                true => HttpErrorKind::Connect,
                false => HttpErrorKind::Request,
            };
            HttpError::new(kind, error.without_url())
        })
    }
}

/// Returns whether the body is a listing, or an error that is sent with a success status.
fn is_text(headers: &HeaderMap) -> bool {
    let length = header(headers, CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    let is_short = length.is_none_or(|length| length <= MAX_TEXT_BYTES);
    let is_xml = header(headers, CONTENT_TYPE).is_some_and(|kind| kind.contains("xml"));
    is_listing_requested() || is_xml && is_short
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether this is a complete listing of S3 and Google, or of Azure: a truncated one can be XML too.
fn is_listing(body: &[u8]) -> bool {
    ["ListBucketResult", "EnumerationResults"]
        .iter()
        .any(|name| {
            let (begin, end) = (format!("<{name}"), format!("</{name}>"));
            let head = body.get(..body.len().min(1024)).unwrap_or_default();
            let has_begin = head
                .windows(begin.len())
                .any(|bytes| bytes == begin.as_bytes());
            has_begin && body.trim_ascii_end().ends_with(end.as_bytes())
        })
}

/// Returns the content of `<Code>` in the body of an error.
fn code_of(body: &[u8]) -> Option<String> {
    let code = element(body, "<Code>", "</Code>")?;
    let is_code = code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric());
    is_code.then(|| code.to_owned())
}

/// Returns the region of the bucket, which S3 names in a header or in the body when it refuses a request
/// to another region. The name is checked, because it becomes part of a host name.
fn region_of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    if !matches!(status.as_u16(), 301 | 307 | 400 | 403) {
        return None;
    }
    let header = headers.get("x-amz-bucket-region");
    let header = header.and_then(|value| value.to_str().ok());
    let region = header.or_else(|| element(body, "<Region>", "</Region>"))?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_region = matches!(region.len(), 1..=64) && region.chars().all(is_name);
    is_region.then(|| region.to_owned())
}

/// Returns the content of an element in the body of an error.
fn element<'a>(body: &'a [u8], start: &str, end: &str) -> Option<&'a str> {
    let head = body.get(..body.len().min(64 << 10)).unwrap_or_default();
    let text = std::str::from_utf8(head).ok()?;
    if !text.contains("<Error") {
        return None;
    }
    let (_, rest) = text.split_once(start)?;
    let (content, _) = rest.split_once(end)?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_region_of_a_bucket_is_in_the_header_or_in_the_body_of_a_refusal() {
        let found = |status: u16, header: Option<&'static str>, body: &str| {
            let named = header.map(|region| ("x-amz-bucket-region", region));
            let headers = named.map(|(name, region)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(region),
                )
            });
            let status = StatusCode::from_u16(status).unwrap();
            region_of(status, &headers.into_iter().collect(), body.as_bytes())
        };
        let body =
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>";
        for status in [301, 307, 400, 403] {
            assert_eq!(found(status, None, body).as_deref(), Some("eu-west-3"));
            let both = found(status, Some("us-west-2"), body);
            assert_eq!(both.as_deref(), Some("us-west-2"));
        }
        assert_eq!(found(404, Some("us-west-2"), body), None);
        assert_eq!(found(400, None, "<Region>eu-west-3</Region>"), None);
        for region in ["", "x.evil.example/", "a b", "eu-west-3@host"] {
            assert_eq!(found(400, Some(region), ""), None, "{region}");
        }
    }
}
