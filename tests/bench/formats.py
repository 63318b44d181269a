"""Reads one array through its computed files, whole and in order; prints ratios to `.npy`, and those of files
with stored chunks to the keys of the store.

Also how long headers of large files and of files of many variables take.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import numcodecs
import numpy as np
import zarr

import shared
from shared import add, say, warm

parser = shared.options_of(__doc__)
parser.add_argument("--large", help="where tests/views/large.py has written its stores")
parser.add_argument("--mib", type=int, default=512)
args = parser.parse_args()
results = {}


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


def medians(row, names, measure, unit="s"):
    """Returns the median of each name; its measures take turns."""
    for _ in range(args.reps):
        for name in names:
            # A new mount: nothing is decoded yet, and the kernel has nothing of the file.
            with Mount(source) as mount:
                add(results, f"{row} {name}, {unit}", "zarrfs", measure(mount, name))
    return {name: statistics.median(results[f"{row} {name}, {unit}"]["zarrfs"]) for name in names}


def shown(found, unit="s"):
    """The medians, with their ratio to the first one."""
    first = next(iter(found.values()))
    return "  ".join(f"{name} {value:.2f} {unit} ({value / first:.2f})" for name, value in found.items())


source = shared.WORK / f"formats-{args.mib}.zarr"
if not source.exists():
    say(f"writing {source}")
    unfinished = source.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    write(unfinished)
    write_tables(unfinished)
    write_cells(unfinished)
    unfinished.rename(source)

print(f"{args.mib} MiB each, median of {args.reps}; seconds, and the ratio to .npy")
for group in ("cubes", "none", "zlib", "zstd"):
    warm(source / group)
    files = ["x.npy", f"{group}.nc", f"{group}.cdf.nc", f"{group}.h5", "x.nii", "x.mrc", "x.fits"]
    with Mount(source) as mount:
        files += [name for name in os.listdir(mount / group / ".zarrfs") if name.endswith(".tif")]
    found = medians(group, files, lambda mount, name: read(mount / group / ".zarrfs" / name))
    # A picture has the first plane alone.
    picture = medians(group, ["x.png"], lambda mount, name: read(mount / group / ".zarrfs" / name))["x.png"]
    print(f"{group:8}", shown(found), f" x.png {picture:.3f} s", flush=True)

warm(source / "table")
files = {".npy": ["n.npy", "v.npy"], ".parquet": ["table.parquet"], ".csv": ["table.csv"]}
found = medians("table", files, lambda mount, name: sum(read(mount / "table/.zarrfs" / part) for part in files[name]))
print("table   ", shown(found), flush=True)

warm(source / "cells")
files = {"X.npy": "cells/X/.zarrfs/X.npy", ".h5ad": "cells/.zarrfs/cells.h5ad"}
print("cells   ", shown(medians("cells", files, lambda mount, name: read(mount / files[name]))), flush=True)

# The stored chunks, key by key and as one file.
for group in ("none", "zlib"):
    with Mount(source) as mount:
        views = [mount / group / ".zarrfs" / name for name in ("x.packed.nc", "x.packed.tif")]
        names = ["keys", *(view.name for view in views if view.exists())]

    def speed(mount, name):
        keys = [path for path in sorted((mount / group / "x" / "c").rglob("*")) if path.is_file()]
        files = keys if name == "keys" else [mount / group / ".zarrfs" / name]
        size = sum(path.stat().st_size for path in files)
        return size / read(*files) / 2**20

    print(f"{group:8} as stored:", shown(medians(f"{group} as stored", names, speed, "MiB/s"), "MiB/s"), flush=True)

if args.large:
    for store, name in [("many.zarr", "root.nc"), ("sparse.zarr", "root.nc"), ("sparse.zarr", "root.cdf.nc")]:
        with Mount(os.path.join(args.large, store)) as mount:
            for what in "first", "again":
                begin = time.perf_counter()
                subprocess.run(["ncdump", "-h", mount / ".zarrfs" / name], stdout=subprocess.DEVNULL, check=True)
                seconds = time.perf_counter() - begin
                add(results, f"ncdump -h of {store} {name}, {what}, s", "zarrfs", seconds)
                print(f"ncdump -h of {store} {name}, {what}: {seconds:.3f} s")

shared.write(args.json, results)
