"""Zarr hierarchies as plain files: NetCDF, GeoTIFF and NumPy files of their data, decoded when they are read.

    import xarray, zarrfs

    with zarrfs.mount("s3://bucket/ocean.zarr", anonymous=True) as m:
        dataset = xarray.open_dataset(m.nc)

The functions run the program `zarrfs`, which this package carries. Options of the program are keyword
arguments: `--disk-cache DIR --anonymous` is `disk_cache=DIR, anonymous=True`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import _objects
from ._mount import Mount
from ._objects import MountedSource, Node, Tree, View
from ._program import Option, PathLike, ZarrfsError, option_arguments, program, run_json

__all__ = [
    "Mount",
    "MountedSource",
    "Node",
    "Option",
    "PathLike",
    "Tree",
    "View",
    "ZarrfsError",
    "export",
    "info",
    "mount",
    "mounts",
    "program",
    "tree",
    "views",
]


try:
    __version__ = version("zarrfs")
except PackageNotFoundError:
    # The package of a source tree, which is not installed.
    __version__ = "0"


def mount(source: PathLike, mountpoint: Optional[PathLike] = None, **options: Option) -> Mount:
    """Mounts a source and returns the mount, which is a context manager.

    `source` is a path or a URL of a Zarr or N5 hierarchy, a zip archive, a database, an Icechunk repository
    or references. `mountpoint` is an empty directory; without it, a private directory is created and later
    removed. `options` are those of `zarrfs mount`, such as `ttl="5m"`, `disk_cache="/scratch/cache"`,
    `path="model/ocean"` or `header=["A: 1", "B: 2"]`.

    Raises `ZarrfsError` with the message of the program if the source cannot be mounted.
    """
    return Mount(source, mountpoint, **options)


def export(
    source: PathLike,
    file: PathLike,
    key: Optional[str] = None,
    format: Optional[str] = None,
    **options: Option,
) -> Path:
    """Writes one view of a node to a file, without a mount, and returns the path of the file.

    `key` names an array or a group of the source, which is the whole source by default. The suffix of `file`
    chooses the format, unless `format` names one, such as "nc", "tif" or "npy". `options` are those of
    `zarrfs export`, such as `overwrite=True`.

    Raises `ZarrfsError` if the source cannot be read or the file cannot be written.
    """
    arguments = option_arguments({"path": key, "as": format, **options})
    # `-` would be standard output.
    file = Path(file)
    run_json("export", *arguments, "--", source, file if file.name != "-" else Path.cwd() / file)
    return file


def info(source: PathLike, key: Optional[str] = None, **options: Option) -> Dict[str, Any]:
    """Returns the metadata of one node as `zarrfs info --json` prints them.

    `key` names an array or a group of the source, which is its root by default. `options` are those of
    `zarrfs info`, such as `anonymous=True`.

    Raises `ZarrfsError` if the source cannot be read.
    """
    return run_json("info", *option_arguments({"path": key, **options}), "--", source)


def tree(source: PathLike, **options: Option) -> Tree:
    """Returns the groups and arrays of a source, which a notebook shows as a tree.

        >>> [array.path for array in zarrfs.tree("demo:", path="v3").arrays]
        ['v3/lat', 'v3/lon', 'v3/t2m', 'v3/t2m_sharded', 'v3/time']

    `options` are those of `zarrfs tree`, such as `path="model/ocean"` or `depth=1`.

    Raises `ZarrfsError` if the source cannot be read.
    """
    return _objects.tree(source, *option_arguments(options))


def views(source: PathLike, key: str = "", **options: Option) -> List[View]:
    """Returns the views that a node of a source has in a mount, which is not needed.

        >>> [view.name for view in zarrfs.views("demo:", "v3/lat") if view.format == "npy"]
        ['lat.npy']

    `key` names an array or a group of the source, which is its root by default. `options` are those of
    `zarrfs views`. The views of a mount, `m.list_views(key)`, have paths.

    Raises `ZarrfsError` if the source cannot be read.
    """
    return _objects.views(source, key.strip("/"), *option_arguments(options))


def mounts() -> List[MountedSource]:
    """Returns the mounts of zarrfs that this process sees, also those of other programs.

        >>> with zarrfs.mount("demo:") as m:
        ...     [mount.source for mount in zarrfs.mounts() if mount.mountpoint == m.path]
        ['demo']
    """
    return _objects.mounts()
