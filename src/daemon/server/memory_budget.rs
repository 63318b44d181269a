//! The memory that a mount may use.

use super::{Failure, limits};
use crate::cli::MountOptions;
use crate::machine::memory_bytes;

/// The memory budget of a mount.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryBudget {
    /// The cache of decoded chunks and zip entries.
    pub(super) cache_bytes: u64,
    /// All memory whose size a source declares.
    pub(super) limit_bytes: u64,
}

impl MemoryBudget {
    /// Returns the budget that the options and the address space allow.
    pub(super) fn new(options: &MountOptions, threads: limits::Threads) -> Result<Self, Failure> {
        let memory = memory_bytes();
        let wanted = limits::wanted_memory_bytes(options);
        let limit_bytes = limits::memory_limit_bytes(wanted, threads)?;
        if limit_bytes < wanted && options.memory_limit.is_some() {
            log::warn!(
                "--memory-limit {wanted}: only {limit_bytes} bytes fit into the address space \
                 (ulimit -v)"
            );
        }
        let cache_bytes = options.cache_size.unwrap_or((memory / 8).min(2 << 30));
        Ok(Self {
            cache_bytes: cache_bytes.min(limit_bytes),
            limit_bytes,
        })
    }
}
