//! The codecs of numcodecs by their ids, which both Zarr versions use (v3 as `numcodecs.<id>`).

use super::astype::AsType;
use super::base64::Base64;
use super::blosc::Blosc;
use super::bzip::Bz2;
use super::categorize::Categorize;
use super::checksum::Checksum;
use super::config::Config;
use super::deflate::{Gzip, Zlib};
use super::delta::Delta;
use super::error::CodecError;
use super::lz4::Lz4;
use super::number::{Kind, Number};
use super::packbits::PackBits;
use super::pcodec::Pcodec;
use super::scale_offset::ScaleOffset;
use super::shuffle::Shuffle;
use super::stage::Stage;
use super::xz::Lzma;
use super::zstandard::Zstd;

/// A codec that changes the type of numbers, or keeps it.
#[derive(Debug)]
pub(super) struct Filter {
    /// None if decoding changes no byte.
    pub(super) stage: Option<Stage>,
    /// The types of the stored and of the decoded numbers, where the codec says them.
    pub(super) types: Option<(Number, Number)>,
}

/// A codec from bytes to bytes; none if the id is not of one.
///
/// `element_bytes` is the element size for codecs that leave it out.
///
/// # Errors
/// A configuration that is wrong or not supported.
pub(super) fn bytes_to_bytes(
    id: &str,
    config: Config<'_>,
    element_bytes: usize,
) -> Result<Option<Undo>, CodecError> {
    let name = config.codec;
    Ok(Some(Undo(Some(match id {
        "zlib" => Stage::convert(name, Zlib),
        "gzip" => Stage::convert(name, Gzip),
        "bz2" => Stage::convert(name, Bz2),
        "lzma" => Stage::convert(name, Lzma::new(config)?),
        "zstd" => Stage::convert(name, Zstd),
        "lz4" => Stage::convert(name, Lz4),
        "blosc" => Stage::convert(name, Blosc),
        "base64" => Stage::convert(name, Base64),
        "crc32" | "crc32c" | "adler32" => Stage::verify(name, Checksum::located(config)?),
        "fletcher32" => Stage::verify(name, Checksum::fletcher32()),
        "jenkins_lookup3" => Stage::verify(name, Checksum::jenkins_lookup3(config)?),
        "shuffle" => match Shuffle::new(config, element_bytes)? {
            Some(shuffle) => Stage::convert(name, shuffle),
            None => return Ok(Some(Undo(None))),
        },
        _ => return Ok(None),
    }))))
}

/// What undoes a codec; nothing if its bytes are the decoded ones.
#[derive(Debug)]
pub(super) struct Undo(pub(super) Option<Stage>);

/// A codec from numbers to numbers; none if the id is not of one.
///
/// `default` is the type of the numbers where the configuration may leave it out.
///
/// # Errors
/// A configuration that is wrong or not supported.
pub(super) fn filter(
    id: &str,
    config: Config<'_>,
    default: Option<Number>,
) -> Result<Option<Filter>, CodecError> {
    let name = config.codec;
    let filter = |stage, types| Ok(Some(Filter { stage, types }));
    match id {
        "delta" => {
            let decoded = config.required("dtype", config.number("dtype")?.or(default))?;
            let encoded = config.number("astype")?.unwrap_or(decoded);
            let delta = Delta::new(encoded, decoded)
                .ok_or_else(|| unsupported_pair(name, encoded, decoded))?;
            filter(Some(Stage::convert(name, delta)), Some((encoded, decoded)))
        }
        "fixedscaleoffset" => {
            let codec = ScaleOffset::new(config, default)?;
            let types = codec.types();
            filter(Some(Stage::convert(name, codec)), Some(types))
        }
        "quantize" => {
            let decoded = config.required("dtype", config.number("dtype")?.or(default))?;
            let encoded = config.number("astype")?.unwrap_or(decoded);
            if decoded.kind != Kind::Float || encoded.kind != Kind::Float {
                return Err(unsupported_pair(name, encoded, decoded));
            }
            filter(cast(name, encoded, decoded)?, Some((encoded, decoded)))
        }
        "astype" => {
            // Types that are no numbers (times, text) are only told from each other.
            let same = config.str("encode_dtype")? == config.str("decode_dtype")?;
            if same && config.get("encode_dtype").is_some() {
                return filter(None, None);
            }
            let encoded = config.number("encode_dtype")?;
            let encoded = config.required("encode_dtype", encoded)?;
            let decoded = config.number("decode_dtype")?.or(default);
            let decoded = config.required("decode_dtype", decoded)?;
            filter(cast(name, encoded, decoded)?, Some((encoded, decoded)))
        }
        // Rounding cannot be undone.
        "bitround" => filter(None, None),
        _ => Ok(None),
    }
}

fn cast(name: &str, encoded: Number, decoded: Number) -> Result<Option<Stage>, CodecError> {
    if encoded == decoded {
        return Ok(None);
    }
    match AsType::new(encoded, decoded) {
        Some(codec) => Ok(Some(Stage::convert(name, codec))),
        None => Err(unsupported_pair(name, encoded, decoded)),
    }
}

fn unsupported_pair(name: &str, encoded: Number, decoded: Number) -> CodecError {
    let (encoded, decoded) = (encoded.to_fixed(), decoded.to_fixed());
    CodecError::unsupported(format!(
        "{name} from {} to {}",
        encoded.numpy_descr(),
        decoded.numpy_descr()
    ))
}

/// The element size of `shuffle` in v2 where it is not written.
const SHUFFLED_BYTES: usize = 4;

/// Any codec of a v2 array of elements of constant size.
///
/// `stored` is the type of the numbers that the codec was given, where that is known.
///
/// # Errors
/// An id that is not known, or a configuration that is wrong or not supported.
pub(super) fn any(config: Config<'_>, stored: Option<Number>) -> Result<Option<Stage>, CodecError> {
    let name = config.codec;
    if let Some(Undo(stage)) = bytes_to_bytes(name, config, SHUFFLED_BYTES)? {
        return Ok(stage);
    }
    if let Some(filter) = filter(name, config, None)? {
        return Ok(filter.stage);
    }
    match name {
        "packbits" => Ok(Some(Stage::convert(name, PackBits))),
        "pcodec" => Ok(Some(Stage::convert(name, Pcodec::new(stored)))),
        "categorize" => match Categorize::new(config)?.fixed(config)? {
            Some(labels) => Ok(Some(Stage::convert(name, labels))),
            None => Err(CodecError::invalid(
                name,
                "objects in an array of constant-size elements",
            )),
        },
        _ => Err(CodecError::unsupported(name)),
    }
}
