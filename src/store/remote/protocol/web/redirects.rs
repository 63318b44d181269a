//! Where redirects may lead, and the clients that follow them.

use std::sync::Arc;

use reqwest::{Client, Response, StatusCode, Url};

use super::address::{self, is_allowed};
use super::client;
use super::resolve::Reach;
use super::scope::{NetworkScope, scope_of, scope_of_host};
use crate::store::remote::protocol::options::{RedirectPolicy, RemoteOptions};
use crate::store::remote::request::{Refusal, RequestError};

/// Where redirects may lead, and the clients that follow them.
#[derive(Debug)]
pub(in crate::store::remote) struct Redirects {
    /// Judges redirects of targets of references.
    policy: Option<Arc<dyn RedirectPolicy>>,
    /// For redirects to other hosts: names resolve to public addresses only.
    public: Client,
    /// As `public`, with private addresses.
    not_local: Client,
}

impl Redirects {
    pub(super) fn new(options: &RemoteOptions) -> Result<Self, String> {
        Ok(Self {
            policy: options.redirects.clone(),
            public: client(options.timeout, Reach::Public, &options.tls)?,
            not_local: client(options.timeout, Reach::NotLocal, &options.tls)?,
        })
    }

    /// Returns the client that may follow a redirect of the response from `from`; `own` is the one of the first
    /// request, to `first`.
    ///
    /// # Errors
    /// The reason why no client may.
    pub(super) fn client<'a>(
        &'a self,
        own: &'a Client,
        first: &Url,
        (response, from): (&Response, &Url),
        next: &Url,
    ) -> Result<&'a Client, RequestError> {
        let judged = self.judge(first, next)?;
        let is_named = judged == Some(false);
        is_allowed(first, from, next, is_named).map_err(RequestError::lasting)?;
        if is_named || judged.is_none() && first.host() == next.host() {
            return Ok(own);
        }
        // A name may stand for any address, so the address of the server that redirects decides.
        let peer = response.remote_addr().map(|peer| scope_of(peer.ip()));
        let scope = match judged {
            Some(true) => NetworkScope::Public,
            _ => peer.unwrap_or_else(|| scope_of_host(from)),
        };
        Ok(match Reach::of_redirects(scope) {
            Reach::Public => &self.public,
            Reach::Any | Reach::NotLocal => &self.not_local,
        })
    }

    /// Judges the redirect of a target: returns whether it may lead only to public addresses.
    pub(super) fn judge(&self, first: &Url, next: &Url) -> Result<Option<bool>, RequestError> {
        let Some(policy) = &self.policy else {
            return Ok(None);
        };
        let mut judged = next.clone();
        if address::is_upgrade(first, next) {
            // The origin of the references stays the same one.
            let _ = judged.set_scheme("http");
        }
        let host = next.host_str().unwrap_or_default();
        let found = policy.judge(judged.as_str()).map_err(|reason| {
            RequestError::Denied(Refusal {
                what: format!("it is redirected to {host}: {reason}"),
                status: None,
            })
        });
        found.map(Some)
    }
}

/// Returns whether a status is a redirect.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
