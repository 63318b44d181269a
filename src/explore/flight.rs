//! One question at a time: who asks what another thread is asking already waits for its answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Questions that are being asked.
#[derive(Debug)]
pub(super) struct Flights<Q, A> {
    running: Mutex<HashMap<Q, Arc<Flight<A>>>>,
}

#[derive(Debug)]
struct Flight<A> {
    answer: Mutex<Option<A>>,
    landed: Condvar,
}

/// Answers when the thread that asks is through, also by a panic.
struct Landing<'a, Q: Hash + Eq, A> {
    flights: &'a Flights<Q, A>,
    question: &'a Q,
    flight: &'a Flight<A>,
    answer: Option<A>,
    on_panic: fn(&Q) -> A,
}

impl<Q: Hash + Eq, A> Drop for Landing<'_, Q, A> {
    fn drop(&mut self) {
        lock(&self.flights.running).remove(self.question);
        let answer = self.answer.take();
        let answer = answer.unwrap_or_else(|| (self.on_panic)(self.question));
        *lock(&self.flight.answer) = Some(answer);
        self.flight.landed.notify_all();
    }
}

impl<Q: Hash + Eq + Clone + Debug, A: Clone> Flights<Q, A> {
    pub(super) fn new() -> Self {
        Self {
            running: Mutex::default(),
        }
    }

    /// The answer of `ask`, or of another thread that is asking the same.
    pub(super) fn ask(&self, question: &Q, on_panic: fn(&Q) -> A, ask: impl FnOnce() -> A) -> A {
        let flight = match lock(&self.running).entry(question.clone()) {
            Entry::Occupied(flight) => Err(Arc::clone(flight.get())),
            Entry::Vacant(place) => {
                let flight = Flight {
                    answer: Mutex::new(None),
                    landed: Condvar::new(),
                };
                Ok(Arc::clone(place.insert(Arc::new(flight))))
            }
        };
        match flight {
            Err(flight) => {
                let mut answer = lock(&flight.answer);
                loop {
                    if let Some(answer) = &*answer {
                        return answer.clone();
                    }
                    let woken = flight.landed.wait(answer);
                    answer = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
            Ok(flight) => {
                let mut landing = Landing {
                    flights: self,
                    question,
                    flight: &flight,
                    answer: None,
                    on_panic,
                };
                let answer = ask();
                landing.answer = Some(answer.clone());
                answer
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn threads_that_ask_the_same_ask_once() {
        let flights = Flights::<u8, u32>::new();
        let asked = AtomicU32::new(0);
        let ask = || {
            thread::sleep(Duration::from_millis(100));
            asked.fetch_add(1, Ordering::Relaxed) + 1
        };
        thread::scope(|scope| {
            let asking: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| flights.ask(&1, |_| 0, ask)))
                .collect();
            for thread in asking {
                assert!(thread.join().unwrap() > 0);
            }
        });
        assert!(asked.load(Ordering::Relaxed) < 8);
        assert!(lock(&flights.running).is_empty());
    }

    #[test]
    fn a_panic_is_an_answer_to_those_who_wait() {
        let flights = Flights::<u8, u32>::new();
        thread::scope(|scope| {
            let bug = scope.spawn(|| {
                flights.ask(
                    &1,
                    |_| 7,
                    || {
                        thread::sleep(Duration::from_millis(100));
                        panic!("as a bug would")
                    },
                )
            });
            while lock(&flights.running).is_empty() {
                thread::yield_now();
            }
            assert_eq!(flights.ask(&1, |_| 0, || 1), 7);
            assert!(bug.join().is_err());
        });
        assert_eq!(flights.ask(&1, |_| 0, || 1), 1);
    }
}
