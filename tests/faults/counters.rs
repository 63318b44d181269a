//! H4, F7: the counters of `zarrfs stats` for a remote source.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::clients::read_uncached;
use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

/// Returns the output of `zarrfs stats`.
fn printed(mount: &Path, args: &[&str]) -> String {
    run(zarrfs().arg("stats").arg(mount).args(args))
}

fn counted(mount: &Mount) -> Value {
    serde_json::from_str(&printed(mount.path(), &["--json"])).unwrap()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name}: {of}"))
}

/// Asserts that the counters agree with the requests at the server, in total and for each array.
#[track_caller]
fn agree(remote: &Remote, stats: &Value) {
    let seen = remote.server.requests();
    let counted = number(&stats["store"], "requests");
    assert_eq!(counted, seen.len() as u64, "{stats}\n{seen:#?}");
    let arrays = stats["arrays"].as_object().unwrap();
    for name in [
        "requests",
        "bytes",
        "cache_hits",
        "retries",
        "failed_requests",
    ] {
        let sum: u64 = arrays.values().map(|of| number(of, name)).sum();
        assert_eq!(sum, number(&stats["store"], name), "{name}: {stats}");
    }
    for array in ["a", "z"] {
        let seen = remote.server.requests_for(&format!("store/{array}/*"));
        let counted = arrays.get(array).map_or(0, |of| number(of, "requests"));
        // A listing of the array itself has a key without a trailing slash.
        assert!(counted >= seen.len() as u64, "{array}: {stats}\n{seen:#?}");
    }
}

#[test]
fn every_request_is_counted_once() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "1h"]);
        agree(&remote, &counted(&mount));
        remote.reads(&mount, "a");
        remote.reads(&mount, "z");
        let stats = counted(&mount);
        agree(&remote, &stats);
        let a = &stats["arrays"]["a"];
        assert!(number(a, "requests") >= 4, "{stats}");
        assert!(number(a, "bytes") >= 4 * CHUNK as u64 * 4, "{stats}");
        assert_eq!(number(&stats["store"], "failed_requests"), 0, "{stats}");
        assert_eq!(number(&stats["store"], "retries"), 0, "{stats}");
        let source = stats["store"]["source"].as_str().unwrap();
        assert!(source.contains("store"), "{stats}");
        assert!(number(&stats, "chunks_decoded") > 0, "{stats}");
        assert!(stats.get("disk_cache").is_none());

        // Cached values are read again without a request.
        for i in 0..4 {
            read_uncached(&mount.join(remote.key("a", i))).unwrap();
            read_uncached(&remote.view(&mount, "a", i)).unwrap();
        }
        let again = counted(&mount);
        agree(&remote, &again);
        let requests = |stats: &Value| number(&stats["store"], "requests");
        assert_eq!(
            requests(&again),
            requests(&stats),
            "{:#?}",
            remote.server.requests()
        );
        let hits = |stats: &Value| number(&stats["arrays"]["a"], "cache_hits");
        assert!(hits(&again) > hits(&stats), "{stats} {again}");
        assert!(
            number(&again, "chunks_reused") > number(&stats, "chunks_reused"),
            "{stats} {again}"
        );
    }
}

#[test]
fn retries_errors_and_redirects_are_counted() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "1h"]);
        let rule = on(&remote.at("a", 1)).get().first(2);
        remote.server.add(rule, Fault::status(503));
        remote.reads(&mount, "a");
        let stats = counted(&mount);
        agree(&remote, &stats);
        let a = &stats["arrays"]["a"];
        assert_eq!(
            (number(a, "retries"), number(a, "failed_requests")),
            (2, 2),
            "{a}"
        );

        // The server does not answer, and no caller waits any more.
        let gate = remote.server.hold(&remote.at("z", 2));
        read(mount.join(remote.key("z", 2))).unwrap_err();
        let is_counted = || number(&counted(&mount)["arrays"]["z"], "failed_requests") > 0;
        assert!(wait_until(SOON, is_counted), "{}", counted(&mount));
        agree(&remote, &counted(&mount));
        drop(gate);
    }
}

#[test]
fn h04_no_secret_is_counted() {
    let remote = Remote::new(Backend::Http);
    let source = remote.source().replace("http://", "http://user:pa55word@");
    let cache = scratch();
    let disk = cache.path().join("cache").display().to_string();
    let header = ["--header", "X-Token: hushhush", "--disk-cache", &disk];
    let mount = Mount::with(format!("{source}?token=s3cret"), &header);
    remote.reads(&mount, "a");
    remote.server.add(on("*").get(), Fault::status(500));
    let _ = fs::read_dir(mount.join("none"));
    let json = printed(mount.path(), &["--json"]);
    let table = printed(mount.path(), &[]);
    for secret in ["pa55word", "user:", "hushhush", "s3cret"] {
        assert!(!json.contains(secret), "{secret}: {json}");
        assert!(!table.contains(secret), "{secret}: {table}");
        for name in ["user.zarrfs.socket", "user.zarrfs.stats"] {
            let value = xattr(mount.path(), name).unwrap();
            assert!(!value.contains(secret), "{secret}: {value}");
        }
    }
    for words in [
        "requests",
        "cache hits",
        "(all)",
        "  a\n",
        "disk cache   hits",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let stats: Value = serde_json::from_str(&json).unwrap();
    assert!(number(&stats["disk_cache"], "written_bytes") > 0, "{stats}");
}

#[test]
fn f07_metrics_are_served_while_the_server_hangs() {
    let remote = Remote::new(Backend::Http);
    let options = ["--timeout", "20s", "--ttl", "500ms"];
    let mount = Mount::with(remote.source(), &options);
    remote.reads(&mount, "good");
    let gate = remote.server.hold("*");
    // All cached attributes have expired.
    std::thread::sleep(Duration::from_secs(1));
    let mut readers: Vec<_> = (0..100)
        .map(|i| {
            let mut cat = Command::new("cat");
            cat.arg(mount.join(format!("a/none{i}")));
            cat.stderr(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    assert!(wait_until(LIMIT, || remote.server.under_way() > 0));
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        let stats = in_time(AT_ONCE, "stats", || counted(&mount));
        agree(&remote, &stats);
    }
    gate.open();
    for reader in &mut readers {
        assert!(!ended(reader, Duration::from_secs(10)));
    }
}

#[test]
fn requests_for_a_remote_archive_are_counted() {
    let dir = scratch();
    fs::create_dir_all(dir.path().join("a/c")).unwrap();
    let group = r#"{"zarr_format":3,"node_type":"group"}"#;
    fs::write(dir.path().join("zarr.json"), group).unwrap();
    fs::write(dir.path().join("a/c/0"), vec![7; 1 << 20]).unwrap();
    let zip = Command::new("zip")
        .args(["-q0r", "-", "."])
        .current_dir(dir.path())
        .output();
    let server = Server::files();
    server.put("store.zip", zip.unwrap().stdout);
    let mount = Mount::new(server.url_of("store.zip"));
    assert_eq!(read(mount.join("a/c/0")).unwrap(), vec![7; 1 << 20]);
    let stats = counted(&mount);
    let seen = server.requests().len() as u64;
    assert_eq!(number(&stats["store"], "requests"), seen, "{stats}");
    assert!(number(&stats["store"], "bytes") >= 1 << 20, "{stats}");
    assert_eq!(stats["arrays"].as_object().unwrap().len(), 0);
}
