#!/usr/bin/env python3
"""One table of zarrfs beside the best other program in each row that has an aim, from one run of the other benchmarks.

    scripts/bench-peers [--quick] [--zarrfs FILE] [--bare FILE]

The figures are medians. A ratio is that of the speeds, zarrfs to the other program (of sizes and counts: the other
program to zarrfs), so more than 1 is better. An aim is a ratio or, with a unit, a figure that zarrfs does not exceed.
Results and tables of each benchmark are in target/bench/peers. --quick has smaller inputs and fewer repetitions (12
minutes on two cores instead of 45, both after the inputs are made).
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from native_tree import ENTRIES, SMALL_KEYS, figure
from remote import CHUNKS
from shared import ROOT, WORK, exit_on_signals, run, say, speed_ratio

FOLDER = WORK / "peers"
MOUNTPOINT = WORK / "mountpoint/release/mountpoint"
LIBRARIES = ("zarrs", "tensorstore", "zarr-python")
FILES = tuple(f"{library} file" for library in LIBRARIES)
ARRAYS, KEY_MIB, DELAY_MS = 20_000, 512, 20


class Row(NamedTuple):
    title: str
    run: str
    # The name of the row in the results of the run, with its unit.
    row: str
    peers: tuple = ()
    # The least ratio to the best peer.
    ratio: float | None = None
    # The greatest value.
    most: float | None = None
    ours: str = "zarrfs"
    # The row of the peers, if it is another one.
    beside: str = ""
    # The contender whose value is taken off.
    less: str = ""


def runs(mib, is_quick):
    """The commands by the name of the run. The one that builds Mountpoint comes before the one that needs it."""
    reps, slow_reps = (["--reps", count] for count in (("2", "1") if is_quick else ("3", "3")))
    s3 = ["--server", "seaweed", "--ms", str(DELAY_MS), "--big-mib", "64"] if is_quick else ["--big-mib", "256"]
    return {
        "s3": ["bench-s3", "--only", "zarrfs", "mountpoint", "--keys", "2000", *s3, "--reps", "1" if is_quick else "2"],
        "dd": ["bench-remote", "big", "--mountpoint", MOUNTPOINT, "--big-mib", str(KEY_MIB), "--ms", "0", str(DELAY_MS), *reps],
        "native": ["bench-remote", "native_keys", "mounts", "--server", "nginx", "--ms", str(DELAY_MS), "--big-mib", str(KEY_MIB),
                   "--reps", "3" if is_quick else "5"],
        "dir": ["bench", "dir-keys", "--contenders", "bindfs", *reps],
        "list": ["bench", "list", "--contenders", "bare" if is_quick else "bare,fuse-zip", *slow_reps],
        "keys": ["bench", "keys", "--contenders", "bare,fuse-zip", *slow_reps],
        "arrays": ["bench-arrays", "zstd", "shard", "lz4", "deflate", "--mib", str(mib), *reps],
        "groups": ["bench-arrays", "groups", str(ARRAYS), *reps],
    }


def rows(mib, results):
    directory, zipped = f"directory of {SMALL_KEYS:,} small keys", f"zip of {ENTRIES:,} keys"
    yield Row(f"{directory}: open, read, close at random, 1 process", "dir", "dir-keys-1, /s", ("bindfs",), 1.2)
    yield Row("... after `ls -l` in the same mount", "dir", "dir-keys-listed, /s", ("bindfs",), 1.2)
    yield Row("... 4 processes", "dir", "dir-keys-4, /s", ("bindfs",), 1.2)
    yield Row("... `cat` of all", "dir", "dir-cat, /s", ("bindfs",), 1.1)
    yield Row("... system calls of the daemon for each key", "dir", "dir-calls, calls", ("bindfs",), most=13)
    yield Row(f"{zipped}: `ls -lR`", "list", "ls, s", ("bare", "fuse-zip"), 1.0)
    yield Row("... `find`", "list", "find, s", ("bare", "fuse-zip"), most=0.6)
    yield Row("... ready", "list", "ready, s", ("fuse-zip",), most=0.25)
    yield Row("... open, read, close at random, 1 process", "keys", "keys-1, /s", ("bare", "fuse-zip"), 1.0)
    yield Row("... 4 processes", "keys", "keys-4, /s", ("bare", "fuse-zip"), 1.0)
    for codec, what in (("zstd", "zstd"), ("shard", "shards of zstd"), ("lz4", "blosc lz4")):
        yield Row(f"{mib} MiB of {what}, directory: `.npy`, libraries write a file", "arrays", f"{codec}, s", FILES, 1.0)
        yield Row("... libraries read it into memory", "arrays", f"{codec}, s", LIBRARIES)
    yield Row(f"{mib} MiB in a deflated zip: `.npy`, libraries write a file", "arrays", "deflate, s", FILES, ours="zarrfs-zip")
    yield Row("... libraries read it into memory", "arrays", "deflate, s", LIBRARIES, ours="zarrfs-zip")
    yield Row("... peak memory", "arrays", "deflate peak memory, MiB", LIBRARIES, most=150, ours="zarrfs-zip")
    nginx = f"nginx +{DELAY_MS} ms"
    for tool, times, less in (("tar", 1.3, ""), ("rsync", 1.5, ""), ("zarr-python", 1.5, "local directory")):
        title = f"{nginx}, {CHUNKS} native keys: {tool}{', less its time on a ' + less if less else ''}"
        yield Row(title, "native", f"{nginx} native_keys {tool}, s", ("threads",), 1 / times, beside=f"{nginx} native_keys, s", less=less)
    for server in ("nginx", "s3"):
        for ms in (0, DELAY_MS):
            row = f"{server} +{ms} ms big, s"
            yield Row(f"`dd` of a key of {KEY_MIB} MiB, {server} +{ms} ms", "dd", row, ("curl",), 0.8)
            if server == "s3":
                yield Row("... beside Mountpoint", "dd", row, ("mountpoint",), 1.0)
    for kind in ("v3", "v3 consolidated", "v2 .zmetadata"):
        for what in ("ls .zarrfs", "cat README.txt"):
            yield Row(f"{ARRAYS:,} arrays in a group, {kind}: `{what}`", "groups", f"{kind}, {ARRAYS} arrays, {what}, s", most=0.5)
    for how in ("one after the other", "at the same time"):
        yield Row(f"keys of a remote zip through four mounts with one disk cache, {how}: bytes fetched", "native",
                  f"{nginx} mounts {how}, bytes", ("the zip",), 1 / 1.05)
    for row in results.get("s3", {}):
        if speed_ratio(row, 1, 1):
            yield Row(f"S3: {row.rpartition(', ')[0]}", "s3", row, ("mountpoint",), 1.0)


def line(row, results):
    """The cells of a row: zarrfs, the best peer, the ratio, the aim and whether it is met."""
    unit = row.row.rpartition(", ")[2]

    def medians(name):
        return {contender: statistics.median(values) for contender, values in results.get(row.run, {}).get(name, {}).items()}

    def shown(value):
        return f"{figure(value / 1e6)} MB" if unit == "bytes" else f"{figure(value)} {unit}"

    found = medians(row.row)
    aim = f"{shown(row.most)}" if row.most else f"{row.ratio:.2f}" if row.ratio else ""
    if row.ours not in found or row.less and row.less not in found:
        return "not measured", "", "", aim, "?" if aim else ""
    ours = found[row.ours] - found.get(row.less, 0)
    words = f"{shown(found[row.ours])} less {shown(found[row.less])}" if row.less else shown(ours)
    theirs = {peer: value for peer, value in medians(row.beside or row.row).items() if peer in row.peers}
    # Nothing is left of a time that is no longer than what is taken off it.
    ratios = {peer: (speed_ratio(row.row, ours, value) or value / ours) if ours > 0 else float("inf") for peer, value in theirs.items()}
    best = min(ratios, key=ratios.get, default=None)
    is_met = ours <= row.most if row.most else ratios[best] >= row.ratio if best and row.ratio else None
    verdict = {None: "?" if aim else "", True: "yes", False: "no"}[is_met]
    return (words, *((f"{best} {shown(theirs[best])}", f"{ratios[best]:.2f}") if best else ("", "")), aim, verdict)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--zarrfs", type=Path, default=ROOT / "target/release/zarrfs")
    parser.add_argument("--bare", type=Path)
    parser.add_argument("--run", nargs="+", help="only these benchmarks: " + " ".join(runs(0, True)))
    given = parser.parse_args()
    mib = 512 if given.quick else 2048
    FOLDER.mkdir(parents=True, exist_ok=True)
    exit_on_signals()
    results, failed = {}, []
    try:
        for name, (script, *arguments) in runs(mib, given.quick).items():
            if given.run and name not in given.run:
                continue
            say(f"{name}: {script} {' '.join(map(str, arguments))}")
            file = FOLDER / f"{name}.json"
            file.unlink(missing_ok=True)
            command = [ROOT / "scripts" / script, *arguments, "--zarrfs", given.zarrfs.resolve(), "--json", file]
            if name in ("dir", "list", "keys", "arrays") and given.bare:
                command += ["--bare", given.bare.resolve()]
            start = time.monotonic()
            with open(FOLDER / f"{name}.txt", "w") as log:
                status = run(command, stdout=log)
            say(f"{name}: {time.monotonic() - start:.0f} s")
            if status or not file.exists():
                failed.append(name)
            else:
                results[name] = json.loads(file.read_text())
    finally:
        print("| row | zarrfs | best peer | ratio | aim | met |\n|---|---|---|---|---|---|")
        for row in rows(mib, results):
            if not given.run or row.run in given.run:
                print("| " + " | ".join((row.title, *line(row, results))) + " |")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
