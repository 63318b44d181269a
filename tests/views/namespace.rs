//! The location of views: hidden or listed, next to the store's keys or in a separate tree.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::{ENOENT, gauge, inodes};
use crate::stores::*;
use crate::support::*;

/// Creates a group with attributes, with arrays `x`, `y` and `good` and a group `below`.
pub fn hierarchy() -> Stores {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    stores.put(".zattrs", br#"{"title": "a group"}"#);
    stores.v2("x", json!({}), &[("0", &le(&[1, 2, 3, 4]))]);
    stores.put("x/.zattrs", br#"{"units": "K", "n": [1, 2]}"#);
    stores.v3("y", json!({}), &[("c/1", &le(&[5, 6, 7, 8]))]);
    stores.put("below/.zgroup", br#"{"zarr_format": 2}"#);
    stores.v2("below/z", json!({}), &[]);
    stores
}

/// Returns the listed views of an array of numbers.
fn of_array(name: &str) -> Vec<String> {
    let mut names: Vec<String> = ["attributes.json", "info.json", "README.txt", "chunks"]
        .map(String::from)
        .into();
    names.extend(
        ["npy", "nc", "bin", "hdr", "vrt", "nhdr"].map(|format| format!("{name}.{format}")),
    );
    names.sort();
    names
}

#[test]
fn tools_that_walk_the_mount_do_not_see_the_views() {
    let stores = hierarchy();
    let mount = stores.mount(&[]);
    for directory in ["", "x", "y", "below", "below/z"] {
        assert_eq!(
            names(mount.join(directory)),
            names(stores.path().join(directory))
        );
        assert!(
            mount.join(directory).join(".zarrfs").is_dir(),
            "{directory}"
        );
    }
    let copies = scratch();
    sh(&format!(
        "mount={mount} store={store} copies={copies}
        diff <(cd $mount && find . | sort) <(cd $store && find . | sort)
        diff -r $mount $store
        cp -r $mount $copies/cp
        diff -r $copies/cp $store
        rsync -r --chmod=u+w $mount/ $copies/rsync
        diff -r $copies/rsync $store
        test \"$(tar -C $mount -cf - . | tar -tf - | grep -c zarrfs || true)\" = 0",
        mount = mount.path().display(),
        store = stores.path().display(),
        copies = copies.path().display(),
    ));
    assert_others_served(&mount, &stores);
}

#[test]
fn options_list_or_disable_views() {
    let stores = hierarchy();
    let mount = stores.mount(&["--views", "list"]);
    for directory in ["", "x", "below"] {
        let mut expected = names(stores.path().join(directory));
        expected.push(".zarrfs".into());
        expected.sort();
        assert_eq!(names(mount.join(directory)), expected, "{directory:?}");
    }
    let found = sh(&format!(
        "cd {} && find . -type f | wc -l",
        mount.path().display()
    ));
    assert!(found.trim().parse::<u64>().unwrap() > 60, "{found}");

    let mount = stores.mount(&["--views", "off"]);
    for directory in ["", "x", "below"] {
        let hidden = mount.join(directory).join(".zarrfs");
        assert_eq!(errno(fs::metadata(&hidden)), ENOENT);
        assert_eq!(errno(fs::read_dir(&hidden)), ENOENT);
        assert_eq!(errno(File::open(hidden.join("x.npy"))), ENOENT);
    }
    native(&mount, &stores, "x/0");
}

#[test]
fn a_key_named_zarrfs_has_precedence_over_views() {
    let stores = hierarchy();
    stores.put("x/.zarrfs", b"a key of the store");
    stores.put("y/.zarrfs/inside", b"another");
    for views in ["hidden", "list"] {
        let mount = stores.mount(&["--views", views]);
        assert_eq!(names(mount.join("x")), names(stores.path().join("x")));
        assert_eq!(names(mount.join("y")), names(stores.path().join("y")));
        native(&mount, &stores, "x/.zarrfs");
        native(&mount, &stores, "y/.zarrfs/inside");
        assert!(mount.join("y/.zarrfs/inside").is_file());
        assert_eq!(errno(fs::metadata(view(&mount, "y", "y.npy"))), ENOENT);
        // The group still has the views of both arrays.
        assert_eq!(
            read(view(&mount, "", "x.bin")).unwrap(),
            le(&[1, 2, 3, 4, FILL, FILL, FILL, FILL])
        );
        assert_eq!(read(view(&mount, "good", "good.bin")).unwrap(), le(&GOOD));
    }
}

#[test]
fn a_group_shows_the_views_of_its_arrays() {
    let stores = hierarchy();
    let mount = stores.mount(&[]);
    assert_eq!(names(view(&mount, "x", "")), of_array("x"));
    let name = source_name(stores.path());
    let of_group = ["as-v3", "attributes.json", "info.json", "README.txt"];
    let mut expected: Vec<String> = of_group.map(String::from).into();
    expected.push(format!("{name}.nc"));
    expected.extend(["good", "x", "y"].map(|array| format!("{array}.npy")));
    expected.sort();
    assert_eq!(names(view(&mount, "", "")), expected);
    let more = [".zmetadata", "unsharded", "views.json", "zom.json"];
    expected.extend(more.map(String::from));
    for format in ["cdf.nc", "cdf5.nc", "h5", "packed.nc", "parquet", "csv"] {
        expected.push(format!("{name}.{format}"));
    }
    for array in ["good", "x", "y"] {
        let formats = [
            "bin",
            "hdr",
            "vrt",
            "nhdr",
            "chunks",
            "views.json",
            "fits",
            "packed.nc",
        ];
        for format in formats {
            expected.push(format!("{array}.{format}"));
        }
    }
    expected.retain(|name| name != "unsharded");
    expected.sort();
    let all = stores.mount(&["--formats", "all"]);
    assert_eq!(names(view(&all, "", "")), expected);
    inodes(&all.join(".zarrfs"));
    for name in &expected {
        assert!(fs::metadata(view(&mount, "", name)).is_ok(), "{name}");
    }
    drop(all);
    assert!(names(view(&mount, "below", "")).contains(&"z.npy".to_owned()));

    let x = le(&[1, 2, 3, 4, FILL, FILL, FILL, FILL]);
    assert_eq!(read(view(&mount, "", "x.bin")).unwrap(), x);
    assert_eq!(read(view(&mount, "x", "x.bin")).unwrap(), x);
    assert_eq!(read(view(&mount, "x", "x.npy")).unwrap()[128..], x);
    assert_eq!(
        read(view(&mount, "", "y.chunks/c/1")).unwrap(),
        le(&[5, 6, 7, 8])
    );
    assert_eq!(names(view(&mount, "", "y.chunks/c")), ["0", "1"]);
    assert_eq!(
        read(view(&mount, "y", "chunks/c/0")).unwrap(),
        le(&[FILL; 4])
    );
    assert_eq!(
        read(view(&mount, "", "attributes.json")).unwrap(),
        br#"{"title": "a group"}"#
    );
    let info: serde_json::Value =
        serde_json::from_slice(&read(view(&mount, "x", "info.json")).unwrap()).unwrap();
    assert_eq!(info["shape"], json!([8]));
    for absent in [
        "w.npy",
        "below.npy",
        "x.exe",
        "x",
        ".npy",
        "x.NPY",
        "chunks",
    ] {
        assert_eq!(
            errno(fs::metadata(view(&mount, "", absent))),
            ENOENT,
            "{absent}"
        );
    }
    for absent in [
        "chunks/2",
        "chunks/00",
        "chunks/0.0",
        "y.npy",
        "inner",
        "x.json",
    ] {
        assert_eq!(
            errno(fs::metadata(view(&mount, "x", absent))),
            ENOENT,
            "{absent}"
        );
    }
}

#[test]
fn the_view_tree_is_a_directory_for_each_group() {
    let stores = hierarchy();
    let mount = stores.mount(&["--tree", "views", "--formats", "all"]);
    let top = names(mount.path());
    for name in [
        "x.npy",
        "x.chunks",
        "y.bin",
        "good.npy",
        "below",
        "README.txt",
    ] {
        assert!(top.contains(&name.to_owned()), "{name}: {top:?}");
    }
    for name in ["x", ".zattrs", ".zarrfs", "y"] {
        assert!(!top.contains(&name.to_owned()), "{name}: {top:?}");
        assert_eq!(errno(fs::metadata(mount.join(name))), ENOENT, "{name}");
    }
    assert_eq!(read(mount.join("good.bin")).unwrap(), le(&GOOD));
    assert_eq!(
        read(mount.join("below/z.chunks/1")).unwrap(),
        le(&[FILL; 4])
    );
    inodes(mount.path());

    let mount = stores.mount(&["--tree", "both", "--formats", "all"]);
    assert_eq!(names(mount.path()), ["native", "views"]);
    assert_eq!(names(mount.join("native")), names(stores.path()));
    assert_eq!(names(mount.join("views")), top);
    assert_eq!(
        read(mount.join("native/good/0")).unwrap(),
        fs::read(stores.path().join("good/0")).unwrap()
    );
    assert_eq!(read(mount.join("views/good.bin")).unwrap(), le(&GOOD));
    assert_eq!(
        read(mount.join("native/good/.zarrfs/good.bin")).unwrap(),
        le(&GOOD)
    );
    assert_eq!(errno(fs::metadata(mount.join("good"))), ENOENT);
    inodes(mount.path());
}

#[test]
fn b11_a_group_with_the_name_of_a_view_has_precedence_and_the_view_has_another_name() {
    let stores = hierarchy();
    stores.put("x.npy/.zgroup", br#"{"zarr_format": 2}"#);
    stores.v2("x.npy/inside", json!({}), &[]);
    for tree in ["views", "both"] {
        let mount = stores.mount(&["--tree", tree, "--formats", "all"]);
        let top = mount.join(if tree == "both" { "views" } else { "" });
        let listed = names(&top);
        for name in ["x.npy", "x~view.npy", "x.bin"] {
            assert!(listed.contains(&name.to_owned()), "{name}: {listed:?}");
        }
        assert!(top.join("x.npy").is_dir());
        assert!(names(top.join("x.npy")).contains(&"inside.npy".to_owned()));
        assert_eq!(
            read(top.join("x~view.npy")).unwrap()[128..],
            le(&[1, 2, 3, 4, FILL, FILL, FILL, FILL])
        );
        let unique: BTreeSet<&String> = listed.iter().collect();
        assert_eq!(unique.len(), listed.len(), "{listed:?}");
    }
}

#[test]
fn an_option_selects_the_listed_formats_and_all_open_by_name() {
    let stores = hierarchy();
    let mount = stores.mount(&["--formats", "npy,chunks"]);
    assert_eq!(
        names(view(&mount, "x", "")),
        [
            "README.txt",
            "attributes.json",
            "chunks",
            "info.json",
            "x.npy"
        ]
    );
    assert_eq!(read(view(&mount, "good", "good.bin")).unwrap(), le(&GOOD));
    assert!(
        read(view(&mount, "good", "good.hdr"))
            .unwrap()
            .starts_with(b"ENVI\n")
    );

    let refused = Mount::attempt(stores.path(), &["--formats", "npy,doc"]).unwrap_err();
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("`doc`"), "{}", refused.stderr);
}

#[test]
fn a_listing_of_a_million_chunks_takes_bounded_memory() {
    let stores = Stores::new();
    stores.v2("flat", json!({"shape": [1_000_000], "chunks": [1]}), &[]);
    stores.v3(
        "nested",
        json!({"shape": [1000, 1000], "chunk_grid": grid(&[1, 1])}),
        &[],
    );
    let mount = stores.mount(&[]);
    let before = mount.memory("VmHWM");
    let mut seen = vec![false; 1_000_000];
    for entry in fs::read_dir(view(&mount, "flat", "chunks")).unwrap() {
        let number: usize = entry
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(!seen[number], "{number} is listed twice");
        seen[number] = true;
    }
    assert!(seen.iter().all(|seen| *seen));
    let expected: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
    let mut sorted = expected.clone();
    sorted.sort();
    assert_eq!(names(view(&mount, "nested", "chunks")), ["c"]);
    assert_eq!(names(view(&mount, "nested", "chunks/c")), sorted);
    for row in ["0", "57", "999"] {
        assert_eq!(
            names(view(&mount, "nested", &format!("chunks/c/{row}"))),
            sorted
        );
    }
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes for a listing");
}

#[test]
fn a_lookup_finds_one_of_a_billion_chunks() {
    let stores = Stores::new();
    stores.v2(
        "flat",
        json!({"shape": [1_000_000_000], "chunks": [1]}),
        &[("999999998", &le(&[77]))],
    );
    stores.v3(
        "nested",
        json!({"shape": [1000, 1000, 1000], "chunk_grid": grid(&[1, 1, 1])}),
        &[("c/999/0/5", &le(&[78]))],
    );
    let mount = stores.mount(&[]);
    let before = mount.memory("VmHWM");
    for (name, value) in [("999999998", 77), ("999999999", FILL), ("0", FILL)] {
        let path = view(&mount, "flat", "chunks").join(name);
        assert_eq!(fs::metadata(&path).unwrap().len(), 4);
        assert_eq!(read(&path).unwrap(), le(&[value]), "{name}");
    }
    for (name, value) in [("999/0/5", 78), ("999/999/999", FILL)] {
        let path = view(&mount, "nested", "chunks/c").join(name);
        assert_eq!(read(&path).unwrap(), le(&[value]), "{name}");
    }
    for absent in ["1000000000", "0999999999", "-1", "1e3"] {
        let path = view(&mount, "flat", "chunks").join(absent);
        assert_eq!(errno(fs::metadata(path)), ENOENT, "{absent}");
    }
    let whole = File::open(view(&mount, "flat", "flat.bin")).unwrap();
    assert_eq!(whole.metadata().unwrap().len(), 4_000_000_000);
    let blocks = whole.metadata().unwrap().blocks();
    assert_eq!(
        blocks,
        4_000_000_000 / 512,
        "`tar -S` takes fewer blocks for holes"
    );
    let mut end = [0; 16];
    whole.read_exact_at(&mut end, 4_000_000_000 - 16).unwrap();
    assert_eq!(end[..], le(&[FILL, FILL, 77, FILL])[..]);
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes");
    assert!(gauge(mount.path(), "inodes") < 100);
}

#[test]
fn inode_numbers_survive_a_remount_and_are_those_of_listings() {
    let stores = hierarchy();
    let text = b"\x02\0\0\0\x01\0\0\0a\x02\0\0\0bc";
    stores.v2(
        "text",
        json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "", "chunks": [2], "shape": [2]}),
        &[("0", text)],
    );
    let sharded = json!({"codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2], "codecs": [little()], "index_codecs": [little()]}}]});
    stores.v3("sharded", sharded, &[]);
    for args in [["--views", "list"], ["--tree", "both"], ["--tree", "views"]] {
        let args = [&args[..], &["--formats", "all"]].concat();
        let first = inodes(stores.mount(&args).path());
        let again = inodes(stores.mount(&args).path());
        assert_eq!(first, again, "{args:?}");
        assert!(first.len() > 45, "{first:?}");
        let numbers: BTreeSet<u64> = first
            .iter()
            .filter(|(path, _)| path.file_name().unwrap().to_str().unwrap().contains("text"))
            .map(|(_, ino)| *ino)
            .collect();
        assert!(!numbers.is_empty());
    }
    let mount = stores.mount(&["--views", "list"]);
    let json = read(view(&mount, "text", "text.json")).unwrap();
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json).unwrap(),
        json!(["a", "bc"])
    );
    assert_eq!(
        names(view(&mount, "sharded", "inner")),
        ["0", "1", "2", "3"]
    );
}

#[test]
fn metadata_are_extended_attributes() {
    let stores = hierarchy();
    let mount = stores.mount(&[]);
    for path in [
        mount.join("x"),
        view(&mount, "x", "x.npy"),
        view(&mount, "x", "chunks/0"),
    ] {
        for (name, value) in [
            ("shape", "[8]"),
            ("chunks", "[4]"),
            ("attrs.units", "K"),
            ("attrs.n", "[1,2]"),
            ("zarr_format", "2"),
        ] {
            let found = xattr(&path, &format!("user.zarr.{name}"));
            assert_eq!(found.as_deref(), Some(value), "{name} of {path:?}");
        }
        let dtype = xattr(&path, "user.zarr.dtype").unwrap();
        assert!(dtype.contains("i4") || dtype.contains("int32"), "{dtype}");
        let listed = sh(&format!("getfattr -d -m '^user' {} 2>&1", path.display()));
        assert!(listed.contains("user.zarr.attrs.units=\"K\""), "{listed}");
    }
    assert_eq!(
        xattr(mount.path(), "user.zarr.attrs.title").as_deref(),
        Some("a group")
    );
    assert_eq!(xattr(&mount.join("x"), "user.zarr.attrs.nothing"), None);
    assert_eq!(xattr(&mount.join("x/0"), "user.zarr.shape"), None);
}

#[test]
fn views_cannot_be_changed() {
    let stores = hierarchy();
    let mount = stores.mount(&[]);
    let erofs = rustix::io::Errno::ROFS.raw_os_error();
    let npy = view(&mount, "x", "x.npy");
    assert_eq!(errno(File::options().write(true).open(&npy)), erofs);
    assert_eq!(errno(fs::remove_file(&npy)), erofs);
    assert_eq!(errno(File::create(view(&mount, "x", "new"))), erofs);
    assert_eq!(
        errno(fs::create_dir(view(&mount, "x", "chunks/new"))),
        erofs
    );
    let status = Command::new("setfattr")
        .args(["-n", "user.zarr.shape", "-v", "1"])
        .arg(&npy)
        .status();
    assert!(!status.unwrap().success());
    assert_others_served(&mount, &stores);
}

#[test]
fn arrays_with_names_of_views_are_found_under_their_own_names() {
    let stores = Stores::new();
    let numbers = |first: i32| le(&[first, 2, 3, 4]);
    for (first, name) in [(1, "array"), (2, "x"), (3, "x~view"), (4, "g/g")] {
        stores.v2(
            name,
            json!({}),
            &[("0", &numbers(first)), ("1", &numbers(9))],
        );
    }
    let mount = stores.mount(&["--formats", "all"]);
    for (first, directory, name) in [
        (1, "", "array"),
        (2, "", "x"),
        (3, "", "x~view"),
        (4, "g", "g"),
    ] {
        let path = mount
            .join(directory)
            .join(".zarrfs")
            .join(format!("{name}.bin"));
        assert_eq!(read(&path).unwrap()[..4], le(&[first]), "{path:?}");
        assert!(names(path.parent().unwrap()).contains(&format!("{name}.bin")));
    }
}

#[test]
fn a_shape_with_very_many_runs_or_lists_does_not_block_other_requests() {
    let stores = Stores::new();
    let zlib = json!({"id": "zlib"});
    let sparse = json!({"shape": [1_u64 << 40, 3], "chunks": [1_u64 << 30, 4], "compressor": zlib});
    stores.v2("sparse", sparse, &[]);
    let text = |shape: Value, fill: &str| {
        json!({"shape": shape, "chunks": [1, 1], "dtype": "|O", "fill_value": fill,
            "filters": [{"id": "vlen-utf8"}]})
    };
    stores.v2("lists", text(json!([1_u64 << 40, 0]), ""), &[]);
    stores.v2("fill", text(json!([100_000, 1]), &"x".repeat(1 << 20)), &[]);
    let mount = stores.mount(&[]);
    let file = fs::File::open(view(&mount, "sparse", "sparse.bin")).unwrap();
    let mut bytes = vec![0; 64 << 10];
    for i in 0..40 {
        file.read_exact_at(&mut bytes, i * 65_536).unwrap();
    }
    assert!(bytes == le(&[FILL; 16 << 10]));
    for name in ["lists", "fill"] {
        let refused = fs::metadata(view(&mount, name, &format!("{name}.json")));
        assert_eq!(
            errno(refused),
            rustix::io::Errno::NOMEM.raw_os_error(),
            "{name}"
        );
    }
    assert!(mount.memory("VmHWM") < 400 << 20);
    assert_others_served(&mount, &stores);
}

#[test]
fn a_listing_changes_no_file_that_is_mapped() {
    let stores = Stores::new();
    let value: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    stores.v2(
        "a",
        json!({"shape": [1 << 20], "chunks": [1 << 20]}),
        &[("0", &value)],
    );
    let mount = stores.mount(&[]);
    let directory = view(&mount, "a", "");
    for name in ["a.bin", "chunks/0"] {
        assert!(read(directory.join(name)).unwrap() == value, "{name}");
        stays_mapped(&directory.join(name));
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn views_of_elements_in_json_do_not_shadow_views_of_every_node() {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    stores.put(".zattrs", br#"{"title": "a group"}"#);
    let document = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "",
        "chunks": [1], "shape": [1]});
    for name in ["attributes", "info", "zom", "plain"] {
        let text = [
            &[1, 0, 0, 0][..],
            &u32::try_from(name.len()).unwrap().to_le_bytes(),
        ]
        .concat();
        let text = [&text, name.as_bytes()].concat();
        stores.v2(name, document.clone(), &[("0", &text)]);
        stores.put(&format!("{name}/.zattrs"), br#"{"of": "an array"}"#);
    }
    let parsed = |path: &std::path::Path| -> Value {
        serde_json::from_slice(&read(path).unwrap()).unwrap_or_else(|e| panic!("{path:?}: {e}"))
    };
    for (args, tree) in [(&[][..], ".zarrfs"), (&["--tree", "views"], "")] {
        let mount = stores.mount(&[args, &["--formats", "all"]].concat());
        let top = mount.join(tree);
        let listed = names(&top);
        let unique: BTreeSet<&String> = listed.iter().collect();
        assert_eq!(unique.len(), listed.len(), "{listed:?}");
        for name in ["attributes", "info", "zom"] {
            let file = format!("{name}~view.json");
            assert!(listed.contains(&file), "{listed:?}");
            assert_eq!(parsed(&top.join(file)), json!([name]));
        }
        assert_eq!(parsed(&top.join("plain.json")), json!(["plain"]));
        assert_eq!(
            parsed(&top.join("attributes.json")),
            json!({"title": "a group"})
        );
    }
    let mount = stores.mount(&[]);
    for name in ["attributes", "info"] {
        let top = view(&mount, name, "");
        let listed = names(&top);
        let unique: BTreeSet<&String> = listed.iter().collect();
        assert_eq!(unique.len(), listed.len(), "{listed:?}");
        assert_eq!(
            parsed(&top.join(format!("{name}~view.json"))),
            json!([name])
        );
        assert_eq!(
            parsed(&top.join("attributes.json")),
            json!({"of": "an array"})
        );
        assert!(parsed(&top.join("info.json")).get("shape").is_some());
    }
    assert_eq!(parsed(&view(&mount, "zom", "zom.json")), json!(["zom"]));
    inodes(stores.mount(&["--tree", "views"]).path());
    assert_others_served(&mount, &stores);
}
