//! Recipes from which others build, and what is published of a release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::script;
use crate::place::*;
use crate::support::*;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Whether a program answers to `--version`.
fn has(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn recipes_of_a_release_have_its_version_and_the_hash_of_its_sources() {
    let place = Place::new();
    let archive = place.join("zarrfs.tar.gz");
    fs::write(&archive, "sources").unwrap();
    let mut make = script("release-recipes");
    run(make.arg(&archive).arg(place.join("recipes")));
    let sum = run(Command::new("sha256sum").arg(&archive));
    let (sum, _) = sum.split_once(' ').unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for name in ["aur/PKGBUILD", "homebrew/zarrfs.rb", "conda/recipe.yaml"] {
        let text = fs::read_to_string(place.join("recipes").join(name)).unwrap();
        for wanted in [sum, version] {
            assert!(text.contains(wanted), "{name}: no {wanted}: {text}");
        }
        // The recipe of the checkout is that of the same version.
        let own = fs::read_to_string(Path::new(ROOT).join("scripts").join(name)).unwrap();
        assert!(own.contains(version), "{name}: no {version}: {own}");
    }
    for arguments in [&[][..], &["/nonexistent"]] {
        output_of(script("release-recipes").args(arguments)).failed(2, &["usage"]);
    }
}

#[test]
fn makepkg_reads_the_recipe_of_arch() {
    if !is_root() || !has("makepkg") {
        return skipped("needs root and makepkg");
    }
    let place = Place::new();
    let directory = place.make_dir("arch");
    let recipe = Path::new(ROOT).join("scripts/aur/PKGBUILD");
    fs::copy(recipe, directory.join("PKGBUILD")).unwrap();
    run(Command::new("chmod")
        .arg("-R")
        .arg("a+rwX")
        .arg(place.dir()));
    // makepkg refuses root, and looks for pacman, which is not in Debian's package.
    let mut makepkg = Command::new("setpriv");
    makepkg
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
        .args(["makepkg", "--printsrcinfo"])
        .env("HOME", "/tmp")
        .env("PACMAN", "true")
        .current_dir(&directory);
    let read = run(&mut makepkg);
    for line in [
        concat!("pkgver = ", env!("CARGO_PKG_VERSION")),
        "pkgname = zarrfs",
        "depends = fuse3",
    ] {
        assert!(read.contains(line), "{line}: {read}");
    }
}

#[test]
fn ruby_parses_the_formula_of_homebrew() {
    if !has("ruby") {
        return skipped("needs ruby");
    }
    let formula = Path::new(ROOT).join("scripts/homebrew/zarrfs.rb");
    let parsed = run(Command::new("ruby").arg("-c").arg(formula));
    assert_eq!(parsed, "Syntax OK\n");
}

#[test]
fn nix_evaluates_the_expression_with_a_stub_of_nixpkgs() {
    if !has("nix-instantiate") {
        return skipped("needs nix-instantiate");
    }
    let place = Place::new();
    let stub = place.join("stub.nix");
    let package = Path::new(ROOT).join("scripts/nix/package.nix");
    let text = format!(
        r#"let
  lib = {{
    importTOML = file: builtins.fromTOML (builtins.readFile file);
    cleanSourceWith = source: source.src;
    makeBinPath = packages: "bin";
    licenses = {{ mit = "MIT"; asl20 = "Apache-2.0"; }};
    platforms.linux = [ "linux" ];
  }};
  package = import {} {{
    inherit lib;
    fuse3 = "fuse3";
    makeWrapper = "makeWrapper";
    rustPlatform.buildRustPackage = attributes: attributes;
  }};
in "${{package.pname}} ${{package.version}}: ${{package.postInstall}}"
"#,
        package.display()
    );
    fs::write(&stub, text).unwrap();
    let mut evaluate = Command::new("nix-instantiate");
    evaluate
        .args(["--store", "dummy://", "--eval"])
        .arg(&stub)
        .env("NIX_STATE_DIR", place.make_dir("state"));
    let value = run(&mut evaluate);
    let wanted = concat!("zarrfs ", env!("CARGO_PKG_VERSION"), ": DESTDIR=");
    assert!(value.contains(wanted), "{value}");
}

/// The largest crate that the registry of crates accepts, in bytes.
const MAX_CRATE_BYTES: u64 = 10 << 20;

#[test]
fn the_crate_has_everything_that_a_build_needs() {
    let place = Place::new();
    let mut package = Command::new(env!("CARGO"));
    package
        .args(["package", "--locked", "--offline", "--allow-dirty"])
        .args(["--no-verify", "--quiet", "--target-dir"])
        .arg(place.join("target"))
        .current_dir(ROOT);
    run(&mut package);
    let stem = concat!("zarrfs-", env!("CARGO_PKG_VERSION"));
    let archive = place.join(format!("target/package/{stem}.crate"));
    let size = fs::metadata(&archive).unwrap().len();
    assert!(size < MAX_CRATE_BYTES, "{size}");
    run(Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(place.dir()));
    let unpacked = place.join(stem);
    for wanted in ["Cargo.lock", "README.md", "LICENSE-MIT", "scripts/install"] {
        assert!(unpacked.join(wanted).is_file(), "{wanted}");
    }
    // The sources are whole, with the files that they include.
    let mut compare = Command::new("diff");
    compare.args(["--recursive", "--brief"]);
    run(compare
        .arg(Path::new(ROOT).join("src"))
        .arg(unpacked.join("src")));
}

/// Asserts that apt finds a package in a repository of `scripts/package-repository`. It uses a directory of its own
/// for everything, so that the machine's lists stay unchanged.
pub fn apt_finds(place: &Place, package: &Path) {
    let repository: PathBuf = place.join("repository");
    run(script("package-repository").arg(&repository).arg(package));
    let apt = place.make_dir("apt");
    for name in ["lists/partial", "cache/archives/partial", "parts"] {
        fs::create_dir_all(apt.join(name)).unwrap();
    }
    let source = format!(
        "deb [trusted=yes] file:{} stable main\n",
        repository.display()
    );
    fs::write(apt.join("sources.list"), source).unwrap();
    fs::write(apt.join("status"), "").unwrap();
    let option = |name: &str, to: &str| format!("{name}={}", apt.join(to).display());
    let apt_get = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args([
            "-o",
            &option("Dir::Etc::sourcelist", "sources.list"),
            "-o",
            &option("Dir::Etc::sourceparts", "parts"),
            "-o",
            &option("Dir::State::lists", "lists"),
            "-o",
            &option("Dir::State::status", "status"),
            "-o",
            &option("Dir::Cache", "cache"),
            "-o",
            "APT::Sandbox::User=root",
        ]);
        run(command.args(arguments))
    };
    apt_get("apt-get", &["-qq", "update"]);
    let found = apt_get("apt-cache", &["policy", "zarrfs"]);
    let wanted = concat!("Candidate: ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(found.contains(wanted), "{found}");
}
