"""Writes a Zarr v3 group of `zfp` and `numcodecs.zfpy` arrays with the C library, and the values that the library decodes.

    python zfp.py STORE EXPECTED

EXPECTED has one `.bin` for each array, the elements in C order. zarr-python has no codec `zfp`, so the
documents and chunks are written here (zarr-extensions, codecs/zfp); `zfpy` has no expert mode.
"""
import itertools
import json
import os
import sys

import numpy as np
import zfpy

store, expected = sys.argv[1:]
rng = np.random.default_rng(16)
MODES = {
    "reversible": {},
    "fixed_rate": {"rate": 9.5},
    "fixed_precision": {"precision": 17},
    "fixed_accuracy": {"tolerance": 1e-3},
}
# Not multiples of four, and chunks at the edges.
SHAPES = [((37,), (10,)), ((11, 14), (6, 9)), ((7, 9, 10), (5, 6, 7)), ((5, 6, 7, 5), (5, 3, 6, 5))]
TYPES = ["float32", "float64", "int32", "int64"]


def values(dtype, shape):
    x = np.cumsum(rng.standard_normal(np.prod(shape))).reshape(shape)
    if dtype.startswith("int"):
        return (x * 1e6).astype(dtype)
    x = x.astype(dtype)
    x.flat[:3] = (0, -0.0, np.finfo(dtype).smallest_subnormal)
    return x


def array(name, data, chunk, mode, arguments):
    directory = os.path.join(store, name)
    os.makedirs(directory)
    wrapped = name.startswith("zfpy")
    keywords = {"fixed_rate": "rate", "fixed_precision": "precision", "fixed_accuracy": "tolerance"}
    options = {} if mode == "reversible" else {keywords[mode]: list(arguments.values())[0]}
    codec = {"name": "zfp", "configuration": {"mode": mode, **arguments}}
    if wrapped:
        codec = {"name": "numcodecs.zfpy", "configuration": {"mode": {"fixed_rate": 2, "fixed_precision": 3, "fixed_accuracy": 4}[mode], **arguments}}
    metadata = {
        "zarr_format": 3, "node_type": "array", "shape": data.shape, "data_type": str(data.dtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": [codec], "attributes": {},
    }
    with open(os.path.join(directory, "zarr.json"), "w") as f:
        json.dump(metadata, f)
    whole = np.zeros([-(-n // c) * c for n, c in zip(data.shape, chunk)], data.dtype)
    whole[tuple(map(slice, data.shape))] = data
    for index in itertools.product(*(range(n // c) for n, c in zip(whole.shape, chunk))):
        box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk))
        part = np.ascontiguousarray(whole[box])
        encoded = zfpy.compress_numpy(part, write_header=True, **options)
        whole[box] = zfpy.decompress_numpy(encoded)
        if not wrapped:
            encoded = zfpy.compress_numpy(part, write_header=False, **options)
        path = os.path.join(directory, "c", *map(str, index))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(encoded)
    with open(os.path.join(expected, name + ".bin"), "wb") as f:
        f.write(np.ascontiguousarray(whole[tuple(map(slice, data.shape))]).tobytes())


with open(os.path.join(store, "zarr.json"), "w") as f:
    json.dump({"zarr_format": 3, "node_type": "group"}, f)
for (shape, chunk), dtype, (mode, arguments) in itertools.product(SHAPES, TYPES, MODES.items()):
    if mode == "fixed_accuracy" and dtype.startswith("int"):
        continue
    for codec in ("zfp", "zfpy"):
        if codec == "zfpy" and mode == "reversible":
            continue  # numcodecs has no such mode
        array(f"{codec}-{mode}-{dtype}-{len(shape)}d", values(dtype, shape), chunk, mode, arguments)
