"""The engine "zarrfs" of xarray: the NetCDF view of a group on a private mount."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

import xarray
from xarray.backends import BackendEntrypoint, list_engines

from ._mount import Mount
from ._program import Option, PathLike

# The engines that read NetCDF-4 files, the preferred one first.
_NETCDF_ENGINES = ("h5netcdf", "netcdf4")

Source = Union[PathLike, Mount]


class ZarrfsBackendEntrypoint(BackendEntrypoint):  # type: ignore[misc]
    """Opens a group of any source of zarrfs, lazily. The mount ends when the data set is closed.

        xarray.open_dataset("s3://bucket/ocean.zarr", engine="zarrfs", options={"anonymous": True})

    `group` is the key of a group or an array, `options` are those of `zarrfs.mount`. A source that is a mount already
    stays mounted, and needs no `engine`.
    """

    description = "Open Zarr and N5 hierarchies, zip archives, Icechunk and references through zarrfs"
    url = "https://github.com/zarrfs/zarrfs"
    supports_groups = True
    # What xarray hands to the functions below.
    open_dataset_parameters = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
        "options",
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether the source is for this engine if the user names none."""
        return isinstance(filename_or_obj, Mount)

    def open_dataset(
        self,
        filename_or_obj: Source,
        *,
        group: str = "",
        options: Optional[Mapping[str, Option]] = None,
        **decoding: Any,
    ) -> xarray.Dataset:
        """Opens one group. Raises `ZarrfsError` if the source or the group cannot be opened."""
        mount, end = _mounted(filename_or_obj, options)
        try:
            opened = _netcdf_engine().open_dataset(mount.view(group, "nc"), **decoding)
        except BaseException:
            end()
            raise
        # A copy has no function that closes it.
        dataset = opened.copy()
        dataset.set_close(_all_of(opened.close, end))
        return dataset

    def open_datatree(
        self,
        filename_or_obj: Source,
        *,
        group: str = "",
        options: Optional[Mapping[str, Option]] = None,
        **decoding: Any,
    ) -> xarray.DataTree:
        """Opens a group and the groups below it. Raises `ZarrfsError` if the source or the group cannot be opened."""
        groups = self.open_groups_as_dict(filename_or_obj, group=group, options=options, **decoding)
        try:
            tree = xarray.DataTree.from_dict(groups)
        except BaseException:
            groups["/"].close()
            raise
        tree.set_close(groups["/"].close)
        return tree

    def open_groups_as_dict(
        self,
        filename_or_obj: Source,
        *,
        group: str = "",
        options: Optional[Mapping[str, Option]] = None,
        **decoding: Any,
    ) -> Dict[str, xarray.Dataset]:
        """Opens a group, "/", and the groups below it by their paths. The first one closes all."""
        mount, end = _mounted(filename_or_obj, options)
        try:
            opened = _netcdf_engine().open_groups_as_dict(mount.view(group, "nc"), **decoding)
        except BaseException:
            end()
            raise
        groups = {path: dataset.copy() for path, dataset in opened.items()}
        groups["/"].set_close(_all_of(*(dataset.close for dataset in opened.values()), end))
        return groups


def _mounted(source: Source, options: Optional[Mapping[str, Option]]) -> Tuple[Mount, Callable[[], None]]:
    """Returns a mount of a source, and the function that ends it if it was made here."""
    if isinstance(source, Mount):
        if options:
            raise ValueError("options: the source is mounted already")
        return source, lambda: None
    mount = Mount(os.fspath(source), None, **(options or {}))
    return mount, mount.unmount


def _netcdf_engine() -> BackendEntrypoint:
    engines = list_engines()
    for name in _NETCDF_ENGINES:
        if name in engines:
            return engines[name]
    raise ImportError(f"the engine zarrfs needs one of {', '.join(_NETCDF_ENGINES)}: pip install h5netcdf")


def _all_of(*functions: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for function in functions:
            function()

    return run
