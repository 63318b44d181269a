#!/usr/bin/env python3
"""Speed of a zarrfs beside that of another one, in the other benchmarks.

    scripts/bench-before OLD_BINARY [BENCH ...] [--new FILE] [--rounds N] [--json FILE]

Each round runs every benchmark with the old and with the new binary, one after the other, the new one first in every
second round; other programs are left out. A BENCH is a name of the list below; all by default. It may have options of its
own, which replace those of the list: "formats --mib 512 --reps 3". A figure is the median of the rounds. A ratio is that of the
speeds, new to old, within a round: the median, the least and the greatest. Rows below 0.98 are marked.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shared import ROOT, add, exit_on_signals, run, say, speed_ratio, write

# The first six take 30 minutes with three rounds on two cores; their inputs are made before.
BENCHES = {
    "formats": "bench-formats --mib 512",
    "references": "bench-references",
    "n5": "bench-n5 --mib 512",
    "databases": "bench-databases --keys 200000 --mib 256",
    "cluster": "bench-cluster --hosts 1 4 --mbit 200 --mib 16",
    "growth": "bench-growth --most-keys 1000000",
    "list": "bench list",
    "keys": "bench keys",
    "chunks": "bench chunks",
    "middle": "bench middle",
    "big": "bench big",
    "deflate": "bench deflate",
    "dir": "bench dir",
    "dir-keys": "bench dir-keys",
    "arrays": "bench-arrays --mib 512",
    "groups": "bench-arrays groups 1000 4000",
    "remote": "bench-remote",
    "s3": "bench-s3 --keys 2000 --big-mib 128",
}
LEAST = 0.98


def measured(command, zarrfs):
    """Returns the results of a benchmark, or None if it fails or cannot run here."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results"
        common = ["--zarrfs", zarrfs, "--only-zarrfs", "--json", file]
        status = run([ROOT / "scripts" / command[0], *command[1:], *common], stdout=subprocess.DEVNULL)
        return json.loads(file.read_text()) if status == 0 and file.exists() else None


def lines(results):
    """Rows of the report from {"BENCH: ROW, UNIT": {"old": [value, ...], "new": ...}}."""
    for row, of in results.items():
        ratios = [speed_ratio(row, new, old) for new, old in zip(of["new"], of["old"])]
        ratio = statistics.median(ratios)
        name, _, unit = row.rpartition(", ")
        old, new = (f"{statistics.median(of[which]):.4g} {unit}" for which in ("old", "new"))
        mark = f"below {LEAST}" if ratio < LEAST else ""
        yield f"| {name.replace(': ', ' | ', 1)} | {old} | {new} | {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {mark} |"


def main():
    listed = "\n".join(f"    {name:11} scripts/{command}" for name, command in BENCHES.items())
    parser = argparse.ArgumentParser(description=f"{__doc__}\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("benches", nargs="*", metavar="BENCH")
    parser.add_argument("--new", type=Path, default=ROOT / "target/release/zarrfs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write all values to this file")
    given = parser.parse_intermixed_args()
    commands = {}
    for bench in given.benches or BENCHES:
        name, *more = shlex.split(bench)
        if name not in BENCHES:
            parser.error(f"{name} is none of: {' '.join(BENCHES)}")
        commands[bench] = [*shlex.split(BENCHES[name]), "--reps", "1", *more]
    binaries = {"old": given.old.resolve(), "new": given.new.resolve()}
    exit_on_signals()
    results, failed = {}, set()
    try:
        for number in range(given.rounds):
            for bench, command in commands.items():
                found = {}
                for which in list(binaries)[::-1 if number % 2 else 1]:
                    say(f"{number + 1}/{given.rounds} {bench} {which}")
                    found[which] = measured(command, binaries[which])
                if None in found.values():
                    say(f"{bench} has no results")
                    failed.add(bench)
                    continue
                for row, contenders in found["old"].items():
                    for name, values in contenders.items():
                        new = found["new"].get(row, {}).get(name)
                        if new and name.startswith("zarrfs") and speed_ratio(row, 1, 1):
                            whose = "" if name == "zarrfs" else f" ({name})"
                            what, _, unit = row.rpartition(", ")
                            for which, one in (("old", values), ("new", new)):
                                add(results, f"{bench}: {what}{whose}, {unit}", which, statistics.median(one))
    finally:
        print("| benchmark | row | old | new | new / old | |\n|---|---|---|---|---|---|")
        print("\n".join(lines(results)))
        write(given.json, results)
    if failed:
        sys.exit(f"no results of all rounds: {', '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
