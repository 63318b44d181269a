//! The content of the simulated source, and the programs that change it.
//!
//! Each element of an array is a number that says to which array, version of the metadata, version of the chunk and
//! position it belongs, so that a reader can tell what it got.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::archive::ArchiveWriter;
use crate::runtime;
use crate::runtime::simulated::below;
use crate::store::simulated::{History, SimulatedServer};
use crate::sync::Mutex;

/// A key that is not part of an array.
pub(super) const BLOB: &str = "notes.bin";

/// The number of bytes of an element.
pub(super) const ELEMENT_BYTES: usize = 4;

/// The elements of each inner chunk of a shard.
const INNER: u64 = 8;

/// An array of the source, whose chunks all have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) name: &'static str,
    pub(super) number: u32,
    /// The elements of a chunk.
    pub(super) chunk: u64,
    codec: Codec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Bytes,
    Crc32c,
    Sharded,
}

pub(super) const ARRAYS: [Array; 3] = [
    Array {
        name: "a",
        number: 0,
        chunk: 16,
        codec: Codec::Bytes,
    },
    Array {
        name: "b",
        number: 1,
        chunk: 24,
        codec: Codec::Crc32c,
    },
    Array {
        name: "g/s",
        number: 2,
        chunk: 32,
        codec: Codec::Sharded,
    },
];

/// What an element says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) array: u32,
    /// The version of the metadata. It changes if the array is created anew.
    pub(super) epoch: u32,
    /// The version of the chunk; `None` for a fill value.
    pub(super) version: Option<u32>,
    /// The position in its chunk.
    pub(super) index: u32,
}

impl Element {
    fn number(self) -> u32 {
        let common = (self.array << 28) | ((self.epoch & 0xff) << 20);
        match self.version {
            // No chunk has so many elements.
            None => common | 0xfffff,
            Some(version) => common | ((version & 0x3fff) << 6) | self.index,
        }
    }

    pub(super) fn of(bytes: [u8; ELEMENT_BYTES]) -> Self {
        let number = u32::from_le_bytes(bytes);
        let is_fill = number & 0xfffff == 0xfffff;
        Self {
            array: number >> 28,
            epoch: (number >> 20) & 0xff,
            version: (!is_fill).then_some((number >> 6) & 0x3fff),
            index: if is_fill { 0 } else { number & 0x3f },
        }
    }
}

impl Array {
    pub(super) fn document(&self) -> String {
        format!("{}/zarr.json", self.name)
    }

    pub(super) fn chunk_key(&self, number: u64) -> String {
        format!("{}/c/{number}", self.name)
    }

    /// Returns the elements of a version of a chunk.
    pub(super) fn elements(&self, epoch: u32, version: Option<u32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for index in 0..self.chunk {
            let inner = index / INNER;
            let is_left_out = self.codec == Codec::Sharded && Self::leaves_out(version, inner);
            let element = Element {
                array: self.number,
                epoch,
                version: version.filter(|_| !is_left_out),
                index: u32::try_from(index).expect("a short chunk"),
            };
            bytes.extend(element.number().to_le_bytes());
        }
        bytes
    }

    /// Returns whether a shard lacks an inner chunk.
    fn leaves_out(version: Option<u32>, inner: u64) -> bool {
        inner == 2 && version.is_some_and(|version| version % 2 == 1)
    }

    /// Returns the stored bytes of a version of a chunk.
    pub(super) fn encode(&self, epoch: u32, version: u32) -> Vec<u8> {
        let mut bytes = self.elements(epoch, Some(version));
        match self.codec {
            Codec::Bytes => {}
            Codec::Crc32c => bytes.extend(crc32c::crc32c(&bytes).to_le_bytes()),
            Codec::Sharded => {
                let (mut shard, mut index) = (Vec::new(), Vec::new());
                let inner_bytes = usize::try_from(INNER).expect("short") * ELEMENT_BYTES;
                for (inner, own) in (0..).zip(bytes.chunks(inner_bytes)) {
                    let place = match Self::leaves_out(Some(version), inner) {
                        true => [u64::MAX; 2],
                        false => [shard.len() as u64, own.len() as u64],
                    };
                    if place[0] != u64::MAX {
                        shard.extend(own);
                    }
                    index.extend(place.iter().flat_map(|number| number.to_le_bytes()));
                }
                index.extend(crc32c::crc32c(&index).to_le_bytes());
                shard.extend(index);
                bytes = shard;
            }
        }
        bytes
    }

    /// Returns the number of chunks of an array with a document.
    pub(super) fn chunks_of(&self, document: &[u8]) -> u64 {
        let document: Value =
            serde_json::from_slice(document).expect("a document that was written");
        document["shape"][0].as_u64().expect("a length") / self.chunk
    }

    fn metadata(&self, epoch: u32, length: u64) -> Value {
        let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let codecs = match self.codec {
            Codec::Bytes => json!([little]),
            Codec::Crc32c => json!([little, {"name": "crc32c"}]),
            Codec::Sharded => json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": [INNER],
                "codecs": [little],
                "index_codecs": [little, {"name": "crc32c"}],
                "index_location": "end",
            }}]),
        };
        let fill = Element {
            array: self.number,
            epoch,
            version: None,
            index: 0,
        };
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length],
            "data_type": "uint32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [self.chunk]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill.number(),
            "codecs": codecs,
            "attributes": {"epoch": epoch},
        })
    }
}

/// What the writers of the source know of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrayState {
    exists: bool,
    epoch: u32,
    chunks: u64,
    version: u32,
}

impl ArrayState {
    /// Returns the elements of an array whose chunks are the present ones; `None` if it does not exist.
    pub(super) fn elements(&self, array: Array, history: &History) -> Option<Vec<u8>> {
        let chunks = (0..self.chunks).map(|number| {
            let present = history.present(&array.chunk_key(number));
            let first = present.and_then(|value| value.bytes.first_chunk::<ELEMENT_BYTES>());
            let version = first.and_then(|first| Element::of(*first).version);
            array.elements(self.epoch, version)
        });
        self.exists.then(|| chunks.flatten().collect())
    }
}

/// The programs that write the source.
#[derive(Debug)]
pub(super) struct Writer {
    server: Arc<SimulatedServer>,
    /// The archive that contains all keys, if the source is one.
    archive: Option<ArchiveWriter>,
    /// Whether the root has the metadata of all nodes.
    is_consolidated: bool,
    arrays: Mutex<[ArrayState; 3]>,
    blobs: Mutex<u32>,
    /// The blocks of most versions of the blob.
    blob_blocks: u64,
    /// The array whose first chunk is written again and again, as is the blob.
    hot: Option<Array>,
}

async fn pause(most_millis: u64) {
    runtime::sleep(Duration::from_millis(below(most_millis))).await;
}

fn text(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

impl Writer {
    /// Writes the first version of everything, each key by itself or all in one archive.
    pub(super) fn new(
        server: &Arc<SimulatedServer>,
        is_consolidated: bool,
        is_archive: bool,
    ) -> Self {
        let state = |number: u64| ArrayState {
            exists: true,
            epoch: 1,
            chunks: 2 + number,
            version: 0,
        };
        let own = Self {
            server: Arc::clone(server),
            archive: is_archive.then(|| ArchiveWriter::new(server)),
            is_consolidated,
            arrays: Mutex::new([state(below(6)), state(below(6)), state(below(6))]),
            blobs: Mutex::default(),
            blob_blocks: 1 + below(if below(4) == 0 { 1200 } else { 60 }),
            hot: (below(2) == 0 && !is_archive)
                .then(|| ARRAYS[usize::try_from(below(3)).expect("short")]),
        };
        let group = json!({"zarr_format": 3, "node_type": "group"});
        own.put("g/zarr.json", Some(text(&group)));
        for array in ARRAYS {
            own.write_metadata(array);
            for number in 0..own.state(array).chunks {
                own.write_chunk(array, number);
            }
        }
        own.write_blob();
        own.consolidate();
        if let Some(archive) = &own.archive {
            archive.publish_now(*own.arrays.lock());
        }
        own
    }

    /// The archive that contains all keys, if the source is one.
    pub(super) fn archive(&self) -> Option<&ArchiveWriter> {
        self.archive.as_ref()
    }

    fn put(&self, key: &str, bytes: Option<Vec<u8>>) {
        match &self.archive {
            Some(archive) => archive.stage(key, bytes),
            None => self.server.write(key, bytes),
        }
    }

    /// Shows the changes, if the source is an archive.
    async fn publish(&self) {
        if let Some(archive) = &self.archive {
            let arrays = *self.arrays.lock();
            archive.publish(arrays).await;
        }
    }

    fn state(&self, array: Array) -> ArrayState {
        self.arrays.lock()[array.number as usize]
    }

    fn change(&self, array: Array, change: impl FnOnce(&mut ArrayState)) {
        change(&mut self.arrays.lock()[array.number as usize]);
    }

    /// Returns the elements that a view of an array has, if each chunk is as it is now; `None` if it does not exist.
    pub(super) fn present_elements(&self, array: Array) -> Option<Vec<u8>> {
        let state = self.state(array);
        self.server
            .history(|history| state.elements(array, history))
    }

    fn write_metadata(&self, array: Array) {
        let state = self.state(array);
        let document = array.metadata(state.epoch, state.chunks * array.chunk);
        self.put(&array.document(), Some(text(&document)));
    }

    fn write_chunk(&self, array: Array, number: u64) {
        self.change(array, |state| state.version += 1);
        let state = self.state(array);
        let bytes = array.encode(state.epoch, state.version);
        self.put(&array.chunk_key(number), Some(bytes));
    }

    fn write_blob(&self) {
        let mut blobs = self.blobs.lock();
        *blobs += 1;
        // Another version can have the same size.
        let blocks = match below(4) {
            0 => 1 + below(2 * self.blob_blocks),
            _ => self.blob_blocks,
        };
        let mut bytes = Vec::new();
        for block in 0..blocks {
            let mut own = [u8::try_from(*blobs & 0xff).expect("a byte"); 256];
            own[..8].copy_from_slice(&block.to_le_bytes());
            bytes.extend(own);
        }
        self.put(BLOB, Some(bytes));
    }

    /// Writes the document of the root.
    pub(super) fn consolidate(&self) {
        let mut root = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
        if self.is_consolidated {
            let mut nodes = json!({"g": {"zarr_format": 3, "node_type": "group"}});
            for array in ARRAYS {
                let state = self.state(array);
                if state.exists {
                    let document = array.metadata(state.epoch, state.chunks * array.chunk);
                    nodes[array.name] = document;
                }
            }
            root["consolidated_metadata"] =
                json!({"kind": "inline", "must_understand": false, "metadata": nodes});
        }
        self.put("zarr.json", Some(text(&root)));
    }

    /// Adds chunks to some arrays, of which consolidated metadata do not know.
    pub(super) fn outgrow_consolidated(&self) {
        if self.archive.is_some() {
            return;
        }
        for array in ARRAYS.into_iter().filter(|_| below(2) == 0) {
            let from = self.state(array).chunks;
            self.change(array, |state| state.chunks += 1 + below(2));
            self.write_metadata(array);
            (from..self.state(array).chunks).for_each(|number| self.write_chunk(array, number));
        }
    }

    async fn append(&self, array: Array) {
        let from = self.state(array).chunks;
        self.change(array, |state| state.chunks += 1 + below(2));
        self.write_metadata(array);
        for number in from..self.state(array).chunks {
            pause(300).await;
            self.write_chunk(array, number);
        }
    }

    async fn remove(&self, array: Array) {
        self.put(&array.document(), None);
        self.change(array, |state| state.exists = false);
        for number in 0..self.state(array).chunks {
            if below(3) == 0 {
                pause(100).await;
            }
            self.put(&array.chunk_key(number), None);
        }
    }

    async fn create(&self, array: Array) {
        self.change(array, |state| {
            state.exists = true;
            state.epoch += 1;
            state.chunks = 2 + below(6);
        });
        self.write_metadata(array);
        for number in 0..self.state(array).chunks {
            pause(200).await;
            if below(6) > 0 {
                self.write_chunk(array, number);
            }
        }
    }

    /// Returns the array whose first chunk is written again and again.
    pub(super) fn is_consolidated(&self) -> bool {
        self.is_consolidated
    }

    pub(super) fn hot(&self) -> Option<Array> {
        self.hot
    }

    /// Writes the first chunk of an array and the blob many times.
    pub(super) async fn run_hot(&self) {
        let Some(array) = self.hot else { return };
        for _ in 0..below(500) {
            pause(60).await;
            match below(8) {
                0 => self.write_blob(),
                _ if self.state(array).exists => self.write_chunk(array, 0),
                _ => {}
            }
        }
    }

    /// Changes the source `changes` times.
    pub(super) async fn run(&self, changes: u64) {
        for _ in 0..changes {
            pause(1500).await;
            let array = ARRAYS[usize::try_from(below(3)).expect("short")];
            let number = below(self.state(array).chunks);
            match (below(12), self.state(array).exists) {
                (0, _) => self.write_blob(),
                (1, _) => self.consolidate(),
                (2, true) => self.append(array).await,
                (3, true) => {
                    self.remove(array).await;
                    if below(2) == 0 {
                        pause(2000).await;
                    }
                    self.create(array).await;
                }
                (4, true) => self.remove(array).await,
                (5 | 6, true) => self.put(&array.chunk_key(number), None),
                (7, _) => {
                    let (down, empty) = (below(3000), below(1500) * below(2));
                    self.server
                        .restart(Duration::from_millis(down), Duration::from_millis(empty));
                }
                (_, true) => self.write_chunk(array, number),
                (_, false) => self.create(array).await,
            }
            self.publish().await;
        }
        self.consolidate();
        self.publish().await;
    }
}
