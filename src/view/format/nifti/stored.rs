//! The fields that a file takes from the NIfTI header that is stored beside an image.

use crate::zarr::ByteOrder;

/// Byte ranges of a header that describe the file, and its numbers: data type, lengths, offset, slope, intercept, magic.
const FIRST: [(usize, usize); 5] = [(40, 56), (70, 74), (108, 112), (112, 120), (344, 352)];
const SECOND: [(usize, usize); 4] = [(4, 80), (168, 176), (176, 192), (540, 544)];
/// The description.
const FIRST_DESCRIPTION: [(usize, usize); 1] = [(148, 228)];
const SECOND_DESCRIPTION: [(usize, usize); 1] = [(240, 320)];
/// Where the elements are: steps, time of the first volume, units, and both transforms.
const FIRST_GEOMETRY: [(usize, usize); 4] = [(76, 108), (123, 124), (136, 140), (252, 328)];
const SECOND_GEOMETRY: [(usize, usize); 4] = [(104, 168), (216, 224), (344, 496), (500, 504)];

/// What a file determines itself, beside its data type, lengths and scale.
pub(super) struct Own {
    /// The description, because the array has a unit.
    pub(super) has_description: bool,
    /// Where the elements are, because its axes are not those of the stored header.
    pub(super) has_geometry: bool,
}

/// Returns the stored header with the fields that the file determines: those of `own`.
///
/// # Errors
/// Returns why the stored header does not belong to this array.
pub(super) fn merge(
    own: &[u8],
    stored: &[u8],
    order: ByteOrder,
    determined: &Own,
) -> Result<Vec<u8>, &'static str> {
    if stored.get(..4) != own.get(..4) {
        return Err("another version or byte order");
    }
    let is_long = own.len() > 352;
    let (at, width) = if is_long { (16, 8) } else { (40, 2) };
    if lengths(stored, at, width, order) != lengths(own, at, width, order) {
        return Err("of an array of another shape");
    }
    let mut merged = own.to_vec();
    let header = own.len() - 4;
    let bytes = stored.get(..header).ok_or("too short")?;
    for (to, from) in merged.iter_mut().zip(bytes) {
        *to = *from;
    }
    let [file, description, geometry] = match is_long {
        true => [&SECOND[..], &SECOND_DESCRIPTION, &SECOND_GEOMETRY],
        false => [&FIRST[..], &FIRST_DESCRIPTION, &FIRST_GEOMETRY],
    };
    let optional = [
        (description, determined.has_description),
        (geometry, determined.has_geometry),
    ];
    let optional = optional.into_iter().filter(|(_, is_own)| *is_own);
    let ranges = optional.flat_map(|(ranges, _)| ranges).chain(file);
    for (start, end) in ranges {
        if let (Some(to), Some(from)) = (merged.get_mut(*start..*end), own.get(*start..*end)) {
            to.copy_from_slice(from);
        }
    }
    Ok(merged)
}

/// Returns the lengths in a header, without axes of length 1 at the end.
fn lengths(header: &[u8], at: usize, width: usize, order: ByteOrder) -> Option<Vec<u64>> {
    let fields = header.get(at..at + 8 * width)?.chunks_exact(width);
    let mut values = fields.map(|field| {
        let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match order {
            ByteOrder::Big => field.iter().fold(0, digit),
            ByteOrder::Little => field.iter().rev().fold(0, digit),
        }
    });
    let rank = usize::try_from(values.next()?).ok()?;
    let mut lengths: Vec<u64> = values.take(rank).collect();
    while lengths.last() == Some(&1) {
        lengths.pop();
    }
    Some(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_header_retains_all_fields_that_the_file_does_not_determine() {
        let mut own = vec![0; 352];
        own[..4].copy_from_slice(&348_i32.to_le_bytes());
        own[40..48].copy_from_slice(&[3, 0, 5, 0, 4, 0, 1, 0]);
        own[70] = 16;
        own[344..347].copy_from_slice(b"n+1");
        let mut stored = own.clone();
        stored[40] = 2;
        stored[70] = 4;
        stored[148] = b'x';
        stored[280] = 7;
        // The slope is that of the numbers of the file, whatever the stored header says.
        own[112] = 9;
        let determined = |has_description, has_geometry| Own {
            has_description,
            has_geometry,
        };
        let merge = |stored: &[u8], determined| merge(&own, stored, ByteOrder::Little, &determined);
        let merged = merge(&stored[..348], determined(false, false)).unwrap();
        assert_eq!((merged.len(), merged[40], merged[70]), (352, 3, 16));
        assert_eq!((merged[112], merged[148], merged[280]), (9, b'x', 7));
        let merged = merge(&stored[..348], determined(true, true)).unwrap();
        assert_eq!((merged[112], merged[148], merged[280]), (9, 0, 0));
        stored[42] = 6;
        let refused = |stored: &[u8]| merge(stored, determined(false, false)).is_err();
        assert!(refused(&stored) && refused(&own[..100]) && refused(&[]));
        stored[0] = 0;
        assert!(refused(&stored));
    }
}
