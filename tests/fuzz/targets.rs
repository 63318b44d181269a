//! The fuzz targets: functions of arbitrary bytes that panic if a parser breaks a promise.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::{Duration, UNIX_EPOCH};

use zarrfs::codec::Pipeline;
use zarrfs::store::{
    AccessHint, Key, Kind, ReadMode, SyncStore, ZipOptions, ZipStore, fuzz_dbm, fuzz_hub_page,
    fuzz_icechunk, fuzz_json, fuzz_listing, fuzz_page, fuzz_parquet, fuzz_stac, read_owned,
};
use zarrfs::zarr::{Array, Consolidated, DataType, Documents, FillValue, Node};

/// A fuzz target and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets; each has a program in fuzz_targets.
pub const TARGETS: [Target; 13] = [
    ("zip_index", zip_index),
    ("node_v2", node_v2),
    ("node_v3", node_v3),
    ("consolidated", consolidated),
    ("codec_chain", codec_chain),
    ("html_page", html_page),
    ("hub_page", hub_page),
    ("xml_listing", xml_listing),
    ("dbm", dbm),
    ("icechunk", icechunk),
    ("reference_json", reference_json),
    ("reference_parquet", reference_parquet),
    ("stac", stac),
];

const MEMORY_BYTES: u64 = 16 << 20;
/// The largest number of bytes that are read from one archive or decoded from one chunk.
const OUTPUT_BYTES: usize = 1 << 20;
/// The largest number of entries of an archive that are examined.
const ENTRIES: usize = 256;

fn file_of(bytes: &[u8]) -> File {
    let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    file
}

/// An archive: it is refused, or its listed entries can each be opened or refused, and an entry has
/// as many bytes as the listing declares.
pub fn zip_index(archive: &[u8]) {
    let file = file_of(archive);
    // A file that has just been written may still change, which would cost a wait.
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_600_000_000))
        .unwrap();
    let options = ZipOptions {
        memory_limit_bytes: MEMORY_BYTES,
        verify: archive.len().is_multiple_of(2),
        ..ZipOptions::default()
    };
    let Ok(store) = ZipStore::open(file, "fuzz", options) else {
        return;
    };
    let mut prefixes = vec![Key::root()];
    let (mut objects, mut seen) = (Vec::new(), 0);
    while let Some(prefix) = prefixes.pop() {
        let mut listing = store.list(&prefix).unwrap();
        let visited = listing.visit(0, &mut |listed| {
            if matches!(listed.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            let key = prefix.join(listed.name).unwrap();
            assert_eq!(store.stat(&key).unwrap().kind, listed.kind, "{key}");
            match listed.kind {
                Kind::Prefix => prefixes.push(key),
                Kind::Object => objects.push((key, listed.stat.unwrap().size_bytes)),
            }
            seen += 1;
            match seen < ENTRIES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        visited.unwrap();
        if seen >= ENTRIES {
            break;
        }
    }
    let mut left = OUTPUT_BYTES;
    for (key, size_bytes) in objects {
        let Ok(object) = store.open(&key, AccessHint::Ranges) else {
            continue;
        };
        let wanted = left.min(usize::try_from(size_bytes).unwrap_or(left));
        if wanted == 0 {
            continue;
        }
        let local = object.as_local().unwrap();
        if let Ok(data) = read_owned(local, 0, wanted, ReadMode::Blocking) {
            assert_eq!(data.bytes(&[]).unwrap().len(), wanted, "{key}");
            left -= wanted;
        }
    }
}

/// Documents of a v2 node, in one input: `.zarray`, `.zattrs` and `.zgroup`, each after a zero byte.
pub fn node_v2(documents: &[u8]) {
    let mut parts = documents.split(|byte| *byte == 0);
    let documents = Documents {
        zarray: parts.next().filter(|part| !part.is_empty()),
        zattrs: parts.next(),
        zgroup: parts.next(),
        ..Documents::default()
    };
    node(documents);
}

/// `zarr.json`, or `attributes.json` of N5.
pub fn node_v3(document: &[u8]) {
    node(Documents {
        zarr_json: Some(document),
        ..Documents::default()
    });
    node(n5(document));
}

fn n5(document: &[u8]) -> Documents<'_> {
    Documents {
        attributes_json: Some(document),
        ..Documents::default()
    }
}

fn node(documents: Documents<'_>) {
    if let Some(Ok(node)) = documents.node().map(|detected| detected.node) {
        examine(&node);
    }
}

/// `.zmetadata`.
pub fn consolidated(document: &[u8]) {
    if let Ok(consolidated) = Consolidated::from_zmetadata(document) {
        examine_all(&consolidated);
    }
}

/// Checks that the metadata of a node are consistent.
fn examine(node: &Node) {
    assert!(node.info().is_object());
    if let Some(Some(consolidated)) = node.as_group().map(|group| group.consolidated.as_ref()) {
        examine_all(consolidated);
    }
    let Some(array) = node.as_array() else { return };
    assert_eq!(array.problems().next(), array.decodable().err());
    let Ok(parts) = array.decodable() else { return };
    if let DataType::Fixed(fixed) = parts.data_type {
        if let FillValue::Fixed(bytes) = parts.fill_value {
            assert_eq!(bytes.len(), fixed.size_bytes);
        }
        assert!(array.size_bytes().is_some() && array.largest_chunk_bytes().is_some());
    }
    let count = parts.grid.chunk_count();
    assert_eq!(parts.grid.index(count), None);
    for linear in [0, count / 2, count.saturating_sub(1)] {
        let Some(index) = parts.grid.index(linear) else {
            continue;
        };
        assert_eq!(parts.grid.linear(&index), Some(linear));
        let key = parts.chunk_keys.encode(&index);
        let decoded = parts.chunk_keys.decode(key.as_bytes(), parts.grid.shape());
        assert_eq!(decoded, Some(index));
    }
}

fn examine_all(consolidated: &Consolidated) {
    for path in consolidated.paths() {
        if let Some(Ok(node)) = consolidated.node(path) {
            examine(&node);
        }
        let children = consolidated.children(path);
        assert!(children.iter().all(|name| !name.is_empty()), "{path}");
    }
}

/// The document of an array, a zero byte, and the encoded bytes of its first chunk.
pub fn codec_chain(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == 0);
    let (document, encoded) = input.split_at(end.unwrap_or(input.len()));
    let encoded = encoded.get(1..).unwrap_or_default();
    let array = Array::from_v3(document).or_else(|_| Array::from_v2(document, None));
    let n5 = || n5(document).node()?.node.ok()?.as_array().cloned();
    let Some(array) = array.ok().or_else(n5) else {
        return;
    };
    let Ok(parts) = array.decodable() else { return };
    let Some(shape) = parts
        .grid
        .index(0)
        .and_then(|index| parts.grid.chunk_shape(&index))
    else {
        return;
    };
    let Ok(pipeline) = Pipeline::widened(parts.codecs, parts.data_type, &shape, parts.fill_value)
    else {
        return;
    };
    match pipeline
        .decoded_size_bytes()
        .map(|size| usize::try_from(size).unwrap_or(usize::MAX))
    {
        Some(size_bytes) if size_bytes <= OUTPUT_BYTES => {
            let _ = pipeline.decode(encoded, &mut vec![0; size_bytes]);
        }
        Some(_) => {}
        None => {
            let elements = shape.iter().try_fold(1_u64, |all, n| all.checked_mul(*n));
            if let Ok(decoded) = pipeline.decode_variable(encoded, OUTPUT_BYTES) {
                assert_eq!(Some(decoded.len() as u64), elements);
            }
        }
    }
}

/// A directory page of a web server, as HTML and as JSON.
pub fn html_page(page: &[u8]) {
    let url = "http://store.example/data/?list=1".parse().unwrap();
    let names = fuzz_page(&url, page);
    assert!(names <= page.len());
}

/// A listing page of the Hub of Hugging Face, and the header that names the next page.
pub fn hub_page(page: &[u8]) {
    // Each name is in two lists at most.
    assert!(fuzz_hub_page(page) <= page.len());
}

/// A listing page of S3 or Azure: the parsed keys are all valid.
pub fn xml_listing(listing: &[u8]) {
    if let Some((left, _)) = fuzz_listing(listing) {
        let again = fuzz_listing(&left).expect("what is left can be read");
        assert_eq!(again, (left, 0));
    }
}

/// A GNU dbm or Berkeley DB file, or an index of `dbm.dumb`: refused, or with no more keys than
/// bytes.
pub fn dbm(database: &[u8]) {
    if let Some(keys) = fuzz_dbm(&file_of(database)) {
        assert!(keys <= database.len());
    }
}

/// A snapshot, a manifest or the file `repo` of an Icechunk repository.
pub fn icechunk(file: &[u8]) {
    fuzz_icechunk(file);
}

/// References in JSON: the result does not depend on the length of the pieces in which they are parsed.
pub fn reference_json(document: &[u8]) {
    fuzz_json(document);
}

/// A partition of references in Parquet.
pub fn reference_parquet(file: &[u8]) {
    fuzz_parquet(file);
}

/// A STAC document: each member has the name of a file, and is where it may be.
pub fn stac(document: &[u8]) {
    fuzz_stac(document);
}
