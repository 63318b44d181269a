//! The georeference of an array in CF attributes: a grid mapping with the attributes of GDAL, and
//! coordinates (CF 1.11, 5.6 and Appendix F; GDAL, "NetCDF: Network Common Data Form", `GeoTransform`).

use super::raster::Direction;
use super::transform::Transform;
use crate::conventions::crs::Crs;
use crate::conventions::crs::epsg::{CrsKind, Unit};
use crate::conventions::crs::wkt::Wkt;

/// The georeference of an array by other conventions than CF.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    pub(crate) crs: Crs,
    /// The transform from pixel numbers, relative to the corner of the first pixel.
    pub(crate) transform: Transform,
    /// Names and lengths of the y and x axes.
    pub(crate) spatial_axes: [(Option<String>, u64); 2],
    /// The variable of the group that has the system, though no attribute names it.
    pub(crate) mapping: Option<&'static str>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GridAttribute {
    Text(String),
    Numbers(Vec<f64>),
}

type GridAttributes = Vec<(&'static str, GridAttribute)>;

impl Grid {
    /// Returns the attributes of the grid mapping.
    pub(crate) fn mapping(&self) -> GridAttributes {
        let [a, b, c, d, e, f] = self.transform;
        let transform = [c, a, b, f, d, e].map(|value| value.to_string()).join(" ");
        let mut members = parameters(&self.crs).unwrap_or_default();
        members.push(("crs_wkt", GridAttribute::Text(self.crs.wkt.to_string())));
        // The name of `crs_wkt` in rioxarray and in GDAL before 3.5.
        members.push(("spatial_ref", GridAttribute::Text(self.crs.wkt.to_string())));
        members.push(("GeoTransform", GridAttribute::Text(transform)));
        members
    }

    /// Returns the first coordinate along an axis and the step; `None` if the raster is rotated.
    pub(crate) fn coordinates(&self, direction: Direction) -> Option<(f64, f64)> {
        let [a, b, c, d, e, f] = self.transform;
        if b != 0.0 || d != 0.0 {
            return None;
        }
        Some(match direction {
            Direction::Across => (c + a / 2.0, a),
            Direction::Down => (f + e / 2.0, e),
        })
    }

    /// Returns the attributes of the coordinates along an axis.
    pub(crate) fn axis(&self, direction: Direction) -> GridAttributes {
        let text = |value: &str| GridAttribute::Text(value.to_owned());
        let is_across = direction == Direction::Across;
        let name = match (self.crs.kind, is_across) {
            (CrsKind::Geographic, true) => "longitude",
            (CrsKind::Geographic, false) => "latitude",
            (CrsKind::Projected, true) => "projection_x_coordinate",
            (CrsKind::Projected, false) => "projection_y_coordinate",
            (CrsKind::RotatedPole, true) => "grid_longitude",
            (CrsKind::RotatedPole, false) => "grid_latitude",
        };
        let units = match (self.crs.kind, self.crs.unit) {
            (CrsKind::Geographic, _) if is_across => Some("degrees_east"),
            (CrsKind::Geographic, _) => Some("degrees_north"),
            (CrsKind::RotatedPole, _) => Some("degrees"),
            (_, Unit::Metre) => Some("m"),
            (_, Unit::Foot) => Some("foot"),
            (_, Unit::UsSurveyFoot) => Some("US_survey_foot"),
            (_, Unit::Other) => None,
        };
        let mut members = vec![
            ("axis", text(if is_across { "X" } else { "Y" })),
            ("standard_name", text(name)),
        ];
        members.extend(units.map(|units| ("units", text(units))));
        members
    }
}

/// Returns `grid_mapping_name` and parameters in degrees and metres; `None` for projections that CF lacks.
fn parameters(crs: &Crs) -> Option<GridAttributes> {
    let root = Wkt::parse(&crs.wkt)?;
    let is_projected = root.is(&["PROJCS"]);
    let base = match is_projected {
        true => root.children(&["GEOGCS"]).next()?,
        false => root,
    };
    let figure = base
        .children(&["DATUM"])
        .next()?
        .children(&["SPHEROID"])
        .next()?;
    let number = |wkt: Wkt<'_>, place| {
        wkt.value(place)?
            .parse()
            .ok()
            .map(|n| GridAttribute::Numbers(vec![n]))
    };
    let meridian = base.children(&["PRIMEM"]).next()?;
    let unit: f64 = base.children(&["UNIT"]).next()?.value(1)?.parse().ok()?;
    if (unit - 1.0_f64.to_radians()).abs() > 1e-15 {
        return None;
    }
    let mut members = vec![
        ("semi_major_axis", number(figure, 1)?),
        ("inverse_flattening", number(figure, 2)?),
        ("longitude_of_prime_meridian", number(meridian, 1)?),
    ];
    if !is_projected {
        let name = GridAttribute::Text("latitude_longitude".into());
        members.insert(0, ("grid_mapping_name", name));
        return root.is(&["GEOGCS"]).then_some(members);
    }
    // An `EXTENSION` overrides the method.
    if crs.unit != Unit::Metre || root.children(&["EXTENSION"]).next().is_some() {
        return None;
    }
    let method = root.children(&["PROJECTION"]).next()?.value(0)?;
    let (_, name, words) = METHODS.iter().find(|(known, ..)| *known == method)?;
    members.insert(
        0,
        ("grid_mapping_name", GridAttribute::Text((*name).to_owned())),
    );
    let find = |wanted: &str| {
        let mut all = root.children(&["PARAMETER"]);
        let found = all.find(|parameter| parameter.value(0) == Some(wanted))?;
        found.value(1)?.parse::<f64>().ok()
    };
    for (parameter, attribute) in words.iter().chain(&SHIFT) {
        let value = find(parameter)?;
        match members.iter_mut().find(|(there, _)| there == attribute) {
            // The second of two standard parallels.
            Some((_, GridAttribute::Numbers(values))) => values.push(value),
            _ => members.push((attribute, GridAttribute::Numbers(vec![value]))),
        }
    }
    Some(members)
}

const SHIFT: [(&str, &str); 2] = [
    ("false_easting", "false_easting"),
    ("false_northing", "false_northing"),
];

type ParameterNames = &'static [(&'static str, &'static str)];

/// Methods of WKT 1, their names in CF, and the names of their parameters.
static METHODS: [(&str, &str, ParameterNames); 5] = [
    (
        "Transverse_Mercator",
        "transverse_mercator",
        &[
            ("latitude_of_origin", "latitude_of_projection_origin"),
            ("central_meridian", "longitude_of_central_meridian"),
            ("scale_factor", "scale_factor_at_central_meridian"),
        ],
    ),
    (
        "Lambert_Azimuthal_Equal_Area",
        "lambert_azimuthal_equal_area",
        &[
            ("latitude_of_center", "latitude_of_projection_origin"),
            ("longitude_of_center", "longitude_of_projection_origin"),
        ],
    ),
    (
        "Albers_Conic_Equal_Area",
        "albers_conical_equal_area",
        &[
            ("latitude_of_center", "latitude_of_projection_origin"),
            ("longitude_of_center", "longitude_of_central_meridian"),
            ("standard_parallel_1", "standard_parallel"),
            ("standard_parallel_2", "standard_parallel"),
        ],
    ),
    (
        "Lambert_Conformal_Conic_2SP",
        "lambert_conformal_conic",
        &[
            ("latitude_of_origin", "latitude_of_projection_origin"),
            ("central_meridian", "longitude_of_central_meridian"),
            ("standard_parallel_1", "standard_parallel"),
            ("standard_parallel_2", "standard_parallel"),
        ],
    ),
    (
        "Sinusoidal",
        "sinusoidal",
        &[("longitude_of_center", "longitude_of_projection_origin")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(code: &str) -> Grid {
        Grid {
            crs: Crs::of_text(code).unwrap(),
            transform: [10.0, 0.0, 500_000.0, 0.0, -10.0, 5e6],
            spatial_axes: [(None, 2), (None, 3)],
            mapping: None,
        }
    }

    #[test]
    fn a_grid_mapping_has_the_parameters_of_its_method() {
        let members = grid("EPSG:32633").mapping();
        let value = |name: &str| &members.iter().find(|(found, _)| *found == name).unwrap().1;
        let name = GridAttribute::Text("transverse_mercator".into());
        assert_eq!(value("grid_mapping_name"), &name);
        assert_eq!(
            value("longitude_of_central_meridian"),
            &GridAttribute::Numbers(vec![15.0])
        );
        let transform = GridAttribute::Text("500000 10 0 5000000 0 -10".into());
        assert_eq!(value("GeoTransform"), &transform);
        let members = grid("EPSG:2154").mapping();
        let parallels = GridAttribute::Numbers(vec![49.0, 44.0]);
        assert!(members.contains(&("standard_parallel", parallels)));
        // Without parameters: those of its WKT method describe the ellipsoidal Mercator.
        let members = grid("EPSG:3857").mapping();
        assert_eq!(members[0].0, "crs_wkt");
    }

    #[test]
    fn coordinates_are_those_of_pixel_centres() {
        let mut grid = grid("EPSG:32633");
        assert_eq!(grid.coordinates(Direction::Across), Some((500_005.0, 10.0)));
        assert_eq!(
            grid.coordinates(Direction::Down),
            Some((4_999_995.0, -10.0))
        );
        grid.transform[1] = 1.0;
        assert_eq!(grid.coordinates(Direction::Down), None);
    }
}
