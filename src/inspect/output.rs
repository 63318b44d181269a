//! How things are said: printable text, sizes, shapes, lines of a tree.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde_json::Value;

/// Prints bytes on standard output.
///
/// # Errors
/// The system's; [`io::ErrorKind::BrokenPipe`] if the reader has gone.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// A text of the source, with what a terminal would obey escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Besides control characters: those that turn the direction of a line.
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// The beginning of a text that may be long.
pub(super) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}...", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

/// A number of bytes for people: `0 B`, `1023 B`, `1.5 KiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes;
    let mut rest = 0;
    let mut unit = "B";
    for name in UNITS {
        if scaled < 1024 {
            break;
        }
        (rest, scaled, unit) = (scaled % 1024, scaled / 1024, name);
    }
    format!("{scaled}.{} {unit}", rest * 10 / 1024)
}

/// `(1, 2, 3)` of a list, anything else as JSON.
pub(super) fn tuple(value: &Value) -> String {
    let Value::Array(items) = value else {
        return value.to_string();
    };
    let mut text = String::from("(");
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        // Writing to a String does not fail.
        let _ = write!(text, "{item}");
    }
    text.push(')');
    text
}

/// `1 chunk`, `2 chunks`.
pub(super) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Colours for a terminal; nothing where none are wanted, as NO_COLOR and TERM say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    is_on: bool,
}

impl Paint {
    /// For the standard output.
    pub(super) fn of_stdout() -> Self {
        let choice = anstream::AutoStream::choice(&io::stdout());
        // The library colours dumb terminals too where CI is set.
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|force| !force.is_empty());
        Self {
            is_on: choice != anstream::ColorChoice::Never && (is_forced || !is_dumb),
        }
    }

    /// A text in a style.
    pub(super) fn paint<'a>(self, style: Style, text: &'a str) -> Cow<'a, str> {
        match self.is_on && !text.is_empty() {
            true => Cow::Owned(format!("{style}{text}{style:#}")),
            false => Cow::Borrowed(text),
        }
    }
}

/// Names of groups and directories.
pub(super) const GROUP: Style = AnsiColor::Blue.on_default().bold();
/// Names of arrays.
pub(super) const ARRAY: Style = Style::new().bold();
/// What holds a line together and is not read.
pub(super) const FAINT: Style = Style::new().dimmed();
/// What is wrong.
pub(super) const WRONG: Style = AnsiColor::Red.on_default();

/// What the lines of a tree are drawn with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines {
    pub(super) branch: &'static str,
    pub(super) last: &'static str,
    pub(super) trunk: &'static str,
    pub(super) gap: &'static str,
}

impl Lines {
    /// Box drawing on a terminal of UTF-8, ASCII anywhere else.
    pub(super) fn of_stdout() -> Self {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"];
        let locale = names
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .unwrap_or_default()
            .to_ascii_lowercase();
        let is_utf8 = locale.contains("utf-8") || locale.contains("utf8");
        match is_utf8 && io::stdout().is_terminal() {
            true => Self {
                branch: "├── ",
                last: "└── ",
                trunk: "│   ",
                gap: "    ",
            },
            false => Self {
                branch: "|-- ",
                last: "`-- ",
                trunk: "|   ",
                gap: "    ",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_all_else_is_kept() {
        assert_eq!(printable("ümläut 'x'"), "ümläut 'x'");
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn sizes_are_cut_and_never_rounded_up() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1023.9 KiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn shapes_are_tuples_and_long_texts_are_cut() {
        assert_eq!(tuple(&json!([])), "()");
        assert_eq!(tuple(&json!([5, 7])), "(5, 7)");
        assert_eq!(tuple(&json!("x")), "\"x\"");
        assert_eq!(shortened("ümläut", 6), "ümläut");
        assert_eq!(shortened("ümläut", 3), "üml...");
    }
}
