//! D1, D2: proven absence, and apparent absence.

use std::fs;

use crate::faulty::*;
use crate::remote::*;
use crate::support::*;

#[test]
fn d01_an_absent_chunk_is_fill_values() {
    let fill: Vec<u8> = FILL.to_le_bytes().repeat(CHUNK);
    for backend in BOTH {
        for format in [Format::V2, Format::V3] {
            let remote = Remote::of(backend, format);
            let mount = remote.mount(&[]);
            let mut expected = whole();
            expected[CHUNK * 4..CHUNK * 8].copy_from_slice(&fill);
            assert!(read(whole_of(&mount, "hole")).unwrap() == expected);
            assert!(read(remote.view(&mount, "hole", 1)).unwrap() == fill);
            let native = mount.join(remote.key("hole", 1));
            assert_eq!(errno(fs::metadata(&native)), ENOENT);
            assert_eq!(errno(read(&native)), ENOENT);
            remote.reads(&mount, "z");
            remote.siblings_work(&mount);
            // A value that is written later is visible, at the latest when the cached absence expires.
            drop(mount);
            let mount = remote.mount(&["--ttl", "100ms"]);
            assert!(read(remote.view(&mount, "hole", 1)).unwrap() == fill);
            remote.put(&remote.key("hole", 1), chunk(1));
            let is_seen = || read(native_of(&remote, &mount)).is_ok_and(|b| b == chunk(1));
            assert!(wait_until(SOON, is_seen));
            let is_seen = || read(remote.view(&mount, "hole", 1)).unwrap() == chunk(1);
            assert!(wait_until(SOON, is_seen));
        }
    }
}

fn native_of(remote: &Remote, mount: &Mount) -> std::path::PathBuf {
    mount.join(remote.key("hole", 1))
}

#[test]
fn d02_an_absent_source_is_not_mounted() {
    let remote = Remote::new(Backend::Http);
    remote.server.add(on("*"), Fault::status(404));
    remote.is_refused(&["404|not found|no such|neither"]);

    let mut remote = Remote::new(Backend::S3);
    remote.server.add(on("*"), Fault::s3(404, "NoSuchBucket"));
    remote.is_refused(&["NoSuchBucket|bucket", "bucket"]);
    remote.server = Server::s3("bucket");
    remote.is_refused(&["not found|no such|nothing|empty|neither"]);
}

#[test]
fn d02_a_bucket_that_is_removed_is_an_error_and_never_fill_values() {
    let remote = Remote::new(Backend::S3);
    let mount = remote.mount(&["--ttl", "100ms"]);
    remote.reads(&mount, "good");
    remote.server.add(on("*"), Fault::s3(404, "NoSuchBucket"));
    for array in ["a", "hole"] {
        let view = read(remote.view(&mount, array, 1));
        is_one_of(view, &[EIO], "a chunk without its bucket");
        is_one_of(read(whole_of(&mount, array)), &[EIO], array);
    }
    logged(&mount, &["NoSuchBucket|bucket", "EIO"]);
    remote.heals(&mount, "a");
}

#[test]
fn d02_a_web_store_that_is_removed_is_an_error_and_never_fill_values() {
    let remote = Remote::new(Backend::Http);
    let mount = remote.mount(&["--ttl", "100ms"]);
    remote.reads(&mount, "good");
    // The host now belongs to a server that does not have this store.
    remote.server.add(on("*"), Fault::status(404));
    let view = read(remote.view(&mount, "a", 1));
    is_one_of(view, &[EIO, ENOENT], "a chunk of a removed store");
    is_one_of(read(whole_of(&mount, "a")), &[EIO, ENOENT], "the array");
    remote.heals(&mount, "a");
}

#[test]
fn d02_a_temporary_404_for_all_keys_is_an_error_and_never_fill_values() {
    for format in [Format::V2, Format::V3] {
        let remote = Remote::of(Backend::Http, format);
        let mount = remote.mount(&[]);
        // The server has just answered about the root and about absent keys.
        assert_eq!(errno(fs::metadata(mount.join("hole/nothing"))), ENOENT);
        let missing = remote.view(&mount, "hole", 1);
        assert!(read(&missing).unwrap() == FILL.to_le_bytes().repeat(CHUNK));
        assert!(read(remote.view(&mount, "a", 0)).unwrap() == chunk(0));
        remote.server.add(on("*"), Fault::status(404));
        for i in 1..4 {
            let view = read(remote.view(&mount, "a", i));
            is_one_of(view, &[EIO, ESTALE], "a chunk of a removed store");
        }
        is_one_of(
            read(whole_of(&mount, "z")),
            &[EIO, ESTALE, ENOENT],
            "the array",
        );
        remote.heals(&mount, "a");
        remote.heals(&mount, "z");
    }
}

/// A page for every name, as of a server that wants a login, and 410: programs that read native keys take ENOENT and
/// ENOTDIR for chunks that are not there.
#[test]
fn d02_the_same_response_for_every_key_is_an_error_and_never_absence() {
    for format in [Format::V2, Format::V3] {
        for fault in [Fault::html(), Fault::status(410)] {
            let remote = Remote::of(Backend::Http, format);
            let mount = remote.mount(&["--ttl", "100ms"]);
            remote.reads(&mount, "a");
            remote.server.add(on("*"), fault);
            assert!(wait_until(SOON, || fs::metadata(mount.join("a")).is_err()));
            for i in 1..4 {
                let native = mount.join(remote.key("a", i));
                is_one_of(read(&native), &[EIO], "a native key");
                is_one_of(read(remote.view(&mount, "a", i)), &[EIO], "a chunk");
            }
            for name in ["a", "hole", "nothing"] {
                assert_eq!(errno(fs::metadata(mount.join(name))), EIO, "{name}");
            }
            remote.heals(&mount, "a");
        }
    }
}

#[test]
fn i08_a_chunk_that_is_written_later_is_in_views_after_a_second() {
    for backend in BOTH {
        let remote = Remote::new(backend);
        let mount = remote.mount(&[]);
        let fill = FILL.to_le_bytes().repeat(CHUNK);
        let (view, whole_array) = (remote.view(&mount, "hole", 1), whole_of(&mount, "hole"));
        assert!(read(&view).unwrap() == fill);
        assert!(read(&whole_array).unwrap()[4 * CHUNK..8 * CHUNK] == fill);
        remote.put(&remote.key("hole", 1), chunk(1));
        let is_seen = || read(&view).unwrap() == chunk(1) && read(&whole_array).unwrap() == whole();
        assert!(
            wait_until(SOON, is_seen),
            "{backend:?}: the default TTL of absence is a second"
        );
    }
}

#[test]
fn i08_one_listing_proves_all_absent_chunks_of_a_bucket() {
    let remote = Remote::new(Backend::S3);
    let chunks = 200;
    let document = v3(CHUNK * chunks, CHUNK, false).to_string();
    remote.put("sparse/zarr.json", document);
    remote.put(&remote.key("sparse", 0), chunk(0));
    let mount = remote.mount(&[]);
    let path = whole_of(&mount, "sparse");
    let expected = [chunk(0), FILL.to_le_bytes().repeat(CHUNK * (chunks - 1))].concat();
    for _ in 0..3 {
        remote.server.forget_requests();
        assert!(read(&path).unwrap() == expected);
        let requests = remote.server.requests().len();
        assert!(requests <= 8, "{requests} requests for {chunks} chunks");
        // Absence is trusted for a second.
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
}
