//! Bounds how many requests are on their way at a time.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::store::is_document;
use super::{Get, Got, List, Meta, Page, Remote, RequestError};

/// A source with at most so many requests in flight; others wait.
///
/// Documents of metadata and names do not wait behind chunks, so that listing works while reads of
/// chunks hang.
#[derive(Debug)]
pub(super) struct Limited {
    inner: Arc<dyn Remote>,
    values: Semaphore,
    names: Semaphore,
}

impl Limited {
    pub(super) fn new(inner: Arc<dyn Remote>, most: usize) -> Self {
        let turns = || Semaphore::new(most.max(1));
        Self {
            inner,
            values: turns(),
            names: turns(),
        }
    }

    async fn turn<'a>(&self, turns: &'a Semaphore) -> Result<SemaphorePermit<'a>, RequestError> {
        let turn = turns.acquire().await;
        turn.map_err(|_| RequestError::lasting("the source is closed"))
    }
}

impl Remote for Limited {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        async move {
            let turns = match is_document(&get.key) {
                true => &self.names,
                false => &self.values,
            };
            let _turn = self.turn(turns).await?;
            self.inner.get(get).await
        }
        .boxed()
    }

    fn head<'a>(&'a self, key: &'a super::Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        async move {
            let _turn = self.turn(&self.names).await?;
            self.inner.head(key).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        async move {
            let _turn = self.turn(&self.names).await?;
            self.inner.list(list).await
        }
        .boxed()
    }
}
