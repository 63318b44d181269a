//! The genotypes of the fileset (`.bed`): two bits for each call, four calls in a byte, and whole bytes for each variant
//! (PLINK 1.9, "File format reference").

use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::super::genotypes::{Calls, KeptVariants};
use crate::array::{ArrayReader, Selection, ServedVersions};
use crate::conventions::vcf_zarr::{MISSING_ALLELE, NO_ALLELE};
use crate::runtime::leave_session_thread;
use crate::store::{StoreError, in_memory, part_mut};
use crate::view::file::layout::SegmentSlice;
use crate::view::file::segment_content::{self, RenderedContent, SegmentContent};

/// The number of calls in a byte.
const PER_BYTE: usize = 4;
/// The maximum number of bytes that are made from one read of the array.
const MAX_PART_BYTES: u64 = 1 << 20;

/// Two alternate alleles (homozygous for A1).
const ALTERNATE: u8 = 0b00;
/// A missing call.
const MISSING: u8 = 0b01;
/// An alternate allele and the reference.
const HETEROZYGOUS: u8 = 0b10;
/// Two reference alleles (homozygous for A2).
const REFERENCE: u8 = 0b11;

/// Fills a row, or a part of one, from its calls; the last byte may have fewer than four. `None` if there are too
/// few calls.
fn encode_row(form: &Calls, calls: &[u8], target: &mut [u8]) -> Option<()> {
    let is_usual = (form.number.size_bytes, form.ploidy) == (1, 2);
    let call_bytes = form.call_bytes();
    let mut fours = calls.chunks(call_bytes * PER_BYTE);
    for byte in target {
        let calls = fours.next()?;
        let usual = <[u8; 8]>::try_from(calls).ok().filter(|_| is_usual);
        *byte = match usual.and_then(of_known_alleles) {
            Some(byte) => byte,
            None if calls.len().is_multiple_of(call_bytes) => packed(
                calls
                    .chunks_exact(call_bytes)
                    .map(|call| call_code(form, call)),
            ),
            None => return None,
        };
    }
    Some(())
}

/// Returns the two bits of a call.
fn call_code(form: &Calls, call: &[u8]) -> u8 {
    match (form.number.size_bytes, call) {
        (1, [first, second]) => code(first.cast_signed(), second.cast_signed()),
        (1, [only]) => code(only.cast_signed(), NO_ALLELE),
        _ => {
            let mut alleles = call.chunks_exact(form.number.size_bytes.max(1));
            let mut next = || alleles.next().map(|bytes| form.allele(bytes));
            let first = next().unwrap_or(MISSING_ALLELE);
            code(first, next().unwrap_or(NO_ALLELE))
        }
    }
}

/// Returns the byte of four calls of two alleles each, if all of them are the reference or the first alternate one.
fn of_known_alleles(calls: [u8; 8]) -> Option<u8> {
    /// The lowest bit of each call.
    const CALLS: u64 = 0x0001_0001_0001_0001;
    let alleles = u64::from_le_bytes(calls);
    if alleles & !(CALLS | CALLS << 8) != 0 {
        return None;
    }
    let (any, both) = (alleles | alleles >> 8, alleles & alleles >> 8);
    // 0b11 without an alternate allele, 0b10 with one, 0b00 with two.
    let codes = (!any & CALLS) | (!both & CALLS) << 1;
    let [byte, ..] = (codes | codes >> 14 | codes >> 28 | codes >> 42).to_le_bytes();
    Some(byte)
}

/// Returns the two bits of a call of two alleles.
fn code(first: i8, second: i8) -> u8 {
    match (first, second) {
        (0, 0 | NO_ALLELE) => REFERENCE,
        (1, 1 | NO_ALLELE) => ALTERNATE,
        (0, 1) | (1, 0) => HETEROZYGOUS,
        _ => MISSING,
    }
}

/// The genotypes of the variants in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Genotypes {
    calls: Calls,
    /// The samples in the file, if not all are.
    samples: Option<Vec<usize>>,
    variants: KeptVariants,
}

impl Genotypes {
    /// Returns the genotypes of variants and samples; `None` for all samples.
    pub(super) fn new(calls: Calls, samples: Option<Vec<usize>>, variants: KeptVariants) -> Self {
        Self {
            calls,
            samples,
            variants,
        }
    }

    /// Returns the number of bytes of each variant.
    fn row_bytes(&self) -> u64 {
        let samples = match &self.samples {
            Some(samples) => samples.len() as u64,
            None => self.calls.samples,
        };
        samples.div_ceil(PER_BYTE as u64)
    }

    /// Returns the calls in the array, as their range over all variants, that have a byte in a range of bytes of
    /// consecutive variants. `start` is the offset from the beginning of the row of `variant`.
    fn calls_of(&self, variant: u64, bytes: &Range<u64>) -> Option<Range<u64>> {
        let row_bytes = self.row_bytes();
        let last = bytes.end.checked_sub(1)?;
        let place = |byte: u64, sample: u64| {
            let row = variant.checked_add(byte / row_bytes)?;
            row.checked_mul(self.calls.samples)?.checked_add(sample)
        };
        let (first, end) = match self.samples {
            Some(_) => (0, self.calls.samples),
            None => {
                let end = (last % row_bytes + 1) * PER_BYTE as u64;
                let first = bytes.start % row_bytes * PER_BYTE as u64;
                (first, end.min(self.calls.samples))
            }
        };
        Some(place(bytes.start, first)?..place(last, end)?)
    }

    /// Fills `target` with a range of bytes of consecutive variants, from the calls of [`Self::calls_of`]. `None` if
    /// there are too few calls.
    fn encode(&self, bytes: &Range<u64>, stored: &[u8], target: &mut [u8]) -> Option<()> {
        let row_bytes = usize::try_from(self.row_bytes()).ok()?;
        let call_bytes = self.calls.call_bytes();
        let row_calls = usize::try_from(self.calls.samples)
            .ok()?
            .checked_mul(call_bytes)?;
        let first = usize::try_from(bytes.start).ok()? % row_bytes;
        // The calls begin with those of the first byte, or, if samples are left out, of the first row.
        let skipped = match self.samples {
            Some(_) => 0,
            None => first * PER_BYTE * call_bytes,
        };
        let (mut column, mut row_start, mut rest) = (first, 0_usize, target);
        while !rest.is_empty() {
            let (row, others) = rest.split_at_mut_checked((row_bytes - column).min(rest.len()))?;
            let row_end = row_start.checked_add(row_calls)?.checked_sub(skipped)?;
            match &self.samples {
                None => {
                    let start = row_start + column * PER_BYTE * call_bytes - skipped;
                    let end = start.checked_add(row.len() * PER_BYTE * call_bytes)?;
                    let calls = stored.get(start..end.min(row_end))?;
                    encode_row(&self.calls, calls, row)?;
                }
                Some(kept) => {
                    let calls = stored.get(row_start..row_end)?;
                    let kept = kept.get(column * PER_BYTE..)?.iter();
                    let call = |sample: &usize| calls.get(sample * call_bytes..)?.get(..call_bytes);
                    let kept = kept.take(row.len() * PER_BYTE).map(call);
                    let calls: Option<Vec<&[u8]>> = kept.collect();
                    encode_row(&self.calls, &calls?.concat(), row)?;
                }
            }
            (column, row_start, rest) = (0, row_start.checked_add(row_calls)?, others);
        }
        Some(())
    }
}

/// Returns a byte of four calls, the first one in the lowest bits.
fn packed(codes: impl Iterator<Item = u8>) -> u8 {
    codes
        .enumerate()
        .fold(0, |byte, (place, code)| byte | code << (2 * place))
}

impl SegmentContent for Genotypes {
    fn size_bytes(&self) -> Option<u64> {
        self.variants.rows().checked_mul(self.row_bytes())
    }

    fn memory_bytes(&self) -> u64 {
        let samples = self
            .samples
            .as_ref()
            .map_or(0, |samples| size_of_val(&samples[..]));
        size_of::<Self>() as u64 + samples as u64 + self.variants.memory_bytes()
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        hasher.write(format!("{:?}{:?}", self.calls, self.samples).as_bytes());
        self.variants.hash_into(hasher);
    }

    fn at(&self, range: Range<u64>) -> Option<SegmentSlice<'_>> {
        Some(SegmentSlice::Rendered(self, range))
    }
}

#[async_trait]
impl RenderedContent for Genotypes {
    async fn read(
        &self,
        sources: &[Arc<ArrayReader>],
        range: Range<u64>,
        target: &mut [u8],
        served: Option<&ServedVersions>,
    ) -> Result<(), StoreError> {
        leave_session_thread().await;
        let internal = || StoreError::internal("genotypes that are not as long as they should be");
        let reader = segment_content::source(sources, 0)?;
        let row_bytes = self.row_bytes().max(1);
        let call_bytes = self.calls.call_bytes() as u64;
        let (mut at, mut filled) = (range.start, 0);
        while at < range.end {
            let (row, within) = (at / row_bytes, at % row_bytes);
            let (variant, left) = self.variants.at(row).ok_or_else(internal)?;
            let most = left.saturating_mul(row_bytes) - within;
            let length = most.min(range.end - at).min(MAX_PART_BYTES);
            let bytes = within..within + length;
            let calls = self.calls_of(variant, &bytes).ok_or_else(internal)?;
            let offset = calls.start.checked_mul(call_bytes).ok_or_else(internal)?;
            let size = in_memory((calls.end - calls.start).saturating_mul(call_bytes))?;
            let stored = reader
                .read(Selection::RowMajor, offset, size, served)
                .await?;
            let length = in_memory(length)?;
            let part = part_mut(target, filled..filled + length)?;
            let encoded = self.encode(&bytes, stored.bytes(&[])?, part);
            encoded.ok_or_else(internal)?;
            filled += length;
            at += length as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Number, NumberKind};
    use crate::zarr::ByteOrder;

    const CALLS: Calls = Calls {
        variants: 3,
        samples: 5,
        ploidy: 2,
        number: Number::new(NumberKind::Int, 1, ByteOrder::Little),
    };

    #[test]
    fn calls_have_the_codes_of_plink_2() {
        for (first, second, expected) in [
            (0, 0, REFERENCE),
            (0, 1, HETEROZYGOUS),
            (1, 0, HETEROZYGOUS),
            (1, 1, ALTERNATE),
            (0, NO_ALLELE, REFERENCE),
            (1, NO_ALLELE, ALTERNATE),
            (2, NO_ALLELE, MISSING),
            (0, MISSING_ALLELE, MISSING),
            (MISSING_ALLELE, MISSING_ALLELE, MISSING),
            (NO_ALLELE, NO_ALLELE, MISSING),
            (1, 2, MISSING),
        ] {
            assert_eq!(code(first, second), expected, "{first}/{second}");
        }
        let haploid = Calls { ploidy: 1, ..CALLS };
        assert_eq!(
            [0, 1, 0xff].map(|only| call_code(&haploid, &[only])),
            [REFERENCE, ALTERNATE, MISSING]
        );
        let wide = Calls {
            number: Number::new(NumberKind::Int, 2, ByteOrder::Big),
            ..CALLS
        };
        assert_eq!(call_code(&wide, &[0, 0, 0, 1]), HETEROZYGOUS);
        assert_eq!(call_code(&wide, &[0, 1, 0xff, 0xfe]), ALTERNATE);
        assert_eq!(call_code(&wide, &[1, 0, 0, 0]), MISSING);
    }

    #[test]
    fn bytes_of_known_alleles_are_those_of_their_calls() {
        for number in 0..=u8::MAX {
            let alleles: [u8; 8] = std::array::from_fn(|place| number >> place & 1);
            let expected = packed(alleles.chunks_exact(2).map(|call| call_code(&CALLS, call)));
            assert_eq!(of_known_alleles(alleles), Some(expected));
            for place in 0..8 {
                let mut other = alleles;
                other[place] = 0xff;
                assert_eq!(of_known_alleles(other), None);
                other[place] = 2;
                assert_eq!(of_known_alleles(other), None);
            }
        }
    }

    /// Returns the calls of the variants, and what all bytes must be.
    fn example() -> (Vec<u8>, Vec<u8>) {
        let rows = [
            [(0, 0), (0, 1), (1, 1), (-1, -1), (1, 1)],
            [(1, 1), (1, 1), (0, 0), (0, 1), (0, 0)],
            [(0, 0), (-1, 0), (0, 0), (0, 0), (0, 1)],
        ];
        let calls = rows.iter().flatten();
        let calls = calls.flat_map(|(a, b): &(i8, i8)| [a.cast_unsigned(), b.cast_unsigned()]);
        let bytes = vec![0b0100_1011, 0b00, 0b1011_0000, 0b11, 0b1111_0111, 0b10];
        (calls.collect(), bytes)
    }

    #[test]
    fn each_range_of_bytes_is_that_of_the_whole_file() {
        let (calls, expected) = example();
        let genotypes = Genotypes::new(CALLS, None, KeptVariants::all(3));
        assert_eq!(genotypes.size_bytes(), Some(6));
        for start in 0..6_u64 {
            for end in start + 1..=6 {
                // From the row of the first byte, as a read does.
                let (variant, within) = (start / 2, start % 2);
                let bytes = within..within + end - start;
                let range = genotypes.calls_of(variant, &bytes).unwrap();
                let range = usize::try_from(range.start * 2).unwrap()
                    ..usize::try_from(range.end * 2).unwrap();
                let mut found = vec![0; usize::try_from(end - start).unwrap()];
                let stored = calls.get(range).unwrap();
                genotypes.encode(&bytes, stored, &mut found).unwrap();
                let expected = expected.get(usize::try_from(start).unwrap()..);
                assert!(expected.unwrap().starts_with(&found), "{start}..{end}");
                let short = stored.get(2..).unwrap();
                assert_eq!(genotypes.encode(&bytes, short, &mut found), None);
            }
        }
    }

    #[test]
    fn samples_that_were_removed_are_left_out() {
        let (calls, _) = example();
        let kept = Some(vec![1, 4]);
        let genotypes = Genotypes::new(CALLS, kept, KeptVariants::all(3));
        assert_eq!(genotypes.size_bytes(), Some(3));
        assert_eq!(genotypes.calls_of(1, &(0..2)), Some(5..15));
        let mut found = [0; 3];
        genotypes.encode(&(0..3), &calls, &mut found).unwrap();
        assert_eq!(found, [0b0010, 0b1100, 0b1001]);
    }
}
