"""The Python package, installed from the wheel: its functions mount the demo store for real."""

import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
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


def shape_of_npy(path: Path) -> List[int]:
    """The shape that the header of a NumPy file has."""
    content = path.read_bytes()
    assert content.startswith(b"\x93NUMPY")
    (length,) = struct.unpack("<H", content[8:10])
    header = content[10 : 10 + length].decode()
    return list(map(int, header.split("(")[1].split(")")[0].strip(",").split(",")))


def test_a_mount_has_the_keys_and_the_views(scratch: Path) -> None:
    with zarrfs.mount("demo:") as m:
        assert os.path.ismount(m.path) and m.path.parent == scratch
        assert "zarr.json" in os.listdir(m.path)
        assert m.views.is_dir()
        assert m.nc.parent == m.views
        assert m.nc.read_bytes().startswith(b"\x89HDF")
        assert shape_of_npy(m.view("v3/t2m", "npy")) == [12, 32, 64]
        assert m.view("/v3/t2m/", "tif").read_bytes().startswith(b"II")
        assert m.view("v3", "nc").name == "v3.nc"
        assert m.view("v3", "cdf.nc").read_bytes().startswith(b"CDF")
        assert m.view("v3/t2m", "chunks").is_dir()
        assert m.view("", "as-v2").is_dir()
        assert json.loads(m.view("v3/t2m", "info.json").read_text())["shape"] == [12, 32, 64]
        assert repr(m) == f"<zarrfs.Mount of 'demo:' on '{m.path}'>"
        path = m.path
    assert not path.exists()
    assert repr(m).endswith(", unmounted>")
    m.unmount()


def test_a_view_that_cannot_be_made_is_an_error_with_the_reason() -> None:
    with zarrfs.mount("demo:") as m:
        for key, format, reason in [
            ("v3/lat", "tif", "raster"),
            ("v3/lat", "json", r"\.npy"),
            # The file of an array, in the directory of its group, is no view of the group.
            ("v3", "npy", "README.txt"),
            ("v3/none", "npy", "no such key in demo:"),
            ("v3/lat", "bogus", "README.txt"),
        ]:
            with pytest.raises(zarrfs.ZarrfsError, match=reason):
                m.view(key, format)
    with zarrfs.mount("demo:", views="off") as m, pytest.raises(zarrfs.ZarrfsError, match="no views"):
        m.nc  # noqa: B018


def test_a_part_of_a_hierarchy_is_named_by_its_key() -> None:
    with zarrfs.mount("demo:", path="v3/t2m") as m:
        assert shape_of_npy(m.view("", "npy")) == [12, 32, 64]
    with zarrfs.mount("demo:", path="v3") as m:
        assert m.nc.name == "v3.nc"
        assert shape_of_npy(m.view("lat", "npy")) == [32]


def test_an_exception_in_the_block_unmounts_and_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        with zarrfs.mount("demo:") as m:
            raise ZeroDivisionError
    assert not m.path.exists()


def test_a_given_mountpoint_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnt").mkdir()
    monkeypatch.chdir(tmp_path)
    with zarrfs.mount("demo:", "mnt") as m:
        os.chdir("/")
        assert m.nc.exists()
    assert (tmp_path / "mnt").is_dir() and not os.listdir(tmp_path / "mnt")
    with zarrfs.mount("demo:", tmp_path / "new", mkdir=True, ttl="5m", formats="nc,npy") as m:
        assert any(name.endswith(".nc") for name in os.listdir(m.views))


def test_an_open_file_stays_readable_after_the_block() -> None:
    with zarrfs.mount("demo:") as m:
        whole = m.nc.read_bytes()
        file = open(m.nc, "rb")
    assert not m.path.exists()
    with file:
        assert file.read() == whole


def test_a_mount_that_others_have_removed_ends_without_an_error() -> None:
    with zarrfs.mount("demo:") as m:
        subprocess.run([zarrfs.program(), "umount", m.path], check=True)
    assert not m.path.exists()


def test_a_mount_without_its_daemon_is_removed() -> None:
    with zarrfs.mount("demo:") as m:
        pid = int(os.getxattr(m.path, "user.zarrfs.pid"))
        os.kill(pid, signal.SIGKILL)
    assert not m.path.exists()


@pytest.mark.parametrize(
    "source, options, code, words",
    [
        ("/none/ocean.zarr", {}, 32, "/none/ocean.zarr: No such file"),
        ("demo:", {"path": "v4"}, 32, "v4"),
        ("demo:", {"anonymus": True}, 2, "anonymus.*anonymous"),
        ("demo:", {"ttl": "5x"}, 2, "`5x` is not a time"),
    ],
)
def test_a_failed_mount_is_an_error_with_the_message(source: str, options: zarrfs.Option, code: int, words: str) -> None:
    assert isinstance(options, dict)
    with pytest.raises(zarrfs.ZarrfsError, match=f"(?s){words}") as caught:
        zarrfs.mount(source, **options)
    assert caught.value.exit_code == code
    text = str(caught.value)
    assert not text.startswith(("zarrfs:", "error:")) and "Usage:" not in text


def test_options_that_would_never_return_are_refused() -> None:
    with pytest.raises(ValueError, match="foreground"):
        zarrfs.mount("demo:", foreground=True)


def test_export_writes_the_bytes_of_the_view(tmp_path: Path) -> None:
    with zarrfs.mount("demo:") as m:
        wanted = m.view("v3/t2m", "npy").read_bytes()
    file = zarrfs.export("demo:", tmp_path / "t2m.npy", key="v3/t2m")
    assert file == tmp_path / "t2m.npy" and file.read_bytes() == wanted
    with pytest.raises(zarrfs.ZarrfsError, match="t2m.npy"):
        zarrfs.export("demo:v3/t2m", file)
    assert zarrfs.export("demo:v3/t2m", file, format="tif", overwrite=True).read_bytes().startswith(b"II")
    with pytest.raises(zarrfs.ZarrfsError, match="raster"):
        zarrfs.export("demo:", tmp_path / "lat.tif", key="v3/lat")
    assert not (tmp_path / "lat.tif").exists()


def test_export_to_a_file_named_minus_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    zarrfs.export("demo:v3/lat", "-", format="npy")
    assert shape_of_npy(tmp_path / "-") == [32]


def test_info_is_the_metadata_of_a_node() -> None:
    assert zarrfs.info("demo:")["node_type"] == "group"
    array = zarrfs.info("demo:", "v3/t2m")
    assert array["node_type"] == "array" and array["shape"] == [12, 32, 64]
    with pytest.raises(zarrfs.ZarrfsError, match="v4"):
        zarrfs.info("demo:", "v4")


def test_the_module_is_the_program() -> None:
    command = [sys.executable, "-m", "zarrfs"]
    version = subprocess.run([*command, "-V"], stdout=subprocess.PIPE, check=True).stdout
    assert version.decode().split() == ["zarrfs", zarrfs.__version__]
    assert subprocess.run([*command, "info", "/none"], stderr=subprocess.DEVNULL).returncode == 1


def test_the_program_of_the_package_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "zarrfs"
    other.write_text("#!/bin/sh\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    own = zarrfs.program()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert zarrfs.program() == own
    monkeypatch.setattr("zarrfs._program._script_directories", lambda: iter(()))
    assert zarrfs.program() == str(other)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(zarrfs.ZarrfsError, match="pip install zarrfs"):
        zarrfs.program()


def test_the_end_of_the_interpreter_unmounts() -> None:
    code = "import os, zarrfs; m = zarrfs.mount('demo:'); print(m.path, os.path.ismount(m.path))"
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    path, was_mounted = ended.stdout.split()
    assert was_mounted == "True" and not Path(path).exists()


def test_the_end_of_a_forked_process_does_not_unmount() -> None:
    code = """
import atexit, os, zarrfs
with zarrfs.mount("demo:") as m:
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()
        os._exit(0)
    os.waitpid(child, 0)
    print(m.nc.exists())
"""
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "True\n"


def test_an_interrupt_while_a_server_does_not_answer_leaves_no_mount(scratch: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = threading.Event()
        connections = []

        def accept() -> None:
            connections.append(server.accept())
            accepted.set()

        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/ocean.zarr"
        # Shells start jobs in the background with SIGINT ignored, and Python keeps that.
        interrupts = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        code = f"{interrupts}; import zarrfs; zarrfs.mount({url!r}, timeout='1m')"
        waiting = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        assert accepted.wait(20)
        # To Python alone, as a notebook is interrupted.
        waiting.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, err = waiting.communicate(timeout=30)
        assert "KeyboardInterrupt" in err, err
        assert time.monotonic() - start < 15
        for connection, _ in connections:
            connection.close()
    assert not mounts_below(scratch)


def test_xarray_opens_the_hierarchy() -> None:
    xarray = pytest.importorskip("xarray")
    with zarrfs.mount("demo:") as m:
        with xarray.open_dataset(m.nc, group="v3") as dataset:
            assert dataset["t2m"].shape == (12, 32, 64)
            assert float(dataset["lat"].max()) <= 90
