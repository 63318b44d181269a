"""Runs the scripts and the tests of each output of a recipe of rattler-build.

Usage: conda_recipe.py RECIPE SOURCES DIRECTORY. The build by cargo is left out: SOURCES has the binary. Each output gets
the directory of its name in DIRECTORY.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

import yaml

recipe = yaml.safe_load(Path(sys.argv[1]).read_text())
sources, directory = Path(sys.argv[2]), Path(sys.argv[3])
version = recipe["context"]["version"]
prefix = directory / "prefix"
packages = directory / "site-packages"


def run(lines, cwd, **variables):
    script = "\n".join(line.replace("${{ version }}", version) for line in lines)
    assert "${{" not in script, script
    environment = {**os.environ, **variables}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, cwd=cwd, env=environment)


for output in recipe["outputs"]:
    lines = output["build"]["script"]
    builds = [line for line in lines if line.startswith("cargo build --release --locked")]
    assert len(builds) == (output["package"]["name"] == "zarrfs"), builds
    rest = [line for line in lines if line not in builds]
    run(rest, sources, PREFIX=str(prefix), SRC_DIR=str(sources), SP_DIR=str(packages))

programs = directory / "programs"
venv.create(programs, with_pip=False, symlinks=True)
path = f"{prefix}/bin:{programs}/bin:{os.environ['PATH']}"
tested = directory / "tested"
tested.mkdir()
count = 0
for output in recipe["outputs"]:
    for test in output["tests"]:
        lines = list(test.get("script", []))
        lines += [f"python -c 'import {name}'" for name in test.get("python", {}).get("imports", [])]
        assert lines, test
        run(lines, tested, PATH=path, PYTHONPATH=str(packages))
        count += len(lines)

# The entry points are found, as by xarray and fsspec.
points = "import importlib.metadata as m; print(m.version('zarrfs'), len(m.distribution('zarrfs').entry_points))"
run([f'python -c "{points}"'], tested, PATH=path, PYTHONPATH=str(packages))
for name in recipe["about"]["license_file"]:
    assert (sources / name).is_file(), name
print(f"{count} commands of tests")
