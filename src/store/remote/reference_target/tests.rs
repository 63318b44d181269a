//! Tests of splitting URLs into servers and keys, and of the requests for ranges.

use std::sync::atomic::Ordering;

use super::super::tests::{FakeRemote, key, source};
use super::*;
use crate::runtime::block_on;

#[test]
fn a_url_is_a_key_of_its_server_where_one_stands_for_it() {
    for (url, origin, key) in [
        ("https://h/a%20b/c.nc", "https://h/", "a b/c.nc"),
        ("http://u:p@h:8/x", "http://u:p@h:8/", "x"),
        ("s3://bucket/a/b c", "s3://bucket", "a/b c"),
        ("https://h/x?sig=1", "https://h/x?sig=1", ""),
        ("https://h/a//b", "https://h/a//b", ""),
        ("https://h/a+b", "https://h/a+b", ""),
        ("s3://bucket/a//b", "s3://bucket/a//b", ""),
    ] {
        let (found, at) = split(url);
        assert_eq!(
            (found.as_str(), at.as_bytes()),
            (origin, key.as_bytes()),
            "{url}"
        );
    }
}

#[test]
fn a_range_that_arrives_while_a_read_waits_for_others_is_not_requested_again() {
    let (source, fake) = source("s3", FakeRemote::new(true, 60, true));
    block_on(async {
        let object = PinnedObject::open(&source.bytes, &key("c"), None).await;
        let target = Arc::new(RemoteTarget {
            object: Arc::new(object.unwrap()),
            waiting: Mutex::default(),
        });
        let opened = fake.asked_for_chunk.load(Ordering::Relaxed);
        let read = target.wait_for(0..1, None);
        // The response to a request that was in flight.
        let own = std::iter::once(0..1).collect();
        target.object.insert_parts((0, &[7]), own).unwrap();
        assert_eq!(*read.await.unwrap().unwrap(), [7]);
        assert_eq!(fake.asked_for_chunk.load(Ordering::Relaxed), opened);
    });
}
