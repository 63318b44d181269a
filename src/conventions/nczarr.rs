//! NCZarr and netCDF-4: attributes with which the libraries keep their own metadata.

/// Attributes of netCDF-C ("NetCDF-4 Format", "The NCZarr Format").
const NAMES: [&str; 3] = ["_NCProperties", "_nc3_strict", "_nczarr_attrs"];
const PREFIXES: [&str; 3] = ["_Netcdf4", "_nczarr_", "_NCZARR_"];

/// Returns whether an attribute is metadata of the library, which no user wrote.
pub(crate) fn is_of_the_library(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
