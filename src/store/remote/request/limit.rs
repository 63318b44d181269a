//! Bounds the number of requests in flight, and lowers the bound for an overloaded server.
//!
//! The bound is halved when the server responds that it has too many requests (429, 503). It grows by
//! one for each window of as many successful responses (AIMD, as in TCP). It is at most `--parallel` and
//! at least 1. Values and names have the same bound, but each class counts its own requests.
//!
//! Lock order: the lock of [`ConcurrencyLimit`] is not held during a wait.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Failed, FailureKind, Get, RequestError};
#[cfg(test)]
use crate::runtime::simulated::{Mutation, is_mutated};
use crate::store::KeyClasses;
use crate::sync::Mutex;

/// The bound of the requests of one source in flight; further requests wait.
///
/// Metadata documents and names do not wait behind chunks, so that listings work while reads of
/// chunks hang.
#[derive(Debug)]
pub(in crate::store::remote) struct RequestLimit {
    classes: KeyClasses,
    most: usize,
    values: Semaphore,
    names: Semaphore,
    limit: Mutex<ConcurrencyLimit>,
}

/// The current bound of requests in flight, which applies to each class.
#[derive(Debug)]
struct ConcurrencyLimit {
    requests: usize,
    /// Number of successful requests in this window.
    successes: usize,
    /// Counts how often the bound was halved. A request that was sent before the last halving says
    /// nothing about the current bound.
    window: u64,
    /// Number of permits of each semaphore, in use or free. Permits in use that exceed the bound are
    /// removed when they are returned.
    values: usize,
    names: usize,
}

/// The class of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Class {
    Value,
    Name,
}

/// The permit of a request in flight, which is released on drop.
#[derive(Debug)]
pub(super) struct RequestPermit<'a> {
    of: &'a RequestLimit,
    class: Class,
    window: u64,
    permit: Option<SemaphorePermit<'a>>,
}

impl ConcurrencyLimit {
    fn permits(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Value => &mut self.values,
            Class::Name => &mut self.names,
        }
    }
}

impl RequestLimit {
    pub(in crate::store::remote) fn new(most: usize, classes: KeyClasses) -> Self {
        let most = most.max(1);
        Self {
            classes,
            most,
            values: Semaphore::new(most),
            names: Semaphore::new(most),
            limit: Mutex::new(ConcurrencyLimit {
                requests: most,
                successes: 0,
                window: 0,
                values: most,
                names: most,
            }),
        }
    }

    /// Returns the permits in use; `None` if there are none.
    #[cfg(test)]
    pub(in crate::store::remote) fn in_use(&self) -> Option<String> {
        let limit = self.limit.lock();
        let values = limit.values - self.values.available_permits();
        let names = limit.names - self.names.available_permits();
        let used = format!("permits for {values} values and {names} names");
        (values + names > 0).then_some(used)
    }

    fn semaphore(&self, class: Class) -> &Semaphore {
        match class {
            Class::Value => &self.values,
            Class::Name => &self.names,
        }
    }

    /// Returns the class of a request for bytes.
    pub(super) fn class_of(&self, get: &Get) -> Class {
        // A lookup that fetches the value counts as a name: it must not wait behind reads that hang.
        match self.classes.is_document(&get.key) || get.early.is_some() {
            true => Class::Name,
            false => Class::Value,
        }
    }

    /// Waits for the permit of a request.
    pub(super) async fn permit(&self, class: Class) -> Result<RequestPermit<'_>, RequestError> {
        let permit = self.semaphore(class).acquire().await;
        let permit = permit.map_err(|_| RequestError::lasting("the source is closed"))?;
        Ok(RequestPermit {
            of: self,
            class,
            window: self.limit.lock().window,
            permit: Some(permit),
        })
    }

    fn halve(&self, window: u64) {
        let mut limit = self.limit.lock();
        if limit.window != window {
            return;
        }
        limit.window += 1;
        limit.successes = 0;
        limit.requests = (limit.requests / 2).max(1);
        let requests = limit.requests;
        for class in [Class::Value, Class::Name] {
            let permits = limit.permits(class);
            let above = permits.saturating_sub(requests);
            *permits -= self.semaphore(class).forget_permits(above);
        }
        log::debug!("the server has too many requests; {requests} at a time from now on");
    }

    fn succeeded(&self, window: u64) {
        let mut limit = self.limit.lock();
        if limit.window != window || limit.requests == self.most {
            return;
        }
        limit.successes += 1;
        if limit.successes < limit.requests {
            return;
        }
        limit.successes = 0;
        limit.requests += 1;
        let requests = limit.requests;
        for class in [Class::Value, Class::Name] {
            let permits = limit.permits(class);
            if *permits < requests {
                *permits += 1;
                self.semaphore(class).add_permits(1);
            }
        }
    }
}

impl RequestPermit<'_> {
    /// Releases the permit, and adapts the bound to the response.
    pub(super) fn release<T>(self, response: &Result<T, RequestError>) {
        #[cfg(test)]
        if response.is_err() && is_mutated(Mutation::LeakedPermit) {
            std::mem::forget(self);
            return;
        }
        match response {
            Err(RequestError::Failed(Failed {
                kind: FailureKind::Throttled,
                ..
            })) => self.of.halve(self.window),
            Err(RequestError::Failed(_)) => {}
            _ => self.of.succeeded(self.window),
        }
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        let mut limit = self.of.limit.lock();
        let requests = limit.requests;
        let permits = limit.permits(self.class);
        let permit = self.permit.take();
        if *permits > requests {
            *permits -= 1;
            permit.into_iter().for_each(SemaphorePermit::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Key;
    use crate::store::remote::request::{ByteRange, EarlyMeta};
    use futures_util::FutureExt;
    use futures_util::future::{join_all, pending};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::yield_now;

    const CLASSES: [Class; 2] = [Class::Value, Class::Name];

    /// Answers each request after others were sent; counts the requests in flight.
    struct Test {
        limit: RequestLimit,
        in_flight: AtomicUsize,
        most: AtomicUsize,
    }

    impl Test {
        fn new(most: usize) -> Self {
            Self {
                limit: RequestLimit::new(most, KeyClasses::default()),
                in_flight: AtomicUsize::new(0),
                most: AtomicUsize::new(0),
            }
        }

        async fn send_one(&self, class: Class, failure: Option<FailureKind>) {
            let permit = self.limit.permit(class).await.unwrap();
            let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(in_flight, Ordering::SeqCst);
            yield_now().await;
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            let failed = failure.map(|kind| Failed {
                kind,
                is_transient: true,
                ..Failed::default()
            });
            let response = failed.map_or(Ok(()), |failed| Err(RequestError::Failed(failed)));
            permit.release(&response);
        }

        /// Sends concurrent requests, all with the same answer; returns the most in flight.
        fn send(&self, class: Class, requests: usize, failure: Option<FailureKind>) -> usize {
            self.most.store(0, Ordering::SeqCst);
            let all = (0..requests).map(|_| self.send_one(class, failure));
            crate::runtime::block_on(join_all(all));
            assert_eq!(self.in_flight.load(Ordering::SeqCst), 0);
            self.most.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn documents_and_values_of_lookups_are_names() {
        let classes = KeyClasses {
            is_document: |key| key.as_bytes() == b"d",
            ..KeyClasses::default()
        };
        let limit = RequestLimit::new(1, classes);
        let get = |key: &[u8]| Get::new(&Key::new(key).unwrap(), ByteRange::Whole(1));
        assert!(matches!(limit.class_of(&get(b"d")), Class::Name));
        assert!(matches!(limit.class_of(&get(b"c/0")), Class::Value));
        let mut lookup = get(b"c/0");
        lookup.early = Some(EarlyMeta::new().0);
        assert!(matches!(limit.class_of(&lookup), Class::Name));
    }

    #[test]
    fn a_server_with_too_many_requests_gets_half_as_many_of_values_and_of_names() {
        let test = Test::new(16);
        for (class, expected) in CLASSES.into_iter().cycle().zip([16, 8, 4, 2, 1, 1]) {
            // Other failures leave the bound unchanged.
            for class in CLASSES {
                let most = test.send(class, 50, Some(FailureKind::Other));
                assert_eq!(most, expected);
            }
            // Requests that were in flight together halve the bound only once.
            test.send(class, expected, Some(FailureKind::Throttled));
        }
    }

    #[test]
    fn each_window_of_successes_raises_the_bound_by_one_up_to_the_first_one() {
        let test = Test::new(4);
        test.send(Class::Value, 4, Some(FailureKind::Throttled));
        test.send(Class::Name, 2, Some(FailureKind::Throttled));
        for (successes, expected) in [(0, 1), (1, 2), (1, 2), (1, 3), (3, 4), (40, 4)] {
            test.send(Class::Name, successes, None);
            for class in CLASSES {
                let most = test.send(class, 50, Some(FailureKind::Other));
                assert_eq!(most, expected);
            }
        }
    }

    #[test]
    fn a_cancelled_request_releases_its_slot() {
        let test = Test::new(1);
        let hang = async || {
            let _permit = test.limit.permit(Class::Name).await;
            pending::<()>().await;
        };
        for _ in 0..3 {
            assert!(Box::pin(hang()).now_or_never().is_none());
        }
        assert_eq!(test.send(Class::Name, 2, None), 1);
    }
}
