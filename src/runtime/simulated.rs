//! An executor for simulations: one thread runs all tasks and jobs, with a virtual clock.
//!
//! While a [`Simulation`] exists, the functions of [`super`] on its thread use its queue in place of the CPU pool and the
//! network runtime. Which ready task runs next, how long jobs take, and all random numbers follow from the seed. If no
//! task is ready, the clock is set to the next timer, so that time passes only where everything waits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_task::{Runnable, Task};

use super::IS_CPU_THREAD;
use crate::clock;

/// A bug that a simulation has to find: code under test asks [`is_mutated`] where it was once wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The rest of a response that broke off is requested in any version.
    MixedVersions,
    /// A listing ends with its first page.
    FirstPageOnly,
    /// A failed request keeps its permit.
    LeakedPermit,
    /// The checksum of a block of the disk cache is not compared.
    UncheckedBlock,
}

/// A simulation on this thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Simulation(());

/// Work that is ready to run.
enum Work {
    /// A task of the CPU pool.
    Task(Runnable),
    /// A task of the network runtime.
    Network(Runnable),
    /// A job of the CPU pool.
    Job(Box<dyn FnOnce()>),
}

/// What happens at a time.
enum Event {
    Wake(Waker),
    Work(Work),
}

struct State {
    random: u64,
    ready: Vec<Work>,
    /// Events by time and number.
    timers: BTreeMap<(Duration, u64), Event>,
    timers_started: u64,
    mutation: Option<Mutation>,
    trace: Vec<String>,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// One of this number of jobs takes time.
const SLOW_JOBS: u64 = 4;
/// The longest time of a job in microseconds.
const SLOWEST_JOB_MICROS: u64 = 20_000;

fn with<T>(use_state: impl FnOnce(&mut State) -> T) -> Option<T> {
    STATE.with_borrow_mut(|state| state.as_mut().map(use_state))
}

/// Returns whether this thread runs a simulation.
pub(crate) fn is_running() -> bool {
    STATE.with_borrow(Option::is_some)
}

/// Returns whether the simulation of this thread has a bug.
pub(crate) fn is_mutated(mutation: Mutation) -> bool {
    with(|state| state.mutation == Some(mutation)).unwrap_or(false)
}

/// Returns the next random number of the seed.
pub(crate) fn random() -> u64 {
    with(State::next_random).unwrap_or(0)
}

/// Returns a random number below `bound`.
pub(crate) fn below(bound: u64) -> u64 {
    random() % bound.max(1)
}

/// Appends a line with the time to the trace.
pub(crate) fn record(text: impl AsRef<str>) {
    let now = clock::virtual_now().unwrap_or_default();
    with(|state| {
        let line = format!("{:.6} {}", now.as_secs_f64() - 1_000_000.0, text.as_ref());
        state.trace.push(line);
    });
}

pub(super) fn run(job: impl FnOnce() + Send + 'static) {
    with(|state| {
        let work = Work::Job(Box::new(job));
        if state.next_random() % SLOW_JOBS > 0 {
            return state.ready.push(work);
        }
        let micros = state.next_random() % SLOWEST_JOB_MICROS;
        let at = clock::virtual_now().unwrap_or_default() + Duration::from_micros(micros);
        state.add_timer(at, Event::Work(work));
    });
}

pub(super) fn schedule(runnable: Runnable) {
    with(|state| state.ready.push(Work::Task(runnable)));
}

pub(super) fn on_network<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Task<T> {
    let schedule = |runnable| {
        with(|state| state.ready.push(Work::Network(runnable)));
    };
    let (runnable, task) = async_task::spawn(future, schedule);
    runnable.schedule();
    task
}

pub(super) async fn timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let now = clock::virtual_now().unwrap_or_default();
    let mut timer = Timer {
        at: now.saturating_add(limit),
        number: None,
    };
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        Pin::new(&mut timer).poll(context).map(|()| None)
    })
    .await
}

/// Polls a future as a session thread does: once here, and later as a task.
pub(crate) fn spawn_on_session_thread(
    future: impl Future<Output = ()> + Send + 'static,
) -> Task<()> {
    let is_cpu_thread = IS_CPU_THREAD.replace(false);
    let task = super::spawn_polled(future);
    IS_CPU_THREAD.set(is_cpu_thread);
    task
}

struct Timer {
    at: Duration,
    number: Option<u64>,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::virtual_now().is_none_or(|now| now >= self.at) {
            return Poll::Ready(());
        }
        let (at, waker) = (self.at, Event::Wake(context.waker().clone()));
        match self.number {
            Some(number) => {
                with(|state| state.timers.insert((at, number), waker));
            }
            None => self.number = with(|state| state.add_timer(at, waker)),
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let removed = with(|state| state.timers.remove(&(self.at, number)));
        drop(removed);
    }
}

impl State {
    /// SplitMix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn add_timer(&mut self, at: Duration, event: Event) -> u64 {
        self.timers_started += 1;
        self.timers.insert((at, self.timers_started), event);
        self.timers_started
    }

    fn next_ready(&mut self) -> Option<Work> {
        let count = self.ready.len() as u64;
        let index = usize::try_from(self.next_random() % count.max(1)).unwrap_or(0);
        (count > 0).then(|| self.ready.swap_remove(index))
    }
}

impl Simulation {
    /// Makes this thread the executor of a simulation.
    pub(crate) fn start(seed: u64, mutation: Option<Mutation>) -> Self {
        assert!(!is_running(), "a simulation in a simulation");
        clock::start();
        let state = State {
            random: seed,
            ready: Vec::new(),
            timers: BTreeMap::new(),
            timers_started: 0,
            mutation,
            trace: Vec::new(),
        };
        STATE.set(Some(state));
        Self(())
    }

    /// Runs everything that is ready, or else the timers of the next time up to `until`. Returns whether anything ran.
    fn step(&self, until: Duration) -> bool {
        if let Some(work) = with(State::next_ready).flatten() {
            IS_CPU_THREAD.set(!matches!(work, Work::Network(_)));
            match work {
                Work::Task(runnable) | Work::Network(runnable) => drop(runnable.run()),
                Work::Job(job) => job(),
            }
            IS_CPU_THREAD.set(false);
            return true;
        }
        let next = with(|state| {
            let entry = state.timers.first_entry()?;
            (entry.key().0 <= until).then(|| {
                let ((at, _), event) = entry.remove_entry();
                (at, event)
            })
        });
        let Some((at, event)) = next.flatten() else {
            return false;
        };
        clock::advance_to(at.max(clock::virtual_now().unwrap_or_default()));
        match event {
            Event::Wake(waker) => waker.wake(),
            Event::Work(work) => drop(with(|state| state.ready.push(work))),
        }
        true
    }

    /// Runs the simulation until a future is ready.
    ///
    /// # Panics
    /// If the future waits for nothing that happens.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let mut task = super::spawn(future);
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(value) = Pin::new(&mut task).poll(&mut context) {
                return value;
            }
            assert!(
                self.step(Duration::MAX),
                "all tasks wait for each other, or for a wake that was lost"
            );
        }
    }

    /// Runs the simulation for `time`; returns whether nothing is left that would happen later.
    pub(crate) fn settle(&self, time: Duration) -> bool {
        let until = clock::virtual_now().unwrap_or_default() + time;
        while self.step(until) {}
        clock::advance_to(until);
        with(|state| state.timers.is_empty()).unwrap_or(true)
    }

    /// Returns the lines that were recorded so far.
    pub(crate) fn trace(&self) -> Vec<String> {
        with(|state| state.trace.clone()).unwrap_or_default()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Futures and wakers that are dropped here schedule others, which are dropped in turn.
        let next = || {
            let work = with(|state| state.ready.pop()).flatten();
            let timer = || with(|state| state.timers.pop_first()).flatten();
            work.map(Event::Work).or_else(|| Some(timer()?.1))
        };
        while let Some(left) = next() {
            drop(left);
        }
        STATE.set(None);
        clock::stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Instant;
    use crate::runtime::{self, Priority};

    fn order_of(seed: u64) -> Vec<String> {
        let simulation = Simulation::start(seed, None);
        simulation.block_on(async {
            let begun = Instant::now();
            let tasks: Vec<_> = (0..8_u64)
                .map(|number| {
                    runtime::spawn(async move {
                        runtime::sleep(Duration::from_secs(below(100))).await;
                        let job = runtime::compute(Priority::Demand, move || number);
                        record(format!("{:?}", job.await));
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            let late = runtime::timeout(Duration::from_secs(3600), std::future::pending::<()>());
            assert_eq!(late.await, None);
            assert!(begun.elapsed() >= Duration::from_secs(3600));
        });
        assert!(simulation.settle(Duration::from_secs(1)));
        simulation.trace()
    }

    #[test]
    fn the_order_and_the_time_of_all_tasks_follow_from_the_seed() {
        let real = std::time::Instant::now();
        assert_eq!(order_of(1), order_of(1));
        assert_ne!(order_of(1), order_of(2));
        assert!(real.elapsed() < Duration::from_secs(600));
    }
}
