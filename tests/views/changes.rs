//! I6, I7, I8: arrays that change during a mount.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use serde_json::json;

use crate::clients::{EIO, ENOENT, ESTALE};
use crate::stores::*;
use crate::support::*;

const SOON: Duration = Duration::from_secs(10);

/// Rewrites the metadata of an array in one step.
fn rewrite(stores: &Stores, name: &str, changes: serde_json::Value) {
    let spare = Stores::new();
    spare.v2(name, changes, &[]);
    let text = fs::read(spare.path().join(name).join(".zarray")).unwrap();
    let new = stores.put(&format!("{name}/.new"), &text);
    fs::rename(new, stores.path().join(name).join(".zarray")).unwrap();
}

#[test]
fn i06_an_open_view_keeps_its_geometry_and_a_new_lookup_has_the_new_one() {
    for ttl in ["50ms", "1s"] {
        let stores = Stores::new();
        let chunks = [le(&[1, 2, 3, 4]), le(&[5, 6, 7, 8]), le(&[9, 10, 11, 12])];
        stores.v2(
            "x",
            json!({}),
            &[("0", &chunks[0]), ("1", &chunks[1]), ("2", &chunks[2])],
        );
        let mount = stores.mount(&["--ttl", ttl]);
        let path = view(&mount, "x", "x.bin");
        let open = File::open(&path).unwrap();
        let chunk = File::open(view(&mount, "x", "chunks/1")).unwrap();
        let before = fs::metadata(&path).unwrap();
        assert_eq!(before.len(), 32);

        rewrite(&stores, "x", json!({"shape": [12]}));
        let old = chunks[..2].concat();
        for _ in 0..20 {
            let mut bytes = vec![0; 64];
            let _ = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
            match open.read_at(&mut bytes, 0) {
                Ok(length) => assert_eq!(bytes[..length], old, "{ttl}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE), "{ttl}"),
            }
            let mut bytes = vec![0; 64];
            match chunk.read_at(&mut bytes, 0) {
                Ok(length) => assert_eq!(bytes[..length], chunks[1], "{ttl}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE), "{ttl}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let is_new = || fs::metadata(&path).is_ok_and(|now| now.len() == 48);
        assert!(wait_until(SOON, is_new), "{ttl}: the new shape is not seen");
        assert_eq!(read(&path).unwrap(), chunks.concat());
        assert_ne!(fs::metadata(&path).unwrap().ino(), before.ino());
        assert_eq!(names(view(&mount, "x", "chunks")).len(), 3);
        assert_eq!(
            xattr(&mount.join("x"), "user.zarr.shape").as_deref(),
            Some("[12]")
        );

        // Another type of the same size: the elements have the same bytes, but the header changes.
        rewrite(&stores, "x", json!({"shape": [12], "dtype": ">i4"}));
        let has_new_type = || {
            read(view(&mount, "x", "x.npy"))
                .is_ok_and(|npy| npy[..64].windows(3).any(|w| w == b">i4"))
        };
        assert!(
            wait_until(SOON, has_new_type),
            "{ttl}: the new type is not seen"
        );
        assert_others_served(&mount, &stores);
    }
}

#[test]
fn i06_chunks_written_under_new_metadata_are_not_decoded_with_the_old_ones() {
    let stores = Stores::new();
    let delta = json!({"filters": [{"id": "delta", "dtype": "<i4"}]});
    stores.v2(
        "x",
        delta,
        &[("0", &le(&[1, 1, 1, 1])), ("1", &le(&[5, 1, 1, 1]))],
    );
    let old = le(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let mount = stores.mount(&["--ttl", "50ms"]);
    let open = File::open(view(&mount, "x", "x.bin")).unwrap();
    let chunk = File::open(view(&mount, "x", "chunks/1")).unwrap();
    // An array with the same name, shape and type is rewritten without the filter.
    rewrite(&stores, "x", json!({}));
    stores.put("x/0", &le(&GOOD[..4]));
    stores.put("x/1", &le(&GOOD[4..]));
    let new = le(&GOOD);
    for (file, old, new) in [
        (&open, &old[..], &new[..]),
        (&chunk, &old[16..], &new[16..]),
    ] {
        let mut bytes = vec![0; old.len()];
        match file.read_at(&mut bytes, 0) {
            Ok(_) => assert!(
                bytes == old || bytes == new,
                "neither old nor new: {bytes:?}"
            ),
            Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE)),
        }
    }
    let path = view(&mount, "x", "x.bin");
    let is_new = || read(&path).is_ok_and(|bytes| bytes == new);
    assert!(wait_until(SOON, is_new));
    assert_others_served(&mount, &stores);
}

#[test]
fn i06_a_view_fails_while_its_array_is_unreadable_and_recovers() {
    let stores = Stores::new();
    stores.v2("x", json!({}), &[("0", &le(&GOOD[..4]))]);
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "x", "x.bin");
    assert_eq!(read(&path).unwrap().len(), 32);
    stores.put("x/.zarray", b"{ half");
    let gone = || fs::metadata(&path).is_err_and(|e| e.raw_os_error() == Some(ENOENT));
    assert!(wait_until(SOON, gone));
    assert!(readme(&mount, "x").contains("line 1"));
    rewrite(&stores, "x", json!({"shape": [4]}));
    let back = || read(&path).is_ok_and(|bytes| bytes == le(&GOOD[..4]));
    assert!(wait_until(SOON, back));
    assert_others_served(&mount, &stores);
}

#[test]
fn i06_a_view_that_was_stale_can_be_opened_again_at_once() {
    for name in ["x/.zarrfs/x.npy", "x/.zarrfs/chunks/1", ".zarrfs/root.nc"] {
        let stores = Stores::new();
        let chunks = [le(&GOOD[..4]), le(&GOOD[4..])];
        stores.v2("x", json!({}), &[("0", &chunks[0]), ("1", &chunks[1])]);
        // Much longer than the test takes.
        let mount = stores.mount(&["--ttl", "10m"]);
        let path = mount.join(name);
        let open = File::open(&path).unwrap();
        rewrite(&stores, "x", json!({"shape": [12]}));
        let mut bytes = vec![0; usize::try_from(open.metadata().unwrap().len()).unwrap()];
        let found = open.read_exact_at(&mut bytes, 0);
        // The chunks of a NetCDF file were read when it was opened.
        let is_read_at_open = name.ends_with("nc");
        match found {
            Ok(()) => assert!(is_read_at_open, "{name}"),
            Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE), "{name}"),
        }
        let after = read(&path);
        assert!(after.is_ok(), "{name}: {}", after.unwrap_err());
        if name.ends_with("npy") {
            let elements = [chunks.concat(), le(&[FILL; 4])].concat();
            assert!(after.unwrap().ends_with(&elements));
        }
        assert_others_served(&mount, &stores);
    }
}

#[test]
fn i07_a_removed_array_is_enoent_and_an_open_view_fails_or_has_the_old_content() {
    let stores = Stores::new();
    stores.v2(
        "x",
        json!({}),
        &[("0", &le(&GOOD[..4])), ("1", &le(&GOOD[4..]))],
    );
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "x", "x.bin");
    let open = File::open(&path).unwrap();
    let mut bytes = vec![0; 32];
    open.read_exact_at(&mut bytes, 0).unwrap();
    fs::remove_dir_all(stores.path().join("x")).unwrap();
    let gone = || fs::metadata(&path).is_err_and(|e| e.raw_os_error() == Some(ENOENT));
    assert!(wait_until(SOON, gone));
    // A chunk without a file consists of fill values only as long as its array exists. Some of
    // these reads come after all cached metadata have expired.
    for _ in 0..20 {
        let _ = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
        let mut after = vec![0; 32];
        match open.read_at(&mut after, 0) {
            Ok(length) => assert_eq!(after[..length], le(&GOOD)),
            Err(error) => assert!(
                [ESTALE, EIO, ENOENT].contains(&error.raw_os_error().unwrap()),
                "{error}"
            ),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn i07_a_source_that_is_removed_and_written_again_is_followed() {
    for ttl in ["50ms", "1s"] {
        let stores = Stores::new();
        stores.v2("x", json!({}), &[("0", &le(&GOOD[..4]))]);
        let mount = stores.mount(&["--ttl", ttl]);
        let path = view(&mount, "x", "x.bin");
        let open = File::open(&path).unwrap();
        assert_eq!(read(&path).unwrap()[..16], le(&GOOD[..4]));

        // As zarr-python opens a directory with mode "w".
        fs::remove_dir_all(stores.path()).unwrap();
        let is_empty = || names(mount.path()).is_empty();
        assert!(wait_until(SOON, is_empty), "{ttl}");
        fs::create_dir(stores.path()).unwrap();
        stores.put(".zgroup", br#"{"zarr_format": 2}"#);
        stores.v2("x", json!({"shape": [4]}), &[("0", &le(&[9, 8, 7, 6]))]);
        stores.v2("y", json!({"shape": [4]}), &[]);
        let is_new = || read(&path).is_ok_and(|bytes| bytes == le(&[9, 8, 7, 6]));
        assert!(wait_until(SOON, is_new), "{ttl}: {:?}", read(&path));
        let is_listed = || names(mount.path()) == [".zgroup", "x", "y"];
        assert!(wait_until(SOON, is_listed), "{ttl}");
        let _ = rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed);
        let mut bytes = [0; 32];
        match open.read_at(&mut bytes, 0) {
            Ok(length) => assert_eq!(bytes[..length.min(16)], le(&GOOD[..4])),
            Err(error) => assert_eq!(error.raw_os_error(), Some(ESTALE), "{ttl}"),
        }
    }
}

#[test]
fn i08_a_new_chunk_is_seen_a_second_later() {
    let stores = Stores::new();
    let codecs = [json!(null), json!({"id": "zlib", "level": 1})];
    for (number, compressor) in codecs.iter().enumerate() {
        stores.v2(
            &format!("x{number}"),
            json!({"compressor": compressor}),
            &[],
        );
    }
    let mount = stores.mount(&[]);
    for (number, compressor) in codecs.iter().enumerate() {
        let name = format!("x{number}");
        let (chunk, whole) = (
            view(&mount, &name, "chunks/1"),
            view(&mount, &name, &format!("{name}.bin")),
        );
        assert_eq!(read(&chunk).unwrap(), le(&[FILL; 4]));
        assert_eq!(read(&whole).unwrap(), le(&[FILL; 8]));
        let bytes = le(&[5, 6, 7, 8]);
        let stored = if compressor.is_null() {
            bytes.clone()
        } else {
            zlib(&bytes)
        };
        stores.put(&format!("{name}/1"), &stored);
        let is_there = || read(&chunk).unwrap() == bytes && read(&whole).unwrap()[16..] == bytes;
        assert!(
            wait_until(SOON, is_there),
            "{name}: the new chunk is not seen"
        );

        // The same chunk with other content.
        let bytes = le(&[-5, -6, -7, -8]);
        let stored = if compressor.is_null() {
            bytes.clone()
        } else {
            zlib(&bytes)
        };
        let new = stores.put(&format!("{name}/.new"), &stored);
        fs::rename(new, stores.path().join(&name).join("1")).unwrap();
        let is_there = || read(&chunk).unwrap() == bytes && read(&whole).unwrap()[16..] == bytes;
        assert!(
            wait_until(SOON, is_there),
            "{name}: the new content is not seen"
        );

        // The chunk is removed again, and reads as fill values.
        fs::remove_file(stores.path().join(&name).join("1")).unwrap();
        let is_gone = || read(&chunk).unwrap() == le(&[FILL; 4]);
        assert!(
            wait_until(SOON, is_gone),
            "{name}: the removed chunk is still seen"
        );
    }
    assert_others_served(&mount, &stores);
}

#[test]
fn a_text_that_becomes_another_has_the_size_of_its_bytes() {
    let stores = Stores::new();
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let mount = stores.mount(&["--ttl", "50ms"]);
    let path = view(&mount, "", "README.txt");
    // Held open, so that the kernel keeps its cached attributes.
    let held = File::open(&path).unwrap();
    let before = fs::read_to_string(&path).unwrap();
    assert!(!before.contains("odd"), "{before}");
    assert_eq!(fs::metadata(&path).unwrap().len(), before.len() as u64);
    stores.v2("odd", json!({"dtype": "<q7"}), &[]);
    let is_new = || fs::read_to_string(&path).is_ok_and(|text| text.contains("odd is not in it"));
    assert!(wait_until(SOON, is_new), "{:?}", fs::read_to_string(&path));
    let (size, text) = (fs::metadata(&path).unwrap().len(), read(&path).unwrap());
    assert_eq!(size, text.len() as u64);
    assert!(text.len() > before.len());
    drop(held);
    assert_others_served(&mount, &stores);
}

/// The names and sizes of the files in a directory, of one listing.
fn sizes(directory: &std::path::Path) -> std::collections::BTreeMap<String, u64> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let sized = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, entry.metadata().unwrap().len())
    });
    sized.collect()
}

#[test]
fn i06_the_listing_of_the_views_of_a_group_follows_arrays_that_are_written_again_or_added() {
    let stores = Stores::new();
    let chunk = le(&[1, 2, 3, 4]);
    for index in 0..20 {
        stores.v2(&format!("a{index}"), json!({}), &[("0", &chunk)]);
    }
    stores.put(".zgroup", br#"{"zarr_format": 2}"#);
    let mount = stores.mount(&["--ttl", "50ms"]);
    let views = mount.join(".zarrfs");
    let before = sizes(&views);
    assert_eq!(before["a7.npy"], 160);
    assert_eq!(sizes(&views), before);

    rewrite(&stores, "a7", json!({"shape": [12]}));
    let has_grown = || sizes(&views)["a7.npy"] == 176;
    assert!(wait_until(SOON, has_grown), "the new shape is not listed");
    let mut after = sizes(&views);
    after.retain(|name, size| before.get(name) != Some(size));
    let changed = after.into_keys().collect::<Vec<_>>();
    let of_a7 = |name: &String| name.starts_with("a7.") || !name.starts_with('a');
    assert!(changed.iter().all(of_a7), "{changed:?}");

    stores.v2("b", json!({}), &[("0", &chunk)]);
    let is_added = || sizes(&views).contains_key("b.npy");
    assert!(wait_until(SOON, is_added), "the new array is not listed");
    assert_eq!(read(views.join("b.npy")).unwrap().len(), 160);
    assert_others_served(&mount, &stores);
}
