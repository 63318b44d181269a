//! Level: one suite that every store passes. The same keys and values are put into a directory,
//! zips with every coding, memory, and behind the fault store. Each store must list the same keys,
//! prove absence only where it exists, and read every range like a file.

#![allow(missing_docs, missing_debug_implementations)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::faulty;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zarrfs::array::{Engine, EngineOptions};
use zarrfs::runtime::block_on;
use zarrfs::store::{
    AccessHint, DirOptions, DirStore, FaultStore, Index, Key, Kind, Listing, LocalReadError,
    MemoryStore, Object, OpenOptions, Position, ReadMode, RemoteOptions, SnapshotError,
    SnapshotReader, SourceName, Stat, Store, StoreError, Visited, ZipOptions, ZipStore, read_owned,
};
use zarrfs::translate::{Target, Translated};

use faulty::{Fault, Server, on};

type Values = BTreeMap<&'static str, Vec<u8>>;

/// Returns flat and nested chunk keys, hidden names, an empty value, and a value longer than any read.
fn values() -> Values {
    let noise = |seed: u32, length: usize| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    BTreeMap::from([
        (".zgroup", br#"{"zarr_format":2}"#.to_vec()),
        ("flat/.zarray", b"{}".to_vec()),
        ("flat/0.0", noise(1, 5000)),
        ("flat/0.1", Vec::new()),
        ("nested/zarr.json", vec![b' '; 100_000]),
        ("nested/c/0/0", noise(2, 3_000_000)),
        ("nested/c/0/1", vec![0; 700_000]),
        ("nested/c/10/2", noise(3, 1)),
        ("with space/ü/x", noise(4, 300)),
    ])
}

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

fn directory(root: &Path, values: &Values) -> DirStore {
    for (name, value) in values {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    }
    DirStore::open(root, DirOptions::default()).unwrap()
}

/// Returns a zip written by Python, with `method` of its module `zipfile`.
fn zip(dir: &Path, values: &Values, method: &str) -> ZipStore {
    let (source, path) = (dir.join("source"), dir.join(format!("{method}.zip")));
    directory(&source, values);
    let script = "import os, sys, zipfile\n\
         z = zipfile.ZipFile(sys.argv[2], 'w', getattr(zipfile, sys.argv[3]))\n\
         for d, _, fs in os.walk(sys.argv[1]):\n\
         \x20   for f in fs:\n\
         \x20       p = os.path.join(d, f); z.write(p, os.path.relpath(p, sys.argv[1]))\n\
         z.close()\n";
    let made = std::process::Command::new("python3")
        .args(["-c", script])
        .args([&source, &path])
        .arg(method)
        .status()
        .unwrap();
    assert!(made.success());
    ZipStore::open(File::open(path).unwrap(), method, ZipOptions::default()).unwrap()
}

fn memory(values: &Values) -> MemoryStore {
    MemoryStore::new(
        values
            .iter()
            .map(|(name, value)| (key(name), value.clone())),
    )
}

/// Opens the value of a key.
fn open(store: &dyn Store, name: &str) -> Result<Arc<dyn Object>, StoreError> {
    block_on(store.open(&key(name), AccessHint::Ranges))
}

fn stat(store: &dyn Store, key: &Key) -> Result<Stat, StoreError> {
    let stat = block_on(store.stat(key));
    // A result of `try_stat` must be the same.
    if let Some(at_hand) = store.try_stat(key) {
        assert_eq!(at_hand.as_ref().ok(), stat.as_ref().ok(), "{key}");
    }
    stat
}

/// Reads a range like the file system: without waiting if possible.
fn read(object: &dyn Object, offset: u64, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < size {
        let (at, left) = (offset + bytes.len() as u64, size - bytes.len());
        let at_hand =
            (object.as_local()).map(|local| read_owned(local, at, left, ReadMode::NonBlocking));
        let data = match (at_hand, object.as_local()) {
            (Some(Err(LocalReadError::WouldBlock)), Some(local)) => {
                read_owned(local, at, left, ReadMode::Blocking).map_err(LocalReadError::of_blocking)
            }
            (Some(data), _) => data.map_err(LocalReadError::of_blocking),
            (None, _) => block_on(object.read(at, left)),
        };
        let data = data.unwrap();
        let got = data.bytes(&[]).unwrap();
        if got.is_empty() {
            break;
        }
        bytes.extend_from_slice(got);
    }
    bytes
}

/// Returns at most `most` names from a cookie on, each with the next cookie, and whether the
/// listing was interrupted.
fn visited(
    listing: &mut dyn Listing,
    cookie: u64,
    most: usize,
) -> (Vec<(Vec<u8>, Kind, u64)>, bool) {
    let (mut found, mut is_broken) = (Vec::new(), false);
    let mut cookie = cookie;
    loop {
        let visited = listing.visit(cookie, &mut |name| {
            is_broken = found.len() == most;
            if is_broken {
                return ControlFlow::Break(());
            }
            cookie = name.next;
            found.push((name.name.to_vec(), name.kind, name.next));
            ControlFlow::Continue(())
        });
        let visited = visited.unwrap();
        assert_eq!(visited == Visited::Stopped, is_broken);
        match visited {
            Visited::Pending => block_on(listing.load()).unwrap(),
            Visited::Stopped | Visited::End => return (found, is_broken),
        }
    }
}

fn names(store: &dyn Store, prefix: &str) -> Vec<(Vec<u8>, Kind)> {
    // Interrupts the listing after every number of names, each time in a new listing.
    let (mut listing, found) = (0..)
        .find_map(|most| {
            let mut listing = block_on(store.list(&key(prefix))).unwrap();
            let (found, is_broken) = visited(&mut *listing, 0, most);
            assert!(!is_broken || found.len() == most);
            (!is_broken).then_some((listing, found))
        })
        .unwrap();
    // From every cookie, the listing continues to its end.
    let cookies = std::iter::once(0).chain(found.iter().map(|(.., next)| *next));
    for (i, cookie) in cookies.enumerate() {
        let (rest, _) = visited(&mut *listing, cookie, usize::MAX);
        assert_eq!(rest, found[i..], "behind {i} names of {prefix:?}");
    }
    let found = found.into_iter().map(|(name, kind, _)| (name, kind));
    let mut found: Vec<_> = found.collect();
    found.retain(|(name, _)| !matches!(&name[..], b"." | b".."));
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Returns the names directly below a prefix according to `values`.
fn expected_names(values: &Values, prefix: &str) -> Vec<(Vec<u8>, Kind)> {
    let start = if prefix.is_empty() {
        String::new()
    } else {
        format!("{prefix}/")
    };
    let below = values.keys().filter_map(|name| name.strip_prefix(&start));
    let children: BTreeMap<Vec<u8>, Kind> = below
        .map(|name| match name.split_once('/') {
            Some((directory, _)) => (directory.into(), Kind::Prefix),
            None => (name.into(), Kind::Object),
        })
        .collect();
    children.into_iter().collect()
}

fn prefixes(values: &Values) -> Vec<String> {
    let mut found = vec![String::new()];
    for name in values.keys() {
        found.extend(
            name.match_indices('/')
                .map(|(end, _)| name[..end].to_owned()),
        );
    }
    found.sort();
    found.dedup();
    found
}

/// Runs the suite.
fn conforms(store: &dyn Store, values: &Values) {
    // A remote store does not count the entries below a prefix.
    let is_counted = !store.capabilities().is_remote || store.index().is_some();
    conforms_with(store, values, is_counted);
}

/// Runs the suite for a store that counts the prefixes below a prefix, or does not.
fn conforms_with(store: &dyn Store, values: &Values, is_counted: bool) {
    assert!(!store.label().is_empty());
    for prefix in prefixes(values) {
        let found = stat(store, &key(&prefix)).unwrap();
        assert_eq!(
            (found.kind, found.size_bytes),
            (Kind::Prefix, 0),
            "{prefix:?}"
        );
        let expected = expected_names(values, &prefix);
        assert_eq!(names(store, &prefix), expected, "{prefix:?}");
        let below = expected.iter().filter(|(_, kind)| *kind == Kind::Prefix);
        let below = match is_counted {
            true => below.count(),
            false => 0,
        };
        assert_eq!(found.links as usize, 2 + below, "links of {prefix:?}");
        let not_found = stat(store, &key(&prefix).join(b"absent").unwrap());
        assert!(
            matches!(not_found, Err(StoreError::NotFound { .. })),
            "{not_found:?}"
        );
        assert!(
            open(store, &prefix).is_err(),
            "{prefix:?} opened as a value"
        );
    }
    for (name, value) in values {
        let found = stat(store, &key(name)).unwrap();
        assert_eq!(
            (found.kind, found.size_bytes),
            (Kind::Object, value.len() as u64),
            "{name}"
        );
        let object = open(store, name).unwrap();
        assert_eq!(object.size_bytes(), value.len() as u64, "{name}");
        assert_eq!(object.version(), found.version, "{name}");
        assert_eq!(object.stat().unwrap().version, found.version, "{name}");
        check_reads(&*object, value, name);
        assert!(
            matches!(
                block_on(store.list(&key(name))),
                Err(StoreError::NotAPrefix { .. })
            ),
            "{name}"
        );
        let below = stat(store, &key(name).join(b"0").unwrap());
        assert!(
            matches!(
                below,
                Err(StoreError::NotAPrefix { .. } | StoreError::NotFound { .. })
            ),
            "{name}/0: {below:?}"
        );
    }
    if let Some(index) = store.index() {
        index_conforms(index, values);
    }
}

fn check_reads(object: &dyn Object, value: &[u8], name: &str) {
    const PIECE: usize = 1 << 20;
    let size = value.len();
    let offsets = [
        0,
        1,
        4096,
        size / 3,
        size / 2,
        size.saturating_sub(1),
        size,
        size + 1,
        size + 9999,
    ];
    for offset in offsets {
        for length in [1, 100, 4096, 131_072, PIECE] {
            let start = offset.min(size);
            let expected = &value[start..(start + length).min(size)];
            let got = read(object, offset as u64, length);
            assert!(got == expected, "{name}: {length} bytes at {offset}");
        }
    }
    assert!(
        read(object, u64::MAX - 10, 100).is_empty(),
        "{name}: at the end of numbers"
    );
    let pieces = (0..size.div_ceil(PIECE)).flat_map(|i| read(object, (i * PIECE) as u64, PIECE));
    assert!(
        pieces.eq(value.iter().copied()),
        "{name}: from beginning to end"
    );
}

/// Asserts that the index describes the same tree.
fn index_conforms(index: &dyn Index, values: &Values) {
    let find = |name: &str| {
        name.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(Position(0), |at, part| index.child(at, part.as_bytes()))
    };
    for prefix in prefixes(values) {
        let position = find(&prefix).unwrap();
        assert_eq!(index.key(position), key(&prefix));
        let expected = expected_names(values, &prefix);
        for skip in 0..=expected.len() {
            let mut found = Vec::new();
            index.children(position, skip as u64, &mut |name, kind, place| {
                assert_eq!(index.parent(place), position);
                assert_eq!(index.child(position, name), Some(place));
                found.push((name.to_vec(), kind));
                ControlFlow::Continue(())
            });
            assert_eq!(found.len(), expected.len() - skip, "{prefix:?} from {skip}");
            found.sort_by(|a, b| a.0.cmp(&b.0));
            assert!(skip > 0 || found == expected, "{prefix:?}");
        }
    }
    for (name, value) in values {
        let position = find(name).unwrap();
        assert_eq!(index.stat(position).unwrap().size_bytes, value.len() as u64);
        assert!(
            read(&*index.open(position).unwrap(), 0, value.len()) == *value,
            "{name}"
        );
    }
    assert_eq!(find("flat/absent"), None);
    assert_eq!(find("flat/0.0/below"), None);
    assert!(index.stat(Position(u32::MAX)).is_none());
}

#[test]
fn a_directory_conforms() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    conforms(&directory(dir.path(), &values), &values);
}

#[test]
fn zips_of_every_coding_conform() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    for method in ["ZIP_STORED", "ZIP_DEFLATED"] {
        conforms(&zip(dir.path(), &values, method), &values);
    }
}

#[test]
fn a_zip_that_is_verified_before_it_is_served_conforms() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    zip(dir.path(), &values, "ZIP_STORED");
    let file = File::open(dir.path().join("ZIP_STORED.zip")).unwrap();
    let options = ZipOptions {
        verify: true,
        ..ZipOptions::default()
    };
    conforms(&ZipStore::open(file, "verified", options).unwrap(), &values);
}

/// Names and schemas of SQLite databases, as written by zarr-python 2 and zarr-sqlite, and by `dbm.sqlite3`.
const SQLITE: [(&str, &str); 3] = [
    (
        "zarr-python",
        "CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB)",
    ),
    (
        "zarr-sqlite",
        "PRAGMA journal_mode = WAL;
         CREATE TABLE zarr(k TEXT PRIMARY KEY NOT NULL, v BLOB NOT NULL)",
    ),
    (
        "dbm",
        "PRAGMA journal_mode = WAL;
         CREATE TABLE Dict(key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)",
    ),
];

/// Returns an SQLite database written by Python.
fn sqlite(dir: &Path, values: &Values, name: &str, schema: &str) -> Box<dyn Store> {
    let (source, path) = (dir.join("source"), dir.join(name));
    directory(&source, values);
    let script = "import os, sqlite3, sys\n\
         c = sqlite3.connect(sys.argv[2]); c.executescript(sys.argv[3])\n\
         table = 'Dict' if 'Dict' in sys.argv[3] else 'zarr'\n\
         for d, _, fs in os.walk(sys.argv[1]):\n\
         \x20   for f in fs:\n\
         \x20       p = os.path.join(d, f); k = os.path.relpath(p, sys.argv[1])\n\
         \x20       k = k.encode() if table == 'Dict' else k\n\
         \x20       c.execute(f'REPLACE INTO {table} VALUES(?, ?)', (k, open(p, 'rb').read()))\n\
         c.commit(); c.close()\n";
    let made = std::process::Command::new("python3")
        .args(["-c", script])
        .args([&source, &path])
        .arg(schema)
        .status()
        .unwrap();
    assert!(made.success());
    open_source(&path)
}

fn open_source(path: &Path) -> Box<dyn Store> {
    let source = SourceName::parse(path).unwrap();
    block_on(source.open(&OpenOptions::default())).unwrap()
}

#[test]
fn sqlite_databases_conform() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    for (name, schema) in SQLITE {
        conforms_with(&*sqlite(dir.path(), &values, name, schema), &values, false);
        let beside = |suffix: &str| dir.path().join(format!("{name}{suffix}")).exists();
        assert!(
            !beside("-wal") && !beside("-shm"),
            "{name}: files were made"
        );
    }
}

/// Returns kerchunk references: inline values, parts of a file, and whole files.
fn references(dir: &Path, values: &Values) -> Box<dyn Store> {
    let mut all = b"before".to_vec();
    let mut refs = serde_json::Map::new();
    for (number, (name, value)) in values.iter().enumerate() {
        let reference = match number % 3 {
            0 => serde_json::json!(format!("base64:{}", STANDARD.encode(value))),
            1 => serde_json::json!(["all", all.len(), value.len()]),
            _ => serde_json::json!([format!("{number}")]),
        };
        all.extend(value);
        std::fs::write(dir.join(number.to_string()), value).unwrap();
        refs.insert((*name).to_owned(), reference);
    }
    std::fs::write(dir.join("all"), all).unwrap();
    let path = dir.join("references");
    let json = serde_json::json!({"refs": refs, "version": 1});
    std::fs::write(&path, json.to_string()).unwrap();
    open_source(&path)
}

#[test]
fn references_conform() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    conforms_with(&*references(dir.path(), &values), &values, false);
}

/// Returns the Python with py-lmdb, which writes both formats.
fn python2() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/.venv2");
    let python = std::env::var_os("ZARRFS_VENV2").map_or(own, PathBuf::from);
    let python = python.join("bin/python");
    assert!(
        python.exists(),
        "no {python:?}: run tests/fixtures/setup.sh"
    );
    python
}

#[test]
fn lmdb_databases_conform() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    let source = dir.path().join("source");
    directory(&source, &values);
    let script = "import lmdb, os, sys\n\
         e = lmdb.open(sys.argv[2], lib_version=int(sys.argv[3]), subdir=sys.argv[4] == 'directory',\n\
         \x20             map_size=1 << 40, writemap=True)\n\
         for d, _, fs in os.walk(sys.argv[1]):\n\
         \x20   for f in fs:\n\
         \x20       p = os.path.join(d, f); k = os.path.relpath(p, sys.argv[1]).encode()\n\
         \x20       with e.begin(write=True) as t: t.put(k, open(p, 'rb').read())\n\
         e.close()\n";
    for (engine, form) in [
        ("0", "directory"),
        ("1", "directory"),
        ("0", "file"),
        ("1", "file"),
    ] {
        let path = dir.path().join(format!("{engine}-{form}"));
        let made = std::process::Command::new(python2())
            .args(["-c", script])
            .args([&source, &path])
            .args([engine, form])
            .status()
            .unwrap();
        assert!(made.success());
        conforms_with(&*open_source(&path), &values, false);
    }
}

#[test]
fn dbm_databases_conform() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    let source = dir.path().join("source");
    directory(&source, &values);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/databases/write_dbm.py");
    let made = std::process::Command::new("/usr/bin/python3")
        .arg(script)
        .arg("copy")
        .args([&source, dir.path()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let names = String::from_utf8(made.stdout).unwrap();
    for name in names.lines() {
        conforms_with(&*open_source(&dir.path().join(name)), &values, false);
    }
    assert_eq!(names.lines().count(), 7);
}

#[test]
fn redis_conforms() {
    let (redis, values) = (support::servers::Redis::start(), values());
    for (name, value) in &values {
        redis.set(&format!("zarr:{name}"), value);
    }
    let url = redis.url_with_password("zarr");
    conforms_with(&*open_source(Path::new(&url)), &values, false);
}

/// An archive on a server, whose reads always have to wait.
#[derive(Debug)]
struct Remote(Vec<u8>);

#[async_trait]
impl SnapshotReader for Remote {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn modified(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    async fn read_exact_at(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<Arc<Vec<u8>>, SnapshotError> {
        let start = usize::try_from(offset).unwrap();
        Ok(Arc::new(self.0[start..start + length].to_vec()))
    }

    fn check(&self) -> Result<(), SnapshotError> {
        Ok(())
    }
}

#[test]
fn remote_zips_conform() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    for method in ["ZIP_STORED", "ZIP_DEFLATED"] {
        zip(dir.path(), &values, method);
        let bytes = fs::read(dir.path().join(format!("{method}.zip"))).unwrap();
        for (tail, verify) in [(1 << 16, false), (100, false), (100, true)] {
            let tail = bytes[bytes.len() - tail..].to_vec();
            let options = ZipOptions {
                verify,
                ..ZipOptions::default()
            };
            let remote = Arc::new(Remote(bytes.clone()));
            let store = ZipStore::open_remote(remote, tail, method, options);
            let store = block_on(store).unwrap();
            assert!(store.capabilities().is_remote);
            conforms(&store, &values);
        }
    }
}

#[test]
fn buckets_with_pages_of_any_length_conform() {
    let values = values();
    for names in [1, 2, 1000] {
        let server = Server::s3("bucket");
        server.add(on("*").lists(), Fault::MostNames(names));
        for (name, value) in &values {
            server.put(&format!("store/{name}"), value.clone());
        }
        let options = OpenOptions {
            remote: RemoteOptions {
                anonymous: true,
                endpoint_url: Some(server.url()),
                ..RemoteOptions::default()
            },
            ..OpenOptions::default()
        };
        let source = SourceName::parse(Path::new("s3://bucket/store")).unwrap();
        let store = block_on(source.open(&options)).unwrap();
        conforms(&*store, &values);
    }
}

#[test]
fn memory_conforms() {
    let values = values();
    conforms(&memory(&values), &values);
}

/// A version 3 hierarchy translated to version 2: an array, and shards whose inner chunks become chunks.
#[test]
fn a_translation_conforms() {
    let little = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;
    let array = |codecs: &str| {
        format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [4, 4], "data_type": "uint8",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2, 4]}}}},
            "chunk_key_encoding": "default", "fill_value": 0, "codecs": [{codecs}]}}"#
        )
        .into_bytes()
    };
    let sharding = format!(
        r#"{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [1, 4],
        "codecs": [{little}], "index_codecs": [{little}]}}}}"#
    );
    let shard = [&b"abcdefgh"[..], &words(&[0, 4, 4, 4])].concat();
    let source: Values = BTreeMap::from([
        (
            "zarr.json",
            br#"{"zarr_format": 3, "node_type": "group"}"#.to_vec(),
        ),
        ("plain/zarr.json", array(little)),
        ("plain/c/0/0", vec![1; 8]),
        ("plain/c/1/0", vec![2; 8]),
        ("shards/zarr.json", array(&sharding)),
        ("shards/c/0/0", shard.clone()),
        ("shards/c/1/0", shard),
    ]);
    let dir = tempfile::tempdir().unwrap();
    for store in [
        Arc::new(memory(&source)) as Arc<dyn Store>,
        Arc::new(directory(dir.path(), &source)),
    ] {
        let options = EngineOptions {
            cache_bytes: 0,
            memory_limit_bytes: 64 << 20,
            parallel: 1,
            timeout: Duration::from_secs(60),
        };
        let engine = Arc::new(Engine::new(options).unwrap());
        let (root, ttl) = (Key::root(), Duration::from_secs(60));
        let store = Translated::new(store, root, Target::V2, ttl, engine);
        let document = |name: &'static str| {
            let object = open(&store, name).unwrap();
            (name, read(&*object, 0, 10_000))
        };
        let values: Values = BTreeMap::from([
            document(".zgroup"),
            document(".zmetadata"),
            document("plain/.zarray"),
            ("plain/0/0", vec![1; 8]),
            ("plain/1/0", vec![2; 8]),
            document("shards/.zarray"),
            ("shards/0/0", b"abcd".to_vec()),
            ("shards/1/0", b"efgh".to_vec()),
            ("shards/2/0", b"abcd".to_vec()),
            ("shards/3/0", b"efgh".to_vec()),
        ]);
        conforms(&store, &values);
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn the_fault_store_without_faults_conforms() {
    let values = values();
    let store = FaultStore::new(Box::new(memory(&values)), key("none of them"));
    conforms(&store, &values);
    let store = FaultStore::new(Box::new(memory(&values)), key("flat/0.0"));
    let object = open(&store, "flat/0.0").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| read(&*object, 0, 1)));
    assert!(panicked.is_err());
}

#[test]
fn an_open_value_of_a_directory_is_stale_after_it_is_rewritten() {
    let (dir, values) = (tempfile::tempdir().unwrap(), values());
    let store = directory(dir.path(), &values);
    let object = open(&store, "flat/0.0").unwrap();
    read(&*object, 0, 1);
    std::thread::sleep(std::time::Duration::from_millis(30));
    let mut file = File::options()
        .write(true)
        .open(dir.path().join("flat/0.0"))
        .unwrap();
    file.write_all(b"changed").unwrap();
    let stale = block_on(object.read(0, 100));
    assert!(matches!(stale, Err(StoreError::Stale { .. })), "{stale:?}");
    assert!(matches!(object.stat(), Err(StoreError::Stale { .. })));
    assert_ne!(
        stat(&store, &key("flat/0.0")).unwrap().version,
        object.version()
    );
}
