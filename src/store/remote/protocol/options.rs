//! Options of remote sources.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest::Url;

use super::credential_command::CredentialCommand;
use super::web::{self, TlsOptions};
use crate::store::DiskCache;
use crate::store::remote::memory::RemoteMemory;

/// Options for reading remote sources.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Send requests without credentials.
    pub anonymous: bool,
    /// The address of the object store, if not the provider's own.
    pub endpoint_url: Option<String>,
    /// The region of a bucket.
    pub region: Option<String>,
    /// The profile of the AWS configuration.
    pub profile: Option<String>,
    /// The command that prints credentials.
    pub credential_command: Option<Arc<CredentialCommand>>,
    /// Headers to send, each as `Name: value`.
    pub headers: Vec<String>,
    /// Which servers are trusted over TLS.
    pub tls: TlsOptions,
    /// HTTP statuses of refusals that mean that a key does not exist.
    pub missing_statuses: Vec<u16>,
    /// Time limit of a request with all of its retries.
    pub timeout: Duration,
    /// How often a failed request is repeated.
    pub retries: u32,
    /// Largest number of concurrent requests.
    pub parallel: usize,
    /// How long names, sizes and versions are trusted.
    pub ttl: Duration,
    /// How long absence is trusted.
    pub absent_ttl: Duration,
    /// Memory limit of cached bytes.
    pub memory_bytes: u64,
    /// The memory itself, shared by all sources that are opened with clones of these options.
    pub memory: RemoteMemory,
    /// The cache that keeps bytes across mounts.
    pub disk: Option<Arc<DiskCache>>,
    /// Whether host names must not resolve to private addresses.
    pub is_public_only: bool,
    /// Where redirects of targets of references may lead. `None` for sources that the user names: they may lead to
    /// any other public server.
    pub redirects: Option<Arc<dyn RedirectPolicy>>,
}

/// Judges the URLs to which redirects of targets lead, as the targets themselves.
pub trait RedirectPolicy: fmt::Debug + Send + Sync {
    /// Returns whether a URL may lead only to public addresses.
    ///
    /// # Errors
    /// The reason why the URL may not be read, with the option that allows it.
    fn judge(&self, url: &str) -> Result<bool, String>;
}

impl RemoteOptions {
    /// Returns the headers to send.
    ///
    /// # Errors
    /// The header that cannot be sent; the error does not contain its value.
    pub(in crate::store::remote) fn headers(
        &self,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        parsed(&self.headers)
    }

    /// Checks whether headers and an endpoint are usable.
    ///
    /// # Errors
    /// The option that is not usable; the error does not contain values of headers.
    pub fn check(headers: &[String], endpoint_url: Option<&str>) -> Result<(), String> {
        parsed(headers)?;
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
            credential_command: None,
            headers: Vec::new(),
            tls: TlsOptions::default(),
            missing_statuses: Vec::new(),
            timeout: Duration::from_secs(30),
            retries: 10,
            parallel: 64,
            ttl: Duration::from_secs(60),
            absent_ttl: Duration::from_secs(1),
            memory_bytes: 128 << 20,
            memory: RemoteMemory::default(),
            disk: None,
            is_public_only: false,
            redirects: None,
        }
    }
}

fn parsed(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |text: &String| web::header(text).map_err(|what| format!("--header: {what}"));
    given.iter().map(header).collect()
}
