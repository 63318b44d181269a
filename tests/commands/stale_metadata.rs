//! Consolidated metadata that are older than the store: the commands use the documents of the nodes, and say so.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::faulty::Server;
use crate::stores::*;
use crate::support::*;

const STALE: &str = "the consolidated metadata are stale";

fn array(version: u8, shape: u64) -> Value {
    match version {
        2 => json!({"zarr_format": 2, "shape": [shape], "chunks": [3], "dtype": "|u1",
            "compressor": null, "filters": null, "order": "C", "fill_value": 0}),
        _ => json!({"zarr_format": 3, "node_type": "array", "shape": [shape], "data_type": "uint8",
            "fill_value": 0, "codecs": ["bytes"], "chunk_key_encoding": {"name": "default"},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}}),
    }
}

fn write_array(store: &Path, version: u8, name: &str, shape: u64) {
    let node = store.join(name);
    let (file, chunks) = match version {
        2 => (".zarray", node.clone()),
        _ => ("zarr.json", node.join("c")),
    };
    fs::create_dir_all(&chunks).unwrap();
    fs::write(node.join(file), array(version, shape).to_string()).unwrap();
    for chunk in 0..shape.div_ceil(3) {
        fs::write(chunks.join(chunk.to_string()), [1; 3]).unwrap();
    }
}

/// Writes a store in which `grown` grew, `old` was removed and `added` was added after consolidation.
fn write_stale(store: &Path, version: u8) {
    let before = [("grown", 6), ("old", 6), ("same", 6)];
    let copies = before.map(|(name, shape)| match version {
        2 => (format!("{name}/.zarray"), array(version, shape)),
        _ => (name.to_owned(), array(version, shape)),
    });
    let copies: Map<String, Value> = copies.into_iter().collect();
    fs::create_dir_all(store).unwrap();
    let documents = match version {
        2 => vec![
            (".zgroup", json!({"zarr_format": 2})),
            (
                ".zmetadata",
                json!({"zarr_consolidated_format": 1, "metadata": copies}),
            ),
        ],
        _ => {
            let inline = json!({"kind": "inline", "must_understand": false, "metadata": copies});
            let root = json!({"zarr_format": 3, "node_type": "group",
                "consolidated_metadata": inline});
            vec![("zarr.json", root)]
        }
    };
    for (name, document) in documents {
        fs::write(store.join(name), document.to_string()).unwrap();
    }
    for (name, shape) in [("added", 3), ("grown", 9), ("same", 6)] {
        write_array(store, version, name, shape);
    }
}

fn output(command: &str, source: impl AsRef<OsStr>) -> String {
    let output = run_on(command, source, &[]);
    output.ok();
    format!("{}{}", output.out, output.err)
}

fn says(text: &str, what: &str) {
    assert!(text.contains(what), "{what:?} is not in {text}");
}

#[test]
fn stale_consolidated_metadata_are_named_and_the_documents_count() {
    for version in [2, 3] {
        let directory = scratch();
        let store = directory.path().join("stale.zarr");
        write_stale(&store, version);
        let archive = directory.path().join("stale.zip");
        sh(&format!(
            "cd {} && python3 -m zipfile -c {} $(ls -A)",
            store.display(),
            archive.display()
        ));
        for source in [&store, &archive] {
            let tree = output("tree", source);
            says(&tree, "grown  uint8 (9)");
            says(&tree, &format!("{STALE}: shape [6] in them, [9] in "));
            says(&tree, &format!("{STALE}: it is not in them"));
            says(
                &tree,
                &format!("{STALE}: in them, and not there any more: old"),
            );
            let info = output("info", source);
            says(&info, "grown  uint8 (9)");
            says(
                &info,
                &format!("grown: {STALE}: shape [6] in them, [9] in "),
            );
            says(&info, &format!("added: {STALE}: it is not in them"));
            says(&info, "not there any more: old");
            assert!(!info.contains(&format!("same: {STALE}")), "{info}");
            // Programs that trust the copies read an array that is not there.
            let check = run_on("check", source, &[]);
            check.failed(1, &[]);
            let check = check.out;
            says(
                &check,
                &format!("grown: {STALE}: shape [6] in them, [9] in "),
            );
            says(&check, &format!("added: {STALE}: it is not in them"));
            says(
                &check,
                "old is named by the consolidated metadata, but absent",
            );
            let mount = Mount::new(source);
            let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
            says(
                &readme,
                &format!("grown: {STALE}: shape [6] in them, [9] in "),
            );
            says(&readme, &format!("added: {STALE}: it is not in them"));
            says(
                &readme,
                &format!("old: {STALE}: it is in them, and not there any more"),
            );
            assert!(!readme.contains(&format!("same: {STALE}")), "{readme}");
            mount.unmount();
        }
        // Each document of a remote store is read by the check anyway.
        let server = Server::over(&store);
        let check = output("check", server.url());
        says(
            &check,
            &format!("grown: {STALE}: shape [6] in them, [9] in "),
        );
        says(
            &check,
            &format!("old: {STALE}: it is in them, and not there any more"),
        );
        let mount = Mount::new(server.url());
        let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
        says(
            &readme,
            &format!("grown: {STALE}: shape [6] in them, [9] in "),
        );
        says(&readme, "not there any more");
        mount.unmount();
    }
}

#[test]
fn consolidated_metadata_of_zarr_python_are_not_stale() {
    for name in ["v2-consolidated", "v3-consolidated", "v3-xarray"] {
        let store = fixture(&format!("dir/{name}"));
        for command in ["tree", "info", "check"] {
            let output = output(command, &store);
            assert!(!output.contains(STALE), "{output}");
        }
        let mount = Mount::new(&store);
        let readme = fs::read_to_string(mount.join(".zarrfs/README.txt")).unwrap();
        assert!(!readme.contains(STALE), "{readme}");
        mount.unmount();
    }
}
