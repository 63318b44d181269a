//! Installations: by the script, from the archive, by dpkg, rpm and pip. Each goes to its own
//! directory, is tried with a mount of the demo, and is removed again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::*;
use crate::recipes::apt_finds;
use crate::support::*;

pub fn script(name: &str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scripts")
        .join(name);
    let mut command = Command::new(path);
    for name in ["PREFIX", "DESTDIR", "SBINDIR", "ZARRFS_BINARY"] {
        command.env_remove(name);
    }
    command
}

/// Returns the binary without its symbols, which are most of its size.
pub fn binary(place: &Place) -> PathBuf {
    let binary = place.join("stripped");
    let built = zarrfs();
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&binary).arg(built.get_program());
    if !strip.status().is_ok_and(|status| status.success()) {
        fs::copy(built.get_program(), &binary).unwrap();
    }
    binary
}

/// Returns all files and links below a directory, by their relative paths.
fn files(directory: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    find.arg(directory)
        .args(["!", "-type", "d", "-printf", "%P\\n"]);
    let mut files: Vec<String> = run(&mut find).lines().map(str::to_owned).collect();
    files.sort();
    files
}

/// Asserts that the installed binary mounts its demo, which can be read.
pub fn mounts_the_demo(place: &Place, installed: &Path) {
    let mut version = Command::new(installed);
    let line = format!("zarrfs {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(output_of(version.arg("-V")).ok().out, line);
    let mut demo = Command::new(installed);
    output_of(demo.arg("demo").arg(&place.path)).ok();
    let npy = fs::read(place.path.join("v3/t2m/.zarrfs/t2m.npy")).unwrap();
    assert!(npy.starts_with(b"\x93NUMPY"));
    let mut umount = Command::new(installed);
    output_of(umount.arg("umount").arg(&place.path)).ok();
}

#[test]
fn the_script_installs_the_package_and_removes_it() {
    let place = Place::new();
    let binary = binary(&place);
    let root = place.join("a root");
    let install = |arguments: &[&str]| {
        let mut install = script("install");
        install
            .args(arguments)
            .env("DESTDIR", &root)
            .env("PREFIX", "/opt/zarrfs");
        output_of(install.env("ZARRFS_BINARY", &binary)).ok();
    };
    // Twice, as in an update.
    install(&[]);
    install(&[]);
    let wanted = [
        "opt/zarrfs/bin/zarrfs",
        "opt/zarrfs/lib/systemd/system/zarrfs@.service",
        "opt/zarrfs/lib/systemd/user/zarrfs@.service",
        "opt/zarrfs/sbin/mount.fuse.zarrfs",
        "opt/zarrfs/sbin/mount.zarrfs",
        "opt/zarrfs/share/bash-completion/completions/zarrfs",
        "opt/zarrfs/share/doc/zarrfs/CHANGELOG.md",
        "opt/zarrfs/share/doc/zarrfs/LICENSE-APACHE",
        "opt/zarrfs/share/doc/zarrfs/LICENSE-MIT",
        "opt/zarrfs/share/doc/zarrfs/README.md",
        "opt/zarrfs/share/fish/vendor_completions.d/zarrfs.fish",
        "opt/zarrfs/share/zsh/site-functions/_zarrfs",
    ];
    let pages = run(Command::new(&binary).args(["man", "--list"]));
    let page = |file: &str| format!("opt/zarrfs/share/man/man{}/{file}", &file[file.len() - 1..]);
    let mut wanted: Vec<String> = wanted.map(str::to_owned).into();
    wanted.extend(pages.lines().map(page));
    wanted.sort();
    assert_eq!(files(&root), wanted);
    let link = fs::read_link(root.join("opt/zarrfs/sbin/mount.zarrfs")).unwrap();
    assert_eq!(link, Path::new("/opt/zarrfs/bin/zarrfs"));
    let unit = root.join("opt/zarrfs/lib/systemd/system/zarrfs@.service");
    let unit = fs::read_to_string(unit).unwrap();
    assert!(
        unit.contains("ExecStop=/opt/zarrfs/bin/zarrfs umount"),
        "{unit}"
    );
    mounts_the_demo(&place, &root.join("opt/zarrfs/bin/zarrfs"));
    install(&["--uninstall"]);
    assert_eq!(files(&root), [""; 0]);
    for arguments in [&["--bogus"][..], &["--uninstall", "x"]] {
        output_of(script("install").args(arguments)).failed(2, &["usage"]);
    }
    output_of(script("install").env("PREFIX", "here")).failed(2, &["absolute"]);
}

#[test]
fn the_archive_runs_where_it_is_unpacked_and_installs_itself() {
    let place = Place::new();
    let mut build = script("package-tarball");
    build
        .arg(place.make_dir("packages"))
        .env("ZARRFS_BINARY", binary(&place));
    let archive = PathBuf::from(run(&mut build).trim_end());
    let name = archive.file_name().unwrap().to_str().unwrap();
    let version = concat!("zarrfs-", env!("CARGO_PKG_VERSION"), "-");
    assert!(name.starts_with(version), "{name}");
    let mut tar = Command::new("tar");
    run(tar.arg("-xzf").arg(&archive).arg("-C").arg(place.dir()));
    let unpacked = place.join(name.strip_suffix(".tar.gz").unwrap());
    let has = |path: &str| unpacked.join(path).is_file();
    for wanted in [
        "README.md",
        "LICENSE-MIT",
        "share/man/man1/zarrfs.1",
        "share/bash-completion/completions/zarrfs",
    ] {
        assert!(has(wanted), "{wanted}: {:?}", files(&unpacked));
    }
    mounts_the_demo(&place, &unpacked.join("bin/zarrfs"));
    // The script of the archive installs the same files as that of the checkout, without a build.
    let installed = |install: &mut Command, root: &str| {
        let root = place.join(root);
        install.env("DESTDIR", &root).env("PREFIX", "/opt/zarrfs");
        output_of(install).ok();
        files(&root)
    };
    let mut from_archive = Command::new(unpacked.join("scripts/install"));
    let mut from_checkout = script("install");
    from_checkout.env("ZARRFS_BINARY", unpacked.join("bin/zarrfs"));
    assert_eq!(
        installed(from_archive.env_remove("ZARRFS_BINARY"), "a root"),
        installed(&mut from_checkout, "another root")
    );
    output_of(script("package-tarball").arg("--bogus")).failed(2, &["usage"]);
}

#[test]
fn rpm_installs_the_package_and_removes_it() {
    if !is_root() {
        return skipped("needs root");
    }
    let version = Command::new("rpmbuild").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        return skipped("needs rpmbuild");
    }
    let place = Place::new();
    let mut build = script("package-rpm");
    build
        .arg(place.make_dir("packages"))
        .env("ZARRFS_BINARY", binary(&place));
    let package = PathBuf::from(run(&mut build).trim_end());
    let query = |arguments: &[&str]| run(Command::new("rpm").args(arguments).arg(&package));
    let tags = "%{NAME} %{VERSION} %{LICENSE} %{URL}";
    let wanted = concat!(
        "zarrfs ",
        env!("CARGO_PKG_VERSION"),
        " MIT OR Apache-2.0 https://"
    );
    let described = query(&["-qp", "--queryformat", tags]);
    assert!(described.starts_with(wanted), "{described}");
    let needed = query(&["-qp", "--requires"]);
    for name in ["fuse3\n", "libc.so.6(GLIBC_2."] {
        assert!(needed.contains(name), "{needed}");
    }
    let root = place.make_dir("root");
    let rpm = |arguments: &[&str]| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root").arg(&root).args(arguments);
        output_of(&mut rpm)
    };
    let path = package.to_str().unwrap();
    rpm(&["-i", "--nodeps", "--ignorearch", path]).ok();
    let installed = files(&root);
    for wanted in [
        "usr/bin/zarrfs",
        "usr/sbin/mount.zarrfs",
        "usr/share/man/man1/zarrfs.1.gz",
        "usr/lib/systemd/system/zarrfs@.service",
        "usr/share/doc/zarrfs/LICENSE-MIT",
    ] {
        assert!(
            installed.iter().any(|file| file == wanted),
            "{wanted}: {installed:?}"
        );
    }
    rpm(&["-V", "--nodeps", "zarrfs"]).ok();
    mounts_the_demo(&place, &root.join("usr/bin/zarrfs"));
    rpm(&["-e", "zarrfs"]).ok();
    assert!(!root.join("usr/bin/zarrfs").exists());
    assert!(!root.join("usr/share/doc/zarrfs").exists());
}

#[test]
fn dpkg_installs_the_package_and_removes_it() {
    if !is_root() {
        return skipped("needs root");
    }
    if !Path::new("/usr/bin/dpkg-deb").exists() {
        return skipped("needs dpkg");
    }
    let place = Place::new();
    let binary = binary(&place);
    let packages = place.make_dir("packages");
    let mut build = script("package-deb");
    build.arg(&packages).env("ZARRFS_BINARY", &binary);
    // Weak compression, because the package is unpacked immediately.
    build
        .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip")
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let package = PathBuf::from(run(&mut build).trim_end());
    assert!(package.starts_with(&packages), "{package:?}");
    let field = |name: &str| {
        let mut show = Command::new("dpkg-deb");
        run(show.arg("-f").arg(&package).arg(name))
    };
    assert_eq!(field("Version"), format!("{}\n", env!("CARGO_PKG_VERSION")));
    assert!(
        field("Depends").starts_with("fuse3, libc6 (>= 2."),
        "{}",
        field("Depends")
    );
    if Path::new("/usr/bin/dpkg-scanpackages").exists() {
        apt_finds(&place, &package);
    }

    // A separate root, so that the packages of the machine stay unchanged.
    let root = place.make_dir("root");
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        dpkg.arg(format!("--root={}", root.display()))
            .env("PATH", path);
        dpkg.args([
            "--force-depends",
            "--force-script-chrootless",
            "--log=/dev/null",
        ]);
        dpkg
    };
    run(dpkg().arg("-i").arg(&package));
    let installed = files(&root);
    for wanted in [
        "usr/bin/zarrfs",
        "usr/sbin/mount.zarrfs",
        "usr/sbin/mount.fuse.zarrfs",
        "usr/share/man/man1/zarrfs.1.gz",
        "usr/share/man/man1/zarrfs-mount.1.gz",
        "usr/share/man/man7/zarrfs-views.7.gz",
        "usr/share/man/man8/mount.zarrfs.8.gz",
        "usr/share/bash-completion/completions/zarrfs",
        "usr/share/zsh/vendor-completions/_zarrfs",
        "usr/share/fish/vendor_completions.d/zarrfs.fish",
        "usr/lib/systemd/system/zarrfs@.service",
        "usr/share/doc/zarrfs/copyright",
    ] {
        assert!(
            installed.iter().any(|file| file == wanted),
            "{wanted}: {installed:?}"
        );
    }
    assert_eq!(run(dpkg().args(["--verify", "zarrfs"])), "");
    mounts_the_demo(&place, &root.join("usr/bin/zarrfs"));
    run(dpkg().args(["-r", "zarrfs"]));
    let left = files(&root);
    assert!(
        left.iter().all(|file| file.starts_with("var/lib/dpkg/")),
        "{left:?}"
    );
}

#[test]
fn pip_installs_the_wheel_and_removes_it() {
    let python = Command::new("python3")
        .args(["-c", "import ensurepip, tomllib, venv"])
        .output();
    if !python.is_ok_and(|output| output.status.success()) {
        return skipped("needs python3 (3.11) with venv");
    }
    let place = Place::new();
    let mut build = script("package-wheel");
    build
        .arg(place.make_dir("packages"))
        .env("ZARRFS_BINARY", binary(&place));
    let wheel = run(&mut build);
    let wheel = wheel.trim_end();
    assert!(
        wheel.ends_with(".whl") && wheel.contains("-py3-none-linux_"),
        "{wheel}"
    );
    let venv = place.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let pip = || {
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args([
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--no-cache-dir",
        ]);
        pip
    };
    run(pip().args(["install", "--no-index", wheel]));
    let installed = venv.join("bin/zarrfs");
    mounts_the_demo(&place, &installed);
    // RECORD contains every file with its hash and size.
    let check = r#"
import base64, hashlib, importlib.metadata as m
files = m.distribution("zarrfs").files
assert any(str(f).endswith("bin/zarrfs") for f in files), files
for f in files:
    if f.hash:
        assert f.hash.value == base64.urlsafe_b64encode(hashlib.sha256(f.locate().read_bytes()).digest()).rstrip(b"=").decode(), f
        assert f.size == f.locate().stat().st_size, f
print(sum(f.hash is not None for f in files))
"#;
    let checked = run(Command::new(venv.join("bin/python")).args(["-c", check]));
    assert!(checked.trim().parse::<u32>().unwrap() >= 5, "{checked}");
    run(pip().args(["uninstall", "--yes", "zarrfs"]));
    assert!(!installed.exists());
}
