"""Changes an Icechunk repository for scripts/soak.

usage: soak.py DIRECTORY

Writes a repository with the arrays of scripts/soak and prints `committed`; then commits a change for each line of
input, and prints `committed` again.
"""

import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import icechunk
from zarr.core.buffer import cpu
from zarr.core.sync import sync

sys.dont_write_bytecode = True
LOADER = SourceFileLoader("soak", str(Path(__file__).resolve().parents[2] / "scripts/soak"))
soak = module_from_spec(spec_from_loader("soak", LOADER))
LOADER.exec_module(soak)


class Repository(soak.Hierarchy):
    """Icechunk refuses a chunk outside of the shape, in whatever order a commit has both."""

    def __init__(self, directory):
        super().__init__()
        storage = icechunk.local_filesystem_storage(directory)
        self.repository = icechunk.Repository.create(storage)
        self.commit(self.fill)

    def commit(self, act):
        session = self.repository.writable_session("main")
        self.store = session.store
        act()
        # A short array is not shortened.
        if session.has_uncommitted_changes:
            session.commit("a step")
        print("committed", flush=True)

    def fill(self):
        self.put("zarr.json", json.dumps({"zarr_format": 3, "node_type": "group"}).encode())
        for array in range(soak.ARRAYS):
            self.append(array, 8)

    def chunk_key(self, array, number):
        return f"a{array}/c/{number}"

    def shape(self, array, chunks):
        self.lengths[array] = chunks
        document = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [chunks * soak.WORDS],
            "data_type": "uint32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [soak.WORDS]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }
        self.put(f"a{array}/zarr.json", json.dumps(document).encode())

    def append(self, array, count=1):
        length = self.lengths[array]
        self.shape(array, length + count)
        for number in range(length, length + count):
            self.replace(array, number)

    def shrink(self, array):
        length = self.lengths[array]
        if length > 2:
            for number in range(length // 2, length):
                self.delete(self.chunk_key(array, number))
            self.shape(array, length // 2)

    def put(self, name, value):
        sync(self.store.set(name, cpu.Buffer.from_bytes(value)))

    def delete(self, name):
        sync(self.store.delete(name))


def main():
    repository = Repository(sys.argv[1])
    for _ in sys.stdin:
        repository.commit(repository.step)


if __name__ == "__main__":
    main()
