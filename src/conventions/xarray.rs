//! The attributes of xarray beside those of CF (xarray, "Zarr Encoding Specification").

/// The attribute that marks numbers of another type: `bool`, or a `timedelta64`.
pub(crate) const DTYPE: &str = "dtype";
/// The [`DTYPE`] of booleans that are stored as bytes.
pub(crate) const BOOL: &str = "bool";
