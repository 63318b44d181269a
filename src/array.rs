//! Arrays as the bytes of their elements: found, read, decoded in parallel, cached.
//!
//! A *read chunk* is the unit of reading: a chunk, or an inner chunk where chunks are shards. Modules
//! below say *chunk* for it, too. It is decoded whole, once, however many requests wait for it
//! (`cache`); every byte that decoding takes is reserved first (`memory`); the CPU pool decodes
//! (`chunk_loader`), also ahead of a sequential reader (`readahead`). The bytes of an array and those
//! of its chunks differ only by arithmetic (`geometry`).

mod batch;
mod buffers;
mod cache;
mod chunk_loader;
mod chunk_table;
mod chunks;
mod closed_records;
mod decode;
mod direct;
mod engine;
mod fetch;
mod geometry;
mod inner_grid;
mod memory;
mod order;
mod pipelines;
mod raw;
mod readahead;
mod reader;
mod served;
mod stored;
mod variable;
mod verify;
mod version_memory;
mod version_record;

pub use chunk_table::ChunkTable;
pub use chunks::{ArrayChunks, not_a_chunk};
pub use engine::{Engine, EngineOptions};
pub use memory::Reservation;
pub use raw::check_version;
pub use readahead::OpenReader;
pub use reader::{ArrayReader, Extent};
pub use served::{Handle, ServedVersions};
pub use variable::{Elements, read_elements};
pub use verify::{Verified, Verifier, read_through};
