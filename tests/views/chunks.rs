//! C1, C2, C6, C10, C11, C13: chunks that are absent, of the wrong size or of a wrong checksum.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;

use crate::clients::{EIO, ENOENT, Foreground};
use crate::stores::*;
use crate::support::*;

const PRESENT: [i32; 4] = [1, 2, 3, 4];

#[test]
fn c01_an_absent_chunk_is_fill_values_and_a_directory_in_its_place_is_not_absent() {
    let stores = Stores::new();
    stores.v2("absent", json!({}), &[("0", &le(&PRESENT))]);
    stores.v2("directory", json!({}), &[("0", &le(&PRESENT))]);
    fs::create_dir(stores.path().join("directory/1")).unwrap();
    // Keys in the encodings of other arrays are not chunks of this array.
    stores.v3(
        "stray",
        json!({}),
        &[
            ("0", &le(&PRESENT)),
            ("c.0", &le(&PRESENT)),
            ("c/00", &le(&PRESENT)),
        ],
    );
    let text = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": ""});
    stores.v2("text", text, &[]);
    fs::create_dir(stores.path().join("text/1")).unwrap();
    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "absent", "absent.bin")).unwrap(),
        le(&[1, 2, 3, 4, FILL, FILL, FILL, FILL])
    );
    assert_eq!(
        read(view(&mount, "absent", "chunks/1")).unwrap(),
        le(&[FILL; 4])
    );
    assert_eq!(
        read(view(&mount, "stray", "stray.bin")).unwrap(),
        le(&[FILL; 8])
    );
    is_corrupt(&mount, "directory", "chunks/1", "1", "directory");
    assert_eq!(errno(read(view(&mount, "directory", "directory.bin"))), EIO);
    assert_eq!(errno(fs::metadata(view(&mount, "text", "text.json"))), EIO);
    assert_others_served(&mount, &stores);
}

#[test]
fn c01_a_chunk_without_read_permission_is_not_absent() {
    let stores = Stores::new();
    stores.v2(
        "locked",
        json!({}),
        &[("0", &le(&PRESENT)), ("1", &le(&PRESENT))],
    );
    let loops = stores.path().join("locked/0");
    fs::remove_file(&loops).unwrap();
    std::os::unix::fs::symlink("0", &loops).unwrap();
    let out = stores.path().join("locked/1");
    fs::remove_file(&out).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &out).unwrap();
    stores.v2("pipe", json!({}), &[]);
    run(std::process::Command::new("mkfifo").arg(stores.path().join("pipe/0")));
    let mount = stores.mount(&[]);
    for (node, name) in [
        ("locked", "chunks/0"),
        ("locked", "chunks/1"),
        ("pipe", "chunks/0"),
    ] {
        let result = read(view(&mount, node, name));
        assert!(
            result.is_err(),
            "{node} {name} is there, cannot be read, and was served as {result:?}"
        );
    }
    assert!(!mount.log().contains("panic"));
    assert_eq!(read(view(&mount, "good", "good.bin")).unwrap(), le(&GOOD));
}

#[test]
fn c02_uncompressed_chunks_of_the_wrong_size_are_eio_at_each_offset() {
    let stores = Stores::new();
    let bytes = le(&PRESENT);
    let longer = |more: usize| [&bytes[..], &vec![9; more]].concat();
    let mut cases: Vec<(String, Vec<u8>)> = (0..16)
        .map(|length| (format!("short{length}"), bytes[..length].into()))
        .collect();
    for more in [1, 4, 16, 5000] {
        cases.push((format!("long{more}"), longer(more)));
    }
    for (node, chunk) in &cases {
        stores.v2(node, json!({}), &[("0", chunk), ("1", &bytes)]);
        stores.v3(
            &format!("{node}v3"),
            json!({}),
            &[("c/0", chunk), ("c/1", &bytes)],
        );
        // In the other byte order, the stored bytes cannot be returned directly.
        let big = json!({"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]});
        stores.v3(
            &format!("{node}be"),
            big,
            &[("c/0", chunk), ("c/1", &bytes)],
        );
    }
    let mount = stores.mount(&[]);
    for (node, _) in &cases {
        for (node, name) in [
            (node.clone(), "chunks/0"),
            (format!("{node}v3"), "chunks/c/0"),
            (format!("{node}be"), "chunks/c/0"),
        ] {
            let path = view(&mount, &node, name);
            assert_eq!(errno(read(&path)), EIO, "{path:?}");
            let file = File::open(&path).unwrap();
            for offset in [0, 4, 15] {
                assert_eq!(
                    errno(file.read_at(&mut [0; 1], offset)),
                    EIO,
                    "{path:?} at {offset}"
                );
            }
            let whole = File::open(view(&mount, &node, &format!("{node}.bin"))).unwrap();
            assert_eq!(errno(whole.read_at(&mut [0; 4], 0)), EIO, "{node}");
            // Elements of another chunk can still be read separately.
            let sibling = view(&mount, &node, &name.replace('0', "1"));
            assert_eq!(read(sibling).unwrap().len(), 16);
        }
    }
    is_corrupt(&mount, "short3", "chunks/0", "0", "3 bytes, expected 16");
    is_corrupt(
        &mount,
        "long5000",
        "chunks/0",
        "0",
        "5016 bytes, expected 16",
    );
    assert_others_served(&mount, &stores);
}

#[test]
fn c02_long_runs_that_are_read_without_decoding_are_checked() {
    let stores = Stores::new();
    let elements: Vec<i32> = (1..=65536).collect();
    let bytes = le(&elements);
    let shape = json!({"shape": [131_072], "chunks": [65536]});
    let cases = [
        ("short", bytes[..bytes.len() - 1].to_vec()),
        ("half", bytes[..bytes.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("long", [&bytes[..], b"x"].concat()),
    ];
    for (node, chunk) in &cases {
        stores.v2(node, shape.clone(), &[("0", &bytes), ("1", chunk)]);
    }
    let mount = stores.mount(&[]);
    for (node, _) in &cases {
        let file = File::open(view(&mount, node, &format!("{node}.bin"))).unwrap();
        let mut part = vec![0; bytes.len()];
        file.read_exact_at(&mut part, 0).unwrap();
        assert!(part == bytes, "{node}: the chunk that is right");
        for offset in [bytes.len(), bytes.len() + 4096, 2 * bytes.len() - 4096] {
            let result = file.read_at(&mut [0; 4096], offset as u64);
            assert_eq!(errno(result), EIO, "{node} at {offset}");
        }
        assert_eq!(errno(read(view(&mount, node, "chunks/1"))), EIO, "{node}");
        assert_eq!(
            errno(read(view(&mount, node, &format!("{node}.bin")))),
            EIO,
            "{node}"
        );
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn c03_an_html_page_in_place_of_a_chunk_is_eio() {
    let stores = Stores::new();
    let page = b"<!DOCTYPE html><html><body>404 Not Found</body></html>";
    let codecs = [
        "zlib",
        "gzip",
        "zstd",
        "blosc",
        "lz4",
        "bz2",
        "lzma",
        "crc32",
        "fletcher32",
    ];
    for id in codecs {
        let codec = json!({"id": id});
        let changes = match id {
            "crc32" | "fletcher32" => json!({"filters": [codec]}),
            _ => json!({"compressor": codec}),
        };
        stores.v2(id, changes, &[("0", page)]);
    }
    stores.v2("raw", json!({}), &[("0", page)]);
    let mount = stores.mount(&[]);
    for id in codecs.iter().chain(&["raw"]) {
        is_corrupt(&mount, id, "chunks/0", "0", "");
        assert_eq!(
            read(view(&mount, id, "chunks/1")).unwrap(),
            le(&[FILL; 4]),
            "{id}"
        );
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn c06_wrong_checksums_are_eio() {
    let stores = Stores::new();
    let bytes = le(&PRESENT);
    let crc = crc32c::crc32c(&bytes).to_le_bytes();
    let right = [&bytes[..], &crc].concat();
    let mut wrong = right.clone();
    wrong[17] ^= 1;
    let mut damaged = right.clone();
    damaged[3] ^= 0x80;
    let swapped = [&crc[..], &bytes].concat();
    let chain = json!({"codecs": [little(), {"name": "crc32c"}]});
    for (node, chunk) in [
        ("right", &right),
        ("wrong", &wrong),
        ("damaged", &damaged),
        ("swapped", &swapped),
    ] {
        stores.v3(node, chain.clone(), &[("c/0", chunk)]);
    }
    let mut frame = zstd::bulk::Compressor::new(1).unwrap();
    frame.include_checksum(true).unwrap();
    let mut frame = frame.compress(&bytes).unwrap();
    let last = frame.len() - 1;
    frame[last] ^= 4;
    stores.v2(
        "zstd",
        json!({"compressor": {"id": "zstd", "level": 1}}),
        &[("0", &frame)],
    );
    let mut stream = zlib(&bytes);
    let last = stream.len() - 1;
    stream[last] ^= 4;
    stores.v2(
        "zlib",
        json!({"compressor": {"id": "zlib", "level": 1}}),
        &[("0", &stream)],
    );
    let mount = stores.mount(&[]);
    assert_eq!(read(view(&mount, "right", "chunks/c/0")).unwrap(), bytes);
    for node in ["wrong", "damaged", "swapped"] {
        is_corrupt(&mount, node, "chunks/c/0", "c/0", "crc32c");
    }
    is_corrupt(&mount, "zstd", "chunks/0", "0", "zstd");
    is_corrupt(&mount, "zlib", "chunks/0", "0", "zlib");
    assert_others_served(&mount, &stores);
}

#[test]
fn c10_texts_of_false_lengths_or_invalid_utf_8_are_eio() {
    let stores = Stores::new();
    let lengths = |count: u32, items: &[(u32, &[u8])]| {
        let mut bytes = count.to_le_bytes().to_vec();
        for (length, text) in items {
            bytes.extend(length.to_le_bytes());
            bytes.extend(*text);
        }
        bytes
    };
    let right = lengths(
        4,
        &[(1, b"a"), (0, b""), (2, "\u{fc}".as_bytes()), (3, b"end")],
    );
    let cases = [
        (
            "utf8",
            lengths(4, &[(1, b"a"), (0, b""), (2, b"\xff\xfe"), (3, b"end")]),
        ),
        (
            "beyond",
            lengths(4, &[(1, b"a"), (0, b""), (2, b"ab"), (4, b"end")]),
        ),
        (
            "enormous",
            lengths(4, &[(1, b"a"), (u32::MAX, b""), (2, b"ab"), (3, b"end")]),
        ),
        ("few", lengths(3, &[(1, b"a"), (0, b""), (2, b"ab")])),
        (
            "many",
            lengths(5, &[(1, b"a"), (0, b""), (2, b"ab"), (3, b"end"), (0, b"")]),
        ),
        ("billions", lengths(u32::MAX, &[(1, b"a")])),
        ("truncated", right[..right.len() - 1].to_vec()),
        ("empty", Vec::new()),
        ("header", vec![4, 0, 0]),
    ];
    let text = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": "gap"});
    stores.v2("right", text.clone(), &[("0", &right)]);
    for (node, chunk) in &cases {
        stores.v2(node, text.clone(), &[("0", chunk)]);
        let name = format!("{node}v3");
        let v3 =
            json!({"data_type": "string", "codecs": [{"name": "vlen-utf8"}], "fill_value": "gap"});
        stores.v3(&name, v3, &[("c/0", chunk)]);
    }
    let mount = stores.mount(&[]);
    let values: serde_json::Value =
        serde_json::from_slice(&read(view(&mount, "right", "right.json")).unwrap()).unwrap();
    assert_eq!(
        values,
        json!(["a", "", "\u{fc}", "end", "gap", "gap", "gap", "gap"])
    );
    for (node, _) in &cases {
        for (node, key) in [(node.to_string(), "0"), (format!("{node}v3"), "c/0")] {
            let path = view(&mount, &node, &format!("{node}.json"));
            assert_eq!(errno(read(&path)), EIO, "{path:?}");
            // Everything else of the node can be read, including its listing.
            assert!(names(view(&mount, &node, "")).contains(&"info.json".to_owned()));
            native(&mount, &stores, &format!("{node}/{key}"));
        }
    }
    logged(&mount, &["utf8/0", "EIO"]);
    assert_others_served(&mount, &stores);
}

#[test]
fn c11_a_panic_in_a_decoder_is_eio_for_its_readers_only() {
    let stores = Stores::new();
    let zlib_of = json!({"compressor": {"id": "zlib", "level": 1}});
    let chunk = zlib(&le(&PRESENT));
    stores.v2("x", zlib_of, &[("0", &chunk), ("1", &chunk)]);
    let mount = Foreground::new(&[], &[("ZARRFS_TEST_PANIC", "x/0")], stores.path(), &[]);
    let path = mount.join("x/.zarrfs/chunks/0");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..3 {
                    assert_eq!(errno(read(&path)), EIO);
                }
            });
        }
    });
    assert_eq!(
        read(mount.join("x/.zarrfs/chunks/1")).unwrap(),
        le(&PRESENT)
    );
    assert_eq!(errno(read(mount.join("x/.zarrfs/x.bin"))), EIO);
    assert_eq!(
        read(mount.join("good/.zarrfs/good.bin")).unwrap(),
        le(&GOOD)
    );
    assert_eq!(errno(fs::metadata(mount.join("nothing"))), ENOENT);
    assert!(mount.log().contains("bug: "), "{}", mount.log());
    assert!(is_mounted(Path::new(&mount.path)));
}

#[test]
fn c13_a_chain_of_ten_thousand_codecs_is_refused() {
    let stores = Stores::new();
    let many = |count: usize| {
        let mut chain = vec![little()];
        chain.extend(std::iter::repeat_n(json!({"name": "crc32c"}), count));
        json!({"codecs": chain})
    };
    for count in [32, 10_000] {
        stores.v3(&format!("chain{count}"), many(count), &[("c/0", b"")]);
    }
    let filters = vec![json!({"id": "shuffle", "elementsize": 4}); 10_000];
    stores.v2("filters", json!({"filters": filters}), &[]);
    let mut nested = json!([little()]);
    for _ in 0..100 {
        nested = json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [4], "codecs": nested, "index_codecs": [little()]}}]);
    }
    stores.put(
        "nested/zarr.json",
        changed(v3_document(), json!({"codecs": nested}))
            .to_string()
            .as_bytes(),
    );
    let mount = stores.mount(&[]);
    for node in ["chain32", "chain10000", "filters", "nested"] {
        let text = readme(&mount, node);
        assert!(
            text.contains("Diagnostics: what is not available or incomplete"),
            "{node}: {text}"
        );
        assert_eq!(
            errno(fs::metadata(view(&mount, node, "chunks"))),
            ENOENT,
            "{node}"
        );
        if node != "nested" {
            assert!(text.contains("the limit is 32"), "{node}: {text}");
        }
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn c14_filters_wrap_as_numcodecs_does() {
    let stores = Stores::new();
    let bytes = json!({"dtype": "|u1", "fill_value": 0});
    let delta = changed(
        bytes.clone(),
        json!({"filters": [{"id": "delta", "dtype": "|u1"}]}),
    );
    stores.v2("delta", delta, &[("0", &[250, 10, 255, 2])]);
    let scale = json!({"dtype": "<i2", "filters": [{"id": "fixedscaleoffset", "offset": 0, "scale": 1,
        "dtype": "<i2", "astype": "<i2"}], "fill_value": 0});
    stores.v2(
        "scale",
        scale,
        &[("0", &[1, 0, 255, 255, 0, 128, 255, 127])],
    );
    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "delta", "chunks/0")).unwrap(),
        [250, 4, 3, 5]
    );
    assert_eq!(
        read(view(&mount, "scale", "chunks/0")).unwrap(),
        [1, 0, 255, 255, 0, 128, 255, 127]
    );
    assert_others_served(&mount, &stores);
}
