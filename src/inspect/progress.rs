//! The progress of a command on standard error: a bar on a terminal. Without a terminal, a check
//! prints a line every few seconds.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::size;
use crate::sync::Mutex;

/// The time between two progress lines.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The time between two updates of the bar, if no key is completed.
const TICK: Duration = Duration::from_millis(200);
const TEMPLATE: &str = "[{elapsed_precise}] [{wide_bar:.}] {bytes}/{total_bytes} \
     ({bytes_per_sec}, {eta} left) {msg}";
/// The template for an unknown total.
const ENDLESS: &str = "[{elapsed_precise}] {bytes} ({bytes_per_sec}) {msg}";

/// A number of keys, and the bytes of their values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) keys: u64,
    pub(super) bytes: u64,
}

/// The progress of a file that is written: a bar on a terminal.
#[derive(Debug)]
pub(crate) struct Transfer(ProgressBar);

impl Transfer {
    /// Starts the progress of a file of `total` bytes, of which `done` bytes are already written.
    pub(crate) fn new(total: u64, done: u64) -> Self {
        let bar = styled(ProgressBar::new(total), TEMPLATE);
        bar.set_position(done);
        bar.reset_eta();
        Self(bar)
    }

    /// Counts written bytes.
    pub(crate) fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// The progress of a check with an optional total.
#[derive(Debug)]
pub(super) struct Progress {
    total: Option<Amount>,
    /// The bar, which is hidden if standard error is not a terminal.
    bar: ProgressBar,
    /// The completed amount, and the time of the last line.
    done: Mutex<(Amount, Instant)>,
}

impl Progress {
    pub(super) fn new(total: Option<Amount>) -> Self {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total.bytes), TEMPLATE),
            None => (ProgressBar::no_length(), ENDLESS),
        };
        Self {
            total,
            bar: styled(bar, template),
            done: Mutex::new((Amount::default(), Instant::now())),
        }
    }

    /// Counts one key with a value of `bytes`.
    pub(super) fn advance(&self, bytes: u64) {
        let mut done = self.done.lock();
        let (amount, last_line) = &mut *done;
        amount.keys += 1;
        amount.bytes = amount.bytes.saturating_add(bytes);
        self.bar.set_position(amount.bytes);
        if self.bar.is_hidden() && last_line.elapsed() >= LINE_EVERY {
            *last_line = Instant::now();
            let line = line(*amount, self.total, self.bar.eta());
            // Ignored, because a check continues without its progress.
            let _ = writeln!(io::stderr(), "zarrfs: {line}");
        }
    }

    /// Calls `print` while the bar is hidden.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(done: Amount, total: Option<Amount>, remaining: Duration) -> String {
    let Some(total) = total else {
        return format!("{} keys, {}", done.keys, size(done.bytes));
    };
    // The source may have grown since it was counted.
    let (keys, bytes) = (total.keys.max(done.keys), total.bytes.max(done.bytes));
    let remaining = match done.bytes {
        0 => String::new(),
        _ => format!(", {} s left", remaining.as_secs()),
    };
    let (done_size, total_size) = (size(done.bytes), size(bytes));
    format!(
        "{} of {keys} keys, {done_size} of {total_size}{remaining}",
        done.keys
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_finished_chunks_the_total_and_the_remaining_time() {
        let amount = |keys, bytes| Amount { keys, bytes };
        let total = Some(amount(10, 4096));
        let line = |done, total| line(done, total, Duration::from_secs(27));
        assert_eq!(
            line(amount(3, 1024), total),
            "3 of 10 keys, 1.0 KiB of 4.0 KiB, 27 s left"
        );
        assert_eq!(line(amount(1, 0), total), "1 of 10 keys, 0 B of 4.0 KiB");
        assert_eq!(
            line(amount(11, 8192), total),
            "11 of 11 keys, 8.0 KiB of 8.0 KiB, 27 s left"
        );
        assert_eq!(line(amount(3, 1024), None), "3 keys, 1.0 KiB");
    }
}
