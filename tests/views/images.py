#!/usr/bin/env python3
"""Files of images and volumes: `images.py write DIRECTORY`, `images.py check DIRECTORY MOUNT`.

The first writes stores with zarr-python. The second opens `.nii` (nibabel, SimpleITK), `.mrc` (mrcfile) and
`.fits` (astropy, fitsverify) of each array and compares values, distances and units with zarr-python.
Prints the counts; exits with 1 if anything differs.
"""
import json
import os
import subprocess
import sys
import warnings

import mrcfile
import nibabel
import numpy as np
import SimpleITK
import zarr
from astropy.io import fits
from astropy.wcs import WCS

warnings.simplefilter("ignore")
DIRECTORY = sys.argv[2]
rng = np.random.default_rng(16)
INTEGERS = [f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)]
TYPES = INTEGERS + ["float16", "float32", "float64", "complex64", "complex128", "bool"]
MRC_MODES = {"int8", "int16", "float32", "complex64", "uint16", "uint8", "float16", "bool"}
counts, bad = {"nii": 0, "mrc": 0, "fits": 0}, []


def values(dtype, shape):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        data = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        data.flat[:2] = limits.min, limits.max
        return data
    data = rng.standard_normal(shape)
    return (data + 1j * rng.standard_normal(shape) if "complex" in dtype else data).astype(dtype)


def create(group, name, data, chunks, axes=None, attributes=None, **options):
    array = group.create_array(name, data=data, chunks=chunks, dimension_names=axes, **options)
    array.attrs.update(attributes or {})


def image(group, name, axes, levels, unit):
    """A group with the metadata of OME-NGFF 0.5; `levels` are arrays, scales and translations."""
    kinds = {"t": "time", "c": "channel"}
    parts = [{"name": a, "type": kinds.get(a, "space"), **({"unit": "second" if a == "t" else unit} if a != "c" else {})} for a in axes]
    group = group.create_group(name)
    datasets = []
    for number, (data, scale, translation) in enumerate(levels):
        create(group, str(number), data, [max(1, n // 2) for n in data.shape], axes)
        steps = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": translation}]
        datasets.append({"path": str(number), "coordinateTransformations": steps})
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": parts, "datasets": datasets}]}


def write():
    root = zarr.create_group(DIRECTORY)
    for dtype in TYPES:
        create(root, dtype, values(dtype, (4, 5, 6)), (2, 3, 4))
    old = zarr.create_group(os.path.join(DIRECTORY, "old"), zarr_format=2)
    for dtype in (">i2", ">u4", ">f4", ">f8"):
        create(old, dtype[1:], values(np.dtype(dtype).newbyteorder("=").name, (5, 6)).astype(dtype), (2, 3))
    data = values("uint16", (3, 2, 5, 6, 8))
    image(root, "cells", "tczyx", [
        (data, [0.5, 1, 2.0, 0.25, 0.25], [0, 0, 10, 20, 30]),
        (data[..., ::2, ::2], [0.5, 1, 2.0, 0.5, 0.5], [0, 0, 10, 20.125, 30.125])], "micrometer")
    # As nibabel orders arrays.
    create(root, "xyz", values("int16", (4, 5, 6)), (4, 5, 6), ["x", "y", "z"])
    image(root, "movie", "tyx", [(values("int16", (7, 6, 5)), [0.1, 2, 3], [0, 0, 0])], "angstrom")
    image(root, "tomogram", "zyx", [(values("float32", (4, 6, 5)), [1.5, 1.25, 1.25], [3, 4, 5])], "nanometer")
    image(root, "brain", "zyx", [(values("float32", (4, 6, 5)), [2, 1.5, 1.25], [-3, 4, 5])], "millimeter")
    header = nibabel.Nifti1Header()
    header.set_data_shape((5, 6, 4))
    header.set_data_dtype("float32")
    header.set_sform([[0, 1, 0, 5], [2, 0, 0, 6], [0, 0, 3, 7], [0, 0, 0, 1]], 4)
    header["descrip"] = b"of nifti-zarr"
    image(root, "head", "zyx", [(values("float32", (4, 6, 5)), [2, 1.5, 1.25], [0, 0, 0])], "millimeter")
    create(root["head"], "nifti", np.frombuffer(header.binaryblock, "u1"), (348,))
    create(root, "volumes", values("float32", (2, 3, 4, 5)), (1, 2, 2, 2))
    create(root, "long", values("uint8", (2, 40000)), (1, 9000))
    create(root, "large", values("float32", (5, 1024, 1024)), (2, 512, 512))
    create(root, "line", values("float32", (50,)), (20,))
    climate = root.create_group("climate")
    names = ("time", "lat", "lon")
    packed = {"scale_factor": 0.5, "add_offset": 100.0, "_FillValue": -999, "units": "K"}
    data = values("int16", (3, 4, 6))
    data[0, 0, :3] = -999
    create(climate, "t", data, (1, 4, 6), names, packed)
    data = values("uint16", (3, 4, 6))
    create(climate, "u", data, (1, 4, 6), names, {"scale_factor": 2.0, "_FillValue": 65535})
    data = np.array([[1, -1, 300], [-7, -1, 5]], "i2")
    create(climate, "signs", data, (1, 3), ("a", "b"), {"_Unsigned": "true", "_FillValue": -1, "scale_factor": 2.0})
    create(climate, "time", np.arange(3.0), (3,), ["time"], {"units": "days since 2000-01-01"})
    create(climate, "lat", np.array([60.0, 59.5, 59.0, 58.5]), (4,), ["lat"], {"units": "degrees_north"})
    create(climate, "lon", np.arange(6) * 0.25 + 3, (6,), ["lon"], {"units": "degrees_east"})


def same(what, found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape or not np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc"):
        bad.append(f"{what}: {found.shape} {found.dtype} {found.flat[:4]} is not {expected.shape} {expected.dtype} {expected.flat[:4]}")


def near(what, found, expected):
    if not np.allclose(found, expected, rtol=1e-6, atol=1e-9):
        bad.append(f"{what}: {found} is not {expected}")


def nifti(path, data, expected, is_plain):
    loaded = nibabel.load(path)
    assert isinstance(loaded, nibabel.Nifti2Image) == (max(data.shape) > 32767), path
    same(path, loaded.dataobj.get_unscaled(), expected.astype("float32") if data.dtype == "float16" else expected)
    if is_plain and data.dtype.kind != "c" and max(data.shape) <= 32767:
        read = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(path))
        same(path + " SimpleITK", read, data.astype("float32") if data.dtype == "float16" else data)
    counts["nii"] += 1
    return loaded


def mrc(path, data):
    with mrcfile.open(path) as opened:
        same(path, opened.data, data.astype("uint16") if data.dtype in ("uint8", "bool") else data)
        assert mrcfile.validate(path, print_file=open(os.devnull, "w")), path
        counts["mrc"] += 1
        return opened.voxel_size, opened.header.copy()


def astronomical(path, data):
    with fits.open(path, do_not_scale_image_data=False) as opened:
        header = opened[0].header
        found = opened[0].data
        if "BSCALE" not in header and "BLANK" not in header or header.get("BZERO"):
            same(path, found, data.astype("float32") if data.dtype == "float16" else data)
    output = subprocess.run(["fitsverify", "-q", path], capture_output=True, text=True)
    if output.returncode or "OK" not in output.stdout:
        bad.append(f"{path}: fitsverify: {output.stdout}{output.stderr}")
    counts["fits"] += 1


def check(mount):
    def file(array, suffix):
        return os.path.join(mount, array, ".zarrfs", os.path.basename(array) + suffix)

    root = zarr.open_group(DIRECTORY, mode="r")
    arrays = {name: root[name][...] for name in TYPES + ["volumes", "long", "large", "line"]}
    arrays.update({f"old/{dtype}": zarr.open_array(os.path.join(DIRECTORY, "old", dtype))[...] for dtype in ("i2", "u4", "f4", "f8")})
    for name, data in arrays.items():
        if data.ndim > 1:
            nifti(file(name, ".nii"), data, data.T, data.ndim <= 3)
        if data.dtype.name in MRC_MODES and data.ndim > 1:
            mrc(file(name, ".mrc"), data)
        elif os.path.exists(file(name, ".mrc")):
            bad.append(f"{name}: an .mrc file")
        if data.dtype.kind != "c":
            astronomical(file(name, ".fits"), data)
        elif os.path.exists(file(name, ".fits")):
            bad.append(f"{name}: a .fits file")
    if os.path.exists(file("line", ".nii")):
        bad.append("a line is no image")

    for level, (y, x, start) in enumerate([(0.25, 0.25, (30, 20, 10)), (0.5, 0.5, (30.125, 20.125, 10))]):
        name = f"cells/{level}"
        data = root[name][...]
        loaded = nifti(file(name, ".nii"), data, data.transpose(4, 3, 2, 0, 1), False)
        affine = np.diag([x, y, 2.0, 1.0])
        affine[:3, 3] = start
        near(name, loaded.affine, affine)
        same(name + " distances", loaded.header.get_zooms()[:4], np.array([x, y, 2.0, 0.5], "f4"))
        same(name + " units", loaded.header.get_xyzt_units(), ("micron", "sec"))
        astronomical(file(name, ".fits"), data)
    data = root["movie/0"][...]
    loaded = nifti(file("movie/0", ".nii"), data, data.transpose(2, 1, 0)[:, :, None], False)
    near("movie", loaded.header.get_zooms(), [3e-4, 2e-4, 1, 0.1])
    voxel, header = mrc(file("movie/0", ".mrc"), data)
    near("movie", [voxel.x, voxel.y], [3, 2])
    same("movie", [header.ispg, header.mz], [0, 1])
    data = root["tomogram/0"][...]
    loaded = nifti(file("tomogram/0", ".nii"), data, data.T, True)
    same("tomogram", loaded.header.get_xyzt_units()[0], "micron")
    voxel, header = mrc(file("tomogram/0", ".mrc"), data)
    near("tomogram", [voxel.x, voxel.y, voxel.z], [12.5, 12.5, 15])
    near("tomogram origin", [header.origin.x, header.origin.y, header.origin.z], [50, 40, 30])
    wcs = WCS(fits.getheader(file("tomogram/0", ".fits")))
    near("tomogram", wcs.wcs_pix2world([[2, 1, 1]], 0)[0], np.array([5 + 2.5, 4 + 1.25, 3 + 1.5]) * 1e-9)
    data = root["xyz"][...]
    loaded = nifti(file("xyz", ".nii"), data, data.T, True)
    same("xyz", nibabel.aff2axcodes(loaded.affine), ("S", "A", "R"))
    same("xyz", np.asanyarray(nibabel.as_closest_canonical(loaded).dataobj), data)
    data = root["brain/0"][...]
    read = SimpleITK.ReadImage(file("brain/0", ".nii"))
    same("brain", SimpleITK.GetArrayFromImage(read), data)
    near("brain", read.GetSpacing(), [1.25, 1.5, 2])
    # ITK has x and y in the other direction.
    near("brain", read.GetOrigin(), [-5, -4, -3])

    data = root["head/0"][...]
    loaded = nifti(file("head/0", ".nii"), data, data.T, True)
    same("head", loaded.affine, np.array([[0, 1, 0, 5], [2, 0, 0, 6], [0, 0, 3, 7], [0, 0, 0, 1.0]]))
    same("head", bytes(loaded.header["descrip"]).strip(b"\0") == b"of nifti-zarr", True)

    data = root["climate/t"][...]
    expected = data * 0.5 + 100
    loaded = nibabel.load(file("climate/t", ".nii"))
    same("climate", np.asarray(loaded.dataobj), expected.transpose(2, 1, 0)[:, :, None])
    near("climate", loaded.header.get_zooms(), [0.25, 0.5, 1, 86400])
    near("climate", loaded.affine[:2, :], [[0.25, 0, 0, 3], [0, -0.5, 0, 60]])
    with fits.open(file("climate/t", ".fits")) as opened:
        same("climate", opened[0].data, np.where(data == -999, np.nan, expected))
        same("climate", [opened[0].header[key] for key in ("BUNIT", "CTYPE1", "CTYPE2", "CUNIT1")], ["K", "LON", "LAT", "deg"])
        near("climate", opened[0].header["CDELT2"], -0.5)
    data = root["climate/u"][...]
    with fits.open(file("climate/u", ".fits")) as opened:
        same("climate unsigned", opened[0].data, np.where(data == 65535, np.nan, data * 2.0))
    data = root["climate/signs"][...].view("u2")
    with fits.open(file("climate/signs", ".fits")) as opened:
        same("climate signs", opened[0].data, np.where(data == 65535, np.nan, data * 2.0))
    for path in ("climate/t", "climate/u", "climate/signs"):
        output = subprocess.run(["fitsverify", "-q", file(path, ".fits")], capture_output=True, text=True)
        if "OK" not in output.stdout:
            bad.append(f"{path}: {output.stdout}")
    for line in bad[:50]:
        print(line[:400])
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


write() if sys.argv[1] == "write" else check(sys.argv[3])
