#!/usr/bin/env python3
"""Speed and memory of decoded arrays: `cat x.npy` through the mount beside Zarr libraries.

    scripts/bench-arrays [CODEC ...] [--mib N] [--reps N] [--json FILE] [--zarrfs FILE]

Codecs: none lz4 zstd zlib shard slab; all by default (slab: lz4 in chunks that a scan in C order
crosses 256 times). The same array of float32 is read whole by `cat` from a directory and from a zip
of stored entries, and into memory by zarr-python, by zarr-python with the pipeline of zarrs, and by
tensorstore; each repetition has them one after the other, in another order each time, with the
sources in the page cache. `bare` is a file of the same size from a file system that only answers
from memory: the cost of FUSE itself. Figures are medians; ratios are to the fastest library of the
same run. Libraries that are not installed are left out.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target/bench/arrays"
CODECS = ("none", "lz4", "zstd", "zlib", "shard", "slab")
PLANE = 1024

LIBRARY = """
import sys, time
kind, path = sys.argv[1:]
if kind == "tensorstore":
    import tensorstore as ts
    start = time.perf_counter()
    z = ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}).result()
    a = z.read().result()
else:
    import zarr
    if kind == "zarrs":
        import zarrs
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    start = time.perf_counter()
    a = zarr.open_array(path, mode="r")[...]
print(time.perf_counter() - start, float(a.sum(dtype="f8")))
"""


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def make(directory, mib):
    """The arrays: waves with a little noise, rounded as instruments do."""
    import numpy as np
    import zarr
    import zarr.codecs as zc

    blosc = zc.BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")
    kinds = {
        "none": dict(chunks=(1, PLANE, PLANE), compressors=None),
        "lz4": dict(chunks=(1, PLANE, PLANE), compressors=blosc),
        "zstd": dict(chunks=(1, PLANE, PLANE), compressors=zc.ZstdCodec(level=1)),
        "zlib": dict(chunks=(1, PLANE, PLANE), compressors=zc.GzipCodec(level=1)),
        "shard": dict(chunks=(1, 512, 512), shards=(8, PLANE, PLANE), compressors=zc.ZstdCodec(level=1)),
        "slab": dict(chunks=(8, 256, 512), compressors=blosc),
    }
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:PLANE, 0:PLANE].astype("f4")
    planes = mib // 4
    arrays = {
        name: zarr.create_array(str(directory / name), shape=(planes, PLANE, PLANE), dtype="f4", zarr_format=3, overwrite=True, **kind)
        for name, kind in kinds.items()
    }
    for first in range(0, planes, 8):
        block = np.stack([
            np.round((280 + 15 * np.sin((x + 3 * i) / 97) + 5 * np.cos((y - 2 * i) / 61)
                      + 0.05 * rng.standard_normal((PLANE, PLANE))) * 64) / 64
            for i in range(first, min(first + 8, planes))
        ]).astype("f4")
        for array in arrays.values():
            array[first:first + len(block)] = block


def inputs(mib):
    directory, archive = WORK / f"dir-{mib}", WORK / f"store-{mib}.zip"
    if not archive.exists():
        say(f"writing arrays of {mib} MiB")
        make(directory, mib)
        partial = archive.with_suffix(".new")
        partial.unlink(missing_ok=True)
        subprocess.run(["zip", "-0qr", partial, "."], cwd=directory, check=True)
        next(p for p in (partial, Path(f"{partial}.zip")) if p.exists()).rename(archive)
    return directory, archive


def warm(path):
    """Has the system read a source, so that no contender waits for a disk."""
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    for file in files:
        with open(file, "rb", buffering=0) as f:
            while f.read(1 << 22):
                pass


class Mounted:
    def __init__(self, command, mountpoint, zarrfs):
        self.path, self.zarrfs = mountpoint, zarrfs
        mountpoint.mkdir(parents=True, exist_ok=True)
        subprocess.run([*command, mountpoint], check=True)

    def __enter__(self):
        return self

    def peak_mib(self):
        pid = os.getxattr(self.path, "user.zarrfs.pid").decode()
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def __exit__(self, *_):
        subprocess.run([self.zarrfs, "umount", self.path], check=True)


def cat(file):
    start = time.perf_counter()
    subprocess.run(["cat", file], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def through_mount(zarrfs, source, codec):
    with Mounted([zarrfs, "mount", "--force", source], WORK / "mnt", zarrfs) as mounted:
        seconds = cat(mounted.path / codec / ".zarrfs" / f"{codec}.npy")
        return seconds, mounted.peak_mib()


def by_library(kind, path):
    done = subprocess.run([sys.executable, "-c", LIBRARY, kind, path], capture_output=True, text=True)
    return (float(done.stdout.split()[0]), None) if done.returncode == 0 else None


def by_bare(bare, mib):
    mountpoint = WORK / "bare"
    mountpoint.mkdir(parents=True, exist_ok=True)
    server = subprocess.Popen([bare, mountpoint, f"f:1:{mib << 20}"], stdout=subprocess.DEVNULL)
    try:
        file = mountpoint / "f/0"
        while not file.exists():
            time.sleep(0.01)
        return cat(file), None
    finally:
        subprocess.run(["umount", mountpoint], check=False)
        server.wait(timeout=20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codecs", nargs="*", choices=[*CODECS, []], metavar="CODEC")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--zarrfs", type=Path, default=ROOT / "target/release/zarrfs")
    parser.add_argument("--before", type=Path, help="another zarrfs to compare with")
    parser.add_argument("--bare", type=Path)
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    directory, archive = inputs(given.mib)
    results = {}
    for codec in given.codecs or CODECS:
        contenders = {
            "zarrfs": lambda: through_mount(given.zarrfs, directory, codec),
            "zarrfs-zip": lambda: through_mount(given.zarrfs, archive, codec),
            "zarr-python": lambda: by_library("zarr-python", directory / codec),
            "zarrs": lambda: by_library("zarrs", directory / codec),
            "tensorstore": lambda: by_library("tensorstore", directory / codec),
        }
        if given.before:
            contenders["before"] = lambda: through_mount(given.before, directory, codec)
            contenders["before-zip"] = lambda: through_mount(given.before, archive, codec)
        if given.bare:
            contenders["bare"] = lambda: by_bare(given.bare, given.mib)
        seconds, peaks = {}, {}
        for _ in range(given.reps):
            for name in random.sample(list(contenders), len(contenders)):
                warm(archive if name.endswith("zip") else directory / codec)
                measured = contenders[name]()
                if measured:
                    seconds.setdefault(name, []).append(measured[0])
                    peaks[name] = measured[1]
        median = {name: statistics.median(values) for name, values in seconds.items()}
        libraries = {name: median[name] for name in ("zarr-python", "zarrs", "tensorstore") if name in median}
        best = min(libraries, key=libraries.get, default=None)
        print(f"{codec}: {given.mib} MiB")
        for name, value in sorted(median.items(), key=lambda pair: pair[1]):
            spread = f"{min(seconds[name]):.2f}..{max(seconds[name]):.2f}"
            ratio = f"  {value / libraries[best]:.2f} of {best}" if best and name not in libraries else ""
            peak = f"  peak {peaks[name]:.0f} MiB" if peaks[name] else ""
            print(f"  {name:12} {value:6.2f} s ({spread})  {given.mib / value:6.0f} MiB/s{ratio}{peak}", flush=True)
        results[codec] = seconds
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))


main()
