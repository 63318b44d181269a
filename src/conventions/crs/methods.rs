//! Map projections that the keys of GeoTIFF express: WKT names, parameters, and the keys of the parameters.

/// The meaning of a parameter of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Latitude,
    Longitude,
    FirstParallel,
    SecondParallel,
    Scale,
    Easting,
    Northing,
}

/// The unit of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Angle,
    Length,
    Ratio,
}

impl Role {
    /// Returns the meaning of a normalized name in WKT 1 of GDAL or ESRI, or in WKT 2.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "latitude of origin"
            | "latitude of center"
            | "latitude of natural origin"
            | "latitude of false origin"
            | "latitude of projection centre"
            | "latitude of standard parallel" => Self::Latitude,
            "central meridian"
            | "longitude of center"
            | "longitude of origin"
            | "longitude of natural origin"
            | "longitude of false origin"
            | "longitude of projection centre" => Self::Longitude,
            "standard parallel 1" | "latitude of 1st standard parallel" => Self::FirstParallel,
            "standard parallel 2" | "latitude of 2nd standard parallel" => Self::SecondParallel,
            "scale factor" | "scale factor at natural origin" => Self::Scale,
            "false easting" | "easting at false origin" => Self::Easting,
            "false northing" | "northing at false origin" => Self::Northing,
            _ => return None,
        })
    }

    pub(crate) fn quantity(self) -> Quantity {
        match self {
            Self::Scale => Quantity::Ratio,
            Self::Easting | Self::Northing => Quantity::Length,
            _ => Quantity::Angle,
        }
    }

    /// Returns the neutral value, which is the same as no parameter.
    pub(crate) fn neutral(self) -> f64 {
        match self {
            Self::Scale => 1.0,
            _ => 0.0,
        }
    }
}

/// A parameter of a method: its meaning, its key (OGC 19-008r4, 7.5.4), and the default if WKT has no value.
pub(crate) type Parameter = (Role, u16, Option<f64>);

/// A method of projection.
#[derive(Debug, PartialEq)]
pub(crate) struct Method {
    /// The value of `ProjMethodGeoKey` (GeoTIFF 1.0, 6.3.3.3).
    pub(crate) code: u16,
    /// Normalized names in WKT 1 of GDAL or ESRI, and in WKT 2.
    names: &'static [&'static str],
    pub(crate) parameters: &'static [Parameter],
}

use Role::{Easting, FirstParallel, Latitude, Longitude, Northing, Scale, SecondParallel};

const X: Parameter = (Easting, 3082, Some(0.0));
const Y: Parameter = (Northing, 3083, Some(0.0));
/// Parameters of the "natural origin", and of the "centre".
const NATURAL: (Parameter, Parameter) = ((Longitude, 3080, None), (Latitude, 3081, None));
const CENTRE: (Parameter, Parameter) = ((Longitude, 3088, None), (Latitude, 3089, None));
const FIRST: Parameter = (FirstParallel, 3078, None);
const SECOND: Parameter = (SecondParallel, 3079, None);
const SCALE: Parameter = (Scale, 3092, None);

const fn method(
    code: u16,
    names: &'static [&'static str],
    parameters: &'static [Parameter],
) -> Method {
    Method {
        code,
        names,
        parameters,
    }
}

/// The methods, with the keys that GDAL writes and reads.
static METHODS: [Method; 24] = [
    method(
        1,
        &["transverse mercator", "gauss kruger"],
        &[NATURAL.0, NATURAL.1, SCALE, X, Y],
    ),
    method(
        7,
        &["mercator 1sp", "mercator (variant a)"],
        &[NATURAL.0, (Latitude, 3081, Some(0.0)), SCALE, X, Y],
    ),
    method(
        7,
        &["mercator 2sp", "mercator (variant b)", "mercator"],
        &[FIRST, NATURAL.0, (Latitude, 3081, Some(0.0)), X, Y],
    ),
    method(
        8,
        &[
            "lambert conformal conic 2sp",
            "lambert conic conformal (2sp)",
            "lambert conformal conic",
        ],
        &[
            FIRST,
            SECOND,
            (Longitude, 3084, None),
            (Latitude, 3085, None),
            (Easting, 3086, Some(0.0)),
            (Northing, 3087, Some(0.0)),
        ],
    ),
    method(
        9,
        &[
            "lambert conformal conic 1sp",
            "lambert conic conformal (1sp)",
        ],
        &[NATURAL.0, NATURAL.1, SCALE, X, Y],
    ),
    method(
        10,
        &[
            "lambert azimuthal equal area",
            "lambert azimuthal equal area (spherical)",
        ],
        &[CENTRE.0, CENTRE.1, X, Y],
    ),
    method(
        11,
        &["albers conic equal area", "albers equal area", "albers"],
        &[FIRST, SECOND, NATURAL.0, NATURAL.1, X, Y],
    ),
    method(
        12,
        &["azimuthal equidistant", "modified azimuthal equidistant"],
        &[CENTRE.0, CENTRE.1, X, Y],
    ),
    method(
        13,
        &["equidistant conic"],
        &[FIRST, SECOND, NATURAL.0, NATURAL.1, X, Y],
    ),
    method(14, &["stereographic"], &[CENTRE.0, CENTRE.1, SCALE, X, Y]),
    method(
        15,
        &["polar stereographic", "polar stereographic (variant a)"],
        POLAR,
    ),
    method(
        15,
        &["polar stereographic (variant b)"],
        &[
            (Longitude, 3095, None),
            (Latitude, 3081, None),
            (Scale, 3092, Some(1.0)),
            X,
            Y,
        ],
    ),
    method(
        15,
        &["stereographic north pole", "stereographic south pole"],
        &[
            (Longitude, 3095, None),
            (FirstParallel, 3081, None),
            (Scale, 3092, Some(1.0)),
            X,
            Y,
        ],
    ),
    method(
        16,
        &["oblique stereographic", "double stereographic"],
        &[NATURAL.0, NATURAL.1, SCALE, X, Y],
    ),
    method(
        17,
        &[
            "equirectangular",
            "equidistant cylindrical",
            "equidistant cylindrical (spherical)",
        ],
        &[FIRST, CENTRE.0, (Latitude, 3089, Some(0.0)), X, Y],
    ),
    method(
        18,
        &["cassini soldner", "cassini"],
        &[NATURAL.0, NATURAL.1, X, Y],
    ),
    method(19, &["gnomonic"], &[CENTRE.0, CENTRE.1, X, Y]),
    method(
        20,
        &["miller cylindrical"],
        &[CENTRE.0, (Latitude, 3089, Some(0.0)), X, Y],
    ),
    method(21, &["orthographic"], &[CENTRE.0, CENTRE.1, X, Y]),
    method(
        22,
        &["polyconic", "american polyconic"],
        &[NATURAL.0, NATURAL.1, (Scale, 3092, Some(1.0)), X, Y],
    ),
    method(23, &["robinson"], &[CENTRE.0, X, Y]),
    method(24, &["sinusoidal"], &[CENTRE.0, X, Y]),
    method(
        25,
        &["vandergrinten", "van der grinten", "van der grinten i"],
        &[CENTRE.0, X, Y],
    ),
    method(
        28,
        &[
            "cylindrical equal area",
            "lambert cylindrical equal area",
            "lambert cylindrical equal area (spherical)",
        ],
        &[FIRST, NATURAL.0, X, Y],
    ),
];

const POLAR: &[Parameter] = &[(Longitude, 3095, None), (Latitude, 3081, None), SCALE, X, Y];

impl Method {
    /// Returns the method of a normalized name; `is_sphere` says whether the Earth is a sphere.
    pub(crate) fn of_name(name: &str, is_sphere: bool) -> Option<&'static Self> {
        if name.ends_with("(spherical)") && !is_sphere {
            return None;
        }
        METHODS.iter().find(|method| method.names.contains(&name))
    }

    /// Returns the values of all parameters, in the order of the method; `None` if one is missing, or if a
    /// given parameter has no key.
    pub(crate) fn values(&self, given: &[(Role, f64)]) -> Option<Vec<f64>> {
        let find = |role| given.iter().find(|(given, _)| *given == role);
        let is_known = |role| self.parameters.iter().any(|(known, ..)| *known == role);
        let has_rest =
            (given.iter()).any(|(role, value)| !is_known(*role) && *value != role.neutral());
        if has_rest {
            return None;
        }
        let values = self.parameters.iter();
        let values: Option<Vec<f64>> = values
            .map(|(role, _, default)| find(*role).map(|(_, value)| *value).or(*default))
            .collect();
        let values = values?;
        // The latitude can be that of the standard parallel, or that of the pole with a scale at the pole.
        let is_ambiguous = self.code == 15
            && matches!(values[..], [_, latitude, scale, ..]
                if latitude.abs() != 90.0 && scale != 1.0);
        (!is_ambiguous).then_some(values)
    }

    /// Returns whether the axes may point to the equator, or away from it, in all directions.
    pub(crate) fn may_be_polar(&self) -> bool {
        matches!(self.code, 10 | 12 | 15)
    }
}
