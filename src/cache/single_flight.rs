//! Single flight: concurrent callers that need the same value share one load.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use hashbrown::HashMap;

use crate::sync::Mutex;

/// Loads in flight, by key.
///
/// A load runs as long as a caller waits for it. If the last waiter is dropped, the load is dropped
/// too. The result of a completed load is not stored.
pub struct SingleFlight<K, V, E>(Mutex<InFlightLoads<K, V, E>>);

struct InFlightLoads<K, V, E> {
    by_key: HashMap<K, InFlightLoad<V, E>>,
    /// The number of loads that were started.
    started: u64,
}

type Load<V, E> = Shared<BoxFuture<'static, Result<V, E>>>;

/// A load, and the number of callers that wait for it.
struct InFlightLoad<V, E> {
    /// Identifies the load: a later one can have the same key.
    number: u64,
    load: Load<V, E>,
    waiters: usize,
}

impl<K, V, E> Default for SingleFlight<K, V, E> {
    fn default() -> Self {
        Self(Mutex::new(InFlightLoads {
            by_key: HashMap::new(),
            started: 0,
        }))
    }
}

impl<K, V, E> fmt::Debug for SingleFlight<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SingleFlight({} loads)", self.0.lock().by_key.len())
    }
}

#[cfg(test)]
impl<K: fmt::Debug, V, E> SingleFlight<K, V, E> {
    /// Returns the loads in flight; `None` if there are none.
    pub(crate) fn in_use(&self, what: &str) -> Option<String> {
        let loads = self.0.lock();
        let keys: Vec<String> = loads.by_key.keys().map(|key| format!("{key:?}")).collect();
        (!keys.is_empty()).then(|| format!("loads of {what}: {}", keys.join(", ")))
    }
}

/// A caller that waits for a load. Dropping the last waiter of a load ends the load.
#[derive(Debug)]
#[must_use = "a load runs only while it is awaited"]
pub struct Waiter<'a, K: Eq + Hash, V: Clone, E: Clone> {
    loads: &'a SingleFlight<K, V, E>,
    key: K,
    number: u64,
    load: Load<V, E>,
}

impl<K: Eq + Hash + Unpin, V: Clone, E: Clone> Future for Waiter<'_, K, V, E> {
    type Output = Result<V, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.load.poll_unpin(context)
    }
}

impl<K: Eq + Hash, V: Clone, E: Clone> Drop for Waiter<'_, K, V, E> {
    fn drop(&mut self) {
        // Dropped after the lock: a load may itself wait for another load of the same map.
        let _ended = self.loads.leave(&self.key, self.number);
    }
}

impl<K: Eq + Hash, V: Clone, E: Clone> SingleFlight<K, V, E> {
    /// Counts one waiter less, and returns the load if that was the last one.
    fn leave(&self, key: &K, number: u64) -> Option<InFlightLoad<V, E>> {
        let mut loads = self.0.lock();
        let in_flight = loads.by_key.get_mut(key);
        let in_flight = in_flight.filter(|in_flight| in_flight.number == number)?;
        in_flight.waiters -= 1;
        match in_flight.waiters {
            0 => loads.by_key.remove(key),
            _ => None,
        }
    }
}

impl<K, V, E> SingleFlight<K, V, E>
where
    K: Clone + Eq + Hash + Unpin,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Awaits the load of a key in flight, or else starts `load`. A load that panics returns
    /// `panicked`.
    ///
    /// # Errors
    /// The errors of the load.
    pub async fn run<F>(&self, key: K, load: impl FnOnce() -> F, panicked: E) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>> + Send + 'static,
    {
        let (waiter, completed) = {
            let mut loads = self.0.lock();
            match self.join(&mut loads, &key) {
                Some(waiter) => (waiter, None),
                None => self.start(&mut loads, &key, load(), panicked),
            }
        };
        drop(completed);
        waiter.await
    }

    /// Waits for several keys, whose loads can be grouped. `start` gets the indexes of the keys
    /// that are not in flight, and returns groups of them, each with a load that returns the values
    /// of its group in order.
    pub fn run_groups<F>(
        &self,
        keys: &[K],
        start: impl FnOnce(Vec<usize>) -> Vec<(Vec<usize>, F)>,
        panicked: E,
    ) -> Vec<Waiter<'_, K, V, E>>
    where
        F: Future<Output = Result<Vec<V>, E>> + Send + 'static,
    {
        let mut completed = Vec::new();
        let mut loads = self.0.lock();
        let mut waiters: Vec<_> = keys.iter().map(|key| self.join(&mut loads, key)).collect();
        let idle = (0..keys.len()).filter(|index| waiters.get(*index).is_some_and(Option::is_none));
        for (group, load) in start(idle.collect()) {
            let group_load = load.boxed().shared();
            for (place, index) in group.into_iter().enumerate() {
                let (load, missing) = (group_load.clone(), panicked.clone());
                let own = async move {
                    let values: Vec<V> = load.await?;
                    values.into_iter().nth(place).ok_or(missing)
                };
                if let (Some(key), Some(slot)) = (keys.get(index), waiters.get_mut(index)) {
                    let (waiter, old) = self.start(&mut loads, key, own, panicked.clone());
                    *slot = Some(waiter);
                    completed.push(old);
                }
            }
        }
        drop(loads);
        waiters.into_iter().flatten().collect()
    }

    /// Waits for the load of a key, if one is in flight.
    fn join(&self, loads: &mut InFlightLoads<K, V, E>, key: &K) -> Option<Waiter<'_, K, V, E>> {
        let in_flight = loads.by_key.get_mut(key)?;
        if in_flight.load.peek().is_some() {
            return None;
        }
        in_flight.waiters += 1;
        Some(self.waiter(key, in_flight))
    }

    /// Starts the load of a key. Also returns the completed load of the key before it, whose waiters have not
    /// been dropped yet; it is to be dropped after the lock.
    fn start(
        &self,
        loads: &mut InFlightLoads<K, V, E>,
        key: &K,
        load: impl Future<Output = Result<V, E>> + Send + 'static,
        panicked: E,
    ) -> (Waiter<'_, K, V, E>, Option<InFlightLoad<V, E>>) {
        let guarded = AssertUnwindSafe(load).catch_unwind();
        let load = guarded.map(|result| result.unwrap_or(Err(panicked)));
        loads.started += 1;
        let in_flight = InFlightLoad {
            number: loads.started,
            load: load.boxed().shared(),
            waiters: 1,
        };
        let waiter = self.waiter(key, &in_flight);
        // Without memory for a longer map, no other caller shares the load.
        let completed = match loads.by_key.try_reserve(1) {
            Ok(()) => loads.by_key.insert(key.clone(), in_flight),
            Err(_) => None,
        };
        (waiter, completed)
    }

    fn waiter(&self, key: &K, in_flight: &InFlightLoad<V, E>) -> Waiter<'_, K, V, E> {
        Waiter {
            loads: self,
            key: key.clone(),
            number: in_flight.number,
            load: in_flight.load.clone(),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use futures_util::future::{join, join_all, pending};
    use tokio::sync::oneshot;

    use crate::runtime::{block_on, spawn_polled};

    type Loads = SingleFlight<u8, u32, &'static str>;

    #[test]
    fn many_callers_share_one_load_and_its_failure() {
        let (loads, count) = (Loads::default(), Arc::new(AtomicUsize::new(0)));
        for expected in [Ok(7), Err("no")] {
            let (open, gate) = oneshot::channel::<()>();
            let gate = gate.shared();
            let callers = (0..8).map(|_| {
                let (count, gate) = (Arc::clone(&count), gate.clone());
                let load = move || async move {
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = gate.await;
                    expected
                };
                loads.run(1, load, "panicked")
            });
            let opener = async { open.send(()) };
            let (results, _) = block_on(join(join_all(callers), opener));
            assert_eq!(results, [expected; 8]);
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert!(loads.0.lock().by_key.is_empty());
    }

    #[test]
    fn a_load_continues_while_it_has_waiters_and_is_dropped_with_the_last_one() {
        let loads = Arc::new(Loads::default());
        let (mut alive, done) = oneshot::channel::<u32>();
        let (own, other) = (Arc::clone(&loads), Arc::clone(&loads));
        let first = spawn_polled(async move {
            let _ = own
                .run(1, || async { done.await.map_err(|_| "") }, "")
                .await;
        });
        let second = spawn_polled(async move {
            let _ = other.run(1, || async { Ok(0) }, "").await;
        });
        drop(first);
        assert!(!alive.is_closed());
        drop(second);
        block_on(alive.closed());
        assert_eq!(block_on(loads.run(1, || async { Ok(3) }, "")), Ok(3));
        assert!(loads.0.lock().by_key.is_empty());
    }

    /// A load that waits for another one of the same map ends while the first one's waiters are dropped.
    #[test]
    fn a_load_that_waits_for_another_one_is_dropped_without_the_lock() {
        for _ in 0..200 {
            let loads = Arc::new(Loads::default());
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let (outer, inner) = (Arc::clone(&loads), Arc::clone(&loads));
                    Box::pin(async move {
                        let load = || async move { inner.run(2, pending, "").await };
                        outer.run(1, load, "").await
                    })
                })
                .collect();
            let mut waiters = waiters.into_iter();
            let (mut first, mut second) = (waiters.next().unwrap(), waiters.next().unwrap());
            assert!((&mut first).now_or_never().is_none());
            assert!((&mut second).now_or_never().is_none());
            let other = thread::spawn(move || drop(first));
            drop(second);
            other.join().unwrap();
            assert!(loads.0.lock().by_key.is_empty());
        }
    }

    #[test]
    fn a_panic_is_an_error_of_all_waiters() {
        let loads = Loads::default();
        let load = || async { panic!("as a bug would") };
        assert_eq!(block_on(loads.run(1, load, "panicked")), Err("panicked"));
    }
}
