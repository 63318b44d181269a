//! Arrays as the bytes of their elements. Chunks are found, read, decoded in parallel, and cached.
//!
//! A *read chunk* is the unit of reading: an inner chunk if chunks are shards, otherwise a chunk. The
//! modules also call it *chunk*. A read chunk is decoded whole, and once for all requests that wait for
//! it (`chunk_cache`). All memory for decoding is reserved first (`memory_limit`). The CPU pool decodes
//! (`chunk_loader`), also ahead of a sequential reader (`readahead`). `geometry` maps the bytes of an
//! array to those of its chunks.

mod buffer_pool;
mod chunk_cache;
mod chunk_loader;
mod chunk_table;
mod chunks;
mod closed_records;
mod decode;
mod decode_shard;
mod engine;
mod geometry;
mod inner_grid;
mod memory_limit;
mod order;
mod pipelines;
mod read_direct;
mod read_stored;
mod readahead;
mod reader;
mod served;
#[cfg(test)]
mod tests;
mod text;
mod variable;
mod verify;
mod version_memory;
mod version_record;

pub use chunk_table::ChunkTable;
pub use chunks::ArrayChunks;
pub use decode::not_a_chunk;
pub use engine::{Engine, EngineOptions};
pub use memory_limit::Reservation;
pub use readahead::OpenReader;
pub use reader::{ArrayReader, Selection};
pub use served::{ServedHandle, ServedVersions};
pub use text::{holds_text, may_be_text, read_texts, texts};
pub use variable::{Elements, read_elements};
pub use verify::{Verified, Verifier, read_through};
