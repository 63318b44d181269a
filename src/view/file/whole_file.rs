//! Files that can only be read as a whole: their bytes are made on the first read, and cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::content::CachedFile;
use super::nodes::Nodes;
use crate::array::ServedVersions;
use crate::runtime::leave_session_thread;
use crate::store::StoreError;

/// A file that is read as a whole. The ID of its cached bytes is renewed when the versions of its chunks may have
/// changed.
#[derive(Debug)]
pub(in crate::view) struct WholeFile {
    nodes: Arc<Nodes>,
    /// The file, without its bytes.
    pub(in crate::view) file: Arc<CachedFile>,
    id: AtomicU64,
}

impl WholeFile {
    /// Returns a file whose bytes are not made yet.
    pub(in crate::view) fn new(nodes: &Arc<Nodes>, file: Arc<CachedFile>) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            file,
            id: AtomicU64::new(nodes.new_whole_file_id()),
        }
    }

    /// Makes the next read make the bytes again.
    pub(in crate::view) fn renew(&self) {
        let id = self.nodes.new_whole_file_id();
        self.id.store(id, Ordering::Relaxed);
    }

    /// Returns the bytes of the file: from the cache, or made once for all callers. `served` has the versions of
    /// the chunks that the file was served from, if the store is mutable.
    ///
    /// # Errors
    /// As [`VirtualFile::read`](super::layout::VirtualFile::read); or the memory limit leaves no memory for it.
    pub(in crate::view) async fn bytes(
        &self,
        served: Option<&Arc<ServedVersions>>,
    ) -> Result<Arc<Vec<u8>>, StoreError> {
        let id = self.id.load(Ordering::Relaxed);
        let cached = self.nodes.whole_files.lock().get(&id).map(Arc::clone);
        if let Some(bytes) = cached {
            return Ok(bytes);
        }
        let (nodes, file) = (Arc::clone(&self.nodes), Arc::clone(&self.file));
        let served = served.map(Arc::clone);
        let load = move || async move {
            leave_session_thread().await;
            let bytes = nodes.read_whole(&file, served.as_deref()).await?;
            let bytes = Arc::new(bytes);
            let weight = bytes.len() as u64;
            let evicted = (nodes.whole_files.lock()).insert(id, Arc::clone(&bytes), weight);
            drop(evicted);
            Ok(bytes)
        };
        let panicked = StoreError::internal("a panic while a file was made as a whole");
        self.nodes.whole_file_loads.run(id, load, panicked).await
    }
}

impl Nodes {
    /// Returns a number that identifies the bytes of an open file in the cache.
    fn new_whole_file_id(&self) -> u64 {
        self.whole_file_ids.fetch_add(1, Ordering::Relaxed)
    }

    async fn read_whole(
        &self,
        file: &CachedFile,
        served: Option<&ServedVersions>,
    ) -> Result<Vec<u8>, StoreError> {
        let layout = &file.file.layout;
        let first = file.file.sources.first();
        let key = first.map(|reader| reader.key().clone()).unwrap_or_default();
        let own_bytes = layout.whole_read_bytes().unwrap_or(0);
        let bytes = own_bytes.saturating_add(layout.size_bytes());
        let _memory = self.engine().reserve(&key, bytes).await?;
        file.file.read_whole(served).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{Engine, EngineOptions};
    use crate::runtime::block_on;
    use crate::store::{Key, MemoryStore};
    use crate::units::FOREVER;
    use crate::view::file::content::Content;
    use crate::view::file::nodes::NodesOptions;
    use crate::view::format::format_set::FormatSet;

    /// Returns the picture of an array of four bytes.
    fn picture() -> WholeFile {
        let document = br#"{"zarr_format": 3, "node_type": "array", "shape": [2, 2], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}, "fill_value": 0,
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}]}"#;
        let values = [
            ("zarr.json", document.to_vec()),
            ("c/0/0", vec![0, 1, 2, 3]),
        ];
        let values = values.map(|(key, value)| (Key::new(key.as_bytes()).unwrap(), value));
        let options = EngineOptions {
            cache_bytes: 0,
            memory_limit_bytes: 64 << 20,
            parallel: 1,
            timeout: FOREVER,
        };
        let engine = Arc::new(Engine::new(options).unwrap());
        let options = NodesOptions {
            root: Key::root(),
            formats: FormatSet::default(),
            ttl: FOREVER.into(),
            assume_wgs84: false,
        };
        let store = Arc::new(MemoryStore::new(values));
        let nodes = Arc::new(Nodes::new(store, engine, options));
        let node = block_on(nodes.node(&Key::root())).unwrap();
        let content = block_on(nodes.content(&node, "png".parse().unwrap())).unwrap();
        let Content::File(file) = content else {
            panic!("{content:?}");
        };
        WholeFile::new(&nodes, file)
    }

    #[test]
    fn bytes_are_made_once_until_the_file_is_renewed() {
        let file = picture();
        let first = block_on(file.bytes(None)).unwrap();
        assert_eq!(first.len() as u64, file.file.size_bytes());
        assert!(first.starts_with(b"\x89PNG"));
        let again = block_on(file.bytes(None)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        file.renew();
        let renewed = block_on(file.bytes(None)).unwrap();
        assert!(!Arc::ptr_eq(&first, &renewed));
        assert_eq!(first, renewed);
    }
}
