"""Writes stores as climate people have them: climate.py DIRECTORY."""

import pathlib
import sys
import warnings

import numpy as np
import xarray as xr
import zarr

warnings.simplefilter("ignore")
root = pathlib.Path(sys.argv[1])
generator = np.random.default_rng(7)

TIMES, LEVELS, LATS, LONS = 30, 4, 19, 36


def dataset():
    """Coordinates, packed integers, missing values, text, times, and what does not fit netCDF."""
    time = xr.date_range("2001-01-01", periods=TIMES, freq="D", use_cftime=False)
    lat = np.linspace(-90, 90, LATS, dtype="f8")
    lon = np.arange(0, 360, 10, dtype="f8")
    shape = (TIMES, LATS, LONS)
    t2m = (280 + 20 * generator.standard_normal(shape)).astype("f4")
    sst = t2m.copy()
    sst[:, 5:8, 3:9] = np.nan
    names = np.array(["Århus", "Bonn", "Cape Town"], dtype=object)
    coordinates = {
        "time": ("time", time, {"standard_name": "time", "axis": "T"}),
        "lat": ("lat", lat, {"units": "degrees_north", "standard_name": "latitude"}),
        "lon": ("lon", lon, {"units": "degrees_east", "standard_name": "longitude"}),
        "level": ("level", np.array([1000, 850, 500, 200], "i4"), {"units": "hPa", "positive": "down"}),
    }
    dims = ("time", "lat", "lon")
    variables = {
        "t2m": (dims, t2m, {"units": "K", "long_name": "2 metre temperature"}),
        "sst": (dims, sst, {"units": "K", "flags": [1, 2, 3], "weights": [0.5, 1.5]}),
        "packed": (dims, np.round(t2m, 2), {"units": "K", "long_name": "packed"}),
        "mask": (("lat", "lon"), t2m[0] > 280, {"long_name": "a mask"}),
        "u": (("time", "level", "lat", "lon"),
              generator.standard_normal((TIMES, LEVELS, LATS, LONS)).astype("f8"), {"units": "m s-1"}),
        "count": (("lat", "lon"), generator.integers(0, 255, (LATS, LONS)).astype("u1"), {}),
        "station": ("site", names, {"cf_role": "timeseries_id"}),
        "code": ("site", np.array([b"AAR", b"BO", b"CPT"], "S3"), {}),
        "big": (("lat",), np.arange(LATS, dtype="i8") * 10**10, {}),
        "scalar": ((), np.float32(1.5), {"grid_mapping_name": "latitude_longitude"}),
    }
    attributes = {
        "Conventions": "CF-1.8", "title": "Klima für alle", "history": "made for a test",
        "institutions": ["a", "bc"], "version": 3, "nested": {"a": [1, 2]}, "empty": "",
    }
    return xr.Dataset(variables, coordinates, attributes)


def encoding(v3):
    chunks = {"t2m": (8, 10, 12), "sst": (30, 19, 36), "u": (5, 2, 19, 36), "packed": (10, 19, 12)}
    found = {name: {"chunks": shape} for name, shape in chunks.items()}
    found["packed"] |= {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    found["time"] = {"units": "hours since 1900-01-01", "calendar": "gregorian", "dtype": "i8"}
    if v3:
        found["t2m"] |= {"chunks": (4, 10, 12), "shards": (8, 20, 36)}
    return found


def write(v3):
    path = root / ("climate_v3.zarr" if v3 else "climate_v2.zarr")
    data = dataset()
    if v3:
        data = data.drop_vars("code")
    data.to_zarr(path, zarr_format=3 if v3 else 2, encoding=encoding(v3), consolidated=True)
    return path


def others():
    """Groups in groups, big-endian, half floats, complex numbers, names that do not fit."""
    group = zarr.open_group(root / "others.zarr", mode="w", zarr_format=2)
    group.attrs["title"] = "root"

    def add(parent, name, data, chunks, dims=None, attributes=None, **options):
        array = parent.create_array(name, shape=data.shape, chunks=chunks, dtype=data.dtype, **options)
        array[...] = data
        if dims is not None:
            array.attrs["_ARRAY_DIMENSIONS"] = dims
        array.attrs.update(attributes or {})

    numbers = np.arange(60, dtype=">f4").reshape(6, 10)
    add(group, "big_endian", numbers, (4, 5), ["y", "x"])
    add(group, "x", np.arange(10, dtype="<i2"), (10,), ["x"])
    inner = group.create_group("inner")
    inner.attrs["level"] = 1
    add(inner, "half", numbers.astype("<f2"), (4, 5), ["y", "x"])
    add(inner, "y", np.arange(6, dtype=">i8"), (2,), ["y"])
    add(inner, "complex", (numbers + 1j * numbers[::-1]).astype("<c8"), (2, 10), ["y", "x"])
    deep = inner.create_group("deep")
    add(deep, "nameless", np.arange(24, dtype="u2").reshape(4, 6), (3, 4))
    add(deep, "twice", np.arange(16, dtype="i8").reshape(4, 4), (2, 2), ["k", "k"])
    add(deep, "other_y", np.arange(5, dtype="u4"), (2,), ["y"])
    add(deep, "lat", np.arange(12, dtype="f8").reshape(3, 4), (3, 2), ["lat", "lon"])
    add(deep, "when", np.array(["2020-01-01", "NaT", "2021-05-05"], "M8[D]").astype("M8[s]"), (2,), ["t"])
    add(deep, "flags", np.array([True, False, True]), (2,), ["t"],
        {"bad/name": 1, "long": "x" * 70000, "_FillValue": "?", "NAME": "mine"})
    add(deep, "label", np.array(["ä", "bcd", ""], "U3"), (2,), ["t"])
    add(deep, "records", np.zeros(3, [("a", "i4"), ("b", "f8")]), (3,), ["t"])
    add(deep, "none", np.zeros((0, 3), "f4"), (1, 3), ["nothing", "t"])
    add(deep, "wide", np.arange(20, dtype="i4").reshape(2, 10), (4, 5), ["two", "x"])


def traps():
    """Names and values that files of netCDF and their readers stumble over."""
    root_group = zarr.open_group(root / "traps.zarr", mode="w", zarr_format=3)

    def add(parent, name, data, dims, attributes=None, **options):
        array = parent.create_array(name, shape=data.shape, dtype=data.dtype, dimension_names=dims, **options)
        array[...] = data
        array.update_attributes(attributes or {})

    add(root_group, "x", np.arange(5.0), ["x"])
    shadow = root_group.create_group("shadow")
    add(shadow, "a", np.arange(5), ["x"])
    add(shadow, "b", np.arange(3), ["x"])
    finer = root_group.create_group("finer")
    add(finer, "data", np.arange(10), ["x"])
    add(finer, "x", np.arange(10) / 2, ["x"])
    add(root_group, "v", np.arange(6.0).reshape(2, 3), ["time", "k"])
    add(root_group.create_group("time"), "u", np.arange(3), ["k"])
    add(root_group, "flag", np.array([["a", "b", "c"], ["d", "e", "f"]], "U4"), ["p", "q"])
    add(root_group, "blank", np.array([["", "", ""], ["", "", ""]], "U4"), ["p", "q"])
    add(root_group, "letters", np.array([["ab", "ä"], ["", "xyz"]], "U4"), ["p", "r"])
    add(root_group, "z", np.array([1 + 2j, 3 + 1j, 5 + 5j], "c16"), ["k"], {"_FillValue": 1.0})
    add(root_group, "n" * 230, np.arange(6).reshape(2, 3), ["n" * 230, "k"])
    add(root_group, "long", np.arange(7), ["n" * 250])
    add(root_group, "longer", np.arange(8), ["n" * 250])
    add(root_group, "e\u0301", np.arange(3), ["o\u0308"])
    add(root_group, "unsigned", np.array([-1, 5], "i1"), ["two"], {"_Unsigned": "true", "_FillValue": 255})
    add(root_group, "weeks", np.array([1, 2, "NaT"], "M8[W]"), ["k"])
    add(root_group, "_nc4_non_coord_x", np.arange(4), ["four"])


if __name__ == "__main__":
    root.mkdir(parents=True, exist_ok=True)
    write(False)
    write(True)
    others()
    traps()
