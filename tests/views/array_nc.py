#!/usr/bin/env python3
"""Files of arrays in NetCDF-4, compared with xarray: `array_nc.py write STORE` and `array_nc.py check STORE MOUNT`."""

import os
import sys
import warnings

import numpy as np
import xarray as xr

warnings.simplefilter("ignore")
DAYS = {"units": "days since 2000-01-01", "bounds": "time_bounds"}


def datasets():
    """Returns datasets with coordinates along dimensions, along others, without any, with bounds and a grid mapping."""
    air = (("time", "y", "x"), np.arange(24.0).reshape(2, 3, 4), {"units": "K", "grid_mapping": "crs"})
    climate = xr.Dataset(
        {
            "air": air,
            "rain": (("time", "y", "x"), np.arange(24, dtype="f4").reshape(2, 3, 4)),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0}),
            "time_bounds": (("time", "side"), np.arange(4.0).reshape(2, 2)),
            "depths": ("depth", np.arange(5)),
            "words": ("x", np.array(["a", "b", "c", "d"], object)),
            "plain": (("p", "q"), np.arange(6, dtype="i2").reshape(2, 3)),
        },
        {
            "time": ("time", [0.5, 1.5], DAYS),
            "y": [3.0, 2.0, 1.0],
            "x": [1.0, 2.0, 3.0, 4.0],
            "latitude": (("y", "x"), np.arange(12.0).reshape(3, 4)),
            "height": ((), 2.0, {"units": "m"}),
            "depth": [10.0, 20.0, 30.0, 40.0, 50.0],
            "label": ("time", np.array(["first", "second"], object)),
        },
        {"title": "climate", "Conventions": "CF-1.10"},
    )
    return climate


def write(store):
    climate = datasets()
    for version in (2, 3):
        climate.to_zarr(os.path.join(store, f"v{version}"), zarr_format=version, consolidated=version == 2)
    inner = xr.Dataset({"heat": (("time", "y"), np.ones((2, 3)))}, attrs={"title": "inner"})
    outer = climate[["time", "y"]].drop_vars(["height", "label"])
    xr.DataTree.from_dict({"/": outer, "/inner": inner}).to_zarr(os.path.join(store, "tree"), zarr_format=2)


def check(store, mount):
    counts = {"files": 0, "differences": 0}

    def compare(path, dataset, name):
        counts["files"] += 1
        file = os.path.join(mount, path, name, ".zarrfs", f"{name}.nc")
        try:
            with xr.open_dataset(file, decode_coords="all", engine="netcdf4") as found:
                wanted = dataset[name]
                # xarray gives each array all scalar coordinates: also the grid mapping of others.
                wanted = wanted if "grid_mapping" in wanted.encoding else wanted.drop_vars("crs", errors="ignore")
                xr.testing.assert_equal(found[name], wanted)
                assert set(found[name].coords) == set(wanted.coords), (set(found[name].coords), set(wanted.coords))
                for coordinate in [wanted, *wanted.coords.values()]:
                    same = {k: v for k, v in coordinate.attrs.items()}
                    assert found[coordinate.name].attrs == same, (found[coordinate.name].attrs, same)
                assert found.attrs == dataset.attrs, found.attrs
                others = set(found.variables) - {name} - set(wanted.coords)
                assert others == {c.encoding["bounds"] for c in wanted.coords.values() if "bounds" in c.encoding}, others
        except (AssertionError, OSError, KeyError, ValueError) as error:
            counts["differences"] += 1
            print(f"{path}/{name}: {error!r}")

    for path in ("v2", "v3"):
        dataset = xr.open_zarr(os.path.join(store, path), decode_coords="all", consolidated=False)
        for name in dataset.data_vars:
            compare(path, dataset, name)
    tree = xr.open_datatree(os.path.join(store, "tree"), engine="zarr", decode_coords="all", consolidated=False)
    compare("tree/inner", tree["inner"].to_dataset(), "heat")
    print(counts)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
