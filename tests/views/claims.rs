//! C4, C5, C7: chunks that declare, or decode to, far more than the size of a chunk.

use std::io::Write;

use serde_json::{Value, json};

use crate::clients::EIO;
use crate::stores::*;
use crate::support::*;

/// The largest increase of the daemon's memory for chunks of 16 bytes, in bytes.
const MOST_BYTES: u64 = 24 << 20;

/// Asserts that each chunk fails with EIO, and that no memory was used for its declared size.
fn are_refused(cases: &[(&str, Value, Vec<u8>)]) {
    let stores = Stores::new();
    for (node, codec, chunk) in cases {
        stores.v2(node, json!({"compressor": codec}), &[("0", chunk)]);
    }
    let mount = stores.mount(&[]);
    assert_others_served(&mount, &stores);
    let before = mount.memory("VmHWM");
    for (node, codec, _) in cases {
        let id = codec["id"].as_str().unwrap();
        is_corrupt(&mount, node, "chunks/0", "0", id);
        assert_eq!(
            errno(read(view(&mount, node, &format!("{node}.bin")))),
            EIO,
            "{node}"
        );
        let grown = mount.memory("VmHWM").saturating_sub(before);
        assert!(grown < MOST_BYTES, "{grown} bytes after {node}");
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn c04_chunks_that_declare_enormous_sizes_are_eio_and_take_no_memory() {
    // A frame with one raw block, whose header declares 1 TiB.
    let mut zstd = b"\x28\xb5\x2f\xfd\xe0".to_vec();
    zstd.extend((1_u64 << 40).to_le_bytes());
    zstd.extend([0x21, 0, 0, 1, 2, 3, 4]);
    // The prefix of numcodecs before a block: its size, here 2 GiB.
    let mut lz4 = i32::MAX.to_le_bytes().to_vec();
    lz4.extend([0x40, 1, 2, 3, 4]);
    // A Blosc header that declares 2^31 - 17 bytes in a chunk of 20.
    let blosc = |size: u32, block: u32| {
        let mut bytes = vec![2, 1, 0x21, 4];
        for word in [size, block, 20, 16] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    };
    let mut gzip = gzip(&le(&[1, 2, 3, 4]));
    let end = gzip.len() - 4;
    gzip[end..].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut lzma = vec![0x5d, 0, 0, 0x80, 0];
    lzma.extend((1_u64 << 40).to_le_bytes());
    lzma.extend([0; 16]);
    // A dictionary of 4 GiB.
    let mut dictionary = vec![0x5d, 255, 255, 255, 255];
    dictionary.extend(16_u64.to_le_bytes());
    dictionary.extend([0; 16]);
    are_refused(&[
        ("zstd", json!({"id": "zstd"}), zstd),
        ("lz4", json!({"id": "lz4"}), lz4),
        (
            "blosc",
            json!({"id": "blosc"}),
            blosc(0x7fff_ffef, 0x7fff_ffef),
        ),
        ("blosc2", json!({"id": "blosc"}), blosc(16, 0x7fff_ffef)),
        ("blosc3", json!({"id": "blosc"}), blosc(u32::MAX, 16)),
        ("gzip", json!({"id": "gzip"}), gzip),
        ("lzma", json!({"id": "lzma", "format": 2}), lzma),
        ("dictionary", json!({"id": "lzma", "format": 2}), dictionary),
    ]);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn c05_bombs_without_a_size_are_stopped_at_the_size_of_a_chunk() {
    let zeros = vec![0; 64 << 20];
    let stream = {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(&zeros).unwrap();
        encoder.finish().unwrap()
    };
    let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz2.write_all(&zeros).unwrap();
    let mut lzma = liblzma::write::XzEncoder::new(Vec::new(), 0);
    lzma.write_all(&zeros).unwrap();
    let members = gzip(&le(&[1, 2, 3, 4])).repeat(2);
    are_refused(&[
        ("zlib", json!({"id": "zlib"}), zlib(&zeros)),
        ("gzip", json!({"id": "gzip"}), gzip(&zeros)),
        ("members", json!({"id": "gzip"}), members),
        ("zstd", json!({"id": "zstd"}), stream),
        (
            "frames",
            json!({"id": "zstd"}),
            zstd(&le(&[1, 2, 3, 4])).repeat(2),
        ),
        ("bz2", json!({"id": "bz2"}), bz2.finish().unwrap()),
        ("lzma", json!({"id": "lzma"}), lzma.finish().unwrap()),
    ]);
}

#[test]
fn c07_inconsistent_headers_of_blosc_are_eio_or_the_stored_content() {
    // Blosc 1.21 without compression: a header of 16 bytes, then the raw bytes.
    let bytes = le(&[1, 2, 3, 4]);
    let chunk = |header: [u8; 4], words: [u32; 3]| {
        let mut chunk = header.to_vec();
        for word in words {
            chunk.extend(word.to_le_bytes());
        }
        chunk.extend(&bytes);
        chunk
    };
    let right = [2, 1, 0x33, 4];
    let refused = [
        ("nothing", chunk(right, [0, 16, 32])),
        ("less", chunk(right, [12, 16, 32])),
        ("more", chunk(right, [20, 16, 36])),
        ("long", chunk(right, [16, 16, 33])),
        ("short", chunk(right, [16, 16, 16])),
        ("cut", chunk(right, [16, 16, 32])[..31].to_vec()),
        ("header", chunk(right, [16, 16, 32])[..15].to_vec()),
        ("version", chunk([9, 1, 0x33, 4], [16, 16, 32])),
        ("zero", chunk(right, [16, 16, 0])),
        ("compressed", chunk([2, 1, 0x31, 4], [16, 16, 32])),
        ("codec", chunk([2, 1, 0xf1, 4], [16, 16, 32])),
    ];
    let either = [
        ("typesize0", chunk([2, 1, 0x33, 0], [16, 16, 32])),
        ("typesize255", chunk([2, 1, 0x33, 255], [16, 16, 32])),
        ("block0", chunk(right, [16, 0, 32])),
        ("block1", chunk(right, [16, 1, 32])),
        ("large", chunk(right, [16, 1 << 30, 32])),
    ];
    let stores = Stores::new();
    let blosc = json!({"compressor": {"id": "blosc"}});
    stores.v2(
        "right",
        blosc.clone(),
        &[("0", &chunk(right, [16, 16, 32]))],
    );
    for (node, chunk) in refused.iter().chain(&either) {
        stores.v2(node, blosc.clone(), &[("0", chunk)]);
    }
    let mount = stores.mount(&[]);
    assert_eq!(read(view(&mount, "right", "chunks/0")).unwrap(), bytes);
    for (node, _) in &refused {
        let result = read(view(&mount, node, "chunks/0"));
        assert_eq!(
            result.map_err(|e| e.raw_os_error()),
            Err(Some(EIO)),
            "{node}"
        );
    }
    for (node, _) in &either {
        match read(view(&mount, node, "chunks/0")) {
            Ok(found) => assert_eq!(found, bytes, "{node}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(EIO), "{node}"),
        }
    }
    assert_others_served(&mount, &stores);
}
