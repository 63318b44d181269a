//! zarrfs mounts a Zarr hierarchy as a read-only directory tree.
//!
//! The layers, from the command line to the source. A module names only modules of its own step and
//! below. `tests/layering` reads this line.
//!
//! ```text
//! main → cli, daemon → fuse → fs → tree → view → conventions → node → translate → array → hierarchy → { codec, zarr } → store → cache, runtime → clock, fallible, sync
//! ```
//!
//! - [`cli`] declares the options.
//! - [`daemon`] mounts, goes to the background, handles signals and unmounts.
//! - [`fuse`] receives the requests of the kernel; only this module and `daemon` name `fuser`.
//! - [`fs`] implements lookup, open, read and readdir without types of the kernel.
//! - [`tree`] maps inode numbers to keys and views.
//! - [`view`] has the formats and layouts of view files.
//! - [`conventions`] reads what attributes say about data, for all formats.
//! - [`node`](mod@node) is one group or array with its metadata, and the numbers in its elements.
//! - [`translate`] shows a hierarchy as one of another Zarr version, without decoding.
//! - [`array`](mod@array) reads elements: chunks, chunk cache, memory limit, readahead.
//! - [`hierarchy`] reads the documents of nodes, and lists stores without listings from their metadata.
//! - [`codec`] decodes chunks: bytes in, bytes out.
//! - [`zarr`] reads the metadata of v2 and v3: bytes in, types out.
//! - [`store`] reads the bytes of keys from directories, zips, databases, web servers and buckets, and follows
//!   references; it is the only module with I/O to a source.
//! - [`cache`] has weighted LRU maps and single flights, [`runtime`] the executors, [`clock`] the time, [`sync`] the locks,
//!   [`fallible`] lists and texts for which the system may have no memory.
//!
//! # A request
//!
//! A session thread asks each layer once. [`tree::Answer`] says whether the result is at hand: attributes, names
//! and opens of local stores and of caches are, and the session thread replies with them. It also reads the keys
//! of a directory or an archive in place, if the kernel has their pages ([`store::ReadMode::NonBlocking`]);
//! otherwise the same read runs on the local I/O pool and replies from there.
//!
//! Any other request is one future, and a read of a view one `async fn read` in each of `view`, `array` and
//! `store`. The session thread polls it once. That poll is ready, and the session thread replies, if the decoded
//! chunks or the fetched blocks are in memory, or local chunks that need no decoding in the page cache. Work that
//! a session thread must not do is preceded by [`runtime::leave_session_thread`]: the pending future is polled by
//! the CPU pool, as it is when a chunk is decoded or a response arrives, and replies from there. Nothing is done
//! twice, because the same future continues.
//!
//! If the caller has a fatal signal or the deadline has passed, the future is dropped, and with it each network
//! request that no other future waits for.
//!
//! The heads of modules continue from here: `view::file::read` with a read of a view, [`tree`] with a listing and with a
//! change of the source, [`daemon`] with the end of a daemon.
//!
//! Outside of this order: [`inspect`] reads a source without a mount, [`export`](mod@export) writes a view
//! to a file, [`prefetch`] tells the store which keys a program will open next, [`errno`] maps errors to errno values, [`recent_errors`] stores the last failed requests, [`latency`] how long others took,
//! [`units`] parses sizes and times, and [`machine`] returns the number of cores and the memory.
//!
//! Without the feature `mount`, `fuse` is absent, and `daemon` has only what the other commands need.

// The locks of a model checker are larger than others.
#![cfg_attr(all(test, feature = "schedules"), allow(clippy::large_enum_variant))]

pub mod array;
pub mod cache;
pub mod cli;
pub mod clock;
pub mod codec;
pub mod conventions;
#[cfg(feature = "mount")]
pub mod daemon;
#[cfg(not(feature = "mount"))]
#[path = "daemon/without_fuse.rs"]
pub mod daemon;
pub mod errno;
pub mod export;
pub mod fallible;
pub mod fs;
#[cfg(feature = "mount")]
pub mod fuse;
pub mod hierarchy;
pub mod inspect;
pub mod latency;
pub mod machine;
pub mod node;
pub mod prefetch;
pub mod recent_errors;
pub mod runtime;
pub mod store;
pub mod sync;
pub mod translate;
pub mod tree;
pub mod units;
pub mod view;
pub mod zarr;
