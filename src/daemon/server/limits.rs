//! Checks of system limits before a mount: address space (`ulimit -v`) and descriptors
//! (`ulimit -n`).

use std::os::unix::process::CommandExt;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::{Failure, reexec};
use crate::cli::MountOptions;
use crate::machine::{address_space_bytes, memory_bytes, used_address_space_bytes};

/// The address space of a session thread in bytes: its stack, and the request buffer that `fuser`
/// allocates when the thread starts.
const SESSION_BYTES: u64 = (16 << 20) + THREAD_BYTES;
/// The address space of any other thread in bytes: its stack and guard pages.
const THREAD_BYTES: u64 = (2 << 20) + (64 << 10);
/// Address space for uncounted uses such as the allocator, in bytes.
const SPARE_BYTES: u64 = 32 << 20;
/// The number of descriptors for files of the source.
const SPARE_DESCRIPTORS: u64 = 4;

/// The environment variable that limits the arenas of the allocator, each of which reserves 64 MiB of address
/// space and keeps freed memory.
const ARENAS: &str = "MALLOC_ARENA_MAX";
/// The environment variable with the size from which memory is mapped, and unmapped when it is freed. By default
/// the allocator raises it to 32 MiB, and then keeps as much again as the limit of a small mount.
const MAPPED: &str = "MALLOC_MMAP_THRESHOLD_";
const MAPPED_BYTES: u64 = 256 << 10;
/// Below this memory limit, the memory that an allocator keeps matters.
const SMALL_MEMORY_BYTES: u64 = 1 << 30;

/// Returns the memory limit that the user wants, or the default.
pub(super) fn wanted_memory_bytes(options: &MountOptions) -> u64 {
    options.memory_limit.unwrap_or_else(|| memory_bytes() / 2)
}

/// Executes this command again in this process with an allocator that keeps little memory and address space, if
/// either is limited; otherwise returns at once.
///
/// # Errors
/// The error of execve(2), if address space is limited.
pub(super) fn restart_with_small_allocator(options: &MountOptions) -> Result<(), Failure> {
    let has_little_space = address_space_bytes().is_some();
    let has_little_memory = wanted_memory_bytes(options) < SMALL_MEMORY_BYTES;
    let is_small = std::env::var_os(ARENAS).is_some() || std::env::var_os(MAPPED).is_some();
    if is_small || !(has_little_space || has_little_memory) {
        return Ok(());
    }
    let arenas = if has_little_space { "1" } else { "2" };
    let error = reexec::same_arguments()
        .env(ARENAS, arenas)
        .env(MAPPED, MAPPED_BYTES.to_string())
        .exec();
    match has_little_space {
        true => Err(format!("starting again for a limited address space: {error}").into()),
        // The mount works, with more memory than its limit.
        false => {
            log::warn!("starting again for a small memory limit: {error}");
            Ok(())
        }
    }
}

/// The numbers of threads of a mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct Threads {
    /// Session threads.
    pub(super) session: usize,
    /// Other threads that start before the mount.
    pub(super) early: usize,
    /// Other threads that start with the mount or later.
    pub(super) late: usize,
}

impl Threads {
    /// Returns the address space of the threads that start with the mount or later.
    fn late_bytes(self) -> u64 {
        let late = (self.late as u64).saturating_mul(THREAD_BYTES);
        (self.session as u64)
            .saturating_mul(SESSION_BYTES)
            .saturating_add(late)
    }
}

/// The smallest usable memory limit in bytes.
const MIN_MEMORY_BYTES: u64 = 8 << 20;

/// Returns the memory limit, computed before any of the threads is started: the wanted one, or less
/// if the address space is limited.
///
/// # Errors
/// If the address space is too small for the threads and the smallest memory limit.
pub(super) fn memory_limit_bytes(wanted: u64, threads: Threads) -> Result<u64, Failure> {
    let Some(limit) = address_space_bytes() else {
        return Ok(wanted);
    };
    let early = (threads.early as u64).saturating_mul(THREAD_BYTES);
    let used = used_address_space_bytes()
        .saturating_add(early)
        .saturating_add(threads.late_bytes())
        .saturating_add(SPARE_BYTES);
    check_address_space(limit, used.saturating_add(2 * MIN_MEMORY_BYTES))?;
    // Only half of the free address space, because of fragmentation.
    Ok(wanted.min(limit.saturating_sub(used) / 2))
}

fn check_address_space(limit: u64, needed: u64) -> Result<(), Failure> {
    match limit < needed {
        true => Err(format!(
            "the limit of address space (ulimit -v) is {} KiB, this mount needs {} KiB at least",
            limit / 1024,
            needed / 1024
        )
        .into()),
        false => Ok(()),
    }
}

/// Checks, after the early threads have started, that the address space suffices for the session
/// and the memory limit, and the descriptors for the mount.
pub(super) fn check(threads: Threads, memory_limit_bytes: u64) -> Result<(), Failure> {
    if let Some(limit) = address_space_bytes() {
        let needed = used_address_space_bytes()
            .saturating_add(threads.late_bytes())
            .saturating_add(memory_limit_bytes);
        check_address_space(limit, needed)?;
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        // One for the device, which all session threads share.
        let needed = open_descriptors(limit).saturating_add(1 + SPARE_DESCRIPTORS);
        if limit < needed {
            return Err(format!(
                "the limit of open files (ulimit -n) is {limit}, a mount needs {needed} at least"
            )
            .into());
        }
    }
    Ok(())
}

/// Returns the number of open descriptors, the limit if no more can be opened, or 0 if unknown.
fn open_descriptors(limit: u64) -> u64 {
    match std::fs::read_dir("/proc/self/fd") {
        // The listing itself uses one of the descriptors.
        Ok(listing) => (listing.count() as u64).saturating_sub(1),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => limit,
        Err(_) => 0,
    }
}
