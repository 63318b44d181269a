//! Questions that are asked once, however many wait for the answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::StoreError;

/// Longer than anybody waits in one go.
const LONG: Duration = Duration::from_secs(3600);

type Answer<T> = Result<T, StoreError>;

/// Questions that are being asked now.
#[derive(Debug)]
pub struct Flights<K, T>(Mutex<HashMap<K, Arc<Flight<T>>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct Flight<T> {
    answer: Mutex<Option<Option<Answer<T>>>>,
    landed: Condvar,
}

/// What a caller has to do.
#[derive(Debug)]
pub(super) enum Claim<'a, K: Clone + Eq + Hash + Debug, T: Clone + Debug> {
    /// Ask, and tell the others.
    Lead(Lead<'a, K, T>),
    /// Wait for who asks.
    Follow(Arc<Flight<T>>),
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash + Debug, T: Clone + Debug> Flights<K, T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Flight<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lead on a question that nobody asks now.
    pub(super) fn claim(&self, question: K) -> Claim<'_, K, T> {
        match self.lock().entry(question.clone()) {
            Entry::Occupied(flight) => Claim::Follow(Arc::clone(flight.get())),
            Entry::Vacant(place) => {
                let flight = Arc::new(Flight {
                    answer: Mutex::default(),
                    landed: Condvar::new(),
                });
                place.insert(Arc::clone(&flight));
                Claim::Lead(Lead {
                    flights: self,
                    question,
                    flight,
                    answer: None,
                })
            }
        }
    }

    /// The answer of who asks already, however long that takes, or else that of `ask`.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn once(&self, question: K, ask: impl FnOnce() -> Answer<T>) -> Answer<T> {
        loop {
            match self.claim(question.clone()) {
                Claim::Lead(lead) => return lead.tell(ask()),
                Claim::Follow(flight) => {
                    if let Some(Some(answer)) = flight.wait(Instant::now() + LONG) {
                        return answer;
                    }
                }
            }
        }
    }

    /// The answer of who asks already, or else that of `ask`. None if it did not come in time.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn answer(
        &self,
        question: K,
        deadline: Instant,
        ask: impl FnOnce() -> Answer<T>,
    ) -> Option<Answer<T>> {
        loop {
            match self.claim(question.clone()) {
                Claim::Lead(lead) => return Some(lead.tell(ask())),
                Claim::Follow(flight) => {
                    if let Some(answer) = flight.wait(deadline)? {
                        return Some(answer);
                    }
                    // Who asked is gone without a word: somebody else may.
                }
            }
        }
    }
}

impl<T: Clone> Flight<T> {
    /// Waits for the answer; the inner none says that there will be none. None at the deadline.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Option<Answer<T>>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, _) = self
            .landed
            .wait_timeout_while(answer, left, |answer| answer.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        answer.clone()
    }
}

/// The duty to ask. Dropped without an answer it lets somebody else ask.
#[derive(Debug)]
pub(super) struct Lead<'a, K: Clone + Eq + Hash + Debug, T: Clone + Debug> {
    flights: &'a Flights<K, T>,
    question: K,
    flight: Arc<Flight<T>>,
    answer: Option<Answer<T>>,
}

impl<K: Clone + Eq + Hash + Debug, T: Clone + Debug> Lead<'_, K, T> {
    /// What is asked.
    pub(super) fn question(&self) -> &K {
        &self.question
    }

    /// Tells those who wait.
    pub(super) fn tell(mut self, answer: Answer<T>) -> Answer<T> {
        self.answer = Some(answer.clone());
        answer
    }
}

impl<K: Clone + Eq + Hash + Debug, T: Clone + Debug> Drop for Lead<'_, K, T> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.question);
        let answer = self.answer.take();
        *self
            .flight
            .answer
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.flight.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn many_who_ask_the_same_get_one_answer() {
        let flights: Flights<u32, u32> = Flights::default();
        let asked = AtomicUsize::new(0);
        let soon = Instant::now() + Duration::from_secs(10);
        let barrier = std::sync::Barrier::new(16);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    barrier.wait();
                    let answer = flights.answer(1, soon, || {
                        std::thread::sleep(Duration::from_millis(200));
                        asked.fetch_add(1, Ordering::SeqCst);
                        Ok(7)
                    });
                    assert_eq!(answer.unwrap().unwrap(), 7);
                });
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(flights.lock().is_empty());
    }

    #[test]
    fn who_leads_and_panics_lets_another_one_lead() {
        let flights: Flights<u32, u32> = Flights::default();
        let soon = Instant::now() + Duration::from_secs(10);
        std::thread::scope(|scope| {
            let Claim::Lead(lead) = flights.claim(1) else {
                panic!("nobody asks yet");
            };
            let follower = scope.spawn(|| flights.answer(1, soon, || Ok(8)));
            std::thread::sleep(Duration::from_millis(50));
            drop(lead);
            assert_eq!(follower.join().unwrap().unwrap().unwrap(), 8);
        });
    }

    #[test]
    fn nobody_waits_past_the_deadline() {
        let flights: Flights<u32, u32> = Flights::default();
        let _lead = flights.claim(1);
        let soon = Instant::now() + Duration::from_millis(50);
        assert!(flights.answer(1, soon, || Ok(1)).is_none());
    }
}
