//! Level: the system around the daemon, as administrators use it: mount(8), fstab, systemd,
//! overlayfs, packages. Tests that could change the machine run in their own mount namespace: its
//! /etc/fstab, /sbin and packages stay unchanged.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

use support::{place, servers};

mod booted;
mod env_file;
mod fstab;
mod messages;
mod namespace;
mod overlay;
mod packages;
mod parts;
mod pods;
mod portable;
mod python;
mod recipes;
mod systemd;
