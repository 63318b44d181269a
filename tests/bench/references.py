#!/usr/bin/env python3
"""Speed and requests of reference stores, beside fsspec, tensorstore and plain threads.

    scripts/bench-references [MEASURE ...] [--reps N] [--ms N ...] [--json FILE] [--zarrfs FILE]

Measures: `variable`, which reads one variable of 40 references into one file on nginx as `.npy`, whose ranges
lie together, or 1 MiB apart, behind a program that counts requests and adds 0 or 20 ms to each; `keys`, which
reads its 40 native keys with `cat`; and `ready`, the time until a mount of 1,000,000 references is ready, and
its memory.

Beside the variable: 16 threads that fetch the same ranges, zarr-python over fsspec's file system of the
same references, and tensorstore over the same chunks as objects of their own. Beside the keys: the same 16
threads, and fsspec's file system of the same references, which reads the keys one after the other, with 16
threads, and all with one call. All are timed without their imports. A mount is new for every figure. Figures are medians over the repetitions.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import remote
import shared
from remote import CHUNKS, DATA, MOUNT, VARIABLE, WORK
from shared import ROOT, say

MEASURES = ("variable", "keys", "ready")
LAYOUTS = {"together": 0, "apart": 1 << 20}
REFERENCES = 1_000_000
LARGE = shared.WORK / "references"
PEERS = ("threads", "fsspec", "tensorstore", "fsspec loop", "fsspec threads", "fsspec call")
PYTHONS = {name: ROOT / f"tests/{name}/.venv/bin/python" for name in ("references", "icechunk")}

RANGES = """
import json, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def size(of):
    url, start, length = of
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-{start + length - 1}"})
    with opener.open(request) as answer:
        assert answer.status == 206
        return len(answer.read())
ranges = json.loads(sys.argv[1])
start = time.perf_counter()
with ThreadPoolExecutor(16) as pool:
    total = sum(pool.map(size, ranges))
print(time.perf_counter() - start, total)
"""

FSSPEC = """
import sys, time
import aiohttp, fsspec, zarr
start = time.perf_counter()
files = fsspec.filesystem("reference", fo=sys.argv[1], remote_protocol="http", asynchronous=True,
                          remote_options={"asynchronous": True})
store = zarr.storage.FsspecStore(files, read_only=True)
total = zarr.open_array(store, path=sys.argv[2], mode="r", zarr_format=2)[...].nbytes
print(time.perf_counter() - start, total)
"""


FSSPEC_KEYS = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import aiohttp, fsspec
start = time.perf_counter()
files = fsspec.filesystem("reference", fo=sys.argv[1], remote_protocol="http", skip_instance_cache=True)
keys, way = sorted(key for key in files.references if key.startswith(sys.argv[2] + "/") and "/.z" not in key), sys.argv[3]
if way == "loop":
    values = list(map(files.cat_file, keys))
elif way == "threads":
    with ThreadPoolExecutor(16) as pool:
        values = list(pool.map(files.cat_file, keys))
else:
    values = list(files.cat(keys).values())
print(time.perf_counter() - start, sum(map(len, values)))
"""


def make_variable(served):
    """The chunks of the variable in one file each layout, and references to them with relative targets."""
    source = served / "many" / VARIABLE
    names = sorted((file.name for file in source.iterdir() if file.name[0] != "."), key=lambda name: [int(n) for n in name.split(".")])
    assert len(names) == CHUNKS
    for layout, gap in LAYOUTS.items():
        folder = served / "references"
        folder.mkdir(exist_ok=True)
        refs = {".zgroup": '{"zarr_format": 2}', f"{VARIABLE}/.zarray": (source / ".zarray").read_text()}
        with open(folder / f"{layout}.dat", "wb") as data:
            for name in names:
                chunk = (source / name).read_bytes()
                refs[f"{VARIABLE}/{name}"] = [f"{layout}.dat", data.tell(), len(chunk)]
                data.write(chunk)
                data.write(os.urandom(gap))
        (folder / f"{layout}.json").write_text(json.dumps({"version": 1, "refs": refs}))


def make_large():
    LARGE.mkdir(parents=True, exist_ok=True)
    if not (LARGE / "done").exists():
        say(f"writing {REFERENCES} references")
        for path in LARGE.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        kerchunk = [PYTHONS["references"], ROOT / "tests/references/make.py", "large", str(REFERENCES)]
        subprocess.run([*kerchunk, LARGE / "large.json", LARGE / "large.parq"], check=True)
        icechunk = [PYTHONS["icechunk"], ROOT / "tests/icechunk/make.py", "large", LARGE / "large.icechunk"]
        subprocess.run([*icechunk, str(REFERENCES)], check=True)
        (LARGE / "done").touch()


class Bench(remote.Bench):
    def read_variable(self, served):
        return {layout: self.layout(served, layout) for layout in LAYOUTS}

    def read_keys(self, served):
        return {layout: self.keys_of(served, layout) for layout in LAYOUTS}

    def timed(self, served, python, program, *arguments):
        served.requests()
        command = [python, "-c", program, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return {"s": float(done.stdout.split()[0]), **remote.total(served.requests())}

    def absolute(self, served, layout):
        """Writes the references with absolute URLs; returns the file and the ranges."""
        references = json.loads((self.served_dir / f"references/{layout}.json").read_text())
        url = served.url(f"references/{layout}.dat")
        targets = [value for value in references["refs"].values() if isinstance(value, list)]
        ranges = [[url, offset, length] for _, offset, length in targets]
        for value in targets:
            value[0] = url
        absolute = WORK / "absolute.json"
        absolute.write_text(json.dumps(references))
        return absolute, ranges

    def keys_of(self, served, layout):
        absolute, ranges = self.absolute(served, layout)
        result = {"threads": self.timed(served, sys.executable, RANGES, json.dumps(ranges))} if self.has_peers else {}
        with self.mounted(served, f"references/{layout}.json"):
            served.requests()
            start = time.perf_counter()
            subprocess.run(f"cat {MOUNT}/{VARIABLE}/*.*.* > /dev/null", shell=True, check=True)
            result["cat"] = {"s": time.perf_counter() - start, **remote.total(served.requests())}
        for way in ("loop", "threads", "call") if self.has_peers else ():
            result[f"fsspec {way}"] = self.timed(served, sys.executable, FSSPEC_KEYS, absolute, VARIABLE, way)
        return result

    def layout(self, served, layout):
        absolute, ranges = self.absolute(served, layout)
        file = MOUNT / VARIABLE / ".zarrfs" / f"{VARIABLE}.npy"
        result = {"threads": self.timed(served, sys.executable, RANGES, json.dumps(ranges))} if self.has_peers else {}
        with self.mounted(served, f"references/{layout}.json"):
            served.requests()
            result["npy"] = self.cat(served, file)
            self.check(served, layout, file, DATA / "tas.npy")
        if self.has_peers:
            result["fsspec"] = self.timed(served, sys.executable, FSSPEC, absolute, VARIABLE)
            spec = {"driver": "zarr", "kvstore": served.store(f"many/{VARIABLE}/")}
            result["tensorstore"] = self.tensorstore(served, spec)
        return result


def ready(zarrfs):
    """Seconds until the mount is ready, and MiB of memory then and after the first key."""
    result = {}
    for kind in ("json", "parq", "icechunk"):
        directory = Path(tempfile.mkdtemp(prefix="zarrfs-bench-"))
        command = [zarrfs, LARGE / f"large.{kind}", directory, "--allow-target", "any"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        try:
            array = "large" if kind == "icechunk" else "variable"
            chunk = f"c/{REFERENCES - 1}" if kind == "icechunk" else str(REFERENCES - 1)
            start = time.perf_counter()
            (directory / array / chunk).stat()
            first = time.perf_counter() - start
            pid = os.getxattr(directory, "user.zarrfs.pid").decode()
            status = Path(f"/proc/{pid}/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        finally:
            subprocess.run([zarrfs, "umount", directory], check=True)
            directory.rmdir()
        result[kind] = {"s": seconds, "first_s": first, "mib": peak}
    return result


def median(results, *path):
    return remote.median(results, *path)


def rows(where, results, name, what, peers, best):
    """The rows of one figure: seconds beside those of the peers, of which `best` are compared with; requests."""
    is_delayed = not where.endswith("+0 ms")
    for layout in LAYOUTS:
        def of(*path):
            return median(results, layout, *path)

        seconds = {peer: of(peer, "s") for peer in peers}
        beside = ", ".join(f"{peer} {value:.3f} s" for peer, value in seconds.items())
        figure = f"{of(what, 's'):.3f} s, {of(what, 'requests'):.0f} requests, {of(what, 'bytes') / 1e6:.1f} MB"
        ratio = of(what, "s") / min(seconds[peer] for peer in best)
        is_met = ratio <= 1.3 if is_delayed else None
        yield remote.row(where, f"{name}, {layout}", figure, beside, ratio, "<= 1.3 at 20 ms", is_met)
        most = CHUNKS + 4
        yield remote.row(where, "  its requests", f"{of(what, 'requests'):.0f}", target=f"<= {most}", is_met=of(what, "requests") <= most)


def variable_rows(where, results):
    peers = ("threads", "fsspec", "tensorstore")
    yield from rows(where, results, ".npy", "npy", peers, ("fsspec", "tensorstore"))


def keys_rows(where, results):
    fsspec = tuple(f"fsspec {way}" for way in ("loop", "threads", "call"))
    yield from rows(where, results, "cat of 40 keys", "cat", ("threads", *fsspec), fsspec)


def ready_rows(results):
    for kind, aim in (("json", 0.5), ("parq", 0.1), ("icechunk", 0.1)):
        seconds, mib = median(results, kind, "s"), median(results, kind, "mib")
        figure = f"{seconds:.3f} s, first key {median(results, kind, 'first_s'):.3f} s, peak {mib:.0f} MiB"
        yield remote.row("local", f"mount of {REFERENCES} references, {kind}", figure, "", None, f"{aim} s, 200 MiB", seconds <= aim and mib <= 200)


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []], metavar="MEASURE")
    parser.add_argument("--ms", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--big-mib", type=int, default=512, help=argparse.SUPPRESS)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/bench", help=argparse.SUPPRESS)
    given = parser.parse_args()
    measures = given.measures or MEASURES
    WORK.mkdir(parents=True, exist_ok=True)
    results, found_ready = {}, []
    shown = {"variable": variable_rows, "keys": keys_rows}
    served_measures = [name for name in shown if name in measures]
    if served_measures:
        served_dir = remote.make_inputs(given.big_mib)
        make_variable(served_dir)
        bench = Bench(given, served_dir)
        with ExitStack() as stack:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            port = stack.enter_context(remote.nginx(served_dir))
            places = []
            for milliseconds in given.ms:
                place = remote.Served("nginx", port, milliseconds, logs / str(milliseconds), given.programs / "delay")
                stack.callback(place.close)
                places.append(place)
            for number in range(given.reps):
                for place in places:
                    for name in served_measures:
                        say(f"{number + 1}/{given.reps} {name} {place.name}")
                        found = getattr(bench, f"read_{name}")(place)
                        results.setdefault(place.name, {}).setdefault(name, []).append(found)
    if "ready" in measures:
        make_large()
        for number in range(given.reps):
            say(f"{number + 1}/{given.reps} ready")
            found_ready.append(ready(given.zarrfs))
    shared.write(given.json, shared.flat({**results, "ready": found_ready}, PEERS))
    if given.only_zarrfs:
        return
    table = [row for where, measured in results.items() for name, found in measured.items() for row in shown[name](where, found)]
    if found_ready:
        table.extend(ready_rows(found_ready))
    remote.show(table)


if __name__ == "__main__":
    main()
