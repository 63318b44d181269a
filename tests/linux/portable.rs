//! Release artifacts besides the packages: a binary for older systems, and workflows that GitHub accepts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{binary, mounts_the_demo, script};
use crate::place::*;
use crate::support::*;

/// Returns a program of the environment of tests/python/setup.sh.
fn tool(name: &str) -> Option<Command> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("tests/python/.venvs/main/bin").join(name);
    path.exists().then(|| Command::new(path))
}

fn wheel(place: &Place, binary: &Path, options: &[&str]) -> Command {
    let mut build = script("package-wheel");
    build.args(options).arg("--binary").arg(binary);
    build.arg(place.join("wheels"));
    build
}

#[test]
fn the_wheel_passes_the_check_of_pypi() {
    let Some(mut twine) = tool("twine") else {
        return skipped("needs tests/python/setup.sh");
    };
    let place = Place::new();
    let path = run(&mut wheel(&place, &binary(&place), &[]));
    let checked = output_of(twine.args(["check", "--strict", path.trim_end()]));
    assert!(checked.ok().out.contains("PASSED"), "{checked:?}");
}

#[test]
fn a_wheel_has_no_tag_for_systems_that_its_binary_does_not_run_on() {
    let place = Place::new();
    let architecture = std::env::consts::ARCH;
    let binary = binary(&place);
    let refused = |tag: &str, words: &[&str]| {
        output_of(&mut wheel(&place, &binary, &["--tag", tag])).failed(1, words);
    };
    // The test build is linked with the libraries of this machine.
    let old = format!("manylinux_2_5_{architecture}");
    refused(&old, &["does not suit", "it needs"]);
    let static_only = format!("musllinux_1_2_{architecture}");
    refused(&static_only, &["it needs", "libc.so"]);
    refused("manylinux_2_99_riscv64", &["it is for"]);
    refused(&format!("macosx_{architecture}"), &["manylinux_2_N"]);
    assert!(!place.join("wheels").exists());
    let text = place.join("text");
    fs::write(&text, "#!/bin/sh\n").unwrap();
    output_of(&mut wheel(&place, &text, &[])).failed(1, &["no ELF file"]);
}

#[test]
fn the_portable_binary_runs_on_glibc_2_28() {
    let Some(binary) = std::env::var_os("ZARRFS_BINARY").map(PathBuf::from) else {
        return skipped("needs ZARRFS_BINARY, which scripts/build-portable builds");
    };
    let Some(mut auditwheel) = tool("auditwheel") else {
        return skipped("needs tests/python/setup.sh");
    };
    let place = Place::new();
    let tag = format!("manylinux_2_28_{}", std::env::consts::ARCH);
    let path = run(&mut wheel(&place, &binary, &["--tag", &tag]));
    // auditwheel independently reads the symbol tables, and names the oldest tag.
    let shown = output_of(auditwheel.args(["show", path.trim_end()]));
    let text = shown.ok().out.replace('\n', " ");
    let consistent = text
        .split("following platform tag:")
        .nth(1)
        .unwrap_or(&text);
    let minor = consistent.split("manylinux_2_").nth(1).unwrap_or(&text);
    let minor = minor.split('_').next().and_then(|minor| minor.parse().ok());
    assert!(minor.is_some_and(|minor: u32| minor <= 28), "{shown:?}");
    mounts_the_demo(&place, &binary);
}

#[test]
fn the_conda_recipe_has_the_version_of_the_program() {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/conda/recipe.yaml");
    let text = fs::read_to_string(recipe).unwrap();
    let version = format!("version: \"{}\"\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{version}");
}

#[test]
fn the_workflows_are_valid_and_pin_their_actions() {
    let (Some(mut schema), Some(mut zizmor)) = (tool("check-jsonschema"), tool("zizmor")) else {
        return skipped("needs tests/python/setup.sh");
    };
    let workflows = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows");
    let files = fs::read_dir(&workflows).unwrap();
    let files = files.map(|file| file.unwrap().path());
    schema.args(["--builtin-schema", "vendor.github-workflows"]);
    output_of(schema.args(files)).ok();
    output_of(zizmor.args(["--offline", "--no-progress"]).arg(&workflows)).ok();
}
