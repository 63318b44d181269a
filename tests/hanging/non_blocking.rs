//! Session threads do not block on a local store either.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use zarrfs::array::{Engine, EngineOptions};
use zarrfs::runtime::block_on;
use zarrfs::store::{Key, MemoryStore, Object, Store};
use zarrfs::tree::{self, Ino, MountedTrees, MuxTree, Tree};
use zarrfs::view::{FormatSet, Nodes, NodesOptions};

fn tree() -> MuxTree {
    let key = |text: &str| Key::new(text.as_bytes()).unwrap();
    let group = br#"{"zarr_format": 2}"#;
    let array = br#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|u1",
        "compressor": null, "filters": null, "fill_value": 7, "order": "C"}"#;
    let long = br#"{"zarr_format": 2, "shape": [65536], "chunks": [65536], "dtype": "|u1",
        "compressor": null, "filters": null, "fill_value": 7, "order": "C"}"#;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new([
        (key(".zgroup"), group.to_vec()),
        (key("a/.zarray"), array.to_vec()),
        (key("b/.zarray"), long.to_vec()),
        (key("b/0"), vec![3; 65536]),
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
    assert!(tree.open_dir(hidden).at_hand().is_none());
    assert!(tree.lookup(hidden, b"root.nc").at_hand().is_none());
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

/// Opens a file of the view directory of an array.
fn open(tree: &MuxTree, array: &str, file: &str) -> Arc<dyn Object> {
    let names = [array, ".zarrfs", file];
    let ino = names.iter().fold(Ino::ROOT, |ino, name| {
        block_on(tree.lookup(ino, name.as_bytes())).unwrap().ino
    });
    block_on(tree.open(ino)).unwrap()
}

#[test]
fn the_first_poll_of_a_read_is_ready_if_no_chunk_has_to_be_decoded() {
    let tree = tree();
    let gauge = |name| tree.gauges().into_iter().find(|gauge| gauge.0 == name);
    let file = open(&tree, "a", "a.npy");
    assert!(file.read(0, 4096).now_or_never().is_none());
    let first = block_on(file.read(0, 4096)).unwrap();
    let first = first.bytes(&[]).unwrap();
    assert!(first.ends_with(&[7; 4]));
    let again = file.read(0, 4096).now_or_never().unwrap().unwrap();
    assert_eq!(again.bytes(&[]).unwrap(), first);
    assert_eq!(gauge("chunks_reused"), Some(("chunks_reused", 2)));

    // These elements are stored as they are, and are not decoded.
    let file = open(&tree, "b", "b.npy");
    for (offset, size) in [(1000, 300), (0, 1 << 20), (65000, 1 << 20)] {
        let read = file.read(offset, size).now_or_never().unwrap().unwrap();
        assert!(read.bytes(&[]).unwrap().ends_with(&[3; 200]));
    }
    assert_eq!(gauge("chunks_reused"), Some(("chunks_reused", 2)));
}
