#!/usr/bin/env python3
"""How the cost of a mount grows with its work; prints tables.

    scripts/bench-growth [ROW ...] [--reps N] [--most-keys N] [--zarrfs FILE]

Rows: keys chunks readers; all by default. `scripts/bench-arrays groups` has the row of arrays in a group. The last
column is the cost per unit of the largest work, divided by that of the smallest one that takes at least 20 ms: 1 if the
cost grows with the work, less if it grows slower. Each figure is the median of fresh mounts, with the source in the page
cache. Not a test: nothing here fails for being slow.
"""
import argparse
import json
import statistics
import subprocess
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import native_tree
from native_tree import MIB, ROOT, WORK, ZipWriter, mounted, say

# Work that takes less is mostly the start of a program, in seconds.
MEASURABLE_S = 0.02
CHUNK_BYTES = 64 << 10
MOST_CHUNKS = 4096
READERS = (1, 2, 4, 8, 16, 32, 64)


def growth(work, costs):
    """The cost per unit of the last work, divided by that of the first that can be measured."""
    measurable = [(units, cost) for units, cost in zip(work, costs) if cost >= MEASURABLE_S]
    if len(measurable) < 2:
        return ""
    (first, first_cost), (last, last_cost) = measurable[0], measurable[-1]
    return f"{last_cost / last / (first_cost / first):.2f}"


def table(title, work, unit, rows):
    """Prints a table; `rows` has the text of each cell and, if it is a cost, the seconds."""
    print(f"| {title} | " + " | ".join(f"{units:,} {unit}" for units in work) + " | growth |")
    print("|---" * (len(work) + 2) + "|")
    for name, cells, seconds in rows:
        last = growth(work, seconds) if seconds else ""
        print(f"| {name} | " + " | ".join(cells) + f" | {last} |", flush=True)
    print()


def seconds_of(command, place):
    begin = time.perf_counter()
    subprocess.run(command, shell=True, check=True, cwd=place.root, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def zip_of_keys(count):
    path = WORK / f"growth-{count}.zip"
    if not path.exists():
        say(f"making {path}")
        writer = ZipWriter(path)
        for index in range(count):
            writer.add(f"a/{index}", b"0123456789")
        writer.close()
    path.read_bytes()
    return path


def array_of_chunks():
    """A zip with one array of bytes: chunks of 64 KiB, compressed with zlib."""
    path = WORK / "growth-chunks.zip"
    if not path.exists():
        say(f"making {path}")
        writer = ZipWriter(path)
        writer.add(".zarray", json.dumps({
            "zarr_format": 2, "shape": [MOST_CHUNKS * CHUNK_BYTES], "chunks": [CHUNK_BYTES], "dtype": "|u1", "order": "C",
            "fill_value": 0, "filters": None, "compressor": {"id": "zlib", "level": 1},
        }).encode())
        for index in range(MOST_CHUNKS):
            part = bytes(value & 15 for value in native_tree.piece(index, CHUNK_BYTES))
            writer.add(str(index), zlib.compress(part, 1))
        writer.close()
    path.read_bytes()
    return path


def mount(options, source, known):
    return mounted([options.zarrfs, "mount", "-f", "--force", source], known)


def keys(options):
    counts = [10 ** power for power in range(3, 8) if 10 ** power <= options.most_keys]
    ready, find, memory = [], [], []
    for count in counts:
        source, found = zip_of_keys(count), []
        for _ in range(options.reps):
            with mount(options, source, "a/0") as place:
                found.append((place.ready_s, seconds_of("find . | wc -l", place), place.peak_mib()))
        for column, values in zip((ready, find, memory), zip(*found)):
            column.append(statistics.median(values))
    table("zip", counts, "keys", [
        ("ready", [f"{value:.3f} s" for value in ready], ready),
        ("`find`", [f"{value:.3f} s" for value in find], find),
        ("peak memory", [f"{value:.0f} MiB" for value in memory], None),
    ])


def chunks(options):
    counts = [4 ** power for power in range(7)]
    whole, random = [], []
    for count in counts:
        source, found = array_of_chunks(), []
        size = count * CHUNK_BYTES
        for _ in range(options.reps):
            with mount(options, source, ".zarrfs/array.bin") as place:
                block = min(size, 16 * MIB)
                first = seconds_of(f"dd if=.zarrfs/array.bin bs={block} count={size // block} status=none", place)
            with mount(options, source, ".zarrfs/array.bin") as place:
                # One byte of each chunk, from the last to the first: nothing is read ahead.
                begin = time.perf_counter()
                with open(place.root / ".zarrfs/array.bin", "rb", buffering=0) as file:
                    for chunk in reversed(range(count)):
                        file.seek(chunk * CHUNK_BYTES)
                        file.read(1)
                found.append((first, time.perf_counter() - begin))
        for column, values in zip((whole, random), zip(*found)):
            column.append(statistics.median(values))
    table("array, chunks of 64 KiB", counts, "chunks", [
        ("read in order", [f"{value * 1000:.1f} ms" for value in whole], whole),
        ("one byte of each, backwards", [f"{value * 1000:.1f} ms" for value in random], random),
    ])


def readers(options):
    source, speeds, memory = array_of_chunks(), [], []
    size = MOST_CHUNKS * CHUNK_BYTES
    for count in READERS:
        found = []
        for _ in range(options.reps):
            with mount(options, source, ".zarrfs/array.bin") as place:
                part = size // count // MIB

                def read(number):
                    seconds_of(f"dd if=.zarrfs/array.bin bs=1M count={part} skip={part * number} status=none", place)

                begin = time.perf_counter()
                with ThreadPoolExecutor(count) as pool:
                    list(pool.map(read, range(count)))
                found.append((size / 1e6 / (time.perf_counter() - begin), place.peak_mib()))
        for column, values in zip((speeds, memory), zip(*found)):
            column.append(statistics.median(values))
    table("the same array, each reader its part", READERS, "readers", [
        ("all together", [f"{value:.0f} MB/s" for value in speeds], None),
        ("peak memory", [f"{value:.0f} MiB" for value in memory], None),
    ])


ROWS = {"keys": keys, "chunks": chunks, "readers": readers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--most-keys", type=int, default=10**6, help="10000000 needs 3 GB of disk and of memory to make")
    parser.add_argument("--zarrfs", type=Path, default=ROOT / "target/release/zarrfs")
    options = parser.parse_args()
    options.zarrfs = options.zarrfs.resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    for row in options.rows or ROWS:
        ROWS[row](options)


if __name__ == "__main__":
    main()
