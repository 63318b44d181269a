//! Tests of OME-Zarr, with the examples of its specification.

use serde_json::json;

use super::*;

fn map(value: Json) -> Map<String, Json> {
    value.as_object().unwrap().clone()
}

/// Returns spacing and origin of each axis.
fn places(level: &Level) -> Vec<Option<(f64, f64)>> {
    level
        .axes
        .iter()
        .map(|axis| Some((axis.spacing?, axis.origin?)))
        .collect()
}

fn of(image: Json, rank: usize) -> Level {
    let image = map(image);
    let entry = image["datasets"][0].as_object().unwrap().clone();
    level(&image, &entry, rank)
}

fn names(level: &Level) -> Vec<&str> {
    level
        .axes
        .iter()
        .map(|axis| axis.name.as_deref().unwrap_or("-"))
        .collect()
}

#[test]
fn each_version_has_axes() {
    let datasets = json!([{"path": "0"}]);
    let level = of(json!({"datasets": datasets}), 5);
    assert_eq!(names(&level), ["t", "c", "z", "y", "x"]);
    assert_eq!(
        (level.axes[0].kind, level.axes[1].kind),
        (AxisKind::Time, AxisKind::Channel)
    );
    assert!(of(json!({"datasets": datasets}), 3).axes.is_empty());
    let level = of(json!({"datasets": datasets, "axes": ["z", "y", "x"]}), 3);
    assert_eq!(
        (names(&level), places(&level)),
        (vec!["z", "y", "x"], vec![None; 3])
    );
    let axes = json!([{"name": "a", "type": "time", "unit": "second"}, {"name": "b"}]);
    let level = of(json!({"datasets": datasets, "axes": axes}), 2);
    assert_eq!(
        (level.axes[0].kind, level.axes[1].kind),
        (AxisKind::Time, AxisKind::Space)
    );
    let level = of(json!({"datasets": datasets, "axes": axes}), 3);
    assert!(level.axes.is_empty() && level.notes[0].contains("2 axes and the array 3"));
}

#[test]
fn scales_of_levels_and_images_are_applied_in_order() {
    let image = json!({
        "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
        "datasets": [{"path": "0", "coordinateTransformations": [
            {"type": "scale", "scale": [2, 3]}, {"type": "translation", "translation": [10, 20]}]}],
        "coordinateTransformations": [{"type": "scale", "scale": [10, 100]}],
    });
    assert_eq!(
        places(&of(image.clone(), 2)),
        [Some((20.0, 100.0)), Some((300.0, 2000.0))]
    );
    // SpatialData writes transforms to named systems, which are not those of the image.
    let mut other = image;
    other["coordinateTransformations"][0]["output"] = json!({"name": "global"});
    assert_eq!(
        places(&of(other, 2)),
        [Some((2.0, 10.0)), Some((3.0, 20.0))]
    );
}

/// An image of 0.6 with this transform of its only level.
fn image_06(transform: Json) -> Json {
    let axis = |name: &str| json!({"name": name, "type": "space", "unit": "micrometer"});
    let mut transform = transform;
    transform["input"] = json!({"path": "s0"});
    transform["output"] = json!({"name": "intrinsic"});
    json!({
        "coordinateSystems": [
            {"name": "other", "axes": [axis("a"), axis("b"), axis("c")]},
            {"name": "intrinsic", "axes": [axis("z"), axis("y"), axis("x")]},
        ],
        "datasets": [{"path": "s0", "coordinateTransformations": [transform]}],
        "coordinateTransformations": [{"type": "scale", "scale": [9, 9, 9],
            "input": {"name": "intrinsic"}, "output": {"name": "other"}}],
    })
}

#[test]
fn levels_of_0_6_use_the_system_of_their_output() {
    let transforms = json!([{"type": "scale", "scale": [2.0, 0.5, 0.25]},
        {"type": "translation", "translation": [10, 20, 30]}]);
    let level = of(
        image_06(json!({"type": "sequence", "transformations": transforms})),
        3,
    );
    assert_eq!(names(&level), ["z", "y", "x"]);
    assert_eq!(
        places(&level),
        [Some((2.0, 10.0)), Some((0.5, 20.0)), Some((0.25, 30.0))]
    );
    assert_eq!(level.axes[0].metres(), Some(1e-6));
    assert_eq!(
        level.notes,
        ["the coordinate system other is left out: files use that of the levels"]
    );
    let level = of(image_06(json!({"type": "identity"})), 3);
    assert_eq!(places(&level)[0], Some((1.0, 0.0)));
}

#[test]
fn axes_may_be_permuted_or_have_transforms_of_their_own() {
    let turn = json!({"type": "mapAxis", "mapAxis": [2, 1, 0]});
    let scale = json!({"type": "scale", "scale": [1, 2, 3]});
    let level = of(
        image_06(json!({"type": "sequence", "transformations": [scale, turn]})),
        3,
    );
    assert_eq!(names(&level), ["x", "y", "z"]);
    assert_eq!(places(&level)[2], Some((3.0, 0.0)));
    let parts = json!([
        {"transformation": {"type": "translation", "translation": [-1.0]}, "inputAxes": [1], "outputAxes": [1]},
        {"transformation": {"type": "scale", "scale": [2.0]}, "inputAxes": [0], "outputAxes": [0]},
    ]);
    let level = of(
        image_06(json!({"type": "byDimension", "transformations": parts})),
        3,
    );
    assert_eq!(
        places(&level),
        [Some((2.0, 0.0)), Some((1.0, -1.0)), Some((1.0, 0.0))]
    );
}

#[test]
fn a_rotation_has_spacings_and_a_transform() {
    let rows = json!([[2, 0, 0, 5], [0, 0.8, -0.6, 0], [0, 0.6, 0.8, 0]]);
    let level = of(image_06(json!({"type": "affine", "affine": rows})), 3);
    let spacing: Vec<f64> = level
        .axes
        .iter()
        .map(|axis| axis.spacing.unwrap())
        .collect();
    assert_eq!(spacing, [2.0, 1.0, 1.0]);
    let transform = level.transform.unwrap();
    assert_eq!(transform.affine.row(1).unwrap(), [0.0, 0.8, -0.6, 0.0]);
    assert_eq!(transform.coordinates[2].name.as_deref(), Some("x"));
}

#[test]
fn what_is_not_understood_is_a_note() {
    for (transform, expected) in [
        (
            json!({"type": "displacements", "path": "field"}),
            "displacements is stored in an array",
        ),
        (json!({"type": "warp"}), "the transform warp is not known"),
        (
            json!({"type": "scale", "scale": [1, 2]}),
            "the transform scale is not known",
        ),
        (
            json!({"type": "scale", "scale": "big"}),
            "the transform scale is not known",
        ),
    ] {
        let level = of(image_06(transform.clone()), 3);
        assert_eq!(places(&level), [None; 3], "{transform}");
        assert!(
            level.notes.iter().any(|note| note.contains(expected)),
            "{:?}",
            level.notes
        );
    }
    let mut deep = json!({"type": "identity"});
    for _ in 0..50 {
        deep = json!({"type": "sequence", "transformations": [deep]});
    }
    assert!(
        of(image_06(deep), 3)
            .notes
            .iter()
            .any(|note| note.contains("nested too deeply"))
    );
    let axes = json!([
        {"name": "z", "type": "space", "unit": "ell", "orientation": {"type": "anatomical", "value": "dorsal-to-ventral"}},
        {"name": "x", "type": "space", "orientation": {"type": "anatomical", "value": "right-to-left"}},
    ]);
    let level = of(json!({"axes": axes, "datasets": [{"path": "0"}]}), 2);
    assert!(level.notes[0].contains("orientation") && level.notes[1].contains("unit ell"));
    let left = Orientation {
        direction: 0,
        is_reversed: true,
    };
    assert_eq!(
        (level.axes[0].orientation, level.axes[1].orientation),
        (None, Some(left))
    );
}

#[test]
fn scales_of_a_pyramid_are_positive() {
    let scale = |scale: Json| json!([{"type": "sequence", "transformations": [{"type": "scale", "scale": scale}]}]);
    assert_eq!(
        scales(&scale(json!([2, 3]))),
        Some((vec![2.0, 3.0], vec![0.0, 0.0]))
    );
    for wrong in [json!([2, -3]), json!([0, 1]), json!(["a"])] {
        assert_eq!(scales(&scale(wrong)), None);
    }
    assert_eq!(scales(&json!([{"type": "identity"}])), None);
}

#[test]
fn channels_have_labels_and_colours() {
    let omero = json!({"channels": [{"label": "DAPI", "color": "0000FF"}, {"color": "red"}, 1, {"label": ""}]});
    for attributes in [json!({"omero": omero}), json!({"ome": {"omero": omero}})] {
        let found = channels(&map(attributes));
        assert_eq!(
            found[0],
            Channel {
                name: Some("DAPI".into()),
                color: Some([0, 0, 255])
            }
        );
        assert_eq!(found[1..], vec![Channel::default(); 3]);
    }
    assert!(channels(&map(json!({"omero": 1}))).is_empty());
}
