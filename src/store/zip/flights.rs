//! Work that several readers wait for is done once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::store::{Position, StoreError};

type Bytes = Result<Arc<Vec<u8>>, StoreError>;

/// Entries that are being decoded, each by the first who asked.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<Position, Arc<OnceLock<Bytes>>>>);

impl Flights {
    /// What `make` makes of an entry; who asks in the meantime gets the same, also if it fails.
    pub(super) fn once(&self, entry: Position, make: impl FnOnce() -> Bytes) -> Bytes {
        let flight = Arc::clone(self.lock().entry(entry).or_default());
        let made = flight.get_or_init(make).clone();
        let mut flights = self.lock();
        if flights
            .get(&entry)
            .is_some_and(|it| Arc::ptr_eq(it, &flight))
        {
            flights.remove(&entry);
        }
        made
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Position, Arc<OnceLock<Bytes>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_asks_meanwhile_gets_the_same_and_later_it_is_made_anew() {
        let (flights, made) = (Flights::default(), AtomicUsize::new(0));
        let ask = || {
            flights.once(Position(7), || {
                made.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(300));
                Ok(Arc::new(vec![1]))
            })
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            for one in all {
                assert_eq!(*one.join().unwrap().unwrap(), [1]);
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert!(ask().is_ok() && flights.lock().is_empty());
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
