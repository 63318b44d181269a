#!/usr/bin/env python3
"""Speed and requests of remote sources, beside tensorstore and curl.

    scripts/bench-remote [MEASURE ...] [--reps N] [--ms N ...] [--server nginx|s3 ...] [--big-mib N]
                         [--mountpoint FILE] [--json FILE] [--zarrfs FILE]

Measures: find native_keys var zip zip_keys mounts disk big random index list; all but `list` by default. `native_keys`
reads the 40 native keys of one variable with ordinary tools, beside 16 threads that fetch the same keys without a mount;
`mounts` reads all keys of a zip through four mounts with one disk cache, in another order each; `big` has the Mountpoint
of scripts/bench-s3 beside it if its program is given; `index` mounts a zip of a million entries twice with a disk
cache; `list` runs find over 100,000 chunks in a bucket, beside the same LIST requests one after the other (S3 alone;
filling the server takes minutes).

The servers are nginx and the S3 of SeaweedFS on this machine, each behind a program (delay.c) that
counts requests and bodies and adds 0 or 20 ms to every request. The maximum throughput of that program is
measured in the same run. A mount is new for every figure, so nothing is cached but at the servers;
`cat` is timed without the mount, tensorstore without its import. Figures are medians. Everything is
compared with the true bytes once, before it is timed.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import native_tree
import shared
from shared import ROOT, say

WORK = shared.WORK / "remote"
DATA = WORK / "data"
MOUNT = WORK / "mnt"
DEFAULT_MEASURES = ("find", "native_keys", "var", "zip", "zip_keys", "mounts", "disk", "big", "random", "index")
MEASURES = (*DEFAULT_MEASURES, "list")
LISTED_CHUNKS = 100_000
ZIP_ENTRIES = 1_000_000
# Names in results that are not of zarrfs.
PEERS = ("threads", "tensorstore", "curl", "curl without the delay", "mountpoint", "LIST alone", "local directory", "the zip")
SHAPE, CHUNK, CHUNKS = (240, 180, 360), (24, 90, 180), 40
VARIABLE = "tas"
BUCKET = "bench"

TENSORSTORE = """
import json, sys, time
import tensorstore as ts
start = time.perf_counter()
array = ts.open(json.loads(sys.argv[1]), read=True, open=True).result()
opened = time.perf_counter()
bytes_ = array.read().result().nbytes
print(opened - start, time.perf_counter() - opened, bytes_)
"""

# The shortest way to the bytes of all keys: a request each, 16 at a time.
THREADS = """
import sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
urls = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def size(url):
    with opener.open(url) as answer:
        return len(answer.read())
start = time.perf_counter()
with ThreadPoolExecutor(16) as pool:
    total = sum(pool.map(size, urls))
print(time.perf_counter() - start, total)
"""

# A client that reads keys of the mount.
ZARR_PYTHON = """
import sys, time
import zarr
start = time.perf_counter()
array = zarr.open_array(sys.argv[1], mode="r")
total = array[...].nbytes
print(time.perf_counter() - start, total)
"""

# Every page of a flat listing, one after the other.
LISTS = """
import re, sys, time, urllib.parse, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
url, token, keys = sys.argv[1], None, 0
start = time.perf_counter()
while True:
    query = {"list-type": "2", "prefix": sys.argv[2], **({"continuation-token": token} if token else {})}
    with opener.open(url + "?" + urllib.parse.urlencode(query)) as answer:
        page = answer.read().decode()
    keys += page.count("<Key>")
    found = re.search("<NextContinuationToken>(.*?)</NextContinuationToken>", page)
    if not found:
        break
    token = found[1].replace("&amp;", "&")
print(time.perf_counter() - start, keys)
"""

NGINX = """
%(user)s
daemon off;
worker_processes 2;
pid %(dir)s/pid;
error_log %(dir)s/errors warn;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    default_type application/octet-stream;
    keepalive_requests 1000000;
    sendfile on;
    server { listen 127.0.0.1:%(port)d; location / { root "%(root)s"; } }
}
"""


# Inputs


def make_many(root):
    """A hierarchy of 999 keys as climate models write them; one of its variables is real."""
    import numcodecs
    import numpy as np
    import zarr

    blosc = numcodecs.Blosc("zstd", 3, 1)
    group = zarr.create_group(root, zarr_format=2, attributes={"title": "many keys"})

    def add(name, values, dims, chunks):
        array = group.create_array(
            name, shape=values.shape, chunks=chunks, dtype=values.dtype, compressors=blosc,
            attributes={"_ARRAY_DIMENSIONS": dims, "units": "1"})
        array[...] = values

    days, rows, columns = SHAPE
    y = np.linspace(0, 3, rows, dtype="f4")[None, :, None]
    x = np.linspace(0, 6.28, columns, dtype="f4")[None, None, :]
    t = np.arange(days, dtype="f4")[:, None, None]
    noise = np.random.default_rng(0).standard_normal(SHAPE, dtype="f4") * np.float32(0.1)
    values = 20 * np.sin(y) * np.cos(x + t * np.float32(0.05)) + noise
    # Rounded as instruments do.
    bits = values.view("u4")
    bits &= np.uint32(0xFFFFFFFF << 11 & 0xFFFFFFFF)
    dims = ["time", "lat", "lon"]
    add(VARIABLE, values, dims, CHUNK)
    small = np.arange(1, 41, dtype="f4").reshape(10, 2, 2)
    for number in range(22):
        add(f"v{number:02}", small, dims, (1, 1, 1))
    for number in range(10):
        add(f"w{number}", np.arange(4, dtype="f8"), ["x"], (4,))
    zarr.consolidate_metadata(root, zarr_format=2)
    np.save(DATA / "tas.npy", values)


def keys_below(root):
    return sorted(str(file.relative_to(root)) for file in Path(root).rglob("*") if file.is_file())


def make_entries(path):
    """An archive of a flat array of one-byte chunks."""
    document = {"zarr_format": 2, "shape": [ZIP_ENTRIES], "chunks": [1], "dtype": "|u1", "compressor": None,
                "fill_value": 0, "order": "C", "filters": None}
    temporary = path.with_suffix(".new")
    with zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr(".zgroup", '{"zarr_format": 2}')
        archive.writestr("a/.zarray", json.dumps(document))
        for number in range(ZIP_ENTRIES):
            archive.writestr(zipfile.ZipInfo(f"a/{number}"), b"x")
    temporary.rename(path)


def make_chunks():
    """A directory with a flat array of one-byte chunks."""
    root = DATA / "chunks"
    array = root / "chunks/a"
    if not (DATA / "chunks-done").exists():
        shutil.rmtree(root, ignore_errors=True)
        array.mkdir(parents=True)
        document = {"zarr_format": 2, "shape": [LISTED_CHUNKS], "chunks": [1], "dtype": "|u1", "compressor": None,
                    "fill_value": 0, "order": "C", "filters": None}
        (root / "chunks/.zgroup").write_text('{"zarr_format": 2}')
        (array / ".zarray").write_text(json.dumps(document))
        for number in range(LISTED_CHUNKS):
            (array / str(number)).write_bytes(b"x")
        (DATA / "chunks-done").touch()
    return root


def make_inputs(big_mib):
    served = DATA / "served"
    if not (DATA / "done").exists():
        say(f"writing {DATA}")
        shutil.rmtree(DATA, ignore_errors=True)
        served.mkdir(parents=True)
        make_many(str(served / "many"))
        with zipfile.ZipFile(served / "many.zip", "w") as archive:
            for key in keys_below(served / "many"):
                archive.write(served / "many" / key, key)
        (DATA / "done").touch()
    archive = served / "entries.zip"
    if not archive.exists():
        say(f"writing a zip of {ZIP_ENTRIES} entries")
        make_entries(archive)
    big = served / "large/big.bin"
    if not big.exists() or big.stat().st_size != big_mib << 20:
        say(f"writing {big_mib} MiB of random bytes")
        big.parent.mkdir(exist_ok=True)
        (big.parent / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
        with open(big, "wb") as file:
            for _ in range(big_mib):
                file.write(os.urandom(1 << 20))
    return served


# Servers


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return "/dir/assign" not in url
    except OSError:
        return False


@contextmanager
def running(command, *urls, **options):
    """Runs a server until the end of the block; starts the block when all URLs respond."""
    server = subprocess.Popen(command, **options)
    try:
        end = time.monotonic() + 60
        while not all(answers(url) for url in urls):
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} does not answer")
            time.sleep(0.05)
        yield server
    finally:
        server.terminate()
        try:
            server.wait(timeout=2)
        except subprocess.TimeoutExpired:
            # SeaweedFS ends slowly, and its data are not needed.
            server.kill()
            server.wait()


@contextmanager
def nginx(served):
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        user = "user root;" if os.geteuid() == 0 else ""
        config = Path(folder) / "config"
        config.write_text(NGINX % {"user": user, "dir": folder, "port": port, "root": served})
        command = ["/usr/sbin/nginx", "-p", folder, "-e", "stderr", "-c", config]
        with running(command, f"http://127.0.0.1:{port}/many/.zgroup", stderr=subprocess.DEVNULL):
            yield port


@contextmanager
def seaweed(served, volume_servers=1):
    names = ("master", "volume", "filer", "s3")
    options = [f"{name}.port{kind}" for name in names for kind in ("", ".grpc")]
    ports = {option: free_port() for option in options}
    servers = ROOT / "tests/servers"
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        command = [
            servers / ".venv/bin/weed", "-logtostderr=true", "server", "-master.telemetry=false",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.port.iceberg=0",
            "-s3.port.lance=0", "-volume.max=100", "-master.volumeSizeLimitMB=512", f"-dir={folder}",
            f"-filer.localSocket={folder}/filer.sock", f"-s3.localSocket={folder}/s3.sock",
            *(f"-{option}={port}" for option, port in ports.items()),
        ]
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        assign = f"http://127.0.0.1:{ports['master.port']}/dir/assign"
        with ExitStack() as stack:
            stack.enter_context(running(command, assign, endpoint, cwd=folder, stderr=subprocess.DEVNULL))
            for number in range(1, volume_servers):
                data = Path(folder) / f"volumes-{number}"
                data.mkdir()
                port = free_port()
                command = [
                    servers / ".venv/bin/weed", "-logtostderr=true", "volume", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                    f"-master=127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}", f"-port={port}",
                    f"-port.grpc={free_port()}", "-max=100", "-preStopSeconds=0", f"-dir={data}",
                ]
                healthy = f"http://127.0.0.1:{port}/healthz"
                stack.enter_context(running(command, healthy, cwd=folder, stderr=subprocess.DEVNULL))
            say("filling SeaweedFS")
            client = [servers / ".venv/bin/python", servers / "client.py", "s3-put", endpoint, BUCKET, served]
            subprocess.run(client, check=True, stdout=subprocess.DEVNULL, env=aws_environment())
            try:
                yield ports["s3.port"]
            finally:
                # The paths of these sockets cannot be set.
                for name in names:
                    port = ports[f"{name}.port.grpc"]
                    Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock").unlink(missing_ok=True)


def aws_environment():
    """Returns an environment without credentials."""
    rest = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**rest, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


class Served:
    """One server behind a delay; `requests` are those since the last call."""

    def __init__(self, kind, port, milliseconds, log, program):
        self.kind, self.server_port, self.milliseconds, self.log = kind, port, milliseconds, log
        command = [program, str(port), str(milliseconds), log]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.read = 0

    def close(self):
        self.process.terminate()
        self.process.wait()

    @property
    def name(self):
        return f"{self.kind} +{self.milliseconds} ms"

    def url(self, key, port=None):
        bucket = f"/{BUCKET}" if self.kind == "s3" else ""
        return f"http://127.0.0.1:{port or self.port}{bucket}/{key}"

    def source(self, key):
        """Returns the source and the options for zarrfs."""
        if self.kind == "s3":
            return [f"s3://{BUCKET}/{key}", "--anonymous", "--endpoint-url", f"http://127.0.0.1:{self.port}"]
        return [self.url(key)]

    def store(self, key):
        """Returns the key-value store for tensorstore."""
        if self.kind == "s3":
            return {"driver": "s3", "bucket": BUCKET, "path": key, "endpoint": f"http://127.0.0.1:{self.port}",
                    "aws_region": "us-east-1", "aws_credentials": {"type": "anonymous"}}
        return {"driver": "http", "base_url": f"http://127.0.0.1:{self.port}", "path": f"/{key}"}

    def requests(self):
        lines = self.log.read_text().splitlines()
        new, self.read = lines[self.read:], len(lines)
        return [line.split(" ") for line in new]


def total(requests):
    """Requests, and the bytes of values that came back."""
    sizes = [int(size) for *_, status, size in requests if status.startswith("2")]
    return {"requests": len(requests), "bytes": sum(max(size, 0) for size in sizes)}


# The measurements


class Bench:
    def __init__(self, given, served_dir):
        self.zarrfs, self.randread = given.zarrfs, given.programs / "randread"
        self.has_peers, self.mountpoint = not given.only_zarrfs, getattr(given, "mountpoint", None)
        self.served_dir = served_dir
        chunks = [served_dir / "many" / key for key in keys_below(served_dir / "many")
                  if key.startswith(f"{VARIABLE}/") and ".z" not in key]
        assert len(chunks) == CHUNKS
        self.chunk_bytes = sum(file.stat().st_size for file in chunks)
        WORK.mkdir(parents=True, exist_ok=True)
        (WORK / "true").write_bytes(b"".join(file.read_bytes() for file in chunks))
        self.keys = len(keys_below(served_dir / "many"))
        self.checked = set()
        self.is_listed = False

    @contextmanager
    def mounted(self, served, key, *options, at=MOUNT):
        at.mkdir(parents=True, exist_ok=True)
        command = [self.zarrfs, *served.source(key), at, *options]
        subprocess.run(command, check=True, env=aws_environment())
        try:
            yield at
        finally:
            subprocess.run([self.zarrfs, "umount", at], check=True)

    def check(self, served, what, file, true_file):
        """Compares a file with the true one, at its first use."""
        if (served.kind, what) in self.checked:
            return
        self.checked.add((served.kind, what))
        # A header of .npy may be padded in another way.
        tail = (DATA / "tas.npy").stat().st_size - 256 if file.suffix == ".npy" else None

        def digest(path):
            content = hashlib.sha256()
            with open(path, "rb") as opened:
                if tail:
                    opened.seek(-tail, os.SEEK_END)
                while part := opened.read(1 << 20):
                    content.update(part)
            return content.digest()

        if digest(file) != digest(true_file):
            raise SystemExit(f"WRONG DATA: {file} from {served.name}")

    def cat(self, served, file):
        served.requests()
        start = time.perf_counter()
        subprocess.run(["cat", file], stdout=subprocess.DEVNULL, check=True)
        return {"s": time.perf_counter() - start, **total(served.requests())}

    def find(self, served):
        served.requests()
        start = time.perf_counter()
        with self.mounted(served, "many/"):
            mount = time.perf_counter() - start
            found = subprocess.run(["find", MOUNT, "-type", "f"], stdout=subprocess.PIPE, check=True)
            seconds = time.perf_counter() - start
        keys = found.stdout.count(b"\n")
        if keys != self.keys:
            raise SystemExit(f"{keys} of {self.keys} keys found on {served.name}")
        return {"s": seconds, "mount_s": mount, **total(served.requests())}

    def native_keys(self, served):
        """The native keys of one variable, read by ordinary tools: each from a mount of its own."""
        source = self.served_dir / "many" / VARIABLE
        names = sorted(file.name for file in source.iterdir() if file.name[0] != ".")
        urls = [served.url(f"many/{VARIABLE}/{name}") for name in names]
        result = {}
        if self.has_peers:
            served.requests()
            done = subprocess.run([sys.executable, "-c", THREADS, *urls], check=True, capture_output=True, text=True)
            result["threads"] = {"s": float(done.stdout.split()[0]), **total(served.requests())}
        variable = MOUNT / VARIABLE
        copy = WORK / "copy"
        tools = {
            "cat": f"cat {variable}/*.*.* | cmp - {WORK}/true",
            "cp -r": f"cp -r {variable} {copy}",
            "tar": f"tar -C {MOUNT} -cf {copy}.tar {VARIABLE}",
            "rsync": f"rsync -a {variable} {copy}",
            "zarr-python": None,
        }
        for tool, command in tools.items():
            shutil.rmtree(copy, ignore_errors=True)
            with self.mounted(served, "many/"):
                served.requests()
                if command:
                    start = time.perf_counter()
                    subprocess.run(command, check=True, shell=True)
                    seconds = time.perf_counter() - start
                else:
                    seconds = zarr_python(variable)
                result[tool] = {"s": seconds, **total(served.requests())}
            if tool in ("cp -r", "rsync"):
                copied = copy if tool == "cp -r" else copy / VARIABLE
                subprocess.run(["diff", "-r", source, copied], check=True)
        if self.has_peers:
            result["zarr-python"]["local directory"] = {"s": zarr_python(source)}
        return result

    def tensorstore(self, served, spec):
        served.requests()
        command = [sys.executable, "-c", TENSORSTORE, json.dumps(spec)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=aws_environment())
        opened, read, _ = map(float, done.stdout.split())
        return {"open_s": opened, "read_s": read, "s": opened + read, **total(served.requests())}

    def one(self, served, key, what, spec, *options):
        file = MOUNT / VARIABLE / ".zarrfs" / f"{VARIABLE}.npy"
        if (served.kind, what) not in self.checked:
            with self.mounted(served, key, *options):
                self.check(served, what, file, DATA / "tas.npy")
        served.requests()
        with self.mounted(served, key, *options):
            mount = total(served.requests())
            result = self.cat(served, file)
        result["mount_requests"], result["mount_bytes"] = mount["requests"], mount["bytes"]
        if spec and self.has_peers:
            result["tensorstore"] = self.tensorstore(served, spec)
        return result

    def var(self, served):
        spec = {"driver": "zarr", "kvstore": served.store(f"many/{VARIABLE}/")}
        return self.one(served, "many/", "var", spec)

    def zip(self, served):
        inside = {"driver": "zip", "base": served.store("many.zip"), "path": f"{VARIABLE}/"}
        return self.one(served, "many.zip", "zip", {"driver": "zarr", "kvstore": inside})

    def zip_keys(self, served):
        """The same native keys in an archive, read by `cat` and `cp -r`."""
        result = {}
        for tool, command in {"cat": "cat {}/*.*.* | cmp - {}/true", "cp -r": "cp -r {} {}/copy"}.items():
            shutil.rmtree(WORK / "copy", ignore_errors=True)
            with self.mounted(served, "many.zip"):
                served.requests()
                start = time.perf_counter()
                subprocess.run(command.format(MOUNT / VARIABLE, WORK), check=True, shell=True)
                result[tool] = {"s": time.perf_counter() - start, **total(served.requests())}
        return result

    def mounts(self, served):
        """All keys of an archive through four mounts with one disk cache: the bytes that are fetched."""
        cache, size = WORK / "disk-cache", (self.served_dir / "many.zip").stat().st_size
        keys = keys_below(self.served_dir / "many")
        orders = [keys, keys[::-1], *(random.Random(seed).sample(keys, len(keys)) for seed in range(2))]
        result = {}
        for name, readers in (("one after the other", 1), ("at the same time", len(orders))):
            shutil.rmtree(cache, ignore_errors=True)
            served.requests()
            with ExitStack() as stack:
                mounts = [stack.enter_context(self.mounted(served, "many.zip", "--disk-cache", cache, at=WORK / f"mnt-{number}"))
                          for number in range(len(orders))]

                def read(mount, order):
                    for key in order:
                        if (mount / key).read_bytes() != (self.served_dir / "many" / key).read_bytes():
                            raise SystemExit(f"WRONG DATA: {key} in {mount}")

                start = time.perf_counter()
                with ThreadPoolExecutor(readers) as pool:
                    list(pool.map(read, mounts, orders))
                result[name] = {"s": time.perf_counter() - start, **total(served.requests()), "the zip": {"bytes": size}}
        return result

    def disk(self, served):
        cache = WORK / "disk-cache"
        shutil.rmtree(cache, ignore_errors=True)
        options = ("--disk-cache", cache)
        first = self.one(served, "many/", "disk", None, *options)
        with self.mounted(served, "many/", *options):
            second = self.cat(served, MOUNT / VARIABLE / ".zarrfs" / f"{VARIABLE}.npy")
        return {**second, "first_s": first["s"]}

    def big(self, served):
        true_file = self.served_dir / "large/big.bin"
        if (served.kind, "big") not in self.checked:
            with self.mounted(served, "large/"):
                self.check(served, "big", MOUNT / "big.bin", true_file)
        served.requests()
        with self.mounted(served, "large/"):
            served.requests()
            seconds = dd(MOUNT / "big.bin")
        result = {"s": seconds, **total(served.requests())}
        result["size"] = true_file.stat().st_size
        if self.has_peers:
            result["curl"] = {"s": curl(served.url("large/big.bin"))}
            result["curl without the delay"] = {"s": curl(served.url("large/big.bin", served.server_port))}
            if self.mountpoint and served.kind == "s3":
                command = [self.mountpoint, BUCKET, f"http://127.0.0.1:{served.port}", 16 << 10]
                with native_tree.mounted(command, known="large") as place:
                    result["mountpoint"] = {"s": dd(place.root / "large/big.bin")}
        return result

    def random(self, served):
        result = {}
        for size in (4 << 10, 64 << 10):
            for readers in (1, 8, 16):
                with self.mounted(served, "large/"):
                    # The lookup requests the whole value and cancels the response; the log has its whole length.
                    (MOUNT / "big.bin").stat()
                    served.requests()
                    command = [self.randread, "blocks", str(readers), "1.5", str(size), MOUNT / "big.bin"]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    sent = total(served.requests())
                reads, bytes_, seconds = map(float, done.stdout.split())
                name = f"{size >> 10}k/{readers}"
                result[f"{name} per_s"] = reads / seconds
                result[f"{name} wire"] = sent["bytes"] / bytes_
        if self.has_peers:
            result["curl"] = {"64k/16 per_s": self.ranges_with_curl(served)}
            served.requests()
        return result

    def ranges_with_curl(self, served):
        """Random ranges of 64 KiB per second, 16 at a time, without a mount."""
        size, count = 64 << 10, 400
        blocks = (self.served_dir / "large/big.bin").stat().st_size // size
        url = served.url("large/big.bin")
        lines = []
        for block in random.sample(range(blocks), count):
            lines += [f'url = "{url}"', f"range = {block * size}-{(block + 1) * size - 1}", "output = /dev/null", "next"]
        config = WORK / "curl"
        config.write_text("\n".join(lines[:-1]))
        command = ["curl", "--silent", "--no-progress-meter", "--noproxy", "*", "--parallel", "--parallel-max", "16", "--config", config]
        start = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return count / (time.perf_counter() - start)

    def index(self, served):
        """The ready time of a zip of many entries, with an empty and with a warm disk cache."""
        cache = WORK / "disk-cache"
        shutil.rmtree(cache, ignore_errors=True)
        result = {}
        for name in ("cold", "warm"):
            served.requests()
            start = time.perf_counter()
            with self.mounted(served, "entries.zip", "--disk-cache", cache):
                result[f"{name}_s"] = time.perf_counter() - start
                result[name] = total(served.requests())
                if (MOUNT / "a" / str(ZIP_ENTRIES - 1)).read_bytes() != b"x":
                    raise SystemExit(f"WRONG DATA: entries.zip from {served.name}")
                # The index is written after the mount is ready.
                while not any(file.stat().st_size > ZIP_ENTRIES * 48 for file in cache.rglob("*")):
                    time.sleep(0.05)
        return result

    def list(self, served):
        """find over a flat array of many chunks in a bucket, beside its LIST requests alone."""
        if served.kind != "s3":
            return None
        if not self.is_listed:
            say(f"putting {LISTED_CHUNKS} chunks")
            endpoint = f"http://127.0.0.1:{served.server_port}"
            servers = ROOT / "tests/servers"
            client = [servers / ".venv/bin/python", servers / "client.py", "s3-put", endpoint, BUCKET, make_chunks()]
            subprocess.run(client, check=True, stdout=subprocess.DEVNULL, env=aws_environment())
            self.is_listed = True
        result, keys = {}, LISTED_CHUNKS + 2
        if self.has_peers:
            served.requests()
            done = subprocess.run(
                [sys.executable, "-c", LISTS, served.url("").rstrip("/"), "chunks/"], check=True, capture_output=True, text=True)
            seconds, keys = map(float, done.stdout.split())
            result["LIST alone"] = {"s": seconds, **total(served.requests())}
        served.requests()
        start = time.perf_counter()
        with self.mounted(served, "chunks/"):
            found = subprocess.run(["find", MOUNT, "-type", "f"], stdout=subprocess.PIPE, check=True)
            seconds = time.perf_counter() - start
            names = found.stdout.count(b"\n")
        if not names == keys == LISTED_CHUNKS + 2:
            raise SystemExit(f"{names} names and {keys} keys of {LISTED_CHUNKS + 2}")
        return {"s": seconds, **total(served.requests()), **result}


def dd(file):
    start = time.perf_counter()
    subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "status=none"], check=True)
    return time.perf_counter() - start


def zarr_python(array):
    done = subprocess.run([sys.executable, "-c", ZARR_PYTHON, array], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[0])


def curl(url):
    start = time.perf_counter()
    subprocess.run(["curl", "--silent", "--fail", "--noproxy", "*", "-o", "/dev/null", url], check=True)
    return time.perf_counter() - start


# The report


def median(results, *path):
    def value(result):
        for name in path:
            result = result[name]
        return result

    return statistics.median(map(value, results))


def row(where, what, figure, beside="", ratio=None, target="", is_met=None):
    verdict = {None: "", True: "met", False: "MISSED"}[is_met]
    ratio = "" if ratio is None else f"{ratio:.2f}"
    return where, what, figure, beside, ratio, target, verdict


def rows(measure, where, results, bench, is_delayed):
    def of(*path):
        return median(results, *path)

    wire = f"{of('bytes') / 1e6:.1f} MB" if measure in ("var", "zip", "disk") else ""
    if measure == "find":
        figure = f"{of('s'):.3f} s (mount {of('mount_s'):.3f}), {of('requests'):.0f} requests"
        yield row(where, f"mount + find, {bench.keys} keys", figure, target="<= 3 requests", is_met=of("requests") <= 3)
    elif measure == "native_keys":
        for tool in results[0]:
            if tool == "threads":
                continue
            figure = f"{of(tool, 's'):.3f} s, {of(tool, 'requests'):.0f} requests"
            peer = f"16 threads {of('threads', 's'):.3f} s, {of('threads', 'requests'):.0f} requests"
            ratio = of(tool, "s") / of("threads", "s")
            yield row(where, f"{tool}, {CHUNKS} keys", figure, peer, ratio, "<= 1.3 at 20 ms", ratio <= 1.3 if is_delayed else None)
            requests, sent = of(tool, "requests"), of(tool, "bytes") / of("threads", "bytes")
            is_met = requests <= CHUNKS + 4
            yield row(where, "  its requests", f"{requests:.0f}, bytes x {sent:.2f}", target=f"<= {CHUNKS + 4}", is_met=is_met)
    elif measure == "zip_keys":
        for tool in results[0]:
            figure = f"{of(tool, 's'):.3f} s, {of(tool, 'requests'):.0f} requests"
            ratio = of(tool, "bytes") / bench.chunk_bytes
            is_met = of(tool, "requests") <= CHUNKS + 4 and ratio <= 1.05
            yield row(where, f"{tool}, {CHUNKS} keys in a zip", figure, "bytes / entries", ratio, f"<= {CHUNKS + 4}, 1.05", is_met)
    elif measure in ("var", "zip"):
        figure = f"{of('s'):.3f} s, {of('requests'):.0f} requests, {wire}"
        peer = f"tensorstore {of('tensorstore', 'read_s'):.3f} s (+ open {of('tensorstore', 'open_s'):.3f}), {of('tensorstore', 'requests'):.0f} requests"
        ratio = of("s") / of("tensorstore", "s")
        name = {"var": "cat of .npy", "zip": "cat of .npy in a zip"}[measure]
        yield row(where, name, figure, peer, ratio, "<= 1.1 at 20 ms", ratio <= 1.1 if is_delayed else None)
        if measure == "var":
            yield row(where, "  its requests", f"{of('requests'):.0f} for {CHUNKS} chunks", target=f"<= {CHUNKS + 2}", is_met=of("requests") <= CHUNKS + 2)
        else:
            yield row(where, "  requests of the mount", f"{of('mount_requests'):.0f}, {of('mount_bytes') / 1e3:.0f} kB", target="<= 3", is_met=of("mount_requests") <= 3)
            ratio = of("bytes") / bench.chunk_bytes
            yield row(where, "  bytes on the wire", wire, f"entries {bench.chunk_bytes / 1e6:.1f} MB", ratio, "<= 1.05", ratio <= 1.05)
    elif measure == "mounts":
        for name in ("one after the other", "at the same time"):
            figure = f"{of(name, 'bytes') / 1e6:.1f} MB, {of(name, 'requests'):.0f} requests"
            size = of(name, "the zip", "bytes")
            ratio = of(name, "bytes") / size
            yield row(where, f"four mounts of a zip, {name}", figure, f"the zip {size / 1e6:.1f} MB", ratio, "<= 1.05", ratio <= 1.05)
    elif measure == "disk":
        figure = f"{of('s'):.3f} s, {of('requests'):.0f} requests, {wire}"
        yield row(where, "cat of .npy, warm disk cache", figure, f"cold {of('first_s'):.3f} s", of("s") / of("first_s"), "0 bytes", of("bytes") == 0)
    elif measure == "big":
        seconds = [of("s"), of("curl", "s"), of("curl without the delay", "s")]
        speed = [of("size") / one / 1e6 for one in seconds]
        figure = f"{speed[0]:.0f} MB/s, {of('requests'):.0f} requests"
        beside = f"curl {speed[1]:.0f} MB/s (without the delay {speed[2]:.0f})"
        what = f"dd of {of('size') / 1e6:.0f} MB"
        yield row(where, what, figure, beside, speed[0] / speed[1], ">= 0.8", speed[0] >= 0.8 * speed[1])
        if "mountpoint" in results[0]:
            other = of("size") / of("mountpoint", "s") / 1e6
            yield row(where, what, figure, f"mountpoint {other:.0f} MB/s", speed[0] / other, ">= 1", speed[0] >= other)
    elif measure == "index":
        figure = f"{of('warm_s'):.3f} s, {of('warm', 'requests'):.0f} requests"
        beside = f"cold {of('cold_s'):.3f} s, {of('cold', 'requests'):.0f} requests"
        is_met = of("warm_s") <= 0.3 and of("warm", "requests") <= 1
        yield row(where, f"second mount of a zip of {ZIP_ENTRIES} entries", figure, beside, of("warm_s") / of("cold_s"), "0.3 s, 1 request", is_met)
    elif measure == "list":
        figure = f"{of('s'):.2f} s, {of('requests'):.0f} requests"
        beside = f"LIST alone {of('LIST alone', 's'):.2f} s, {of('LIST alone', 'requests'):.0f} requests"
        ratio, most = of("s") / of("LIST alone", "s"), of("LIST alone", "requests") + 2
        is_met = ratio <= 1.3 and of("requests") <= most
        yield row(where, f"mount + find, {LISTED_CHUNKS} chunks", figure, beside, ratio, f"1.3, {most:.0f} requests", is_met)
    else:
        for name in results[0]:
            if name == "64k/16 per_s":
                ratio = of(name) / of("curl", name)
                beside = f"curl {of('curl', name):.0f} per s; wire / read {of('64k/16 wire'):.1f}"
                yield row(where, "random 64k/16 reader(s)", f"{of(name):.0f} per s", beside, ratio, ">= 0.9", ratio >= 0.9)
            elif name.endswith("per_s"):
                size = name.split()[0]
                yield row(where, f"random {size} reader(s)", f"{of(name):.0f} per s", f"wire / read {of(f'{size} wire'):.1f}")


def show(table):
    head = ("where", "what", "zarrfs", "beside it", "ratio", "target", "")
    widths = [max(len(line[at]) for line in [head, *table]) for at in range(len(head))]
    for line in [head, *table]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip(), flush=True)


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []], metavar="MEASURE")
    parser.add_argument("--ms", type=int, nargs="+", default=[0, 20])
    parser.add_argument("--server", nargs="+", choices=("nginx", "s3"), default=["nginx", "s3"])
    parser.add_argument("--big-mib", type=int, default=512)
    parser.add_argument("--mountpoint", type=Path, help="the program that scripts/bench-s3 builds")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/bench", help=argparse.SUPPRESS)
    given = parser.parse_args()
    measures = given.measures or DEFAULT_MEASURES
    WORK.mkdir(parents=True, exist_ok=True)
    served_dir = make_inputs(given.big_mib)
    bench = Bench(given, served_dir)
    results, ceilings = {}, []
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = []
        for kind in given.server:
            port = stack.enter_context({"nginx": nginx, "s3": seaweed}[kind](served_dir))
            for milliseconds in given.ms:
                place = Served(kind, port, milliseconds, logs / f"{kind}-{milliseconds}", given.programs / "delay")
                stack.callback(place.close)
                places.append(place)
        for place in places:
            if place.kind == "nginx":
                url = [place.url("large/big.bin", port) for port in (None, place.server_port)]
                seconds = [min(curl(one) for _ in range(3)) for one in url]
                gigabytes = (given.big_mib << 20) / 1e9
                ceilings.append(f"{place.name}: {gigabytes / seconds[0]:.2f} GB/s (curl; without it {gigabytes / seconds[1]:.2f})")
        for number in range(given.reps):
            for measure in measures:
                for place in places:
                    say(f"{number + 1}/{given.reps} {measure} {place.name}")
                    result = getattr(bench, measure)(place)
                    if result is None:
                        continue
                    results.setdefault(place.name, {}).setdefault(measure, []).append(result)
    shared.write(given.json, shared.flat(results, PEERS))
    if given.only_zarrfs:
        return
    for ceiling in ceilings:
        print(f"the delay itself passes, {ceiling}")
    table = []
    for measure in measures:
        for where, found in results.items():
            if measure in found:
                table.extend(rows(measure, where, found[measure], bench, not where.endswith("+0 ms")))
    show(table)


if __name__ == "__main__":
    main()
