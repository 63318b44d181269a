#!/usr/bin/env python3
"""How the cost of a mount grows with its work; prints tables.

    scripts/bench-growth [ROW ...] [--reps N] [--most-keys N] [--json FILE] [--zarrfs FILE]

Rows: keys chunks readers; all by default. `scripts/bench-arrays groups` has the row of arrays in a group. The last
column is the cost per unit of the largest work, divided by that of the smallest one that takes at least 20 ms: 1 if the
cost grows with the work, less if it grows slower. Each figure is the median of fresh mounts, with the source in the page
cache. Not a test: nothing here fails for being slow.
"""
import json
import statistics
import subprocess
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import native_tree
import shared
from native_tree import MIB, WORK, ZipWriter, mounted
from shared import add, say

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


def table(title, work, unit, results, rows):
    """Prints a table; `rows` has the name of each with its unit, and the format of a cell."""
    print(f"| {title} | " + " | ".join(f"{units:,} {unit}" for units in work) + " | growth |")
    print("|---" * (len(work) + 2) + "|")
    for name, form in rows:
        values = [statistics.median(results[f"{title}, {units} {unit}, {name}"]["zarrfs"]) for units in work]
        last = growth(work, values) if name.endswith(", s") else ""
        print(f"| {name.rpartition(', ')[0]} | " + " | ".join(map(form.format, values)) + f" | {last} |", flush=True)
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


def keys(options, results):
    counts = [10 ** power for power in range(3, 8) if 10 ** power <= options.most_keys]
    for count in counts:
        source, row = zip_of_keys(count), f"zip, {count} keys,"
        for _ in range(options.reps):
            with mount(options, source, "a/0") as place:
                add(results, f"{row} ready, s", "zarrfs", place.ready_s)
                add(results, f"{row} `find`, s", "zarrfs", seconds_of("find . | wc -l", place))
                add(results, f"{row} peak memory, MiB", "zarrfs", place.peak_mib())
    rows = [("ready, s", "{:.3f} s"), ("`find`, s", "{:.3f} s"), ("peak memory, MiB", "{:.0f} MiB")]
    table("zip", counts, "keys", results, rows)


def chunks(options, results):
    counts = [4 ** power for power in range(7)]
    title = "array of chunks of 64 KiB"
    for count in counts:
        source, row = array_of_chunks(), f"{title}, {count} chunks,"
        size = count * CHUNK_BYTES
        for _ in range(options.reps):
            with mount(options, source, ".zarrfs/array.bin") as place:
                block = min(size, 16 * MIB)
                whole = f"dd if=.zarrfs/array.bin bs={block} count={size // block} status=none"
                add(results, f"{row} read in order, s", "zarrfs", seconds_of(whole, place))
            with mount(options, source, ".zarrfs/array.bin") as place:
                # One byte of each chunk, from the last to the first: nothing is read ahead.
                begin = time.perf_counter()
                with open(place.root / ".zarrfs/array.bin", "rb", buffering=0) as file:
                    for chunk in reversed(range(count)):
                        file.seek(chunk * CHUNK_BYTES)
                        file.read(1)
                add(results, f"{row} one byte of each, backwards, s", "zarrfs", time.perf_counter() - begin)
    rows = [("read in order, s", "{:.4f} s"), ("one byte of each, backwards, s", "{:.4f} s")]
    table(title, counts, "chunks", results, rows)


def readers(options, results):
    source, title = array_of_chunks(), "the same array, each reader its part"
    size = MOST_CHUNKS * CHUNK_BYTES
    for count in READERS:
        row = f"{title}, {count} readers,"
        for _ in range(options.reps):
            with mount(options, source, ".zarrfs/array.bin") as place:
                part = size // count // MIB

                def read(number):
                    seconds_of(f"dd if=.zarrfs/array.bin bs=1M count={part} skip={part * number} status=none", place)

                begin = time.perf_counter()
                with ThreadPoolExecutor(count) as pool:
                    list(pool.map(read, range(count)))
                add(results, f"{row} all together, MB/s", "zarrfs", size / 1e6 / (time.perf_counter() - begin))
                add(results, f"{row} peak memory, MiB", "zarrfs", place.peak_mib())
    table(title, READERS, "readers", results, [("all together, MB/s", "{:.0f} MB/s"), ("peak memory, MiB", "{:.0f} MiB")])


ROWS = {"keys": keys, "chunks": chunks, "readers": readers}


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW")
    parser.add_argument("--most-keys", type=int, default=10**6, help="10000000 needs 3 GB of disk and of memory to make")
    options = parser.parse_args()
    options.zarrfs = options.zarrfs.resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    results = {}
    for row in options.rows or ROWS:
        ROWS[row](options, results)
    shared.write(options.json, results)


if __name__ == "__main__":
    main()
