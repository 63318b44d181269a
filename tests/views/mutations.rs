//! Chunks of every codec of the matrix, cut, lengthened and with flipped bits. A read returns EIO,
//! the stored elements, or, if no checksum can detect the change, exactly the size of the chunk.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::clients::{EIO, gauge};
use crate::stores::*;
use crate::support::*;

/// The possible results of a chunk with a flipped bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChecksumCoverage {
    /// A checksum covers the whole chunk: EIO.
    Whole,
    /// A checksum covers the content, but a header may have unused bits: EIO, or the content.
    Content,
    /// No checksum: EIO, or the expected number of bytes.
    None,
}

/// A change of a chunk.
#[derive(Debug)]
enum Mutation {
    None,
    Cut(usize),
    Longer(usize),
    Flip(usize),
}

/// Codecs that, as the outermost one, cover every bit.
const CHECKSUMS: [&str; 5] = [
    "crc32",
    "crc32c",
    "adler32",
    "fletcher32",
    "jenkins_lookup3",
];
/// The number of flips of each chunk, and of lengths to which it is cut, besides the first and the last ones.
const FLIPS: usize = 50;
const CUTS: usize = 20;
/// The largest size of a mutated chunk in bytes. Each codec has shorter ones.
const LONGEST: usize = 12 << 10;

/// An array of the matrix, whose chunks are mutations of one of its chunks.
struct Case {
    name: String,
    proof: ChecksumCoverage,
    mutations: Vec<Mutation>,
    keys: Vec<String>,
    has_fill_oracle: bool,
    is_fixed: bool,
}

fn codecs(metadata: &Value) -> Vec<Value> {
    if metadata["zarr_format"] == 3 {
        return metadata["codecs"].as_array().unwrap().clone();
    }
    let mut codecs = metadata["filters"].as_array().cloned().unwrap_or_default();
    codecs.extend(
        metadata
            .get("compressor")
            .filter(|codec| !codec.is_null())
            .cloned(),
    );
    codecs
}

fn name_of(codec: &Value) -> &str {
    let name = codec.get("name").or(codec.get("id")).unwrap_or(codec);
    name.as_str().unwrap().trim_start_matches("numcodecs.")
}

fn proof(codecs: &[Value]) -> ChecksumCoverage {
    let is_checksum = |codec: &Value| CHECKSUMS.contains(&name_of(codec));
    // Formats with their own checksum at the end of the stream.
    let is_checked = |codec: &Value| match name_of(codec) {
        "zlib" | "gzip" | "bz2" => true,
        "zstd" => codec["checksum"] == true || codec["configuration"]["checksum"] == true,
        "lzma" => codec["format"] == 1 && codec["check"] != 0,
        _ => false,
    };
    match codecs.last() {
        Some(last) if is_checksum(last) => ChecksumCoverage::Whole,
        // A codec after a shard covers the whole shard, one before it only the inner chunks.
        _ if codecs
            .iter()
            .any(|codec| is_checksum(codec) || is_checked(codec)) =>
        {
            ChecksumCoverage::Content
        }
        _ => ChecksumCoverage::None,
    }
}

/// Copies an array, and replaces its chunks by mutations of the first one.
fn mutated(array: &Path, into: &Path) -> Option<Case> {
    let (document, format) = match array.join("zarr.json") {
        path if path.exists() => (path, 3),
        _ => (array.join(".zarray"), 2),
    };
    let mut metadata: Value = serde_json::from_slice(&fs::read(&document).ok()?).unwrap();
    let codecs = codecs(&metadata);
    let (data_type, chunks) = match format {
        2 => (&metadata["dtype"], &metadata["chunks"]),
        _ => (
            &metadata["data_type"],
            &metadata["chunk_grid"]["configuration"]["chunk_shape"],
        ),
    };
    let text = metadata.to_string();
    let is_of_objects = ["\"|O\"", "string", "variable"]
        .iter()
        .any(|word| text.contains(word));
    let chunks: Vec<u64> = chunks
        .as_array()?
        .iter()
        .map(|n| n.as_u64().unwrap())
        .collect();
    if is_of_objects || chunks.is_empty() {
        return None;
    }
    let key = |first: usize| {
        let mut index = vec![first.to_string()];
        index.resize(chunks.len(), "0".into());
        match format {
            2 => index.join(metadata["dimension_separator"].as_str().unwrap_or(".")),
            _ => format!("c/{}", index.join("/")),
        }
    };
    let original = fs::read(array.join(key(0))).ok()?;
    if original.len() > LONGEST {
        return None;
    }
    let has_fill_oracle = data_type == "<i4" || data_type == "int32";
    let is_fixed = codecs.iter().all(|codec| {
        ["bytes", "transpose", "shuffle", "delta"].contains(&name_of(codec))
            || CHECKSUMS.contains(&name_of(codec))
    });

    let mut mutations = vec![Mutation::None];
    let ends = (0..9).chain((1..9).map(|less| original.len().saturating_sub(less)));
    let between = (1..CUTS).map(|i| original.len() * i / CUTS);
    let mut cuts: Vec<usize> = ends
        .chain(between)
        .filter(|n| *n < original.len())
        .collect();
    cuts.sort();
    cuts.dedup();
    mutations.extend(cuts.into_iter().map(Mutation::Cut));
    mutations.extend([1, 3, 4, 16, 1000].map(Mutation::Longer));
    let mut state = original.len() as u64 | 1;
    for flip in 0..FLIPS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bit = match flip {
            // Most of the significant bits are in headers.
            0..20 => (state >> 33) as usize % (24 * 8).min(original.len() * 8),
            _ => (state >> 33) as usize % (original.len() * 8),
        };
        mutations.push(Mutation::Flip(bit));
    }
    let keys: Vec<String> = (0..mutations.len()).map(key).collect();
    for (key, mutation) in keys.iter().zip(&mutations) {
        let mut bytes = original.clone();
        match mutation {
            Mutation::None => {}
            Mutation::Cut(length) => bytes.truncate(*length),
            Mutation::Longer(more) => bytes.extend(vec![0x5a; *more]),
            Mutation::Flip(bit) => bytes[bit / 8] ^= 1 << (bit % 8),
        }
        let path = into.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let mut shape = chunks.clone();
    shape[0] *= mutations.len() as u64;
    let members = metadata.as_object_mut().unwrap();
    members.insert("shape".into(), json!(shape));
    if has_fill_oracle {
        members.insert("fill_value".into(), json!(FILL));
    }
    fs::write(
        into.join(document.file_name().unwrap()),
        metadata.to_string(),
    )
    .unwrap();
    Some(Case {
        name: into.file_name().unwrap().to_str().unwrap().to_owned(),
        proof: proof(&codecs),
        mutations,
        keys,
        has_fill_oracle,
        is_fixed,
    })
}

/// Mutates the chunks of the arrays in these groups of the matrix, and reads all of them.
fn run_all(half: &str, groups: &[&str], least: usize) {
    let stores = Stores::new();
    let mut cases = Vec::new();
    let matrix = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/fixtures/matrix")
        .join(half);
    for group in groups {
        let mut arrays: Vec<PathBuf> = fs::read_dir(matrix.join(group))
            .expect("run tests/fixtures/setup.sh")
            .map(|entry| entry.unwrap().path())
            .collect();
        arrays.sort();
        for array in arrays {
            let name = array.file_name().unwrap().to_str().unwrap();
            // The same codecs with another type, or with an additional codec.
            if name.ends_with("-f4") || name.ends_with("-f8") || name.contains('+') {
                continue;
            }
            let into = stores.path().join(format!("{group}-{name}"));
            cases.extend(mutated(&array, &into));
        }
    }
    assert!(cases.len() >= least, "only {} arrays", cases.len());
    let mount = stores.mount(&[]);
    assert_others_served(&mount, &stores);
    let before = mount.memory("VmHWM");
    let mut problems = Vec::new();
    let (mut refused, mut survived) = (0, 0);
    for case in &cases {
        let chunk = |key: &str| read(view(&mount, &case.name, &format!("chunks/{key}")));
        let original = chunk(&case.keys[0]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let fill = FILL.to_le_bytes();
        let has_fill = |bytes: &[u8]| bytes.chunks(4).any(|element| element == fill);
        let oracle = case.has_fill_oracle && !has_fill(&original);
        for (key, mutation) in case.keys.iter().zip(&case.mutations).skip(1) {
            let mut problem =
                |what: &str| problems.push(format!("{} {mutation:?}: {what}", case.name));
            let found = match chunk(key) {
                Ok(found) => found,
                Err(error) if error.raw_os_error() == Some(EIO) => {
                    refused += 1;
                    continue;
                }
                Err(error) => {
                    problem(&error.to_string());
                    continue;
                }
            };
            survived += 1;
            let is_same = found == original;
            if found.len() != original.len() {
                problem(&format!("{} bytes, not {}", found.len(), original.len()));
            }
            if oracle && has_fill(&found) {
                problem("fill values in place of a chunk that is present");
            }
            match (mutation, case.proof) {
                (Mutation::Flip(_), ChecksumCoverage::None) => {}
                (Mutation::Flip(_), ChecksumCoverage::Content) if is_same => {}
                (Mutation::Longer(_) | Mutation::Cut(_), _) if is_same && !case.is_fixed => {}
                _ => problem(&format!("read as {} bytes, same: {is_same}", found.len())),
            }
        }
    }
    let total = refused + survived;
    eprintln!(
        "{half}: {} arrays, {refused} chunks refused, {survived} read",
        cases.len()
    );
    assert!(
        problems.is_empty(),
        "{} of {total}:\n{}",
        problems.len(),
        problems.join("\n")
    );
    assert!(refused * 2 > total, "{refused} of {total}");
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
    assert!(gauge(mount.path(), "failed_requests") >= refused);
    assert_others_served(&mount, &stores);
}

#[test]
fn damaged_chunks_of_every_v2_codec_are_eio_or_have_the_expected_size() {
    run_all("v2", &["compressor", "blosc", "filter"], 60);
}

#[test]
fn damaged_chunks_of_every_v3_codec_are_eio_or_have_the_expected_size() {
    run_all("v3", &["codec", "numcodecs", "shard"], 50);
}
