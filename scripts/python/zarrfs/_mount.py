"""A mount that lasts as long as a `with` block, or as the interpreter."""

from __future__ import annotations

import atexit
import errno
import logging
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import List, Optional, Type

from . import _objects
from ._objects import Tree, View
from ._program import Option, PathLike, ZarrfsError, option_arguments, run, run_json

_log = logging.getLogger("zarrfs")

_GROUP_SUFFIXES = ("nc", "cdf.nc", "cdf5.nc")


class Mount:
    """A mounted hierarchy. `zarrfs.mount` makes it.

    It is path-like: `os.fspath(m)` is the mountpoint, and `m / "sst"` a path in it. A notebook shows its tree.

    It is unmounted at the end of its `with` block, by `unmount()`, or when the interpreter exits. Files that
    are still open then stay readable until they are closed. If the interpreter is killed, the mount is left;
    `zarrfs umount --all` unmounts it.
    """

    def __init__(self, source: PathLike, mountpoint: Optional[PathLike] = None, **options: Option) -> None:
        if options.get("foreground"):
            raise ValueError("foreground: the program would not return")
        arguments = option_arguments(options)
        self._key = options.get("path")
        self._source = os.fspath(source)
        self._process_id = os.getpid()
        self._is_private = mountpoint is None
        # Absolute, for the working directory can change.
        self._path = Path(os.path.abspath(tempfile.mkdtemp(prefix="zarrfs-") if mountpoint is None else mountpoint))
        try:
            run_json("mount", *arguments, "--", source, self._path)
        except BaseException:
            self._remove_directory()
            raise
        self._is_mounted = True
        atexit.register(self._unmount_at_exit)

    @property
    def path(self) -> Path:
        """The mountpoint: the keys of the store."""
        return self._path

    @property
    def views(self) -> Path:
        """The directory of the views of the root."""
        return self._path / ".zarrfs"

    def __fspath__(self) -> str:
        return str(self._path)

    def __truediv__(self, name: PathLike) -> Path:
        return self._path / name

    def tree(self) -> Tree:
        """Returns the groups and arrays. Raises `ZarrfsError` if they cannot be read."""
        return replace(_objects.tree(self._path), source=self._source)

    def list_views(self, key: str = "") -> List[View]:
        """Returns the views of a node; "" is the root. Raises `ZarrfsError` if there is no such node."""
        return _objects.views(self._path, key.strip("/"))

    @property
    def nc(self) -> Path:
        """The NetCDF-4 file of the whole hierarchy."""
        return self.view("", "nc")

    def view(self, key: str, format: str) -> Path:
        """Returns the path of a view of a node.

        `key` names an array or a group, and "" the root. `format` is a suffix of a file, such as "npy", "tif",
        "nc" or "bin", or a name such as "chunks", "as-v2" or "info.json".

        Raises `ZarrfsError` with the reason if the node has no such view, and OSError if that cannot be
        found out.
        """
        key = key.strip("/")
        node = self._path / key
        views = node / ".zarrfs"
        if not _exists(node):
            raise ZarrfsError(f"{key}: no such key in {self._source}", kind="not_found")
        names = [format]
        # In the directory of a group, the other files with a name before the suffix are those of its arrays.
        if format in _GROUP_SUFFIXES or _is_array(node):
            names = [*(f"{name}.{format}" for name in self._names(key)), format]
        for name in names:
            if _exists(views / name):
                return views / name
        raise ZarrfsError(f"{key or '/'}: no `{format}`: {_reason(views, names)}", kind="no_view")

    def _names(self, key: str) -> List[str]:
        """The names that the files of a node can have."""
        key = key or (self._key.strip("/") if isinstance(self._key, str) else "")
        # The root of a source is named by its kind.
        return [key.rpartition("/")[2]] if key else ["root", "array"]

    def unmount(self) -> None:
        """Unmounts, and removes the private directory. A second call does nothing.

        Raises `ZarrfsError` if the mount cannot be removed.
        """
        if not self._is_mounted:
            return
        try:
            run("umount", "--", self._path)
        except ZarrfsError:
            # Open files, such as those of a data set that was not closed, keep the mount busy.
            try:
                run("umount", "--lazy", "--", self._path)
            except ZarrfsError:
                if _is_mountpoint(self._path):
                    raise
        self._is_mounted = False
        atexit.unregister(self._unmount_at_exit)
        self._remove_directory()

    def __enter__(self) -> Mount:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self.unmount()
        except ZarrfsError as failure:
            # The exception of the block says more than this one.
            if error is None:
                raise
            _log.error("%s", failure)

    def __repr__(self) -> str:
        state = "" if self._is_mounted else ", unmounted"
        return f"<zarrfs.Mount of {self._source!r} on {str(self._path)!r}{state}>"

    def _repr_html_(self) -> Optional[str]:
        try:
            return self.tree()._repr_html_() if self._is_mounted else None
        except ZarrfsError as failure:
            _log.warning("%s", failure)
            return None

    def _unmount_at_exit(self) -> None:
        # The mount of a forked process is the one of its parent.
        if os.getpid() == self._process_id:
            self.unmount()

    def _remove_directory(self) -> None:
        if self._is_private:
            try:
                os.rmdir(self._path)
            except OSError as error:
                _log.warning("%s", error)


def _exists(path: Path) -> bool:
    """Whether a file is there. Other errors than its absence are raised."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_array(node: Path) -> bool:
    try:
        return os.getxattr(node, "user.zarr.node_type") == b"array"
    except OSError as error:
        # A directory without metadata.
        if error.errno == errno.ENODATA:
            return False
        raise


def _reason(views: Path, names: List[str]) -> str:
    """Why a view is absent, from the diagnostics of the node."""
    try:
        text = (views / "README.txt").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "the node has no views here"
    for line in text.splitlines():
        for name in names:
            if line.startswith(f"{name}: "):
                return line[len(name) + 2 :]
    return f"{views / 'README.txt'} has the views of the node"


def _is_mountpoint(path: Path) -> bool:
    try:
        return os.lstat(path).st_dev != os.lstat(path.parent).st_dev
    except OSError as error:
        # So says a mount without its daemon.
        return error.errno == errno.ENOTCONN
