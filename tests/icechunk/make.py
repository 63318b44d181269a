"""Writes Icechunk repositories, and compares what is mounted with what zarr-python reads of them.

usage: make.py write DIRECTORY             a repository of the version of icechunk that is installed
       make.py commit DIRECTORY MESSAGE    changes array `ints` on `main`, and prints the snapshot
       make.py move DIRECTORY PREFIX       gives virtual chunks another prefix
       make.py compare MOUNT VERSION       compares arrays with those of `first`, `second` or `third`
       make.py same MOUNT DIRECTORY        compares all arrays with those of the repository itself
       make.py target FILE                  what virtual chunks are ranges of
       make.py large DIRECTORY COUNT       an array of so many virtual chunks, for measurements

icechunk 1 writes version 1 of the format. What icechunk 2 has written is beside this file, in
icechunk-v2.zip; `write` makes it again.
"""

import os
import sys
import warnings
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import zarr

warnings.simplefilter("ignore")

# Virtual chunks begin with this: `move` puts another prefix of the same length there.
PREFIX = "file:///" + "x" * 120 + "/"
# What virtual chunks are ranges of; the time of the file, and the entity tag that nginx makes of it.
TARGET = np.arange(1000, dtype="<i4")
MODIFIED = 1_700_000_000
TAG = f"{MODIFIED:x}-{TARGET.nbytes:x}"


def versions():
    """The arrays of each version."""
    ints = np.arange(42, dtype="i4").reshape(6, 7)
    changed = ints.copy()
    changed[0, 0] = 99
    first = {
        "ints": ints,
        "scalar": np.float64(3.5),
        "sub/long": np.arange(4000, dtype="f8"),
        "sub-group/flags": np.arange(10) % 3 == 0,
        "sub/split": np.arange(300, dtype="i2").reshape(30, 10),
        "virtual": TARGET[100:300],
    }
    second = first | {"ints": changed}
    third = second | {"sub/late": np.arange(5, dtype="u1")}
    return {"first": first, "second": second, "third": third}


def create(group, name, value, **options):
    value = np.asarray(value)
    array = group.create_array(name, shape=value.shape, dtype=value.dtype, **options)
    array[...] = value
    return array


def write(directory):
    import icechunk

    arrays = versions()["third"]
    storage = icechunk.local_filesystem_storage(str(directory))
    # Manifests of at most 8 chunks along an axis of `split`.
    split = icechunk.ManifestSplittingConfig.from_dict(
        {
            icechunk.ManifestSplitCondition.path_matches("split"): {
                icechunk.ManifestSplitDimCondition.Axis(0): 8
            }
        }
    )
    config = icechunk.RepositoryConfig(manifest=icechunk.ManifestConfig(splitting=split))
    is_2 = not icechunk.__version__.startswith("1.")
    container = icechunk.local_filesystem_store("/" + "x" * 120)
    names = {"name": "data"} if is_2 else {}
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(PREFIX, container, **names)
    )
    repository = icechunk.Repository.create(storage, config=config)
    repository.save_config()
    session = repository.writable_session("main")
    root = zarr.group(session.store, attributes={"title": "made by a test"})
    create(root, "ints", versions()["first"]["ints"], chunks=(2, 3), fill_value=-1)
    create(root, "scalar", arrays["scalar"])
    sub, other = root.create_group("sub"), root.create_group("sub-group")
    create(sub, "long", arrays["sub/long"], chunks=(1000,), compressors=None)
    create(other, "flags", arrays["sub-group/flags"], chunks=(3,))
    create(sub, "split", arrays["sub/split"], chunks=(1, 5), compressors=None)
    virtual = {"chunks": (50,), "dtype": "<i4", "compressors": None, "filters": None}
    root.create_array("virtual", shape=(200,), **virtual)
    # Four chunks, of which two are relative to the container where the version has that.
    for number in range(4):
        relative = is_2 and number % 2
        location = ("vcc://data/" if relative else PREFIX) + "data.bin"
        session.store.set_virtual_ref(
            f"virtual/c/{number}", location, offset=4 * (100 + 50 * number), length=200
        )
    # Chunks of which only one version is meant.
    checked = root.create_group("checked")
    date = datetime.fromtimestamp(MODIFIED, timezone.utc)
    for number, (name, checksum) in enumerate([("dated", date), ("tagged", TAG)]):
        checked.create_array(name, shape=(50,), **virtual)
        session.store.set_virtual_ref(
            f"checked/{name}/c/0", PREFIX + "data.bin", offset=200 * number, length=200, checksum=checksum
        )
    first = session.commit("first")
    repository.create_tag("v1", snapshot_id=first)
    second = commit(repository, "second")
    repository.create_branch("dev", snapshot_id=first)
    repository.create_tag("gone", snapshot_id=second)
    repository.delete_tag("gone")


def commit(repository, message):
    session = repository.writable_session("main")
    root = zarr.open_group(session.store)
    root["ints"][...] = versions()["second"]["ints"]
    if message == "third":
        create(root["sub"], "late", versions()["third"]["sub/late"], chunks=(2,))
    return session.commit(message)


def open_repository(directory):
    import icechunk

    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(directory)))


def move(directory, prefix):
    """Replaces the prefix of virtual chunks in manifests and in the file `repo`."""
    from numcodecs.zstd import Zstd

    old, directory = PREFIX.encode(), Path(directory)
    new = prefix.encode() + b"/" * (len(old) - len(prefix))
    assert len(new) == len(old), "the prefix is too long"
    moved = 0
    for path in [*directory.glob("manifests/*"), *directory.glob("repo")]:
        file = path.read_bytes()
        head, body = bytearray(file[:39]), file[39:]
        body = Zstd().decode(body) if head[38] == 1 else body
        if old in body:
            # What is not compressed is read, too.
            head[38] = 0
            path.write_bytes(bytes(head) + body.replace(old, new))
            moved += 1
    print(moved)


def arrays_of(group):
    members = group.members(max_depth=None)
    return {name: member for name, member in members if isinstance(member, zarr.Array)}


def compare(found, expected):
    found = {name: array for name, array in found.items() if not name.startswith("checked/")}
    assert set(found) == set(expected), (set(found), set(expected))
    for name, array in expected.items():
        own = np.asarray(found[name][...])
        array = np.asarray(array[...])
        assert own.dtype == array.dtype and np.array_equal(own, array), name
    print(len(expected))


def mounted(mount):
    store = zarr.storage.LocalStore(mount, read_only=True)
    return arrays_of(zarr.open_group(store, mode="r", use_consolidated=False))


def large(directory, count):
    """Chunks of files that are not there."""
    import icechunk

    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(directory)))
    session = repository.writable_session("main")
    root = zarr.group(session.store)
    root.create_array("large", shape=(count,), chunks=(1,), dtype="i4", compressors=None)
    chunks = [
        icechunk.VirtualChunkSpec([i], f"file:///nowhere/file-{i // 1000}.nc", 40 * i + 1000, 40)
        for i in range(count)
    ]
    session.store.set_virtual_refs("large", chunks, validate_containers=False)
    session.commit("large")


def main(command, path, *more):
    if command == "write":
        write(path)
    elif command == "commit":
        print(commit(open_repository(path), *more))
    elif command == "move":
        move(path, *more)
    elif command == "compare":
        compare(mounted(path), versions()[more[0]])
    elif command == "same":
        session = open_repository(more[0]).readonly_session("main")
        own = arrays_of(zarr.open_group(session.store, mode="r"))
        # icechunk has to be told which targets it may read.
        is_own = lambda name: not name.startswith(("virtual", "checked/"))
        own, found = ({n: a for n, a in arrays.items() if is_own(n)} for arrays in (own, mounted(path)))
        compare(found, own)
    elif command == "target":
        Path(path).write_bytes(TARGET.tobytes())
        os.utime(path, (MODIFIED, MODIFIED))
    elif command == "large":
        large(path, int(more[0]))
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
