#!/usr/bin/env python3
"""Stacks of images: `stacks.py write DIRECTORY`, `stacks.py check DIRECTORY MOUNT`.

The first writes images of OME-NGFF 0.4 and 0.5 and plain arrays with zarr-python. The second opens the
OME-TIFF and ImageJ files of each below MOUNT with tifffile and compares every value of every level; OME-XML
is validated against the schema of the OME Data Model. The same of `imagej DIRECTORY MOUNT` with ImageJ, and of
`vips DIRECTORY MOUNT` with libvips. Prints the counts; exits with 1 if anything differs.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import ome_types
import tifffile
import zarr

DIRECTORY = Path(sys.argv[2])
UNITS = {"t": ("time", "second"), "c": ("channel", None), "z": ("space", "micrometer"), "y": ("space", "micrometer"), "x": ("space", "micrometer")}
STEPS = {"t": 2.0, "c": 1.0, "z": 0.5, "y": 0.25, "x": 0.25}
# Name, axes, shape, type, chunks, levels, version of OME-NGFF.
IMAGES = [
    ("all4", "tczyx", (2, 3, 4, 160, 192), "<u2", (1, 1, 2, 64, 64), 3, "0.4"),
    ("all5", "tczyx", (2, 3, 4, 160, 192), "<u2", (1, 1, 2, 64, 64), 3, "0.5"),
    ("bytes", "cyx", (3, 100, 130), "|u1", (1, 50, 65), 2, "0.4"),
    ("floats", "zyx", (5, 64, 48), ">f4", (2, 32, 16), 2, "0.4"),
    ("halves", "zyx", (5, 64, 48), "<f2", (2, 32, 16), 1, "0.5"),
    ("signed", "tyx", (6, 40, 50), "<i2", (4, 40, 50), 1, "0.5"),
    ("wide", "yx", (40, 50), "<u4", (20, 20), 1, "0.5"),
    ("complex", "zyx", (2, 32, 32), "<c8", (1, 16, 16), 1, "0.5"),
    ("long", "zyx", (2, 32, 32), "<i8", (1, 16, 16), 1, "0.5"),
]
IMAGEJ = {"|u1", "<u2", "<i2", "<f2", ">f4"}
random = np.random.default_rng(3)


def values(shape, kind):
    kind = np.dtype(kind)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return random.integers(info.min, info.max, shape, endpoint=True, dtype=kind.newbyteorder("=")).astype(kind)
    real = random.standard_normal(shape)
    return (real + 1j * real if kind.kind == "c" else real).astype(kind)


def write():
    zarr.create_group(str(DIRECTORY), zarr_format=2)
    for name, axes, shape, kind, chunks, levels, version in IMAGES:
        zarr_format = 2 if version == "0.4" else 3
        group = zarr.create_group(str(DIRECTORY / name), zarr_format=zarr_format)
        datasets = []
        for level in range(levels):
            factor = 2**level
            sides = [-(-side // factor) for side in shape[-2:]]
            own = (*shape[:-2], *sides)
            more = {"dimension_names": list(axes)} if zarr_format == 3 else {}
            array = group.create_array(str(level), shape=own, dtype=kind, chunks=chunks, **more)
            array[...] = values(own, kind)
            scale = [STEPS[axis] * (factor if axis in "yx" else 1) for axis in axes]
            datasets.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
        described = [{"name": axis, "type": UNITS[axis][0], **({"unit": UNITS[axis][1]} if UNITS[axis][1] else {})} for axis in axes]
        image = {"name": f"image <{name}> & more", "axes": described, "datasets": datasets}
        if name == "wide":
            del image["name"]
        channels = {"channels": [{"label": f"dye {number}", "color": "FF0080"} for number in range(dict(zip(axes, shape)).get("c", 1))]}
        if version == "0.4":
            group.attrs.update({"multiscales": [{**image, "version": version}], "omero": channels})
        else:
            group.attrs["ome"] = {"version": version, "multiscales": [image], "omero": channels}
    plain = zarr.create_group(str(DIRECTORY / "plain"))
    for name, names, shape in [("stack", "zcyx", (2, 3, 16, 32)), ("turned", "zxy", (2, 16, 32)), ("other", "qyx", (2, 16, 32))]:
        array = plain.create_array(name, shape=shape, dtype="u1", chunks=(1,) * (len(shape) - 2) + (16, 16), dimension_names=list(names))
        array[...] = values(shape, "u1")
    # Invalid metadata: an absent level, many levels, axes of another count, a path out of the group.
    for name, image in [
        ("absent", {"axes": ["y", "x"], "datasets": [{"path": "0"}]}),
        ("many", {"axes": ["y", "x"], "datasets": [{"path": str(level)} for level in range(100_000)]}),
        ("short", {"axes": ["x"], "datasets": [{"path": "0"}]}),
        ("out", {"axes": ["y", "x"], "datasets": [{"path": "../plain/stack"}]}),
        ("number", {"axes": 5, "datasets": [{"path": "0"}]}),
    ]:
        group = zarr.create_group(str(DIRECTORY / name), zarr_format=2, attributes={"multiscales": [image]})
        if name in ("many", "short", "number"):
            group.create_array("0", shape=(16, 16), dtype="u1", chunks=(16, 16))[...] = 7


def expected(array):
    found = array[...]
    return found.astype("f4") if found.dtype == np.float16 else found


def squeezed(found):
    return found.reshape([length for length in found.shape if length != 1] or [1])


def check(mount):
    counts = {"ome": 0, "levels": 0, "imagej": 0, "refused": 0}
    for name, axes, shape, kind, _, levels, _ in IMAGES:
        group = zarr.open_group(str(DIRECTORY / name), mode="r")
        views = mount / name / ".zarrfs"
        if kind == "<i8":
            assert not (views / f"{name}.ome.tif").exists()
            counts["refused"] += 1
            continue
        for path in (views / f"{name}.ome.tif", mount / name / "0/.zarrfs/0.ome.tif"):
            with tifffile.TiffFile(path) as file:
                assert file.is_ome, path
                series = file.series[0]
                assert len(file.series) == 1 and len(series.levels) == levels, (path, series.levels)
                for level, own in enumerate(series.levels):
                    there = squeezed(expected(group[str(level)]))
                    here = squeezed(own.asarray())
                    assert here.dtype == there.dtype.newbyteorder("=") and here.shape == there.shape, (path, level, here.dtype, here.shape)
                    assert np.array_equal(here, there), (path, level)
                    counts["levels"] += 1
                text = file.ome_metadata
            ome = ome_types.from_xml(text, validate=True)
            image = ome.images[0]
            # Without a name in the metadata it is that of the file.
            own_name = path.name.split(".")[0] if name == "wide" else f"image <{name}> & more"
            assert image.name == own_name, image.name
            pixels = image.pixels
            sizes = {"t": pixels.size_t, "c": pixels.size_c, "z": pixels.size_z, "y": pixels.size_y, "x": pixels.size_x}
            assert all(sizes[axis] == dict(zip(axes, shape)).get(axis, 1) for axis in sizes), sizes
            assert pixels.physical_size_x == 0.25 and pixels.physical_size_x_unit.value == "µm"
            if "z" in axes:
                assert pixels.physical_size_z == 0.5
            if "t" in axes:
                assert pixels.time_increment == 2.0 and pixels.time_increment_unit.value == "s"
            assert [channel.name for channel in pixels.channels] == [f"dye {number}" for number in range(sizes["c"])]
            assert pixels.channels[0].color.as_rgb_tuple(alpha=False) == (255, 0, 128)
            counts["ome"] += 1
        path = views / f"{name}.imagej.tif"
        if kind not in IMAGEJ:
            assert not path.exists(), path
            counts["refused"] += 1
            continue
        with tifffile.TiffFile(path) as file:
            # ImageJ ignores all directories but the first.
            assert file.is_imagej and len(file.pages) == 1, path
            about = file.imagej_metadata
            # tifffile gives the axes of length 1 back in another way.
            _, wanted = hyperstack(name, axes, shape)
            here = file.series[0].asarray()
            assert np.array_equal(squeezed(here), squeezed(wanted)), (path, here.shape, wanted.shape)
            assert about["images"] == sizes["t"] * sizes["c"] * sizes["z"] and about["unit"] == "micron", about
            numerator, denominator = file.pages[0].tags["XResolution"].value
            assert numerator / denominator == 4.0
        counts["imagej"] += 1
    stack = zarr.open_array(str(DIRECTORY / "plain/stack"), mode="r")[...]
    path = mount / "plain/stack/.zarrfs/stack.ome.tif"
    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        assert series.axes == "ZCYX" and np.array_equal(series.asarray(), stack), series.axes
    with tifffile.TiffFile(path.with_name("stack.imagej.tif")) as file:
        assert np.array_equal(file.series[0].asarray(), stack), file.series[0].axes
    for name in ("turned", "other"):
        assert not (mount / f"plain/{name}/.zarrfs/{name}.ome.tif").exists()
        counts["refused"] += 1
    for name in ("absent", "short", "out", "number"):
        assert not (mount / name / f".zarrfs/{name}.ome.tif").exists(), name
        assert (mount / name / ".zarrfs/README.txt").read_text(), name
        counts["refused"] += 1
    with tifffile.TiffFile(mount / "many/.zarrfs/many.ome.tif") as file:
        assert (file.series[0].asarray() == 7).all()
    print(json.dumps(counts))


def hyperstack(name, axes, shape):
    """The sizes of the five axes, and the elements in the order of ImageJ: time, z, channel, y, x."""
    sizes = {axis: dict(zip(axes, shape)).get(axis, 1) for axis in "tczyx"}
    there = expected(zarr.open_group(str(DIRECTORY / name), mode="r")["0"])
    return sizes, there.reshape([sizes[axis] for axis in "tczyx"]).transpose(0, 2, 1, 3, 4)


# Prints the properties of each file in ImageJ, and saves the elements of all its planes as they are, big-endian.
MACRO = """
setBatchMode(true);
parts = split(getArgument(), "\\n");
for (i = 1; i < parts.length; i++) {
    open(parts[i]);
    getDimensions(width, height, channels, slices, frames);
    getVoxelSize(across, down, deep, unit);
    about = newArray(width, height, channels, slices, frames, bitDepth(), across, down, deep, Stack.getFrameInterval());
    for (n = 0; n < about.length; n++) about[n] = d2s(about[n], 6);
    print(String.join(about, " ") + " " + unit);
    saveAs("raw", parts[0] + "/" + i + ".raw");
    close();
}
"""


def check_imagej(mount):
    images = [image for image in IMAGES if image[3] in IMAGEJ]
    with tempfile.TemporaryDirectory() as scratch:
        macro = Path(scratch) / "macro.ijm"
        macro.write_text(MACRO)
        files = [str(mount / name / ".zarrfs" / f"{name}.imagej.tif") for name, *_ in images]
        java = ["xvfb-run", "-a", "java", f"-Duser.home={scratch}", "-cp", "/usr/share/java/ij.jar", "ij.ImageJ", "-batch", macro]
        done = subprocess.run([*java, "\n".join([scratch, *files])], capture_output=True, text=True, timeout=120)
        lines = done.stdout.splitlines()
        assert len(lines) == len(images), (done.stdout, done.stderr)
        for number, ((name, axes, shape, kind, *_), line) in enumerate(zip(images, lines), 1):
            sizes, wanted = hyperstack(name, axes, shape)
            steps = [STEPS[axis] if axis in axes else 1.0 for axis in "xyz"]
            interval = STEPS["t"] if "t" in axes else 0.0
            about = [*(sizes[axis] for axis in "xyczt"), 8 * wanted.itemsize, *steps, interval]
            *numbers, unit = line.split()
            assert [float(number) for number in numbers] == about and unit == "microns", (name, line, about)
            here = np.fromfile(Path(scratch) / f"{number}.raw", wanted.dtype.newbyteorder(">"))
            assert np.array_equal(here, wanted.ravel()), (name, here.shape, wanted.shape)
    print(json.dumps({"imagej": len(images)}))


def check_vips(mount):
    counts = {"files": 0, "levels": 0}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "planes.raw"
        for name, axes, shape, kind, _, levels, _ in IMAGES:
            if kind in ("<i8", "<c8"):
                # libvips has no complex numbers in TIFF.
                continue
            path = mount / name / ".zarrfs" / f"{name}.ome.tif"
            group = zarr.open_group(str(DIRECTORY / name), mode="r")
            for level in range(levels):
                # All planes, one below the other.
                which = f"{path}[n=-1]" if level == 0 else f"{path}[n=-1,subifd={level - 1}]"
                subprocess.run(["vips", "rawsave", which, out], check=True)
                wanted = expected(group[str(level)])
                wanted = wanted.astype(wanted.dtype.newbyteorder("="))
                here = np.fromfile(out, wanted.dtype)
                assert np.array_equal(here, wanted.ravel()), (name, level, here.shape, wanted.shape)
                counts["levels"] += 1
            counts["files"] += 1
    print(json.dumps(counts))


if sys.argv[1] == "write":
    write()
else:
    {"check": check, "imagej": check_imagej, "vips": check_vips}[sys.argv[1]](Path(sys.argv[3]))
