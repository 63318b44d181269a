//! Arrays as the bytes of their elements: found, read, decoded in parallel, cached.
//!
//! An array is read in pieces: chunks, or inner chunks of shards. A piece is decoded whole, once,
//! however many wait for it (`cache`); every byte that decoding takes is reserved first
//! (`memory`); threads of their own decode (`pool`), also ahead of a reader that goes from
//! beginning to end. What is asked for and what is in pieces differ only by arithmetic
//! (`geometry`).

mod batch;
mod buffers;
mod cache;
mod course;
mod engine;
mod fetch;
mod geometry;
mod holding;
mod inner_grid;
mod memory;
mod pieces;
mod pool;
mod prefetch;
mod raw;
mod reader;
mod served;
mod variable;
mod verify;

pub use engine::{Engine, EngineOptions};
pub use memory::Reservation;
pub use pieces::Pieces;
pub use raw::check_version;
pub use reader::ArrayReader;
pub use served::{Handle, ServedVersions};
pub use variable::{Elements, read_elements};
pub use verify::{Verified, Verifier, read_through};
