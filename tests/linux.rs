//! Level: the system around the daemon, as an administrator meets it: mount(8), fstab, systemd,
//! overlayfs, packages. What could touch the machine runs in a mount namespace of its own: its
//! /etc/fstab, its /sbin and its packages stay what they are.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

#[allow(dead_code)]
#[path = "daemon/place.rs"]
mod place;
#[path = "support/servers.rs"]
mod servers;

#[path = "linux/booted.rs"]
mod booted;
#[path = "linux/env_file.rs"]
mod env_file;
#[path = "linux/fstab.rs"]
mod fstab;
#[path = "linux/namespace.rs"]
mod namespace;
#[path = "linux/overlay.rs"]
mod overlay;
#[path = "linux/packages.rs"]
mod packages;
#[path = "linux/said.rs"]
mod said;
#[path = "linux/systemd.rs"]
mod systemd;
