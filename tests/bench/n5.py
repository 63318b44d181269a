#!/usr/bin/env python3
"""Speed of decoded N5 blocks: `cat x.npy` through the mount of N5 beside that of Zarr v2.

    scripts/bench-n5 [CODEC ...] [--mib N] [--reps N] [--json FILE] [--zarrfs FILE]

Codecs: raw zstd gzip blosc; all by default. The same array of big-endian float32 in blocks of 4 MiB is
written by zarr-python 2 as N5 and as Zarr v2 with nested keys. Each repetition has both, one after the
other, with the files in the page cache. Figures are medians; the ratio is that of N5 to Zarr v2, and
should not exceed 1.1.
"""
import random
import statistics
import subprocess
import time
import warnings

import numcodecs as nc
import numpy as np
import zarr

import shared
from shared import say, warm

WORK = shared.WORK / "n5"
PLANE = 1024
CODECS = {"raw": None, "zstd": nc.Zstd(1), "gzip": nc.GZip(1), "blosc": nc.Blosc("lz4", 5, 1)}
KINDS = ("n5", "v2")


def make(path, kind, mib):
    """Waves with a little noise; each plane is a block."""
    warnings.simplefilter("ignore")
    store = zarr.N5Store(str(path)) if kind == "n5" else zarr.NestedDirectoryStore(str(path))
    root = zarr.open_group(store, mode="w")
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:PLANE, 0:PLANE].astype("f4")
    dtype = "<f4" if kind == "n5" else ">f4"
    chunks = (1, PLANE, PLANE)
    arrays = [root.create_dataset(name, shape=(mib // 4, PLANE, PLANE), chunks=chunks, dtype=dtype, compressor=codec)
              for name, codec in CODECS.items()]
    for i in range(mib // 4):
        plane = 280 + 15 * np.sin((x + 3 * i) / 97) + 0.05 * rng.standard_normal((PLANE, PLANE))
        plane = (np.round(plane * 64) / 64).astype("f4")
        for array in arrays:
            array[i : i + 1] = plane[None]


def cat(zarrfs, source, codec):
    mountpoint = WORK / "mnt"
    mountpoint.mkdir(parents=True, exist_ok=True)
    subprocess.run([zarrfs, "mount", source, mountpoint], check=True)
    try:
        start = time.perf_counter()
        subprocess.run(["cat", mountpoint / codec / ".zarrfs" / f"{codec}.npy"], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start
    finally:
        subprocess.run([zarrfs, "umount", mountpoint], check=True)


def main():
    parser = shared.options_of(__doc__, reps=5)
    parser.add_argument("codecs", nargs="*", choices=[*CODECS, []], metavar="CODEC")
    parser.add_argument("--mib", type=int, default=512)
    given = parser.parse_args()
    sources = {kind: WORK / f"{kind}-{given.mib}" for kind in KINDS}
    for kind, path in sources.items():
        if not path.exists():
            say(f"writing {path.name}")
            make(path, kind, given.mib)
    results = {}
    for codec in given.codecs or CODECS:
        seconds = {kind: [] for kind in KINDS}
        for path in sources.values():
            warm(path / codec)
        for _ in range(given.reps):
            for kind in random.sample(KINDS, len(KINDS)):
                seconds[kind].append(cat(given.zarrfs, sources[kind], codec))
        n5, v2 = (statistics.median(seconds[kind]) for kind in KINDS)
        spread = "  ".join(f"{kind} {min(s):.2f}..{max(s):.2f} s" for kind, s in seconds.items())
        print(f"{codec:6} {given.mib} MiB  n5 {n5:.2f} s  v2 {v2:.2f} s  ratio {n5 / v2:.2f}  ({spread})", flush=True)
        results.update({f"{codec} {kind}, s": {"zarrfs": values} for kind, values in seconds.items()})
    shared.write(given.json, results)


main()
