//! Errors of requests without a response: what users are told, and whether another attempt can succeed.

use std::error::Error;
use std::io;

use reqwest::Url;

use super::tls;
use crate::store::remote::request::{Failed, FailureKind, RequestError};

/// Converts an error that occurred before a response.
pub(super) fn sending(error: &reqwest::Error) -> RequestError {
    let (what, kind) = failure(error);
    RequestError::Failed(Failed {
        what,
        kind,
        is_transient: !is_lasting(error),
        ..Failed::default()
    })
}

/// Whether another attempt would fail too, as for invalid certificates, and for URLs or headers that
/// cannot be sent.
pub(in crate::store::remote) fn is_lasting(error: &reqwest::Error) -> bool {
    error.is_builder() || is_tls(error)
}

/// Describes an error that occurred before a response, for users; also returns its kind.
pub(in crate::store::remote) fn failure(error: &reqwest::Error) -> (String, FailureKind) {
    if let Some(tls) = tls_error(error) {
        let host = error.url().and_then(Url::host_str).unwrap_or("the server");
        return (tls::explain(tls, host), FailureKind::Other);
    }
    match unreachable(error) {
        Some(what) => (what, FailureKind::Unreachable),
        None => (causes(error), FailureKind::Other),
    }
}

/// Explains why no connection is possible, if the host has no address, refuses, or has no route; also
/// names what to check.
fn unreachable(error: &reqwest::Error) -> Option<String> {
    let url = error.url()?;
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    let mut source = error.source();
    let mut kind = None;
    let mut root_cause = String::new();
    while let Some(cause) = source {
        let io = cause.downcast_ref::<io::Error>();
        kind = io.map(io::Error::kind).or(kind);
        root_cause = cause.to_string();
        source = cause.source();
    }
    let (what, check) = match kind {
        _ if error.is_dns() => {
            let cause = root_cause.trim_start_matches("failed to lookup address information: ");
            let what = format!("the name {host} does not resolve: {cause}");
            (what, "the name of the host")
        }
        Some(io::ErrorKind::ConnectionRefused) => {
            let what = format!("{host} refuses connections on port {port}");
            (what, "host and port, and whether the server runs")
        }
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
            let what = format!("no route to {host}: {root_cause}");
            (what, "the host and the network of this machine")
        }
        _ => return None,
    };
    Some(match has_proxy() {
        true => format!(
            "no connection to {host} on port {port}: {root_cause} (check host and port, and the \
             proxy that the environment names)"
        ),
        false => format!("{what} (check {check})"),
    })
}

/// Whether environment variables name a proxy, which may be the host that refuses.
pub(super) fn has_proxy() -> bool {
    let names = ["http_proxy", "https_proxy", "all_proxy"];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    names
        .iter()
        .any(|name| is_set(name) || is_set(&name.to_uppercase()))
}

/// Whether the TLS handshake has failed.
pub(in crate::store::remote) fn is_tls(error: &(dyn Error + 'static)) -> bool {
    tls_error(error).is_some()
}

/// Returns the error of TLS among an error and its causes.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let io = error.downcast_ref::<io::Error>();
    let inner = io.and_then(io::Error::get_ref);
    let found = error.downcast_ref::<rustls::Error>();
    found
        .or_else(|| inner.and_then(|inner| tls_error(inner)))
        .or_else(|| error.source().and_then(tls_error))
}

/// Describes an error with all its causes, without its URL, which may contain secrets.
pub(in crate::store::remote) fn causes(error: &(dyn Error + 'static)) -> String {
    let own = error.downcast_ref::<reqwest::Error>().map(|error| {
        let kind = match () {
            () if is_tls(error) => "TLS",
            () if error.is_connect() => "connecting",
            () if error.is_timeout() => "timed out",
            () if error.is_body() || error.is_decode() => "reading the body",
            () => "sending the request",
        };
        kind.to_owned()
    });
    let mut text = own.unwrap_or_else(|| error.to_string());
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}
