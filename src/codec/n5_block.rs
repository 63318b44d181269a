//! Blocks of N5 (N5 specification 4.0.0, "File-system specification"): a big-endian header, then the
//! compressed elements. The header has the mode, the number of axes, the size along each axis and, in the
//! mode `varlength`, the number of elements.
//!
//! A block may be smaller than the block size of its dataset; most writers shorten blocks at the edges. It
//! decodes to a whole chunk, whose other elements are 0.

use super::cursor::{check, copy};
use super::error::{DecodeError, part, part_mut, split_head};
use super::scratch::Scratch;
use super::stage::{Action, Decode, Size, Stage};

/// Size of mode, number of axes, and number of elements, in bytes.
const FIXED_HEADER_BYTES: u64 = 8;

/// Decodes blocks with a header.
#[derive(Debug)]
pub(super) struct N5Block {
    /// The shape of a chunk, in C order.
    chunk_shape: Vec<u64>,
    item_bytes: usize,
    /// Decodes the elements of a block; `None` if the elements are not compressed.
    compression: Option<Stage>,
    /// The header of most full blocks; `None` if a size is too large for the header.
    full_header: Option<Vec<u8>>,
}

/// The parsed header of a block, and the bytes after it.
#[derive(Debug)]
struct Block<'a> {
    /// The shape of the block, in C order; at most the shape of a chunk.
    shape: Vec<u64>,
    body: &'a [u8],
}

impl N5Block {
    pub(super) fn new(chunk_shape: &[u64], item_bytes: usize, compression: Option<Stage>) -> Self {
        Self {
            chunk_shape: chunk_shape.to_vec(),
            item_bytes,
            compression,
            full_header: header(chunk_shape),
        }
    }

    /// Parses the header. All sizes in it are compared with the chunk.
    fn parse<'a>(&self, src: &'a [u8]) -> Result<Block<'a>, DecodeError> {
        let (mode, src) = split_head(src)?;
        let (rank, mut src) = split_head(src)?;
        let mode = match u16::from_be_bytes(mode) {
            mode @ (0 | 1) => mode,
            2 => {
                let what = "mode 2: elements that are objects are not supported";
                return Err(DecodeError::corrupt(what));
            }
            mode => return Err(DecodeError::corrupt(format!("mode {mode} of 0 to 2"))),
        };
        let (rank, expected) = (
            usize::from(u16::from_be_bytes(rank)),
            self.chunk_shape.len(),
        );
        if rank > expected {
            return Err(other_rank(rank, expected));
        }
        let mut shape = Vec::with_capacity(rank);
        // The header lists the fastest axis first.
        for _ in 0..rank {
            let (size, rest) = split_head(src)?;
            shape.push(u64::from(u32::from_be_bytes(size)));
            src = rest;
        }
        shape.reverse();
        let shape = self.checked_shape(shape)?;
        if mode == 1 {
            let (found, rest) = split_head(src)?;
            let found = u64::from(u32::from_be_bytes(found));
            // The product is at most the number of elements of a chunk, whose size in bytes fits in a u64.
            let expected: u64 = shape.iter().product();
            if found != expected {
                let what = format!("{found} elements of variable length in a block of {expected}");
                return Err(DecodeError::corrupt(what));
            }
            src = rest;
        }
        Ok(Block { shape, body: src })
    }

    /// Returns the shape of a block, from the shape in its header.
    ///
    /// zarr-python omits axes along which a whole chunk was assigned by index. Such a block is full, and the
    /// omitted axes have length 1.
    fn checked_shape(&self, shape: Vec<u64>) -> Result<Vec<u64>, DecodeError> {
        let edges = &self.chunk_shape;
        if shape.len() < edges.len() {
            let longer = |sizes: &[u64]| -> Vec<u64> {
                sizes.iter().copied().filter(|size| *size != 1).collect()
            };
            return match longer(&shape) == longer(edges) {
                true => Ok(edges.clone()),
                false => Err(other_rank(shape.len(), edges.len())),
            };
        }
        for (axis, (size, most)) in shape.iter().zip(edges).enumerate() {
            if *size == 0 || size > most {
                let what = format!("{size} elements along axis {axis}, expected 1 to {most}");
                return Err(DecodeError::corrupt(what));
            }
        }
        Ok(shape)
    }

    /// Decodes the elements of a block into a buffer of exactly their size.
    fn decompress(&self, body: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        let size = Size::Exact(dst.len() as u64);
        let Some(stage) = &self.compression else {
            check(body.len(), size)?;
            return copy(body, dst);
        };
        let Action::Decode(codec) = &stage.action else {
            return Err(DecodeError::internal("a compression without a decoder"));
        };
        let decoded = codec.decode(body, dst);
        let checked = decoded.and_then(|written| check(written, size));
        checked.map_err(|error| DecodeError::Nested(error.in_codec(&stage.name)))
    }

    fn elements_bytes(&self, shape: &[u64]) -> Result<usize, DecodeError> {
        let elements: u64 = shape.iter().product();
        let bytes = usize::try_from(elements).ok();
        let bytes = bytes.and_then(|elements| elements.checked_mul(self.item_bytes));
        bytes.ok_or(DecodeError::Memory {
            needed: usize::MAX,
            limit: 0,
        })
    }

    /// Copies a block into a chunk, whose other elements become 0.
    fn spread(&self, shape: &[u64], block: &[u8], chunk: &mut [u8]) -> Result<(), DecodeError> {
        chunk.fill(0);
        let sizes = || shape.iter().zip(&self.chunk_shape);
        // The axes after the last shortened axis have the same order in both.
        let inner = sizes().rposition(|(size, most)| size != most).unwrap_or(0);
        let run_bytes = self.elements_bytes(shape.get(inner..).unwrap_or_default())?;
        let stride_bytes =
            self.elements_bytes(self.chunk_shape.get(inner..).unwrap_or_default())?;
        let outer: Vec<(u64, u64)> = sizes().take(inner).map(|(a, b)| (*a, *b)).collect();
        for (number, run) in (0_u64..).zip(block.chunks_exact(run_bytes.max(1))) {
            let (mut left, mut place, mut stride) = (number, 0, 1);
            for (size, most) in outer.iter().rev() {
                place += left % size * stride;
                left /= size;
                stride *= most;
            }
            let start = usize::try_from(place).unwrap_or(usize::MAX);
            let start = start.saturating_mul(stride_bytes);
            copy(
                run,
                part_mut(chunk, start..start.saturating_add(run_bytes))?,
            )?;
        }
        Ok(())
    }
}

/// Returns the header, in the mode `default`, of a block whose shape is in C order.
fn header(shape: &[u64]) -> Option<Vec<u8>> {
    let rank = u16::try_from(shape.len()).ok()?;
    let mut header = [0_u16.to_be_bytes(), rank.to_be_bytes()].concat();
    for size in shape.iter().rev() {
        header.extend(u32::try_from(*size).ok()?.to_be_bytes());
    }
    Some(header)
}

fn other_rank(found: usize, expected: usize) -> DecodeError {
    DecodeError::corrupt(format!(
        "a header of {found} axes, the dataset has {expected}"
    ))
}

impl Decode for N5Block {
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let axes = 4 * self.chunk_shape.len() as u64;
        let body = decoded.compressed().bytes();
        Some(Size::AtMost(body.saturating_add(FIXED_HEADER_BYTES + axes)))
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        let Block { shape, body } = self.parse(src)?;
        let block_bytes = self.elements_bytes(&shape)?;
        if shape == self.chunk_shape {
            self.decompress(body, part_mut(dst, 0..block_bytes)?)?;
            return Ok(block_bytes);
        }
        let chunk_bytes = self.elements_bytes(&self.chunk_shape)?;
        let chunk = part_mut(dst, 0..chunk_bytes)?;
        match &self.compression {
            None => {
                check(body.len(), Size::Exact(block_bytes as u64))?;
                self.spread(&shape, body, chunk)?;
            }
            Some(_) => {
                let mut block = Scratch::new(block_bytes)?;
                self.decompress(body, block.bytes_mut()?)?;
                self.spread(&shape, part(block.bytes()?, 0..block_bytes)?, chunk)?;
            }
        }
        Ok(chunk_bytes)
    }

    fn raw_header(&self) -> Option<&[u8]> {
        match &self.compression {
            None => self.full_header.as_deref(),
            Some(_) => None,
        }
    }

    fn working_bytes(&self, src: &[u8]) -> usize {
        match (&self.compression, self.parse(src)) {
            (
                Some(Stage {
                    action: Action::Decode(codec),
                    ..
                }),
                Ok(block),
            ) => codec.working_bytes(block.body),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::deflate::Gzip;

    /// Returns a header for sizes along the axes, the fastest first.
    fn header(mode: u16, sizes: &[u32]) -> Vec<u8> {
        let rank = u16::try_from(sizes.len()).unwrap();
        let mut header = [mode.to_be_bytes(), rank.to_be_bytes()].concat();
        header.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
        header
    }

    fn decode(codec: &N5Block, src: &[u8]) -> Result<Vec<u8>, String> {
        let elements: u64 = codec.chunk_shape.iter().product();
        let length = usize::try_from(elements).unwrap() * codec.item_bytes;
        let mut dst = vec![0xee; length];
        match codec.decode(src, &mut dst) {
            Ok(written) => {
                assert_eq!(written, length);
                Ok(dst)
            }
            Err(error) => Err(error.in_codec("n5 block").to_string()),
        }
    }

    #[test]
    fn a_full_block_is_its_body() {
        let codec = N5Block::new(&[2, 3], 2, None);
        let body: Vec<u8> = (0..12).collect();
        let block = [header(0, &[3, 2]), body.clone()].concat();
        assert_eq!(decode(&codec, &block).unwrap(), body);
        let count = 6_u32.to_be_bytes().to_vec();
        let block = [header(1, &[3, 2]), count, body.clone()].concat();
        assert_eq!(decode(&codec, &block).unwrap(), body);
        assert_eq!(codec.raw_header(), Some(&header(0, &[3, 2])[..]));
        let scalar = N5Block::new(&[], 1, None);
        assert_eq!(decode(&scalar, &[0, 0, 0, 0, 7]).unwrap(), [7]);
    }

    #[test]
    fn a_full_block_may_lack_axes_of_one_element() {
        let codec = N5Block::new(&[1, 2, 3, 1], 1, None);
        for sizes in [&[3, 2][..], &[3, 2, 1], &[1, 3, 2]] {
            let block = [header(0, sizes), (0..6).collect()].concat();
            assert_eq!(decode(&codec, &block).unwrap(), [0, 1, 2, 3, 4, 5]);
        }
        for sizes in [&[6][..], &[2, 3], &[2, 2], &[3, 2, 0], &[3, 2, 2], &[]] {
            let block = [header(0, sizes), (0..6).collect()].concat();
            assert!(decode(&codec, &block).is_err(), "{sizes:?}");
        }
        let one = N5Block::new(&[1, 1], 1, None);
        assert_eq!(decode(&one, &[0, 0, 0, 0, 7]).unwrap(), [7]);
    }

    #[test]
    fn a_short_block_is_the_beginning_of_its_chunk_along_each_axis() {
        let edges = [2_u64, 3, 4];
        for sizes in [
            [2, 3, 3],
            [2, 2, 4],
            [1, 3, 4],
            [1, 2, 3],
            [2, 1, 1],
            [1, 1, 4],
        ] {
            for item_bytes in [1, 2] {
                let mut expected: Vec<u8> = Vec::new();
                let mut body: Vec<u8> = Vec::new();
                for number in 0..24_u8 {
                    let at = [number / 12, number / 4 % 3, number % 4];
                    let is_in = at.iter().zip(&sizes).all(|(at, size)| *at < *size);
                    let element = vec![if is_in { number + 1 } else { 0 }; item_bytes];
                    expected.extend(&element);
                    if is_in {
                        body.extend(&element);
                    }
                }
                let [z, y, x] = sizes.map(u32::from);
                let block = [header(0, &[x, y, z]), body].concat();
                let codec = N5Block::new(&edges, item_bytes, None);
                assert_eq!(decode(&codec, &block).unwrap(), expected, "{sizes:?}");
            }
        }
    }

    #[test]
    fn compressed_elements_have_exactly_the_size_of_the_block() {
        // Python: gzip.compress(b"hello", mtime=0)
        let hello = [
            0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6,
            0x10, 0x36, 5, 0, 0, 0,
        ];
        let codec = N5Block::new(&[7], 1, Some(Stage::decode("gzip", Gzip)));
        let block = |size| [header(0, &[size]), hello.to_vec()].concat();
        assert_eq!(decode(&codec, &block(5)).unwrap(), b"hello\0\0");
        let expected = "corrupt chunk: gzip: 5 bytes, expected 6";
        assert_eq!(decode(&codec, &block(6)).unwrap_err(), expected);
        assert_eq!(
            decode(&codec, &block(7)).unwrap_err(),
            "corrupt chunk: gzip: 5 bytes, expected 7"
        );
        let error = decode(&codec, &block(4)).unwrap_err();
        assert!(error.contains("decodes to more than 4 bytes"), "{error}");
        for end in 0..block(5).len() {
            assert!(decode(&codec, &block(5)[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn wrong_headers_are_named_and_allocate_nothing() {
        let codec = N5Block::new(&[2, 3], 2, None);
        let block = |header: Vec<u8>| [header, vec![0; 12]].concat();
        let count = |count: u32| [header(1, &[3, 2]), count.to_be_bytes().to_vec()].concat();
        for (header, expected) in [
            (header(0, &[3]), "a header of 1 axes, the dataset has 2"),
            (
                header(0, &[u32::MAX; 9]),
                "a header of 9 axes, the dataset has 2",
            ),
            (
                header(0, &[2, 3]),
                "3 elements along axis 0, expected 1 to 2",
            ),
            (
                header(0, &[u32::MAX, 2]),
                "4294967295 elements along axis 1, expected 1 to 3",
            ),
            (
                header(0, &[0, 2]),
                "0 elements along axis 1, expected 1 to 3",
            ),
            (
                header(2, &[3, 2]),
                "mode 2: elements that are objects are not supported",
            ),
            (header(7, &[3, 2]), "mode 7 of 0 to 2"),
            (
                count(u32::MAX),
                "4294967295 elements of variable length in a block of 6",
            ),
            (count(5), "5 elements of variable length in a block of 6"),
        ] {
            let found = decode(&codec, &block(header)).unwrap_err();
            assert_eq!(found, format!("corrupt chunk: n5 block: {expected}"));
        }
        let full = block(header(0, &[3, 2]));
        for end in 0..full.len() {
            assert!(decode(&codec, &full[..end]).is_err(), "{end}");
        }
        assert!(decode(&codec, &[&full[..], b"x"].concat()).is_err());
    }
}
