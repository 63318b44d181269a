#!/usr/bin/env python3
"""Writes extensions.zip: arrays that zarr-python 3.4.2 wrote, and the values that it reads of them.

usage: make.py DIRECTORY ZIP     needs Python 3.12, zarr==3.4.2, cast-value-rs==0.5.1 and numpy 2

Arrays are in DIRECTORY/zarr, the bytes of their elements in C order in DIRECTORY/expected. Chunks of
`decode_*` are written as raw numbers, so that decoding has to round, clamp, wrap and map them.
"""
import os
import sys
import zipfile

import numpy as np
import zarr
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, TransposeCodec
from zarr.codecs.cast_value import CastValue
from zarr.codecs.scale_offset import ScaleOffset

ROOT, ZIP = sys.argv[1:]
zarr.config.set({"array.rectilinear_chunks": True})
group = zarr.open_group(f"{ROOT}/zarr", mode="w", zarr_format=3)
os.makedirs(f"{ROOT}/expected")
rng = np.random.default_rng(5)


def expect(name):
    values = group[name][...]
    little = values.astype(values.dtype.newbyteorder("<"))
    with open(f"{ROOT}/expected/{name}", "wb") as out:
        out.write(little.tobytes())


def encoded(name, data, fill, filters, chunks=(5, 4), serializer=BytesCodec(endian="little"), **options):
    array = group.create_array(name, shape=data.shape, chunks=chunks, dtype=data.dtype, fill_value=fill,
                               filters=filters, serializer=serializer, **options)
    array[: data.shape[0] - 5] = data[: data.shape[0] - 5]
    expect(name)


def decoded(name, dtype, stored, **cast):
    """An array of `dtype` whose one chunk has `stored`."""
    codec = CastValue(data_type=str(stored.dtype), **cast)
    group.create_array(name, shape=stored.shape, chunks=stored.shape, dtype=dtype, fill_value=0,
                       filters=[codec], serializer=BytesCodec(endian="little"), compressors=None)
    os.makedirs(f"{ROOT}/zarr/{name}/c", exist_ok=True)
    stored.tofile(f"{ROOT}/zarr/{name}/c/0")
    expect(name)


packed = np.round(rng.uniform(0, 200, (12, 10)), 1)
packed[2, 3] = np.nan
nan = {"encode": [["NaN", 0]], "decode": [[0, "NaN"]]}
encoded("packed", packed, np.nan, [ScaleOffset(offset=-10, scale=0.1), CastValue(data_type="uint8", scalar_map=nan)])
encoded("packed_big", packed, np.nan,
        [ScaleOffset(offset=-10, scale=10), CastValue(data_type="int16", scalar_map=nan)],
        serializer=BytesCodec(endian="big"))
encoded("packed_shards", packed, np.nan,
        [ScaleOffset(offset=-10, scale=10), CastValue(data_type="int16", scalar_map=nan)], chunks=(6, 10),
        serializer=ShardingCodec(chunk_shape=(3, 5), codecs=[BytesCodec(), GzipCodec()]), compressors=None)
encoded("offset_u2", rng.integers(1000, 1256, (12, 10)).astype("u2"), 1000,
        [ScaleOffset(offset=1000), CastValue(data_type="uint8")])
encoded("scaled_i4", (rng.integers(-9, 9, (12, 10)) + 5).astype("i4"), 5, [ScaleOffset(offset=5, scale=-3)])
encoded("scaled_u8", rng.integers(0, 2**62, (12, 10)).astype("u8") * np.uint64(2) + np.uint64(7), 7,
        [ScaleOffset(offset=7, scale=2)])
for size in (2, 4, 8):
    values = rng.uniform(-50, 50, (12, 10)).astype(f"f{size}")
    encoded(f"scaled_f{size}", values, 0, [ScaleOffset(offset=0.3, scale=0.7), TransposeCodec(order=(1, 0))])
for source in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "f2", "f4"):
    values = rng.integers(0, 100, (12, 10)).astype(source)
    wide = CastValue(data_type="float64")
    encoded(f"wide_{source}", values, 1, [wide])

edge = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -127.5, 2.4, -2.6, 1e-320, -0.0, 127.49])
for mode in ("nearest-even", "nearest-away", "towards-zero", "towards-positive", "towards-negative"):
    short = mode.replace("-", "_")
    decoded(f"decode_i1_{short}", "i1", edge, rounding=mode, out_of_range="clamp")
    floats = np.concatenate([rng.standard_normal(200) * 10.0 ** rng.integers(-45, 40, 200), edge,
                             [1e39, -1e39, 65519.99, 65520, 2**-150, 2**-149 * 1.5, np.inf, -np.inf, np.nan]])
    decoded(f"decode_f4_{short}", "f4", floats, rounding=mode, out_of_range="clamp")
    decoded(f"decode_f2_{short}", "f2", floats, rounding=mode, out_of_range="clamp")
    large = rng.integers(-2**63, 2**63 - 1, 200, dtype="i8")
    decoded(f"decode_f8_{short}", "f8", large, rounding=mode)
    decoded(f"decode_f4_of_i8_{short}", "f4", large, rounding=mode)
integers = np.array([0, 1, -1, 127, 128, -128, -129, 300, 2**31, -2**31 - 1, 2**63 - 1, -2**63], "i8")
for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "u8"):
    decoded(f"decode_{dtype}_clamp", dtype, integers, out_of_range="clamp")
    decoded(f"decode_{dtype}_wrap", dtype, integers, out_of_range="wrap")
decoded("decode_mapped", "i2", np.array([np.nan, 0.0, -0.0, 5.0, np.inf], "f4"),
        scalar_map={"decode": [["NaN", -1], [0.0, 3], ["Infinity", 9]]})
decoded("decode_mapped_i2", "f4", np.array([-999, 0, 1, 2], "i2"), scalar_map={"decode": [[-999, "NaN"], [2, 0.1]]})


def rectilinear(name, shape, chunks, dtype="i4", present=None, **options):
    array = group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, fill_value=7, **options)
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    part = present or tuple(slice(None) for _ in shape)
    array[part] = values[part]
    expect(name)


rectilinear("edges_1d", (60,), [[10, 20, 30]])
rectilinear("edges_2d", (30, 25), [[4, 6, 20], [5, 10, 10]], present=(slice(0, 10), slice(None)))
rectilinear("edges_3d", (7, 11, 13), [[1, 2, 4], [11], [6, 7]], dtype="f8")
rectilinear("edges_raw", (40, 64), [[8, 16, 16], [64]], dtype="u2", compressors=None)
rectilinear("edges_mixed", (9, 10), [[2, 3, 4], [5, 5]], dtype="i2", filters=[TransposeCodec(order=(1, 0))],
            serializer=BytesCodec(endian="big"))
try:
    rectilinear("edges_shards", (24, 8), (2, 4), shards=[[4, 8, 12], [4, 4]])
except Exception as error:
    print("edges_shards:", error)

with zipfile.ZipFile(ZIP, "w", zipfile.ZIP_DEFLATED) as out:
    for folder, _, names in sorted(os.walk(ROOT)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            entry = zipfile.ZipInfo(os.path.relpath(path, ROOT), (2026, 11, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, open(path, "rb").read())
