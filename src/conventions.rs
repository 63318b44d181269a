//! What attributes say about data: one file for each convention, and one [`description`] that formats carry.
//!
//! A convention takes attributes (JSON) and returns parts of a description. It reads no store: it asks a
//! [`NodeResolver`](crate::node::NodeResolver) for the other nodes and the coordinates that it needs, so each rule is
//! tested without a store. A member that a convention has and that is not understood becomes a note, never
//! silence: the notes are diagnostics of the views that they concern.
//!
//! Only this module reads attributes by name; `tests/layering` has the names, and the exceptions with their reasons.
//!
//! - Conventions: `cf` with the NetCDF Users Guide, `xarray`, `nczarr`, [`ome`], [`n5`], `geozarr`, `gdal`,
//!   `nifti_zarr`, `anndata`.
//! - What several of them say together: `missing` (values), `column` (rows of tables without
//!   values), `georef` (rasters), `members` (named nodes), and
//!   [`description`] (all of an array).
//! - Without attributes: `crs` (reference systems as text), [`units`], [`affine`], `text`.
//!
//! # Precedence
//!
//! If several conventions describe an array, the first one in a line decides, and the others fill what it leaves open.
//!
//! | what | order | reason |
//! |---|---|---|
//! | axes, spacing, origin | the header in the array `nifti`; the image of OME-Zarr of which the array is a level; `transform` of COSEM; `pixelResolution`; `resolution` of N5; coordinates; the transform of the raster | nifti-zarr reads its own header; the entry of a level is written for this array, while the others are copied from array to array, also to smaller levels; ngff-zarr and napari read only it |
//! | names of axes | the convention of the axes; `dimension_names`, `_ARRAY_DIMENSIONS` | OME-Zarr 0.5 requires the same names; before it, dimensions have none |
//! | kind of an axis | `type` of OME-Zarr; the name | a declared type is meant, a name is a guess |
//! | the side of a patient | the header in the array `nifti`; `orientation` of RFC-4; names x, y and z; the order | nifti-zarr reads its own header; nibabel takes x, y and z for right, anterior and superior |
//! | the coordinate system of an image | the output of the transforms of its levels; others are left out with a note | it is the native one (OME-Zarr 0.6), and files have one |
//! | missing values | `_FillValue`; `missing_value`; `fill_value` of v2 unless it is the default 0 of zarr-python (`missing`); `fill_value` of v3 beside `_CRS` | xarray reads `fill_value` of v2 as `_FillValue`, and not that of v3 |
//! | scale and offset | `scale_factor`, `add_offset`; the header in the array `nifti` | CF is written for the array, the header for its whole image |
//! | reference system | `proj:` and `spatial:` of `zarr_conventions`; `_CRS` of GDAL; the grid mapping of CF; contradictions give none, with a note | the order of GDAL; a wrong place is worse than none |
//! | columns of a table | `_index` and `column-order` of a dataframe of AnnData; the array of the dimension, then the others by name | pandas and anndata have this order |
//! | colours | `omero.channels` of OME-Zarr; an axis of channels without colours is shown as red, green and blue | viewers of OME-Zarr do so |

pub mod affine;
pub(crate) mod anndata;
pub(crate) mod cf;
pub(crate) mod column;
pub(crate) mod crs;
pub mod description;
pub(crate) mod gdal;
pub(crate) mod georef;
pub(crate) mod geozarr;
pub(crate) mod members;
pub(crate) mod missing;
pub mod n5;
pub(crate) mod nczarr;
pub mod nifti_zarr;
pub mod ome;
pub(crate) mod text;
pub mod units;
pub(crate) mod vcf_zarr;
pub(crate) mod xarray;
