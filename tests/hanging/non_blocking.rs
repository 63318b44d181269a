//! Session threads do not block on a local store either.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use zarrfs::array::{Engine, EngineOptions};
use zarrfs::runtime::block_on;
use zarrfs::store::{Key, MemoryStore, Store};
use zarrfs::tree::{self, Ino, MountedTrees, MuxTree, Tree};
use zarrfs::view::{FormatSet, Nodes, NodesOptions};

fn tree() -> MuxTree {
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
        parallel: 1,
        timeout: Duration::from_secs(10),
    });
    let options = NodesOptions {
        root: Key::root(),
        formats: FormatSet::default(),
        ttl: Duration::ZERO.into(),
        assume_wgs84: false,
    };
    let native = block_on(tree::native(Arc::clone(&store), &Key::root())).unwrap();
    let nodes = Arc::new(Nodes::new(store, Arc::new(engine.unwrap()), options));
    let tree = MuxTree::new(native, Key::root(), nodes, MountedTrees::Native, false);
    block_on(tree).unwrap()
}

#[test]
fn a_session_thread_reads_no_nodes_and_renders_no_files() {
    let tree = tree();
    let hidden = block_on(tree.lookup(Ino::ROOT, b".zarrfs")).unwrap().ino;
    assert!(tree.try_open_dir(hidden).is_none());
    assert!(tree.try_lookup(hidden, b"root.nc").is_none());
    // The first poll, on the session thread, only leaves that thread.
    assert!(tree.open_dir(hidden).now_or_never().is_none());
    assert!(tree.lookup(hidden, b"root.nc").now_or_never().is_none());
    let file = block_on(tree.lookup(hidden, b"root.nc")).unwrap().ino;
    // The store is immutable, so a rendered file needs no waiting.
    let stat = tree.stat(file).now_or_never();
    assert!(stat.unwrap().unwrap().size_bytes > 4);
    // Its beginning is read at the first open, on another thread.
    assert!(tree.open(file).now_or_never().is_none());
    assert!(block_on(tree.open(file)).is_ok());
    assert!(tree.open(file).now_or_never().unwrap().is_ok());
    assert!(block_on(tree.open_dir(hidden)).is_ok());
}
