//! Reads references in JSON as a stream: memory holds no more of the text than one key and one value.
//!
//! The reader finds the ends of keys and values; `serde_json` parses strings and nested values. The reader
//! implements [`Write`] and accepts chunks of any length, so that a file, a decompressor or a server can
//! write to it.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use memchr::memchr2;
use serde_core::de::IgnoredAny;

use super::super::ReferenceError;
use super::super::index::{IndexBuilder, Item, ReferenceIndex};
use super::text::{List, Templates, decode_value};
use crate::fallible::NoMemory;

/// Names of metadata documents; references without a version contain at least one of them.
const DOCUMENTS: [&[u8]; 5] = [
    b".zgroup",
    b".zarray",
    b".zattrs",
    b".zmetadata",
    b"zarr.json",
];
/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a JSON document cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::store) enum JsonError {
    /// The document is JSON of another kind, or not JSON.
    #[error("no references")]
    Other,
    #[error(transparent)]
    Reference(#[from] ReferenceError),
}

fn invalid(what: impl Into<String>) -> JsonError {
    JsonError::Reference(ReferenceError::Invalid(what.into()))
}

/// The kind of document that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    /// `{"version": 1, "refs": {...}}`, or only the content of `refs`.
    References,
    /// `{"metadata": {...}, "record_size": N}`, the `.zmetadata` of Parquet references.
    Metadata,
}

/// The object whose members are being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    /// The object in `refs` or `metadata`.
    Nested,
}

/// The token that is expected next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Start,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    Value,
    /// A comma, or the end of the object.
    Comma,
    /// Only white space.
    Nothing,
}

/// The state of the search for the end of the current key or value.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: u32,
    is_string: bool,
    is_escaped: bool,
}

/// Reads references in JSON.
#[derive(Debug)]
pub(in crate::store) struct JsonReader {
    document: Document,
    index: IndexBuilder,
    limit_bytes: u64,
    /// Bytes that were not read yet; they begin at `at`.
    buffer: Vec<u8>,
    at: usize,
    scan: Scan,
    expect: Expect,
    level: Level,
    key: Vec<u8>,
    /// The member `version`, as written in the document.
    version: Option<Vec<u8>>,
    has_nested: bool,
    /// The error of the first top-level member that is no reference.
    foreign: Option<String>,
    templates: Templates,
    record_size: Option<u64>,
    failure: Option<JsonError>,
}

impl JsonReader {
    /// Creates a reader of references.
    pub(in crate::store) fn references(limit_bytes: u64) -> Self {
        Self::new(Document::References, limit_bytes)
    }

    /// Creates a reader of the `.zmetadata` of Parquet references.
    pub(in crate::store) fn metadata(limit_bytes: u64) -> Self {
        Self::new(Document::Metadata, limit_bytes)
    }

    fn new(document: Document, limit_bytes: u64) -> Self {
        Self {
            document,
            index: IndexBuilder::new(limit_bytes),
            limit_bytes,
            buffer: Vec::new(),
            at: 0,
            scan: Scan::default(),
            expect: Expect::Start,
            level: Level::Top,
            key: Vec::new(),
            version: None,
            has_nested: false,
            foreign: None,
            templates: Templates::default(),
            record_size: None,
            failure: None,
        }
    }

    /// Takes the error of a failed read; `None` if reading has not failed.
    pub(in crate::store) fn failure(&mut self) -> Option<JsonError> {
        self.failure.take()
    }

    /// Returns the index, after all bytes were written.
    ///
    /// # Errors
    /// [`JsonError`].
    pub(in crate::store) fn finish(
        mut self,
        label: &dyn Display,
    ) -> Result<ReferenceIndex, JsonError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.expect != Expect::Nothing {
            return Err(self.syntax("it ends too early"));
        }
        self.check_document()?;
        let templates = self.templates;
        let limit_bytes = self.limit_bytes;
        let mut applied_bytes = 0_u64;
        let index = self.index.finish(label, |url| {
            if !url.contains("{{") {
                return Ok(Cow::Borrowed(url));
            }
            let left_bytes = limit_bytes.saturating_sub(applied_bytes);
            let applied = templates.apply(url, left_bytes)?;
            applied_bytes = applied_bytes.saturating_add(applied.len() as u64);
            Ok(Cow::Owned(applied))
        })?;
        Ok(index)
    }

    /// As [`JsonReader::finish`]; also returns the number of references in each partition.
    ///
    /// # Errors
    /// [`JsonError`]; [`JsonError::Other`] if the document lacks that number.
    pub(in crate::store) fn finish_metadata(
        self,
        label: &dyn Display,
    ) -> Result<(ReferenceIndex, u64), JsonError> {
        let record_size = self.record_size;
        let index = self.finish(label)?;
        Ok((index, record_size.ok_or(JsonError::Other)?))
    }

    /// Checks that the members are those of references.
    fn check_document(&mut self) -> Result<(), JsonError> {
        if self.document == Document::Metadata {
            return match self.has_nested && self.record_size.is_some() {
                true => Ok(()),
                false => Err(JsonError::Other),
            };
        }
        match (&self.version, self.has_nested) {
            (Some(version), true) if version == b"1" => Ok(()),
            (Some(version), true) => Err(ReferenceError::Unsupported(format!(
                "version {}; there are 0 and 1",
                String::from_utf8_lossy(version)
            ))
            .into()),
            (None, false) if self.index.has_name(&DOCUMENTS) => match self.foreign.take() {
                None => Ok(()),
                Some(why) => Err(invalid(why)),
            },
            _ => Err(JsonError::Other),
        }
    }

    /// Whether the part read so far can only be references.
    fn is_sure(&self) -> bool {
        self.has_nested && (self.version.is_some() || self.level == Level::Nested)
            || self.index.has_name(&DOCUMENTS)
    }

    /// The error of malformed text: an error of references, if the part read so far can only be references.
    pub(in crate::store) fn syntax(&self, what: &str) -> JsonError {
        match self.is_sure() {
            true => invalid(format!(
                "{what}, behind the key {:?}",
                String::from_utf8_lossy(&self.key)
            )),
            false => JsonError::Other,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), JsonError> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.scan.at = self.scan.at.saturating_sub(self.at);
            self.at = 0;
        }
        let need_bytes = (self.buffer.len() as u64).saturating_add(bytes.len() as u64);
        if need_bytes > self.limit_bytes {
            let limit_bytes = self.limit_bytes;
            return Err(match self.is_sure() {
                true => ReferenceError::TooLarge { limit_bytes }.into(),
                false => JsonError::Other,
            });
        }
        (self.buffer.try_reserve(bytes.len()))
            .map_err(|_| ReferenceError::from(NoMemory(need_bytes)))?;
        self.buffer.extend_from_slice(bytes);
        while self.step()? {}
        Ok(())
    }

    fn next_byte(&mut self) -> Option<u8> {
        let rest = self.buffer.get(self.at..)?;
        let space = rest
            .iter()
            .position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        self.at += space.unwrap_or(rest.len());
        self.buffer.get(self.at).copied()
    }

    /// Reads the next token; returns false if more bytes are needed.
    fn step(&mut self) -> Result<bool, JsonError> {
        if self.expect == Expect::Start {
            return self.start();
        }
        let Some(byte) = self.next_byte() else {
            return Ok(false);
        };
        let is_key = matches!(self.expect, Expect::FirstKey | Expect::Key);
        self.expect = match (self.expect, byte) {
            (Expect::FirstKey | Expect::Comma, b'}') => self.end_object(),
            (Expect::Comma, b',') => Expect::Key,
            (Expect::Colon, b':') => Expect::Value,
            (Expect::Value, b'{') if self.is_nested() => {
                self.level = Level::Nested;
                self.has_nested = true;
                Expect::FirstKey
            }
            (_, b'"') if is_key => return self.read_key(),
            (Expect::Value, _) => return self.read_value(),
            _ => return Err(self.syntax(&format!("`{}` is out of place", byte.escape_ascii()))),
        };
        self.at += 1;
        Ok(true)
    }

    fn start(&mut self) -> Result<bool, JsonError> {
        if self.buffer.len() < MARK.len() {
            return Ok(false);
        }
        if self.buffer.starts_with(MARK) && self.at == 0 {
            self.at = MARK.len();
        }
        match self.next_byte() {
            None => Ok(false),
            Some(b'{') => {
                self.at += 1;
                self.expect = Expect::FirstKey;
                Ok(true)
            }
            Some(_) => Err(JsonError::Other),
        }
    }

    /// Whether the value of the current key is the object with the references.
    fn is_nested(&self) -> bool {
        let name: &[u8] = match self.document {
            Document::References => b"refs",
            Document::Metadata => b"metadata",
        };
        self.level == Level::Top && self.key == name
    }

    fn end_object(&mut self) -> Expect {
        match self.level {
            Level::Nested => {
                self.level = Level::Top;
                Expect::Comma
            }
            Level::Top => Expect::Nothing,
        }
    }

    fn read_key(&mut self) -> Result<bool, JsonError> {
        let Some(end) = self.find_end()? else {
            return Ok(false);
        };
        let text = self.buffer.get(self.at..end).unwrap_or_default();
        let key = string(text).map(|key| key.as_bytes().to_vec());
        self.key = key.map_err(|error| self.syntax(&error))?;
        self.at = end;
        self.expect = Expect::Colon;
        Ok(true)
    }

    fn read_value(&mut self) -> Result<bool, JsonError> {
        let Some(end) = self.find_end()? else {
            return Ok(false);
        };
        let value = self.at..end;
        self.at = end;
        self.expect = Expect::Comma;
        match self.level {
            Level::Top => self.top_member(value)?,
            Level::Nested => {
                let text = self.buffer.get(value).unwrap_or_default();
                add(&mut self.index, &self.key, text)?;
            }
        }
        Ok(true)
    }

    /// Adds a top-level member: a member of version 1, or a reference of version 0.
    fn top_member(&mut self, value: std::ops::Range<usize>) -> Result<(), JsonError> {
        let text = self.buffer.get(value).unwrap_or_default();
        let unsupported = |what: String| JsonError::from(ReferenceError::Unsupported(what));
        match (self.document, &self.key[..], text.first()) {
            (Document::Metadata, b"record_size", _) => {
                let number = serde_json::from_slice(text)
                    .ok()
                    .filter(|number| *number > 0);
                self.record_size = Some(number.ok_or_else(|| invalid("`record_size`"))?);
            }
            (Document::Metadata, _, _) => {}
            (_, b"version", Some(b'0'..=b'9')) => self.version = Some(text.to_vec()),
            (_, b"templates", Some(b'{')) => {
                self.templates = Templates::parse(text).map_err(unsupported)?;
            }
            (_, b"gen", Some(b'[')) => {
                let list = text.get(1..text.len() - 1).unwrap_or_default();
                if !list.trim_ascii().is_empty() {
                    let what = "`gen`, which makes references by a rule; write them out";
                    return Err(unsupported(what.into()));
                }
            }
            _ => match add(&mut self.index, &self.key, text) {
                Err(JsonError::Reference(ReferenceError::Invalid(why))) => {
                    self.foreign.get_or_insert(why);
                }
                added => added?,
            },
        }
        Ok(())
    }

    /// Returns the end of the key or value that begins at `at`; `None` if more bytes are needed.
    fn find_end(&mut self) -> Result<Option<usize>, JsonError> {
        let scan = &mut self.scan;
        scan.at = scan.at.max(self.at);
        while let Some(rest) = self.buffer.get(scan.at..).filter(|rest| !rest.is_empty()) {
            if scan.is_string {
                if std::mem::take(&mut scan.is_escaped) {
                    scan.at += 1;
                    continue;
                }
                let Some(end) = memchr2(b'"', b'\\', rest) else {
                    scan.at = self.buffer.len();
                    break;
                };
                match rest.get(end) {
                    Some(b'\\') => scan.is_escaped = true,
                    _ => scan.is_string = false,
                }
                scan.at += end + 1;
                if !scan.is_string && scan.depth == 0 {
                    return Ok(Some(self.end_scan()));
                }
                continue;
            }
            match rest.first() {
                // A value that is neither a string nor nested ends before the next delimiter.
                Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n') if scan.depth == 0 => {
                    return Ok(Some(self.end_scan()));
                }
                Some(b'"') => scan.is_string = true,
                Some(b'{' | b'[') => scan.depth += 1,
                Some(b'}' | b']') => scan.depth -= 1,
                _ => {}
            }
            scan.at += 1;
            if scan.depth == 0 && matches!(rest.first(), Some(b'}' | b']')) {
                return Ok(Some(self.end_scan()));
            }
        }
        Ok(None)
    }

    fn end_scan(&mut self) -> usize {
        std::mem::take(&mut self.scan).at
    }
}

/// Parses a JSON string.
fn string(text: &[u8]) -> Result<Cow<'_, str>, String> {
    let inner = text
        .strip_prefix(b"\"")
        .and_then(|text| text.strip_suffix(b"\""));
    // A fold without early exit, which the compiler vectorizes.
    let is_odd = |odd: bool, byte: &u8| odd | (*byte == b'\\') | (*byte < b' ');
    let plain = inner.filter(|inner| !inner.iter().fold(false, is_odd));
    if let Some(plain) = plain {
        let plain = std::str::from_utf8(plain).map_err(|error| error.to_string())?;
        return Ok(Cow::Borrowed(plain));
    }
    let text: String = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    Ok(Cow::Owned(text))
}

/// Adds the value of a key to an index.
fn add(index: &mut IndexBuilder, key: &[u8], text: &[u8]) -> Result<(), JsonError> {
    let fails = |what: &str| invalid(format!("{}: {what}", String::from_utf8_lossy(key)));
    match text.first() {
        Some(b'"') => {
            let text = string(text).map_err(|error| fails(&error))?;
            let decoded = decode_value(text.as_bytes());
            let decoded = decoded.transpose().map_err(|error| fails(&error))?;
            let bytes = decoded.as_deref().unwrap_or(text.as_bytes());
            index.add(key, Item::Inline(bytes))?;
        }
        // A nested value is kept as written.
        Some(b'{') => {
            let checked = serde_json::from_slice::<IgnoredAny>(text);
            checked.map_err(|error| fails(&error.to_string()))?;
            index.add(key, Item::Inline(text))?;
        }
        Some(b'[') => {
            let list = List::parse(text).map_err(|error| fails(&error))?;
            let url = string(list.url).map_err(|error| fails(&error))?;
            index.add(key, Item::Target(&url, list.range))?;
        }
        _ => {
            return Err(fails(
                "its value is neither a text, nor an object, nor a list",
            ));
        }
    }
    Ok(())
}

impl Write for JsonReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.is_none()
            && let Err(failure) = self.push(bytes)
        {
            self.failure = Some(failure);
        }
        match self.failure {
            None => Ok(bytes.len()),
            Some(_) => Err(io::Error::other("the references are not read on")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
