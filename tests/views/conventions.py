#!/usr/bin/env python3
"""What attributes say, in each format: `conventions.py ngff|write DIRECTORY`, `conventions.py check DIRECTORY MOUNT`.

`ngff` writes images with ngff-zarr, in an environment of its own; `write` writes arrays with each other convention. Each
store has the same volume: spacings and coordinates of the first element along z, y and x as below. `check` compares what
the programs of each format read with them. What a format cannot express must be in views.json, and nothing else.
Prints the counts; exits with 1 if anything differs.
"""
import json
import os
import sys

DIRECTORY = sys.argv[2]
# In micrometres, along z, y and x; in seconds.
SPACING, ORIGIN = [2.0, 0.5, 0.25], [10.0, 20.0, 30.0]
STEP, START = 2.0, 1.0
SHAPE = (3, 4, 5, 6)
UNITS = {"t": "second", "z": "micrometer", "y": "micrometer", "x": "micrometer"}
COLORS = {"red": "FF0000", "blue": "0000FF"}
# Coordinates z, y and x of the indices, turned about z; and an array whose rows run along -x and columns along y.
(dz, dy, dx), (z, y, x) = SPACING, ORIGIN
TURNED = [[dz, 0, 0, z], [0, 0.8 * dy, -0.6 * dx, y], [0, 0.6 * dy, 0.8 * dx, x]]
PERMUTED = [[dz, 0, 0, z], [0, 0, dx, y], [0, -dy, 0, x]]
LPS = {"z": "inferior-to-superior", "y": "anterior-to-posterior", "x": "right-to-left"}


def ngff():
    import ngff_zarr as nz
    import numpy as np

    data = np.arange(np.prod(SHAPE), dtype="u2").reshape(SHAPE)
    scale = {"t": STEP, **dict(zip("zyx", SPACING))}
    translation = {"t": START, **dict(zip("zyx", ORIGIN))}
    for version in ("0.4", "0.5", "0.6"):
        image = nz.to_ngff_image(data, dims=list("tzyx"), scale=scale, translation=translation, axes_units=UNITS, name="cells")
        nz.to_ngff_zarr(os.path.join(DIRECTORY, f"ngff-{version}"), nz.to_multiscales(image, scale_factors=[]), version=version)


def axes(names, orientations=None):
    found = [{"name": n, "type": {"t": "time", "c": "channel"}.get(n, "space"), "unit": UNITS.get(n)} for n in names]
    for axis in found:
        if axis["unit"] is None:
            del axis["unit"]
        if orientations and axis["name"] in orientations:
            axis["orientation"] = {"type": "anatomical", "value": orientations[axis["name"]]}
    return found


def write():
    import numpy as np
    import xarray
    import zarr

    data = np.arange(np.prod(SHAPE), dtype="u2").reshape(SHAPE)
    steps = [
        {"type": "scale", "scale": [STEP, *SPACING]},
        {"type": "translation", "translation": [START, *ORIGIN]},
    ]

    def group(name, format=3):
        return zarr.open_group(os.path.join(DIRECTORY, name), mode="w", zarr_format=format)

    lps = group("lps", 2)
    lps.create_array("0", data=data)
    lps.attrs["multiscales"] = [{"version": "0.4", "name": "cells", "axes": axes("tzyx", LPS), "datasets": [{"path": "0", "coordinateTransformations": steps}]}]
    for name, matrix in (("turned", TURNED), ("permuted", PERMUTED)):
        turned = group(name)
        turned.create_array("0", data=data[0])
        own = {"type": "affine", "input": {"path": "0"}, "output": {"name": "physical"}, "affine": matrix}
        turned.attrs["ome"] = {"version": "0.6", "multiscales": [{"coordinateSystems": [{"name": "physical", "axes": axes("zyx")}], "datasets": [{"path": "0", "coordinateTransformations": [own]}]}]}
    channels = group("channels")
    channels.create_array("0", data=np.stack([data[0], data[1]]))
    channels.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [{"axes": axes("czyx"), "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, *SPACING]}]}]}],
        "omero": {"channels": [{"label": name, "color": color} for name, color in COLORS.items()]},
    }
    for name, own, above in [
        ("n5-viewer", {"pixelResolution": {"dimensions": SPACING[::-1], "unit": "um"}, "offset": ORIGIN[::-1]}, {}),
        ("n5-tensorstore", {"resolution": SPACING[::-1], "offset": ORIGIN[::-1], "units": ["um"] * 3, "axes": ["x", "y", "z"]}, {}),
        ("n5-group", {}, {"pixelResolution": {"dimensions": SPACING[::-1], "unit": "um"}, "offset": ORIGIN[::-1]}),
    ]:
        path = os.path.join(DIRECTORY, name)
        os.makedirs(os.path.join(path, "0/0/0"))
        metadata = {"dimensions": [6, 5, 4], "blockSize": [6, 5, 4], "dataType": "uint16", "compression": {"type": "raw"}}
        with open(os.path.join(path, "attributes.json"), "w") as file:
            json.dump({"n5": "2.0.0", **above}, file)
        with open(os.path.join(path, "0/attributes.json"), "w") as file:
            json.dump({**metadata, **own}, file)
        with open(os.path.join(path, "0/0/0/0"), "wb") as file:
            head = np.array([0, 3], ">u2").tobytes() + np.array([6, 5, 4], ">u4").tobytes()
            file.write(head + data[0].astype(">u2").tobytes())
    coordinates = {n: (n, o + s * np.arange(k), {"units": "um"}) for n, o, s, k in zip("zyx", ORIGIN, SPACING, SHAPE[1:])}
    coordinates["t"] = ("t", START + STEP * np.arange(3), {"units": "s"})
    values = xarray.DataArray(data.astype("i2"), dims=list("tzyx"), attrs={"units": "K"})
    values.encoding.update(_FillValue=-1, scale_factor=0.5, add_offset=3.0)
    dataset = xarray.Dataset({"0": values.astype("f8")}, coords=coordinates)
    dataset["0"].encoding.update(dtype="i2", _FillValue=-1, scale_factor=0.5, add_offset=3.0)
    dataset.to_zarr(os.path.join(DIRECTORY, "cf"), zarr_format=2, consolidated=False)
    uneven = dataset.assign_coords(x=("x", [0.0, 1.0, 3.0, 4.0, 7.0, 9.0], {"units": "um"}))
    uneven["0"].encoding.update(dtype="i2", _FillValue=-1)
    uneven.to_zarr(os.path.join(DIRECTORY, "uneven"), zarr_format=3, consolidated=False)
    strange = group("strange")
    strange.create_array("0", data=data[0])
    strange_axes = axes("zyx", {"z": "dorsal-to-ventral"})
    strange_axes[2]["unit"] = "furlong"
    strange.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": strange_axes, "datasets": [{"path": "0", "coordinateTransformations": [{"type": "warp", "path": "field"}]}]}]}


class Checks:
    def __init__(self, directory, mount, name):
        self.name, self.bad, self.files = name, [], 0
        self.has_time = name.startswith(("ngff", "lps", "cf"))
        self.has_origin = name != "channels"
        # ngff-zarr names the levels of its images itself.
        nodes = [n for n in sorted(os.listdir(os.path.join(mount, name))) if not n.startswith(".")]
        level = next((n for n in nodes if n in ("0", "scale0")), "0")
        self.level = os.path.join(mount, name, level)
        while not os.path.exists(os.path.join(self.level, "info.json")) and not self.is_array(self.level):
            inner = [n for n in os.listdir(self.level) if not n.startswith((".", "zarr.json"))]
            self.level = os.path.join(self.level, inner[0])
        self.views = os.path.join(self.level, ".zarrfs")
        self.stem = os.path.join(self.views, os.path.basename(self.level))
        self.list = json.load(open(os.path.join(self.views, "views.json")))

    @staticmethod
    def is_array(path):
        return json.load(open(os.path.join(path, ".zarrfs/views.json")))["node_type"] == "array"

    def same(self, what, found, expected):
        import numpy as np

        is_text = any(isinstance(part, str) for part in np.ravel(np.asarray(expected, dtype=object)))
        same = found == expected if is_text else np.allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-6, atol=1e-9)
        if not same:
            self.bad.append(f"{self.name}: {what}: {found} instead of {expected}")

    def not_expressed(self, suffix):
        name = os.path.basename(self.level) + suffix
        return next((view["not_expressed"] for view in self.list["views"] if view["name"] == name), None)

    def origin(self):
        return ORIGIN if self.has_origin else [0, 0, 0]

    def nifti(self):
        import nibabel
        import numpy as np

        image = nibabel.load(self.stem + ".nii", mmap=False)
        (z, y, x), (dz, dy, dx) = self.origin(), SPACING
        expected = np.array([[dx, 0, 0, x], [0, dy, 0, y], [0, 0, dz, z], [0, 0, 0, 1]], float)
        if self.name == "lps":
            expected = np.diag([-1, -1, 1, 1]) @ expected
        if self.name in ("turned", "permuted"):
            matrix = np.array(TURNED if self.name == "turned" else PERMUTED)
            # x comes first, in the file and in space.
            expected[:3, :3], expected[:3, 3] = matrix[::-1, 2::-1], matrix[::-1, 3]
        self.same("nii affine", image.affine, expected)
        self.same("nii spacing", image.header.get_zooms()[:3], SPACING[::-1])
        if self.name in ("lps", "permuted"):
            self.same("nii axes", "".join(nibabel.aff2axcodes(image.affine)), {"lps": "LPS", "permuted": "ALS"}[self.name])
        time = "sec" if self.has_time else "unknown"
        self.same("nii units", list(image.header.get_xyzt_units()), ["micron", time])
        if self.has_time:
            self.same("nii time", [image.header.get_zooms()[3], image.header["toffset"]], [STEP, START])

    def itk(self):
        import SimpleITK as sitk

        if self.name != "lps":
            return
        reader = sitk.ImageFileReader()
        reader.SetFileName(self.stem + ".nii")
        reader.ReadImageInformation()
        # ITK is LPS: the axes of the array and their coordinates, in millimetres.
        self.same("itk origin", reader.GetOrigin()[:3], [o / 1000 for o in ORIGIN[::-1]])
        self.same("itk direction", [reader.GetDirection()[i] for i in (0, 5, 10)], [1, 1, 1])

    def ome_tiff(self):
        import xml.etree.ElementTree as tree

        import tifffile

        if not os.path.exists(self.stem + ".ome.tif"):
            self.bad.append(f"{self.name}: no .ome.tif")
            return
        root = tree.fromstring(tifffile.TiffFile(self.stem + ".ome.tif").ome_metadata)
        space = {"o": "http://www.openmicroscopy.org/Schemas/OME/2016-06"}
        pixels = root.find(".//o:Pixels", space)
        self.same("ome spacing", [float(pixels.get(f"PhysicalSize{a}")) for a in "ZYX"], SPACING)
        self.same("ome unit", pixels.get("PhysicalSizeXUnit"), "\u00b5m")
        planes = root.findall(".//o:Plane", space)
        if self.has_origin and self.name != "turned":
            second = planes[1]
            self.same("ome plane", [float(second.get(f"Position{a}")) for a in "ZYX"], [ORIGIN[0] + SPACING[0], *ORIGIN[1:]])
        if self.has_time:
            self.same("ome time", [float(pixels.get("TimeIncrement")), float(planes[-1].get("DeltaT"))], [STEP, START + STEP * (SHAPE[0] - 1)])
        if self.name == "channels":
            found = [(c.get("Name"), int(c.get("Color")) & 0xFFFFFFFF) for c in root.findall(".//o:Channel", space)]
            self.same("ome channels", found, [(n, (int(c, 16) << 8) + 255) for n, c in COLORS.items()])

    def imagej(self):
        import tifffile

        file = tifffile.TiffFile(self.stem + ".imagej.tif")
        found = file.imagej_metadata
        if self.name != "turned":
            self.same("imagej spacing", found["spacing"], SPACING[0])
            tags = file.pages[0].tags
            resolution = [tags[t].value for t in ("YResolution", "XResolution")]
            self.same("imagej resolution", [b / a for a, b in resolution], SPACING[1:])
        self.same("imagej unit", found["unit"], "micron")
        if self.has_origin and self.name != "turned":
            self.same("imagej origin", [found[f"{a}origin"] for a in "zyx"], [-o / s for o, s in zip(ORIGIN, SPACING)])
        if self.has_time:
            self.same("imagej time", found["finterval"], STEP)
        if self.name == "channels":
            self.same("imagej labels", found["Labels"], list(COLORS) * SHAPE[1])
            ends = ["".join(f"{v:02X}" for v in lut[:, 255]) for lut in found["LUTs"]]
            self.same("imagej colours", ends, list(COLORS.values()))
        if self.name == "cf":
            self.same("imagej values", [found["c0"], found["c1"]], [3.0, 0.5])
            self.same("imagej unit of values", found["vunit"], "K")

    def fits(self):
        from astropy.io import fits
        from astropy.wcs import WCS

        header = fits.getheader(self.stem + ".fits")
        wcs = WCS(header)
        rank = header["NAXIS"]
        first = wcs.wcs_pix2world([[1.0] * rank], 1)[0]
        # FITS has x first; lengths are in metres.
        self.same("fits origin", first[:3], [o * 1e-6 for o in self.origin()[::-1]])
        self.same("fits units", [str(u) for u in wcs.wcs.cunit][:3], ["m"] * 3)
        second = wcs.wcs_pix2world([[2.0] + [1.0] * (rank - 1)], 1)[0] - first
        steps = [row[2] for row in TURNED[::-1]] if self.name == "turned" else [SPACING[2], 0, 0]
        self.same("fits step", second[:3], [step * 1e-6 for step in steps])
        if self.name == "cf":
            self.same("fits values", [header["BSCALE"], header["BZERO"], header["BLANK"]], [0.5, 3.0, -1])

    def mrc(self):
        import mrcfile

        if self.name == "turned":
            return
        with mrcfile.open(self.stem + ".mrc", permissive=True) as file:
            size, origin = file.voxel_size, file.header.origin
            self.same("mrc size", [float(size[a]) for a in "zyx"], [s * 1e4 for s in SPACING])
            self.same("mrc origin", [float(origin[a]) for a in "zyx"], [o * 1e4 for o in self.origin()])

    def nrrd(self):
        import nrrd

        header = nrrd.read_header(self.stem + ".nhdr")
        if self.name == "lps":
            self.same("nrrd space", header["space"], "right-anterior-superior")
            self.same("nrrd origin", header["space origin"], [-ORIGIN[2], -ORIGIN[1], ORIGIN[0]])
            self.same("nrrd directions", header["space directions"][0], [-SPACING[2], 0, 0])
        elif self.name == "turned":
            self.same("nrrd origin", header["space origin"], ORIGIN[::-1])
            self.same("nrrd directions", header["space directions"][0], [row[2] for row in TURNED[::-1]])
        else:
            self.same("nrrd spacing", header["spacings"][:3], SPACING[::-1])
            if self.has_origin:
                self.same("nrrd origin", header["axis mins"][:3], ORIGIN[::-1])

    def run(self):
        if self.name == "permuted":
            # Other formats have no axes z, x and y.
            self.nifti()
            return
        for check in (self.nifti, self.itk, self.ome_tiff, self.imagej, self.fits, self.mrc, self.nrrd):
            try:
                check()
                self.files += 1
            except Exception as error:
                self.bad.append(f"{self.name}: {check.__name__}: {type(error).__name__} {error}")
        self.losses()

    def losses(self):
        """What each format cannot express is said, and nothing else."""
        names, origin = "the names of axes", ["the origin"] * self.has_origin
        place = ["the coordinates"] if self.name == "cf" else ["the spacing", *origin, "the units of axes"]
        image = ["the name of the image"] * self.name.startswith(("ngff", "lps"))
        turn = {"lps": ["the orientation"], "turned": ["the transform"]}.get(self.name, [])
        if self.name == "turned":
            place = ["the spacing", "the units of axes"]
        channels = ["the names of channels", "the colours of channels"] * (self.name == "channels")
        values = ["the missing value", "scale and offset", "the unit of the values"] * (self.name == "cf")
        all_fields = [*image, names, *place, *turn, *values, *channels]
        expected = {
            ".npy": all_fields,
            ".nii": [*image, names, *values[:1], *channels],
            ".mrc": [*image, names, *turn, *values, *channels],
            ".fits": [*image, *(turn if self.name == "lps" else []), *channels],
            ".ome.tif": [*turn, *values],
            ".imagej.tif": [*image, *turn, *values[:1]],
        }
        for suffix, lost in expected.items():
            found = self.not_expressed(suffix)
            if found is not None and sorted(found) != sorted(lost):
                self.bad.append(f"{self.name}: not expressed by {suffix}: {found} instead of {lost}")


def check():
    mount = sys.argv[3]
    files, bad = 0, []
    names = sorted(n for n in os.listdir(DIRECTORY) if n not in ("uneven", "strange"))
    for name in names:
        checks = Checks(DIRECTORY, mount, name)
        checks.run()
        files, bad = files + checks.files, bad + checks.bad
    uneven = json.load(open(os.path.join(mount, "uneven/0/.zarrfs/views.json")))
    lost = {view["name"]: view["not_expressed"] for view in uneven["views"]}
    if "the coordinates that are not evenly spaced" not in lost["0.nii"]:
        bad.append(f"uneven: {lost}")
    strange = open(os.path.join(mount, "strange/0/.zarrfs/README.txt")).read()
    for part in ("dorsal-to-ventral", "furlong", "the transform warp"):
        if not any(part in line and "0.nii" in line for line in strange.splitlines()):
            bad.append(f"strange: {part} is in no diagnostic: {strange}")
    print("\n".join(bad))
    print(json.dumps({"stores": len(names), "files": files, "differences": len(bad)}))
    sys.exit(bool(bad))


if __name__ == "__main__":
    {"ngff": ngff, "write": write, "check": check}[sys.argv[1]]()
