//! Schedules of lookups and forgets in all trees of a mount.

use std::sync::Arc;
use std::time::Duration;

use super::{MountedTrees, MuxTree};
use crate::array::{Engine, EngineOptions};
use crate::runtime::block_on;
use crate::store::{Key, MemoryStore, Store};
use crate::sync::schedules::explore;
use crate::sync::thread;
use crate::tree::{HashedTree, Ino, Tree};
use crate::view::{Nodes, NodesOptions};

const ARRAY: &[u8] =
    br#"{"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1", "fill_value": 0,
    "order": "C", "filters": null, "compressor": null}"#;

fn mux() -> MuxTree {
    let values = [
        (&b".zgroup"[..], &b"{\"zarr_format\": 2}"[..]),
        (b"a/.zarray", ARRAY),
        (b"a/0", b"xy"),
    ];
    let values = values.map(|(key, value)| (Key::new(key).unwrap(), value.to_vec()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(values));
    let engine = Engine::new(EngineOptions {
        cache_bytes: 1 << 20,
        memory_limit_bytes: 1 << 20,
        parallel: 2,
        timeout: Duration::from_secs(60),
    });
    let options = NodesOptions {
        root: Key::root(),
        formats: "npy".parse().unwrap(),
        ttl: Duration::from_secs(60).into(),
        assume_wgs84: false,
    };
    let nodes = Nodes::new(Arc::clone(&store), Arc::new(engine.unwrap()), options);
    let native = Box::new(HashedTree::new(store, Key::root()));
    let tree = MuxTree::new(
        native,
        Key::root(),
        Arc::new(nodes),
        MountedTrees::Native,
        true,
    );
    block_on(tree).unwrap()
}

/// Looks up a path, whose numbers stay valid until they are forgotten.
fn visit(tree: &MuxTree, path: &[&[u8]]) {
    let (mut ino, mut counted) = (Ino::ROOT, Vec::new());
    for name in path {
        let found = block_on(tree.lookup(ino, name)).unwrap();
        assert_eq!(
            block_on(tree.stat(found.ino)).unwrap().kind,
            found.stat.kind
        );
        ino = found.ino;
        counted.push(ino);
    }
    for ino in counted {
        assert!(tree.key(ino).is_ok());
        tree.forget(ino, 1);
    }
}

#[test]
fn a_number_is_valid_until_its_last_forget_in_each_tree() {
    explore(|| {
        let tree = Arc::new(mux());
        let before = tree.known_inodes();
        let paths: [&[&[u8]]; 3] = [&[b"a", b"0"], &[b"a", b"0"], &[b".zarrfs", b"a.npy"]];
        let callers = paths.map(|path| {
            let tree = Arc::clone(&tree);
            thread::spawn(move || visit(&tree, path))
        });
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(tree.known_inodes(), before);
    });
}
