#!/usr/bin/env python3
"""Speed of reading a bucket, in the rows of Mountpoint's published benchmarks, beside Mountpoint.

    scripts/bench-s3 [ROW ...] [--reps N] [--ms N ...] [--server seaweed|rclone ...] [--big-mib N] [--keys N]
                     [--limit-mib N] [--json FILE] [--zarrfs FILE]

Rows: sequential sequential-4 direct-4 small small-4 random random-4 first-byte readdir; all by default.

    sequential    one file of --big-mib from its begin to its end, reads of 256 KiB
    sequential-4  four such files, a thread each; direct-4 the same with O_DIRECT
    small         files of 5 MiB one after the other; small-4 by four threads
    random        blocks of 256 KiB anywhere in one file; random-4 by four threads in four files
    first-byte    the time to open a file of 5 MiB and to read one byte, one file after the other in random order
    readdir       `ls` of a directory with --keys files, and `ls -l`

The servers are the S3 of SeaweedFS and `rclone serve s3` on this machine, each behind a program (delay.c) that counts
requests and adds 0 or 20 ms to each. Contenders: zarrfs; zarrfs with --memory-limit of --limit-mib; Mountpoint with
buffers of no limit, and of 512 MiB, the least that it takes; curl, where it is the same work. Each figure has a mount
of its own, and contenders take turns. Reads are made by fio, except first-byte and readdir. Each file is compared
with the true bytes once. Figures are medians, peak memory is the greatest resident size of the daemon.
"""
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import native_tree
import remote
import shared
from remote import BUCKET, Served, aws_environment, free_port, running, total
from shared import ROOT, say

WORK = shared.WORK / "s3"
ROWS = ("sequential", "sequential-4", "direct-4", "small", "small-4", "random", "random-4", "first-byte", "readdir")
SMALL_FILES, SMALL_BYTES = 64, 5 << 20
THREADS = 4
RANDOM_SECONDS = 3
# The rows whose figure is better when it is smaller.
TIMES = ("first-byte", "readdir", "ls -l")


def make_inputs(big_mib, keys):
    """Writes the bucket's files once; returns the directory that has the bucket."""
    root = WORK / "served"
    bucket = root / BUCKET
    wanted = f"{big_mib} {keys}"
    if (WORK / "done").exists() and (WORK / "done").read_text() == wanted:
        return root
    say(f"writing {root}")
    shutil.rmtree(root, ignore_errors=True)
    for name in ("big", "small", "many"):
        (bucket / name).mkdir(parents=True)
    (bucket / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    for number in range(THREADS):
        with open(bucket / f"big/{number}.bin", "wb") as file:
            for _ in range(big_mib):
                file.write(os.urandom(1 << 20))
    for number in range(SMALL_FILES):
        (bucket / f"small/{number:03}.bin").write_bytes(os.urandom(SMALL_BYTES))
    for number in range(keys):
        (bucket / f"many/{number}").write_bytes(b"x")
    (WORK / "done").write_text(wanted)
    return root


@contextmanager
def rclone(root):
    port = free_port()
    command = [ROOT / "tests/servers/.venv/bin/rclone", "serve", "s3", "--config", "/dev/null",
               "--addr", f"127.0.0.1:{port}", "--vfs-read-chunk-size", "0", root]
    with running(command, f"http://127.0.0.1:{port}/{BUCKET}/zarr.json", stderr=subprocess.DEVNULL):
        yield port


@contextmanager
def seaweed(root):
    with remote.seaweed(root / BUCKET) as port:
        yield port


class Contender:
    """A way to mount the bucket: `command` without the mountpoint, from the endpoint."""

    def __init__(self, name, command):
        self.name, self.command = name, command

    def mounted(self, endpoint):
        return native_tree.mounted(self.command(endpoint), known="zarr.json")


def contenders(given):
    def zarrfs(*options):
        return lambda endpoint: [given.zarrfs, "mount", "-f", f"s3://{BUCKET}/", "--anonymous", "--endpoint-url", endpoint,
                                 *options]

    def mountpoint(mib):
        return lambda endpoint: [given.mountpoint, BUCKET, endpoint, mib]

    limit = f"{given.limit_mib}MiB"
    found = [Contender("zarrfs", zarrfs()), Contender(f"zarrfs {limit}", zarrfs("--memory-limit", limit)),
             Contender("mountpoint", mountpoint(16 << 10)), Contender("mountpoint 512MiB", mountpoint(512))]
    return [contender for contender in found if (contender.name.startswith("zarrfs") or not given.only_zarrfs)
            and (not given.only or contender.name in given.only)]


# The measurements: each gives a figure for a mount.


def fio(files, *options):
    """Reads files with fio, a thread each; returns bytes a second."""
    command = ["fio", "--output-format=json", "--readonly", "--thread", "--bs=256k", "--ioengine=sync", "--invalidate=0",
               "--group_reporting", *options]
    for number, file in enumerate(files):
        command += [f"--name=job{number}", f"--filename={file}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout[done.stdout.index("{"):])
    return report["jobs"][0]["read"]["bw_bytes"]


def whole_files(place, threads):
    """Reads all small files; each of `threads` threads has its part."""
    command = f"printf '%s\\n' {place.root}/small/*.bin | xargs -P {threads} -n {SMALL_FILES // threads} cat | wc -c"
    begin = time.perf_counter()
    done = subprocess.run(command, shell=True, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if int(done.stdout) != SMALL_FILES * SMALL_BYTES:
        raise SystemExit(f"{done.stdout} bytes read of the small files")
    return {"": int(done.stdout) / seconds}


def first_byte(place):
    seconds = []
    # Nothing can be prefetched.
    for number in random.sample(range(SMALL_FILES), SMALL_FILES // 4):
        begin = time.perf_counter()
        with open(place.root / f"small/{number:03}.bin", "rb", buffering=0) as file:
            file.read(1)
        seconds.append(time.perf_counter() - begin)
    return {"": statistics.median(seconds)}


def readdir(place, keys):
    figures = {}
    for name, command in {"": ["ls"], "ls -l": ["ls", "-l"]}.items():
        begin = time.perf_counter()
        done = subprocess.run([*command, place.root / "many"], check=True, capture_output=True)
        figures[name] = time.perf_counter() - begin
        if done.stdout.count(b"\n") - bool(name) != keys:
            raise SystemExit(f"not {keys} names in {place.root}/many")
    return figures


def measure(row, place, given):
    """Returns figures: bytes a second, or seconds, by the part of the row."""
    kind, _, threads = row.partition("-")
    if row == "first-byte":
        return first_byte(place)
    if row == "readdir":
        return readdir(place, given.keys)
    count = int(threads or 1)
    if kind == "small":
        return whole_files(place, count)
    options = {
        "sequential": ["--rw=read"],
        "direct": ["--rw=read", "--direct=1"],
        "random": ["--rw=randread", f"--runtime={RANDOM_SECONDS}", "--randrepeat=0"],
    }[kind]
    return {"": fio([place.root / f"big/{number}.bin" for number in range(count)], *options)}


def curl(row, place, given):
    """The same bytes without a mount, or None."""
    if row not in ("sequential", "sequential-4", "small-4"):
        return None
    folder, files = ("small", SMALL_FILES) if row == "small-4" else ("big", 1 if row == "sequential" else THREADS)
    names = [f"{number:03}" if folder == "small" else str(number) for number in range(files)]
    urls = [word for name in names for word in ("-o", "/dev/null", place.url(f"{folder}/{name}.bin"))]
    command = ["curl", "--silent", "--no-progress-meter", "--fail", "--noproxy", "*", "--parallel", "--parallel-max", str(THREADS), *urls]
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    size = SMALL_BYTES if folder == "small" else given.big_mib << 20
    return files * size / (time.perf_counter() - begin)


def check(contender, place, root):
    """Compares every file with the true one."""
    def digest(path):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    with contender.mounted(f"http://127.0.0.1:{place.port}") as mount:
        for folder in ("big", "small"):
            for file in sorted((root / BUCKET / folder).iterdir()):
                if digest(file) != digest(mount.root / folder / file.name):
                    raise SystemExit(f"WRONG DATA: {file.name} of {contender.name} from {place.name}")


def shown(row, figure):
    return f"{figure:.2f} s" if row in ("readdir", "ls -l") else f"{figure * 1e3:.1f} ms" if row in TIMES else f"{figure / 2**20:.0f} MiB/s"


def table(results, names):
    """Rows of the report: a contender's median, and its ratio to Mountpoint (above 1 is faster)."""
    for (where, row), found in results.items():
        for name in [*names, "curl"]:
            if not found.get(name):
                continue
            figure = statistics.median(one["figure"] for one in found[name])
            ratio = beside = ""
            if name.startswith("zarrfs") and found.get("mountpoint"):
                peer = statistics.median(one["figure"] for one in found["mountpoint"])
                ratio, beside = peer / figure if row in TIMES else figure / peer, f"mountpoint {shown(row, peer)}"
            spread = f"{shown(row, min(one['figure'] for one in found[name]))} to {shown(row, max(one['figure'] for one in found[name]))}"
            peak = [one["mib"] for one in found[name] if "mib" in one]
            requests = statistics.median(one["requests"] for one in found[name])
            yield (where, row, name, shown(row, figure), spread, f"{max(peak):.0f} MiB" if peak else "", f"{requests:.0f}",
                   beside, f"{ratio:.2f}" if ratio else "")


def report(results, names, file):
    """Prints the table, and writes all values to a file if there is one."""
    head = ("where", "row", "contender", "median", "range", "peak memory", "requests", "beside it", "ratio")
    lines = [head, *table(results, names)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip(), flush=True)
    values = {}
    for (where, row), found in results.items():
        for name, measured in found.items():
            for one in measured:
                figure = (f"{row}, s", one["figure"]) if row in TIMES else (f"{row}, MB/s", one["figure"] / 1e6)
                more = ((f"{row} {name}, {unit}", one[name]) for name, unit in (("mib", "MiB"), ("requests", "requests")) if name in one)
                for what, value in (figure, *more):
                    shared.add(values, f"{where} {what}", name, value)
    shared.write(file, values)


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW")
    parser.add_argument("--ms", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--server", nargs="+", choices=("seaweed", "rclone"), default=["seaweed", "rclone"])
    parser.add_argument("--big-mib", type=int, default=256)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--limit-mib", type=int, default=512)
    parser.add_argument("--only", nargs="+", metavar="CONTENDER")
    parser.add_argument("--mountpoint", type=Path, default=ROOT / "target/bench/mountpoint/release/mountpoint")
    given = parser.parse_args()
    environment = aws_environment()
    os.environ.clear()
    os.environ.update(environment)
    WORK.mkdir(parents=True, exist_ok=True)
    remote.WORK.mkdir(parents=True, exist_ok=True)
    native_tree.WORK.mkdir(parents=True, exist_ok=True)
    root = make_inputs(given.big_mib, given.keys)
    ways = contenders(given)
    results = {}
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = []
        for kind in given.server:
            port = stack.enter_context({"seaweed": seaweed, "rclone": rclone}[kind](root))
            for milliseconds in given.ms:
                log = logs / f"{kind}-{milliseconds}"
                # Both speak S3: the kind says how a URL looks.
                place = Served("s3", port, milliseconds, log, ROOT / "target/bench/delay")
                place.kind_shown = f"{kind} +{milliseconds} ms"
                stack.callback(place.close)
                places.append(place)
        for place in places[::len(given.ms)]:
            for contender in ways:
                say(f"comparing {contender.name} {place.kind_shown}")
                check(contender, place, root)
        # Also after an interruption.
        stack.callback(report, results, [contender.name for contender in ways], given.json)
        for number in range(given.reps):
            for row in given.rows or ROWS:
                for place in places:
                    say(f"{number + 1}/{given.reps} {row} {place.kind_shown}")
                    for contender in ways:
                        with contender.mounted(f"http://127.0.0.1:{place.port}") as mount:
                            place.requests()
                            figures = measure(row, mount, given)
                            sent = total(place.requests())["requests"]
                            for part, figure in figures.items():
                                found = results.setdefault((place.kind_shown, part or row), {})
                                one = {"figure": figure, "mib": mount.peak_mib(), "requests": sent}
                                found.setdefault(contender.name, []).append(one)
                    figure = None if given.only_zarrfs else curl(row, place, given)
                    if figure:
                        found = results[place.kind_shown, row]
                        found.setdefault("curl", []).append({"figure": figure, "requests": total(place.requests())["requests"]})


if __name__ == "__main__":
    main()
