//! Tests with damaged documents: each is rejected, or parses to consistent metadata.

use super::document::parse;
use super::*;

const ZARRAY: &str = r#"{"zarr_format":2,"shape":[20,30,4],"chunks":[9,13,2],"order":"F","filters":[{"id":"delta","dtype":"<i4"}],"compressor":{"id":"blosc","cname":"lz4","clevel":5},"dimension_separator":"/","fill_value":"BwAAAAAAAAAAAARAAAAA","dtype":[["a","<i4"],["b",">f8"],["m",[["c","|u1"]],[3]]]}"#;

const OBJECTS: &str = r#"{"zarr_format":2,"shape":[7],"chunks":[3],"dtype":"|O","fill_value":"","filters":[{"id":"vlen-utf8"}],"compressor":null}"#;

const ARRAY: &str = r#"{"zarr_format":3,"node_type":"array","shape":[24,20],"data_type":"float32","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[12,10]}},"chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},"fill_value":"0x7fc00001","codecs":[{"name":"sharding_indexed","configuration":{"chunk_shape":[4,5],"codecs":["bytes"],"index_location":"end"}}],"attributes":{"x":[1e400,NaN]},"dimension_names":["y",null],"vendor":{"must_understand":false}}"#;

const RECTILINEAR: &str = r#"{"zarr_format":3,"node_type":"array","shape":[6,6,6],"data_type":{"name":"numpy.datetime64","configuration":{"unit":"s","scale_factor":10}},"chunk_grid":{"name":"rectilinear","configuration":{"kind":"inline","chunk_shapes":[[[2,3]],[1,[2,1],3],4]}},"chunk_key_encoding":"v2","fill_value":"NaT","codecs":["bytes"],"storage_transformers":[]}"#;

const STRUCT: &str = r#"{"zarr_format":3,"node_type":"array","shape":[3],"data_type":{"name":"struct","configuration":{"fields":[{"name":"a","data_type":"int16"},["b","complex64"],["r","r24"]]}},"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[2]}},"chunk_key_encoding":"default","fill_value":{"a":-1,"b":[0.1,"NaN"],"r":[1,2,3]},"codecs":["bytes","crc32c"]}"#;

const GROUP: &str = r#"{"zarr_format":3,"node_type":"group","attributes":{"a":"\u00e5"},"consolidated_metadata":{"kind":"inline","metadata":{"g":{"zarr_format":3,"node_type":"group"},"g/x":{"zarr_format":3,"node_type":"group","attributes":{}}}}}"#;

const DATASET: &str = r#"{"dimensions":[30,20,5],"blockSize":[13,9,5],"dataType":"uint16","compression":{"type":"gzip","level":-1,"useZlib":false},"compressionType":"raw","axes":["x","y"]}"#;

const ZMETADATA: &str = r#"{"zarr_consolidated_format":1,"metadata":{".zgroup":{"zarr_format":2},"a/.zarray":{"zarr_format":2,"shape":[2],"chunks":[2],"dtype":"<i2","fill_value":0},"a/.zattrs":{"units":"K"}}}"#;

/// Values of a damaged or malicious document.
const TOKENS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "18446744073709551615",
    "18446744073709551616",
    "4611686018427387904",
    "9223372036854775808",
    "1e400",
    "-1e-400",
    "0.5",
    "NaN",
    "null",
    "true",
    "\"\"",
    "\"|V16777216\"",
    "\"<U4194304\"",
    "[]",
    "{}",
    "[[]]",
    "[4294967296,4294967296]",
    "\"NaT\"",
    "\"0x\"",
    "\"\\u0000/..\"",
];

/// A random number generator of the xorshift family.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }
}

/// Applies one to three small changes.
fn damage(text: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = b"\"[]{},:0-9.\\ \n\xff"[random.below(14)],
            2 => _ = bytes.remove(at),
            3 => bytes.truncate(at.max(1)),
            4 => {
                let end = (at + random.below(40)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => replace_value(&mut bytes, at, TOKENS[random.below(TOKENS.len())]),
        }
        if bytes.is_empty() {
            bytes.push(b' ');
        }
    }
    bytes
}

/// Replaces the number, string or word at or after an offset.
fn replace_value(bytes: &mut Vec<u8>, from: usize, token: &str) {
    let starts = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'"');
    let Some(start) = bytes[from..]
        .iter()
        .position(starts)
        .map(|ahead| from + ahead)
    else {
        return;
    };
    let length = match bytes[start] {
        b'"' => bytes[start + 1..]
            .iter()
            .position(|b| *b == b'"')
            .map(|n| n + 2),
        _ => bytes[start..]
            .iter()
            .position(|b| !b.is_ascii_alphanumeric() && !matches!(b, b'-' | b'.')),
    };
    let end = length.map_or(bytes.len(), |length| start + length);
    bytes.splice(start..end, token.bytes());
}

/// Accesses all parsed metadata of a node.
fn examine(node: &Node) {
    let info = node.info();
    assert!(info.is_object());
    if let Some(consolidated) = node
        .as_group()
        .and_then(|group| group.consolidated.as_ref())
    {
        examine_copies(consolidated);
    }
    let Some(array) = node.as_array() else { return };
    assert_eq!(array.problems().next(), array.decodable().err());
    assert_eq!(
        info.get("shape")
            .and_then(|shape| shape.as_array())
            .map(Vec::len),
        Some(array.rank())
    );
    let Ok(parts) = array.decodable() else { return };
    if let (DataType::Fixed(fixed), FillValue::Fixed(bytes)) = (parts.data_type, parts.fill_value) {
        assert_eq!(bytes.len(), fixed.size_bytes);
    }
    if let DataType::Fixed(fixed) = parts.data_type {
        assert!(
            fixed
                .words()
                .iter()
                .all(|w| w.offset + w.width_bytes * w.count <= fixed.size_bytes)
        );
        assert_eq!(
            fixed.with_order(ByteOrder::Big).size_bytes,
            fixed.size_bytes
        );
        assert!(array.size_bytes().is_some() && array.largest_chunk_bytes().is_some());
    }
    let grid = parts.grid;
    assert_eq!(grid.index(grid.chunk_count()), None);
    for linear in [
        0,
        grid.chunk_count() / 2,
        grid.chunk_count().saturating_sub(1),
    ] {
        let Some(index) = grid.index(linear) else {
            continue;
        };
        assert_eq!(grid.linear(&index), Some(linear));
        let key = parts.chunk_keys.encode(&index);
        assert_eq!(
            parts.chunk_keys.decode(key.as_bytes(), grid.shape()),
            Some(index.clone())
        );
        let origin = grid.chunk_origin(&index).unwrap();
        let extent = grid.chunk_extent(&index).unwrap();
        assert!(
            extent
                .iter()
                .zip(grid.chunk_shape(&index).unwrap())
                .all(|(part, all)| *part > 0 && *part <= all)
        );
        assert_eq!(grid.locate(&origin), Some((index, vec![0; origin.len()])));
    }
}

fn examine_copies(consolidated: &Consolidated) {
    for path in consolidated.paths() {
        if let Some(Ok(node)) = consolidated.node(path) {
            examine(&node);
        }
    }
    assert!(
        consolidated
            .children("")
            .iter()
            .all(|name| !name.is_empty())
    );
}

/// Returns how many of 5,000 damaged documents parse.
fn parsed_count(text: &str, read: impl Fn(&[u8]) -> bool) -> usize {
    assert!(read(text.as_bytes()), "{text}");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..5_000)
        .filter(|_| read(&damage(text, &mut random)))
        .count()
}

fn is_node(documents: Documents<'_>) -> bool {
    let node = documents.node().unwrap().node;
    node.inspect(examine).is_ok()
}

#[test]
fn damaged_v2_arrays_are_rejected_or_consistent() {
    for text in [ZARRAY, OBJECTS] {
        let count = parsed_count(text, |bytes| {
            is_node(Documents {
                zarray: Some(bytes),
                zattrs: Some(bytes),
                ..Documents::default()
            })
        });
        assert!((100..4_900).contains(&count), "{count}");
    }
}

#[test]
fn damaged_v3_documents_are_rejected_or_consistent() {
    for text in [ARRAY, RECTILINEAR, STRUCT, GROUP] {
        let count = parsed_count(text, |bytes| {
            is_node(Documents {
                zarr_json: Some(bytes),
                ..Documents::default()
            })
        });
        assert!((100..4_900).contains(&count), "{count}");
    }
}

#[test]
fn damaged_n5_documents_are_rejected_or_consistent() {
    let count = parsed_count(DATASET, |bytes| {
        is_node(Documents {
            attributes_json: Some(bytes),
            ..Documents::default()
        })
    });
    assert!((100..4_900).contains(&count), "{count}");
}

#[test]
fn damaged_consolidated_metadata_are_rejected_or_consistent() {
    let count = parsed_count(ZMETADATA, |bytes| {
        Consolidated::from_zmetadata(bytes)
            .inspect(examine_copies)
            .is_ok()
    });
    assert!((100..4_900).contains(&count), "{count}");
}

#[test]
fn every_prefix_of_a_document_is_rejected() {
    for text in [ZARRAY, ARRAY, STRUCT, GROUP, DATASET, ZMETADATA] {
        for end in 0..text.len() {
            assert!(
                parse(&text.as_bytes()[..end]).is_err(),
                "{end} bytes of {text}"
            );
        }
    }
}
