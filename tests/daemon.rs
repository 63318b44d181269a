//! Level: the daemon as a process, on a real mount. How it starts, ends and is recovered (rows J
//! of the fault table), what it mounts on (G12) and for whom (H). The daemon is always another
//! process; each test carries its row in its name. Tests that need root say so and pass when they
//! are not root.

#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

#[allow(dead_code)]
#[path = "daemon/place.rs"]
mod place;

#[path = "daemon/ends.rs"]
mod ends;
#[path = "daemon/mountpoints.rs"]
mod mountpoints;
#[path = "daemon/names.rs"]
mod names;
#[path = "daemon/socket.rs"]
mod socket;
#[path = "daemon/sources.rs"]
mod sources;
#[path = "daemon/starts.rs"]
mod starts;
#[path = "daemon/users.rs"]
mod users;
