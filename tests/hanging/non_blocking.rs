//! Session threads do not wait for a local store either.

use std::sync::Arc;
use std::time::Duration;

use zarrfs::array::{Engine, EngineOptions};
use zarrfs::store::{Key, MemoryStore, Store, StoreError, never_waiting};
use zarrfs::tree::{self, Ino, Shown, Tree, ViewTree};
use zarrfs::view::{FormatSet, Nodes, NodesOptions};

fn tree() -> ViewTree {
    let key = |text: &str| Key::new(text.as_bytes()).unwrap();
    let group = br#"{"zarr_format": 2}"#;
    let array = br#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|u1",
        "compressor": null, "filters": null, "fill_value": 7, "order": "C"}"#;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new([
        (key(".zgroup"), group.to_vec()),
        (key("a/.zarray"), array.to_vec()),
    ]));
    let engine = Engine::new(EngineOptions {
        cache_bytes: 1 << 20,
        memory_limit_bytes: 64 << 20,
        threads: 1,
        timeout: Duration::from_secs(10),
    });
    let options = NodesOptions {
        root: Key::root(),
        formats: FormatSet::default(),
        ttl: Duration::ZERO,
    };
    let native = tree::native(Arc::clone(&store), &Key::root()).unwrap();
    let nodes = Nodes::new(store, Arc::new(engine.unwrap()), options);
    ViewTree::new(native, Key::root(), nodes, Shown::Native, false).unwrap()
}

fn would_wait<T>(answer: Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::WouldWait { .. }))
}

#[test]
fn a_session_thread_reads_no_nodes_and_makes_no_files() {
    let tree = tree();
    let hidden = tree.lookup(Ino::ROOT, b".zarrfs").unwrap().ino;
    assert!(would_wait(never_waiting(|| tree.open_dir(hidden))));
    assert!(would_wait(
        never_waiting(|| tree.lookup(hidden, b"root.nc"))
    ));
    let file = tree.lookup(hidden, b"root.nc").unwrap().ino;
    // The store is pinned: what was made is cached.
    assert!(never_waiting(|| tree.stat(file)).unwrap().size_bytes > 4);
    assert!(never_waiting(|| tree.open(file)).is_ok());
    assert!(tree.open_dir(hidden).is_ok());
}
