//! Encoders of containers: HDF5, Parquet and TIFF, and gaps in files. They have no meaning of arrays; formats give it.

pub(super) mod hdf5;
pub(super) mod padding;
pub(super) mod parquet;
pub(super) mod tiff;
