"""Compares computed netCDF files with the Zarr hierarchies that they are made of.

netcdf.py MOUNT FILE [GROUP]: FILE against what zarr-python reads of MOUNT. A NetCDF-4 file with
netCDF4-python, h5py, and xarray with its netcdf4 and h5netcdf engines; a classic one with
netCDF4-python, and with scipy if that reads it. Prints what was compared.
"""

import os
import sys
import warnings

import h5py
import netCDF4
import numpy as np
import scipy.io
import xarray as xr
import zarr

warnings.simplefilter("ignore")


def expected(array):
    """What a netCDF file should hold of an array, or None if it has no type for it."""
    data = array[...]
    kind = np.asarray(data).dtype.kind
    if kind == "b":
        return data.astype("u1")
    if kind in "mM":
        return data.astype("i8")
    if kind == "c":
        return np.stack([data.real, data.imag], axis=-1)
    if kind == "f" and data.dtype.itemsize == 2:
        return data.astype("f4")
    if kind == "V":
        return None
    return np.asarray(data)


def text(values):
    def one(value):
        return value.decode().rstrip("\0") if isinstance(value, bytes) else str(value)

    return [one(value) for value in np.asarray(values).ravel()]


def same(name, found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    if wanted.dtype.kind in "OTUS":
        assert text(found) == text(wanted), (name, found, wanted)
    else:
        native = wanted.dtype.newbyteorder("=")
        assert found.dtype.newbyteorder("=") == native, (name, found.dtype, wanted.dtype)
        assert found.astype(native).tobytes() == wanted.astype(native).tobytes(), (name, found, wanted)


def nodes(group, path=""):
    for name in group:
        node = group[name]
        if isinstance(node, zarr.Group):
            yield from nodes(node, f"{path}{name}/")
        else:
            yield f"{path}{name}", node


def classic(file, wanted):
    """Compares a classic file, which has no groups."""
    with netCDF4.Dataset(file) as dataset:
        dataset.set_auto_maskandscale(False)
        dataset.set_auto_chartostring(False)
        found = {name: dataset[name][...] for name in dataset.variables}
        model = dataset.data_model
    readers = [found]
    if model != "NETCDF3_64BIT_DATA":
        with scipy.io.netcdf_file(file, mmap=False) as dataset:
            readers.append({name: variable[...] for name, variable in dataset.variables.items()})
    for found in readers:
        for name, data in wanted.items():
            values = np.asarray(found[name])
            if data.dtype.kind in "OTUS":
                values = [b"".join(row.ravel().tolist()) for row in values]
                assert text(values) == text(data.ravel()), (name, values, data)
            else:
                assert values.shape == data.shape, (name, values.shape)
                assert np.array_equal(values.astype("f8"), data.astype("f8"), equal_nan=True), name
    print(f"{model}: {len(wanted)} variables, {len(readers)} readers")


def main():
    mount, file = sys.argv[1], sys.argv[2]
    path = sys.argv[3] if len(sys.argv) > 3 else ""
    group = zarr.open_group(os.path.join(mount, path), mode="r", use_consolidated=False)
    wanted = {name: expected(array) for name, array in nodes(group)}
    wanted = {name: data for name, data in wanted.items() if data is not None}
    if file.endswith((".cdf.nc", ".cdf5.nc")):
        return classic(file, {n: d for n, d in wanted.items() if "/" not in n and d.size})

    with netCDF4.Dataset(file) as dataset:
        dataset.set_auto_maskandscale(False)
        for name, data in wanted.items():
            variable = dataset[name]
            same(name, variable[...], data)
        attributes = {name: dataset.getncattr(name) for name in dataset.ncattrs()}
    with h5py.File(file) as h5:
        for name, data in wanted.items():
            parent, _, own = name.rpartition("/")
            place = h5[parent] if parent else h5
            if f"_nc4_non_coord_{own}" in place:
                own = f"_nc4_non_coord_{own}"
            same(name, place[own][...], data)
    opened = 0
    for engine in "netcdf4", "h5netcdf":
        for parent in sorted({name.rpartition("/")[0] for name in wanted}):
            options = {"mask_and_scale": False, "decode_times": False}
            with xr.open_dataset(file, engine=engine, group=parent or None, **options) as dataset:
                for name, data in wanted.items():
                    above, _, own = name.rpartition("/")
                    if above == parent and data.dtype.kind not in "OTUS":
                        found = dataset[own].values
                        same(name, found.astype("u1") if found.dtype == bool else found, data)
                        opened += 1
    print(f"{len(wanted)} variables, {opened} through xarray, {len(attributes)} attributes")


if __name__ == "__main__":
    main()
