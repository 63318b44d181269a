"""What all benchmarks share: options, sources in the page cache, and the form of their results.

Results are `{"ROW, UNIT": {contender: [value, ...]}}`, a value for each repetition. A contender whose name begins with
`zarrfs` is a zarrfs, others are programs beside it. Less is better in seconds (`s`), more in a unit per second (`/s`,
`MB/s`); other units are no speeds.
"""
import argparse
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target/bench"
LEAF = re.compile("(.+?[ _])??(mb_per_s|per_s|s|mib|bytes|requests)")
UNITS = {"mb_per_s": "MB/s", "per_s": "/s", "mib": "MiB"}


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def exit_on_signals():
    """Has signals end this program like an exception, so that it removes its mounts."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))


def run(command, **options):
    """Returns the status of a benchmark; ends it, and waits for that, if this program is ended."""
    process = subprocess.Popen(command, **options)
    try:
        return process.wait()
    finally:
        process.terminate()
        process.wait()


def options_of(doc, reps=3):
    """Returns a parser of the options that all benchmarks have."""
    exit_on_signals()
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=reps)
    parser.add_argument("--json", type=Path, help="also write all values to this file")
    parser.add_argument("--zarrfs", type=Path, default=ROOT / "target/release/zarrfs")
    parser.add_argument("--only-zarrfs", action="store_true", help="measure no other programs; only for --json")
    return parser


def warm(path):
    """Has the system read a source, so that no contender waits for a disk."""
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with open(file, "rb", buffering=0) as opened:
                while opened.read(4 << 20):
                    pass


def add(results, row, contender, value):
    results.setdefault(row, {}).setdefault(contender, []).append(value)


def flat(nested, peers=()):
    """Returns the results of dictionaries in each other, whose leaves are named by their unit (`s`, `mount_s`).

    Lists have repetitions; a name of `peers` is a contender, and all other names are of the row."""
    results = {}

    def walk(value, row, contender):
        if isinstance(value, list):
            for one in value:
                walk(one, row, contender)
        elif isinstance(value, dict):
            for name, one in value.items():
                if isinstance(one, (dict, list)):
                    walk(one, *((row, name) if name in peers else ([*row, name], contender)))
                elif leaf := LEAF.fullmatch(name):
                    what = [*row, leaf[1].rstrip(" _")] if leaf[1] else row
                    add(results, f"{' '.join(what)}, {UNITS.get(leaf[2], leaf[2])}", contender, one)

    walk(nested, [], "zarrfs")
    return results


def speed_ratio(row, ours, theirs):
    """How many times as fast the first of two values of a row is, or None if the row is no speed."""
    unit = row.rpartition(", ")[2]
    return theirs / ours if unit == "s" else ours / theirs if unit.endswith("/s") else None


def write(path, results):
    """Writes results to the file of --json, if there is one."""
    if path:
        path.write_text(json.dumps(results, indent=1))
