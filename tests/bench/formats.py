"""Reads one array through its computed files, whole and in order; prints ratios to `.npy`, and those of files
with stored chunks to the keys of the store.

Also how long headers of large files and of files of many variables take.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numcodecs
import numpy as np
import zarr

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--zarrfs", required=True)
parser.add_argument("--large", help="where tests/views/large.py has written its stores")
parser.add_argument("--mib", type=int, default=512)
parser.add_argument("--reps", type=int, default=3)
args = parser.parse_args()


def write(path):
    group = zarr.open_group(path, mode="w", zarr_format=3)
    times = args.mib * 2**20 // (4 * 512 * 1024)
    shape = (times, 512, 1024)
    plane = np.add.outer(np.arange(512), np.arange(1024)).astype("f4")
    for name, chunks, codec in [
        ("zstd", (1, 256, 512), zarr.codecs.ZstdCodec(level=3)),
        ("none", (4, 512, 1024), None),
        ("cubes", (16, 128, 128), zarr.codecs.BloscCodec(cname="lz4")),
        ("zlib", (1, 512, 512), zarr.codecs.numcodecs.Zlib(level=1)),
    ]:
        parent = group.create_group(name)
        array = parent.create_array(
            "x", shape=shape, chunks=chunks, dtype="f4", dimension_names=("time", "lat", "lon"),
            compressors=codec, fill_value=0,
        )
        for at in range(0, times, 16):
            count = min(16, times - at)
            array[at : at + count] = plane + np.arange(at, at + count, dtype="f4")[:, None, None]
    return [name for name in group]


def write_tables(path):
    """A group of columns, each of the size that is measured divided by their number."""
    group = zarr.open_group(path, mode="a", zarr_format=3).create_group("table")
    rows = args.mib * 2**20 // 16
    rng = np.random.default_rng(0)
    for name, data in [("n", np.arange(rows)), ("v", rng.standard_normal(rows))]:
        group.create_array(name, data=data, chunks=(1 << 19,), dimension_names=["row"], compressors=zarr.codecs.ZstdCodec())


def write_cells(path):
    """An AnnData object as anndata writes it: a dense matrix, and tables with an index of names."""
    group = zarr.open_group(path, mode="a", zarr_format=2).create_group(
        "cells", attributes={"encoding-type": "anndata", "encoding-version": "0.1.0"})
    rows, columns = args.mib * 2**20 // (4 * 2048), 2048
    rng = np.random.default_rng(1)
    data = group.create_array("X", shape=(rows, columns), chunks=(1024, 2048), dtype="f4", compressors=numcodecs.Blosc("lz4"))
    data.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    for at in range(0, rows, 1024):
        data[at : at + 1024] = rng.poisson(0.2, (min(1024, rows - at), columns))
    for name, count in ("obs", rows), ("var", columns):
        frame = group.create_group(name, attributes={
            "encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": ["n"]})
        index = frame.create_array("_index", shape=(count,), chunks=(count,), dtype=str)
        index.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        index[:] = np.array([f"{name}-{number}" for number in range(count)], object)
        number = frame.create_array("n", data=np.arange(count), chunks=(count,))
        number.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
        group.create_group(name, attributes={"encoding-type": "dict", "encoding-version": "0.1.0"})


class Mount:
    def __init__(self, source):
        self.dir = tempfile.mkdtemp()
        subprocess.run([args.zarrfs, "mount", "--force", source, self.dir], check=True, stderr=subprocess.DEVNULL)

    def __enter__(self):
        return pathlib.Path(self.dir)

    def __exit__(self, *_):
        subprocess.run([args.zarrfs, "umount", self.dir], check=True)
        os.rmdir(self.dir)


def read(*paths):
    begin = time.perf_counter()
    subprocess.run(["cat", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


with tempfile.TemporaryDirectory() as scratch:
    source = os.path.join(scratch, "bench.zarr")
    groups = write(source)
    print(f"{args.mib} MiB each, median of {args.reps}; seconds, and the ratio to .npy")
    for group in sorted(groups):
        files = ["x.npy", f"{group}.nc", f"{group}.cdf.nc", f"{group}.h5", "x.nii", "x.mrc", "x.fits"]
        with Mount(source) as mount:
            files += [name for name in os.listdir(mount / group / ".zarrfs") if name.endswith(".tif")]
        seconds = {name: [] for name in files}
        for _ in range(args.reps):
            for name in files:
                # A new mount: nothing is decoded yet, and the kernel has nothing of the file.
                with Mount(source) as mount:
                    seconds[name].append(read(mount / group / ".zarrfs" / name))
        medians = {name: statistics.median(all_of) for name, all_of in seconds.items()}
        figures = [f"{name} {s:.2f} ({s / medians['x.npy']:.2f})" for name, s in medians.items()]
        # A picture has the first plane alone.
        pictures = []
        for _ in range(args.reps):
            with Mount(source) as mount:
                pictures.append(read(mount / group / ".zarrfs" / "x.png"))
        figures.append(f"x.png {statistics.median(pictures):.3f} s")
        print(f"{group:8}", "  ".join(figures))

    write_tables(source)
    files = {".npy": ["n.npy", "v.npy"], ".parquet": ["table.parquet"], ".csv": ["table.csv"]}
    seconds = {name: [] for name in files}
    for _ in range(args.reps):
        for name, parts in files.items():
            with Mount(source) as mount:
                seconds[name].append(sum(read(mount / "table" / ".zarrfs" / part) for part in parts))
    medians = {name: statistics.median(all_of) for name, all_of in seconds.items()}
    print("table   ", "  ".join(f"{name} {s:.2f} ({s / medians['.npy']:.2f})" for name, s in medians.items()))

    write_cells(source)
    files = {"X.npy": "cells/X/.zarrfs/X.npy", ".h5ad": "cells/.zarrfs/cells.h5ad"}
    seconds = {name: [] for name in files}
    for _ in range(args.reps):
        for name, path in files.items():
            with Mount(source) as mount:
                seconds[name].append(read(mount / path))
    medians = {name: statistics.median(all_of) for name, all_of in seconds.items()}
    print("cells   ", "  ".join(f"{name} {s:.2f} ({s / medians['X.npy']:.2f})" for name, s in medians.items()))

    # The stored chunks, key by key and as one file.
    for group, names in ("none", ["x.packed.nc", "x.packed.tif"]), ("zlib", ["x.packed.nc", "x.packed.tif"]):
        with Mount(source) as mount:
            names = [name for name in names if (mount / group / ".zarrfs" / name).exists()]
        speeds = {name: [] for name in ["keys", *names]}
        for _ in range(args.reps):
            for name in speeds:
                with Mount(source) as mount:
                    keys = [path for path in sorted((mount / group / "x" / "c").rglob("*")) if path.is_file()]
                    files = keys if name == "keys" else [mount / group / ".zarrfs" / name]
                    size = sum(path.stat().st_size for path in files)
                    speeds[name].append(size / read(*files) / 2**20)
        medians = {name: statistics.median(all_of) for name, all_of in speeds.items()}
        figures = [f"{name} {speed:.0f} MiB/s ({speed / medians['keys']:.2f})" for name, speed in medians.items()]
        print(f"{group:8} as stored:", "  ".join(figures))

if args.large:
    for store, name in [("many.zarr", "root.nc"), ("sparse.zarr", "root.nc"), ("sparse.zarr", "root.cdf.nc")]:
        with Mount(os.path.join(args.large, store)) as mount:
            for what in "first", "again":
                begin = time.perf_counter()
                subprocess.run(["ncdump", "-h", mount / ".zarrfs" / name], stdout=subprocess.DEVNULL, check=True)
                print(f"ncdump -h of {store} {name}, {what}: {time.perf_counter() - begin:.3f} s")
sys.exit(0)
