//! D12, D17: redirects, proxies, addresses and clocks.

use std::path::Path;

use crate::clients::Foreground;
use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d12_redirects_on_the_same_host_are_followed() {
    let remote = Remote::new(Backend::Http);
    let mount = remote.mount(&[]);
    for (i, location) in ["/elsewhere/0".into(), remote.server.url_of("elsewhere/1")]
        .into_iter()
        .enumerate()
    {
        let elsewhere = format!("elsewhere/{i}");
        remote.server.put(&elsewhere, chunk(i));
        remote
            .server
            .add(on(&remote.at("a", i)), Fault::redirect(location));
        assert!(read(mount.join(remote.key("a", i))).unwrap() == chunk(i));
        assert!(!remote.server.requests_for(&elsewhere).is_empty());
    }
}

#[test]
fn d12_absence_at_the_end_of_a_redirect_proves_nothing() {
    let remote = Remote::new(Backend::Http);
    let other = Server::files();
    for location in [remote.server.url_of("gone/0"), other.url_of("gone/0")] {
        let mount = remote.mount(&["--retries", "0"]);
        remote
            .server
            .add(on(&remote.at("a", 1)), Fault::redirect(location));
        remote.chunk_fails(&mount, "a", 1, &[EIO]);
        logged(&mount, &["a/c/1", "404", "redirect", "EIO"]);
        remote.heals(&mount, "a");
    }
    // The same key with another scheme or port, or at another path after a tree was moved, is still
    // the same object.
    let hole = remote.at("hole", 1);
    for end in [hole.clone(), format!("moved/{hole}")] {
        let mount = remote.mount(&[]);
        remote
            .server
            .add(on(&hole), Fault::redirect(other.url_of(&end)));
        let fill = FILL.to_le_bytes().repeat(CHUNK);
        assert!(read(remote.view(&mount, "hole", 1)).unwrap() == fill);
        assert!(!other.requests_for(&end).is_empty());
        remote.server.heal();
    }
}

#[test]
fn d12_a_redirect_loop_ends() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--retries", "0"]);
        let at = remote.at("a", 1);
        let itself = Fault::redirect(remote.server.url_of(&at));
        remote.server.add(on(&at), itself);
        let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", 1))));
        is_one_of(native, &[EIO], "the key");
        let sent = remote.server.requests_for(&at).len();
        // A lookup and an open follow at most five redirects each.
        assert!(sent <= 12, "{sent} requests");
        remote.chunk_fails(&mount, "a", 1, &[EIO]);
        logged(&mount, &["redirect|302", "EIO"]);
        remote.heals(&mount, "a");
    }
}

#[test]
fn d12_no_credentials_cross_hosts() {
    let remote = Remote::new(Backend::Http);
    let other = Server::files();
    other.put("0", chunk(1));
    let headers = [
        "Authorization: Bearer CANARY",
        "X-Api-Key: CANARY",
        "Cookie: id=CANARY",
    ];
    let args: Vec<&str> = headers.iter().flat_map(|h| ["--header", *h]).collect();
    let mount = remote.mount(&args);
    remote
        .server
        .add(on(&remote.at("a", 1)), Fault::redirect(other.url_of("0")));
    let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", 1))));
    is_right_or(native, &chunk(1), &[EIO, EACCES], "the key");
    let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, "a", 1)));
    is_right_or(view, &chunk(1), &[EIO, EACCES], "the chunk");
    for request in other.requests() {
        for (name, value) in &request.headers {
            assert!(!value.contains("CANARY"), "{name} crossed");
            assert!(
                !value.contains(&remote.server.port().to_string()),
                "{name}: {value}"
            );
        }
    }
    let own = remote.server.requests();
    assert!(own.iter().all(|r| r.header("x-api-key") == Some("CANARY")));
    remote.heals(&mount, "a");
}

#[test]
fn d12_no_signature_crosses_hosts() {
    let remote = Remote::new(Backend::S3);
    let other = Server::s3("bucket");
    other.put(&remote.at("a", 1), chunk(1));
    let options = remote.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let env = [
        ("AWS_ACCESS_KEY_ID", "CANARYKEY"),
        ("AWS_SECRET_ACCESS_KEY", "CANARYSECRET"),
        ("AWS_REGION", "us-east-1"),
    ];
    let mount = Foreground::new(&[], &env, Path::new(&remote.source()), &options);
    assert!(read(mount.join(remote.key("a", 0))).unwrap() == chunk(0));
    let elsewhere = other.url_of(&remote.at("a", 1));
    remote
        .server
        .add(on(&remote.at("a", 1)), Fault::redirect(elsewhere));
    let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", 1))));
    is_right_or(native, &chunk(1), &[EIO, EACCES], "the key");
    for request in other.requests() {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.header("x-amz-security-token"), None);
    }
    assert!(!mount.log().contains("CANARYSECRET"));
}

#[test]
fn d12_redirects_to_unsafe_urls_are_refused() {
    for backend in BOTH {
        for location in [
            "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
            "http://[::ffff:169.254.169.254]/latest/meta-data/",
            "http://2852039166/latest/meta-data/",
            "http://100.100.100.200/latest/meta-data/",
            "file:///etc/passwd",
            "ftp://127.0.0.1/0",
            "gopher://127.0.0.1:1/_",
            "",
            "http://",
        ] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&["--retries", "0"]);
            remote
                .server
                .add(on(&remote.at("a", 1)), Fault::redirect(location));
            // The read does not wait for an address that does not answer.
            let native = in_time(AT_ONCE, location, || read(mount.join(remote.key("a", 1))));
            is_one_of(native, &[EIO, EACCES], location);
            let view = in_time(AT_ONCE, location, || read(remote.view(&mount, "a", 1)));
            is_one_of(view, &[EIO, EACCES], location);
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn d17_a_proxy_of_the_environment_is_used() {
    let remote = Remote::new(Backend::Http);
    let proxy = remote.server.url();
    // (In upper case the variable could come from a CGI request header, so some clients ignore it.)
    for name in ["http_proxy", "all_proxy"] {
        remote.server.forget_requests();
        let env = [(name, proxy.as_str())];
        let source = Path::new("http://store.invalid/store");
        let mount = Foreground::new(&[], &env, source, &["--timeout", "2s"]);
        assert!(read(mount.join(remote.key("a", 0))).unwrap() == chunk(0));
        let requests = remote.server.requests();
        let is_for_it = |r: &LoggedRequest| r.is_proxied && r.host == "store.invalid";
        assert!(requests.iter().all(is_for_it));
    }
    // The proxy is not used for excepted hosts.
    let other = Server::files();
    let env = [
        ("http_proxy", other.url()),
        ("no_proxy", "127.0.0.1".into()),
    ];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let source = remote.source();
    let mount = Foreground::new(&[], &env, Path::new(&source), &["--timeout", "2s"]);
    assert!(read(mount.join(remote.key("a", 0))).unwrap() == chunk(0));
    assert!(other.requests().is_empty());
}

#[test]
fn d17_an_unreachable_proxy_is_named() {
    let proxy = Server::files();
    proxy.refuse();
    let dir = scratch();
    let mut command = zarrfs();
    command.arg("http://store.invalid/store").arg(dir.path());
    command
        .args(["--timeout", "2s"])
        .env("http_proxy", proxy.url());
    let output = run_for(&mut command, std::time::Duration::from_secs(10));
    clean_up(dir.path());
    assert_eq!(output.status.code(), Some(32));
    let text = String::from_utf8_lossy(&output.stderr);
    has_words(&text, &["proxy|connect|refused", "store.invalid"]);
}

#[test]
fn d17_a_server_with_only_an_ipv6_address_is_mounted() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skipped("needs IPv6");
    }
    let remote = Remote::on(Server::files_on_v6(), Backend::Http, Format::V3);
    let mount = remote.mount(&[]);
    remote.reads(&mount, "a");
}

#[test]
fn d17_a_wrong_clock_is_reported() {
    let remote = Remote::new(Backend::S3);
    let skewed = || Fault::s3(403, "RequestTimeTooSkewed");
    let mount = remote.mount(&[]);
    remote.server.add(on(&remote.at("a", 1)), skewed());
    remote.chunk_fails(&mount, "a", 1, &[EACCES, EIO]);
    logged(&mount, &["RequestTimeTooSkewed|clock"]);
    remote.heals(&mount, "a");
    drop(mount);
    remote.server.add(on("*"), skewed());
    remote.is_refused(&["RequestTimeTooSkewed|clock"]);
}
