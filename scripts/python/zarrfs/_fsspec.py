"""The protocol "zarrfs" of fsspec: the files of a private mount."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from fsspec.implementations.dirfs import DirFileSystem  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from ._mount import Mount
from ._program import Option, PathLike

# The schemes of zarrfs that fsspec takes off in front of a chained path.
_SCHEMES = {
    "s3": "s3://",
    "s3a": "s3://",
    "gs": "gs://",
    "gcs": "gs://",
    "az": "az://",
    "abfs": "az://",
    "hf": "hf://",
}


class ZarrfsFileSystem(DirFileSystem):  # type: ignore[misc]
    """The keys and the views of a source, as read-only files.

        fs = fsspec.filesystem("zarrfs", source="s3://bucket/ocean.zarr", options={"anonymous": True})
        fs.open("model/.zarrfs/sst.npy")
        fsspec.open("zarrfs://model/.zarrfs/sst.npy::file:///data/ocean.zarr")

    `options` are those of `zarrfs.mount`. fsspec keeps file systems: the mount lasts until `unmount()` or until the
    interpreter ends.
    """

    protocol = "zarrfs"

    def __init__(
        self,
        source: Optional[PathLike] = None,
        *,
        options: Optional[Mapping[str, Option]] = None,
        fo: Optional[str] = None,
        target_protocol: Optional[str] = None,
        target_options: Optional[Mapping[str, Any]] = None,
        **storage_options: Any,
    ) -> None:
        # fsspec calls this for a file system that it has kept.
        if hasattr(self, "mount"):
            return
        if source is None and fo is not None:
            source = _SCHEMES.get(target_protocol or "", "") + fo
        if source is None:
            raise ValueError("zarrfs: needs a source: source=..., or a path with ::, such as zarrfs://::file:///a.zarr")
        if target_options:
            names = ", ".join(target_options)
            raise ValueError(f"zarrfs: opens the source itself: give its options as options=..., not {names}")
        self.mount = Mount(os.fspath(source), None, **(options or {}))
        super().__init__(path=os.fspath(self.mount), fs=LocalFileSystem(auto_mkdir=True), **storage_options)

    def _join(self, path: Any) -> Any:
        # `get` of a directory copies its content if the path ends with a slash, else the directory.
        joined = super()._join(path)
        return f"{joined}/" if isinstance(path, str) and path.endswith("/") else joined

    def unmount(self) -> None:
        """Unmounts. The file system cannot be used any more."""
        self.clear_instance_cache()
        self.mount.unmount()
