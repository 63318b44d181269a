//! Text output: escaped text, sizes, shapes, styles and tree symbols.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value};

pub(super) use crate::units::date;

/// Writes bytes to standard output.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::BrokenPipe`] if the reader has closed the pipe.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Returns a text of the source with control and bidirectional formatting characters escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Returns at most `max_chars` characters of a text, and an ellipsis for the rest.
pub(super) fn truncated(text: &str, max_chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => Cow::Owned(format!("{}...", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

/// Formats a number of bytes, rounded down: `0 B`, `1023 B`, `1.5 KiB`.
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

/// Formats a JSON array as `(1, 2, 3)`, and any other value as JSON.
pub(super) fn tuple(value: &Value) -> String {
    let Value::Array(items) = value else {
        return value.to_string();
    };
    let items: Vec<String> = items.iter().map(Value::to_string).collect();
    format!("({})", items.join(", "))
}

/// Formats a JSON number with two decimals.
pub(super) fn two_decimals(value: &Value) -> String {
    match value.as_f64() {
        Some(number) => format!("{number:.2}"),
        None => value.to_string(),
    }
}

/// Returns the JSON document of a command: `schema`, which is `zarrfs.NAME/1`, and its members.
pub fn document(name: &str, members: Map<String, Value>) -> Value {
    let mut document = Map::new();
    document.insert("schema".into(), schema(name).into());
    document.extend(members);
    document.into()
}

/// Returns the name of the schema of a JSON document. Its number changes when a member is removed
/// or changes its meaning.
pub(super) fn schema(name: &str) -> String {
    format!("zarrfs.{name}/1")
}

/// Formats a number with commas between groups of three digits: `1,234,567`.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 chunk`, `2 chunks`.
pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns standard output, without styles if NO_COLOR, TERM or a pipe requires that.
pub(super) fn styled_stdout() -> AutoStream<io::StdoutLock<'static>> {
    let out = io::stdout().lock();
    // If CI is set, anstream would also color dumb terminals.
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|force| !force.is_empty());
    let choice = match is_dumb && !is_forced {
        true => ColorChoice::Never,
        false => AutoStream::choice(&out),
    };
    AutoStream::new(out, choice)
}

/// The style of names of groups and directories.
pub(super) const GROUP: Style = AnsiColor::Blue.on_default().bold();
/// The style of names of arrays.
pub(super) const ARRAY: Style = Style::new().bold();
/// The style of headings.
pub(super) const HEADING: Style = Style::new().underline();
/// The style of a good verdict.
pub(super) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// The style of tree symbols.
pub(super) const SYMBOL: Style = Style::new().dimmed();
/// The style of problems.
pub(super) const PROBLEM: Style = AnsiColor::Red.on_default();

/// The symbols that draw the lines of a tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeSymbols {
    pub(super) branch: &'static str,
    pub(super) last: &'static str,
    pub(super) trunk: &'static str,
    pub(super) gap: &'static str,
}

impl TreeSymbols {
    /// Returns box-drawing characters for a UTF-8 terminal, and ASCII otherwise.
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
    fn control_characters_are_escaped_and_all_others_are_printed() {
        assert_eq!(printable("ümläut 'x'"), "ümläut 'x'");
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn sizes_are_rounded_down() {
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
    fn large_numbers_have_commas() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn shapes_are_tuples_and_long_texts_are_truncated() {
        assert_eq!(tuple(&json!([])), "()");
        assert_eq!(tuple(&json!([5, 7])), "(5, 7)");
        assert_eq!(tuple(&json!("x")), "\"x\"");
        assert_eq!(truncated("ümläut", 6), "ümläut");
        assert_eq!(truncated("ümläut", 3), "üml...");
    }
}
