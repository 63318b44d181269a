//! Arrays as the bytes of their elements: found, read, decoded in parallel, cached.
//!
//! An array is read in pieces: chunks, or inner chunks of shards. A piece is decoded whole, once,
//! however many wait for it (`cache`); every byte that decoding takes is reserved first
//! (`memory`); the CPU pool decodes (`loader`), also ahead of a sequential reader (`readahead`). What is asked for and what is in pieces differ only by arithmetic
//! (`geometry`).

mod batch;
mod buffers;
mod cache;
mod engine;
mod fetch;
mod geometry;
mod inner_grid;
mod loader;
mod memory;
mod order;
mod pieces;
mod raw;
mod readahead;
mod reader;
mod served;
mod variable;
mod verify;

pub use engine::{Engine, EngineOptions};
pub use memory::Reservation;
pub use pieces::Pieces;
pub use raw::check_version;
pub use reader::{ArrayReader, Extent};
pub use served::{Handle, ServedVersions};
pub use variable::{Elements, read_elements};
pub use verify::{Verified, Verifier, read_through};
