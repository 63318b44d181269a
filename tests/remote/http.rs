//! Stores behind a web server, with and without listings.

use crate::compare::*;
use crate::servers::Nginx;
use crate::support::*;

/// Compares every tree through one location, by name.
fn trees_by_name(location: &str) {
    let served = served();
    let nginx = Nginx::start(served.path());
    for name in TREES {
        let remote = nginx.remote(location);
        assert_tree_equals_local(served.path(), &remote, name, Listing::ByName);
    }
}

#[test]
fn a_web_server_without_listings_has_every_key_by_its_name() {
    trees_by_name("");
}

#[test]
fn a_web_server_that_lists_in_html_has_every_key_even_those_that_it_does_not_list() {
    trees_by_name("index");
}

#[test]
fn a_web_server_that_lists_in_json_has_every_key_even_those_that_it_does_not_list() {
    trees_by_name("json");
}

#[test]
fn listings_of_a_web_server_have_every_key() {
    let served = served();
    let nginx = Nginx::start(served.path());
    for location in ["index", "json"] {
        // With consolidated metadata, listings have all chunks of the grid, even absent ones.
        let listed = TREES_WITHOUT_DOTS.into_iter();
        for name in listed.filter(|name| !name.contains("consolidated")) {
            let remote = nginx.remote(location);
            assert_tree_equals_local(served.path(), &remote, name, Listing::Complete);
        }
    }
}

#[test]
fn a_zip_behind_a_web_server_equals_the_local_one() {
    let served = served();
    let nginx = Nginx::start(served.path());
    for name in ZIPS {
        assert_zip_equals_local(served.path(), &nginx.remote(""), name);
    }
}

#[test]
fn a_stored_zip_is_read_in_parts_and_not_as_a_whole() {
    let served = served();
    let nginx = Nginx::start(served.path());
    let remote = nginx.remote("");
    let mounted = remote.mount("v2-zipstore.zip");
    assert!(!read(mounted.join(".zgroup")).unwrap().is_empty());
    let whole = served.path().join("v2-zipstore.zip");
    let whole = whole.metadata().unwrap().len();
    let read: u64 = nginx.requests().iter().map(|r| r.bytes).sum();
    assert!(read < whole / 2, "{read} of {whole}");
    mounted.unmount();
}

#[test]
fn a_web_server_that_ignores_ranges_has_every_key() {
    trees_by_name("norange");
}

#[test]
fn a_web_server_that_redirects_has_every_key() {
    trees_by_name("redirect");
}

#[test]
fn a_web_server_without_entity_tags_has_every_key() {
    trees_by_name("noetag");
}

#[test]
fn a_web_server_with_a_password_has_every_key() {
    trees_by_name("auth");
}

#[test]
fn a_web_server_with_403_for_absent_keys_has_every_key() {
    trees_by_name("closed");
}

#[test]
fn many_readers_of_keys_of_a_web_server_stay_within_the_memory_limit() {
    let (keys, bytes) = (128, 8_u64 << 20);
    let served = scratch();
    std::fs::write(served.path().join(".zgroup"), "{\"zarr_format\": 2}").unwrap();
    for key in 0..keys {
        let file = std::fs::File::create(served.path().join(format!("k{key}"))).unwrap();
        file.set_len(bytes).unwrap();
    }
    let nginx = Nginx::start(served.path());
    let mount = nginx.remote("").arg("--memory-limit").arg("64M").mount("");
    std::thread::scope(|scope| {
        for key in 0..keys {
            let path = mount.join(format!("k{key}"));
            scope.spawn(move || {
                let mut file = std::fs::File::open(path).unwrap();
                let copied = std::io::copy(&mut file, &mut std::io::sink()).unwrap();
                assert_eq!(copied, bytes);
            });
        }
    });
    let most = mount.memory("VmHWM");
    assert!(most <= 128 << 20, "{most} bytes with a limit of 64 MiB");
}
