#!/usr/bin/env python3
"""Read views at random and mapped, and read their sidecars: `reads.py MOUNT MANIFEST PREFIX READS`.

MOUNT shows the hierarchy whose arrays MANIFEST (tests/fixtures/matrix) lists below PREFIX. What is
compared with is the whole file, after its digest was found to be the expected one. READS reads at
random places are spread over `.bin`, `.npy` and chunks; each begins with no page in the kernel's
cache. Prints a line for each difference, then the counts; exits with 1 if anything differs.
"""
import json
import mmap
import os
import random
import sys
import xml.etree.ElementTree as xml

import numpy as np

import fixturelib as fl

MOUNT, MANIFEST, PREFIX, READS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
rng = random.Random(1)
bad, counts = [], {"files": 0, "reads": 0, "maps": 0, "hdr": 0, "vrt": 0, "nhdr": 0}

ENVI = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 6: "c8", 9: "c16", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
GDAL = {"Byte": "u1", "Int8": "i1", "UInt16": "u2", "Int16": "i2", "UInt32": "u4", "Int32": "i4", "UInt64": "u8",
        "Int64": "i8", "Float32": "f4", "Float64": "f8", "CFloat32": "c8", "CFloat64": "c16"}
NRRD = {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4", "int64": "i8",
        "uint64": "u8", "float": "f4", "double": "f8"}


def whole(path):
    with open(path, "rb") as f:
        return f.read()


def same(what, got, expected):
    if got != expected:
        bad.append(f"{what}: {len(got)} bytes that are not the expected {len(expected)}")


def at_random(path, reference, count):
    fd = os.open(path, os.O_RDONLY)
    counts["files"] += 1
    for _ in range(count):
        start = rng.randrange(len(reference) + 10)
        size = rng.choice((1, 7, 64, 4096, 5000, len(reference), 1 << 20))
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        same(f"{path} at {start}+{size}", os.pread(fd, size, start), reference[start:start + size])
        counts["reads"] += 1
    if reference:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            for start in sorted(range(0, len(reference), 4096), key=lambda _: rng.random()):
                same(f"{path} mapped at {start}", mapped[start:start + 4096], reference[start:start + 4096])
            counts["maps"] += 1
    os.close(fd)


def raster(path, dtype, offset, shape):
    """A file as old tools read it: this many bands of lines, mapped."""
    return np.memmap(path, dtype, "r", offset, tuple(shape))


def sidecars(directory, name, reference):
    listed = set(os.listdir(directory))
    data = os.path.join(directory, name + ".bin")
    if name + ".hdr" in listed:
        text = whole(os.path.join(directory, name + ".hdr")).decode()
        lines = text.splitlines()
        assert lines[0] == "ENVI", text
        keys = dict(line.split(" = ", 1) for line in lines[1:])
        assert keys["interleave"] == "bsq" and keys["header offset"] == "0", text
        dtype = np.dtype(ENVI[int(keys["data type"])]).newbyteorder("<>"[int(keys["byte order"])])
        shape = [int(keys[k]) for k in ("bands", "lines", "samples")]
        same(data + " through .hdr", raster(data, dtype, 0, shape).tobytes(), reference)
        counts["hdr"] += 1
    if name + ".vrt" in listed:
        tree = xml.fromstring(whole(os.path.join(directory, name + ".vrt")))
        width, height = int(tree.get("rasterXSize")), int(tree.get("rasterYSize"))
        got = b""
        for number, band in enumerate(tree.iter("VRTRasterBand"), 1):
            assert band.get("subClass") == "VRTRawRasterBand" and int(band.get("band")) == number
            source = band.find("SourceFilename")
            assert source.get("relativeToVRT") == "1" and source.text == name + ".bin", source.text
            order = {"LSB": "<", "MSB": ">"}[band.find("ByteOrder").text]
            dtype = np.dtype(GDAL[band.get("dataType")]).newbyteorder(order)
            assert int(band.find("PixelOffset").text) == dtype.itemsize
            assert int(band.find("LineOffset").text) == dtype.itemsize * width
            got += raster(data, dtype, int(band.find("ImageOffset").text), (height, width)).tobytes()
        same(data + " through .vrt", got, reference)
        counts["vrt"] += 1
    if name + ".nhdr" in listed:
        lines = whole(os.path.join(directory, name + ".nhdr")).decode().splitlines()
        assert lines[0].startswith("NRRD000"), lines
        keys = dict(line.split(": ", 1) for line in lines[1:])
        assert keys["encoding"] == "raw" and keys["data file"] == name + ".bin", lines
        dtype = np.dtype(NRRD[keys["type"]]).newbyteorder({"little": "<", "big": ">"}[keys["endian"]])
        sizes = [int(n) for n in keys["sizes"].split()]
        assert len(sizes) == int(keys["dimension"]), lines
        same(data + " through .nhdr", raster(data, dtype, 0, sizes[::-1]).tobytes(), reference)
        counts["nhdr"] += 1


def array(entry, count):
    name = os.path.basename(entry["path"])
    directory = os.path.join(MOUNT, os.path.relpath(entry["path"], PREFIX), ".zarrfs")
    sha = "sha256" if entry["zarr_format"] == 2 else "sha256_le"
    binary = whole(os.path.join(directory, name + ".bin"))
    assert fl.sha(binary) == entry["array"][sha], f"{entry['path']}: not the expected bytes"
    sidecars(directory, name, binary)
    if not count:
        return
    at_random(os.path.join(directory, name + ".bin"), binary, count)
    npy = whole(os.path.join(directory, name + ".npy"))
    assert npy.endswith(binary) and np.load(os.path.join(directory, name + ".npy"), mmap_mode="r").tobytes() == binary
    at_random(os.path.join(directory, name + ".npy"), npy, count)
    for chunk in rng.sample(entry["chunks"], min(2, len(entry["chunks"]))):
        path = os.path.join(directory, "chunks", chunk["key"])
        decoded = whole(path)
        assert fl.sha(decoded) == chunk[sha], f"{path}: not the expected bytes"
        at_random(path, decoded, count // 2)


def main():
    entries = [e for e in json.load(open(MANIFEST))["arrays"]
               if e["kind"] == "fixed" and e["array"]["nbytes"] > 0]
    read = set(range(0, len(entries), 5))
    for place, entry in enumerate(entries):
        try:
            array(entry, READS // len(read) // 3 + 1 if place in read else 0)
        except Exception as e:  # noqa: BLE001 - one broken array must not hide the others
            bad.append(f"{entry['path']}: {type(e).__name__}: {e}")
    for line in bad[:100]:
        print(line[:400])
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


main()
