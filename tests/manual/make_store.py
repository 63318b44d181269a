"""Writes the stores that the commands of the README and the manual are run on, below a directory."""

import sqlite3
import sys
from pathlib import Path

import numpy
import zarr
from zarr.codecs import ZstdCodec

TIMES, ROWS, COLUMNS = 12, 32, 64


def axis(group, name, values, **attributes):
    array = group.create_array(name, data=values, dimension_names=[name], compressors=None)
    array.attrs.update(attributes)


def field(group, name, **options):
    shape = (TIMES, ROWS, COLUMNS)
    array = group.create_array(
        name, shape=shape, chunks=(3, 16, 32), dtype="float32", dimension_names=["time", "lat", "lon"], **options
    )
    rows, columns = numpy.meshgrid(numpy.arange(ROWS), numpy.arange(COLUMNS), indexing="ij")
    plane = 290 + 10 * numpy.sin(rows / 8) * numpy.cos(columns / 8)
    array[...] = plane[None] + numpy.arange(TIMES)[:, None, None]
    array.attrs.update(units="K", long_name="sea surface temperature")


def ocean(path, **options):
    group = zarr.create_group(path, attributes={"Conventions": "CF-1.8"})
    axis(group, "time", numpy.arange(TIMES, dtype="int32"), units="days since 2000-01-01", calendar="standard")
    lat = (numpy.arange(ROWS, dtype="float32") - 15.5) * 5.625
    axis(group, "lat", lat[::-1].copy(), units="degrees_north", standard_name="latitude")
    axis(group, "lon", numpy.arange(COLUMNS, dtype="float32") * 5.625, units="degrees_east", standard_name="longitude")
    return group


def old(path):
    group = zarr.create_group(path, zarr_format=2)
    array = group.create_array("sst", shape=(4, 6), chunks=(2, 3), dtype="float32")
    array[...] = numpy.arange(24).reshape(4, 6)
    array.attrs["_ARRAY_DIMENSIONS"] = ["lat", "lon"]
    zarr.consolidate_metadata(path)


def scene(path):
    """A raster of UTM zone 33 with a pyramid, in the conventions of GeoZarr."""
    root = zarr.create_group(path)
    image = root.create_group("r10m")
    size = 1098
    data = (numpy.add.outer(numpy.arange(size), numpy.arange(size)) % 4000 + 1).astype("uint16")
    for name, start, step in [("x", 500005.0, 10.0), ("y", 4999995.0, -10.0)]:
        axis(image, name, start + step * numpy.arange(size), units="m", standard_name=f"projection_{name}_coordinate")
    band = image.create_array("B02", data=data, chunks=(256, 256), dimension_names=["y", "x"])
    band.attrs.update({"proj:code": "EPSG:32633", "_FillValue": 0})


def sqlite(path, store):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB)")
        for file in sorted(Path(store).rglob("*")):
            if file.is_file():
                key = file.relative_to(store).as_posix()
                database.execute("INSERT INTO zarr VALUES(?, ?)", (key, file.read_bytes()))


def main(directory):
    base = Path(directory)
    field(ocean(base / "ocean.zarr"), "sst", compressors=[ZstdCodec()])
    sharded = ocean(base / "sharded-v3.zarr")
    field(sharded, "t2m", shards=(6, 32, 64), compressors=[ZstdCodec()])
    old(base / "old-v2.zarr")
    scene(base / "scene.zarr")
    sqlite(base / "ocean.sqlite", base / "ocean.zarr")


main(sys.argv[1])
