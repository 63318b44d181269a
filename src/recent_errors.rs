//! The last failed requests of a mount, for `errors.txt` and `zarrfs stats`.

use std::collections::VecDeque;
use std::fmt;
use std::time::SystemTime;

use crate::sync::Mutex;
use crate::units::date;

/// The number of errors that are kept, and the largest size of a key and of a cause in bytes.
const MAX_ERRORS: usize = 100;
const MAX_TEXT_BYTES: usize = 1024;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentError {
    /// The time of the failure.
    pub time: SystemTime,
    /// The name of the FUSE request.
    pub operation: String,
    /// The key or the view that was requested.
    pub key: String,
    /// The symbol of the errno.
    pub errno: &'static str,
    /// The message of the error.
    pub cause: String,
}

impl fmt::Display for RecentError {
    /// Writes the error as one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, cause) = (
            self.key.escape_debug(),
            self.cause.replace(['\n', '\r'], " "),
        );
        let (time, operation, errno) = (date(self.time), &self.operation, self.errno);
        write!(f, "{time} {operation} {key}: {errno}: {cause}")
    }
}

/// The last errors, from the oldest to the newest.
#[derive(Debug, Default)]
pub struct RecentErrors(Mutex<Errors>);

#[derive(Debug, Default)]
struct Errors {
    last: VecDeque<RecentError>,
    /// The number of errors since the mount began.
    count: u64,
}

/// The text of the last errors at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorsText {
    /// The number of errors since the mount began, which identifies the text.
    pub count: u64,
    /// One line for each error.
    pub text: String,
    /// The time of the last error.
    pub modified: Option<SystemTime>,
}

impl RecentErrors {
    /// Adds an error, and removes the oldest if the list is full.
    pub fn add(&self, mut error: RecentError) {
        for text in [&mut error.key, &mut error.cause] {
            if let Some((end, _)) = text
                .char_indices()
                .find(|(at, c)| at + c.len_utf8() > MAX_TEXT_BYTES)
            {
                text.truncate(end);
                text.push_str("...");
            }
        }
        let mut errors = self.0.lock();
        errors.count = errors.count.saturating_add(1);
        errors.last.push_back(error);
        if errors.last.len() > MAX_ERRORS {
            errors.last.pop_front();
        }
    }

    /// Returns the last errors.
    pub fn list(&self) -> Vec<RecentError> {
        self.0.lock().last.iter().cloned().collect()
    }

    /// Returns the number of errors since the mount began.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    /// Returns the last errors as text.
    pub fn text(&self) -> ErrorsText {
        let errors = self.0.lock();
        ErrorsText {
            count: errors.count,
            text: errors
                .last
                .iter()
                .map(|error| format!("{error}\n"))
                .collect(),
            modified: errors.last.back().map(|error| error.time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(key: &str, cause: &str) -> RecentError {
        RecentError {
            time: SystemTime::UNIX_EPOCH,
            operation: "read".into(),
            key: key.into(),
            errno: "EIO",
            cause: cause.into(),
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let errors = RecentErrors::default();
        assert_eq!(errors.text().text, "");
        errors.add(error("a\nb/0", "line 1\nline 2"));
        let text = errors.text();
        assert_eq!(
            text.text,
            "1970-01-01T00:00:00Z read a\\nb/0: EIO: line 1 line 2\n"
        );
        assert_eq!(
            (text.count, text.modified),
            (1, Some(SystemTime::UNIX_EPOCH))
        );
    }

    #[test]
    fn the_list_holds_the_last_errors_and_long_texts_are_truncated() {
        let errors = RecentErrors::default();
        for number in 0..MAX_ERRORS + 5 {
            errors.add(error(&number.to_string(), &"ü".repeat(MAX_TEXT_BYTES)));
        }
        let list = errors.list();
        assert_eq!(list.len(), MAX_ERRORS);
        assert_eq!(list[0].key, "5");
        assert_eq!(
            list[0].cause,
            format!("{}...", "ü".repeat(MAX_TEXT_BYTES / 2))
        );
        assert_eq!(errors.count(), MAX_ERRORS as u64 + 5);
    }
}
