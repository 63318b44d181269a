//! The records of a BGEN file, one for each variant: what identifies it, in memory, and its genotypes, which are made
//! from the calls when they are read (BGEN format, "Variant data blocks").

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join;

use super::super::genotypes::{KeptVariants, Variant, Variants};
use super::block::{Block, Buffers};
use super::index::Place;
use super::zlib::{Window, push_stream};
use crate::array::{ArrayReader, Selection, ServedVersions};
use crate::fallible::List;
use crate::node::ContentError;
use crate::runtime::leave_session_thread;
use crate::store::{Data, StoreError, in_memory, part, part_mut};
use crate::view::file::layout::SegmentSlice;
use crate::view::file::segment_content::{self, RenderedContent, SegmentContent};

/// The maximum number of bytes of calls that are read at a time, unless one variant has more.
const MAX_PART_BYTES: u64 = 1 << 20;

/// The records of the variants in the file.
#[derive(Debug)]
pub(super) struct Records {
    /// What identifies the variants, one after the other.
    heads: Vec<u8>,
    /// The end of each variant in `heads`.
    ends: Vec<u64>,
    block: Block,
    /// Whether the second array of the file has the phases of the calls.
    has_phases: bool,
    variants: KeptVariants,
}

impl Records {
    /// Returns the records of variants.
    ///
    /// # Errors
    /// Returns which variant has values that BGEN cannot have, or that the variants need more memory than this.
    pub(super) fn new(
        variants: &Variants,
        block: Block,
        has_phases: bool,
        most_bytes: u64,
    ) -> Result<Self, ContentError> {
        let kept = variants.kept();
        let (mut heads, mut ends) = (List::default(), List::default());
        for index in kept.indices() {
            push_head(&variants.at(index)?, &mut heads)
                .map_err(|why| format!("variant {index} has {why}"))?;
            ends.push(heads.len() as u64);
            let bytes = (heads.capacity() + ends.capacity() * size_of::<u64>()) as u64;
            if bytes > most_bytes {
                let why = format!(
                    "what identifies {} variants takes more than {most_bytes} bytes, an eighth of the memory limit: \
                     raise --memory-limit",
                    kept.rows()
                );
                return Err(why.into());
            }
        }
        Ok(Self {
            heads: heads.finish()?,
            ends: ends.finish()?,
            block,
            has_phases,
            variants: kept,
        })
    }

    /// Returns the range in `heads` of a variant in the file.
    fn head(&self, row: u64) -> Option<Range<u64>> {
        let row = usize::try_from(row).ok()?;
        let start = match row.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        Some(start..*self.ends.get(row)?)
    }

    /// Returns the start of a record, and the start of its genotypes.
    fn starts(&self, row: u64) -> Option<(u64, u64)> {
        let head = self.head(row)?;
        let blocks = row.checked_mul(self.block.size_bytes())?;
        Some((
            head.start.checked_add(blocks)?,
            head.end.checked_add(blocks)?,
        ))
    }

    /// Returns the variant in the file whose record has a byte; `None` after the last one.
    fn row_at(&self, offset: u64) -> Option<u64> {
        let (mut least, mut end) = (0, self.variants.rows());
        while least < end {
            let middle = least + (end - least) / 2;
            let (_, block) = self.starts(middle)?;
            match block.checked_add(self.block.size_bytes())? <= offset {
                true => least = middle + 1,
                false => end = middle,
            }
        }
        (least < self.variants.rows()).then_some(least)
    }

    /// Returns the estimated size of the index in bytes.
    pub(super) fn index_bytes(&self) -> u64 {
        (self.heads.len() as u64).saturating_add(self.variants.rows().saturating_mul(32))
    }

    /// Returns the place of each record in a file whose first record has this offset.
    pub(super) fn index_rows(&self, start: u64) -> impl Iterator<Item = Place> {
        (0..self.variants.rows()).filter_map(move |row| {
            let (record, block) = self.starts(row)?;
            Some(Place {
                start: start.checked_add(record)?,
                size_bytes: (block - record).checked_add(self.block.size_bytes())?,
            })
        })
    }

    /// Returns the number of variants whose genotypes are made at a time, from a variant in the file whose genotypes
    /// are needed: they follow each other in the arrays, and all of their genotypes have bytes before `end`.
    fn count_from(&self, row: u64, following: u64, end: u64) -> u64 {
        let calls = &self.block.calls;
        let row_bytes = calls.samples.saturating_mul(calls.call_bytes() as u64);
        let most = (MAX_PART_BYTES / row_bytes.max(1)).max(1).min(following);
        let is_needed = |count: &u64| {
            let starts = self.starts(row.saturating_add(*count));
            starts.is_some_and(|(_, block)| block < end)
        };
        1 + (1..most).take_while(is_needed).count() as u64
    }

    /// Reads the elements of consecutive variants of an array.
    async fn elements(
        &self,
        reader: &Arc<ArrayReader>,
        variants: &Range<u64>,
        element_bytes: usize,
        served: Option<&ServedVersions>,
    ) -> Result<Data, StoreError> {
        let row_bytes = self
            .block
            .calls
            .samples
            .saturating_mul(element_bytes as u64);
        let offset = variants.start.saturating_mul(row_bytes);
        let size = (variants.end - variants.start).saturating_mul(row_bytes);
        let size = in_memory(size)?;
        reader.read(Selection::RowMajor, offset, size, served).await
    }

    /// Fills `target` with the records of consecutive variants from an offset in the first one, from the calls and
    /// phases of these variants. Returns the number of bytes that it filled. `None` if there are too few calls.
    ///
    /// The buffers have three bytes a sample. There are no more samples than names of samples, which are in memory.
    fn push_records(
        &self,
        rows: Range<u64>,
        (calls, phases): (&[u8], Option<&[u8]>),
        skip: u64,
        target: &mut [u8],
    ) -> Option<usize> {
        let samples = usize::try_from(self.block.calls.samples).ok()?;
        let call_bytes = samples.checked_mul(self.block.calls.call_bytes())?;
        let mut buffers = Buffers::default();
        let mut window = Window::new(skip, target);
        for (number, row) in rows.enumerate() {
            let calls = calls.get(number * call_bytes..)?.get(..call_bytes)?;
            let phases = match phases {
                Some(phases) => Some(phases.get(number * samples..)?.get(..samples)?),
                None => None,
            };
            self.block.encode(calls, phases, &mut buffers)?;
            let head = self.head(row)?;
            let head = usize::try_from(head.start).ok()?..usize::try_from(head.end).ok()?;
            window.push(self.heads.get(head)?);
            window.push(&self.block.length_fields(&buffers.content));
            push_stream(&buffers.content, self.block.stream_bytes(), &mut window)?;
        }
        Some(window.filled())
    }
}

/// Returns that elements or offsets contradict the form of the file.
fn internal() -> StoreError {
    StoreError::internal("records that are not as long as they should be")
}

/// Adds what identifies a variant: no ID of the variant, its RSID, contig, position, and two alleles.
fn push_head(variant: &Variant<'_>, heads: &mut List<u8>) -> Result<(), String> {
    for text in [".", variant.id, variant.contig] {
        let length = u16::try_from(text.len()).map_err(|_| {
            format!(
                "an ID or contig of {} bytes; BGEN has at most 65535",
                text.len()
            )
        })?;
        heads.extend_from_slice(&length.to_le_bytes());
        heads.extend_from_slice(text.as_bytes());
    }
    let position = variant.position;
    let position = u32::try_from(position)
        .map_err(|_| format!("the position {position}, which BGEN cannot have"))?;
    heads.extend_from_slice(&position.to_le_bytes());
    heads.extend_from_slice(&2_u16.to_le_bytes());
    for allele in [variant.reference, variant.alternate] {
        let length = u32::try_from(allele.len());
        let length = length.map_err(|_| format!("an allele of {} bytes", allele.len()))?;
        heads.extend_from_slice(&length.to_le_bytes());
        heads.extend_from_slice(allele.as_bytes());
    }
    Ok(())
}

impl SegmentContent for Records {
    fn size_bytes(&self) -> Option<u64> {
        let blocks = self.variants.rows().checked_mul(self.block.size_bytes())?;
        blocks.checked_add(self.heads.len() as u64)
    }

    fn memory_bytes(&self) -> u64 {
        let own =
            size_of::<Self>() + self.heads.capacity() + self.ends.capacity() * size_of::<u64>();
        own as u64 + self.block.memory_bytes() + self.variants.memory_bytes()
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        hasher.write(&self.heads);
        for end in &self.ends {
            hasher.write_u64(*end);
        }
        hasher.write(format!("{:?}{}", self.block, self.has_phases).as_bytes());
        self.variants.hash_into(hasher);
    }

    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>> {
        Some(SegmentSlice::Rendered(self, range))
    }
}

#[async_trait]
impl RenderedContent for Records {
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        leave_session_thread().await;
        let genotype = segment_content::source(sources, 0)?;
        let call_bytes = self.block.calls.call_bytes();
        let (mut at, mut filled) = (range.start, 0);
        while at < range.end {
            let row = self.row_at(at).ok_or_else(internal)?;
            let (record, block) = self.starts(row).ok_or_else(internal)?;
            let end = range.end.min(block);
            if at < end {
                // What identifies a variant needs no genotypes.
                let head = self.head(row).ok_or_else(internal)?.start;
                let head = in_memory(head + (at - record))?..in_memory(head + (end - record))?;
                let head = part(&self.heads, head)?;
                part_mut(target, filled..filled + head.len())?.copy_from_slice(head);
                filled += head.len();
                at = end;
                continue;
            }
            let (variant, following) = self.variants.at(row).ok_or_else(internal)?;
            let count = self.count_from(row, following, range.end);
            let variants = variant..variant.saturating_add(count);
            let phases = async {
                let reader = match self.has_phases {
                    true => segment_content::source(sources, 1)?,
                    false => return Ok(None),
                };
                let phases = self.elements(reader, &variants, 1, served).await?;
                Ok(Some(phases))
            };
            let calls = self.elements(genotype, &variants, call_bytes, served);
            let (calls, phases) = try_join(calls, phases).await?;
            let phases = phases
                .as_ref()
                .map(|phases| phases.bytes(&[]))
                .transpose()?;
            let elements = (calls.bytes(&[])?, phases);
            let rest = part_mut(target, filled..in_memory(range.end - range.start)?)?;
            let rows = row..row.saturating_add(count);
            let pushed = self.push_records(rows, elements, at - record, rest);
            let pushed = pushed.filter(|pushed| *pushed > 0).ok_or_else(internal)?;
            filled += pushed;
            at += pushed as u64;
        }
        Ok(())
    }
}
