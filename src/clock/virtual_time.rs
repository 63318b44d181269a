//! The clock in unit tests: that of the system, or the virtual one of this thread.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::{self, Duration, SystemTime};

thread_local! {
    /// The virtual time of this thread; `None` if it has the clock of the system.
    static NOW: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The time at the start of the virtual clock, in seconds since the epoch.
const EPOCH_SECONDS: u64 = 1_700_000_000;

/// A moment of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(time::Instant);

/// Returns the virtual time of this thread.
pub(crate) fn virtual_now() -> Option<Duration> {
    NOW.get()
}

/// Returns the time of the system at a virtual time.
pub(crate) fn system_time_at(now: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS) + now
}

/// Gives this thread a virtual clock.
pub(crate) fn start() {
    // A moment less some age is before the start.
    NOW.set(Some(Duration::from_secs(1_000_000)));
}

/// Gives this thread the clock of the system again.
pub(crate) fn stop() {
    NOW.set(None);
}

/// Sets the virtual clock to a later time.
pub(crate) fn advance_to(now: Duration) {
    assert!(NOW.get().is_some_and(|before| before <= now));
    NOW.set(Some(now));
}

fn base() -> time::Instant {
    static BASE: OnceLock<time::Instant> = OnceLock::new();
    *BASE.get_or_init(time::Instant::now)
}

impl Instant {
    /// Returns the present moment.
    pub fn now() -> Self {
        Self(match NOW.get() {
            Some(now) => base() + now,
            None => time::Instant::now(),
        })
    }

    /// As [`time::Instant::elapsed`].
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// As [`time::Instant::duration_since`].
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.duration_since(earlier.0)
    }

    /// As [`time::Instant::saturating_duration_since`].
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// As [`time::Instant::checked_duration_since`].
    pub fn checked_duration_since(&self, earlier: Self) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// As [`time::Instant::checked_add`].
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// As [`time::Instant::checked_sub`].
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}
