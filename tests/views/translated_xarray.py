"""Compares the dataset that xarray reads from translations with the one that it reads from the store.

translated_xarray.py write DIRECTORY: writes NAME-v2.zarr and NAME-v3.zarr.
translated_xarray.py check [STORE MOUNT TARGET]...: prints the variables that differ; ends with an error if any does.
"""

import os
import sys
import warnings

import numpy as np
import xarray as xr

warnings.simplefilter("ignore")
UNITS = ["D", "h", "m", "s", "ms", "us", "ns"]


def times():
    """Native times of every unit, with NaT and the epoch, and times that xarray encodes as numbers."""
    data = {}
    for kind in "M", "m":
        for unit in UNITS:
            values = np.array([0, 1, np.iinfo("i8").min, -7, 400], "i8").view(f"{kind}8[{unit}]")
            data[f"{kind}8_{unit}"] = values
    return data


def datasets():
    day = np.array(["2023-01-02", "NaT", "1970-01-01", "1990-01-01", "2000-02-29"], "M8[ns]")
    numbers = {
        "i4": np.array([0, 1, -9999, 7, 5], "i4"), "u1": np.array([0, 1, 255, 7, 5], "u1"),
        "f4": np.array([0, 1, np.nan, -9999, 5], "f4"), "f8": np.array([0, 0.1, np.nan, np.inf, -np.inf]),
        "c16": np.array([0, 1j, complex(np.nan, 1), 3, 5]), "bool": np.array([True, False, True, False, True]),
        "text": np.array(["", "a", "b\u00e4", "", "c"], object), "fixed": np.array(["", "a", "bcd", "", "c"], "U3"),
        "bytes": np.array([b"", b"a", b"bcd", b"", b"c"], "S3"),
    }
    kept = {name: ("i", values) for name, values in numbers.items()}
    yield "plain", xr.Dataset(kept, {"i": np.arange(5)}), {}
    masked = {"i4": -9999, "u1": 255, "f4": -9999.0, "f8": 0.1, "c16": 3 + 0j, "fixed": "a", "bytes": b"a"}
    some = {name: value for name, value in kept.items() if name in ("i4", "u1", "f4", "f8")}
    yield "masked", xr.Dataset(some), {name: {"_FillValue": masked[name]} for name in some}
    yield "zero", xr.Dataset(some), {name: {"_FillValue": 0} for name in some}
    packed = {"p": ("i", [np.nan, 0.1, 0.2, -0.1, 0.3])}
    yield "packed", xr.Dataset(packed), {"p": dict(dtype="uint16", scale_factor=1e-4, add_offset=-0.1, _FillValue=65535)}
    encoding = {
        "sentinel": dict(_FillValue=-9999, dtype="int64", units="minutes since 1990-01-01"),
        "default": dict(units="days since 1990-01-01"),
        "floats": dict(dtype="float64", units="days since 2000-01-01"),
    }
    yield "times", xr.Dataset({name: ("i", day) for name in encoding}, {"i": np.arange(5)}), encoding
    delta = day - np.datetime64("1990-01-01", "ns")
    yield "deltas", xr.Dataset({"d": ("i", delta), "n": ("i", delta[2:4].repeat(3)[:5])}), {}
    for calendar in "noleap", "360_day", "standard", "julian":
        dates = xr.date_range("2000-01-01", periods=5, freq="D", calendar=calendar, use_cftime=True)
        cf = xr.Dataset({"v": ("time", np.arange(5.0))}, {"time": dates})
        yield f"cal_{calendar}", cf, {"time": {"units": "days since 2000-01-01"}}


def write(directory):
    for name, data, encoding in datasets():
        for version in 2, 3:
            chosen = {key: dict(value) for key, value in encoding.items()}
            try:
                data.to_zarr(os.path.join(directory, f"{name}-v{version}.zarr"), zarr_format=version, encoding=chosen)
            except Exception as error:
                raise SystemExit(f"{name} v{version}: {error}") from error
    write_native(directory)
    write_sparse(directory)
    write_by_hand(directory)


def write_native(directory):
    import zarr

    for version in 2, 3:
        names = {"dimension_names": ["i"]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["i"]}}
        group = zarr.open_group(os.path.join(directory, f"native-v{version}.zarr"), mode="w", zarr_format=version)
        for name, values in times().items():
            for fill in "NaT", "epoch":
                kind = np.datetime64 if name[0] == "M" else np.timedelta64
                unit = name[3:]
                value = kind("NaT", unit) if fill == "NaT" else kind(0, unit)
                array = group.create_array(f"{name}_{fill}", shape=(5,), chunks=(5,), dtype=values.dtype, fill_value=value, **names)
                array[...] = values


def write_sparse(directory):
    """Chunks that do not exist, and shards with inner chunks that do not."""
    import zarr

    group = zarr.open_group(os.path.join(directory, "sparse-v3.zarr"), mode="w", zarr_format=3)
    for name, more in ("chunks", {}), ("shards", {"shards": (4,)}):
        for fill in 0, 7:
            array = group.create_array(f"{name}_{fill}", shape=(8,), chunks=(2,), dtype="i4", fill_value=fill,
                                       dimension_names=["i"], **more)
            array[:3] = [5, fill, 6]
            # All inner chunks exist.
            array = group.create_array(f"all_{name}_{fill}", shape=(8,), chunks=(2,), dtype="i4", fill_value=fill,
                                       dimension_names=["j"], config={"write_empty_chunks": True}, **more)
            array[...] = [0, 1, 7, 2, fill, fill, 0, 7]


def write_by_hand(directory):
    """Fill values of v2 that xarray masks and never writes."""
    import zarr

    group = zarr.open_group(os.path.join(directory, "hand-v2.zarr"), mode="w", zarr_format=2)
    for name, values, dtype, fill, more in [
        ("bool", [True, False, True], "?", False, {}), ("text_empty", np.array(["", "a", ""]), str, "", {}),
        ("fixed_empty", np.array(["", "a", ""]), "U2", "", {}), ("numbers", [0, 5, 7], "i4", 0, {"_FillValue": 7}),
    ]:
        attributes = {"_ARRAY_DIMENSIONS": ["i"], **more}
        array = group.create_array(name, shape=(3,), dtype=dtype, fill_value=fill, attributes=attributes)
        array[...] = values


def same(one, other):
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.kind == "O" or other.dtype.kind == "O":
        clean = lambda values: [None if value != value else value for value in values.reshape(-1).tolist()]  # noqa: E731
        return one.shape == other.shape and clean(one) == clean(other)
    return one.dtype.kind == other.dtype.kind and np.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM")


def check(store, mount, target):
    bad = []
    version = int(target[-1])
    sparse = {"chunks_0", "chunks_7", "shards_0", "shards_7"}
    texts = {"text_empty", "fixed_empty"}
    with open(os.path.join(mount, ".zarrfs", "README.txt"), encoding="utf-8") as readme:
        told = [line for line in readme if "xarray masks" in line]
    expected = sparse if "sparse" in store else texts if "hand" in store else set()
    if {line.split("/")[1].split(":")[0] for line in told} != expected:
        bad.append(f"README.txt: {told}")
    translated = os.path.join(mount, ".zarrfs", target)
    for consolidated in False, True:
        with xr.open_zarr(store, consolidated=False, chunks=None) as data:
            wanted = data.load()
        try:
            with xr.open_zarr(translated, consolidated=consolidated, chunks=None, zarr_format=version) as data:
                found = data.load()
        except Exception as error:
            bad.append(f"{type(error).__name__}: {error}")
            continue
        for name in set(wanted.variables) - sparse - texts:
            if name not in found:
                bad.append(f"{name}: left out")
            elif not same(wanted[name].values, found[name].values):
                bad.append(f"{name}: {wanted[name].values} {found[name].values}")
    bad += check_elements(translated, store, version)
    for line in bad:
        print("BAD", os.path.basename(store), line)
    return bool(bad)


def check_elements(translated, store, version):
    """Compares the elements that zarr-python reads."""
    import zarr

    bad = []
    for name, array in zarr.open_group(store, mode="r", use_consolidated=False).arrays():
        try:
            other = zarr.open_array(os.path.join(translated, name), mode="r", zarr_format=version)[...]
        except Exception as error:
            bad.append(f"zarr {name}: {type(error).__name__}: {error}")
            continue
        own = np.asarray(array[...])
        if not same(own, other):
            bad.append(f"zarr {name}: {own} {other}")
    return bad


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        stores = [iter(sys.argv[2:])] * 3
        sys.exit(any([check(*store) for store in zip(*stores)]))
