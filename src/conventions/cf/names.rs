//! The names of attributes of CF, and of the NetCDF Users Guide on which CF builds.
//!
//! Formats that write an attribute take its name from here, so that `tests/layering` finds each name that is read
//! outside `conventions`.

/// The stored number that marks missing elements (CF 1.13, 2.5.1).
pub(crate) const FILL_VALUE: &str = "_FillValue";
/// Another stored number that marks missing elements (CF 1.13, 2.5.1).
pub(crate) const MISSING_VALUE: &str = "missing_value";
/// The factor of packed numbers (CF 1.13, 8.1).
pub(crate) const SCALE_FACTOR: &str = "scale_factor";
/// The summand of packed numbers (CF 1.13, 8.1).
pub(crate) const ADD_OFFSET: &str = "add_offset";
/// Whether integers are unsigned: `"true"` or `"false"` (NUG, Appendix B).
pub(crate) const UNSIGNED: &str = "_Unsigned";
/// The units of values (CF 1.13, 3.1).
pub(crate) const UNITS: &str = "units";
/// The attributes that say what stored numbers mean.
pub(crate) const OF_VALUES: [&str; 5] =
    [SCALE_FACTOR, ADD_OFFSET, FILL_VALUE, MISSING_VALUE, UNITS];
/// The calendar of times (CF 1.13, 4.4.1).
pub(crate) const CALENDAR: &str = "calendar";
/// The description of a variable for plots (CF 1.13, 3.2).
pub(crate) const LONG_NAME: &str = "long_name";
/// The name of a quantity in the table of CF (CF 1.13, 3.3).
pub(crate) const STANDARD_NAME: &str = "standard_name";
/// The direction of a coordinate: `X`, `Y`, `Z` or `T` (CF 1.13, 4).
pub(crate) const AXIS: &str = "axis";
/// The variable with the coordinate reference system (CF 1.13, 5.6).
pub(crate) const GRID_MAPPING: &str = "grid_mapping";
/// The coordinate reference system of a grid mapping as WKT (CF 1.13, 5.6.1).
pub(crate) const CRS_WKT: &str = "crs_wkt";
/// The auxiliary coordinates of a variable (CF 1.13, 5).
pub(crate) const COORDINATES: &str = "coordinates";
/// The boundaries of the cells of a coordinate (CF 1.13, 7.1).
pub(crate) const BOUNDS: &str = "bounds";
/// The boundaries of a coordinate of climatological time (CF 1.13, 7.4).
pub(crate) const CLIMATOLOGY: &str = "climatology";
