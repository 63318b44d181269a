"""The protocol of fsspec, with the tests that fsspec has for every implementation, as far as they only read."""

import json
import os
from pathlib import Path
from typing import Any, Iterator

import pytest

import zarrfs

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")


@pytest.fixture
def demo() -> Iterator[Any]:
    fs = fsspec.filesystem("zarrfs", source="demo:")
    yield fs
    fs.unmount()


def test_keys_and_views_are_files(demo: Any) -> None:
    assert sorted(demo.ls("", detail=False)) == ["v2", "v3", "zarr.json"]
    assert json.loads(demo.cat("v3/zarr.json"))["node_type"] == "group"
    info = demo.info("v3/.zarrfs/t2m.npy")
    assert (info["type"], info["size"]) == ("file", 128 + 12 * 32 * 64 * 4)
    with demo.open("v3/.zarrfs/t2m.npy") as file:
        assert file.read(6) == b"\x93NUMPY"
    assert demo.cat_file("v3/.zarrfs/t2m.npy", start=1, end=6) == b"NUMPY"
    assert "v3/t2m/zarr.json" in demo.find("v3")
    assert fsspec.filesystem("zarrfs", source="demo:") is demo
    with pytest.raises(FileNotFoundError):
        demo.open("v4")
    with pytest.raises(OSError):
        demo.pipe_file("v3/new", b"x")


def test_a_path_names_its_source(tmp_path: Path) -> None:
    zarrfs.export("demo:v3", tmp_path / "v3.nc")
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr/.zgroup").write_text('{"zarr_format": 2}')
    url = f"zarrfs://.zgroup::file://{tmp_path}/a.zarr"
    fs, path = fsspec.core.url_to_fs(url)
    with fsspec.open(url, "rt") as file:
        assert json.load(file) == {"zarr_format": 2}
    assert path == ".zgroup" and fs.mount.tree().nodes[0].node_type == "group"
    fs.unmount()


def test_a_source_is_needed_and_opened_by_zarrfs() -> None:
    with pytest.raises(ValueError, match="needs a source"):
        fsspec.filesystem("zarrfs")
    with pytest.raises(ValueError, match="anon"):
        fsspec.filesystem("zarrfs", fo="b/a.zarr", target_protocol="s3", target_options={"anon": True})
    with pytest.raises(zarrfs.ZarrfsError, match="/none"):
        fsspec.filesystem("zarrfs", source="/none")


class TestGet(abstract.AbstractFixtures, abstract.AbstractGetTests):  # type: ignore[misc]
    """Copies out of a mount; the files are written to its source."""

    # It writes to the file system.
    test_get_directory_recursive = None

    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        (tmp_path / "store").mkdir()
        return tmp_path / "store"

    @pytest.fixture
    def fs(self, store: Path) -> Iterator[Any]:
        fs = fsspec.filesystem("zarrfs", source=store, options={"force": True, "ttl": "0s"})
        yield fs
        fs.unmount()

    @pytest.fixture
    def fs_path(self) -> str:
        return ""

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, local_fs: Any, store: Path) -> str:
        return os.path.basename(self._bulk_operations_scenario_0(local_fs, os.path.join, store))

    @pytest.fixture
    def fs_glob_edge_cases_files(self, local_fs: Any, store: Path) -> str:
        return os.path.basename(self._glob_edge_cases_files(local_fs, os.path.join, store))

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, local_fs: Any, store: Path) -> str:
        return os.path.basename(self._dir_and_file_with_same_name_prefix(local_fs, os.path.join, store))

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, local_fs: Any, store: Path) -> str:
        return os.path.basename(self._10_files_with_hashed_names(local_fs, os.path.join, store))
