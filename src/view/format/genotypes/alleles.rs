//! The alleles of variants, and the variants that have at most two.

use std::hash::Hasher;
use std::sync::Arc;

use crate::node::ViewNode;

/// The alleles of all variants: the reference, then the alternate ones.
#[derive(Debug)]
pub(in crate::view::format) struct Alleles {
    texts: Arc<Vec<String>>,
    /// The number of texts of each variant; those after its last allele are empty.
    per_variant: usize,
}

impl Alleles {
    /// Returns the alleles of an array with two axes in C order, of which the second one has this length.
    ///
    /// # Errors
    /// Returns why they are no alleles of variants.
    pub(in crate::view::format) fn new(
        texts: Arc<Vec<String>>,
        per_variant: u64,
    ) -> Result<Self, String> {
        let per_variant = usize::try_from(per_variant).unwrap_or(0);
        if per_variant == 0 {
            return Err("the variants have no alleles".into());
        }
        Ok(Self { texts, per_variant })
    }

    /// Returns whether the shape of an array of alleles has variants with more than two.
    pub(in crate::view::format) fn exceed_two(node: &ViewNode) -> bool {
        let array = node.metadata().as_array();
        !array.is_some_and(|array| matches!(array.shape[..], [_, 0..=2]))
    }

    /// Returns the variants that the files have: those with at most two alleles.
    pub(in crate::view::format) fn kept(&self) -> KeptVariants {
        let mut kept = KeptVariants::default();
        for alleles in self.texts.chunks_exact(self.per_variant) {
            let others = alleles.iter().skip(2);
            kept.push(others.into_iter().all(String::is_empty));
        }
        kept
    }

    /// Returns the alternate allele and the reference of a variant, `.` if it has none.
    pub(in crate::view::format) fn of(&self, variant: usize) -> Option<(&str, &str)> {
        let start = variant.checked_mul(self.per_variant)?;
        let end = start.checked_add(self.per_variant)?;
        let alleles = self.texts.get(start..end)?;
        let allele = |index: usize| match alleles.get(index) {
            Some(text) if !text.is_empty() => text,
            _ => ".",
        };
        Some((allele(1), allele(0)))
    }
}

/// Consecutive variants that the files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The place of the first one in the files.
    row: u64,
    /// The index of the first one in the arrays.
    variant: u64,
}

/// The variants that the files have, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::view::format) struct KeptVariants {
    runs: Vec<Run>,
    rows: u64,
    variants: u64,
}

impl KeptVariants {
    /// Returns all variants of the arrays.
    pub(in crate::view::format) fn all(variants: u64) -> Self {
        Self {
            runs: vec![Run { row: 0, variant: 0 }],
            rows: variants,
            variants,
        }
    }

    /// Adds the next variant of the arrays.
    fn push(&mut self, is_kept: bool) {
        let variant = self.variants;
        self.variants += 1;
        if !is_kept {
            return;
        }
        let follows = |run: &Run| run.variant + (self.rows - run.row) == variant;
        if !self.runs.last().is_some_and(follows) {
            let row = self.rows;
            self.runs.push(Run { row, variant });
        }
        self.rows += 1;
    }

    /// Returns the number of variants in the files.
    pub(in crate::view::format) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the index in the arrays of the variant at a place in the files, and the number of variants in the files
    /// from there on that follow each other in the arrays; `None` at the end.
    pub(in crate::view::format) fn at(&self, row: u64) -> Option<(u64, u64)> {
        let next = self.runs.partition_point(|run| run.row <= row);
        let run = self.runs.get(next.checked_sub(1)?)?;
        let end = self.runs.get(next).map_or(self.rows, |next| next.row);
        let left = end.checked_sub(row).filter(|left| *left > 0)?;
        Some((run.variant.checked_add(row - run.row)?, left))
    }

    /// Returns the indices in the arrays of all variants in the files.
    pub(in crate::view::format) fn indices(&self) -> impl Iterator<Item = u64> {
        (0..self.rows).filter_map(|row| Some(self.at(row)?.0))
    }

    /// Returns what the files leave out.
    pub(in crate::view::format) fn notes(&self) -> Vec<String> {
        match self.variants - self.rows {
            0 => Vec::new(),
            left_out => vec![format!(
                "{left_out} of {} variants are not in it, because they have more than two alleles",
                self.variants
            )],
        }
    }

    /// Hashes which variants the files have.
    pub(in crate::view::format) fn hash_into(&self, hasher: &mut dyn Hasher) {
        for run in &self.runs {
            hasher.write_u64(run.row);
            hasher.write_u64(run.variant);
        }
        hasher.write_u64(self.rows);
    }

    /// Returns the memory of the list in bytes.
    pub(in crate::view::format) fn memory_bytes(&self) -> u64 {
        (self.runs.capacity() * size_of::<Run>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_with_three_alleles_are_left_out() {
        let texts = ["A", "C", "", "G", "T", "A", "T", "", "", "C", "G", ""];
        let texts = Arc::new(texts.map(str::to_owned).to_vec());
        let alleles = Alleles::new(texts, 3).unwrap();
        let kept = alleles.kept();
        assert_eq!(kept.rows(), 3);
        assert_eq!(kept.indices().collect::<Vec<_>>(), [0, 2, 3]);
        let places: Vec<_> = (0..4).map(|row| kept.at(row)).collect();
        assert_eq!(places, [Some((0, 1)), Some((2, 2)), Some((3, 1)), None]);
        assert_eq!(alleles.of(0), Some(("C", "A")));
        assert_eq!(alleles.of(2), Some((".", "T")));
        assert_eq!(alleles.of(4), None);
        assert!(kept.notes().concat().starts_with("1 of 4 variants"));
        assert_eq!(KeptVariants::all(2).at(1), Some((1, 1)));
        assert_eq!(KeptVariants::all(0).at(0), None);
        assert!(KeptVariants::all(2).notes().is_empty());
    }

    #[test]
    fn variants_without_alleles_are_refused() {
        assert!(Alleles::new(Arc::default(), 0).is_err());
    }
}
