"""Compares computed netCDF files with the Zarr hierarchies that they are made of.

netcdf.py MOUNT FILE [GROUP]: compares FILE with the arrays that zarr-python reads from MOUNT. A NetCDF-4 file with
netCDF4-python, h5py, and xarray with its netcdf4 and h5netcdf engines; a classic one with
netCDF4-python, and with scipy if that reads it. Prints the compared parts.
"""

import os
import sys
import unicodedata
import warnings

import h5py
import netCDF4
import numpy as np
import scipy.io
import xarray as xr
import zarr

warnings.simplefilter("ignore")


def expected(array):
    """Returns the expected values of an array in a netCDF file, or None if netCDF has no type for it."""
    data = array[...]
    kind = np.asarray(data).dtype.kind
    if kind == "b":
        return data.astype("i1")
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
    if wanted.dtype.kind == "S" and found.ndim == wanted.ndim + 1:
        # Characters along a dimension of their own.
        found = np.ascontiguousarray(found).view(f"S{found.shape[-1]}")[..., 0]
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    if wanted.dtype.kind in "OTUS":
        assert text(found) == text(wanted), (name, found, wanted)
    else:
        native = wanted.dtype.newbyteorder("=")
        assert found.dtype.newbyteorder("=") == native, (name, found.dtype, wanted.dtype)
        assert found.astype(native).tobytes() == wanted.astype(native).tobytes(), (name, found, wanted)


def nodes(group, path=""):
    """Arrays by the names that netCDF has for them: in NFC."""
    for key in group:
        node, name = group[key], unicodedata.normalize("NFC", key)
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
            # It takes the bytes of names for Latin-1.
            variables = {name.encode("latin-1").decode(): variable for name, variable in dataset.variables.items()}
            readers.append({name: variable[...] for name, variable in variables.items()})
    for found in readers:
        for name, data in wanted.items():
            values = np.asarray(found[name])
            if data.dtype.kind in "OTUS":
                rows = values.reshape(data.size, -1)
                values = [b"".join(row.tolist()).rstrip(b"\0") for row in rows]
                assert text(values) == text(data), (name, values, data)
            else:
                assert values.shape == data.shape, (name, values.shape)
                assert np.array_equal(values.astype("f8"), data.astype("f8"), equal_nan=True), name
    print(f"{model}: {len(wanted)} variables, {len(readers)} readers")


def main():
    mount, file = sys.argv[1], sys.argv[2]
    path = sys.argv[3] if len(sys.argv) > 3 else ""
    group = zarr.open_group(os.path.join(mount, path), mode="r", use_consolidated=False)
    wanted = {name: expected(array) for name, array in nodes(group)}
    wanted = {name: data for name, data in wanted.items() if data is not None and "_nc4_" not in name}
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
                    if above == parent:
                        found = dataset[own].values
                        same(name, found.astype("i1") if found.dtype == bool else found, data)
                        opened += 1
    print(f"{len(wanted)} variables, {opened} through xarray, {len(attributes)} attributes")


if __name__ == "__main__":
    main()
