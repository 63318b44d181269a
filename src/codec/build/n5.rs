//! The single stage of an N5 dataset: its blocks, and their compression.

use crate::zarr::{CodecSpec, DataType};

use super::{Chain, OutputElements};
use crate::codec::config::Config;
use crate::codec::error::CodecError;
use crate::codec::lz4_block::N5Lz4;
use crate::codec::n5_block::N5Block;
use crate::codec::registry;
use crate::codec::stage::{Action, Stage};

/// The name of the stage in messages.
const BLOCK: &str = "n5 block";

/// Builds the stages of a chain, for chunks of a shape.
///
/// # Errors
/// The compression is unknown, or its parameters are wrong.
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
        object: None,
        sharding: None,
        elements: OutputElements::Stored,
        text: compression.map_or("raw", |spec| &spec.name).to_owned(),
    })
}

/// Returns the decoder of a compression. `lzma`, `zlib` and `zstd` are the codecs of numcodecs, which
/// zarr-python writes with their parameters; n5-zstandard writes the same frames.
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
        // `.xz` is the default of numcodecs' `lzma`.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::codec::{CodecError, Pipeline};
    use crate::zarr::{CodecChain, CodecSpec, DataType, FillValue, data_type};

    fn pipeline(compression: Option<(&str, Value)>) -> Result<Pipeline, CodecError> {
        let compression = compression.map(|(name, configuration)| CodecSpec {
            name: name.into(),
            configuration: configuration.as_object().cloned().unwrap_or_default(),
        });
        let data_type = data_type::v2::fixed(&">i2".into()).map(DataType::Fixed);
        let chain = CodecChain::N5 { compression };
        Pipeline::new(&chain, &data_type.unwrap(), &[2, 4], &FillValue::Undefined)
    }

    /// A block of 2 x 3 elements, with the values 0 to 5.
    fn block(body: &[u8]) -> Vec<u8> {
        let header = [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2];
        [&header[..], body].concat()
    }

    const ELEMENTS: [u8; 12] = [0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5];
    const CHUNK: [u8; 16] = [0, 0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 4, 0, 5, 0, 0];

    #[test]
    fn compressions_have_the_names_of_n5() {
        let zstd = zstd::bulk::compress(&ELEMENTS, 1).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
        std::io::Write::write_all(&mut gzip, &ELEMENTS).unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
        std::io::Write::write_all(&mut zlib, &ELEMENTS).unwrap();
        let lz4 = lz4_flex::block::compress(&ELEMENTS);
        let sized_lz4 = [&[12, 0, 0, 0][..], &lz4].concat();
        for (compression, body) in [
            (None, ELEMENTS.to_vec()),
            (Some(("gzip", json!({"level": -1}))), gzip.finish().unwrap()),
            (
                Some(("gzip", json!({"useZlib": true}))),
                zlib.finish().unwrap(),
            ),
            (Some(("zstd", json!({"level": 3}))), zstd),
            (Some(("lz4", json!({"blockSize": 65536}))), lz4),
            (Some(("lz4", json!({"acceleration": 1}))), sized_lz4),
        ] {
            let pipeline = pipeline(compression).unwrap();
            assert!(pipeline.encoded_size_bytes().is_none());
            let mut chunk = [0xee; 16];
            pipeline.decode(&block(&body), &mut chunk).unwrap();
            assert_eq!(chunk, CHUNK, "{}", pipeline.describe());
            for end in 0..block(&body).len() {
                let truncated = pipeline.decode(&block(&body)[..end], &mut chunk);
                let is_corrupt = matches!(truncated, Err(CodecError::Corrupt { .. }));
                assert!(is_corrupt, "{}: {end}: {truncated:?}", pipeline.describe());
            }
        }
    }

    #[test]
    fn other_compressions_are_named() {
        for (name, expected) in [
            ("jpeg", "codec jpeg of N5 is not supported"),
            ("delta", "codec delta of N5 is not supported"),
            ("bytes", "codec bytes of N5 is not supported"),
        ] {
            let error = pipeline(Some((name, json!({})))).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let error = pipeline(Some(("gzip", json!({"useZlib": 1})))).unwrap_err();
        assert!(error.to_string().contains("useZlib is 1"), "{error}");
    }
}
