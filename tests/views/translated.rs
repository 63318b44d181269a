//! The hierarchy in another version: read by both generations of the reference library, walked and
//! copied by ordinary tools, and over sources that are damaged or hang.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clients::{EIO, ENOENT, Foreground, drop_caches, gauge};
use crate::stores::*;
use crate::support::*;

/// Returns a path in the repository.
fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the Python with version 2 or 3 of the reference library.
pub fn interpreter(version: u8) -> PathBuf {
    let named = std::env::var_os(format!("ZARRFS_VENV{version}"));
    let fallback = || in_repository(&format!("tests/fixtures/.venv{version}"));
    let venv = named.map_or_else(fallback, PathBuf::from);
    venv.join("bin/python")
}

/// Returns a command of version 2 or 3 of the reference library.
pub fn zarr(version: u8) -> Command {
    let mut command = Command::new(interpreter(version));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Lets a client compare a translation with its original. Returns the number of equal arrays, and
/// the arrays that the translation lacks.
fn compare(version: u8, mount: &Path, target: &str, args: &[&str]) -> (u64, Vec<String>) {
    let mut client = zarr(version);
    client
        .arg(in_repository("tests/views/translated.py"))
        .arg(mount);
    let output = run_for(client.arg(target).args(args), Duration::from_secs(250));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let counts = stdout.lines().last().unwrap_or_default();
    let counts: Value = serde_json::from_str(counts).unwrap_or_default();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{target}: {stdout}\n{stderr}");
    let missing = counts["missing"].as_array().unwrap().iter();
    let missing = missing.map(|path| path.as_str().unwrap().to_owned());
    (counts["same"].as_u64().unwrap(), missing.collect())
}

/// Arrays of the v3 matrix that v2 cannot express.
const NOT_IN_V2: [&str; 11] = [
    "codec/transpose-be-gzip",
    "codec/transpose-twice",
    "codec/transpose021",
    "codec/transpose102",
    "codec/transpose120",
    "codec/transpose201",
    "odd/bfloat16",
    "odd/float8_e4m3",
    "odd/int4",
    "shard/compressed-after",
    "shard/transposed-outside",
];

#[test]
fn the_v3_matrix_as_v2_and_unsharded_holds_the_same_values() {
    if !may_run(&interpreter(2)) || !may_run(&interpreter(3)) {
        return;
    }
    for source in ["v3", "v3-deflated.zip"] {
        let mount = Mount::new(in_repository("target/fixtures/matrix").join(source));
        let digests = scratch();
        let digests = digests.path().join("digests");
        let digests = digests.to_str().unwrap();
        // zarr-python 3 cannot read nested v2 structures, but zarr-python 2 can.
        let skipped = ["--skip", "dtype/struct-nested"];
        let args = [&["2", "--digests", digests][..], &skipped].concat();
        let (same, missing) = compare(3, mount.path(), "as-v2", &args);
        assert!(same >= 239, "{same}");
        assert_eq!(missing, NOT_IN_V2);
        let (same, missing) = compare(2, mount.path(), "as-v2", &["2", "--expect", digests]);
        assert!(same >= 241, "{same}");
        assert_eq!(missing, NOT_IN_V2);
        let (same, missing) = compare(3, mount.path(), "unsharded", &["3"]);
        assert!(same >= 250, "{same}");
        assert_eq!(missing, NOT_IN_V2[9..]);
        let log = mount.log();
        assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
    }
}

#[test]
fn the_v2_matrix_as_v3_holds_the_same_values() {
    if !may_run(&interpreter(2)) || !may_run(&interpreter(3)) {
        return;
    }
    for source in ["v2", "v2-stored.zip"] {
        let mount = Mount::new(in_repository("target/fixtures/matrix").join(source));
        // For the fill value 0 of strings, zarr-python 3 returns "0", and all other readers an empty string.
        let args = ["3", "--skip", "object/vlen-utf8-zerofill"];
        let (same, missing) = compare(3, mount.path(), "as-v3", &args);
        assert!(same >= 354, "{same}");
        assert_eq!(missing.len(), 23, "{missing:?}");
        let log = mount.log();
        for name in &missing {
            assert!(
                log.contains(&format!("{name} is not in as-v3: ")),
                "{name}: {log}"
            );
        }
        assert!(!log.contains("ERROR") && !log.contains("EIO"), "{log}");
    }
}

#[test]
fn consolidated_metadata_name_the_nodes_of_a_listing() {
    if !may_run(&interpreter(2)) || !may_run(&interpreter(3)) {
        return;
    }
    let (v2, v3) = ("target/fixtures/matrix/v2", "target/fixtures/matrix/v3");
    let mount = Mount::new(in_repository(v3));
    let script = "import sys, zarr\n\
         g = zarr.open_consolidated(sys.argv[1])\n\
         print(len(list(g['shard'].arrays())), g['shard/none-end'][:].size)";
    let root = mount.join(".zarrfs/as-v2");
    let found = run(zarr(2).args(["-c", script]).arg(&root));
    assert_eq!(found.split_whitespace().next(), Some("19"), "{found}");
    let copies: Value = serde_json::from_slice(&read(root.join(".zmetadata")).unwrap()).unwrap();
    for (name, copy) in copies["metadata"].as_object().unwrap() {
        let own: Value = serde_json::from_slice(&read(root.join(name)).unwrap()).unwrap();
        assert_eq!(own, *copy, "{name}");
    }
    mount.unmount();
    let mount = Mount::new(in_repository(v2));
    let script = "import sys, zarr\n\
         g = zarr.open_group(sys.argv[1], mode='r', use_consolidated=True)\n\
         print(len(list(g['dtype'].arrays())), g['dtype/bi4-zlib'][:].size)";
    let found = run(zarr(3)
        .args(["-W", "ignore", "-c", script])
        .arg(mount.join(".zarrfs/as-v3")));
    assert_eq!(found.split_whitespace().next(), Some("84"), "{found}");
}

/// Returns a sharding codec with shards of four elements, inner chunks of two, and the index at the end.
fn sharded() -> Value {
    json!({"codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2], "codecs": [little()], "index_codecs": [little(), {"name": "crc32c"}]}}]})
}

fn shard(first: (u64, u64), second: (u64, u64)) -> Vec<u8> {
    let mut bytes: Vec<u8> = le(&[1, 2, 3, 4]);
    let index: Vec<u8> = [first, second]
        .iter()
        .flat_map(|(offset, length)| [offset.to_le_bytes(), length.to_le_bytes()].concat())
        .collect();
    bytes.extend(&index);
    bytes.extend(crc32c::crc32c(&index).to_le_bytes());
    bytes
}

const ABSENT: (u64, u64) = (u64::MAX, u64::MAX);

/// Creates a v3 group with an array, valid shards, damaged shards, and an array that v2 cannot
/// express.
fn hierarchy() -> Stores {
    let stores = Stores::new();
    fs::remove_dir_all(stores.path().join("good")).unwrap();
    stores.put("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    stores.v3(
        "good",
        json!({}),
        &[("c/0", &le(&GOOD[..4])), ("c/1", &le(&GOOD[4..]))],
    );
    let right = shard((8, 8), (0, 8));
    stores.v3(
        "shards",
        sharded(),
        &[("c/0", &right), ("c/1", &shard((0, 8), ABSENT))],
    );
    let mut damaged = right.clone();
    damaged[20] ^= 1;
    let lying = shard((0, 8), (12, 8));
    stores.v3("damaged", sharded(), &[("c/0", &damaged), ("c/1", &lying)]);
    stores.v3("short", sharded(), &[("c/0", &right[..20])]);
    let odd = json!({"data_type": "bfloat16", "fill_value": 0});
    stores.v3("odd", odd, &[("c/0", &[0; 8])]);
    stores
}

fn shown(mount: &Mount, target: &str, path: &str) -> PathBuf {
    mount.join(".zarrfs").join(target).join(path)
}

#[test]
fn a_corrupt_shard_index_is_eio_and_absent_inner_chunks_are_enoent() {
    let stores = hierarchy();
    let mount = stores.mount(&[]);
    for (target, at) in [("as-v2", ""), ("unsharded", "c/")] {
        let chunk = |array: &str, n: u32| read(shown(&mount, target, &format!("{array}/{at}{n}")));
        assert_eq!(chunk("shards", 0).unwrap(), le(&[3, 4]));
        assert_eq!(chunk("shards", 1).unwrap(), le(&[1, 2]));
        assert_eq!(chunk("shards", 2).unwrap(), le(&[1, 2]));
        assert_eq!(errno(chunk("shards", 3)), ENOENT);
        assert_eq!(errno(chunk("shards", 4)), ENOENT);
        assert_eq!(errno(chunk("damaged", 0)), EIO);
        assert_eq!(errno(chunk("damaged", 1)), EIO);
        assert_eq!(chunk("damaged", 2).unwrap(), le(&[1, 2]));
        assert_eq!(errno(chunk("damaged", 3)), EIO);
        assert_eq!(errno(chunk("short", 0)), EIO);
        assert_eq!(errno(chunk("short", 2)), ENOENT);
    }
    assert_eq!(
        names(shown(&mount, "as-v2", "shards")),
        [".zarray", "0", "1", "2"]
    );
    // A chunk that cannot be read exists and can be opened, because some readers treat any error
    // before the read as absence.
    let damaged = shown(&mount, "as-v2", "damaged/0");
    let stat = fs::metadata(&damaged).unwrap();
    assert!(stat.is_file() && stat.len() == 1);
    assert!(fs::File::open(&damaged).is_ok());
    assert_eq!(
        names(shown(&mount, "unsharded", "damaged/c")),
        ["0", "1", "2", "3"]
    );
    assert_eq!(errno(read(shown(&mount, "as-v2", "odd/.zarray"))), ENOENT);
    assert_eq!(
        names(shown(&mount, "as-v2", "")),
        [
            ".zgroup",
            ".zmetadata",
            "damaged",
            "good",
            "shards",
            "short"
        ]
    );
    logged(
        &mount,
        &["odd is not in as-v2: data type bfloat16 has no name in v2"],
    );
    assert_eq!(mount.log().matches("odd is not in").count(), 1);
    // The native tree is unchanged.
    assert_eq!(names(mount.path()), names(stores.path()));
}

/// A damaged shard results in an error of each client, never in fill values.
#[test]
fn no_client_reads_a_damaged_shard_as_absent() {
    if !may_run(&interpreter(2)) || !may_run(&interpreter(3)) {
        return;
    }
    let stores = hierarchy();
    let packed = scratch();
    let packed = packed.path().join("damaged.zip");
    let script = "import sys, zipfile, pathlib\n\
         root = pathlib.Path(sys.argv[1])\n\
         z = zipfile.ZipFile(sys.argv[2], 'w', zipfile.ZIP_DEFLATED)\n\
         [z.write(p, p.relative_to(root)) for p in sorted(root.rglob('*')) if p.is_file()]\n\
         at = z.getinfo('shards/c/0').header_offset + 30 + len('shards/c/0')\n\
         z.close()\n\
         data = bytearray(open(sys.argv[2], 'rb').read())\n\
         data[at] ^= 255\n\
         open(sys.argv[2], 'wb').write(data)";
    run(zarr(3).args(["-c", script]).arg(stores.path()).arg(&packed));
    let mounts = [stores.mount(&[]), Mount::new(&packed)];
    for (mount, array) in mounts.iter().zip(["damaged", "shards"]) {
        for (version, target) in [(2, "as-v2"), (3, "as-v2"), (3, "unsharded")] {
            let script = "import sys, zarr\n\
                 try: print(zarr.open_array(sys.argv[1], mode='r')[:2])\n\
                 except OSError as e: print('errno', e.errno)";
            let client = &mut zarr(version);
            let found = run(client.args(["-c", script]).arg(shown(mount, target, array)));
            assert_eq!(found.trim(), format!("errno {EIO}"), "{version} {target}");
        }
        let gdal = Path::new("/usr/bin/gdalinfo");
        if gdal.exists() && may_run(gdal) {
            let root = shown(mount, "as-v2", "");
            let name = format!("ZARR:\"{}\":/{array}", root.display());
            let output = run_for(
                Command::new("gdalmdiminfo").args(["-detailed", &name]),
                Duration::from_secs(30),
            );
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("ERROR"), "{stderr}");
        }
    }
    // A repaired shard has another inode.
    let chunk = shown(&mounts[0], "as-v2", "damaged/0");
    assert_eq!(errno(read(&chunk)), EIO);
    let right = read(stores.path().join("shards/c/0")).unwrap();
    stores.put("damaged/c/0", &right);
    assert!(wait_until(Duration::from_secs(20), || read(&chunk).is_ok()));
    assert_eq!(read(&chunk).unwrap(), le(&[3, 4]));
}

/// Creates a v2 group with two arrays and a group.
fn old_hierarchy() -> Stores {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    stores.v2("other", json!({}), &[]);
    stores.put("group/.zgroup", br#"{"zarr_format": 2}"#);
    stores
}

#[test]
fn a_node_that_cannot_be_read_is_never_missing_from_consolidated_documents() {
    let stores = old_hierarchy();
    let elsewhere = scratch();
    fs::rename(
        stores.path().join("other/.zarray"),
        elsewhere.path().join(".zarray"),
    )
    .unwrap();
    // The link is refused whichever user runs the daemon.
    std::os::unix::fs::symlink(
        elsewhere.path().join(".zarray"),
        stores.path().join("other/.zarray"),
    )
    .unwrap();
    let mount = stores.mount(&["--ttl", "0s"]);
    for name in ["zom.json", ".zmetadata"] {
        assert_eq!(errno(read(mount.join(".zarrfs").join(name))), ENOENT);
    }
    let root = |mount: &Mount| -> Value {
        let document = read(shown(mount, "as-v3", "zarr.json")).unwrap();
        serde_json::from_slice(&document).unwrap()
    };
    assert_eq!(root(&mount).get("consolidated_metadata"), None);
    let readme = |mount: &Mount| fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
    let denied = "other/.zarray: access denied: the link leads out of the source";
    for line in [
        format!("zom.json: not all of it can be read: {denied}"),
        format!(".zmetadata: not all of it can be read: {denied}"),
        format!("as-v3/other: {denied}"),
        format!(
            "as-v3/zarr.json: no consolidated metadata, some metadata below it cannot be read: {denied}"
        ),
    ] {
        assert!(
            readme(&mount).lines().any(|found| found == line),
            "{line}: {}",
            readme(&mount)
        );
    }
    // A document that is read, but is not valid metadata, is left out.
    fs::remove_file(stores.path().join("other/.zarray")).unwrap();
    stores.put("other/.zarray", b"{");
    mount.unmount();
    let mount = stores.mount(&[]);
    let copies = root(&mount)["consolidated_metadata"]["metadata"].clone();
    let copies: Vec<&String> = copies.as_object().unwrap().keys().collect();
    assert_eq!(copies, ["good", "group"]);
    let model = read(mount.join(".zarrfs/zom.json")).unwrap();
    let model: Value = serde_json::from_slice(&model).unwrap();
    assert!(model["members"].get("good").is_some() && model["members"].get("other").is_none());
    assert_eq!(errno(read(mount.join(".zarrfs/.zmetadata"))), ENOENT);
    for line in [
        "zom.json: without other: .zarray: ",
        ".zmetadata: a document is not consolidated: other/.zarray: ",
        "as-v3/other: .zarray: ",
    ] {
        assert!(
            readme(&mount).lines().any(|found| found.starts_with(line)),
            "{}",
            readme(&mount)
        );
    }
}

/// Returns the first 16 bytes of words of this width, as `shuffle` stores them.
fn planes(width: usize) -> Vec<u8> {
    let plane = |at| (0..16).skip(at).step_by(width);
    (0..width).flat_map(plane).collect()
}

#[test]
fn clients_open_nodes_that_are_implicit_in_one_version_only() {
    if !may_run(&interpreter(2)) || !may_run(&interpreter(3)) {
        return;
    }
    let script = "import sys, warnings, zarr\n\
         warnings.simplefilter('ignore')\n\
         g = zarr.open_consolidated(sys.argv[1])\n\
         print(g['implicit/shuffled'][:].tobytes().hex(), g['named/crs'][()])\n\
         import xarray\n\
         d = xarray.open_zarr(sys.argv[1] + '/named', consolidated=False)\n\
         print(d.crs.dims, float(d.crs))";
    let bytes: String = (0..16).map(|byte| format!("{byte:02x}")).collect();
    let values = |mount: &Mount, version: u8, target: &str| {
        let mut client = zarr(version);
        let root = shown(mount, target, "");
        let root = root.to_str().unwrap().trim_end_matches('/').to_owned();
        run(client.args(["-c", script, &root]))
    };
    let stores = hierarchy();
    let shuffle = json!([little(), {"name": "numcodecs.shuffle", "configuration": {}}]);
    let doubles = json!({"data_type": "float64", "shape": [2], "chunk_grid": grid(&[2]),
        "fill_value": 0, "codecs": shuffle});
    stores.v3("implicit/shuffled", doubles, &[("c/0", &planes(8))]);
    let scalar = json!({"shape": [], "chunk_grid": grid(&[]), "fill_value": -1});
    stores.v3("named/crs", scalar, &[("c", &le(&[7]))]);
    stores.put(
        "named/zarr.json",
        br#"{"zarr_format": 3, "node_type": "group"}"#,
    );
    let mount = stores.mount(&[]);
    for version in [2, 3] {
        let found = values(&mount, version, "as-v2");
        assert_eq!(found, format!("{bytes} 7\n() 7.0\n"), "{version}");
    }
    mount.unmount();
    let stores = old_hierarchy();
    let doubles = json!({"dtype": "<f8", "shape": [2], "chunks": [2], "fill_value": 0,
        "filters": [{"id": "shuffle"}]});
    stores.v2("implicit/shuffled", doubles, &[("0", &planes(4))]);
    stores.v2(
        "leveled",
        json!({"compressor": {"id": "gzip", "level": 12}}),
        &[],
    );
    let scalar = json!({"shape": [], "chunks": [], "fill_value": 7});
    stores.v2("named/crs", scalar, &[]);
    stores.put("named/crs/.zattrs", br#"{"_ARRAY_DIMENSIONS": []}"#);
    let mount = stores.mount(&[]);
    let found = values(&mount, 3, "as-v3");
    assert_eq!(found, format!("{bytes} 7\n() nan\n"));
}

#[test]
fn consolidated_metadata_are_as_new_as_the_newest_of_their_documents() {
    let stores = old_hierarchy();
    let touch = |path: &str, seconds: u64| {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = fs::File::options()
            .write(true)
            .open(stores.path().join(path));
        file.unwrap().set_modified(time).unwrap();
    };
    touch(".zgroup", 1000);
    touch("good/.zarray", 3000);
    touch("other/.zarray", 2000);
    touch("group/.zgroup", 1000);
    let mount = stores.mount(&["--ttl", "0s"]);
    let modified = |path: &str| fs::metadata(shown(&mount, "as-v3", path)).unwrap().mtime();
    assert_eq!(modified("zarr.json"), 3000);
    assert_eq!(modified("group/zarr.json"), 1000);
    // The size is the same, so only the modification time changes.
    touch("group/.zgroup", 4000);
    assert_eq!(modified("zarr.json"), 4000);
    stores.put(
        ".zmetadata",
        br#"{"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}}}"#,
    );
    // In a local store, nodes are read from their documents, not from consolidated metadata.
    touch(".zmetadata", 5000);
    touch(".zgroup", 1001);
    assert_eq!(modified("zarr.json"), 4000);
}

#[test]
fn a_rewritten_shard_is_never_read_with_its_old_index() {
    let stores = hierarchy();
    let mount = stores.mount(&["--ttl", "0s"]);
    let chunk = || read(shown(&mount, "as-v2", "shards/0"));
    assert_eq!(chunk().unwrap(), le(&[3, 4]));
    let before = fs::metadata(shown(&mount, "as-v2", "shards/0"))
        .unwrap()
        .ino();
    stores.put("shards/c/0.new", &shard((0, 8), (8, 8)));
    fs::rename(
        stores.path().join("shards/c/0.new"),
        stores.path().join("shards/c/0"),
    )
    .unwrap();
    assert_eq!(chunk().unwrap(), le(&[1, 2]));
    let after = fs::metadata(shown(&mount, "as-v2", "shards/0"))
        .unwrap()
        .ino();
    assert_ne!(before, after);
    // With another grid, the same keys have other elements.
    let mut other = v3_document();
    for (name, value) in sharded().as_object().unwrap() {
        other[name] = value.clone();
    }
    other["codecs"][0]["configuration"]["chunk_shape"] = json!([4]);
    stores.put("shards/zarr.json", other.to_string().as_bytes());
    stores.put(
        "shards/c/0",
        &[le(&[5, 6, 7, 8]), {
            let index = [0_u64.to_le_bytes(), 16_u64.to_le_bytes()].concat();
            [&index[..], &crc32c::crc32c(&index).to_le_bytes()].concat()
        }]
        .concat(),
    );
    assert_eq!(chunk().unwrap(), le(&[5, 6, 7, 8]));
    assert_eq!(errno(read(shown(&mount, "as-v2", "shards/2"))), ENOENT);
}

#[test]
fn inode_numbers_of_translations_are_stable_after_remount_and_forget() {
    let stores = hierarchy();
    let paths = [
        "",
        ".zgroup",
        ".zmetadata",
        "good",
        "good/.zarray",
        "good/0",
        "shards/1",
    ];
    let numbers =
        |mount: &Mount| paths.map(|path| fs::metadata(shown(mount, "as-v2", path)).unwrap().ino());
    let mount = stores.mount(&[]);
    let before = numbers(&mount);
    let mut distinct = before.to_vec();
    distinct.extend(["good", "shards"].map(|n| fs::metadata(mount.join(n)).unwrap().ino()));
    distinct.extend(
        ["good", "good/c/0"].map(|n| fs::metadata(shown(&mount, "unsharded", n)).unwrap().ino()),
    );
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), paths.len() + 4);
    if is_root() {
        let known = || {
            drop_caches();
            gauge(mount.path(), "inodes") <= 2
        };
        assert!(
            wait_until(Duration::from_secs(10), known),
            "{}",
            gauge(mount.path(), "inodes")
        );
    }
    mount.unmount();
    let mount = stores.mount(&[]);
    assert_eq!(numbers(&mount), before);
    assert_eq!(
        xattr(&shown(&mount, "as-v2", "good"), "user.zarr.zarr_format").as_deref(),
        Some("2")
    );
    assert_eq!(
        xattr(&mount.join("good"), "user.zarr.zarr_format").as_deref(),
        Some("3")
    );
}

#[test]
fn translations_are_listed_if_they_differ_and_open_if_they_can_be_rendered() {
    let stores = hierarchy();
    let listed = |mount: &Mount, directory: &str| -> Vec<String> {
        let found = names(mount.join(directory)).into_iter();
        found
            .filter(|name| name.starts_with("as-") || name == "unsharded")
            .collect()
    };
    let mount = stores.mount(&[]);
    assert_eq!(listed(&mount, ".zarrfs"), ["as-v2", "unsharded"]);
    assert!(listed(&mount, "good/.zarrfs").is_empty());
    assert!(shown(&mount, "as-v3", "good/zarr.json").is_file());
    assert!(!mount.join("good/.zarrfs/as-v2").exists());
    let copy = scratch();
    sh(&format!(
        "cp -r {mount}/.zarrfs/as-v2/shards {copy}/shards
        diff -r {mount}/.zarrfs/as-v2/shards {copy}/shards",
        mount = mount.path().display(),
        copy = copy.path().display()
    ));
    mount.unmount();
    let mount = stores.mount(&["--tree", "views", "--formats", "npy,as-v2"]);
    assert_eq!(listed(&mount, ""), ["as-v2"]);
    assert_eq!(
        read(mount.join("unsharded/good/c/0")).unwrap(),
        le(&GOOD[..4])
    );
    mount.unmount();
    let mount = stores.mount(&["--tree", "both"]);
    assert_eq!(listed(&mount, "views"), ["as-v2", "unsharded"]);
    assert_eq!(
        read(mount.join("views/as-v2/good/1")).unwrap(),
        le(&GOOD[4..])
    );
    mount.unmount();
    // A node with that name takes precedence.
    stores.v3("as-v2", json!({}), &[]);
    stores.put(
        "unsharded/zarr.json",
        br#"{"zarr_format": 3, "node_type": "group"}"#,
    );
    let mount = stores.mount(&["--tree", "views"]);
    assert_eq!(listed(&mount, "unsharded"), [""; 0]);
    assert!(!mount.join("unsharded/good").exists() && mount.join("as-v2/as-v2/.zarray").is_file());
    let refused = Mount::attempt(stores.path(), &["--formats", "as-v4"]).unwrap_err();
    assert!(
        refused.stderr.contains("as-v2, as-v3, unsharded"),
        "{refused:?}"
    );
}

#[test]
fn a_hanging_store_is_an_error_within_the_deadline_and_never_absence() {
    let stores = hierarchy();
    let gate = stores.path().with_extension("gate");
    let env = [("ZARRFS_TEST_HANG", gate.to_str().unwrap())];
    let mount = Foreground::new(
        &[],
        &env,
        stores.path(),
        &["--timeout", "2s", "--ttl", "0s"],
    );
    let at = |path: &str| mount.join(".zarrfs/as-v2").join(path);
    assert_eq!(read(at("shards/0")).unwrap(), le(&[3, 4]));
    fs::write(&gate, "all").unwrap();
    // For half a second, a lookup that failed after a long time fails immediately when repeated.
    let repetitions_end = || thread::sleep(Duration::from_millis(600));
    for path in [
        "good/0",
        "shards/1",
        "shards/3",
        "good/.zarray",
        "nothing",
        "damaged/0",
    ] {
        let began = Instant::now();
        let error = errno(read(at(path)));
        assert_ne!(error, ENOENT, "{path}");
        assert!(began.elapsed() < Duration::from_secs(20), "{path}");
        // Meanwhile, requests that do not need the store are answered.
        let began = Instant::now();
        assert!(fs::metadata(&mount.path).is_ok());
        assert!(began.elapsed() < Duration::from_secs(4), "{path}");
        repetitions_end();
    }
    fs::remove_file(&gate).unwrap();
    assert_eq!(read(at("shards/1")).unwrap(), le(&[1, 2]));
    assert_eq!(errno(read(at("shards/3"))), ENOENT);
    assert_eq!(gauge(&mount.path, "panics"), 0);
}
