//! The texts in references: values, templates and lists.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr2;

use super::super::ReferenceError;
use super::super::embedded::is_embedded;

/// Prefix of an encoded value.
const BASE64: &[u8] = b"base64:";

/// The maximum length of a URL after templates are replaced, in bytes: a short text can name a long template
/// very often.
const MAX_URL_BYTES: usize = 8 << 10;

/// Decodes an inline value; `None` if it is not encoded.
///
/// # Errors
/// The reason why the encoding is invalid.
pub(super) fn decode_value(text: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let encoded = text.strip_prefix(BASE64)?;
    let decoded = STANDARD.decode(encoded);
    Some(decoded.map_err(|error| format!("its value is no base64: {error}")))
}

/// Replacements for names in URLs that are written `{{name}}`.
#[derive(Debug, Default)]
pub(super) struct Templates(HashMap<String, String>);

impl Templates {
    /// Parses the object `templates`.
    ///
    /// # Errors
    /// The template that is no string, or that is a function.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let templates: HashMap<String, serde_json::Value> =
            serde_json::from_slice(text).map_err(|error| format!("`templates`: {error}"))?;
        let mut texts = HashMap::new();
        for (name, value) in templates {
            let serde_json::Value::String(text) = value else {
                return Err(format!("the template `{name}` is no text"));
            };
            if text.contains("{{") {
                return Err(format!(
                    "the template `{name}` is one that is called; only texts are replaced"
                ));
            }
            texts.insert(name, text);
        }
        Ok(Self(texts))
    }

    /// Replaces the template names in a URL. A URL that is a value itself has up to `limit_bytes` bytes.
    ///
    /// # Errors
    /// The name that no template has; the URL would be longer than `limit_bytes`, or than [`MAX_URL_BYTES`] if
    /// it names an object.
    pub(super) fn apply(&self, url: &str, limit_bytes: u64) -> Result<String, ReferenceError> {
        let unsupported = ReferenceError::Unsupported;
        let mut applied = String::new();
        let mut rest = url;
        while let Some((before, behind)) = rest.split_once("{{") {
            let (name, behind) = behind
                .split_once("}}")
                .ok_or_else(|| unsupported(format!("`{url}` has `{{{{` without `}}}}`")))?;
            let text = self.0.get(name.trim()).ok_or_else(|| {
                unsupported(format!("no template has the name `{}`", name.trim()))
            })?;
            let bytes = (applied.len() + before.len() + text.len()) as u64;
            if bytes > limit_bytes {
                return Err(ReferenceError::TooLarge { limit_bytes });
            }
            applied.push_str(before);
            applied.push_str(text);
            if applied.len() > MAX_URL_BYTES && !is_embedded(&applied) {
                let what = format!("a URL of more than {MAX_URL_BYTES} bytes, with its templates");
                return Err(unsupported(what));
            }
            rest = behind;
        }
        applied.push_str(rest);
        Ok(applied)
    }
}

/// A reference written as a list: `[url]` or `[url, offset, length]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List<'a> {
    /// The URL as JSON, with its quotes.
    pub(super) url: &'a [u8],
    pub(super) range: Option<(u64, u64)>,
}

impl<'a> List<'a> {
    /// # Errors
    /// The reason why the list is invalid.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, String> {
        let inner = text
            .strip_prefix(b"[")
            .and_then(|text| text.strip_suffix(b"]"));
        let inner = inner.ok_or("no list")?.trim_ascii();
        let end = end_of_string(inner).ok_or_else(|| match inner.starts_with(b"null") {
            true => "it has no URL (null), and no other target is known".to_owned(),
            false => "its first element is no URL".to_owned(),
        })?;
        let (url, rest) = inner.split_at(end);
        let range = match rest.trim_ascii() {
            b"" => None,
            rest => {
                let mut numbers = rest.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                let parts = (
                    numbers.next(),
                    numbers.next(),
                    numbers.next(),
                    numbers.next(),
                );
                let (Some(b""), Some(offset), Some(length), None) = parts else {
                    return Err("it is neither [url] nor [url, offset, length]".into());
                };
                Some((number(offset, "offset")?, number(length, "length")?))
            }
        };
        Ok(Self { url, range })
    }
}

/// Returns the end of the JSON string at the beginning of `bytes`.
fn end_of_string(bytes: &[u8]) -> Option<usize> {
    bytes.strip_prefix(b"\"")?;
    let mut at = 1;
    loop {
        let found = memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes.get(at + found) {
            Some(b'"') => return Some(at + found + 1),
            // A backslash escapes the next byte.
            _ => at += found + 2,
        }
    }
}

fn number(text: &[u8], what: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).unwrap_or_default();
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        format!("its {what} `{text}` is no number of bytes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_url_and_maybe_a_range() {
        let parse = |text: &str| {
            let list = List::parse(text.as_bytes())?;
            Ok::<_, String>((String::from_utf8(list.url.to_vec()).unwrap(), list.range))
        };
        assert_eq!(parse(r#"["u"]"#).unwrap(), (r#""u""#.into(), None));
        assert_eq!(
            parse(r#"[ "a,\"]b" , 3 ,4 ]"#).unwrap(),
            (r#""a,\"]b""#.into(), Some((3, 4)))
        );
        for (bad, why) in [
            ("[]", "no URL"),
            ("[null, 1, 2]", "null"),
            (r#"["u", 1]"#, "neither"),
            (r#"["u", 1, 2, 3]"#, "neither"),
            (r#"["u", -1, 2]"#, "offset `-1`"),
            (r#"["u", 1, 2.5]"#, "length `2.5`"),
            (r#"["u", 1, 99999999999999999999]"#, "length"),
            (r#"["u" 1, 2]"#, "neither"),
            (r#"["u", null, 2]"#, "offset"),
            (r#"["u", "1", 2]"#, "offset"),
            (r#"[["u"]]"#, "no URL"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn templates_are_replaced_by_name_and_functions_are_refused() {
        let templates = Templates::parse(br#"{"u": "s3://b", "v": "x"}"#).unwrap();
        let apply = |url: &str| templates.apply(url, 100).map_err(|error| error.to_string());
        assert_eq!(apply("{{u}}/a/{{ v }}.nc").unwrap(), "s3://b/a/x.nc");
        assert_eq!(apply("{u}").unwrap(), "{u}");
        assert!(apply("{{w}}").unwrap_err().contains("`w`"));
        assert!(apply("{{u").is_err());
        assert!(apply(&"{{u}}".repeat(20)).is_err());
        let called = Templates::parse(br#"{"f": "file_{{c}}"}"#).unwrap_err();
        assert!(called.contains("`f`"), "{called}");
    }

    #[test]
    fn a_template_may_be_a_long_value_but_no_long_url() {
        let long = "A".repeat(4 * MAX_URL_BYTES);
        let text = format!(r#"{{"v": "data:;base64,{long}", "w": "{long}"}}"#);
        let templates = Templates::parse(text.as_bytes()).unwrap();
        let apply = |url: &str| templates.apply(url, 5 * MAX_URL_BYTES as u64);
        assert_eq!(apply("{{v}}").unwrap().len(), 13 + long.len());
        assert_eq!(apply("base64:{{w}}").unwrap().len(), 7 + long.len());
        assert!(matches!(
            apply("s3://{{w}}"),
            Err(ReferenceError::Unsupported(_))
        ));
        assert!(matches!(
            apply("{{v}}{{w}}"),
            Err(ReferenceError::TooLarge { .. })
        ));
    }

    #[test]
    fn values_in_base64_are_decoded() {
        assert_eq!(decode_value(b"base64:AAE="), Some(Ok(vec![0, 1])));
        assert_eq!(decode_value(b"text"), None);
        assert!(decode_value(b"base64:!").unwrap().is_err());
    }
}
