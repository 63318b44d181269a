//! `pcodec`: numbers in the standalone format of pco, which decode to little-endian bytes.
//!
//! The chunk declares the type of the numbers. Bytes after the end are ignored, as in numcodecs.

use half::f16;
use pco::data_types::{Number, NumberType};
use pco::errors::PcoError;
use pco::standalone::{DecompressorItem, FileDecompressor};

use super::error::{DecodeError, part_mut};
use super::number::{Number as Numeric, NumberKind};
use super::stage::Decode;

/// The number of numbers that are decoded at a time, a multiple of pco's own batch.
const BATCH: usize = 8192;

/// The maximum window of pco's own encoder.
const MIN_WINDOW: u64 = 1 << 15;

/// Decodes `pcodec`.
#[derive(Debug)]
pub(super) struct Pcodec {
    /// The expected type, if known. The chunk declares the type in one byte, which no checksum covers.
    expected: Option<Numeric>,
}

impl Pcodec {
    pub(super) fn new(expected: Option<Numeric>) -> Self {
        Self {
            expected: expected.filter(|n| {
                matches!(
                    n.kind,
                    NumberKind::Int | NumberKind::UInt | NumberKind::Float
                )
            }),
        }
    }

    fn check_type(&self, found: NumberType) -> Result<(), DecodeError> {
        let kind = match found {
            NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 => {
                NumberKind::UInt
            }
            NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 => NumberKind::Int,
            _ => NumberKind::Float,
        };
        let width = match found {
            NumberType::U8 | NumberType::I8 => 1,
            NumberType::U16 | NumberType::I16 | NumberType::F16 => 2,
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            _ => 8,
        };
        match self.expected {
            Some(n) if n.kind != kind || n.width != width => {
                let expected = n.to_fixed().numpy_descr();
                Err(DecodeError::corrupt(format!(
                    "numbers of type {found:?}, expected {expected}"
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Decode for Pcodec {
    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (file, mut rest) = FileDecompressor::new(src).map_err(corrupt)?;
        let (mut written, limit) = (0, dst.len());
        loop {
            let dst = part_mut(dst, written..limit)?;
            let kind = file
                .peek_number_type_or_termination(rest)
                .map_err(corrupt)?;
            let Some(kind) = kind else {
                return Ok(written);
            };
            self.check_type(kind)?;
            let chunk = match kind {
                NumberType::U8 => chunk(&file, rest, dst, u8::to_le_bytes),
                NumberType::U16 => chunk(&file, rest, dst, u16::to_le_bytes),
                NumberType::U32 => chunk(&file, rest, dst, u32::to_le_bytes),
                NumberType::U64 => chunk(&file, rest, dst, u64::to_le_bytes),
                NumberType::I8 => chunk(&file, rest, dst, i8::to_le_bytes),
                NumberType::I16 => chunk(&file, rest, dst, i16::to_le_bytes),
                NumberType::I32 => chunk(&file, rest, dst, i32::to_le_bytes),
                NumberType::I64 => chunk(&file, rest, dst, i64::to_le_bytes),
                NumberType::F16 => chunk(&file, rest, dst, f16::to_le_bytes),
                NumberType::F32 => chunk(&file, rest, dst, f32::to_le_bytes),
                NumberType::F64 => chunk(&file, rest, dst, f64::to_le_bytes),
                other => return Err(DecodeError::corrupt(format!("numbers of type {other:?}"))),
            }?;
            let Some((after, produced)) = chunk else {
                return Ok(written);
            };
            rest = after;
            written += produced;
        }
    }
}

/// Decodes one chunk of pco. Returns the rest of `src` and the bytes written; `None` at the end.
fn chunk<'a, T: Number + Default, const W: usize>(
    file: &FileDecompressor,
    src: &'a [u8],
    dst: &mut [u8],
    to_bytes: impl Fn(T) -> [u8; W],
) -> Result<Option<(&'a [u8], usize)>, DecodeError> {
    let limit = dst.len();
    check_header(src, W, file.format_version().major)?;
    let mut chunk = match file.chunk_decompressor::<T, &[u8]>(src).map_err(corrupt)? {
        DecompressorItem::Chunk(chunk) => chunk,
        DecompressorItem::EndOfData(_) => return Ok(None),
    };
    let count = chunk.n();
    let numbers = dst
        .as_chunks_mut::<W>()
        .0
        .get_mut(..count)
        .ok_or_else(|| DecodeError::declared_size(count as u64 * W as u64, limit))?;
    let mut batch = [T::default(); BATCH];
    for to in numbers.chunks_mut(BATCH) {
        let from = batch
            .get_mut(..to.len())
            .ok_or_else(|| DecodeError::internal("a batch of more numbers than its buffer"))?;
        let progress = chunk.read(from).map_err(corrupt)?;
        if progress.n_processed != to.len() {
            let (found, expected) = (progress.n_processed, to.len());
            return Err(DecodeError::corrupt(format!(
                "{found} of {expected} numbers in a batch"
            )));
        }
        for (bytes, number) in to.iter_mut().zip(from) {
            *bytes = to_bytes(*number);
        }
    }
    Ok(Some((chunk.into_src(), count * W)))
}

/// Rejects sizes that the library would allocate before it reads the data: a dictionary longer than the
/// chunk, or a look-back window longer than the numbers.
///
/// A chunk has the type, 24 bits of count and, from the lowest bit, 4 bits of mode. Some modes add a base of
/// the numbers' width, 8 bits, or 25 bits of length and a dictionary. From format 3 on, 4 bits of delta
/// encoding follow, for look-back with 5 bits of window.
fn check_header(src: &[u8], width: usize, format_major: u8) -> Result<(), DecodeError> {
    let count = bits(src, 8, 24) + 1;
    let mode = 32;
    let width_bits = width * 8;
    let delta = match bits(src, mode, 4) {
        1 | 2 => mode + 4 + width_bits,
        3 => mode + 4 + 8,
        4 => {
            let length = usize::try_from(bits(src, mode + 4, 25)).unwrap_or(usize::MAX);
            let needed = length.saturating_mul(width);
            if needed > src.len() {
                return Err(DecodeError::declared_size(needed as u64, src.len()));
            }
            length.saturating_mul(width_bits).saturating_add(mode + 32)
        }
        _ => mode + 4,
    };
    if format_major >= 3 && bits(src, delta, 4) == 2 {
        let window = 2u64 << bits(src, delta.saturating_add(4), 5);
        if window > MIN_WINDOW.max(count.next_power_of_two()) {
            let what = format!("a window of {window} numbers for {count}");
            return Err(DecodeError::corrupt(what));
        }
    }
    Ok(())
}

/// Returns up to 25 bits at a position, the lowest first; bits beyond the end are zeros.
fn bits(src: &[u8], at: usize, count: u32) -> u64 {
    let bytes = src.iter().skip(at / 8).take(5);
    let word = bytes
        .rev()
        .fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    word >> (at % 8) & ((1 << count) - 1)
}

fn corrupt(error: PcoError) -> DecodeError {
    DecodeError::corrupt(format!("pco: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pco::ChunkConfig;
    use pco::standalone::simple_compress;

    fn decode(src: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
        let mut dst = vec![0; limit];
        let n = Pcodec::new(None).decode(src, &mut dst)?;
        dst.truncate(n);
        Ok(dst)
    }

    #[test]
    fn numbers_of_another_type_are_corrupt() {
        let chunk = simple_compress(&[3i16, -1, 2], &ChunkConfig::default()).unwrap();
        let convert = |name| Pcodec::new(Numeric::parse(name)).decode(&chunk, &mut [0; 6]);
        assert!(convert("<i2").is_ok());
        assert!(convert("|b1").is_ok());
        for other in ["<u2", "<f2", "<i4"] {
            assert!(convert(other).is_err(), "{other}");
        }
    }

    #[test]
    fn headers_that_declare_too_much_are_refused() {
        let chunk = |bits: u64| [&[0, 9, 0, 0][..], &bits.to_le_bytes(), &[0; 40]].concat();
        assert!(check_header(&chunk(0), 4, 4).is_ok());
        assert!(check_header(&chunk(4 | 12 << 4), 4, 4).is_ok());
        assert!(check_header(&chunk(4 | 14 << 4), 4, 4).is_err());
        assert!(check_header(&chunk(2 << 4 | 14 << 8), 4, 4).is_ok());
        assert!(check_header(&chunk(2 << 4 | 15 << 8), 4, 4).is_err());
        assert!(check_header(&chunk(2 << 4 | 15 << 8), 4, 2).is_ok());
        assert!(check_header(&chunk(3 | 2 << 12 | 23 << 16), 4, 4).is_err());
        assert!(check_header(&chunk(1 | 2 << 36 | 23 << 40), 4, 4).is_err());
        assert!(check_header(&[], 4, 4).is_ok());
    }

    #[test]
    fn repeating_numbers_decode_with_look_back_and_dictionaries() {
        use pco::{DeltaSpec, ModeSpec};
        let numbers: Vec<u32> = (0..60_000u32)
            .map(|i| (i % 977).wrapping_mul(2_654_435_761))
            .collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        for config in [
            ChunkConfig::default().with_delta_spec(DeltaSpec::TryLookback),
            ChunkConfig::default().with_mode_spec(ModeSpec::TryDict),
        ] {
            let chunk = simple_compress(&numbers, &config).unwrap();
            assert_eq!(decode(&chunk, bytes.len()).unwrap(), bytes);
        }
    }

    #[test]
    fn numbers_of_any_type_decode_and_damage_is_an_error() {
        let numbers: Vec<f32> = (0..5000u16).map(|i| f32::from(i) * 0.5).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let chunk = simple_compress(&numbers, &ChunkConfig::default()).unwrap();
        assert_eq!(decode(&chunk, bytes.len()).unwrap(), bytes);
        assert_eq!(
            decode(&[&chunk[..], b"x"].concat(), bytes.len()).unwrap(),
            bytes
        );
        assert!(decode(&chunk, bytes.len() - 1).is_err());
        for n in 0..chunk.len() {
            assert!(decode(&chunk[..n], bytes.len()).is_err(), "{n}");
        }
        let chunk = simple_compress(&[3i16, -1, 2], &ChunkConfig::default()).unwrap();
        assert_eq!(decode(&chunk, 6).unwrap(), [3, 0, 0xff, 0xff, 2, 0]);
    }
}
