//! D13, D14: servers without listings, and listings that fail.

use std::fs;

use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d13_metadata_determine_the_keys_of_a_web_server() {
    for format in [Format::V2, Format::V3] {
        let remote = Remote::of(Backend::Http, format);
        remote.put("unknown/key.txt", *b"text");
        let mount = remote.mount(&[]);
        let listed = names(mount.path().to_owned()).unwrap();
        for name in ["a", "big", "good", "hole", "z"] {
            assert!(listed.contains(&name.to_owned()), "{listed:?}");
        }
        remote.reads(&mount, "a");
        // A name that is not listed can be opened.
        assert_eq!(read(mount.join("unknown/key.txt")).unwrap(), b"text");
        assert_eq!(errno(read(mount.join("unknown/other.txt"))), ENOENT);
        // Listing takes no request per name.
        remote.server.forget_requests();
        for array in ["good", "z", "hole"] {
            assert!(!names(mount.join(array)).unwrap().is_empty());
        }
        let sent = remote.server.requests().len();
        assert!(sent <= 6, "{sent} requests for three listings");
    }
}

#[test]
fn d13_links_of_a_page_are_names_even_if_the_url_has_a_query() {
    let remote = Remote::on(Server::listing_files(), Backend::Http, Format::V3);
    let mount = Mount::new(format!("{}?signature=x", remote.server.url_of("store")));
    let listed = names(mount.path().to_owned()).unwrap();
    assert!(listed.contains(&"a".to_owned()), "{listed:?}");
    let listed = names(mount.join("good")).unwrap();
    assert!(listed.len() > 1, "{listed:?}");
    let requests = remote.server.requests();
    assert!(
        requests
            .iter()
            .all(|requests| requests.query("signature") == Some("x"))
    );
}

#[test]
fn d13_a_directory_with_an_html_page_is_a_directory() {
    let server = Server::listing_files();
    server.add(on("*"), Fault::NoRedirect);
    let remote = Remote::on(server, Backend::Http, Format::V3);
    remote.put("plain/below/key.txt", *b"text");
    // Names are looked up with and without a preceding listing.
    let mount = remote.mount(&[]);
    assert_eq!(read(mount.join("plain/below/key.txt")).unwrap(), b"text");
    assert!(fs::metadata(mount.join("plain")).unwrap().is_dir());
    let mount = remote.mount(&[]);
    assert_eq!(names(mount.join("plain")).unwrap(), ["below"]);
    assert_eq!(names(mount.join("plain/below")).unwrap(), ["key.txt"]);
    remote.reads(&mount, "a");
}

#[test]
fn d13_directories_are_listed_by_servers_that_refuse_their_url_without_a_slash() {
    // 404 as from `rclone serve http`, 405 as from `rclone serve webdav`.
    for status in [404, 405] {
        let server = Server::listing_files();
        server.add(on("store/good"), Fault::status(status));
        server.add(on("store/plain"), Fault::status(status));
        let remote = Remote::on(server, Backend::Http, Format::V3);
        remote.put("zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#);
        remote.put("plain/key.txt", *b"text");
        let mount = remote.mount(&[]);
        let listed = names(mount.join("good")).unwrap();
        assert!(listed.contains(&"zarr.json".to_owned()), "{listed:?}");
        if status == 405 {
            assert_eq!(read(mount.join("plain/key.txt")).unwrap(), b"text");
        }
        remote.reads(&mount, "a");
    }
}

#[test]
fn d13_a_store_without_consolidated_metadata_is_mounted() {
    for backend in BOTH {
        for format in [Format::V2, Format::V3] {
            let remote = Remote::of(backend, format);
            match format {
                Format::V2 => remote.server.remove("store/.zmetadata"),
                Format::V3 => {
                    remote.put("zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#)
                }
            }
            let mount = remote.mount(&[]);
            remote.reads(&mount, "a");
            remote.reads(&mount, "z");
        }
    }
}

#[test]
fn d13_listings_of_a_server_count_as_incomplete() {
    // nginx lists no names that begin with a dot, such as the documents of v2 arrays.
    let remote = Remote::on(Server::listing_files(), Backend::Http, Format::V2);
    remote.server.remove("store/.zmetadata");
    let mount = remote.mount(&[]);
    remote.reads(&mount, "a");
    assert!(fs::metadata(mount.join("a/.zarray")).unwrap().is_file());
}

#[test]
fn d13_a_group_with_an_incomplete_listing_is_no_file() {
    let group = |mount: &Mount, name: &str| mount.join(".zarrfs").join(name);
    for server in [Server::files, Server::listing_files] {
        let remote = Remote::on(server(), Backend::Http, Format::V2);
        let mount = remote.mount(&[]);
        let file = read(group(&mount, "root.nc")).unwrap();
        assert!(file.starts_with(b"\x89HDF"));
        drop(mount);
        // Some arrays can be found, but a file of only these would look complete.
        remote.server.remove("store/.zmetadata");
        let mount = remote.mount(&[]);
        for name in ["root.nc", "root.cdf.nc"] {
            assert_eq!(errno(fs::metadata(group(&mount, name))), ENOENT);
        }
        assert!(
            !names(mount.join(".zarrfs"))
                .unwrap()
                .contains(&"store.nc".into())
        );
        let readme = fs::read_to_string(group(&mount, "README.txt")).unwrap();
        assert!(readme.contains("store.nc: children: "), "{readme}");
        remote.reads(&mount, "a");
    }
}

#[test]
fn d13_inner_groups_with_known_metadata_have_consolidated_documents() {
    let dir = scratch();
    let store = dir.path().join("store");
    let array = r#"{"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "order": "C",
        "compressor": null, "filters": null, "fill_value": 0}"#;
    let group = r#"{"zarr_format": 2}"#;
    let all = format!(
        r#"{{"zarr_consolidated_format": 1, "metadata": {{".zgroup": {group},
        "g/.zgroup": {group}, "g/x/.zarray": {array}}}}}"#
    );
    let put = |key: &str, text: &str| {
        let path = store.join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(".zgroup", group);
    put("g/.zgroup", group);
    put("g/x/.zarray", array);
    // The directory of a zip has all names, so that consolidated metadata are not needed.
    let zip = std::process::Command::new("python3")
        .args(["-m", "zipfile", "-c", "store.zip", "store/"])
        .current_dir(dir.path())
        .status();
    assert!(zip.unwrap().success());
    put(".zmetadata", &all);
    let local = Mount::new(&store);
    let server = Server::over(dir.path());
    let zip = format!("{}|zip:store", server.url_of("store.zip"));
    for source in [server.url_of("store"), zip] {
        let remote = Mount::with(&source, &["--formats", "all"]);
        let views = names(remote.join("g/.zarrfs")).unwrap();
        for name in ["zom.json", ".zmetadata"] {
            assert!(views.contains(&name.to_owned()), "{source}: {views:?}");
            let path = format!("g/.zarrfs/{name}");
            let [there, here] = [&remote, &local].map(|mount| read(mount.join(&path)).unwrap());
            let json = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
            assert_eq!(json(&there), json(&here), "{source}: {name}");
        }
    }
}

#[test]
fn d05_an_array_that_fails_temporarily_is_not_omitted_from_a_file() {
    let remote = Remote::new(Backend::S3);
    remote.put(
        "zarr.json",
        "{\"zarr_format\": 3, \"node_type\": \"group\"}",
    );
    let mount = remote.mount(&["--retries", "1", "--ttl", "100ms"]);
    remote
        .server
        .add(on("store/good/zarr.json"), Fault::status(500));
    let file = mount.join(".zarrfs/root.nc");
    assert_eq!(errno(read(&file)), EIO);
    // A partial listing would look complete, so it fails too; other views open by name.
    assert_eq!(errno(names(mount.join(".zarrfs"))), EIO);
    assert!(read(mount.join(".zarrfs/a.npy")).is_ok());
    remote.server.heal();
    assert!(wait_until(SOON, || names(mount.join(".zarrfs"))
        .is_ok_and(|names| names.contains(&"good.npy".into()))));
    assert!(wait_until(SOON, || read(&file)
        .is_ok_and(|bytes| bytes.starts_with(b"\x89HDF"))));
}

#[test]
fn d14_pages_follow_each_other_also_when_one_is_empty() {
    let remote = Remote::new(Backend::S3);
    remote.server.count("store/many/c/", 2_500);
    let mount = remote.mount(&["--ttl", "0s"]);
    remote
        .server
        .add(on("store/many/c/*").lists().every(2), Fault::EmptyPage);
    let listed = names(mount.join("many/c")).unwrap();
    assert_eq!(listed.len(), 2_500);
    assert_eq!(listed[2_499], "0002499");
    assert_eq!(
        read(mount.join("many/c/0000007")).unwrap(),
        7_u32.to_le_bytes()
    );
    assert_eq!(errno(fs::metadata(mount.join("many/c/0002500"))), ENOENT);
}

#[test]
fn d14_a_server_that_lists_all_names_again_or_in_no_order_lists_each_once() {
    for fault in [Fault::NoStartAfter, Fault::UnsortedPage] {
        let remote = Remote::new(Backend::S3);
        remote.server.count("store/many/c/", 2_500);
        remote.server.add(on("store/many/c/*").lists(), fault);
        let mount = remote.mount(&[]);
        let mut listed = names(mount.join("many/c")).unwrap();
        listed.sort();
        let expected: Vec<String> = (0..2_500).map(|i| format!("{i:07}")).collect();
        assert_eq!(listed, expected);
    }
}

#[test]
fn d14_an_object_that_stands_for_a_directory_is_one() {
    let remote = Remote::new(Backend::S3);
    for key in ["", "a/", "empty/", "deep/er/", "deep/er/empty/"] {
        remote.put(key, *b"");
    }
    let mount = remote.mount(&[]);
    for most in [1000, 2] {
        remote.server.add(on("*").lists(), Fault::MostNames(most));
        let mount = remote.mount(&["--ttl", "0s"]);
        assert_eq!(names(mount.join("deep")).unwrap(), ["er"]);
        assert_eq!(names(mount.join("deep/er")).unwrap(), ["empty"]);
        assert!(names(mount.join("empty")).unwrap().is_empty());
        assert!(fs::metadata(mount.join("deep/er/empty")).unwrap().is_dir());
        remote.reads(&mount, "a");
    }
    // Without a listing, too.
    assert!(fs::metadata(mount.join("empty")).unwrap().is_dir());
    assert_eq!(errno(fs::metadata(mount.join("empty/none"))), ENOENT);
}

/// Returns a group with more arrays than names on a listing page, without consolidated metadata.
fn group_of_pages(format: Format) -> (Remote, Vec<String>) {
    let remote = Remote::of(Backend::S3, format);
    let document = match format {
        Format::V2 => "a/.zarray",
        Format::V3 => "a/zarr.json",
    };
    match format {
        Format::V2 => remote.server.remove("store/.zmetadata"),
        Format::V3 => remote.put("zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#),
    }
    let array = remote.server.get(&format!("store/{document}")).unwrap();
    let names: Vec<String> = (0..12).map(|i| format!("variable{i:02}")).collect();
    for name in &names {
        let (_, file) = document.split_once('/').unwrap();
        remote.put(&format!("{name}/{file}"), array.clone());
    }
    remote.server.add(on("*").lists(), Fault::MostNames(5));
    (remote, names)
}

#[test]
fn d14_views_of_a_group_have_the_arrays_of_all_pages() {
    for format in [Format::V2, Format::V3] {
        let (remote, arrays) = group_of_pages(format);
        let translation = match format {
            Format::V2 => ".zarrfs/as-v3",
            Format::V3 => ".zarrfs/as-v2",
        };
        // Each read uses a new mount, which has not listed anything.
        let file = read(remote.mount(&[]).join(".zarrfs/root.nc")).unwrap();
        let classic = read(remote.mount(&[]).join(".zarrfs/root.cdf.nc")).unwrap();
        let views = names(remote.mount(&[]).join(".zarrfs")).unwrap();
        let translated = names(remote.mount(&[]).join(translation)).unwrap();
        let mount = remote.mount(&["--views", "list"]);
        let listed = names(mount.path().to_owned()).unwrap();
        assert!(listed.contains(&".zarrfs".to_owned()), "{listed:?}");
        for name in arrays {
            let has_name = |file: &[u8]| file.windows(name.len()).any(|at| at == name.as_bytes());
            assert!(has_name(&file), "{name} in root.nc");
            assert!(has_name(&classic), "{name} in root.cdf.nc");
            assert!(views.contains(&format!("{name}.npy")), "{name}: {views:?}");
            assert!(translated.contains(&name), "{name}: {translated:?}");
            assert!(listed.contains(&name), "{name}: {listed:?}");
        }
    }
}

#[test]
fn d14_a_removed_source_with_its_document_on_a_later_page_is_an_error() {
    let (remote, _) = group_of_pages(Format::V3);
    let mount = remote.mount(&["--ttl", "0s"]);
    remote
        .server
        .add(on("*").values(), Fault::s3(404, "NoSuchKey"));
    // The absence of chunks is valid for a second after the source was reached.
    let fails = || errno(read(whole_of(&mount, "hole"))) == EIO;
    assert!(wait_until(SOON, fails), "all chunks are taken for absent");
}

#[test]
fn d14_a_continuation_token_that_repeats_is_eio() {
    let remote = Remote::new(Backend::S3);
    remote.server.count("store/many/c/", 2_500);
    let mount = remote.mount(&["--ttl", "0s"]);
    for first_wrong in [1, 2] {
        remote.server.forget_requests();
        let rule = on("store/many/c/*").lists().from(first_wrong);
        remote.server.add(rule, Fault::RepeatedToken);
        let listed = in_time(LIMIT, "the listing", || names(mount.join("many/c")));
        assert_eq!(errno(listed), EIO);
        let requests = remote.server.requests_for("store/many/c/*").len();
        // The listing has three pages; a token that repeats would cause endless requests.
        assert!(requests <= 16, "{requests} pages");
        logged(&mount, &["token|page", "EIO"]);
        remote.siblings_work(&mount);
        remote.server.heal();
        let listed = in_time(SOON, "the next listing", || names(mount.join("many/c")));
        assert_eq!(listed.unwrap().len(), 2_500);
    }
}

#[test]
fn d14_a_truncated_or_invalid_page_is_eio() {
    let remote = Remote::new(Backend::S3);
    remote.server.count("store/many/c/", 1_500);
    let mount = remote.mount(&["--ttl", "0s", "--retries", "1"]);
    for fault in [
        Fault::TruncatedPage,
        Fault::html(),
        Fault::s3(200, "InternalError"),
        Fault::status(500),
        Fault::CloseAfter(100),
        Fault::Endless,
    ] {
        let what = format!("{fault:?}");
        for from in [1, 2] {
            let rule = on("store/many/c/*").lists().from(from);
            remote.server.add(rule, fault.clone());
            let listed = in_time(LIMIT, &what, || names(mount.join("many/c")));
            let found = errno(listed);
            assert!([EIO, ETIMEDOUT].contains(&found), "{what}: {found}");
            remote.siblings_work(&mount);
            remote.server.heal();
            let listed = in_time(SOON, "the next listing", || names(mount.join("many/c")));
            assert_eq!(listed.unwrap().len(), 1_500, "{what}");
        }
    }
    remote
        .server
        .add(on("*").lists(), Fault::s3(403, "AccessDenied"));
    assert_eq!(errno(names(mount.join("many/c"))), EACCES);
    remote.server.heal();
    remote.server.add(on("*").lists(), Fault::Stall);
    let listed = in_time(LIMIT, "a listing", || names(mount.join("many/c")));
    assert_eq!(errno(listed), ETIMEDOUT);
}

#[test]
fn d14_a_page_is_requested_again_when_its_connection_breaks() {
    let remote = Remote::new(Backend::S3);
    remote.server.count("store/many/c/", 500);
    let mount = remote.mount(&["--ttl", "0s"]);
    for fault in [Fault::CloseAfter(100), Fault::ResetAfter(100)] {
        let rule = on("store/many/c/*").lists().first(1);
        let rule = remote.server.add(rule, fault);
        assert_eq!(names(mount.join("many/c")).unwrap().len(), 500);
        assert_eq!(rule.hits(), 1);
        remote.server.heal();
    }
}

#[test]
fn d14_keys_that_are_no_file_names_hide_no_other_keys() {
    let remote = Remote::new(Backend::S3);
    let long = "x".repeat(300);
    for key in [
        "odd//double",
        "odd/../up",
        "odd/./here",
        "odd/",
        &format!("odd/{long}"),
    ] {
        remote.put(key, *b"odd");
    }
    remote.put("odd/even & <odd>", *b"even");
    let mount = remote.mount(&[]);
    assert_eq!(names(mount.join("odd")).unwrap(), ["even & <odd>"]);
    assert_eq!(read(mount.join("odd/even & <odd>")).unwrap(), b"even");
    assert_eq!(errno(fs::metadata(mount.join(format!("odd/{long}")))), 36);
    remote.siblings_work(&mount);
}

#[test]
fn a_listing_changes_no_key_that_is_mapped() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "0"]);
        stays_mapped(&mount.join(remote.key("big", 0)));
        stays_mapped(&remote.view(&mount, "z", 1));
        remote.siblings_work(&mount);
    }
}

#[test]
fn d14_a_million_keys_are_streamed() {
    let remote = Remote::new(Backend::S3);
    remote.server.count("store/many/c/", 1_000_000);
    let mount = remote.mount(&["--timeout", "30s"]);
    let before = mount.memory("VmRSS");
    remote.server.forget_requests();
    let mut entries = fs::read_dir(mount.join("many/c")).unwrap();
    entries.next().unwrap().unwrap();
    let pages = remote.server.requests_for("store/many/c/*").len();
    assert!(pages < 100, "{pages} pages for the first name");
    let mut count = 1;
    let mut last = std::ffi::OsString::new();
    for entry in entries {
        let name = entry.unwrap().file_name();
        assert!(name > last, "{name:?} follows {last:?}");
        last = name;
        count += 1;
    }
    assert_eq!(count, 1_000_000);
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 256 << 20, "{} MiB", grown >> 20);
    remote.siblings_work(&mount);
}
