//! The binary fileset of PLINK 1.9 (`.bed`, `.bim`, `.fam`) of a group of VCF Zarr.
//!
//! The rules are those of `plink2 --make-bed` and of vcztools: allele A1 is the alternate one and A2 the reference; a
//! haploid call is homozygous; a call of which an allele is missing is missing; `chr` before the name of a human
//! chromosome is left out. PLINK has no variants with more than two alleles: the files leave them out, and say how many
//! there are.

mod alleles;
mod bed;
mod texts;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::alleles::{Alleles, KeptVariants};
use self::bed::{Calls, Genotypes};
use self::texts::{Names, bim, fam};
use super::Renderer;
use super::row::{FormatRow, Listing, ViewName};
use crate::conventions::vcf_zarr::{
    self, ALLELE, CONTIG, CONTIG_NAME, GENOTYPE, ID, POSITION, SAMPLE_NAME,
};
use crate::node::{ContentError, ViewNode};
use crate::store::Key;
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
    async move { calls(nodes, group).await.map(drop) }.boxed()
}

fn load_bed<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let (genotype, calls) = calls(nodes, group).await?;
        let samples = samples(nodes, group, &calls).await?;
        let kept = match Alleles::exceed_two(&*member(nodes, group, ALLELE).await?) {
            true => alleles(nodes, group, &calls).await?.kept(),
            false => KeptVariants::all(calls.variants),
        };
        let Some(reader) = genotype.reader() else {
            return Err(missing(GENOTYPE));
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
        let (_, calls) = calls(nodes, group).await?;
        let count = calls.variants;
        let alleles = alleles(nodes, group, &calls).await?;
        let contigs = names(nodes, group, CONTIG_NAME).await?;
        let numbers = integers(nodes, group, CONTIG, count).await?;
        let positions = integers(nodes, group, POSITION, count).await?;
        let ids = match nodes.node_if_present(&child(group, ID)?).await? {
            Some(_) => Some(names(nodes, group, ID).await?),
            None => None,
        };
        let text = bim(&alleles, &contigs, &numbers, &positions, ids.as_ref())?;
        Ok(VirtualFile {
            notes: alleles.kept().notes(),
            ..VirtualFile::text(text)
        })
    }
    .boxed()
}

fn load_fam<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let (_, calls) = calls(nodes, group).await?;
        let text = fam(&samples(nodes, group, &calls).await?);
        Ok(VirtualFile::text(text))
    }
    .boxed()
}

/// Returns the array of the genotypes, and its form.
///
/// # Errors
/// Returns why PLINK cannot have such genotypes; errors of the store.
async fn calls(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
) -> Result<(Arc<ViewNode>, Calls), ContentError> {
    let node = member(nodes, group, GENOTYPE).await?;
    let calls = match node.array_view() {
        Some(view) => Calls::of(&view)?,
        None => return Err(missing(GENOTYPE)),
    };
    Ok((node, calls))
}

async fn alleles(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    calls: &Calls,
) -> Result<Alleles, ContentError> {
    let node = member(nodes, group, ALLELE).await?;
    let shape = node.metadata().as_array().map(|array| array.shape.clone());
    let Some([variants, alleles]) = shape.and_then(|shape| <[u64; 2]>::try_from(shape).ok()) else {
        return Err(format!("`{ALLELE}` has not two axes").into());
    };
    if variants != calls.variants {
        return Err(other_length(ALLELE, variants, calls.variants));
    }
    let names = texts(nodes, &node, ALLELE).await?;
    Ok(Alleles::new(names, alleles)?)
}

async fn samples(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    calls: &Calls,
) -> Result<Names, ContentError> {
    let names = names(nodes, group, SAMPLE_NAME).await?;
    match names.len() as u64 == calls.samples {
        true => Ok(names),
        false => Err(other_length(SAMPLE_NAME, names.len() as u64, calls.samples)),
    }
}

/// Returns the texts of an array with one axis.
async fn names(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &'static str,
) -> Result<Names, ContentError> {
    let node = member(nodes, group, name).await?;
    Ok(Names::new(texts(nodes, &node, name).await?, name)?)
}

/// Returns the texts of an array.
async fn texts(
    nodes: &Arc<Nodes>,
    node: &ViewNode,
    name: &str,
) -> Result<Arc<Vec<String>>, ContentError> {
    /// The estimated memory of a short text while it is decoded, in bytes.
    const TEXT_BYTES: u64 = 128;
    let memory = nodes.engine().memory_limit_bytes();
    let shape = node.metadata().as_array().map(|array| &array.shape[..]);
    let count = shape.unwrap_or_default().iter();
    let count = count.fold(1_u64, |count, axis| count.saturating_mul(*axis));
    if count.saturating_mul(TEXT_BYTES) > memory / 4 {
        let why =
            format!("`{name}` has {count} texts, which take too much memory: raise --memory-limit");
        return Err(why.into());
    }
    match nodes.texts_within(node, memory / 16).await? {
        Some(texts) => Ok(texts.map_err(|why| format!("`{name}`: {why}"))?),
        None => Err(format!("`{name}` is no text").into()),
    }
}

/// Returns the integers of an array with one axis of this length.
async fn integers(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &'static str,
    count: u64,
) -> Result<Vec<i64>, ContentError> {
    let node = member(nodes, group, name).await?;
    let number = node.array_view().and_then(|view| match view.shape() {
        [length] => Some((view.number()?.0, *length)),
        _ => None,
    });
    let Some((number, length)) = number else {
        return Err(format!("`{name}` is no list of numbers").into());
    };
    if length != count {
        return Err(other_length(name, length, count));
    }
    let memory = nodes.engine().memory_limit_bytes();
    if count.saturating_mul(size_of::<i64>() as u64) > memory / 16 {
        let why = format!(
            "`{name}` has {count} numbers, which take too much memory: raise --memory-limit"
        );
        return Err(why.into());
    }
    let bytes = nodes.all_bytes(&node).await?;
    let integers = bytes.chunks_exact(number.size_bytes).map(|bytes| {
        let value = number.read(bytes)?.whole()?;
        i64::try_from(value).ok()
    });
    let integers: Option<Vec<i64>> = integers.collect();
    integers.ok_or_else(|| format!("`{name}` has numbers that are no integers").into())
}

async fn member(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    name: &str,
) -> Result<Arc<ViewNode>, ContentError> {
    let node = nodes.node_if_present(&child(group, name)?).await?;
    node.ok_or_else(|| missing(name))
}

fn child(group: &ViewNode, name: &str) -> Result<Key, ContentError> {
    let key = group.key().join(name.as_bytes());
    key.map_err(|_| missing(name))
}

fn missing(name: &str) -> ContentError {
    ContentError::Absent(format!("the group has no readable array `{name}`"))
}

fn other_length(name: &str, found: u64, expected: u64) -> ContentError {
    ContentError::Absent(format!(
        "`{name}` has the length {found}, and `{GENOTYPE}` {expected}"
    ))
}
