"""Writes databases of Zarr keys with the libraries of their time.

usage: write.py hierarchy DIRECTORY       one hierarchy in a zip and in each kind of database
       write.py redis PORT PASSWORD PREFIX ZIP  the same hierarchy in Redis, and in a zip
       write.py mongodb PORT ZIP                the same in MongoDB
       write.py update KIND PATH SECONDS  transactions that change all values; prints the last number
       write.py once KIND PATH NUMBER     the values of one number, in a database that is made anew
       write.py grow KIND PATH            transactions that add values to those of one number, until a line of input
       write.py hang KIND PATH            a transaction that is begun and waits, or nothing after `close`
       write.py small KIND PATH           values that fit into pages, and two that do not
"""

import dbm.dumb
import os
import select
import sqlite3
import sys
import time

import lmdb
import numpy
import zarr
from numcodecs import Delta, Zlib

TABLE = "CREATE TABLE IF NOT EXISTS zarr(k TEXT PRIMARY KEY, v BLOB)"


class Sqlite:
    def __init__(self, path, mode="delete"):
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(f"PRAGMA journal_mode = {mode}")
        # Pages of a transaction reach the file before it is committed.
        self.connection.execute("PRAGMA cache_size = 10")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute(TABLE)

    def put(self, items, commit=True):
        self.connection.execute("BEGIN")
        # As zarr-sqlite: the row of a key stays the same.
        update = "INSERT INTO zarr VALUES(?, ?) ON CONFLICT(k) DO UPDATE SET v = excluded.v"
        self.connection.executemany(update, items)
        if commit:
            self.connection.execute("COMMIT")

    def close(self):
        self.connection.close()


class Lmdb:
    def __init__(self, path, engine, map_size=1 << 40):
        self.environment = lmdb.open(path, lib_version=engine, map_size=map_size, writemap=True, sync=False)

    def put(self, items, commit=True):
        transaction = self.environment.begin(write=True)
        for key, value in items:
            transaction.put(key.encode(), value)
        if commit:
            transaction.commit()
        else:
            self.pending = transaction

    def close(self):
        self.environment.close()


KINDS = {
    "sqlite": Sqlite,
    "wal": lambda path: Sqlite(path, "wal"),
    "lmdb0": lambda path: Lmdb(path, 0),
    "lmdb1": lambda path: Lmdb(path, 1),
}


def fill(store):
    """Groups, attributes, filters, chunks of all sizes, and some that are not there."""
    root = zarr.open_group(store, mode="w")
    root.attrs["title"] = "databases"
    group = root.create_group("g")
    group.attrs["units"] = "K"
    numbers = numpy.arange(37 * 20, dtype="i4").reshape(37, 20)
    array = group.create_dataset("filtered", data=numbers, chunks=(10, 7), filters=[Delta(dtype="i4")], compressor=Zlib(1))
    array.attrs["a"] = [1, 2]
    random = numpy.random.default_rng(1).random((3, 200_000))
    root.create_dataset("long", data=random, chunks=(1, 100_000), compressor=None)
    holes = root.create_dataset("holes", shape=(100, 100), chunks=(10, 10), dtype="f4", fill_value=-1)
    holes[20:35, 50:90] = 7
    nested = root.create_dataset("nested", data=numbers, chunks=(9, 9), dimension_separator="/")
    nested.attrs["nested"] = True
    if hasattr(store, "close"):
        store.close()


def redis(port, password, prefix, reference):
    fill(zarr.ZipStore(reference, mode="w"))
    fill(zarr.RedisStore(prefix=prefix, port=int(port), password=password))


def mongodb(port, reference):
    fill(zarr.ZipStore(reference, mode="w"))
    fill(zarr.MongoDBStore(port=int(port)))


def hierarchy(directory):
    os.chdir(directory)
    fill(zarr.ZipStore("h.zip", mode="w"))
    fill(zarr.SQLiteStore("h.sqlite"))
    fill(zarr.LMDBStore("h.lmdb"))
    fill(zarr.LMDBStore("h-file.lmdb", subdir=False))
    fill(zarr.DBMStore("h-zarr", open=dbm.dumb.open))
    # Formats that zarr-python does not write: the other format of LMDB, and the table of dbm.sqlite3.
    source = zarr.ZipStore("h.zip", mode="r")
    items = [(key, source[key]) for key in source]
    other = Lmdb("h-1.0.lmdb", 1)
    other.put(items)
    other.close()
    table = sqlite3.connect("h.dbm")
    table.execute("PRAGMA journal_mode = wal")
    table.execute("CREATE TABLE Dict(key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)")
    table.executemany("REPLACE INTO Dict VALUES(?, ?)", [(key.encode(), value) for key, value in items])
    table.commit()
    table.close()
    for name in sorted(os.listdir(".")):
        if not name.endswith(".bak"):
            print(name)


def values_of(number):
    """Each value has one byte, again and again: a mixture of two contents has two."""
    byte = bytes([number % 256])
    yield ".zgroup", b'{"zarr_format": 2}'
    for length in (100, 3000, 20_000, 300_000):
        yield f"v/{length}", byte * length


def update(kind, path, seconds):
    database = KINDS[kind](path)
    end = time.monotonic() + float(seconds)
    number = 0
    while time.monotonic() < end:
        number += 1
        database.put(values_of(number))
        if number == 1:
            print("ready", flush=True)
        # A program that reads has time to open a value between two transactions, also on a busy machine.
        time.sleep(0.02)
    print(number % 256, flush=True)
    database.close()


def once(kind, path, number):
    # The file has the size of the map, and programs that copy it write all of it.
    database = Lmdb(path, int(kind[-1]), 1 << 24) if kind.startswith("lmdb") else KINDS[kind](path)
    database.put(values_of(int(number)))
    database.close()


def grow(kind, path):
    database = KINDS[kind](path)
    database.put(values_of(1))
    print("ready", flush=True)
    number = 0
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        number += 1
        database.put([(f"w/{number}", b"w" * 100_000)])
    database.close()


def hang(kind, path):
    database = KINDS[kind](path)
    database.put(values_of(1))
    print("ready", flush=True)
    if sys.stdin.readline() == "close\n":
        return database.close()
    database.put([*values_of(2), ("v/new", b"2" * 300_000)], commit=False)
    print("hanging", flush=True)
    time.sleep(600)


def small(kind, path):
    database = KINDS[kind](path)
    items = [(".zgroup", b'{"zarr_format": 2}')]
    items += [(f"a{n % 7}/{n}", f"{n:04}".encode() * (n % 90 + 1)) for n in range(150)]
    database.put(items)
    database.put([("long/0", b"0123456789" * 3000), ("long/1", b"abcdefghij" * 2000)])
    database.close()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
