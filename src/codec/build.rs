//! From the chain in the metadata to the stages of a pipeline.

use std::sync::Arc;

use serde_json::Value;

use crate::zarr::{
    ByteOrder, CodecChain, CodecSpec, DataType, FillValue, Fixed, Order, Scalar, Variable,
};

use super::categorize::Categorize;
use super::config::Config;
use super::element::Element;
use super::error::CodecError;
use super::number::Number;
use super::numcodecs::{self, Undo};
use super::object::Object;
use super::packbits::PackBits;
use super::pcodec::Pcodec;
use super::pipeline::Pipeline;
use super::shard::{Fill, IndexLocation, Sharding};
use super::stage::{Convert, Size, Stage};
use super::swap::Swap;
use super::transpose::Transpose;
use super::vlen::Item;

/// The longest chain of codecs; what writers make has fewer than ten.
pub const MAX_CODECS: usize = 32;
/// How deep shards may be nested in shards.
const MAX_SHARDING_DEPTH: usize = 8;

/// What a chain comes to.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// In the order of decoding.
    pub(super) stages: Vec<Stage>,
    /// The codec of elements of variable length, with its name, after all stages.
    pub(super) object: Option<(String, Object, Option<Transpose>)>,
    /// If the chain is this and nothing else.
    pub(super) sharding: Option<Arc<Sharding>>,
    pub(super) text: String,
}

pub(super) fn chain(
    chain: &CodecChain,
    data_type: &DataType,
    shape: &[u64],
    fill: &FillValue,
    depth: usize,
) -> Result<Chain, CodecError> {
    let count = chain.specs().count();
    if count > MAX_CODECS {
        let what = format!("{count} codecs, at most {MAX_CODECS} are read");
        return Err(CodecError::invalid("chain", what));
    }
    match chain {
        CodecChain::V2 {
            order,
            filters,
            compressor,
        } => v2(*order, filters, compressor.as_ref(), data_type, shape),
        CodecChain::V3(specs) => {
            let mut builder = Builder::new(data_type, shape, fill, depth);
            for spec in specs {
                builder.push(spec)?;
            }
            builder.finish()
        }
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
            return Err(CodecError::invalid(
                "filters",
                "no codec turns objects into bytes",
            ));
        }
    };
    let mut stages = Vec::new();
    for spec in compressor.into_iter().chain(filters.iter().rev()) {
        stages.extend(numcodecs::any(config(spec), element_bytes)?);
    }
    let mut transpose = None;
    if order == Order::F && shape.len() > 1 {
        names.insert(0, "order F");
        transpose = Transpose::new(shape, &reversed, element_bytes);
    }
    let object = match object {
        Some((name, codec)) => Some((name, codec, transpose)),
        None => {
            stages.extend(transpose.map(|transpose| Stage::convert("order F", transpose)));
            None
        }
    };
    Ok(Chain {
        stages,
        object,
        sharding: None,
        text: names.join(" | "),
    })
}

/// A codec that makes bytes of objects.
fn object(config: Config<'_>, variable: &Variable) -> Result<Object, CodecError> {
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
            "vlen-utf8" => Object::Vlen(Item::Text),
            "vlen-bytes" => Object::Vlen(Item::Bytes),
            "vlen-array" => Object::Vlen(Item::Array { item_bytes }),
            "json2" => match config.str("encoding")?.unwrap_or("utf-8") {
                "utf-8" | "utf8" | "UTF-8" | "ascii" => Object::Json,
                other => {
                    return Err(CodecError::unsupported(format!(
                        "json2 with encoding {other}"
                    )));
                }
            },
            "msgpack2" => match config.bool("raw")?.unwrap_or(false) {
                false => Object::MsgPack,
                true => return Err(CodecError::unsupported("msgpack2 with raw")),
            },
            "categorize" => Object::Categorize(Categorize::new(config)?),
            other => return Err(CodecError::unsupported(other)),
        },
    )
}

/// Collects the codecs of a v3 chain, following type and shape from codec to codec.
struct Builder<'a> {
    fill: &'a FillValue,
    depth: usize,
    data_type: DataType,
    shape: Vec<u64>,
    /// Whether a filter has changed the numbers, so that fill values would have to be encoded.
    filtered: bool,
    arrays: Vec<ArrayStep>,
    serializer: Option<Serializer>,
    bytes: Vec<Stage>,
    names: Vec<String>,
}

enum ArrayStep {
    /// Axes of the encoded array, by their numbers in the decoded one of this shape.
    Transpose {
        shape: Vec<u64>,
        order: Vec<usize>,
        element_bytes: usize,
    },
    Stage(Stage),
}

enum Serializer {
    /// Elements as they are, or with their words turned.
    Bytes(Option<Stage>),
    Stage(Stage),
    Object(String, Object),
    Sharding(Arc<Sharding>),
}

impl<'a> Builder<'a> {
    fn new(data_type: &DataType, shape: &[u64], fill: &'a FillValue, depth: usize) -> Self {
        Self {
            fill,
            depth,
            data_type: data_type.clone(),
            shape: shape.to_vec(),
            filtered: false,
            arrays: Vec::new(),
            serializer: None,
            bytes: Vec::new(),
            names: Vec::new(),
        }
    }

    fn push(&mut self, spec: &CodecSpec) -> Result<(), CodecError> {
        let config = config(spec);
        let (id, wrapped) = match spec.name.strip_prefix("numcodecs.") {
            Some(id) => (id, true),
            // A codec may be named by an address that ends with its name.
            None if spec.name.starts_with("https://") => {
                (spec.name.rsplit('/').next().unwrap_or_default(), false)
            }
            None => (spec.name.as_str(), false),
        };
        let id = id.strip_prefix("numcodecs.").unwrap_or(id);
        self.names.push(spec.name.clone());
        if self.serializer.is_some() {
            return match numcodecs::bytes_to_bytes(id, config, self.element_bytes())? {
                Some(Undo(stage)) => {
                    self.bytes.extend(stage);
                    Ok(())
                }
                None if self.array_codec(id) => {
                    Err(config.invalid("stands after the codec that makes bytes"))
                }
                None => Err(CodecError::unsupported(&spec.name)),
            };
        }
        match id {
            "transpose" => self.transpose(config),
            // The registered `packbits` makes bytes; numcodecs' keeps an array of them.
            "packbits" if wrapped => self.packbits(config),
            _ if self.filter(id, config)? => Ok(()),
            _ => self.serializer(id, config),
        }
    }

    fn array_codec(&self, id: &str) -> bool {
        [
            "transpose",
            "delta",
            "fixedscaleoffset",
            "quantize",
            "astype",
            "bitround",
            "packbits",
        ]
        .contains(&id)
            || [
                "bytes",
                "sharding_indexed",
                "vlen-utf8",
                "vlen-bytes",
                "pcodec",
            ]
            .contains(&id)
    }

    fn element_bytes(&self) -> usize {
        self.data_type.size_bytes().unwrap_or(1)
    }

    fn fixed(&self, config: Config<'_>) -> Result<&Fixed, CodecError> {
        self.data_type.fixed().ok_or_else(|| {
            config.invalid(format!("{} elements have no constant size", self.data_type))
        })
    }

    fn transpose(&mut self, config: Config<'_>) -> Result<(), CodecError> {
        let rank = self.shape.len();
        let order: Vec<usize> = match config.get("order") {
            // Drafts of the specification had these.
            Some(Value::String(order)) if order == "C" => (0..rank).collect(),
            Some(Value::String(order)) if order == "F" => (0..rank).rev().collect(),
            _ => {
                let order = config.required("order", config.integers("order")?)?;
                let axes = order
                    .iter()
                    .map(|axis| usize::try_from(*axis).unwrap_or(usize::MAX));
                axes.collect()
            }
        };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..rank) {
            return Err(config.invalid(format!("{order:?} does not order {rank} axes")));
        }
        if let Some(name) = self.names.last_mut() {
            let axes: Vec<String> = order.iter().map(ToString::to_string).collect();
            *name = format!("{name}({})", axes.join(", "));
        }
        let element_bytes = self.element_bytes();
        let permute = |items: &[u64]| -> Vec<u64> {
            order
                .iter()
                .filter_map(|axis| items.get(*axis).copied())
                .collect()
        };
        let encoded_shape = permute(&self.shape);
        match self.arrays.last_mut() {
            // Two in a row are one.
            Some(ArrayStep::Transpose { order: before, .. }) => {
                *before = order
                    .iter()
                    .filter_map(|axis| before.get(*axis).copied())
                    .collect();
            }
            _ => self.arrays.push(ArrayStep::Transpose {
                shape: self.shape.clone(),
                order,
                element_bytes,
            }),
        }
        self.shape = encoded_shape;
        Ok(())
    }

    fn packbits(&mut self, config: Config<'_>) -> Result<(), CodecError> {
        if self.fixed(config)?.scalar != Scalar::Bool {
            return Err(config.invalid(format!("packs booleans, not {}", self.data_type)));
        }
        let count = self
            .shape
            .iter()
            .try_fold(1u64, |n, axis| n.checked_mul(*axis));
        let packed = count.and_then(|n| PackBits.encoded_size(Size::Exact(n)));
        let packed = packed.ok_or_else(|| config.invalid("the chunk overflows 64 bits"))?;
        self.arrays
            .push(ArrayStep::Stage(Stage::convert(config.codec, PackBits)));
        self.shape = vec![packed.bytes()];
        self.filtered = true;
        self.data_type = DataType::Fixed(Fixed {
            scalar: Scalar::UInt(ByteOrder::Little),
            size_bytes: 1,
        });
        Ok(())
    }

    /// Adds a codec from numbers to numbers; false if the id is not of one.
    fn filter(&mut self, id: &str, config: Config<'_>) -> Result<bool, CodecError> {
        let default = self.data_type.fixed().and_then(Number::of);
        let Some(filter) = numcodecs::filter(id, config, default)? else {
            return Ok(false);
        };
        let element_bytes = self.fixed(config)?.size_bytes;
        if let Some((encoded, decoded)) = filter.types {
            if encoded.order == ByteOrder::Big || decoded.order == ByteOrder::Big {
                let what = format!("{} of big-endian numbers", config.codec);
                return Err(CodecError::unsupported(what));
            }
            if decoded.width != element_bytes {
                let what = format!("numbers of {} bytes in {}", decoded.width, self.data_type);
                return Err(config.invalid(what));
            }
            if encoded != decoded {
                self.data_type = DataType::Fixed(encoded.to_fixed());
            }
        }
        if let Some(stage) = filter.stage {
            self.filtered = true;
            self.arrays.push(ArrayStep::Stage(stage));
        }
        Ok(true)
    }

    fn serializer(&mut self, id: &str, config: Config<'_>) -> Result<(), CodecError> {
        let serializer = match id {
            "bytes" | "endian" => Serializer::Bytes(self.swap(config)?),
            "pcodec" => {
                self.fixed(config)?;
                Serializer::Stage(Stage::convert(config.codec, Pcodec))
            }
            "sharding_indexed" => Serializer::Sharding(Arc::new(self.sharding(config)?)),
            "vlen-utf8" | "vlen-bytes" | "vlen-array" | "json2" | "msgpack2" | "categorize" => {
                let DataType::Variable(variable) = &self.data_type else {
                    let what = format!("makes bytes of objects, not of {}", self.data_type);
                    return Err(config.invalid(what));
                };
                Serializer::Object(config.codec.to_owned(), object(config, variable)?)
            }
            _ if numcodecs::bytes_to_bytes(id, config, self.element_bytes())?.is_some() => {
                return Err(config.invalid("stands before any codec that makes bytes"));
            }
            _ => return Err(CodecError::unsupported(config.codec)),
        };
        self.serializer = Some(serializer);
        Ok(())
    }

    fn swap(&mut self, config: Config<'_>) -> Result<Option<Stage>, CodecError> {
        let fixed = self.fixed(config)?;
        let (element_bytes, words) = (fixed.size_bytes, fixed.words());
        // zarr-python writes structures without it, and means little-endian.
        let optional = words.is_empty() || matches!(fixed.scalar, Scalar::Struct(_));
        let big = match config.str("endian")? {
            Some("little") => false,
            Some("big") => true,
            Some(other) => return Err(config.invalid(format!("endian is {other}"))),
            None if optional => false,
            None => return Err(config.invalid(format!("endian is missing for {fixed}"))),
        };
        if !big || words.is_empty() {
            return Ok(None);
        }
        if let Some(name) = self.names.last_mut() {
            name.push_str("(big)");
        }
        let swap = Swap::new(element_bytes, words);
        Ok(swap.map(|swap| Stage::change(config.codec, swap)))
    }

    fn sharding(&mut self, config: Config<'_>) -> Result<Sharding, CodecError> {
        if self.depth >= MAX_SHARDING_DEPTH {
            let what = format!("shards in shards, deeper than {MAX_SHARDING_DEPTH}");
            return Err(config.invalid(what));
        }
        if self.filtered {
            let what = format!("{} after filters", config.codec);
            return Err(CodecError::unsupported(what));
        }
        let inner_shape = config.required("chunk_shape", config.integers("chunk_shape")?)?;
        let codecs = config.required("codecs", specs(config, "codecs")?)?;
        let index_codecs = match specs(config, "index_codecs")? {
            Some(codecs) => codecs,
            None => default_index_codecs()?,
        };
        let location = match config.str("index_location")? {
            None | Some("end") => IndexLocation::End,
            Some("start") => IndexLocation::Start,
            Some(other) => return Err(config.invalid(format!("index_location is {other}"))),
        };
        let depth = self.depth + 1;
        let chain = CodecChain::V3(codecs);
        let inner = Pipeline::nested(&chain, &self.data_type, &inner_shape, self.fill, depth)?;
        let index = |shape: &[u64]| {
            let chain = CodecChain::V3(index_codecs);
            let words = DataType::Fixed(Fixed {
                scalar: Scalar::UInt(ByteOrder::Little),
                size_bytes: 8,
            });
            Pipeline::nested(&chain, &words, shape, &FillValue::Undefined, depth)
        };
        if let Some(name) = self.names.last_mut() {
            *name = format!("{name}({inner_shape:?}: {})", inner.describe());
        }
        Sharding::new(
            &self.shape,
            inner,
            index,
            location,
            self.fill_element(config)?,
        )
    }

    fn fill_element(&self, config: Config<'_>) -> Result<Fill, CodecError> {
        let invalid = |what: String| Err(config.invalid(what));
        let fill = match (&self.data_type, self.fill) {
            (DataType::Fixed(fixed), FillValue::Fixed(bytes))
                if bytes.len() == fixed.size_bytes =>
            {
                Fill::Bytes(bytes.clone())
            }
            (DataType::Fixed(fixed), FillValue::Undefined) => {
                Fill::Bytes(vec![0; fixed.size_bytes])
            }
            (DataType::Variable(Variable::Text), FillValue::Variable(Value::String(text))) => {
                Fill::Element(Element::Text(text.clone()))
            }
            (DataType::Variable(Variable::Bytes), FillValue::Variable(Value::String(text))) => {
                let mut bytes = vec![0; text.len()];
                match super::base64::Base64.convert(text.as_bytes(), &mut bytes) {
                    Ok(n) => bytes.truncate(n),
                    Err(_) => return invalid(format!("fill value {text} is not base64")),
                }
                Fill::Element(Element::Bytes(bytes))
            }
            (DataType::Variable(variable), FillValue::Undefined) => Fill::Element(match variable {
                Variable::Text => Element::Text(String::new()),
                Variable::Bytes => Element::Bytes(Vec::new()),
                Variable::Array(_) => Element::Array(Vec::new()),
                Variable::Object => Element::Json(Value::Null),
            }),
            (DataType::Variable(Variable::Object), FillValue::Variable(value)) => {
                Fill::Element(Element::Json(value.clone()))
            }
            (data_type, fill) => return invalid(format!("fill value {fill:?} of {data_type}")),
        };
        Ok(fill)
    }

    fn finish(self) -> Result<Chain, CodecError> {
        let Some(serializer) = self.serializer else {
            return Err(CodecError::invalid(
                "chain",
                "no codec turns the array into bytes",
            ));
        };
        let only = self.arrays.is_empty() && self.bytes.is_empty();
        let mut stages: Vec<Stage> = self.bytes.into_iter().rev().collect();
        let mut chain = Chain {
            text: self.names.join(" | "),
            ..Chain::default()
        };
        let variable = matches!(self.data_type, DataType::Variable(_));
        let mut swap = None;
        match serializer {
            Serializer::Bytes(stage) => swap = stage,
            Serializer::Stage(stage) => stages.push(stage),
            Serializer::Object(name, object) => chain.object = Some((name, object, None)),
            Serializer::Sharding(sharding) => {
                chain.sharding = only.then(|| Arc::clone(&sharding));
                if variable {
                    let object = Object::Shard(sharding);
                    chain.object = Some(("sharding_indexed".into(), object, None));
                } else {
                    stages.push(Stage::convert("sharding_indexed", sharding));
                }
            }
        }
        for step in self.arrays.into_iter().rev() {
            match step {
                ArrayStep::Transpose {
                    shape,
                    order,
                    element_bytes,
                } => {
                    let transpose = Transpose::new(&shape, &order, element_bytes);
                    match &mut chain.object {
                        Some((_, _, slot)) => *slot = transpose,
                        // The words of an element can be turned after it has been moved, where
                        // they need no buffer of their own.
                        None => {
                            stages.extend(transpose.map(|t| Stage::convert("transpose", t)));
                        }
                    }
                }
                ArrayStep::Stage(stage) => {
                    stages.extend(swap.take());
                    stages.push(stage);
                }
            }
        }
        stages.extend(swap);
        chain.stages = stages;
        Ok(chain)
    }
}

/// The codecs under `key`.
fn specs(config: Config<'_>, key: &str) -> Result<Option<Vec<CodecSpec>>, CodecError> {
    let Some(list) = config.list(key)? else {
        return Ok(None);
    };
    let specs: Result<_, _> = list.iter().map(CodecSpec::from_v3).collect();
    specs
        .map(Some)
        .map_err(|error| config.invalid(format!("{key}: {error}")))
}

/// What zarr-python writes, for metadata that leave it out.
fn default_index_codecs() -> Result<Vec<CodecSpec>, CodecError> {
    let bytes = serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}});
    let specs: Result<_, _> = [bytes, "crc32c".into()]
        .iter()
        .map(CodecSpec::from_v3)
        .collect();
    specs.map_err(|_| CodecError::invalid("sharding_indexed", "index_codecs"))
}
