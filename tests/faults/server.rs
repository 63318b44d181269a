//! The fault server itself: correct without rules, faulty with them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::client::*;
use crate::faulty::*;
use crate::remote::*;
use crate::server_s3::inside;
use crate::support::*;

/// Starts a server with the value `v`.
fn with_value() -> Server {
    let server = Server::files();
    server.put("v", *b"0123456789");
    server
}

#[test]
fn a_connection_serves_any_number_of_requests() {
    let server = with_value();
    let mut client = Client::new(&server);
    for _ in 0..3 {
        let got = client.send_request("GET", "/v", &[]).unwrap();
        assert_eq!((got.status, got.text().as_str()), (200, "0123456789"));
        let head = client.send_request("HEAD", "/v", &[]).unwrap();
        assert_eq!(head.header("Content-Length"), Some("10"));
        assert_eq!(head.header("ETag"), got.header("ETag"));
        assert_eq!(client.send_request("GET", "/w", &[]).unwrap().status, 404);
        assert_eq!(client.send_request("PUT", "/v", &[]).unwrap().status, 405);
    }
    assert_eq!(server.connections(), 1);
    let requests = server.requests();
    assert_eq!(requests.len(), 12);
    assert_eq!((requests[0].status, requests[0].sent), (Some(200), 10));
    assert_eq!((requests[1].method.as_str(), requests[1].sent), ("HEAD", 0));
    assert_eq!(requests[2].status, Some(404));
}

#[test]
fn ranges_are_exactly_the_requested_bytes() {
    let server = with_value();
    for (range, status, body, output) in [
        ("bytes=2-4", 206, "234", Some("bytes 2-4/10")),
        ("bytes=7-", 206, "789", Some("bytes 7-9/10")),
        ("bytes=7-700", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-30", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=4-2", 200, "0123456789", None),
        ("lines=1-2", 200, "0123456789", None),
    ] {
        let got = ranged(&server, range);
        let found = (got.status, got.text(), got.header("Content-Range"));
        assert_eq!(found, (status, body.to_owned(), output), "{range}");
    }
    for range in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
        let got = ranged(&server, range);
        let found = (got.status, got.header("Content-Range"));
        assert_eq!(found, (416, Some("bytes */10")), "{range}");
    }
}

#[test]
fn conditional_requests_are_honoured_and_an_etag_changes_with_the_content() {
    let server = with_value();
    let first = get(&server, "/v");
    let (etag, date) = (first.header("ETag"), first.header("Last-Modified"));
    let (etag, date) = (etag.unwrap(), date.unwrap());
    let status = |name: &str, value: &str| {
        let headers = [(name, value), ("Range", "bytes=0-1")];
        send_request(&server, "GET", "/v", &headers).status
    };
    let old = "Sat, 01 Jan 2000 00:00:00 GMT";
    for (name, value, expected) in [
        ("If-Match", etag, 206),
        ("If-Match", "*", 206),
        ("If-Match", "\"other\"", 412),
        ("If-None-Match", etag, 304),
        ("If-None-Match", "\"other\"", 206),
        ("If-Range", etag, 206),
        ("If-Range", "\"other\"", 200),
        ("If-Unmodified-Since", date, 206),
        ("If-Unmodified-Since", old, 412),
        ("If-Modified-Since", date, 304),
        ("If-Modified-Since", old, 206),
    ] {
        assert_eq!(status(name, value), expected, "{name}: {value}");
    }
    server.put("v", *b"0123456780");
    assert_eq!(status("If-Match", etag), 412);
    server.put("v", *b"0123456789");
    assert_eq!(status("If-Match", etag), 206);
    server.add(on("v"), Fault::Etag("\"other\"".into()));
    assert_eq!(status("If-Match", etag), 412);
    server.heal();
    server.add(on("v"), Fault::NoEtag);
    server.add(on("v"), Fault::NoLastModified);
    let bare = get(&server, "/v");
    assert_eq!(
        (bare.header("ETag"), bare.header("Last-Modified")),
        (None, None)
    );
    assert_eq!(status("If-Match", etag), 206);
}

#[test]
fn directories_are_served_as_by_nginx() {
    let directory = scratch();
    std::fs::create_dir_all(directory.path().join("a/b c")).unwrap();
    std::fs::write(directory.path().join("a/b c/v"), "value").unwrap();
    let stored = Server::over(directory.path());
    let mapped = Server::files();
    mapped.put("a/b c/v", *b"value");
    for server in [&stored, &mapped] {
        assert_eq!(get(server, "/a/b%20c/v").text(), "value");
        assert_eq!(get(server, "/a/b%20c/v/").status, 404);
        let moved = get(server, "/a?x=1");
        assert_eq!(
            (moved.status, moved.header("Location")),
            (301, Some("/a/?x=1"))
        );
        assert_eq!(get(server, "/a/").status, 403);
        assert_eq!(get(server, "/").status, 403);
        assert_eq!(get(server, "/c/").status, 404);
        assert_eq!(get(server, "/../etc/passwd").status, 404);
    }
    std::fs::write(directory.path().join("a/b c/v"), "changed").unwrap();
    assert_eq!(get(&stored, "/a/b%20c/v").text(), "changed");

    let listing = Server::listing_files();
    for key in ["a/.zarray", "a/b c", "a/d/1", "a/d/2", "a/<&>"] {
        listing.put(key, *b"");
    }
    let page = get(&listing, "/a/");
    assert_eq!(page.status, 200);
    let links = page.text().matches("<a href=").count();
    assert_eq!(links, 4, "{}", page.text());
    assert!(
        page.text()
            .contains("<a href=\"b%20c\">b c</a>\n<a href=\"d/\">d/</a>")
    );
}

#[test]
fn a_rule_replaces_its_number_of_responses() {
    let server = with_value();
    let rule = server.add(on("v").get().first(2), Fault::status(503).retry_after(7));
    let got = get(&server, "/v");
    assert_eq!((got.status, got.header("Retry-After")), (503, Some("7")));
    assert_eq!(send_request(&server, "HEAD", "/v", &[]).status, 200);
    assert_eq!(
        [get(&server, "/v").status, get(&server, "/v").status],
        [503, 200]
    );
    assert_eq!(rule.hits(), 2);
    server.heal();

    server.add(
        on("v").header("authorization", "*OLD*"),
        Fault::s3(400, "ExpiredToken"),
    );
    let got = send_request(&server, "GET", "/v", &[("Authorization", "key=OLD, x")]);
    assert_eq!(
        (got.status, inside(&got.text(), "Code")),
        (400, vec!["ExpiredToken"])
    );
    assert_eq!(get(&server, "/v").status, 200);
    server.add(on("v"), Fault::redirect("/v"));
    assert_eq!(get(&server, "/v").header("Location"), Some("/v"));
    server.heal();

    server.add(on("v").get().from(2), Fault::Replace(b"new".to_vec()));
    assert_eq!(
        [get(&server, "/v").text(), get(&server, "/v").text()],
        ["0123456789", "new"]
    );
    assert_eq!(
        get(&server, "/v").header("ETag"),
        send_request(&server, "HEAD", "/v", &[]).header("ETag")
    );
}

#[test]
fn faults_change_ranges() {
    let server = with_value();
    let under = |fault: Fault, range: &str| {
        server.add(on("v"), fault);
        let got = ranged(&server, range);
        server.heal();
        (
            got.status,
            got.header("Content-Range").map(str::to_owned),
            got.text(),
        )
    };
    let header = |text: &str| Some(text.to_owned());
    let off = under(Fault::WrongContentRange, "bytes=2-4");
    assert_eq!(off, (206, header("bytes 3-5/10"), "345".into()));
    let off = under(Fault::WrongContentRange, "bytes=7-9");
    assert_eq!(off, (206, header("bytes 6-8/10"), "678".into()));
    let other = under(Fault::ContentRange("bytes 0-2/3".into()), "bytes=2-4");
    assert_eq!(other, (206, header("bytes 0-2/3"), "234".into()));
    let none = under(Fault::ContentRange(String::new()), "bytes=2-4");
    assert_eq!(none, (206, None, "234".into()));
    let all = under(Fault::IgnoreRange, "bytes=2-4");
    assert_eq!(all, (200, None, "0123456789".into()));
    let (status, range, body) = under(Fault::Multipart, "bytes=2-4");
    assert_eq!((status, range), (206, None));
    assert!(body.starts_with("--FAULTY\r\n") && body.contains("bytes 2-4/10\r\n\r\n234\r\n"));
}

#[test]
fn faults_change_the_framing_and_coding_of_bodies() {
    let server = with_value();
    for (fault, header) in [
        (Fault::Chunked, ("Transfer-Encoding", "chunked")),
        (Fault::Unframed, ("Connection", "close")),
    ] {
        server.add(on("v"), fault);
        let got = get(&server, "/v");
        assert_eq!(got.header(header.0), Some(header.1));
        assert_eq!((got.header("Content-Length"), got.error), (None, None));
        assert_eq!(got.text(), "0123456789");
        server.heal();
    }
    server.add(on("v"), Fault::Gzip);
    let got = get(&server, "/v");
    assert_eq!(got.header("Content-Encoding"), Some("gzip"));
    let mut plain = String::new();
    flate2::read::GzDecoder::new(&got.body[..])
        .read_to_string(&mut plain)
        .unwrap();
    assert_eq!(plain, "0123456789");
    server.heal();

    server.add(on("v"), Fault::Endless);
    let mut client = Client::new(&server);
    let mut taken = 0;
    client
        .0
        .get_mut()
        .write_all(b"GET /v HTTP/1.1\r\n\r\n")
        .unwrap();
    while taken < 1 << 20 {
        taken += client.0.read(&mut [0; 65536]).unwrap();
    }
    drop(client);
    assert!(wait_until(Duration::from_secs(5), || server.under_way() == 0));
    assert!(server.requests()[3].sent > 500_000);
}

#[test]
fn faults_break_connections_at_the_given_offset() {
    let server = with_value();
    let under = |fault: Fault| {
        server.add(on("v"), fault);
        let got = Client::new(&server).send_request("GET", "/v", &[]);
        let head = Client::new(&server).send_request("HEAD", "/v", &[]);
        server.heal();
        (got, head)
    };
    let (got, head) = under(Fault::Reset);
    assert_eq!(got.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(head.is_err());
    let (got, head) = under(Fault::Close);
    assert_eq!(got.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(head.is_err());
    let (got, _) = under(Fault::Garbage);
    assert_eq!(got.unwrap_err().kind(), io::ErrorKind::InvalidData);
    for (fault, error, bytes) in [
        (Fault::ResetAfter(4), io::ErrorKind::ConnectionReset, "0123"),
        (Fault::CloseAfter(4), io::ErrorKind::UnexpectedEof, "0123"),
        (Fault::CloseAfter(0), io::ErrorKind::UnexpectedEof, ""),
        (
            Fault::CloseAfter(4000),
            io::ErrorKind::UnexpectedEof,
            "012345678",
        ),
    ] {
        let (got, head) = under(fault);
        let got = got.unwrap();
        assert_eq!((got.error, got.text().as_str()), (Some(error), bytes));
        assert_eq!(got.header("Content-Length"), Some("10"));
        assert_eq!(
            head.unwrap().status,
            200,
            "a response without a body does not break in it"
        );
    }
}

#[test]
fn faults_stall_trickle_and_delay_responses() {
    let server = with_value();
    let short = Duration::from_millis(100);
    let impatient = || {
        Client::new(&server)
            .timeout(short)
            .send_request("GET", "/v", &[])
    };
    server.add(on("v"), Fault::Stall);
    assert_eq!(impatient().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    server.heal();
    server.add(on("v"), Fault::StallAfter(4));
    let got = impatient().unwrap();
    assert_eq!(
        (got.error, got.text().as_str()),
        (Some(io::ErrorKind::WouldBlock), "0123")
    );
    server.heal();
    // The server notices that a client has disconnected.
    assert!(wait_until(Duration::from_secs(5), || server.under_way() == 0));

    let started = Instant::now();
    server.add(on("v"), Fault::Drip(Duration::from_millis(20)));
    assert_eq!(get(&server, "/v").text(), "0123456789");
    assert!(started.elapsed() >= Duration::from_millis(200));
    server.heal();
    let started = Instant::now();
    server.add(on("v"), Fault::Late(short));
    server.set_latency(short);
    assert_eq!(get(&server, "/v").text(), "0123456789");
    assert!(started.elapsed() >= 2 * short);
    assert_eq!(server.requests().last().unwrap().sent, 10);
}

#[test]
fn a_gate_holds_requests_until_it_is_opened() {
    let server = with_value();
    server.put("w", *b"other");
    let gate = server.hold("v");
    std::thread::scope(|scope| {
        let clients = [(); 5].map(|()| scope.spawn(|| get(&server, "/v").text()));
        gate.wait_for(5);
        assert_eq!(get(&server, "/w").text(), "other");
        assert_eq!((server.under_way(), server.most_at_a_time()), (5, 6));
        assert!(server.requests_for("v").iter().all(|r| r.status.is_none()));
        gate.open();
        for client in clients {
            assert_eq!(client.join().unwrap(), "0123456789");
        }
    });
    let gate = server.hold("*");
    let gone = Client::new(&server)
        .timeout(Duration::from_millis(50))
        .send_request("GET", "/v", &[]);
    assert!(gone.is_err());
    assert!(
        wait_until(Duration::from_secs(5), || gate.held() == 0),
        "its client has disconnected"
    );
    server.forget_requests();
    assert!(server.requests().is_empty());
}

#[test]
fn a_server_stops_and_restarts_on_its_port() {
    let server = with_value();
    for _ in 0..3 {
        let mut client = Client::new(&server);
        assert_eq!(client.send_request("GET", "/v", &[]).unwrap().status, 200);
        server.refuse();
        assert!(client.send_request("GET", "/v", &[]).is_err());
        let refused = TcpStream::connect(("127.0.0.1", server.port()));
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        server.accept();
        assert_eq!(get(&server, "/v").status, 200);
    }
    let mut client = Client::new(&server);
    client.send_request("GET", "/v", &[]).unwrap();
    server.cut();
    assert!(client.send_request("GET", "/v", &[]).is_err());
    assert_eq!(get(&server, "/v").status, 200);
}

#[test]
fn a_server_ends_with_its_waiting_requests() {
    let server = with_value();
    server.add(on("v").first(1), Fault::Stall);
    let gate = server.hold("w");
    let spawn_request = |path: &'static str| {
        let mut client = Client::new(&server);
        std::thread::spawn(move || client.send_request("GET", path, &[]).is_err())
    };
    let waiting = [spawn_request("/v"), spawn_request("/w")];
    gate.wait_for(1);
    assert!(wait_until(Duration::from_secs(5), || server.under_way() == 2));
    drop(server);
    for client in waiting {
        assert!(client.join().unwrap());
    }
}

#[test]
fn a_proxy_and_curl_are_served() {
    let server = with_value();
    let got = get(&server, "http://far.invalid/v?x=1");
    assert_eq!(got.text(), "0123456789");
    let request = &server.requests()[0];
    assert_eq!(
        (request.host.as_str(), request.is_proxied),
        ("far.invalid", true)
    );
    assert_eq!(request.query("x"), Some("1"));
    let v6 = Server::files_on_v6();
    v6.put("v", *b"six");
    assert_eq!(get(&v6, "/v").text(), "six");
    // A TLS handshake gets the same response as from nginx.
    let mut client = Client::new(&server);
    let hello = [0x16, 3, 1, 2, 0, 1];
    client.0.get_mut().write_all(&hello).unwrap();
    assert_eq!(client.line().unwrap(), "HTTP/1.1 400 Bad Request");

    if std::process::Command::new("curl")
        .arg("-V")
        .output()
        .is_err()
    {
        return skipped("needs curl");
    }
    let url = server.url_of("v");
    assert_eq!(
        sh(&format!("curl -sf -r 2-4 {url} {url} -o - -o -")),
        "234234"
    );
    server.add(on("v"), Fault::CloseAfter(4));
    assert_eq!(sh(&format!("curl -s {url} >/dev/null || echo $?")), "18\n");
    server.add(on("v"), Fault::redirect(url.clone()));
    assert_eq!(sh(&format!("curl -sL {url} >/dev/null || echo $?")), "47\n");
}

#[test]
fn the_fixtures_of_these_tests_are_valid_local_stores() {
    for format in [Format::V2, Format::V3] {
        let directory = scratch();
        let server = Server::over(directory.path());
        let remote = Remote::on(server, Backend::Http, format);
        let mount = Mount::new(directory.path().join("store"));
        for array in ["a", "good", "z"] {
            remote.reads(&mount, array);
        }
        remote.siblings_work(&mount);
        assert!(read(whole_of(&mount, "big")).unwrap() == big());
        assert!(read(mount.join(remote.key("big", 0))).unwrap() == big());
        let hole = read(whole_of(&mount, "hole")).unwrap();
        assert!(hole[CHUNK * 4..CHUNK * 8] == FILL.to_le_bytes().repeat(CHUNK));
        assert_eq!(errno(read(mount.join(remote.key("hole", 1)))), ENOENT);
        assert!(
            !whole()
                .chunks(4)
                .any(|element| element == FILL.to_le_bytes())
        );
        assert!(!big().chunks(4).any(|element| element == FILL.to_le_bytes()));
    }
}

#[test]
fn a_star_is_any_text() {
    for (pattern, text) in [
        ("*", ""),
        ("*", "a/b"),
        ("a/*/0", "a/c/0"),
        ("a*", "a"),
        ("*0", "a/0/0"),
    ] {
        assert!(is_like(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [("a", "a/b"), ("a/*/0", "a/0"), ("b*", "ab"), ("*0", "a/01")] {
        assert!(!is_like(pattern, text), "{pattern} {text}");
    }
}

#[test]
fn rules_apply_for_their_number_of_requests() {
    let held = |frequency: Frequency| (1..=6).filter(|&n| frequency.holds(n)).collect::<Vec<_>>();
    assert_eq!(held(Frequency::First(2)), [1, 2]);
    assert_eq!(held(Frequency::From(5)), [5, 6]);
    assert_eq!(held(Frequency::Every(3)), [3, 6]);
    assert_eq!(held(Frequency::Always).len(), 6);
    let many = (0..10_000)
        .filter(|&n| Frequency::Percent(30, 7).holds(n))
        .count();
    assert!((2_700..3_300).contains(&many), "{many}");
}
