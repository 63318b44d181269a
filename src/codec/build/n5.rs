//! The one stage of a dataset of N5: its blocks, and the compression in them.

use crate::zarr::{CodecSpec, DataType};

use super::Chain;
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::codec::lz4_block::N5Lz4;
use crate::codec::n5_block::N5Block;
use crate::codec::registry;
use crate::codec::stage::{Action, Stage};

/// The name of the stage in messages.
const BLOCK: &str = "n5 block";

/// The stages of a chain, for chunks of a shape.
///
/// # Errors
/// An unknown compression, or one whose parameters are wrong.
pub(super) fn chain(
    compression: Option<&CodecSpec>,
    data_type: &DataType,
    shape: &[u64],
) -> Result<Chain, CodecError> {
    let item_bytes = data_type.size_bytes().ok_or_else(|| {
        let what = "elements of variable length have no blocks";
        CodecError::invalid(BLOCK, what)
    })?;
    let stage = compression.map(decompress).transpose()?;
    let block = N5Block::new(shape, item_bytes, stage);
    Ok(Chain {
        stages: vec![Stage::decode(BLOCK, block)],
        text: compression.map_or("raw", |spec| &spec.name).to_owned(),
        ..Chain::default()
    })
}

/// The decoder of a compression. `lzma`, `zlib` and `zstd` are those of numcodecs: zarr-python writes
/// them with their parameters, n5-zstandard writes the same frames.
fn decompress(spec: &CodecSpec) -> Result<Stage, CodecError> {
    let config = Config {
        codec: &spec.name,
        map: &spec.configuration,
    };
    let name = match spec.name.as_str() {
        "lz4" => {
            let is_of_numcodecs = config.get("acceleration").is_some();
            return Ok(Stage::decode("lz4", N5Lz4 { is_of_numcodecs }));
        }
        "gzip" if config.bool("useZlib")? == Some(true) => "zlib",
        "bzip2" => "bz2",
        // `.xz` is the default of numcodecs' codec.
        "xz" => "lzma",
        name @ ("blosc" | "gzip" | "lzma" | "zlib" | "zstd") => name,
        other => return Err(CodecError::unsupported(format!("{other} of N5"))),
    };
    let of_numcodecs = Config {
        codec: name,
        ..config
    };
    match registry::v2(of_numcodecs, None)? {
        Some(Stage {
            action: Action::Decode(decoder),
            ..
        }) => Ok(Stage {
            name: spec.name.clone(),
            action: Action::Decode(decoder),
        }),
        _ => Err(CodecError::unsupported(format!("{} of N5", spec.name))),
    }
}
