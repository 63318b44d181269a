//! What the system must grant for a mount to work: address space (`ulimit -v`) and descriptors
//! (`ulimit -n`). A mount with less refuses to start.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::Failure;
use crate::machine::{address_space_bytes, used_address_space_bytes};

/// A session thread's buffer for requests, which `fuser` allocates when the thread starts, and its
/// stack.
const SESSION_BYTES: u64 = (16 << 20) + THREAD_BYTES;
/// The stack of a thread.
const THREAD_BYTES: u64 = (2 << 20) + (64 << 10);
/// For everything that is not counted: what the allocator keeps, the parts of files that are read.
const SPARE_BYTES: u64 = 32 << 20;
/// Descriptors for opening files of the source, besides those of the session.
const SPARE_DESCRIPTORS: u64 = 4;

/// Set for a process whose allocator keeps one pool of memory: each of them takes 64 MiB of address
/// space.
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Starts this command again, in this process, with an allocator that takes little address space, if
/// that is limited; returns at once otherwise.
///
/// # Errors
/// The system's, if it cannot be started again.
pub(super) fn restart_with_small_allocator() -> Result<(), Failure> {
    if address_space_bytes().is_none() || std::env::var_os(ARENAS).is_some() {
        return Ok(());
    }
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).env(ARENAS, "1").exec();
    Err(format!("starting again for a limited address space: {error}").into())
}

/// The threads of a mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct Threads {
    /// Those that take requests from the kernel.
    pub(super) session: usize,
    /// Others that start before the mount.
    pub(super) early: usize,
    /// Others that start with it or later.
    pub(super) late: usize,
}

impl Threads {
    /// Address space of those that start with the mount or later.
    fn late_bytes(self) -> u64 {
        let late = (self.late as u64).saturating_mul(THREAD_BYTES);
        (self.session as u64)
            .saturating_mul(SESSION_BYTES)
            .saturating_add(late)
    }
}

/// A mount with less memory could read next to nothing.
const MIN_MEMORY_BYTES: u64 = 8 << 20;

/// The memory limit for a process with so many threads, none of which has been started: what was
/// asked for, or less if the address space is limited.
///
/// # Errors
/// The address space has no room for the threads and for the least memory.
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
    // What is freed in parts is not free for what is larger.
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

/// Fails if the address space has no room for the session and the memory limit, or if there are too
/// few descriptors: before the mount, when the early threads have started.
pub(super) fn check(threads: Threads, memory_limit_bytes: u64) -> Result<(), Failure> {
    if let Some(limit) = address_space_bytes() {
        let needed = used_address_space_bytes()
            .saturating_add(threads.late_bytes())
            .saturating_add(memory_limit_bytes);
        check_address_space(limit, needed)?;
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        // The device, and a copy of it for each session thread but one.
        let needed = open_descriptors(limit)
            .saturating_add(threads.session as u64)
            .saturating_add(SPARE_DESCRIPTORS);
        if limit < needed {
            return Err(format!(
                "the limit of open files (ulimit -n) is {limit}, a mount needs {needed} at least"
            )
            .into());
        }
    }
    Ok(())
}

/// Descriptors of this process, or the limit if no more can be opened; 0 if they cannot be counted.
fn open_descriptors(limit: u64) -> u64 {
    match std::fs::read_dir("/proc/self/fd") {
        // One of them is that of the listing.
        Ok(listing) => (listing.count() as u64).saturating_sub(1),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::MFILE) => limit,
        Err(_) => 0,
    }
}
