//! The binary fileset of PLINK 1.9 (`.bed`, `.bim`, `.fam`) of a group of VCF Zarr.
//!
//! The rules are those of `plink2 --make-bed` and of vcztools: allele A1 is the alternate one and A2 the reference; a
//! haploid call is homozygous; a call of which an allele is missing is missing; `chr` before the name of a human
//! chromosome is left out. PLINK has no variants with more than two alleles: the files leave them out, and say how many
//! there are.

mod bed;
mod texts;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::bed::Genotypes;
use self::texts::{bim, fam};
use super::Renderer;
use super::genotypes::{self, Alleles, KeptVariants, Samples, Variants};
use super::row::{FormatRow, Listing, ViewName};
use crate::conventions::vcf_zarr::{self, ALLELE, GENOTYPE};
use crate::node::{ContentError, ViewNode};
use crate::view::file::layout::{FileLayout, Readability, Segment, VirtualFile};
use crate::view::file::nodes::Nodes;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "bed",
        ViewName::Suffix(".bed"),
        "genotypes of PLINK 1.9, beside .bim and .fam",
        "plink2 --freq --bfile",
        Renderer::Loaded(vcf_zarr::is_vcf_zarr, check, load_bed),
    )
    .read_through("")
    .expressing(&[])
    .listed(Listing::ViewsAndGroup)
    .also_called(&["plink"]),
    FormatRow::new(
        "bim",
        ViewName::Suffix(".bim"),
        "variants of PLINK 1.9",
        "head -n 5",
        Renderer::Loaded(vcf_zarr::is_vcf_zarr, check, load_bim),
    )
    .listed(Listing::ViewsAndGroup),
    FormatRow::new(
        "fam",
        ViewName::Suffix(".fam"),
        "samples of PLINK 1.9",
        "head -n 5",
        Renderer::Loaded(vcf_zarr::is_vcf_zarr, check, load_fam),
    )
    .listed(Listing::ViewsAndGroup),
];

/// The first bytes of a `.bed` file: the magic number, and variant by variant (PLINK 1.9, "File format reference").
const BED_MAGIC: [u8; 3] = [0x6c, 0x1b, 0x01];

fn check<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<(), ContentError>> {
    async move { genotypes::calls(nodes, group).await.map(drop) }.boxed()
}

fn load_bed<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let (genotype, calls) = genotypes::calls(nodes, group).await?;
        let samples = Samples::load(nodes, group, &calls).await?;
        samples.check_blanks()?;
        let kept = match Alleles::exceed_two(&*genotypes::member(nodes, group, ALLELE).await?) {
            true => genotypes::alleles(nodes, group, &calls).await?.kept(),
            false => KeptVariants::all(calls.variants),
        };
        let Some(reader) = genotype.reader() else {
            return Err(genotypes::missing(GENOTYPE));
        };
        let notes = kept.notes();
        let genotypes = Genotypes::new(calls, samples.kept(), kept);
        let segments = [
            Segment::Bytes(BED_MAGIC.to_vec()),
            Segment::content(genotypes),
        ];
        let layout = FileLayout::new(segments);
        Ok(VirtualFile {
            layout: layout.ok_or_else(|| "no file can be so long".to_owned())?,
            sources: vec![Arc::clone(reader)],
            notes,
            block_bytes: 1,
            readability: Readability::default(),
        })
    }
    .boxed()
}

fn load_bim<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let (_, calls) = genotypes::calls(nodes, group).await?;
        let variants = Variants::load(nodes, group, &calls).await?;
        Ok(VirtualFile {
            notes: variants.kept().notes(),
            ..VirtualFile::text(bim(&variants)?)
        })
    }
    .boxed()
}

fn load_fam<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let (_, calls) = genotypes::calls(nodes, group).await?;
        let samples = Samples::load(nodes, group, &calls).await?;
        samples.check_blanks()?;
        Ok(VirtualFile::text(fam(&samples)?))
    }
    .boxed()
}
