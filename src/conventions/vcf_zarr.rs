//! VCF Zarr 0.4: the variants, samples and genotypes of a VCF file, as bio2zarr writes them (VCF Zarr specification,
//! sections "Samples", "Contigs" and "Fields").

use crate::node::ViewNode;

/// The alleles of each call, along variants, samples and ploidy: indices of [`ALLELE`], or one of the values below 0.
pub(crate) const GENOTYPE: &str = "call_genotype";
/// Whether each call is phased, along variants and samples; optional.
pub(crate) const PHASED: &str = "call_genotype_phased";
/// The texts of the alleles of each variant, the reference first; empty beyond its last allele.
pub(crate) const ALLELE: &str = "variant_allele";
/// The index of the contig of each variant.
pub(crate) const CONTIG: &str = "variant_contig";
/// The position of each variant in its contig, from 1.
pub(crate) const POSITION: &str = "variant_position";
/// The ID of each variant; optional.
pub(crate) const ID: &str = "variant_id";
/// The names of the contigs.
pub(crate) const CONTIG_NAME: &str = "contig_id";
/// The names of the samples. An empty name is a sample that was removed.
pub(crate) const SAMPLE_NAME: &str = "sample_id";

/// An allele that is not known.
pub(crate) const MISSING_ALLELE: i8 = -1;
/// An allele that a call with a lower ploidy does not have.
pub(crate) const NO_ALLELE: i8 = -2;

/// Returns whether a group declares that it has the arrays of VCF Zarr.
pub(crate) fn is_vcf_zarr(node: &ViewNode) -> bool {
    let attributes = node.metadata().attributes();
    !node.is_array()
        && attributes.is_ok_and(|attributes| attributes.contains_key("vcf_zarr_version"))
}
