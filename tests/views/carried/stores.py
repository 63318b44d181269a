#!/usr/bin/env python3
"""Writes a store with each convention by the library of the convention: `stores.py DIRECTORY EXPECTED [CONVENTION...]`.

EXPECTED is a JSON file, to which the arrays of these conventions (of all but ngff_zarr and anndata_store, without names) are added, with
what the library reads from each array: names, spacings, origins and units of axes in the order of the array,
coordinates, missing value, scale and offset, unit, reference system, channels. `ras` has the coordinates (to the right,
front and top) of an element, from its indices along x, y and z.
"""
import json
import os
import shutil
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
DIRECTORY, EXPECTED = sys.argv[1], {}
SPACING, ORIGIN = [2.0, 0.5, 0.25], [10.0, 20.0, 30.0]
VOLUME = np.arange(120, dtype="i2").reshape(4, 5, 6)
UTM = {"y": list(4999995 - 10.0 * np.arange(5)), "x": list(500005 + 10.0 * np.arange(6))}
CODE = "EPSG:32632"


def path(*names):
    return os.path.join(DIRECTORY, *names)


def expect(node, names, **fields):
    EXPECTED[node] = {"names": list(names), **fields}


def nifti_zarr():
    import nibabel
    import niizarr

    turn = np.array([[-0.8, 0.6, 0, 30], [-0.6, -0.8, 0, 20], [0, 0, 1, 10], [0, 0, 0, 1.0]])
    for name, affine in (("plain", np.array([[-1, 0, 0, 30], [0, -1, 0, 20], [0, 0, 1, 10], [0, 0, 0, 1.0]])), ("turned", turn)):
        affine[:3, :3] *= SPACING[::-1]
        image = nibabel.Nifti1Image(VOLUME.T * 0.5 + 3, affine)
        image.set_data_dtype("i2")
        # nifti-zarr places smaller levels only of images with both matrices.
        image.set_qform(affine, 1)
        image.set_sform(affine, 1)
        image.header.set_xyzt_units("mm", "sec")
        image.header.set_slope_inter(0.5, 3)
        image.header["descrip"] = b"of a scanner"
        nibabel.save(image, path("scan.nii"))
        for version in (2, 3):
            store = f"nifti-{name}-{version}"
            niizarr.nii2zarr(path("scan.nii"), path(store), chunk=4, nb_levels=2, zarr_version=version)
            for level in (0, 1):
                read = niizarr.zarr2nii(path(store), level=level)
                found = read.header.get_best_affine()
                place = {"transform": True, "orientation": True, "spacing": [float(z) for z in read.header.get_zooms()[::-1]]}
                if name == "plain":
                    # Coordinates to the left, front and top, as the axes of the array run.
                    steps = np.diag(found)[2::-1]
                    place = {"orientation": True, "spacing": list(np.abs(steps)), "origin": list(np.sign(steps) * found[2::-1, 3])}
                expect(f"{store}/{level}", "zyx", **place, units=["mm"] * 3, ras=found[:3].tolist(), header_packing=[0.5, 3.0], header="of a scanner" if level == 0 else None)
        os.remove(path("scan.nii"))


def webknossos():
    import webknossos as wk

    for data_format in ("zarr", "zarr3"):
        name = f"webknossos-{data_format}"
        dataset = wk.Dataset(path(name), voxel_size=(250.0, 500.0, 2000.0))
        layer = dataset.add_layer("color", "color", data_format=data_format, dtype="uint16", bounding_box=wk.BoundingBox((0, 0, 0), (32, 32, 32)))
        layer.add_mag(1, chunk_shape=(32, 32, 32), shard_shape=(32, 32, 32)).write(np.ones((1, 32, 32, 32), "u2"), absolute_offset=(0, 0, 0))
        sizes = list(wk.Dataset.open(path(name)).voxel_size)
        expect(f"{name}/color/1", "cxyz", spacing=[None, *sizes], units=[None, "nm", "nm", "nm"])


def tensorstore_n5():
    import tensorstore as ts

    plain = {"dimensions": [6, 5, 4], "blockSize": [6, 5, 4], "dataType": "int16", "compression": {"type": "gzip"}}
    for name, own in {"scaled": {"units": ["nm", "nm", "um"], "resolution": [4.0, 5.0, 0.5], "axes": ["x", "y", "z"]}, "named": {"axes": ["x", "y", "z"]}}.items():
        array = ts.open({"driver": "n5", "kvstore": {"driver": "file", "path": path("n5", name, "volume")}, "metadata": {**plain, **own}}, create=True).result()
        array.write(VOLUME.T).result()
        units = [(u.multiplier, u.base_unit) for u in array.dimension_units[::-1] if u]
        place = {"spacing": [u[0] for u in units], "units": [u[1] for u in units]} if units else {}
        expect(f"n5/{name}/volume", array.domain.labels[::-1], **place)


def ome_zarr():
    import zarr
    from ome_zarr.format import FormatV04, FormatV05
    from ome_zarr.writer import write_image

    window = {"start": 0, "end": 9, "min": 0, "max": 9}
    channels = [{"label": n, "color": c, "window": window, "active": True} for n, c in (("red", "FF0000"), ("blue", "0000FF"))]
    units = dict.fromkeys("zyx", "micrometer")
    for version, own in (("0.4", FormatV04()), ("0.5", FormatV05())):
        name = f"ome-zarr-{version}"
        group = zarr.open_group(path(name), mode="w", zarr_format=own.zarr_format)
        scale = dict(zip("zyx", SPACING))
        write_image(np.stack([VOLUME, VOLUME]), group, axes="czyx", scale=scale, axes_units=units, scale_factors=[], fmt=own, name="cells")
        attributes = dict(group.attrs)
        (attributes.get("ome") or attributes)["omero"] = {"channels": channels}
        group.attrs.put(attributes)
        read = (attributes.get("ome") or attributes)["multiscales"][0]
        steps = read["datasets"][0]["coordinateTransformations"]
        expect(f"{name}/{read['datasets'][0]['path']}", "czyx", spacing=[None, *steps[0]["scale"][1:]], units=[None, *["um"] * 3], channels=["red", "blue"], colors=["FF0000", "0000FF"], image=read["name"])


def rioxarray():
    import xarray
    import rioxarray  # noqa: F401

    data = xarray.DataArray(VOLUME[0], dims=("y", "x"), coords=UTM, name="t", attrs={"units": "K"})
    data = data.rio.write_crs(CODE).rio.write_transform().rio.write_nodata(-1).to_dataset(name="t")
    for version in (2, 3):
        name = f"rioxarray-{version}"
        data.to_zarr(path(name), zarr_format=version, consolidated=False)
        read = xarray.open_dataset(path(name), engine="zarr", consolidated=False, mask_and_scale=False, decode_coords="all")["t"]
        expect(f"{name}/t", "yx", even={n: read[n].values.tolist() for n in "yx"}, missing=read.rio.nodata, crs=f"EPSG:{read.rio.crs.to_epsg()}", value_unit="K")


def gdal():
    """Version 2 alone: GDAL 3.10 writes version 3 without the codecs that the specification requires."""
    import rasterio

    transform = rasterio.transform.Affine(10, 0, 500000, 0, -10, 5e6)
    with rasterio.open(path("gdal"), "w", driver="Zarr", width=6, height=5, count=1, dtype="int16", crs=CODE, transform=transform) as out:
        out.write(VOLUME[:1])
    with rasterio.open(f'ZARR:"{path("gdal")}"') as read:
        transform, code = read.transform, read.crs.to_epsg()
    even = {"Y": [transform.f + transform.e * (i + 0.5) for i in range(5)], "X": [transform.c + transform.a * (i + 0.5) for i in range(6)]}
    expect("gdal/gdal", "YX", even=even, crs=f"EPSG:{code}")


CALENDARS = ["standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian"]


def xarray_store():
    import xarray

    for version in (2, 3):
        name, variables = f"xarray-{version}", {}
        for calendar in CALENDARS:
            times = xarray.date_range("2000-02-27", periods=4, freq="D", calendar=calendar, use_cftime=True)
            dimension = f"time_{calendar}"
            variables[calendar] = xarray.DataArray(np.array([0.5, np.nan, 2.5, 3.0]), dims=dimension, coords={dimension: times}, attrs={"units": "K"})
        variables["packed"] = xarray.DataArray(np.array([[3.5, np.nan], [4.0, 13.0]]), dims=("a", "b"), coords={"a": [0.0, 1.0], "b": [2.0, 7.0]}, attrs={"units": "m"})
        variables["waits"] = xarray.DataArray(np.array([1, 2, "NaT"], "m8[s]"), dims="n")
        variables["byte"] = xarray.DataArray(np.array([0.0, 255.0, np.nan]), dims="n")
        variables["uneven"] = xarray.DataArray(np.array([5.0, 6.0, 7.5]), dims="u", coords={"u": [0.0, 1.0, 3.0]}, attrs={"units": "m"})
        variables["line"] = xarray.DataArray(np.array([3.5, np.nan, 9.0]), dims="u")
        space = {n: (n, o + s * np.arange(k), {"units": "um"}) for n, o, s, k in zip("zyx", ORIGIN, SPACING, VOLUME.shape)}
        variables["volume"] = xarray.DataArray(VOLUME * 0.5 + 3, dims=tuple("zyx"), coords=space)
        variables["number"] = xarray.DataArray(np.array([[3.5, np.nan], [4.0, 13.0]]), dims=("a", "b"))
        variables["text"] = xarray.DataArray(np.array(["a", "bc", ""]), dims="n")
        packed = {"dtype": "i2", "_FillValue": -1, "scale_factor": 0.5, "add_offset": 3.0}
        encoding = {"packed": packed, "byte": {"dtype": "u1", "_FillValue": 9}, "number": {"_FillValue": -999.0}, "line": packed, "volume": packed}
        xarray.Dataset(variables).to_zarr(path(name), zarr_format=version, consolidated=False, encoding=encoding)
        read = xarray.open_zarr(path(name), consolidated=False)
        for calendar in CALENDARS:
            # The calendar is that of the array of times.
            expect(f"{name}/{calendar}", [f"time_{calendar}"], even={f"time_{calendar}": [0.0, 1.0, 2.0, 3.0]}, missing=np.nan, value_unit="K", times=[str(t) for t in read[f"time_{calendar}"].values], values=read[calendar].values.tolist())
        expect(f"{name}/uneven", "u", uneven=[0.0, 1.0, 3.0], missing=np.nan, value_unit="m", values=[5.0, 6.0, 7.5])
        expect(f"{name}/byte", "n", missing=9, values=read["byte"].values.tolist())
        expect(f"{name}/line", "u", uneven=[0.0, 1.0, 3.0], missing=-1, packing=[0.5, 3.0], values=read["line"].values.tolist())
        even = {n: read[n].values.tolist() for n in "zyx"}
        expect(f"{name}/volume", "zyx", even=even, even_units=read["x"].attrs["units"], missing=-1, packing=[0.5, 3.0])
        expect(f"{name}/number", "ab", even={"a": [0.0, 1.0], "b": [2.0, 7.0]}, missing=-999.0)
        expect(f"{name}/packed", "ab", even={"a": [0.0, 1.0], "b": [2.0, 7.0]}, missing=-1, packing=[0.5, 3.0], value_unit="m")


def spatialdata():
    """As spatialdata 0.7.3 writes an image: an environment with it has 1.4 GB."""
    import zarr

    axes = [{"name": n, "type": "channel" if n == "c" else "space", **({} if n == "c" else {"unit": "unit"})} for n in "cyx"]
    system = {"input": {"name": "cyx", "axes": axes}, "output": {"name": "global", "axes": axes}}
    whole = [{"type": "scale", "scale": [1.0, 0.5, 0.25], **system}, {"type": "identity", **system, "output": {"name": "other", "axes": axes}}]
    plain = [{k: v for k, v in axis.items() if k != "unit"} for axis in axes]
    image = {"name": "/images/cells", "axes": plain, "datasets": [{"path": "s0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0, 1.0]}]}], "coordinateTransformations": whole}
    root = zarr.open_group(path("spatialdata"), mode="w", zarr_format=3)
    root.attrs["spatialdata_attrs"] = {"version": "0.2"}
    group = root.create_group("images/cells")
    group.attrs["ome"] = {"version": "0.5-dev-spatialdata", "multiscales": [image], "omero": {"channels": [{"label": "red"}, {"label": "blue"}]}}
    group.attrs["spatialdata_attrs"] = {"version": "0.3"}
    group.create_array("s0", data=VOLUME[:2], dimension_names=list("cyx"))
    expect("spatialdata/images/cells/s0", "cyx", spacing=[None, 1.0, 1.0], channels=["red", "blue"], image="/images/cells", notes=["global", "other"])


def ngff_zarr():
    import ngff_zarr as library

    own = dict(zip("zyx", SPACING)), dict(zip("zyx", ORIGIN))
    for version in ("0.4", "0.5", "0.6"):
        name = f"ngff-{version}"
        image = library.to_ngff_image(VOLUME, dims=list("zyx"), scale=own[0], translation=own[1], axes_units=dict.fromkeys("zyx", "micrometer"), name="cells")
        library.to_ngff_zarr(path(name), library.to_multiscales(image, scale_factors=[]), version=version)
        read = library.from_ngff_zarr(path(name))
        image = read.images[0]
        units = [image.axes_units[n] for n in image.dims]
        expect(f"{name}/{read.metadata.datasets[0].path}", image.dims, spacing=[image.scale[n] for n in image.dims], origin=[image.translation[n] for n in image.dims], units=units, image=image.name)


def anndata_store():
    """Tables and matrices, which have neither axes with names nor a missing value."""
    import anndata
    import pandas

    columns = {
        "kind": pandas.Categorical(["b", "a", None, "a"], categories=["b", "unused", "a"], ordered=True),
        "number": pandas.Categorical([5, 7, 5, 7]),
        "some": pandas.array([1, None, 3, 4], dtype="Int64"),
        "flag": pandas.array([True, None, False, True], dtype="boolean"),
        "score": [0.5, np.nan, 2.5, 0.0],
        "text": ["x", "y,z", "", "x"],
    }
    rows = pandas.DataFrame(columns, index=[f"cell {i}" for i in range(4)])
    genes = pandas.DataFrame({"length": [7, 8, 9]}, index=list("pqr"))
    matrix = np.arange(12, dtype="f4").reshape(4, 3)
    for version in (2, 3):
        name = f"anndata-{version}"
        anndata.settings.zarr_write_format = version
        anndata.AnnData(matrix, rows, genes, layers={"counts": matrix.astype("i4")}, obsm={"umap": matrix[:, :2].copy()}).write_zarr(path(name))
        read = anndata.read_zarr(path(name))
        for key, data in (("X", read.X), ("layers/counts", read.layers["counts"]), ("obsm/umap", read.obsm["umap"]), ("obs/score", read.obs["score"])):
            expect(f"{name}/{key}", [None] * np.ndim(data), values=np.asarray(data).tolist())
        for key, table in (("obs", read.obs), ("var", read.var)):
            listed = {n: [None if pandas.isna(v) else v for v in table[n].tolist()] for n in table}
            kinds = {n: [table[n].cat.categories.tolist(), bool(table[n].cat.ordered)] for n in table if table[n].dtype == "category"}
            expect(f"{name}/{key}", [], table={read.obs.index.name or "_index": table.index.tolist(), **listed}, categories=kinds or None)


# Codes of projected systems, with the corner of a raster in metres.
GRIDS = {3031: (-2e6, 1e6), 3411: (-2e6, 1e6), 3412: (-2e6, 1e6), 3413: (-2e6, 1e6), 3976: (-2e6, 1e6), 3995: (-2e6, 1e6), 3996: (-2e6, 1e6), 32633: (4e5, 5e6), 2154: (7e5, 66e5), 27700: (4e5, 3e5), 3035: (4e6, 3e6)}


def grid_mappings():
    """Reference systems as pyproj writes them for CF, with and without WKT, and the extended form of `grid_mapping`."""
    import pyproj
    import xarray

    for code, (left, top) in GRIDS.items():
        x, y = left + 1000.0 * np.arange(6), top - 1000.0 * np.arange(5)
        variables = {}
        for form in ("wkt", "parameters", "extended"):
            attributes = pyproj.CRS(code).to_cf()
            if form == "parameters":
                del attributes["crs_wkt"]
            data = xarray.DataArray(VOLUME[0], dims=("y", "x"))
            data.attrs["grid_mapping"] = f"{form}_crs: x y" if form == "extended" else f"{form}_crs"
            variables |= {form: data, f"{form}_crs": xarray.DataArray(0, attrs=attributes)}
        axes = {n: (n, v, {"units": "m", "standard_name": f"projection_{n}_coordinate"}) for n, v in (("x", x), ("y", y))}
        xarray.Dataset(variables, axes).to_zarr(path("grids", str(code)), zarr_format=2, consolidated=False)
        for form in ("wkt", "parameters", "extended"):
            expect(f"grids/{code}/{form}", "yx", even={"y": y.tolist(), "x": x.tolist()}, crs=f"EPSG:{code}")


UUIDS = {"proj:": "f17cb550-5864-4468-aeb7-f3180cfb622f", "spatial:": "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4", "multiscales": "d35379db-88df-4056-af3a-620245f8e347"}


def geozarr():
    """The cases of the conformance data sets of GeoZarr (zarr-developers/geozarr-spec, pull request 127)."""
    import pyproj
    import zarr

    def registered(*names):
        return [{"name": n, "uuid": UUIDS[n], "spec_url": "https://github.com/zarr-conventions", "description": "of GeoZarr"} for n in names]

    def store(name, shape, own, whole=None, array="ar", names=("y", "x"), dtype="u1", **options):
        group = zarr.open_group(path("geozarr", name), mode="a", zarr_format=3)
        made = group.create_array(array, shape=shape, dtype=dtype, dimension_names=list(names), **options)
        made[...] = 7
        made.attrs.update(own)
        group.attrs.update(whole or {})
        return f"geozarr/{name}/{array}"

    def place(transform, code="EPSG:4326", **more):
        return {"zarr_conventions": registered("spatial:", "proj:"), "spatial:dimensions": ["y", "x"], "spatial:transform": transform, "proj:code": code, **more}

    def even(transform, rows, columns, shift=0.5):
        a, _, c, _, e, f = transform
        return {"y": [f + e * (i + shift) for i in range(rows)], "x": [c + a * (i + shift) for i in range(columns)]}

    alone = {"zarr_conventions": registered("proj:")}
    utm10, mercator = pyproj.CRS(32610), pyproj.CRS(3857)
    for name, own, code in [("crs-code", {"proj:code": "EPSG:4326"}, 4326), ("crs-wkt2", {"proj:wkt2": utm10.to_wkt()}, 32610), ("crs-projjson", {"proj:projjson": mercator.to_json_dict()}, 3857)]:
        expect(store(name, (8, 8), {**alone, **own}), "yx", unplaced=f"EPSG:{code}")
    whole = {**alone, "proj:code": "EPSG:4326"}
    expect(store("crs-override", (8, 8), {}, whole, "band1"), "yx", unplaced="EPSG:4326")
    expect(store("crs-override", (8, 8), {**alone, "proj:code": "EPSG:32632"}, whole, "band2"), "yx", unplaced="EPSG:32632")
    north, unit = [1.25, 0.0, 0.0, 0.0, -1.25, 10.0], [1.0, 0.0, 0.0, 0.0, -1.0, 8.0]
    # Files have a system only with a place.
    box = {"spatial:bbox": [0.0, 0.0, 8.0, 8.0]}
    expect(store("north-up", (8, 8), place(north, **{"spatial:transform_type": "affine", "spatial:bbox": [0.0, 0.0, 10.0, 10.0]})), "yx", crs="EPSG:4326", even=even(north, 8, 8))
    expect(store("pixel", (8, 8), place(unit, **box)), "yx", crs="EPSG:4326", even=even(unit, 8, 8))
    expect(store("node", (9, 9), place(unit, **box, **{"spatial:registration": "node"})), "yx", crs="EPSG:4326", even=even(unit, 9, 9, 0))
    expect(store("sharded", (16, 16), place([0.625, 0, 0, 0, -0.625, 10]), chunks=(8, 8), shards=(16, 16)), "yx", crs="EPSG:4326", even=even([0.625, 0, 0, 0, -0.625, 10], 16, 16))
    expect(store("multiband", (3, 8, 8), place(unit, **{"spatial:shape": [8, 8]}), names=("band", "y", "x")), ["band", "y", "x"], crs="EPSG:4326", even=even(unit, 8, 8))
    turned = [8.660254, -5.0, 500000.0, 5.0, -8.660254, 5000080.0]
    expect(store("rotated", (8, 8), place(turned, CODE)), "yx", crs=CODE, gdal=turned)
    layout = []
    for name, size, factor in (("r10m", 12, 1), ("r20m", 6, 2), ("r60m", 2, 6)):
        transform = [10.0 * factor, 0.0, 500000.0, 0.0, -10.0 * factor, 5000120.0]
        layout.append({"asset": name, "transform": {"scale": [factor] * 2, "translation": [0.0, 0.0]}, "spatial:shape": [size, size], "spatial:transform": transform, **({"derived_from": "r10m"} if factor > 1 else {})})
        expect(store(f"pyramid/{name}", (size, size), {}), "yx", crs=CODE, even=even(transform, size, size))
    pyramid = zarr.open_group(path("geozarr/pyramid"), mode="a", zarr_format=3)
    pyramid.attrs.update({"zarr_conventions": registered("multiscales", "proj:", "spatial:"), "multiscales": {"layout": layout, "resampling_method": "average"}, "proj:code": CODE, "spatial:dimensions": ["y", "x"], "spatial:bbox": [500000.0, 5000000.0, 500120.0, 5000120.0]})
    # NaN is no number of the data, and xarray takes no fill value of version 3 for missing.
    expect(store("nan", (8, 8), place(unit), dtype="f4", fill_value=np.nan), "yx", crs="EPSG:4326", even=even(unit, 8, 8))
    # Levels whose relation is known, and not their place; the second store lacks the transform that the schema requires.
    for name, second in (("levels", {"transform": {"scale": [2.0, 2.0], "translation": [0.0, 0.0]}}), ("bad-levels", {})):
        for level, size in (("0", 8), ("1", 4)):
            expect(store(f"{name}/{level}", (size, size), {}), "yx")
        whole = [{"asset": "0", "transform": {"scale": [1.0, 1.0]}}, {"asset": "1", "derived_from": "0", **second}]
        zarr.open_group(path("geozarr", name), mode="a", zarr_format=3).attrs.update({"zarr_conventions": registered("multiscales"), "multiscales": {"layout": whole}})
    # What the schemas of the conventions refuse: no place, or no system, and a line that says why.
    expect(store("bad-transform", (4, 4), {"zarr_conventions": registered("spatial:"), "spatial:dimensions": ["y", "x"], "spatial:transform": [1.0, 0.0, 0.0, -1.0]}), "yx", notes=["spatial:transform"])
    expect(store("two-systems", (4, 4), {**alone, "proj:code": "EPSG:32610", "proj:wkt2": mercator.to_wkt()}), "yx", notes=["EPSG:32610 and EPSG:3857"])
    # The axes of a transform without dimensions are those named y and x; GDAL reads codes in lower case, too.
    expect(store("no-dimensions", (4, 4), {"zarr_conventions": registered("spatial:"), "spatial:transform": [1.0, 0.0, 0.0, 0.0, -1.0, 4.0]}), "yx", even=even([1.0, 0, 0, 0, -1.0, 4.0], 4, 4))
    expect(store("lower-case", (4, 4), {**alone, "proj:code": "epsg:4326"}), "yx", unplaced="EPSG:4326")
    # A name of a convention that is not registered is a plain attribute; so is one of another convention.
    expect(store("bad-code", (4, 4), {**alone, "proj:code": "no:such"}), "yx", notes=["proj:code"])


OF_WRITERS = (nifti_zarr, webknossos, tensorstore_n5, ome_zarr, rioxarray, gdal, grid_mappings, xarray_store, spatialdata, geozarr)


def main():
    if os.path.exists(sys.argv[2]):
        with open(sys.argv[2]) as file:
            EXPECTED.update(json.load(file))
    for write in [globals()[name] for name in sys.argv[3:]] or OF_WRITERS:
        write()
    shutil.rmtree(path("scan"), ignore_errors=True)
    with open(sys.argv[2], "w") as file:
        json.dump(EXPECTED, file, default=float)


if __name__ == "__main__":
    main()
