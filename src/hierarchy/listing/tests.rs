mod age;
mod failures;
mod hostile;
mod incomplete;
mod nested;
mod server;
mod stale;
mod walk;

use super::*;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::thread;

use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::runtime::{block_on, leave_session_thread, timeout};
use crate::store::{Listed, MemoryStore, Visit, Visited, read_to_end};
use crate::sync::Mutex;

use self::server::{Fault, Server};

const LONG: Duration = Duration::from_secs(3600);

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn listing(server: Server) -> (Arc<Server>, MetadataListingStore) {
    let server = Arc::new(server);
    let inner: Arc<dyn Store> = Arc::<Server>::clone(&server);
    (server, MetadataListingStore::new(inner, LONG, LONG))
}

fn listed(store: &dyn Store, prefix: &str) -> Vec<(String, Kind)> {
    let mut listing = block_on(store.list(&key(prefix))).unwrap();
    listing.record_shown();
    let mut names = Vec::new();
    let mut cookie = 0;
    // One name at a time, as with a small reply buffer.
    loop {
        let before = names.len();
        listing
            .visit(cookie, &mut |listed| {
                if names.len() > before {
                    return ControlFlow::Break(());
                }
                assert!(listed.next > cookie, "{}", listed.next);
                cookie = listed.next;
                let name = String::from_utf8(listed.name.to_vec()).unwrap();
                names.push((name, listed.kind));
                ControlFlow::Continue(())
            })
            .unwrap();
        if names.len() == before {
            break;
        }
    }
    let all: BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(all.len(), names.len(), "{names:?}");
    let dots: Vec<_> = names.drain(..2).map(|(name, _)| name).collect();
    assert_eq!(dots, [".", ".."]);
    names
}

/// Returns the sorted names of a listing; directories have a trailing `/`.
fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    let names = listed(store, prefix).into_iter();
    let mut names: Vec<String> = names
        .map(|(name, kind)| match kind {
            Kind::Prefix => format!("{name}/"),
            Kind::Object => name,
        })
        .collect();
    names.sort();
    names
}

/// Adds all keys below a prefix.
fn walk(store: &dyn Store, prefix: &str, keys: &mut Vec<String>) {
    for (name, kind) in listed(store, prefix) {
        let path = match prefix {
            "" => name,
            prefix => format!("{prefix}/{name}"),
        };
        match kind {
            Kind::Object => keys.push(path),
            Kind::Prefix => {
                assert_eq!(
                    block_on(store.stat(&key(&path))).unwrap().kind,
                    Kind::Prefix
                );
                walk(store, &path, keys);
            }
        }
    }
}

fn kind(store: &dyn Store, name: &str) -> Kind {
    block_on(store.stat(&key(name))).unwrap().kind
}

fn zarray(shape: &[u64], chunks: &[u64], separator: &str) -> Value {
    json!({"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i2", "fill_value": 0,
           "compressor": null, "filters": null, "order": "C", "dimension_separator": separator})
}

fn array(shape: &[u64], chunks: &[u64], keys: Value) -> Value {
    json!({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int16",
           "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
           "chunk_key_encoding": keys, "fill_value": 0, "codecs": ["bytes"]})
}

fn group() -> Value {
    json!({"zarr_format": 3, "node_type": "group"})
}

fn zgroup() -> Value {
    json!({"zarr_format": 2})
}

fn members(copies: &[(&str, Value)]) -> serde_json::Map<String, Value> {
    let copies = copies.iter();
    let copies = copies.map(|(name, value)| ((*name).to_owned(), value.clone()));
    copies.collect()
}

fn zmetadata(copies: &[(&str, Value)]) -> Value {
    let copies = members(copies);
    json!({"zarr_consolidated_format": 1, "metadata": copies})
}

fn consolidated(copies: &[(&str, Value)]) -> Value {
    let copies = members(copies);
    let inline = json!({"kind": "inline", "must_understand": false, "metadata": copies});
    json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline})
}

fn v2_server() -> Server {
    let copies = [
        (".zgroup", zgroup()),
        (".zattrs", json!({})),
        ("a/.zarray", zarray(&[4, 3], &[2, 2], ".")),
        ("a/.zattrs", json!({})),
        ("g/.zgroup", zgroup()),
        ("g/n/.zarray", zarray(&[4, 3], &[2, 2], "/")),
        ("g-x/.zgroup", zgroup()),
        ("implicit/s/.zarray", zarray(&[], &[], ".")),
    ];
    let mut values = copies.to_vec();
    values.push((".zmetadata", zmetadata(&copies)));
    values.push(("a/0.0", json!(1)));
    values.push(("a/README", json!(1)));
    values.push(("g/n/1/0", json!(1)));
    values.push(("new/.zgroup", zgroup()));
    Server::new(&values)
}

fn is_absent(store: &dyn Store, name: &str) -> bool {
    let stat = block_on(store.stat(&key(name)));
    let open = block_on(store.open(&key(name), AccessHint::Ranges));
    let stat = matches!(stat, Err(StoreError::NotFound { .. }));
    assert_eq!(stat, matches!(open, Err(StoreError::NotFound { .. })));
    stat
}

/// Returns a group with consolidated metadata in a root without them. The server lists some pages.
fn nested_server(lists: bool) -> Server {
    let copies = [
        (".zgroup", zgroup()),
        ("h/.zgroup", zgroup()),
        ("h/a/.zarray", zarray(&[1], &[1], ".")),
        ("implicit/a/.zarray", zarray(&[1], &[1], ".")),
    ];
    let mut server = Server::new(&[
        (".zgroup", zgroup()),
        ("g/.zgroup", zgroup()),
        ("g/.zmetadata", zmetadata(&copies)),
        ("g/h/.zgroup", zgroup()),
        ("g/h/a/.zarray", zarray(&[1], &[1], ".")),
        ("g/implicit/a/.zarray", zarray(&[1], &[1], ".")),
    ]);
    if lists {
        for (prefix, name) in [("", "g"), ("g", "h"), ("g/h", "a"), ("g/h/a", "0")] {
            let page = vec![(name, Kind::Prefix)];
            server.listings.insert(key(prefix), page);
        }
    }
    server
}

fn zarr_limit() -> usize {
    crate::zarr::document::MAX_DOCUMENT_BYTES
}
