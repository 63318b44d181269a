//! The Python package of the wheel, on each installed Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::packages::{binary, script};
use crate::place::*;
use crate::support::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the environments of tests/python/setup.sh.
fn environments() -> Vec<PathBuf> {
    let Ok(all) = fs::read_dir(root().join("tests/python/.venvs")) else {
        return Vec::new();
    };
    let mut all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.join("stamp").exists());
    all
}

/// Installs the wheel into a new environment, with access to the packages of `tools`.
fn installed(place: &Place, tools: &Path, wheel: &str) -> PathBuf {
    let name = tools.file_name().unwrap();
    let environment = place.join(name);
    let base = tools.join("bin/python");
    let mut create = Command::new(&base);
    create.args(["-m", "venv", "--without-pip"]);
    run(create.arg(&environment));
    let site = |python: &Path| {
        let code = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let path = run(Command::new(python).args(["-c", code]));
        PathBuf::from(path.trim_end())
    };
    let python = environment.join("bin/python");
    let beside = site(&base).into_os_string().into_string().unwrap();
    fs::write(site(&python).join("tools.pth"), beside).unwrap();
    let mut pip = Command::new(tools.join("bin/pip"));
    pip.arg("--python").arg(&python);
    pip.args(["install", "--quiet", "--no-index", "--no-cache-dir"]);
    run(pip.args(["--disable-pip-version-check", wheel]));
    python
}

#[test]
fn the_python_package_passes_its_tests() {
    let environments = environments();
    if environments.is_empty() {
        return skipped("needs tests/python/setup.sh");
    }
    let place = Place::new();
    let mut build = script("package-wheel");
    build.arg("--binary").arg(binary(&place));
    let wheel = run(build.arg(place.join("wheels")));
    for tools in environments {
        let python = installed(&place, &tools, wheel.trim_end());
        let mut pytest = Command::new(&python);
        pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp"]);
        pytest
            .arg(place.join("pytest"))
            .arg("tests/python")
            .current_dir(root())
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let output = run_for(&mut pytest, Duration::from_secs(120));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {text}", tools.display());
    }
}

#[test]
fn the_types_of_the_python_package_are_those_of_python_3_9() {
    let mypy = root().join("tests/python/.venvs/main/bin/mypy");
    if !mypy.exists() {
        return skipped("needs tests/python/setup.sh");
    }
    let place = Place::new();
    let mut command = Command::new(&mypy);
    // The packages that the adapters extend have the syntax of newer versions.
    let only_own = "--follow-imports=skip";
    command.args([
        "--strict",
        only_own,
        "--python-version",
        "3.9",
        "--cache-dir",
    ]);
    command.arg(place.join("cache")).arg("zarrfs");
    command.current_dir(root().join("scripts/python"));
    // The first run parses the types of the standard library.
    let output = run_for(&mut command, Duration::from_secs(200));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}
