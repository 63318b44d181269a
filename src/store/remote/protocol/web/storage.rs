//! Redirects from a web server to the storage of an Icechunk repository, as `redirect_storage` of Icechunk 2 has them: the
//! URL of the repository answers with the URL of its storage, which may move.
//!
//! The rules for redirects hold: never from https to http, or from a public address to a private one, and no secrets are
//! sent to the storage. As in Icechunk, buckets are read without credentials.

use http::header::LOCATION;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::address::is_allowed;
use super::redirects::is_redirect;
use super::{Address, Web, identity, is_same_host};
use crate::runtime;
use crate::store::remote::protocol::error::RemoteError;
use crate::store::remote::protocol::label;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::request::{Failed, FailureKind, Refusal, RequestError};
use crate::store::{Key, KeyClasses, StoreError};

/// Schemes of buckets.
const BUCKETS: [&str; 3] = ["s3", "gs", "gcs"];
/// Schemes of web servers, each with that of the storage.
const SERVERS: [(&str, &str); 4] = [
    ("http+icechunk", "http"),
    ("http+ic", "http"),
    ("https+icechunk", "https"),
    ("https+ic", "https"),
];
/// Schemes of Icechunk that need an endpoint.
const WITH_ENDPOINT: [&str; 2] = ["r2", "tigris"];

/// The storage of a repository.
#[derive(Debug)]
pub(in crate::store) struct RedirectedStorage {
    pub(in crate::store) url: String,
    /// The options with which it is read.
    pub(in crate::store) options: RemoteOptions,
}

/// Returns the storage to which a URL redirects; `None` if it does not redirect to one.
///
/// # Errors
/// The storage may not or cannot be read.
pub(in crate::store) async fn redirected_storage(
    url: &str,
    options: &RemoteOptions,
    classes: KeyClasses,
) -> Result<Option<RedirectedStorage>, RemoteError> {
    let Some(first) = Url::parse(url).ok().filter(Url::has_host) else {
        return Ok(None);
    };
    if !matches!(first.scheme(), "http" | "https") {
        return Ok(None);
    }
    let address = Address::new(&first);
    let label = address.label();
    let web = address.web(options, classes);
    let web = web.map_err(|what| RemoteError::Invalid {
        label: label.clone(),
        what,
    })?;
    let request = runtime::on_network(async move { storage_of(&web).await });
    let found = runtime::timeout(options.timeout, request).await;
    // Any other failure is that of the requests before.
    let Some(Ok(Ok(Some((from, to))))) = found else {
        return Ok(None);
    };
    let storage = storage(&first, &from, &to, options);
    storage.map(Some).map_err(|error| RemoteError::Failed {
        label,
        error: error.of(&Key::root()),
    })
}

/// Returns the URL that redirects to a storage, and that of the storage.
async fn storage_of(web: &Web) -> Result<Option<(Url, String)>, RequestError> {
    let url = web.address.of(&Key::root())?;
    let mut follows = |headers: &HeaderMap| Ok(location(headers).is_none());
    let response = web.send(Method::GET, url, identity(), &mut follows).await?;
    let storage = location(response.headers()).filter(|_| is_redirect(response.status()));
    Ok(storage.map(|storage| (response.url().clone(), storage.to_owned())))
}

/// Returns the location of a redirect, if it is that of a storage.
pub(super) fn location(headers: &HeaderMap) -> Option<&str> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    let (scheme, _) = location.split_once("://")?;
    let mut known = BUCKETS.iter().chain(&WITH_ENDPOINT);
    let is_known = known.any(|known| *known == scheme);
    (is_known || SERVERS.iter().any(|(known, _)| *known == scheme)).then_some(location)
}

/// Judges a storage, and returns how it is read. `first` is the URL of the repository, and `from` the one that
/// redirects to the storage.
fn storage(
    first: &Url,
    from: &Url,
    to: &str,
    options: &RemoteOptions,
) -> Result<RedirectedStorage, RequestError> {
    let denied = |what: String| {
        RequestError::Denied(Refusal {
            what: format!("it is redirected to {}: {what}", label(to)),
            status: None,
        })
    };
    let parsed = Url::parse(to).map_err(|error| denied(error.to_string()))?;
    let (scheme, rest) = to.split_once("://").unwrap_or_default();
    if WITH_ENDPOINT.contains(&scheme) {
        return Err(RequestError::Failed(Failed {
            what: format!(
                "it is redirected to a repository of {scheme}, whose endpoint is not known: mount its bucket as \
                 s3://BUCKET/PREFIX with --endpoint-url"
            ),
            kind: FailureKind::Other,
            ..Failed::default()
        }));
    }
    let server = SERVERS.iter().find(|(known, _)| *known == scheme);
    let url = match server {
        Some((_, scheme)) => format!("{scheme}://{rest}"),
        None => {
            let path = percent_decode_str(parsed.path()).decode_utf8_lossy();
            format!("{scheme}://{}{path}", parsed.host_str().unwrap_or_default())
        }
    };
    let mut options = options.clone();
    let is_any = match &options.redirects {
        Some(policy) => Some(policy.judge(&url).map_err(denied)?),
        None => None,
    };
    options.is_public_only |= is_any == Some(true);
    let next = server.and_then(|_| Url::parse(&url).ok());
    if let Some(next) = &next {
        let is_named = is_any == Some(false);
        is_allowed(first, from, next, is_named).map_err(denied)?;
        // Stricter than a redirect of a private server, whose names may lead to private addresses.
        options.is_public_only |= !is_named && first.host() != next.host();
    }
    if !next.is_some_and(|next| is_same_host(first, &next)) {
        options.headers.clear();
        options.credential_command = None;
        options.anonymous = true;
    }
    if options.region.is_none() && scheme == "s3" {
        let mut query = parsed.query_pairs();
        let region = query.find(|(name, _)| name == "region");
        options.region = region.map(|(_, region)| region.into_owned());
    }
    Ok(RedirectedStorage { url, options })
}

/// Whether the failure to open a URL can be a redirect to a storage, which no request follows.
pub(in crate::store) fn may_be_redirected(error: &RemoteError) -> bool {
    matches!(
        error,
        RemoteError::Failed {
            error: StoreError::Unsupported { .. },
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(first: &str, to: &str) -> Result<RedirectedStorage, String> {
        let first = Url::parse(first).unwrap();
        let options = RemoteOptions {
            headers: vec!["X-Key: secret".into()],
            ..RemoteOptions::default()
        };
        storage(&first, &first, to, &options).map_err(|error| error.of(&Key::root()).to_string())
    }

    #[test]
    fn buckets_are_read_without_credentials_in_the_region_of_the_redirect() {
        let found = judged("https://h/repo", "s3://b/a%20b/c?region=eu-west-1").unwrap();
        assert_eq!(found.url, "s3://b/a b/c");
        assert_eq!(found.options.region.as_deref(), Some("eu-west-1"));
        assert!(found.options.anonymous && found.options.headers.is_empty());
        assert_eq!(judged("https://h/r", "gs://b/c").unwrap().url, "gs://b/c");
        let refused = judged("https://h/r", "r2://b/c?account_id=x").unwrap_err();
        assert!(refused.contains("--endpoint-url"), "{refused}");
    }

    #[test]
    fn storage_at_a_web_server_is_where_a_redirect_may_lead() {
        let url = |first: &str, to: &str| judged(first, to).map(|found| found.url);
        for scheme in ["https+icechunk", "https+ic"] {
            let to = format!("{scheme}://other/r?x=1");
            assert_eq!(url("https://h/r", &to).unwrap(), "https://other/r?x=1");
        }
        for (first, to, words) in [
            ("https://h/r", "http+icechunk://h/r", "https to http"),
            ("http://h/r", "http+ic://10.0.0.1/r", "private address"),
            (
                "http://10.0.0.2/r",
                "http+ic://169.254.169.254/r",
                "credentials",
            ),
        ] {
            let refused = url(first, to).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let other = judged("http://h/r", "http+ic://other/r").unwrap().options;
        assert!(other.is_public_only && other.anonymous && other.headers.is_empty());
        let same = judged("http://h/r", "http+ic://h/s").unwrap().options;
        assert!(!same.is_public_only && same.headers.len() == 1);
    }

    #[test]
    fn only_schemes_of_storage_are_locations_of_one() {
        let location = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, text.parse().unwrap());
            super::location(&headers).is_some()
        };
        for text in [
            "s3://b/r?region=x",
            "gcs://b/r",
            "https+ic://h/r",
            "r2://b/r",
        ] {
            assert!(location(text), "{text}");
        }
        for text in [
            "https://h/r",
            "/r",
            "file:///etc",
            "redis://h/0",
            "hdfs://n/r",
        ] {
            assert!(!location(text), "{text}");
        }
    }
}
