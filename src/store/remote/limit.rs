//! Bounds how many requests are on their way at a time.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Get, Got, List, Meta, Page, Remote, RequestError};

/// A source that is asked at most so many things at the same time; the others wait their turn.
#[derive(Debug)]
pub(super) struct Limited {
    inner: Arc<dyn Remote>,
    turns: Semaphore,
}

impl Limited {
    pub(super) fn new(inner: Arc<dyn Remote>, most: usize) -> Self {
        let turns = Semaphore::new(most.max(1));
        Self { inner, turns }
    }

    async fn turn(&self) -> Result<SemaphorePermit<'_>, RequestError> {
        let turn = self.turns.acquire().await;
        turn.map_err(|_| RequestError::lasting("the source is closed"))
    }
}

impl Remote for Limited {
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        async move {
            let _turn = self.turn().await?;
            self.inner.get(get).await
        }
        .boxed()
    }

    fn head<'a>(&'a self, key: &'a super::Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        async move {
            let _turn = self.turn().await?;
            self.inner.head(key).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        async move {
            let _turn = self.turn().await?;
            self.inner.list(list).await
        }
        .boxed()
    }
}
