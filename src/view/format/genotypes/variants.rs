//! The variants of a group: contigs, positions, IDs and alleles.

use std::sync::Arc;

use super::{
    Alleles, Calls, KeptVariants, alleles, integers, member_if_present, names, without_blanks,
};
use crate::conventions::vcf_zarr::{CONTIG, CONTIG_NAME, ID, POSITION};
use crate::node::{ContentError, ViewNode};
use crate::view::file::nodes::Nodes;

/// What identifies all variants, in memory.
#[derive(Debug)]
pub(in crate::view::format) struct Variants {
    pub(in crate::view::format) alleles: Alleles,
    /// The names of the contigs.
    pub(in crate::view::format) contigs: Arc<Vec<String>>,
    /// The index of the contig of each variant.
    pub(in crate::view::format) numbers: Vec<i64>,
    pub(in crate::view::format) positions: Vec<i64>,
    /// The IDs, if the group has any.
    pub(in crate::view::format) ids: Option<Arc<Vec<String>>>,
}

/// What identifies one variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::view::format) struct Variant<'a> {
    pub(in crate::view::format) contig: &'a str,
    pub(in crate::view::format) position: i64,
    /// The ID; `.` if it has none.
    pub(in crate::view::format) id: &'a str,
    pub(in crate::view::format) reference: &'a str,
    /// The alternate allele; `.` if it has none.
    pub(in crate::view::format) alternate: &'a str,
}

impl Variants {
    /// Reads the variants of these calls.
    ///
    /// # Errors
    /// Returns how arrays contradict each other; errors of the store.
    pub(in crate::view::format) async fn load(
        nodes: &Arc<Nodes>,
        group: &ViewNode,
        calls: &Calls,
    ) -> Result<Self, ContentError> {
        let count = calls.variants;
        Ok(Self {
            alleles: alleles(nodes, group, calls).await?,
            contigs: names(nodes, group, CONTIG_NAME).await?,
            numbers: integers(nodes, group, CONTIG, count).await?,
            positions: integers(nodes, group, POSITION, count).await?,
            ids: match member_if_present(nodes, group, ID).await? {
                Some(_) => Some(names(nodes, group, ID).await?),
                None => None,
            },
        })
    }

    /// Returns the variants that files of two alleles have.
    pub(in crate::view::format) fn kept(&self) -> KeptVariants {
        self.alleles.kept()
    }

    /// Returns the variant with an index in the arrays.
    ///
    /// # Errors
    /// Returns what the variant lacks.
    pub(in crate::view::format) fn at(&self, index: u64) -> Result<Variant<'_>, String> {
        let wrong = |what: &str| format!("variant {index} has no {what}");
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let contig = self.numbers.get(index).copied();
        let contig = contig.and_then(|number| self.contigs.get(usize::try_from(number).ok()?));
        let id = match self.ids.as_ref().map(|ids| ids.get(index)) {
            Some(Some(id)) if !id.is_empty() => id,
            Some(None) => return Err(wrong("ID")),
            _ => ".",
        };
        let (alternate, reference) = self.alleles.of(index).ok_or_else(|| wrong("alleles"))?;
        Ok(Variant {
            contig: contig.ok_or_else(|| wrong("contig with a name"))?,
            position: *self.positions.get(index).ok_or_else(|| wrong("position"))?,
            id,
            reference,
            alternate,
        })
    }

    /// Checks that blanks can separate the names of contigs and the IDs.
    ///
    /// # Errors
    /// Returns which text has a blank in it.
    pub(in crate::view::format) fn check_blanks(&self) -> Result<(), String> {
        without_blanks(&self.contigs, CONTIG_NAME)?;
        match &self.ids {
            Some(ids) => without_blanks(ids, ID),
            None => Ok(()),
        }
    }
}
