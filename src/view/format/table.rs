//! The table of formats: the rows of all formats.

use super::row::FormatRow;
use super::{
    bgen, bin, chunks, classic_netcdf, csv, envi, fits, geotiff, h5ad, imagej, json, metadata, mrc,
    netcdf4, nifti, npy, nrrd, ome_tiff, packed, parquet, plain_hdf5, plink, png, vrt,
};

/// The rows of each format, in listing order.
const ROWS: &[&[FormatRow]] = &[
    metadata::ROWS,
    npy::ROWS,
    bin::ROWS,
    envi::ROWS,
    vrt::ROWS,
    nrrd::ROWS,
    geotiff::ROWS,
    ome_tiff::ROWS,
    imagej::ROWS,
    nifti::ROWS,
    mrc::ROWS,
    fits::ROWS,
    plain_hdf5::ROWS,
    h5ad::ROWS,
    plink::ROWS,
    bgen::ROWS,
    png::ROWS,
    parquet::ROWS,
    csv::ROWS,
    packed::ROWS,
    netcdf4::ROWS,
    classic_netcdf::ROWS,
    json::ROWS,
    chunks::ROWS,
];

/// The number of rows.
const COUNT: usize = {
    let mut count = 0;
    let mut format = 0;
    while format < ROWS.len() {
        count += ROWS[format].len();
        format += 1;
    }
    count
};

/// All rows, in listing order.
pub(super) static TABLE: [FormatRow; COUNT] = {
    let mut table = [ROWS[0][0]; COUNT];
    let (mut place, mut format) = (0, 0);
    while format < ROWS.len() {
        let mut row = 0;
        while row < ROWS[format].len() {
            table[place] = ROWS[format][row];
            place += 1;
            row += 1;
        }
        format += 1;
    }
    table
};
