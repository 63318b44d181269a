//! D8, D9, D10, D11, D15 and C3 for remote sources: responses that do not match the request.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d08_a_body_that_breaks_off_is_resumed() {
    for backend in BOTH {
        for fault in [
            Fault::Reset,
            Fault::Close,
            Fault::ResetAfter(1000),
            Fault::CloseAfter(0),
            Fault::CloseAfter(1000),
        ] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&[]);
            let keys = [("a", 0), ("z", 1), ("big", 0)].map(|(name, i)| remote.at(name, i));
            let rules = keys.map(|key| remote.server.add(on(&key).get().first(1), fault.clone()));
            let read = |path| in_time(LIMIT, "the read", || read(path)).unwrap();
            assert!(
                read(mount.join(remote.key("a", 0))) == chunk(0),
                "{fault:?}"
            );
            assert!(read(remote.view(&mount, "z", 1)) == chunk(1), "{fault:?}");
            assert!(read(mount.join(remote.key("big", 0))) == big(), "{fault:?}");
            assert!(rules.iter().all(|rule| rule.hits() == 1));
        }
    }
}

#[test]
fn d08_a_body_that_always_breaks_off_is_eio_and_never_short() {
    for backend in BOTH {
        for fault in [Fault::Reset, Fault::CloseAfter(0), Fault::ResetAfter(0)] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&["--retries", "2"]);
            remote.server.add(on(&remote.at("a", 1)).get(), fault);
            remote.chunk_fails(&mount, "a", 1, &[EIO]);
            remote.heals(&mount, "a");
        }
        // Partial bodies may be combined, or the read may fail.
        for fault in [Fault::CloseAfter(1000), Fault::ResetAfter(1000)] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&["--retries", "2"]);
            remote.server.add(on(&remote.at("a", 1)).get(), fault);
            let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("a", 1))));
            is_right_or(native, &chunk(1), &[EIO], "the key");
            let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, "a", 1)));
            is_right_or(view, &chunk(1), &[EIO], "the chunk");
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn d08_a_resumed_body_has_the_same_content() {
    let new: Vec<u8> = big().iter().map(|byte| byte ^ 0x40).collect();
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&["--ttl", "0s"]);
        let at = remote.at("big", 0);
        remote
            .server
            .add(on(&at).get().first(1), Fault::CloseAfter(50_000));
        remote
            .server
            .add(on(&at).get().from(2), Fault::Replace(new.clone()));
        let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("big", 0))));
        match native {
            Ok(bytes) => assert!(bytes == new || bytes == big(), "a mix of two contents"),
            failure => is_one_of(failure, &[EIO, ESTALE], "the key"),
        }
        remote.server.heal();
        let opened = || read(mount.join(remote.key("big", 0))).is_ok_and(|bytes| bytes == new);
        assert!(wait_until(SOON, opened), "a new open sees the new content");
    }
}

#[test]
fn d09_a_whole_object_in_place_of_a_range_is_used_or_refused() {
    for backend in BOTH {
        for is_framed in [true, false] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&[]);
            remote.server.add(on("store/*/c/*"), Fault::IgnoreRange);
            if !is_framed {
                remote.server.add(on("store/*/c/*").get(), Fault::Chunked);
            }
            let file = File::open(mount.join(remote.key("big", 0))).unwrap();
            let mut part = vec![0; 5000];
            let read_part = file.read_exact_at(&mut part, 700_000).map(|()| part);
            is_right_or(read_part, &big()[700_000..705_000], &[EIO], "a part");
            let native = read(mount.join(remote.key("a", 1)));
            is_right_or(native, &chunk(1), &[EIO], "the key");
            let view = read(remote.view(&mount, "z", 1));
            is_right_or(view, &chunk(1), &[EIO], "the chunk");
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn d09_an_endless_body_is_refused() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        remote
            .server
            .add(on(&remote.at("a", 1)).get(), Fault::Endless);
        remote
            .server
            .add(on(&remote.at("a", 1)), Fault::IgnoreRange);
        let before = mount.memory("VmHWM");
        remote.chunk_fails(&mount, "a", 1, &[EIO]);
        assert!(mount.memory("VmHWM") < before + (96 << 20), "it is held");
        assert!(
            wait_until(SOON, || remote.server.under_way() == 0),
            "it is still taken"
        );
        for request in remote.server.requests_for(&remote.at("a", 1)) {
            assert!(request.sent < 64 << 20, "{} bytes were taken", request.sent);
        }
        remote.heals(&mount, "a");
    }
}

#[test]
fn d10_a_response_with_another_range_is_eio() {
    for backend in BOTH {
        for fault in [
            Fault::WrongContentRange,
            Fault::ContentRange("bytes 0-3/4".into()),
            Fault::ContentRange("bytes */1048576".into()),
            Fault::ContentRange("lines 0-1/2".into()),
            Fault::ContentRange(String::new()),
            Fault::Multipart,
        ] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&[]);
            let what = format!("{fault:?}");
            let key = mount.join(remote.key("big", 0));
            let file = File::open(&key).unwrap();
            remote.server.forget_requests();
            remote.server.add(on(&remote.at("big", 0)).get(), fault);
            let mut part = vec![0; 5000];
            let read_part = file.read_exact_at(&mut part, 700_000).map(|()| part);
            // A request for the whole value, without a range, cannot get a wrong range.
            let requests = remote.server.requests_for(&remote.at("big", 0));
            match requests.iter().any(|r| r.status == Some(206)) {
                true => is_one_of(read_part, &[EIO, ESTALE], &what),
                false => is_right_or(read_part, &big()[700_000..705_000], &[EIO, ESTALE], &what),
            }
            remote.siblings_work(&mount);
            remote.server.heal();
            in_time(SOON, "the next read", || {
                assert!(read(key).unwrap() == big())
            });
        }
    }
}

#[test]
fn d10_a_range_with_status_200_is_checked_as_one_with_206() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        remote.server.add(on("store/*/c/*"), Fault::PartsAs200);
        let mount = remote.mount(&[]);
        let file = File::open(mount.join(remote.key("big", 0))).unwrap();
        let mut part = vec![0; 5000];
        file.read_exact_at(&mut part, 700_000).unwrap();
        assert!(part == big()[700_000..705_000], "{backend:?}");
        remote.reads(&mount, "a");
        remote.reads(&mount, "z");
        for wrong in [
            Fault::WrongContentRange,
            Fault::ContentRange("bytes 0-3/4".into()),
        ] {
            let mount = remote.mount(&[]);
            let file = File::open(mount.join(remote.key("big", 0))).unwrap();
            remote
                .server
                .add(on(&remote.at("big", 0)).get(), wrong.clone());
            let read_part = file.read_exact_at(&mut part, 700_000);
            is_one_of(read_part.map(|()| Vec::new()), &[EIO, ESTALE], "a part");
            remote.siblings_work(&mount);
        }
    }
}

#[test]
fn d10_a_body_that_was_transformed_is_eio() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        remote.server.add(on(&remote.at("a", 1)).get(), Fault::Gzip);
        remote.chunk_fails(&mount, "a", 1, &[EIO]);
        logged(&mount, &["a/c/1", "gzip|encoding", "EIO"]);
        remote.heals(&mount, "a");
        for request in remote.server.requests() {
            let accepted = request.header("accept-encoding").unwrap_or("identity");
            assert_eq!(accepted, "identity", "{request:?}");
        }
    }
}

#[test]
fn d11_head_requests_are_not_required() {
    for backend in BOTH {
        for status in [405, 501] {
            let remote = Remote::new(backend);
            remote.put("empty", *b"");
            remote.server.add(on("*").head(), Fault::status(status));
            let mount = remote.mount(&[]);
            remote.reads(&mount, "a");
            assert_eq!(read(mount.join("empty")).unwrap(), b"");
            let found = std::fs::metadata(mount.join(remote.key("big", 0)));
            assert_eq!(found.unwrap().len(), 4 * BIG as u64);
        }
    }
}

#[test]
fn d11_head_is_not_needed_for_a_url_that_is_signed_for_get() {
    let remote = Remote::new(Backend::Http);
    remote.server.add(on("*").head(), Fault::status(403));
    let mount = Mount::new(format!("{}?signature=x", remote.server.url_of("store")));
    assert_eq!(errno(read(mount.join("nothing"))), ENOENT);
    remote.reads(&mount, "a");
}

#[test]
fn d11_an_empty_value_is_read() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        remote.put("empty", *b"");
        let mount = remote.mount(&[]);
        let empty = mount.join("empty");
        assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
        assert_eq!(read(&empty).unwrap(), b"");
    }
}

#[test]
fn d11_a_head_response_with_size_0_is_not_trusted() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        remote.put("empty", *b"");
        remote.server.add(on("*").head(), Fault::EmptyHead);
        let mount = remote.mount(&["--ttl", "100ms"]);
        remote.reads(&mount, "a");
        assert!(read(mount.join(remote.key("big", 0))).unwrap() == big());
        assert_eq!(read(mount.join("empty")).unwrap(), b"");
        // Revalidation of the source does not make documents empty.
        let mount = remote.mount(&["--ttl", "100ms"]);
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(errno(read(mount.join("absent"))), ENOENT);
        let document = remote.server.get("store/zarr.json").unwrap();
        assert!(read(mount.join("zarr.json")).unwrap() == document);
    }
}

#[test]
fn d11_a_body_that_ends_with_the_connection_is_complete_only_if_its_size_is_known() {
    let remote = Remote::new(Backend::Http);
    let at = remote.at("big", 0);
    let key = remote.key("big", 0);
    let cut = Fault::CloseAfter(BIG);
    // Neither a length nor ranges, and cut off at the same position each time.
    let mount = remote.mount(&["--retries", "1"]);
    for fault in [Fault::Unframed, Fault::IgnoreRange, cut.clone()] {
        remote.server.add(on(&at), fault);
    }
    let native = in_time(LIMIT, "the key", || read(mount.join(&key)));
    is_one_of(native, &[EOPNOTSUPP], "the key");
    logged(&mount, &["big/c/0", "Content-Length", "EOPNOTSUPP"]);
    remote.siblings_work(&mount);
    remote.server.heal();
    // HEAD has the length.
    let mount = remote.mount(&["--retries", "1"]);
    remote.server.add(on(&at).get(), Fault::Unframed);
    remote.server.add(on(&at).get(), Fault::IgnoreRange);
    assert!(read(mount.join(&key)).unwrap() == big());
    assert!(read(remote.view(&mount, "big", 0)).unwrap() == big());
    let mount = remote.mount(&["--retries", "1"]);
    remote.server.add(on(&at).get(), cut);
    let native = in_time(LIMIT, "the key", || read(mount.join(&key)));
    is_one_of(native, &[EIO], "the key");
    let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, "big", 0)));
    is_one_of(view, &[EIO], "the chunk");
    // A server that always responds like this is distinguished from a broken one.
    for fault in [Fault::Unframed, Fault::IgnoreRange] {
        remote.server.add(on("*"), fault);
    }
    remote.is_refused(&["zarr.json", "Content-Length"]);
}

#[test]
fn d11_a_range_response_has_the_size_or_the_open_fails() {
    // S3 responses always have a length.
    for backend in [Backend::Http] {
        for frame in [Fault::Chunked, Fault::Unframed] {
            let remote = Remote::new(backend);
            let mount = remote.mount(&[]);
            remote.server.add(on("store/*/c/*"), frame.clone());
            remote.reads(&mount, "a");
            // Neither lengths nor ranges.
            remote.server.add(on(&remote.at("z", 1)), frame);
            remote
                .server
                .add(on(&remote.at("z", 1)), Fault::IgnoreRange);
            let stored = remote.server.get(&remote.at("z", 1)).unwrap();
            let native = in_time(LIMIT, "the key", || read(mount.join(remote.key("z", 1))));
            is_right_or(native, &stored, &[EOPNOTSUPP], "the key");
            let view = in_time(LIMIT, "the chunk", || read(remote.view(&mount, "z", 1)));
            is_right_or(view, &chunk(1), &[EIO, EOPNOTSUPP], "the chunk");
            remote.heals(&mount, "z");
        }
    }
}

#[test]
fn d15_an_error_of_s3_with_status_200_is_eio() {
    for code in ["InternalError", "SlowDown", "NoSuchKey"] {
        let remote = Remote::new(Backend::S3);
        let mount = remote.mount(&["--ttl", "0s", "--retries", "2"]);
        remote
            .server
            .add(on(&remote.at("a", 1)).get(), Fault::s3(200, code));
        remote.chunk_fails(&mount, "a", 1, &[EIO]);
        remote.server.heal();
        remote.server.add(on("*").lists(), Fault::s3(200, code));
        let listed = in_time(LIMIT, "a listing", || names(mount.join("a")));
        assert_eq!(errno(listed), EIO, "{code}");
        remote.heals(&mount, "a");
    }
}

#[test]
fn d15_an_html_page_with_status_200_is_no_chunk() {
    // The size of the page is valid as long as attributes are cached.
    for backend in BOTH {
        for format in [Format::V2, Format::V3] {
            let remote = Remote::of(backend, format);
            let mount = remote.mount(&["--ttl", "100ms"]);
            for array in ["a", "z"] {
                remote.server.add(on(&remote.at(array, 1)), Fault::html());
                remote.views_fail(&mount, array, 1, &[EIO]);
                remote.heals(&mount, array);
            }
            // HEAD is correct, but the body is not.
            let remote = Remote::of(backend, format);
            let mount = remote.mount(&["--ttl", "100ms"]);
            remote
                .server
                .add(on(&remote.at("a", 1)).get(), Fault::html());
            remote.views_fail(&mount, "a", 1, &[EIO, ESTALE]);
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn d15_an_html_page_is_no_store() {
    let server = Server::files();
    server.add(on("*"), Fault::html());
    let mount = in_time(Duration::from_secs(10), "mount", || {
        Mount::attempt(server.url_of("store"), &["--timeout", "2s"])
    });
    assert_refusal(&mount.unwrap_err(), &["page", "zarr.json"]);
}

#[test]
fn e01_bodies_that_never_end_stay_within_the_memory_limit() {
    let remote = Remote::new(Backend::Http);
    for key in 0..128 {
        let key = format!("endless/{key}");
        remote.put(&key, vec![7; 64]);
        let at = format!("store/{key}");
        remote.server.add(on(&at).get(), Fault::IgnoreRange);
        remote.server.add(on(&at).get(), Fault::Endless);
    }
    let mount = remote.mount(&["--memory-limit", "64M", "--retries", "0", "--timeout", "5s"]);
    std::thread::scope(|scope| {
        for key in 0..128 {
            let path = mount.join(format!("endless/{key}"));
            scope.spawn(move || assert!(read(&path).is_err(), "{path:?}"));
        }
    });
    let most = mount.memory("VmHWM");
    assert!(most <= 128 << 20, "{most} bytes with a limit of 64 MiB");
    remote.heals(&mount, "a");
}
