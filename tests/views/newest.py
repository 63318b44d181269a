"""Stores of the newest zarr-python, anndata and icechunk, and what they read from a mount of each.

newest.py write DIRECTORY: writes arrays.zarr, cells.zarr and repository.
newest.py check STORE MOUNT: compares the views of a mount with what the library of the store reads; prints their number.
"""

import os
import sys
import warnings

import numpy as np
import zarr

warnings.simplefilter("ignore")
random = np.random.default_rng(34)
SHAPE = (37, 29)
TYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


def values(dtype, shape=SHAPE):
    numbers = random.integers(0, 100, shape)
    return (numbers % 2 if dtype == "bool" else numbers).astype(dtype)


def write_arrays(path):
    root = zarr.open_group(path, mode="w", zarr_format=3, attributes={"title": "newest"})
    for dtype in TYPES:
        root.create_array(dtype, data=values(dtype), chunks=(10, 10))
    root.create_array("sharded", data=values("f4", (64, 48)), chunks=(8, 16), shards=(32, 32), dimension_names=["y", "x"])
    root.create_array("plain", data=values("i4"), chunks=(10, 10), compressors=None)
    root.create_array("sparse", shape=(100, 100), chunks=(10, 10), dtype="f8", fill_value=np.nan)[20:30, 40:60] = 3
    root.create_array("column", data=values("f4"), chunks=(10, 10), filters=[zarr.codecs.TransposeCodec(order=(1, 0))])
    for name, compressor in {
        "blosc": zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle"),
        "gzip": zarr.codecs.GzipCodec(level=3),
        "zstd": zarr.codecs.ZstdCodec(level=9, checksum=True),
    }.items():
        root.create_array(name, data=values("i8"), chunks=(16, 29), compressors=compressor)
    for unit in "s", "ns":
        days = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE).astype(f"datetime64[{unit}]")
        root.create_array(f"time_{unit}", data=days, chunks=(10, 10))
    older = root.create_group("below/deep")
    older.create_array("scalar", data=np.array(4.5))
    v2 = zarr.open_group(f"{path}-v2", mode="w", zarr_format=2)
    for dtype in TYPES:
        v2.create_array(dtype, data=values(dtype), chunks=(10, 10))
    v2.create_array("order", data=values("f4"), chunks=(10, 10), order="F")
    for store in path, f"{path}-v2":
        zarr.consolidate_metadata(store)


def write_cells(path):
    import anndata
    import pandas as pd
    import scipy.sparse as sparse

    obs = pd.DataFrame(
        {
            "kind": pd.Categorical(list("abca") * 5),
            "count": np.arange(20),
            "depth": np.linspace(0, 1, 20),
            "known": pd.array([1, None] * 10, dtype="Int64"),
            "name": [f"n{number}" for number in range(20)],
        },
        index=[f"cell{number}" for number in range(20)],
    )
    cells = anndata.AnnData(sparse.random(20, 7, density=0.4, format="csr", dtype="f4", random_state=1), obs=obs)
    cells.layers["raw"] = values("i4", (20, 7))
    cells.obsm["X_pca"] = values("f8", (20, 3))
    cells.write_zarr(path)


def write_repository(path):
    import icechunk

    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(path))
    session = repository.writable_session("main")
    root = zarr.group(store=session.store)
    root.create_array("t", data=values("f4"), chunks=(10, 10))
    root.create_array("below/s", data=values("i2", (40, 40)), chunks=(5, 5), shards=(20, 20))
    snapshot = session.commit("first")
    repository.create_tag("v1", snapshot_id=snapshot)
    session = repository.writable_session("main")
    zarr.open_group(store=session.store)["below/s"][:5] = 7
    session.commit("second")


def opened(store):
    if os.path.basename(store) != "repository":
        return zarr.open_group(store, mode="r")
    import icechunk

    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(store))
    return zarr.open_group(repository.readonly_session("main").store, mode="r")


def check(store, mount):
    count = 0
    for path, array in opened(store).members(max_depth=None):
        if not isinstance(array, zarr.Array) or array.dtype.kind in "TOUS":
            continue
        found = np.load(os.path.join(mount, path, ".zarrfs", f"{os.path.basename(path)}.npy"))
        expected = array[()]
        assert found.dtype == expected.dtype and found.shape == expected.shape, (path, found.dtype, expected.dtype)
        assert found.tobytes() == np.asarray(expected).tobytes(), path
        count += 1
    if os.path.basename(store) == "cells.zarr":
        count += check_cells(store, mount)
    print(count)


def check_cells(store, mount):
    import anndata
    import pandas as pd

    cells = anndata.read_zarr(store)
    frame = pd.read_csv(os.path.join(mount, "obs", ".zarrfs", "obs.csv"), index_col=0)
    assert frame.index.tolist() == cells.obs.index.tolist(), frame.index
    for name in cells.obs.columns:
        found, expected = frame[name], cells.obs[name]
        assert found.isna().tolist() == expected.isna().tolist(), name
        there = ~expected.isna()
        assert found[there].tolist() == expected[there].tolist(), (name, found, expected)
    read = anndata.read_h5ad(os.path.join(mount, ".zarrfs", "root.h5ad"))
    assert (read.X != cells.X).nnz == 0
    assert np.array_equal(read.layers["raw"], cells.layers["raw"])
    return 2


def main():
    word, path = sys.argv[1:3]
    if word == "check":
        return check(path, sys.argv[3])
    write_arrays(os.path.join(path, "arrays.zarr"))
    write_cells(os.path.join(path, "cells.zarr"))
    write_repository(os.path.join(path, "repository"))


if __name__ == "__main__":
    main()
