//! Single flight: concurrent callers that need the same value share one load.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use hashbrown::HashMap;

use crate::sync::Mutex;

/// Loads in flight, by key.
///
/// A load runs as long as a caller waits for it. If the last waiter is dropped, the load is dropped
/// too. The result of a completed load is not stored.
pub struct SingleFlight<K, V, E>(Mutex<HashMap<K, Flight<V, E>>>);

type Load<V, E> = BoxFuture<'static, Result<V, E>>;
type Flight<V, E> = WeakShared<Load<V, E>>;

impl<K, V, E> Default for SingleFlight<K, V, E> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, V, E> fmt::Debug for SingleFlight<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SingleFlight({} loads)", self.0.lock().len())
    }
}

/// A caller that waits for a load. Dropping the last waiter of a load ends the load.
#[derive(Debug)]
#[must_use = "a load runs only while it is awaited"]
pub struct Waiter<'a, K: Eq + Hash, V: Clone, E: Clone> {
    loads: &'a SingleFlight<K, V, E>,
    key: K,
    load: Option<Shared<Load<V, E>>>,
}

impl<K: Eq + Hash + Unpin, V: Clone, E: Clone> Future for Waiter<'_, K, V, E> {
    type Output = Result<V, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.load {
            Some(load) => load.poll_unpin(context),
            None => unreachable!("the load is taken only when the waiter is dropped"),
        }
    }
}

impl<K: Eq + Hash, V: Clone, E: Clone> Drop for Waiter<'_, K, V, E> {
    fn drop(&mut self) {
        self.load = None;
        let mut loads = self.loads.0.lock();
        if loads
            .get(&self.key)
            .is_some_and(|load| load.upgrade().is_none())
        {
            loads.remove(&self.key);
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
        let waiter = {
            let mut loads = self.0.lock();
            let running = in_flight(&loads, &key);
            let load = running.unwrap_or_else(|| insert(&mut loads, &key, load(), panicked));
            self.waiter(key, load)
        };
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
        let mut loads = self.0.lock();
        let mut running: Vec<_> = keys.iter().map(|key| in_flight(&loads, key)).collect();
        let idle = (0..keys.len()).filter(|index| running.get(*index).is_some_and(Option::is_none));
        for (group, load) in start(idle.collect()) {
            let group_load = load.boxed().shared();
            for (place, index) in group.into_iter().enumerate() {
                let (load, missing) = (group_load.clone(), panicked.clone());
                let own = async move {
                    let values: Vec<V> = load.await?;
                    values.into_iter().nth(place).ok_or(missing)
                };
                if let (Some(key), Some(slot)) = (keys.get(index), running.get_mut(index)) {
                    *slot = Some(insert(&mut loads, key, own, panicked.clone()));
                }
            }
        }
        drop(loads);
        let waiters = keys.iter().cloned().zip(running);
        waiters
            .filter_map(|(key, load)| Some(self.waiter(key, load?)))
            .collect()
    }

    fn waiter(&self, key: K, load: Shared<Load<V, E>>) -> Waiter<'_, K, V, E> {
        Waiter {
            loads: self,
            key,
            load: Some(load),
        }
    }
}

/// Returns the load of a key, if it has not completed.
fn in_flight<K: Eq + Hash, V: Clone, E: Clone>(
    loads: &HashMap<K, Flight<V, E>>,
    key: &K,
) -> Option<Shared<Load<V, E>>> {
    let load = loads.get(key)?.upgrade()?;
    load.peek().is_none().then_some(load)
}

fn insert<K, V, E>(
    loads: &mut HashMap<K, Flight<V, E>>,
    key: &K,
    load: impl Future<Output = Result<V, E>> + Send + 'static,
    panicked: E,
) -> Shared<Load<V, E>>
where
    K: Clone + Eq + Hash,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    let guarded = AssertUnwindSafe(load).catch_unwind();
    let load = guarded.map(|result| result.unwrap_or(Err(panicked)));
    let load = load.boxed().shared();
    if let Some(weak) = load.downgrade() {
        loads.insert(key.clone(), weak);
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{join, join_all};
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
        assert!(loads.0.lock().is_empty());
    }

    #[test]
    fn a_load_goes_on_while_a_waiter_is_left_and_is_dropped_with_the_last_one() {
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
        assert!(loads.0.lock().is_empty());
    }

    #[test]
    fn a_panic_is_an_error_of_all_waiters() {
        let loads = Loads::default();
        let load = || async { panic!("as a bug would") };
        assert_eq!(block_on(loads.run(1, load, "panicked")), Err("panicked"));
    }
}
