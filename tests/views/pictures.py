#!/usr/bin/env python3
"""Pictures (`.png`) as PIL reads them: `pictures.py write DIRECTORY`, `pictures.py check DIRECTORY MOUNT`.

The first writes stores with zarr-python. The second compares size, indexes of the palette, colours, range and
transparency of each picture with the elements that zarr-python reads. Prints the counts; exits with 1 if
anything differs.
"""
import glob
import json
import os
import sys

import numpy as np
import zarr
from PIL import Image

DIRECTORY = sys.argv[2]
rng = np.random.default_rng(7)


def store(name):
    return os.path.join(DIRECTORY, name)


def smooth(height, width):
    return (np.add.outer(np.arange(height) / height, np.arange(width) / width) ** 2 * 100 + rng.normal(size=(height, width))).astype("f4")


def write():
    group = zarr.create_group(DIRECTORY, zarr_format=3)

    def create(name, data, chunks=None, group=group, **more):
        array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks or data.shape, **more)
        array[...] = data

    plain = smooth(300, 400)
    plain[5, 7], plain[6, 8], plain[9, 9:20] = np.nan, np.inf, -9999
    create("plain", plain, (64, 64), fill_value=np.nan, attributes={"_FillValue": -9999.0, "units": "K"})
    os.remove(store("plain/c/1/1"))
    packed = rng.integers(-500, 500, (70, 90), dtype="i2")
    packed[3] = -32768
    create("packed", packed, (16, 90), attributes={"_FillValue": -32768, "scale_factor": 0.5, "add_offset": 273.0, "units": "\u00b0C"})
    create("big", rng.integers(0, 60000, (3000, 2000), dtype="u2"), (256, 300))
    create("long", rng.integers(0, 60000, (5000, 70), dtype="i8"), (1000, 7))
    create("cube", rng.random((2, 3, 40, 50)), (2, 2, 20, 20), shards=(2, 4, 40, 40))
    create("mask", rng.random((64, 30)) > 0.99)
    create("constant", np.full((10, 20), 7, "u1"))
    create("nothing", np.full((10, 20), np.nan, "f8"))
    create("half", smooth(33, 44).astype("f2"))
    create("big_endian", smooth(33, 44).astype(">f8"), (10, 10))
    colours = rng.integers(0, 256, (50, 61, 4), dtype="u1")
    create("rgb", colours[..., :3], (16, 16, 3), dimension_names=("y", "x", "band"))
    create("rgba", colours, (16, 16, 2))
    create("first", np.moveaxis(colours[..., :3], 2, 0), (1, 20, 20), dimension_names=("c", "y", "x"))
    create("bands", np.moveaxis(colours, 2, 0), (4, 20, 20), dimension_names=("band", "y", "x"))
    create("times", np.moveaxis(colours, 2, 0), (4, 20, 20), dimension_names=("time", "y", "x"))
    create("multi", rng.integers(0, 999, (50, 61, 5), dtype="i4"), (16, 16, 2), dimension_names=("y", "x", "band"))
    create("line", np.arange(10.0))
    create("complex", np.ones((3, 4), "c8"))
    fortran = zarr.create_group(store("v2"), zarr_format=2)
    create("fortran", smooth(50, 40), (16, 8), fortran, order="F")
    image = group.create_group("image", attributes={"ome": {"version": "0.5", "multiscales": [{
        "axes": [{"name": n, "type": "space"} for n in "yx"],
        "datasets": [{"path": str(n), "coordinateTransformations": [{"type": "scale", "scale": [2.0 ** n] * 2}]} for n in range(4)]}]}})
    for level in range(4):
        create(str(level), rng.integers(0, 999, (2048 >> level, 3072 >> level), dtype="u2"), (256, 256), image)
    # Rasters by their coordinates: name, latitudes or y, their attributes, attributes of the array.
    for name, down, about, own in TURNED:
        part = group.create_group(name)
        across = np.linspace(5, 15, 30) if name != "west" else np.linspace(15, 5, 30)
        create("a", rng.random((20, 30)), (8, 8), part, dimension_names=(name == "rows" and "row" or "lat", "lon"), attributes=own)
        if down is not None:
            create(name == "rows" and "row" or "lat", down, None, part, dimension_names=(name == "rows" and "row" or "lat",), attributes=about)
        create("lon", across, None, part, dimension_names=("lon",), attributes={"units": "degrees_east"})
    ome = group.create_group("turned_image", attributes={"ome": {"version": "0.5", "multiscales": [{
        "axes": [{"name": n, "type": "space"} for n in "yx"],
        "datasets": [{"path": "a", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}]}]}})
    create("a", rng.random((20, 30)), (8, 8), ome, dimension_names=("y", "x"))
    for name, length in ("y", 20), ("x", 30):
        create(name, np.arange(length) * 0.5, None, ome, dimension_names=(name,))
    geo = group.create_group("pyramid", attributes={"multiscales": {"layout": [
        {"asset": "0", "spatial:shape": [1200, 1600], "spatial:transform": [0.5, 0, 0, 0, 0.5, 10]},
        {"asset": "1", "derived_from": "0", "transform": {"scale": [2.0, 2.0], "translation": [0.0, 0.0]},
         "spatial:shape": [600, 800], "spatial:transform": [1.0, 0, 0, 0, 1.0, 10]}]},
        "spatial:dimensions": ["y", "x"]})
    for level in range(2):
        create(f"{level}", rng.random((1200 >> level, 1600 >> level)), (256, 256), geo, dimension_names=("y", "x"))


NORTH = {"units": "degrees_north"}
# Name, coordinates, their attributes, attributes of the array.
TURNED = [
    ("ascending", np.linspace(-30, 30, 20), NORTH, {}),
    ("descending", np.linspace(30, -30, 20), NORTH, {}),
    ("gaussian", np.sin(np.linspace(-1.5, 1.5, 20)) * 80, NORTH, {}),
    ("packed_lat", np.arange(20, 0, -1, dtype="i2"), {**NORTH, "scale_factor": -0.5}, {}),
    ("unordered", np.array([*range(19), 3.0]), NORTH, {}),
    ("west", np.linspace(-30, 30, 20), NORTH, {}),
    ("rows", np.arange(20.0), {}, {}),
    ("absent", None, {}, {}),
    ("declared", np.linspace(-30, 30, 20), NORTH, {"spatial:transform": [0.5, 0, 0, 0, -0.5, 10]}),
]
UP = ["ascending", "gaussian", "packed_lat", "west"]
bad, counts = [], {"pictures": 0}


def equal(what, got, expected):
    if not (np.array_equal(got, expected) if isinstance(expected, np.ndarray) else got == expected):
        bad.append(f"{what}: {str(got)[:300]} is not {str(expected)[:300]}")


def open_picture(node, name=None):
    path = os.path.join(sys.argv[3], node, ".zarrfs", (name or os.path.basename(node)) + ".png")
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        equal(f"{node}: size", len(file.read()), size)
    with Image.open(path) as picture:
        picture.verify()
    picture = Image.open(path)
    picture.load()
    counts["pictures"] += 1
    return picture


def check_numbers(node, plane, missing=None, scale=1.0, offset=0.0, units="", **more):
    picture = open_picture(node, **more)
    values = plane.astype("f8")
    valid = np.isfinite(values) & (values != missing)
    ordered = np.sort(values[valid])
    equal(f"{node}: mode", (picture.mode, picture.info["transparency"], picture.size), ("P", 0, plane.shape[::-1]))
    got = np.asarray(picture)
    equal(f"{node}: no value", got == 0, ~valid)
    if not len(ordered):
        equal(f"{node}: range", picture.text["Range"].strip(), "no values")
        return
    last = len(ordered) - 1
    dark, bright = ordered[(last * 2 + 50) // 100], ordered[(last * 98 + 50) // 100]
    if dark >= bright:
        dark, bright = ordered[0], ordered[-1]
    part = np.clip((values - dark) / (bright - dark), 0, 1) if dark < bright else np.full(values.shape, 0.5)
    expected = 1 + part[valid] * 254
    near = np.abs(got[valid] - expected) <= 0.500001
    equal(f"{node}: indexes", bool(near.all()), True)
    ends = [float(n) for n in picture.text["Range"].strip().removesuffix(units).split(" to ")]
    equal(f"{node}: range", np.allclose(ends, [dark * scale + offset, bright * scale + offset], rtol=1e-12), True)
    equal(f"{node}: units", picture.text["Range"].strip().endswith(units), True)


def check():
    data = {path: zarr.open_array(store(path), mode="r")[...] for path in [
        "plain", "packed", "big", "long", "cube", "mask", "constant", "nothing", "half", "big_endian", "rgb", "rgba", "first", "bands", "times",
        "multi", "v2/fortran", *(f"image/{n}" for n in range(4))]}
    check_numbers("plain", data["plain"], -9999, units="K")
    check_numbers("packed", data["packed"], -32768, 0.5, 273.0, "\u00b0C")
    check_numbers("big", data["big"][::3, ::3])
    check_numbers("long", data["long"][::5, ::1])
    check_numbers("cube", data["cube"][0, 0])
    for name in ("mask", "constant", "nothing", "half", "big_endian", "v2/fortran"):
        check_numbers(name, data[name])
    check_numbers("times", data["times"][0])
    check_numbers("multi", data["multi"][..., 0])
    # The level of 768 x 512 pixels is the coarsest that suffices.
    check_numbers("image", data["image/2"])
    check_numbers("image/0", data["image/2"])
    check_numbers("image/3", data["image/3"])
    for name, expected in {"rgb": data["rgb"], "rgba": data["rgba"], "first": np.moveaxis(data["first"], 0, 2),
                           "bands": np.moveaxis(data["bands"][:3], 0, 2)}.items():
        picture = open_picture(name)
        equal(f"{name}: mode", picture.mode, "RGBA" if expected.shape[2] == 4 else "RGB")
        equal(f"{name}: colours", np.asarray(picture), expected)
    for name, *_ in TURNED:
        plane = zarr.open_array(store(f"{name}/a"), mode="r")[...]
        plane = plane[::-1] if name in UP else plane
        check_numbers(f"{name}/a", plane[:, ::-1] if name == "west" else plane)
        text = open_picture(f"{name}/a").text["Description"]
        equal(f"{name}: description", ("top (north)" in text, "left (west)" in text), (name in UP, name == "west"))
    check_numbers("turned_image/a", zarr.open_array(store("turned_image/a"), mode="r")[...])
    level = zarr.open_array(store("pyramid/1"), mode="r")[...][::-1]
    check_numbers("pyramid/0", level)
    check_numbers("pyramid/1", level)
    picture = open_picture("big")
    equal("title", picture.text["Title"], "big")
    equal("dark and bright", picture.palette.getdata()[1][3:6] + picture.palette.getdata()[1][-3:], bytes([68, 1, 84, 253, 231, 37]))
    for name in ("line", "complex"):
        equal(f"{name}: none", glob.glob(os.path.join(sys.argv[3], name, ".zarrfs", "*.png")), [])
        equal(f"{name}: not by name", os.path.exists(os.path.join(sys.argv[3], name, ".zarrfs", name + ".png")), False)
    for line in bad[:60]:
        print(line[:900])
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


if sys.argv[1] == "write":
    write()
else:
    check()
