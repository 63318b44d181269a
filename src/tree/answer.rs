//! Answers that may be at hand.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Ready, ready};

use crate::store::StoreError;

/// The answer to a request: a result that took at most a system call, or a future for one that takes a network
/// request, a decoder, or more.
///
/// A session thread sends a result that is at hand without a future. Building the future starts no work.
#[must_use = "a future does nothing unless it is awaited"]
pub enum Answer<'a, T, E = StoreError> {
    /// The result.
    Now(Ready<Result<T, E>>),
    /// The future of the result.
    Later(BoxFuture<'a, Result<T, E>>),
}

impl<'a, T, E> Answer<'a, T, E> {
    /// Returns a result that is at hand.
    pub fn now(result: Result<T, E>) -> Self {
        Self::Now(ready(result))
    }

    /// Returns a result that has to be awaited.
    pub fn later(future: impl Future<Output = Result<T, E>> + Send + 'a) -> Self {
        Self::Later(future.boxed())
    }

    /// Returns the result, if it is at hand.
    pub fn at_hand(self) -> Option<Result<T, E>> {
        match self {
            Self::Now(result) => Some(result.into_inner()),
            Self::Later(_) => None,
        }
    }

    /// Converts the result, now or when it is there.
    pub fn map<U, F>(
        self,
        convert: impl FnOnce(Result<T, E>) -> Result<U, F> + Send + 'a,
    ) -> Answer<'a, U, F>
    where
        T: 'a,
        E: 'a,
    {
        match self {
            Self::Now(result) => Answer::now(convert(result.into_inner())),
            Self::Later(future) => Answer::Later(future.map(convert).boxed()),
        }
    }
}

impl<T, E> Future for Answer<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(result) => Pin::new(result).poll(context),
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T, E> std::fmt::Debug for Answer<'_, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Answer::Now",
            Self::Later(_) => "Answer::Later",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;

    #[test]
    fn a_result_is_the_same_at_hand_and_awaited() {
        let now = || Answer::now(Ok::<_, StoreError>(3)).map(|found| found.map(|n| n + 1));
        assert_eq!(now().at_hand().unwrap().unwrap(), 4);
        assert_eq!(block_on(now()).unwrap(), 4);
        let later = || Answer::later(async { Ok::<_, StoreError>(3) });
        let later = || later().map(|found| found.map(|n| n + 1));
        assert!(later().at_hand().is_none());
        assert_eq!(block_on(later()).unwrap(), 4);
    }
}
