"""No test may leave a mount, or a directory of one."""

import subprocess
from pathlib import Path
from typing import Iterator, List

import pytest

import zarrfs


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of private mountpoints, in which nothing may be left."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield directory
    left = mounts_below(tmp_path)
    for path in left:
        subprocess.run([zarrfs.program(), "umount", "--lazy", path], check=False)
    assert not left
    assert not list(directory.iterdir())


def mounts_below(directory: Path) -> List[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split(" ")[1] for line in lines]
    return [point for point in points if point.startswith(f"{directory}/")]
