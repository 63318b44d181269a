//! `shuffle`: the first bytes of all elements, then their second bytes, and so on.

use super::byte_codec::ByteCodec;
use super::config::Config;
use super::error::{CodecError, DecodeError, part};
use super::stage::{Decode, Size};

/// Decodes `shuffle` of elements of more than one byte.
#[derive(Debug)]
pub(super) struct Shuffle {
    element_bytes: usize,
}

/// Number of elements per tile: one tile of every byte plane fits in the first-level cache.
const TILE: usize = 512;

impl Shuffle {
    /// Parses `elementsize`, which zarr-extensions calls `element_size` (default: `default`); `None` if nothing is
    /// shuffled.
    ///
    /// # Errors
    /// The size does not fit in a `usize`.
    pub(super) fn new(config: Config<'_>, default: usize) -> Result<Option<Self>, CodecError> {
        let size = match config.u64("elementsize")? {
            None => config.u64("element_size")?,
            size => size,
        };
        let element_bytes = match size {
            None => default,
            Some(n) => {
                usize::try_from(n).map_err(|_| config.invalid("elementsize is too large"))?
            }
        };
        Ok((element_bytes > 1).then_some(Self { element_bytes }))
    }
}

impl Decode for Shuffle {
    fn byte_codec(&self) -> Option<ByteCodec> {
        Some(ByteCodec::Shuffle {
            element_bytes: self.element_bytes as u64,
        })
    }

    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let width = self.element_bytes as u64;
        match decoded {
            Size::Exact(n) => n.is_multiple_of(width).then_some(decoded),
            // A multiple of the width is at most this long.
            Size::AtMost(n) => Some(Size::AtMost(n - n % width)),
        }
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let (width, limit) = (self.element_bytes, dst.len());
        if !src.len().is_multiple_of(width) {
            let n = src.len();
            return Err(DecodeError::corrupt(format!(
                "{n} bytes are not a multiple of {width}"
            )));
        }
        let dst = dst
            .get_mut(..src.len())
            .ok_or_else(|| DecodeError::overflow(limit))?;
        match width {
            2 => unshuffle(src, dst, join_2)?,
            4 => unshuffle(src, dst, join_4)?,
            8 => unshuffle(src, dst, join_8)?,
            16 => unshuffle(src, dst, join_any::<16>)?,
            _ => {
                let count = src.len() / width;
                for (plane, bytes) in src.chunks_exact(count.max(1)).enumerate() {
                    let to = dst.iter_mut().skip(plane).step_by(width);
                    to.zip(bytes).for_each(|(to, byte)| *to = *byte);
                }
            }
        }
        Ok(src.len())
    }
}

/// Joins the bytes of `W` planes to elements, tile by tile.
fn unshuffle<const W: usize>(
    src: &[u8],
    dst: &mut [u8],
    join: impl Fn(&[&[u8]; W], &mut [[u8; W]]),
) -> Result<(), DecodeError> {
    let (elements, _) = dst.as_chunks_mut::<W>();
    let count = elements.len();
    for (tile, to) in elements.chunks_mut(TILE).enumerate() {
        let mut planes: [&[u8]; W] = [&[]; W];
        for (plane, bytes) in planes.iter_mut().enumerate() {
            let start = plane * count + tile * TILE;
            *bytes = part(src, start..start + to.len())?;
        }
        join(&planes, to);
    }
    Ok(())
}

// Words are composed in registers, so these loops compile to vector instructions.

fn join_2([a, b]: &[&[u8]; 2], to: &mut [[u8; 2]]) {
    for ((to, a), b) in to.iter_mut().zip(*a).zip(*b) {
        *to = (u16::from(*a) | u16::from(*b) << 8).to_le_bytes();
    }
}

fn join_4([a, b, c, d]: &[&[u8]; 4], to: &mut [[u8; 4]]) {
    for ((((to, a), b), c), d) in to.iter_mut().zip(*a).zip(*b).zip(*c).zip(*d) {
        let low = u32::from(*a) | u32::from(*b) << 8;
        *to = (low | u32::from(*c) << 16 | u32::from(*d) << 24).to_le_bytes();
    }
}

fn join_8([a, b, c, d, rest @ ..]: &[&[u8]; 8], to: &mut [[u8; 8]]) {
    let mut halves = [[[0; 4]; TILE]; 2];
    let [low, high] = &mut halves;
    join_4(&[a, b, c, d], low);
    join_4(rest, high);
    for ((to, low), high) in to.iter_mut().zip(low).zip(high) {
        let low = u64::from(u32::from_le_bytes(*low));
        *to = (low | u64::from(u32::from_le_bytes(*high)) << 32).to_le_bytes();
    }
}

fn join_any<const W: usize>(planes: &[&[u8]; W], to: &mut [[u8; W]]) {
    for (byte, plane) in planes.iter().enumerate() {
        for (element, value) in to.iter_mut().zip(*plane) {
            if let Some(to) = element.get_mut(byte) {
                *to = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_output_of_a_compressor_may_have_any_length() {
        let codec = Shuffle { element_bytes: 4 };
        assert_eq!(codec.encoded_size(Size::Exact(8)), Some(Size::Exact(8)));
        assert_eq!(codec.encoded_size(Size::Exact(9)), None);
        assert_eq!(codec.encoded_size(Size::AtMost(9)), Some(Size::AtMost(8)));
    }

    #[test]
    fn the_size_of_an_element_has_two_names() {
        let size = |configuration: serde_json::Value| {
            let config = Config {
                codec: "shuffle",
                map: configuration.as_object().unwrap(),
            };
            let codec = Shuffle::new(config, 8).unwrap();
            codec.map(|codec| codec.element_bytes)
        };
        assert_eq!(size(serde_json::json!({"elementsize": 4})), Some(4));
        assert_eq!(size(serde_json::json!({"element_size": 4})), Some(4));
        assert_eq!(size(serde_json::json!({"element_size": 1})), None);
        assert_eq!(size(serde_json::json!({})), Some(8));
    }

    #[test]
    fn planes_become_elements_for_every_width() {
        for width in [2usize, 3, 4, 8, 16, 20] {
            let codec = Shuffle {
                element_bytes: width,
            };
            let count = 1300;
            let value = |i: usize, b: usize| u8::try_from((i * 7 + b * 31) % 251).unwrap();
            let src: Vec<u8> = (0..width * count)
                .map(|at| value(at % count, at / count))
                .collect();
            let expected: Vec<u8> = (0..width * count)
                .map(|at| value(at / width, at % width))
                .collect();
            let mut dst = vec![0; src.len()];
            assert_eq!(codec.decode(&src, &mut dst).unwrap(), src.len());
            assert_eq!(dst, expected, "{width}");
            assert!(codec.decode(&src[1..], &mut dst).is_err());
            assert!(codec.decode(&src, &mut dst[1..]).is_err());
            assert_eq!(codec.decode(&[], &mut dst).unwrap(), 0);
        }
    }
}
