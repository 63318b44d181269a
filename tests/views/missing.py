"""Compares the missing values of views with those that xarray reads from the store.

missing.py write DIRECTORY: writes the stores.
missing.py check [STORE MOUNT]...: compares; ends with an assertion if they differ.
missing.py write_cells DIRECTORY, missing.py check_cells STORE MOUNT: the same for an AnnData table.
"""

import os
import sys
import warnings

import numpy as np
import xarray as xr
import zarr

warnings.simplefilter("ignore")
SCALED = {"dtype": "uint16", "scale_factor": 1e-4, "add_offset": -0.1, "_FillValue": 0}
# Of stores of these names, xarray reads zeros that zarr-python wrote by default as missing.
BY_HAND = {"by_hand", "alone", "by_hand_scaled"}


def band(rows=4, columns=6):
    """Reflectances of which the first row is missing."""
    values = 0.1 * np.arange(1, rows * columns + 1).reshape(rows, columns)
    values[0] = np.nan
    return xr.Variable(("y", "x"), values)


def write(directory):
    place = lambda name: os.path.join(directory, f"{name}.zarr")  # noqa: E731
    coordinates = {"y": 5_000_000 - 10.0 * np.arange(4), "x": 500_000 + 10.0 * np.arange(6)}
    classes = xr.Variable(("y", "x"), np.arange(24, dtype="u1").reshape(4, 6) % 5)
    zero = {"_FillValue": 0}
    # A product with coordinates: the classes have no scale, the coordinates tell.
    product = xr.Dataset({"b02": band(), "classes": classes}, coordinates)
    product.to_zarr(place("product"), zarr_format=2, encoding={"b02": SCALED, "classes": zero})
    # The coordinates are in the group above.
    tree = xr.DataTree.from_dict({"/": xr.Dataset(coords=coordinates), "/r10m": xr.Dataset({"classes": classes})})
    tree.to_zarr(place("tree"), zarr_format=2, encoding={"/r10m": {"classes": zero}}, write_inherited_coords=False)
    # Without coordinates: the scale tells, or a float beside the array.
    xr.Dataset({"b02": band()}).to_zarr(place("scaled"), zarr_format=2, encoding={"b02": SCALED})
    siblings = xr.Dataset({"classes": classes, "height": (("y", "x"), np.ones((4, 6), "f4"))})
    siblings.to_zarr(place("siblings"), zarr_format=2, encoding={"classes": zero})
    series = xr.Dataset({"b": ("x", [np.nan, 0.1, 0.2, 0.3]), "n": ("x", np.array([5, 0, 7, 0], "i4")),
                         "f": ("x", [1.5, -9999, 2, 0]), "nan": ("x", [1.5, np.nan, 2, 0])})
    encoding = {"b": SCALED, "n": {"_FillValue": 0}, "f": {"_FillValue": -9999}}
    series.to_zarr(place("series"), zarr_format=2, encoding=encoding)
    # In v3 the fill value is no mask.
    product.to_zarr(place("v3"), zarr_format=3, encoding={"b02": SCALED})
    write_by_hand(place)


def write_by_hand(place):
    """The default fill value of zarr-python 2 in arrays with named axes."""
    def array(group, name, values, axes, **attributes):
        made = group.create_array(name, shape=values.shape, dtype=values.dtype, fill_value=0)
        made[...] = values
        made.attrs.update(_ARRAY_DIMENSIONS=axes, **attributes)

    counts = np.arange(24, dtype="u2").reshape(4, 6) % 5
    for name, scale in ("by_hand", {}), ("by_hand_scaled", {"scale_factor": 0.5}):
        group = zarr.open_group(place(name), mode="w", zarr_format=2)
        array(group, "x", np.arange(6.0), ["x"])
        array(group, "counts", counts, ["y", "x"], **scale)
    array(zarr.open_group(place("alone"), mode="w", zarr_format=2), "counts", counts, ["y", "x"])


def check(store, mount):
    name = os.path.basename(store).removesuffix(".zarr")
    masks = name not in BY_HAND
    group = "/r10m" if name == "tree" else ""
    views = os.path.join(mount, group[1:], ".zarrfs")
    with xr.open_zarr(store + group, consolidated=False, chunks=None, mask_and_scale=masks) as data:
        wanted = data.load()
    if masks and name != "v3":
        assert any(bool(value.isnull().any()) for value in wanted.data_vars.values())
    own = "r10m" if group else name
    for ending in "nc", "cdf.nc", "cdf5.nc":
        with xr.open_dataset(os.path.join(views, f"{own}.{ending}")) as data:
            for variable, expected in wanted.data_vars.items():
                found = data[variable].values
                expected = expected.values * (0.5 if name == "by_hand_scaled" else 1)
                assert np.array_equal(found, expected, equal_nan=True), (ending, variable, found, expected)
    if name == "series":
        check_table(views, wanted, store)
    for variable in wanted.data_vars:
        if wanted[variable].ndim == 2:
            check_images(store + group, os.path.join(mount, group[1:], variable, ".zarrfs", variable), variable, masks)
    with open(os.path.join(views, "README.txt"), encoding="utf-8") as readme:
        assert ("xarray takes it for missing" in readme.read()) != masks, name


def check_table(views, wanted, store):
    """Rows without a value in the tables are those that xarray masks; other values are the stored ones."""
    import pandas as pd

    with xr.open_zarr(store, consolidated=False, chunks=None, mask_and_scale=False) as data:
        stored = data.load()
    for ending, read in (".csv", pd.read_csv), (".parquet", pd.read_parquet):
        frame = read(os.path.join(views, f"series{ending}"))
        for name in wanted.data_vars:
            if name == "nan":
                assert np.array_equal(frame[name], wanted[name].values, equal_nan=True), (ending, frame)
                continue
            missing = np.isnan(wanted[name].values)
            assert np.array_equal(frame[name].isna(), missing), (ending, name, frame)
            assert np.array_equal(frame[name][~missing], stored[name].values[~missing]), (ending, name, frame)


def write_cells(directory):
    """An AnnData table whose categories are integers, booleans, floats and times."""
    import anndata
    import pandas as pd

    numbers = {"i8": [7, -1, 7, 300], "u1": [1, 2, 1, 255], "bool": [True, False, True, True], "f4": [0.5, 1.5, 0.5, -2]}
    frame = pd.DataFrame({name: pd.Categorical(np.array(values, name)) for name, values in numbers.items()},
                         index=list("abcd"))
    for name in numbers:
        frame[f"{name}_missing"] = frame[name].where(np.arange(4) != 1)
    anndata.AnnData(np.zeros((4, 1), "f4"), obs=frame).write_zarr(os.path.join(directory, "cells.zarr"))


def check_cells(store, mount):
    import anndata
    import pandas as pd

    obs = anndata.read_zarr(store).obs
    for ending, read in (".parquet", pd.read_parquet), (".csv", pd.read_csv):
        frame = read(os.path.join(mount, "obs", ".zarrfs", f"obs{ending}"))
        names = frame.index if ending == ".parquet" else frame["_index"]
        assert names.tolist() == list("abcd"), (ending, frame)
        assert set(obs.columns) <= set(frame.columns), frame.columns
        for name in obs.columns:
            found, expected = frame[name].reset_index(drop=True), obs[name].astype(object).reset_index(drop=True)
            assert found.isna().tolist() == expected.isna().tolist(), (ending, name, found)
            there = ~expected.isna()
            assert found[there].tolist() == expected[there].tolist(), (ending, name, found, expected)
            if ending == ".parquet" and not name.endswith("_missing"):
                assert found.dtype == obs[name].cat.categories.dtype, (name, found.dtype)


def check_images(store, stem, variable, masks):
    import rasterio
    from astropy.io import fits
    from PIL import Image

    with xr.open_zarr(store, consolidated=False, chunks=None, mask_and_scale=False) as data:
        stored = data[variable]
    fill = stored.attrs.get("_FillValue") if masks else None
    is_integer = stored.dtype.kind != "f"
    for ending in ".tif", ".vrt", ".packed.tif":
        if ending == ".packed.tif" and not os.path.exists(stem + ending):
            continue
        with rasterio.open(stem + ending) as raster:
            found = raster.nodata
            same = found == fill or (fill is not None and np.isnan(fill) and np.isnan(found))
            assert same, (stem, ending, found, fill)
    with open(stem + ".hdr", encoding="utf-8") as header:
        assert ("data ignore value" in header.read()) == (fill is not None), stem
    if is_integer:
        with fits.open(stem + ".fits") as images:
            header = images[0].header
            if fill is None:
                assert "BLANK" not in header, stem
            else:
                assert header["BLANK"] + header.get("BZERO", 0) == fill or "scale_factor" in stored.attrs, stem
    with Image.open(stem + ".png") as image:
        alpha = np.array(image.convert("RGBA"))[..., 3]
        expected = 0 if fill is None or not is_integer else int((stored.values == fill).sum())
        if is_integer:
            assert (alpha == 0).sum() == expected, (stem, alpha, expected)


def check_all(*stores):
    for store, mount in zip(stores[::2], stores[1::2]):
        check(store, mount)


{"write": write, "check": check_all, "write_cells": write_cells, "check_cells": check_cells}[sys.argv[1]](*sys.argv[2:])
