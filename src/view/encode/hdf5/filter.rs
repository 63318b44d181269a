//! Filter pipeline messages (IV.A.2.l).

/// A filter that every build of the HDF5 library supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view) enum Filter {
    /// zlib streams. Readers do not use the level.
    Deflate { level: u8 },
    /// Byte shuffle of elements of this size: their first bytes, then their second bytes, and so on.
    Shuffle { element_bytes: u32 },
    /// A checksum after the chunk.
    Fletcher32,
}

/// The maximum number of filters of a dataset (`H5Z_MAX_NFILTERS`).
pub(in crate::view) const MAX_FILTERS: usize = 32;

/// `H5Z_FLAG_OPTIONAL`, which affects writers only: readers require the filter.
const OPTIONAL: u16 = 1;

/// Encodes a message of version 2: filters with numbers below 256 have no names.
pub(super) fn pipeline(filters: &[Filter]) -> Vec<u8> {
    let mut bytes = vec![2, u8::try_from(filters.len()).unwrap_or(u8::MAX)];
    for filter in filters {
        let (number, flags, value) = match filter {
            Filter::Deflate { level } => (1_u16, OPTIONAL, Some(u32::from(*level))),
            Filter::Shuffle { element_bytes } => (2, OPTIONAL, Some(*element_bytes)),
            Filter::Fletcher32 => (3, 0, None),
        };
        for field in [number, flags, u16::from(value.is_some())] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(value.into_iter().flat_map(u32::to_le_bytes));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_matches_that_of_the_library() {
        // From a file of h5py with `libver="latest", shuffle=True, compression=4, fletcher32=True` of `<f4`.
        let filters = [
            Filter::Shuffle { element_bytes: 4 },
            Filter::Deflate { level: 4 },
            Filter::Fletcher32,
        ];
        let expected = [
            &[2, 3][..],
            &[2, 0, 1, 0, 1, 0, 4, 0, 0, 0],
            &[1, 0, 1, 0, 1, 0, 4, 0, 0, 0],
            &[3, 0, 0, 0, 0, 0],
        ];
        assert_eq!(pipeline(&filters), expected.concat());
    }
}
