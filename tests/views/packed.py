"""Stores whose chunks HDF5 and TIFF can have as they are, and checks of `.packed` files with other programs.

packed.py write STORE: writes a group; zarr-python 2 and 3 each write the arrays that they support.
packed.py zip STORE ZIP: the same keys as a zip, half of them deflated.
packed.py false-size STORE ZIP: a zip that declares a chunk longer than it is.
packed.py check STORE MOUNT: compares the files of MOUNT with the arrays that zarr-python reads from STORE; prints counts
as JSON.
"""

import json
import os
import sys
import warnings
import zipfile

import numcodecs
import numpy as np
import zarr

warnings.simplefilter("ignore")
IS_V3 = zarr.__version__.startswith("3")
ZLIB = numcodecs.Zlib(3)
# Name: shape, chunks, type, fill value, filters, compressor, whether chunks are missing, order.
ARRAYS = {
    "plain": ((50, 70), (16, 32), "<f4", 0, [], ZLIB, False, "C"),
    "shuffled": ((30, 40, 50), (7, 16, 50), "<i2", -5, [numcodecs.Shuffle(2)], ZLIB, True, "C"),
    "turned": ((30, 48), (10, 48), ">f8", np.nan, [], ZLIB, True, "C"),
    "checked": ((64, 64), (32, 16), "<i4", 3, [numcodecs.Shuffle(4), numcodecs.Fletcher32()], ZLIB, True, "C"),
    "last": ((20, 33), (9, 9), "<u8", 0, [numcodecs.Shuffle(8), ZLIB, numcodecs.Fletcher32()], None, False, "C"),
    "raw": ((40, 64), (16, 32), "<u2", 0, [], None, True, "C"),
    "wide": ((40, 60), (100, 64), "<i4", 0, [], ZLIB, False, "C"),
    "waves": ((33, 16), (16, 16), "<c8", 0, [], ZLIB, True, "C"),
    "bool": ((33, 16), (16, 16), "|b1", True, [], ZLIB, True, "C"),
    "holes": ((33, 16), (16, 16), "<f4", 7, [], ZLIB, True, "C"),
    "many": ((200, 80), (1, 8), "<i2", 0, [], ZLIB, True, "C"),
    # The last strip of each band ends with the image.
    "strips": ((3, 25, 50), (1, 10, 50), "<i2", 0, [], None, True, "C"),
    # Chunks that have to be decoded.
    "gzip": ((33, 16), (16, 16), "<f4", 7, [], numcodecs.GZip(1), True, "C"),
    "half": ((33, 16), (16, 16), "<f2", 7, [], ZLIB, True, "C"),
    "columns": ((33, 16), (16, 16), "<f4", 7, [], ZLIB, True, "F"),
    "uneven": ((33, 16), (16, 16), "<f8", 7, [numcodecs.Shuffle(4)], ZLIB, True, "C"),
    "zstd": ((48, 64), (16, 32), "<f4", 7, [], numcodecs.Zstd(1), False, "C"),
    # As compressed strips, the last one would decode to more rows than the image.
    "cut": ((25, 50), (10, 50), "<i2", 0, [], ZLIB, False, "C"),
}
DECODED = {"gzip", "half", "columns", "uneven", "zstd", "v3zstd"}
NAMES = ["band", "y", "x"]


def values(shape, dtype, seed):
    numbers = np.random.default_rng(seed).integers(0, 50, shape)
    data = (numbers % 2 if np.dtype(dtype).kind == "b" else numbers).astype(dtype)
    return data * (1 + 2j) if np.dtype(dtype).kind == "c" else data


def fill_in(array, shape, dtype, seed, is_sparse):
    data = values(shape, dtype, seed)
    if not is_sparse:
        array[...] = data
    elif seed != 9:
        # Some chunks at the beginning and the last one.
        half = tuple(slice(0, length // 2) for length in shape)
        last = tuple(slice(-1, None) for _ in shape)
        array[half] = data[half]
        array[last] = data[last]


def write(path):
    group = zarr.open_group(path, mode="w", **({"zarr_format": 2} if IS_V3 else {}))
    for seed, (name, spec) in enumerate(ARRAYS.items()):
        shape, chunks, dtype, fill, filters, compressor, is_sparse, order = spec
        options = {"shape": shape, "chunks": chunks, "dtype": dtype, "fill_value": fill, "order": order}
        if IS_V3:
            array = group.create_array(name, filters=filters or None, compressors=compressor, **options)
        else:
            array = group.create_dataset(name, filters=filters or None, compressor=compressor, **options)
        array.attrs["_ARRAY_DIMENSIONS"] = [f"{name}_{axis}" for axis in NAMES[-len(shape):]]
        fill_in(array, shape, dtype, seed, is_sparse)
    for name, length in ("plain_y", 50), ("plain_x", 70):
        options = {"shape": (length,), "chunks": (16,), "dtype": "<f8"}
        if IS_V3:
            array = group.create_array(name, compressors=ZLIB, **options)
        else:
            array = group.create_dataset(name, compressor=ZLIB, **options)
        array.attrs["_ARRAY_DIMENSIONS"] = [name]
        array[...] = np.arange(length) / 2
    if IS_V3:
        write_v3(zarr.open_group(os.path.join(path, "v3"), mode="w", zarr_format=3))


def write_v3(group):
    from zarr.codecs import BytesCodec, ZstdCodec
    from zarr.codecs import numcodecs as wrapped

    zlib = wrapped.Zlib(level=1)
    shuffle = wrapped.Shuffle(elementsize=4)
    for seed, (name, shape, chunks, shards, compressors, endian) in enumerate([
        ("sharded", (40, 50), (8, 16), (16, 32), [shuffle, zlib], "little"),
        ("big", (40, 50), (16, 32), None, [zlib], "big"),
        ("v3raw", (40, 64), (16, 32), (32, 64), [], "little"),
        ("v3zstd", (40, 64), (16, 32), (32, 64), [ZstdCodec(level=1)], "little"),
    ]):
        array = group.create_array(
            name, shape=shape, chunks=chunks, shards=shards, dtype="float32", fill_value=2.5,
            compressors=compressors, serializer=BytesCodec(endian=endian), config={"write_empty_chunks": False},
            dimension_names=[f"{name}_y", f"{name}_x"],
        )
        fill_in(array, shape, "f4", seed, True)


def write_zip(store, path, is_deflated=lambda number: number % 2):
    with zipfile.ZipFile(path, "w") as archive:
        names = (os.path.join(root, name) for root, _, names in os.walk(store) for name in names)
        for number, name in enumerate(sorted(names)):
            kind = zipfile.ZIP_DEFLATED if is_deflated(number) else zipfile.ZIP_STORED
            archive.write(name, os.path.relpath(name, store), kind)


def write_lie(store, path):
    write_zip(store, path, lambda _: False)
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        entry = data.rindex(b"plain/0.0") - 46
        assert data[entry : entry + 4] == b"PK\x01\x02"
        for field in 20, 24:
            size = int.from_bytes(data[entry + field : entry + field + 4], "little")
            data[entry + field : entry + field + 4] = (size + 100).to_bytes(4, "little")
        file.seek(0)
        file.write(data)


def nodes(path):
    for root, directories, files in os.walk(path):
        if ".zarray" in files or "zarr.json" in files:
            relative = os.path.relpath(root, path)
            node = zarr.open(root, mode="r")
            if isinstance(node, zarr.Array):
                directories.clear()
                yield relative, node


def same(name, found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    if wanted.dtype.kind == "c":
        wanted = np.stack([wanted.real, wanted.imag], axis=-1)
    if wanted.dtype.kind == "b":
        wanted = wanted.astype("i1")
    if wanted.dtype == "f2":
        wanted = wanted.astype("f4")
    native = wanted.dtype.newbyteorder("=")
    assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
    assert found.dtype.newbyteorder("=") == native, (name, found.dtype, wanted.dtype)
    assert found.astype(native).tobytes() == wanted.astype(native).tobytes(), name


def stored_bytes(path):
    files = (os.path.join(root, name) for root, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(file) for file in files)


def check_nc(store, mount, counts):
    import h5py
    import netCDF4

    for path, array in nodes(store):
        name = os.path.basename(path)
        file = os.path.join(mount, path, ".zarrfs", f"{name}.packed.nc")
        if name in DECODED:
            assert not os.path.exists(file), file
            counts["refused"] += 1
            continue
        wanted = array[...]
        with h5py.File(file) as h5:
            dataset = h5[name]
            same(path, dataset[...], wanted)
            for number in range(dataset.id.get_num_chunks()):
                info = dataset.id.get_chunk_info(number)
                counts["chunks"] += 1
                if array.metadata.zarr_format == 2 if IS_V3 else True:
                    index = [at // extent for at, extent in zip(info.chunk_offset, array.chunks)]
                    key = os.path.join(store, path, ".".join(map(str, index)))
                    _, raw = dataset.id.read_direct_chunk(info.chunk_offset)
                    with open(key, "rb") as stored:
                        assert raw == stored.read(), (path, index)
        with netCDF4.Dataset(file) as dataset:
            dataset.set_auto_maskandscale(False)
            same(path, dataset[name][...], wanted)
            if name == "plain":
                same(path, dataset["plain_y"][...], np.arange(50) / 2)
        size, least = os.path.getsize(file), stored_bytes(os.path.join(store, path))
        # The header, and nodes of 64 chunks each of the index.
        most = 1.02 * least + 40_000 + 3000 * (array.nchunks // 60 + 3)
        assert size <= most, (path, size, least)
        counts["nc"] += 1


def check_group(store, mount, counts):
    import h5py
    import netCDF4

    file = os.path.join(mount, ".zarrfs", "root.packed.nc")
    with h5py.File(file) as h5, netCDF4.Dataset(file) as dataset:
        dataset.set_auto_maskandscale(False)
        for path, array in nodes(store):
            wanted = array[...]
            same(path, h5[path][...], wanted)
            same(path, dataset[path][...], wanted)
            has_filters = h5[path].compression is not None or h5[path].fletcher32
            assert not (has_filters and os.path.basename(path) in DECODED), path
            counts["variables"] += 1


def check_tif(store, mount, counts):
    import rasterio
    import tifffile

    for path, array in nodes(store):
        name = os.path.basename(path)
        file = os.path.join(mount, path, ".zarrfs", f"{name}.packed.tif")
        if not os.path.exists(file):
            counts["no_tif"] += 1
            continue
        wanted = array[...]
        with rasterio.open(file) as raster:
            found = raster.read()
            found = found[0] if wanted.ndim == 2 else found
            wanted = wanted.astype("u1") if wanted.dtype.kind == "b" else wanted
            assert np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"), path
        try:
            found = tifffile.imread(file)
        except (ImportError, ValueError) as error:
            # Zstandard takes another package.
            assert name == "zstd" or path.startswith("v3"), error
        else:
            assert np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"), path
        counts["tif"] += 1


def main():
    word, store = sys.argv[1:3]
    if word == "write":
        return write(store)
    if word == "zip":
        return write_zip(store, sys.argv[3])
    if word == "false-size":
        return write_lie(store, sys.argv[3])
    counts = {"nc": 0, "refused": 0, "chunks": 0, "variables": 0, "tif": 0, "no_tif": 0}
    check_nc(store, sys.argv[3], counts)
    check_group(store, sys.argv[3], counts)
    check_tif(store, sys.argv[3], counts)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
