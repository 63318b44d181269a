//! How far a check is: a bar on a terminal, now and then a line anywhere else; both on standard
//! error.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::size;

/// Between two lines where there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Between two drawings of the bar while nothing happens.
const TICK: Duration = Duration::from_millis(200);
const TEMPLATE: &str = "[{elapsed_precise}] [{wide_bar:.}] {bytes}/{total_bytes} \
     ({bytes_per_sec}, {eta} left) {msg}";

/// Where nobody knows how much there is.
const ENDLESS: &str = "[{elapsed_precise}] {bytes} ({bytes_per_sec}) {msg}";

/// How far something is that has `total` keys and bytes, where that is known.
#[derive(Debug)]
pub(super) struct Progress {
    total: Option<Amount>,
    started: Instant,
    shown: Shown,
    done: Mutex<(Amount, Instant)>,
}

/// Keys of a source, and the bytes of their values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) keys: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines,
}

impl Progress {
    pub(super) fn new(total: Option<Amount>) -> Self {
        let shown = match io::stderr().is_terminal() {
            true => {
                let (bar, template) = match total {
                    Some(total) => (ProgressBar::new(total.bytes), TEMPLATE),
                    None => (ProgressBar::no_length(), ENDLESS),
                };
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.enable_steady_tick(TICK);
                Shown::Bar(bar)
            }
            false => Shown::Lines,
        };
        let now = Instant::now();
        Self {
            total,
            started: now,
            shown,
            done: Mutex::new((Amount::default(), now)),
        }
    }

    /// One more key is done, whose value has so many bytes.
    pub(super) fn advance(&self, bytes: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0.keys += 1;
        done.0.bytes = done.0.bytes.saturating_add(bytes);
        match &self.shown {
            Shown::Bar(bar) => bar.set_position(done.0.bytes),
            Shown::Lines if done.1.elapsed() >= LINE_EVERY => {
                done.1 = Instant::now();
                let line = self.line(done.0, self.started.elapsed());
                // Nobody needs to read it.
                let _ = writeln!(io::stderr(), "zarrfs: {line}");
            }
            Shown::Lines => {}
        }
    }

    fn line(&self, done: Amount, elapsed: Duration) -> String {
        let Some(total) = self.total else {
            return format!("{} keys, {}", done.keys, size(done.bytes));
        };
        let mut line = format!(
            "{} of {} keys, {} of {}",
            done.keys,
            total.keys.max(done.keys),
            size(done.bytes),
            size(total.bytes.max(done.bytes))
        );
        let left = u128::from(total.bytes.saturating_sub(done.bytes));
        if done.bytes > 0 {
            let seconds = elapsed.as_millis() * left / u128::from(done.bytes) / 1000;
            line.push_str(&format!(", {seconds} s left"));
        }
        line
    }

    /// Prints something while no bar is in the way.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(print),
            Shown::Lines => print(),
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_is_done_and_how_long_the_rest_takes() {
        let mut progress = Progress {
            total: Some(Amount {
                keys: 10,
                bytes: 4096,
            }),
            started: Instant::now(),
            shown: Shown::Lines,
            done: Mutex::new((Amount::default(), Instant::now())),
        };
        let nine = Duration::from_secs(9);
        let done = |keys, bytes| progress.line(Amount { keys, bytes }, nine);
        assert_eq!(done(3, 1024), "3 of 10 keys, 1.0 KiB of 4.0 KiB, 27 s left");
        assert_eq!(done(1, 0), "1 of 10 keys, 0 B of 4.0 KiB");
        // What was counted first may have grown.
        assert_eq!(
            done(11, 8192),
            "11 of 11 keys, 8.0 KiB of 8.0 KiB, 0 s left"
        );
        progress.total = None;
        let done = Amount {
            keys: 3,
            bytes: 1024,
        };
        assert_eq!(progress.line(done, nine), "3 keys, 1.0 KiB");
    }
}
