//! I4, I5: objects that change at the source.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

/// Returns bytes of the same length, all of which differ.
fn changed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x55).collect()
}

/// Reads a part that the kernel has not cached.
fn part(file: &File, at: usize) -> std::io::Result<Vec<u8>> {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    let _ = fadvise(file, 0, None, Advice::Random);
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, at as u64).map(|()| bytes)
}

#[test]
fn i04_an_open_file_whose_object_changes_is_estale_and_never_a_mix() {
    for backend in BOTH {
        for new in [
            changed(&big()),
            changed(&big()[..BIG]),
            changed(&big().repeat(2)),
        ] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&["--ttl", "100ms"]);
            let path = mount.join(remote.key("big", 0));
            let file = File::open(&path).unwrap();
            assert!(part(&file, 0).unwrap() == big()[..4096]);
            remote.server.forget_requests();
            remote.put(&remote.key("big", 0), new.clone());
            // Cached parts may still be the old ones.
            for at in [900_000, 500_000, 4096] {
                is_right_or(part(&file, at), &big()[at..at + 4096], &[ESTALE], "a part");
            }
            let requests = remote.server.requests_for(&remote.at("big", 0));
            let sent = requests.iter().any(|r| r.method == "GET");
            assert!(sent, "the test reads cached bytes");
            is_one_of(part(&file, 700_000), &[ESTALE], "the old handle");
            // A new open gets the new content completely.
            let is_new = || read(&path).is_ok_and(|bytes| bytes == new);
            assert!(wait_until(SOON, is_new), "a new open sees the new content");
            is_one_of(part(&file, 600_000), &[ESTALE], "the old handle");
            remote.siblings_work(&mount);
        }
    }
}

#[test]
fn i04_a_date_in_only_one_of_two_responses_is_ignored() {
    for fault in [
        Fault::NoLastModified,
        Fault::LastModified("Mon, 01 Foo 2024 00:00:00 GMT".into()),
    ] {
        let remote = Remote::new(Backend::Http);
        let at = remote.at("big", 0);
        remote.server.add(on(&at), Fault::NoEtag);
        let mount = remote.mount(&[]);
        let file = File::open(mount.join(remote.key("big", 0))).unwrap();
        assert!(part(&file, 0).unwrap() == big()[..4096]);
        remote.server.put(&at, changed(&big()));
        remote.server.add(on(&at).get(), fault);
        is_one_of(part(&file, 700_000), &[ESTALE], "a part of another version");
    }
    // If responses have no date and no ETag, only the size identifies a version.
    let remote = Remote::new(Backend::Http);
    remote.server.add(on("*"), Fault::NoEtag);
    remote.server.add(on("*"), Fault::NoLastModified);
    let mount = remote.mount(&[]);
    remote.reads(&mount, "a");
}

#[test]
fn i04_every_range_request_names_the_version() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        let file = File::open(mount.join(remote.key("big", 0))).unwrap();
        part(&file, 0).unwrap();
        remote.server.forget_requests();
        part(&file, 900_000).unwrap();
        for request in remote.server.requests_for(&remote.at("big", 0)) {
            let is_bound = request.header("if-match").or(request.header("if-range"));
            assert!(is_bound.is_some(), "{request:?}");
        }
        // The server ignores conditions, and returns another ETag.
        let at = remote.at("big", 0);
        remote.server.add(on(&at), Fault::NoEtag);
        remote.server.put(&at, changed(&big()));
        is_one_of(part(&file, 400_000), &[ESTALE, EIO], "without an ETag");
    }
}

#[test]
fn i04_an_etag_that_changes_with_every_request_is_estale() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "100ms"]);
        let at = remote.at("big", 0);
        let file = File::open(mount.join(remote.key("big", 0))).unwrap();
        part(&file, 0).unwrap();
        remote
            .server
            .add(on(&at), Fault::Etag("\"another\"".into()));
        is_one_of(part(&file, 900_000), &[ESTALE], "another ETag");
        remote.siblings_work(&mount);
    }
}

#[test]
fn i04_a_chunk_that_changes_is_wholly_old_or_wholly_new() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "100ms"]);
        let view = remote.view(&mount, "a", 1);
        assert!(read(&view).unwrap() == chunk(1));
        let new = changed(&chunk(1));
        remote.put(&remote.key("a", 1), new.clone());
        let is_new = || {
            match crate::clients::read_uncached(&view) {
                Ok(bytes) => {
                    assert!(bytes == chunk(1) || bytes == new, "a mix");
                    bytes == new
                }
                // The attributes of the open were already too old at the read.
                Err(error) => error.raw_os_error() != Some(ESTALE) && panic!("{error}"),
            }
        };
        assert!(wait_until(SOON, is_new));
        let native = || read(mount.join(remote.key("a", 1))).is_ok_and(|b| b == new);
        assert!(wait_until(SOON, native));
    }
}

#[test]
fn i04_an_open_view_whose_chunk_changes_is_estale_and_never_a_mix() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "100ms"]);
        // The chunk of `big` is the end of its own files, but only some part of a group's file.
        let views = [
            "big/.zarrfs/chunks/c/0",
            "big/.zarrfs/big.npy",
            "big/.zarrfs/big.bin",
        ];
        for (number, view) in views.into_iter().enumerate() {
            let old = if number % 2 == 0 {
                big()
            } else {
                changed(&big())
            };
            let new = changed(&old);
            let path = mount.join(view);
            let file = File::open(&path).unwrap();
            let start = file.metadata().unwrap().len() as usize - old.len();
            assert!(part(&file, start).unwrap() == old[..4096], "{view}");
            remote.put(&remote.key("big", 0), new.clone());
            let is_stale = || match part(&file, start + 900_000) {
                Ok(bytes) => bytes != old[900_000..904_096] && panic!("{view}: a mix"),
                Err(error) => error.raw_os_error() == Some(ESTALE),
            };
            assert!(wait_until(SOON, is_stale), "{view} is not stale");
            let is_new = || read(&path).is_ok_and(|bytes| bytes[start..] == new);
            assert!(
                wait_until(SOON, is_new),
                "{view}: a new open has the new content"
            );
            is_one_of(part(&file, start), &[ESTALE], "the old handle");
            drop(file);
        }
        remote.siblings_work(&mount);
    }
}

#[test]
fn i04_an_open_group_file_whose_chunk_changes_is_estale_and_never_a_mix() {
    let remote = Remote::new(Backend::Http);
    let mount = remote.mount(&["--ttl", "100ms"]);
    let mut old = big();
    for view in [".zarrfs/root.nc", ".zarrfs/root.cdf.nc"] {
        let path = mount.join(view);
        let whole = read(&path).unwrap();
        // Classic NetCDF is big-endian.
        let stored = |bytes: &[u8]| -> Vec<u8> {
            let is_big = view.ends_with("cdf.nc");
            let (words, _) = bytes.as_chunks::<4>();
            let word = |word: &[u8; 4]| {
                if is_big {
                    [word[3], word[2], word[1], word[0]]
                } else {
                    *word
                }
            };
            words.iter().flat_map(word).collect()
        };
        let known = stored(&old[4096 * 20..4096 * 20 + 64]);
        let is_start = |window: &[u8]| window == known;
        let start = whole.windows(64).position(is_start).unwrap() - 4096 * 20;
        let file = File::open(&path).unwrap();
        assert!(
            part(&file, start).unwrap() == stored(&old[..4096]),
            "{view}"
        );
        let new = changed(&old);
        remote.put(&remote.key("big", 0), new.clone());
        let is_stale = || match part(&file, start + 900_000) {
            Ok(bytes) => bytes != stored(&old[900_000..904_096]) && panic!("{view}: a mix"),
            Err(error) => error.raw_os_error() == Some(ESTALE),
        };
        assert!(wait_until(SOON, is_stale), "{view} is not stale");
        let is_new = || {
            read(&path).is_ok_and(|bytes| {
                bytes[start + 900_000..][..4096] == stored(&new[900_000..904_096])
            })
        };
        assert!(
            wait_until(SOON, is_new),
            "{view}: a new open has the new content"
        );
        old = new;
    }
    remote.siblings_work(&mount);
}

#[test]
fn the_next_open_within_the_ttl_decodes_no_chunk() {
    let remote = Remote::new(Backend::Http);
    let mount = remote.mount(&["--ttl", "1m"]);
    let path = whole_of(&mount, "z");
    assert!(read(&path).unwrap() == whole());
    let counters = || {
        ["chunks_decoded", "chunks_reused"].map(|name| crate::clients::gauge(mount.path(), name))
    };
    let before = counters();
    assert!(read(&path).unwrap() == whole());
    assert_eq!(counters(), before);
}

#[test]
fn i04_an_object_that_is_removed_under_an_open_file_is_an_error() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "100ms"]);
        let path = mount.join(remote.key("big", 0));
        let file = File::open(&path).unwrap();
        part(&file, 0).unwrap();
        remote.server.remove(&remote.at("big", 0));
        is_one_of(part(&file, 900_000), &[ESTALE, EIO], "the removed object");
        let is_gone = || read(&path).is_err_and(|e| e.raw_os_error() == Some(ENOENT));
        assert!(wait_until(SOON, is_gone));
    }
}

#[test]
fn i05_without_any_validator_the_size_is_checked() {
    let remote = Remote::new(Backend::Http);
    remote.server.add(on("*"), Fault::NoEtag);
    remote.server.add(on("*"), Fault::NoLastModified);
    let mount = remote.mount(&["--ttl", "100ms"]);
    remote.reads(&mount, "a");
    remote.reads(&mount, "z");
    let path = mount.join(remote.key("big", 0));
    assert!(read(&path).unwrap() == big());
    let file = File::open(&path).unwrap();
    part(&file, 0).unwrap();
    let new = changed(&big().repeat(2));
    remote.put(&remote.key("big", 0), new.clone());
    // A cached part may still be the old one.
    let old = &big()[900_000..904_096];
    is_right_or(part(&file, 900_000), old, &[ESTALE], "another size");
    let is_new = || read(&path).is_ok_and(|bytes| bytes == new);
    assert!(wait_until(SOON, is_new));
}

#[test]
fn i05_a_date_is_a_validator_too() {
    let directory = scratch();
    let path = directory.path().join("store/value");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    std::fs::write(
        path.with_file_name("zarr.json"),
        r#"{"zarr_format":3,"node_type":"group"}"#,
    )
    .unwrap();
    std::fs::write(&path, big()).unwrap();
    let dated = |seconds: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    dated(1_600_000_000);
    let server = Server::over(directory.path());
    server.add(on("*"), Fault::NoEtag);
    let mount = Mount::with(
        server.url_of("store"),
        &["--ttl", "100ms", "--timeout", "2s"],
    );
    let file = File::open(mount.join("value")).unwrap();
    assert!(part(&file, 0).unwrap() == big()[..4096]);
    std::fs::write(&path, changed(&big())).unwrap();
    dated(1_700_000_000);
    is_one_of(part(&file, 900_000), &[ESTALE], "another date");
    let modified = std::fs::metadata(mount.join("zarr.json"))
        .unwrap()
        .modified();
    assert!(modified.is_ok());
}

/// Replaces the array `a` by one with big-endian chunks under the same keys, and other values. Returns what views
/// have of these.
fn replace_by_big_endian(remote: &Remote) -> Vec<u8> {
    let (document, swapped) = match remote.format {
        Format::V2 => ("a/.zarray", [("<i4", ">i4")]),
        Format::V3 => ("a/zarr.json", [("\"little\"", "\"big\"")]),
    };
    let text = remote.server.get(&format!("store/{document}")).unwrap();
    let mut text = String::from_utf8(text).unwrap();
    for (from, to) in swapped {
        assert!(text.contains(from), "{text}");
        text = text.replace(from, to);
    }
    remote.put(document, text);
    let elements = |i: usize| (i * CHUNK..(i + 1) * CHUNK).map(|i| element(i) + 5);
    for i in 0..4 {
        let stored: Vec<u8> = elements(i).flat_map(i32::to_be_bytes).collect();
        remote.put(&remote.key("a", i), stored);
    }
    let elements = (0..4).flat_map(elements);
    match remote.format {
        // The byte order belongs to the data type.
        Format::V2 => elements.flat_map(i32::to_be_bytes).collect(),
        Format::V3 => elements.flat_map(i32::to_le_bytes).collect(),
    }
}

#[test]
fn i06_a_replaced_array_is_never_decoded_with_old_metadata() {
    // Without consolidated metadata, each node is looked up by itself.
    for (format, is_consolidated) in [(Format::V2, true), (Format::V3, true), (Format::V2, false)] {
        for backend in BOTH {
            let remote = Remote::of(backend, format);
            if !is_consolidated {
                remote.server.remove("store/.zmetadata");
            }
            let has_attributes = !is_consolidated;
            if has_attributes {
                remote.put("a/.zattrs", r#"{"units": "of the old array"}"#);
            }
            let mount = remote.mount(&[]);
            let path = whole_of(&mount, "a");
            let file = File::open(&path).unwrap();
            let at = |i: usize| i * CHUNK * 4;
            let attributes = mount.join("a/.zarrfs/attributes.json");
            let has_units = |of: &str| match read(&attributes) {
                Ok(bytes) => bytes.windows(of.len()).any(|bytes| bytes == of.as_bytes()),
                Err(error) => error.raw_os_error() != Some(ESTALE) && panic!("attributes: {error}"),
            };
            if has_attributes {
                assert!(has_units("of the old array"));
            }
            assert!(part(&file, at(0)).unwrap() == whole()[..at(1)]);
            if has_attributes {
                remote.put("a/.zattrs", r#"{"units": "of the new array"}"#);
            }
            let new = replace_by_big_endian(&remote);
            let what = format!("{backend:?} {format:?} {is_consolidated}");
            is_one_of(
                part(&file, at(2)),
                &[ESTALE],
                &format!("{what}: the open file"),
            );
            let view = read(remote.view(&mount, "a", 3));
            is_right_or(view, &new[at(3)..], &[ESTALE], &format!("{what}: a chunk"));
            // Long before the default TTL of a minute.
            let is_new = || match read(&path) {
                Ok(bytes) => {
                    assert!(bytes == new, "{what}: wrong bytes");
                    true
                }
                Err(error) => error.raw_os_error() != Some(ESTALE) && panic!("{what}: {error}"),
            };
            assert!(wait_until(SOON, is_new), "{what}: a new open");
            if has_attributes {
                let is_new = || has_units("of the new array");
                assert!(wait_until(SOON, is_new), "{what}: attributes");
            }
            is_one_of(part(&file, at(1)), &[ESTALE], "the open file");
            remote.siblings_work(&mount);
        }
    }
}

#[test]
fn i06_a_chunk_that_was_read_before_an_array_was_restored_is_read_again() {
    for backend in BOTH {
        let remote = Remote::of(backend, Format::V3);
        let mount = remote.mount(&[]);
        let old: Vec<(String, Vec<u8>)> = (["store/a/zarr.json".to_owned()].into_iter())
            .chain((0..4).map(|i| remote.at("a", i)))
            .map(|key| (key.clone(), remote.server.get(&key).unwrap()))
            .collect();
        let view = remote.view(&mount, "a", 3);
        // The metadata are known now, and no chunk.
        std::fs::metadata(&view).unwrap();
        replace_by_big_endian(&remote);
        let native = mount.join(remote.key("a", 3));
        let new = remote.server.get(&remote.at("a", 3)).unwrap();
        assert!(wait_until(SOON, || read(&native).is_ok_and(|bytes| bytes == new)));
        for (key, value) in old {
            remote.server.put(&key, value);
        }
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let expected = &whole()[3 * CHUNK * 4..];
        is_right_or(read(&view), expected, &[ESTALE], &format!("{backend:?}"));
        assert!(
            wait_until(SOON, || read(&view).is_ok_and(|bytes| bytes == expected)),
            "{backend:?}"
        );
    }
}

#[test]
fn i06_chunks_of_an_array_that_is_removed_are_never_fill_values() {
    for backend in BOTH {
        for format in [Format::V2, Format::V3] {
            let remote = Remote::of(backend, format);
            let mount = remote.mount(&[]);
            let file = File::open(whole_of(&mount, "a")).unwrap();
            assert!(part(&file, 0).unwrap() == whole()[..4096]);
            let document = match format {
                Format::V2 => "a/.zarray",
                Format::V3 => "a/zarr.json",
            };
            remote.server.remove(&format!("store/{document}"));
            for i in 0..4 {
                remote.server.remove(&remote.at("a", i));
            }
            let gone = [ESTALE, ENOENT, EIO];
            is_one_of(part(&file, CHUNK * 8), &gone, "the open file");
            is_one_of(read(whole_of(&mount, "a")), &gone, "a new open");
            is_one_of(read(remote.view(&mount, "a", 3)), &gone, "a chunk");
            remote.siblings_work(&mount);
        }
    }
}
