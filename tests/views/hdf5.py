"""Compares a NetCDF-4 file with the Zarr hierarchy that it is made of, by readers of HDF5 that are
old or are not the library.

hdf5.py LIBRARY NODE MOUNT FILE [GROUP]: compares FILE with the arrays that zarr-python reads from MOUNT, with LIBRARY (a
libhdf5.so of 1.8) and the libhdf5 of h5py by plain calls of H5Dread, with pyfive, and with jsfive in
NODE. Prints the compared parts.
"""

import ctypes
import glob
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pyfive
import zarr

from netcdf import expected, nodes, same


class Library:
    """The calls of libhdf5 that a program needs to read a file."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        assert self.lib.H5open() >= 0
        version = [ctypes.c_uint() for _ in range(3)]
        self.lib.H5get_libversion(*map(ctypes.byref, version))
        self.version = tuple(part.value for part in version)
        # Identifiers have 64 bits since 1.10.
        self.id = ctypes.c_int64 if self.version >= (1, 10) else ctypes.c_int

    def call(self, name, *arguments, returns=ctypes.c_int):
        """Calls a function; arguments that are plain integers are identifiers."""
        function = self.lib[name]
        function.restype = returns
        found = function(*[self.id(one) if isinstance(one, int) else one for one in arguments])
        assert found >= 0, (name, self.version)
        return found

    def open(self, name, *arguments):
        """Calls a function that returns an identifier."""
        return self.call(name, *arguments, returns=self.id)

    def constant(self, name):
        return self.id.in_dll(self.lib, name + "_g").value

    def memory_type(self, dtype):
        """The type that elements have in memory, as a program names it."""
        if dtype.kind in "OTU":
            text = self.open("H5Tcopy", self.constant("H5T_C_S1"))
            self.call("H5Tset_size", text, ctypes.c_size_t(2**64 - 1))
            self.call("H5Tset_cset", text, ctypes.c_int(1))
            return text
        if dtype.kind == "S":
            # One character, not the NUL behind it.
            text = self.open("H5Tcopy", self.constant("H5T_C_S1"))
            self.call("H5Tset_strpad", text, ctypes.c_int(1))
            return text
        if dtype.kind == "f":
            return self.constant("H5T_NATIVE_FLOAT" if dtype.itemsize == 4 else "H5T_NATIVE_DOUBLE")
        return self.constant(f"H5T_NATIVE_{'U' * (dtype.kind == 'u')}INT{8 * dtype.itemsize}")

    def read(self, file, path, dtype):
        handle = self.open("H5Fopen", file.encode(), ctypes.c_uint(0), 0)
        dataset = self.open("H5Dopen2", handle, path.encode(), 0)
        space = self.open("H5Dget_space", dataset)
        rank = self.call("H5Sget_simple_extent_ndims", space)
        extents = (ctypes.c_uint64 * max(rank, 1))()
        self.call("H5Sget_simple_extent_dims", space, extents, None)
        shape = tuple(extents[:rank])
        is_text = dtype.kind in "OTU"
        memory = dtype.newbyteorder("=") if not is_text else np.dtype("u8")
        values = np.zeros(shape, "S1" if dtype.kind == "S" else memory)
        buffer = ctypes.c_void_p(values.ctypes.data)
        self.call("H5Dread", dataset, self.memory_type(dtype), 0, 0, 0, buffer)
        if is_text:
            # No null pointer, not even for an empty text.
            assert values.all(), (path, values)
            values = np.array([ctypes.string_at(int(at)).decode() for at in values.ravel()], object).reshape(shape)
        for name, what in ("H5Sclose", space), ("H5Dclose", dataset), ("H5Fclose", handle):
            self.call(name, what)
        return values


def javascript(node, file, wanted):
    """Returns the shapes and flat values of all datasets, as jsfive reads them."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jsfive.mjs")
    printed = subprocess.run([node, script, file, *wanted.values()], check=True, capture_output=True, text=True)
    found = json.loads(printed.stdout)
    return {name: found[path] for name, path in wanted.items()}


def main():
    library, node, mount, file = sys.argv[1:5]
    path = sys.argv[5] if len(sys.argv) > 5 else ""
    group = zarr.open_group(os.path.join(mount, path), mode="r", use_consolidated=False)
    wanted = {name: expected(array) for name, array in nodes(group)}
    wanted = {name: data for name, data in wanted.items() if data is not None and "_nc4_" not in name}
    paths = {}
    with h5py.File(file) as h5:
        for name in wanted:
            parent, _, own = name.rpartition("/")
            renamed = f"{parent}/_nc4_non_coord_{own}".lstrip("/")
            paths[name] = renamed if renamed in h5 else name

    of_h5py = glob.glob(os.path.join(os.path.dirname(h5py.__file__), "..", "h5py.libs", "libhdf5-*.so*"))
    versions = []
    for found in library, *of_h5py:
        found = Library(found)
        versions.append(".".join(map(str, found.version)))
        for name, data in wanted.items():
            same(name, found.read(file, paths[name], np.asarray(data).dtype), data)

    with pyfive.File(file) as five:
        for name, data in wanted.items():
            if data.size:
                same(name, five[paths[name]][...], data)

    of_jsfive = {name: path for name, path in paths.items() if wanted[name].size}
    for name, (shape, values) in javascript(node, file, of_jsfive).items():
        data = wanted[name]
        kind = np.asarray(data).dtype.kind
        if kind == "S":
            # Characters along a dimension of their own.
            values = ["".join(values[at : at + shape[-1]]).rstrip("\0") for at in range(0, len(values), shape[-1])]
            same(name, np.array(values, object).reshape(shape[:-1]), data)
        elif kind in "OTU":
            same(name, np.array(values, object).reshape(shape), data)
        else:
            # All numbers of JavaScript are doubles.
            numbers = np.array([float(value) for value in values]).reshape(shape)
            same(name, numbers, np.asarray(data).astype("f8"))
    print(f"{len(wanted)} variables: HDF5 {', '.join(versions)}, pyfive {pyfive.__version__}, jsfive")


if __name__ == "__main__":
    main()
