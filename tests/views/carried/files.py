#!/usr/bin/env python3
"""What each format carries of each convention: `files.py EXPECTED MOUNT`.

EXPECTED is the file that stores.py writes. Each file is read with the library of its format. A field that the array
has is in the file, with the same value, or views.json says that the format does not express it; nothing is in a file
that the array does not have. Prints a table of conventions and formats, and the counts; exits with 1 if a cell is wrong.
"""
import json
import os
import re
import sys
import warnings
import xml.etree.ElementTree as tree

import numpy as np

warnings.simplefilter("ignore")
EXPECTED, MOUNT = json.load(open(sys.argv[1])), sys.argv[2]
METRES = {"m": 1.0, "mm": 1e-3, "um": 1e-6, "nm": 1e-9, "meter": 1.0, "millimeter": 1e-3, "micrometer": 1e-6, "nanometer": 1e-9, "\u00b5m": 1e-6, "micron": 1e-6}
# Words of views.json for the fields of an array.
FIELDS = {
    "image": "the name of the image",
    "names": "the names of axes",
    "spacing": "the spacing",
    "origin": "the origin",
    "units": "the units of axes",
    "orientation": "the orientation",
    "transform": "the transform",
    "even": "the coordinates",
    "uneven": "the coordinates that are not evenly spaced",
    "missing": "the missing value",
    "packing": "scale and offset",
    "header_packing": "scale and offset of the NIfTI header",
    "value_unit": "the unit of the values",
    "channels": "the names of channels",
    "colors": "the colours of channels",
    "crs": "the reference system",
    "unplaced": "the reference system (no transform is known)",
    "categories": "the categories",
}


class Node:
    """An array, what its convention says of it, and its views."""

    def __init__(self, key, fields):
        self.key, self.fields = key, fields
        self.names = fields["names"]
        self.views = os.path.join(MOUNT, key, ".zarrfs")
        self.list = json.load(open(os.path.join(self.views, "views.json")))
        self.sides = [i for i, name in enumerate(self.names) if (name or "").lower() not in ("t", "c", "band")]
        # Coordinates of regular distances are spacings and origins, for files without arrays.
        self.even = fields.get("even")
        if self.even:
            own = [self.even.get(n) for n in self.names]
            self.steps = {"spacing": [v and v[1] - v[0] for v in own], "origin": [v and v[0] for v in own]}

    def scale(self, axis):
        """The length in metres of the unit of an axis, or 1."""
        unit = self.fields.get("even_units") or (self.fields.get("units") or [None] * 9)[axis]
        return METRES.get(unit, 1.0)

    def lengths(self, field):
        """Spacings or origins of the sides of the array in metres; None if no side has one."""
        values = self.steps[field] if self.even else self.fields.get(field)
        return values and [values[i] * self.scale(i) for i in self.sides]

    def row(self, axis):
        """0 for a side to the right, 1 to the front, 2 to the top: by names, else by the order."""
        names = [self.names[i].lower() for i in self.sides]
        return "xyz".index(self.names[axis].lower()) if set(names) <= set("xyz") else len(self.sides) - 1 - self.sides.index(axis)

    def matrix(self):
        """Coordinates of the convention to the right, front and top, from indices of the sides, in metres."""
        if "ras" in self.fields:
            rows = np.array(self.fields["ras"]) * self.scale(self.sides[0])
            columns = ["xyz".index(self.names[i].lower()) for i in self.sides]
            return np.column_stack([rows[:, columns], rows[:, 3]])
        found = np.zeros((3, len(self.sides) + 1))
        origin = self.lengths("origin") or [0.0] * len(self.sides)
        for column, (axis, step) in enumerate(zip(self.sides, self.lengths("spacing"))):
            row = self.row(axis)
            found[row, column], found[row, -1] = step, origin[column]
        return found

    def as_expected(self, *fields):
        """The fields, after a comparison that covers them all."""
        return {field: self.fields[field] for field in fields if self.fields.get(field) is not None}


def near(found, expected):
    return np.allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-5, atol=1e-12, equal_nan=True)


def of_steps(node, spacing, origin, has_unit):
    """Fields of a file with a step and an origin along each side, in metres."""
    found = {}
    if node.even:
        start = node.lengths("origin")
        is_same = near(spacing, node.lengths("spacing")) and (origin is None or near(origin, start))
        return {"even": node.even if is_same else [list(spacing), origin]}
    expected, start = node.lengths("spacing"), node.lengths("origin") or [0.0] * len(node.sides)
    if spacing is not None:
        found["spacing"] = node.fields.get("spacing") if expected and near(spacing, expected) else list(spacing)
    if origin is not None and np.any(origin):
        found["origin"] = node.fields.get("origin") if near(origin, start) else list(origin)
    if has_unit:
        found["units"] = node.fields.get("units") or "invented"
    return found


def nifti(path, node):
    import nibabel

    image = nibabel.load(path, mmap=False)
    header = image.header
    found = {}
    unit = {"micron": 1e-6, "mm": 1e-3, "meter": 1.0}.get(header.get_xyzt_units()[0])
    order = [node.sides.index(i) for i in reversed(node.sides)]
    if header["sform_code"]:
        matrix = header.get_sform()[:3] * (unit or 1.0)
        expected = node.matrix() if node.lengths("spacing") else np.zeros((3, 1))
        columns = np.column_stack([matrix[:, [order.index(k) for k in range(len(order))]], matrix[:, 3]])
        if expected.shape == columns.shape and near(columns, expected):
            found.update(node.as_expected("spacing", "origin", "orientation", "transform", "even"))
        else:
            found["spacing"] = columns.tolist()
    if unit and not node.even:
        found["units"] = node.fields.get("units") or "invented"
    slope, intercept = image.dataobj.slope, image.dataobj.inter
    if (slope, intercept) != (1, 0):
        found["packing"] = [slope, intercept]
    text = bytes(header["descrip"]).rstrip(b"\0").decode()
    if text != (node.fields.get("header") or ""):
        found["value_unit"] = text
    return found


def nrrd(path, node):
    import nrrd as library

    header = library.read_header(path)
    units = [METRES.get(u) for u in (header.get("units") or header.get("space units") or []) if u]
    # Along the sides of the array; an axis of channels has no unit.
    unit = np.array(units[::-1]) if units else 1.0
    found = {}
    if header.get("labels"):
        found["names"] = [label for label in header["labels"][::-1]]
    if header.get("space directions") is not None:
        rows = np.array([row for row in header["space directions"] if not np.any(np.isnan(np.asarray(row, float)))], float) * np.max(unit)
        expected = node.matrix()
        is_same = near(rows[::-1].T, expected[:, :-1]) and near(header["space origin"] * np.max(unit), expected[:, -1])
        found.update(node.as_expected("spacing", "origin", "orientation", "transform") if is_same else {"spacing": rows.tolist()})
    elif header.get("spacings") is not None:
        steps = np.asarray(header["spacings"], float)[::-1]
        steps = steps[~np.isnan(steps)][-len(node.sides) or None:] if node.sides else steps
        mins = header.get("axis mins")
        mins = None if mins is None else np.asarray(mins, float)[::-1][-len(steps):]
        even = node.fields.get("even")
        if even:
            steps_expected = [even[n][1] - even[n][0] for n in node.names if n in even]
            is_same = near(steps[-len(steps_expected):], steps_expected) and near(mins[-len(steps_expected):], [even[n][0] for n in node.names if n in even])
            found["even"] = even if is_same else [list(steps), list(mins)]
        else:
            found.update(of_steps(node, steps * unit, None if mins is None else np.nan_to_num(mins) * unit, False))
    if units and not node.fields.get("even"):
        found["units"] = node.fields.get("units") or "invented"
    return found


def ome_tiff(path, node):
    import tifffile

    root = tree.fromstring(tifffile.TiffFile(path).ome_metadata)
    space = {"o": "http://www.openmicroscopy.org/Schemas/OME/2016-06"}
    pixels = root.find(".//o:Pixels", space)
    side = [(node.names[i] or "yx"[i - len(node.names)]).upper() for i in node.sides]
    names = ["c" if name == "band" else name for name in node.names]
    found = {}
    if all(names):
        found["names"] = node.names if set("".join(names).upper()) <= set(pixels.get("DimensionOrder")) else "lost"
    units = {"mm": 1e-3, "nm": 1e-9, "\u00b5m": 1e-6, "m": 1.0}
    sizes = [pixels.get(f"PhysicalSize{a}") for a in side]
    if any(sizes) and not all(sizes):
        # The decreasing coordinates of one side are not those of the array.
        return found
    if any(sizes):
        own = [units.get(pixels.get(f"PhysicalSize{a}Unit", "\u00b5m")) for a in side]
        plane = root.find(".//o:Plane", space)
        start = None if plane is None else [float(plane.get(f"Position{a}", 0)) * (u or 1) for a, u in zip(side, own)]
        found.update(of_steps(node, [float(s) * (u or 1) for s, u in zip(sizes, own)], start, any(own)))
    channels = root.findall(".//o:Channel", space)
    names = [c.get("Name") for c in channels]
    if any(names):
        found["channels"] = names
    if any(c.get("Color") for c in channels):
        found["colors"] = [f"{(int(c.get('Color')) & 0xFFFFFFFF) >> 8:06X}" for c in channels]
    name = root.find("o:Image", space).get("Name")
    if name == node.fields.get("image"):
        found["image"] = name
    return found


def imagej(path, node):
    import tifffile

    file = tifffile.TiffFile(path)
    data, tags = file.imagej_metadata, file.pages[0].tags
    found = {"names": node.names} if all(node.names) else {}
    unit = {"micron": 1e-6, "mm": 1e-3, "nm": 1e-9}.get(data.get("unit"))
    resolution = [tags[t].value for t in ("YResolution", "XResolution") if t in tags]
    if len(resolution) == 2 and unit:
        steps = {a: b / c * unit for a, (c, b) in zip("yx", resolution)}
        steps["z"] = data.get("spacing", 1.0) * unit
        side = [node.names[i] for i in node.sides]
        start = [-data.get(f"{a}origin", 0.0) * steps[a] for a in side]
        found.update(of_steps(node, [steps[a] for a in side], start, True))
    if "Labels" in data and node.fields.get("channels"):
        found["channels"] = data["Labels"][: len(node.fields["channels"])]
    if "LUTs" in data:
        found["colors"] = ["".join(f"{v:02X}" for v in lut[:, 255]) for lut in data["LUTs"]]
    if "c1" in data and (data["c0"], data["c1"]) != (0, 1):
        found["packing"] = [data["c1"], data["c0"]]
    if "vunit" in data:
        found["value_unit"] = data["vunit"]
    return found


def fits(path, node):
    from astropy.io import fits as library
    from astropy.wcs import WCS

    header = library.getheader(path)
    wcs, rank, found = WCS(header), header["NAXIS"], {}
    names = [header.get(f"CNAME{i}") or header.get(f"CTYPE{i}") for i in range(rank, 0, -1)]
    if all(names):
        found["names"] = node.names if [n.lower() for n in names] == [n.lower() for n in node.names] else names
    if "CDELT1" in header or "CD1_1" in header or "PC1_1" in header:
        first = wcs.wcs_pix2world([[1.0] * rank], 1)[0][::-1]
        moved = [wcs.wcs_pix2world([[2.0 if i == axis else 1.0 for i in range(rank)]], 1)[0][::-1] - first for axis in range(rank)][::-1]
        step = np.array(moved).T
        even = node.fields.get("even")
        if even:
            axes = [i for i, n in enumerate(node.names) if n in even]
            steps = [(even[node.names[i]][1] - even[node.names[i]][0]) * node.scale(i) for i in axes]
            starts = [even[node.names[i]][0] * node.scale(i) for i in axes]
            found["even"] = even if near([step[i, i] for i in axes], steps) and near(first[axes], starts) else step.tolist()
        elif node.fields.get("spacing") and node.fields.get("transform"):
            expected = node.matrix()
            rows = ["xyz".index(node.names[i]) for i in node.sides]
            is_same = near(step, expected[rows][:, :-1]) and near(first, expected[rows, -1])
            found.update(node.as_expected("spacing", "origin", "transform") if is_same else {"spacing": step.tolist()})
        else:
            found.update(of_steps(node, [step[i, i] for i in node.sides], [first[i] for i in node.sides], False))
        if any(str(u) for u in wcs.wcs.cunit) and not even:
            found["units"] = node.fields.get("units") or "invented"
    if "BLANK" in header and "missing" in node.fields:
        found["missing"] = header["BLANK"]
    if header["BITPIX"] < 0 and "missing" in node.fields and np.isnan(node.fields["missing"]):
        found["missing"] = np.nan
    # Unsigned integers are stored with an offset.
    if (header.get("BSCALE", 1.0), header.get("BZERO", 0.0)) not in ((1.0, 0.0), (1.0, 32768.0)):
        found["packing"] = [header["BSCALE"], header.get("BZERO", 0.0)]
    if "BUNIT" in header:
        found["value_unit"] = header["BUNIT"]
    return found


def mrc(path, node):
    import mrcfile

    with mrcfile.open(path, permissive=True, header_only=True) as file:
        size, origin = file.voxel_size, file.header.origin
        if not float(size.x):
            return {}
        side = "zyx"[3 - len(node.sides):]
        if min(node.lengths("spacing") or [0]) < 0:
            # A cell has no direction; a diagnostic names the axis.
            return {}
        return of_steps(node, [float(size[a]) * 1e-10 for a in side], [float(origin[a]) * 1e-10 for a in side], True)


def raster(path, node):
    import pyproj
    import rasterio

    with rasterio.open(path) as file:
        found, t = {}, file.transform
        even = node.fields.get("even")
        if not t.is_identity:
            rows = {"y": [t.f + t.e * (i + 0.5) for i in range(file.height)], "x": [t.c + t.a * (i + 0.5) for i in range(file.width)]}
            # The coordinates of other axes are in the metadata of bands.
            sides = even and {n: even[n] for n in node.names[-2:] if n in even}
            is_same = even and all(near(rows.get(n.lower(), rows["yx"[i % 2]]), v) for i, (n, v) in enumerate(sides.items()))
            if "gdal" in node.fields and near(list(t)[:6], node.fields["gdal"]):
                pass
            else:
                found["even"] = even if is_same else list(t)
        # GDAL makes an engineering system of an ENVI header without a system.
        if file.crs and not pyproj.CRS(file.crs.to_wkt()).is_engineering:
            # WKT of version 1 has no codes for all parts.
            found["crs"] = f"EPSG:{pyproj.CRS(file.crs.to_wkt()).to_epsg(min_confidence=20)}"
        if file.nodata is not None:
            found["missing"] = file.nodata
        if (file.scales[0], file.offsets[0]) != (1, 0):
            found["packing"] = [file.scales[0], file.offsets[0]]
        if file.units[0]:
            found["value_unit"] = file.units[0]
        return found


def netcdf(path, node):
    """The variable in the file of the group of the array."""
    import pyproj
    import xarray

    name = os.path.basename(node.key)
    with xarray.open_dataset(path, decode_cf=False, engine="netcdf4") as file:
        variable, found = file[name], {}
        if all(node.names):
            found["names"] = [re.sub(r"(_\d+)+$", "", n) for n in variable.dims]
        coordinates = {n: file[n] for n in variable.dims if n in file.variables}
        # CF 1.13, 6.1: names are no coordinate variable.
        # Classic files have bytes with a dimension of their own, and CDO opens none in which an attribute names them.
        named = list(file.variables) if path.endswith((".cdf.nc", ".cdf5.nc")) else variable.attrs.get("coordinates", "").split()
        for labels in [file[n] for n in named if n.startswith("channel") and file[n].dims[0] in variable.dims]:
            texts = [b"".join(row).rstrip(b"\0").decode() for row in labels.values] if labels.ndim == 2 else list(labels.values)
            found["channels"] = texts
            if "color" in labels.attrs:
                found["colors"] = labels.attrs["color"].split()
        if "image" in node.fields and "long_name" in variable.attrs:
            found["image"] = variable.attrs["long_name"]
        if any("orientation" in c.attrs for c in coordinates.values()):
            found["orientation"] = True
        even = {n: c.values.astype(float).tolist() for n, c in coordinates.items()}
        if "uneven" in node.fields and even:
            found["uneven"] = even.pop(node.names[0])
        if "times" in node.fields:
            coder = xarray.coders.CFDatetimeCoder(use_cftime=node.fields["times"][0][10] != "T")
            decoded = xarray.decode_cf(file[[name]], decode_times=coder)[node.names[0]]
            times = [str(t) for t in decoded.values]
            if times != node.fields["times"]:
                return {"even": times}
        expected = node.fields.get("even")
        if even and not expected and any(node.fields.get("spacing") or []):
            # Coordinates that are computed from spacings: where the array has them, and only there.
            own = [even.get(n) for n in variable.dims]
            steps = {"spacing": [v and v[1] - v[0] for v in own], "origin": [v and v[0] for v in own]}
            start = node.fields.get("origin") or [s and 0.0 for s in node.fields["spacing"]]
            for field, values in (("spacing", node.fields["spacing"]), ("origin", start)):
                is_same = all((a is None) == (b is None) and (a is None or near(a, b)) for a, b in zip(steps[field], values))
                found[field] = values if is_same else steps[field]
            if not any(start) and found["origin"] == start:
                del found["origin"]
            units = [file[n].attrs.get("units") if n in even else None for n in variable.dims]
            if any(units):
                same = [METRES.get(u) == METRES.get(v) for u, v in zip(units, node.fields.get("units") or [])]
                found["units"] = node.fields["units"] if same and all(same) else units
        elif even:
            found["even"] = expected if expected and all(near(v, expected.get(n, [])) for n, v in even.items() if len(v) == len(expected.get(n, []))) and set(expected) <= set(even) else even
        attributes = {**variable.attrs, **variable.encoding}
        missing = attributes.get("_FillValue", attributes.get("missing_value"))
        if missing is not None:
            found["missing"] = float(missing)
        if "scale_factor" in attributes:
            found["packing"] = [float(attributes["scale_factor"]), float(attributes.get("add_offset", 0))]
        if "units" in attributes:
            found["value_unit"] = attributes["units"]
        # The extended form has coordinates behind the name.
        mapping = file.variables.get(attributes.get("grid_mapping", "").split(":")[0])
        if mapping is not None:
            found["crs"] = f"EPSG:{pyproj.CRS.from_cf(mapping.attrs).to_epsg(min_confidence=20)}"
        return found


def table(path, node):
    """A column of stored numbers, and one for the coordinates of its dimension."""
    import pandas

    file = pandas.read_parquet(path) if path.endswith(".parquet") else pandas.read_csv(path, comment="#")
    name, dimension = os.path.basename(node.key), node.names[0]
    column = file[name].to_numpy(float, na_value=np.nan)
    scale, offset = node.fields.get("packing") or (1, 0)
    if not near(column * scale + offset, node.fields["values"]):
        return {"missing": column.tolist()}
    found = node.as_expected("missing")
    if dimension in file:
        # Times are text or dates; netcdf compares them.
        own = node.fields.get("uneven") if "uneven" in node.fields else None
        if own is None or near(file[dimension].to_numpy(float), own):
            found.update(node.as_expected("even", "uneven"))
    return found


def dataframe(path, node):
    """The columns of a dataframe in their order, the index first, with rows that have no value; and their categories."""
    import anndata
    import netCDF4
    import pandas
    import pyarrow.parquet

    expected, kinds = node.fields["table"], node.fields.get("categories")
    found = {}
    if path.endswith(".h5ad"):
        read = getattr(anndata.read_h5ad(path), node.key.split("/")[-1])
        columns = {read.index.name or "_index": read.index.tolist(), **{n: read[n].tolist() for n in read}}
        found = {n: [read[n].cat.categories.tolist(), bool(read[n].cat.ordered)] for n in read if read[n].dtype == "category"}
    elif path.endswith(".parquet"):
        read = pyarrow.parquet.read_table(path, read_dictionary=list(kinds or {}))
        columns = {n: read[n].to_pylist() for n in read.column_names}
        own = json.loads(read.schema.metadata[b"zarr.columns"])
        frame = pandas.read_parquet(path)
        if (frame.index.name or "_index", frame.index.tolist()) != next(iter(columns.items())):
            return {"categories": f"index {frame.index}"}
        chunks = {n: read[n].chunk(0) for n in kinds or {}}
        found = {n: [c.dictionary.to_pylist(), own[n]["attributes"]["ordered"]] for n, c in chunks.items() if pyarrow.types.is_dictionary(c.type)}
    elif path.endswith(".csv"):
        # Texts may be empty; other rows without a value are, too.
        read = pandas.read_csv(path, keep_default_na=False, na_values={n: ["", "NaN"] for n in expected if "" not in expected[n]})
        # The numbers of rows come before the columns.
        columns = {n: read[n].tolist() for n in read if n != "row"}
    else:
        # Files of the hierarchy as it is: the codes, and the categories.
        with netCDF4.Dataset(path) as file:
            for n in kinds or {}:
                found[n] = [file[n]["categories"][:].tolist(), bool(file[n].ordered)]
            return {"categories": found} if kinds else {}
    columns = {n: [None if pandas.isna(v) else v for v in column] for n, column in columns.items()}
    if columns != expected or list(columns) != list(expected):
        return {"categories": columns}
    # Categories that are numbers are values in Parquet: a diagnostic says so.
    is_part = path.endswith(".parquet") and all(found[n] == kinds[n] for n in found)
    return {"categories": kinds if is_part and kinds else found} if found else {}


def hdf5(path, node):
    """All attributes are in the file as they are."""
    import h5py

    name = os.path.basename(node.key)
    own = json.load(open(os.path.join(node.views, "attributes.json")))
    group = json.load(open(os.path.join(os.path.dirname(os.path.join(MOUNT, node.key)), ".zarrfs/attributes.json")))
    with h5py.File(path, "r") as file:
        lost = set(own) - set(file[name].attrs) - {"_ARRAY_DIMENSIONS"} | set(group) - set(file.attrs)
        if lost:
            return {"lost attributes": sorted(lost)}
        found = node.as_expected(*FIELDS)
        return found if any(node.names) else {f: v for f, v in found.items() if f != "names"}


def nothing(path, node):
    return {}


OF_ARRAY = {".npy": nothing, ".hdr": raster, ".vrt": raster, ".nhdr": nrrd, ".tif": raster, ".ome.tif": ome_tiff, ".imagej.tif": imagej, ".nii": nifti, ".mrc": mrc, ".fits": fits, ".packed.tif": raster, ".packed.nc": netcdf, ".parquet": table, ".csv": table}
OF_TABLE = {".parquet": dataframe, ".csv": dataframe, ".nc": dataframe, ".h5": dataframe}
OF_OBJECT = {".h5ad": dataframe}
OF_GROUP = {".nc": netcdf, ".cdf.nc": netcdf, ".cdf5.nc": netcdf, ".h5": hdf5}


def is_equal(found, expected):
    if found is expected:
        return True
    try:
        return near(found, expected)
    except (TypeError, ValueError):
        return found == expected


PLACE = ("step", "decrease", "spacing", "origin", "unit", "transform", "place", "coordinates", "distances")
SAID = {
    **dict.fromkeys(("spacing", "origin", "units", "even", "orientation", "transform"), PLACE),
    "names": ("the name of the axis",),
    "packing": ("scale",),
    "missing": ("the missing value",),
    "colors": ("the colours",),
    "crs": ("reference system", "place is left out"),
}


def diagnosed(views, name):
    """The fields of which a diagnostic of a file says that they are left out."""
    reasons = [d["reason"] for d in views["diagnostics"] if d["view"] == name and "left out" in d["reason"]]
    reasons += [d["reason"] for d in views["diagnostics"] if d["view"] == name and ("turns it" in d["reason"] or "decrease" in d["reason"] or "no place is known" in d["reason"])]
    return {field for field, words in SAID.items() if any(word in reason for word in words for reason in reasons)}


def cells(node, suffix, path, lost, read, noted):
    """Fields that the file carries, those that the list of views names, and what is wrong."""
    found = read(path, node)
    if "header_packing" in node.fields and "packing" in found:
        found["header_packing"] = found.pop("packing")
    expected = {f: node.fields.get(f) for f in FIELDS}
    if not any(node.names):
        expected["names"] = None
    if expected["origin"] and not any(expected["origin"]):
        expected["origin"] = None
    carried, said, bad = [], [], []
    for field, words in FIELDS.items():
        has, own = expected[field] is not None, found.get(field)
        if own is not None and not has:
            bad.append(f"{words}: {own} is invented")
        elif own is not None and not is_equal(own, expected[field]):
            bad.append(f"{words}: {own} instead of {expected[field]}")
        elif own is not None:
            carried.append(field)
            if words in lost:
                bad.append(f"{words}: is in the file, and named as lost")
        elif has:
            said.append(field)
            if words not in lost and field not in noted:
                bad.append(f"{words}: is lost, and not named")
    for words in lost:
        field = next(f for f, w in FIELDS.items() if w == words)
        # The categories of a file of a group are those of other columns.
        if expected[field] is None and (field != "categories" or suffix not in OF_GROUP):
            bad.append(f"{words}: named as lost, and the array has none")
    if "lost attributes" in found:
        bad.append(f"lost attributes {found['lost attributes']}")
    return carried, said, [f"{node.key}{suffix}: {problem}" for problem in bad]


def convention_of(key):
    store = key.split("/")[0]
    return next(name for name in CONVENTIONS if store.startswith(name))


def check(node, table, bad):
    files = 0
    group = os.path.dirname(os.path.join(MOUNT, node.key))
    group_views = json.load(open(os.path.join(group, ".zarrfs/views.json")))
    own, others = (OF_TABLE, OF_OBJECT) if "table" in node.fields else (OF_ARRAY, OF_GROUP)
    stems = [(node.list, os.path.join(node.views, os.path.basename(node.key)), own), (group_views, os.path.join(group, ".zarrfs", os.path.basename(group)), others)]
    for views, stem, readers in stems:
        names = {view["name"]: view["not_expressed"] for view in views["views"]}
        for suffix, read in readers.items():
            lost = names.get(os.path.basename(stem) + suffix)
            if lost is None:
                continue
            path = stem + (".bin" if suffix == ".hdr" else suffix)
            try:
                noted = diagnosed(views, os.path.basename(stem) + suffix)
                carried, said, problems = cells(node, suffix, path, lost, read, noted)
            except Exception as error:
                carried, said, problems = [], [], [f"{node.key}{suffix}: {type(error).__name__}: {error}"]
            files += 1
            bad.extend(problems)
            cell = table.setdefault(convention_of(node.key), {}).setdefault(suffix, [set(), set()])
            cell[0].update(carried)
            cell[1].update(said)
    readme = open(os.path.join(node.views, "README.txt")).read().split("Diagnostics", 1)[-1]
    bad.extend(f"{node.key}: no diagnostic has {part}: {readme}" for part in node.fields.get("notes", []) if part not in readme)
    return files


# The names of conventions whose stores are several.
CONVENTIONS = {"nifti": "NIfTI-Zarr", "webknossos": "webknossos", "n5": "N5 of TensorStore", "ome-zarr": "OME-Zarr", "ngff": "ngff-zarr", "rioxarray": "rioxarray", "gdal": "GDAL", "grids": "CF grid mappings", "xarray": "xarray", "spatialdata": "SpatialData", "geozarr": "GeoZarr", "anndata": "AnnData"}


def markdown(table):
    """A row for each convention and a column for each format: the fields in its files, of those that are known."""
    suffixes = [s for s in [*OF_ARRAY, *OF_GROUP, *OF_OBJECT] if any(s in row for row in table.values())]
    lines = ["| | " + " | ".join(f"`{s}`" for s in suffixes) + " |", "|---" * (len(suffixes) + 1) + "|"]
    for convention, row in table.items():
        cells = [f"{len(row[s][0])}/{len(row[s][0] | row[s][1])}" if s in row else "" for s in suffixes]
        lines.append(f"| {CONVENTIONS[convention]} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    table, bad, files = {}, [], 0
    for key, fields in EXPECTED.items():
        files += check(Node(key, fields), table, bad)
    print("\n".join(bad))
    carried = {s: sorted({FIELDS[f] for row in table.values() if s in row for f in row[s][0]}) for s in [*OF_ARRAY, *OF_GROUP, *OF_OBJECT]}
    print(json.dumps({"arrays": len(EXPECTED), "files": files, "differences": len(bad), "table": markdown(table), "carried": carried}))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
