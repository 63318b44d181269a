#!/usr/bin/env python3
"""Speed and memory of databases, beside a zip of the same keys.

    scripts/bench-databases [--reps N] [--zarrfs FILE]

Inputs are made once, under target/bench (about 4 GB of disk): 1,000,000 small keys below one prefix, and
an array of 512 MiB in chunks of 2 MiB. Every repetition mounts anew and has the contenders one after
the other. Figures are medians over the repetitions, ratios are those to the zip.

A mount of a zip answers no OPEN and no RELEASE requests, because its content cannot change: a small key takes two
requests, and four in a mount of a database. `zip-open` has one more entry, which is empty, and so its mount
answers these requests too. Small keys are compared with it.
"""
import argparse
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import lmdb
import numpy
import zarr
from numcodecs import Zstd

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target/bench/databases"
KEYS, READ_KEYS = 1_000_000, 20_000
KINDS = ["zip", "zip-open", "sqlite", "lmdb-0.9", "lmdb-1.0"]
SMALL = "20,000 keys, s"
MAP_BYTES = 1 << 40


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def small_keys():
    """Compressed chunks of 100 to 1023 bytes."""
    noise = random.Random(1).randbytes(64 << 20)
    for index in range(KEYS):
        start = index * 61 % (63 << 20)
        yield f"a/{index}", noise[start:start + 100 + index * 2654435761 % 924]


def array_keys():
    """The keys of an array whose chunks are compressed to about two thirds."""
    store = zarr.KVStore({})
    numbers = numpy.random.default_rng(1).integers(0, 1 << 20, 64 << 18, dtype="i4")
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


def inputs():
    WORK.mkdir(parents=True, exist_ok=True)
    for name, items in (("keys", small_keys), ("array", array_keys)):
        made = None
        for kind in KINDS:
            path = WORK / f"{name}.{kind}"
            if path.exists():
                continue
            say(f"writing {path.name}")
            made = made or (items() if name == "array" else None)
            new = path.with_name(f"{path.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            new.unlink(missing_ok=True)
            write(kind, new, made or items())
            new.rename(path)


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


def find(mount):
    found = subprocess.run(["find", mount.directory / "a"], stdout=subprocess.PIPE, check=True).stdout
    assert found.count(b"\n") == KEYS + 1, found[:200]


def read_keys(mount):
    for index in random.Random(2).sample(range(KEYS), READ_KEYS):
        with open(mount.directory / "a" / str(index), "rb", buffering=0) as file:
            assert len(file.read(2000)) == 100 + index * 2654435761 % 924


def decode(mount):
    view = mount.directory / ".zarrfs/x.npy"
    subprocess.run(["dd", f"if={view}", "of=/dev/null", "bs=1M", "status=none"], check=True)


def measure(zarrfs, kind):
    figures = {}
    with Mount(zarrfs, WORK / f"keys.{kind}") as mount:
        figures["ready, s"] = mount.ready
        figures["find, s"] = timed(lambda: find(mount))
        figures["RSS after find, MiB"] = mount.rss_mib()
    with Mount(zarrfs, WORK / f"keys.{kind}") as mount:
        figures[SMALL] = timed(lambda: read_keys(mount))
    with Mount(zarrfs, WORK / f"array.{kind}") as mount:
        figures["512 MiB array, s"] = timed(lambda: decode(mount))
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--zarrfs", type=Path, default=ROOT / "target/release/zarrfs")
    options = parser.parse_args()
    inputs()
    runs = {kind: [] for kind in KINDS}
    for repetition in range(options.reps):
        for kind in KINDS[repetition % len(KINDS):] + KINDS[:repetition % len(KINDS)]:
            for name in ("keys", "array"):
                warm(WORK / f"{name}.{kind}")
            runs[kind].append(measure(options.zarrfs.resolve(), kind))
    for figure in runs["zip"][0]:
        medians = {kind: statistics.median(run[figure] for run in runs[kind]) for kind in KINDS}
        base = medians["zip-open" if figure == SMALL else "zip"]
        print(f"{figure:22}", *(f"{kind} {value:.3f} ({value / base:.2f})  " for kind, value in medians.items()))


if __name__ == "__main__":
    main()
