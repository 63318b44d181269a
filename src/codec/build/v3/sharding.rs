//! The configuration of `sharding_indexed`.

use serde_json::Value;

use super::{Builder, ChainContext, MAX_NESTING_DEPTH, OutputElements};
use crate::codec::base64::Base64;
use crate::codec::config::Config;
use crate::codec::element::Element;
use crate::codec::error::CodecError;
use crate::codec::pipeline::Pipeline;
use crate::codec::shard::{IndexLocation, InnerFill, Sharding};
use crate::codec::stage::Decode;
use crate::codec::widened;
use crate::zarr::{ByteOrder, CodecChain, CodecSpec, DataType, FillValue, Fixed, Scalar, Variable};

impl Builder<'_> {
    pub(super) fn sharding(&mut self, config: Config<'_>) -> Result<Sharding, CodecError> {
        if self.context.depth >= MAX_NESTING_DEPTH {
            let what = format!("shards nest deeper than {MAX_NESTING_DEPTH}");
            return Err(config.invalid(what));
        }
        let fill = self.fill.as_deref().map_err(Clone::clone)?;
        let inner_shape = config.required("chunk_shape", config.integers("chunk_shape")?)?;
        let codecs = config.required("codecs", specs(config, "codecs")?)?;
        let index_codecs = match specs(config, "index_codecs")? {
            Some(codecs) => codecs,
            None => default_index_codecs()?,
        };
        let location = match config.str("index_location")? {
            None | Some("end") => IndexLocation::End,
            Some("start") => IndexLocation::Start,
            // A proposal (zarr-specs, pull request 368): the index is in the metadata.
            Some("configuration") => {
                let what = format!("{} with index_location configuration", config.codec);
                return Err(CodecError::unsupported(what));
            }
            Some(other) => return Err(config.invalid(format!("index_location is {other}"))),
        };
        let nested = self.context.nested();
        let chain = CodecChain::V3(codecs);
        let elements = self.inner_elements();
        let context = ChainContext { elements, ..nested };
        let inner = Pipeline::build(&chain, &self.data_type, &inner_shape, fill, context)?;
        let index = |shape: &[u64]| {
            let chain = CodecChain::V3(index_codecs);
            let words = DataType::Fixed(Fixed {
                scalar: Scalar::UInt(ByteOrder::Little),
                size_bytes: 8,
            });
            Pipeline::build(&chain, &words, shape, &FillValue::Undefined, nested)
        };
        let fill = self.fill_element(config, fill)?;
        if let Some(name) = self.names.last_mut() {
            *name = format!("{name}({inner_shape:?}: {})", inner.describe());
        }
        Sharding::new(&self.shape, inner, index, location, fill)
    }

    /// Returns the elements that inner chunks decode to: other array codecs take the stored elements.
    pub(super) fn inner_elements(&self) -> OutputElements {
        match self.arrays.is_empty() {
            true => self.context.elements,
            false => OutputElements::Stored,
        }
    }

    fn fill_element(&self, config: Config<'_>, fill: &FillValue) -> Result<InnerFill, CodecError> {
        let invalid = |what: String| Err(config.invalid(what));
        let fixed = |fixed: &Fixed, bytes: Vec<u8>| match self.inner_elements() {
            OutputElements::Stored => Ok(bytes),
            OutputElements::Widened => widened(fixed, &bytes),
        };
        let fill = match (&self.data_type, fill) {
            (DataType::Fixed(stored), FillValue::Fixed(bytes))
                if bytes.len() == stored.size_bytes =>
            {
                InnerFill::Bytes(fixed(stored, bytes.clone())?)
            }
            (DataType::Fixed(stored), FillValue::Undefined) => {
                InnerFill::Bytes(fixed(stored, vec![0; stored.size_bytes])?)
            }
            (DataType::Variable(Variable::Text), FillValue::Variable(Value::String(text))) => {
                InnerFill::Element(Element::Text(text.clone()))
            }
            (DataType::Variable(Variable::Bytes), FillValue::Variable(Value::String(text))) => {
                let mut bytes = vec![0; text.len()];
                match Base64.decode(text.as_bytes(), &mut bytes) {
                    Ok(n) => bytes.truncate(n),
                    Err(_) => return invalid(format!("fill value {text} is not base64")),
                }
                InnerFill::Element(Element::Bytes(bytes))
            }
            (DataType::Variable(variable), FillValue::Undefined) => {
                InnerFill::Element(match variable {
                    Variable::Text => Element::Text(String::new()),
                    Variable::Bytes => Element::Bytes(Vec::new()),
                    Variable::Array(_) => Element::Array(Vec::new()),
                    Variable::Object => Element::from(Value::Null),
                })
            }
            (DataType::Variable(Variable::Object), FillValue::Variable(value)) => {
                InnerFill::Element(Element::from(value.clone()))
            }
            (data_type, fill) => return invalid(format!("fill value {fill:?} of {data_type}")),
        };
        Ok(fill)
    }
}

/// Returns the codecs under `key`.
pub(super) fn specs(config: Config<'_>, key: &str) -> Result<Option<Vec<CodecSpec>>, CodecError> {
    let Some(list) = config.list(key)? else {
        return Ok(None);
    };
    let specs: Result<_, _> = list.iter().map(CodecSpec::from_v3).collect();
    specs
        .map(Some)
        .map_err(|error| config.invalid(format!("{key}: {error}")))
}

/// Returns the index codecs that zarr-python writes, for metadata without `index_codecs`.
fn default_index_codecs() -> Result<Vec<CodecSpec>, CodecError> {
    let bytes = serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}});
    let specs: Result<_, _> = [bytes, "crc32c".into()]
        .iter()
        .map(CodecSpec::from_v3)
        .collect();
    specs.map_err(|_| CodecError::invalid("sharding_indexed", "index_codecs"))
}
