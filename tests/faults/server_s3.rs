//! The fault server as S3: values, listings, pages.

use crate::client::*;
use crate::faulty::*;

/// Returns the texts of all elements with this tag.
pub fn inside<'a>(xml: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let rest = xml.split(open.as_str()).skip(1);
    rest.map(|part| part.split(close.as_str()).next().unwrap())
        .collect()
}

/// Lists all pages. Returns the names and the number of pages.
fn list_all(server: &Server, query: &str) -> (Vec<String>, usize) {
    let (mut names, mut pages, mut token) = (Vec::new(), 0, String::new());
    loop {
        let page = get(server, &format!("/bucket?list-type=2&{query}{token}"));
        assert_eq!(page.status, 200, "{}", page.text());
        let xml = page.text();
        pages += 1;
        names.extend(inside(&xml, "Key").into_iter().map(str::to_owned));
        for common in inside(&xml, "CommonPrefixes") {
            names.push(inside(common, "Prefix")[0].to_owned());
        }
        match inside(&xml, "NextContinuationToken").first() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => return (names, pages),
        }
        assert_eq!(inside(&xml, "IsTruncated"), ["true"]);
    }
}

#[test]
fn s3_serves_values_and_errors_of_its_own() {
    let server = Server::s3("bucket");
    server.put("s/a b/0", *b"value");
    assert_eq!(server.url_of("s"), format!("{}/bucket/s", server.url()));
    assert_eq!(get(&server, "/bucket/s/a%20b/0").text(), "value");
    for (path, code) in [("/bucket/s/a", "NoSuchKey"), ("/other/s", "NoSuchBucket")] {
        let got = get(&server, path);
        assert_eq!((got.status, inside(&got.text(), "Code")), (404, vec![code]));
        assert_eq!(send_request(&server, "HEAD", path, &[]).status, 404);
    }
    assert_eq!(get(&server, "/other?list-type=2").status, 404);
    assert_eq!(send_request(&server, "HEAD", "/bucket", &[]).status, 200);
    let key = &server.requests()[0].key;
    assert_eq!(key, "s/a b/0", "keys are without the bucket");
}

#[test]
fn s3_lists_by_prefix_delimiter_and_page() {
    let server = Server::s3("bucket");
    for key in [
        "s/a/c/0",
        "s/a/c/1",
        "s/a/zarr.json",
        "s/a.x",
        "s/b/0",
        "s/<&>",
        "t/0",
    ] {
        server.put(key, *b"four");
    }
    let all = [
        "s/&lt;&amp;&gt;",
        "s/a.x",
        "s/a/c/0",
        "s/a/c/1",
        "s/a/zarr.json",
        "s/b/0",
        "t/0",
    ];
    let by_delimiter = ["s/&lt;&amp;&gt;", "s/a.x", "s/a/", "s/b/"];
    for max in [1, 2, 3, 1000] {
        let (names, pages) = list_all(&server, &format!("max-keys={max}"));
        assert_eq!(names, all);
        assert_eq!(pages, all.len().div_ceil(max));
        let query = format!("prefix=s/&delimiter=%2F&max-keys={max}");
        let (mut names, _) = list_all(&server, &query);
        names.sort();
        assert_eq!(names, by_delimiter);
    }
    assert_eq!(
        list_all(&server, "prefix=s/a/c&start-after=s/a/c/0").0,
        ["s/a/c/1"]
    );
    assert_eq!(
        list_all(&server, "prefix=s/%3C&encoding-type=url").0,
        ["s/%3C%26%3E"]
    );
    let xml = get(&server, "/bucket/?list-type=2&prefix=t/").text();
    assert_eq!(inside(&xml, "Size"), ["4"]);
    assert_eq!(inside(&xml, "KeyCount"), ["1"]);
    let etag = inside(&xml, "ETag")[0].replace("&quot;", "\"");
    assert_eq!(
        get(&server, "/bucket/t/0").header("ETag"),
        Some(etag.as_str())
    );
    let date = inside(&xml, "LastModified")[0];
    assert!(
        date.len() == 24 && date.starts_with("20") && date.ends_with(".000Z"),
        "{date}"
    );
    assert_eq!(get(&server, "/bucket?list-type=2&max-keys=x").status, 400);
    assert_eq!(
        get(&server, "/bucket?list-type=2&continuation-token=x").status,
        400
    );
    assert_eq!(
        server.requests_for("s/a/c")[0].request_kind,
        RequestKind::Listing
    );
}

#[test]
fn s3_lists_keys_that_are_only_counted() {
    let server = Server::s3("bucket");
    server.put("s/m/0000001x", *b"between");
    server.count("s/m/", 12_345);
    let (names, pages) = list_all(&server, "prefix=s/m/&delimiter=/");
    assert_eq!((names.len(), pages), (12_346, 13));
    assert!(names.is_sorted());
    assert_eq!(names[2], "s/m/0000001x");
    assert_eq!(names[12_345], "s/m/0012344");
    assert_eq!(list_all(&server, "prefix=s/&delimiter=/").0, ["s/m/"]);
    assert_eq!(
        get(&server, "/bucket/s/m/0012344").body,
        12_344_u32.to_le_bytes()
    );
    assert_eq!(get(&server, "/bucket/s/m/0012345").status, 404);
}

#[test]
fn faults_change_pages_of_a_listing() {
    let server = Server::s3("bucket");
    for i in 0..5 {
        server.put(&format!("k{i}"), *b"");
    }
    let page = |query: &str| get(&server, &format!("/bucket?list-type=2&{query}")).text();
    server.add(on("*").lists().first(1), Fault::EmptyPage);
    let (names, pages) = list_all(&server, "max-keys=2");
    assert_eq!((names.len(), pages), (5, 4));
    server.heal();
    server.add(on("*").lists(), Fault::RepeatedToken);
    let first = page("max-keys=2");
    let token = inside(&first, "NextContinuationToken")[0].to_owned();
    assert_eq!(
        page(&format!("max-keys=2&continuation-token={token}")),
        first
    );
    server.heal();
    server.add(on("*").lists(), Fault::TruncatedPage);
    assert!(!page("").contains("</ListBucketResult>"));
}
