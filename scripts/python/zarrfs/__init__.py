"""Zarr hierarchies as plain files: NetCDF, GeoTIFF and NumPy files of their data, decoded when they are read.

    import xarray, zarrfs

    with zarrfs.mount("s3://bucket/ocean.zarr", anonymous=True) as m:
        dataset = xarray.open_dataset(m.nc)

The functions run the program `zarrfs`, which this package carries. Options of the program are keyword
arguments: `--disk-cache DIR --anonymous` is `disk_cache=DIR, anonymous=True`.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Dict, Optional, Union

from ._mount import Mount
from ._program import Option, PathLike, ZarrfsError, option_arguments, program, run

__all__ = ["Mount", "Option", "PathLike", "ZarrfsError", "export", "info", "mount", "program"]


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
    run("export", *arguments, "--", source, file if file.name != "-" else Path.cwd() / file)
    return file


def info(source: PathLike, key: Optional[str] = None, **options: Option) -> Dict[str, Any]:
    """Returns the metadata of one node as `zarrfs info --json` prints them.

    `key` names an array or a group of the source, which is its root by default. `options` are those of
    `zarrfs info`, such as `anonymous=True`.

    Raises `ZarrfsError` if the source cannot be read.
    """
    arguments = option_arguments({"path": key, "json": True, **options})
    members: Dict[str, Any] = json.loads(run("info", *arguments, "--", source))
    return members
