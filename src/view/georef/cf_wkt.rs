//! WKT of CF grid mappings (CF 1.11, Appendix F) that have all required parameters.

use serde_json::{Map, Value as Json};

use super::context::{number, some};
use crate::view::cf;

/// Returns the WKT of a grid mapping, with coordinates in metres.
///
/// # Errors
/// Returns why the grid mapping has no WKT.
pub(in crate::view) fn wkt(members: &Map<String, Json>) -> Result<String, String> {
    let name = some(members, "grid_mapping_name").and_then(Json::as_str);
    let mapping = GridMappingAttributes(members);
    match name.ok_or("no grid_mapping_name")? {
        "latitude_longitude" => mapping.geographic(),
        "rotated_latitude_longitude" => mapping.rotated(),
        name => mapping.projected(name),
    }
}

const DEGREE: &str = "0.0174532925199433";

/// The attributes of a grid mapping.
struct GridMappingAttributes<'a>(&'a Map<String, Json>);

/// Semi-major axis and inverse flattening (0 for a sphere).
type Ellipsoid = (f64, f64);

impl GridMappingAttributes<'_> {
    /// Returns the number of an attribute; `None` if the mapping has no such attribute.
    fn optional(&self, name: &str) -> Result<Option<f64>, String> {
        match some(self.0, name).map(cf::one_of_list) {
            None => Ok(None),
            Some(value) => number(value)
                .map(Some)
                .ok_or_else(|| format!("{name} is no number")),
        }
    }

    fn or_zero(&self, name: &str) -> Result<f64, String> {
        Ok(self.optional(name)?.unwrap_or(0.0))
    }

    /// Returns the number of the first of these attributes that exists.
    fn required(&self, names: &[&str]) -> Result<f64, String> {
        for name in names {
            if let Some(value) = self.optional(name)? {
                return Ok(value);
            }
        }
        Err(format!("no {}", names.join(" or ")))
    }

    /// Returns the two standard parallels; a single one twice.
    fn parallels(&self) -> Result<(f64, f64), String> {
        let none = "standard_parallel is not one or two numbers";
        let value = some(self.0, "standard_parallel").ok_or(none)?;
        let list = value.as_array().map(Vec::as_slice);
        let values: Option<Vec<f64>> = (list.unwrap_or(std::slice::from_ref(value)).iter())
            .map(number)
            .collect();
        match values.as_deref() {
            Some([only]) => Ok((*only, *only)),
            Some([first, second]) => Ok((*first, *second)),
            _ => Err(none.into()),
        }
    }

    /// Returns the figure of the Earth.
    fn figure(&self) -> Result<Ellipsoid, String> {
        if some(self.0, "towgs84").is_some() {
            return Err("towgs84 is not written".into());
        }
        if let Some(radius) = self.optional("earth_radius")? {
            let others = ["semi_minor_axis", "inverse_flattening"];
            if others.iter().any(|name| some(self.0, name).is_some()) {
                return Err("both a radius and an ellipsoid".into());
            }
            return checked((radius, 0.0));
        }
        let major = self
            .optional("semi_major_axis")?
            .ok_or("the figure of the Earth is not known")?;
        let minor = self.optional("semi_minor_axis")?;
        let flattening = match (self.optional("inverse_flattening")?, minor) {
            (Some(inverse), _) => inverse,
            (None, Some(minor)) if minor == major => 0.0,
            (None, Some(minor)) => major / (major - minor),
            (None, None) => return Err("the figure of the Earth is not known".into()),
        };
        checked((major, flattening))
    }

    fn datum(&self) -> Result<String, String> {
        let names = ["horizontal_datum_name", "geographic_crs_name"];
        let name = names.iter().find_map(|name| some(self.0, name)?.as_str());
        let is_plain = |name: &&str| {
            name.len() <= 100
                && !name
                    .chars()
                    .any(|c| c.is_control() || "\"[](),".contains(c))
        };
        Ok(name.filter(is_plain).unwrap_or("unknown").to_owned())
    }

    /// Returns a geographic system in WKT 1.
    fn geographic(&self) -> Result<String, String> {
        let (major, flattening) = self.figure()?;
        let meridian = self.or_zero("longitude_of_prime_meridian")?;
        let named = some(self.0, "prime_meridian_name").and_then(Json::as_str);
        if meridian == 0.0 && named.is_some_and(|name| !name.eq_ignore_ascii_case("greenwich")) {
            return Err("a prime meridian without its longitude".into());
        }
        let meridian_name = if meridian == 0.0 {
            "Greenwich"
        } else {
            "unknown"
        };
        let datum = self.datum()?;
        Ok(format!(
            "GEOGCS[\"unknown\",DATUM[\"{datum}\",SPHEROID[\"unknown\",{major},{flattening}]],\
             PRIMEM[\"{meridian_name}\",{meridian}],UNIT[\"degree\",{DEGREE}]]"
        ))
    }

    /// Returns a system with a rotated pole in WKT 2; WKT 1 cannot express it.
    fn rotated(&self) -> Result<String, String> {
        let (major, flattening) = self.figure()?;
        if self.or_zero("longitude_of_prime_meridian")? != 0.0 {
            return Err("a rotated pole of another prime meridian".into());
        }
        let datum = self.datum()?;
        let unit = format!("ANGLEUNIT[\"degree\",{DEGREE}]");
        let method = "Pole rotation (netCDF CF convention)";
        let mut text = format!(
            "GEOGCRS[\"Rotated_pole\",BASEGEOGCRS[\"unknown\",DATUM[\"{datum}\",\
             ELLIPSOID[\"unknown\",{major},{flattening},LENGTHUNIT[\"metre\",1]]],\
             PRIMEM[\"Greenwich\",0,{unit}]],\
             DERIVINGCONVERSION[\"{method}\",METHOD[\"{method}\"]"
        );
        for (name, value) in [
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
        ] {
            text.push_str(&format!(
                ",PARAMETER[\"{name} (netCDF CF convention)\",{value},{unit}]"
            ));
        }
        text.push_str(&format!(
            "],CS[ellipsoidal,2],AXIS[\"latitude\",north,ORDER[1],{unit}],\
             AXIS[\"longitude\",east,ORDER[2],{unit}]]"
        ));
        Ok(text)
    }

    /// Returns a projected system in WKT 1.
    fn projected(&self, name: &str) -> Result<String, String> {
        let (method, parameters) = self.method(name)?;
        let base = self.geographic()?;
        let mut text = format!("PROJCS[\"unknown\",{base},PROJECTION[\"{method}\"]");
        let shift = ["false_easting", "false_northing"];
        let parameters = parameters.into_iter().map(Ok);
        let shift = shift.map(|name| Ok::<_, String>((name, self.or_zero(name)?)));
        for parameter in parameters.chain(shift) {
            let (name, value) = parameter?;
            text.push_str(&format!(",PARAMETER[\"{name}\",{value}]"));
        }
        text.push_str(",UNIT[\"metre\",1],AXIS[\"Easting\",EAST],AXIS[\"Northing\",NORTH]]");
        Ok(text)
    }

    /// Returns the method of a projection and its parameters.
    fn method(&self, name: &str) -> Result<(&'static str, Parameters), String> {
        Ok(match name {
            "albers_conical_equal_area" => {
                let parallels = self.two_parallels()?;
                let parameters = [self.centre()?, parallels].concat();
                ("Albers_Conic_Equal_Area", parameters)
            }
            "azimuthal_equidistant" => ("Azimuthal_Equidistant", self.centre()?),
            "lambert_azimuthal_equal_area" => ("Lambert_Azimuthal_Equal_Area", self.centre()?),
            "lambert_conformal_conic" => {
                // With one parallel, the origin may differ from the parallel: the parallel is written twice.
                let parallels = self.two_parallels()?;
                let parameters = [self.origin()?, parallels].concat();
                ("Lambert_Conformal_Conic_2SP", parameters)
            }
            "lambert_cylindrical_equal_area" => ("Cylindrical_Equal_Area", self.one_parallel()?),
            "mercator" => match self.optional("scale_factor_at_projection_origin")? {
                Some(scale) => {
                    let longitude = ("central_meridian", self.longitude()?);
                    ("Mercator_1SP", vec![longitude, ("scale_factor", scale)])
                }
                None => ("Mercator_2SP", self.one_parallel()?),
            },
            "orthographic" => ("Orthographic", self.origin()?),
            "polar_stereographic" => ("Polar_Stereographic", self.polar()?),
            "sinusoidal" => {
                let longitude = ("longitude_of_center", self.longitude()?);
                ("Sinusoidal", vec![longitude])
            }
            "stereographic" => {
                let parameters = self.scaled("scale_factor_at_projection_origin")?;
                ("Stereographic", parameters)
            }
            "transverse_mercator" => {
                let parameters = self.scaled("scale_factor_at_central_meridian")?;
                ("Transverse_Mercator", parameters)
            }
            _ => return Err("no WKT for this grid_mapping_name".into()),
        })
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
        let scale = ("scale_factor", self.required(&[name])?);
        Ok([self.origin()?, vec![scale]].concat())
    }

    fn one_parallel(&self) -> Result<Parameters, String> {
        Ok(vec![
            ("standard_parallel_1", self.parallels()?.0),
            ("central_meridian", self.longitude()?),
        ])
    }

    fn two_parallels(&self) -> Result<Parameters, String> {
        let (first, second) = self.parallels()?;
        Ok(vec![
            ("standard_parallel_1", first),
            ("standard_parallel_2", second),
        ])
    }

    /// Returns the parameters of WKT 1, whose origin is the standard parallel.
    fn polar(&self) -> Result<Parameters, String> {
        let pole = self.required(&["latitude_of_projection_origin"])?;
        if pole.abs() != 90.0 {
            return Err("latitude_of_projection_origin is no pole".into());
        }
        let longitude = self.required(&[
            "straight_vertical_longitude_from_pole",
            "longitude_of_projection_origin",
        ])?;
        let (latitude, scale) = match self.optional("scale_factor_at_projection_origin")? {
            Some(scale) => (pole, scale),
            None => (self.parallels()?.0, 1.0),
        };
        if latitude * pole <= 0.0 {
            return Err("standard_parallel is in the other hemisphere".into());
        }
        Ok(vec![
            ("latitude_of_origin", latitude),
            ("central_meridian", longitude),
            ("scale_factor", scale),
        ])
    }
}

type Parameters = Vec<(&'static str, f64)>;

fn checked((major, flattening): Ellipsoid) -> Result<Ellipsoid, String> {
    let is_figure = major > 0.0 && (flattening == 0.0 || flattening > 1.0);
    is_figure
        .then_some((major, flattening))
        .ok_or_else(|| "the figure of the Earth is none".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::view::georef::crs::Crs;
    use crate::view::georef::epsg::{CrsKind, Unit};

    fn of(members: Json) -> Result<String, String> {
        wkt(members.as_object().unwrap())
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
    fn missing_parameters_of_a_grid_mapping_are_not_guessed() {
        let sphere = 6_371_000.0;
        for members in [
            json!({}),
            json!({"grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": 0.0}),
            json!({"grid_mapping_name": "sinusoidal", "earth_radius": sphere}),
            json!({"grid_mapping_name": "geostationary", "earth_radius": sphere}),
            json!({"grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": "0",
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
