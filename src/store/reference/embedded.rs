//! Targets that are values themselves: `data:` URLs (RFC 2397) and `base64:` texts.
//!
//! Writers of references put small values into the target, or into a template that many keys name. They are
//! decoded once, when the references are read.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode;
use siphasher::sip::SipHasher13;

use super::Reference;

/// Accepts base64 with and without padding: URLs often lack it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the text of a target names.
#[derive(Debug)]
pub(super) enum TargetText {
    /// An object at this URL or path.
    Url(Arc<str>),
    /// The text contains the value, which is this.
    Value(SharedValue),
    /// The text contains a value that cannot be decoded, for this reason.
    Invalid(Box<str>),
}

impl TargetText {
    pub(super) fn new(text: &str) -> Self {
        match decode(text) {
            None => Self::Url(text.into()),
            Some(Ok(bytes)) => Self::Value(SharedValue::new(bytes)),
            Some(Err(reason)) => Self::Invalid(reason.into()),
        }
    }

    /// Returns whether the text names nothing.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Url(url) if url.is_empty())
    }

    /// Returns the reference to a range of the target; to the whole target if there is no range.
    ///
    /// # Errors
    /// The reason why a value in the text cannot be decoded, or is too short.
    pub(super) fn reference(&self, range: Option<Range<u64>>) -> Result<Reference, String> {
        let value = match self {
            Self::Url(url) => {
                return Ok(Reference::Target {
                    url: Arc::clone(url),
                    range,
                    precondition: None,
                });
            }
            Self::Invalid(reason) => return Err(reason.to_string()),
            Self::Value(value) => value,
        };
        let Some(range) = range else {
            return Ok(Reference::Shared(value.clone()));
        };
        let position = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let part = value.part(position(range.start)..position(range.end));
        part.map(Reference::Shared).ok_or_else(|| {
            let (length, found) = (range.end.saturating_sub(range.start), value.len());
            format!(
                "the reference is to {length} bytes at offset {} of a value in the references, which has \
                 {found} bytes",
                range.start
            )
        })
    }
}

/// A range of a value that many keys may name. Neither a copy nor a comparison of it reads the bytes, so that a short
/// document with many keys of one value stays cheap.
#[derive(Debug, Clone)]
pub(in crate::store) struct SharedValue {
    value: Arc<Vec<u8>>,
    /// A hash of the whole value.
    digest: u64,
    range: Range<usize>,
}

impl SharedValue {
    fn new(value: Vec<u8>) -> Self {
        let mut hasher = SipHasher13::new();
        value.hash(&mut hasher);
        Self {
            digest: hasher.finish(),
            range: 0..value.len(),
            value: Arc::new(value),
        }
    }

    fn part(&self, range: Range<usize>) -> Option<Self> {
        self.value.get(range.clone())?;
        Some(Self {
            range,
            ..self.clone()
        })
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns the bytes; a copy, unless the range is the whole value.
    pub(super) fn bytes(&self) -> Arc<Vec<u8>> {
        match self.len() == self.value.len() {
            true => Arc::clone(&self.value),
            false => {
                let part = self.value.get(self.range.clone()).unwrap_or_default();
                Arc::new(part.to_vec())
            }
        }
    }
}

impl PartialEq for SharedValue {
    fn eq(&self, other: &Self) -> bool {
        self.range == other.range
            && self.digest == other.digest
            && (Arc::ptr_eq(&self.value, &other.value) || self.value == other.value)
    }
}

impl Eq for SharedValue {}

impl Hash for SharedValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.digest, &self.range).hash(state);
    }
}

/// Returns whether the text of a target contains a value, valid or not.
pub(super) fn is_embedded(text: &str) -> bool {
    parts(text).is_some()
}

/// Returns the prefix `data` or `base64`, and the text behind the colon.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let is_data = scheme.eq_ignore_ascii_case("data");
    (is_data || scheme == "base64").then_some((if is_data { "data" } else { scheme }, rest))
}

/// Decodes the value in the text of a target; `None` if the text names an object.
fn decode(text: &str) -> Option<Result<Vec<u8>, String>> {
    let (scheme, rest) = parts(text)?;
    if scheme == "base64" {
        return Some(decode_base64(rest.as_bytes()));
    }
    let Some((media_type, data)) = rest.split_once(',') else {
        return Some(Err("its target is a `data:` URL without a comma".into()));
    };
    let data: Cow<'_, [u8]> = percent_decode(data.as_bytes()).into();
    let last = media_type.rsplit(';').next().unwrap_or_default();
    Some(match last.trim().eq_ignore_ascii_case("base64") {
        true => decode_base64(&data),
        false => Ok(data.into_owned()),
    })
}

fn decode_base64(encoded: &[u8]) -> Result<Vec<u8>, String> {
    let is_space = |byte: &&u8| byte.is_ascii_whitespace();
    let decoded = match encoded.iter().any(|byte| is_space(&byte)) {
        true => {
            let dense: Vec<u8> = encoded
                .iter()
                .filter(|byte| !is_space(byte))
                .copied()
                .collect();
            BASE64.decode(dense)
        }
        false => BASE64.decode(encoded),
    };
    decoded.map_err(|error| format!("the value in its target is no base64: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, String> {
        match TargetText::new(text).reference(range)? {
            Reference::Shared(value) => Ok(value.bytes().to_vec()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn data_urls_and_base64_texts_are_values() {
        for text in [
            "data:text/plain;base64,AAEC/w==",
            "data:application/octet-stream;base64,AAEC%2Fw%3D%3D",
            "data:;base64,AAEC/w",
            "DATA:;charset=x;BASE64,AAEC\n /w==",
            "base64:AAEC/w==",
            "base64:AAEC/w",
            "data:,%00%01%02%ff",
        ] {
            assert_eq!(value(text, None), Ok(vec![0, 1, 2, 255]), "{text}");
            assert_eq!(value(text, Some(1..3)), Ok(vec![1, 2]), "{text}");
            assert_eq!(value(text, Some(4..4)), Ok(vec![]), "{text}");
            assert!(is_embedded(text));
        }
        assert_eq!(value("data:,a b,c#d", None), Ok(b"a b,c#d".to_vec()));
        assert_eq!(value("data:,", None), Ok(vec![]));
    }

    #[test]
    fn values_that_are_damaged_or_too_short_are_errors() {
        for (text, range, reason) in [
            ("data:text/plain", None, "without a comma"),
            ("data:;base64,A", None, "no base64"),
            ("base64:*", None, "no base64"),
            ("base64:AAE=", Some(1..3), "2 bytes at offset 1"),
            ("data:,abc", Some(4..4), "has 3 bytes"),
            ("data:,abc", Some(0..u64::MAX), "has 3 bytes"),
        ] {
            let error = value(text, range).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn ranges_of_a_value_share_its_memory() {
        let target = TargetText::new("data:,abcdef");
        let part = |range| match target.reference(Some(range)).unwrap() {
            Reference::Shared(value) => value,
            other => panic!("{other:?}"),
        };
        let (one, other) = (part(1..4), part(2..6));
        assert!(Arc::ptr_eq(&one.value, &other.value));
        assert_eq!((one.len(), other.bytes().to_vec()), (3, b"cdef".to_vec()));
        assert!(one != other && one == part(1..4));
    }

    #[test]
    fn other_targets_are_urls() {
        for text in [
            "s3://b/data:x",
            "a/b.nc",
            "file:///x",
            "database:",
            "",
            "./data:x",
        ] {
            let target = TargetText::new(text);
            assert!(matches!(target, TargetText::Url(url) if *url == *text));
        }
    }
}
