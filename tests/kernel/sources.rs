//! Sources for the mounts: directories and zips with known content.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Returns the next number of a fast seeded generator (xorshift).
pub fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns `len` pseudorandom bytes, which depend only on the seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random(&mut state).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns `len` bytes (a multiple of 4), in which each word is `version`.
pub fn of_version(version: u32, len: usize) -> Vec<u8> {
    version.to_le_bytes().repeat(len / 4)
}

/// Returns the version in `bytes`, if all words have the same version.
pub fn version_of(bytes: &[u8]) -> Option<u32> {
    let mut words = bytes.chunks(4);
    let first = words.next()?;
    let version = u32::from_le_bytes(first.try_into().ok()?);
    words.all(|word| word == first).then_some(version)
}

/// Returns the path and content of every file of the small tree that most tests mount.
pub fn tree() -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        (
            "zarr.json".to_owned(),
            b"{\"zarr_format\":3,\"node_type\":\"group\"}".to_vec(),
        ),
        ("empty".to_owned(), Vec::new()),
        (
            "a name with spaces, commas and \u{fc}ml\u{e4}uts".to_owned(),
            pattern(1, 77),
        ),
        (format!("a/{}", "n".repeat(255)), pattern(2, 10)),
        ("a/big".to_owned(), pattern(3, 300_000)),
    ];
    for i in 0..40_u64 {
        files.push((
            format!("a/c/{}/{}", i / 10, i % 10),
            pattern(10 + i, 97 * i as usize + 1),
        ));
    }
    files
}

/// Writes files below `root`.
pub fn write_directory(root: &Path, files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Returns a zip with these files; every second one is deflated if `deflate` is set.
pub fn zip_bytes(files: &[(String, Vec<u8>)], deflate: bool) -> Vec<u8> {
    let mut zip = Zip::default();
    for (i, (name, content)) in files.iter().enumerate() {
        zip.add(name, content, deflate && i % 2 == 0);
    }
    zip.finish()
}

/// Creates both kinds of source with the same files below `dir`.
pub fn both_kinds(dir: &Path, files: &[(String, Vec<u8>)]) -> [PathBuf; 2] {
    let directory = dir.join("directory");
    fs::create_dir(&directory).unwrap();
    write_directory(&directory, files);
    let zip = dir.join("archive.zip");
    fs::write(&zip, zip_bytes(files, true)).unwrap();
    [directory, zip]
}

/// Replaces a file atomically.
pub fn replace(path: &Path, content: &[u8], spare: &Path) {
    File::create(spare).unwrap().write_all(content).unwrap();
    fs::rename(spare, path).unwrap();
}

#[derive(Default)]
struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    entries: u64,
}

impl Zip {
    fn add(&mut self, name: &str, content: &[u8], deflate: bool) {
        let stored = if deflate {
            deflated(content)
        } else {
            content.to_vec()
        };
        let mut common = Vec::new();
        put16(&mut common, 20);
        put16(&mut common, if name.is_ascii() { 0 } else { 1 << 11 });
        put16(&mut common, if deflate { 8 } else { 0 });
        put32(&mut common, 0x0021_0000);
        put32(&mut common, crc32fast::hash(content));
        put32(&mut common, stored.len().try_into().unwrap());
        put32(&mut common, content.len().try_into().unwrap());
        put16(&mut common, name.len().try_into().unwrap());
        put16(&mut common, 0);

        self.directory.extend_from_slice(b"PK\x01\x02\x14\x03");
        self.directory.extend_from_slice(&common);
        self.directory.extend_from_slice(&[0; 6]);
        put32(&mut self.directory, 0o100_644 << 16);
        put32(&mut self.directory, self.bytes.len().try_into().unwrap());
        self.directory.extend_from_slice(name.as_bytes());

        self.bytes.extend_from_slice(b"PK\x03\x04");
        self.bytes.extend_from_slice(&common);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(&stored);
        self.entries += 1;
    }

    fn finish(self) -> Vec<u8> {
        let Self {
            mut bytes,
            directory,
            entries,
        } = self;
        let (start, size) = (bytes.len() as u64, directory.len() as u64);
        bytes.extend_from_slice(&directory);
        let zip64 = bytes.len() as u64;
        bytes.extend_from_slice(b"PK\x06\x06");
        put64(&mut bytes, 44);
        bytes.extend_from_slice(&[45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for value in [entries, entries, size, start] {
            put64(&mut bytes, value);
        }
        bytes.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        put64(&mut bytes, zip64);
        put32(&mut bytes, 1);
        bytes.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let few = u16::try_from(entries).unwrap_or(u16::MAX);
        put16(&mut bytes, few);
        put16(&mut bytes, few);
        put32(&mut bytes, size.try_into().unwrap());
        put32(&mut bytes, start.try_into().unwrap());
        put16(&mut bytes, 0);
        bytes
    }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn put16(bytes: &mut Vec<u8>, value: u16) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn put32(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(&value.to_le_bytes());
}
