//! C8, C9: shards whose index is wrong or cut off.

use std::fs;

use serde_json::{Value, json};

use crate::clients::EIO;
use crate::stores::*;
use crate::support::*;

/// Returns a sharding codec for shards of four elements, with inner chunks of two.
fn sharded(inner: Value, location: &str) -> Value {
    json!({"codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2], "codecs": inner, "index_location": location,
        "index_codecs": [little(), {"name": "crc32c"}]}}]})
}

fn index(entries: &[(u64, u64); 2]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(offset, length)| [offset.to_le_bytes(), length.to_le_bytes()].concat())
        .collect();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

const FIRST: [i32; 2] = [1, 2];
const SECOND: [i32; 2] = [3, 4];
const ABSENT: (u64, u64) = (u64::MAX, u64::MAX);
const INDEX_BYTES: u64 = 36;

/// Returns a shard with its index at the end, and uncompressed inner chunks at 0 and 8.
fn shard(second: (u64, u64)) -> Vec<u8> {
    [le(&FIRST), le(&SECOND), index(&[(0, 8), second])].concat()
}

#[test]
fn c08_an_inner_chunk_with_a_wrong_offset_is_eio_and_the_others_are_not() {
    let stores = Stores::new();
    let cases = [
        ("outside", shard((100, 8))),
        ("behind", shard((48, 8))),
        ("overlapping", shard((12, 8))),
        ("in_the_index", shard((16, 8))),
        ("overflowing", shard((u64::MAX - 3, 8))),
        ("nearly_absent", shard((u64::MAX, 8))),
        ("long_absent", shard((8, u64::MAX))),
        ("short", shard((8, 7))),
        ("long", shard((0, 16))),
        ("empty", shard((8, 0))),
        ("enormous", shard((8, 1 << 62))),
    ];
    for (node, shard) in &cases {
        stores.v3(node, sharded(json!([little()]), "end"), &[("c/0", shard)]);
    }
    let crc = json!([little(), {"name": "crc32c"}]);
    let checked = |elements: &[i32]| {
        let bytes = le(elements);
        [&bytes[..], &crc32c::crc32c(&bytes).to_le_bytes()].concat()
    };
    let mut damaged = checked(&SECOND);
    damaged[1] ^= 1;
    let shard_of = |second: Vec<u8>| {
        let entries = [(INDEX_BYTES, 12), (INDEX_BYTES + 12, second.len() as u64)];
        [index(&entries), checked(&FIRST), second].concat()
    };
    stores.v3(
        "damaged",
        sharded(crc.clone(), "start"),
        &[("c/0", &shard_of(damaged))],
    );
    stores.v3(
        "right",
        sharded(crc, "start"),
        &[("c/0", &shard_of(checked(&SECOND)))],
    );
    let raw = sharded(json!([little()]), "end");
    stores.v3("absent", raw, &[("c/0", &shard(ABSENT))]);

    let mount = stores.mount(&[]);
    assert_eq!(
        read(view(&mount, "right", "right.bin")).unwrap()[..16],
        le(&[1, 2, 3, 4])
    );
    assert_eq!(
        read(view(&mount, "absent", "absent.bin")).unwrap(),
        le(&[1, 2, FILL, FILL, FILL, FILL, FILL, FILL])
    );
    for node in cases.iter().map(|(node, _)| *node).chain(["damaged"]) {
        let inner = |n: u32| read(view(&mount, node, &format!("inner/{n}")));
        assert_eq!(inner(0).unwrap(), le(&FIRST), "{node}");
        let second = inner(1);
        assert!(
            second
                .as_ref()
                .is_err_and(|e| e.raw_os_error() == Some(EIO)),
            "{node}: {second:?}"
        );
        assert_eq!(errno(read(view(&mount, node, "chunks/c/0"))), EIO, "{node}");
        assert_eq!(
            errno(read(view(&mount, node, &format!("{node}.bin")))),
            EIO,
            "{node}"
        );
        assert_eq!(
            read(view(&mount, node, "chunks/c/1")).unwrap(),
            le(&[FILL; 4]),
            "{node}"
        );
        assert_eq!(inner(2).unwrap(), le(&[FILL; 2]), "{node}");
    }
    is_corrupt(&mount, "outside", "inner/1", "c/0", "inner chunk 1");
    is_corrupt(&mount, "damaged", "inner/1", "c/0", "crc32c");
    assert_others_served(&mount, &stores);
}

#[test]
fn c08_an_index_with_a_wrong_checksum_hides_its_whole_shard() {
    let stores = Stores::new();
    for bit in [0, 60, 128, 250, 256, 287] {
        let mut shard = shard((8, 8));
        let at = 16 + bit / 8;
        shard[at] ^= 1 << (bit % 8);
        stores.v3(
            &format!("bit{bit}"),
            sharded(json!([little()]), "end"),
            &[("c/0", &shard), ("c/1", &self::shard((8, 8)))],
        );
    }
    let mount = stores.mount(&[]);
    for node in names(stores.path())
        .iter()
        .filter(|name| name.starts_with("bit"))
    {
        for name in ["inner/0", "inner/1", "chunks/c/0"] {
            let result = read(view(&mount, node, name));
            assert_eq!(
                result.map_err(|e| e.raw_os_error()),
                Err(Some(EIO)),
                "{node} {name}"
            );
        }
        assert_eq!(
            read(view(&mount, node, "chunks/c/1")).unwrap(),
            le(&[1, 2, 3, 4])
        );
        assert_eq!(read(view(&mount, node, "inner/3")).unwrap(), le(&SECOND));
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn c09_a_shard_truncated_at_any_length_is_eio() {
    let stores = Stores::new();
    let end = shard((8, 8));
    let start = [
        index(&[(INDEX_BYTES, 8), (INDEX_BYTES + 8, 8)]),
        le(&FIRST),
        le(&SECOND),
    ]
    .concat();
    let lengths = (0..end.len()).step_by(3).chain([end.len() - 1]);
    for length in lengths.clone() {
        stores.v3(
            &format!("end{length}"),
            sharded(json!([little()]), "end"),
            &[("c/0", &end[..length])],
        );
        stores.v3(
            &format!("start{length}"),
            sharded(json!([little()]), "start"),
            &[("c/0", &start[..length])],
        );
    }
    let mount = stores.mount(&[]);
    for length in lengths {
        for node in [format!("end{length}"), format!("start{length}")] {
            let is_eio = |name: &str| {
                let result = read(view(&mount, &node, name));
                assert_eq!(
                    result.map_err(|e| e.raw_os_error()),
                    Err(Some(EIO)),
                    "{node} {name}"
                );
            };
            is_eio("chunks/c/0");
            is_eio("inner/1");
            // With the index at the start, the first inner chunk may still be complete.
            match node.starts_with("start") && length >= INDEX_BYTES as usize + 8 {
                true => assert_eq!(read(view(&mount, &node, "inner/0")).unwrap(), le(&FIRST)),
                false => is_eio("inner/0"),
            }
            let listed = fs::read_dir(view(&mount, &node, "inner")).unwrap().count();
            assert_eq!(listed, 4);
        }
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn inner_chunks_of_a_type_that_numpy_lacks_are_read_alone_and_widened() {
    let stores = Stores::new();
    let mut document = sharded(json!([little()]), "end");
    document["data_type"] = "bfloat16".into();
    document["fill_value"] = 1.5.into();
    // 1 and -1.5; the second inner chunk is absent, or outside of the shard.
    let stored = [0x80, 0x3f, 0xc0, 0xbf];
    let shard = |second| [&stored[..], &index(&[(0, 4), second])].concat();
    let chunks = [("c/0", shard(ABSENT)), ("c/1", shard((100, 4)))];
    let chunks = [("c/0", &chunks[0].1[..]), ("c/1", &chunks[1].1[..])];
    stores.v3("wide", document, &chunks);
    let mount = stores.mount(&[]);
    let floats = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    let (first, fill) = (floats([1.0, -1.5]), floats([1.5; 2]));
    let inner = |n: u32| read(view(&mount, "wide", &format!("inner/{n}")));
    assert_eq!(inner(0).unwrap(), first);
    assert_eq!(inner(1).unwrap(), fill);
    assert_eq!(inner(2).unwrap(), first);
    assert_eq!(errno(inner(3)), EIO);
    let whole = read(view(&mount, "wide", "chunks/c/0")).unwrap();
    assert_eq!(whole, [first, fill].concat());
    assert_eq!(errno(read(view(&mount, "wide", "wide.bin"))), EIO);
}
