//! GeoTIFF, read by tifffile, rasterio and the tools of GDAL, libgeotiff and libtiff.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, gauge};
use crate::stores::*;
use crate::support::*;

/// A Python with zarr, xarray, tifffile and rasterio; the path is relative to the repository.
const PYTHON: &str = "tests/views/.venv/bin/python";

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn rasters(word: &str, arguments: &[&Path]) -> String {
    let mut command = Command::new(in_repository(PYTHON));
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(in_repository("tests/views/rasters.py"))
        .arg(word)
        .args(arguments);
    run(&mut command)
}

fn tif(mount: &Mount, node: &str) -> std::path::PathBuf {
    let name = node.rsplit('/').next().unwrap();
    view(mount, node, &format!("{name}.tif"))
}

/// Runs GDAL's own validator.
fn assert_is_cloud_optimized(path: &Path) {
    let module = "osgeo_utils.samples.validate_cloud_optimized_geotiff";
    let output = run(Command::new("/usr/bin/python3")
        .args(["-m", module])
        .arg(path));
    assert!(output.contains("is a valid cloud optimized"), "{output}");
}

#[test]
fn a_level_with_fewer_planes_is_no_overview_and_the_reason_names_the_axis() {
    let stores = Stores::new();
    let axes = ["z", "y", "x"].map(|name| json!({"name": name, "type": "space"}));
    let image = json!({"version": "0.4", "axes": axes, "datasets": [{"path": "0"}, {"path": "1"}]});
    let group =
        json!({"zarr_format": 3, "node_type": "group", "attributes": {"multiscales": [image]}});
    stores.put("image/zarr.json", group.to_string().as_bytes());
    for (level, side) in [("0", 4), ("1", 2)] {
        let array = json!({"shape": [side, side, side], "chunk_grid": grid(&[side, side, side])});
        stores.v3(&format!("image/{level}"), array, &[]);
    }
    let mount = stores.mount(&[]);
    let readme = readme(&mount, "image/0");
    assert!(
        readme.contains("image/1 is no overview: fewer z planes: 2 for 4"),
        "{readme}"
    );
}

#[test]
fn rasters_equal_those_that_the_reference_library_reads() {
    if !may_run(&in_repository(PYTHON)) {
        return;
    }
    let directory = scratch();
    let store = directory.path().join("store");
    rasters("write", &[&store]);
    let mount = Mount::new(&store);

    // More than 16 GiB, none of which the tool reads.
    for name in ["sparse/tiled", "sparse/strips"] {
        let path = tif(&mount, name);
        assert!(fs::metadata(&path).unwrap().len() > 16 << 30);
        let text = run(Command::new("gdalinfo").arg(&path));
        assert!(text.contains("Size is 47104, 47104"), "{text}");
        assert!(text.contains("Pixel Size = (10.0"), "{text}");
        assert_eq!(gauge(mount.path(), "chunks_decoded"), 0, "{name}");
    }

    // A sequential read of a file decodes each chunk of the image and of its overviews once, for
    // tiles and for strips.
    for (node, chunks) in [("pyramid/r10m/B02", 420), ("pyramid/r10m/B03", 223)] {
        let before = gauge(mount.path(), "chunks_decoded");
        read(tif(&mount, node)).unwrap();
        let decoded = gauge(mount.path(), "chunks_decoded") - before;
        assert_eq!(decoded, chunks, "{node}");
    }

    for (node, suffix) in [
        ("pyramid/r10m/B02", "tif"),
        ("pyramid/r10m/B02", "packed.tif"),
        ("pyramid/r10m/SCL", "tif"),
        ("pyramid/r20m/B02", "tif"),
        ("ngff/0", "tif"),
    ] {
        let name = node.rsplit('/').next().unwrap();
        assert_is_cloud_optimized(&view(&mount, node, &format!("{name}.{suffix}")));
    }

    let output = rasters("check", &[&store, mount.path()]);
    let counts: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    for (what, least) in [
        ("files", 110),
        ("overviews", 48),
        ("transforms", 26),
        ("systems", 22),
        ("refused", 5),
    ] {
        assert!(counts[what].as_u64().unwrap() >= least, "{counts}");
    }
    assert_eq!(counts["differences"], 0, "{output}");
    assert_eq!(gauge(mount.path(), "panics"), 0);

    for (node, gist) in [
        ("types3/no_across", "transposed"),
        ("types3/no_line", "1 axes"),
        ("types3/no_both", "before and behind"),
        ("types3/no_empty", "without elements"),
        ("types3/no_texts", "no samples"),
        ("irregular/a", "not at regular distances"),
        ("own/shape", "another spatial:shape"),
        ("ngff/2", "another data type"),
        ("group/deeper/grandchild", "is not inherited"),
        ("group/other", "another spatial:shape"),
        ("group/torn", "EPSG:25832 and EPSG:25833"),
        ("cf_moved/a", "GeoTransform is not what the coordinates say"),
        ("cf_far/a", "coordinates are in km"),
        ("doubt_group/spectra", "of other axes"),
        ("doubt_group/rpc", "not affine"),
        ("doubt_group/box", "spatial:bbox is not where"),
        ("doubt_group/gdal", "EPSG:32633 and EPSG:32634"),
        ("doubt_group/mapped", "EPSG:32633 and EPSG:32634"),
        ("doubt_group/pole", "the grid mapping is of another kind"),
        ("doubt_swapped/a", "go the other way"),
        ("doubt_level/a", "lev is not known to be an axis"),
        ("doubt_feet/a", "coordinates are in ft"),
        ("doubt_times/a", "times are no places"),
        ("packed/text", "scale_factor is no number"),
        ("packed/many", "names of 9000 bands are left out"),
        ("ome_padded/0", "its size is not what the scale says"),
        ("level_elsewhere/0/a", "its place is another one"),
        ("level_system/0/a", "another coordinate reference system"),
        ("level_bands_turned/0/a", "another order of bands"),
        ("level_filled/0/a", "another value without data"),
        (
            "climate3up/plain",
            "no coordinate reference system is known",
        ),
    ] {
        let text = readme(&mount, node);
        let name = format!("{}.tif: ", node.rsplit('/').next().unwrap());
        let mut lines = text.lines().filter(|line| line.starts_with(&name));
        assert!(lines.any(|line| line.contains(gist)), "{node}: {text}");
    }
    for node in ["types3/no_across", "types3/no_texts", "types3/no_both"] {
        assert_eq!(errno(fs::metadata(tif(&mount, node))), ENOENT, "{node}");
    }
    let log = mount.log();
    assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
}

/// Writes a raster of 2 x 2 with named axes.
fn raster(stores: &Stores, name: &str, changes: Value) {
    let document = changed(
        json!({
            "shape": [2, 2], "chunk_grid": grid(&[2, 2]), "dimension_names": ["y", "x"],
        }),
        changes,
    );
    stores.v3(name, document, &[("c/0/0", &le(&[1, 2, 3, 4]))]);
}

#[test]
fn georeferencing_that_cannot_be_read_is_an_error_and_not_omitted() {
    let stores = Stores::new();
    raster(&stores, "a", json!({}));
    raster(
        &stores,
        "said",
        json!({
            "attributes": {"spatial:transform": [1, 0, 0, 0, -1, 0], "proj:code": "EPSG:3857"},
        }),
    );
    let axis =
        |name: &str| json!({"shape": [2], "chunk_grid": grid(&[2]), "dimension_names": [name]});
    stores.v3("x", axis("x"), &[("c/0", &le(&[5, 6]))]);
    stores.v3("y", axis("y"), &[("c/0", b"short")]);
    let mount = stores.mount(&[]);
    assert_eq!(errno(read(tif(&mount, "a"))), EIO);
    // The elements do not need the coordinates.
    let bytes = read(tif(&mount, "said")).unwrap();
    assert_eq!(bytes[..4], *b"II\x2a\0");
    assert_eq!(bytes[bytes.len() - 16..], le(&[1, 2, 3, 4]));
    assert_eq!(read(view(&mount, "a", "a.bin")).unwrap(), le(&[1, 2, 3, 4]));
    assert_others_served(&mount, &stores);
}

#[test]
fn georeferencing_in_an_invalid_document_is_not_guessed() {
    let stores = Stores::new();
    let attributes = json!({"grid_mapping": "crs"});
    raster(&stores, "a", json!({"attributes": attributes}));
    raster(
        &stores,
        "lost",
        json!({"attributes": {"grid_mapping": "torn"}}),
    );
    let bands = json!({
        "shape": [2, 2, 2], "chunk_grid": grid(&[2, 2, 2]), "dimension_names": ["t", "y", "x"],
    });
    stores.v3("b", bands, &[]);
    let mapping = json!({"GeoTransform": "500000 10 0 5000000 0 -10", "epsg_code": 32632});
    stores.v3(
        "crs",
        json!({"shape": [], "chunk_grid": grid(&[]), "attributes": mapping}),
        &[],
    );
    for name in ["x", "y", "t", "torn", "pyramid/l1"] {
        stores.put(&format!("{name}/zarr.json"), b"{ half");
    }
    let layout = json!({"multiscales": {"layout": [{"asset": "l0"}, {"asset": "l1"}]}});
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": layout});
    stores.put("pyramid/zarr.json", group.to_string().as_bytes());
    raster(&stores, "pyramid/l0", json!({}));
    let mount = stores.mount(&[]);
    // GeoTransform is not used unless the coordinates are known not to contradict it.
    let info = run(Command::new("gdalinfo").arg(tif(&mount, "a")));
    assert!(
        info.contains("Size is 2, 2") && !info.contains("Pixel Size"),
        "{info}"
    );
    for (node, gist) in [
        ("a", "coordinates x: zarr.json: line 1"),
        ("a", "GeoTransform is left out"),
        ("b", "coordinates t: zarr.json: line 1"),
        ("lost", "grid mapping torn: zarr.json: line 1"),
        ("pyramid/l0", "pyramid/l1 is no overview: zarr.json: line 1"),
    ] {
        let text = readme(&mount, node);
        let name = format!("{}.tif: ", node.rsplit('/').next().unwrap());
        let mut lines = text.lines().filter(|line| line.starts_with(&name));
        assert!(lines.any(|line| line.contains(gist)), "{node}: {text}");
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn nodata_values_are_those_of_netcdf() {
    let stores = Stores::new();
    let of = |data_type: &str, attributes: Value| {
        json!({"data_type": data_type, "fill_value": 0, "attributes": attributes,
            "codecs": [little()]})
    };
    let cases = [
        ("large", of("float32", json!({"_FillValue": 1e300})), None),
        (
            "half",
            of("float16", json!({"_FillValue": 0.1})),
            Some((f64::from(0.1_f32), "0.09")),
        ),
        (
            "bytes",
            of("int8", json!({"_FillValue": 200, "_Unsigned": "true"})),
            // A netCDF reader converts it to 200, like the data.
            Some((200.0, "-56")),
        ),
        (
            "plain",
            of("float32", json!({"_FillValue": -9999})),
            Some((-9999.0, "-9999")),
        ),
    ];
    stores.put("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    for (name, document, _) in &cases {
        let document = changed(
            json!({"shape": [2, 2], "chunk_grid": grid(&[2, 2]), "dimension_names": ["y", "x"]}),
            document.clone(),
        );
        stores.v3(name, document, &[]);
    }
    let mount = stores.mount(&[]);
    let header = run(Command::new("ncdump")
        .arg("-h")
        .arg(view(&mount, "", "root.nc")));
    for (name, _, expected) in cases {
        let info = run(Command::new("gdalinfo").arg("-json").arg(tif(&mount, name)));
        let info: Value = serde_json::from_str(&info).unwrap();
        let no_data = info["bands"][0]["noDataValue"].as_f64();
        let fill = format!("{name}:_FillValue = ");
        match expected {
            Some((value, stored)) => {
                let near = |found: f64| (found - value).abs() <= value.abs() * 1e-3;
                assert!(no_data.is_some_and(near), "{name}: {info}");
                assert!(
                    header.contains(&format!("{fill}{stored}")),
                    "{name}: {header}"
                );
            }
            None => {
                assert_eq!(no_data, None, "{name}: {info}");
                assert!(!header.contains(&fill), "{name}: {header}");
                let line = format!("{name}.tif: _FillValue 1e+300 is no value of the data type");
                assert!(
                    readme(&mount, name).contains(&line),
                    "{}",
                    readme(&mount, name)
                );
            }
        }
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn bands_along_times_are_the_dates_of_their_data_type() {
    let stores = Stores::new();
    stores.v2(
        "cube",
        json!({"shape": [2, 2, 2], "chunks": [2, 2, 2]}),
        &[],
    );
    stores.put("cube/.zattrs", br#"{"_ARRAY_DIMENSIONS": ["t", "y", "x"]}"#);
    let times = json!({"dtype": "<M8[s]", "shape": [2], "chunks": [2], "fill_value": null});
    stores.v2(
        "t",
        times,
        &[("0", &[3_i64, 5].map(i64::to_le_bytes).concat())],
    );
    stores.put("t/.zattrs", br#"{"units": "days since 1900-01-01"}"#);
    // An array with other coordinates than the bands is not one of the bands.
    let shape = json!({"shape": [4, 2, 2], "chunks": [4, 2, 2]});
    stores.v2("below/cube", shape, &[]);
    stores.put(
        "below/cube/.zattrs",
        br#"{"_ARRAY_DIMENSIONS": ["t", "y", "x"]}"#,
    );
    let square = json!({"shape": [2, 2], "chunks": [2, 2]});
    stores.v2("below/t", square, &[("0.0", &le(&[30, 40, 50, 60]))]);
    let mount = stores.mount(&[]);
    let info = run(Command::new("gdalinfo").arg(tif(&mount, "cube")));
    assert!(info.contains("t=1970-01-01T00:00:05"), "{info}");
    assert!(!info.contains("1900"), "{info}");
    let info = run(Command::new("gdalinfo").arg(tif(&mount, "below/cube")));
    assert!(info.contains("t[3]") && !info.contains("t="), "{info}");
    assert_others_served(&mount, &stores);
}

#[test]
fn hostile_shapes_and_attributes_are_refused_or_omitted() {
    let stores = Stores::new();
    let shape = |shape: &[u64], chunk: &[u64]| {
        let attributes =
            json!({"spatial:dimensions": [1, {}], "grid_mapping": "/", "_CRS": {"wkt": "["}});
        json!({
            "shape": shape, "chunk_grid": grid(chunk), "dimension_names": "DROP",
            "attributes": attributes,
        })
    };
    let refused = [
        ("wide", vec![2, 1 << 40], vec![2, 16]),
        ("bands", vec![70_000, 2, 2], vec![1, 2, 2]),
        ("product", vec![1 << 20, 1 << 20, 1, 1], vec![1, 1, 1, 1]),
        ("point", vec![], vec![]),
        (
            "huge",
            vec![2_000_000_000, 1_200_000_000],
            vec![1 << 12, 1 << 12],
        ),
    ];
    for (name, lengths, chunk) in &refused {
        stores.v3(name, shape(lengths, chunk), &[]);
    }
    // The first would need too long a table of tiles; the second has very many bands.
    let made = [
        ("many", vec![200_000, 200_000], vec![16, 16]),
        ("deep", vec![65_535, 1, 1], vec![1, 1, 1]),
    ];
    for (name, lengths, chunk) in &made {
        stores.v3(name, shape(lengths, chunk), &[]);
    }
    let mut levels: Vec<Value> = (0..100)
        .map(|n| json!({"asset": format!("l{n}")}))
        .collect();
    levels.push(json!({"asset": "../good"}));
    let attributes = json!({"multiscales": {"layout": levels}, "proj:code": {"type": 1}});
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
    stores.put("zarr.json", group.to_string().as_bytes());
    raster(&stores, "l0", json!({}));
    raster(&stores, "l1", json!({}));
    let mount = stores.mount(&[]);
    for (name, ..) in &refused {
        assert_eq!(errno(fs::metadata(tif(&mount, name))), ENOENT, "{name}");
        assert!(readme(&mount, name).contains(&format!("{name}.tif: ")));
    }
    for (name, lengths, _) in &made {
        let path = tif(&mount, name);
        let size = fs::metadata(&path).unwrap().len();
        assert!(
            size >= 4 * lengths.iter().product::<u64>(),
            "{name}: {size}"
        );
        let text = run(Command::new("gdalinfo").arg("-nomd").arg(&path));
        let [.., height, width] = lengths[..] else {
            panic!("{lengths:?}");
        };
        assert!(
            text.contains(&format!("Size is {width}, {height}")),
            "{name}"
        );
    }
    assert!(fs::metadata(tif(&mount, "l0")).is_ok());
    assert!(readme(&mount, "l0").contains("l0.tif: no coordinate reference system"));
    assert_others_served(&mount, &stores);
}
