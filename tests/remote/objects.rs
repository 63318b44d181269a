//! Stores in object stores, which have complete listings.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::compare::*;
use crate::servers::{Azurite, FakeGcs, Moto, Rclone, Seaweed};
use crate::support::*;

#[test]
fn a_private_bucket_of_s3_with_its_keys_equals_the_local_store() {
    let served = served();
    let seaweed = Seaweed::signed();
    seaweed.put("private", served.path());
    let remote = seaweed.remote("private", seaweed.keys());
    assert_all_equal_local(served.path(), &remote);
}

#[test]
fn a_public_bucket_of_s3_equals_the_local_store() {
    let served = served();
    let seaweed = Seaweed::signed();
    seaweed.put(Seaweed::PUBLIC, served.path());
    let remote = seaweed.remote(Seaweed::PUBLIC, None);
    assert_some_equal_local(served.path(), &remote);
}

#[test]
fn a_bucket_of_another_s3_server_equals_the_local_store() {
    let served = served();
    let moto = Moto::start();
    moto.put("private", served.path());
    let keys = moto.enforce("private");
    assert_some_equal_local(served.path(), &moto.remote("private", &keys));
}

#[test]
fn a_bucket_of_rclone_with_status_200_for_ranges_equals_the_local_store() {
    let (served, buckets) = (served(), scratch());
    let bucket = buckets.path().join("bucket");
    fs::rename(served.path(), &bucket).unwrap();
    let rclone = Rclone::start(buckets.path());
    assert_all_equal_local(&bucket, &rclone.remote("bucket"));
}

/// N5 has no consolidated metadata, so names come from listings.
#[test]
fn an_n5_hierarchy_in_a_bucket_has_the_chunks_of_the_local_one() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fixtures/n5");
    let buckets = scratch();
    let bucket = buckets.path().join("bucket");
    fs::create_dir(&bucket).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(fixture.join("store"))
        .arg(&bucket)
        .status();
    assert!(copied.unwrap().success());
    let rclone = Rclone::start(buckets.path());
    let remote = rclone.remote("bucket");
    let there: Value =
        serde_json::from_slice(&remote.run_command("check", "store", &["--json"])).unwrap();
    let mut local = zarrfs();
    let local = local
        .arg("check")
        .arg(fixture.join("store"))
        .arg("--json")
        .output()
        .unwrap();
    let local: Value = serde_json::from_slice(&local.stdout).unwrap();
    for number in ["arrays", "chunks", "bad", "warnings"] {
        assert_eq!(
            there["summary"][number], local["summary"][number],
            "{number}"
        );
    }
    let mounted = remote.mount("store");
    let chunk = mounted.join(".zarrfs/as-v3/made/short/c/2/3/0");
    assert_eq!(read(chunk).unwrap().len(), 5 * 4 * 7 * 2);
    mounted.unmount();
}

/// More arrays in a group, and more chunks in an array, than an S3 listing page has keys.
#[test]
fn a_group_and_an_array_of_several_pages_of_s3_are_complete() {
    const NAMES: usize = 1010;
    let tree = scratch();
    let put = |key: &str, value: &[u8]| {
        let path = tree.path().join("store").join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    };
    put(".zgroup", br#"{"zarr_format": 2}"#);
    let array = |chunks: usize| {
        json!({
            "zarr_format": 2, "shape": [chunks], "chunks": [1], "dtype": "|u1", "order": "C",
            "compressor": null, "filters": null, "fill_value": 0,
        })
    };
    for i in 0..NAMES {
        let chunks = if i == 0 { NAMES } else { 1 };
        put(
            &format!("v{i:04}/.zarray"),
            array(chunks).to_string().as_bytes(),
        );
        put(&format!("v0000/{i}"), &[1]);
    }
    let seaweed = Seaweed::open();
    seaweed.put("many", tree.path());
    let remote = seaweed.remote("many", None);
    let checked = remote.run_command("check", "store", &["--json"]);
    let checked: Value = serde_json::from_slice(&checked).unwrap();
    let summary = &checked["summary"];
    assert_eq!(summary["arrays"], NAMES, "{summary}");
    assert_eq!(summary["chunks"], NAMES, "{summary}");
    // The file contains the last array, although nothing was listed before.
    let file = read(remote.mount("store").join(".zarrfs/root.nc")).unwrap();
    assert!(file.windows(5).any(|bytes| bytes == b"v1009"));
}

#[test]
fn a_bucket_of_google_equals_the_local_store() {
    let served = served();
    let gcs = FakeGcs::start("bucket", served.path());
    assert_all_equal_local(served.path(), &gcs.remote("bucket"));
}

#[test]
fn a_private_container_of_azure_with_its_key_equals_the_local_store() {
    let served = served();
    let azurite = Azurite::start();
    azurite.put("private", served.path(), false);
    let remote = azurite.remote("private", Some(azurite.keys()));
    assert_all_equal_local(served.path(), &remote);
}

#[test]
fn a_public_container_of_azure_equals_the_local_store() {
    let served = served();
    let azurite = Azurite::start();
    azurite.put("public", served.path(), true);
    assert_some_equal_local(served.path(), &azurite.remote("public", None));
}
