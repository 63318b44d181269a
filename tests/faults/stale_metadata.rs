//! B8: consolidated metadata that are older than the store. The listing, the document beside it and the views agree.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

/// An array: its name, shape and chunk shape.
type Array = (&'static str, &'static [usize], &'static [usize]);

/// The arrays when the metadata were consolidated, and now.
const BEFORE: [Array; 6] = [
    ("foo", &[6], &[3]),
    ("grid", &[2, 4], &[1, 2]),
    ("none", &[0], &[3]),
    ("rechunked", &[6], &[3]),
    ("same", &[6], &[3]),
    ("shrunk", &[4, 4], &[1, 2]),
];
const NOW: [Array; 7] = [
    ("added", &[6], &[3]),
    ("foo", &[9], &[3]),
    ("grid", &[4, 4], &[1, 2]),
    ("none", &[3], &[3]),
    ("rechunked", &[6], &[1]),
    ("same", &[6], &[3]),
    ("shrunk", &[2, 4], &[1, 2]),
];

/// A store whose arrays changed after its metadata were consolidated.
struct Stale {
    server: Server,
    format: Format,
    scheme: &'static str,
}

fn servers() -> [(Server, &'static str); 3] {
    [
        (Server::files(), "http"),
        (Server::listing_files(), "http with pages"),
        (Server::s3("bucket"), "s3"),
    ]
}

/// Returns all kinds of servers with a store of each version.
fn stores() -> impl Iterator<Item = Stale> {
    [Format::V2, Format::V3].into_iter().flat_map(|format| {
        servers().into_iter().map(move |(server, scheme)| {
            let store = Stale::before(server, scheme, format);
            store.update();
            store
        })
    })
}

fn document(format: Format, (_, shape, chunks): Array) -> Value {
    match format {
        Format::V2 => json!({"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i4",
            "compressor": null, "filters": null, "order": "C", "fill_value": -1,
            "dimension_separator": "/"}),
        Format::V3 => json!({"zarr_format": 3, "node_type": "array", "shape": shape,
            "data_type": "int32", "fill_value": -1,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
            "chunk_key_encoding": {"name": "default"}}),
    }
}

/// Returns the chunk keys of an array as a document describes it.
fn chunk_keys(document: &Value) -> Vec<String> {
    let numbers = |value: &Value| -> Vec<u64> {
        let values = value.as_array().unwrap().iter();
        values.map(|value| value.as_u64().unwrap()).collect()
    };
    let (chunks, prefix) = match document.get("chunks") {
        Some(chunks) => (numbers(chunks), ""),
        None => {
            let chunks = document.pointer("/chunk_grid/configuration/chunk_shape");
            (numbers(chunks.unwrap()), "c/")
        }
    };
    let shape = numbers(&document["shape"]);
    let counts = shape
        .iter()
        .zip(&chunks)
        .map(|(n, chunk)| n.div_ceil(*chunk));
    counts.fold(vec![prefix.to_owned()], |keys, count| {
        let longer = |key: &String| {
            let slash = if key.is_empty() || key.ends_with('/') {
                ""
            } else {
                "/"
            };
            let key = format!("{key}{slash}");
            (0..count)
                .map(move |i| format!("{key}{i}"))
                .collect::<Vec<_>>()
        };
        keys.iter().flat_map(longer).collect()
    })
}

impl Stale {
    /// Writes the arrays and consolidates their metadata.
    fn before(server: Server, scheme: &'static str, format: Format) -> Self {
        let store = Self {
            server,
            format,
            scheme,
        };
        BEFORE.iter().for_each(|array| store.write(*array));
        store.consolidate();
        store
    }

    fn file(&self) -> &'static str {
        match self.format {
            Format::V2 => ".zarray",
            Format::V3 => "zarr.json",
        }
    }

    fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        self.server.put(&format!("store/{key}"), value);
    }

    fn write(&self, array: Array) {
        let (name, _, chunks) = array;
        let document = document(self.format, array);
        self.put(&format!("{name}/{}", self.file()), document.to_string());
        let size = 4 * chunks.iter().product::<usize>();
        for key in chunk_keys(&document) {
            let value = format!("{name}/{key}").into_bytes();
            let value: Vec<u8> = value.into_iter().cycle().take(size).collect();
            self.put(&format!("{name}/{key}"), value);
        }
    }

    fn remove(&self, name: &str) {
        let text = self
            .server
            .get(&format!("store/{name}/{}", self.file()))
            .unwrap();
        for key in chunk_keys(&serde_json::from_slice(&text).unwrap()) {
            self.server.remove(&format!("store/{name}/{key}"));
        }
        self.server.remove(&format!("store/{name}/{}", self.file()));
    }

    fn consolidate(&self) {
        let copies = BEFORE.map(|array| {
            let path = match self.format {
                Format::V2 => format!("{}/.zarray", array.0),
                Format::V3 => array.0.to_owned(),
            };
            (path, document(self.format, array))
        });
        let mut copies: Map<String, Value> = copies.into_iter().collect();
        match self.format {
            Format::V2 => {
                let group = json!({"zarr_format": 2});
                self.put(".zgroup", group.to_string());
                copies.insert(".zgroup".into(), group);
                let all = json!({"zarr_consolidated_format": 1, "metadata": copies});
                self.put(".zmetadata", all.to_string());
            }
            Format::V3 => {
                let inline =
                    json!({"kind": "inline", "must_understand": false, "metadata": copies});
                let root = json!({"zarr_format": 3, "node_type": "group", "attributes": {},
                    "consolidated_metadata": inline});
                self.put("zarr.json", root.to_string());
            }
        }
    }

    /// Changes the arrays, and leaves the consolidated metadata as they are.
    fn update(&self) {
        for name in ["rechunked", "shrunk"] {
            self.remove(name);
        }
        NOW.iter().for_each(|array| self.write(*array));
    }

    fn mount(&self, options: &[&str]) -> Mount {
        let url = self.server.url();
        let credentials = ["--endpoint-url", &url, "--anonymous"];
        match self.scheme {
            "s3" => Mount::with("s3://bucket/store", &[&credentials, options].concat()),
            _ => Mount::with(self.server.url_of("store"), options),
        }
    }

    fn case(&self) -> String {
        format!("{:?} {} {}", self.format, self.scheme, self.server.url())
    }

    /// Fails if a copied array lacks a chunk that its document speaks of, or has a wrong one.
    fn is_whole(&self, copy: &Path, name: &str) {
        let text = fs::read(copy.join(self.file())).unwrap();
        let case = self.case();
        for key in chunk_keys(&serde_json::from_slice(&text).unwrap()) {
            let copied = fs::read(copy.join(&key)).ok();
            let stored = self.server.get(&format!("store/{name}/{key}"));
            assert_eq!(copied, stored, "{case}: {name}/{key}");
        }
    }
}

/// Runs a command; returns whether it succeeded.
fn succeeds(program: &str, arguments: &[&Path]) -> bool {
    let mut command = Command::new(program);
    let flags = match program {
        "cp" => "-r",
        _ => "-rlt",
    };
    let output = command.arg(flags).args(arguments).output().unwrap();
    // The output of a test is shown if it fails.
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

fn copies(store: &Stale, program: &str, walks_names: bool) {
    let (mount, target) = (store.mount(&[]), scratch());
    if walks_names {
        sh(&format!("find {} > /dev/null", mount.path().display()));
    }
    let first = target.path().join("first");
    let is_complete = succeeds(program, &[&mount.path().join("."), &first]);
    assert!(is_complete || walks_names, "{program}: {}", store.case());
    for (name, ..) in BEFORE {
        if is_complete {
            store.is_whole(&first.join(name), name);
        }
    }
    // What the first attempt learned, the second one uses.
    let second = target.path().join("second");
    assert!(
        succeeds(program, &[&mount.path().join("."), &second]),
        "{}",
        store.case()
    );
    for (name, ..) in BEFORE {
        store.is_whole(&second.join(name), name);
    }
    mount.unmount();
}

#[test]
fn b8_a_copy_has_all_chunks_of_arrays_that_changed_after_consolidation() {
    for store in stores() {
        copies(&store, "cp", false);
    }
}

#[test]
fn b8_a_synchronized_copy_has_all_chunks_of_arrays_that_changed_after_consolidation() {
    if !Path::new("/usr/bin/rsync").exists() {
        return skipped("rsync is not installed");
    }
    for store in stores() {
        copies(&store, "rsync", false);
    }
}

#[test]
fn b8_a_copy_after_a_walk_of_names_has_all_chunks_or_fails() {
    for store in stores() {
        copies(&store, "cp", true);
    }
}

#[test]
fn b8_a_copy_of_one_array_has_all_chunks_or_fails() {
    for store in stores() {
        for (name, ..) in BEFORE {
            let (mount, target) = (store.mount(&[]), scratch());
            for attempt in ["first", "second"] {
                let copy = target.path().join(attempt);
                match succeeds("cp", &[&mount.join(name), &copy]) {
                    true => store.is_whole(&copy, name),
                    false => assert_eq!(attempt, "first", "{}: {name}", store.case()),
                }
            }
            mount.unmount();
        }
    }
}

/// Lists a directory of chunks, and opens the document of the array when it gets a line.
const LISTS_AND_OPENS: &str = r#"
import os, sys
directory, document = sys.argv[1:]
print(len(os.listdir(directory)), flush=True)
sys.stdin.readline()
try:
    open(document, "rb").close()
    print("opened")
except OSError as error:
    print(error.errno)
"#;

#[test]
fn b8_a_copy_is_not_complete_because_another_program_copies_at_the_same_time() {
    for store in stores() {
        for options in [&[][..], &["--ttl", "0"]] {
            let (mount, target) = (store.mount(options), scratch());
            let chunks = match store.format {
                Format::V2 => mount.join("foo"),
                Format::V3 => mount.join("foo/c"),
            };
            let mut other = Command::new("python3")
                .args(["-c", LISTS_AND_OPENS])
                .args([&chunks, &mount.join("foo").join(store.file())])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
            let listed: usize = lines.next().unwrap().unwrap().parse().unwrap();
            // The second copy is complete, whatever happened to the first.
            succeeds("cp", &[&mount.join("foo"), &target.path().join("first")]);
            let second = target.path().join("second");
            assert!(succeeds("cp", &[&mount.join("foo"), &second]));
            store.is_whole(&second, "foo");
            other.stdin.take().unwrap().write_all(b"\n").unwrap();
            let opened = lines.next().unwrap().unwrap();
            assert!(wait_for(&mut other, Duration::from_secs(10)).is_some());
            // Version 2 has documents and views beside the chunks.
            let has_all = listed >= fs::read_dir(&chunks).unwrap().count();
            let expected = if has_all { "opened" } else { "5" };
            assert_eq!(opened, expected, "{} {options:?}: {listed}", store.case());
            // Without pages, the names can come only from the consolidated metadata.
            assert!(!has_all || store.scheme != "http", "{}", store.case());
            mount.unmount();
        }
    }
}

#[test]
fn b8_views_lookups_and_listings_agree_when_consolidated_metadata_are_stale() {
    for store in stores() {
        let mount = store.mount(&[]);
        for (name, shape, _) in NOW {
            let case = format!("{}: {name}", store.case());
            let elements: usize = shape.iter().product();
            let view = read(mount.join(format!("{name}/.zarrfs/{name}.bin")));
            let view = view.unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(view.len(), 4 * elements, "{case}");
            let text = read(mount.join(name).join(store.file()));
            let text = text.unwrap_or_else(|error| panic!("{case}: {error}"));
            for key in chunk_keys(&serde_json::from_slice(&text).unwrap()) {
                let key = Path::new(name).join(key);
                let (directory, last) = (key.parent().unwrap(), key.file_name().unwrap());
                let last = last.to_str().unwrap().to_owned();
                assert!(mount.join(&key).is_file(), "{case} {key:?}");
                let listed = names(mount.join(directory)).unwrap();
                let log = mount.log();
                let requests = store.server.requests();
                assert!(
                    listed.contains(&last),
                    "{case} {key:?} {listed:?} {log} {requests:#?}"
                );
            }
        }
        mount.unmount();
    }
}

#[test]
fn b8_chunks_in_new_directories_are_found_without_a_listing() {
    for store in stores() {
        let mount = store.mount(&[]);
        let key = match store.format {
            Format::V2 => "grid/3/1",
            Format::V3 => "grid/c/3/1",
        };
        let stored = store.server.get(&format!("store/{key}"));
        assert_eq!(read(mount.join(key)).ok(), stored, "{}", store.case());
        mount.unmount();
    }
}

#[test]
fn b8_a_copy_has_all_chunks_of_arrays_that_changed_while_they_were_mounted() {
    for format in [Format::V2, Format::V3] {
        for (server, scheme) in servers() {
            let store = Stale::before(server, scheme, format);
            let (mount, target) = (store.mount(&["--ttl", "1s"]), scratch());
            assert!(succeeds(
                "cp",
                &[&mount.path().join("."), &target.path().join("before")]
            ));
            store.update();
            // Values that are still trusted may be those from before.
            thread::sleep(Duration::from_millis(1_100));
            let has_grown = || read(mount.join("foo/.zarrfs/foo.bin")).is_ok_and(|b| b.len() == 36);
            assert!(wait_until(SOON, has_grown), "{}", store.case());
            for attempt in ["first", "second"] {
                let copy = target.path().join(attempt);
                let is_complete = succeeds("cp", &[&mount.path().join("."), &copy]);
                // Files that are replaced while they are copied fail, too.
                assert!(is_complete || attempt == "first", "{}", store.case());
                for (name, ..) in BEFORE.iter().filter(|_| is_complete) {
                    store.is_whole(&copy.join(name), name);
                }
            }
            mount.unmount();
        }
    }
}

#[test]
fn b8_an_array_that_was_removed_takes_nothing_else_from_the_views() {
    for store in stores() {
        store.remove("same");
        let mount = store.mount(&[]);
        let case = store.case();
        for view in ["store.nc", "store.cdf.nc", "store.h5"] {
            let file = read(mount.join(".zarrfs").join(view))
                .unwrap_or_else(|e| panic!("{case} {view}: {e}"));
            let has = |name: &[u8]| file.windows(name.len()).any(|at| at == name);
            assert!(has(b"rechunked"), "{case} {view}");
            assert!(!has(b"same"), "{case} {view}");
        }
        let readme = read(mount.join(".zarrfs/README.txt")).unwrap();
        let readme = String::from_utf8(readme).unwrap();
        let says_why = readme.contains("same is not in it: consolidated metadata name it");
        assert!(says_why || store.scheme == "s3", "{case}: {readme}");
        assert_eq!(errno(fs::metadata(mount.join("same"))), ENOENT, "{case}");
        let listed = names(mount.path().to_owned()).unwrap();
        assert!(!listed.contains(&"same".to_owned()), "{case} {listed:?}");
        mount.unmount();
    }
}
