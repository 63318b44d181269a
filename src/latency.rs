//! Histograms of how long something took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper limits of the buckets, in microseconds; what takes longer is in a last one.
const LIMITS: [u64; 9] = [
    50, 250, 1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000,
];

/// Counts durations in buckets. Counting takes two atomic additions.
#[derive(Debug, Default)]
pub struct Latencies {
    buckets: [AtomicU64; LIMITS.len() + 1],
    micros: AtomicU64,
}

/// The counts of [`Latencies`] at one point in time.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LatencyCounts {
    /// The number of durations in each bucket.
    buckets: [u64; LIMITS.len() + 1],
    /// The sum of all durations in microseconds.
    micros: u64,
}

impl Latencies {
    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = LIMITS.partition_point(|limit| *limit < micros);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts {
            buckets: std::array::from_fn(|bucket| {
                let bucket = self.buckets.get(bucket);
                bucket.map_or(0, |count| count.load(Ordering::Relaxed))
            }),
            micros: self.micros.load(Ordering::Relaxed),
        }
    }
}

impl LatencyCounts {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations in seconds.
    pub fn seconds(&self) -> f64 {
        Duration::from_micros(self.micros).as_secs_f64()
    }

    /// Returns the upper limit of each bucket in seconds, except for the last one, with the number of durations that
    /// are not longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut total = 0;
        LIMITS.iter().zip(&self.buckets).map(move |(limit, count)| {
            total += count;
            (Duration::from_micros(*limit).as_secs_f64(), total)
        })
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
        self.micros = self.micros.saturating_add(other.micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_that_is_not_shorter() {
        let latencies = Latencies::default();
        for micros in [0, 50, 51, 1_000, 20_000_000] {
            latencies.record(Duration::from_micros(micros));
        }
        let mut counts = latencies.counts();
        let cumulative: Vec<(f64, u64)> = counts.cumulative().collect();
        assert_eq!(cumulative[..3], [(0.000_05, 2), (0.000_25, 3), (0.001, 4)]);
        assert_eq!(cumulative.last(), Some(&(10.0, 4)));
        assert_eq!(counts.count(), 5);
        assert!((counts.seconds() - 20.001_101).abs() < 1e-9);
        counts.add(&latencies.counts());
        assert_eq!(counts.count(), 10);
    }
}
