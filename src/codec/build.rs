//! Builds the stages of a pipeline from the codec chain in the metadata.

mod n5;
mod v3;

use std::sync::Arc;

use crate::zarr::{CodecChain, CodecSpec, DataType, FillValue, Order, Variable};

use super::categorize::Categorize;
use super::config::Config;
use super::error::CodecError;
use super::number::Number;
use super::object::ObjectCodec;
use super::registry;
use super::shard::Sharding;
use super::stage::Stage;
use super::transpose::Transpose;
use super::vlen::Item;

/// The maximum length of a codec chain; writers use fewer than ten codecs.
pub const MAX_CODECS: usize = 32;

/// The context of a chain: its nesting depth, and the elements that it decodes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainContext {
    /// The number of codecs that contain the chain.
    pub(super) depth: usize,
    pub(super) elements: OutputElements,
}

/// The elements that a chain decodes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputElements {
    Stored,
    /// Elements of [the next type that NumPy has](crate::zarr::Fixed::widened).
    Widened,
}

impl ChainContext {
    /// Returns the context of the chain of an array.
    pub(super) fn outermost(elements: OutputElements) -> Self {
        Self { depth: 0, elements }
    }

    /// Returns the context of a chain in the configuration of a codec; it decodes to stored elements.
    pub(super) fn nested(self) -> Self {
        Self {
            depth: self.depth + 1,
            elements: OutputElements::Stored,
        }
    }
}

/// The stages of a codec chain.
#[derive(Debug)]
pub(super) struct Chain {
    /// The stages in the order of decoding.
    pub(super) stages: Vec<Stage>,
    /// The codec of elements of variable length, with its name; it decodes after all stages.
    pub(super) object: Option<(String, ObjectCodec, Option<Transpose>)>,
    /// The sharding codec, if it is the only codec of the chain.
    pub(super) sharding: Option<Arc<Sharding>>,
    /// The elements that the stages decode to.
    pub(super) elements: OutputElements,
    pub(super) text: String,
}

pub(super) fn chain(
    chain: &CodecChain,
    data_type: &DataType,
    shape: &[u64],
    fill: &FillValue,
    context: ChainContext,
) -> Result<Chain, CodecError> {
    let count = chain.specs().count();
    if count > MAX_CODECS {
        let what = format!("{count} codecs, the limit is {MAX_CODECS}");
        return Err(CodecError::invalid("chain", what));
    }
    match chain {
        CodecChain::V2 {
            order,
            filters,
            compressor,
        } => v2(*order, filters, compressor.as_ref(), data_type, shape),
        CodecChain::V3(specs) => {
            let mut builder = v3::Builder::new(data_type, shape, fill, context);
            for spec in specs {
                builder.push(spec)?;
            }
            builder.finish()
        }
        CodecChain::N5 { compression } => n5::chain(compression.as_ref(), data_type, shape),
    }
}

fn config(spec: &CodecSpec) -> Config<'_> {
    Config {
        codec: &spec.name,
        map: &spec.configuration,
    }
}

fn v2(
    order: Order,
    filters: &[CodecSpec],
    compressor: Option<&CodecSpec>,
    data_type: &DataType,
    shape: &[u64],
) -> Result<Chain, CodecError> {
    let mut names: Vec<&str> = filters
        .iter()
        .chain(compressor)
        .map(|spec| &*spec.name)
        .collect();
    let reversed: Vec<usize> = (0..shape.len()).rev().collect();
    let element_bytes = data_type.size_bytes().unwrap_or(1);
    let (filters, object) = match (data_type, filters) {
        (DataType::Fixed(_), _) => (filters, None),
        (DataType::Variable(variable), [first, rest @ ..]) => {
            let object = object(config(first), variable)?;
            (rest, Some((first.name.clone(), object)))
        }
        (DataType::Variable(_), []) => {
            return Err(CodecError::invalid("filters", "no codec encodes objects"));
        }
    };
    let mut stages = Vec::new();
    for spec in compressor.into_iter().chain(filters.iter().rev()) {
        let first = filters.is_empty() || filters.first().is_some_and(|f| std::ptr::eq(f, spec));
        let stored = data_type.fixed().filter(|_| first).and_then(Number::of);
        stages.extend(registry::v2(config(spec), stored)?);
    }
    // zarr-python applies the order to `json2` and `msgpack2` as well, although their nested lists are
    // already in C order. Arrays with several axes are decoded the same way.
    let mut transpose = None;
    if order == Order::F && shape.len() > 1 {
        names.insert(0, "order F");
        transpose = Transpose::new(shape, &reversed, element_bytes);
    }
    let object = match object {
        Some((name, codec)) => Some((name, codec, transpose)),
        None => {
            stages.extend(transpose.map(|transpose| Stage::decode("order F", transpose)));
            None
        }
    };
    Ok(Chain {
        stages,
        object,
        sharding: None,
        elements: OutputElements::Stored,
        text: names.join(" | "),
    })
}

/// Returns the codec that encodes elements of variable length.
fn object(config: Config<'_>, variable: &Variable) -> Result<ObjectCodec, CodecError> {
    let item_bytes = match variable {
        Variable::Array(item) => item.size_bytes.max(1),
        _ => 1,
    };
    Ok(
        match config
            .codec
            .strip_prefix("numcodecs.")
            .unwrap_or(config.codec)
        {
            // The three codecs have the same layout. In v3, the data type determines the elements.
            "vlen-utf8" | "vlen-bytes" | "vlen-array" => ObjectCodec::Vlen(match variable {
                Variable::Text => Item::Text,
                Variable::Bytes => Item::Bytes,
                Variable::Array(_) | Variable::Object => Item::Array { item_bytes },
            }),
            "json2" => match config.str("encoding")?.unwrap_or("utf-8") {
                "utf-8" | "utf8" | "UTF-8" | "ascii" => ObjectCodec::Json,
                other => {
                    return Err(CodecError::unsupported(format!(
                        "json2 with encoding {other}"
                    )));
                }
            },
            "msgpack2" => match config.bool("raw")?.unwrap_or(false) {
                false => ObjectCodec::MsgPack,
                true => return Err(CodecError::unsupported("msgpack2 with raw")),
            },
            "categorize" => ObjectCodec::Categorize(Categorize::new(config)?),
            other => return Err(CodecError::unsupported(other)),
        },
    )
}
