//! `scripts/soak`: all that a mount does at the same time, for two minutes, or for `ZARRFS_SOAK_MINUTES`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::*;

#[test]
fn readers_of_a_store_that_changes_see_whole_values_and_daemons_do_not_grow() {
    let minutes = std::env::var("ZARRFS_SOAK_MINUTES").unwrap_or_else(|_| "2".into());
    let limit = Duration::from_secs_f64(minutes.parse::<f64>().unwrap() * 60.0 + 200.0);
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/soak"));
    command.arg(&minutes).arg(zarrfs().get_program());
    let output = run_for(&mut command, limit);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "{}", output.status);
}
