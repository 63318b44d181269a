//! `--missing-status`: treats a refusal as proof of absence, because the user states that this
//! source responds with it to requests for missing keys.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Get, Got, List, Meta, Page, Remote, RequestError};
use crate::store::Key;

/// A source for which refusals with these statuses mean that the object does not exist.
#[derive(Debug)]
pub(in crate::store::remote) struct MissingStatus {
    inner: Arc<dyn Remote>,
    statuses: Vec<u16>,
}

impl MissingStatus {
    pub(in crate::store::remote) fn new(inner: Arc<dyn Remote>, statuses: Vec<u16>) -> Self {
        Self { inner, statuses }
    }

    fn translate<T>(&self, response: Result<T, RequestError>) -> Result<T, RequestError> {
        match response {
            Err(RequestError::Denied(refusal))
                if refusal
                    .status
                    .is_some_and(|status| self.statuses.contains(&status)) =>
            {
                Err(RequestError::NotFound)
            }
            response => response,
        }
    }
}

impl Remote for MissingStatus {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        async move { self.translate(self.inner.get(get).await) }.boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        async move { self.translate(self.inner.head(key).await) }.boxed()
    }

    /// Not translated: a user without permission to list gets that error.
    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.inner.list(list)
    }
}
