//! Where the pixels of an image are: from conventions of metadata to one affine transform.

use serde_json::{Map, Value as Json};

use super::crs::Crs;
use super::raster::Raster;
use super::scene::{Notes, Scene, number, short, some};
use super::side::Side;
use crate::view::content::NoContent;
use crate::view::node::ViewNode;

/// `x = a * column + b * row + c`, `y = d * column + e * row + f`, from the corner of the first
/// pixel, or from its centre where pixels are points.
pub(super) type Affine = [f64; 6];

/// What is known of the place of an image.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Place {
    pub(super) affine: Option<Affine>,
    pub(super) is_point: bool,
    pub(super) crs: Option<Crs>,
}

impl Place {
    /// Whether a coarser level lies on the image, but for one of its pixels, as far as the layout
    /// of the pyramid says.
    pub(super) fn covers(&self, fine: &Raster, coarse: &Raster, entry: &Map<String, Json>) -> bool {
        let said = some(entry, "spatial:transform").and_then(affine);
        let Some((one, other)) = self.affine.zip(said) else {
            return true;
        };
        let [a, b, _, d, e, _] = other.map(f64::abs);
        corners(&one, fine)
            .zip(corners(&other, coarse))
            .all(|(one, other)| {
                (one.0 - other.0).abs() <= (a + b) * 1.001
                    && (one.1 - other.1).abs() <= (d + e) * 1.001
            })
    }
}

/// The places of the corners of an image.
fn corners(affine: &Affine, raster: &Raster) -> impl Iterator<Item = (f64, f64)> + use<> {
    let (width, height) = (count(raster.width), count(raster.height));
    let [a, b, c, d, e, f] = *affine;
    [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height)]
        .into_iter()
        .map(move |(column, row)| (a * column + b * row + c, d * column + e * row + f))
}

/// Finds the place of an image.
///
/// # Errors
/// Those of the store: that a place was not found because of one is not said to be none.
pub(super) fn find(
    scene: &Scene<'_>,
    raster: &Raster,
    notes: &mut Notes,
) -> Result<Place, NoContent> {
    let mut place = Place::default();
    let grid_mapping = grid_mapping(scene, notes)?;
    place.affine = said(scene, raster, notes);
    if place.affine.is_some() {
        match scene.find("spatial:registration").map(Json::as_str) {
            None | Some(Some("pixel")) => {}
            Some(Some("node")) => place.is_point = true,
            _ => {
                notes.add("spatial:registration is neither pixel nor node: no place");
                place.affine = None;
            }
        }
    }
    let needs_numbers = place.affine.is_none();
    let (mut across, mut down) = (Side::default(), Side::default());
    if needs_numbers || grid_mapping.is_some() {
        let name = raster.across.as_deref();
        across = Side::of(scene, name, raster.width, needs_numbers, notes)?;
        let name = raster.down.as_deref();
        down = Side::of(scene, name, raster.height, needs_numbers, notes)?;
    }
    if needs_numbers {
        let members = grid_mapping
            .as_ref()
            .and_then(|node| node.metadata().attributes().ok());
        place.affine = computed(&across, &down, raster, members, notes);
    }
    place.crs = system(scene, grid_mapping.as_deref(), (&across, &down), notes);
    // Where a transform was said it is that of the system, whatever the coordinates are.
    if let Some(crs) = place.crs.filter(|_| needs_numbers)
        && let Some(why) = [&across, &down]
            .into_iter()
            .find_map(|side| side.contradicts(crs))
    {
        notes.add(format!("EPSG:{} is left out: {why}", crs.code));
        place.crs = None;
    }
    if place.crs.is_none() && scene.own("grid_mapping").is_none() {
        notes.add("no coordinate reference system is known");
    }
    if place.affine.is_none() {
        notes.add("no place is known: neither a transform nor coordinates of regular distances");
    }
    Ok(place)
}

/// The transform that the convention `spatial:` says (zarr-conventions/spatial, `spatial:transform`).
fn said(scene: &Scene<'_>, raster: &Raster, notes: &mut Notes) -> Option<Affine> {
    for members in scene.near() {
        let Some(value) = some(members, "spatial:transform") else {
            continue;
        };
        if let Some(kind) = some(members, "spatial:transform_type")
            && kind.as_str() != Some("affine")
        {
            notes.add("spatial:transform is not affine");
        } else if some(members, "spatial:shape").is_some_and(|shape| !is_shape(shape, raster)) {
            notes.add("spatial:transform is of another spatial:shape");
        } else if let Some(affine) = affine(value) {
            return Some(affine);
        } else {
            notes.add("spatial:transform is not six numbers of an invertible transform");
        }
    }
    if scene.own("spatial:bbox").is_some() {
        notes.add("spatial:bbox alone does not say which row is the first");
    }
    None
}

fn is_shape(shape: &Json, raster: &Raster) -> bool {
    let sides = shape.as_array().map(Vec::as_slice);
    matches!(sides, Some([.., height, width])
        if number(height) == Some(count(raster.height)) && number(width) == Some(count(raster.width)))
}

#[expect(clippy::cast_precision_loss, reason = "at most 2^31")]
fn count(length: u64) -> f64 {
    length as f64
}

fn affine(value: &Json) -> Option<Affine> {
    let values = value.as_array()?;
    // Some write the whole matrix.
    let values = match values.get(6..)? {
        [] => values.get(..6)?,
        [g, h, i] => {
            let last = (number(g), number(h), number(i));
            values
                .get(..6)
                .filter(|_| last == (Some(0.0), Some(0.0), Some(1.0)))?
        }
        _ => return None,
    };
    let values: Option<Vec<f64>> = values.iter().map(number).collect();
    invertible(Affine::try_from(values?).ok()?)
}

fn invertible(affine: Affine) -> Option<Affine> {
    let [a, b, c, d, e, f] = affine;
    let is_finite = [a, b, c, d, e, f].iter().all(|value| value.is_finite());
    let determinant = a * e - b * d;
    (is_finite && determinant != 0.0 && determinant.is_finite()).then_some(affine)
}

/// The node that `grid_mapping` names (CF 1.11, 5.6).
fn grid_mapping(
    scene: &Scene<'_>,
    notes: &mut Notes,
) -> Result<Option<std::sync::Arc<ViewNode>>, NoContent> {
    let Some(value) = scene.own("grid_mapping") else {
        return Ok(None);
    };
    let words = value.as_str().map(|text| text.split_whitespace());
    let Some(words) = words else {
        notes.add("grid_mapping is no text");
        return Ok(None);
    };
    let names: Vec<&str> = words.clone().filter(|word| word.ends_with(':')).collect();
    let name = match (&names[..], words.clone().next()) {
        ([], Some(name)) => name,
        ([name], _) => name.trim_end_matches(':'),
        _ => {
            notes.add("grid_mapping names several systems or none");
            return Ok(None);
        }
    };
    let Some(node) = scene.by_proximity(name)? else {
        notes.add(format!("there is no grid mapping {}", short(name)));
        return Ok(None);
    };
    if let Some(why) = node.broken() {
        notes.add(format!("grid mapping {}: {why}", short(name)));
        return Ok(None);
    }
    Ok(Some(node))
}

/// The transform of the coordinates of pixel centres, or of `GeoTransform` (GDAL: the netCDF
/// driver) where it says the same or there are none.
fn computed(
    across: &Side,
    down: &Side,
    raster: &Raster,
    grid_mapping: Option<&Map<String, Json>>,
    notes: &mut Notes,
) -> Option<Affine> {
    let value = grid_mapping.and_then(|members| some(members, "GeoTransform"));
    let geo_transform = value.and_then(geo_transform);
    if value.is_some() && geo_transform.is_none() {
        notes.add("GeoTransform is not six numbers of an invertible transform");
    }
    let coordinates = across
        .steps
        .zip(down.steps)
        .and_then(|((x, dx), (y, dy))| invertible([dx, 0.0, x - dx / 2.0, 0.0, dy, y - dy / 2.0]));
    match (coordinates, geo_transform) {
        (Some(coordinates), Some(said)) => {
            // It has the digits that coordinates in single precision have not.
            if is_same(&coordinates, &said, raster) {
                return Some(said);
            }
            notes.add("GeoTransform is not what the coordinates say: they are taken");
            Some(coordinates)
        }
        (None, Some(_)) if across.is_there || down.is_there => {
            notes.add("GeoTransform is left out: the coordinates do not say it");
            None
        }
        (coordinates, said) => coordinates.or(said),
    }
}

/// Whether all corners are at the same places, but for a small part of a pixel.
fn is_same(one: &Affine, other: &Affine, raster: &Raster) -> bool {
    let [a, b, _, d, e, _] = one.map(f64::abs);
    corners(one, raster)
        .zip(corners(other, raster))
        .all(|(one, other)| {
            (one.0 - other.0).abs() <= 0.05 * (a + b) && (one.1 - other.1).abs() <= 0.05 * (d + e)
        })
}

/// `c a b f d e`, as a text or a list.
fn geo_transform(value: &Json) -> Option<Affine> {
    let values: Option<Vec<f64>> = match value {
        Json::String(text) => text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect(),
        Json::Array(values) => values.iter().map(number).collect(),
        _ => None,
    };
    let [c, a, b, f, d, e] = <[f64; 6]>::try_from(values?).ok()?;
    invertible([a, b, c, d, e, f])
}

/// The coordinate reference system.
fn system(
    scene: &Scene<'_>,
    grid_mapping: Option<&ViewNode>,
    sides: (&Side, &Side),
    notes: &mut Notes,
) -> Option<Crs> {
    // zarr-conventions/geo-proj.
    let names = ["proj:code", "proj:wkt2", "proj:projjson"];
    let is_said =
        |members: &Map<String, Json>| names.iter().any(|name| some(members, name).is_some());
    if let Some(members) = scene.near_or_pyramid().find(|members| is_said(members)) {
        return one_of(members, &names, notes);
    }
    if let Some((key, _)) = scene.above().find(|(_, members)| is_said(members)) {
        notes.add(format!(
            "the system of the group {key} is not inherited: neither is this one of its arrays nor \
             of its pyramid"
        ));
    }
    // GDAL: the Zarr driver, "SRS encoding".
    if let Some(value) = scene.own("_CRS") {
        return match value {
            Json::Object(members) => one_of(members, &["url", "wkt", "projjson"], notes),
            _ => {
                notes.add("_CRS is no object");
                None
            }
        };
    }
    let node = grid_mapping?;
    let Ok(members) = node.metadata().attributes() else {
        notes.add("the attributes of the grid mapping are not known");
        return None;
    };
    let names = ["crs_wkt", "spatial_ref", "epsg_code"];
    if names.iter().any(|name| some(members, name).is_some()) {
        return one_of(members, &names, notes);
    }
    let name = some(members, "grid_mapping_name").and_then(Json::as_str);
    if name != Some("latitude_longitude") {
        notes.add("the grid mapping has no code of EPSG");
        return None;
    }
    let figure = ["semi_major_axis", "inverse_flattening"];
    let is_figure = figure.iter().all(|name| some(members, name).is_some());
    let is_in_degrees = sides.0.is_in_degrees() && sides.1.is_in_degrees();
    match is_wgs84(members) && (is_figure || is_in_degrees) {
        true => Some(Crs::wgs84()),
        false => {
            notes.add("latitudes and longitudes that are not known to be of WGS 84");
            None
        }
    }
}

/// The system that the members say with one voice.
fn one_of(members: &Map<String, Json>, names: &[&str], notes: &mut Notes) -> Option<Crs> {
    let mut found: Option<Crs> = None;
    let mut reasons = Vec::new();
    for name in names {
        let crs = match some(members, name) {
            None => continue,
            Some(Json::String(text)) => Crs::of_text(text),
            Some(value @ Json::Object(_)) => Crs::of_projjson(value),
            Some(Json::Number(code)) if *name == "epsg_code" => {
                Crs::of_text(&format!("EPSG:{code}"))
            }
            Some(_) => Err("neither a text nor an object".to_owned()),
        };
        match (crs, found) {
            (Ok(crs), Some(other)) if crs != other => {
                notes.add(format!(
                    "EPSG:{} and EPSG:{}: no system is written",
                    other.code, crs.code
                ));
                return None;
            }
            (Ok(crs), _) => found = Some(crs),
            (Err(why), _) => reasons.push(format!("{name}: {why}")),
        }
    }
    if found.is_none() {
        notes.add(format!(
            "no coordinate reference system: {}",
            reasons.join("; ")
        ));
    }
    found
}

/// Whether nothing that CF says of a figure of the Earth (CF 1.11, Appendix F) is another one than
/// that of WGS 84.
fn is_wgs84(members: &Map<String, Json>) -> bool {
    let is_near = |name: &str, expected: f64, most: f64| {
        let value = some(members, name);
        value
            .is_none_or(|value| number(value).is_some_and(|value| (value - expected).abs() <= most))
    };
    let is_named = |name: &str| {
        let text = some(members, name).map(|value| value.as_str().unwrap_or("?"));
        text.is_none_or(|text| {
            let text: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
            let text = text.to_ascii_uppercase();
            [
                "WGS84",
                "WGS1984",
                "WORLDGEODETICSYSTEM1984",
                "GREENWICH",
                "UNKNOWN",
                "",
            ]
            .contains(&&text[..])
        })
    };
    is_near("semi_major_axis", 6_378_137.0, 1e-3)
        && is_near("semi_minor_axis", 6_356_752.314_245, 1e-3)
        && is_near("inverse_flattening", 298.257_223_563, 1e-7)
        && is_near("longitude_of_prime_meridian", 0.0, 0.0)
        && some(members, "earth_radius").is_none()
        && some(members, "towgs84").is_none()
        && [
            "horizontal_datum_name",
            "geographic_crs_name",
            "reference_ellipsoid_name",
            "prime_meridian_name",
        ]
        .iter()
        .all(|name| is_named(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn transforms_are_six_numbers_that_can_be_inverted() {
        let good = [10.0, 0.0, 500_000.0, 0.0, -10.0, 5e6];
        assert_eq!(affine(&json!([10, 0, 500_000, 0, -10, 5e6])), Some(good));
        assert_eq!(
            affine(&json!([10, 0, 500_000, 0, -10, 5e6, 0, 0, 1])),
            Some(good)
        );
        for wrong in [
            json!([10, 0, 0, 0, -10]),
            json!([10, 0, 0, 0, 0, 0]),
            json!([10, 0, "0", 0, -10, 0]),
            json!([10, 0, 0, 0, -10, 0, 0, 1, 1]),
            json!("10"),
        ] {
            assert_eq!(affine(&wrong), None, "{wrong}");
        }
        assert_eq!(geo_transform(&json!("500000 10 0 5e6 0 -10")), Some(good));
        assert_eq!(geo_transform(&json!("500000 10 0 nan 0 -10")), None);
        assert_eq!(geo_transform(&json!("1 2")), None);
    }

    #[test]
    fn only_what_is_not_contradicted_is_wgs_84() {
        let check = |members: Json| is_wgs84(members.as_object().unwrap());
        assert!(check(json!({})));
        assert!(check(
            json!({"semi_major_axis": 6_378_137.0, "inverse_flattening": 298.257_223_563})
        ));
        assert!(check(json!({"horizontal_datum_name": "WGS_1984"})));
        for other in [
            json!({"earth_radius": 6_371_229.0}),
            json!({"inverse_flattening": 298.257_222_101}),
            json!({"semi_major_axis": "6378137"}),
            json!({"longitude_of_prime_meridian": 2.3}),
            json!({"prime_meridian_name": "Paris"}),
        ] {
            assert!(!check(other.clone()), "{other}");
        }
    }
}
