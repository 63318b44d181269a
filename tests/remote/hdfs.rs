//! Stores in HDFS.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::compare::*;
use crate::servers::{Nginx, WebHdfs};
use crate::support::*;

#[test]
fn a_directory_of_hdfs_equals_the_local_one() {
    let served = served();
    let hdfs = WebHdfs::start(served.path(), &["--user", "ada"]);
    let remote = hdfs.remote("ada");
    for name in ["v2-flat", "v3-sharded"] {
        assert_tree_equals_local(served.path(), &remote, name, Listing::Complete);
    }
    assert_zip_equals_local(served.path(), &remote, "v2-deflate.zip");
}

#[test]
fn a_server_of_hdfs_without_pages_lists_at_once() {
    let served = served();
    let hdfs = WebHdfs::start(served.path(), &["--old", "--token", "a-token-of-the-tests"]);
    let token = (
        "WEBHDFS_DELEGATION_TOKEN".into(),
        "a-token-of-the-tests".into(),
    );
    let remote = hdfs.remote("").envs(token);
    let mounted = remote.mount("v3");
    is_same_tree("v3", &served.path().join("v3"), mounted.path());
    let lists = hdfs.requests();
    let refused = lists
        .iter()
        .filter(|line| line.contains("LISTSTATUS_BATCH"));
    assert_eq!(refused.count(), 1, "{lists:?}");
    mounted.unmount();
}

#[test]
fn a_user_without_rights_in_hdfs_is_refused_with_the_reason() {
    let served = served();
    let hdfs = WebHdfs::start(served.path(), &["--user", "ada"]);
    let remote = hdfs.remote("bob");
    let refusal = remote.attempt(&remote.source("v3")).unwrap_err();
    assert!(
        refusal.stderr.contains("Permission denied: user=bob"),
        "{refusal:?}"
    );
    let nginx = Nginx::start(served.path());
    let elsewhere = nginx.url("v3").replace("http://", "webhdfs://");
    let refusal = remote.attempt(&elsewhere).unwrap_err();
    assert!(refusal.stderr.contains("not from WebHDFS"), "{refusal:?}");
    let nothing = remote
        .attempt(&hdfs.remote("ada").source("v3/c/none"))
        .unwrap_err();
    assert!(
        nothing
            .stderr
            .contains("neither a Zarr hierarchy nor a zip"),
        "{nothing:?}"
    );
}

#[test]
fn a_file_of_hdfs_that_is_replaced_is_stale_and_never_mixed() {
    let served = scratch();
    let file = served.path().join("a/big");
    fs::create_dir(served.path().join("a")).unwrap();
    fs::write(served.path().join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let content = |byte: u8| vec![byte; 20 << 20];
    fs::write(&file, content(1)).unwrap();
    let hdfs = WebHdfs::start(served.path(), &[]);
    let mounted = hdfs.remote("").mount("");
    let opened = File::open(mounted.join("a/big")).unwrap();
    let mut part = vec![0; 4096];
    opened.read_exact_at(&mut part, 0).unwrap();
    assert!(part.iter().all(|byte| *byte == 1));
    let next = served.path().join("next");
    fs::write(&next, content(2)).unwrap();
    fs::rename(&next, &file).unwrap();
    // Far beyond the readahead.
    let stale = opened.read_exact_at(&mut part, 19 << 20);
    assert_eq!(errno(stale), rustix::io::Errno::STALE.raw_os_error());
    drop(opened);
    let again = read(mounted.join("a/big"));
    assert!(again.is_ok_and(|bytes| bytes == content(2)));
    mounted.unmount();
}

#[test]
fn a_chunk_of_hdfs_is_opened_once() {
    let served = served();
    let hdfs = WebHdfs::start(served.path(), &[]);
    let mounted = hdfs.remote("").mount("v2-consolidated");
    let before = hdfs.requests().len();
    let local = Mount::new(served.path().join("v2-consolidated"));
    let view = "zlib/.zarrfs/zlib.npy";
    assert_eq!(
        read(mounted.join(view)).unwrap(),
        read(local.join(view)).unwrap()
    );
    let requests = hdfs.requests().split_off(before);
    let opened = |node: &str| {
        let start = format!("{node} OPEN /v2-consolidated/zlib/");
        let all = requests
            .iter()
            .filter(|line| line.starts_with(&start) && !line.contains("/."));
        all.count()
    };
    // Each chunk takes a request to the name node, and one to the data node.
    assert_eq!((opened("name"), opened("data")), (16, 16), "{requests:?}");
    mounted.unmount();
    local.unmount();
}
