//! Level: the system around the daemon, as an administrator meets it: mount(8), fstab, systemd,
//! overlayfs, packages. What could touch the machine runs in a mount namespace of its own: its
//! /etc/fstab, its /sbin and its packages stay what they are.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::{place, servers};

mod booted;
mod env_file;
mod fstab;
mod namespace;
mod overlay;
mod packages;
mod portable;
mod python;
mod said;
mod systemd;
