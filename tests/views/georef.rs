//! Georeferencing in the files of GeoTIFF and of other formats, and in NetCDF, as read by GDAL,
//! rasterio, pyproj, xarray and pynrrd.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, gauge};
use crate::stores::*;
use crate::support::*;

const PYTHON: &str = "tests/views/.venv/bin/python";

fn georef(word: &str, arguments: &[&Path]) -> String {
    script("georef.py", word, arguments)
}

fn script(name: &str, word: &str, arguments: &[&Path]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(root.join(PYTHON));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(root.join("tests/views").join(name))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

#[test]
fn every_format_has_the_same_transform_and_the_same_crs() {
    if !may_run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    georef("write", &[&store]);
    let mount = Mount::new(&store);
    let output = georef("check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    for (what, least) in [("rasters", 20), ("systems", 200), ("overviews", 12)] {
        assert!(counts[what].as_u64().unwrap() >= least, "{counts}");
    }
    assert_eq!(counts["differences"], 0, "{output}");
    assert_eq!(gauge(mount.path(), "panics"), 0);
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}

#[test]
fn b17_grid_mappings_of_cf_are_the_systems_of_pyproj_and_gdal_or_none_with_a_reason() {
    if !may_run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    script("mappings.py", "write", &[&store]);
    for (word, options, least) in [("check", &[][..], 60), ("assumed", &["--assume-wgs84"], 2)] {
        let mount = Mount::with(&store, options);
        let output = script("mappings.py", word, &[&store, mount.path()]);
        let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        assert!(counts["rasters"].as_u64().unwrap() >= least, "{counts}");
        assert_eq!(counts["differences"], 0, "{output}");
        assert_eq!(gauge(mount.path(), "panics"), 0);
    }
}

#[test]
fn a_system_that_cannot_be_read_is_an_error_and_one_that_is_contradicted_is_not_written() {
    let stores = Stores::new();
    let sphere = json!({
        "grid_mapping_name": "sinusoidal", "longitude_of_projection_origin": 0.0,
        "earth_radius": 6_371_007.181,
    });
    let raster = |group: &str, units: &str, x: &[u8]| {
        let square = json!({
            "shape": [2, 2], "chunk_grid": grid(&[2, 2]), "dimension_names": ["y", "x"],
            "attributes": {"grid_mapping": "crs"},
        });
        stores.v3(
            &format!("{group}/a"),
            square,
            &[("c/0/0", &le(&[1, 2, 3, 4]))],
        );
        let axis = |name: &str| {
            json!({"shape": [2], "chunk_grid": grid(&[2]), "dimension_names": [name],
                "attributes": {"units": units}})
        };
        stores.v3(&format!("{group}/x"), axis("x"), &[("c/0", x)]);
        stores.v3(&format!("{group}/y"), axis("y"), &[("c/0", &le(&[5, 6]))]);
        let scalar = json!({"shape": [], "chunk_grid": grid(&[]), "attributes": sphere});
        stores.v3(&format!("{group}/crs"), scalar, &[]);
    };
    raster("good", "m", &le(&[7, 8]));
    raster("far", "km", &le(&[7, 8]));
    raster("torn", "m", b"short");
    let mount = stores.mount(&[]);
    let aux = |group: &str| view(&mount, &format!("{group}/a"), "a.tif.aux.xml");
    let text = fs::read_to_string(aux("good")).unwrap();
    assert!(
        text.contains("PROJECTION[&quot;Sinusoidal&quot;]"),
        "{text}"
    );
    assert_eq!(errno(fs::metadata(aux("far"))), ENOENT);
    let listed = names(view(&mount, "far/a", ""));
    assert!(
        !listed.iter().any(|name| name.contains("aux")),
        "{listed:?}"
    );
    for suffix in ["tif.aux.xml", "vrt", "hdr", "nhdr"] {
        let path = view(&mount, "torn/a", &format!("a.{suffix}"));
        assert_eq!(errno(fs::read(path)), EIO, "{suffix}");
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn latitudes_and_longitudes_are_those_of_wgs_84_on_request() {
    let stores = Stores::new();
    let axis = |name: &str, units: &str| {
        json!({"shape": [2], "chunk_grid": grid(&[2]), "dimension_names": [name],
            "attributes": {"units": units}})
    };
    for (group, latitudes, more) in [
        ("degrees", [50, 49], json!({})),
        ("beyond", [95, 94], json!({})),
        ("said", [50, 49], json!({"grid_mapping": "absent"})),
    ] {
        let square = json!({
            "shape": [2, 2], "chunk_grid": grid(&[2, 2]), "dimension_names": ["lat", "lon"],
            "attributes": more,
        });
        let chunk = [("c/0/0", &le(&[1, 2, 3, 4])[..])];
        stores.v3(&format!("{group}/a"), square, &chunk);
        let (lat, lon) = (axis("lat", "degrees_north"), axis("lon", "degrees_east"));
        stores.v3(&format!("{group}/lat"), lat, &[("c/0", &le(&latitudes))]);
        stores.v3(&format!("{group}/lon"), lon, &[("c/0", &le(&[7, 8]))]);
    }
    for (options, expected) in [(&[][..], false), (&["--assume-wgs84"], true)] {
        let mount = stores.mount(options);
        let has_system = |group: &str, suffix: &str| {
            let path = view(&mount, &format!("{group}/a"), &format!("a.{suffix}"));
            let info = run(Command::new("gdalinfo").arg(path));
            assert!(info.contains("Pixel Size = (1."), "{info}");
            info.contains("ID[\"EPSG\",4326]]")
        };
        for suffix in ["tif", "vrt"] {
            assert_eq!(has_system("degrees", suffix), expected, "{suffix}");
            assert!(!has_system("beyond", suffix) && !has_system("said", suffix));
        }
        let readme = readme(&mount, "degrees/a");
        assert_eq!(readme.contains("--assume-wgs84"), !expected, "{readme}");
    }
}
