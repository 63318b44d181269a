//! WKT of CF grid mappings (CF 1.13, Appendix F) that have all required parameters.
//!
//! Attributes are read as GDAL and pyproj read them, where both agree: a scale factor that is not given is 1,
//! and a standard parallel comes before a scale factor. Contradictions are errors.

use serde_json::{Map, Value as Json};

use crate::conventions::cf::figure::{Earth, GridMappingAttributes};
use crate::conventions::georef::context::some;

/// Returns the WKT of a grid mapping, with coordinates in metres. `assumes_wgs84` applies to a grid mapping
/// without a figure of the Earth.
///
/// # Errors
/// Returns why the grid mapping has no WKT.
pub(crate) fn wkt(members: &Map<String, Json>, assumes_wgs84: bool) -> Result<String, String> {
    let mapping = GridMappingAttributes {
        members,
        assumes_wgs84,
    };
    let name = mapping_name(members).ok_or("no grid_mapping_name")?;
    // A missing figure is reported only if it is all that is missing.
    match name {
        "latitude_longitude" => Ok(geographic(&mapping.earth()?)),
        "rotated_latitude_longitude" => mapping.rotated(),
        name => {
            let projection = mapping.projection(name)?;
            projection.wkt(&mapping.earth()?, &mapping)
        }
    }
}

/// Grid mappings of CF that the netCDF driver of GDAL does not read: it takes the sphere for the system.
const NOT_READ_BY_GDAL: [&str; 1] = ["sinusoidal"];

/// Returns the WKT of a grid mapping that GDAL reads only by WKT, if its attributes have none.
pub(crate) fn wkt_for_gdal(members: &Map<String, Json>) -> Option<String> {
    let name = some(members, "grid_mapping_name").and_then(Json::as_str)?;
    let has_wkt = ["crs_wkt", "spatial_ref"]
        .iter()
        .any(|name| members.contains_key(*name));
    (NOT_READ_BY_GDAL.contains(&name) && !has_wkt).then(|| wkt(members, false).ok())?
}

/// Returns the name of the grid mapping; as in GDAL, a north pole of a grid makes it a rotated one.
pub(crate) fn mapping_name(members: &Map<String, Json>) -> Option<&str> {
    let is_rotated = || some(members, "grid_north_pole_longitude").is_some();
    let name = some(members, "grid_mapping_name").and_then(Json::as_str);
    name.or_else(|| is_rotated().then_some("rotated_latitude_longitude"))
}

const DEGREE: &str = "0.0174532925199433";
const ANGLE: &str = "ANGLEUNIT[\"degree\",0.0174532925199433]";
const METRE: &str = "LENGTHUNIT[\"metre\",1]";

/// Returns a geographic system in WKT 1.
fn geographic(earth: &Earth) -> String {
    let shift = earth.shift.as_ref().map(|values| {
        let values: Vec<String> = values.iter().map(f64::to_string).collect();
        format!(",TOWGS84[{}]", values.join(","))
    });
    format!(
        "GEOGCS[\"{}\",DATUM[\"{}\",SPHEROID[\"{}\",{},{}]{}],PRIMEM[\"{}\",{}],\
         UNIT[\"degree\",{DEGREE}]]",
        earth.name,
        earth.datum,
        earth.ellipsoid,
        earth.semi_major,
        earth.inverse_flattening,
        shift.unwrap_or_default(),
        earth.meridian.0,
        earth.meridian.1,
    )
}

/// Returns a geographic system in WKT 2, as the base of another system.
fn base(earth: &Earth) -> Result<String, String> {
    if earth.shift.is_some() {
        return Err("towgs84 of this grid_mapping_name is not written".into());
    }
    Ok(format!(
        "BASEGEOGCRS[\"{}\",DATUM[\"{}\",ELLIPSOID[\"{}\",{},{},{METRE}]],PRIMEM[\"{}\",{},{ANGLE}]]",
        earth.name,
        earth.datum,
        earth.ellipsoid,
        earth.semi_major,
        earth.inverse_flattening,
        earth.meridian.0,
        earth.meridian.1,
    ))
}

/// The method of a projection and its parameters.
enum Projection {
    /// A method of WKT 1 with `false_easting` and `false_northing`.
    Wkt1(&'static str, Parameters),
    /// A method that only WKT 2 has; each parameter has its unit.
    Wkt2(&'static str, Vec<(&'static str, f64, &'static str)>),
    /// A cylinder with a scale at the equator, which WKT cannot express.
    ScaledCylinder { longitude: f64, scale: f64 },
}

type Parameters = Vec<(&'static str, f64)>;

impl Projection {
    fn wkt(&self, earth: &Earth, mapping: &GridMappingAttributes<'_>) -> Result<String, String> {
        let name = mapping.name("projected_crs_name").unwrap_or("unknown");
        match self {
            Self::Wkt1(method, parameters) => wkt1(name, method, parameters, earth, mapping),
            Self::ScaledCylinder { longitude, scale } => {
                let parallel = parallel_of_scale(*scale, earth)?;
                let parameters = [
                    ("standard_parallel_1", parallel),
                    ("central_meridian", *longitude),
                ];
                wkt1(name, "Cylindrical_Equal_Area", &parameters, earth, mapping)
            }
            Self::Wkt2(method, parameters) => {
                let mut text = format!(
                    "PROJCRS[\"{name}\",{},CONVERSION[\"unknown\",METHOD[\"{method}\"]",
                    base(earth)?
                );
                for (name, value, unit) in parameters {
                    text.push_str(&format!(",PARAMETER[\"{name}\",{value},{unit}]"));
                }
                text.push_str(&format!(
                    "],CS[Cartesian,2],AXIS[\"(E)\",east,ORDER[1],{METRE}],\
                     AXIS[\"(N)\",north,ORDER[2],{METRE}]]"
                ));
                Ok(text)
            }
        }
    }
}

fn wkt1(
    name: &str,
    method: &str,
    parameters: &[(&'static str, f64)],
    earth: &Earth,
    mapping: &GridMappingAttributes<'_>,
) -> Result<String, String> {
    let base = geographic(earth);
    let mut text = format!("PROJCS[\"{name}\",{base},PROJECTION[\"{method}\"]");
    let shift = [
        ("false_easting", mapping.or_zero("false_easting")?),
        ("false_northing", mapping.or_zero("false_northing")?),
    ];
    for (name, value) in parameters.iter().chain(&shift) {
        text.push_str(&format!(",PARAMETER[\"{name}\",{value}]"));
    }
    text.push_str(",UNIT[\"metre\",1],AXIS[\"Easting\",EAST],AXIS[\"Northing\",NORTH]]");
    Ok(text)
}

/// Returns the square of the eccentricity.
fn eccentricity_squared(earth: &Earth) -> f64 {
    let flattening = match earth.inverse_flattening {
        0.0 => 0.0,
        inverse => 1.0 / inverse,
    };
    flattening * (2.0 - flattening)
}

/// Returns the standard parallel of a cylinder whose scale at the equator is `scale`: the latitude where
/// `scale = cos / sqrt(1 - e^2 sin^2)` (IOGP 373-7-2, Lambert cylindrical equal area).
fn parallel_of_scale(scale: f64, earth: &Earth) -> Result<f64, String> {
    if !(scale > 0.0 && scale <= 1.0) {
        return Err("scale_factor_at_projection_origin of a cylinder is not from 0 to 1".into());
    }
    let square = scale * scale;
    let sine = (1.0 - square) / (1.0 - square * eccentricity_squared(earth));
    Ok(sine.sqrt().asin().to_degrees())
}

impl GridMappingAttributes<'_> {
    /// Returns a system with a rotated pole in WKT 2; WKT 1 cannot express it.
    fn rotated(&self) -> Result<String, String> {
        let parameters = [
            (
                "Grid north pole latitude",
                self.required(&["grid_north_pole_latitude"])?,
            ),
            (
                "Grid north pole longitude",
                self.required(&["grid_north_pole_longitude"])?,
            ),
            (
                "North pole grid longitude",
                self.or_zero("north_pole_grid_longitude")?,
            ),
        ];
        let earth = self.earth()?;
        if earth.meridian.1 != 0.0 {
            return Err("a rotated pole of another prime meridian".into());
        }
        let method = "Pole rotation (netCDF CF convention)";
        let mut text = format!(
            "GEOGCRS[\"Rotated_pole\",{},DERIVINGCONVERSION[\"{method}\",METHOD[\"{method}\"]",
            base(&earth)?
        );
        for (name, value) in parameters {
            text.push_str(&format!(
                ",PARAMETER[\"{name} (netCDF CF convention)\",{value},{ANGLE}]"
            ));
        }
        text.push_str(&format!(
            "],CS[ellipsoidal,2],AXIS[\"latitude\",north,ORDER[1],{ANGLE}],\
             AXIS[\"longitude\",east,ORDER[2],{ANGLE}]]"
        ));
        Ok(text)
    }

    /// Returns the projection of a grid mapping.
    fn projection(&self, name: &str) -> Result<Projection, String> {
        let (method, parameters) = match name {
            "albers_conical_equal_area" => {
                let (first, second) = self.two_parallels()?;
                let parameters = [self.centre()?, both(first, second)].concat();
                ("Albers_Conic_Equal_Area", parameters)
            }
            "azimuthal_equidistant" => ("Azimuthal_Equidistant", self.centre()?),
            "geostationary" => return self.geostationary(),
            "lambert_azimuthal_equal_area" => ("Lambert_Azimuthal_Equal_Area", self.centre()?),
            "lambert_conformal_conic" => return self.lambert_conformal(),
            // The second name is GDAL's.
            "lambert_cylindrical_equal_area" | "cylindrical_equal_area" => {
                return self.cylinder("Cylindrical_Equal_Area");
            }
            "mercator" => return self.cylinder("Mercator_2SP"),
            "oblique_mercator" => ("Hotine_Oblique_Mercator_Azimuth_Center", self.oblique()?),
            "orthographic" => ("Orthographic", self.origin()?),
            "polar_stereographic" => ("Polar_Stereographic", self.polar()?),
            "sinusoidal" => {
                let longitude = ("longitude_of_center", self.longitude()?);
                ("Sinusoidal", vec![longitude])
            }
            "stereographic" => ("Stereographic", self.scaled(AT_ORIGIN)?),
            "transverse_mercator" => {
                let parameters = self.scaled("scale_factor_at_central_meridian")?;
                ("Transverse_Mercator", parameters)
            }
            "vertical_perspective" => return self.vertical_perspective(),
            _ => return Err("no WKT for this grid_mapping_name".into()),
        };
        Ok(Projection::Wkt1(method, parameters))
    }

    fn latitude(&self) -> Result<f64, String> {
        self.or_zero("latitude_of_projection_origin")
    }

    fn longitude(&self) -> Result<f64, String> {
        self.required(&[
            "longitude_of_projection_origin",
            "longitude_of_central_meridian",
        ])
    }

    /// Returns the origin as the centre of a projection.
    fn centre(&self) -> Result<Parameters, String> {
        Ok(vec![
            ("latitude_of_center", self.latitude()?),
            ("longitude_of_center", self.longitude()?),
        ])
    }

    /// Returns the origin as a point of the central meridian.
    fn origin(&self) -> Result<Parameters, String> {
        Ok(vec![
            ("latitude_of_origin", self.latitude()?),
            ("central_meridian", self.longitude()?),
        ])
    }

    /// Returns the origin, and the scale there from the attribute `name`.
    fn scaled(&self, name: &str) -> Result<Parameters, String> {
        let scale = ("scale_factor", self.optional(name)?.unwrap_or(1.0));
        Ok([self.origin()?, vec![scale]].concat())
    }

    /// Returns the standard parallels, at most two; none if no attribute has one. GDAL has two attributes.
    fn parallels(&self) -> Result<Vec<f64>, String> {
        let wrong = || "standard_parallel is not one or two numbers".to_owned();
        if some(self.members, "standard_parallel").is_some() {
            let values = self.numbers("standard_parallel").ok_or_else(wrong)?;
            let is_few = matches!(values.len(), 1 | 2);
            return is_few.then_some(values).ok_or_else(wrong);
        }
        let first = self.optional("standard_parallel_1")?;
        let second = self.optional("standard_parallel_2")?;
        Ok(first.into_iter().chain(second).collect())
    }

    /// Returns the two standard parallels; a single one twice.
    fn two_parallels(&self) -> Result<(f64, f64), String> {
        match self.parallels()?[..] {
            [only] => Ok((only, only)),
            [first, second] => Ok((first, second)),
            _ => Err("no standard_parallel".into()),
        }
    }

    /// Returns the standard parallel of a projection that has one; `None` if no attribute has it.
    fn one_parallel(&self) -> Result<Option<f64>, String> {
        match self.parallels()?[..] {
            [] => Ok(None),
            [only] => Ok(Some(only)),
            [first, second] if first == second => Ok(Some(first)),
            _ => Err("two standard parallels of a projection with one".into()),
        }
    }

    /// Returns a cone with two parallels, or with one parallel or one latitude and a scale there.
    fn lambert_conformal(&self) -> Result<Projection, String> {
        let longitude = ("central_meridian", self.longitude()?);
        let origin = self.optional("latitude_of_projection_origin")?;
        let scale = self.optional(AT_ORIGIN)?.unwrap_or(1.0);
        let (first, second, origin) = match (&self.parallels()?[..], origin) {
            ([first, second], origin) => (*first, *second, origin.unwrap_or(0.0)),
            // pyproj writes a cone of one parallel without its origin, which is the parallel.
            ([only], origin) => (*only, *only, origin.unwrap_or(*only)),
            (_, Some(origin)) => (origin, origin, origin),
            (_, None) => return Err("no standard_parallel".into()),
        };
        if scale != 1.0 && (first != second || first != origin) {
            return Err("a cone with a scale factor and another standard parallel".into());
        }
        let origin = [("latitude_of_origin", origin), longitude];
        Ok(match scale {
            // The origin may differ from the only parallel, which is written twice.
            1.0 => Projection::Wkt1(
                "Lambert_Conformal_Conic_2SP",
                [origin.to_vec(), both(first, second)].concat(),
            ),
            scale => Projection::Wkt1(
                "Lambert_Conformal_Conic_1SP",
                [origin.to_vec(), vec![("scale_factor", scale)]].concat(),
            ),
        })
    }

    /// Returns a cylinder with a standard parallel, or with a scale at the equator. pyproj writes a parallel of
    /// 0 beside the scale of a Mercator.
    fn cylinder(&self, method: &'static str) -> Result<Projection, String> {
        if self.latitude()? != 0.0 {
            return Err("latitude_of_projection_origin is not the equator".into());
        }
        let longitude = self.longitude()?;
        let parallel = match (self.one_parallel()?, self.optional(AT_ORIGIN)?) {
            (None, None) => return Err(format!("no standard_parallel or {AT_ORIGIN}")),
            (Some(parallel), None | Some(1.0)) => parallel,
            (None | Some(0.0), Some(scale)) if method == "Mercator_2SP" => {
                let parameters = vec![("central_meridian", longitude), ("scale_factor", scale)];
                return Ok(Projection::Wkt1("Mercator_1SP", parameters));
            }
            (None | Some(0.0), Some(scale)) => {
                return Ok(Projection::ScaledCylinder { longitude, scale });
            }
            (Some(_), Some(_)) => {
                return Err("both a standard parallel and a scale factor".into());
            }
        };
        let parameters = vec![
            ("standard_parallel_1", parallel),
            ("central_meridian", longitude),
        ];
        Ok(Projection::Wkt1(method, parameters))
    }

    /// Returns the parameters of an oblique Mercator. CF refers to PROJ, where the angle of the grid is the
    /// azimuth of the central line.
    fn oblique(&self) -> Result<Parameters, String> {
        let azimuth = self.required(&["azimuth_of_central_line"])?;
        let latitude = self.required(&["latitude_of_projection_origin"])?;
        let longitude = self.required(&["longitude_of_projection_origin"])?;
        let scale = self.optional(AT_ORIGIN)?.unwrap_or(1.0);
        Ok(vec![
            ("latitude_of_center", latitude),
            ("longitude_of_center", longitude),
            ("azimuth", azimuth),
            ("rectified_grid_angle", azimuth),
            ("scale_factor", scale),
        ])
    }

    /// Returns the parameters of WKT 1, whose origin is the standard parallel. The parallel, if there is one,
    /// says which pole is meant, and comes before a scale factor.
    fn polar(&self) -> Result<Parameters, String> {
        let parallel = self.one_parallel()?;
        let pole = self.optional("latitude_of_projection_origin")?;
        let longitude = self.required(&[
            "straight_vertical_longitude_from_pole",
            "longitude_of_projection_origin",
        ])?;
        // Some writers repeat the parallel as the origin.
        if pole.is_some_and(|pole| pole.abs() != 90.0 && parallel != Some(pole)) {
            return Err("latitude_of_projection_origin is no pole".into());
        }
        let (latitude, scale) = match (parallel, pole) {
            (Some(parallel), _) if parallel == 0.0 || parallel.abs() > 90.0 => {
                return Err("standard_parallel is in neither hemisphere".into());
            }
            (Some(parallel), Some(pole)) if parallel * pole <= 0.0 => {
                return Err("standard_parallel is in the other hemisphere".into());
            }
            (Some(parallel), _) if parallel.abs() < 90.0 => (parallel, 1.0),
            (Some(pole), _) | (None, Some(pole)) => {
                (pole, self.optional(AT_ORIGIN)?.unwrap_or(1.0))
            }
            (None, None) => {
                return Err("no standard_parallel or latitude_of_projection_origin".into());
            }
        };
        Ok(vec![
            ("latitude_of_origin", latitude),
            ("central_meridian", longitude),
            ("scale_factor", scale),
        ])
    }

    fn height(&self) -> Result<f64, String> {
        let height = self.required(&["perspective_point_height"])?;
        match height > 0.0 {
            true => Ok(height),
            false => Err("perspective_point_height is not above the surface".into()),
        }
    }

    /// Returns the view of a satellite above the equator. As in GDAL and PROJ, the sweep axis is y if none is
    /// given; the fixed axis is the other one.
    fn geostationary(&self) -> Result<Projection, String> {
        if self.latitude()? != 0.0 {
            return Err("latitude_of_projection_origin is not the equator".into());
        }
        let axis = |name: &str| match some(self.members, name).map(Json::as_str) {
            None => Ok(None),
            Some(Some("x" | "X")) => Ok(Some(true)),
            Some(Some("y" | "Y")) => Ok(Some(false)),
            Some(_) => Err(format!("{name} is neither x nor y")),
        };
        let sweep = axis("sweep_angle_axis")?;
        let fixed = axis("fixed_angle_axis")?;
        if sweep.is_some() && sweep == fixed {
            return Err("sweep_angle_axis and fixed_angle_axis are one axis".into());
        }
        let (longitude, height) = (self.longitude()?, self.height()?);
        match sweep.or(fixed.map(|is_x| !is_x)) {
            Some(true) => Ok(Projection::Wkt2(
                "Geostationary Satellite (Sweep X)",
                vec![
                    ("Longitude of natural origin", longitude, ANGLE),
                    ("Satellite Height", height, METRE),
                    ("False easting", self.or_zero("false_easting")?, METRE),
                    ("False northing", self.or_zero("false_northing")?, METRE),
                ],
            )),
            _ => Ok(Projection::Wkt1(
                "Geostationary_Satellite",
                vec![
                    ("central_meridian", longitude),
                    ("satellite_height", height),
                ],
            )),
        }
    }

    fn vertical_perspective(&self) -> Result<Projection, String> {
        if self.or_zero("false_easting")? != 0.0 || self.or_zero("false_northing")? != 0.0 {
            return Err("WKT has no false origin of a vertical perspective".into());
        }
        Ok(Projection::Wkt2(
            "Vertical Perspective",
            vec![
                ("Latitude of topocentric origin", self.latitude()?, ANGLE),
                ("Longitude of topocentric origin", self.longitude()?, ANGLE),
                ("Ellipsoidal height of topocentric origin", 0.0, METRE),
                ("Viewpoint height", self.height()?, METRE),
            ],
        ))
    }
}

const AT_ORIGIN: &str = "scale_factor_at_projection_origin";

fn both(first: f64, second: f64) -> Parameters {
    vec![
        ("standard_parallel_1", first),
        ("standard_parallel_2", second),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conventions::crs::Crs;
    use crate::conventions::crs::epsg::{CrsKind, Unit};

    fn of(members: Json) -> Result<String, String> {
        wkt(members.as_object().unwrap(), false)
    }

    #[test]
    fn a_grid_mapping_with_all_its_numbers_is_a_system() {
        let text = of(json!({
            "grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": 0.0,
            "earth_radius": 6_371_007.181,
        }));
        let crs = Crs::of_wkt(&text.unwrap()).unwrap();
        assert_eq!((crs.kind, crs.unit), (CrsKind::Projected, Unit::Metre));
        assert!(crs.wkt.contains("SPHEROID[\"unknown\",6371007.181,0]"));
        let rotated = of(json!({
            "grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25,
            "grid_north_pole_longitude": -162.0, "earth_radius": 6_371_229.0,
        }));
        let crs = Crs::of_wkt(&rotated.unwrap()).unwrap();
        assert_eq!(crs.kind, CrsKind::RotatedPole);
    }

    #[test]
    fn a_sinusoidal_grid_mapping_has_wkt_for_gdal() {
        let of = |members: Json| wkt_for_gdal(members.as_object().unwrap());
        let sinusoidal = json!({
            "grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": 0.0,
            "earth_radius": 6_371_007.181,
        });
        assert!(of(sinusoidal.clone()).unwrap().contains("Sinusoidal"));
        for (name, value) in [
            ("crs_wkt", "PROJCS[]"),
            ("grid_mapping_name", "polar_stereographic"),
            ("earth_radius", "unknown"),
        ] {
            let mut other = sinusoidal.clone();
            other[name] = value.into();
            assert_eq!(of(other), None, "{name}");
        }
    }

    #[test]
    fn missing_parameters_of_a_grid_mapping_are_not_guessed() {
        let sphere = 6_371_000.0;
        for members in [
            json!({}),
            json!({"grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": 0.0}),
            json!({"grid_mapping_name": "sinusoidal", "earth_radius": sphere}),
            json!({"grid_mapping_name": "geostationary", "earth_radius": sphere}),
            json!({"grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": "east",
                   "earth_radius": sphere}),
            json!({"grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": 0,
                   "earth_radius": -1}),
            json!({"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6_378_137.0}),
            json!({"grid_mapping_name": "polar_stereographic", "earth_radius": sphere,
                   "latitude_of_projection_origin": 90, "standard_parallel": -71,
                   "straight_vertical_longitude_from_pole": 0}),
        ] {
            assert!(of(members.clone()).is_err(), "{members}");
        }
    }
}
