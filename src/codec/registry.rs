//! The table of codecs by name. Zarr v2 has the codecs of numcodecs; v3 has them as `numcodecs.<name>`,
//! beside its own codecs.
//!
//! A new codec is one file with a [`Stage`] and one row in [`CODECS`].

use super::astype::AsType;
use super::base64::Base64;
use super::blosc::Blosc;
use super::bzip::Bz2;
use super::cast_value;
use super::categorize::Categorize;
use super::checksum::Checksum;
use super::config::Config;
use super::deflate::{Deflate, Gzip, Zlib};
use super::delta::Delta;
use super::error::CodecError;
use super::fixed_scale_offset::FixedScaleOffset;
#[cfg(feature = "grib")]
use super::grib::{Grib, Library};
#[cfg(feature = "jpegxl")]
use super::imagecodecs::JpegXl;
use super::imagecodecs::{self, Jpeg, Predictor, Rows, Webp};
use super::lz4::Lz4;
use super::number::{Number, NumberKind};
use super::packbits::PackBits;
use super::pcodec::Pcodec;
use super::reals::RealFilter;
use super::scale_offset;
use super::shuffle::Shuffle;
use super::stage::{Decode, Stage};
use super::xz::Lzma;
use super::zfp::Zfpy;
use super::zstandard::Zstd;
use crate::zarr::{ByteOrder, Fixed};

/// The kind of a codec (Zarr v3, "Codecs"), with its constructor if both Zarr versions share it. If the
/// constructor returns no stage, the encoded bytes are the decoded bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Codec {
    /// An array to an array of a different shape or type.
    ArrayToArray,
    /// Numbers to numbers; the second argument is their type if the configuration has none.
    NumbersToNumbers(fn(Config<'_>, Option<Number>) -> Result<Filter, CodecError>),
    /// Numbers to numbers, only in v3; the second argument is the type of the decoded numbers.
    RealsToReals(fn(Config<'_>, &Fixed) -> Result<RealFilter, CodecError>),
    /// An array to bytes.
    ArrayToBytes,
    /// Bytes to bytes; the second argument is the element size if the configuration has none.
    BytesToBytes(fn(Config<'_>, usize) -> Result<Option<Stage>, CodecError>),
    /// Bytes to bytes through other codecs, only in v3.
    Conditional,
}

use Codec::{
    ArrayToArray, ArrayToBytes, BytesToBytes, Conditional, NumbersToNumbers, RealsToReals,
};

/// All codecs by name, in the order of `zarrfs --version`.
pub(super) static CODECS: &[(&str, Codec)] = &[
    ("ChunkyCodec", ArrayToBytes),
    ("HorizontalDeltaCodec", ArrayToArray),
    ("adler32", BytesToBytes(checksum)),
    ("astype", NumbersToNumbers(astype)),
    ("base64", BytesToBytes(|config, _| stage(config, Base64))),
    ("bitround", NumbersToNumbers(|_, _| Ok(Filter::default()))),
    ("blosc", BytesToBytes(|config, _| stage(config, Blosc))),
    ("bytes", ArrayToBytes),
    ("bz2", BytesToBytes(|config, _| stage(config, Bz2))),
    ("cast_value", RealsToReals(cast_value::new)),
    ("categorize", ArrayToBytes),
    ("conditional", Conditional),
    ("crc32", BytesToBytes(checksum)),
    ("crc32c", BytesToBytes(checksum)),
    ("delta", NumbersToNumbers(delta)),
    ("fixedscaleoffset", NumbersToNumbers(fixed_scale_offset)),
    (
        "fletcher32",
        BytesToBytes(|config, _| verify(config, Checksum::fletcher32())),
    ),
    #[cfg(feature = "grib")]
    ("grib", ArrayToBytes),
    #[cfg(feature = "grib")]
    ("gribberish", ArrayToBytes),
    ("gzip", BytesToBytes(|config, _| stage(config, Gzip))),
    ("imagecodecs_deflate", BytesToBytes(deflate)),
    ("imagecodecs_delta", ArrayToArray),
    ("imagecodecs_floatpred", ArrayToArray),
    (
        "imagecodecs_jpeg",
        BytesToBytes(|config, _| stage(config, Jpeg::of_tiff(config)?)),
    ),
    #[cfg(feature = "jpegxl")]
    (
        "imagecodecs_jpegxl",
        BytesToBytes(|config, _| stage(config, JpegXl::new(config)?)),
    ),
    (
        "imagecodecs_lzw",
        BytesToBytes(|config, _| stage(config, imagecodecs::Lzw)),
    ),
    (
        "imagecodecs_packbits",
        BytesToBytes(|config, _| stage(config, imagecodecs::PackBits)),
    ),
    (
        "imagecodecs_webp",
        BytesToBytes(|config, _| stage(config, Webp::new(config)?)),
    ),
    (
        "imagecodecs_zlib",
        BytesToBytes(|config, _| stage(config, Zlib)),
    ),
    (
        "imagecodecs_zstd",
        BytesToBytes(|config, _| stage(config, Zstd)),
    ),
    (
        "jenkins_lookup3",
        BytesToBytes(|config, _| verify(config, Checksum::jenkins_lookup3(config)?)),
    ),
    ("jpeg", ArrayToBytes),
    #[cfg(feature = "jpegxl")]
    ("jpegxl", ArrayToBytes),
    ("json2", ArrayToBytes),
    ("lz4", BytesToBytes(|config, _| stage(config, Lz4))),
    (
        "lzma",
        BytesToBytes(|config, _| stage(config, Lzma::new(config)?)),
    ),
    ("msgpack2", ArrayToBytes),
    ("n5_default", ArrayToBytes),
    ("optional", ArrayToBytes),
    ("packbits", ArrayToArray),
    ("pcodec", ArrayToBytes),
    ("quantize", NumbersToNumbers(quantize)),
    ("reshape", ArrayToArray),
    ("scale_offset", RealsToReals(scale_offset::new)),
    ("sharding_indexed", ArrayToBytes),
    ("shuffle", BytesToBytes(shuffle)),
    ("transpose", ArrayToArray),
    ("vlen-array", ArrayToBytes),
    ("vlen-bytes", ArrayToBytes),
    ("vlen-utf8", ArrayToBytes),
    ("zfp", ArrayToBytes),
    ("zfpy", ArrayToBytes),
    ("zarrs.optional", ArrayToBytes),
    ("zlib", BytesToBytes(|config, _| stage(config, Zlib))),
    ("zstd", BytesToBytes(|config, _| stage(config, Zstd))),
];

/// The codecs that this build lacks, each with the cargo feature that adds it.
pub(super) static NOT_BUILT_IN: &[(&str, &str)] = &[
    #[cfg(not(feature = "grib"))]
    ("grib", "grib"),
    #[cfg(not(feature = "grib"))]
    ("gribberish", "grib"),
    #[cfg(not(feature = "jpegxl"))]
    ("imagecodecs_jpegxl", "jpegxl"),
    #[cfg(not(feature = "jpegxl"))]
    ("jpegxl", "jpegxl"),
];

/// Returns the cargo feature that this build lacks for the codec of this name.
pub(super) fn missing_feature(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("numcodecs.").unwrap_or(name);
    let row = NOT_BUILT_IN.iter().find(|(own, _)| *own == name);
    row.map(|(_, feature)| *feature)
}

/// Returns the codec of this name.
pub(super) fn find(name: &str) -> Option<Codec> {
    let row = CODECS.iter().find(|(own, _)| *own == name);
    row.map(|(_, codec)| *codec)
}

/// A codec from numbers to numbers.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// The stage; `None` if decoding changes no byte.
    pub(super) stage: Option<Stage>,
    /// The types of the encoded and of the decoded numbers, if the configuration has them.
    pub(super) types: Option<(Number, Number)>,
}

impl Filter {
    fn new(stage: Option<Stage>, encoded: Number, decoded: Number) -> Self {
        Self {
            stage,
            types: Some((encoded, decoded)),
        }
    }
}

fn stage(config: Config<'_>, codec: impl Decode + 'static) -> Result<Option<Stage>, CodecError> {
    Ok(Some(Stage::decode(config.codec, codec)))
}

fn verify(config: Config<'_>, checksum: Checksum) -> Result<Option<Stage>, CodecError> {
    Ok(Some(Stage::verify(config.codec, checksum)))
}

fn checksum(config: Config<'_>, _: usize) -> Result<Option<Stage>, CodecError> {
    verify(config, Checksum::located(config)?)
}

fn shuffle(config: Config<'_>, element_bytes: usize) -> Result<Option<Stage>, CodecError> {
    let shuffle = Shuffle::new(config, element_bytes)?;
    Ok(shuffle.map(|shuffle| Stage::decode(config.codec, shuffle)))
}

fn deflate(config: Config<'_>, _: usize) -> Result<Option<Stage>, CodecError> {
    match config.bool("raw")?.unwrap_or(false) {
        true => stage(config, Deflate),
        false => stage(config, Zlib),
    }
}

/// Returns the stage of a predictor of TIFF; `is_of_bytes` for `imagecodecs_floatpred`.
///
/// `shape` and `number` are those of the array; `None` if the codec decodes bytes, as filters of v2 do without a
/// configuration.
pub(super) fn predictor(
    config: Config<'_>,
    is_of_bytes: bool,
    shape: Option<&[u64]>,
    number: Option<Number>,
) -> Result<Option<Stage>, CodecError> {
    let own_shape = config.integers("shape")?;
    let bytes = Number {
        kind: NumberKind::UInt,
        width: 1,
        order: ByteOrder::Little,
    };
    let number = config.number("dtype")?.or(number).unwrap_or(bytes);
    let Some(shape) = own_shape.as_deref().or(shape) else {
        let what = format!("{} without a shape", config.codec);
        return Err(CodecError::unsupported(what));
    };
    let rows = Rows::along(config, shape, config.i64("axis")?.unwrap_or(-1))?;
    let predictor = match is_of_bytes {
        true => Predictor::of_bytes(config, rows, number)?,
        false => Predictor::of_numbers(config, rows, number)?,
    };
    stage(config, predictor)
}

/// Returns the decoded and the encoded type, `dtype` and `astype`.
fn types(config: Config<'_>, default: Option<Number>) -> Result<(Number, Number), CodecError> {
    let decoded = config.required("dtype", config.number("dtype")?.or(default))?;
    Ok((decoded, config.number("astype")?.unwrap_or(decoded)))
}

fn delta(config: Config<'_>, default: Option<Number>) -> Result<Filter, CodecError> {
    let (decoded, encoded) = types(config, default)?;
    let delta = Delta::new(encoded, decoded)
        .ok_or_else(|| unsupported_pair(config.codec, encoded, decoded))?;
    let stage = Stage::decode(config.codec, delta);
    Ok(Filter::new(Some(stage), encoded, decoded))
}

fn fixed_scale_offset(config: Config<'_>, default: Option<Number>) -> Result<Filter, CodecError> {
    let codec = FixedScaleOffset::new(config, default)?;
    let (encoded, decoded) = codec.types();
    let stage = Stage::decode(config.codec, codec);
    Ok(Filter::new(Some(stage), encoded, decoded))
}

fn quantize(config: Config<'_>, default: Option<Number>) -> Result<Filter, CodecError> {
    let (decoded, encoded) = types(config, default)?;
    if decoded.kind != NumberKind::Float || encoded.kind != NumberKind::Float {
        return Err(unsupported_pair(config.codec, encoded, decoded));
    }
    cast(config.codec, encoded, decoded)
}

fn astype(config: Config<'_>, default: Option<Number>) -> Result<Filter, CodecError> {
    // Types other than numbers (times, text) are only compared.
    let same = config.str("encode_dtype")? == config.str("decode_dtype")?;
    if same && config.get("encode_dtype").is_some() {
        return Ok(Filter::default());
    }
    let encoded = config.number("encode_dtype")?;
    let encoded = config.required("encode_dtype", encoded)?;
    let decoded = config.number("decode_dtype")?.or(default);
    let decoded = config.required("decode_dtype", decoded)?;
    cast(config.codec, encoded, decoded)
}

fn cast(name: &str, encoded: Number, decoded: Number) -> Result<Filter, CodecError> {
    let stage = match AsType::new(encoded, decoded) {
        _ if encoded == decoded => None,
        Some(codec) => Some(Stage::decode(name, codec)),
        None => return Err(unsupported_pair(name, encoded, decoded)),
    };
    Ok(Filter::new(stage, encoded, decoded))
}

fn unsupported_pair(name: &str, encoded: Number, decoded: Number) -> CodecError {
    let (encoded, decoded) = (encoded.to_fixed(), decoded.to_fixed());
    CodecError::unsupported(format!(
        "{name} from {} to {}",
        encoded.numpy_descr(),
        decoded.numpy_descr()
    ))
}

/// The element size of `shuffle` in v2 if the configuration has none.
const V2_SHUFFLE_BYTES: usize = 4;

/// Returns the stage of a codec of a v2 array with elements of constant size.
///
/// `stored` is the type of the numbers that the codec encoded, if known.
///
/// # Errors
/// The name is unknown, or the configuration is wrong or not supported.
pub(super) fn v2(config: Config<'_>, stored: Option<Number>) -> Result<Option<Stage>, CodecError> {
    match (find(config.codec), config.codec) {
        (Some(BytesToBytes(new)), _) => new(config, V2_SHUFFLE_BYTES),
        (Some(NumbersToNumbers(new)), _) => Ok(new(config, None)?.stage),
        #[cfg(feature = "grib")]
        (_, "grib") => stage(config, Grib::new(config, Library::EcCodes, stored)?),
        #[cfg(feature = "grib")]
        (_, "gribberish") => stage(config, Grib::new(config, Library::Gribberish, stored)?),
        (_, "packbits") => stage(config, PackBits),
        (_, "pcodec") => stage(config, Pcodec::new(stored)),
        (_, "zfpy") => stage(config, Zfpy::new(config, stored, None)?),
        (_, "imagecodecs_delta") => v2_predictor(config, false, stored),
        (_, "imagecodecs_floatpred") => v2_predictor(config, true, stored),
        (_, "categorize") => match Categorize::new(config)?.fixed(config)? {
            Some(labels) => stage(config, labels),
            None => Err(config.invalid("objects in an array of constant-size elements")),
        },
        (_, name) => Err(CodecError::unsupported(name)),
    }
}

/// As [`predictor`], for a filter of v2, whose configuration has the shape and the type of the numbers.
fn v2_predictor(
    config: Config<'_>,
    is_of_bytes: bool,
    stored: Option<Number>,
) -> Result<Option<Stage>, CodecError> {
    // The decoded numbers are read as those of the array. VirtualiZarr writes the wrong order for big-endian files.
    if let (Some(own), Some(stored)) = (config.number("dtype")?, stored)
        && own.order != stored.order
        && own.width == stored.width
        && own.width > 1
    {
        let [own, stored] = [own, stored].map(|number| number.to_fixed().numpy_descr());
        return Err(config.invalid(format!("dtype is {own} in an array of {stored}")));
    }
    predictor(config, is_of_bytes, None, None)
}
