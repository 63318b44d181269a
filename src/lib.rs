//! zarrfs mounts a Zarr hierarchy as a read-only directory tree.
//!
//! One way down, each module with one job:
//!
//! ```text
//! main -> cli       what the command line says
//!      -> daemon    mounting, the background, signals, unmounting
//!      -> fuse      the kernel's requests, the only module that names fuser
//!      -> fs        what a request means: lookup, open, read, readdir, without kernel types
//!      -> tree      which inode number stands for which key, or for which computed file
//!      -> view      computed files: layouts and formats
//!      -> explore   the names of a store that does not list, from its metadata
//!      -> array     elements of an array: pieces, cache, memory, threads
//!      -> translate a hierarchy as one of another version, without decoding
//!      -> codec     the bytes of a chunk to its elements    (bytes in, bytes out)
//!      -> zarr      metadata of v2 and v3                   (bytes in, types out)
//!      -> store     bytes of keys: directory, zip, web, buckets; the only module with I/O to a source
//! ```
//!
//! Beside the way: [`inspect`] looks at a source without a mount, [`errno`] turns every error into
//! its errno, [`units`] reads sizes and times, [`machine`] knows cores and memory.
//! Each module's own page says what it must not do.

pub mod array;
pub mod cli;
pub mod codec;
pub mod daemon;
pub mod errno;
pub mod explore;
pub mod fs;
pub mod fuse;
pub mod inspect;
pub mod machine;
pub mod store;
pub mod translate;
pub mod tree;
pub mod units;
pub mod view;
pub mod zarr;
