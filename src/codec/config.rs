//! Parses a codec's configuration.

use serde_json::{Map, Value};

use super::error::CodecError;
use super::number::Number;
use crate::zarr::error::printable;

/// The configuration of one codec. A `null` entry counts as absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Config<'a> {
    pub(super) codec: &'a str,
    pub(super) map: &'a Map<String, Value>,
}

impl<'a> Config<'a> {
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn invalid(self, what: impl Into<String>) -> CodecError {
        CodecError::invalid(self.codec, what)
    }

    /// Rejects members that the specification of the codec does not have.
    pub(super) fn only(self, keys: &[&str]) -> Result<(), CodecError> {
        match self.map.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => Err(self.invalid(format!("unknown member {}", printable(key)))),
            None => Ok(()),
        }
    }

    fn wrong(self, key: &str, value: &Value, expected: &str) -> CodecError {
        self.invalid(format!("{key} is {value}, expected {expected}"))
    }

    fn typed<T>(
        self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CodecError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => Err(self.wrong(key, value, expected)),
        }
    }

    pub(super) fn u64(self, key: &str) -> Result<Option<u64>, CodecError> {
        self.typed(key, "an unsigned integer", Value::as_u64)
    }

    pub(super) fn i64(self, key: &str) -> Result<Option<i64>, CodecError> {
        self.typed(key, "an integer", Value::as_i64)
    }

    pub(super) fn f64(self, key: &str) -> Result<Option<f64>, CodecError> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(super) fn bool(self, key: &str) -> Result<Option<bool>, CodecError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn str(self, key: &str) -> Result<Option<&'a str>, CodecError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(super) fn list(self, key: &str) -> Result<Option<&'a [Value]>, CodecError> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// Returns a list of unsigned integers.
    pub(super) fn integers(self, key: &str) -> Result<Option<Vec<u64>>, CodecError> {
        self.typed(key, "a list of unsigned integers", |value| {
            value.as_array()?.iter().map(Value::as_u64).collect()
        })
    }

    /// Returns a numeric type, as numpy writes it.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] if the type is not numeric.
    pub(super) fn number(self, key: &str) -> Result<Option<Number>, CodecError> {
        let Some(text) = self.str(key)? else {
            return Ok(None);
        };
        match Number::parse(text) {
            Some(number) => Ok(Some(number)),
            None => Err(CodecError::unsupported(format!(
                "{} with {key} {text}",
                self.codec
            ))),
        }
    }

    pub(super) fn required<T>(self, key: &str, found: Option<T>) -> Result<T, CodecError> {
        found.ok_or_else(|| self.invalid(format!("{key} is missing")))
    }
}
