//! The offsets of the variables of a file, and its segments.

use std::sync::Arc;

use super::BLOCK_BYTES;
use super::header::{Header, Variable};
use super::plan::{PlannedVariable, VariableElements};
use crate::array::ArrayReader;
use crate::store::StoreError;
use crate::view::file::layout::{self, ArrayExtent, RecordSlice, Segment};

/// Alignment in bytes of variables whose elements may fail to decode.
const APART_BYTES: u64 = 128 << 10;
/// CDF-1: the limit of a variable's offset, in bytes.
const MAX_OFFSET_1: u64 = i32::MAX as u64;

/// Returns whether CDF-1 can express the offsets of all variables.
pub(super) fn has_small_offsets(
    header: &Header,
    planned: &[PlannedVariable],
    has_gap: bool,
) -> bool {
    let offsets = offsets(header, planned, has_gap);
    offsets.is_some_and(|offsets| offsets.iter().all(|offset| *offset <= MAX_OFFSET_1))
}

/// Returns the number of zero bytes after a variable, or after its part of a record. Zero for the only record
/// variable ("Note on padding").
fn padding_bytes(planned: &PlannedVariable, is_only_record: bool) -> u64 {
    match planned.is_record && is_only_record {
        true => 0,
        false => planned.size_bytes.next_multiple_of(4) - planned.size_bytes,
    }
}

fn is_only_record(planned: &[PlannedVariable]) -> bool {
    planned.iter().filter(|planned| planned.is_record).count() == 1
}

/// Returns the offset of each variable: first those of fixed size, then the parts of the first record.
fn offsets(header: &Header, planned: &[PlannedVariable], has_gap: bool) -> Option<Vec<u64>> {
    let variables: Vec<&Variable> = planned.iter().map(|planned| &planned.variable).collect();
    let mut offsets = vec![0; planned.len()];
    let length = header.encode(&variables, &offsets).len() as u64;
    let mut at = layout::elements_start(length, has_gap, BLOCK_BYTES)?;
    let is_only = is_only_record(planned);
    for is_record in [false, true] {
        for (planned, offset) in planned.iter().zip(&mut offsets) {
            if planned.is_record == is_record {
                at = at.checked_next_multiple_of(match (is_record, planned.is_inexact) {
                    (true, _) => 1,
                    // A variable that may fail to decode shares no page with another variable.
                    (false, true) => APART_BYTES,
                    (false, false) => BLOCK_BYTES,
                })?;
                *offset = at;
                let padding = padding_bytes(planned, is_only);
                at = at.checked_add(planned.size_bytes)?.checked_add(padding)?;
            }
        }
    }
    Some(offsets)
}

/// Returns the segments of a file: the header and the elements of each variable. Adds arrays to `sources`, and errors of
/// elements that could not be read to `errors`. `None` if the file would be too long.
pub(super) fn segments(
    header: &Header,
    planned: Vec<PlannedVariable>,
    has_gap: bool,
    sources: &mut Vec<Arc<ArrayReader>>,
    errors: &mut Vec<StoreError>,
) -> Option<Vec<Segment>> {
    let offsets = offsets(header, &planned, has_gap)?;
    let variables: Vec<&Variable> = planned.iter().map(|planned| &planned.variable).collect();
    let bytes = header.encode(&variables, &offsets);
    let mut end = bytes.len() as u64;
    let mut segments = vec![Segment::Bytes(bytes)];
    let is_only = is_only_record(&planned);
    let mut slices = Vec::new();
    let mut records_begin = None;
    for (planned, offset) in planned.into_iter().zip(offsets) {
        let padding = padding_bytes(&planned, is_only);
        if planned.is_record {
            records_begin.get_or_insert(offset);
        } else {
            segments.push(Segment::Zeros(offset.checked_sub(end)?));
            end = offset
                .checked_add(planned.size_bytes)?
                .checked_add(padding)?;
        }
        match planned.elements {
            // There are no records.
            VariableElements::Bytes(_) | VariableElements::Unread(_) if planned.is_record => {
                continue;
            }
            VariableElements::Unread(error) => {
                errors.push(error);
                segments.push(Segment::Unread(errors.len() - 1, planned.size_bytes));
            }
            VariableElements::Bytes(bytes) => segments.push(Segment::Bytes(bytes)),
            VariableElements::Array(reader, extent) => {
                let source = sources.len();
                sources.push(reader);
                let extent = ArrayExtent { source, ..extent };
                if planned.is_record {
                    slices.push(RecordSlice {
                        extent,
                        size_bytes: planned.size_bytes,
                        padding_bytes: padding,
                    });
                    continue;
                }
                segments.push(Segment::Array(extent));
            }
        }
        segments.push(Segment::Zeros(padding));
    }
    if let (Some((_, records)), Some(begin)) = (header.record, records_begin) {
        segments.push(Segment::Zeros(begin.checked_sub(end)?));
        segments.push(Segment::Records(records, slices));
    }
    Some(segments)
}
