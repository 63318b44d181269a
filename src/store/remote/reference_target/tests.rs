//! Tests of splitting URLs into servers and keys.

use super::*;

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
