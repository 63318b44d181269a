//! Parses a JSON document within limits.
//!
//! Numbers keep all digits (`serde_json` with `arbitrary_precision`), which attributes and some data types
//! need.
//!
//! Python writes bare `NaN`, `Infinity` and `-Infinity` in attributes (`_FillValue`), which is common but not
//! JSON. They are read as strings, which is how both specifications write them in fill values.
//!
//! Limitation: the parser reads an object whose first member is `$serde_json::private::Number` as the number
//! in this member, or rejects the object.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;
use serde_core::Deserializer as _;
use serde_core::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::error::{MetadataError, json_type};
use crate::store::file_format;

/// The maximum size of a parsed document, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;

/// The maximum number of values in a document. It bounds the memory of the parsed form, which for
/// `[0,0,0,...` is many times the text.
pub const MAX_VALUES: usize = 1 << 20;

/// The maximum nesting depth of lists and objects.
const MAX_DEPTH: usize = 127;

/// Returns an upper limit of the memory to parse a document and its node, in bytes, which the caller reserves
/// first. A document that [`parse`] rejects needs only its text, up to [`MAX_DOCUMENT_BYTES`].
pub fn memory_bytes(bytes: &[u8]) -> usize {
    /// Memory for a member of an object and the field that is parsed from it.
    const VALUE_BYTES: usize = 320;
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return MAX_DOCUMENT_BYTES;
    }
    let scan = Scan::new(bytes, MAX_VALUES);
    match scan.is_rejected() {
        true => bytes.len(),
        false => scan.values * VALUE_BYTES + 4 * bytes.len(),
    }
}

/// As [`memory_bytes`], for a document that is parsed by [`parse_without`].
pub(super) fn memory_bytes_without(bytes: &[u8], member: &str) -> usize {
    let all = memory_bytes(bytes);
    let skipped = member_values(bytes, member);
    if skipped.is_empty() {
        return all;
    }
    let skipped = skipped.into_iter();
    let skipped = skipped.filter_map(|range| bytes.get(range));
    // The text of the member takes memory in any case.
    let skipped = skipped.map(|text| memory_bytes(text).saturating_sub(text.len()));
    match Scan::new(bytes, MAX_VALUES).is_rejected() {
        true => all,
        false => all.saturating_sub(skipped.sum()).max(bytes.len()),
    }
}

/// Parses a document.
///
/// # Errors
/// The document is too large, nested deeper than 127 levels, or not JSON. A byte order mark, or bytes after
/// the end, are not JSON either.
pub fn parse(bytes: &[u8]) -> Result<Value, MetadataError> {
    parse_with(bytes, |text| serde_json::from_slice(text))
}

/// As [`parse`], but leaves out one member if the document is an object. The syntax of the member's value is
/// checked, but the value is not built.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_without(bytes: &[u8], member: &str) -> Result<Value, MetadataError> {
    if member_values(bytes, member).is_empty() {
        return parse(bytes);
    }
    parse_with(bytes, |text| {
        let mut parser = serde_json::Deserializer::from_slice(text);
        let members = parser.deserialize_map(SkipMember(member))?;
        parser.end()?;
        Ok(Value::Object(members))
    })
}

/// Deserializes an object without one of its members.
struct SkipMember<'a>(&'a str);

impl<'de> Visitor<'de> for SkipMember<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            match name == self.0 {
                true => drop(members.next_value::<IgnoredAny>()?),
                false => drop(found.insert(name, members.next_value()?)),
            }
        }
        Ok(found)
    }
}

fn parse_with(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> serde_json::Result<Value>,
) -> Result<Value, MetadataError> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(MetadataError::TooLarge {
            actual: bytes.len(),
            limit: MAX_DOCUMENT_BYTES,
            unit: "bytes",
        });
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(MetadataError::Json {
            line: 1,
            column: 1,
            what: "a byte order mark".into(),
        });
    }
    let scan = Scan::new(bytes, MAX_VALUES);
    if scan.values > MAX_VALUES {
        return Err(MetadataError::TooLarge {
            actual: scan.values,
            limit: MAX_VALUES,
            unit: "values",
        });
    }
    if let Some(at) = scan.too_deep {
        let (before, _) = bytes.split_at(at);
        let mut lines = before.split(|byte| *byte == b'\n');
        return Err(MetadataError::Json {
            line: lines.clone().count(),
            column: lines.next_back().map_or(0, <[u8]>::len) + 1,
            what: "recursion limit exceeded".into(),
        });
    }
    if scan.constants.is_empty() {
        return read(bytes).map_err(|error| match file_format(bytes) {
            Some(what) => MetadataError::OtherFormat { what },
            None => json_error(&error, 0),
        });
    }
    let quoted = scan.quoted(bytes);
    read(&quoted).map_err(|error| {
        let before =
            |&&(line, column): &&(usize, usize)| line == error.line() && column < error.column();
        // Each constant before the error in its line added two quotes.
        json_error(
            &error,
            2 * scan.positions(bytes).iter().filter(before).count(),
        )
    })
}

/// Quotes the bare `NaN`, `Infinity` and `-Infinity` of Python in JSON text.
pub(crate) fn quote_constants(json: &[u8]) -> Cow<'_, [u8]> {
    let scan = Scan::new(json, usize::MAX);
    match scan.constants.is_empty() {
        true => Cow::Borrowed(json),
        false => Cow::Owned(scan.quoted(json)),
    }
}

/// Returns which of these names are members of a document. One pass without allocation finds them, even in
/// text that is not valid JSON. A name that is written with escapes is not found.
pub(super) fn has_members<const N: usize>(bytes: &[u8], names: [&str; N]) -> [bool; N] {
    let mut found = [false; N];
    let (mut depth, mut at) = (0_usize, 0);
    let mut string_start = None;
    let mut last = 0..0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, string_start) {
            (b'\\', Some(_)) => at += 1,
            (b'"', Some(start)) => {
                last = start..at;
                string_start = None;
            }
            (_, Some(_)) => {}
            (b'"', None) => string_start = Some(at + 1),
            (b'{' | b'[', None) => depth += 1,
            (b'}' | b']', None) => depth = depth.saturating_sub(1),
            (b':', None) if depth == 1 => {
                let name = bytes.get(last.clone()).unwrap_or_default();
                for (is_found, own) in found.iter_mut().zip(names) {
                    *is_found |= own.as_bytes() == name;
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Returns the byte ranges of the values of a member of a document; finds names as [`has_members`] does.
fn member_values(bytes: &[u8], member: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // Few documents have the member, and this search is many times faster than the pass.
    if memmem::find(bytes, member.as_bytes()).is_none() {
        return found;
    }
    let (mut depth, mut at) = (0_usize, 0);
    let (mut string_start, mut value_start) = (None, None);
    let mut last = 0..0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, string_start) {
            (b'\\', Some(_)) => at += 1,
            (b'"', Some(start)) => {
                last = start..at;
                string_start = None;
            }
            (_, Some(_)) => {}
            (b'"', None) => string_start = Some(at + 1),
            (b'{' | b'[', None) => depth += 1,
            (b':', None) if depth == 1 && bytes.get(last.clone()) == Some(member.as_bytes()) => {
                value_start = Some(at + 1);
            }
            (b',' | b'}' | b']', None) => {
                if depth == 1
                    && let Some(start) = value_start.take()
                {
                    found.push(start..at);
                }
                if byte != b',' {
                    depth = depth.saturating_sub(1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Parses a document that is an object.
///
/// # Errors
/// As [`parse`]; or the document is not an object.
pub fn parse_object(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, MetadataError> {
    object(name, parse(bytes)?)
}

/// Returns the value as an object.
pub(super) fn object(name: &str, value: Value) -> Result<Map<String, Value>, MetadataError> {
    match value {
        Value::Object(object) => Ok(object),
        other => {
            let what = format!("expected an object, not {}", json_type(&other));
            Err(MetadataError::invalid(name, what))
        }
    }
}

fn json_error(error: &serde_json::Error, added: usize) -> MetadataError {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    MetadataError::Json {
        line: error.line(),
        column: error.column().saturating_sub(added),
        what,
    }
}

/// The result of one pass over the text outside of JSON strings.
struct Scan {
    /// An upper limit of the number of values.
    values: usize,
    /// Offset and length of each bare constant.
    constants: Vec<(usize, usize)>,
    /// Offset of the first list or object that exceeds the maximum depth; the rest is not scanned.
    too_deep: Option<usize>,
}

impl Scan {
    /// Scans a document. Constants after the first `max_constants` are skipped.
    fn new(bytes: &[u8], max_constants: usize) -> Self {
        let mut scan = Self {
            values: 1,
            constants: Vec::new(),
            too_deep: None,
        };
        let mut in_string = false;
        let mut depth: usize = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let mut step = 1;
            match byte {
                b'"' => in_string = !in_string,
                b'\\' if in_string => step = 2,
                _ if in_string => {}
                b',' => scan.values += 1,
                b'[' | b'{' => {
                    scan.values += 1;
                    depth += 1;
                    if depth > MAX_DEPTH {
                        scan.too_deep = Some(at);
                        return scan;
                    }
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                b'N' | b'I' | b'-' => {
                    let length = constant(bytes.split_at(at).1);
                    if length > 0 && scan.constants.len() <= max_constants {
                        scan.constants.push((at, length));
                        step = length;
                    }
                }
                _ => {}
            }
            at += step;
        }
        scan
    }

    /// Returns whether [`parse`] rejects the document before it builds any value.
    fn is_rejected(&self) -> bool {
        self.values > MAX_VALUES || self.too_deep.is_some()
    }

    /// Returns the text with quotes around the constants.
    fn quoted(&self, bytes: &[u8]) -> Vec<u8> {
        let mut quoted = Vec::with_capacity(bytes.len() + 2 * self.constants.len());
        let (mut rest, mut at) = (bytes, 0);
        for &(start, length) in &self.constants {
            let (before, from_constant) = rest.split_at(start - at);
            let (constant, after) = from_constant.split_at(length);
            quoted.extend_from_slice(before);
            quoted.push(b'"');
            quoted.extend_from_slice(constant);
            quoted.push(b'"');
            (rest, at) = (after, start + length);
        }
        quoted.extend_from_slice(rest);
        quoted
    }

    /// Returns line and column, both counted from 1, of each constant in the quoted text.
    fn positions(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let (mut line, mut line_start, mut from, mut added) = (1, 0, 0, 0);
        let mut positions = Vec::with_capacity(self.constants.len());
        for &(start, _) in &self.constants {
            for (i, byte) in bytes.iter().enumerate().take(start).skip(from) {
                if *byte == b'\n' {
                    (line, line_start, added) = (line + 1, i + 1, 0);
                }
            }
            from = start;
            positions.push((line, start - line_start + 1 + added));
            added += 2;
        }
        positions
    }
}

/// Returns the length of the bare constant at the beginning of a text, or 0 without one.
fn constant(text: &[u8]) -> usize {
    [&b"NaN"[..], b"Infinity", b"-Infinity"]
        .into_iter()
        .filter(|name| text.starts_with(name))
        .map(<[u8]>::len)
        .find(|length| match text.get(*length) {
            None => true,
            Some(byte) => matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t'),
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> MetadataError {
        parse(text.as_bytes()).unwrap_err()
    }

    fn at(text: &str) -> (usize, usize) {
        match error(text) {
            MetadataError::Json { line, column, .. } => (line, column),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn invalid_json_is_rejected_with_line_and_column() {
        assert_eq!(at("{\n \"a\": tru }"), (2, 10));
        assert_eq!(at("{} x"), (1, 4));
        assert_eq!(at("\u{feff}{}"), (1, 1));
        assert_eq!(at(""), (1, 0));
        assert!(error("{\"a\":1} trailing").to_string().contains("trailing"));
        assert!(matches!(
            parse(b"\"\xff\""),
            Err(MetadataError::Json { .. })
        ));
    }

    #[test]
    fn deep_nesting_is_rejected() {
        for open in ["[", "{\"a\":"] {
            let text = open.repeat(200_000);
            assert!(error(&text).to_string().contains("recursion"), "{open}");
            assert_eq!(memory_bytes(text.as_bytes()), text.len(), "{open}");
        }
        let nested =
            |depth: usize| format!("[\n{}{}]", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert_eq!(at(&nested(MAX_DEPTH + 1)), (2, 127));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        let wide = format!("[{}[]]", "[[]],".repeat(1000));
        assert!(parse(wide.as_bytes()).is_ok());
    }

    #[test]
    fn documents_of_too_many_bytes_or_values_are_refused() {
        let bytes = vec![b' '; MAX_DOCUMENT_BYTES + 1];
        let found = parse(&bytes).unwrap_err().to_string();
        assert_eq!(found, "16777217 bytes of metadata, the limit is 16777216");
        let values = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert!(error(&values).to_string().contains("values"));
        let fits = format!("[{}0]", "0,".repeat(MAX_VALUES - 2));
        assert!(parse(fits.as_bytes()).is_ok());
    }

    #[test]
    fn the_memory_that_a_document_needs_is_bounded_before_it_is_parsed() {
        assert_eq!(memory_bytes(b"{}"), 2 * 320 + 8);
        assert_eq!(memory_bytes(b"[1,\",[{\",[2]]"), 5 * 320 + 52);
        // A rejected document is not parsed.
        let refused = vec![b','; MAX_VALUES];
        assert_eq!(memory_bytes(&refused), refused.len());
        assert_eq!(memory_bytes(&refused[1..]), MAX_VALUES * 324 - 4);
        let long = vec![b' '; MAX_DOCUMENT_BYTES + 1];
        assert_eq!(memory_bytes(&long), MAX_DOCUMENT_BYTES);
    }

    #[test]
    fn a_member_that_is_left_out_is_checked_and_takes_no_memory() {
        let text =
            br#"{"a": [1, {"copies": 2}], "copies": {"x": [NaN, "}", "\\"], "y": {}}, "b": NaN}"#;
        let found = parse_without(text, "copies").unwrap();
        assert_eq!(found.to_string(), r#"{"a":[1,{"copies":2}],"b":"NaN"}"#);
        assert_eq!(parse_without(text, "c").unwrap(), parse(text).unwrap());
        let many = format!("{{\"a\":1,\"copies\":[{}0]}}", "0,".repeat(10_000));
        let (all, own) = (
            memory_bytes(many.as_bytes()),
            memory_bytes_without(many.as_bytes(), "copies"),
        );
        assert!(all > 3_200_000, "{all}");
        assert!((many.len()..25_000).contains(&own), "{own}");
        assert_eq!(memory_bytes_without(b"{}", "copies"), memory_bytes(b"{}"));
        for (wrong, place) in [
            ("{\"copies\": [1, tru], \"a\": 1}", (1, 19)),
            ("{\"copies\": [NaN, tru], \"a\": 1}", (1, 21)),
            ("{\"copies\": [1],\n \"a\": x}", (2, 7)),
            ("{\"copies\": [1]} x", (1, 17)),
            ("{\"copies\": [1]", (1, 14)),
            ("[[\"copies\": 1]]", (1, 11)),
        ] {
            let expected = match parse(wrong.as_bytes()) {
                Err(MetadataError::Json { line, column, .. }) => (line, column),
                other => panic!("{other:?}"),
            };
            match parse_without(wrong.as_bytes(), "copies") {
                Err(MetadataError::Json { line, column, .. }) => {
                    assert_eq!((line, column), expected, "{wrong}");
                    assert_eq!((line, column), place, "{wrong}");
                }
                other => panic!("{wrong}: {other:?}"),
            }
        }
        let text = br#"[{"copies": 1}]"#;
        assert_eq!(parse_without(text, "copies").unwrap(), parse(text).unwrap());
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = r#"[9007199254740993,18446744073709551616,1e400,0.1000000000000000055511]"#;
        assert_eq!(
            parse(text.as_bytes())
                .unwrap()
                .to_string()
                .to_lowercase()
                .replace('+', ""),
            text
        );
    }

    #[test]
    fn bare_constants_of_python_become_strings() {
        let value = parse(br#"{"a": NaN, "b":[Infinity,-Infinity , "x NaN\" NaN,"], "NaN": -1}"#);
        let expected = serde_json::json!({"a": "NaN", "b": ["Infinity", "-Infinity", "x NaN\" NaN,"], "NaN": -1});
        assert_eq!(
            value.unwrap().to_string(),
            parse(expected.to_string().as_bytes()).unwrap().to_string()
        );
        assert!(matches!(error("NaNa"), MetadataError::Json { .. }));
        assert!(matches!(error("[-NaN]"), MetadataError::Json { .. }));
        assert!(matches!(error("{NaN: 1}"), MetadataError::Json { .. }));
    }

    #[test]
    fn an_error_behind_bare_constants_is_still_located() {
        assert_eq!(at("[NaN,\n NaN, NaN, tru]"), (2, 15));
        assert_eq!(at("[1.0,\n 123, 123, tru]"), (2, 15));
        assert_eq!(at("[NaN, NaN] x"), (1, 12));
    }
}
