//! Tests of the servers without any mount: each starts, has the uploaded content, rejects wrong
//! credentials, and ends when it is dropped. Also tests of the comparisons: each detects differences.

use std::fs;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::compare::*;
use crate::servers::http::{escaped, get, get_range, request};
use crate::servers::{Azurite, FakeGcs, Moto, Nginx, Port, Process, Seaweed, basic};
use crate::support::*;

/// Keys that need URL encoding, and one with an empty value.
const HARD_KEYS: [&str; 4] = [
    "v3/with space/x/c/0/0",
    "v3/ümläut/zarr.json",
    "v2-flat/.zgroup",
    "v2-flat/raw/note",
];

fn local(served: &Path, key: &str) -> Vec<u8> {
    fs::read(served.join(key)).unwrap()
}

#[test]
fn nginx_serves_the_same_files_in_every_way() {
    let served = served();
    let nginx = Nginx::start(served.path());
    for location in ["", "index/", "json/", "norange/", "noetag/", "closed/"] {
        for key in HARD_KEYS {
            let answer = get(&nginx.url(&format!("{location}{}", escaped(key))));
            assert_eq!(answer.status, 200, "{location}{key}");
            assert_eq!(answer.body, local(served.path(), key), "{location}{key}");
        }
    }
    let status = |path: &str| get(&nginx.url(path)).status;
    assert_eq!(status("v3/nothing"), 404);
    assert_eq!(status("closed/v3/nothing"), 403);
    assert_eq!(status("v3/"), 403, "a directory without an index");
    assert_eq!(status("auth/v3/zarr.json"), 401);

    let listing = get(&nginx.url("index/v3/"));
    assert!(listing.text().contains("href=\"zarr.json\""));
    let listing: serde_json::Value =
        serde_json::from_slice(&get(&nginx.url("json/v3/")).body).unwrap();
    assert_eq!(listing[0]["type"], "directory");
    assert!(!get(&nginx.url("index/v2-flat/")).text().contains(".zgroup"));

    let key = "v3/large/c/0";
    let bytes = local(served.path(), key);
    let part = get_range(&nginx.url(key), "100-299");
    assert_eq!((part.status, &part.body[..]), (206, &bytes[100..300]));
    assert!(part.header("etag").is_some());
    let part = get_range(&nginx.url(&format!("noetag/{key}")), "100-299");
    assert_eq!((part.status, &part.body[..]), (206, &bytes[100..300]));
    assert!(part.header("etag").is_none() && part.header("last-modified").is_some());
    let whole = get_range(&nginx.url(&format!("norange/{key}")), "100-299");
    assert_eq!((whole.status, whole.body.len()), (200, bytes.len()));

    let hard = escaped("v3/ümläut/zarr.json");
    let answer = get(&nginx.url(&format!("redirect/{hard}")));
    assert_eq!(answer.status, 302);
    assert_eq!(answer.header("location"), Some(&*nginx.url(&hard)));

    for (password, expected) in [(Nginx::PASSWORD, 200), ("wrong", 401)] {
        let credentials = basic(Nginx::USER, password);
        let headers = [("Authorization", credentials.as_str())];
        let answer = request("GET", &nginx.url("auth/v3/zarr.json"), &headers, b"");
        assert_eq!(answer.unwrap().status, expected);
    }
}

#[test]
fn nginx_logs_its_requests() {
    let served = served();
    let nginx = Nginx::start(served.path());
    assert_eq!(nginx.requests(), []);
    get(&nginx.url("v3/zarr.json?query"));
    get_range(&nginx.url("v3/large/c/0"), "100-299");
    request(
        "HEAD",
        &nginx.url(&escaped("v3/ümläut/zarr.json")),
        &[],
        b"",
    )
    .unwrap();
    get(&nginx.url("v3/nothing"));
    let requests = nginx.requests();
    let seen: Vec<(&str, &str, Option<&str>, u16)> = requests
        .iter()
        .map(|r| (&*r.method, &*r.path, r.range.as_deref(), r.status))
        .collect();
    assert_eq!(
        seen,
        [
            ("GET", "/v3/zarr.json?query", None, 200),
            ("GET", "/v3/large/c/0", Some("bytes=100-299"), 206),
            ("HEAD", "/v3/%C3%BCml%C3%A4ut/zarr.json", None, 200),
            ("GET", "/v3/nothing", None, 404),
        ]
    );
    assert_eq!(
        requests[0].bytes,
        local(served.path(), "v3/zarr.json").len() as u64
    );
    assert_eq!((requests[1].bytes, requests[2].bytes), (200, 0));
    assert_eq!(nginx.requests(), requests);
}

/// Asserts that a listing has the keys of the served tree below `prefix`, in any order.
fn has_listed(served: &Path, prefix: &str, mut listed: Vec<String>) {
    listed.sort();
    let keys = keys(served).into_iter();
    let expected: Vec<String> = keys.filter(|key| key.starts_with(prefix)).collect();
    assert_eq!(listed, expected);
}

#[test]
fn seaweed_checks_signatures_except_for_public_buckets() {
    let served = served();
    let seaweed = Seaweed::signed();
    seaweed.put("private", served.path());
    seaweed.put(Seaweed::PUBLIC, served.path());
    let keys = seaweed.keys().unwrap();
    for key in HARD_KEYS {
        let bytes = local(served.path(), key);
        assert_eq!(seaweed.get("private", key, Some(keys)).unwrap(), bytes);
        let url = format!("{}/public/{}", seaweed.endpoint(), escaped(key));
        assert_eq!(get(&url).body, bytes, "{key}");
    }
    let listed = seaweed.list("private", "v3/", Some(keys)).unwrap();
    has_listed(served.path(), "v3/", listed);
    has_listed(
        served.path(),
        "v2-flat/",
        seaweed.list(Seaweed::PUBLIC, "v2-flat/", None).unwrap(),
    );

    let wrong = seaweed.get("private", HARD_KEYS[0], Some(&keys.with_wrong_secret()));
    assert!(wrong.unwrap_err().contains("SignatureDoesNotMatch"));
    let unsigned = seaweed.get("private", HARD_KEYS[0], None);
    assert!(unsigned.unwrap_err().contains("AccessDenied"));

    let url = format!("{}/public/v3/large/c/0", seaweed.endpoint());
    let part = get_range(&url, "100-299");
    assert_eq!(part.status, 206);
    assert_eq!(part.body, local(served.path(), "v3/large/c/0")[100..300]);
    assert_eq!(get(&format!("{url}/nothing")).status, 404);
}

#[test]
fn seaweed_without_credentials_allows_all_requests() {
    let served = served();
    let seaweed = Seaweed::open();
    seaweed.put("bucket", &served.path().join("v3-sharded"));
    let listed = seaweed.list("bucket", "", None).unwrap();
    has_listed(&served.path().join("v3-sharded"), "", listed);
    let document = local(served.path(), "v3-sharded/zarr.json");
    assert_eq!(
        get(&format!("{}/bucket/zarr.json", seaweed.endpoint())).body,
        document
    );
    fs::write(served.path().join("v3-sharded/zarr.json"), "another").unwrap();
    seaweed.put("bucket", &served.path().join("v3-sharded"));
    assert_eq!(
        seaweed.get("bucket", "zarr.json", None).unwrap(),
        b"another"
    );
}

#[test]
fn moto_lets_its_user_read_one_bucket() {
    let served = served();
    let moto = Moto::start();
    moto.put("own", served.path());
    moto.put("other", &served.path().join("v3-sharded"));
    let keys = moto.enforce("own");
    for key in HARD_KEYS {
        let bytes = local(served.path(), key);
        assert_eq!(moto.get("own", key, Some(&keys)).unwrap(), bytes, "{key}");
    }
    let listed = moto.list("own", "v3/", Some(&keys)).unwrap();
    has_listed(served.path(), "v3/", listed);
    let other = moto.get("other", "zarr.json", Some(&keys));
    assert!(other.unwrap_err().contains("AccessDenied"));
    let wrong = moto.get("own", HARD_KEYS[0], Some(&keys.with_wrong_secret()));
    assert!(wrong.unwrap_err().contains("SignatureDoesNotMatch"));
    assert!(moto.get("own", HARD_KEYS[0], None).is_err());
}

#[test]
fn fake_gcs_server_has_its_initial_and_its_added_objects() {
    let served = served();
    let gcs = FakeGcs::start("bucket", served.path());
    for key in HARD_KEYS {
        let answer = get(&gcs.url("bucket", key));
        assert_eq!(answer.status, 200, "{key}");
        assert_eq!(answer.body, local(served.path(), key), "{key}");
    }
    let part = get_range(&gcs.url("bucket", "v3/large/c/0"), "100-299");
    assert_eq!(part.status, 206);
    assert_eq!(part.body, local(served.path(), "v3/large/c/0")[100..300]);
    assert_eq!(get(&gcs.url("bucket", "nothing")).status, 404);
    gcs.put("bucket", "new/ümläut", b"bytes");
    assert_eq!(get(&gcs.url("bucket", "new/ümläut")).body, b"bytes");
    let listing = get(&format!("{}/bucket?list-type=2&prefix=v3/", gcs.endpoint()));
    let listed = listing.text().matches("<Key>v3/").count();
    assert_eq!(listed, keys(&served.path().join("v3")).len());
}

#[test]
fn azurite_checks_keys_except_for_public_containers() {
    let served = served();
    let azurite = Azurite::start();
    azurite.put("private", served.path(), false);
    azurite.put("public", &served.path().join("v3"), true);
    let keys = azurite.keys();
    for key in HARD_KEYS {
        let bytes = local(served.path(), key);
        assert_eq!(azurite.get("private", key, Some(keys)).unwrap(), bytes);
    }
    let listed = azurite.list("private", "v3/", Some(keys)).unwrap();
    has_listed(served.path(), "v3/", listed);
    let listed = azurite.list("public", "", None).unwrap();
    has_listed(&served.path().join("v3"), "", listed);
    let wrong = azurite.get("private", HARD_KEYS[0], Some(&keys.with_wrong_secret()));
    assert!(wrong.is_err());
    assert!(azurite.get("private", HARD_KEYS[0], None).is_err());

    let url = format!("{}/public/large/c/0", azurite.endpoint());
    let part = get_range(&url, "100-299");
    assert_eq!(part.status, 206);
    assert_eq!(part.body, local(served.path(), "v3/large/c/0")[100..300]);
    assert_eq!(get(&format!("{url}/nothing")).status, 404);
}

/// Returns the command lines of running processes that contain `path`.
fn processes_of(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(path.to_str().unwrap()) {
            found.push(line);
        }
    }
    found
}

/// Starts a server whose children do the work, with a path in its command line.
fn family(directory: &Path, port: &Port) -> Process {
    let script = format!("sleep 1000 & sh -c 'sleep 1000; : {}'", port.number);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(directory);
    Process::start("family", &command, &directory.join("log"))
}

#[test]
fn a_server_leaves_no_process_and_no_file() {
    let (directory, port) = (scratch(), Port::free());
    let server = family(directory.path(), &port);
    let group = server.group().as_raw_nonzero().to_string();
    let members = || {
        let all = sh("ps -eo pgid=,stat=,comm=");
        let of_group = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[0] == group && !words[1].starts_with('Z')
        };
        all.lines().filter(of_group).count()
    };
    assert!(wait_until(Duration::from_secs(5), || members() >= 4));
    assert!(!processes_of(directory.path()).is_empty());
    drop(server);
    assert_eq!(members(), 0);
    assert_eq!(processes_of(directory.path()), Vec::<String>::new());
}

/// Set in the environment of a test process that will be killed.
const VICTIM: &str = "ZARRFS_TEST_VICTIM";

#[test]
fn a_server_ends_when_its_test_is_killed() {
    let name = "test_servers::a_server_ends_when_its_test_is_killed";
    if let Some(directory) = std::env::var_os(VICTIM) {
        let nginx = Nginx::start(Path::new(&directory));
        println!("\nserving at {}", nginx.url(""));
        std::thread::sleep(Duration::from_secs(50));
        return;
    }
    let (served, temporary) = (scratch(), scratch());
    fs::write(served.path().join("key"), "bytes").unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VICTIM, served.path())
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let url = lines
        .find_map(|line| Some(line.unwrap().strip_prefix("serving at ")?.to_owned()))
        .unwrap();
    assert_eq!(get(&format!("{url}key")).body, b"bytes");
    assert!(!processes_of(temporary.path()).is_empty());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let is_gone = || processes_of(temporary.path()).is_empty();
    assert!(
        wait_until(Duration::from_secs(5), is_gone),
        "left: {:?}",
        processes_of(temporary.path())
    );
    assert!(request("GET", &url, &[], b"").is_err());
}

#[test]
fn a_server_that_ends_at_once_is_named_with_its_output() {
    let directory = scratch();
    let mut command = Command::new("sh");
    command.args(["-c", "echo no such option; exit 3"]);
    let log = directory.path().join("log");
    let mut server = Process::start("short-lived", &command, &log);
    let never = AssertUnwindSafe(|| server.wait(Duration::from_secs(20), || false));
    let message = *catch_unwind(never)
        .unwrap_err()
        .downcast::<String>()
        .unwrap();
    for words in ["the server short-lived ended", "no such option", "status 3"] {
        assert!(message.contains(words), "{message}");
    }
}

/// Returns whether a comparison found a difference.
fn differs(comparison: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(comparison)).is_err()
}

#[test]
fn every_comparison_finds_a_changed_byte() {
    let served = served();
    for (name, key) in [("v2-consolidated", "raw/0/0"), ("v3-sharded", "raw/c/0/0")] {
        let changed = scratch();
        let tree = served.path().join(name);
        let copy: PathBuf = changed.path().join(name);
        run(Command::new("cp").arg("-r").arg(&tree).arg(&copy));
        let arrays = arrays(&tree);
        let (a, b) = (Mount::new(&tree), Mount::new(&copy));
        is_same_tree(name, &tree, b.path());
        is_same_by_name(name, &tree, b.path());
        is_same_in_views(name, &arrays, a.path(), b.path());
        is_same_to_zarr(name, &arrays, a.path(), b.path());
        b.unmount();

        let mut bytes = fs::read(copy.join(key)).unwrap();
        bytes[1] ^= 1;
        fs::write(copy.join(key), bytes).unwrap();
        let b = Mount::new(&copy);
        assert!(differs(|| is_same_tree(name, &tree, b.path())));
        assert!(differs(|| is_same_by_name(name, &tree, b.path())));
        assert!(differs(|| is_same_in_views(
            name,
            &arrays,
            a.path(),
            b.path()
        )));
        assert!(differs(|| is_same_to_zarr(
            name,
            &arrays,
            a.path(),
            b.path()
        )));
        b.unmount();

        fs::remove_file(copy.join(key)).unwrap();
        let b = Mount::new(&copy);
        assert!(differs(|| is_same_tree(name, &tree, b.path())));
        assert!(differs(|| is_same_by_name(name, &tree, b.path())));
    }
}
