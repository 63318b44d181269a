//! Codec chains as names and configurations.

use serde_json::{Map, Value};

use super::error::{MetadataError, json_type};

/// The codecs of an array, in the order of encoding.
#[derive(Debug, Clone, PartialEq)]
pub enum CodecChain {
    /// Zarr v2: filters, then the compressor (v2, "Metadata").
    V2 {
        /// The order of the elements of a chunk before the first filter.
        order: Order,
        /// The filters in the order of encoding.
        filters: Vec<CodecSpec>,
        /// The compressor, which encodes last.
        compressor: Option<CodecSpec>,
    },
    /// Zarr v3: array to array, array to bytes, bytes to bytes (v3 core, "Codecs").
    V3(Vec<CodecSpec>),
    /// N5: blocks with a header, and big-endian elements in C order.
    N5 {
        /// The compression of the elements of a block; `None` if they are not compressed.
        compression: Option<CodecSpec>,
    },
}

/// The memory order of the elements of a v2 chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Row-major: the last axis varies fastest.
    C,
    /// Column-major: the first axis varies fastest.
    F,
}

/// A codec by name, known or not. A codec with `must_understand: false` is not skipped: without the codec,
/// the chunk would decode to wrong bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecSpec {
    /// v2: the `id` of numcodecs; v3: the registered name; N5: the `type`.
    pub name: String,
    /// The configuration; v2: without `id`; N5: without `type`.
    pub configuration: Map<String, Value>,
}

impl CodecChain {
    /// Returns the codecs in the order of encoding.
    pub fn specs(&self) -> impl Iterator<Item = &CodecSpec> {
        let (first, last) = match self {
            Self::V2 {
                filters,
                compressor,
                ..
            } => (&filters[..], compressor.as_ref()),
            Self::V3(codecs) => (&codecs[..], None),
            Self::N5 { compression } => (&[][..], compression.as_ref()),
        };
        first.iter().chain(last)
    }

    /// Parses the list of v3: names, or objects with `name` and `configuration`.
    ///
    /// # Errors
    /// The value is not a list, or an entry has no name.
    pub(super) fn from_v3(value: &Value) -> Result<Self, MetadataError> {
        let list = value.as_array().ok_or_else(|| {
            MetadataError::invalid(
                "codecs",
                format!("expected a list, not {}", json_type(value)),
            )
        })?;
        if list.is_empty() {
            return Err(MetadataError::invalid("codecs", "no array-to-bytes codec"));
        }
        let specs: Result<_, _> = list.iter().map(CodecSpec::from_v3).collect();
        Ok(Self::V3(specs?))
    }
}

impl CodecSpec {
    /// Parses a v3 extension: a name, or an object with `name` and `configuration`.
    ///
    /// # Errors
    /// The value is neither of the two.
    pub fn from_v3(value: &Value) -> Result<Self, MetadataError> {
        let (name, configuration) = named_configuration("codecs", value)?;
        Ok(Self {
            name: name.to_owned(),
            configuration: configuration.cloned().unwrap_or_default(),
        })
    }

    /// Parses a numcodecs configuration: an object with `id`.
    ///
    /// # Errors
    /// The value is not an object, or has no `id`.
    pub fn from_v2(field: &str, value: &Value) -> Result<Self, MetadataError> {
        let object = value.as_object().ok_or_else(|| {
            MetadataError::invalid(
                field,
                format!("expected an object, not {}", json_type(value)),
            )
        })?;
        let Some(Value::String(name)) = object.get("id") else {
            return Err(MetadataError::invalid(field, "no id that is a string"));
        };
        let mut configuration = object.clone();
        configuration.remove("id");
        Ok(Self {
            name: name.clone(),
            configuration,
        })
    }
}

/// The name of a v3 extension, and its configuration, if any.
pub(super) type NamedConfiguration<'a> = (&'a str, Option<&'a Map<String, Value>>);

/// Returns the name and the configuration of a v3 extension, which may be a bare name.
pub(super) fn named_configuration<'a>(
    field: &str,
    value: &'a Value,
) -> Result<NamedConfiguration<'a>, MetadataError> {
    let object = match value {
        Value::String(name) => return Ok((name, None)),
        Value::Object(object) => object,
        _ => {
            let what = format!("expected a name or an object, not {}", json_type(value));
            return Err(MetadataError::invalid(field, what));
        }
    };
    let Some(Value::String(name)) = object.get("name") else {
        return Err(MetadataError::invalid(field, "no name that is a string"));
    };
    match object.get("configuration") {
        None | Some(Value::Null) => Ok((name, None)),
        Some(Value::Object(configuration)) => Ok((name, Some(configuration))),
        Some(other) => {
            let what = format!("{name}: the configuration is {}", json_type(other));
            Err(MetadataError::invalid(field, what))
        }
    }
}
