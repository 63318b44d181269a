#!/usr/bin/env python3
"""Measures the directory of views of a group against the number of its arrays; prints a table.

    scripts/bench-arrays groups [ARRAYS ...] [--reps N] [--json FILE] [--zarrfs FILE] [--before FILE]

Each command runs on a fresh mount. A cell has the seconds of the command and, in brackets, the processor seconds of the
daemon. The last column is the processor time per array, divided by that of the smallest group of at least 100 arrays:
1 if it grows with the number of arrays. Not a test: nothing here fails for being slow.
"""

import json
import os
import shutil
import statistics
import struct
import subprocess
import time
from pathlib import Path

import shared
from shared import add

WORK = shared.WORK / "groups"
COMMANDS = {
    "ls .zarrfs": "ls {}",
    "ls -l .zarrfs": "ls -l {}",
    "cat README.txt": "cat {}/README.txt",
    "cat views.json": "cat {}/views.json",
}
CHUNK = struct.pack("<100f", *range(100))


def array_v3(number, rows=10):
    return {
        "zarr_format": 3, "node_type": "array", "shape": [rows, 10], "data_type": "float32", "fill_value": 0.0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10, 10]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "dimension_names": ["y", "x"],
        "attributes": {"units": "K", "long_name": f"variable {number}"},
    }


def array_v2(number):
    array = {
        "zarr_format": 2, "shape": [10, 10], "chunks": [10, 10], "dtype": "<f4", "fill_value": 0.0, "order": "C",
        "compressor": None, "filters": None, "dimension_separator": ".",
    }
    return array, {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K", "long_name": f"variable {number}"}


def make_v2(group, arrays):
    copies = {".zgroup": {"zarr_format": 2}}
    for number in range(arrays):
        copies[f"v{number:05}/.zarray"], copies[f"v{number:05}/.zattrs"] = array_v2(number)
    for name, document in copies.items():
        write(group / name, json.dumps(document).encode())
    write(group / ".zmetadata", json.dumps({"zarr_consolidated_format": 1, "metadata": copies}).encode())
    for number in range(arrays):
        write(group / f"v{number:05}/0.0", CHUNK)


def make_v3(group, arrays, consolidated):
    root = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    copies = {f"v{number:05}": array_v3(number) for number in range(arrays)}
    if consolidated:
        root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": copies}
    write(group / "zarr.json", json.dumps(root).encode())
    for name, document in copies.items():
        write(group / name / "zarr.json", json.dumps(document).encode())
        write(group / name / "c/0/0", CHUNK)


def make_chunks(group, chunks):
    write(group / "zarr.json", json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode())
    write(group / "a/zarr.json", json.dumps(array_v3(0, chunks * 10)).encode())
    for chunk in range(chunks):
        write(group / f"a/c/{chunk}/0", CHUNK)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


KINDS = {
    "v3": lambda group, arrays: make_v3(group, arrays, False),
    "v3 consolidated": lambda group, arrays: make_v3(group, arrays, True),
    "v2 .zmetadata": make_v2,
}


def source(name, make, count):
    """Makes a store once; the directory is renamed when it is complete."""
    group = WORK / f"{name.replace(' ', '-')}-{count}.zarr"
    if not group.exists():
        unfinished = group.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        make(unfinished, count)
        unfinished.rename(group)
    return group


def cpu_seconds(mountpoint):
    pid = os.getxattr(mountpoint, "user.zarrfs.pid").decode()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(zarrfs, group, command, below=""):
    """Returns the seconds of a command on a fresh mount, and the processor seconds of the daemon."""
    mountpoint = WORK / "mnt"
    mountpoint.mkdir(parents=True, exist_ok=True)
    subprocess.run([zarrfs, group, mountpoint], check=True, stdout=subprocess.DEVNULL)
    try:
        before, start = cpu_seconds(mountpoint), time.perf_counter()
        views = mountpoint / below / ".zarrfs"
        subprocess.run(command.format(views), shell=True, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start, cpu_seconds(mountpoint) - before
    finally:
        subprocess.run([zarrfs, "umount", mountpoint], check=True)


def medians(given, results, row, *measured):
    """Measures as often as asked for each zarrfs; yields its name and the medians of seconds and processor seconds."""
    for name, binary in {"zarrfs": given.zarrfs, "before": given.before}.items():
        if binary:
            for _ in range(given.reps):
                for unit, value in zip(("s", "CPU s"), measure(binary.resolve(), *measured)):
                    add(results, f"{row}, {unit}", name, value)
            yield name, *(statistics.median(results[f"{row}, {unit}"][name]) for unit in ("s", "CPU s"))


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("arrays", nargs="*", type=int, default=[10, 100, 1000, 4000, 20000])
    parser.add_argument("--before", type=Path, help="another zarrfs to compare with")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    results = {}
    print("| | " + " | ".join(f"{count:,} arrays" for count in given.arrays) + " | growth |")
    for kind, make in KINDS.items():
        groups = [source(kind, make, count) for count in given.arrays]
        for label, command in COMMANDS.items():
            found = {}
            for count, group in zip(given.arrays, groups):
                for binary, wall, cpu in medians(given, results, f"{kind}, {count} arrays, {label}", group, command):
                    found.setdefault(binary, []).append((wall, cpu))
            for binary, figures in found.items():
                cells = [f"{wall:.2f} s ({cpu:.2f})" for wall, cpu in figures]
                per_array = [cpu / count for count, (_, cpu) in zip(given.arrays, figures) if count >= 100]
                growth = f"{per_array[-1] / per_array[0]:.1f}" if per_array and per_array[0] else ""
                print(f"| {kind}, `{label}`, {binary} | " + " | ".join(cells) + f" | {growth} |", flush=True)
    group = source("chunks", make_chunks, 1000)
    for command in ("ls -l {}", "ls -lR {}/chunks"):
        what = f"an array of 1,000 chunks, {command.format('.zarrfs')}"
        for binary, wall, cpu in medians(given, results, what, group, command, "a"):
            print(f"{what}, {binary}: {wall:.2f} s ({cpu:.2f})", flush=True)
    shared.write(given.json, results)


if __name__ == "__main__":
    main()
