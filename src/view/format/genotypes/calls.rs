//! The form of an array of genotypes.

use crate::conventions::vcf_zarr::{GENOTYPE, MISSING_ALLELE};
use crate::node::{ArrayView, Number, NumberKind};

/// The form of an array of genotypes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view::format) struct Calls {
    pub(in crate::view::format) variants: u64,
    pub(in crate::view::format) samples: u64,
    /// The number of alleles of a call: 1 or 2.
    pub(in crate::view::format) ploidy: usize,
    /// The type of an allele.
    pub(in crate::view::format) number: Number,
}

impl Calls {
    /// Returns the form of an array.
    ///
    /// # Errors
    /// Returns why files cannot have such genotypes.
    pub(in crate::view::format) fn of(view: &ArrayView<'_>) -> Result<Self, String> {
        let number = view.number();
        let Some((number, 1)) = number.filter(|(number, _)| number.kind == NumberKind::Int) else {
            return Err(format!("`{GENOTYPE}` has no signed integers"));
        };
        let [variants, samples, ploidy @ (1 | 2)] = *view.shape() else {
            return Err(format!(
                "`{GENOTYPE}` has the shape {:?}; files have variants, samples, and one or two alleles of each",
                view.shape()
            ));
        };
        Ok(Self {
            variants,
            samples,
            ploidy: if ploidy == 1 { 1 } else { 2 },
            number,
        })
    }

    /// Returns the size of a call in bytes.
    pub(in crate::view::format) fn call_bytes(&self) -> usize {
        self.ploidy * self.number.size_bytes
    }

    /// Returns an allele; those that no file of two alleles tells apart are the missing one.
    pub(in crate::view::format) fn allele(&self, bytes: &[u8]) -> i8 {
        let value = self.number.read(bytes).and_then(|value| value.whole());
        let value = value.and_then(|value| i8::try_from(value).ok());
        value.unwrap_or(MISSING_ALLELE)
    }
}
