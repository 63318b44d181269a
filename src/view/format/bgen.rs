//! BGEN 1.2 (`.bgen`), its index of bgenix (`.bgen.bgi`) and its `.sample` file, of a group of VCF Zarr.
//!
//! The content is that of `vcztools view-bgen --max-alleles 2`: layout 2, 8 bits a probability, zlib, the names of the
//! samples in the header, and certain genotypes. A variant is phased if all of its calls are; a call of which an allele
//! is missing is missing; a haploid call has the ploidy 1. Blocks of zlib are stored, as biofuse has them, and have the
//! same length for all variants, so sizes and offsets follow from the texts of the variants.

mod block;
mod header;
mod index;
mod records;
mod zlib;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::block::Block;
use self::header::{header, sample_file};
use self::index::Metadata;
use self::records::Records;
use super::Renderer;
use super::genotypes::{self, Calls, Samples, Variants};
use super::row::{FormatRow, Listing, ViewName};
use crate::array::ArrayReader;
use crate::conventions::vcf_zarr::{self, GENOTYPE, PHASED};
use crate::node::{ContentError, ViewNode};
use crate::runtime::leave_session_thread;
use crate::view::file::layout::{FileLayout, Readability, Segment, VirtualFile};
use crate::view::file::nodes::Nodes;

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "bgen",
        ViewName::Suffix(".bgen"),
        "genotypes as BGEN 1.2, with .bgen.bgi and .sample",
        "bgenix -list -g",
        Renderer::Loaded(vcf_zarr::is_vcf_zarr, check, load_bgen),
    )
    .expressing(&[])
    .listed(Listing::ByName),
    FormatRow::new(
        "bgi",
        ViewName::Suffix(".bgen.bgi"),
        "index of the BGEN file, of bgenix",
        "sqlite3 -readonly",
        Renderer::Loaded(vcf_zarr::is_vcf_zarr, check, load_index),
    )
    .listed(Listing::ByName)
    .also_called(&["bgenix"]),
    FormatRow::new(
        "sample",
        ViewName::Suffix(".sample"),
        "samples of the BGEN file",
        "head -n 5",
        Renderer::Loaded(vcf_zarr::is_vcf_zarr, check, load_samples),
    )
    .listed(Listing::ByName),
];

/// A file, and what its index needs.
struct Opened {
    file: VirtualFile,
    records: Arc<Records>,
    /// The offset of the first record.
    records_start: u64,
    variants: Variants,
}

fn check<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<(), ContentError>> {
    async move {
        let (_, calls) = genotypes::calls(nodes, group).await?;
        phases(nodes, group, &calls).await.map(drop)
    }
    .boxed()
}

fn load_bgen<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move { Ok(open(nodes, group).await?.file) }.boxed()
}

fn load_index<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let opened = open(nodes, group).await?;
        let beginning = opened.file.read(0, index::BEGINNING_BYTES, None).await?;
        let seconds = group.modified().duration_since(UNIX_EPOCH);
        let metadata = Metadata {
            name: format!("{}.bgen", group.name()),
            size_bytes: opened.file.layout.size_bytes(),
            modified_seconds: seconds.map_or(0, |since| since.as_secs()),
            beginning: beginning.bytes(&[])?,
        };
        leave_session_thread().await;
        let most_bytes = nodes.engine().memory_limit_bytes() / 8;
        // The pages, their copy in one piece, and the file.
        let needed = opened.records.index_bytes().min(most_bytes);
        let needed = needed.saturating_mul(3);
        let _memory = nodes.engine().reserve(group.key(), needed).await?;
        let rows = opened.records.index_rows(opened.records_start);
        let variants = opened.variants.kept();
        let rows = rows
            .zip(variants.indices())
            .map(|(place, index)| Ok((opened.variants.at(index)?, place)));
        let database = index::database(rows, &metadata, most_bytes)?;
        Ok(VirtualFile {
            notes: opened.file.notes,
            ..VirtualFile::text(database)
        })
    }
    .boxed()
}

fn load_samples<'a>(
    nodes: &'a Arc<Nodes>,
    group: &'a Arc<ViewNode>,
) -> BoxFuture<'a, Result<VirtualFile, ContentError>> {
    async move {
        let (_, calls) = genotypes::calls(nodes, group).await?;
        let samples = Samples::load(nodes, group, &calls).await?;
        samples.check_blanks()?;
        Ok(VirtualFile::text(sample_file(&samples)?))
    }
    .boxed()
}

/// Reads what the file needs, apart from the calls.
async fn open(nodes: &Arc<Nodes>, group: &Arc<ViewNode>) -> Result<Opened, ContentError> {
    let (genotype, calls) = genotypes::calls(nodes, group).await?;
    let phases = phases(nodes, group, &calls).await?;
    let Some(reader) = genotype.reader() else {
        return Err(genotypes::missing(GENOTYPE));
    };
    let sources = [Some(Arc::clone(reader)), phases];
    let sources: Vec<_> = sources.into_iter().flatten().collect();
    let samples = Samples::load(nodes, group, &calls).await?;
    let variants = Variants::load(nodes, group, &calls).await?;
    let kept = variants.kept();
    let header = header(kept.rows(), &samples)?;
    let block = Block::new(calls, samples.kept())?;
    let most_bytes = nodes.engine().memory_limit_bytes() / 8;
    let records = Records::new(&variants, block, sources.len() > 1, most_bytes)?;
    let records = Arc::new(records);
    let records_start = header.len() as u64;
    let content: Arc<Records> = Arc::clone(&records);
    let layout = FileLayout::new([Segment::Bytes(header), Segment::Content(content)]);
    let file = VirtualFile {
        layout: layout.ok_or_else(|| "no file can be so long".to_owned())?,
        sources,
        notes: kept.notes(),
        block_bytes: 1,
        readability: Readability::default(),
    };
    Ok(Opened {
        file,
        records,
        records_start,
        variants,
    })
}

/// Returns the array with the phase of each call, if there is one.
///
/// # Errors
/// Returns how it contradicts the calls; errors of the store.
async fn phases(
    nodes: &Arc<Nodes>,
    group: &ViewNode,
    calls: &Calls,
) -> Result<Option<Arc<ArrayReader>>, ContentError> {
    let Some(node) = genotypes::member_if_present(nodes, group, PHASED).await? else {
        return Ok(None);
    };
    let view = node.array_view();
    let view = view.ok_or_else(|| genotypes::missing(PHASED))?;
    if view.shape() != [calls.variants, calls.samples] || view.data_type().size_bytes != 1 {
        let why = format!(
            "`{PHASED}` has the shape {:?} and elements of {} bytes; `{GENOTYPE}` has {} variants and {} samples",
            view.shape(),
            view.data_type().size_bytes,
            calls.variants,
            calls.samples
        );
        return Err(why.into());
    }
    let reader = node.reader().ok_or_else(|| genotypes::missing(PHASED))?;
    Ok(Some(Arc::clone(reader)))
}
