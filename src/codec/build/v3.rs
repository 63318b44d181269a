//! Codec chains of Zarr v3: array-to-array, array-to-bytes and bytes-to-bytes codecs.

mod bytes;
mod optional;
mod predictor;
mod reals;
mod reshape;
mod sharding;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{Chain, ChainContext, OutputElements, config, object};
use crate::codec::config::Config;
use crate::codec::error::CodecError;
#[cfg(feature = "grib")]
use crate::codec::grib::{Grib, Library};
use crate::codec::imagecodecs::Jpeg;
#[cfg(feature = "jpegxl")]
use crate::codec::imagecodecs::JpegXl;
use crate::codec::number::Number;
use crate::codec::object::ObjectCodec;
use crate::codec::packbits::PackBits;
use crate::codec::packed_bits::PackedBits;
use crate::codec::pcodec::Pcodec;
use crate::codec::registry::{self, Codec, Filter};
use crate::codec::shard::Sharding;
use crate::codec::stage::{Decode, Size, Stage};
use crate::codec::swap::Swap;
use crate::codec::transpose::Transpose;
use crate::codec::zfp::{Zfp, Zfpy};
use crate::zarr::{ByteOrder, CodecSpec, DataType, FillValue, Fixed, Scalar};

/// The maximum nesting depth of codecs whose configurations contain codecs.
const MAX_NESTING_DEPTH: usize = 8;

/// Collects the codecs of a v3 chain, with the data type and shape after each codec.
pub(super) struct Builder<'a> {
    /// The encoded fill value, or why it cannot be encoded; only shards need the fill value.
    fill: Result<Cow<'a, FillValue>, CodecError>,
    context: ChainContext,
    /// The element size of `shuffle` without `elementsize`: that of the array, before any filter
    /// (zarr-python).
    shuffled_bytes: usize,
    data_type: DataType,
    shape: Vec<u64>,
    arrays: Vec<ArrayStep>,
    serializer: Option<Serializer>,
    bytes: Vec<Stage>,
    names: Vec<String>,
}

enum ArrayStep {
    /// For each axis of the encoded array, the axis of the decoded array, which has this shape.
    Transpose {
        shape: Vec<u64>,
        order: Vec<usize>,
        element_bytes: usize,
    },
    Stage(Stage),
    /// A stage whose input is the stored bytes, in whatever byte order.
    Bytes(Stage),
    /// A different shape for the same sequence of elements.
    Reshape,
}

enum Serializer {
    /// The elements, whose bytes are swapped if a stage is given.
    Bytes(Option<Stage>),
    Stage(Stage),
    /// Blocks of N5, and the stage that swaps the bytes of their elements.
    N5(Stage, Option<Stage>),
    Object(String, ObjectCodec),
    Sharding(Arc<Sharding>),
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        data_type: &DataType,
        shape: &[u64],
        fill: &'a FillValue,
        context: ChainContext,
    ) -> Self {
        Self {
            fill: Ok(Cow::Borrowed(fill)),
            context,
            shuffled_bytes: data_type.size_bytes().unwrap_or(1),
            data_type: data_type.clone(),
            shape: shape.to_vec(),
            arrays: Vec::new(),
            serializer: None,
            bytes: Vec::new(),
            names: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, spec: &CodecSpec) -> Result<(), CodecError> {
        let config = config(spec);
        let (id, wrapped) = match spec.name.strip_prefix("numcodecs.") {
            Some(id) => (id, true),
            // The name of a codec may be a URL that ends with a known name.
            None => match spec.name.strip_prefix("https://") {
                Some(url) => (url.rsplit_once('/').map_or(url, |(_, id)| id), false),
                None => (spec.name.as_str(), false),
            },
        };
        let id = id.strip_prefix("numcodecs.").unwrap_or(id);
        let id = if id == "endian" { "bytes" } else { id };
        self.names.push(spec.name.clone());
        match (registry::find(id), &self.serializer) {
            (Some(Codec::BytesToBytes(new)), Some(_)) => {
                self.bytes.extend(new(config, self.shuffled_bytes)?);
                Ok(())
            }
            (Some(Codec::Conditional), Some(_)) if !wrapped => {
                self.bytes.push(self.conditional(config)?);
                Ok(())
            }
            (Some(Codec::BytesToBytes(_) | Codec::Conditional), None) => {
                Err(config.invalid("precedes the array-to-bytes codec"))
            }
            (Some(_), Some(_)) => Err(config.invalid("follows the array-to-bytes codec")),
            (Some(Codec::NumbersToNumbers(new)), None) => {
                let default = self.data_type.fixed().and_then(Number::of);
                self.filter(config, new(config, default)?)
            }
            (Some(Codec::RealsToReals(new)), None) if !wrapped => self.reals(config, new),
            (Some(Codec::ArrayToArray), None) => match id {
                "transpose" => self.transpose(config),
                "reshape" if !wrapped => self.reshape(config),
                // `packbits` of numcodecs encodes to an array of bytes, the registered codec to bytes.
                "packbits" if wrapped => self.packbits(config),
                "packbits" => self.serializer(id, config),
                "HorizontalDeltaCodec" | "imagecodecs_delta" if !wrapped => {
                    self.predictor(config, false)
                }
                "imagecodecs_floatpred" if !wrapped => self.predictor(config, true),
                _ => Err(CodecError::unsupported(&spec.name)),
            },
            (Some(Codec::ArrayToBytes), None) if id == "ChunkyCodec" && !wrapped => {
                self.chunky(config)
            }
            (Some(Codec::ArrayToBytes), None) => self.serializer(id, config),
            _ => Err(CodecError::unsupported(&spec.name)),
        }
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
            // Drafts of the specification have these values.
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
        self.permute(config, order)
    }

    /// Changes the order of the axes of the encoded array.
    fn permute(&mut self, config: Config<'_>, order: Vec<usize>) -> Result<(), CodecError> {
        if matches!(self.arrays.last(), Some(ArrayStep::Bytes(_))) {
            let what = format!("{} after a codec of the stored bytes", config.codec);
            return Err(CodecError::unsupported(what));
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
            // Two consecutive permutations are merged into one.
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
            .push(ArrayStep::Stage(Stage::decode(config.codec, PackBits)));
        self.shape = vec![packed.bytes()];
        self.fill = Err(after_filters(config));
        self.data_type = DataType::Fixed(Fixed {
            scalar: Scalar::UInt(ByteOrder::Little),
            size_bytes: 1,
        });
        Ok(())
    }

    fn filter(&mut self, config: Config<'_>, filter: Filter) -> Result<(), CodecError> {
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
            self.fill = Err(after_filters(config));
            self.arrays.push(ArrayStep::Stage(stage));
        }
        Ok(())
    }

    fn serializer(&mut self, id: &str, config: Config<'_>) -> Result<(), CodecError> {
        let serializer = match id {
            "bytes" => Serializer::Bytes(self.swap(config)?),
            "pcodec" => {
                let number = Number::of(self.fixed(config)?);
                Serializer::Stage(Stage::decode(config.codec, Pcodec::new(number)))
            }
            "zfp" if !config.bool("write_header")?.unwrap_or(false) => {
                let zfp = Zfp::new(config, Number::counted(self.fixed(config)?), &self.shape)?;
                Serializer::Stage(Stage::decode(config.codec, zfp))
            }
            // In drafts of `zfp`, the header was optional.
            "zfp" | "zfpy" => {
                let number = Number::counted(self.fixed(config)?);
                let zfpy = Zfpy::new(config, number, Some(&self.shape))?;
                Serializer::Stage(Stage::decode(config.codec, zfpy))
            }
            "packbits" => {
                let packed = PackedBits::new(config, self.fixed(config)?)?;
                Serializer::Stage(Stage::decode(config.codec, packed))
            }
            #[cfg(feature = "grib")]
            "grib" | "gribberish" => {
                let library = match id {
                    "grib" => Library::EcCodes,
                    _ => Library::Gribberish,
                };
                let grib = Grib::new(config, library, Number::of(self.fixed(config)?))?;
                Serializer::Stage(Stage::decode(config.codec, grib))
            }
            "jpeg" => {
                let jpeg = Jpeg::of_array(config, self.fixed(config)?, &self.shape)?;
                Serializer::Stage(Stage::decode(config.codec, jpeg))
            }
            #[cfg(feature = "jpegxl")]
            "jpegxl" => {
                let number = Number::of(self.fixed(config)?);
                let image = JpegXl::of_array(config, number, &self.shape)?;
                Serializer::Stage(Stage::decode(config.codec, image))
            }
            "n5_default" => self.n5_default(config)?,
            "optional" | "zarrs.optional" => Serializer::Stage(self.optional(config)?),
            "sharding_indexed" => Serializer::Sharding(Arc::new(self.sharding(config)?)),
            _ => {
                let DataType::Variable(variable) = &self.data_type else {
                    let what = format!("encodes objects, not {}", self.data_type);
                    return Err(config.invalid(what));
                };
                Serializer::Object(config.codec.to_owned(), object(config, variable)?)
            }
        };
        self.serializer = Some(serializer);
        Ok(())
    }

    /// Returns the stage that converts the words of elements to the byte order of the data type.
    fn swap(&mut self, config: Config<'_>) -> Result<Option<Stage>, CodecError> {
        let fixed = self.fixed(config)?;
        let (element_bytes, words) = (fixed.size_bytes, fixed.words());
        // zarr-python omits `endian` for structures, which are little-endian.
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
        Ok(swap.map(|swap| Stage::in_place(config.codec, swap)))
    }

    pub(super) fn finish(self) -> Result<Chain, CodecError> {
        let elements = self.inner_elements();
        let Some(serializer) = self.serializer else {
            return Err(CodecError::invalid("chain", "no array-to-bytes codec"));
        };
        let only = self.arrays.is_empty() && self.bytes.is_empty();
        let mut stages: Vec<Stage> = self.bytes.into_iter().rev().collect();
        let mut chain = Chain {
            stages: Vec::new(),
            object: None,
            sharding: None,
            elements: OutputElements::Stored,
            text: self.names.join(" | "),
        };
        let variable = matches!(self.data_type, DataType::Variable(_));
        let mut swap = None;
        match serializer {
            Serializer::Bytes(stage) => swap = stage,
            Serializer::Stage(stage) => stages.push(stage),
            Serializer::N5(block, stage) => {
                stages.push(block);
                swap = stage;
            }
            Serializer::Object(name, object) => chain.object = Some((name, object, None)),
            Serializer::Sharding(sharding) => {
                chain.elements = elements;
                chain.sharding = only.then(|| Arc::clone(&sharding));
                if variable {
                    let object = ObjectCodec::Shard(sharding);
                    chain.object = Some(("sharding_indexed".into(), object, None));
                } else {
                    stages.push(Stage::decode("sharding_indexed", sharding));
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
                        Some((_, _, Some(_))) => {
                            let what = "two transpositions of elements of variable length";
                            return Err(CodecError::unsupported(what));
                        }
                        Some((_, _, slot)) => *slot = transpose,
                        // Bytes are swapped in place, after the transposition.
                        None => {
                            stages.extend(transpose.map(|t| Stage::decode("transpose", t)));
                        }
                    }
                }
                ArrayStep::Stage(stage) => {
                    stages.extend(swap.take());
                    stages.push(stage);
                }
                ArrayStep::Bytes(stage) => {
                    swap = None;
                    stages.push(stage);
                }
                ArrayStep::Reshape => {}
            }
        }
        stages.extend(swap);
        chain.stages = stages;
        Ok(chain)
    }
}

/// Returns why shards after a filter are not decoded: the fill value of their inner chunks is encoded too.
fn after_filters(config: Config<'_>) -> CodecError {
    CodecError::unsupported(format!("sharding_indexed after {}", config.codec))
}
