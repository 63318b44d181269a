//! `sharding_indexed` (ZEP 2): a chunk of chunks, with an index of where each of them lies.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::element::{Budget, Element};
use super::error::{CodecError, Fault};
use super::pipeline::Pipeline;
use super::scratch::Scratch;
use super::stage::{Convert, Size};

const NAME: &str = "sharding_indexed";
/// An index entry: offset and length, 64 bits each, little-endian once decoded.
const ENTRY_BYTES: usize = 16;

/// Where the index of a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexLocation {
    /// Its first bytes.
    Start,
    /// Its last bytes.
    End,
}

/// What the elements of an inner chunk are that is not there.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fill {
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
    placement: Placement,
    fill: Fill,
}

/// The decoded index of one shard. Nothing in it is trusted: each entry is checked when asked for.
#[derive(Debug, Clone)]
pub struct ShardIndex {
    entries: Vec<u8>,
    rules: Rules,
}

/// What an entry must obey.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// Where inner chunks may lie: the shard without its index.
    begin: u64,
    end: u64,
    inner_encoded_bytes: Option<u64>,
}

impl Sharding {
    /// `shard_shape` over `inner`'s chunk shape must give whole numbers; `index` decodes 64-bit
    /// integers, two for each inner chunk.
    pub(super) fn new(
        shard_shape: &[u64],
        inner: Pipeline,
        index: impl FnOnce(&[u64]) -> Result<Pipeline, CodecError>,
        location: IndexLocation,
        fill: Fill,
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
        let inner_count = grid.iter().try_fold(1u64, |n, axis| n.checked_mul(*axis));
        let index = index(&[&grid[..], &[2]].concat())?;
        let index_size_bytes = index
            .encoded_size_bytes()
            .ok_or_else(|| invalid("the size of the index is not constant".into()))?;
        let item = match &fill {
            Fill::Bytes(bytes) => bytes.len(),
            Fill::Element(_) => 1,
        };
        let placement = Placement::new(shard_shape, inner_shape, item)
            .ok_or_else(|| invalid(format!("a shard {shard_shape:?} overflows memory")))?;
        Ok(Self {
            placement,
            index,
            index_size_bytes,
            location,
            grid,
            inner_count: inner_count.unwrap_or(u64::MAX),
            inner,
            fill,
        })
    }

    /// The codecs of one inner chunk.
    pub fn inner(&self) -> &Pipeline {
        &self.inner
    }

    /// Elements of an inner chunk along each axis.
    pub fn inner_chunk_shape(&self) -> &[u64] {
        self.inner.chunk_shape()
    }

    /// Inner chunks of a shard along each axis.
    pub fn inner_grid(&self) -> &[u64] {
        &self.grid
    }

    /// Bytes of the encoded index.
    pub fn index_size_bytes(&self) -> u64 {
        self.index_size_bytes
    }

    /// Where the encoded index is.
    pub fn index_location(&self) -> IndexLocation {
        self.location
    }

    /// Decodes the index of a shard from its [`Sharding::index_size_bytes`] bytes.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the shard is too short to have one, or a checksum is wrong.
    pub fn decode_index(
        &self,
        bytes: &[u8],
        shard_size_bytes: u64,
    ) -> Result<ShardIndex, CodecError> {
        let rules = self.rules(shard_size_bytes)?;
        let entries = self.entries(bytes)?.into_owned();
        Ok(ShardIndex { entries, rules })
    }

    fn rules(&self, shard_size_bytes: u64) -> Result<Rules, CodecError> {
        let index = self.index_size_bytes;
        let Some(room) = shard_size_bytes.checked_sub(index) else {
            let what = format!("a shard of {shard_size_bytes} bytes, its index takes {index}");
            return Err(Fault::corrupt(what).of(NAME));
        };
        let (begin, end) = match self.location {
            IndexLocation::Start => (index, shard_size_bytes),
            IndexLocation::End => (0, room),
        };
        Ok(Rules {
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
            return Err(within(Fault::corrupt(what).of(NAME)));
        }
        if let Some(payload) = self.index.peel(bytes) {
            return payload.map(Cow::Borrowed).map_err(within);
        }
        let size = self.index.decoded_size_bytes().unwrap_or(0);
        let memory = |_| CodecError::TooLarge {
            codec: NAME.into(),
            needed_bytes: size,
            limit_bytes: 0,
        };
        let mut entries = Vec::new();
        entries.try_reserve_exact(bytes.len()).map_err(memory)?;
        entries.resize(usize::try_from(size).unwrap_or(0), 0);
        self.index.decode(bytes, &mut entries).map_err(within)?;
        Ok(Cow::Owned(entries))
    }

    /// The index's place in a whole shard, and its entries.
    fn index_of<'a>(&self, shard: &'a [u8]) -> Result<(Rules, Cow<'a, [u8]>), CodecError> {
        let rules = self.rules(shard.len() as u64)?;
        let size = usize::try_from(self.index_size_bytes).unwrap_or(usize::MAX);
        let bytes = match self.location {
            IndexLocation::Start => shard.get(..size),
            IndexLocation::End => shard.get(shard.len().saturating_sub(size)..),
        };
        Ok((rules, self.entries(bytes.unwrap_or_default())?))
    }

    /// Calls `f` with each inner chunk's number, its place in the grid and its encoded bytes.
    fn for_each_inner(
        &self,
        shard: &[u8],
        mut f: impl FnMut(&[usize], Option<&[u8]>) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        let (rules, entries) = self.index_of(shard)?;
        let mut place = vec![0; self.grid.len()];
        for (number, entry) in (0..self.inner_count).zip(entries.chunks_exact(ENTRY_BYTES)) {
            let named = |error: CodecError| error.within(&format!("inner chunk {number}"));
            let encoded = match rules.range(entry).map_err(named)? {
                Some(range) => Some(part(shard, &range).map_err(|fault| named(fault.of(NAME)))?),
                None => None,
            };
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
        let start = self.placement.start(place);
        let run = self.placement.run;
        let Some(encoded) = encoded else {
            if let Fill::Bytes(fill) = &self.fill {
                self.placement.for_each_run(0, start, &mut |at| {
                    let to = dst.get_mut(at..at + run).unwrap_or_default();
                    fill_with(to, fill);
                });
            }
            return Ok(());
        };
        if self.placement.is_one_run() {
            let to = dst.get_mut(start..start + run).unwrap_or_default();
            return self.inner.decode(encoded, to);
        }
        let buffer = match scratch {
            Some(buffer) => buffer,
            None => {
                let size = self.inner.decoded_size_bytes().unwrap_or(0);
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                scratch.insert(Scratch::new(size).map_err(|fault| fault.of(NAME))?)
            }
        };
        self.inner.decode(encoded, buffer.bytes_mut())?;
        let mut from = 0;
        self.placement.for_each_run(0, start, &mut |at| {
            let to = dst.get_mut(at..at + run);
            if let (Some(to), Some(bytes)) = (to, buffer.bytes().get(from..from + run)) {
                to.copy_from_slice(bytes);
            }
            from += run;
        });
        Ok(())
    }

    /// All elements of a shard of elements of variable length.
    pub(super) fn elements(
        &self,
        shard: &[u8],
        expected: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Element>, Fault> {
        let Fill::Element(fill) = &self.fill else {
            return Err(Fault::corrupt("a shard of elements of constant size"));
        };
        // Nothing is made for a shard that is too short for its own index.
        self.rules(shard.len() as u64).map_err(Fault::Nested)?;
        let mut elements = budget.list(expected)?;
        let count = usize::try_from(expected).unwrap_or(usize::MAX);
        elements.resize(count, Element::Bytes(Vec::new()));
        let fill_bytes = match fill {
            Element::Text(text) => text.len(),
            Element::Bytes(bytes) | Element::Array(bytes) => bytes.len(),
            Element::Json(_) => 0,
        };
        let run = self.placement.run;
        self.for_each_inner(shard, |place, encoded| {
            let start = self.placement.start(place);
            let mut inner = match encoded {
                Some(encoded) => Some(self.inner.decode_within(encoded, budget)?.into_iter()),
                None => None,
            };
            let mut result = Ok(());
            self.placement.for_each_run(0, start, &mut |at| {
                for slot in elements.iter_mut().skip(at).take(run) {
                    *slot = match &mut inner {
                        Some(inner) => inner.next().unwrap_or_else(|| fill.clone()),
                        None => {
                            if result.is_ok() {
                                result = budget.take(fill_bytes);
                            }
                            if result.is_err() {
                                return;
                            }
                            fill.clone()
                        }
                    };
                }
            });
            result.map_err(|fault| fault.of(NAME))
        })
        .map_err(Fault::Nested)?;
        Ok(elements)
    }
}

fn part<'a>(shard: &'a [u8], range: &Range<u64>) -> Result<&'a [u8], Fault> {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    super::error::slice(shard, start..end)
}

/// Repeats `fill` over `to`, whose length is a multiple of its length.
pub(super) fn fill_with(to: &mut [u8], fill: &[u8]) {
    match fill {
        [] => {}
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => to.fill(*first),
        _ => {
            let filled = fill.len().min(to.len());
            if let (Some(head), Some(fill)) = (to.get_mut(..filled), fill.get(..filled)) {
                head.copy_from_slice(fill);
            }
            // Doubles what is there.
            let mut done = filled;
            while done < to.len() {
                let more = done.min(to.len() - done);
                to.copy_within(..more, done);
                done += more;
            }
        }
    }
}

impl Convert for Arc<Sharding> {
    /// A shard may have gaps; twice its decoded size is more than any encoder leaves.
    fn encoded_size(&self, decoded: Size) -> Option<Size> {
        let chunks = decoded
            .bytes()
            .saturating_add(self.inner_count.saturating_mul(256));
        let room = chunks.saturating_add(self.index_size_bytes);
        Some(Size::AtMost(room).compressed())
    }

    fn convert(&self, src: &[u8], dst: &mut [u8]) -> Result<usize, Fault> {
        if dst.len() != self.placement.total {
            return Err(Fault::overflow(dst.len()));
        }
        let mut scratch = None;
        self.for_each_inner(src, |place, encoded| {
            self.place_inner(place, encoded, dst, &mut scratch)
        })
        .map_err(Fault::Nested)?;
        Ok(dst.len())
    }
}

impl ShardIndex {
    /// How many inner chunks there are, whether stored or not.
    pub fn len(&self) -> usize {
        self.entries.len() / ENTRY_BYTES
    }

    /// Whether the shard has no place for inner chunks.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of the shard that hold inner chunk `number` (C order over the inner grid); none if
    /// it is not stored and all fill value.
    ///
    /// # Errors
    /// [`CodecError::Corrupt`] if the entry leaves the shard, overlaps the index or has a length
    /// that the inner codecs cannot have made; the other inner chunks can still be read.
    pub fn entry(&self, number: usize) -> Result<Option<Range<u64>>, CodecError> {
        let start = number.saturating_mul(ENTRY_BYTES);
        let entry = self.entries.get(start..start.saturating_add(ENTRY_BYTES));
        let entry = entry.ok_or_else(|| {
            CodecError::invalid(NAME, format!("inner chunk {number} of {}", self.len()))
        })?;
        let named = |error: CodecError| error.within(&format!("inner chunk {number}"));
        self.rules.range(entry).map_err(named)
    }
}

impl Rules {
    fn range(&self, entry: &[u8]) -> Result<Option<Range<u64>>, CodecError> {
        let (words, _) = entry.as_chunks::<8>();
        let [offset, length] = *words else {
            return Err(CodecError::invalid(NAME, "an entry is not 16 bytes"));
        };
        let (offset, length) = (u64::from_le_bytes(offset), u64::from_le_bytes(length));
        if offset == u64::MAX && length == u64::MAX {
            return Ok(None);
        }
        let corrupt = |what: String| Err(Fault::corrupt(what).of(NAME));
        let end = match offset.checked_add(length) {
            Some(end) if offset >= self.begin && end <= self.end => end,
            _ => {
                let Self { begin, end, .. } = self;
                return corrupt(format!(
                    "{length} bytes at {offset} are not within {begin} to {end}"
                ));
            }
        };
        match self.inner_encoded_bytes {
            Some(expected) if expected != length => {
                corrupt(format!("{length} bytes, expected {expected}"))
            }
            _ => Ok(Some(offset..end)),
        }
    }
}

/// How inner chunks lie in the shard's decoded bytes (or elements).
#[derive(Debug)]
struct Placement {
    /// Bytes from one inner chunk to the next along each axis.
    chunk_steps: Vec<usize>,
    /// Axes along which an inner chunk's runs follow each other: how many, and bytes between them.
    rows: Vec<(usize, usize)>,
    /// Bytes of an inner chunk that stay together.
    run: usize,
    total: usize,
}

impl Placement {
    /// None if the sizes overflow.
    fn new(outer: &[u64], inner: &[u64], item: usize) -> Option<Self> {
        let mut stride = item;
        let mut run = item;
        let mut together = true;
        let (mut chunk_steps, mut rows) = (Vec::new(), Vec::new());
        for (outer, inner) in outer.iter().zip(inner).rev() {
            let (outer, inner) = (usize::try_from(*outer).ok()?, usize::try_from(*inner).ok()?);
            chunk_steps.push(stride.checked_mul(inner)?);
            if together {
                run = run.checked_mul(inner)?;
            } else if inner > 1 {
                rows.push((inner, stride));
            }
            together &= inner == outer;
            stride = stride.checked_mul(outer)?;
        }
        chunk_steps.reverse();
        rows.reverse();
        Some(Self {
            chunk_steps,
            rows,
            run,
            total: stride,
        })
    }

    fn is_one_run(&self) -> bool {
        self.rows.is_empty()
    }

    fn start(&self, place: &[usize]) -> usize {
        place
            .iter()
            .zip(&self.chunk_steps)
            .map(|(at, step)| at * step)
            .sum()
    }

    /// Calls `f` with where each run begins, in C order.
    fn for_each_run(&self, depth: usize, start: usize, f: &mut impl FnMut(usize)) {
        match self.rows.get(depth) {
            Some((count, step)) => {
                for i in 0..*count {
                    self.for_each_run(depth + 1, start + i * step, f);
                }
            }
            None => f(start),
        }
    }
}
