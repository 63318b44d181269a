//! `sharding_indexed` (ZEP 2): a shard of inner chunks with an index.

mod index;
mod layout;

pub use index::ShardIndex;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::element::{Budget, Element};
use super::error::{CodecError, DecodeError, part, part_mut};
use super::pipeline::Pipeline;
use super::scratch::Scratch;
use super::stage::{Decode, Size};
use index::{ENTRY_BYTES, EntryBounds};
use layout::{InnerLayout, fill_with};

const NAME: &str = "sharding_indexed";

/// The location of the index in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexLocation {
    /// The first bytes.
    Start,
    /// The last bytes.
    End,
}

/// The fill value of inner chunks that are not stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum InnerFill {
    Bytes(Vec<u8>),
    Element(Element),
}

/// A shard's geometry and the codecs of its inner chunks.
#[derive(Debug)]
pub struct Sharding {
    inner: Pipeline,
    index: Pipeline,
    index_size_bytes: u64,
    location: IndexLocation,
    grid: Vec<u64>,
    inner_count: u64,
    layout: InnerLayout,
    fill: InnerFill,
}

impl Sharding {
    /// Creates the codec. `inner`'s chunk shape must divide `shard_shape`; `index` decodes 64-bit
    /// integers, two for each inner chunk.
    pub(super) fn new(
        shard_shape: &[u64],
        inner: Pipeline,
        index: impl FnOnce(&[u64]) -> Result<Pipeline, CodecError>,
        location: IndexLocation,
        fill: InnerFill,
    ) -> Result<Self, CodecError> {
        let invalid = |what: String| CodecError::invalid(NAME, what);
        let inner_shape = inner.chunk_shape();
        let fits = shard_shape.len() == inner_shape.len()
            && shard_shape
                .iter()
                .zip(inner_shape)
                .all(|(s, i)| *i > 0 && s.is_multiple_of(*i));
        if !fits {
            let what = format!("chunks {inner_shape:?} do not divide a shard {shard_shape:?}");
            return Err(invalid(what));
        }
        let grid: Vec<u64> = shard_shape
            .iter()
            .zip(inner_shape)
            .map(|(s, i)| s / i)
            .collect();
        let inner_count = grid
            .iter()
            .try_fold(1u64, |n, axis| n.checked_mul(*axis))
            .ok_or_else(|| invalid(format!("{grid:?} inner chunks overflow 64 bits")))?;
        let index = index(&[&grid[..], &[2]].concat())?;
        let index_size_bytes = index
            .encoded_size_bytes()
            .ok_or_else(|| invalid("the size of the index is not constant".into()))?;
        let item = match &fill {
            InnerFill::Bytes(bytes) => bytes.len(),
            InnerFill::Element(_) => 1,
        };
        let layout = InnerLayout::new(shard_shape, inner_shape, item)
            .ok_or_else(|| invalid(format!("a shard {shard_shape:?} overflows memory")))?;
        Ok(Self {
            layout,
            index,
            index_size_bytes,
            location,
            grid,
            inner_count,
            inner,
            fill,
        })
    }

    /// Returns the codecs of an inner chunk.
    pub fn inner(&self) -> &Pipeline {
        &self.inner
    }

    /// Returns the number of elements of an inner chunk along each axis.
    pub fn inner_chunk_shape(&self) -> &[u64] {
        self.inner.chunk_shape()
    }

    /// Returns the number of inner chunks of a shard along each axis.
    pub fn inner_grid(&self) -> &[u64] {
        &self.grid
    }

    /// Returns the number of inner chunks of a shard.
    pub fn inner_count(&self) -> u64 {
        self.inner_count
    }

    /// Returns the size of the encoded index in bytes.
    pub fn index_size_bytes(&self) -> u64 {
        self.index_size_bytes
    }

    /// Returns the location of the encoded index.
    pub fn index_location(&self) -> IndexLocation {
        self.location
    }

    /// Decodes the index of a shard from its [`Sharding::index_size_bytes`] bytes.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the shard is too short for an index, or a checksum is wrong.
    pub fn decode_index(
        &self,
        bytes: &[u8],
        shard_size_bytes: u64,
    ) -> Result<ShardIndex, CodecError> {
        let bounds = self.bounds(shard_size_bytes)?;
        let entries = self.entries(bytes)?.into_owned();
        Ok(ShardIndex::new(entries, bounds))
    }

    fn bounds(&self, shard_size_bytes: u64) -> Result<EntryBounds, CodecError> {
        let index = self.index_size_bytes;
        let Some(room) = shard_size_bytes.checked_sub(index) else {
            let what = format!("a shard of {shard_size_bytes} bytes, its index takes {index}");
            return Err(DecodeError::corrupt(what).in_codec(NAME));
        };
        let (begin, end) = match self.location {
            IndexLocation::Start => (index, shard_size_bytes),
            IndexLocation::End => (0, room),
        };
        Ok(EntryBounds {
            begin,
            end,
            inner_encoded_bytes: self.inner.encoded_size_bytes(),
        })
    }

    fn entries<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, CodecError> {
        let within = |error: CodecError| error.within("shard index");
        if bytes.len() as u64 != self.index_size_bytes {
            let (found, expected) = (bytes.len(), self.index_size_bytes);
            let what = format!("{found} bytes, expected {expected}");
            return Err(within(DecodeError::corrupt(what).in_codec(NAME)));
        }
        if let Some(payload) = self.index.strip_checksums(bytes) {
            return payload.map(Cow::Borrowed).map_err(within);
        }
        let size = self.index.decoded_length().map_err(in_sharding)?;
        let memory = |()| CodecError::TooLarge {
            codec: NAME.into(),
            needed_bytes: size as u64,
            limit_bytes: 0,
        };
        let mut entries = bytemuck::try_zeroed_vec(size).map_err(memory)?;
        self.index.decode(bytes, &mut entries).map_err(within)?;
        Ok(Cow::Owned(entries))
    }

    /// Decodes the index of a whole shard.
    fn index_of<'a>(&self, shard: &'a [u8]) -> Result<(EntryBounds, Cow<'a, [u8]>), CodecError> {
        let bounds = self.bounds(shard.len() as u64)?;
        let range = match self.location {
            IndexLocation::Start => 0..bounds.begin,
            IndexLocation::End => bounds.end..shard.len() as u64,
        };
        let bytes = range_of(shard, &range).map_err(in_sharding)?;
        Ok((bounds, self.entries(bytes)?))
    }

    /// Calls `f` with the index, grid position and encoded bytes of each inner chunk.
    fn for_each_inner(
        &self,
        shard: &[u8],
        mut f: impl FnMut(&[usize], Option<&[u8]>) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        let (bounds, entries) = self.index_of(shard)?;
        let mut place = vec![0; self.grid.len()];
        let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
        for (number, entry) in (0..self.inner_count).zip(entries) {
            let named = |error: CodecError| error.within(&format!("inner chunk {number}"));
            let range = bounds.range(entry).map_err(named)?;
            let encoded = range.map(|range| range_of(shard, &range)).transpose();
            let encoded = encoded.map_err(|error| named(in_sharding(error)))?;
            f(&place, encoded).map_err(named)?;
            for (at, length) in place.iter_mut().zip(&self.grid).rev() {
                *at += 1;
                if (*at as u64) < *length {
                    break;
                }
                *at = 0;
            }
        }
        Ok(())
    }

    fn place_inner(
        &self,
        place: &[usize],
        encoded: Option<&[u8]>,
        dst: &mut [u8],
        scratch: &mut Option<Scratch>,
    ) -> Result<(), CodecError> {
        let start = self.layout.start(place);
        let run = self.layout.run;
        let outside = |()| CodecError::internal(NAME, "an inner chunk outside of its shard");
        let Some(encoded) = encoded else {
            let InnerFill::Bytes(fill) = &self.fill else {
                return Err(CodecError::internal(NAME, "elements of variable length"));
            };
            let filled = self.layout.for_each_run(0, start, &mut |at| {
                fill_with(dst.get_mut(at..at + run).ok_or(())?, fill);
                Ok(())
            });
            return filled.map_err(outside);
        };
        if self.layout.is_one_run() {
            let to = part_mut(dst, start..start + run).map_err(in_sharding)?;
            return self.inner.decode(encoded, to);
        }
        let buffer = match scratch {
            Some(buffer) => buffer,
            None => {
                let size = self.inner.decoded_length().map_err(in_sharding)?;
                scratch.insert(Scratch::new(size).map_err(in_sharding)?)
            }
        };
        let decoded = buffer.bytes_mut().map_err(in_sharding)?;
        self.inner.decode(encoded, decoded)?;
        let mut from = 0;
        let copied = self.layout.for_each_run(0, start, &mut |at| {
            let to = dst.get_mut(at..at + run).ok_or(())?;
            to.copy_from_slice(decoded.get(from..from + run).ok_or(())?);
            from += run;
            Ok(())
        });
        copied.map_err(outside)
    }

    /// Returns all elements of a shard, for elements of variable length.
    pub(super) fn elements(
        &self,
        shard: &[u8],
        expected: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Element>, DecodeError> {
        let InnerFill::Element(fill) = &self.fill else {
            return Err(DecodeError::internal(
                "a shard of elements of constant size",
            ));
        };
        // Nothing is allocated for a shard that is shorter than its index.
        self.bounds(shard.len() as u64)
            .map_err(DecodeError::Nested)?;
        let mut elements = budget.list(expected)?;
        let count = usize::try_from(expected).unwrap_or(usize::MAX);
        elements.resize(count, Element::Bytes(Vec::new()));
        let fill_bytes = match fill {
            Element::Text(text) => text.len(),
            Element::Bytes(bytes) | Element::Array(bytes) => bytes.len(),
            Element::Json(_) => 0,
        };
        let run = self.layout.run;
        self.for_each_inner(shard, |place, encoded| {
            let start = self.layout.start(place);
            let mut inner = match encoded {
                Some(encoded) => Some(self.inner.decode_within(encoded, budget)?.into_iter()),
                None => None,
            };
            let outside = || DecodeError::internal("an inner chunk outside of its shard");
            let placed = self.layout.for_each_run(0, start, &mut |at| {
                for slot in elements.get_mut(at..at + run).ok_or_else(outside)? {
                    *slot = match &mut inner {
                        Some(inner) => inner.next().ok_or_else(outside)?,
                        None => {
                            budget.take(fill_bytes)?;
                            fill.clone()
                        }
                    };
                }
                Ok(())
            });
            placed.map_err(in_sharding)
        })
        .map_err(DecodeError::Nested)?;
        Ok(elements)
    }
}

fn in_sharding(error: DecodeError) -> CodecError {
    error.in_codec(NAME)
}

/// Returns a range of a shard in memory; the range was checked against the size of the shard.
fn range_of<'a>(shard: &'a [u8], range: &Range<u64>) -> Result<&'a [u8], DecodeError> {
    let length = |n| usize::try_from(n).map_err(|_| DecodeError::internal(format!("{n} bytes")));
    part(shard, length(range.start)?..length(range.end)?)
}

impl Decode for Arc<Sharding> {
    /// Inner codecs add little to each chunk; gaps in a shard are limited to the size of its data.
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let decoded = decoded.bytes();
        let added = self.inner_count.saturating_mul(256);
        let added = added.min(decoded.saturating_add(4 << 20));
        let room = decoded.saturating_add(added);
        Some(Size::AtMost(room.saturating_add(self.index_size_bytes)).compressed())
    }

    fn decode(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, DecodeError> {
        if dst.len() != self.layout.total {
            let what = format!("a buffer of {} bytes for a shard", dst.len());
            return Err(DecodeError::internal(what));
        }
        let mut scratch = None;
        self.for_each_inner(src, |place, encoded| {
            self.place_inner(place, encoded, dst, &mut scratch)
        })
        .map_err(DecodeError::Nested)?;
        Ok(dst.len())
    }
}
