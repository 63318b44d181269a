#!/usr/bin/env python3
"""Compare a translation of a mounted hierarchy with the hierarchy itself.

    python translated.py MOUNT TARGET FORMAT [--digests FILE | --expect FILE] [--skip PATH]

Every array below MOUNT is opened by zarr and read whole, and so is the array of the same path in
MOUNT/.zarrfs/TARGET, which has to be of FORMAT (2 or 3). Prints one line for each difference, then how many
are equal, how many are missing in the translation, and how many differ. With --digests the
digests of the values are written to a file; with --expect they are compared with such a file
instead, for a zarr that cannot read the original.
"""
import argparse
import hashlib
import json
import os
import sys
import warnings

import numpy as np
import zarr

warnings.simplefilter("ignore")

OLD = zarr.__version__.startswith("2.")


def digest(a):
    """Of shape, type and values; every number little-endian."""
    a = np.asarray(a)
    kind = a.dtype.kind
    h = hashlib.sha256(repr(a.shape).encode())
    if kind in "OT":
        for x in a.reshape(-1).tolist():
            b = x.encode() if isinstance(x, str) else bytes(x or b"")
            h.update(len(b).to_bytes(8, "little") + b)
        return h.hexdigest()
    a = a.astype(a.dtype.newbyteorder("<"))
    if kind in "fc":
        # Which NaN it is is not the same in all readers.
        a = np.where(np.isnan(a), a.dtype.type(np.nan), a)
    h.update(f"{kind}{a.dtype.itemsize}".encode() + np.ascontiguousarray(a).tobytes())
    return h.hexdigest()


def open_array(path, zarr_format=None):
    if OLD:
        return zarr.open_array(path, mode="r")
    return zarr.open_array(path, mode="r", zarr_format=zarr_format)


def arrays(mount):
    for directory, names, files in os.walk(mount):
        names.sort()
        if ".zarray" in files:
            yield os.path.relpath(directory, mount), 2
            names.clear()
        elif "zarr.json" in files:
            with open(os.path.join(directory, "zarr.json")) as f:
                if json.load(f)["node_type"] == "array":
                    yield os.path.relpath(directory, mount), 3
                    names.clear()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mount")
    parser.add_argument("target")
    parser.add_argument("format", type=int)
    parser.add_argument("--digests")
    parser.add_argument("--expect")
    parser.add_argument("--skip", help="arrays whose paths begin so are only looked up")
    args = parser.parse_args()
    expected = json.load(open(args.expect)) if args.expect else None
    views = os.path.join(args.mount, ".zarrfs", args.target)
    same, missing, unread, bad, digests = 0, [], [], [], {}
    for path, source_format in arrays(args.mount):
        there = os.path.join(views, path)
        if expected is not None:
            own = expected.get(path)
        else:
            try:
                own = digest(open_array(os.path.join(args.mount, path), source_format)[...])
            except Exception as error:
                own = None
                unread.append(f"{path}: {type(error).__name__}: {error}"[:160])
        if own is not None:
            digests[path] = own
        if not os.path.exists(there):
            missing.append(path)
            continue
        if own is None or args.skip and path.startswith(args.skip):
            continue
        try:
            array = open_array(there, args.format)
            found = digest(array[...])
        except Exception as error:
            bad.append(f"{path}: {type(error).__name__}: {error}"[:300])
            continue
        if found == own:
            same += 1
        else:
            bad.append(f"{path}: other values")
    if args.digests:
        with open(args.digests, "w") as f:
            json.dump(digests, f)
    print("\n".join([f"BAD {line}" for line in bad]))
    print(json.dumps({"same": same, "missing": missing, "unread": unread, "bad": len(bad)}))
    return bool(bad) or not same


sys.exit(main())
