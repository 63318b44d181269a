"""Writes stores that are large or have many variables, in seconds: large.py DIRECTORY."""

import json
import pathlib
import sys

import numpy as np
import zarr

root = pathlib.Path(sys.argv[1])

# 16 GiB of which a few chunks are there.
group = zarr.open_group(root / "sparse.zarr", mode="w", zarr_format=2)
shape = (512, 2048, 2048)
for name in "a", "b":
    array = group.create_array(name, shape=shape, chunks=(1, 512, 512), dtype="f4", fill_value=-1)
    array.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]
    array[300, :512, :512] = np.arange(512 * 512, dtype="f4").reshape(512, 512)
    array[511, -10:, -10:] = 7
small = group.create_array("scale", shape=(512,), chunks=(512,), dtype="i2")
small[...] = np.arange(512)
small.attrs["_ARRAY_DIMENSIONS"] = ["time"]

# A thousand variables; the documents are written by hand because it is faster.
many = root / "many.zarr"
many.mkdir(parents=True, exist_ok=True)
(many / ".zgroup").write_text('{"zarr_format": 2}')
zarray = {
    "zarr_format": 2, "shape": [100, 180, 360], "chunks": [10, 180, 360], "dtype": "<f4",
    "compressor": None, "fill_value": "NaN", "order": "C", "filters": None,
}
for number in range(1000):
    node = many / f"variable_{number:04}"
    node.mkdir(exist_ok=True)
    (node / ".zarray").write_text(json.dumps(zarray))
    attributes = {"_ARRAY_DIMENSIONS": ["time", "lat", "lon"], "units": "K", "long_name": f"number {number}"}
    (node / ".zattrs").write_text(json.dumps(attributes))
