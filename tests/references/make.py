"""Writes files of scientific data, references to them, and what is in them.

usage: make.py files DIRECTORY             data, references with relative targets, and expected arrays
       make.py parquet DIRECTORY PREFIX    combined.parq with targets that begin with PREFIX
       make.py compare MOUNT EXPECTED [BY] compares .npy views with expected arrays, by their names; values may differ
                                           by at most BY
       make.py packed FILE NPY             compares the variable of a .packed.nc with a .npy
       make.py large COUNT JSON PARQUET    references to nothing, for measurements

References are those of kerchunk and of VirtualiZarr; expected arrays are what h5py and netCDF4 read.
"""

import gzip
import json
import sys
import warnings
import zipfile
from pathlib import Path

import h5py
import netCDF4
import numcodecs
import numpy as np

warnings.simplefilter("ignore")
DAYS = 8


def write_hdf5(path):
    """Filters, byte orders, layouts, holes and types."""
    random = np.random.default_rng(1)
    with h5py.File(path, "w", libver="latest") as file:
        # 40 chunks, which lie together in the file.
        values = random.integers(-1000, 1000, (47, 53)).astype("i4")
        file.create_dataset("filtered", data=values, chunks=(10, 7), shuffle=True, compression="gzip")
        # kerchunk leaves out what has this checksum: see add_checked().
        file.create_dataset("checked", data=values, chunks=(47, 5), shuffle=True, compression="gzip", fletcher32=True)
        file.create_dataset("big", data=values.astype(">f8"), chunks=(16, 16), shuffle=True)
        file.create_dataset("contiguous", data=values.astype("u2"))
        file.create_dataset("scalar", data=np.float32(2.5))
        holes = file.create_dataset("g/holes", (40, 40), "i2", chunks=(10, 10), fillvalue=-7, compression="gzip")
        holes[12:18, 3:33] = 5
        file.create_dataset("g/bytes", data=np.array([b"ab", b"c", b"def"], "S3"))
        file.create_dataset("g/long", data=random.random(400_000), chunks=(100_000,))


def write_netcdf4(path):
    with netCDF4.Dataset(path, "w") as file:
        file.title = "a file of netCDF-4"
        file.createDimension("time", None)
        file.createDimension("x", 30)
        variable = file.createVariable("t", "f4", ("time", "x"), zlib=True, shuffle=True, chunksizes=(4, 10))
        variable.units = "K"
        variable[:] = np.arange(300, dtype="f4").reshape(10, 30)
        group = file.createGroup("inner")
        inner = group.createVariable("n", "i8", ("x",))
        inner[:] = np.arange(30) ** 3


def write_netcdf3(path, version):
    """Big-endian numbers, with and without records."""
    with netCDF4.Dataset(path, "w", format=version) as file:
        file.createDimension("time", None)
        file.createDimension("x", 5)
        fixed = file.createVariable("fixed", "f8", ("x",))
        fixed[:] = np.linspace(-1, 1, 5)
        for name, kind in [("short", "i2"), ("real", "f4")]:
            record = file.createVariable(name, kind, ("time", "x"))
            record[:] = np.arange(35).reshape(7, 5) * 3


def write_day(path, day):
    random = np.random.default_rng(day)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in [("time", 1), ("lat", 20), ("lon", 30)]:
            file.createDimension(name, size)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = day
        for name, size in [("lat", 20), ("lon", 30)]:
            file.createVariable(name, "f4", (name,))[:] = np.arange(size)
        value = file.createVariable("v", "i2", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 10, 15))
        value.scale_factor = 0.5
        value.set_auto_scale(False)
        value[:] = random.integers(0, 500, (1, 20, 30))


def arrays(path):
    """What is in a file, as it is stored."""
    found = {}
    if h5py.is_hdf5(path):
        with h5py.File(path) as file:
            def note(name, node):
                # Dimensions without a variable are no arrays of kerchunk.
                is_dimension = b"This is a netCDF dimension" in np.bytes_(node.attrs.get("NAME", b""))
                if isinstance(node, h5py.Dataset) and not is_dimension:
                    found[name] = node[()]
            file.visititems(note)
    else:
        with netCDF4.Dataset(path) as file:
            file.set_auto_maskandscale(False)
            found = {name: variable[:] for name, variable in file.variables.items()}
    return found


def expect(directory, name, values):
    path = directory / "expected" / f"{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def hdf5_references(path, url, **options):
    from kerchunk.hdf import SingleHdf5ToZarr

    with open(path, "rb") as file:
        return SingleHdf5ToZarr(file, url, **options).translate()


def combined(directory, prefix):
    from kerchunk.combine import MultiZarrToZarr

    paths = [directory / f"day{day}.nc" for day in range(DAYS)]
    days = [hdf5_references(path, str(path), inline_threshold=100) for path in paths]
    references = MultiZarrToZarr(days, concat_dims=["time"], identical_dims=["lat", "lon"], inline_threshold=10).translate()
    for value in references["refs"].values():
        if isinstance(value, list):
            value[0] = prefix + Path(value[0]).name
    return references


def add_checked(path, references):
    """Adds the array whose checksum kerchunk does not know, as VirtualiZarr would."""
    with h5py.File(path) as file:
        checked = file["checked"]
        filters = [{"id": "shuffle", "elementsize": 4}, {"id": "zlib", "level": 4}, {"id": "fletcher32"}]
        references["refs"]["checked/.zarray"] = json.dumps({
            "zarr_format": 2, "shape": checked.shape, "chunks": checked.chunks, "dtype": "<i4", "fill_value": 0,
            "order": "C", "compressor": None, "filters": filters,
        })
        for number in range(checked.id.get_num_chunks()):
            chunk = checked.id.get_chunk_info(number)
            index = ".".join(str(offset // size) for offset, size in zip(chunk.chunk_offset, checked.chunks))
            references["refs"][f"checked/{index}"] = [path.name, chunk.byte_offset, chunk.size]


def write_files(directory):
    from kerchunk.netCDF3 import NetCDF3ToZarr

    directory.mkdir(parents=True, exist_ok=True)
    write_hdf5(directory / "plain.h5")
    write_netcdf4(directory / "climate.nc")
    write_netcdf3(directory / "classic.nc", "NETCDF3_CLASSIC")
    write_netcdf3(directory / "offset.nc", "NETCDF3_64BIT_OFFSET")
    for day in range(DAYS):
        write_day(directory / f"day{day}.nc", day)
    for name, file in [("plain", "plain.h5"), ("climate", "climate.nc")]:
        references = hdf5_references(directory / file, file, inline_threshold=0)
        flat = hdf5_references(directory / file, file, inline_threshold=400)
        if name == "plain":
            add_checked(directory / file, references)
            add_checked(directory / file, flat)
        (directory / f"{name}.json").write_text(json.dumps(references))
        # The older form has no frame.
        (directory / f"{name}-v0.json").write_text(json.dumps(flat["refs"]))
    for name in ["classic", "offset"]:
        references = NetCDF3ToZarr(str(directory / f"{name}.nc"), inline_threshold=0).translate()
        text = json.dumps(references).replace(str(directory / f"{name}.nc"), f"{name}.nc")
        (directory / f"{name}.json").write_text(text)
    for name in ["plain.h5", "climate.nc", "classic.nc", "offset.nc"]:
        for array, values in arrays(directory / name).items():
            expect(directory, f"{name.split('.')[0]}/{array}", values)
    days = [arrays(directory / f"day{day}.nc") for day in range(DAYS)]
    expect(directory, "combined/v", np.concatenate([day["v"] for day in days]))
    expect(directory, "combined/time", np.concatenate([day["time"] for day in days]))
    expect(directory, "combined/lat", days[0]["lat"])
    references = combined(directory, "")
    text = json.dumps(references).encode()
    (directory / "combined.json").write_bytes(text)
    (directory / "combined.json.gz").write_bytes(gzip.compress(text))
    (directory / "combined.json.zst").write_bytes(numcodecs.Zstd().encode(text))
    references["templates"] = {"u": "PREFIX"}
    for value in references["refs"].values():
        if isinstance(value, list):
            value[0] = "{{u}}" + value[0]
    (directory / "templates.json").write_text(json.dumps(references))
    write_parquet(directory, "")
    write_virtualizarr(directory)
    for name in ["combined.parq", "virtual.parq"]:
        with zipfile.ZipFile(directory / f"{name}.zip", "w") as archive:
            for path in sorted((directory / name).rglob("*")):
                archive.write(path, path.relative_to(directory / name))
    with zipfile.ZipFile(directory / "nested.zip", "w") as archive:
        for path in sorted((directory / "combined.parq").rglob("*")):
            archive.write(path, path.relative_to(directory))


def write_parquet(directory, prefix):
    from kerchunk.df import refs_to_dataframe

    # 32 chunks of `v`: a partition that is full, others, and one that is not full.
    refs_to_dataframe(combined(directory, prefix), str(directory / "combined.parq"), record_size=10, categorical_threshold=5)


def write_virtualizarr(directory):
    import xarray
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    days = [
        open_virtual_dataset(f"file://{directory}/day{day}.nc", registry=registry, parser=HDFParser(), loadable_variables=[])
        for day in range(DAYS)
    ]
    dataset = xarray.concat(days, dim="time", coords="minimal", compat="override", combine_attrs="override", data_vars="minimal")
    dataset.vz.to_kerchunk(str(directory / "virtual.json"), format="json")
    dataset.vz.to_kerchunk(str(directory / "virtual.parq"), format="parquet")


def compare(mount, expected, by=0):
    wanted = sorted(expected.rglob("*.npy"))
    for path in wanted:
        array = path.relative_to(expected).with_suffix("")
        view = mount / array / ".zarrfs" / f"{array.name}.npy"
        there, here = np.load(view), np.load(path)
        assert there.shape == here.shape, (array, there.shape, here.shape)
        assert there.dtype.newbyteorder("=") == here.dtype.newbyteorder("="), (array, there.dtype, here.dtype)
        is_near = by > 0 and np.abs(there.astype("i8") - here).max() <= by
        assert is_near or np.array_equal(there, here, equal_nan=there.dtype.kind == "f"), array
    print(len(wanted))


def compare_packed(file, values):
    """The variable in a file of netCDF-4 that is called as the file, as HDF5 decodes it."""
    with h5py.File(file) as opened:
        there = opened[Path(file).name.split(".")[0]][...]
    print("equal" if np.array_equal(there, np.load(values)) else "different")


def write_large(count, path, parquet):
    from kerchunk.df import refs_to_dataframe

    zarray = {"zarr_format": 2, "shape": [count], "chunks": [1], "dtype": "<i2", "fill_value": 0, "order": "C", "compressor": None, "filters": None}
    refs = {".zgroup": '{"zarr_format":2}', "variable/.zarray": json.dumps(zarray)}
    for number in range(count):
        refs[f"variable/{number}"] = [f"s3://bucket/with/a/prefix/file-{number // 100}.nc", number * 1000, 2]
    Path(path).write_text(json.dumps({"version": 1, "refs": refs}))
    refs_to_dataframe({"version": 1, "refs": refs}, parquet, record_size=10_000)


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "files":
        write_files(Path(arguments[0]).absolute())
    elif command == "parquet":
        write_parquet(Path(arguments[0]).absolute(), arguments[1])
    elif command == "compare":
        compare(Path(arguments[0]), Path(arguments[1]), *map(int, arguments[2:]))
    elif command == "packed":
        compare_packed(*arguments)
    elif command == "large":
        write_large(int(arguments[0]), arguments[1], arguments[2])


if __name__ == "__main__":
    main()
