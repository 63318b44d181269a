//! Discovery of views: names of the root, extended attributes, lists, and the last errors.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, gauge, inodes};
use crate::namespace::hierarchy;
use crate::stores::*;
use crate::support::*;

#[test]
fn views_of_the_root_have_the_name_of_the_source_and_the_alias_root() {
    let directory = scratch();
    let stores = hierarchy();
    let group = directory.path().join("my ocean.v2.zarr");
    fs::rename(stores.path(), &group).unwrap();
    fs::create_dir(stores.path()).unwrap();
    let mount = Mount::new(&group);
    let views = mount.join(".zarrfs");
    let nc = views.join("my ocean.v2.nc");
    assert!(names(&views).contains(&"my ocean.v2.nc".to_owned()));
    assert!(read(&nc).unwrap().starts_with(b"\x89HDF"));
    for (own, alias) in [
        ("my ocean.v2.nc", "root.nc"),
        ("my ocean.v2.cdf.nc", "root.cdf.nc"),
    ] {
        let of = |name: &str| fs::metadata(views.join(name)).unwrap().ino();
        assert_eq!(of(own), of(alias));
        assert!(!names(&views).contains(&alias.to_owned()));
    }
    for absent in ["root.npy", "array.npy", "array.nc", "root"] {
        assert_eq!(errno(fs::metadata(views.join(absent))), ENOENT, "{absent}");
    }
    // No other node has the alias of the root.
    assert_eq!(
        errno(fs::metadata(view(&mount, "below", "root.nc"))),
        ENOENT
    );
    assert_eq!(
        xattr(mount.path(), "user.zarrfs.name").as_deref(),
        Some("my ocean.v2")
    );
    drop(mount);

    // An array mounted directly, and by its key.
    let own = le(&GOOD);
    let mount = Mount::new(group.join("good"));
    for name in ["good.bin", "array.bin"] {
        assert_eq!(read(mount.join(".zarrfs").join(name)).unwrap(), own);
    }
    let header = fs::read_to_string(mount.join(".zarrfs/array.vrt")).unwrap();
    assert!(header.contains("good.bin"), "{header}");
    drop(mount);
    let mount = Mount::with(&group, &["--path", "good"]);
    for name in ["good.bin", "array.bin"] {
        assert_eq!(read(mount.join(".zarrfs").join(name)).unwrap(), own);
    }
    drop(mount);

    // A node named like the alias has its views below its own name; the alias still means the root.
    fs::create_dir_all(group.join("root")).unwrap();
    fs::write(group.join("root/.zgroup"), br#"{"zarr_format": 2}"#).unwrap();
    sh(&format!("cp -r '{0}/good' '{0}/root/'", group.display()));
    let mount = Mount::new(&group);
    let files = [".zarrfs/root.nc", ".zarrfs/my ocean.v2.nc"];
    let [alias, own] = files.map(|file| read(mount.join(file)).unwrap());
    assert!(alias == own);
    let [escaped, child] = [".zarrfs/root~view.nc", "root/.zarrfs/root.nc"]
        .map(|file| read(mount.join(file)).unwrap());
    assert!(escaped == child && child != own);
}

#[test]
fn an_array_named_like_the_alias_has_an_escaped_name_for_what_the_root_can_have() {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let plane = json!({"shape": [2, 4], "chunks": [2, 4]});
    stores.v2("root", plane, &[("0.0", &le(&GOOD))]);
    let mount = stores.mount(&["--formats", "npy,png"]);
    let views = mount.join(".zarrfs");
    let listed = names(&views);
    for (name, same) in [("root.npy", "root.npy"), ("root~view.png", "root.png")] {
        assert!(listed.contains(&name.to_owned()), "{name}: {listed:?}");
        let own = read(view(&mount, "root", same)).unwrap();
        assert!(read(views.join(name)).unwrap() == own, "{name}");
    }
    // The name means a picture of the root, which is no image.
    assert!(!listed.contains(&"root.png".to_owned()), "{listed:?}");
    assert_eq!(errno(fs::metadata(views.join("root.png"))), ENOENT);
}

#[test]
fn a_spatial_ref_of_any_shape_is_no_failure_of_a_raster() {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let dimensions = |name: &str, names: Value| {
        let attributes = json!({"_ARRAY_DIMENSIONS": names}).to_string();
        stores.put(&format!("{name}/.zattrs"), attributes.as_bytes());
    };
    stores.v2("x", json!({"shape": [4]}), &[("0", &le(&[0, 1, 2, 3]))]);
    dimensions("x", json!(["x"]));
    let two = json!({"shape": [2], "chunks": [2]});
    stores.v2("y", two, &[("0", &le(&[5, 6]))]);
    dimensions("y", json!(["y"]));
    let plane = json!({"shape": [2, 4], "chunks": [2, 4]});
    stores.v2("v", plane, &[("0.0", &le(&GOOD))]);
    dimensions("v", json!(["y", "x"]));
    // The number of elements overflows.
    let huge = json!({"shape": [1_u64 << 40, 1_u64 << 40], "chunks": [1, 1]});
    stores.v2("spatial_ref", huge, &[]);
    let attributes = br#"{"spatial_ref": "EPSG:32632", "crs_wkt": "EPSG:32632"}"#;
    stores.put("spatial_ref/.zattrs", attributes);
    let mount = stores.mount(&[]);
    let raster = read(view(&mount, "v", "v.tif"));
    assert!(raster.is_ok(), "{raster:?}");
    assert_others_served(&mount, &stores);
}

#[test]
fn extended_attributes_of_directories_have_the_paths_of_their_views() {
    let stores = hierarchy();
    let xattrs = |path: &std::path::Path| {
        ["views", "name"].map(|name| xattr(path, &format!("user.zarrfs.{name}")))
    };
    let expected = |views: &str, name: &str| [views, name].map(|text| Some(text.to_owned()));
    let own = source_name(stores.path());
    let mount = stores.mount(&[]);
    assert_eq!(xattrs(mount.path()), expected(".zarrfs", &own));
    assert_eq!(xattrs(&mount.join("below/z")), expected(".zarrfs", "z"));
    assert_eq!(xattrs(&mount.join("x/.zarrfs")), expected(".", "x"));
    for none in ["x/0", ".zattrs", "x/.zarrfs/x.npy", "x/.zarrfs/chunks"] {
        assert_eq!(xattrs(&mount.join(none)), [None, None], "{none}");
    }
    let listed = sh(&format!("getfattr -d {}", mount.path().display()));
    assert!(listed.contains("user.zarrfs.views=\".zarrfs\""), "{listed}");
    drop(mount);
    let mount = stores.mount(&["--tree", "both"]);
    assert_eq!(xattrs(mount.path()), expected("views", &own));
    assert_eq!(xattrs(&mount.join("native/x")), expected(".zarrfs", "x"));
    assert_eq!(xattrs(&mount.join("views/below")), expected(".", "below"));
    drop(mount);
    assert_eq!(
        xattrs(stores.mount(&["--views", "off"]).path()),
        [None, None]
    );
    stores.put("y/.zarrfs/inside", b"a key of the store");
    assert_eq!(xattrs(&stores.mount(&[]).join("y")), [None, None]);
}

#[test]
fn views_json_lists_the_views_of_the_readme() {
    let stores = hierarchy();
    stores.put("torn/.zarray", b"{");
    let mount = stores.mount(&[]);
    for (node, kind) in [("", "group"), ("x", "array"), ("below", "group")] {
        let list: Value =
            serde_json::from_slice(&read(view(&mount, node, "views.json")).unwrap()).unwrap();
        assert_eq!(list["schema"], "zarrfs.views/1");
        assert_eq!(
            (list["key"].as_str(), list["node_type"].as_str()),
            (Some(node), Some(kind))
        );
        let readme = readme(&mount, node);
        let listed = names(view(&mount, node, ""));
        for of_list in list["views"].as_array().unwrap() {
            let name = of_list["name"].as_str().unwrap();
            assert!(readme.contains(&format!("\n{name}  (")), "{name}: {readme}");
            assert!(fs::metadata(view(&mount, node, name)).is_ok(), "{name}");
            let is_listed = of_list["listed"].as_bool().unwrap();
            assert_eq!(
                listed.contains(&name.to_owned()),
                is_listed,
                "{name}: {listed:?}"
            );
        }
        for diagnostic in list["diagnostics"].as_array().unwrap() {
            assert!(
                readme.contains(diagnostic["reason"].as_str().unwrap()),
                "{readme}"
            );
        }
        assert_eq!(
            readme.contains("views with these suffixes"),
            kind == "group",
            "{readme}"
        );
    }
}

#[test]
fn the_last_errors_are_a_file_of_the_root() {
    let stores = hierarchy();
    let crc = json!({"codecs": [little(), {"name": "crc32c"}]});
    stores.v3("bad", crc, &[("c/0", &[1; 20]), ("c/1", &[2; 20])]);
    for (args, errors) in [
        (&[][..], ".zarrfs/errors.txt"),
        (&["--tree", "views"], "errors.txt"),
    ] {
        let mount = stores.mount(args);
        let errors = mount.join(errors);
        let bad = errors.with_file_name("bad.chunks");
        assert_eq!(fs::read_to_string(&errors).unwrap(), "");
        let open = fs::File::open(&errors).unwrap();
        for count in 1..=2 {
            assert_eq!(errno(read(bad.join(format!("c/{}", count - 1)))), EIO);
            // The current errors, in a file of exactly their size.
            let size = fs::metadata(&errors).unwrap().len();
            let text = fs::read_to_string(&errors).unwrap();
            assert_eq!(text.len() as u64, size);
            let lines: Vec<&str> = text.lines().collect();
            let output: Vec<&&str> = lines.iter().filter(|l| l.contains("crc32c")).collect();
            let chunks: BTreeSet<&str> = output
                .iter()
                .filter_map(|line| line.split(' ').nth(2))
                .collect();
            assert_eq!(chunks.len(), count, "{text}");
            let line = output.last().unwrap();
            assert!(
                line.contains("Z read bad/c/") && line.contains(": EIO: corrupt"),
                "{text}"
            );
        }
        assert_eq!(
            open.metadata().unwrap().len(),
            0,
            "an open file keeps its content"
        );
        assert!(!names(errors.parent().unwrap()).contains(&"errors.txt".to_owned()));
        assert!(gauge(mount.path(), "failed_requests") >= 2);
        let stats = run(zarrfs().args(["stats", "--json"]).arg(mount.path()));
        let stats: Value = serde_json::from_str(&stats).unwrap();
        let list = stats["errors"].as_array().unwrap();
        let text = fs::read_to_string(&errors).unwrap();
        assert_eq!(list.len(), text.lines().count());
        for (error, line) in list.iter().zip(text.lines()) {
            let member = |name: &str| error[name].as_str().unwrap();
            let [time, operation, key] = ["time", "operation", "key"].map(member);
            let [errno, cause] = ["errno", "cause"].map(member);
            assert_eq!(line, format!("{time} {operation} {key}: {errno}: {cause}"));
        }
        drop(open);
    }
    let mount = stores.mount(&[]);
    assert_eq!(errno(fs::metadata(view(&mount, "x", "errors.txt"))), ENOENT);
}

#[test]
fn groups_with_the_names_of_files_of_a_group_are_listed_beside_them() {
    let stores = Stores::new();
    stores.put(".zattrs", br#"{"title": "a group"}"#);
    let own = source_name(stores.path());
    let file = format!("{own}.nc");
    for name in ["attributes.json", "root.nc", &file] {
        stores.put(&format!("{name}/.zgroup"), br#"{"zarr_format": 2}"#);
    }
    let mount = stores.mount(&["--tree", "views"]);
    let listed = names(mount.path());
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "{listed:?}");
    for name in ["attributes.json", "root.nc", &file] {
        assert!(mount.join(name).is_dir(), "{name}");
    }
    let escaped = format!("{own}~view.nc");
    for name in ["attributes~view.json", &escaped] {
        assert!(listed.contains(&name.to_owned()), "{name}: {listed:?}");
        assert!(!read(mount.join(name)).unwrap().is_empty());
    }
    // The alias of the root gives way too, and is not listed.
    assert!(!listed.contains(&"root~view.nc".to_owned()));
    assert_eq!(
        read(mount.join("root~view.nc")).unwrap(),
        read(mount.join(escaped)).unwrap()
    );
    inodes(mount.path());
}
