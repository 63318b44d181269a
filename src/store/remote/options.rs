//! How remote sources are read.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest::Url;

use super::client::RemoteMemory;
use super::web;
use crate::store::DiskCache;

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
    /// The memory itself: sources that are opened with clones of these options have it in common.
    pub memory: RemoteMemory,
    /// Where bytes are kept for the next time.
    pub disk: Option<Arc<DiskCache>>,
    /// No name of a host may lead to a private address.
    pub is_public_only: bool,
}

impl RemoteOptions {
    /// Returns the headers to send.
    ///
    /// # Errors
    /// Says which one cannot be sent; values of headers are not repeated.
    pub(super) fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        parsed(&self.headers)
    }

    /// Whether headers and an endpoint can be meant.
    ///
    /// # Errors
    /// Says which one cannot; values of headers are not repeated.
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
            headers: Vec::new(),
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
        }
    }
}

fn parsed(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |text: &String| web::header(text).map_err(|what| format!("--header: {what}"));
    given.iter().map(header).collect()
}
