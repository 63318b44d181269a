//! Arrays whose stored chunks are, byte for byte, valid chunks of another file format: `.packed.nc` and
//! `.packed.tif`. Nothing is decoded.

use std::sync::Arc;

use super::Renderer;
use super::row::{FormatRow, GDAL, Listing, ViewName};
use super::{geotiff, netcdf4};
use crate::array::ChunkTable;
use crate::codec::{ByteCodec, StoredForm};
use crate::node::{ArrayView, ContentError, Number, NumberKind, ViewNode};
use crate::view::encode::hdf5::{Filter, MAX_FILTERS};
use crate::view::encode::tiff::Compression;
use crate::view::file::nodes::Nodes;
use crate::zarr::{ByteOrder, Scalar};

/// The rows of the table of formats.
pub(super) const ROWS: &[FormatRow] = &[
    FormatRow::new(
        "packed-tif",
        ViewName::Suffix(".packed.tif"),
        "GeoTIFF with the chunks as they are stored",
        "gdalinfo",
        Renderer::StoredArray(geotiff::check_packed, geotiff::render_packed),
    )
    .expressing(GDAL)
    .listed(Listing::ByName),
    FormatRow::new(
        "packed-nc",
        ViewName::Suffix(".packed.nc"),
        "NetCDF-4 with the chunks as they are stored",
        "ncdump -hs",
        Renderer::StoredChunks(netcdf4::render_packed),
    )
    .expressing(netcdf4::FIELDS)
    .listed(Listing::ByName),
];

/// The stored chunks of an array, in their HDF5 form.
#[derive(Debug, Clone)]
pub(in crate::view) struct StoredChunks {
    pub(in crate::view) table: Arc<ChunkTable>,
    pub(in crate::view) form: Hdf5Encoding,
}

/// The form in which HDF5 reads the chunks of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct Hdf5Encoding {
    /// The filters, in the order of encoding.
    pub(in crate::view) filters: Vec<Filter>,
    /// Whether the stored numbers have the opposite byte order of the array.
    pub(in crate::view) is_swapped: bool,
    /// The fill value for chunks that are not stored, in the byte order of the chunks.
    pub(in crate::view) fill: Vec<u8>,
}

/// The form in which TIFF reads the chunks of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::view) struct TiffEncoding {
    pub(in crate::view) compression: Compression,
    /// Whether the stored numbers have the opposite byte order of the array.
    pub(in crate::view) is_swapped: bool,
}

/// The maximum size of a chunk of HDF5, encoded or decoded, in bytes.
const MAX_CHUNK_BYTES: u64 = u32::MAX as u64;
/// The default level of numcodecs, for metadata without a level; readers do not use it.
const ZLIB_LEVEL: u8 = 1;

/// Returns the number with the opposite byte order.
pub(in crate::view) fn swapped(number: Number) -> Number {
    let order = match number.order {
        ByteOrder::Little => ByteOrder::Big,
        ByteOrder::Big => ByteOrder::Little,
    };
    Number { order, ..number }
}

/// Returns how HDF5 reads the stored chunks of an array.
///
/// # Errors
/// Returns why HDF5 cannot read them.
pub(in crate::view) fn hdf5_encoding(view: &ArrayView<'_>) -> Result<Hdf5Encoding, String> {
    let form = stored_form(view)?;
    let item_bytes = number_bytes(view)?;
    if view.shape().is_empty() {
        return Err("HDF5 has no chunks of arrays without axes".into());
    }
    let chunk_bytes = view.reader.read_chunk_bytes();
    if chunk_bytes > MAX_CHUNK_BYTES {
        return Err(format!(
            "chunks of {chunk_bytes} bytes: HDF5 has chunks below 4 GiB"
        ));
    }
    let filters = form.codecs.iter().map(|codec| filter(codec, item_bytes));
    let filters: Vec<Filter> = filters.collect::<Result<_, _>>()?;
    if filters.len() > MAX_FILTERS {
        return Err(format!(
            "{} codecs, HDF5 has up to {MAX_FILTERS} filters",
            filters.len()
        ));
    }
    let fill = view.reader.chunks().fill_value();
    let (first, rest) = fill
        .split_at_checked(item_bytes)
        .ok_or("a short fill value")?;
    if rest.chunks(item_bytes).any(|part| part != first) {
        return Err("a fill value whose real and imaginary parts differ".into());
    }
    let mut fill = first.to_vec();
    if form.is_swapped {
        fill.reverse();
    }
    Ok(Hdf5Encoding {
        filters,
        is_swapped: form.is_swapped,
        fill,
    })
}

/// Returns how TIFF reads the stored chunks of an array.
///
/// # Errors
/// Returns why TIFF cannot read them.
pub(in crate::view) fn tiff_encoding(view: &ArrayView<'_>) -> Result<TiffEncoding, String> {
    let form = stored_form(view)?;
    number_bytes(view)?;
    let compression = match &form.codecs[..] {
        [] => Compression::None,
        [ByteCodec::Zlib] => Compression::Zlib,
        [ByteCodec::Zstd] => Compression::Zstd,
        [ByteCodec::Jpeg { tables, is_ycbcr }] => Compression::Jpeg {
            tables: tables.clone(),
            is_ycbcr: *is_ycbcr,
        },
        _ => return Err(no_such_chunks("TIFF", &form)),
    };
    Ok(TiffEncoding {
        compression,
        is_swapped: form.is_swapped,
    })
}

fn stored_form(view: &ArrayView<'_>) -> Result<StoredForm, String> {
    let form = view.reader.stored_form();
    form.map_err(|codec| format!("its chunks are not stored in a form of other formats: {codec}"))
}

fn no_such_chunks(format: &str, form: &StoredForm) -> String {
    let names: Vec<&str> = form.codecs.iter().map(ByteCodec::name).collect();
    format!(
        "{format} has no chunks with the codecs {}",
        names.join(", ")
    )
}

/// Returns the size in bytes of a number of the array in the file.
fn number_bytes(view: &ArrayView<'_>) -> Result<usize, String> {
    let data_type = view.data_type();
    if data_type.scalar == Scalar::Bool {
        return Ok(1);
    }
    match view.number() {
        Some((number, _)) if number.kind == NumberKind::Float && number.size_bytes == 2 => {
            Err("half floats, which are floats in the file".into())
        }
        Some((number, _)) => Ok(number.size_bytes),
        None => Err(format!("elements of the type {data_type}")),
    }
}

fn filter(codec: &ByteCodec, item_bytes: usize) -> Result<Filter, String> {
    match *codec {
        ByteCodec::Zlib => Ok(Filter::Deflate { level: ZLIB_LEVEL }),
        ByteCodec::Fletcher32 => Ok(Filter::Fletcher32),
        // Readers without the library assume the element size of the dataset.
        ByteCodec::Shuffle { element_bytes } if element_bytes == item_bytes as u64 => {
            let element_bytes = u32::try_from(element_bytes);
            let element_bytes = element_bytes.map_err(|_| "elements of more than 4 GiB")?;
            Ok(Filter::Shuffle { element_bytes })
        }
        ByteCodec::Shuffle { element_bytes } => Err(format!(
            "shuffle of {element_bytes} bytes, and a number has {item_bytes}"
        )),
        ByteCodec::Zstd => Err("zstd, which HDF5 reads with a plugin only".into()),
        ByteCodec::Jpeg { .. } => Err("images of JPEG, which HDF5 has not".into()),
    }
}

/// Returns whether the chunks of an array are zlib streams, which other formats may have as well.
pub(in crate::view) fn has_zlib(node: &ViewNode) -> bool {
    let form = node.array_view().map(|view| view.reader.stored_form());
    form.is_some_and(|form| form.is_ok_and(|form| form.codecs.contains(&ByteCodec::Zlib)))
}

/// Returns whether metadata alone prove that the sizes of the chunks of an array are cheap to look up, and
/// that HDF5 reads its chunks unchanged.
pub(in crate::view) fn metadata_prove(node: &ViewNode) -> bool {
    node.array_view()
        .is_some_and(|view| check(node, &view).is_ok())
}

/// Checks the same as [`metadata_prove`].
///
/// # Errors
/// Returns why metadata do not prove it.
pub(in crate::view) fn check(node: &ViewNode, view: &ArrayView<'_>) -> Result<(), String> {
    if !netcdf4::metadata_prove(node) {
        return Err("netCDF permits no variable of this name or type".into());
    }
    hdf5_encoding(view)?;
    if view.shape().contains(&0) {
        return Err("it has no elements".into());
    }
    check_sizes(view)
}

/// Checks that the sizes of the chunks of an array are cheap: no requests, and not many system calls.
///
/// # Errors
/// Returns why they are not.
pub(in crate::view) fn check_sizes(view: &ArrayView<'_>) -> Result<(), String> {
    view.reader.check_chunk_table()?;
    match view.reader.has_free_sizes() {
        true => Ok(()),
        false => {
            Err("not listed: the sizes of its chunks take requests or many system calls".into())
        }
    }
}

impl Nodes {
    /// Returns the sizes and offsets of the stored chunks of an array.
    ///
    /// # Errors
    /// [`ContentError::Absent`] if the array has too many chunks or the node is no array; errors of the store.
    pub(in crate::view) async fn chunk_table(
        &self,
        node: &ViewNode,
    ) -> Result<Arc<ChunkTable>, ContentError> {
        let Some(view) = node.array_view() else {
            return Err(ContentError::Absent("no array".into()));
        };
        view.reader.check_chunk_table()?;
        Ok(Arc::new(view.reader.chunk_table().await?))
    }

    /// Returns the stored chunks of an array, or why HDF5 cannot read them unchanged.
    ///
    /// # Errors
    /// Errors of the store.
    pub(in crate::view) async fn stored_chunks(
        &self,
        node: &ViewNode,
    ) -> Result<Result<StoredChunks, String>, ContentError> {
        let form = match node.array_view() {
            Some(view) => hdf5_encoding(&view),
            None => Err("elements of variable length".into()),
        };
        let form = match form {
            Ok(form) => form,
            Err(why) => return Ok(Err(why)),
        };
        match self.chunk_table(node).await {
            Ok(table) if table.largest_bytes() > MAX_CHUNK_BYTES => {
                Ok(Err("stored chunks of 4 GiB and more".into()))
            }
            Ok(table) => Ok(Ok(StoredChunks { table, form })),
            Err(ContentError::Absent(why)) => Ok(Err(why)),
            Err(error) => Err(error),
        }
    }
}
