//! The clock of deadlines and caches.
//!
//! All modules below `fuse` that a simulation runs measure time with this [`Instant`]. A build without tests has that of
//! the standard library. In unit tests, the clock of a thread that runs a simulation
//! (`runtime::simulated`) stands still, except where the simulation advances it.

#[cfg(test)]
mod virtual_time;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

#[cfg(not(test))]
pub use std::time::Instant;
#[cfg(test)]
pub use virtual_time::Instant;
#[cfg(test)]
pub(crate) use virtual_time::{advance_to, start, stop, system_time_at, virtual_now};

/// Returns the time since the first call in this process.
pub fn uptime() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    #[cfg(test)]
    if let Some(now) = virtual_now() {
        return now;
    }
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// Returns the time of the clock of the system, with which files are dated; in a simulation, that of the virtual clock.
pub fn system_time() -> SystemTime {
    #[cfg(test)]
    if let Some(now) = virtual_now() {
        return system_time_at(now);
    }
    SystemTime::now()
}
