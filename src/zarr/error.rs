//! Errors of metadata.

use serde_json::Value;

/// An error of parsing a document, or a field of a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The document exceeds a limit.
    #[error("{actual} {unit} of metadata, the limit is {limit}")]
    TooLarge {
        /// The actual number.
        actual: usize,
        /// The limit.
        limit: usize,
        /// The unit: bytes or values.
        unit: &'static str,
    },
    /// The bytes are not JSON.
    #[error("line {line}, column {column}: {what}")]
    Json {
        /// The line, counted from 1.
        line: usize,
        /// The column in bytes, counted from 1.
        column: usize,
        /// The error at this position.
        what: String,
    },
    /// The bytes are of another format.
    #[error("no JSON, but {what}")]
    OtherFormat {
        /// The format, and what to do.
        what: &'static str,
    },
    /// The JSON violates the specification.
    #[error("{field}: {what}")]
    Invalid {
        /// The member of the document, such as `chunk_grid`.
        field: String,
        /// The violation.
        what: String,
    },
    /// Metadata that may be valid, but are not supported.
    #[error("{0}")]
    Unsupported(Unsupported),
}

/// An unsupported extension or option, such as `data type foo`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not supported")]
pub struct Unsupported {
    /// The kind and name, such as `data type foo`.
    pub what: String,
}

impl From<Unsupported> for MetadataError {
    fn from(unsupported: Unsupported) -> Self {
        Self::Unsupported(unsupported)
    }
}

impl MetadataError {
    pub(super) fn invalid(field: &str, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.to_owned(),
            what: what.into(),
        }
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(Unsupported { what: what.into() })
    }

    /// Returns the error for a product of sizes that exceeds a `u64`.
    pub(super) fn overflow(field: &str, product: &str) -> Self {
        Self::invalid(field, format!("{product} is more than 2^64 - 1"))
    }
}

/// Returns the JSON type of a value, for messages.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The maximum length of a quoted text in a message, in bytes.
const MAX_EXCERPT_BYTES: usize = 80;

/// Formats a name for a message: escaped, and truncated if it is long.
pub(crate) fn printable(name: &str) -> String {
    let (start, cut) = cut(name);
    format!("{}{cut}", start.escape_debug())
}

/// Formats a value for a message, truncated if it is long.
pub(super) fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > MAX_EXCERPT_BYTES => "a long list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => {
            let (start, cut) = cut(text);
            format!("{start:?}{cut}")
        }
        value => {
            let text = value.to_string();
            let (start, cut) = cut(&text);
            format!("{start}{cut}")
        }
    }
}

/// Returns the beginning of a text, and dots if the text is truncated.
fn cut(text: &str) -> (&str, &'static str) {
    let ends = (0..=MAX_EXCERPT_BYTES.min(text.len())).rev();
    let start = ends
        .filter_map(|end| text.get(..end))
        .next()
        .unwrap_or_default();
    (start, if start.len() < text.len() { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_quote_short_values_and_the_beginning_of_long_ones() {
        assert_eq!(excerpt(&json!([1, "a"])), "[1,\"a\"]");
        assert_eq!(excerpt(&json!("a\n")), "\"a\\n\"");
        assert_eq!(excerpt(&json!({"a": 1})), "an object");
        assert_eq!(excerpt(&json!(vec![0; 1000])), "a long list");
        let long = "\u{e9}".repeat(1000);
        assert_eq!(
            excerpt(&json!(long)),
            format!("{:?}...", "\u{e9}".repeat(40))
        );
        assert_eq!(
            printable(&format!("a{long}")),
            format!("a{}...", "\u{e9}".repeat(39))
        );
        assert_eq!(printable("a\u{1b}[31m"), "a\\u{1b}[31m");
        assert_eq!(json_type(&json!(null)), "null");
    }
}
