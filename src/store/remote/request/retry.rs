//! Repeats requests that failed temporarily, within a deadline for each call. Each attempt waits for a permit, and is
//! counted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::limit::{Class, RequestLimit};
use super::transfer_stats::{Meter, SENDER, Transferred};
use super::{ByteRange, Failed, FailureKind, Get, Got, List, Meta, Page, Remote, RequestError};
use crate::clock::Instant;
use crate::runtime;
#[cfg(test)]
use crate::runtime::simulated::{Mutation, is_mutated};
use crate::store::Key;

/// Upper limit of the first pause; the limit doubles with each further pause.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Upper limit of all pauses, unless the server asks for a longer one.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// No attempt is started with less time than this before the deadline.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);
/// The deadline of a range beyond [`SHORT_BYTES`] is extended as if it came at this rate.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;
/// Responses up to this size, in bytes, must arrive within the time limit.
const SHORT_BYTES: u64 = 16 << 20;

/// Number of attempts for a server that has never answered, because its URL is probably wrong.
const FIRST_ATTEMPTS: u32 = 2;

/// A source whose requests in flight are bounded and counted, and whose failed requests are repeated until the
/// deadline.
#[derive(Debug)]
pub(in crate::store::remote) struct Retry {
    inner: Arc<dyn Remote>,
    limit: Arc<RequestLimit>,
    meter: Meter,
    retries: u32,
    timeout: Duration,
    has_answered: AtomicBool,
}

impl Retry {
    pub(in crate::store::remote) fn new(
        inner: Arc<dyn Remote>,
        limit: Arc<RequestLimit>,
        meter: Meter,
        retries: u32,
        timeout: Duration,
    ) -> Self {
        Self {
            inner,
            limit,
            meter,
            retries,
            timeout,
            has_answered: AtomicBool::new(false),
        }
    }

    /// Sends a request once a permit is free, and counts it; `None` if no response has arrived by the deadline.
    async fn attempt<T: Transferred>(
        &self,
        key: &Key,
        class: Class,
        deadline: Instant,
        request: impl Future<Output = Result<T, RequestError>>,
    ) -> Option<Result<T, RequestError>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let sent = async {
            let permit = self.limit.permit(class).await?;
            let attempt = self.meter.begin(key);
            let response = SENDER.scope((self.meter.clone(), key.clone()), request);
            let response = response.await;
            attempt.end(&response);
            permit.release(&response);
            response
        };
        let response = runtime::timeout(left, sent).await?;
        let is_unreachable = matches!(
            &response,
            Err(RequestError::Failed(failed)) if failed.kind == FailureKind::Unreachable
        );
        if !is_unreachable {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        Some(response)
    }

    fn deadline(&self, bytes: u64) -> Instant {
        let more = bytes.saturating_sub(SHORT_BYTES) / SLOWEST_BYTES_PER_SECOND;
        Instant::now() + self.timeout + Duration::from_secs(more)
    }

    /// Waits before the next attempt; fails if no further attempt is allowed.
    async fn pause(
        &self,
        key: &Key,
        attempts: u32,
        failed: Failed,
        (begun, deadline): (Instant, Instant),
    ) -> Result<(), RequestError> {
        let give_up = |failed: Failed| {
            let elapsed = begun.elapsed();
            Err(RequestError::Failed(Failed {
                what: format!("{} ({attempts} attempts, {elapsed:.1?})", failed.what),
                ..failed
            }))
        };
        let is_first_contact =
            failed.kind == FailureKind::Unreachable && !self.has_answered.load(Ordering::Relaxed);
        if is_first_contact && attempts >= FIRST_ATTEMPTS {
            return Err(RequestError::Failed(failed));
        }
        if !failed.is_transient || attempts > self.retries {
            return match attempts {
                1 => Err(RequestError::Failed(failed)),
                _ => give_up(failed),
            };
        }
        let most = FIRST_PAUSE
            .saturating_mul(1 << (attempts - 1).min(10))
            .min(LONGEST_PAUSE);
        let pause = failed.retry_after.unwrap_or_else(|| most.mul_f64(jitter()));
        // An attempt that is cut off by the deadline would hide the cause of this failure.
        let least = SHORTEST_ATTEMPT.min(self.timeout / 20);
        let end = Instant::now()
            .checked_add(pause)
            .and_then(|next| next.checked_add(least));
        if end.is_none_or(|end| end >= deadline) {
            return give_up(failed);
        }
        log::debug!("{key}: {}; again in {pause:.1?}", failed.what);
        runtime::sleep(pause).await;
        self.meter.counters.retried(key);
        Ok(())
    }

    /// Requests attributes or names.
    async fn ask<T: Transferred, F: Future<Output = Result<T, RequestError>>>(
        &self,
        key: &Key,
        ask: impl Fn() -> F,
    ) -> Result<T, RequestError> {
        let (begun, deadline) = (Instant::now(), self.deadline(0));
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.attempt(key, Class::Name, deadline, ask()).await {
                None => return Err(self.timed_out(attempts)),
                Some(Err(RequestError::Failed(failed))) => {
                    self.pause(key, attempts, failed, (begun, deadline)).await?;
                }
                Some(response) => return response,
            }
        }
    }

    fn timed_out(&self, attempts: u32) -> RequestError {
        let (timeout, plural) = (self.timeout, if attempts == 1 { "" } else { "s" });
        RequestError::TimedOut(format!(
            "whole answer ({attempts} attempt{plural}, {timeout:.1?})"
        ))
    }
}

/// A random factor from 0.5 to 1, so that clients do not retry all at once.
fn jitter() -> f64 {
    let random = runtime::random() % 1024;
    0.5 + f64::from(u16::try_from(random).unwrap_or(0)) / 2048.0
}

/// Returns a request for the rest after `have`; `None` if it cannot be requested separately.
fn rest_of(get: &Get, have: &Got) -> Option<Get> {
    have.meta.opaque_tag()?;
    let at = have.start + have.bytes.len() as u64;
    let end = match &get.range {
        ByteRange::Whole(_) | ByteRange::Suffix(_) => have.meta.size_bytes,
        ByteRange::Bounded(range) => range.end.min(have.meta.size_bytes),
    };
    let expected = Some(have.meta.clone());
    #[cfg(test)]
    let expected = expected.filter(|_| !is_mutated(Mutation::MixedVersions));
    (at < end).then(|| Get {
        key: get.key.clone(),
        range: ByteRange::Bounded(at..end),
        expected,
        cached: None,
        piece_bytes: get.piece_bytes,
        early: None,
        // The bytes that were published before are gone.
        arrival: None,
    })
}

impl Remote for Retry {
    /// A response that broke off is continued where it ended, if the object is unchanged.
    fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
        async move {
            let bytes = match &get.range {
                ByteRange::Whole(_) => 0,
                ByteRange::Bounded(range) => range.end.saturating_sub(range.start),
                ByteRange::Suffix(bytes) => *bytes,
            };
            let (begun, deadline) = (Instant::now(), self.deadline(bytes));
            let mut have: Option<Got> = None;
            let mut attempts = 0;
            loop {
                attempts += 1;
                let next = have.as_ref().and_then(|have| rest_of(get, have));
                let request = next.as_ref().unwrap_or(get);
                let class = self.limit.class_of(request);
                let response = self.inner.get(request);
                let response = self.attempt(&get.key, class, deadline, response).await;
                let mut failed = match response {
                    None => return Err(self.timed_out(attempts)),
                    Some(Ok(got)) => return joined(have, next.is_some(), got),
                    Some(Err(RequestError::Failed(failed))) => failed,
                    Some(Err(error)) => return Err(error),
                };
                if let Some(more) = failed.partial.take() {
                    have = Some(joined(have, next.is_some(), *more)?);
                }
                self.pause(&get.key, attempts, failed, (begun, deadline))
                    .await?;
            }
        }
        .boxed()
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
        self.ask(key, || self.inner.head(key)).boxed()
    }

    fn list<'a>(&'a self, list: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
        self.ask(&list.prefix, || self.inner.list(list)).boxed()
    }
}

/// Joins both parts, if the second one was requested as the rest of the first.
fn joined(have: Option<Got>, is_rest: bool, more: Got) -> Result<Got, RequestError> {
    let Some(mut have) = have.filter(|_| is_rest) else {
        return Ok(more);
    };
    match have.bytes.try_extend(&more.bytes.into_bytes()) {
        Ok(()) => Ok(have),
        Err(_) => Err(RequestError::no_memory()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::transfer_stats::Counters;
    use super::*;
    use crate::store::KeyClasses;
    use std::sync::Mutex;

    type Script = Vec<Result<Got, RequestError>>;

    /// Returns scripted answers one after the other.
    #[derive(Debug)]
    struct Scripted(Mutex<Script>, Mutex<Vec<Get>>);

    impl Remote for Scripted {
        fn get<'a>(&'a self, get: &'a Get) -> BoxFuture<'a, Result<Got, RequestError>> {
            self.1.lock().unwrap().push(get.clone());
            let next = self.0.lock().unwrap().remove(0);
            async move { next }.boxed()
        }

        fn head<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<Meta, RequestError>> {
            futures_util::future::pending().boxed()
        }

        fn list<'a>(&'a self, _: &'a List) -> BoxFuture<'a, Result<Page, RequestError>> {
            futures_util::future::pending().boxed()
        }
    }

    fn meta(tag: &str) -> Meta {
        Meta {
            size_bytes: 6,
            etag: Some(tag.into()),
            modified: None,
        }
    }

    fn got(start: u64, bytes: &[u8]) -> Got {
        let (meta, bytes) = (meta("\"a\""), bytes.to_vec().into());
        Got { meta, start, bytes }
    }

    fn broken(start: u64, bytes: &[u8]) -> RequestError {
        RequestError::Failed(Failed {
            what: "broke off".into(),
            is_transient: true,
            kind: FailureKind::Other,
            retry_after: None,
            partial: Some(Box::new(got(start, bytes))),
        })
    }

    fn ask(script: Script, retries: u32) -> (Result<Got, RequestError>, Vec<Get>, Arc<Counters>) {
        let scripted = Arc::new(Scripted(Mutex::new(script), Mutex::default()));
        let counters = Arc::new(Counters::default());
        let meter = Meter {
            counters: Arc::clone(&counters),
            clock: Arc::default(),
        };
        let retry = Retry::new(
            Arc::clone(&scripted) as _,
            Arc::new(RequestLimit::new(1, KeyClasses::default())),
            meter,
            retries,
            Duration::from_secs(2),
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let get = Get::new(&Key::new(b"k").unwrap(), ByteRange::Whole(100));
        let response = runtime.block_on(retry.get(&get));
        let asked = scripted.1.lock().unwrap().clone();
        (response, asked, counters)
    }

    #[test]
    fn a_broken_response_is_resumed_at_its_end() {
        let script = vec![
            Err(broken(0, b"ab")),
            Err(broken(2, b"cd")),
            Ok(got(4, b"ef")),
        ];
        let (response, asked, counters) = ask(script, 5);
        let response = response.unwrap();
        assert_eq!(
            (response.start, response.bytes.into_bytes()),
            (0, b"abcdef".to_vec())
        );
        assert_eq!(asked[1].range, ByteRange::Bounded(2..6));
        assert_eq!(asked[2].range, ByteRange::Bounded(4..6));
        assert_eq!(asked[2].expected, Some(meta("\"a\"")));
        assert_eq!(counters.total().retries, 2);
    }

    #[test]
    fn a_permanent_failure_is_not_retried() {
        let (response, asked, _) = ask(vec![Err(RequestError::lasting("no"))], 5);
        assert!(matches!(response, Err(RequestError::Failed(failed)) if failed.what == "no"));
        assert_eq!(asked.len(), 1);
        let (response, ..) = ask(vec![Err(RequestError::NotFound)], 5);
        assert!(matches!(response, Err(RequestError::NotFound)));
    }

    fn unreachable() -> RequestError {
        RequestError::Failed(Failed {
            what: "refused".into(),
            kind: FailureKind::Unreachable,
            is_transient: true,
            ..Failed::default()
        })
    }

    #[test]
    fn an_unreachable_server_gets_two_attempts_unless_it_has_responded_before() {
        let script = vec![Err(unreachable()), Err(unreachable())];
        let (response, asked, _) = ask(script, 10);
        assert!(matches!(response, Err(RequestError::Failed(failed)) if failed.what == "refused"));
        assert_eq!(asked.len(), 2);
        let mut script = vec![Err(RequestError::transient("503"))];
        script.extend((0..3).map(|_| Err(unreachable())));
        script.push(Ok(got(0, b"abcdef")));
        let (response, asked, _) = ask(script, 10);
        assert!(response.is_ok());
        assert_eq!(asked.len(), 5);
        let (_, asked, _) = ask(vec![Err(unreachable())], 0);
        assert_eq!(asked.len(), 1);
    }

    #[test]
    fn attempts_are_counted_and_end() {
        let script = (0..3)
            .map(|_| Err(RequestError::transient("503")))
            .collect();
        let (response, asked, _) = ask(script, 2);
        let Err(RequestError::Failed(failed)) = response else {
            panic!("{response:?}");
        };
        assert!(
            failed.what.starts_with("503 (3 attempts"),
            "{}",
            failed.what
        );
        assert_eq!(asked.len(), 3);
    }

    #[test]
    fn a_pause_that_exceeds_the_deadline_is_not_started() {
        let begun = Instant::now();
        let later = RequestError::Failed(Failed {
            what: "429".into(),
            is_transient: true,
            retry_after: Some(Duration::from_secs(3600)),
            ..Failed::default()
        });
        let (response, asked, _) = ask(vec![Err(later)], 5);
        assert!(matches!(response, Err(RequestError::Failed(_))));
        assert_eq!(asked.len(), 1);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}
