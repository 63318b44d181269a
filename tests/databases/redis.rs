//! Redis: the store of zarr-python 2.18, and servers that hang, end or deny access.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::hierarchies::{is_as_zip, served};
use crate::servers::{Redis, Remote};
use crate::support::*;
use crate::write;

const GROUP: &[u8] = br#"{"zarr_format": 2}"#;

fn mount(redis: &Redis, prefix: &str, args: &[&str]) -> Mount {
    let remote = args
        .iter()
        .fold(redis.remote(), |remote, arg| remote.arg(arg));
    let url = redis.url(prefix);
    remote
        .attempt(&url)
        .unwrap_or_else(|e| panic!("{url}: {e:?}"))
}

fn fails_with<T: std::fmt::Debug>(result: std::io::Result<T>, expected: Errno) {
    assert_eq!(errno(result), expected.raw_os_error());
}

#[test]
fn a_hierarchy_of_redis_is_that_of_a_zip() {
    let (redis, scratch) = (Redis::start(), scratch());
    // The prefix consists of pattern characters, and as a pattern it would match other keys.
    let prefix = r"a*?[b]\^-:";
    let zip = scratch.path().join("h.zip");
    let (port, password) = (redis.port(), Redis::PASSWORD);
    run(write().args(["redis", &port, password, prefix]).arg(&zip));
    for other in [
        r"axxb\^-::.zgroup",
        r"a*?[b]\^-:x:0",
        r"a*?[b]\^-:",
        "zarr:0",
    ] {
        redis.set(other, b"of another store");
    }
    let zip = served(Mount::new(&zip), false);
    assert!(zip.0.contains_key("holes/2.5") && zip.1.contains_key(".zarrfs/long.npy"));
    let encoded = "a%2A%3F%5Bb%5D%5C%5E-%3A";
    let socket = format!("unix://{}?prefix={encoded}", redis.socket().display());
    for url in [redis.url(encoded), socket] {
        let mounted = redis.remote().attempt(&url).unwrap();
        is_as_zip(mounted, &zip);
    }
}

#[test]
fn a_missing_or_wrong_password_is_refused_and_not_printed() {
    let redis = Redis::start();
    redis.set("zarr:.zgroup", GROUP);
    let wrong = redis
        .url("zarr")
        .replace("redis://", "redis://:wrong-secret@");
    let nobody = Remote::new("");
    let attempts = [
        (redis.url("zarr"), "NOAUTH"),
        (wrong, "no such user and password"),
    ];
    for (url, word) in attempts {
        let refused = nobody.attempt(&url).unwrap_err();
        let output = &refused.stderr;
        assert!(
            output.contains(word) && output.contains("REDIS_PASSWORD"),
            "{output}"
        );
        assert!(!output.contains("wrong-secret"), "{output}");
    }
    let mounted = nobody.attempt(&redis.url_with_password("zarr")).unwrap();
    assert_eq!(fs::read(mounted.join(".zgroup")).unwrap(), GROUP);
    let source = mount_entry(mounted.path()).unwrap();
    let output = format!("{source} {}", mounted.log());
    assert!(!output.contains(Redis::PASSWORD), "{output}");
    mounted.unmount();
    let nothing = redis.remote().attempt(&redis.url("nothing")).unwrap_err();
    assert!(nothing.stderr.contains("`nothing:`"), "{nothing:?}");
    // A user with permission to read one store only.
    let prefix = b"~zarr:*";
    let rights: [&[u8]; 8] = [
        b"ACL", b"SETUSER", b"ada", b"on", b">pw", prefix, b"+@read", b"-scan",
    ];
    redis.command(&rights);
    let ada = redis.url("zarr").replace("redis://", "redis://ada:pw@");
    let mounted = nobody.attempt(&ada).unwrap();
    assert_eq!(fs::read(mounted.join(".zgroup")).unwrap(), GROUP);
    fails_with(fs::read_dir(mounted.path()), Errno::ACCESS);
    fails_with(fs::metadata(mounted.join("none")), Errno::ACCESS);
    mounted.unmount();
}

#[test]
fn a_server_with_tls_needs_a_valid_certificate() {
    let (redis, authority) = Redis::with_tls();
    redis.set("zarr:.zgroup", GROUP);
    let url = redis.tls_url("zarr");
    let authority = authority.to_str().unwrap().to_owned();
    let untrusting = || {
        let names = [
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "AWS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "REQUESTS_CA_BUNDLE",
        ];
        names.into_iter().fold(redis.remote(), Remote::without_env)
    };
    let trusting = untrusting().envs(("CURL_CA_BUNDLE".into(), authority));
    let mounted = trusting.attempt(&url).unwrap();
    assert_eq!(fs::read(mounted.join(".zgroup")).unwrap(), GROUP);
    mounted.unmount();
    let refused = untrusting().attempt(&url).unwrap_err();
    assert!(refused.stderr.contains("certificate"), "{refused:?}");
}

#[test]
fn d19_a_server_that_hangs_or_ends_fails_in_time_and_recovers() {
    let mut redis = Redis::start();
    let fill = |redis: &Redis| {
        redis.set("zarr:.zgroup", GROUP);
        redis.set("zarr:a/0", b"zero");
        redis.set("zarr:a/1", b"one");
    };
    fill(&redis);
    let mounted = mount(&redis, "zarr", &["--timeout", "2s", "--ttl", "0"]);
    assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"zero");
    redis.stop();
    let begun = Instant::now();
    fails_with(fs::read(mounted.join("a/1")), Errno::TIMEDOUT);
    fails_with(fs::read(mounted.join("a/none")), Errno::TIMEDOUT);
    fails_with(fs::read_dir(mounted.path()), Errno::TIMEDOUT);
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    redis.resume();
    assert!(wait_until(Duration::from_secs(5), || {
        fs::read(mounted.join("a/1")).is_ok_and(|bytes| bytes == b"one")
    }));
    redis.restart(|| {
        for name in ["a/0", "a/none"] {
            let error = fs::read(mounted.join(name)).unwrap_err();
            assert_ne!(error.kind(), std::io::ErrorKind::NotFound, "{name}");
        }
    });
    // The new server has no keys: the whole source is missing, but no key counts as absent.
    fails_with(fs::read(mounted.join("a/none")), Errno::IO);
    fill(&redis);
    assert!(wait_until(Duration::from_secs(5), || {
        fs::read(mounted.join("a/0")).is_ok_and(|bytes| bytes == b"zero")
    }));
    fails_with(fs::read(mounted.join("a/none")), Errno::NOENT);
    mounted.unmount();
}

#[test]
fn a_reader_of_a_server_that_hangs_can_be_killed() {
    let redis = Redis::start();
    redis.set("zarr:.zgroup", GROUP);
    redis.set("zarr:a/0", b"zero");
    let mounted = mount(&redis, "zarr", &["--timeout", "60s"]);
    redis.stop();
    let mut reader = Command::new("cat")
        .arg(mounted.join("a/0"))
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(reader.try_wait().unwrap().is_none());
    reader.kill().unwrap();
    assert!(wait_for(&mut reader, Duration::from_secs(5)).is_some());
    redis.resume();
    assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"zero");
    mounted.unmount();
}

#[test]
fn d20_a_value_of_the_same_length_is_seen_and_never_mixed_with_another_one() {
    let redis = Redis::start();
    redis.set("zarr:.zgroup", GROUP);
    let lengths = [5, 300_000, 12 << 20];
    let set = |byte: u8| {
        for length in lengths {
            redis.set(&format!("zarr:v/{length}"), &vec![byte; length]);
        }
    };
    set(1);
    // A value of 12 MiB does not fit into the cache.
    let mounted = mount(&redis, "zarr", &["--ttl", "0", "--cache-size", "32M"]);
    let path = |length: usize| mounted.join(format!("v/{length}"));
    let opened: Vec<File> = lengths
        .iter()
        .map(|length| File::open(path(*length)).unwrap())
        .collect();
    for (file, length) in opened.iter().zip(lengths) {
        let mut first = [0];
        file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(first, [1]);
        assert_eq!(fs::read(path(length)).unwrap(), vec![1; length]);
    }
    for byte in 2..4 {
        set(byte);
        for length in lengths {
            assert!(
                fs::read(path(length)).unwrap() == vec![byte; length],
                "{length}"
            );
        }
        for (file, length) in opened.iter().zip(lengths) {
            let mut last = [0];
            match file.read_exact_at(&mut last, length as u64 - 1) {
                Ok(()) => assert_eq!(last, [1], "{length}"),
                Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::STALE)),
            }
        }
    }
    // Restores the first content.
    set(1);
    for length in lengths {
        assert!(
            fs::read(path(length)).unwrap() == vec![1; length],
            "{length}"
        );
    }
    // Setting the same value again is not a change.
    let before = fs::metadata(path(5)).unwrap();
    set(1);
    let after = fs::metadata(path(5)).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((before.ino(), before.mtime()), (after.ino(), after.mtime()));
    drop(opened);
    mounted.unmount();
}

#[test]
fn a_key_that_holds_no_string_is_an_error_and_other_keys_are_read() {
    let redis = Redis::start();
    redis.set("zarr:.zgroup", GROUP);
    redis.set("zarr:a", b"hidden");
    redis.set("zarr:a/0", b"zero");
    redis.set("zarr:a/empty", b"");
    redis.set("zarr:a/../x", b"outside");
    redis.set("zarr:b//c", b"no name between");
    redis.set("zarr:nul\0", b"no name");
    redis.set(&format!("zarr:{}", "x".repeat(256)), b"too long");
    redis.command(&[b"HSET", b"zarr:a/hash", b"field", b"value"]);
    redis.command(&[b"RPUSH", b"zarr:a/list", b"value"]);
    let mounted = mount(&redis, "zarr", &[]);
    let names = |name: &str| {
        let entries = fs::read_dir(mounted.join(name)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != ".zarrfs").collect();
        names.sort();
        names
    };
    assert_eq!(names(""), [".zgroup", "a"]);
    assert_eq!(names("a"), ["0", "empty", "hash", "list"]);
    for name in ["a/hash", "a/list"] {
        fails_with(fs::read(mounted.join(name)), Errno::IO);
        fails_with(fs::metadata(mounted.join(name)), Errno::IO);
    }
    assert!(
        mounted.log().contains("it is no string"),
        "{}",
        mounted.log()
    );
    assert_eq!(fs::read(mounted.join("a/0")).unwrap(), b"zero");
    assert_eq!(fs::read(mounted.join("a/empty")).unwrap(), b"");
    fails_with(fs::read(mounted.join("a/1")), Errno::NOENT);
    fails_with(fs::metadata(mounted.join("b")), Errno::NOENT);
    mounted.unmount();
    // A document of another type does not prove that the hierarchy is absent.
    redis.command(&[b"HSET", b"other:.zgroup", b"field", b"value"]);
    let refused = redis.remote().attempt(&redis.url("other")).unwrap_err();
    assert!(refused.stderr.contains("it is no string"), "{refused:?}");
}

#[test]
fn many_keys_are_listed_by_one_scan_and_each_is_read_by_one_request() {
    const KEYS: u64 = 100_000;
    let redis = Redis::start();
    redis.set("zarr:.zgroup", GROUP);
    // Each directory is a node, so that its document marks it as a directory.
    let keys = (1..KEYS).map(|n| match n / 10 {
        0 => (format!("zarr:a{n}/.zgroup"), GROUP.to_vec()),
        chunk => (format!("zarr:a{}/{chunk}", n % 10), n.to_string().into()),
    });
    redis.set_all(keys);
    let mounted = mount(&redis, "zarr", &["--ttl", "10m"]);
    redis.calls();
    let of = |calls: &std::collections::BTreeMap<String, u64>, name: &str| {
        calls.get(name).copied().unwrap_or_default()
    };
    let root = mounted.path();
    let found = sh(&format!(
        "find {} -path '*/.zarrfs' -prune -o -type f -size -2 -print | wc -l",
        root.display()
    ));
    assert_eq!(found.trim(), KEYS.to_string());
    let calls = redis.calls();
    eprintln!("find: {calls:?}");
    let scans = of(&calls, "scan");
    assert!((KEYS / 10_000..KEYS / 5000).contains(&scans), "{calls:?}");
    assert!(
        (KEYS..KEYS + 100).contains(&of(&calls, "strlen")),
        "{calls:?}"
    );
    assert!(of(&calls, "getrange") < 100, "{calls:?}");
    assert_eq!(fs::read(mounted.join("a7/1234")).unwrap(), b"12347");
    let calls = redis.calls();
    eprintln!("cat: {calls:?}");
    assert_eq!(of(&calls, "scan"), 0, "{calls:?}");
    assert!(of(&calls, "getrange") < 100, "{calls:?}");
    // A single directory, among the other keys.
    let copy = scratch();
    run(Command::new("cp")
        .arg("-r")
        .arg(mounted.join("a3"))
        .arg(copy.path()));
    let calls = redis.calls();
    eprintln!("cp: {calls:?}");
    assert_eq!(of(&calls, "scan"), 0, "{calls:?}");
    assert!(
        (KEYS / 10..KEYS / 10 + 200).contains(&of(&calls, "getrange")),
        "{calls:?}"
    );
    for n in [1, 17, KEYS / 10 - 1] {
        let copied = fs::read(copy.path().join(format!("a3/{n}"))).unwrap();
        assert_eq!(copied, (n * 10 + 3).to_string().as_bytes());
    }
    mounted.unmount();
    // Opening one key does not list all keys.
    let mounted = mount(&redis, "zarr", &["--ttl", "10m"]);
    redis.calls();
    assert_eq!(fs::read(mounted.join("a7/1234")).unwrap(), b"12347");
    let calls = redis.calls();
    eprintln!("cat of a new mount: {calls:?}");
    assert!(
        of(&calls, "scan") == 0 && of(&calls, "getrange") < 20,
        "{calls:?}"
    );
    mounted.unmount();
}
