//! Sends the requests of one source on the network runtime, and reserves memory for their responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::transfer_stats::{Counters, Meter};
use super::{ByteRange, Depth, Get, Got, List, Meta, Page, Remote, RequestError};
use crate::clock::Instant;
use crate::runtime;
use crate::store::remote::memory::{BodyBudget, ReservedBody};
use crate::store::{Key, StoreError};

/// Number of consecutive pages without a name after which the server is taken to be in a loop.
pub(in crate::store::remote) const MAX_EMPTY_PAGES: u32 = 64;

/// The sender of requests to one source.
#[derive(Debug)]
pub(in crate::store::remote) struct Requests {
    remote: Arc<dyn Remote>,
    meter: Meter,
    body_budget: Arc<BodyBudget>,
    /// Permits for prefetches, half of `--parallel`: the other half is for reads that wait.
    prefetches: Arc<Semaphore>,
    timeout: Duration,
}

impl Requests {
    /// Returns the sender of requests of `remote`, whose requests `meter` measures.
    pub(in crate::store::remote) fn new(
        remote: Arc<dyn Remote>,
        meter: Meter,
        body_budget: Arc<BodyBudget>,
        prefetches: Arc<Semaphore>,
        timeout: Duration,
    ) -> Self {
        Self {
            remote,
            meter,
            body_budget,
            prefetches,
            timeout,
        }
    }

    pub(in crate::store::remote) fn counters(&self) -> &Counters {
        &self.meter.counters
    }

    /// Returns the time on the clock of the source at a moment, if it is known.
    pub(in crate::store::remote) fn server_time(&self, moment: Instant) -> Option<SystemTime> {
        self.meter.clock.at(moment)
    }

    /// Requests bytes of an object; dropping the future cancels the request.
    pub(in crate::store::remote) async fn get(&self, get: Get) -> Result<Got, RequestError> {
        let remote = Arc::clone(&self.remote);
        let response = runtime::on_network(async move { remote.get(&get).await });
        response.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Requests the attributes of an object, as the source reports them.
    pub(in crate::store::remote) async fn head(&self, key: &Key) -> Result<Meta, RequestError> {
        let (remote, key) = (Arc::clone(&self.remote), key.clone());
        let response = runtime::on_network(async move { remote.head(&key).await });
        response.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Requests the attributes of an object. A size of 0 is trusted only if GET returns no bytes either, because
    /// some servers answer every HEAD with `Content-Length: 0`.
    pub(in crate::store::remote) async fn meta(&self, key: &Key) -> Result<Meta, RequestError> {
        let meta = self.head(key).await?;
        if meta.size_bytes > 0 {
            return Ok(meta);
        }
        let first_byte = Get::new(key, ByteRange::Bounded(0..1));
        match self.get(first_byte).await {
            Ok(got) => Ok(got.meta),
            Err(RequestError::NoSuchRange) => Ok(meta),
            Err(error) => Err(error),
        }
    }

    /// Requests one page of names.
    pub(in crate::store::remote) async fn list(&self, list: List) -> Result<Page, RequestError> {
        let remote = Arc::clone(&self.remote);
        let response = runtime::on_network(async move { remote.list(&list).await });
        response.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Whether keys exist below a prefix; reads several pages, because the first ones can be empty.
    pub(in crate::store::remote) async fn has_keys(
        &self,
        prefix: &Key,
    ) -> Result<bool, RequestError> {
        let mut list = List {
            prefix: prefix.clone(),
            depth: Depth::All,
            page: None,
            after: None,
            most: Some(1),
        };
        for _ in 0..MAX_EMPTY_PAGES {
            let page = self.list(list.clone()).await?;
            if page.is_marked || !page.objects.is_empty() || !page.prefixes.is_empty() {
                return Ok(true);
            }
            match page.next {
                None => return Ok(false),
                next => list.page = next,
            }
        }
        let what = "the listing has page after page without a name";
        Err(RequestError::lasting(what))
    }

    /// Reserves memory for a body of `bytes` bytes that is copied once.
    ///
    /// # Errors
    /// [`StoreError::TimedOut`] if none is free in time.
    pub(in crate::store::remote) async fn reserve(
        &self,
        key: &Key,
        bytes: u64,
    ) -> Result<ReservedBody, StoreError> {
        let bytes = bytes.saturating_mul(2);
        let reserved = self.body_budget.reserve(bytes, self.timeout).await;
        reserved.ok_or_else(|| StoreError::TimedOut {
            key: key.clone(),
            what: format!("memory for the answer ({:.1?})", self.timeout),
        })
    }

    /// As [`Requests::reserve`], for a prefetch; `None` if other requests need the memory.
    pub(in crate::store::remote) fn try_reserve_spare(&self, bytes: u64) -> Option<ReservedBody> {
        self.body_budget.try_reserve_spare(bytes.saturating_mul(2))
    }

    /// Waits for the permit of a prefetch.
    pub(in crate::store::remote) async fn prefetch_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.prefetches.acquire().await.ok()
    }
}

/// The error after the network runtime has ended, or a request has panicked.
fn ended() -> RequestError {
    RequestError::lasting("the request was not completed")
}

/// The error of a shared load that has panicked.
pub(in crate::store::remote) fn panicked() -> StoreError {
    StoreError::internal("a panic while a request was sent")
}
