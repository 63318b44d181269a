#!/usr/bin/env python3
"""Hierarchies as HDF5 files: `h5.py write DIRECTORY`, `h5.py check DIRECTORY MOUNT`.

The first writes stores with zarr-python and anndata. The second compares `.h5` with zarr-python, h5py, the
`.npy` files and (by h5diff) a file that h5py has written; `.h5ad` with the result of anndata for the store; and in
`.nc` structures and long attributes, by netCDF4, h5py and ncdump. Prints the counts; exits with 1 if anything
differs.
"""
import json
import os
import subprocess
import sys
import warnings

import anndata
import h5py
import netCDF4
import numpy as np
import pandas as pd
import scipy.sparse as sparse
import zarr
from numcodecs import VLenArray, VLenBytes, VLenUTF8

warnings.simplefilter("ignore")
DIRECTORY = sys.argv[2]
rng = np.random.default_rng(16)
NUMBERS = [f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64", "complex64", "complex128", "bool"]
LONG = {"long": "ä" * 70_000, "many": [0.5 * n for n in range(20_000)], "units": "m", "n": 3}
ATTRIBUTES = {
    "text": "Grüße", "empty": "", "int": 5, "big": 2**63, "float": 0.5, "flag": True, "flags": [True, False],
    "ints": [1, 2, 3], "floats": [1, 2.5], "texts": ["a", "", "ü"], "none": [], "null": None, "a/b": 1,
}
AS_JSON = {"object": {"a": [1]}, "lists": [[1, 2], [3, 4]], "mixed": [1, "a"], "nul": "a\0b"}
PARTS = [("number", ">i2"), ("flag", "?"), ("inner", [("x", "<f4"), ("y", "<f8")]), ("code", "S3"), ("list", "<u2", (2, 3))]
counts, bad = {"h5": 0, "h5ad": 0, "nc": 0}, []


def values(dtype, shape):
    data = rng.integers(0, 2**32, (*shape, 4), "u4").view("u1").reshape(*shape, 16)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "float" in dtype or "complex" in dtype:
        return (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if "complex" in dtype else 0)).astype(dtype)
    return np.ascontiguousarray(data[..., : np.dtype(dtype).itemsize]).view(dtype)[..., 0]


def structures(count, parts=PARTS):
    """Structures, the same ones each time."""
    dtype = np.dtype(parts)
    data = np.zeros(count, dtype)
    raw = data.view("u1").reshape(count, -1)
    raw[:] = np.arange(raw.size).reshape(raw.shape) % 100 + 20
    if "flag" in dtype.names:
        data["flag"] = np.arange(count) % 2
    return data


NAMED = np.array([("Grüße", 1, ["a", "bc"]), ("", 2, ["", "ü"])], [("name", "<U6"), ("n", "<i4"), ("codes", "<U2", (2,))])
MIXED = np.array([("Grüße", 1.5, ["a", "bc"]), ("", np.inf, ["", "ü"]), ("€", -6e-8, ["x", ""])],
                 [("name", "<U6"), ("half", ">f2"), ("codes", "<U2", (2,))])
COMPLEX = structures(5, [("c", "<c8"), ("raw", "V3")])
COMPLEX["c"] = [1 + 2j, 3, 4j, -1, 0]


def by_hand(group, name, data, chunk, attrs=None):
    """A v2 array of structures, of which zarr-python 3 does not write all."""
    path = os.path.join(DIRECTORY, group, name)
    os.makedirs(path)
    described = json.loads(json.dumps(data.dtype.descr))
    document = {"zarr_format": 2, "shape": data.shape, "chunks": [chunk], "dtype": described, "order": "C",
                "compressor": None, "filters": None, "fill_value": None}
    with open(os.path.join(path, ".zarray"), "w") as file:
        json.dump(document, file)
    with open(os.path.join(path, ".zattrs"), "w") as file:
        json.dump(attrs or {}, file)
    padded = np.zeros(-(-len(data) // chunk) * chunk, data.dtype)
    padded[: len(data)] = data
    for number in range(len(padded) // chunk):
        padded[number * chunk : (number + 1) * chunk].tofile(os.path.join(path, str(number)))


def write_types():
    zarr.create_group(DIRECTORY)
    root = zarr.create_group(os.path.join(DIRECTORY, "tree"))
    root.attrs.update(ATTRIBUTES | AS_JSON | LONG)
    plain = root.create_group("plain")
    plain.attrs.update({name: value for name, value in ATTRIBUTES.items() if name not in ("null", "big", "none")})
    for dtype in NUMBERS:
        array = plain.create_array(dtype, data=values(dtype, (4, 5, 6)), chunks=(2, 3, 6), fill_value=1)
        array.attrs.update({"units": "K", "n": 1})
    plain.create_array("one", data=np.float64(2.5))
    plain.create_array("nothing", shape=(0, 3), dtype="int32")
    plain.create_array("bytes", data=np.array([b"ab", b"", b"abc"]))
    deep = root.create_group("deep one/ünder")
    deep.create_array("sharded", data=values("int32", (20, 30)), chunks=(5, 6), shards=(10, 30), dimension_names=["y", "x"])
    deep.create_array("text", data=np.array(["a", "Grüße", "", "\U0001f600"] * 3), chunks=(5,))
    deep.create_array("times", data=np.arange(5).astype("M8[s]"), chunks=(2,))
    strings = deep.create_array("strings", shape=(7,), chunks=(3,), dtype="string")
    strings[:] = np.array(["a", "bb", "", "Grüße", "a", "x" * 300, "z"], dtype=object)
    # More than one heap has entries for.
    ids = deep.create_array("ids", shape=(65_000,), chunks=(30_000,), dtype="string")
    ids[:] = np.array([f"cell {n}" for n in range(65_000)], dtype=object)
    root.create_group("empty").attrs["a"] = 1
    old = zarr.create_group(os.path.join(DIRECTORY, "tree/old"), zarr_format=2)
    for dtype in ">i4", ">f8", ">c8", ">U4", "<f2":
        old.create_array(dtype.strip("<>"), data=np.arange(6).astype(dtype), chunks=(4,))
    objects = old.create_array("objects", shape=(4,), chunks=(2,), dtype=str, filters=[VLenUTF8()])
    objects[:] = np.array(["a", "", "Grüße", "b"], dtype=object)


def write_structures():
    for name in "structures", "netcdf":
        group = zarr.create_group(os.path.join(DIRECTORY, name), zarr_format=2)
        group.attrs.update(LONG)
        named = {"_ARRAY_DIMENSIONS": ["x"], **LONG}
        by_hand(name, "s", structures(9), 4, named)
        by_hand(name, "z", COMPLEX, 2, named)
    by_hand("structures", "named", NAMED, 2)
    by_hand("netcdf", "mixed", MIXED, 2)


# Byte strings and lists of variable length. The last chunk of each is missing.
BYTES = [b"ab", b"", b"a\0b", bytes(range(256)) * 300, b"", b""]
LISTS = [np.array([1, -2, 3], "<i2"), np.array([], "<i2"), np.arange(5000, dtype="<i2"), np.array([7], "<i2")] + 2 * [np.array([], "<i2")]


def write_sequences():
    group = zarr.create_group(os.path.join(DIRECTORY, "lists"), zarr_format=2)
    zarr.create_group(os.path.join(DIRECTORY, "lists/new")).create_array(
        "bytes", shape=(6,), chunks=(2,), dtype="variable_length_bytes", fill_value=b"")[:4] = np.array(BYTES[:4], object)
    for name, values, codec in ("bytes", BYTES, VLenBytes()), ("lists", LISTS, VLenArray("<i2")):
        path = os.path.join(DIRECTORY, "lists", name)
        os.makedirs(path)
        with open(os.path.join(path, ".zarray"), "w") as file:
            json.dump({"zarr_format": 2, "shape": [3, 2], "chunks": [1, 2], "dtype": "|O", "order": "C", "compressor": None,
                       "filters": [codec.get_config()], "fill_value": "" if name == "bytes" else None}, file)
        for number in range(2):
            chunk = np.empty(2, object)
            chunk[:] = values[2 * number : 2 * number + 2]
            with open(os.path.join(path, f"{number}.0"), "wb") as file:
                file.write(codec.encode(chunk))


def check_sequences(mount):
    file = os.path.join(mount, "lists/.zarrfs/lists.h5")
    with h5py.File(file) as h5:
        for name, expected, dtype in ("bytes", BYTES, "u1"), ("new/bytes", BYTES, "u1"), ("lists", LISTS, "<i2"):
            assert h5py.check_vlen_dtype(h5[name].dtype) == np.dtype(dtype), h5[name].dtype
            for found, value in zip(h5[name][...].ravel(), expected, strict=True):
                same(name, found, np.frombuffer(value, dtype) if dtype == "u1" else value)
            counts["h5"] += 1
    subprocess.run(["h5dump", file], check=True, capture_output=True)


def annotated():
    n, m = 40, 15
    obs = pd.DataFrame({
        "kind": pd.Categorical(["a", "b", "é"][i % 3] for i in range(n)),
        "order": pd.Categorical((["lo", "hi"][i % 2] for i in range(n)), categories=["lo", "hi"], ordered=True),
        "flag": rng.integers(0, 2, n).astype(bool), "number": np.arange(n), "text": [f"t{i % 7}" for i in range(n)],
        "some": pd.array([None if i % 5 == 0 else i for i in range(n)], dtype="Int32"),
        "maybe": pd.array([None if i % 5 == 0 else bool(i % 2) for i in range(n)], dtype="boolean"),
    }, index=[f"cell{i}" for i in range(n)])
    var = pd.DataFrame(index=[f"géne{i}" for i in range(m)])
    x = sparse.random(n, m, 0.3, format="csr", dtype="f4", random_state=1)
    data = anndata.AnnData(
        x, obs=obs, var=var, layers={"dense": rng.random((n, m)), "csc": sparse.csc_matrix(x)},
        obsm={"X_pca": rng.random((n, 3)).astype("f4"), "frame": pd.DataFrame({"q": np.arange(n)}, index=obs.index)},
        obsp={"near": sparse.random(n, n, 0.1, format="csr", random_state=2)},
        uns={"name": "Grüße", "k": 5, "f": 1.5, "b": True, "texts": np.array(["x", "yy"]), "none": None, "c": np.array([1 + 2j]),
             "inner": {"e": np.arange(3), "empty": {}}, "pairs": np.rec.fromarrays([[1, 2], [0.5, 0.25]], names=["i", "f"]),
             "genes": np.rec.fromarrays([["aa", "b", "ü"], ["x", "yy", "zzz"]], names=["g1", "g2"])})
    data.raw = data.copy()
    return data


def write():
    write_types()
    write_structures()
    write_sequences()
    data = annotated()
    for version in 2, 3:
        anndata.settings.zarr_write_format = version
        data.write_zarr(os.path.join(DIRECTORY, f"cells{version}"))
    data.write_h5ad(DIRECTORY + ".h5ad")
    del data.raw
    data.write_zarr(os.path.join(DIRECTORY, "without_raw"))


def same(what, found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    is_float = found.dtype.kind in "fc"
    if found.shape != expected.shape or found.dtype != expected.dtype or not np.array_equal(found, expected, equal_nan=is_float):
        bad.append(f"{what}: {found.shape} {found.dtype} {found.flat[:4]} is not {expected.shape} {expected.dtype} {expected.flat[:4]}")


def as_lists(value):
    """Nested lists with texts, of structures of any reader."""
    if isinstance(value, np.void) and value.dtype.names:
        return [as_lists(value[name]) for name in value.dtype.names]
    if isinstance(value, np.ndarray):
        return [as_lists(item) for item in value]
    if isinstance(value, bytes):
        return value.rstrip(b"\0").decode()
    return value.item() if isinstance(value, np.generic) else value


def attributes(what, found, expected, of_data_type=()):
    names = set(found) - {"DIMENSION_LABELS", *of_data_type}
    if names != set(expected):
        bad.append(f"{what}: {sorted(names)} are not {sorted(expected)}")
        return
    for name, value in expected.items():
        read = found[name]
        if name in AS_JSON:
            read = json.loads(read)
        elif value is None:
            read = None if isinstance(read, h5py.Empty) else read
        elif isinstance(value, list):
            read = list(read) if len(read) < 100 else read.tolist()
        if read != value or (isinstance(value, bool) and not isinstance(read, np.bool_)):
            bad.append(f"{what}: attribute {name} is {read!r:.80}, not {value!r:.80}")


def dataset(path, found, array, npy):
    expected, kind = array[...], np.dtype(array.dtype).kind
    if kind == "M":
        units = found.attrs["units"], found.attrs["calendar"]
        assert units == ("seconds since 1970-01-01 00:00:00", "proleptic_gregorian"), units
        same(path, found[...], expected.view("i8"))
    elif kind in "OTU":
        same(path, found.asstr()[...].astype(object), np.asarray(expected).astype(object))
    else:
        same(path, found[()], expected)
    if os.path.exists(npy) and kind not in "OTU":
        plain = np.load(npy)
        same(path + " as .npy", found[()], plain.view("i8") if kind == "M" else plain)
    if kind in "iufcb" and array.fill_value is not None:
        same(path + " fill value", found.fillvalue, np.asarray(array.fill_value, found.dtype))
    attributes(path, found.attrs, dict(array.attrs), {"units", "calendar"} if kind == "M" else ())


def differ(first, second, besides):
    """Returns the differences that h5diff prints, without lines with `besides`."""
    output = subprocess.run(["h5diff", "-c", first, second], capture_output=True, text=True)
    lines = [line for line in (output.stdout + output.stderr).splitlines() if line and besides not in line]
    return [line for line in lines if not line.startswith(("---", "Some objects are not comparable", "Use -c"))]


def check_types(mount):
    mount = os.path.join(mount, "tree")
    file = os.path.join(mount, ".zarrfs/tree.h5")
    root = zarr.open_group(DIRECTORY, path="tree", mode="r", use_consolidated=False)
    with h5py.File(file) as h5:
        attributes("tree", h5.attrs, dict(root.attrs))
        for path, node in root.members(max_depth=None):
            if path not in h5:
                bad.append(f"{path} is not in the file")
            elif isinstance(node, zarr.Group):
                attributes(path, h5[path].attrs, dict(node.attrs))
            else:
                parent, name = os.path.split(path)
                dataset(path, h5[path], node, os.path.join(mount, parent, ".zarrfs", name + ".npy"))
                counts["h5"] += 1
        assert list(h5["deep one/ünder/sharded"].attrs["DIMENSION_LABELS"]) == ["y", "x"]
        assert h5["deep one/ünder/sharded"].dims[0].label == "y"
        assert h5["deep one/ünder/sharded"].chunks == (5, 6)
        assert h5["deep one/ünder/strings"].attrs.get("CLASS") is None
    # A file written by h5py has the same types, values and attributes.
    plain = zarr.open_group(DIRECTORY, path="tree/plain", mode="r")
    written = DIRECTORY + ".h5"
    with h5py.File(written, "w") as h5:
        h5.attrs.update(plain.attrs)
        for name, array in plain.arrays():
            data = h5.create_dataset(name, data=array[()], fillvalue=None if name == "bytes" else array.fill_value)
            data.attrs.update(array.attrs)
    # Without elements nothing is comparable.
    if differences := differ(written, os.path.join(mount, "plain/.zarrfs/plain.h5"), "nothing"):
        bad.append(f"plain: h5diff: {differences}")
    os.remove(written)
    subprocess.run(["h5dump", "-H", file], check=True, capture_output=True)


def check_structures(mount):
    file = os.path.join(mount, "structures/.zarrfs/structures.h5")
    with h5py.File(file) as h5:
        for name, expected in ("s", structures(9)), ("z", COMPLEX), ("named", NAMED):
            found = h5[name][...]
            if as_lists(found) != as_lists(expected):
                bad.append(f"{name}: {found} is not {expected}")
            if name != "named":
                same(name, found, np.load(os.path.join(mount, name.join(["structures/.zarrfs/", ".npy"]))))
            counts["h5"] += 1
    subprocess.run(["h5dump", "-H", file], check=True, capture_output=True)


def alike(what, found, expected):
    """Whether two readers of anndata have the same."""
    if type(found) is not type(expected):
        bad.append(f"{what}: {type(found)} is not {type(expected)}")
    elif isinstance(expected, dict):
        if found.keys() != expected.keys():
            bad.append(f"{what}: {list(found)} are not {list(expected)}")
        for key in expected.keys() & found.keys():
            alike(f"{what}/{key}", found[key], expected[key])
    elif isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    elif sparse.issparse(expected):
        for part in "data", "indices", "indptr":
            same(f"{what}/{part}", getattr(found, part), getattr(expected, part))
    elif isinstance(expected, np.ndarray) and expected.dtype.names:
        if found.dtype != expected.dtype or as_lists(found) != as_lists(expected):
            bad.append(f"{what}: {found} is not {expected}")
    elif isinstance(expected, np.ndarray):
        # anndata has texts of HDF5 as objects.
        same(what, found, expected.astype(object) if expected.dtype.kind == "T" else expected)
    elif found != expected and expected is not None:
        bad.append(f"{what}: {found!r} is not {expected!r}")


def check_anndata(mount):
    for version in 2, 3:
        name = f"cells{version}"
        found = anndata.read_h5ad(os.path.join(mount, name, ".zarrfs", name + ".h5ad"))
        expected = anndata.read_zarr(os.path.join(DIRECTORY, name))
        for part in "X", "obs", "var":
            alike(f"{name}/{part}", getattr(found, part), getattr(expected, part))
        for part in "layers", "obsm", "varm", "obsp", "uns":
            alike(f"{name}/{part}", dict(getattr(found, part)), dict(getattr(expected, part)))
        alike(f"{name}/raw", found.raw.X, expected.raw.X)
        alike(f"{name}/raw/var", found.raw.var, expected.raw.var)
        backed = anndata.read_h5ad(os.path.join(mount, name, ".zarrfs", name + ".h5ad"), backed="r")
        alike(f"{name}/backed", backed[3:7].X[...], expected[3:7].X[...])
        backed.file.close()
        # The file that anndata writes has the same types and attributes; only "none" is encoded in another way.
        if differences := differ(DIRECTORY + ".h5ad", os.path.join(mount, name, ".zarrfs", name + ".h5ad"), "/uns/none"):
            bad.append(f"{name}: h5diff: {differences}")
        counts["h5ad"] += 1
    # Anndata writes an array "raw" for "none", which would be a dataset with the values of an object without any.
    backed = anndata.read_h5ad(os.path.join(mount, "without_raw", ".zarrfs", "without_raw.h5ad"), backed="r")
    alike("no raw", backed.raw is None and backed.to_memory().shape, (40, 15))
    backed.file.close()


def check_netcdf(mount):
    file = os.path.join(mount, "netcdf/.zarrfs/netcdf.nc")
    with netCDF4.Dataset(file) as nc, h5py.File(file) as h5:
        for name, data in ("s", structures(9)), ("z", COMPLEX):
            for part in data.dtype.names:
                for reader in nc, h5:
                    expected, found = data[part], reader[name][:][part]
                    if part == "code" and found.dtype == "S1":
                        # An array of characters, which netCDF4 joins.
                        found = np.ascontiguousarray(found).view("S3").reshape(expected.shape)
                    elif part == "c" and found.dtype.names:
                        found = found["r"] + 1j * found["i"]
                    if part == "raw":
                        expected = np.frombuffer(expected.tobytes(), "u1").reshape(-1, 3)
                    if as_lists(found) != as_lists(expected):
                        bad.append(f"{name} {part}: {found} is not {expected}")
            long = {key: nc[name].getncattr(key) for key in LONG}
            assert long["long"] == LONG["long"] and list(long["many"]) == LONG["many"], name
            assert (long["units"], long["n"]) == ("m", 3), name
            counts["nc"] += 1
        for reader in nc, h5:
            found = reader["mixed"][:]
            # In the file text is an array of characters, the last axis in h5py; netCDF4 joins those of a plain member.
            def joined(part):
                text = np.ascontiguousarray(found[part])
                shape = MIXED[part].shape
                joined = text if text.shape == shape else text.view(f"S{text.shape[-1]}").reshape(shape)
                return np.char.decode(joined, "utf-8")
            for part in "name", "codes":
                if joined(part).tolist() != MIXED[part].tolist():
                    bad.append(f"mixed {part}: {joined(part)} is not {MIXED[part]}")
            if found["half"].dtype.str[1:] != "f4" or found["half"].tolist() != MIXED["half"].tolist():
                bad.append(f"mixed half: {found['half']!r} is not {MIXED['half']!r}")
        assert nc.getncattr("long") == LONG["long"] and len(h5.attrs["many"]) == 20_000
        assert h5["s"].id.get_type().committed()
    output = subprocess.run(["ncdump", file], check=True, capture_output=True, text=True).stdout
    for text in "compound s_t {", "s_inner_t inner ;", "char code(3) ;", "ushort list(2, 3) ;", "s_t s(x) ;":
        if text not in output:
            bad.append(f"ncdump: no {text} in {output[:1000]}")
    subprocess.run(["h5dump", "-H", file], check=True, capture_output=True)


def check(mount):
    check_types(mount)
    check_structures(mount)
    check_sequences(mount)
    check_anndata(mount)
    check_netcdf(mount)
    print("\n".join(bad))
    print(json.dumps(counts | {"differences": len(bad)}))
    sys.exit(bool(bad))


if sys.argv[1] == "write":
    write()
else:
    check(sys.argv[3])
