#!/usr/bin/env python3
"""Arrays that are rasters: `rasters.py write DIRECTORY`, `rasters.py check DIRECTORY MOUNT`.

The first writes stores with zarr-python and xarray. The second reads each array of DIRECTORY with
zarr-python and its GeoTIFF below MOUNT with tifffile and rasterio (another libtiff, another GDAL than
the command line tools'), pixel by pixel, and compares transforms, systems and the metadata of bands
with rasterio, gdalinfo, listgeo and tiffinfo. Prints the counts; exits with 1 if anything differs.
"""
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import rasterio
import tifffile
import xarray as xr
import zarr
from rasterio.crs import CRS

warnings.simplefilter("ignore")
DIRECTORY = sys.argv[2]
CONVENTIONS = [
    {"uuid": "d35379db-88df-4056-af3a-620245f8e347", "name": "multiscales"},
    {"uuid": "f17cb550-5864-4468-aeb7-f3180cfb622f", "name": "proj:"},
    {"uuid": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "name": "spatial"},
]
LEVELS = [("r10m", 1), ("r20m", 2), ("r60m", 6), ("r120m", 12), ("r360m", 36), ("r720m", 72)]
TYPES = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "b1"]
rng = np.random.default_rng(7)


def values(shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype.newbyteorder("="), endpoint=True).astype(dtype)
    real = (rng.standard_normal(shape) * 100).astype(dtype)
    return real + (1j * rng.standard_normal(shape)).astype(dtype) if dtype.kind == "c" else real


def store(name):
    return os.path.join(DIRECTORY, name)


def create(group, name, data, chunks, names=None, version=3, **more):
    attributes = more.pop("attributes", {})
    if version == 2 and names:
        attributes = {**attributes, "_ARRAY_DIMENSIONS": list(names)}
    elif names:
        more["dimension_names"] = names
    array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks, attributes=attributes, **more)
    array[...] = data
    return array


def write_pyramid():
    root = zarr.create_group(store("pyramid"), zarr_format=3)
    layout, source = [], {}
    for place, (name, factor) in enumerate(LEVELS):
        side = -(-1098 // factor)
        entry = {"asset": name, "spatial:shape": [side, side],
                 "spatial:transform": [10.0 * factor, 0.0, 500000.0, 0.0, -10.0 * factor, 5000000.0]}
        if place:
            before = LEVELS[place - 1]
            scale = factor / before[1]
            entry.update(derived_from=before[0], transform={"scale": [scale, scale], "translation": [0.0, 0.0]})
        layout.append(entry)
        level = root.create_group(name)
        for band in ("B02", "B03", "SCL"):
            source[band] = values((side, side), "u1" if band == "SCL" else "u2")
            chunks = {"B02": (64, 64), "B03": (100, 75), "SCL": (128, 256)}[band]
            more = {"shards": (256, 256)} if band == "B02" and side > 256 else {}
            create(level, band, source[band], chunks, ("y", "x"), attributes={"_FillValue": 0, "long_name": band}, **more)
        if place == 2:
            create(level, "B01", source["B02"], (64, 64), ("y", "x"))
    root.attrs.update({
        "zarr_conventions": CONVENTIONS, "proj:code": "EPSG:32633", "spatial:dimensions": ["y", "x"],
        "spatial:bbox": [500000.0, 4989020.0, 510980.0, 5000000.0],
        "multiscales": {"layout": layout, "resampling_method": "average"}})
    # Overviews in another order of bytes than the image itself, of OME-NGFF.
    ngff = zarr.create_group(store("ngff"), zarr_format=2)
    for place, (side, dtype) in enumerate([(200, ">i2"), (100, "<i2"), (50, ">i2"), (25, "<i4")]):
        create(ngff, str(place), values((2, side, side), dtype), (1, 32, 32), version=2)
    ngff.attrs["multiscales"] = [{"version": "0.4", "datasets": [{"path": str(n)} for n in range(4)]}]


def write_climate():
    for version in (2, 3):
        for order in ("down", "up"):
            latitude = np.linspace(90, -90, 91) if order == "down" else np.linspace(-90, 90, 91)
            data = np.round(values((5, 91, 180), "f8"), 1)
            data[0, 0, :5] = np.nan
            cube = xr.Dataset(
                {"t2m": (("time", "lat", "lon"), data, {"units": "K", "long_name": "2 metre <temperature> & \"more\"",
                                                        "standard_name": "air_temperature", "grid_mapping": "crs"}),
                 "plain": (("time", "lat", "lon"), data.astype("f4"), {"units": "K"}),
                 "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0,
                                           "inverse_flattening": 298.257223563})},
                {"time": ("time", np.arange(5) * 6, {"units": "hours since 2000-01-01"}),
                 "lat": ("lat", latitude, {"units": "degrees_north"}),
                 "lon": ("lon", np.arange(180) * 2.0, {"units": "degrees_east"})})
            packing = {"dtype": "i2", "scale_factor": 0.1, "add_offset": 273.15, "_FillValue": np.int16(-32768), "chunks": (2, 91, 90)}
            cube.to_zarr(store(f"climate{version}{order}"), zarr_format=version, consolidated=False,
                         encoding={"t2m": packing, "plain": {"chunks": (1, 16, 48)}}, mode="w")


def write_systems():
    group = zarr.create_group(store("systems"), zarr_format=3)
    data = values((40, 50), "i2")
    for name, system in (("wkt", {"wkt": CRS.from_epsg(2154).to_wkt()}),
                         ("url", {"url": "http://www.opengis.net/def/crs/EPSG/0/2154"}),
                         ("none", {"wkt": CRS.from_proj4("+proj=laea +lat_0=10 +lon_0=3 +R=6371000").to_wkt()})):
        create(group, name, data, (16, 32), ("Y", "X"), attributes={"_CRS": system})
    create(group, "X", 700000.5 + np.arange(50.0), (50,), ("X",), attributes={"units": "m"})
    create(group, "Y", 6600000.0 - 2 * np.arange(40.0), (40,), ("Y",), attributes={"units": "m"})
    # Distances that are not regular: a system, and no transform.
    skewed = zarr.create_group(store("irregular"), zarr_format=3)
    create(skewed, "a", data, (16, 32), ("Y", "X"), attributes={"proj:code": "EPSG:2154"})
    create(skewed, "X", np.arange(50.0) ** 2, (50,), ("X",))
    create(skewed, "Y", np.arange(40.0), (40,), ("Y",))
    own = zarr.create_group(store("own"), zarr_format=3)
    code = {"proj:code": "EPSG:3857", "zarr_conventions": CONVENTIONS}
    for name, more in (("rotated", {"spatial:transform": [3.0, 1.0, 100.0, 2.0, -4.0, 200.0]}),
                       ("node", {"spatial:transform": [2.0, 0.0, 10.0, 0.0, -2.0, 90.0], "spatial:registration": "node"}),
                       ("wkt2", {"proj:code": None, "proj:wkt2": CRS.from_epsg(3857).to_wkt(version="WKT2_2019"),
                                 "spatial:transform": [2.0, 0.0, 10.0, 0.0, -2.0, 90.0]}),
                       ("epsg", {"proj:code": None, "proj:epsg": 3857, "spatial:transform": [2.0, 0.0, 10.0, 0.0, -2.0, 90.0]}),
                       ("shape", {"spatial:transform": [2.0, 0.0, 10.0, 0.0, -2.0, 90.0], "spatial:shape": [1, 1]}),
                       ("hostile", {"spatial:transform": ["a"] * 6, "_FillValue": {"a": 1}, "units": "\x00" * 9,
                                    "long_name": "</Item></GDALMetadata>]]><x a=\"'&amp;", "scale_factor": "NaN",
                                    "add_offset": [1], "grid_mapping": "../../.." * 9, "missing_value": 1e300,
                                    "proj:code": 7, "_CRS": "x" * 9, "standard_name": "y" * 100000,
                                    "multiscales": {"layout": [{"asset": ".."}]}})):
        create(own, name, data, (16, 32), ("y", "x"), attributes={**code, **more})


def write_inherited():
    data = values((40, 50), ">i2")
    transform = [2.0, 0.0, 10.0, 0.0, -2.0, 90.0]
    group = zarr.create_group(store("group"), zarr_format=2)
    group.attrs.update({"proj:code": "EPSG:25832", "spatial:transform": transform, "spatial:shape": [40, 50]})
    create(group, "child", data, (16, 32), ("y", "x"), version=2)
    create(group, "other", data[:20], (16, 32), ("y", "x"), version=2)
    create(group.create_group("deeper"), "grandchild", data, (16, 32), ("y", "x"), version=2)
    create(group, "torn", data, (16, 32), ("y", "x"), version=2, attributes={
        "proj:code": "EPSG:25832", "proj:wkt2": CRS.from_epsg(25833).to_wkt(version="WKT2_2019")})
    # As rioxarray writes it, with and without coordinates; and attributes that coordinates contradict.
    for name, x, units in (("plain", None, None), ("same", 11 + 2 * np.arange(50), "m"),
                           ("moved", 21 + 2 * np.arange(50), "metre"), ("far", 11 + 2 * np.arange(50), "km")):
        group = zarr.create_group(store("cf_" + name), zarr_format=3)
        create(group, "a", data.astype("i2"), (16, 32), ("y", "x"), attributes={"grid_mapping": "spatial_ref: x y"})
        create(group, "spatial_ref", np.array(0), (), attributes={
            "crs_wkt": CRS.from_epsg(25832).to_wkt(), "GeoTransform": "10.0 2.0 0.0 90.0 0.0 -2.0"})
        if x is not None:
            create(group, "x", x.astype("f4"), (50,), ("x",), attributes={"units": units})
            create(group, "y", 89 - 2 * np.arange(40.0), (40,), ("y",), attributes={"units": units})


def with_axes(name, x, y, of_x, of_y, **attributes):
    """`a` of 20 x 30 with the coordinates `x` (30) and `y` (20), each (name, numbers)."""
    group = zarr.create_group(store(name), zarr_format=3)
    create(group, "a", values((len(y[1]), len(x[1])), "i2"), (16, 16), (y[0], x[0]), attributes=attributes)
    for (axis, numbers), more in ((x, of_x), (y, of_y)):
        create(group, axis, np.asarray(numbers), (len(numbers),), (axis,), attributes=more)
    return group


DATUM = {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563}
EAST, NORTH = np.arange(30) * 10.0 + 500005, 4999995 - np.arange(20) * 10.0
METRES = {"units": "m"}


def write_doubts():
    """Places and systems that are not certain, and some that look so and are."""
    data, code = values((20, 30), "i2"), {"proj:code": "EPSG:32633"}
    place = {**code, "spatial:dimensions": ["y", "x"], "spatial:transform": [10.0, 0.0, 5e5, 0.0, -10.0, 5e6]}
    group = zarr.create_group(store("doubt_group"), zarr_format=3, attributes={**place, "spatial:registration": "node"})
    create(group, "is", data, (16, 16), ("y", "x"))
    create(group, "spectra", data, (16, 16), ("time", "wavelength"))
    create(group, "half", data[:10, :15], (16, 16), ("y20", "x20"))
    for name, more in (("rpc", {"spatial:transform_type": "rpc"}), ("shaped", {"spatial:shape": [1, 1]}),
                       ("pixel", {"spatial:transform": [5.0, 0.0, 7e5, 0.0, -5.0, 6e6]}),
                       ("box", {"spatial:bbox": [0, 0, 300, 200]}), ("inside", {"spatial:bbox": [5e5, 5e6 - 200, 5e5 + 300, 5e6]}),
                       ("gdal", {"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/32634"}}),
                       ("mapped", {"grid_mapping": "other"}), ("pole", {"grid_mapping": "rotated"})):
        create(group, name, data, (16, 16), ("y", "x"), attributes=more)
    create(group, "other", np.array(0), (), attributes={"crs_wkt": CRS.from_epsg(32634).to_wkt()})
    create(group, "rotated", np.array(0), (), attributes={"grid_mapping_name": "rotated_latitude_longitude"})
    lon, lat = ("u", np.arange(20) + 5.0), ("v", 50.0 - np.arange(30))
    group = with_axes("doubt_swapped", lat, lon, {"units": "degrees_north"}, {"units": "degrees_east"}, grid_mapping="crs")
    create(group, "crs", np.array(0), (), attributes=DATUM)
    for name, more in (("level", {}), ("celsius", {"units": "degree_Celsius"})):
        across, down = ("lev", np.arange(30.0)), ("lat", 50.0 - np.arange(20))
        group = with_axes("doubt_" + name, across, down, more, {"units": "degrees_north"}, grid_mapping="crs")
        create(group, "crs", np.array(0), (), attributes=DATUM)
    x, y = ("x", EAST), ("y", NORTH)
    with_axes("doubt_feet", x, y, {"units": "ft"}, {"units": "ft"}, **code)
    with_axes("doubt_metres", x, y, METRES, METRES, **{"proj:code": "EPSG:2263"})
    with_axes("doubt_survey", x, y, {"units": "US_survey_foot"}, {"units": "US_survey_foot"}, **{"proj:code": "EPSG:2263"})
    with_axes("doubt_misread", x, y, METRES, METRES, **{"proj:code": "EPSG:26819"})
    with_axes("doubt_times", ("x", np.arange(30).astype("M8[D]")), y, {}, METRES, **code)
    with_axes("doubt_missing", x, y, {"units": "m", "_FillValue": float(EAST[3])}, METRES, **code)
    with_axes("doubt_whole", ("x", np.arange(30) * 1000 + (np.arange(30) == 7)), y, METRES, METRES, **code)
    with_axes("doubt_signed", ("x", (np.arange(30) + 115).astype("i1")), y, {"units": "m", "_Unsigned": "true"}, METRES, **code)
    for name, geo in (("one", "0 10 0 5 0 -10"), ("moved", "5 10 0 5 0 -10")):
        group = with_axes("doubt_" + name, ("x", [5.0]), ("y", [0.0]), METRES, METRES, grid_mapping="crs")
        create(group, "crs", np.array(0), (), attributes={"crs_wkt": CRS.from_epsg(32633).to_wkt(), "GeoTransform": geo})


def write_packed():
    group = zarr.create_group(store("packed"), zarr_format=3)
    data = values((20, 30), "i2")
    for name, more in (("list", {"scale_factor": [0.1], "add_offset": 273.15}), ("text", {"scale_factor": "0.1", "add_offset": 273.15}),
                       ("unsigned", {"scale_factor": 0.1, "_Unsigned": "true", "_FillValue": -1})):
        create(group, name, data, (16, 16), ("y", "x"), attributes=more)
    create(group, "many", values((9000, 4, 4), "i2"), (9000, 4, 4), ("t" * 200, "y", "x"), attributes={"scale_factor": 0.1, "add_offset": 273.15})
    for axis, numbers, more in (("time", np.array(["2000-02-29T06", "1969-12-31T23"], "M8[s]").astype("M8[ns]"), {}),
                                ("level", np.array([8500, 9250], "i2"), {"scale_factor": 0.1, "units": "hPa"}),
                                ("width", np.array([0.1, 0.2], "f4"), {}), ("count", np.array([-1, 1], "i1"), {"_Unsigned": "true"})):
        create(group, "by_" + axis, values((2, 20, 30), "i2"), (1, 16, 16), (axis, "y", "x"))
        create(group, axis, numbers, (2,), (axis,), attributes=more)


def ome(scale, translation=None):
    steps = [{"type": "scale", "scale": [scale, scale]}]
    return {"coordinateTransformations": steps + ([{"type": "translation", "translation": [translation] * 2}] if translation is not None else [])}


# Of each pyramid: the metadata of the second level, and whether it is an overview.
OME = {"padded": (64, ome(2), False), "good": (50, ome(2), True), "centred": (50, ome(2, 0.5), True), "moved": (50, ome(2, 500), False)}
LAYOUT = {"derived": (50, {"derived_from": "0", "transform": {"scale": [2, 2]}}, {}, True),
          "padded": (64, {"derived_from": "0", "transform": {"scale": [2, 2]}}, {}, False),
          "moved": (50, {"derived_from": "0", "transform": {"scale": [2, 2], "translation": [0, 30]}}, {}, False),
          "elsewhere": (50, {}, {"spatial:transform": [20.0, 0.0, 7e5, 0.0, -20.0, 5e6]}, False),
          "flipped": (50, {}, {"spatial:transform": [20.0, 0.0, 5e5, 0.0, 20.0, 5e6 - 1000]}, False),
          "placed": (50, {}, {"spatial:transform": [20.0, 0.0, 5e5, 0.0, -20.0, 5e6]}, True),
          "system": (50, {}, {"proj:code": "EPSG:32634"}, False)}
LEVEL_AXES = {"same": (EAST[:20:2] + 5, True), "flipped": (EAST[:20:2][::-1] + 5, False), "far": (EAST[:20:2] + 1e5, False)}
LEVEL_ARRAYS = {"unsigned": {"_Unsigned": "true"}, "none": {}}


def write_levels():
    for name, (side, entry, _) in OME.items():
        group = zarr.create_group(store("ome_" + name), zarr_format=3)
        create(group, "0", values((100, 100), "u1"), (16, 16))
        create(group, "1", values((side, side), "u1"), (16, 16))
        group.attrs["ome"] = {"version": "0.5", "multiscales": [{"datasets": [{"path": "x", **ome(1)}]}, {
            "datasets": [{"path": "0", **ome(1)}, {"path": "1", **entry}]}]}
    def pyramid(name, entry=None, attributes=None, own=None):
        root = zarr.create_group(store("level_" + name), zarr_format=3, attributes={
            "multiscales": {"layout": [{"asset": "0"}, {"asset": "1", **(entry or {})}]}})
        return root, root.create_group("0", attributes=own or {}), root.create_group("1", attributes=attributes or {})
    for name, (side, entry, attributes, _) in LAYOUT.items():
        placed = "spatial:transform" in attributes
        system = "proj:code" in attributes or placed
        own = {"spatial:transform": [10.0, 0.0, 5e5, 0.0, -10.0, 5e6], "proj:code": "EPSG:32633"} if system else {}
        if system:
            attributes = {"spatial:transform": [20.0, 0.0, 5e5, 0.0, -20.0, 5e6], "proj:code": "EPSG:32633", **attributes}
        _, fine, coarse = pyramid(name, entry, attributes, own)
        create(fine, "a", values((100, 100), "u1"), (16, 16), ("y", "x"))
        create(coarse, "a", values((side, side), "u1"), (16, 16), ("y", "x"))
    for name, (x, _) in LEVEL_AXES.items():
        _, fine, coarse = pyramid("axes_" + name)
        for group, x, y in ((fine, EAST[:20], NORTH), (coarse, x, NORTH[::2] - 5)):
            create(group, "a", values((len(y), len(x)), "u1"), (16, 16), ("y", "x"))
            create(group, "x", x, (len(x),), ("x",), attributes=METRES)
            create(group, "y", y, (len(y),), ("y",), attributes=METRES)
    for name, more in LEVEL_ARRAYS.items():
        _, fine, coarse = pyramid("array_" + name)
        create(fine, "a", values((100, 100), "i2"), (16, 16), ("y", "x"))
        create(coarse, "a", values((50, 50), "i2"), (16, 16), ("y", "x"), attributes=more)
    for name, order in (("same", [1, 2, 3]), ("turned", [3, 2, 1])):
        _, fine, coarse = pyramid("bands_" + name)
        for group, side, bands in ((fine, 100, [1, 2, 3]), (coarse, 50, order)):
            create(group, "a", values((3, side, side), "u1"), (1, 16, 16), ("band", "y", "x"))
            create(group, "band", np.array(bands), (3,), ("band",))
    root = zarr.create_group(store("level_filled"), zarr_format=2, attributes={"multiscales": {"layout": [{"asset": "0"}, {"asset": "1"}]}})
    for name, side, fill in (("0", 100, -9999), ("1", 50, -1)):
        create(root.create_group(name), "a", values((side, side), "i2"), (16, 16), ("y", "x"), version=2, fill_value=fill)


def write_types():
    group = zarr.create_group(store("types2"), zarr_format=2)
    for kind in TYPES:
        for letter in "<>":
            dtype = np.dtype(letter + kind)
            name = ("little" if letter == "<" else "big") + kind
            create(group, "tiled_" + name, values((3, 37, 70), dtype), (2, 16, 32), version=2)
            create(group, "strips_" + name, values((3, 37, 70), dtype), (2, 10, 33), version=2)
    group = zarr.create_group(store("types3"), zarr_format=3)
    for kind in TYPES:
        dtype = np.dtype(kind)
        create(group, "sharded_" + kind, values((5, 50, 70), dtype), (2, 16, 16), shards=(4, 32, 48))
    create(group, "deep", values((2, 3, 1, 20, 33), "u2"), (1, 2, 1, 16, 16), ("time", "level", None, "lat", "lon"))
    create(group, "pixels", values((50, 40, 3), "u1"), (32, 16, 3), ("y", "x", "band"))
    create(group, "halves", values((50, 40, 3), "u2"), (32, 16, 2), ("y", "x", "band"))
    create(group, "more", values((50, 40, 3), "u2"), (32, 16, 4), ("y", "x", "band"))
    create(group, "large", values((20, 30), "f4"), (64, 48))
    create(group, "lone", values((1, 20, 30), "f4"), (1, 16, 16), fill_value=3)
    partial = group.create_array("partial", shape=(2, 100, 100), dtype="f4", chunks=(1, 32, 32), fill_value=np.nan)
    partial[1, 10:50, 60:] = values((40, 40), "f4")
    for name, shape, names, dtype in (("across", (20, 30), ("x", "y"), "u1"), ("line", (20,), ("x",), "u1"),
                                      ("both", (4, 20, 30, 3), ("time", "y", "x", "band"), "u1"),
                                      ("empty", (0, 30), None, "u1"), ("texts", (4, 4), None, "S4")):
        create(group, "no_" + name, np.zeros(shape, dtype), tuple(n or 1 for n in shape), names)


def write_sparse():
    """Writes arrays of more than 16 GiB, each with one chunk."""
    group = zarr.create_group(store("sparse"), zarr_format=3)
    place = {"proj:code": "EPSG:32633", "spatial:transform": [10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0],
             "_FillValue": "AAAAAAAA+H8="}
    for name, chunks in (("tiled", (1, 512, 512)), ("strips", (1, 500, 500))):
        array = group.create_array(name, shape=(2, 47104, 47104), dtype="f4", chunks=chunks, fill_value=7,
                                   dimension_names=("band", "y", "x"), attributes=place)
        array[1, 47000:, 47000:] = values((104, 104), "f4")


bad, counts = [], {"files": 0, "overviews": 0, "transforms": 0, "systems": 0, "refused": 0}


def same(what, got, expected):
    if not np.array_equal(np.asarray(got), np.asarray(expected), equal_nan=np.asarray(expected).dtype.kind in "fc"):
        bad.append(f"{what}: {str(got)[:300]} is not {str(expected)[:300]}")


def close(what, got, expected):
    if got is None or not np.allclose(got, expected, rtol=1e-12, atol=1e-9):
        bad.append(f"{what}: {got} is not {expected}")


def equal(what, got, expected):
    if got != expected:
        bad.append(f"{what}: {got!r} is not {expected!r}")


def tif(path):
    return os.path.join(sys.argv[3], path, ".zarrfs", os.path.basename(path) + ".tif")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # Private tags are not known to a libtiff without GDAL.
    lines = [line for line in done.stderr.splitlines() if line.strip() and "Unknown field with tag" not in line]
    if done.returncode or lines:
        bad.append(f"{command}: {done.returncode} {lines}")
    return done.stdout


def pixels(path, last=False):
    data = zarr.open_array(store(path), mode="r")[...]
    if data.dtype.kind == "b":
        data = data.astype("u1")
    if data.dtype == np.dtype("f2").newbyteorder(data.dtype.byteorder):
        data = data.astype("f4")
    if last:
        return np.moveaxis(data, -1, 0)
    return data.reshape((-1, *data.shape[-2:]))


def check_pixels(path, overviews=(), last=False):
    counts["files"] += 1
    levels = [pixels(path, last)] + [pixels(other, last) for other in overviews]
    with tifffile.TiffFile(tif(path)) as file:
        equal(f"{path}: images", len(file.pages), len(levels))
        for place, expected in enumerate(levels):
            got = file.pages[place].asarray()
            got = np.moveaxis(got, -1, 0) if last else got.reshape((-1, *got.shape[-2:]))
            same(f"{path}: image {place} of tifffile", got, expected)
            equal(f"{path}: type", got.dtype.newbyteorder("="), expected.dtype.newbyteorder("="))
            equal(f"{path}: reduced", bool(file.pages[place].is_reduced), place > 0)
    with rasterio.open(tif(path)) as file:
        same(f"{path}: rasterio", file.read(), levels[0])
        equal(f"{path}: overviews", len(file.overviews(1)), len(overviews))
    for place, expected in enumerate(levels[1:]):
        with rasterio.open(tif(path), overview_level=place) as file:
            same(f"{path}: overview {place} of rasterio", file.read(), expected)
        counts["overviews"] += 1


def check_place(path, transform, code, nodata=None, **more):
    """`transform` in the order of rasterio, from the corner of the first pixel."""
    with rasterio.open(tif(path)) as file:
        close(f"{path}: transform", list(file.transform)[:6], transform or [1, 0, 0, 0, 1, 0])
        equal(f"{path}: system", file.crs and file.crs.to_epsg(), code)
        if nodata is not None:
            same(f"{path}: nodata", file.nodata, nodata)
        for name, expected in more.items():
            equal(f"{path}: {name}", getattr(file, name), expected)
    info = json.loads(run("gdalinfo", "-json", tif(path)))
    if transform:
        a, b, c, d, e, f = transform
        close(f"{path}: gdalinfo", info.get("geoTransform"), [c, a, b, f, d, e])
    else:
        equal(f"{path}: gdalinfo", info.get("geoTransform"), None)
    system = info.get("coordinateSystem", {}).get("wkt", "")
    equal(f"{path}: gdalinfo's system", system.rstrip().endswith(f'ID["EPSG",{code}]]') if code else not system or CRS.from_wkt(system).to_epsg() is None, True)
    lines = [line for line in run("listgeo", tif(path)).splitlines() if "CRSGeoKey" in line and "User-Defined" not in line]
    equal(f"{path}: listgeo", [f"Code-{code} " in line for line in lines], [True] if code else [])
    run("tiffinfo", "-s", tif(path))
    counts["transforms"] += bool(transform)
    counts["systems"] += bool(code)
    return info


def check_doubts():
    place = [10, 0, 5e5, 0, -10, 5e6]
    node = [10, 0, 5e5 - 5, 0, -10, 5e6 + 5]
    for name, transform, code in (("is", node, 32633), ("spectra", None, None), ("half", None, None), ("rpc", None, None),
                                  ("shaped", None, None), ("pixel", [5, 0, 7e5, 0, -5, 6e6], 32633), ("box", None, None),
                                  ("inside", node, 32633), ("gdal", node, None), ("mapped", node, None), ("pole", node, None)):
        check_place("doubt_group/" + name, transform, code)
    check_place("doubt_swapped/a", None, None)
    column = [1, 0, -0.5, 0, -1, 50.5]
    for name in ("level", "celsius"):
        check_place(f"doubt_{name}/a", column, None)
    for name, transform, code in (("feet", place, None), ("metres", place, None), ("survey", place, 2263), ("misread", place, None),
                                  ("times", None, None), ("missing", None, None), ("whole", None, None),
                                  ("signed", [1, 0, 114.5, 0, -10, 5e6], 32633), ("one", [10, 0, 0, 0, -10, 5], 32633), ("moved", None, None)):
        check_place(f"doubt_{name}/a", transform, code)


def check_packed():
    for name, scale, offset in (("list", 0.1, 273.15), ("text", 1, 0), ("many", 0.1, 273.15)):
        check_pixels("packed/" + name)
        with rasterio.open(tif("packed/" + name)) as file:
            equal(f"{name}: packing", (set(file.scales), set(file.offsets)), ({scale}, {offset}))
    with rasterio.open(tif("packed/unsigned")) as file:
        expected = zarr.open_array(store("packed/unsigned"), mode="r")[...].view("u2")
        same("unsigned", file.read(1), expected)
        equal("no data", (file.nodata, file.dtypes[0], file.scales[0]), (65535, "uint16", 0.1))
    for name, bands in (("time", ("time=2000-02-29T06:00:00", "time=1969-12-31T23:00:00")), ("level", ("level=850", "level=925")),
                        ("width", ("width=0.1", "width=0.2")), ("count", ("count=255", "count=1"))):
        with rasterio.open(tif("packed/by_" + name)) as file:
            equal(name, file.descriptions, bands)


def check():
    for place, (level, factor) in enumerate(LEVELS):
        for band in ("B02", "B03", "SCL"):
            coarser = [f"pyramid/{other}/{band}" for other, _ in LEVELS[place + 1:]]
            check_pixels(f"pyramid/{level}/{band}", coarser)
        transform = [10.0 * factor, 0, 500000, 0, -10.0 * factor, 5000000]
        info = check_place(f"pyramid/{level}/B02", transform, 32633, 0)
        equal("block", info["bands"][0]["block"], [64, 64])
        equal("gdalinfo's overviews", [o["size"][0] for o in info["bands"][0].get("overviews", [])],
              [-(-1098 // f) for _, f in LEVELS[place + 1:]])
    check_pixels("pyramid/r60m/B01")
    check_pixels("ngff/0", ["ngff/1", "ngff/2"])
    check_pixels("ngff/1", ["ngff/2"])
    for version in (2, 3):
        for order, step in (("down", -2), ("up", 2)):
            for name in ("t2m", "plain"):
                check_pixels(f"climate{version}{order}/{name}")
            transform = [2, 0, -1, 0, step, -45.5 * step]
            names = tuple(f"time=2000-01-{1 + n // 4:02}T{6 * (n % 4):02}:00:00" for n in range(5))
            check_place(f"climate{version}{order}/t2m", transform, 4326, -32768, descriptions=names, units=("K",) * 5,
                        scales=(0.1,) * 5, offsets=(273.15,) * 5)
            check_place(f"climate{version}{order}/plain", transform, None, np.nan, units=("K",) * 5)
            with rasterio.open(tif(f"climate{version}{order}/t2m")) as file:
                equal("long_name", file.tags()["long_name"], "2 metre <temperature> & \"more\"")
                equal("dates have no unit", file.tags().get("time#units"), None)
                with xr.open_zarr(store(f"climate{version}{order}"), consolidated=False, decode_times=False) as cube:
                    masked = file.read(masked=True)
                    same("mask", masked.mask, np.isnan(cube.t2m.values))
                    x, y = file.xy(7, 11)
                    close("place", (x, y), (cube.lon.values[11], cube.lat.values[7]))
    place = [1, 0, 700000, 0, -2, 6600001]
    for name, code in (("wkt", 2154), ("url", 2154), ("none", None)):
        check_pixels(f"systems/{name}")
        check_place(f"systems/{name}", place, code)
    check_place("irregular/a", None, None)
    check_place("own/rotated", [3, 1, 100, 2, -4, 200], 3857)
    info = check_place("own/node", [2, 0, 9, 0, -2, 91], 3857)
    equal("point", info["metadata"][""]["AREA_OR_POINT"], "Point")
    check_place("own/wkt2", [2, 0, 10, 0, -2, 90], 3857)
    check_place("own/epsg", [2, 0, 10, 0, -2, 90], 3857)
    check_place("own/shape", None, None)
    check_place("own/hostile", None, None)
    for name in ("rotated", "hostile"):
        check_pixels(f"own/{name}")
    place = [2, 0, 10, 0, -2, 90]
    check_place("group/child", place, 25832)
    check_place("group/other", None, None)
    check_place("group/deeper/grandchild", None, None)
    check_place("group/torn", place, None)
    check_place("cf_plain/a", place, 25832)
    check_place("cf_same/a", place, 25832)
    check_place("cf_moved/a", [2, 0, 20, 0, -2, 90], 25832)
    check_place("cf_far/a", place, None)
    check_doubts()
    check_packed()
    for name, (*_, is_overview) in OME.items():
        check_pixels(f"ome_{name}/0", [f"ome_{name}/1"] if is_overview else [])
    levels = {name: good for name, (*_, good) in LAYOUT.items()}
    levels.update({"axes_" + name: good for name, (_, good) in LEVEL_AXES.items()})
    levels.update({"array_unsigned": False, "array_none": True, "bands_same": True, "bands_turned": False, "filled": False})
    for name, is_overview in levels.items():
        check_pixels(f"level_{name}/0/a", [f"level_{name}/1/a"] if is_overview else [])
    for name in sorted(os.listdir(store("types2"))) + sorted(os.listdir(store("types3"))):
        half = "types2" if name[:6] in ("tiled_", "strips") else "types3"
        if name.startswith((".", "zarr.json")):
            continue
        if name.startswith("no_"):
            equal(f"{name} is refused", os.path.exists(tif(f"{half}/{name}")), False)
            counts["refused"] += 1
            continue
        check_pixels(f"{half}/{name}", last=name in ("pixels", "halves", "more"))
        run("tiffinfo", tif(f"{half}/{name}"))
    with tifffile.TiffFile(tif("types3/pixels")) as file:
        equal("tiles of pixels", (file.pages[0].is_tiled, int(file.pages[0].planarconfig)), (True, 1))
    for name in ("tiled", "strips"):
        array = zarr.open_array(store(f"sparse/{name}"), mode="r")
        with tifffile.TiffFile(tif(f"sparse/{name}")) as file:
            equal("big", (file.is_bigtiff, file.pages[0].is_tiled), (True, name == "tiled"))
        with rasterio.open(tif(f"sparse/{name}")) as file:
            window = rasterio.windows.Window(46824, 46924, 280, 180)
            same("the end of a large file", file.read(2, window=window), array[1, 46924:, 46824:])
            same("the beginning of a large file", file.read(1, window=((0, 9), (0, 9))), array[0, :9, :9])
        counts["files"] += 1
    for line in bad[:60]:
        print(line[:700])
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


def write():
    zarr.create_group(DIRECTORY, zarr_format=3)
    write_pyramid()
    write_climate()
    write_systems()
    write_inherited()
    write_doubts()
    write_packed()
    write_levels()
    write_types()
    write_sparse()


if sys.argv[1] == "write":
    write()
else:
    check()
