"""Writes databases of the `dbm` modules with the libraries of the system's Python.

usage: write_dbm.py copy SOURCE DIRECTORY     the entries of a zip or a directory, in each kind of database
       write_dbm.py update KIND PATH SECONDS  changes all values and closes, again and again; prints the last number
       write_dbm.py hold KIND PATH            writes values, then others, and keeps the database open
       write_dbm.py small KIND PATH           values that fit into pages, and two that do not
       write_dbm.py tiny KIND PATH            a few values
       write_dbm.py write KIND PATH           one value more, and closes
"""

import dbm.dumb
import dbm.gnu
import dbm.ndbm
import os
import subprocess
import sys
import time
import zipfile

try:
    import bsddb3
except ImportError:
    bsddb3 = None


class Load:
    """A file that db_load writes when it is closed."""

    def __init__(self, kind, order, page_bytes):
        self.kind, self.options = kind, ["-c", f"db_lorder={order}", "-c", f"db_pagesize={page_bytes}"]
        self.values = {}

    def __call__(self, path):
        self.path = path
        return self

    def __setitem__(self, key, value):
        self.values[key] = value

    def close(self):
        text = f"VERSION=3\nformat=bytevalue\ntype={self.kind}\nHEADER=END\n"
        for key, value in self.values.items():
            text += f" {key.hex()}\n {value.hex()}\n"
        run = [self.program(), *self.options, self.path]
        subprocess.run(run, input=(text + "DATA=END\n").encode(), check=True)

    def program(self):
        for directory in os.environ["PATH"].split(":"):
            for name in ("db_load", "db5.3_load"):
                if os.path.exists(f"{directory}/{name}"):
                    return name
        raise FileNotFoundError("db_load: install db-util")


def berkeley(name, kind):
    """Opens a database with bsddb3 as users of zarr do, or with db_load if bsddb3 is missing."""
    if bsddb3 is None:
        return Load(kind, 1234, 4096)
    return lambda path: getattr(bsddb3, name)(path, "c")


def gnu(path):
    # It refuses to open while a reader has the file.
    end = time.monotonic() + 20
    while True:
        try:
            return dbm.gnu.open(path, "c")
        except dbm.gnu.error:
            if time.monotonic() > end:
                raise
            time.sleep(0.001)


KINDS = {
    "gnu": gnu,
    "ndbm": lambda path: dbm.ndbm.open(path, "c"),
    "dumb": lambda path: dbm.dumb.open(path, "c"),
    "hash": berkeley("hashopen", "hash"),
    "btree": berkeley("btopen", "btree"),
    "hash-big": Load("hash", 4321, 512),
    "btree-big": Load("btree", 4321, 512),
}


def put(kind, path, items):
    database = KINDS[kind](path)
    for key, value in items:
        database[os.fsencode(key)] = value
    return database


def items_of(source):
    if not os.path.isdir(source):
        archive = zipfile.ZipFile(source)
        return [(name, archive.read(name)) for name in archive.namelist()]
    files = [os.path.join(directory, name) for directory, _, names in os.walk(source) for name in names]
    return [(os.path.relpath(path, source), open(path, "rb").read()) for path in files]


def copy(source, directory):
    items = items_of(source)
    for kind in KINDS:
        put(kind, f"{directory}/h-{kind}", items).close()
        print(f"h-{kind}")


def values_of(number):
    """Each value has one byte, again and again: a mixture of two contents has two."""
    byte = bytes([number % 256])
    yield ".zgroup", b'{"zarr_format": 2}'
    for length in (100, 3000, 20_000, 300_000):
        yield f"v/{length}", byte * length


def update(kind, path, seconds):
    end = time.monotonic() + float(seconds)
    number = 0
    while time.monotonic() < end:
        number += 1
        put(kind, path, values_of(number)).close()
        if number == 1:
            print("ready", flush=True)
        time.sleep(0.1)
    print(number % 256, flush=True)


def once(kind, path, number):
    put(kind, path, values_of(int(number))).close()


def hold(kind, path):
    put(kind, path, values_of(1)).close()
    print("ready", flush=True)
    sys.stdin.readline()
    # The size of a value changes.
    database = put(kind, path, [*values_of(2), ("v/100", b"2" * 50), ("v/new", b"2" * 1000)])
    print("holding", flush=True)
    sys.stdin.readline()
    database.close()


def small(kind, path):
    items = [(".zgroup", b'{"zarr_format": 2}')]
    items += [(f"a{n % 7}/{n}", f"{n:04}".encode() * (n % 90 + 1)) for n in range(150)]
    items += [("long/0", b"0123456789" * 3000), ("long/1", b"abcdefghij" * 2000)]
    put(kind, path, items).close()


def tiny(kind, path):
    items = [(".zgroup", b'{"zarr_format": 2}'), ("a/0", b"1" * 100), ("a/1", b"2" * 1500), ("k" * 200, b"")]
    put(kind, path, items).close()


def write(kind, path):
    put(kind, path, [("v/more", b"1")]).close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
