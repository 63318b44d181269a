//! Recipes from which others build, and what is published of a release.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::{binary, mounts_the_demo, script};
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

/// Returns a directory that looks like the sources of a release after the build of the binary.
fn built_sources(place: &Place) -> PathBuf {
    let sources = place.make_dir("sources");
    for name in [
        "CHANGELOG.md",
        "Cargo.toml",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "scripts",
        "src",
    ] {
        symlink(Path::new(ROOT).join(name), sources.join(name)).unwrap();
    }
    put_binary(place, &sources);
    sources
}

fn put_binary(place: &Place, sources: &Path) {
    let built = sources.join("target/release");
    fs::create_dir_all(&built).unwrap();
    fs::copy(binary(place), built.join("zarrfs")).unwrap();
}

/// Asserts that a directory has the program with its manual and completions.
#[track_caller]
fn assert_installed(root: &Path, bash: &str) {
    let bash = format!("{bash}/zarrfs");
    for wanted in [
        "bin/zarrfs",
        "share/man/man1/zarrfs.1",
        "share/man/man7/zarrfs-views.7",
        &bash,
        "share/zsh/site-functions/_zarrfs",
        "share/fish/vendor_completions.d/zarrfs.fish",
    ] {
        assert!(root.join(wanted).is_file(), "{wanted}");
    }
}

#[test]
fn makepkg_makes_the_package_of_arch_from_the_sources_of_a_release() {
    let is_clone = Path::new(ROOT).join(".git").exists();
    if !is_root() || !is_clone || !has("makepkg") || !has("bsdtar") {
        return skipped("needs root, a clone, makepkg and bsdtar");
    }
    let place = Place::new();
    let directory = place.make_dir("arch");
    let archive = PathBuf::from(run(script("package-source").arg(&directory)).trim_end());
    run(script("release-recipes")
        .arg(&archive)
        .arg(place.join("recipes")));
    fs::rename(
        place.join("recipes/aur/PKGBUILD"),
        directory.join("PKGBUILD"),
    )
    .unwrap();
    let open = |path: &Path| {
        run(Command::new("chmod").args(["-R", "a+rwX"]).arg(path));
    };
    open(place.dir());
    // makepkg refuses root, and looks for pacman, which is not in Debian's package.
    let makepkg = |arguments: &[&str]| {
        let mut makepkg = Command::new("setpriv");
        makepkg
            .args([
                "--reuid=nobody",
                "--regid=nogroup",
                "--clear-groups",
                "makepkg",
            ])
            .args(arguments)
            .env("HOME", "/tmp")
            .env("PACMAN", "true")
            .env("PKGEXT", ".pkg.tar")
            .env("CARCH", "x86_64")
            .current_dir(&directory);
        run(&mut makepkg)
    };
    let read = makepkg(&["--printsrcinfo"]);
    for line in [
        concat!("pkgver = ", env!("CARGO_PKG_VERSION")),
        "pkgname = zarrfs",
        "depends = fuse3",
    ] {
        assert!(read.contains(line), "{line}: {read}");
    }
    // Compares the sha256 and unpacks the sources. The build by cargo is left out.
    makepkg(&["--nodeps", "--nobuild", "--noprepare"]);
    let sources = directory.join(concat!("src/zarrfs-", env!("CARGO_PKG_VERSION")));
    put_binary(&place, &sources);
    open(&directory);
    makepkg(&["--nodeps", "--repackage"]);
    let package = format!("zarrfs-{}-1-x86_64.pkg.tar", env!("CARGO_PKG_VERSION"));
    let root = place.make_dir("root");
    let mut unpack = Command::new("bsdtar");
    run(unpack
        .arg("-xf")
        .arg(directory.join(package))
        .arg("-C")
        .arg(&root));
    let info = fs::read_to_string(root.join(".PKGINFO")).unwrap();
    assert!(info.contains("depend = fuse3\n"), "{info}");
    for wanted in [
        "usr/bin/mount.zarrfs",
        "usr/lib/systemd/system/zarrfs@.service",
        "usr/share/licenses/zarrfs/LICENSE-MIT",
        "usr/share/man/man1/zarrfs.1.gz",
        "usr/share/man/man8/mount.zarrfs.8.gz",
    ] {
        assert!(root.join(wanted).symlink_metadata().is_ok(), "{wanted}");
    }
    mounts_the_demo(&place, &root.join("usr/bin/zarrfs"));
}

#[test]
fn the_formula_of_homebrew_installs_the_program_and_passes_its_test() {
    if !has("ruby") {
        return skipped("needs ruby");
    }
    let formula = Path::new(ROOT).join("scripts/homebrew/zarrfs.rb");
    let parsed = run(Command::new("ruby").arg("-c").arg(&formula));
    assert_eq!(parsed, "Syntax OK\n");
    let place = Place::new();
    let prefix = place.join("prefix");
    let mut ruby = Command::new("ruby");
    ruby.arg(Path::new(ROOT).join("tests/linux/formula.rb"));
    let caveats = run(ruby.arg(&formula).arg(built_sources(&place)).arg(&prefix));
    assert!(caveats.contains("fusermount3"), "{caveats}");
    assert_installed(&prefix, "etc/bash_completion.d");
    assert!(prefix.join("test/t2m.npy").is_file());
    mounts_the_demo(&place, &prefix.join("bin/zarrfs"));
}

#[test]
fn the_recipe_of_conda_installs_both_packages_and_passes_its_tests() {
    let python = "/usr/bin/python3";
    let yaml = Command::new(python)
        .args(["-c", "import yaml, venv"])
        .output();
    if !yaml.is_ok_and(|output| output.status.success()) {
        return skipped("needs python3-yaml");
    }
    let place = Place::new();
    let conda = place.make_dir("conda");
    let mut recipe = Command::new(python);
    recipe
        .arg(Path::new(ROOT).join("tests/linux/conda_recipe.py"))
        .arg(Path::new(ROOT).join("scripts/conda/recipe.yaml"))
        .arg(built_sources(&place))
        .arg(&conda);
    let printed = run(&mut recipe);
    let points = concat!(env!("CARGO_PKG_VERSION"), " 2\n");
    assert!(
        printed.contains(points) && printed.ends_with("5 commands of tests\n"),
        "{printed}"
    );
    assert_installed(&conda.join("prefix"), "share/bash-completion/completions");
}

/// An expression that builds the package with stand-ins for nixpkgs. The build by cargo is left out: the sources have
/// the binary.
const NIX_STANDINS: &str = r#"{ package, sources }:
let
  lib = {
    importTOML = file: builtins.fromTOML (builtins.readFile file);
    cleanSourceWith = source: source.src;
    makeBinPath = packages: "/fuse3/bin";
    licenses = { mit = "MIT"; asl20 = "Apache-2.0"; };
    platforms.linux = [ builtins.currentSystem ];
  };
  buildRustPackage = attributes: derivation {
    name = "${attributes.pname}-${attributes.version}";
    system = builtins.currentSystem;
    builder = "/bin/bash";
    args = [ "-euc" ''
      wrapProgram() { echo "$@" > "$out/wrapped"; }
      ln -s ${sources}/* .
      mkdir -p $out/bin
      cp target/release/zarrfs $out/bin/
      ${attributes.postInstall}
      ${attributes.installCheckPhase}
    '' ];
    PATH = "/usr/bin:/bin";
    mainProgram = attributes.meta.mainProgram;
  };
in
import package {
  inherit lib;
  fuse3 = "fuse3";
  makeWrapper = "makeWrapper";
  rustPlatform = { inherit buildRustPackage; };
}
"#;

#[test]
fn nix_builds_the_package_with_stand_ins_for_nixpkgs() {
    if !is_root() || !has("nix-build") {
        return skipped("needs root and nix-build");
    }
    let place = Place::new();
    let standins = place.join("standins.nix");
    fs::write(&standins, NIX_STANDINS).unwrap();
    let nix = place.make_dir("nix");
    let mut build = Command::new("nix-build");
    build
        .args(["--no-out-link", "--option", "sandbox", "false"])
        .args([
            "--option",
            "substituters",
            "",
            "--option",
            "build-users-group",
            "",
        ])
        .arg(&standins)
        .arg("--arg")
        .arg("package")
        .arg(Path::new(ROOT).join("scripts/nix/package.nix"))
        .arg("--argstr")
        .arg("sources")
        .arg(built_sources(&place))
        .env("HOME", &nix)
        .env("NIX_STORE_DIR", nix.join("store"))
        .env("NIX_STATE_DIR", nix.join("state"))
        .env("NIX_LOG_DIR", nix.join("log"))
        .env("NIX_CONF_DIR", &nix);
    let out = PathBuf::from(run(&mut build).trim_end());
    let name = concat!("-zarrfs-", env!("CARGO_PKG_VERSION"));
    assert!(
        out.starts_with(&nix) && out.to_str().unwrap().ends_with(name),
        "{out:?}"
    );
    assert_installed(&out, "share/bash-completion/completions");
    let wrapped = fs::read_to_string(out.join("wrapped")).unwrap();
    let program = out.join("bin/zarrfs");
    assert_eq!(
        wrapped,
        format!("{} --suffix PATH : /fuse3/bin\n", program.display())
    );
    mounts_the_demo(&place, &program);
    // Nix makes its results read-only.
    run(Command::new("chmod").args(["-R", "u+w"]).arg(&nix));
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
