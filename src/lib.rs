//! zarrfs mounts a Zarr hierarchy as a read-only directory tree.
//!
//! The order of the modules, from the command line to the source; a module names only modules of its
//! own step and below. `tests/layering` reads this line.
//!
//! ```text
//! main → cli, daemon → fuse → fs → tree → view → translate → array → hierarchy → { codec, zarr } → store → cache, sync, request
//! ```
//!
//! - [`cli`] declares the options.
//! - [`daemon`] mounts, goes to the background, handles signals and unmounts.
//! - [`fuse`] receives the requests of the kernel; only this module and `daemon` name `fuser`.
//! - [`fs`] implements lookup, open, read and readdir without types of the kernel.
//! - [`tree`] maps inode numbers to keys and views.
//! - [`view`] has the formats and layouts of view files.
//! - [`translate`] shows a hierarchy as one of another Zarr version, without decoding.
//! - [`array`](mod@array) reads elements: chunks, chunk cache, memory limit, decoder threads.
//! - [`explore`], in the step of `hierarchy`, names the keys of a store that does not list them, from metadata.
//! - [`codec`] decodes chunks: bytes in, bytes out.
//! - [`zarr`] reads the metadata of v2 and v3: bytes in, types out.
//! - [`store`] reads the bytes of keys from directories, zips, web servers and buckets; it is the only
//!   module with I/O to a source.
//!
//! Beside the order: [`inspect`] reads a source without a mount, [`errno`] maps errors to errno
//! values, [`units`] parses sizes and times, [`machine`] returns the number of cores and the memory.

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
