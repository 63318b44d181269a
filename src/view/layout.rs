//! What a computed file is made of.

use std::ops::Range;

/// One part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many zero bytes.
    Zeros(u64),
    /// All elements of the node's array, in C order and its own byte order; so many bytes.
    Array(u64),
}

impl Placement {
    fn size_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(size) | Self::Array(size) => *size,
        }
    }
}

/// An ordered list of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Each part with its end in the file.
    parts: Vec<(u64, Placement)>,
}

/// What lies in a part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many zero bytes.
    Zeros(u64),
    /// This range of the array's bytes.
    Array(Range<u64>),
}

impl Layout {
    /// Puts parts one behind the other; `None` if their end is beyond what the kernel can count
    /// (2^63 - 1 bytes).
    pub fn new(placements: impl IntoIterator<Item = Placement>) -> Option<Self> {
        let mut end: u64 = 0;
        let mut parts = Vec::new();
        for placement in placements {
            end = end.checked_add(placement.size_bytes())?;
            parts.push((end, placement));
        }
        i64::try_from(end).ok()?;
        Some(Self { parts })
    }

    /// Size of the file in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.parts.last().map_or(0, |(end, _)| *end)
    }

    /// What lies at `offset`, up to `size` bytes of it; nothing at the end.
    pub fn at(&self, offset: u64, size: u64) -> Option<Part<'_>> {
        let place = self.parts.partition_point(|(end, _)| *end <= offset);
        let (end, placement) = self.parts.get(place)?;
        let start = end.saturating_sub(placement.size_bytes());
        let inside = offset.saturating_sub(start)..offset.saturating_add(size).min(*end) - start;
        Some(match placement {
            Placement::Bytes(bytes) => {
                let from = usize::try_from(inside.start).unwrap_or(usize::MAX);
                let to = usize::try_from(inside.end).unwrap_or(usize::MAX);
                Part::Bytes(bytes.get(from..to).unwrap_or_default())
            }
            Placement::Zeros(_) => Part::Zeros(inside.end.saturating_sub(inside.start)),
            Placement::Array(_) => Part::Array(inside),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_where_its_part_is() {
        let layout = Layout::new([
            Placement::Bytes(b"head".to_vec()),
            Placement::Zeros(3),
            Placement::Bytes(Vec::new()),
            Placement::Array(100),
        ])
        .unwrap();
        assert_eq!(layout.size_bytes(), 107);
        assert_eq!(layout.at(0, 100), Some(Part::Bytes(b"head")));
        assert_eq!(layout.at(1, 2), Some(Part::Bytes(b"ea")));
        assert_eq!(layout.at(5, 100), Some(Part::Zeros(2)));
        assert_eq!(layout.at(7, 1000), Some(Part::Array(0..100)));
        assert_eq!(layout.at(50, 7), Some(Part::Array(43..50)));
        assert_eq!(layout.at(107, 1), None);
    }

    #[test]
    fn a_size_that_the_kernel_can_not_hold_is_refused() {
        let most = i64::MAX.unsigned_abs();
        assert!(Layout::new([Placement::Array(most)]).is_some());
        assert!(Layout::new([Placement::Zeros(1), Placement::Array(most)]).is_none());
        assert!(Layout::new([Placement::Array(u64::MAX), Placement::Zeros(1)]).is_none());
    }
}
