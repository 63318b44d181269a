#!/usr/bin/env python3
"""Speed and memory of databases, beside a zip of the same keys.

    scripts/bench-databases [--keys N] [--mib N] [--reps N] [--json FILE] [--zarrfs FILE]

Inputs are made once, under target/bench (about 4 GB of disk): 1,000,000 small keys below one prefix, and
an array of 512 MiB in chunks of 2 MiB (--keys, --mib). Every repetition mounts anew and has the contenders one after
the other. Figures are medians over the repetitions, ratios are those to the zip.

A mount of a zip answers no OPEN and no RELEASE requests, because its content cannot change: a small key takes two
requests, and four in a mount of a database. `zip-open` has one more entry, which is empty, and so its mount
answers these requests too. Small keys are compared with it.
"""
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path

import lmdb
import numpy
import zarr
from numcodecs import Zstd

import shared
from shared import say

WORK = shared.WORK / "databases"
READ_KEYS = 20_000
KINDS = ["zip", "zip-open", "sqlite", "lmdb-0.9", "lmdb-1.0"]
SMALL = "20,000 keys, s"
MAP_BYTES = 1 << 40


def small_keys(count):
    """Compressed chunks of 100 to 1023 bytes."""
    noise = random.Random(1).randbytes(64 << 20)
    for index in range(count):
        start = index * 61 % (63 << 20)
        yield f"a/{index}", noise[start:start + 100 + index * 2654435761 % 924]


def array_keys(mib):
    """The keys of an array whose chunks are compressed to about two thirds."""
    store = zarr.KVStore({})
    numbers = numpy.random.default_rng(1).integers(0, 1 << 20, mib << 15, dtype="i4")
    shape = (8 * len(numbers),)
    root = zarr.open_group(store, mode="w")
    array = root.create_dataset("x", shape=shape, chunks=(512 << 10,), dtype="i4", compressor=Zstd(1))
    for part in range(8):
        array[part * len(numbers):(part + 1) * len(numbers)] = numbers + part
    return [(key, bytes(store[key])) for key in store]


def write(kind, path, items):
    if kind.startswith("zip"):
        with zipfile.ZipFile(path, "w") as file:
            for key, value in items:
                file.writestr(key, value)
            if kind == "zip-open":
                file.writestr("empty", b"")
    elif kind == "sqlite":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE zarr(k TEXT PRIMARY KEY, v BLOB)")
        connection.executemany("REPLACE INTO zarr VALUES(?, ?)", items)
        connection.commit()
        connection.close()
    else:
        engine = int(kind == "lmdb-1.0")
        environment = lmdb.open(str(path), lib_version=engine, map_size=MAP_BYTES, sync=False)
        with environment.begin(write=True) as transaction:
            for key, value in items:
                transaction.put(key.encode(), value)
        environment.close()


def inputs(given):
    """Returns the paths of the keys and of the array, without the kind."""
    WORK.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, count, items in (("keys", given.keys, small_keys), ("array", given.mib, array_keys)):
        made = None
        paths.append(WORK / f"{name}-{count}")
        for kind in KINDS:
            path = Path(f"{paths[-1]}.{kind}")
            if path.exists():
                continue
            say(f"writing {path.name}")
            made = made or (items(count) if name == "array" else None)
            new = path.with_name(f"{path.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.unlink(missing_ok=True)
            write(kind, new, made or items(count))
            new.rename(path)
    return paths


def warm(path):
    """Reads the used part of a source, so that it is in the page cache."""
    for file in path.iterdir() if path.is_dir() else [path]:
        subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "count=2048", "status=none"], check=True)


class Mount:
    def __init__(self, zarrfs, source):
        self.directory = Path(tempfile.mkdtemp(prefix="zarrfs-bench-"))
        start = time.perf_counter()
        subprocess.run([zarrfs, source, self.directory, "--force"], check=True, stdin=subprocess.DEVNULL)
        self.ready = time.perf_counter() - start
        self.pid = os.getxattr(self.directory, "user.zarrfs.pid").decode()

    def rss_mib(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["fusermount3", "-u", self.directory], check=True)
        while Path(f"/proc/{self.pid}").exists():
            time.sleep(0.01)
        self.directory.rmdir()


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def find(mount, keys):
    found = subprocess.run(["find", mount.directory / "a"], stdout=subprocess.PIPE, check=True).stdout
    assert found.count(b"\n") == keys + 1, found[:200]


def read_keys(mount, keys):
    for index in random.Random(2).sample(range(keys), READ_KEYS):
        with open(mount.directory / "a" / str(index), "rb", buffering=0) as file:
            assert len(file.read(2000)) == 100 + index * 2654435761 % 924


def decode(mount):
    view = mount.directory / ".zarrfs/x.npy"
    subprocess.run(["dd", f"if={view}", "of=/dev/null", "bs=1M", "status=none"], check=True)


def measure(given, keys, array):
    figures = {}
    with Mount(given.zarrfs, keys) as mount:
        figures["ready, s"] = mount.ready
        figures["find, s"] = timed(lambda: find(mount, given.keys))
        figures["RSS after find, MiB"] = mount.rss_mib()
    with Mount(given.zarrfs, keys) as mount:
        figures[SMALL] = timed(lambda: read_keys(mount, given.keys))
    with Mount(given.zarrfs, array) as mount:
        figures[f"{given.mib} MiB array, s"] = timed(lambda: decode(mount))
    return figures


def main():
    parser = shared.options_of(__doc__, reps=5)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--mib", type=int, default=512, help="of the array, a multiple of 16")
    given = parser.parse_args()
    given.zarrfs = given.zarrfs.resolve()
    paths = inputs(given)
    runs = {kind: [] for kind in KINDS}
    for repetition in range(given.reps):
        for kind in KINDS[repetition % len(KINDS):] + KINDS[:repetition % len(KINDS)]:
            sources = [Path(f"{path}.{kind}") for path in paths]
            for source in sources:
                warm(source)
            runs[kind].append(measure(given, *sources))
    for figure in runs["zip"][0]:
        medians = {kind: statistics.median(run[figure] for run in runs[kind]) for kind in KINDS}
        base = medians["zip-open" if figure == SMALL else "zip"]
        print(f"{figure:22}", *(f"{kind} {value:.3f} ({value / base:.2f})  " for kind, value in medians.items()))
    shared.write(given.json, {
        f"{kind} {figure}": {"zarrfs": [run[figure] for run in found]} for kind, found in runs.items() for figure in found[0]})


if __name__ == "__main__":
    main()
