#!/usr/bin/env python3
"""Speed and memory of decoded arrays: `cat x.npy` through the mount beside Zarr libraries.

    scripts/bench-arrays [CODEC ...] [--mib N] [--reps N] [--json FILE] [--zarrfs FILE]

Codecs: none lz4 zstd zlib shard slab deflate; all by default (slab: lz4 in chunks that a scan in C
order crosses 256 times; deflate: chunks without a codec in deflated entries of a zip). The same
array of float32 is read whole by `cat` from a directory and from a zip of stored entries, and by
zarr-python, by zarr-python with the pipeline of zarrs, and by tensorstore: into memory, and into a
.npy file in /dev/shm (`file`). Each repetition has them one after the other, in another order each
time, with the sources in the page cache. `bare` is a file of the same size from a file system that
only answers from memory: the cost of FUSE itself. Figures are medians; ratios are to the fastest
library of the same run, into memory and as a file. Libraries that are not installed are left out.
"""
import os
import random
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import shared
from shared import add, say, warm

WORK = shared.WORK / "arrays"
CODECS = ("none", "lz4", "zstd", "zlib", "shard", "slab", "deflate")
LIBRARIES = ("zarr-python", "zarrs", "tensorstore")
PLANE = 1024

LIBRARY = """
import os, resource, sys, time
import numpy as np
kind, path, file = sys.argv[1:]
if kind == "tensorstore":
    import tensorstore as ts
    start = time.perf_counter()
    kvstore = {"driver": "file", "path": path}
    if ".zip/" in path:
        archive, _, inside = path.partition(".zip/")
        kvstore = {"driver": "zip", "base": {"driver": "file", "path": archive + ".zip"}, "path": inside + "/"}
    z = ts.open({"driver": "zarr3", "kvstore": kvstore}).result()
    a = z.read().result()
else:
    import zarr
    if kind == "zarrs":
        import zarrs
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    start = time.perf_counter()
    a = zarr.open_array(path, mode="r")[...]
if file:
    np.save(file, a)
    os.unlink(file)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def make(directory, mib, names):
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
    unfinished = directory.with_suffix(".unfinished")
    arrays = {
        name: zarr.create_array(str(unfinished / name), shape=(planes, PLANE, PLANE), dtype="f4", zarr_format=3, overwrite=True, **kinds[name])
        for name in names
    }
    for first in range(0, planes, 8):
        block = np.stack([
            np.round((280 + 15 * np.sin((x + 3 * i) / 97) + 5 * np.cos((y - 2 * i) / 61)
                      + 0.05 * rng.standard_normal((PLANE, PLANE))) * 64) / 64
            for i in range(first, min(first + 8, planes))
        ]).astype("f4")
        for array in arrays.values():
            array[first:first + len(block)] = block
    for name in names:
        (unfinished / name).rename(directory / name)
    unfinished.rmdir()


def zipped(directory, codec, level):
    """A zip of the array: of stored entries (level 0) or of deflated ones."""
    archive = directory.with_name(f"{directory.name}-{codec}-{level}.zip")
    if not archive.exists():
        say(f"writing {archive}")
        unfinished = archive.with_suffix(".partial.zip")
        unfinished.unlink(missing_ok=True)
        subprocess.run(["zip", f"-{level}qr", unfinished, codec], cwd=directory, check=True)
        unfinished.rename(archive)
    return archive


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


def by_library(kind, path, file=""):
    done = subprocess.run([sys.executable, "-c", LIBRARY, kind, path, file], capture_output=True, text=True)
    return tuple(map(float, done.stdout.split())) if done.returncode == 0 else None


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
    parser = shared.options_of(__doc__)
    parser.add_argument("codecs", nargs="*", choices=[*CODECS, []], metavar="CODEC")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--before", type=Path, help="another zarrfs to compare with")
    parser.add_argument("--bare", type=Path)
    given = parser.parse_args()
    codecs = given.codecs or CODECS
    directory = WORK / str(given.mib)
    directory.mkdir(parents=True, exist_ok=True)
    absent = [name for name in {"none" if codec == "deflate" else codec for codec in codecs} if not (directory / name).exists()]
    if absent:
        say(f"writing arrays of {given.mib} MiB")
        make(directory, given.mib, absent)
    results = {}
    for codec in codecs:
        if codec == "deflate":
            array, archive = "none", zipped(directory, "none", 1)
            mounts = {"zarrfs-zip": (given.zarrfs, archive), "before-zip": (given.before, archive)}
            path = f"{archive}/none"
        else:
            array, archive, path = codec, zipped(directory, codec, 0), directory / codec
            mounts = {"zarrfs": (given.zarrfs, directory), "zarrfs-zip": (given.zarrfs, archive),
                      "before": (given.before, directory), "before-zip": (given.before, archive)}
        contenders = {
            name: partial(through_mount, zarrfs, source, array) for name, (zarrfs, source) in mounts.items() if zarrfs
        }
        for library in () if given.only_zarrfs else LIBRARIES:
            contenders[library] = partial(by_library, library, path)
            contenders[f"{library} file"] = partial(by_library, library, path, f"/dev/shm/zarrfs-bench-{os.getpid()}.npy")
        if given.bare and not given.only_zarrfs:
            contenders["bare"] = lambda: by_bare(given.bare, given.mib)
        row, memory = f"{codec}, s", f"{codec} peak memory, MiB"
        for _ in range(given.reps):
            for name in random.sample(list(contenders), len(contenders)):
                warm(archive if codec == "deflate" or name.endswith("zip") else directory / codec)
                measured = contenders[name]()
                if measured:
                    add(results, row, name, measured[0])
                    if measured[1]:
                        add(results, memory, name, measured[1])
        seconds, peaks = results[row], results[memory]
        median = {name: statistics.median(values) for name, values in seconds.items()}
        best = [
            min((name for name in names if name in median), key=median.get, default=None)
            for names in (LIBRARIES, [f"{library} file" for library in LIBRARIES])
        ]
        print(f"{codec}: {given.mib} MiB")
        for name, value in sorted(median.items(), key=lambda pair: pair[1]):
            spread = f"{min(seconds[name]):.2f}..{max(seconds[name]):.2f}"
            is_library = name.removesuffix(" file") in LIBRARIES
            ratios = [f"{value / median[peer]:.2f} of {peer}" for peer in best if peer and not is_library]
            peak = f"  peak {max(peaks[name]):.0f} MiB" if name in peaks else ""
            print(f"  {name:16} {value:6.2f} s ({spread})  {given.mib / value:6.0f} MiB/s  {', '.join(ratios)}{peak}", flush=True)
    shared.write(given.json, results)


main()
