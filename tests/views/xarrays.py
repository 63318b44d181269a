"""Compares the dataset that xarray reads from a store with those that it reads from its views.

xarrays.py write DIRECTORY: writes the stores.
xarrays.py signs|texts|deltas STORE MOUNT, xarrays.py tree STORE MOUNT: compares; ends with an assertion if they differ.
"""

import os
import sys
import warnings

import numpy as np
import xarray as xr
import zarr

warnings.simplefilter("ignore")
CLASSIC = ["nc", "cdf5.nc", "cdf.nc"]


def write(directory):
    group = zarr.open_group(os.path.join(directory, "signs.zarr"), mode="w", zarr_format=3)
    for name, dtype, unsigned, values, fill in [
        ("u1_signed", "u1", "false", [0, 1, 255, 156, 128], 1),
        ("u2_signed", "u2", "false", [0, 1, 65535, 50000, 7], 7),
        ("u4_signed", "u4", "false", [0, 1, 2**32 - 1, 3 * 10**9, 5], 5),
        ("u1_unsigned", "u1", "true", [0, 1, 255, 156, 128], 255),
        ("i1_unsigned", "i1", "true", [0, 1, -1, -100, 5], -1),
        ("i4_unsigned", "i4", "true", [0, 1, -1, -100, 5], 1),
        ("i8_unsigned", "i8", "true", [0, 1, -2048, -4096, 5], 5),
        ("i2_signed", "i2", "false", [0, 1, -1, -100, 5], -1),
    ]:
        fill = np.array(fill, dtype).item()
        attributes = {"_Unsigned": unsigned, "_FillValue": fill}
        array = group.create_array(name, shape=(5,), dtype=dtype, dimension_names=["x"], attributes=attributes)
        array[...] = np.array(values, dtype)

    texts = {"ascii": ["a", "bc", ""], "other": ["\u00e4", "b", "\u20ac"], "none": ["", "", ""]}
    data = xr.Dataset({name: ("x", np.array(text, object)) for name, text in texts.items()})
    data.to_zarr(os.path.join(directory, "texts.zarr"), zarr_format=2)

    group = zarr.open_group(os.path.join(directory, "deltas.zarr"), mode="w", zarr_format=3)
    for unit in ["D", "h", "m", "s", "ms", "us", "ns"]:
        values = np.array([0, 1, np.iinfo("i8").min, -7, 400], "i8").view(f"m8[{unit}]")
        array = group.create_array(unit, shape=(5,), dtype=values.dtype, dimension_names=["x"])
        array[...] = values

    # The groups below inherit the coordinates of the root; those of `finer` have another length.
    coordinates = {"x": 500_005 + 10.0 * np.arange(40), "y": 5_000_000 - 10.0 * np.arange(30)}
    root = xr.Dataset({"spatial_ref": ((), 0, {"spatial_ref": "EPSG:32633"})}, coordinates)
    values = xr.Variable(("y", "x"), np.random.default_rng(1).random((30, 40)).astype("f4"), {"grid_mapping": "spatial_ref"})
    finer = xr.DataArray(np.zeros((3, 40), "f4"), dims=("row", "x"))
    tree = {"/": root, "/a": xr.Dataset({"v": values}), "/a/b": xr.Dataset({"w": values}), "/finer": xr.Dataset({"f": finer})}
    xr.DataTree.from_dict(tree).to_zarr(os.path.join(directory, "tree.zarr"), zarr_format=3)


def decoded(data):
    """The decoded values of each variable, and their type: floats of any size are one type."""
    return {name: (value.dtype.kind, value.values.tolist()) for name, value in data.variables.items()}


def check(store, mount):
    name = os.path.basename(store).removesuffix(".zarr")
    with xr.open_zarr(store, consolidated=False, chunks=None) as data:
        wanted = decoded(data)
    assert wanted
    for ending in CLASSIC:
        with xr.open_dataset(os.path.join(mount, ".zarrfs", f"{name}.{ending}")) as data:
            found = decoded(data)
        assert found.keys() == wanted.keys(), (ending, found.keys())
        for variable, (kind, values) in wanted.items():
            other, others = found[variable]
            same = np.array_equal(np.array(values), np.array(others), equal_nan=kind == "f")
            assert same, (ending, variable, values, others)
            assert (kind in "OTU") == (other in "OTU"), (ending, variable, kind, other)


def check_tree(store, mount):
    import rasterio

    tree = xr.open_datatree(store, engine="zarr", consolidated=False)
    for path in "a", "a/b", "finer":
        # Those of the dimensions that variables have: xarray inherits all.
        wanted = tree[path].to_dataset()
        wanted = wanted[list(wanted.data_vars)]
        name = os.path.basename(path)
        for ending in CLASSIC:
            with xr.open_dataset(os.path.join(mount, path, ".zarrfs", f"{name}.{ending}")) as data:
                assert set(data.coords) == set(wanted.coords), (path, ending, data.coords)
                for variable in wanted.variables:
                    assert np.array_equal(data[variable].values, wanted[variable].values), (path, ending, variable)
    for path in "a/v", "a/b/w":
        with rasterio.open(os.path.join(mount, path, ".zarrfs", f"{os.path.basename(path)}.tif")) as raster:
            assert raster.crs.to_epsg() == 32633, (path, raster.crs)
            assert raster.transform[:6] == (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_000_005.0), (path, raster.transform)


if sys.argv[1] == "write":
    write(sys.argv[2])
elif sys.argv[1] == "tree":
    check_tree(sys.argv[2], sys.argv[3])
else:
    check(sys.argv[2], sys.argv[3])
