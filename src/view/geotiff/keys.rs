//! The tags of GeoTIFF: transform and coordinate reference system.

use crate::view::georef::epsg::CrsKind;
use crate::view::georef::transform::Georef;
use crate::view::tiff::{Values, tag};

/// OGC 19-008r4, 7.1.2 (the key directory) and Annex B.
mod key {
    pub(super) const MODEL_TYPE: u16 = 1024;
    pub(super) const RASTER_TYPE: u16 = 1025;
    pub(super) const GEODETIC_CRS: u16 = 2048;
    pub(super) const PROJECTED_CRS: u16 = 3072;
}

/// The tags of a georeference.
pub(super) fn fields(place: &Georef) -> Vec<(u16, Values)> {
    let mut fields = Vec::new();
    // Readers warn about keys without a system: without one, no key marks pixels as points, and the
    // transform is that of the corner.
    let crs = place.crs.as_ref();
    let code = crs.and_then(|crs| Some((crs.kind, crs.code?)));
    let affine = match code {
        Some(_) => place.transform,
        None => place.corner_transform(),
    };
    if let Some([a, b, c, d, e, f]) = affine {
        // OGC 19-008r4, 7.3.3: a scale needs a north-up image.
        if b == 0.0 && d == 0.0 && a > 0.0 && e < 0.0 {
            fields.push((tag::MODEL_PIXEL_SCALE, Values::Doubles(vec![a, -e, 0.0])));
            let tiepoint = vec![0.0, 0.0, 0.0, c, f, 0.0];
            fields.push((tag::MODEL_TIEPOINT, Values::Doubles(tiepoint)));
        } else {
            let mut matrix = vec![a, b, 0.0, c, d, e, 0.0, f];
            matrix.extend([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
            fields.push((tag::MODEL_TRANSFORMATION, Values::Doubles(matrix)));
        }
    }
    let Some((kind, code)) = code else {
        return fields;
    };
    let (model, name) = match kind {
        CrsKind::Projected => (1, key::PROJECTED_CRS),
        CrsKind::Geographic | CrsKind::RotatedPole => (2, key::GEODETIC_CRS),
    };
    let raster = if place.is_point { 2 } else { 1 };
    let keys = [
        (key::MODEL_TYPE, model),
        (key::RASTER_TYPE, raster),
        (name, code),
    ];
    // Version 1, revision 1.1, number of keys; each key: id, no tag, one value.
    let mut directory = vec![1, 1, 1, 3];
    for (name, value) in keys {
        directory.extend([name, 0, 1, value]);
    }
    fields.push((tag::GEO_KEY_DIRECTORY, Values::Shorts(directory)));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::georef::crs::Crs;

    fn tags(place: &Georef) -> Vec<u16> {
        fields(place).into_iter().map(|(tag, _)| tag).collect()
    }

    #[test]
    fn rasters_that_are_not_north_up_have_a_matrix() {
        let place = |transform| Georef {
            transform: Some(transform),
            ..Georef::default()
        };
        let north_up = place([2.0, 0.0, 5.0, 0.0, -3.0, 7.0]);
        assert_eq!(
            tags(&north_up),
            [tag::MODEL_PIXEL_SCALE, tag::MODEL_TIEPOINT]
        );
        for affine in [
            [2.0, 0.0, 5.0, 0.0, 3.0, 7.0],
            [-2.0, 0.0, 5.0, 0.0, -3.0, 7.0],
            [2.0, 0.1, 5.0, 0.0, -3.0, 7.0],
        ] {
            let place = place(affine);
            assert_eq!(tags(&place), [tag::MODEL_TRANSFORMATION]);
        }
        assert!(tags(&Georef::default()).is_empty());
    }

    #[test]
    fn points_without_a_system_use_the_corner() {
        let place = Georef {
            transform: Some([2.0, 0.0, 5.0, 0.0, -4.0, 7.0]),
            is_point: true,
            crs: None,
        };
        let tiepoint = vec![0.0, 0.0, 0.0, 4.0, 9.0, 0.0];
        let scale = vec![2.0, 4.0, 0.0];
        assert_eq!(
            fields(&place),
            [
                (tag::MODEL_PIXEL_SCALE, Values::Doubles(scale)),
                (tag::MODEL_TIEPOINT, Values::Doubles(tiepoint)),
            ]
        );
    }

    #[test]
    fn keys_are_in_order_and_have_the_code() {
        let place = Georef {
            transform: None,
            is_point: true,
            crs: Crs::of_text("EPSG:32633").ok(),
        };
        let expected = [1, 1, 1, 3, 1024, 0, 1, 1, 1025, 0, 1, 2, 3072, 0, 1, 32633];
        assert_eq!(
            fields(&place),
            [(tag::GEO_KEY_DIRECTORY, Values::Shorts(expected.to_vec()))]
        );
    }
}
