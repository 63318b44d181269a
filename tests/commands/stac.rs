//! STAC items and collections as sources: their Zarr assets are members of a collection, each opened when it is used.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::faulty::{Fault, Server, on};
use crate::place::Place;
use crate::stores::*;
use crate::support::*;

const EIO: i32 = 5;
const EACCES: i32 = 13;
const ZARR: &str = "application/vnd+zarr";

/// An item in the form that pystac writes, with these assets.
fn item(assets: &Value) -> String {
    let item = json!({
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [],
        "id": "S02MSIL2A_20250601T101559",
        "geometry": {"type": "Polygon", "coordinates": [[[11.0, 46.0], [12.0, 46.0], [11.0, 47.0], [11.0, 46.0]]]},
        "bbox": [11.0, 46.0, 12.0, 47.0],
        "properties": {"datetime": "2025-06-01T10:15:59Z"},
        "links": [{"rel": "collection", "href": "./collection.json", "type": "application/json"}],
        "assets": assets,
    });
    item.to_string()
}

/// A collection in the order of members of the API of the Planetary Computer.
fn collection(assets: &Value) -> String {
    let collection = json!({
        "id": "daymet-daily-hi",
        "type": "Collection",
        "links": [{"rel": "items", "type": "application/geo+json", "href": "https://example.org/items"}],
        "title": "Daymet Daily Hawaii",
        "assets": assets,
        "extent": {"spatial": {"bbox": [[-160.3, 17.9, -154.7, 23.5]]}},
        "license": "proprietary",
        "stac_version": "1.0.0",
    });
    collection.to_string()
}

fn zarr(href: &str) -> Value {
    json!({"href": href, "type": ZARR, "roles": ["data", "zarr"]})
}

/// Writes a group with a nested array of two values, at `measurements/r10m/b02`.
fn write_store(dir: &Path, value: u8) {
    group(dir);
    group(&dir.join("measurements"));
    group(&dir.join("measurements/r10m"));
    let array_dir = dir.join("measurements/r10m/b02");
    let shape = json!([2]);
    array(&array_dir, &shape, &regular(&json!([1])), &json!(["bytes"]));
    write(array_dir.join("c/0"), [value]);
    write(array_dir.join("c/1"), [value + 1]);
}

/// Serves two stores below `data`.
fn server() -> Server {
    let dir = scratch();
    let server = Server::files();
    for (name, value) in [("a.zarr", 1), ("b.zarr", 5)] {
        let store = dir.path().join(name);
        write_store(&store, value);
        server.put_tree(&format!("data/{name}"), &store);
    }
    server
}

fn assert_view(mount: &Path, asset: &str, values: [u8; 2]) {
    let view = mount.join(asset).join("measurements/r10m/.zarrfs/b02.npy");
    let bytes = read(&view).unwrap();
    assert!(bytes.ends_with(&values), "{}", view.display());
}

#[test]
fn the_zarr_assets_of_a_local_item_are_mounted_by_their_names() {
    let place = Place::new();
    let dir = place.make_dir("stac");
    write_store(&dir.join("S2.zarr"), 1);
    write_store(&dir.join("b.zarr"), 5);
    let zip = place.zip_of(&dir.join("b.zarr"));
    std::fs::copy(zip, dir.join("other.zarr.zip")).unwrap();
    let assets = json!({
        "product": {"href": "./S2.zarr", "type": "application/vnd.zarr; version=3", "roles": ["data", "metadata"]},
        "SR_10m": zarr("S2.zarr/measurements/r10m"),
        "zipped": {"href": dir.join("other.zarr.zip")},
        "thumbnail": {"href": "./thumbnail.png", "type": "image/png"},
    });
    let item = item(&assets);
    let source = dir.join("item.json");
    write(&source, item);
    let text = source.to_str().unwrap();
    let tree = json_of(run_on("tree", text, &["--json"]).ok());
    assert_eq!(tree["totals"]["arrays"], 3, "{tree}");
    let info = json_of(run_on("info", text, &["--json"]).ok());
    assert_eq!(
        info["hierarchies"],
        json!(["SR_10m", "product", "zipped"]),
        "{info}"
    );
    let not_shown = "assets that are no Zarr are not shown: thumbnail (image/png)";
    assert!(info["problems"].to_string().contains(not_shown), "{info}");
    // That an asset is no Zarr is no defect.
    run_on("check", text, &[]).ok();
    run_on("check", text, &["--strict"]).ok();
    let file = place.join("b02.npy");
    let file = file.to_str().unwrap();
    let path = ["--path", "product/measurements/r10m/b02", file];
    run_on("export", text, &path).ok();
    assert!(read(file).unwrap().ends_with(&[1, 2]));
    let part = format!("{text}|zarr:zipped/measurements");
    let tree = json_of(run_on("tree", &part, &["--json"]).ok());
    assert_eq!(tree["totals"]["arrays"], 1, "{tree}");
    place.mount(&source, &[]);
    assert_view(&place.path, "product", [1, 2]);
    assert_view(&place.path, "zipped", [5, 6]);
    let view = place.path.join("SR_10m/.zarrfs/b02.npy");
    assert!(read(view).unwrap().ends_with(&[1, 2]));
    let readme = std::fs::read_to_string(place.path.join(".zarrfs/README.txt")).unwrap();
    for words in [not_shown, "\n    product/.zarrfs\n"] {
        assert!(readme.contains(words), "{words}: {readme}");
    }
    place.unmount(&[]).ok();
}

#[test]
fn a_mount_and_a_listing_of_a_remote_collection_open_no_asset() {
    let server = server();
    let assets = json!({
        "zarr-a": zarr("./data/a.zarr"),
        "zarr-b": zarr(&server.url_of("data/b.zarr")),
        "thumbnail": {"href": "https://example.org/t.png", "type": "image/png"},
    });
    // As a file, and as the answer of an API without a suffix.
    for name in ["daymet.json", "collections/daymet"] {
        let text = collection(&assets).replace("./data", &server.url_of("data"));
        server.put(name, text);
        server.forget_requests();
        let mount = Mount::new(server.url_of(name));
        let mut names: Vec<_> = std::fs::read_dir(mount.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["zarr-a", "zarr-b"]);
        let requests = server.requests();
        println!("{name}: {} requests for mount and ls", requests.len());
        assert!(server.requests_for("data/*").is_empty(), "{requests:?}");
        let most = if name.ends_with(".json") { 1 } else { 10 };
        assert!(requests.len() <= most, "{requests:?}");
        assert_view(mount.path(), "zarr-a", [1, 2]);
        assert!(server.requests_for("data/b.zarr/*").is_empty());
        println!("{name}: {} requests after a view", server.requests().len());
        assert_view(mount.path(), "zarr-b", [5, 6]);
        mount.unmount();
    }
    let tree = json_of(run_on("tree", server.url_of("daymet.json"), &["--json"]).ok());
    assert_eq!(tree["totals"]["arrays"], 0, "{tree}");
}

#[test]
fn references_are_relative_to_the_url_of_the_document() {
    let server = server();
    let assets = json!({"a": zarr("../data/a.zarr"), "b": zarr("/data/b.zarr")});
    server.put("items/x/item.json", item(&assets));
    // `..` leads from items/x to items.
    let refused = Mount::new(server.url_of("items/x/item.json"));
    assert!(read(refused.path().join("a/zarr.json")).is_err());
    refused.unmount();
    server.put("items/item.json", item(&assets));
    let mount = Mount::new(server.url_of("items/item.json"));
    assert_view(mount.path(), "a", [1, 2]);
    assert_view(mount.path(), "b", [5, 6]);
    mount.unmount();
}

#[test]
fn an_item_in_a_bucket_has_its_assets_there() {
    let dir = scratch();
    write_store(&dir.path().join("a.zarr"), 1);
    let server = Server::s3("bucket");
    server.put_tree("stac", dir.path());
    let assets = json!({"a": zarr("./a.zarr"), "same": zarr("s3://bucket/stac/a.zarr/")});
    server.put("stac/item.json", item(&assets));
    let options = ["--anonymous", "--endpoint-url", &server.url()];
    let source = "s3://bucket/stac/item.json";
    let tree = json_of(run_on("tree", source, &[&options[..], &["--json"]].concat()).ok());
    assert_eq!(tree["totals"]["arrays"], 2, "{tree}");
    server.forget_requests();
    let mount = Mount::with(source, &options);
    assert_eq!(std::fs::read_dir(mount.path()).unwrap().count(), 2);
    println!(
        "bucket: {} requests for mount and ls",
        server.requests().len()
    );
    assert_eq!(server.requests().len(), 1, "{:?}", server.requests());
    assert_view(mount.path(), "same", [1, 2]);
    mount.unmount();
}

#[test]
fn an_asset_that_cannot_be_opened_is_an_error_that_names_it_and_the_others_work() {
    let server = server();
    let forbidden = Server::files();
    let assets = json!({
        "a": zarr("data/a.zarr"),
        "missing": zarr("data/missing.zarr"),
        "elsewhere": zarr(&forbidden.url_of("x.zarr")),
        "metadata": zarr("file:///etc"),
        "../up": zarr("data/a.zarr"),
    });
    server.put("item.json", item(&assets));
    let source = server.url_of("item.json");
    let mount = Mount::new(&source);
    assert_view(mount.path(), "a", [1, 2]);
    for asset in ["elsewhere", "metadata"] {
        assert_eq!(errno(read(mount.join(asset).join("zarr.json"))), EACCES);
        assert_eq!(
            errno(std::fs::read_dir(mount.join(asset)).map(Iterator::count)),
            EACCES
        );
    }
    assert_eq!(
        errno(std::fs::read_dir(mount.join("missing")).map(Iterator::count)),
        EIO
    );
    let log = mount.log();
    for words in [
        "missing: the source failed: the asset cannot be opened",
        "--allow-target http://127.0.0.1:",
        "metadata: access denied: the asset: it is not below the directory of the STAC document",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    mount.unmount();
    assert!(forbidden.requests().is_empty());
    let check = run_on("check", &source, &[]);
    assert_eq!(check.code, Some(1), "{check:?}");
    for words in [
        "missing",
        "elsewhere",
        "metadata",
        "the asset \"../up\" is not shown",
    ] {
        assert!(check.out.contains(words), "{words}: {check:?}");
    }
    // Also for the first asset.
    let tree = run_on("tree", &source, &[]);
    assert!(tree.out.contains("elsewhere"), "{tree:?}");
}

#[test]
fn an_asset_that_failed_is_tried_again_also_if_the_source_does_not_change() {
    let server = server();
    server.put("item.json", item(&json!({"a": zarr("data/a.zarr")})));
    let source = server.url_of("item.json");
    let mount = Mount::with(&source, &["--immutable", "--retries", "0"]);
    server.add(on("data/*"), Fault::status(503));
    let asset = mount.path().join("a");
    assert_eq!(errno(std::fs::read_dir(&asset).map(Iterator::count)), EIO);
    server.heal();
    let limit = Duration::from_secs(20);
    assert!(wait_until(limit, || asset.join("zarr.json").exists()));
    assert_view(mount.path(), "a", [1, 2]);
}

/// The assets of one document list all their names, or not, which is known when they are open.
#[test]
fn a_check_names_the_absent_chunks_of_each_asset() {
    let server = server();
    let place = Place::new();
    let store = place.make_dir("stores").join("a.zarr");
    write_store(&store, 1);
    let chunks = "measurements/r10m/b02/c";
    std::fs::remove_file(store.join(chunks).join("1")).unwrap();
    server.put("data/a.zarr.zip", read(place.zip_of(&store)).unwrap());
    server.remove(&format!("data/b.zarr/{chunks}/0"));
    let line = |name: &str, chunk: u8| {
        format!(
            "{name}measurements/r10m/b02: 1 of 2 chunks is absent and read as fill values: c/{chunk}\n"
        )
    };
    let zip = zarr("data/a.zarr.zip");
    let listed = zarr("data/b.zarr/measurements/r10m/b02");
    server.put("both.json", item(&json!({"a": zip, "b": listed})));
    server.put("zip.json", item(&json!({"a": zip})));
    let check = run_on("check", server.url_of("zip.json"), &[]);
    assert!(check.ok().out.contains(&line("a/", 1)), "{check:?}");
    let check = run_on("check", server.url_of("both.json"), &[]);
    assert!(check.ok().out.contains(&line("a/", 1)), "{check:?}");
    let of_array = "b: 1 of 2 chunks is absent and read as fill values: c/0\n";
    assert!(check.out.contains(of_array), "{check:?}");
    assert!(!check.out.contains("no such key"), "{check:?}");
    let path = ["--json", "--path", "a/measurements/r10m/b02"];
    let info = json_of(run_on("info", server.url_of("both.json"), &path).ok());
    assert_eq!(info["chunks_present"], 1, "{info}");
    assert_eq!(info["absent_keys"], json!(["c/1"]), "{info}");
}

#[test]
fn a_command_waits_once_for_an_asset_that_does_not_answer() {
    let server = server();
    server.put("item.json", item(&json!({"a": zarr("data/a.zarr")})));
    let source = server.url_of("item.json");
    server.add(on("data/*"), Fault::Late(Duration::from_secs(60)));
    let arguments = ["--timeout", "1500ms", "--retries", "0"];
    let check = run_on("check", &source, &arguments);
    assert_eq!(check.code, Some(1), "{check:?}");
    let keys = server.requests().into_iter().map(|request| request.key);
    let mut keys: Vec<_> = keys.filter(|key| key.starts_with("data/")).collect();
    keys.sort();
    let all = keys.len();
    keys.dedup();
    assert!(all > 0, "the asset was requested");
    assert_eq!(keys.len(), all, "{keys:?}");
}

#[test]
fn a_redirect_of_an_asset_leads_only_where_an_asset_may_be() {
    let server = server();
    let other = Server::files();
    other.put(
        "x.zarr/zarr.json",
        r#"{"zarr_format":3,"node_type":"group"}"#,
    );
    server.put("item.json", item(&json!({"a": zarr("moved.zarr")})));
    server.add(
        on("moved.zarr/zarr.json"),
        Fault::redirect(other.url_of("x.zarr/zarr.json")),
    );
    let source = server.url_of("item.json");
    let mount = Mount::new(&source);
    assert!(read(mount.join("a/zarr.json")).is_err());
    mount.unmount();
    assert!(other.requests().is_empty(), "{:?}", other.requests());
    let mount = Mount::with(&source, &["--allow-target", &other.url()]);
    assert!(read(mount.join("a/zarr.json")).is_ok());
    mount.unmount();
}

#[test]
fn a_local_item_leads_to_servers_and_links_only_if_they_are_allowed() {
    let server = server();
    let place = Place::new();
    let dir = place.make_dir("stac");
    let outside = place.make_dir("outside");
    write_store(&outside.join("x.zarr"), 1);
    run(Command::new("ln")
        .args(["-s", "../outside/x.zarr"])
        .arg(dir.join("link.zarr")));
    let source = dir.join("item.json");
    write(
        &source,
        item(&json!({"far": zarr(&server.url_of("data/a.zarr"))})),
    );
    let words = [
        "no Zarr asset of the STAC item may be read: far: its host has a private address",
        "--allow-target",
    ];
    for command in ["tree", "info", "check"] {
        run_on(command, &source, &[]).failed(1, &words);
    }
    place.attempt(&source, &[]).failed(32, &words);
    assert!(server.requests().is_empty());
    let allowed = ["--allow-target", &server.url()];
    run_on("check", &source, &allowed).ok();
    place.mount(&source, &allowed);
    assert_view(&place.path, "far", [1, 2]);
    place.unmount(&[]).ok();
    write(&source, item(&json!({"link": zarr("link.zarr")})));
    run_on("check", &source, &[]).failed(1, &[]);
    let check = run_on("check", &source, &[]);
    assert!(check.out.contains("it is a link"), "{check:?}");
    run_on(
        "check",
        &source,
        &["--allow-target", outside.to_str().unwrap()],
    )
    .ok();
    run_on("check", &source, &["--follow-symlinks"]).ok();
}

#[test]
fn references_and_repositories_are_assets_too() {
    let place = Place::new();
    let dir = place.make_dir("stac");
    let array = r#"{\"zarr_format\":3,\"node_type\":\"array\",\"shape\":[2],\"data_type\":\"uint8\",\"chunk_grid\":{\"name\":\"regular\",\"configuration\":{\"chunk_shape\":[2]}},\"chunk_key_encoding\":\"default\",\"fill_value\":0,\"codecs\":[\"bytes\"]}"#;
    write(dir.join("bytes"), [8, 9]);
    write(
        dir.join("refs.json"),
        format!(r#"{{"version":1,"refs":{{"zarr.json":"{array}","c/0":["bytes",0,2]}}}}"#),
    );
    write_store(&dir.join("b.zarr"), 1);
    let source = dir.join("item.json");
    let assets = json!({
        "ACCESS-CM2.historical": {"href": "refs.json", "type": "application/json", "roles": ["references"]},
        "item": {"href": "item.json", "type": "application/json", "roles": ["index"]},
        "repository": {"href": "b.zarr", "type": "application/vnd.zarr+icechunk", "version": "v1"},
    });
    write(&source, item(&assets));
    let npy = place.join("x.npy");
    let export = ["--path", "ACCESS-CM2.historical", npy.to_str().unwrap()];
    run_on("export", &source, &export).ok();
    assert!(read(&npy).unwrap().ends_with(&[8, 9]));
    // A document is no member of a document, and a hierarchy no repository.
    let check = run_on("check", &source, &[]);
    assert_eq!(check.code, Some(1), "{check:?}");
    for words in ["item: ", "repository: ", "it is no Icechunk repository"] {
        assert!(check.out.contains(words), "{words}: {check:?}");
    }
}

#[test]
fn a_document_without_a_zarr_asset_is_refused_with_its_assets() {
    let place = Place::new();
    let source = place.join("item.json");
    let server = Server::files();
    let assets = json!({"B01": {"href": "b01.tif", "type": "image/tiff; application=geotiff"}});
    let catalog = json!({"type": "Catalog", "stac_version": "1.0.0", "id": "c", "links": []});
    for (text, words) in [
        (
            item(&assets),
            "the STAC item has no Zarr asset; its assets are B01 (image/tiff; application=geotiff)",
        ),
        (
            collection(&json!({})),
            "the STAC collection has no Zarr asset; it has no assets: name one of its items",
        ),
        (catalog.to_string(), "a STAC catalog, which has no assets"),
    ] {
        write(&source, &text);
        server.put("doc.json", text);
        for source in [source.to_str().unwrap(), &server.url_of("doc.json")] {
            for command in ["tree", "info", "check"] {
                run_on(command, source, &[]).failed(1, &[words]);
            }
            place.attempt(source, &[]).failed(32, &[words]);
        }
    }
}

#[test]
fn a_long_document_is_read_whole() {
    let server = server();
    let mut assets = json!({"a": zarr("data/a.zarr")});
    for number in 0..4000 {
        assets[format!("B{number}")] = json!({"href": format!("https://example.org/{number}.tif"), "type": "image/tiff", "title": "x".repeat(64)});
    }
    for (name, text) in [
        ("item.json", item(&assets)),
        ("api.json", collection(&assets)),
    ] {
        assert!(text.len() > 512 << 10);
        server.put(name, text);
        server.forget_requests();
        let info = json_of(run_on("info", server.url_of(name), &["--json"]).ok());
        assert_eq!(info["hierarchies"], json!(["a"]));
        assert!(
            info["problems"].to_string().contains("and 3980 more"),
            "{info}"
        );
        assert!(
            server.requests_for(name).len() <= 4,
            "{:?}",
            server.requests()
        );
    }
}
