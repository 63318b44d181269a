#!/usr/bin/env python3
"""Speed and memory of the native tree, beside a plain directory and other mounts.

    scripts/bench [GROUP ...] [--reps N] [--contenders NAME,...] [--json FILE]
                  [--zarrfs FILE] [--before FILE]

Groups: list keys chunks cold middle big deflate dir dir-keys; all by default. Inputs are made once, under
target/bench (about 12 GB of disk). Every repetition mounts anew, so that the kernel knows nothing
of the mount, and has the contenders one after the other, in another order each time; the sources
are in the page cache (but in `cold`). Figures are medians over the repetitions; ratios are taken
within a repetition first. `bare` is a file system that replies from memory (bare.rs): the cost of
FUSE itself; `before` is another zarrfs. If a virtual machine returns free memory to its host, memory that was unused for
a while is several times slower to write than other memory. Therefore each run allocates and frees
as much memory as it will fill, right before it starts. Sources are read right before a run too, because caches may be
dropped at any time by other processes. Contenders that are not installed are omitted.
"""
import array
import contextlib
import fcntl
import math
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import time
import zlib
from pathlib import Path

import shared
from shared import WORK, say

MIB = 1 << 20
ENTRIES, SMALL_KEYS = 1_000_000, 100_000
CHUNK_BYTES, CHUNKS = 2 * MIB, 512
MIDDLE_BYTES, MIDDLES = 650_000, 1600
BIG_BYTES = 1024 * MIB
INFLATED, DISTINCT = 256, 16
BLOCK_BYTES = 65536
SPAN_S = "2"
FULL_16, FULL_32 = 0xFFFF, 0xFFFFFFFF


# ---------------------------------------------------------------- inputs

class ZipWriter:
    """Entries are given whole, encoded or not; zip64 records wherever a field is too small."""

    def __init__(self, path):
        self.path, self.offset, self.count, self.directory = path, 0, 0, []
        self.file = open(f"{path}.new", "wb", buffering=4 * MIB)

    def add(self, name, data, inflated=None):
        """`inflated` is (size, crc32) of a deflated entry."""
        name = name.encode()
        size, crc = inflated or (len(data), zlib.crc32(data))
        method = 8 if inflated else 0
        common = struct.pack("<HHHHHIII", 45, 0x800, method, 0, 0x5821, crc, len(data), size)
        wide = self.offset >= FULL_32
        extra = struct.pack("<HHQ", 1, 8, self.offset) if wide else b""
        self.directory.append(
            b"PK\1\2" + struct.pack("<H", 3 << 8 | 45) + common
            + struct.pack("<HHHHHII", len(name), len(extra), 0, 0, 0, 0o100644 << 16,
                          FULL_32 if wide else self.offset) + name + extra)
        header = b"PK\3\4" + common + struct.pack("<HH", len(name), 0) + name
        self.file.write(header)
        self.file.write(data)
        self.offset += len(header) + len(data)
        self.count += 1

    def close(self):
        directory = b"".join(self.directory)
        end = self.offset + len(directory)
        self.file.write(directory)
        self.file.write(b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, self.count, self.count,
                                                len(directory), self.offset))
        self.file.write(b"PK\6\7" + struct.pack("<IQI", 0, end, 1))
        self.file.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, min(self.count, FULL_16),
                                                min(self.count, FULL_16), min(len(directory), FULL_32),
                                                min(self.offset, FULL_32), 0))
        self.file.close()
        os.rename(f"{self.path}.new", self.path)


def noise(_arena=[]):
    if not _arena:
        _arena.append(memoryview(random.Random(1).randbytes(64 * MIB)))
    return _arena[0]


def small(index):
    """A compressed chunk of 100 to 1023 bytes."""
    return noise()[index * 61 % (63 * MIB):][:100 + index * 2654435761 % 924]


def piece(index, size):
    return noise()[index * 40503 % (60 * MIB):][:size]


def zip_of(count, content):
    def write(path):
        writer = ZipWriter(path)
        for index in range(count):
            writer.add(f"a/{index}", content(index))
        writer.close()
    return write


def directory_of(count, content):
    def write(path):
        os.makedirs(f"{path}.new/a")
        for index in range(count):
            with open(f"{path}.new/a/{index}", "wb", buffering=0) as file:
                file.write(content(index))
        os.rename(f"{path}.new", path)
    return write


def big_zip(path):
    writer = ZipWriter(path)
    writer.add("a/0", bytes(noise()) * (BIG_BYTES // len(noise())))
    writer.close()


def big_directory(path):
    os.makedirs(f"{path}.new/a")
    with open(f"{path}.new/a/0", "wb") as file:
        for _ in range(BIG_BYTES // len(noise())):
            file.write(noise())
    os.rename(f"{path}.new", path)


def deflated_zip(path):
    """Smooth floats with noise in the low bits, 10 mantissa bits cut off."""
    rng, writer, pieces = random.Random(2), ZipWriter(path), []
    for number in range(DISTINCT):
        values = array.array("f", (280 + 20 * math.sin(i / 700 + number) + rng.gauss(0, .05)
                                   for i in range(CHUNK_BYTES // 4 // 8)))
        words = array.array("I", values.tobytes())
        cut = array.array("I", (word & ~0x3FF for word in words)).tobytes()
        data = b"".join(cut[shift * 4:] + cut[:shift * 4] for shift in range(0, 8 * 4099, 4099))
        engine = zlib.compressobj(6, zlib.DEFLATED, -15)
        pieces.append((engine.compress(data) + engine.flush(), (len(data), zlib.crc32(data))))
    for index in range(INFLATED):
        writer.add(f"a/{index}", *pieces[index % DISTINCT])
    writer.close()


INPUTS = {
    "entries.zip": zip_of(ENTRIES, small),
    "entries": directory_of(ENTRIES, small),
    "small": directory_of(SMALL_KEYS, small),
    "chunks.zip": zip_of(CHUNKS, lambda i: piece(i, CHUNK_BYTES)),
    "chunks": directory_of(CHUNKS, lambda i: piece(i, CHUNK_BYTES)),
    "middle.zip": zip_of(MIDDLES, lambda i: piece(i, MIDDLE_BYTES)),
    "middle": directory_of(MIDDLES, lambda i: piece(i, MIDDLE_BYTES)),
    "big.zip": big_zip,
    "big": big_directory,
    "deflated.zip": deflated_zip,
}


def need(name):
    path = WORK / name
    if not path.exists():
        say(f"making {path}")
        shutil.rmtree(f"{path}.new", ignore_errors=True)
        INPUTS[name](path)
        os.sync()
    return path


def forget_pages(path):
    """Takes the pages of a file, or of the files of a directory, out of the page cache."""
    os.sync()
    for file in [path] if path.is_file() else path.glob("a/*"):
        with open(file, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def list_file(name, numbers):
    path = WORK / f"{name}.list"
    path.write_text("".join(f"a/{number}\n" for number in numbers))
    return path


# ---------------------------------------------------------------- contenders

class Place:
    """Where a contender shows the tree; `daemon` is its process, if it has one."""

    def __init__(self, root, daemon=None, ready_s=None):
        self.root, self.daemon, self.ready_s = root, daemon, ready_s

    def peak_mib(self):
        for line in Path(f"/proc/{self.daemon.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return None

    def cpu_s(self):
        if not self.daemon:
            return 0.0
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_mounted(path):
    return any(line.split()[1] == str(path) for line in open("/proc/mounts"))


def unmount(path):
    command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    for _ in range(50):
        if not is_mounted(path):
            return
        subprocess.run([*command, str(path)], stderr=subprocess.DEVNULL)
        time.sleep(0.02)
    subprocess.run([*command, "-l" if os.geteuid() == 0 else "-z", str(path)])


@contextlib.contextmanager
def mounted(command, known="a/0", number=iter(range(10**9))):
    """Runs `command MOUNTPOINT` in the foreground until the block ends."""
    # Never the same twice: an unmounting daemon must not meet the next one's mount.
    mountpoint = WORK / "mnt" / str(next(number))
    mountpoint.mkdir(parents=True)
    with open(WORK / "daemons.log", "a") as log:
        begin = time.perf_counter()
        daemon = subprocess.Popen([*map(str, command), str(mountpoint)], stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log)
    try:
        while not os.path.exists(mountpoint / known):
            if daemon.poll() is not None or time.perf_counter() - begin > 60:
                raise RuntimeError(f"{command[0]} did not mount; see {WORK}/daemons.log")
            time.sleep(0.001)
        yield Place(mountpoint, daemon, time.perf_counter() - begin)
    finally:
        unmount(mountpoint)
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        mountpoint.rmdir()


class Bench:
    def __init__(self, options):
        self.options = options
        self.values = {}
        # The path that each contender reads, and its keys, if not all.
        self.reads, self.keys_read = {}, []

    def contenders(self, source=None, directory=None, bare=None):
        """Ways to see the same tree, by name: functions that give a context with a [`Place`]."""
        def mount(binary):
            return lambda: mounted([binary, "mount", "-f", "--force", source])

        ways = {"zarrfs": mount(self.options.zarrfs)}
        if self.options.before:
            ways["before"] = mount(self.options.before)
        self.reads = {"zarrfs": source, "before": source, "fuse-zip": source, "ext4": directory, "bindfs": directory}
        if directory:
            ways["ext4"] = lambda: contextlib.nullcontext(Place(directory))
        if directory and shutil.which("bindfs"):
            ways["bindfs"] = lambda: mounted(["bindfs", "-f", "-r", directory])
        if source.suffix == ".zip" and shutil.which("fuse-zip"):
            ways["fuse-zip"] = lambda: mounted(["fuse-zip", "-f", "-r", source])
        if bare and self.options.bare:
            def floor():
                # Options come behind the mountpoint there.
                return mounted(["sh", "-c", 'exec "$0" "$2" "$1"', self.options.bare, bare])
            ways["bare"] = floor
        return {name: way for name, way in ways.items() if self.wants(name)}

    def wants(self, name):
        wanted = "" if self.options.only_zarrfs else self.options.contenders
        return wanted is None or name in ("zarrfs", "before", *wanted.split(","))

    def need_directory(self, name):
        """The directory with the keys of a zip, if a contender reads it."""
        return need(name) if self.wants("ext4") or self.wants("bindfs") else None

    def add(self, metric, contender, value):
        shared.add(self.values, metric, contender, value)

    def rounds(self, ways):
        """Each repetition's contenders, in another order each time."""
        for repetition in range(self.options.reps):
            names = list(ways)
            shift = repetition % len(names)
            for name in names[shift:] + names[:shift]:
                yield name, ways[name]

    def timed(self, place, metric, contender, command, amount=None):
        """Adds seconds, or `amount` a second, and the daemon's processor time."""
        cpu, begin = place.cpu_s(), time.perf_counter()
        run = subprocess.run(command, shell=isinstance(command, str), cwd=place.root,
                             stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
        seconds = time.perf_counter() - begin
        if run.returncode:
            raise RuntimeError(f"{contender}: {command} failed")
        if command[0] == self.options.randread:
            operations, _, seconds = run.stdout.split()
            amount, seconds = float(operations), float(seconds)
        self.add(metric, contender, amount / seconds if amount else seconds)
        self.add(f"{metric} daemon", contender, place.cpu_s() - cpu)
        return run.stdout

    def touch(self, mib):
        """Has free memory be memory (see the top)."""
        subprocess.run([self.options.randread, "touch", str(mib)], check=True)

    @contextlib.contextmanager
    def at(self, name, way, mib, is_warm=True):
        """A contender's place, with `mib` MiB of memory at hand for the kernel's caches of it."""
        source = self.reads.get(name)
        self.touch(256)
        if source and is_warm and source.is_file():
            self.warm(source)
        with way() as place:
            self.touch(mib)
            if source and is_warm:
                self.warm(source)
            yield place

    def warm(self, source):
        if source.is_dir() and self.keys_read:
            for names in self.keys_read:
                subprocess.run([self.options.randread, "keys", "2", "60", str(names)], check=True, cwd=source,
                               stdout=subprocess.DEVNULL)
        else:
            shared.warm(source)

    def keys(self, place, metric, contender, processes, names):
        self.timed(place, metric, contender, [self.options.randread, "keys", str(processes), SPAN_S, str(names)])

    # ------------------------------------------------------------ groups

    def list(self):
        source, directory = need("entries.zip"), self.need_directory("entries")
        ways = self.contenders(source, directory, f"a:{ENTRIES}:550")
        ways.pop("bindfs", None)
        # Only names and attributes are read.
        self.reads["ext4"] = None
        listed = set()
        for name, way in self.rounds(ways):
            with self.at(name, way, 2048) as place:
                if name in ("zarrfs", "before", "fuse-zip"):
                    self.add("ready", name, place.ready_s)
                    self.add("memory", name, place.peak_mib())
                if name == "fuse-zip" and name in listed:
                    continue  # A quarter of a minute each: once is enough.
                listed.add(name)
                found = self.timed(place, "find", name, "find . | wc -l")
                if int(found) != ENTRIES + 2:
                    raise RuntimeError(f"{name}: find says {found}")
                self.timed(place, "stat", name, "find . -size +9M > /dev/null")
                if name in ("zarrfs", "before", "fuse-zip"):
                    self.add("memory-listed", name, place.peak_mib())
            if name != "fuse-zip":
                with self.at(name, way, 2048) as place:
                    self.timed(place, "ls", name, "ls -lR > /dev/null")

    def keys_group(self, source, directory, bare, count, prefix):
        order = list(range(count))
        random.Random(3).shuffle(order)
        if count > SMALL_KEYS:
            cuts, cat = (60_000, 180_000), range(SMALL_KEYS)
        else:
            cuts, cat = (count // 3, count), range(count)
        one = list_file(f"{prefix}one", order[:cuts[0]])
        four = list_file(f"{prefix}four", order[cuts[0]:cuts[1]])
        all_of = list_file(f"{prefix}cat", cat)
        self.keys_read = [one, four, all_of] if directory else []
        for name, way in self.rounds(self.contenders(source, directory, bare)):
            with self.at(name, way, 768) as place:
                self.keys(place, f"{prefix}keys-1", name, 1, one)
                self.keys(place, f"{prefix}keys-4", name, 4, four)
            with self.at(name, way, 768) as place:
                for metric in (f"{prefix}cat", f"{prefix}cat-again"):
                    self.timed(place, metric, name, f"xargs cat < {all_of} > /dev/null", len(cat))
        self.keys_read = []

    def group_keys(self):
        source, directory = need("entries.zip"), self.need_directory("entries")
        self.keys_group(source, directory, f"a:{ENTRIES}:550", ENTRIES, "")

    def cat_chunks(self, ways, prefix, count, mib):
        names = list_file(f"{prefix}all", range(count))
        for name, way in self.rounds(ways):
            with self.at(name, way, 1280) as place:
                self.timed(place, prefix, name, f"xargs cat < {names} > /dev/null", mib)
                self.timed(place, f"{prefix}-again", name, f"xargs cat < {names} > /dev/null", mib)
            with self.at(name, way, 1280) as place:
                self.timed(place, f"{prefix}-2", name, f"xargs -P 2 -n {count // 2} cat < {names} > /dev/null", mib)

    def chunks(self):
        source, directory = need("chunks.zip"), self.need_directory("chunks")
        ways = self.contenders(source, directory, f"a:{CHUNKS}:{CHUNK_BYTES}")
        self.cat_chunks(ways, "chunks", CHUNKS, CHUNKS * CHUNK_BYTES / 1e6)

    def cold(self):
        source, directory = need("chunks.zip"), need("chunks")
        names = list_file("cold", range(CHUNKS // 2))
        ways = self.contenders(source, directory)
        for name, way in self.rounds(ways):
            forget_pages(source)
            forget_pages(directory)
            with self.at(name, way, 1280, is_warm=False) as place:
                self.timed(place, "cold", name, f"xargs cat < {names} > /dev/null", CHUNKS / 2 * CHUNK_BYTES / 1e6)

    def middle(self):
        source, directory = need("middle.zip"), self.need_directory("middle")
        order = list(range(MIDDLES))
        random.Random(4).shuffle(order)
        one = list_file("middle1", order[:MIDDLES // 2])
        four = list_file("middle4", order[MIDDLES // 2:])
        for name, way in self.rounds(self.contenders(source, directory, f"a:{MIDDLES}:{MIDDLE_BYTES}")):
            with self.at(name, way, 1280) as place:
                self.keys(place, "middle-1", name, 1, one)
                self.keys(place, "middle-4", name, 4, four)

    def big(self):
        source, directory = need("big.zip"), self.need_directory("big")
        blocks = [self.options.randread, "blocks", "1", SPAN_S, str(BLOCK_BYTES), "a/0"]
        for name, way in self.rounds(self.contenders(source, directory, f"a:1:{BIG_BYTES}")):
            with self.at(name, way, 1280) as place:
                self.timed(place, "big", name, "cat a/0 > /dev/null", BIG_BYTES / 1e6)
                self.timed(place, "big-again", name, "cat a/0 > /dev/null", BIG_BYTES / 1e6)
            if name == "fuse-zip":
                continue  # It reads an entry from its beginning.
            with self.at(name, way, 1280) as place:
                self.timed(place, "blocks", name, blocks)
                self.timed(place, "blocks-again", name, blocks)

    def deflate(self):
        source = need("deflated.zip")
        decoded_mb = INFLATED * CHUNK_BYTES / 1e6
        for repetition in range(0 if self.options.only_zarrfs else self.options.reps):
            with open(source, "rb") as file:
                packed = memoryview(file.read())
            at, seconds = 0, 0.0
            for _ in range(DISTINCT * 4):
                length, name = struct.unpack_from("<I", packed, at + 18)[0], struct.unpack_from("<H", packed, at + 26)[0]
                begin = time.perf_counter()
                zlib.decompress(packed[at + 30 + name:][:length], -15, CHUNK_BYTES)
                seconds += time.perf_counter() - begin
                at += 30 + name + length
            for metric in ("deflate", "deflate-2"):
                self.add(metric, "zlib, one core", DISTINCT * 4 * CHUNK_BYTES / 1e6 / seconds)
            if shutil.which("unzip"):
                self.timed(Place(WORK), "deflate", "unzip -p", f"unzip -p {source} > /dev/null", decoded_mb)
        self.cat_chunks(self.contenders(source), "deflate", INFLATED, decoded_mb)

    def dir(self):
        directory = need("chunks")
        ways = self.contenders(directory, directory)
        self.cat_chunks(ways, "dir", CHUNKS, CHUNKS * CHUNK_BYTES / 1e6)

    def dir_keys(self):
        directory = need("small")
        self.keys_group(directory, directory, f"a:{SMALL_KEYS}:550", SMALL_KEYS, "dir-")
        one = WORK / "dir-one.list"
        self.keys_read = [one]
        for name, way in self.rounds(self.contenders(directory, directory, f"a:{SMALL_KEYS}:550")):
            with self.at(name, way, 768) as place:
                subprocess.run(["ls", "-l", "a"], cwd=place.root, check=True, stdout=subprocess.DEVNULL)
                self.keys(place, "dir-keys-listed", name, 1, one)
            if name != "ext4" and shutil.which("strace"):
                with self.at(name, way, 256) as place:
                    self.add("dir-calls", name, self.calls(place, one))
        self.keys_read = []

    def calls(self, place, names):
        """Returns the system calls of a daemon for each small key that a process reads."""
        counts = WORK / "strace"
        tracer = subprocess.Popen(["strace", "-f", "-c", "-U", "calls,name", "-q", "-o", counts, "-p", str(place.daemon.pid)])
        # Traced when all its threads are.
        tasks = Path(f"/proc/{place.daemon.pid}/task")
        while not all(f"TracerPid:\t{tracer.pid}\n" in (task / "status").read_text() for task in tasks.iterdir()):
            if tracer.poll() is not None:
                raise RuntimeError("strace does not trace the daemon")
            time.sleep(0.01)
        run = subprocess.run([self.options.randread, "keys", "1", SPAN_S, names], cwd=place.root, check=True, capture_output=True)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        total, _ = counts.read_text().splitlines()[-1].split()
        return int(total) / int(run.stdout.split()[0])


GROUPS = {"list": Bench.list, "keys": Bench.group_keys, "chunks": Bench.chunks, "cold": Bench.cold,
          "middle": Bench.middle, "big": Bench.big, "deflate": Bench.deflate, "dir": Bench.dir, "dir-keys": Bench.dir_keys}

# Metric: description, unit, whether less is better, target, and the contender of which the target is a
# share (none: the target is a figure in the unit).
ROWS = {
    "ready": ("zip of 1,000,000 entries: ready", "s", True, 0.25, None),
    "memory": ("... peak memory when ready", "MiB", True, 100, None),
    "memory-listed": ("... peak memory after both finds", "MiB", True, None, None),
    "find": ("find over it, names only", "s", True, 0.6, None),
    "ls": ("ls -lR over it, first thing", "s", True, 3, None),
    "stat": ("find -size over it (stat of each), after a find", "s", True, None, None),
    "keys-1": ("open+read+close of random small keys, 1 process", "/s", False, 40_000, None),
    "keys-4": ("... 4 processes", "/s", False, 100_000, None),
    "cat": ("cat of 100,000 small keys", "/s", False, 35_000, None),
    "cat-again": ("... again", "/s", False, 0.95, "ext4"),
    "chunks": ("stored entries of 2 MiB: cat", "MB/s", False, 2500, None),
    "chunks-2": ("... 2 readers", "MB/s", False, None, None),
    "chunks-again": ("... again", "MB/s", False, 0.95, "ext4"),
    "cold": ("stored entries of 2 MiB: cat, source not in the page cache", "MB/s", False, None, None),
    "middle-1": ("random stored entries of 0.65 MB, 1 process", "/s", False, 3000, None),
    "middle-4": ("... 4 processes", "/s", False, None, None),
    "big": ("one stored entry of 1 GiB: cat", "MB/s", False, 0.8, "bare"),
    "big-again": ("... again", "MB/s", False, 0.95, "ext4"),
    "blocks": ("random 64 KiB of it", "/s", False, 1 / 1.2, "bare"),
    "blocks-again": ("... again", "/s", False, 0.95, "ext4"),
    "deflate": ("deflated entries of 2 MiB: cat, 1 reader", "MB/s", False, None, None),
    "deflate-2": ("... 2 readers", "MB/s", False, 2, "fuse-zip"),
    "deflate-again": ("... again", "MB/s", False, None, None),
    "dir": ("directory, keys of 2 MiB: cat", "MB/s", False, 0.95, "ext4"),
    "dir-2": ("... 2 readers", "MB/s", False, 0.95, "ext4"),
    "dir-again": ("... again", "MB/s", False, 0.95, "ext4"),
    "dir-keys-1": ("directory of 100,000 small keys: random, 1 process", "/s", False, None, None),
    "dir-keys-listed": ("... after ls -l in the same mount", "/s", False, None, None),
    "dir-keys-4": ("... 4 processes", "/s", False, None, None),
    "dir-calls": ("... system calls of the daemon for each key", "calls", True, None, None),
    "dir-cat": ("... cat of all", "/s", False, None, None),
    "dir-cat-again": ("... again", "/s", False, None, None),
}


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values):
    return f"{figure(statistics.median(values))} ({figure(min(values))}..{figure(max(values))})"


def ratios(ours, theirs):
    return [a / b for a, b in zip(ours, theirs)]


def judge(values, target, whom, less):
    """Whether the target is met, and the target in words."""
    if target is None:
        return "", ""
    if whom is None:
        ours = statistics.median(values["zarrfs"])
        return ("yes" if (ours <= target if less else ours >= target) else "NO"), figure(target)
    if whom not in values:
        return "?", f"{target:.2f} of {whom}"
    share = statistics.median(ratios(values["zarrfs"], values[whom]))
    return ("yes" if share >= target else "NO"), f"{target:.2f} of {whom}"


def table(values):
    lines = ["| | unit | zarrfs (min..max) | daemon CPU s | others: median (min..max), zarrfs/other | target | met |",
             "|---|---|---|---|---|---|---|"]
    for metric, (title, unit, less, target, whom) in ROWS.items():
        of = values.get(metric, {})
        if "zarrfs" not in of:
            continue
        others = "; ".join(f"{name} {spread(theirs)}, {statistics.median(ratios(of['zarrfs'], theirs)):.2f}"
                           for name, theirs in of.items() if name != "zarrfs")
        cpu = values.get(f"{metric} daemon", {}).get("zarrfs")
        met, words = judge(of, target, whom, less)
        lines.append(f"| {title} | {unit} | {spread(of['zarrfs'])} | {figure(statistics.median(cpu)) if cpu else ''} "
                     f"| {others} | {words} | {met} |")
    return "\n".join(lines)


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], metavar="GROUP", help=" ".join(GROUPS))
    parser.add_argument("--contenders", metavar="NAME,...", help="only these: ext4 bindfs fuse-zip bare")
    parser.add_argument("--before", type=Path, help="another zarrfs to compare with")
    parser.add_argument("--bare", type=Path, help="the bare file system; left out if not given")
    parser.add_argument("--randread", default=str(WORK / "randread"))
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    lock = open(WORK / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Left by a run that was killed.
    for line in open("/proc/mounts"):
        if line.split()[1].startswith(f"{WORK}/mnt/"):
            unmount(Path(line.split()[1]))
    shutil.rmtree(WORK / "mnt", ignore_errors=True)
    bench = Bench(options)
    try:
        for group in options.groups or GROUPS:
            say(group)
            GROUPS[group](bench)
    finally:
        if bench.values:
            print(table(bench.values))
            units = {metric: unit for metric, (_, unit, *_) in ROWS.items()}
            shared.write(options.json, {f"{metric}, {units.get(metric, 'CPU s')}": of for metric, of in bench.values.items()})
    left = [name for name in ("bindfs", "fuse-zip", "unzip", "strace") if not shutil.which(name)]
    if left:
        say("not installed, left out:", *left)


if __name__ == "__main__":
    main()
