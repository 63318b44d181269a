//! Damaged files cause errors: never a panic, and never the absence of their content.

use super::builder::{
    Field, array, bytes, file, group, header, id, inline, manifest, native, node_id, numbers,
    repository, snapshot, virtual_chunk,
};
use crate::store::icechunk::containers;
use crate::store::icechunk::format::{FileType, FormatError, decode};
use crate::store::icechunk::manifest::{Location, Manifest};
use crate::store::icechunk::repository::{RefKind, RepositoryInfo};
use crate::store::icechunk::snapshot::Snapshot;

const LIMIT: u64 = 1 << 20;
const HEADER: usize = 39;
const DEFAULT: &str = r#"{"name": "default"}"#;

fn a_manifest() -> Vec<u8> {
    let chunks = vec![
        inline(&[0, 0], b"value"),
        native(&[0, 1], id(9), 10, 20),
        virtual_chunk(&[1, 0], "s3://bucket/key"),
    ];
    manifest(id(1), &[(3, chunks), (4, vec![inline(&[], b"scalar")])])
}

fn a_snapshot() -> Vec<u8> {
    let manifests = vec![(id(1), vec![[0, 2], [0, 2]])];
    let nodes = [
        group("/"),
        group("/g"),
        array("/g/a", 3, DEFAULT, 2, manifests),
    ];
    snapshot(id(2), &nodes)
}

fn a_repository() -> Vec<u8> {
    repository([&[("main", id(2)), ("dev", id(3))], &[("v1", id(3))]], true)
}

/// Reads a whole manifest.
fn walk_manifest(file: &[u8]) -> Result<(), FormatError> {
    let manifest = Manifest::decode(id(1), file, LIMIT)?;
    for (node, dimensions) in [(3, 2), (4, 0), (5, 1)] {
        let Some(refs) = manifest.refs(&node_id(node), dimensions)? else {
            continue;
        };
        for place in 0..refs.len() {
            let coordinates: Vec<u32> = refs.coordinates(place)?.iter().collect();
            assert_eq!(refs.find(&coordinates)?, Some(place));
            refs.bound(0, coordinates.get(..1).unwrap_or_default(), true)?;
            if let Location::Inline(range) = refs.location(place)? {
                assert!(manifest.bytes().get(range).is_some());
            }
        }
    }
    Ok(())
}

/// Reads a whole snapshot.
fn walk_snapshot(file: &[u8]) -> Result<(), FormatError> {
    let snapshot = Snapshot::decode(id(2), file, LIMIT)?;
    let mut nodes = vec![snapshot.locate(b"").0];
    while let Some(node) = nodes.pop() {
        for (child, name) in snapshot.children(node) {
            assert!(!name.is_empty());
            nodes.push(child);
        }
        if let Some(range) = snapshot.document(node)? {
            assert!(snapshot.bytes().get(range).is_some());
        }
        snapshot.array(node, LIMIT)?;
    }
    snapshot.message()?;
    snapshot.parent()?;
    Ok(())
}

/// Reads a whole file `repo`.
fn walk_repository(file: &[u8]) -> Result<(), FormatError> {
    let info = RepositoryInfo::decode(file, LIMIT)?;
    for kind in [RefKind::Branch, RefKind::Tag] {
        info.refs(kind)?.try_for_each(|found| found.map(drop))?;
    }
    info.snapshots()?.try_for_each(|found| found.map(drop))?;
    info.offline()?;
    info.containers()?;
    Ok(())
}

type Walk = fn(&[u8]) -> Result<(), FormatError>;

fn files() -> [(Vec<u8>, Walk); 3] {
    [
        (a_manifest(), walk_manifest),
        (a_snapshot(), walk_snapshot),
        (a_repository(), walk_repository),
    ]
}

#[test]
fn a_changed_word_never_causes_a_read_outside_of_a_file() {
    let values = [0, 1, 4, 0x7fff_ffff, 0x8000_0000, u32::MAX, u32::MAX - 3];
    for (good, walk) in files() {
        walk(&good).unwrap();
        for at in HEADER..good.len() - 3 {
            for value in values {
                let mut bad = good.clone();
                bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
                let _ = walk(&bad);
            }
            for flipped in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flipped;
                let _ = walk(&bad);
            }
        }
    }
}

#[test]
fn every_truncated_file_is_an_error() {
    for (good, walk) in files() {
        for length in 0..good.len() {
            assert!(walk(&good[..length]).is_err(), "{length} of {}", good.len());
        }
    }
}

#[test]
fn a_file_of_another_name_version_or_type_is_refused() {
    let good = a_manifest();
    assert!(Manifest::decode(id(8), &good, LIMIT).is_err());
    assert!(Snapshot::decode(id(2), &good, LIMIT).is_err());
    for (at, value) in [(0, b'X'), (36, 0), (36, 3), (37, 4), (38, 2)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(walk_manifest(&bad).is_err(), "{at}");
    }
    let mut newer = good;
    newer[36] = 3;
    let error = walk_manifest(&newer).unwrap_err();
    assert!(matches!(error, FormatError::Unsupported(_)), "{error}");
}

#[test]
fn references_out_of_order_are_an_error_and_not_an_absence() {
    let (zero, one) = (inline(&[0], b"0"), inline(&[1], b"1"));
    for chunks in [
        vec![one.clone(), zero.clone()],
        vec![zero.clone(), zero.clone()],
        vec![zero.clone(), inline(&[1, 1], b"x")],
    ] {
        let file = manifest(id(1), &[(3, chunks), (4, vec![zero.clone()])]);
        let manifest = Manifest::decode(id(1), &file, LIMIT).unwrap();
        assert!(manifest.refs(&node_id(3), 1).is_err());
        // The other array is not affected.
        assert_eq!(manifest.refs(&node_id(4), 1).unwrap().unwrap().len(), 1);
        assert!(
            manifest.refs(&node_id(4), 2).is_err(),
            "of other dimensions"
        );
    }
    let swapped = manifest(id(1), &[(4, vec![zero.clone()]), (3, vec![one])]);
    assert!(Manifest::decode(id(1), &swapped, LIMIT).is_err());
}

#[test]
fn a_reference_of_no_kind_or_of_two_is_an_error() {
    let none = super::builder::Chunk {
        index: vec![0],
        fields: Vec::new(),
    };
    let mut two = inline(&[1], b"x");
    two.fields.push((4, Field::Fixed(vec![1; 12])));
    let empty = native(&[2], id(1), 5, 0);
    let beyond = native(&[3], id(1), u64::MAX, 2);
    let unknown = super::builder::Chunk {
        index: vec![4],
        fields: vec![(8, Field::Items(3, vec![1, 2, 3]))],
    };
    let good = inline(&[5], b"y");
    let file = manifest(id(1), &[(3, vec![none, two, empty, beyond, unknown, good])]);
    let manifest = Manifest::decode(id(1), &file, LIMIT).unwrap();
    let refs = manifest.refs(&node_id(3), 1).unwrap().unwrap();
    for place in 0..5 {
        assert!(refs.location(place).is_err(), "{place}");
        assert!(
            refs.find(&[u32::try_from(place).unwrap()])
                .unwrap()
                .is_some()
        );
    }
    assert!(refs.location(5).is_ok());
}

#[test]
fn locations_are_decompressed_with_the_dictionary_of_their_manifest() {
    let dictionary = b"s3://bucket/some/long/prefix/of/all/files/";
    let urls = [
        "s3://bucket/some/long/prefix/of/all/files/a.nc",
        "s3://other",
    ];
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, dictionary).unwrap();
    let reference = |index: u32, location: &[u8]| {
        vec![
            (0, numbers(&[index])),
            (3, Field::Fixed(9_u64.to_le_bytes().to_vec())),
            (8, bytes(location)),
        ]
    };
    let compressed = urls.map(|url| compressor.compress(url.as_bytes()).unwrap());
    assert!(compressed[0].len() < urls[0].len());
    let bomb = compressor.compress(&vec![b'x'; 1 << 20]).unwrap();
    let refs = vec![
        reference(0, &compressed[0]),
        reference(1, &compressed[1]),
        reference(2, &bomb),
        reference(3, b"no frame"),
    ];
    let array = vec![
        (0, Field::Fixed(node_id(3).to_vec())),
        (1, Field::Tables(refs)),
    ];
    let mut root = vec![
        (0, Field::Fixed(id(1).0.to_vec())),
        (1, Field::Tables(vec![array])),
    ];
    let without = file(FileType::Manifest, &root);
    root.push((2, bytes(dictionary)));
    let with = file(FileType::Manifest, &root);
    let location = |file: &[u8], place| {
        let manifest = Manifest::decode(id(1), file, LIMIT).unwrap();
        let refs = manifest.refs(&node_id(3), 1).unwrap().unwrap();
        match refs.location(place) {
            Ok(Location::Virtual { url, .. }) => Some(url),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    };
    for (place, url) in urls.into_iter().enumerate() {
        assert_eq!(location(&with, place).as_deref(), Some(url));
        assert_eq!(location(&without, place), None);
    }
    assert_eq!((location(&with, 2), location(&with, 3)), (None, None));
}

#[test]
fn a_file_that_declares_more_references_than_fit_is_an_error() {
    for count in [1000, u32::MAX / 4, u32::MAX] {
        let array = vec![
            (0, Field::Fixed(node_id(3).to_vec())),
            (1, Field::Items(count, vec![0; 64])),
        ];
        let root = vec![
            (0, Field::Fixed(id(1).0.to_vec())),
            (1, Field::Tables(vec![array])),
        ];
        let file = file(FileType::Manifest, &root);
        let manifest = Manifest::decode(id(1), &file, LIMIT).unwrap();
        assert!(manifest.refs(&node_id(3), 1).is_err(), "{count}");
    }
}

#[test]
fn a_compressed_file_takes_no_more_memory_than_is_allowed() {
    let zeros = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let bomb = [header(FileType::Manifest, 1), zeros].concat();
    let error = decode(&bomb, FileType::Manifest, LIMIT).unwrap_err();
    assert!(matches!(error, FormatError::TooLarge { .. }), "{error}");
    // A frame of blocks of 2 MiB each, none of which is marked as the last one.
    let mut endless = [
        header(FileType::Manifest, 1),
        vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x58],
    ]
    .concat();
    endless.extend([0xfa, 0xff, 0xff, 0].repeat(1000));
    assert!(decode(&endless, FileType::Manifest, LIMIT).is_err());
    let good = a_manifest();
    let (head, body) = good.split_at(HEADER);
    let packed = zstd::bulk::compress(body, 3).unwrap();
    let packed = [header(FileType::Manifest, 1), packed].concat();
    assert_eq!(head.len(), HEADER);
    walk_manifest(&packed).unwrap();
    for length in HEADER..packed.len() {
        assert!(walk_manifest(&packed[..length]).is_err(), "{length}");
    }
}

#[test]
fn containers_are_read_from_the_configuration() {
    // {"virtual_chunk_containers": {"p": {"name": "n", "url_prefix": "s3://b/"}}}
    let config = flexbuffer();
    let found = vec![("n".to_owned(), "s3://b/".to_owned())];
    assert_eq!(containers::read(&config).unwrap(), found);
    for at in 0..config.len() {
        for value in 0..=255 {
            let mut bad = config.clone();
            bad[at] = value;
            let _ = containers::read(&bad);
        }
        let _ = containers::read(&config[..at]);
    }
}

/// Builds a FlexBuffer with offsets of one byte.
fn flexbuffer() -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    let key = |out: &mut Vec<u8>, text: &str| {
        let at = out.len();
        out.extend(text.bytes());
        out.push(0);
        at
    };
    let string = |out: &mut Vec<u8>, text: &str| {
        out.push(u8::try_from(text.len()).unwrap());
        let at = out.len();
        out.extend(text.bytes());
        out.push(0);
        at
    };
    // Keys and values are given by their positions; returns the position of the map.
    let map = |out: &mut Vec<u8>, entries: &[(usize, usize, u8)]| {
        let count = u8::try_from(entries.len()).unwrap();
        out.push(count);
        let keys = out.len();
        for (key, ..) in entries {
            out.push(u8::try_from(out.len() - key).unwrap());
        }
        out.push(u8::try_from(out.len() - keys).unwrap());
        out.extend([1, count]);
        let at = out.len();
        for (_, value, _) in entries {
            out.push(u8::try_from(out.len() - value).unwrap());
        }
        out.extend(entries.iter().map(|(.., kind)| kind << 2));
        at
    };
    let (name, prefix) = (key(&mut out, "name"), key(&mut out, "url_prefix"));
    let (n, b) = (string(&mut out, "n"), string(&mut out, "s3://b/"));
    let container = map(&mut out, &[(name, n, 5), (prefix, b, 5)]);
    let p = key(&mut out, "p");
    let all = map(&mut out, &[(p, container, 9)]);
    let name = key(&mut out, "virtual_chunk_containers");
    let root = map(&mut out, &[(name, all, 9)]);
    out.push(u8::try_from(out.len() - root).unwrap());
    out.extend([9 << 2, 1]);
    out
}
