//! Values that arrive, for readers of their first bytes.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::Either;
use hashbrown::HashMap;

use crate::store::remote::request::Meta;
use crate::store::remote::request::arrival::Arrival;
use crate::store::{Key, ReadBuffer};
use crate::sync::Mutex;

/// What has arrived of the values that are being fetched whole, by key.
#[derive(Debug, Default)]
pub(super) struct ArrivingValues(Mutex<HashMap<Key, Arc<Arrival>>>);

/// What arrives for one request. No other request writes to it.
#[derive(Debug)]
pub(super) struct ArrivingValue<'a> {
    values: &'a ArrivingValues,
    key: Key,
    pub(super) arrival: Arc<Arrival>,
}

impl ArrivingValues {
    /// Shows readers what will arrive for a request, until the returned value is dropped.
    pub(super) fn begin(&self, key: &Key) -> ArrivingValue<'_> {
        let arrival = Arc::default();
        let mut values = self.0.lock();
        // Without memory for a longer map, readers wait for the whole value.
        if values.try_reserve(1).is_ok() {
            values.insert(key.clone(), Arc::clone(&arrival));
        }
        drop(values);
        ArrivingValue {
            values: self,
            key: key.clone(),
            arrival,
        }
    }

    fn get(&self, key: &Key) -> Option<Arc<Arrival>> {
        self.0.lock().get(key).cloned()
    }

    /// Returns a copy of a range of a version of a value, if it has arrived and the rest has not.
    pub(super) fn arrived(
        &self,
        (key, version): (&Key, &Meta),
        range: Range<usize>,
    ) -> Option<ReadBuffer> {
        self.get(key)?.copy(version, range)
    }

    /// Awaits the load of a value. Returns a range of it instead, as soon as that has arrived, if it is of `version`;
    /// the load has not ended then.
    pub(super) async fn first_of<T>(
        &self,
        load: &mut (impl Future<Output = T> + Unpin),
        (key, version): (&Key, &Meta),
        range: Range<usize>,
    ) -> Either<T, ReadBuffer> {
        let mut read = None;
        let mut is_refused = false;
        poll_fn(|context| {
            // Sends the request, if none is in flight.
            if let Poll::Ready(loaded) = load.poll_unpin(context) {
                return Poll::Ready(Either::Left(loaded));
            }
            if read.is_none() && !is_refused {
                let range = range.clone();
                let arrival = self.get(key);
                read = arrival
                    .map(|arrival| async move { arrival.read(version, range).await }.boxed());
            }
            let Some(Poll::Ready(arrived)) = read.as_mut().map(|read| read.poll_unpin(context))
            else {
                return Poll::Pending;
            };
            (read, is_refused) = (None, true);
            arrived.map_or(Poll::Pending, |bytes| Poll::Ready(Either::Right(bytes)))
        })
        .await
    }

    /// Returns the keys of the values that arrive; `None` if there are none.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> Option<String> {
        let values = self.0.lock();
        let keys: Vec<String> = values.keys().map(|key| format!("{key:?}")).collect();
        (!keys.is_empty()).then(|| format!("arriving values: {}", keys.join(", ")))
    }
}

impl Drop for ArrivingValue<'_> {
    fn drop(&mut self) {
        let mut values = self.values.0.lock();
        let is_own = |arrival: &Arc<Arrival>| Arc::ptr_eq(arrival, &self.arrival);
        if values.get(&self.key).is_some_and(is_own) {
            values.remove(&self.key);
        }
    }
}
