//! Stores in repositories and buckets of Hugging Face.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::compare::*;
use crate::servers::Hub;
use crate::support::*;

const DATASET: &str = "datasets/ada/ocean";
const TOKEN: &str = "hf_a-token-of-the-tests";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

#[test]
fn a_repository_of_hugging_face_equals_the_local_directory() {
    let served = served();
    let hub = Hub::start(served.path(), &[]);
    let remote = hub.remote(DATASET, "");
    for name in ["v2-flat", "v3-sharded"] {
        assert_tree_equals_local(served.path(), &remote, name, Listing::Complete);
    }
    assert_zip_equals_local(served.path(), &remote, "v2-deflate.zip");
    for repository in ["ada/ocean", "spaces/ada/ocean", "buckets/ada/ocean"] {
        let mounted = hub.remote(repository, "").mount("v3");
        is_same_tree(repository, &served.path().join("v3"), mounted.path());
        mounted.unmount();
    }
    let requests = hub.requests();
    let is_page = |line: &&String| line.contains("/tree/main/v3") && line.contains("cursor=");
    assert!(
        requests.iter().any(|line| is_page(&line)),
        "a directory with pages"
    );
}

/// Writes an array of bytes with the fill value 9, whose chunks have the value of their number.
fn write_array(array: &Path, length: usize, chunk_length: usize, stored: &[u8]) {
    fs::create_dir_all(array.join("c")).unwrap();
    let document = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "uint8", "fill_value": 9,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_length]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"],
    });
    fs::write(array.join("zarr.json"), document.to_string()).unwrap();
    for chunk in stored {
        fs::write(array.join(format!("c/{chunk}")), vec![*chunk; chunk_length]).unwrap();
    }
}

#[test]
fn an_absent_chunk_of_a_bucket_is_a_fill_value_and_no_directory() {
    let root = scratch();
    // The keys `c/10` and `c/11` begin with the text of the absent `c/1`.
    write_array(&root.path().join("x"), 24, 2, &[0, 10, 11]);
    let hub = Hub::start(root.path(), &[]);
    let mounted = hub.remote("buckets/ada/ocean", "").mount("x");
    let absent = fs::metadata(mounted.path().join("c/1")).unwrap_err();
    assert_eq!(absent.kind(), std::io::ErrorKind::NotFound, "{absent}");
    let read = fs::read(mounted.path().join(".zarrfs/x.bin")).unwrap();
    let expected = [vec![0; 2], vec![9; 18], vec![10; 2], vec![11; 2]].concat();
    assert_eq!(read, expected);
    mounted.unmount();
}

#[test]
fn the_hub_of_the_tests_answers_the_client_of_hugging_face() {
    let root = scratch();
    fs::create_dir_all(root.path().join("a/b")).unwrap();
    for number in 0..20 {
        fs::write(root.path().join(format!("a/{number}")), [number; 9]).unwrap();
    }
    fs::write(root.path().join("a/b/big"), vec![7; 5000]).unwrap();
    let revision = format!("refs/pr/3={}", root.path().join("a").display());
    let hub = Hub::start(root.path(), &["--token", TOKEN, "--revision", &revision]);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remote/hf_client.py");
    let read = hub.run_client(&program, TOKEN);
    let lines: Vec<&str> = read.lines().collect();
    let of = |source: &str| lines.iter().filter(|line| line.starts_with(source)).count();
    for source in [
        "datasets/ada/ocean ",
        "spaces/ada/ocean ",
        "ada/ocean ",
        "buckets/ada/ocean ",
    ] {
        assert_eq!(of(source), 21, "{source}");
    }
    assert_eq!(of("datasets/ada/ocean@refs/pr/3 "), 21);
    assert_eq!(of("listed "), 23, "{read}");
    let big = run(Command::new("sha256sum").arg(root.path().join("a/b/big")));
    let hash = big.split_whitespace().next().unwrap();
    assert!(
        lines.contains(&&*format!("datasets/ada/ocean a/b/big {hash}")),
        "{read}"
    );
}

#[test]
fn a_private_repository_is_refused_without_a_token_which_only_the_hub_gets() {
    let served = served();
    let hub = Hub::start(served.path(), &["--token", TOKEN]);
    let nobody = hub.remote(DATASET, "");
    let wrong = hub.remote(DATASET, "hf_wrong");
    let anonymous = hub.remote(DATASET, TOKEN).arg("--anonymous");
    for remote in [nobody, wrong, anonymous] {
        let refusal = remote.attempt(&remote.source("v3")).unwrap_err();
        for part in ["access denied", "RepoNotFound", "HF_TOKEN", "hf auth login"] {
            assert!(refusal.stderr.contains(part), "{refusal:?}");
        }
        assert!(!refusal.stderr.contains(TOKEN), "{refusal:?}");
    }
    let log = scratch();
    let log = log.path().join("log");
    let remote = hub
        .remote(DATASET, TOKEN)
        .arg("--log-file")
        .arg(log.to_str().unwrap());
    let mounted = remote.arg("--log-level").arg("trace").mount("v3");
    is_same_tree("v3", &served.path().join("v3"), mounted.path());
    mounted.unmount();
    assert!(!fs::read_to_string(&log).unwrap().contains(TOKEN));
    let requests = hub.requests();
    let (network, own): (Vec<_>, Vec<_>) = requests
        .iter()
        .partition(|line| line.starts_with("network "));
    assert!(!network.is_empty());
    assert!(
        network.iter().all(|line| !line.ends_with(" token")),
        "{network:?}"
    );
    assert!(own.iter().any(|line| line.ends_with(" token")), "{own:?}");
}

#[test]
fn a_token_comes_from_the_file_of_the_client() {
    let served = served();
    let hub = Hub::start(served.path(), &["--token", TOKEN]);
    let home = scratch();
    fs::write(home.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let home = (
        "HF_HOME".to_owned(),
        home.path().to_str().unwrap().to_owned(),
    );
    let mounted = hub.remote(DATASET, "").envs(home).mount("v3");
    assert!(mounted.join("zarr.json").exists());
    mounted.unmount();
}

#[test]
fn a_revision_and_an_endpoint_of_the_command_line_are_read() {
    let served = served();
    let trees = [("refs/pr/3", "v2-flat"), (COMMIT, "v3")]
        .map(|(revision, tree)| format!("{revision}={}", served.path().join(tree).display()));
    let hub = Hub::start(
        served.path(),
        &["--revision", &trees[0], "--revision", &trees[1]],
    );
    for (revision, tree) in [
        ("refs/pr/3", "v2-flat"),
        ("refs%2Fpr%2F3", "v2-flat"),
        (COMMIT, "v3"),
    ] {
        let remote = hub.remote(&format!("{DATASET}@{revision}"), "");
        let mounted = remote.mount("");
        is_same_tree(revision, &served.path().join(tree), mounted.path());
        mounted.unmount();
    }
    let none = ("HF_ENDPOINT".to_owned(), "http://127.0.0.1:1".to_owned());
    let remote = hub.remote(DATASET, "").envs(none).endpoint(&hub.endpoint());
    assert!(remote.mount("v3").join("zarr.json").exists());
    let remote = hub.remote(&format!("{DATASET}@nosuch"), "");
    let refusal = remote.attempt(&remote.source("v3")).unwrap_err();
    assert!(refusal.stderr.contains("RevisionNotFound"), "{refusal:?}");
    let nothing = hub.remote(DATASET, "");
    let refusal = nothing.attempt(&nothing.source("v3/c/none")).unwrap_err();
    assert!(
        refusal
            .stderr
            .contains("neither a Zarr hierarchy nor a zip"),
        "{refusal:?}"
    );
}

#[test]
fn a_hub_or_a_network_that_fails_is_an_error_and_never_absence() {
    const LENGTH: usize = 1000;
    let root = scratch();
    let chunks: Vec<u8> = (20..60).collect();
    write_array(&root.path().join("x"), 60 * LENGTH, LENGTH, &chunks);
    let fault = root.path().join("fault");
    let hub = Hub::start(root.path(), &["--fault", fault.to_str().unwrap()]);
    let remote = hub.remote(DATASET, "").arg("--timeout").arg("3s");
    let mounted = remote.arg("--ttl").arg("0").mount("x");
    let (io, access) = (
        rustix::io::Errno::IO.raw_os_error(),
        rustix::io::Errno::ACCESS.raw_os_error(),
    );
    let faults = [
        ("network 403 AccessDenied", &[io][..]),
        ("network 404 NoSuchKey", &[io]),
        ("network 500", &[io]),
        ("network short", &[io]),
        ("network other", &[io]),
        ("network page", &[io]),
        ("hub 429", &[io]),
        ("hub 503", &[io]),
        ("hub 404 RepoNotFound", &[access]),
        ("hub 404 RevisionNotFound", &[access]),
        ("hub 401", &[access]),
        ("hub page", &[io]),
    ];
    for (chunk, (text, expected)) in chunks.iter().copied().zip(faults) {
        let view = mounted.join(format!(".zarrfs/chunks/c/{chunk}"));
        fs::write(&fault, text).unwrap();
        let found = fs::read(&view).unwrap_err().raw_os_error().unwrap();
        assert!(expected.contains(&found), "{text}: {found}");
        let listed = fs::read_dir(mounted.join("c")).and_then(|mut names| names.next().transpose());
        assert!(
            text.starts_with("network") || listed.is_err(),
            "{text}: {listed:?}"
        );
        fs::remove_file(&fault).unwrap();
        // A failure is remembered for a moment.
        let heals = |is_right: &dyn Fn() -> bool| wait_until(Duration::from_secs(3), is_right);
        let is_read = || fs::read(&view).is_ok_and(|bytes| bytes == [chunk; LENGTH]);
        assert!(heals(&is_read), "{text}: {:?}", fs::read(&view));
        let is_listed = || fs::read_dir(mounted.join("c")).is_ok_and(|names| names.count() == 40);
        assert!(heals(&is_listed), "{text}");
    }
    mounted.unmount();
}

/// Writes a hierarchy whose file `a/big` has this content.
fn write_store(root: &Path, byte: u8) {
    fs::create_dir_all(root.join("a")).unwrap();
    fs::write(root.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let next = root.join("next");
    fs::write(&next, vec![byte; 20 << 20]).unwrap();
    fs::rename(&next, root.join("a/big")).unwrap();
}

#[test]
fn a_branch_that_moves_is_seen_after_the_time_and_never_mixed() {
    let root = scratch();
    write_store(root.path(), 1);
    let hub = Hub::start(root.path(), &[]);
    let mounted = hub.remote(DATASET, "").arg("--ttl").arg("1s").mount("");
    let opened = File::open(mounted.join("a/big")).unwrap();
    let mut part = vec![0; 4096];
    opened.read_exact_at(&mut part, 0).unwrap();
    assert!(part.iter().all(|byte| *byte == 1));
    write_store(root.path(), 2);
    // Far beyond the readahead.
    let stale = opened.read_exact_at(&mut part, 19 << 20);
    assert_eq!(errno(stale), rustix::io::Errno::STALE.raw_os_error());
    drop(opened);
    let again = read(mounted.join("a/big"));
    assert!(again.is_ok_and(|bytes| bytes == vec![2; 20 << 20]));
    mounted.unmount();
}

#[test]
fn a_commit_never_changes_and_its_attributes_are_not_requested_again() {
    let root = scratch();
    write_store(root.path(), 1);
    let commit = format!("{COMMIT}={}", root.path().display());
    let hub = Hub::start(root.path(), &["--revision", &commit]);
    let stat_twice = |revision: &str| {
        let remote = hub
            .remote(&format!("{DATASET}@{revision}"), "")
            .arg("--ttl")
            .arg("0");
        let mounted = remote.mount("");
        fs::metadata(mounted.join("a/big")).unwrap();
        let before = hub.requests().len();
        for _ in 0..3 {
            fs::metadata(mounted.join("a/big")).unwrap();
        }
        let requests = hub.requests().len() - before;
        mounted.unmount();
        requests
    };
    assert_eq!(stat_twice(COMMIT), 0);
    assert!(stat_twice("main") >= 3);
}
