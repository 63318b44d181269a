//! The byte order of the codec `bytes`: swaps the bytes of each word in place.

use crate::zarr::data_type::Words;

use super::error::{DecodeError, part_mut};
use super::stage::DecodeInPlace;

/// Swaps the bytes of each word of each element.
#[derive(Debug)]
pub(super) struct Swap {
    element_bytes: usize,
    words: Vec<Words>,
}

impl Swap {
    /// Creates the stage; `None` if an element has no words.
    pub(super) fn new(element_bytes: usize, words: Vec<Words>) -> Option<Self> {
        (!words.is_empty() && element_bytes > 0).then_some(Self {
            element_bytes,
            words,
        })
    }
}

impl DecodeInPlace for Swap {
    fn decode_in_place(&self, bytes: &mut [u8]) -> Result<(), DecodeError> {
        if let [only] = self.words.as_slice()
            && only.offset == 0
            && only.width_bytes * only.count == self.element_bytes
        {
            swap(bytes, only.width_bytes);
            return Ok(());
        }
        for element in bytes.chunks_exact_mut(self.element_bytes) {
            for run in &self.words {
                let range = run.offset..run.offset + run.width_bytes * run.count;
                swap(part_mut(element, range)?, run.width_bytes);
            }
        }
        Ok(())
    }
}

fn swap(bytes: &mut [u8], width: usize) {
    match width {
        2 => reverse::<2>(bytes),
        4 => reverse::<4>(bytes),
        8 => reverse::<8>(bytes),
        _ => bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

fn reverse<const W: usize>(bytes: &mut [u8]) {
    bytes
        .as_chunks_mut::<W>()
        .0
        .iter_mut()
        .for_each(|word| word.reverse());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_swapped_and_other_bytes_are_unchanged() {
        let run = |offset, width_bytes, count| Words {
            offset,
            width_bytes,
            count,
        };
        let swapped = |size, words: &[Words], bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            Swap::new(size, words.to_vec())
                .unwrap()
                .decode_in_place(&mut bytes)
                .unwrap();
            bytes
        };
        assert_eq!(swapped(2, &[run(0, 2, 1)], &[1, 2, 3, 4]), [2, 1, 4, 3]);
        assert_eq!(
            swapped(8, &[run(0, 4, 2)], &[1, 2, 3, 4, 5, 6, 7, 8]),
            [4, 3, 2, 1, 8, 7, 6, 5]
        );
        assert_eq!(
            swapped(8, &[run(0, 8, 1)], &[1, 2, 3, 4, 5, 6, 7, 8]),
            [8, 7, 6, 5, 4, 3, 2, 1]
        );
        let mixed = [run(1, 2, 1), run(3, 4, 1)];
        assert_eq!(
            swapped(7, &mixed, &[9, 1, 2, 3, 4, 5, 6]),
            [9, 2, 1, 6, 5, 4, 3]
        );
        assert!(Swap::new(1, Vec::new()).is_none());
    }
}
