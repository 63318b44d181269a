"""Stores as other programs write them, and the values that these programs read from their views.

writers.py packed DIR: writes packed.zarr with xarray, and real.nc, which xarray makes of it.
writers.py limits REAL FILE...: each FILE has the values and limits of REAL.
writers.py halves DIR: writes arrays whose decoded elements are float16, and their bytes.
writers.py groups FILE: prints the groups that xarray finds and their titles.
"""

import json
import os
import sys

import numpy as np


def packed(directory):
    import xarray as xr

    packing = dict(dtype="int16", scale_factor=0.01, add_offset=10.0, _FillValue=-32768)
    values = [-5.0, 1.0, 20.0, 30.0]
    limits = {
        "both": {"valid_min": -90.0, "valid_max": 60.0},
        "range": {"valid_range": [-90.0, 60.0]},
        "flags": {"flag_values": [-5.0, 1.0], "flag_meanings": "low high"},
    }
    variables = {name: ("x", values, attributes) for name, attributes in limits.items()}
    dataset = xr.Dataset(variables)
    store = os.path.join(directory, "packed.zarr")
    encoding = {name: packing for name in variables}
    dataset.to_zarr(store, encoding=encoding, zarr_format=2, consolidated=False)
    xr.open_zarr(store, consolidated=False).to_netcdf(os.path.join(directory, "real.nc"))


def limits(real, *files):
    import netCDF4
    import xarray as xr

    with xr.open_dataset(real) as expected:
        for file in files:
            with xr.open_dataset(file) as found:
                xr.testing.assert_equal(expected, found)
    with netCDF4.Dataset(real) as expected:
        for file in files:
            with netCDF4.Dataset(file) as found:
                for name in ["both", "range", "flags"]:
                    # Masked by the limits as well.
                    wanted, got = expected[name][:], found[name][:]
                    assert np.array_equal(wanted.filled(-999), got.filled(-999)), (file, name, got)
                    for attribute in expected[name].ncattrs():
                        wanted = np.asarray(expected[name].getncattr(attribute))
                        got = np.asarray(found[name].getncattr(attribute))
                        assert wanted.dtype.kind == got.dtype.kind, (file, name, attribute, got)
                        assert np.array_equal(wanted, got), (file, name, attribute, got)
    print("equal")


def halves(directory):
    words = np.arange(0x7C00, dtype="u2").view("f2").astype("f8")
    ties = np.append((words[:-1] + words[1:]) / 2, 65520.0)
    near = np.concatenate([words, ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf)])
    special = [np.inf, np.nan, 1e5, 1e300, 5e-324, 2.0**-25, 2.0**-26]
    doubles = np.concatenate([near, special])
    doubles = np.concatenate([doubles, -doubles])

    def write(name, stored, codec, expected):
        os.makedirs(os.path.join(directory, name))
        document = {
            "zarr_format": 2, "shape": [len(stored)], "chunks": [len(stored)], "dtype": "<f2",
            "order": "C", "compressor": None, "fill_value": 0, "filters": [codec],
        }
        with open(os.path.join(directory, name, ".zarray"), "w") as file:
            json.dump(document, file)
        with open(os.path.join(directory, name, "0"), "wb") as file:
            file.write(stored.tobytes())
        with open(os.path.join(directory, f"{name}.expected"), "wb") as file:
            file.write(expected.astype("<f2").tobytes())

    with open(os.path.join(directory, ".zgroup"), "w") as file:
        json.dump({"zarr_format": 2}, file)
    with np.errstate(over="ignore"):
        codec = {"id": "astype", "encode_dtype": "<f8", "decode_dtype": "<f2"}
        write("astype", doubles, codec, doubles.astype("f2"))
        wide = np.arange(-(2**18), 2**18, 7, dtype="<i4")
        codec = {"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<f2"}
        write("integers", wide, codec, wide.astype("f2"))
        codec = {"id": "fixedscaleoffset", "scale": 4096, "offset": 1, "dtype": "<f2", "astype": "<f8"}
        write("scaled", doubles, codec, (doubles / 4096 + 1).astype("f2"))
        # The scale is rounded to float16 before it divides: it is next to a midpoint.
        stored = doubles.astype("<f2")
        scale = float(np.nextafter(1 + 2.0**-11, 2))
        codec = {"id": "fixedscaleoffset", "scale": scale, "offset": 0, "dtype": "<f2"}
        write("scale", stored, codec, stored / np.float16(scale) + np.float16(0))
    print(len(doubles))


def groups(file):
    import xarray as xr

    for node in xr.open_datatree(file).subtree:
        print(node.path, node.attrs.get("title"))


if __name__ == "__main__":
    {"packed": packed, "limits": limits, "halves": halves, "groups": groups}[sys.argv[1]](*sys.argv[2:])
