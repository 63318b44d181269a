//! FUSE init: the capabilities and limits negotiated before the first request.

use std::sync::atomic::Ordering;

use fuser::{InitFlags, KernelConfig};

use super::Service;
use crate::fs::MAX_READ_BYTES;

/// The number of background requests that the kernel sends at a time.
const BACKGROUND: u16 = 64;
/// [`BACKGROUND`] for a remote source. Readahead of a file that hangs must not keep the kernel from
/// sending other requests.
const REMOTE_BACKGROUND: u16 = 4096;

impl Service {
    /// Requests the capabilities that make the mount faster; each of them is optional.
    pub(super) fn negotiate_init(&self, config: &mut KernelConfig) {
        // With FUSE_ABORT_ERROR, a connection that an administrator aborts differs from an unmount.
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_ABORT_ERROR;
        // Without attributes in listings, READDIRPLUS saves no lookup.
        if self.fs.lists_attributes() {
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        if self.fs.is_immutable() {
            wanted |= InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        }
        if self.fs.is_open_infallible() {
            wanted |= InitFlags::FUSE_NO_OPEN_SUPPORT;
        }
        if self.passthrough.load(Ordering::Relaxed) {
            // The kernel stacks at most two file systems: with depth 1, an overlay can still use this mount.
            let can = config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH)
                && config.set_max_stack_depth(1).is_ok();
            self.passthrough.store(can, Ordering::Relaxed);
            if can {
                wanted |= InitFlags::FUSE_PASSTHROUGH;
            }
        }
        let wanted = wanted & config.capabilities();
        let is_infallible = wanted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.is_open_infallible
            .store(is_infallible, Ordering::Relaxed);
        // A missing flag is no error, because every flag is an optimisation.
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(u32::try_from(MAX_READ_BYTES).unwrap_or(u32::MAX));
        let _ = config.set_max_background(match self.fs.is_remote() {
            true => REMOTE_BACKGROUND,
            false => BACKGROUND,
        });
    }
}
