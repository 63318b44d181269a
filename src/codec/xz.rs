//! `lzma` of numcodecs: `.xz`, `.lzma` ("alone") and raw streams with a chain of filters, decoded by liblzma,
//! which verifies the checks.
//!
//! A dictionary larger than the output is useless, so a raw chain gets a dictionary of the chunk's size. The
//! headers of `.xz` and `.lzma` may declare a larger one. liblzma allocates it without touching it, and
//! [`DICTIONARY_LIMIT`] bounds it.

use liblzma::stream::{self, Action, Filters, LzmaOptions, Status};
use serde_json::Value;

use super::config::Config;
use super::error::{CodecError, DecodeError};
use super::stage::Decode;
use super::streams::{Step, Stream, decode_all};

/// The address space in bytes that a decoder may take besides twice the chunk: preset 9 needs 65 MiB.
const DICTIONARY_LIMIT: u64 = 128 << 20;
const MIN_DICTIONARY_BYTES: u32 = 4096;
/// liblzma's `LZMA_FILTERS_MAX`.
const MAX_FILTERS: usize = 4;

/// Decodes `lzma`.
#[derive(Debug)]
pub(super) enum Lzma {
    Auto,
    Xz,
    Alone,
    Raw(Vec<Filter>),
}

/// A filter of a raw stream, with its decoder's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    Lzma1 { lc: u32, lp: u32, pb: u32 },
    Lzma2,
    Delta { distance_minus_1: u8 },
    Branch(Branch),
}

/// Filters that convert relative jumps of machine code to absolute ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Branch {
    X86,
    PowerPc,
    Ia64,
    Arm,
    ArmThumb,
    Sparc,
}

impl Lzma {
    /// Parses `format` (Python's constants, default `.xz`) and, for raw streams, `filters`.
    ///
    /// # Errors
    /// The format or a filter is unknown, or a raw stream has no filters.
    pub(super) fn new(config: Config<'_>) -> Result<Self, CodecError> {
        match config.u64("format")?.unwrap_or(1) {
            0 => Ok(Self::Auto),
            1 => Ok(Self::Xz),
            2 => Ok(Self::Alone),
            3 => {
                let filters = config.list("filters")?;
                let filters = config.required("filters", filters)?;
                if !(1..=MAX_FILTERS).contains(&filters.len()) {
                    return Err(config.invalid(format!("{} filters", filters.len())));
                }
                let filters: Result<_, _> =
                    filters.iter().map(|f| Filter::new(config, f)).collect();
                Ok(Self::Raw(filters?))
            }
            other => Err(CodecError::unsupported(format!("lzma with format {other}"))),
        }
    }

    fn start(&self, limit: usize) -> Result<stream::Stream, DecodeError> {
        let memory = (limit as u64)
            .saturating_mul(2)
            .saturating_add(DICTIONARY_LIMIT);
        let stream = match self {
            Self::Auto => stream::Stream::new_auto_decoder(memory, 0),
            Self::Xz => stream::Stream::new_stream_decoder(memory, 0),
            Self::Alone => stream::Stream::new_lzma_decoder(memory),
            Self::Raw(filters) => {
                let dictionary = u32::try_from(limit)
                    .unwrap_or(u32::MAX)
                    .clamp(MIN_DICTIONARY_BYTES, 1536 << 20);
                let mut chain = Filters::new();
                for filter in filters {
                    filter.push(&mut chain, dictionary).map_err(corrupt)?;
                }
                stream::Stream::new_raw_decoder(&chain)
            }
        };
        stream.map_err(corrupt)
    }
}

impl Filter {
    fn new(config: Config<'_>, value: &Value) -> Result<Self, CodecError> {
        let Value::Object(map) = value else {
            return Err(config.invalid(format!("filter {value} is not an object")));
        };
        let filter = Config {
            codec: config.codec,
            map,
        };
        let id = filter.u64("id")?;
        Ok(match filter.required("id", id)? {
            0x4000_0000_0000_0001 => {
                let small = |key, default| match filter.u64(key)? {
                    None => Ok(default),
                    Some(n) => u32::try_from(n)
                        .ok()
                        .filter(|n| *n <= 4)
                        .ok_or_else(|| config.invalid(format!("{key} is {n}, expected 0 to 4"))),
                };
                // These are the same in all presets.
                let (lc, lp, pb) = (small("lc", 3)?, small("lp", 0)?, small("pb", 2)?);
                if lc + lp > 4 {
                    return Err(config.invalid(format!("lc + lp is {}, at most 4", lc + lp)));
                }
                Self::Lzma1 { lc, lp, pb }
            }
            0x21 => Self::Lzma2,
            3 => {
                let distance = filter.u64("dist")?.unwrap_or(1);
                let distance_minus_1 = distance
                    .checked_sub(1)
                    .and_then(|d| u8::try_from(d).ok())
                    .ok_or_else(|| {
                    config.invalid(format!("dist is {distance}, expected 1 to 256"))
                })?;
                Self::Delta { distance_minus_1 }
            }
            id @ 4..=9 => {
                if let Some(offset @ 1..) = filter.u64("start_offset")? {
                    let what = format!("lzma with start_offset {offset}");
                    return Err(CodecError::unsupported(what));
                }
                Self::Branch(match id {
                    4 => Branch::X86,
                    5 => Branch::PowerPc,
                    6 => Branch::Ia64,
                    7 => Branch::Arm,
                    8 => Branch::ArmThumb,
                    _ => Branch::Sparc,
                })
            }
            other => {
                return Err(CodecError::unsupported(format!(
                    "lzma with filter {other:#x}"
                )));
            }
        })
    }

    fn push(self, chain: &mut Filters, dictionary_bytes: u32) -> Result<(), stream::Error> {
        match self {
            Self::Lzma1 { lc, lp, pb } => {
                let mut options = LzmaOptions::new_preset(6)?;
                options
                    .dict_size(dictionary_bytes)
                    .literal_context_bits(lc)
                    .literal_position_bits(lp)
                    .position_bits(pb);
                chain.lzma1(&options);
            }
            Self::Lzma2 => {
                let mut options = LzmaOptions::new_preset(6)?;
                options.dict_size(dictionary_bytes);
                chain.lzma2(&options);
            }
            Self::Delta { distance_minus_1 } => {
                chain.delta_properties(&[distance_minus_1])?;
            }
            Self::Branch(branch) => {
                match branch {
                    Branch::X86 => chain.x86(),
                    Branch::PowerPc => chain.powerpc(),
                    Branch::Ia64 => chain.ia64(),
                    Branch::Arm => chain.arm(),
                    Branch::ArmThumb => chain.arm_thumb(),
                    Branch::Sparc => chain.sparc(),
                };
            }
        }
        Ok(())
    }
}

fn corrupt(error: stream::Error) -> DecodeError {
    DecodeError::corrupt(format!("lzma: {error}"))
}

impl Decode for Lzma {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let limit = dst.len();
        decode_all(src, dst, || self.start(limit))
    }
}

impl Stream for stream::Stream {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the totals grow by no more than the lengths of the slices"
    )]
    fn step(&mut self, src: &[u8], dst: &mut [u8]) -> Result<Step, DecodeError> {
        let before = (self.total_in(), self.total_out());
        let status = self.process(src, dst, Action::Run).map_err(corrupt)?;
        Ok(Step {
            consumed: (self.total_in() - before.0) as usize,
            produced: (self.total_out() - before.1) as usize,
            ended: status == Status::StreamEnd,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of Python's `lzma.compress(b"hello")`, with FORMAT_ALONE, and raw with delta 4 and LZMA2.
    const XZ: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
        0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x04, 0x68, 0x65, 0x6c,
        0x6c, 0x6f, 0x00, 0x00, 0x00, 0x00, 0xb1, 0x37, 0xb9, 0xdb, 0xe5, 0xda, 0x1e, 0x9b, 0x00,
        0x01, 0x1d, 0x05, 0xb8, 0x2d, 0x80, 0xaf, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00,
        0x00, 0x04, 0x59, 0x5a,
    ];
    const ALONE: &[u8] = &[
        0x5d, 0x00, 0x00, 0x80, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x34,
        0x19, 0x49, 0xee, 0x8e, 0x68, 0x21, 0xff, 0xff, 0xff, 0xb9, 0xe0, 0x00, 0x00,
    ];
    const RAW_DELTA: &[u8] = &[0x01, 0x00, 0x04, 0x68, 0x65, 0x6c, 0x6c, 0x07, 0x00];

    fn decode(codec: &Lzma, src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let n = codec.decode(src, &mut dst)?;
        dst.truncate(n);
        Ok(dst)
    }

    fn lzma(json: &str) -> Result<Lzma, CodecError> {
        let Value::Object(map) = serde_json::from_str(json).unwrap() else {
            panic!("not an object");
        };
        Lzma::new(Config {
            codec: "lzma",
            map: &map,
        })
    }

    #[test]
    fn every_format_decodes_and_every_truncation_is_an_error() {
        let raw =
            lzma(r#"{"format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]}"#);
        let raw = raw.unwrap();
        for (codec, src) in [
            (&Lzma::Xz, XZ),
            (&Lzma::Auto, XZ),
            (&Lzma::Alone, ALONE),
            (&raw, RAW_DELTA),
        ] {
            assert_eq!(decode(codec, src, 5).unwrap(), b"hello");
            assert!(decode(codec, src, 4).is_err());
            for n in 0..src.len() {
                assert!(decode(codec, &src[..n], 5).is_err(), "{codec:?} {n}");
            }
        }
    }

    #[test]
    fn streams_follow_each_other_and_junk_after_them_is_ignored_as_python_does() {
        assert_eq!(
            decode(&Lzma::Xz, &[XZ, XZ].concat(), 10).unwrap(),
            b"hellohello"
        );
        assert_eq!(
            decode(&Lzma::Xz, &[XZ, b"junk junk junk"].concat(), 5).unwrap(),
            b"hello"
        );
        // The data are too short to be recognised as a stream.
        assert!(decode(&Lzma::Xz, &[XZ, b"junk"].concat(), 5).is_err());
        assert!(decode(&Lzma::Xz, b"junk", 5).is_err());
    }

    #[test]
    fn a_dictionary_of_a_gibibyte_is_refused() {
        let mut bad = ALONE.to_vec();
        bad[1..5].copy_from_slice(&(1u32 << 30).to_le_bytes());
        assert!(decode(&Lzma::Alone, &bad, 5).is_err());
    }

    #[test]
    fn unknown_formats_and_filters_are_named() {
        let unsupported = |json: &str| matches!(lzma(json), Err(CodecError::Unsupported { .. }));
        assert!(unsupported(r#"{"format": 4}"#));
        assert!(unsupported(r#"{"format": 3, "filters": [{"id": 99}]}"#));
        let invalid = |json: &str| matches!(lzma(json), Err(CodecError::Invalid { .. }));
        assert!(invalid(r#"{"format": 3}"#));
        assert!(invalid(r#"{"format": 3, "filters": []}"#));
        assert!(invalid(
            r#"{"format": 3, "filters": [{"id": 3, "dist": 257}]}"#
        ));
        assert!(invalid(
            r#"{"format": 3, "filters": [{"id": 4611686018427387905, "lc": 4, "lp": 1}]}"#
        ));
    }
}
