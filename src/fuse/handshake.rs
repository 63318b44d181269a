//! What is agreed on with the kernel before the first request.

use std::sync::atomic::Ordering;

use fuser::{InitFlags, KernelConfig};

use super::Service;
use crate::fs::MAX_READ_BYTES;

/// Reads that the kernel lets wait in the background.
const BACKGROUND: u16 = 64;
/// The same where they wait for a network: read-ahead of what hangs must not keep the kernel from
/// asking for what is at hand.
const FAR_BACKGROUND: u16 = 4096;

impl Service {
    /// Asks the kernel for what makes it faster. What it lacks it does without.
    pub(super) fn shake_hands(&self, config: &mut KernelConfig) {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS;
        // A name without attributes is looked up by itself anyway.
        if self.fs.lists_attributes() {
            wanted |= InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        if self.fs.is_pinned() {
            wanted |= InitFlags::FUSE_EXPLICIT_INVAL_DATA;
        }
        if self.fs.open_infallible() {
            wanted |= InitFlags::FUSE_NO_OPEN_SUPPORT;
        }
        if self.passthrough.load(Ordering::Relaxed) {
            // The kernel stacks two file systems at most: with one below, an overlay can be on top.
            let can = config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH)
                && config.set_max_stack_depth(1).is_ok();
            self.passthrough.store(can, Ordering::Relaxed);
            if can {
                wanted |= InitFlags::FUSE_PASSTHROUGH;
            }
        }
        let wanted = wanted & config.capabilities();
        let never_asked = wanted.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.open_never_asked.store(never_asked, Ordering::Relaxed);
        // Every flag is an optimisation.
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(u32::try_from(MAX_READ_BYTES).unwrap_or(u32::MAX));
        let _ = config.set_max_background(match self.fs.is_remote() {
            true => FAR_BACKGROUND,
            false => BACKGROUND,
        });
    }
}
