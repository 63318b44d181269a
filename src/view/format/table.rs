//! The rows of the table of formats, in listing order.

use super::Renderer;
use crate::conventions::anndata::is_anndata;
use crate::conventions::description::Field::{self, *};
use crate::node::{ContentError, ViewNode, pretty};
use crate::translate::{zmetadata_json, zom_json};
use crate::view::format::{
    classic_netcdf, csv, fits, geotiff, h5ad, imagej, mrc, netcdf4, nifti, npy, ome_tiff, parquet,
    plain_hdf5, png, sidecar,
};
use crate::view::group_table;
use crate::view::group_tree::TreeScope;

/// The file name of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewName {
    /// A fixed name, only in the directory of the node's views.
    Own(&'static str),
    /// A fixed name; `<array>.<name>` in the directory of its group.
    Member(&'static str),
    /// `<node><suffix>`.
    Suffix(&'static str),
}

/// One row of the table.
#[derive(Debug)]
pub(super) struct FormatRow {
    /// The name in `--formats`.
    pub(super) name: &'static str,
    pub(super) file_name: ViewName,
    /// A description of the format in a few words.
    pub(super) description: &'static str,
    /// A command that reads a file of the format, without the file.
    pub(super) command: &'static str,
    /// The suffix of the file that the command reads, if that is another file of the array.
    pub(super) command_suffix: Option<&'static str>,
    pub(super) renderer: Renderer,
    /// The fields of descriptions that the files express; `None` if they have no elements of arrays.
    pub(super) expresses: Option<&'static [Field]>,
}

impl FormatRow {
    const fn expressing(mut self, fields: &'static [Field]) -> Self {
        self.expresses = Some(fields);
        self
    }
}

const fn row(
    name: &'static str,
    file_name: ViewName,
    description: &'static str,
    command: &'static str,
    renderer: Renderer,
) -> FormatRow {
    FormatRow {
        name,
        file_name,
        description,
        command,
        command_suffix: None,
        renderer,
        expresses: None,
    }
}

/// The fields of each format. What a file cannot express of a field that its format can express is a note of the file.
const NONE: &[Field] = &[];
const ALL: &[Field] = &[
    ImageName,
    AxisNames,
    Spacing,
    Origin,
    AxisUnits,
    Orientation,
    Transform,
    Coordinates,
    UnevenCoordinates,
    Missing,
    Packing,
    HeaderPacking,
    ValueUnits,
    ChannelNames,
    ChannelColors,
    ReferenceSystem,
    UnplacedSystem,
];
/// Attributes and coordinate arrays of CF.
const CF: &[Field] = &[
    AxisNames,
    Coordinates,
    UnevenCoordinates,
    Missing,
    Packing,
    ValueUnits,
    ReferenceSystem,
];
const GDAL: &[Field] = &[
    Coordinates,
    Missing,
    Packing,
    HeaderPacking,
    ValueUnits,
    ReferenceSystem,
];
const ENVI: &[Field] = &[
    Coordinates,
    Missing,
    Packing,
    HeaderPacking,
    ReferenceSystem,
];
const NRRD: &[Field] = &[
    AxisNames,
    Spacing,
    Origin,
    AxisUnits,
    Orientation,
    Transform,
    Coordinates,
];
const OME_TIFF: &[Field] = &[
    ImageName,
    AxisNames,
    Spacing,
    Origin,
    AxisUnits,
    Coordinates,
    ChannelNames,
    ChannelColors,
];
const IMAGEJ: &[Field] = &[
    AxisNames,
    Spacing,
    Origin,
    AxisUnits,
    Coordinates,
    Packing,
    HeaderPacking,
    ValueUnits,
    ChannelNames,
    ChannelColors,
];
const NIFTI: &[Field] = &[
    Spacing,
    Origin,
    AxisUnits,
    Orientation,
    Transform,
    Coordinates,
    Packing,
    HeaderPacking,
    ValueUnits,
];
const MRC: &[Field] = &[Spacing, Origin, AxisUnits, Coordinates];
const FITS: &[Field] = &[
    AxisNames,
    Spacing,
    Origin,
    AxisUnits,
    Transform,
    Coordinates,
    Missing,
    Packing,
    HeaderPacking,
    ValueUnits,
];
const PICTURE: &[Field] = &[Missing, Packing, HeaderPacking, ValueUnits, ChannelColors];
/// Columns of stored numbers beside columns of coordinates.
const COLUMNS: &[Field] = &[Coordinates, UnevenCoordinates, Missing];

const JSON_TOOL: &str = "python3 -m json.tool";
const LOAD_NPY: &str =
    r#"python3 -c 'import numpy, sys; print(numpy.load(sys.argv[1], mmap_mode="r"))'"#;
const READ_NRRD: &str = "python3 -c 'import nrrd, sys; print(nrrd.read_header(sys.argv[1]))'";
const READ_NIFTI: &str = "python3 -c 'import nibabel, sys; print(nibabel.load(sys.argv[1]))'";
const READ_MRC: &str = "python3 -c 'import mrcfile, sys; mrcfile.mmap(sys.argv[1]).print_header()'";
const READ_FITS: &str =
    "python3 -c 'import astropy.io.fits, sys; astropy.io.fits.info(sys.argv[1])'";
const READ_H5AD: &str = "python3 -c 'import anndata, sys; print(anndata.read_h5ad(sys.argv[1]))'";

const SHOW_PNG: &str = "python3 -c 'import PIL.Image, sys; PIL.Image.open(sys.argv[1]).show()'";

const READ_PARQUET: &str =
    "python3 -c 'import pyarrow.parquet, sys; print(pyarrow.parquet.read_schema(sys.argv[1]))'";

/// Returns the result of a check that proves whether a file exists.
fn proven(checked: Result<(), String>) -> Result<bool, ContentError> {
    Ok(checked.map(|()| true)?)
}

/// The rows of all formats, in listing order.
pub(super) static TABLE: [FormatRow; 31] = [
    row(
        "attributes",
        ViewName::Own("attributes.json"),
        "the attributes",
        JSON_TOOL,
        Renderer::Node(ViewNode::attributes_text),
    ),
    row(
        "info",
        ViewName::Own("info.json"),
        "the metadata",
        JSON_TOOL,
        Renderer::Node(|node| Ok(pretty(&node.info()))),
    ),
    row(
        "readme",
        ViewName::Own("README.txt"),
        "this list",
        "cat",
        Renderer::Readme,
    ),
    row(
        "views",
        ViewName::Member("views.json"),
        "this list as JSON",
        JSON_TOOL,
        Renderer::ViewList,
    ),
    row(
        "zom",
        ViewName::Own("zom.json"),
        "the metadata of the group and all nodes below it as a Zarr Object Model",
        JSON_TOOL,
        Renderer::Hierarchy(zom_json),
    ),
    row(
        "zmetadata",
        ViewName::Own(".zmetadata"),
        "consolidated metadata of Zarr v2",
        JSON_TOOL,
        Renderer::Hierarchy(zmetadata_json),
    ),
    row(
        "npy",
        ViewName::Suffix(".npy"),
        "NumPy",
        LOAD_NPY,
        Renderer::Array(npy::render),
    )
    .expressing(NONE),
    row(
        "bin",
        ViewName::Suffix(".bin"),
        "the elements in row-major order, without a header",
        "od -A d -t x1 -N 64",
        Renderer::Array(sidecar::bin),
    )
    .expressing(NONE),
    FormatRow {
        command_suffix: Some(".bin"),
        ..row(
            "hdr",
            ViewName::Suffix(".hdr"),
            "the ENVI header of the .bin file",
            "gdalinfo",
            Renderer::ArrayWithNodes(|view, _| proven(sidecar::check_envi(view)), sidecar::envi),
        )
        .expressing(ENVI)
    },
    row(
        "vrt",
        ViewName::Suffix(".vrt"),
        "a GDAL virtual raster of the .bin file",
        "gdalinfo",
        Renderer::ArrayWithNodes(|view, _| proven(sidecar::check_vrt(view)), sidecar::vrt),
    )
    .expressing(GDAL),
    row(
        "nhdr",
        ViewName::Suffix(".nhdr"),
        "the NRRD header of the .bin file",
        READ_NRRD,
        Renderer::ArrayWithNodes(|view, _| proven(sidecar::check_nrrd(view)), sidecar::nrrd),
    )
    .expressing(NRRD),
    row(
        "tif",
        ViewName::Suffix(".tif"),
        "GeoTIFF",
        "gdalinfo",
        Renderer::ArrayWithNodes(geotiff::metadata_prove, geotiff::render),
    )
    .expressing(GDAL),
    FormatRow {
        command_suffix: Some(".tif"),
        ..row(
            "aux",
            ViewName::Suffix(".tif.aux.xml"),
            "the coordinate reference system of the .tif file, for GDAL",
            "gdalinfo",
            Renderer::UncheckedArray(geotiff::render_aux),
        )
    },
    row(
        "ome",
        ViewName::Suffix(".ome.tif"),
        "OME-TIFF with the levels of the pyramid",
        "tiffinfo",
        Renderer::Image(ome_tiff::render),
    )
    .expressing(OME_TIFF),
    row(
        "imagej",
        ViewName::Suffix(".imagej.tif"),
        "a hyperstack of ImageJ",
        "imagej",
        Renderer::Image(imagej::render),
    )
    .expressing(IMAGEJ),
    row(
        "nii",
        ViewName::Suffix(".nii"),
        "NIfTI",
        READ_NIFTI,
        Renderer::ArrayWithNodes(|view, _| proven(nifti::check(view)), nifti::render),
    )
    .expressing(NIFTI),
    row(
        "mrc",
        ViewName::Suffix(".mrc"),
        "MRC",
        READ_MRC,
        Renderer::ArrayWithNodes(|view, _| proven(mrc::check(view)), mrc::render),
    )
    .expressing(MRC),
    row(
        "fits",
        ViewName::Suffix(".fits"),
        "FITS",
        READ_FITS,
        Renderer::ArrayWithNodes(|view, _| proven(fits::check(view)), fits::render),
    )
    .expressing(FITS),
    row(
        "h5",
        ViewName::Suffix(".h5"),
        "HDF5 of the group and all that is below it, as it is",
        "h5dump -H",
        Renderer::Group(
            TreeScope::RawSubtree,
            plain_hdf5::metadata_prove,
            plain_hdf5::render,
        ),
    )
    .expressing(ALL),
    row(
        "h5ad",
        ViewName::Suffix(".h5ad"),
        "AnnData",
        READ_H5AD,
        Renderer::GroupOfKind(is_anndata, h5ad::render),
    )
    .expressing(CF),
    row(
        "png",
        ViewName::Suffix(".png"),
        "a quick look as a picture of at most 1024 x 1024 pixels",
        SHOW_PNG,
        Renderer::Image(png::render),
    )
    .expressing(PICTURE),
    row(
        "parquet",
        ViewName::Suffix(".parquet"),
        "the arrays that share their only dimension as a Parquet table",
        READ_PARQUET,
        Renderer::Table(group_table::metadata_prove, parquet::render),
    )
    .expressing(COLUMNS),
    row(
        "csv",
        ViewName::Suffix(".csv"),
        "the same table as text",
        "head -n 5",
        Renderer::Table(group_table::metadata_prove, csv::render),
    )
    .expressing(COLUMNS),
    row(
        "packed-tif",
        ViewName::Suffix(".packed.tif"),
        "GeoTIFF with the chunks as they are stored",
        "gdalinfo",
        Renderer::StoredArray(geotiff::check_packed, geotiff::render_packed),
    )
    .expressing(GDAL),
    row(
        "packed-nc",
        ViewName::Suffix(".packed.nc"),
        "NetCDF-4 with the chunks as they are stored",
        "ncdump -hs",
        Renderer::StoredChunks(netcdf4::render_packed),
    )
    .expressing(CF),
    row(
        "nc",
        ViewName::Suffix(".nc"),
        "NetCDF-4 of the group and all groups below it",
        "ncdump -h",
        Renderer::Group(TreeScope::Subtree, netcdf4::metadata_prove, netcdf4::render),
    )
    .expressing(CF),
    row(
        "cdf",
        ViewName::Suffix(".cdf.nc"),
        "classic NetCDF of the arrays of the group",
        "ncdump -h",
        Renderer::Group(
            TreeScope::Group,
            classic_netcdf::metadata_prove,
            classic_netcdf::render,
        ),
    )
    .expressing(CF),
    row(
        "cdf5",
        ViewName::Suffix(".cdf5.nc"),
        "CDF-5 of the arrays of the group",
        "ncdump -h",
        Renderer::Group(
            TreeScope::Group,
            classic_netcdf::metadata_prove,
            classic_netcdf::render_cdf5,
        ),
    )
    .expressing(CF),
    row(
        "json",
        ViewName::Suffix(".json"),
        "the elements, which have variable length",
        JSON_TOOL,
        Renderer::Elements,
    )
    .expressing(NONE),
    row(
        "chunks",
        ViewName::Member("chunks"),
        "a directory of decoded chunks",
        "ls",
        Renderer::Chunks,
    )
    .expressing(NONE),
    row(
        "inner",
        ViewName::Member("inner"),
        "a directory of the decoded inner chunks of the shards",
        "ls",
        Renderer::Inner,
    )
    .expressing(NONE),
];
