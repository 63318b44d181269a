//! How often a directory of views reads the documents of its arrays.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::*;
use crate::array::{Engine, EngineOptions};
use crate::runtime::block_on;
use crate::store::{AccessHint, Capabilities, Kind, Listing, MemoryStore, Visited};
use crate::units::FOREVER;
use crate::view::{FormatSet, NodesOptions};

/// A store that counts the opens of each key.
#[derive(Debug)]
struct CountingStore {
    values: MemoryStore,
    opens: Mutex<HashMap<Key, usize>>,
}

#[async_trait]
impl Store for CountingStore {
    fn label(&self) -> &str {
        "counting"
    }

    fn capabilities(&self) -> Capabilities {
        Store::capabilities(&self.values)
    }

    async fn stat(&self, key: &Key) -> Result<Stat, StoreError> {
        Store::stat(&self.values, key).await
    }

    async fn open(&self, key: &Key, hint: AccessHint) -> Result<Arc<dyn Object>, StoreError> {
        let opened = Store::open(&self.values, key, hint).await?;
        *self.opens.lock().entry(key.clone()).or_default() += 1;
        Ok(opened)
    }

    async fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>, StoreError> {
        Store::list(&self.values, prefix).await
    }
}

const GROUP: &str = r#"{"zarr_format": 2}"#;
const ARRAY: &str = r#"{"zarr_format": 2, "shape": [2, 2], "chunks": [2, 2], "dtype": "|u1", "fill_value": 1,
    "compressor": null, "filters": null, "order": "C", "dimension_separator": "."}"#;

/// Returns a store with arrays, and its views.
fn views_of(arrays: usize) -> (Arc<CountingStore>, ViewTree) {
    let arrays = (0..arrays).map(|number| (format!("a{number:03}/.zarray"), ARRAY));
    let values = [(".zgroup".to_owned(), GROUP)].into_iter().chain(arrays);
    let values = values.map(|(key, text)| (Key::new(key.as_bytes()).unwrap(), text.into()));
    let store = Arc::new(CountingStore {
        values: MemoryStore::new(values),
        opens: Mutex::default(),
    });
    let engine = Engine::new(EngineOptions {
        cache_bytes: 0,
        memory_limit_bytes: 256 << 20,
        parallel: 1,
        timeout: FOREVER,
    });
    let options = NodesOptions {
        root: Key::root(),
        formats: FormatSet::default(),
        ttl: FOREVER.into(),
        assume_wgs84: false,
    };
    let nodes = Nodes::new(Arc::clone(&store) as _, Arc::new(engine.unwrap()), options);
    (store, ViewTree::new(nodes.into(), Key::root(), false))
}

impl CountingStore {
    /// Returns the largest number of opens of any document.
    fn most_opens(&self) -> usize {
        let opens = self.opens.lock();
        opens.values().copied().max().unwrap_or(0)
    }
}

/// Lists names from a cookie on; returns them with the cookies after them.
fn listed(stream: &mut dyn DirStream, cookie: u64) -> (Vec<(Vec<u8>, Ino, u64)>, Visited) {
    let mut names = Vec::new();
    let visited = stream.visit(cookie, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino, entry.next));
        ControlFlow::Continue(())
    });
    (names, visited.unwrap())
}

#[test]
fn attributes_of_listed_files_are_there_after_one_wait_for_many_names() {
    let (store, views) = views_of(300);
    let dir = block_on(views.lookup_views_dir(&Key::root(), NATIVE_ROOT)).unwrap();
    let mut stream = block_on(views.open_dir_with(dir.ino, Vec::new())).unwrap();
    // A listing of names alone does not wait.
    let (all, visited) = listed(&mut *stream, 0);
    assert!(all.len() > 600 && visited == Visited::End, "{}", all.len());
    let (mut cookie, mut waits, mut seen) = (16, 0, 0);
    loop {
        let (names, visited) = listed(&mut *stream, cookie);
        for (name, ino, next) in names {
            let entry = Entry {
                name: &name,
                ino,
                kind: Kind::Object,
                stat: None,
                next,
            };
            let found = views.lookup_entry(dir.ino, &entry);
            let found = found.map(Result::unwrap);
            let text = String::from_utf8_lossy(&name);
            assert!(found.is_some() == text.starts_with('a'), "{text}");
            (cookie, seen) = (next, seen + 1);
        }
        match visited {
            Visited::Pending => block_on(stream.load()).unwrap(),
            _ => break,
        }
        waits += 1;
    }
    assert!(seen > 580 && waits <= seen / 200 + 1, "{seen} {waits}");
    assert_eq!(store.most_opens(), 1);
}

#[test]
fn the_list_of_views_of_a_group_reads_each_document_once_for_all_views_and_once_for_all_translations()
 {
    let (store, views) = views_of(20);
    let dir = block_on(views.lookup_views_dir(&Key::root(), NATIVE_ROOT)).unwrap();
    block_on(async {
        let found = views.lookup(dir.ino, b"README.txt").await;
        assert!(found.unwrap().stat.size_bytes > 0);
        let found = views.lookup(dir.ino, b"views.json").await;
        assert!(found.unwrap().stat.size_bytes > 0);
    });
    let opens = store.opens.lock();
    let of_arrays = opens
        .iter()
        .filter(|(key, _)| key.as_bytes().starts_with(b"a"));
    for (key, opens) in of_arrays {
        // The second list reads the documents of the hierarchy again.
        assert!(*opens <= 3, "{key}: {opens}");
    }
}
