"""The Python package, installed from the wheel: its functions mount the demo store for real."""

import doctest
import json
import os
import pickle
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import List

import pytest

import zarrfs
from conftest import mounts_below


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


def test_a_mount_is_path_like_and_lists_its_nodes_and_views() -> None:
    with zarrfs.mount("demo:") as m:
        assert os.fspath(m) == str(m.path) and (m / "v3" / "t2m" / "zarr.json").is_file()
        tree = m.tree()
        assert tree["v3/t2m"].shape == (12, 32, 64) and tree["/v3/"].node_type == "group"
        assert {node.path for node in tree.arrays} == {node.path for node in zarrfs.tree("demo:").arrays}
        with pytest.raises(KeyError):
            tree["v4"]
        views = {view.name: view for view in m.list_views("v3/t2m")}
        assert shape_of_npy(Path(views["t2m.npy"])) == [12, 32, 64]
        assert views["t2m.npy"].format == "npy" and views["t2m.npy"].path == m.view("v3/t2m", "npy")
        [own] = [mount for mount in zarrfs.mounts() if mount.mountpoint == m.path]
        assert own.pid == int(os.getxattr(m.path, "user.zarrfs.pid")) and (own / "v3").is_dir()
        with open(m.nc, "rb"), pytest.raises(zarrfs.ZarrfsError) as caught:
            own.unmount()
        assert caught.value.kind in ("busy", "other")
        own.unmount(lazy=True)


def test_a_notebook_shows_a_tree_whose_names_are_text(tmp_path: Path) -> None:
    name = "<b>&"
    (tmp_path / "a.zarr" / name).mkdir(parents=True)
    for directory in (tmp_path / "a.zarr", tmp_path / "a.zarr" / name):
        (directory / ".zgroup").write_text('{"zarr_format": 2}')
    tree = zarrfs.tree(tmp_path / "a.zarr")
    assert [node.path for node in tree] == ["", name]
    shown = tree._repr_html_()
    assert "&lt;b&gt;&amp;" in shown and "<b>" not in shown
    assert repr(tree).endswith("groups: 1, arrays: 0>") and str(tree).endswith(f"\n  {name}")
    with zarrfs.mount("demo:") as m:
        shown = m._repr_html_() or ""
        assert "t2m (time: 12, lat: 32, lon: 64) float32" in shown and shown.count("<ul>") == shown.count("</ul>")
    assert m._repr_html_() is None


def test_views_of_a_source_have_no_paths() -> None:
    [npy] = [view for view in zarrfs.views("demo:", "v3/lat") if view.format == "npy"]
    assert npy.name == "lat.npy" and npy.path is None
    with pytest.raises(TypeError, match=r"lat\.npy"):
        os.fspath(npy)


def test_errors_have_a_kind(tmp_path: Path) -> None:
    (tmp_path / "lat.npy").touch()
    (tmp_path / "empty").mkdir()
    with zarrfs.mount("demo:") as m:
        for kind, call in [
            ("not_found", lambda: zarrfs.mount("/none")),
            ("not_found", lambda: zarrfs.info("demo:", "v4")),
            ("not_found", lambda: m.view("v4", "npy")),
            ("not_zarr", lambda: zarrfs.tree(tmp_path / "empty")),
            ("no_view", lambda: m.view("v3/lat", "tif")),
            ("no_view", lambda: zarrfs.export("demo:v3/lat", tmp_path / "lat.tif")),
            ("exists", lambda: zarrfs.export("demo:v3/lat", tmp_path / "lat.npy")),
            ("mountpoint", lambda: zarrfs.mount("demo:", tmp_path)),
            ("unreachable", lambda: zarrfs.tree("http://127.0.0.1:1/a.zarr", retries=0)),
            ("usage", lambda: zarrfs.tree("demo:", depht=1)),
        ]:
            with pytest.raises(zarrfs.ZarrfsError) as caught:
                call()
            assert caught.value.kind == kind, caught.value
            # As processes of Dask do.
            again = pickle.loads(pickle.dumps(caught.value))
            assert (str(again), again.kind) == (str(caught.value), kind)


def test_the_examples_of_the_docstrings_run() -> None:
    results = doctest.testmod(zarrfs, extraglobs={"zarrfs": zarrfs})
    assert results.attempted >= 3 and results.failed == 0


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
