//! Files with stored chunks of remote stores: their bytes equal those of local stores, and the
//! requests are one for each chunk plus those for the sizes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::compare::*;
use crate::servers::{Moto, Nginx, Request};
use crate::support::clients::EIO;
use crate::support::*;

/// Returns the number of requests for the chunks of the array `zlib`.
fn of_chunks(requests: &[Request]) -> usize {
    let is_chunk =
        |request: &&Request| request.path.contains("/zlib/") && !request.path.contains("/.");
    requests.iter().filter(is_chunk).count()
}

const VIEW: &str = "zlib/.zarrfs/zlib.packed.nc";

fn expected(served: &Path, name: &str) -> Vec<u8> {
    let local = Mount::new(served.join(name));
    read(local.join(VIEW)).unwrap()
}

#[test]
fn stored_chunks_of_a_web_server_take_one_request_each() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v2-consolidated");
    let local = expected(served.path(), "v2-consolidated");
    let before = nginx.requests().len();
    // A small object is fetched together with its size.
    let size = fs::metadata(mounted.join(VIEW)).unwrap().len();
    assert_eq!(size, local.len() as u64);
    assert!(read(mounted.join(VIEW)).unwrap() == local);
    let requests = nginx.requests().split_off(before);
    assert_eq!(of_chunks(&requests), 16, "{requests:?}");
    // Up to four requests for the documents of the array and of its group.
    assert!(requests.len() <= 16 + 4, "{requests:?}");
    // Another open file is read from memory, without requests.
    assert!(read(mounted.join(VIEW)).unwrap() == local);
    assert_eq!(nginx.requests().len(), before + requests.len());
    mounted.unmount();
}

#[test]
fn stored_chunks_in_a_remote_zip_take_no_request_for_their_sizes() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v2-zipstore.zip");
    let local = expected(served.path(), "v2-zipstore.zip");
    read(mounted.join("zlib/.zarrfs/info.json")).unwrap();
    let before = nginx.requests().len();
    let size = fs::metadata(mounted.join(VIEW)).unwrap().len();
    assert_eq!(size, local.len() as u64);
    let sizes = nginx.requests().split_off(before);
    // The attributes of the root.
    assert!(sizes.len() <= 1, "{sizes:?}");
    assert!(read(mounted.join(VIEW)).unwrap() == local);
    let requests = nginx.requests().split_off(before);
    assert!(requests.len() <= 16 + 1, "{requests:?}");
    mounted.unmount();
}

#[test]
fn a_zip_that_is_gone_for_a_while_is_read_when_it_is_back() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let mounted = nginx.remote("").mount("v2-zipstore.zip");
    let local = expected(served.path(), "v2-zipstore.zip");
    let here = served.path().join("v2-zipstore.zip");
    let elsewhere = served.path().join("elsewhere");
    fs::rename(&here, &elsewhere).unwrap();
    let error = fs::read(mounted.join(VIEW)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
    fs::rename(&elsewhere, &here).unwrap();
    assert!(read(mounted.join(VIEW)).unwrap() == local);
    mounted.unmount();
}

#[test]
fn sizes_of_stored_chunks_in_a_bucket_come_from_its_listing() {
    let served = served();
    let moto = Moto::start();
    moto.put("private", served.path());
    let keys = moto.enforce("private");
    let mounted = moto.remote("private", &keys).mount("v2-consolidated");
    let local = expected(served.path(), "v2-consolidated");
    read(mounted.join("zlib/.zarrfs/info.json")).unwrap();
    let mountpoint = mounted.path().to_str().unwrap();
    let requests = || {
        let stats = run(zarrfs().args(["stats", "--json", mountpoint]));
        let stats: Value = serde_json::from_str(&stats).unwrap();
        stats["store"]["requests"].as_u64().unwrap()
    };
    let before = requests();
    let size = fs::metadata(mounted.join(VIEW)).unwrap().len();
    assert_eq!(size, local.len() as u64);
    let sizes = requests() - before;
    // The listing, and the documents of the array's group.
    assert!(sizes <= 4, "{sizes} requests for 16 sizes");
    assert!(read(mounted.join(VIEW)).unwrap() == local);
    let data = requests() - before - sizes;
    assert!(
        (1..=16 + 1).contains(&data),
        "{data} requests for 16 chunks"
    );
    mounted.unmount();
}
