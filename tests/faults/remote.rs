//! Stores on a server, their mounts, and assertions for every fault.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde_json::{Value, json};

use crate::clients::Killed;
use crate::faulty::*;
use crate::support::*;

pub use crate::clients::{EACCES, EIO, ENOENT, ESTALE};

pub const ETIMEDOUT: i32 = Errno::TIMEDOUT.raw_os_error();
pub const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();

/// The value of `--timeout` in every mount of these tests.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest wait of any call: one second more than the timeout is promised, and another one is
/// allowed for a busy machine. Two consecutive deadlines would take longer.
pub const LIMIT: Duration = Duration::from_secs(4);

/// The time limit of the next read after a fault, and of the end of a killed process.
pub const SOON: Duration = Duration::from_secs(4);

/// The time limit of calls that need no server.
pub const AT_ONCE: Duration = Duration::from_secs(2);

/// The fill value, which no element has.
pub const FILL: i32 = -1_234_567_891;

/// Elements of a chunk. An array has four chunks; `big` has one chunk, which is longer than a
/// single request fetches.
pub const CHUNK: usize = 1024;
pub const BIG: usize = 9 * 256 * 1024;

/// The kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Http,
    S3,
}

pub const BOTH: [Backend; 2] = [Backend::Http, Backend::S3];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    V2,
    V3,
}

/// A store below `store` of a server, with consolidated metadata: the arrays `a` and `good` (raw),
/// `z` (zlib or gzip), `hole` (without chunk 1) and `big`.
pub struct Remote {
    pub server: Server,
    pub backend: Backend,
    pub format: Format,
}

/// Returns the `i`-th element of every array.
pub fn element(i: usize) -> i32 {
    i32::try_from(i).unwrap() * 7 + 1
}

/// Returns elements as in a raw chunk.
pub fn bytes(elements: std::ops::Range<usize>) -> Vec<u8> {
    elements.flat_map(|i| element(i).to_le_bytes()).collect()
}

/// Returns the decoded chunk `i`.
pub fn chunk(i: usize) -> Vec<u8> {
    bytes(i * CHUNK..(i + 1) * CHUNK)
}

/// Returns the elements of an array of four chunks.
pub fn whole() -> Vec<u8> {
    bytes(0..4 * CHUNK)
}

/// Returns the value of `big`'s only chunk.
pub fn big() -> Vec<u8> {
    static VALUE: LazyLock<Vec<u8>> = LazyLock::new(|| bytes(0..BIG));
    VALUE.clone()
}

impl Remote {
    pub fn new(backend: Backend) -> Self {
        Self::of(backend, Format::V3)
    }

    pub fn of(backend: Backend, format: Format) -> Self {
        let server = match backend {
            Backend::Http => Server::files(),
            Backend::S3 => Server::s3("bucket"),
        };
        Self::on(server, backend, format)
    }

    /// Writes the store to a given server.
    pub fn on(server: Server, backend: Backend, format: Format) -> Self {
        let remote = Self {
            server,
            backend,
            format,
        };
        let mut documents = serde_json::Map::new();
        for name in ["a", "good", "z", "hole", "big"] {
            let elements = if name == "big" { BIG } else { 4 * CHUNK };
            let size = if name == "big" { BIG } else { CHUNK };
            let document = match format {
                Format::V2 => v2(elements, size, name == "z"),
                Format::V3 => v3(elements, size, name == "z"),
            };
            let (file, entry) = match format {
                Format::V2 => (".zarray", format!("{name}/.zarray")),
                Format::V3 => ("zarr.json", name.to_owned()),
            };
            remote.put(&format!("{name}/{file}"), document.to_string());
            documents.insert(entry, document);
            for i in 0..elements / size {
                let raw = match name {
                    "big" => big(),
                    _ => bytes(i * size..(i + 1) * size),
                };
                let value = match (name, format) {
                    ("hole", _) if i == 1 => continue,
                    ("z", Format::V2) => zlib(&raw),
                    ("z", Format::V3) => gzip(&raw),
                    _ => raw,
                };
                remote.put(&remote.key(name, i), value);
            }
        }
        match format {
            Format::V2 => {
                let group = json!({"zarr_format": 2});
                documents.insert(".zgroup".into(), group.clone());
                remote.put(".zgroup", group.to_string());
                let all = json!({"zarr_consolidated_format": 1, "metadata": documents});
                remote.put(".zmetadata", all.to_string());
            }
            Format::V3 => {
                let group = json!({
                    "zarr_format": 3, "node_type": "group", "attributes": {},
                    "consolidated_metadata": {
                        "kind": "inline", "must_understand": false, "metadata": documents,
                    },
                });
                remote.put("zarr.json", group.to_string());
            }
        }
        remote
    }

    /// Sets the value of a key in the store.
    pub fn put(&self, key: &str, value: impl Into<Vec<u8>>) {
        self.server.put(&format!("store/{key}"), value);
    }

    /// Returns the key of a chunk in the store.
    pub fn key(&self, array: &str, i: usize) -> String {
        match self.format {
            Format::V2 => format!("{array}/{i}"),
            Format::V3 => format!("{array}/c/{i}"),
        }
    }

    /// Returns the key of a chunk at the server, for rules and gates.
    pub fn at(&self, array: &str, i: usize) -> String {
        format!("store/{}", self.key(array, i))
    }

    pub fn source(&self) -> String {
        match self.backend {
            Backend::Http => self.server.url_of("store"),
            Backend::S3 => "s3://bucket/store".into(),
        }
    }

    /// Returns the options of every mount of the store, without credentials.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec!["--timeout".into(), "2s".into()];
        if self.backend == Backend::S3 {
            options.extend(["--endpoint-url".into(), self.server.url()]);
        }
        options
    }

    pub fn attempt(&self, args: &[&str]) -> Result<Mount, Refusal> {
        let mut options = self.options();
        if self.backend == Backend::S3 {
            options.push("--anonymous".into());
        }
        let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
        all.extend(args);
        Mount::attempt(self.source(), &all)
    }

    pub fn mount(&self, args: &[&str]) -> Mount {
        let mount = self.attempt(args);
        mount.unwrap_or_else(|e| panic!("{:?} {:?}: {e:?}", self.backend, self.format))
    }

    /// Asserts that a mount fails in time, with code 32 and a message with all `words`; `a|b` means
    /// a or b.
    #[track_caller]
    pub fn is_refused(&self, words: &[&str]) {
        let refused = in_time(LIMIT, "mount", || self.attempt(&[]));
        assert_refusal(&refused.expect_err("the mount must fail"), words);
    }

    /// Asserts that the key, the decoded chunk and its part of the whole array fail in time, and
    /// all other reads succeed.
    #[track_caller]
    pub fn chunk_fails(&self, mount: &Mount, array: &str, i: usize, errnos: &[i32]) {
        let native = in_time(LIMIT, "the key", || read(mount.join(self.key(array, i))));
        is_one_of(native, errnos, "the key");
        self.views_fail(mount, array, i, errnos);
    }

    /// As [`Remote::chunk_fails`], without the key itself.
    #[track_caller]
    pub fn views_fail(&self, mount: &Mount, array: &str, i: usize, errnos: &[i32]) {
        let decoded = in_time(LIMIT, "the chunk", || read(self.view(mount, array, i)));
        is_one_of(decoded, errnos, "the chunk");
        let part = in_time(LIMIT, "a part of the array", || {
            let file = File::open(whole_of(mount, array))?;
            let mut part = vec![0; 100];
            file.read_exact_at(&mut part, (i * CHUNK * 4 + 8) as u64)?;
            Ok(part)
        });
        is_one_of(part, errnos, "a part of the array");
        self.siblings_work(mount);
    }

    /// Asserts that an array without a fault can be read.
    #[track_caller]
    pub fn siblings_work(&self, mount: &Mount) {
        in_time(SOON, "a sibling", || self.reads(mount, "good"));
        assert_eq!(crate::clients::gauge(mount.path(), "panics"), 0);
    }

    /// Asserts that an array of four chunks can be read: keys, chunks and the whole.
    #[track_caller]
    pub fn reads(&self, mount: &Mount, array: &str) {
        let unless = |what: &str, result: io::Result<Vec<u8>>, expected: &[u8]| match result {
            Ok(bytes) => assert!(bytes == expected, "{:?}: {array}: {what}", self.backend),
            Err(e) => panic!("{:?}: {array}: {what}: {e}", self.backend),
        };
        for i in 0..4 {
            let stored = self.server.get(&self.at(array, i)).unwrap();
            unless("a chunk", read(self.view(mount, array, i)), &chunk(i));
            unless("a key", read(mount.join(self.key(array, i))), &stored);
        }
        unless("the whole", read(whole_of(mount, array)), &whole());
    }

    /// Removes the faults, and asserts that reads succeed again soon.
    #[track_caller]
    pub fn heals(&self, mount: &Mount, array: &str) {
        self.server.heal();
        // A failure may be cached briefly, so that the kernel's repeated request for the same page
        // does not wait for a second deadline.
        let why = std::cell::RefCell::new(String::new());
        let is_well = || {
            let natives = (0..4).map(|i| read(mount.join(self.key(array, i))));
            let all = natives.chain([read(whole_of(mount, array))]);
            let failed = all.filter_map(Result::err).next();
            *why.borrow_mut() = format!("{failed:?}");
            failed.is_none()
        };
        assert!(
            wait_until(SOON, is_well),
            "{:?}: it does not heal: {}",
            self.backend,
            why.borrow()
        );
        self.reads(mount, array);
    }

    /// Returns the path of a decoded chunk.
    pub fn view(&self, mount: &Mount, array: &str, i: usize) -> PathBuf {
        let key = self.key("chunks", i);
        mount.join(array).join(".zarrfs").join(key)
    }
}

/// Returns the path of a view of a whole array.
pub fn whole_of(mount: &Mount, array: &str) -> PathBuf {
    mount.join(array).join(format!(".zarrfs/{array}.bin"))
}

fn v2(shape: usize, chunk: usize, is_packed: bool) -> Value {
    let compressor = if is_packed {
        json!({"id": "zlib", "level": 1})
    } else {
        Value::Null
    };
    json!({
        "zarr_format": 2, "shape": [shape], "chunks": [chunk], "dtype": "<i4", "order": "C",
        "compressor": compressor, "filters": null, "fill_value": FILL,
    })
}

pub fn v3(shape: usize, chunk: usize, is_packed: bool) -> Value {
    let mut codecs = vec![json!({"name": "bytes", "configuration": {"endian": "little"}})];
    if is_packed {
        codecs.push(json!({"name": "gzip", "configuration": {"level": 1}}));
    }
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [shape], "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": FILL, "codecs": codecs, "attributes": {},
    })
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Runs `act`, and asserts that it takes no longer than `limit`.
#[track_caller]
pub fn in_time<T>(limit: Duration, what: &str, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    let took = start.elapsed();
    assert!(took <= limit, "{what} took {took:?}, more than {limit:?}");
    result
}

/// Asserts a failure with one of these errnos.
#[track_caller]
pub fn is_one_of(result: io::Result<Vec<u8>>, errnos: &[i32], what: &str) {
    match result {
        Ok(bytes) => panic!("{what}: {} bytes instead of {errnos:?}", bytes.len()),
        Err(e) => {
            let found = e.raw_os_error();
            assert!(
                found.is_some_and(|e| errnos.contains(&e)),
                "{what}: {e} instead of {errnos:?}"
            );
        }
    }
}

/// Asserts these bytes, or a failure with one of these errnos.
#[track_caller]
pub fn is_right_or(result: io::Result<Vec<u8>>, expected: &[u8], errnos: &[i32], what: &str) {
    match result {
        Ok(bytes) => assert!(bytes == expected, "{what}: wrong bytes"),
        failure => is_one_of(failure, errnos, what),
    }
}

/// Asserts that the message of a refused mount has these words.
#[track_caller]
pub fn assert_refusal(refused: &Refusal, words: &[&str]) {
    assert_eq!(refused.code, Some(32), "{refused:?}");
    has_words(&refused.stderr, words);
}

/// Asserts that one line of the log has all of these words; `a|b` means a or b.
#[track_caller]
pub fn logged(mount: &Mount, words: &[&str]) {
    // The line is written after the reply.
    let is_there = || mount.log().lines().any(|line| fits(line, words));
    assert!(
        wait_until(SOON, is_there),
        "no line of the log has {words:?}:\n{}",
        mount.log()
    );
}

#[track_caller]
pub fn has_words(text: &str, words: &[&str]) {
    assert!(fits(text, words), "not all of {words:?} are in: {text}");
    assert!(!text.contains("panicked"), "{text}");
}

fn fits(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().all(|word| {
        let mut choices = word.split('|').map(str::to_lowercase);
        choices.any(|word| text.contains(&word))
    })
}

/// Starts a client in a separate process, in which SIGINT has its default action.
pub fn client(words: &[&OsStr]) -> Killed {
    let child = Command::new("env")
        .arg("--default-signal=INT")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Killed(child.unwrap())
}

/// Waits for a client. Returns whether it succeeded.
#[track_caller]
pub fn ended(child: &mut Child, limit: Duration) -> bool {
    let status = wait_for(child, limit);
    let status = status.unwrap_or_else(|| panic!("the client is still there after {limit:?}"));
    status.success()
}

/// Returns the names in a directory, sorted.
pub fn names(directory: PathBuf) -> io::Result<Vec<String>> {
    let entries: io::Result<Vec<_>> = fs::read_dir(directory)?.collect();
    let mut names: Vec<String> = entries?
        .into_iter()
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    names.sort();
    Ok(names)
}
