//! Mounts a public bucket with the library of Mountpoint for Amazon S3, in the foreground.
//!
//! ```text
//! mountpoint BUCKET ENDPOINT MEMORY_MIB MOUNTPOINT
//! ```
//!
//! The program `mount-s3` is not on the Rust registry, its library is. Options are its defaults: parts of 8 MiB, 16 FUSE
//! threads, metadata that is not cached. `MEMORY_MIB` is the limit of its buffers.

use std::error::Error;

use mountpoint_s3_client::S3CrtClient;
use mountpoint_s3_client::config::{
    AddressingStyle, Allocator, EndpointConfig, S3ClientAuthConfig, S3ClientConfig, Uri,
};
use mountpoint_s3_fs::fuse::S3FuseFilesystem;
use mountpoint_s3_fs::fuse::config::{FuseOptions, FuseSessionConfig, MountPoint};
use mountpoint_s3_fs::fuse::session::FuseSession;
use mountpoint_s3_fs::memory::{CandidateSize, PagedPool};
use mountpoint_s3_fs::prefetch::Prefetcher;
use mountpoint_s3_fs::s3::{Bucket, S3Path};
use mountpoint_s3_fs::{
    Runtime, S3Filesystem, S3FilesystemConfig, Superblock, SuperblockConfig,
};

const PART_BYTES: usize = 8 << 20;
const FUSE_THREADS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bucket, endpoint, memory_mib, mountpoint] = arguments.as_slice() else {
        return Err("usage: mountpoint BUCKET ENDPOINT MEMORY_MIB MOUNTPOINT".into());
    };
    let pool = PagedPool::config()
        .with_candidate_sizes([CandidateSize::new(PART_BYTES)])
        .with_memory_limit(memory_mib.parse::<usize>()? << 20)
        .build();
    let endpoint = EndpointConfig::new("us-east-1")
        .addressing_style(AddressingStyle::Path)
        .endpoint(Uri::new_from_str(&Allocator::default(), endpoint)?);
    let client = S3CrtClient::new(
        S3ClientConfig::new()
            .auth_config(S3ClientAuthConfig::NoSigning)
            .endpoint_config(endpoint)
            .read_backpressure(true)
            .read_part_size(PART_BYTES)
            .initial_read_window(PART_BYTES)
            .memory_pool(pool.clone()),
    )?;
    let config = S3FilesystemConfig {
        read_only: true,
        ..Default::default()
    };
    let superblock = Superblock::new(
        client.clone(),
        S3Path::new(Bucket::new(bucket.as_str())?, Default::default()),
        SuperblockConfig {
            cache_config: config.cache_config.clone(),
            s3_personality: config.s3_personality,
        },
    );
    let prefetcher = Prefetcher::default_builder(client.clone());
    let runtime = Runtime::new(client.event_loop_group());
    let filesystem = S3Filesystem::new(client, prefetcher, pool, runtime, superblock, config);
    let options = FuseOptions {
        read_only: true,
        auto_unmount: false,
        ..Default::default()
    };
    let session = FuseSessionConfig::new(
        MountPoint::Directory(mountpoint.into()),
        options,
        FUSE_THREADS,
    )?;
    FuseSession::new(S3FuseFilesystem::new(filesystem, None), session)?.join()?;
    Ok(())
}
