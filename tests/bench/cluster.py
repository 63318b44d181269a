#!/usr/bin/env python3
"""Throughput and requests of mounts on several hosts that read the same object store.

    scripts/bench-cluster [--hosts N ...] [--mbit N ...] [--ms N] [--reps N] [--mib N]
                          [--volume-servers N] [--json FILE] [--zarrfs FILE]

The store is the S3 of SeaweedFS with several volume servers. A host is a network namespace: a veth
pair limits what it receives to `--mbit` (tc tbf), and a proxy of its own (delay.c) adds `--ms` to
every request and counts it. Every host mounts the same hierarchy and all hosts start `cat` of a
`.npy` at the same time: each its own variable, or all the same one. A mount is new for every
figure. Throughput is the bytes of all bodies over the time until the last `cat` ends; requests
include those of mounting. Figures are medians.

All hosts, the proxies and SeaweedFS share the processors of this machine. The rows `no limit`
measure their throughput without the limit of the links, through mounts and with curl. A row whose
links add up to more than the mounts pass without a limit measures this machine, and is marked.

Needs root; changes nothing outside of its own namespaces and interfaces.
"""
import argparse
import collections
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import remote
import shared
from remote import Served, row, total
from shared import ROOT, say

WORK = shared.WORK / "cluster"
DATA = WORK / "data"
CACHE_MOUNTS = 4
MODES = {"different": "different variables", "same": "the same variable"}
# The part of a chunk that is compared: headers of .npy differ in padding.
SIDE = 512


class Unavailable(Exception):
    """This machine cannot limit links between network namespaces."""


# Inputs


def make_inputs(variables, chunks):
    """A hierarchy of variables, each of chunks of 1 MiB of rounded noise."""
    import numcodecs
    import numpy as np
    import zarr

    served = DATA / "served"
    wanted = f"{variables} {chunks}"
    done = DATA / "done"
    if done.exists() and done.read_text() == wanted:
        return served
    say(f"writing {DATA}")
    shutil.rmtree(DATA, ignore_errors=True)
    served.mkdir(parents=True)
    root = str(served / "many")
    group = zarr.create_group(root, zarr_format=2)
    digests = []
    for number in range(variables):
        noise = np.random.default_rng(number).standard_normal((chunks, SIDE, SIDE), dtype="f4")
        noise.view("u4")[...] &= np.uint32(0xFFFFFFFF << 11 & 0xFFFFFFFF)
        array = group.create_array(
            f"v{number}", shape=noise.shape, chunks=(1, SIDE, SIDE), dtype="f4",
            compressors=numcodecs.Blosc("zstd", 1, 1), attributes={"_ARRAY_DIMENSIONS": ["time", "y", "x"]})
        array[...] = noise
        digests.append(hashlib.sha256(noise.tobytes()).hexdigest())
    zarr.consolidate_metadata(root, zarr_format=2)
    (DATA / "digests.json").write_text(json.dumps(digests))
    done.write_text(wanted)
    return served


def chunk_sizes(served, variable):
    """Sizes of the objects of a variable that hold chunks, by the end of their request target."""
    folder = served / "many" / variable
    return {f"/many/{variable}/{file.name}": file.stat().st_size for file in folder.iterdir() if file.name[0] != "."}


# Hosts


def command(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Host:
    """A network namespace whose only route leads to the loopback addresses of this machine."""

    def __init__(self, number, stack, zarrfs):
        self.number, self.zarrfs = number, zarrfs
        self.namespace = f"zarrfs-bench-{os.getpid()}-{number}"
        self.link = f"zb{os.getpid()}-{number}"
        self.inside = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        # 198.18.0.0/15 is reserved for benchmarks (RFC 2544).
        near, remote_end = f"198.18.{number}.1", f"198.18.{number}.2"
        command("ip", "netns", "add", self.namespace)
        stack.callback(subprocess.run, ["ip", "netns", "del", self.namespace])
        command("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        # A namespace that a process still holds keeps its end of the pair.
        stack.callback(subprocess.run, ["ip", "link", "del", self.link])
        command("ip", "addr", "add", f"{near}/30", "dev", self.link)
        command("ip", "link", "set", self.link, "up")
        command(*self.inside, "ip", "addr", "add", f"{remote_end}/30", "dev", "eth0")
        command(*self.inside, "ip", "link", "set", "eth0", "up")
        # The proxies listen on loopback only. `lo` of the namespace stays down, so that the route below serves 127/8.
        local = "net.ipv4.conf.{}.route_localnet"
        command(*self.inside, "sh", "-c", f"echo 1 >{sysctl(local.format('eth0'))}")
        command("sh", "-c", f"echo 1 >{sysctl(local.format(self.link))}")
        command(*self.inside, "ip", "route", "add", "127.0.0.0/8", "via", near, "src", remote_end)

    def limit(self, mbit):
        """Limits the receive rate of the host; 0 is no limit."""
        if mbit:
            limit = ("rate", f"{mbit}mbit", "burst", "128kb", "latency", "50ms")
            command("tc", "qdisc", "replace", "dev", self.link, "root", "tbf", *limit)
        else:
            subprocess.run(["tc", "qdisc", "del", "dev", self.link, "root"], stderr=subprocess.DEVNULL)

    @contextmanager
    def mounted(self, served, name, *options):
        # nsenter keeps the mount namespace, so that the mount is visible to all processes.
        mountpoint = WORK / "mnt" / name
        mountpoint.mkdir(parents=True, exist_ok=True)
        mount = [*self.inside, self.zarrfs, *served.source("many/"), mountpoint, *options]
        subprocess.run(mount, check=True, env=remote.aws_environment())
        try:
            yield mountpoint
        finally:
            if subprocess.run([self.zarrfs, "umount", mountpoint]).returncode:
                subprocess.run(["umount", "--lazy", mountpoint])


def sysctl(name):
    return "/proc/sys/" + name.replace(".", "/")


def view(mountpoint, variable):
    return mountpoint / variable / ".zarrfs" / f"{variable}.npy"


# The measurements


def cpu_times():
    """Busy and all time of the processors, in ticks."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def all_at_once(commands):
    """Seconds until the last of the commands ends, and the busy share of the processors meanwhile."""
    busy, ticks = cpu_times()
    start = time.perf_counter()
    with ExitStack() as stack:
        running = []
        for one in commands:
            process = stack.enter_context(subprocess.Popen(one, stdout=subprocess.DEVNULL))
            # Open files keep a mount busy: an interrupted run ends its readers first.
            stack.callback(process.kill)
            running.append(process)
        codes = [one.wait() for one in running]
        seconds = time.perf_counter() - start
    busy_now, ticks_now = cpu_times()
    if any(codes):
        raise SystemExit(f"{commands[0]} ended with {codes}")
    return {"s": seconds, "cpu": (busy_now - busy) / max(ticks_now - ticks, 1)}


class Bench:
    def __init__(self, hosts, places, served_dir):
        self.hosts, self.places, self.served_dir = hosts, places, served_dir

    def check(self):
        """Compares all variables with the true values, each read on its own host."""
        digests = json.loads((DATA / "digests.json").read_text())
        for host, place, digest in zip(self.hosts, self.places, digests):
            variable = f"v{host.number}"
            size = len(chunk_sizes(self.served_dir, variable)) * SIDE * SIDE * 4
            with host.mounted(place, f"{host.number}") as mountpoint, open(view(mountpoint, variable), "rb") as file:
                file.seek(-size, os.SEEK_END)
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise SystemExit(f"WRONG DATA: {variable}")

    def variables(self, count, mode):
        return [f"v{number if mode == 'different' else 0}" for number in range(count)]

    def counted(self, count, figure):
        sent = [total(place.requests()) for place in self.places[:count]]
        transferred = sum(one["bytes"] for one in sent)
        requests = [one["requests"] for one in sent]
        return {**figure, "bytes": transferred, "requests": requests, "per_s": transferred / figure["s"]}

    def scale(self, count, mbit, mode):
        for host in self.hosts:
            host.limit(mbit)
        for place in self.places:
            place.requests()
        with ExitStack() as stack:
            files = []
            for host, place, variable in zip(self.hosts, self.places, self.variables(count, mode)):
                mountpoint = stack.enter_context(host.mounted(place, f"{host.number}"))
                files.append(view(mountpoint, variable))
            return self.counted(count, all_at_once([["cat", file] for file in files]))

    def curl(self, count):
        """The chunks of the same variables, 16 requests at a time for each host, without a mount."""
        for host in self.hosts:
            host.limit(0)
        for place in self.places:
            place.requests()
        commands = []
        for host, place, variable in zip(self.hosts, self.places, self.variables(count, "different")):
            urls = [place.url(target[1:]) for target in chunk_sizes(self.served_dir, variable)]
            transfers = [word for url in urls for word in ("-o", "/dev/null", url)]
            options = ["--no-progress-meter", "--fail", "--noproxy", "*", "--parallel", "--parallel-max", "16"]
            commands.append([*host.inside, "curl", *options, *transfers])
        return self.counted(count, all_at_once(commands))

    def disk_cache(self, mbit, is_concurrent):
        """Requests of mounts of one host that share a disk cache and read the same variable."""
        host, place, variable = self.hosts[0], self.places[0], "v0"
        host.limit(mbit)
        cache = WORK / "disk-cache"
        shutil.rmtree(cache, ignore_errors=True)
        options = ("--disk-cache", cache, "--immutable")
        with ExitStack() as stack:
            mountpoints = [stack.enter_context(host.mounted(place, f"cache-{number}", *options))
                           for number in range(CACHE_MOUNTS)]
            place.requests()
            cats = [["cat", view(mountpoint, variable)] for mountpoint in mountpoints]
            batches = [cats] if is_concurrent else [[one] for one in cats]
            seconds = [all_at_once(batch)["s"] for batch in batches]
            requests = place.requests()
        shutil.rmtree(cache, ignore_errors=True)
        sizes = chunk_sizes(self.served_dir, variable)
        fetched = collections.Counter()
        for _, method, target, *_ in requests:
            name = next((name for name in sizes if target.split("?")[0].endswith(name)), None)
            if name and method == "GET":
                fetched[name] += 1
        return {
            "s": seconds, "objects": len(sizes), "fetched": len(fetched), "gets": sum(fetched.values()),
            "most": max(fetched.values()), "ratio": total(requests)["bytes"] / sum(sizes.values()),
        }


# The report


def median(results, name):
    return statistics.median(result[name] for result in results)


def hosts_text(count):
    return f"{count} host{'s' if count > 1 else ''}"


def scale_rows(results, counts, mbits):
    """Rows of throughput and requests. `results` maps (mbit, mode, hosts) to repetitions."""
    most = max(counts)
    yield row("no limit", "no host: other programs", f"CPU {median(results[0, 'idle', 0], 'cpu'):.0%}")
    for name, mode in (("mounts", "different"), ("curl", "curl")):
        found = results[0, mode, most]
        figure = f"{median(found, 'per_s') / 1e6:.0f} MB/s, CPU {median(found, 'cpu'):.0%}"
        yield row("no limit", f"{hosts_text(most)}, {name}", figure)
    ceiling = median(results[0, "different", most], "per_s")
    for mbit in mbits:
        for mode, words in MODES.items():
            one = median(results[mbit, mode, 1], "per_s")
            for count in counts:
                found = results[mbit, mode, count]
                speed = median(found, "per_s")
                links = count * mbit * 1e6 / 8
                figure = f"{speed / 1e6:.1f} MB/s, CPU {median(found, 'cpu'):.0%}"
                beside = f"{links / 1e6:.1f} MB/s of links"
                if links > ceiling:
                    beside += ", more than this machine passes"
                ratio = speed / (count * one)
                verdict = (">= 0.9", ratio >= 0.9) if count > 1 else ()
                yield row(f"{mbit} Mbit/s", f"{hosts_text(count)}, {words}", figure, beside, ratio, *verdict)
    every = [number for (mbit, mode, _), found in results.items() if mode in MODES
             for result in found for number in result["requests"]]
    yield row("all of the above", "requests of a mount", f"{min(every)} to {max(every)}", target="constant",
              is_met=min(every) == max(every))


def cache_rows(mbit, results):
    for name, found in results.items():
        most, gets = max(one["most"] for one in found), median(found, "gets")
        figure = f"{gets:.0f} GETs of {found[0]['objects']} objects, at most {most} of one"
        beside = " + ".join(f"{statistics.median(times):.2f}" for times in zip(*(one["s"] for one in found))) + " s"
        yield row(f"{mbit} Mbit/s", f"disk cache of {CACHE_MOUNTS} mounts, {name}", figure, beside,
                  median(found, "ratio"), "one GET of each", most == 1)


def measure(given, stack):
    counts = sorted({1, *given.hosts})
    remote.WORK.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    # Before the servers, so that a machine without namespaces or tbf fails at once.
    hosts = [Host(number, stack, given.zarrfs) for number in range(max(counts))]
    hosts[0].limit(given.mbit[0])
    served_dir = make_inputs(max(counts), given.mib)
    logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    port = stack.enter_context(remote.seaweed(served_dir, given.volume_servers))
    places = []
    for host in hosts:
        place = Served("s3", port, given.ms, logs / f"{host.number}", given.programs / "delay")
        stack.callback(place.close)
        places.append(place)
    command(*hosts[0].inside, "curl", "--silent", "--fail", "--noproxy", "*", "-m", "10", "-o", "/dev/null",
            places[0].url("many/.zgroup"))
    bench = Bench(hosts, places, served_dir)
    for host in hosts:
        host.limit(0)
    say("comparing all variables with the true values")
    bench.check()
    results, caches = {}, {}
    for number in range(given.reps):
        results.setdefault((0, "idle", 0), []).append(all_at_once([["sleep", "2"]]))
        say(f"{number + 1}/{given.reps} without a limit")
        most = max(counts)
        results.setdefault((0, "different", most), []).append(bench.scale(most, 0, "different"))
        if not given.only_zarrfs:
            results.setdefault((0, "curl", most), []).append(bench.curl(most))
        for mbit in given.mbit:
            for mode in MODES:
                for count in counts:
                    say(f"{number + 1}/{given.reps} {mbit} Mbit/s, {hosts_text(count)}, {MODES[mode]}")
                    results.setdefault((mbit, mode, count), []).append(bench.scale(count, mbit, mode))
        for name, is_concurrent in (("one after the other", False), ("at the same time", True)):
            say(f"{number + 1}/{given.reps} disk cache, {name}")
            caches.setdefault(name, []).append(bench.disk_cache(given.mbit[0], is_concurrent))
    return results, caches, counts


def main():
    parser = shared.options_of(__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--mbit", type=int, nargs="+", default=[200, 50, 25], help="rate of the link of each host")
    parser.add_argument("--ms", type=int, default=20, help="added to every request")
    parser.add_argument("--mib", type=int, default=32, help="size of each variable, in chunks of 1 MiB")
    parser.add_argument("--volume-servers", type=int, default=3)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/bench", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("bench-cluster needs root: it creates network namespaces")
    with ExitStack() as stack:
        try:
            results, caches, counts = measure(given, stack)
        except Unavailable as error:
            print(f"skipped: no network namespaces with limited links here ({error})")
            return
    named = {"disk cache": {name: [{"s": sum(one["s"]), "get_requests": one["gets"]} for one in found] for name, found in caches.items()}}
    for (mbit, mode, count), found in results.items():
        if mode != "idle":
            speeds = [{"mb_per_s": one["per_s"] / 1e6} for one in found]
            named.setdefault(f"{mbit} Mbit/s" if mbit else "no limit", {}).setdefault(hosts_text(count), {})[mode] = speeds
    shared.write(given.json, shared.flat(named, ("curl",)))
    if not given.only_zarrfs:
        remote.show([*scale_rows(results, counts, given.mbit), *cache_rows(given.mbit[0], caches)])


main()
