#!/usr/bin/env python3
"""Compare datasets of a mounted N5 hierarchy with the values that they were written from.

    python n5.py MOUNT EXPECTED TARGET...

Every PATH.npy below EXPECTED is compared with the view of that name of the dataset at PATH, and with
the array of the same path in MOUNT/.zarrfs/TARGET, opened by zarr. Prints a line for each difference,
then the number of comparisons and of differences.
"""
import os
import sys
import warnings

import numpy as np
import zarr

warnings.simplefilter("ignore")


def paths(top):
    for directory, names, files in os.walk(top):
        names.sort()
        for name in sorted(files):
            yield os.path.relpath(os.path.join(directory, name), top)[: -len(".npy")]


def main():
    mount, expected, *targets = sys.argv[1:]
    compared, bad = 0, []
    for path in paths(expected):
        values = np.load(os.path.join(expected, path + ".npy"))
        name = os.path.basename(path)
        found = {"view": lambda: np.load(os.path.join(mount, path, ".zarrfs", name + ".npy"))}
        for target in targets:
            below = os.path.join(mount, ".zarrfs", target, path)
            found[target] = lambda below=below: zarr.open_array(below, mode="r")[...]
        for what, read in found.items():
            compared += 1
            try:
                array = np.asarray(read())
                same = array.shape == values.shape and (array == values).all()
                same = same and array.dtype.newbyteorder("<") == values.dtype.newbyteorder("<")
                if not same:
                    bad.append(f"{path} {what}: {array.dtype} {array.shape} of {values.dtype} {values.shape}")
            except Exception as e:  # noqa: BLE001 - one broken dataset must not hide the others
                bad.append(f"{path} {what}: {type(e).__name__}: {e}")
    for line in bad:
        print(line[:400])
    print(compared, len(bad))
    sys.exit(bool(bad) or not compared)


main()
