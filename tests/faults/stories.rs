//! D21: failures that other daemons have had: budgets that shrink with each failure, damaged files of a cache, rights
//! that begin below the source, and short objects.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::clients::Foreground;
use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

/// One request at a time, so that a permit that is not given back blocks the mount for ever; and memory for a few bodies
/// of `big`.
const TIGHT: [&str; 6] = [
    "--parallel",
    "1",
    "--retries",
    "0",
    "--memory-limit",
    "64MiB",
];

#[test]
fn d21_every_failed_request_gives_its_permits_and_memory_back() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mut args = TIGHT.to_vec();
        args.extend(["--ttl", "0s", "--timeout", "1s"]);
        let mount = remote.mount(&args);
        let faults = [
            Fault::Reset,
            Fault::ResetAfter(1000),
            Fault::CloseAfter(1000),
            Fault::StallAfter(1000),
            Fault::Stall,
            Fault::Garbage,
            Fault::Gzip,
            Fault::Endless,
            Fault::status(500),
            Fault::status(403),
            Fault::WrongContentRange,
        ];
        for fault in faults {
            for array in ["a", "big"] {
                let key = remote.at(array, 0);
                remote.server.add(on(&key).values(), fault.clone());
                for path in [
                    mount.join(remote.key(array, 0)),
                    remote.view(&mount, array, 0),
                ] {
                    let read = in_time(LIMIT * 2, array, || read(path));
                    let expected = if array == "big" { big() } else { chunk(0) };
                    is_right_or(read, &expected, &[EIO, ETIMEDOUT, EACCES, ESTALE], array);
                }
                remote.server.heal();
            }
        }
        remote.heals(&mount, "a");
        let path = mount.join(remote.key("big", 0));
        assert!(in_time(LIMIT * 2, "big", || read(path)).unwrap() == big());
    }
}

/// Returns the files below a directory that are longer than a header. A daemon may remove files meanwhile.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => found.extend(files(&path)),
            Ok(meta) if meta.len() > 64 => found.push(path),
            _ => {}
        }
    }
    found
}

/// Damages a file of a cache.
type Damage = fn(&Path);

#[test]
fn d21_files_of_the_disk_cache_that_change_under_a_mount_are_fetched_again() {
    let damages: [(&str, Damage); 5] = [
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("emptied", |path| drop(fs::File::create(path).unwrap())),
        ("truncated", |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(fs::metadata(path).unwrap().len() - 7).unwrap();
        }),
        ("grown", |path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let end = fs::metadata(path).unwrap().len();
            file.write_all_at(&[0x55; 5000], end).unwrap();
        }),
        ("replaced by a directory", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let cache = scratch();
        let cache = cache.path().join("cache");
        let remote = Remote::new(Backend::Http);
        let args = ["--disk-cache", cache.to_str().unwrap()];
        // A mount that has nothing in memory reads what the other one has written.
        let mounts = [remote.mount(&args), remote.mount(&args)];
        remote.reads(&mounts[0], "a");
        let is_written = || cache.exists() && files(&cache).len() >= 4;
        assert!(wait_until(SOON, is_written), "{name}: {:?}", files(&cache));
        files(&cache).iter().for_each(|path| damage(path));
        remote.reads(&mounts[1], "a");
        remote.siblings_work(&mounts[1]);
    }
}

#[test]
fn d21_names_of_keys_never_become_names_of_cache_files() {
    let cache = scratch();
    let cache = cache.path().join("cache");
    let remote = Remote::new(Backend::Http);
    let secret = "..%2f..%2fescaped";
    remote.put(secret, vec![7; 5000]);
    let mount = remote.mount(&["--disk-cache", cache.to_str().unwrap()]);
    // The server may not find the name: only the files matter.
    let _ = read(mount.join(secret));
    remote.reads(&mount, "a");
    assert!(wait_until(SOON, || cache.exists() && files(&cache).len() >= 4));
    for path in files(&cache) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name.len() >= 30 && !name.contains("escaped"), "{name}");
    }
}

#[test]
fn d21_rights_that_begin_below_the_source_are_enough() {
    for backend in BOTH {
        for is_listing_allowed in [true, false] {
            let remote = Remote::new(backend);
            let denied = || match backend {
                Backend::Http => Fault::status(403),
                Backend::S3 => Fault::s3(403, "AccessDenied"),
            };
            for key in ["", "store", "store/"] {
                remote.server.add(on(key).values(), denied());
            }
            if !is_listing_allowed {
                remote.server.add(on("*").lists(), denied());
            }
            let mount = remote.mount(&[]);
            remote.reads(&mount, "a");
        }
    }
}

#[test]
fn d21_a_shard_that_is_shorter_than_its_index_is_eio_and_never_a_fill_value() {
    for status in [None, Some(416)] {
        for length in [0, 1, 19] {
            let remote = Remote::new(Backend::Http);
            let mut document = v3(4, 4, false);
            document["codecs"] = json!([{
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [1],
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                },
            }]);
            remote.server.put("short/zarr.json", document.to_string());
            remote.server.put("short/c/0", vec![1; length]);
            if let Some(status) = status {
                // Some servers refuse the end of an object that is shorter.
                let range = on("short/c/0").header("range", "bytes=-*");
                let answer =
                    Fault::status(status).with("Content-Range", format!("bytes */{length}"));
                remote.server.add(range, answer);
            }
            let mount = Mount::with(remote.server.url_of("short"), &["--timeout", "2s"]);
            let view = mount.join(".zarrfs/short.bin");
            let found = in_time(LIMIT, "the view", || read(view));
            is_one_of(found, &[EIO], &format!("{length} bytes, {status:?}"));
            assert_eq!(crate::clients::gauge(mount.path(), "panics"), 0);
        }
    }
}

#[test]
fn d21_many_reads_take_one_call_for_credentials() {
    let remote = Remote::new(Backend::S3);
    let directory = scratch();
    let calls = directory.path().join("calls");
    let helper = directory.path().join("helper.sh");
    let reply = json!({
        "Version": 1, "AccessKeyId": "KEY", "SecretAccessKey": "SECRET", "SessionToken": "TOKEN",
        "Expiration": "2099-01-01T00:00:00Z",
    });
    let script = format!("echo call >> {}\necho '{reply}'\n", calls.display());
    fs::write(&helper, script).unwrap();
    let config = directory.path().join("config");
    let text = format!("[default]\ncredential_process = sh {}\n", helper.display());
    fs::write(&config, text).unwrap();
    let env = [
        ("AWS_CONFIG_FILE", config.to_str().unwrap()),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_REGION", "us-east-1"),
    ];
    let mut options = remote.options();
    options.extend(["--ttl".into(), "0s".into()]);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mount = Foreground::new(&[], &env, Path::new(&remote.source()), &options);
    std::thread::scope(|scope| {
        for array in ["a", "good", "z"] {
            for i in 0..4 {
                let path = mount.join(remote.key(array, i));
                scope.spawn(move || read(path).unwrap());
            }
        }
    });
    let signed = remote.server.requests();
    assert!(signed.len() > 12, "{}", signed.len());
    assert!(signed.iter().all(|r| r.header("authorization").is_some()));
    assert_eq!(fs::read_to_string(&calls).unwrap().lines().count(), 1);
}
