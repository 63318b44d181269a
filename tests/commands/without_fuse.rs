//! The build without FUSE from `scripts/build-without-fuse`: it reads and exports as the ordinary
//! build does, and commands that need FUSE fail with advice.

use std::path::PathBuf;
use std::process::Command;

use crate::export::assert_exports_are_views_of_a_mount;
use crate::place::{CommandOutput, output_of};
use crate::stores::*;
use crate::support::*;

/// Returns the path of the binary; without it, the test is skipped.
fn binary() -> Option<PathBuf> {
    let binary = std::env::var_os("ZARRFS_WITHOUT_FUSE").map(PathBuf::from);
    if binary.is_none() {
        skipped("needs ZARRFS_WITHOUT_FUSE, which scripts/build-without-fuse builds");
    }
    binary
}

#[test]
fn every_view_that_is_exported_without_fuse_is_that_of_a_mount() {
    let Some(binary) = binary() else { return };
    assert_exports_are_views_of_a_mount(|| Command::new(&binary));
}

#[test]
fn commands_that_read_a_source_print_the_same_without_fuse() {
    let Some(binary) = binary() else { return };
    let store = fixture("dir/v3-xarray");
    let store = store.to_str().unwrap();
    for line in [
        &["tree", "demo:"][..],
        &["tree", store, "--json"],
        &["info", "demo:", "v3/t2m"],
        &["info", store, "--json"],
        &["check", "nosuch.zarr"],
        &["help", "netcdf"],
        &["help", "vews"],
        &["man", "zarrfs-views.7"],
        &["man", "zarrfs-export.1"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
        &["__complete", "zarrfs", "export", "--as", ""],
    ] {
        let [without, with] = [Command::new(&binary), zarrfs()].map(|mut program| {
            let CommandOutput { code, out, err } = output_of(program.args(line));
            (code, out, err)
        });
        assert_eq!(without, with, "{line:?}");
    }
    output_of(Command::new(&binary).args(["check", store])).ok();
}

#[test]
fn a_view_without_fuse_has_a_command_that_exports_it() {
    let Some(binary) = binary() else { return };
    let dir = scratch();
    let mut run = 0;
    for key in ["", "v3", "v3/t2m"] {
        let key = Some(key).filter(|key| !key.is_empty());
        let mut views = Command::new(&binary);
        let views = output_of(views.args(["views", "demo:"]).args(key));
        let commands = views
            .ok()
            .out
            .lines()
            .filter_map(|line| line.strip_prefix("    zarrfs "));
        for command in commands {
            let mut export = Command::new(&binary);
            export.args(command.split(' ')).arg("--overwrite");
            output_of(export.current_dir(dir.path())).ok();
            run += 1;
        }
        assert!(!views.out.contains("zarrfs run"), "{views:?}");
    }
    assert!(run > 10, "{run}");
}

#[test]
fn commands_that_need_fuse_print_the_remedy() {
    let Some(binary) = binary() else { return };
    let dir = scratch();
    for (line, code) in [
        (&["demo:", "."][..], 32),
        (&["mount", "demo:"], 32),
        (&["demo", "."], 32),
        (&["run", "demo:", "--", "true"], 125),
        (&["umount", "."], 1),
        (&["umount", "--all"], 1),
        (&["mounts"], 1),
        (&["stats"], 1),
    ] {
        let mut program = Command::new(&binary);
        let refused = output_of(program.args(line).current_dir(dir.path()));
        let words = ["no FUSE support", "`zarrfs export`", "install a package"];
        refused.failed(code, &words);
    }
    let help = output_of(Command::new(&binary).arg("-h"));
    assert!(help.ok().out.contains("This build has no FUSE"), "{help:?}");
    assert!(!help.out.contains("zarrfs umount"), "{help:?}");
    let version = output_of(Command::new(&binary).arg("--version"));
    assert!(version.ok().out.contains("transport: none"), "{version:?}");
}
