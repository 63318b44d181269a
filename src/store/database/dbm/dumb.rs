//! The index of Python's `dbm.dumb`: a text file with a line `'key', (offset, size)` for each value.
//!
//! A key is written as a Python string in Latin-1, so that each of its characters is a byte. A line
//! replaces earlier lines of the same key. Source: `Lib/dbm/dumb.py` of Python 3.13.

use super::bytes::Bytes;
use super::index::{Builder, ValueLocation, check_key_length};
use crate::store::database::{Failure, corrupt};

/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 16;
/// Length of the longest line: its key has four characters per byte.
const MAX_LINE_BYTES: usize = 1 << 19;

/// Whether a file begins like an index.
pub(super) fn is_dumb(header: &[u8]) -> bool {
    matches!(header.first(), None | Some(b'\'' | b'"'))
}

/// Reads all keys of an index; `values_bytes` is the size of the file of values.
///
/// # Errors
/// [`Failure::Failed`] if a line is damaged, or refers to bytes outside the file of values.
pub(super) fn read_index(
    file: Bytes<'_>,
    values_bytes: u64,
    builder: &mut Builder,
) -> Result<(), Failure> {
    let mut pending = Vec::new();
    let (mut done, mut number) = (0, 1_u64);
    while done < file.size_bytes {
        let length = (file.size_bytes - done).min(PIECE_BYTES);
        let held = pending.len();
        pending.resize(held + usize::try_from(length).unwrap_or(0), 0);
        file.read(done, pending.get_mut(held..).unwrap_or_default())?;
        done += length;
        let mut rest = &pending[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(end);
            add(line, number, values_bytes, builder)?;
            number += 1;
            rest = behind.get(1..).unwrap_or_default();
        }
        let left = rest.len();
        if left > MAX_LINE_BYTES {
            return Err(bad(number, "it is too long"));
        }
        pending.drain(..pending.len() - left);
    }
    match pending.is_empty() {
        true => Ok(()),
        false => Err(bad(number, "it has no end: the file was cut")),
    }
}

fn bad(number: u64, what: &str) -> Failure {
    corrupt(format!("line {number} of the index: {what}"))
}

fn add(line: &[u8], number: u64, values_bytes: u64, builder: &mut Builder) -> Result<(), Failure> {
    let (key, offset, size_bytes) =
        parse(line.trim_ascii_end()).ok_or_else(|| bad(number, "it is none"))?;
    check_key_length(key.len() as u64)?;
    let end = offset.checked_add(size_bytes);
    if end.is_none_or(|end| end > values_bytes) {
        return Err(bad(number, "its value is not in the file of values"));
    }
    builder.push(&key, ValueLocation::Offset(offset), size_bytes)
}

/// Parses a line into its key, offset and size.
fn parse(line: &[u8]) -> Option<(Vec<u8>, u64, u64)> {
    let (quote, rest) = line.split_first()?;
    if !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let (key, rest) = unescape(*quote, rest)?;
    let place = rest.strip_prefix(b", (")?.strip_suffix(b")")?;
    let comma = place.iter().position(|byte| *byte == b',')?;
    let (offset, size_bytes) = place.split_at(comma);
    Some((
        key,
        decimal(offset)?,
        decimal(size_bytes.strip_prefix(b", ")?)?,
    ))
}

/// Decodes a string up to its closing quote; returns its bytes and the rest of the line.
fn unescape(quote: u8, text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        if *byte == quote {
            return Some((key, rest));
        }
        if *byte != b'\\' {
            key.push(*byte);
            continue;
        }
        let (escaped, behind) = rest.split_first()?;
        rest = behind;
        key.push(match escaped {
            b'\\' | b'\'' | b'"' => *escaped,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(*digits.first()?)?, digit(*digits.last()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            _ => return None,
        });
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    let is_plain = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_python() {
        let key = |line: &[u8]| parse(line).map(|(key, ..)| key);
        assert_eq!(
            parse(b"'a/0.0', (512, 300)"),
            Some((b"a/0.0".to_vec(), 512, 300))
        );
        assert_eq!(key(b"\"it's\", (0, 0)"), Some(b"it's".to_vec()));
        assert_eq!(
            key(b"'\\'\"\\\\\\n\\t\\x00\\xff\xe9', (0, 0)"),
            Some(b"'\"\\\n\t\0\xff\xe9".to_vec())
        );
        assert_eq!(key(b"'', (18446744073709551615, 1)"), Some(Vec::new()));
        let none: [&[u8]; 12] = [
            b"",
            b"'a'",
            b"'a, (0, 0)",
            b"'a\\', (0, 0)",
            b"'a\\x4', (0, 0)",
            b"'a\\u0041', (0, 0)",
            b"b'a', (0, 0)",
            b"'a', (-1, 0)",
            b"'a', (0, +1)",
            b"'a', (0, 51",
            b"'a', (0, 18446744073709551616)",
            b"'a', (0, 0, 0)",
        ];
        for line in none {
            assert_eq!(parse(line), None, "{}", line.escape_ascii());
        }
    }
}
