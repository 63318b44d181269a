//! B3 to B6: arrays and chunks whose sizes overflow, or are too large for memory or a decoder.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::json;

use crate::clients::ENOENT;
use crate::metadata::has_no_views;
use crate::stores::*;
use crate::support::*;

#[test]
fn b03_geometry_that_cannot_be_counted_is_refused_and_rank_0_works() {
    let stores = Stores::new();
    let most = u64::MAX;
    let cases = [
        (
            "elements",
            json!({"shape": [most, 2], "chunk_grid": grid(&[4, 4])}),
            "2^64",
        ),
        (
            "bytes",
            json!({"shape": [most / 2], "chunk_grid": grid(&[4])}),
            "2^64",
        ),
        (
            "chunk",
            json!({"shape": [8, 8], "chunk_grid": grid(&[most, 2])}),
            "2^64",
        ),
        ("zero", json!({"chunk_grid": grid(&[0])}), "chunk"),
        (
            "rank1000",
            json!({"shape": vec![1; 1000], "chunk_grid": grid(&[1; 1000])}),
            "1000",
        ),
        ("notawhole", json!({"shape": [1.5]}), "shape"),
        ("beyond", json!({"shape": [1e30]}), "shape"),
    ];
    for (node, changes, _) in &cases {
        stores.v3(node, changes.clone(), &[]);
    }
    stores.v3(
        "scalar",
        json!({"shape": [], "chunk_grid": grid(&[])}),
        &[("c", &le(&[42]))],
    );
    stores.v2(
        "scalar2",
        json!({"shape": [], "chunks": []}),
        &[("0", &le(&[43]))],
    );
    stores.v2("none", json!({"shape": [0, 5], "chunks": [2, 2]}), &[]);
    let mount = stores.mount(&[]);
    for (node, _, gist) in &cases {
        has_no_views(&mount, &stores, node, "zarr.json", gist);
    }
    assert_eq!(
        read(view(&mount, "scalar", "scalar.bin")).unwrap(),
        le(&[42])
    );
    assert_eq!(read(view(&mount, "scalar", "chunks/c")).unwrap(), le(&[42]));
    assert_eq!(
        read(view(&mount, "scalar2", "scalar2.bin")).unwrap(),
        le(&[43])
    );
    assert_eq!(
        read(view(&mount, "scalar2", "chunks/0")).unwrap(),
        le(&[43])
    );
    assert_eq!(read(view(&mount, "none", "none.bin")).unwrap(), [0; 0]);
    assert_eq!(names(view(&mount, "none", "chunks")), [""; 0]);
    assert_others_served(&mount, &stores);
}

/// zarr-python writes such chunks: `chunks=False` in version 2, `chunks=(0, 4)` in version 3.
#[test]
fn b03_an_axis_of_length_0_has_chunks_of_any_edge_and_views() {
    let stores = Stores::new();
    stores.put("zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#);
    let shape = json!([0, 4]);
    let sharded = |inner: [u64; 2]| {
        let configuration = json!({"chunk_shape": inner, "codecs": [little()]});
        json!([{"name": "sharding_indexed", "configuration": configuration}])
    };
    let rectilinear = json!({"name": "rectilinear",
        "configuration": {"kind": "inline", "chunk_shapes": [[[0, 2]], 4]}});
    for (node, changes) in [
        ("regular", json!({"chunk_grid": grid(&[0, 4])})),
        ("huge", json!({"chunk_grid": grid(&[u64::MAX, 4])})),
        ("rectilinear", json!({"chunk_grid": rectilinear})),
        (
            "inner",
            json!({"chunk_grid": grid(&[0, 4]), "codecs": sharded([0, 2])}),
        ),
        (
            "shards",
            json!({"chunk_grid": grid(&[8, 4]), "codecs": sharded([0, 2])}),
        ),
    ] {
        let mut changes = changes;
        changes["shape"] = shape.clone();
        stores.v3(node, changes, &[]);
    }
    stores.v2("v2", json!({"shape": shape, "chunks": [0, 4]}), &[]);
    stores.v2("other", json!({"shape": shape, "chunks": [0, 0]}), &[]);
    let inner = json!({"shape": shape, "chunk_grid": grid(&[8, 4]), "codecs": sharded([8, 0])});
    stores.v3("otherinner", inner, &[]);
    let mount = stores.mount(&[]);
    for node in ["regular", "huge", "rectilinear", "inner", "shards", "v2"] {
        assert_eq!(
            read(view(&mount, node, &format!("{node}.bin"))).unwrap(),
            [0; 0]
        );
        let npy = read(view(&mount, node, &format!("{node}.npy"))).unwrap();
        assert!(
            npy.windows(16).any(|part| part == b"'shape': (0, 4),"),
            "{node}"
        );
        assert_eq!(names(view(&mount, node, "chunks")), [""; 0]);
        run(zarrfs().arg("check").arg(stores.path().join(node)));
    }
    for name in ["root.nc", "root.cdf.nc"] {
        let text = run(Command::new("ncdump").arg(mount.join(".zarrfs").join(name)));
        for node in ["regular", "inner", "v2"] {
            assert!(text.contains(&format!("int {node}(")), "{name}: {text}");
        }
    }
    // Readers divide by the edges.
    for (node, name, expected) in [
        ("v2", "as-v3/v2/zarr.json", json!([1, 4])),
        ("regular", "as-v2/regular/.zarray", json!([1, 4])),
        ("shards", "as-v2/shards/.zarray", json!([8, 2])),
    ] {
        let document: serde_json::Value =
            serde_json::from_slice(&read(mount.join(".zarrfs").join(name)).unwrap()).unwrap();
        let v3 = document.pointer("/chunk_grid/configuration/chunk_shape");
        assert_eq!(v3.or(document.get("chunks")), Some(&expected), "{node}");
    }
    has_no_views(&mount, &stores, "other", ".zarray", "0 along axis 1");
    has_no_views(
        &mount,
        &stores,
        "otherinner",
        "zarr.json",
        "[8, 0] do not divide",
    );
    assert_others_served(&mount, &stores);
}

#[test]
fn b04_a_view_above_the_maximum_file_size_is_absent_and_its_chunks_are_served() {
    let stores = Stores::new();
    let changes = json!({"shape": [1_u64 << 61], "chunks": [4]});
    stores.v2("endless", changes, &[("1", &le(&[1, 2, 3, 4]))]);
    // 2^63 - 8 bytes: the .bin is listed, but the .npy with its header would be too large.
    stores.v2(
        "edge",
        json!({"shape": [(1_u64 << 61) - 2], "chunks": [4]}),
        &[],
    );
    let mount = stores.mount(&[]);
    for name in ["endless.npy", "endless.bin"] {
        assert_eq!(errno(fs::metadata(view(&mount, "endless", name))), ENOENT);
    }
    let text = readme(&mount, "endless");
    assert!(text.contains("9223372036854775808"), "{text}");
    assert_eq!(
        read(view(&mount, "endless", "chunks/1")).unwrap(),
        le(&[1, 2, 3, 4])
    );
    assert_eq!(
        read(view(&mount, "endless", "chunks/2")).unwrap(),
        le(&[FILL; 4])
    );
    let bin = view(&mount, "edge", "edge.bin");
    assert_eq!(fs::metadata(&bin).unwrap().len(), (1 << 63) - 8);
    assert_eq!(
        errno(fs::metadata(view(&mount, "edge", "edge.npy"))),
        ENOENT
    );
    let mut part = [0; 4];
    File::open(bin)
        .unwrap()
        .read_exact_at(&mut part, 1 << 62)
        .unwrap();
    assert_eq!(part[..], le(&[FILL])[..]);
    assert_others_served(&mount, &stores);
}

#[test]
fn b05_an_absent_chunk_of_any_size_is_fill_values_that_take_no_memory() {
    let stores = Stores::new();
    let huge = 1_u64 << 40;
    let zstd = json!({"shape": [huge], "chunks": [huge], "compressor": {"id": "zstd", "level": 1}});
    stores.v2("compressed", zstd, &[]);
    stores.v2("raw", json!({"shape": [huge], "chunks": [huge]}), &[]);
    stores.v2(
        "f",
        json!({"shape": [1 << 20, 1 << 20], "chunks": [1 << 20, 1 << 20], "order": "F"}),
        &[],
    );
    let mount = stores.mount(&["--memory-limit", "64M"]);
    let before = mount.memory("VmHWM");
    for (node, chunk) in [
        ("compressed", "chunks/0"),
        ("raw", "chunks/0"),
        ("f", "chunks/0.0"),
    ] {
        for name in [chunk, &format!("{node}.bin")] {
            let path = view(&mount, node, name);
            assert_eq!(fs::metadata(&path).unwrap().len(), 4 * huge);
            let file = File::open(&path).unwrap();
            for offset in [0, 4, 4 * huge / 3 / 4 * 4, 4 * huge - 4096] {
                let mut part = [0; 4096];
                file.read_exact_at(&mut part, offset)
                    .unwrap_or_else(|e| panic!("{path:?} at {offset}: {e}"));
                assert_eq!(part[..], le(&[FILL; 1024])[..], "{path:?} at {offset}");
            }
        }
    }
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes");
    assert_others_served(&mount, &stores);
}

#[test]
fn b06_a_chunk_larger_than_the_memory_limit_is_enomem() {
    let stores = Stores::new();
    let chunk = zlib(&vec![1; 32 << 20]);
    let changes =
        json!({"shape": [16 << 20], "chunks": [8 << 20], "compressor": {"id": "zlib", "level": 1}});
    stores.v2("large", changes, &[("0", &chunk)]);
    let mount = stores.mount(&["--memory-limit", "16M"]);
    let enomem = rustix::io::Errno::NOMEM.raw_os_error();
    for name in ["chunks/0", "large.bin"] {
        let path = view(&mount, "large", name);
        assert_eq!(errno(read(&path)), enomem, "{name}");
    }
    let need = (32_u64 << 20) + chunk.len() as u64;
    let needs = format!("needs {need} bytes of memory, the limit is ");
    logged(&mount, &["large/0", &needs, "ENOMEM"]);
    // The part without stored chunks needs no memory for them.
    let mut part = [0; 4096];
    let file = File::open(view(&mount, "large", "large.bin")).unwrap();
    file.read_exact_at(&mut part, 48 << 20).unwrap();
    assert_eq!(part[..], le(&[FILL; 1024])[..]);
    native(&mount, &stores, "large/0");
    assert_others_served(&mount, &stores);
}
