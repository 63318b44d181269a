#!/usr/bin/env python3
"""Where rasters are, outside GeoTIFF: `georef.py write DIRECTORY`, `georef.py check DIRECTORY MOUNT`.

The first writes stores with zarr-python and xarray. The second opens `.tif` (with `.tif.aux.xml`),
`.bin` (with `.hdr`), `.vrt` and `.nc` of each raster with gdalinfo, rasterio, xarray and pynrrd and
compares transforms, systems (with pyproj), values without data, scales and names of bands. Prints the
counts; exits with 1 if anything differs.
"""
import json
import os
import re
import subprocess
import sys
import warnings

import cftime
import netCDF4
import nrrd
import numpy as np
import rasterio
import xarray as xr
import zarr
from pyproj import CRS, Transformer

warnings.simplefilter("ignore")
DIRECTORY = sys.argv[2]
rng = np.random.default_rng(5)
TRANSFORM = [10.0, 0.0, 500000.0, 0.0, -20.0, 5000000.0]
# Of each kind of system in the table; some have US survey feet, feet, 3 dimensions, no WKT 1, or are deprecated.
CODES = [4326, 4258, 4269, 4979, 3857, 2154, 3035, 3031, 3413, 3995, 5070, 6933, 27700, 28992, 31370, 2056, 2263, 2222, 3338,
         5514, 32601, 32760, 25832, 26710, 8857, 3577, 2180, 3067, 5880, 4087, 4937, 2193]
SPHERE, GRS80 = {"earth_radius": 6371007.181}, {"semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}
AIRY = {"semi_major_axis": 6377563.396, "semi_minor_axis": 6356256.909}
MAPPINGS = {
    "sinusoidal": {"longitude_of_projection_origin": 0.0, **SPHERE},
    "lambert_azimuthal_equal_area": {"latitude_of_projection_origin": 90.0, "longitude_of_projection_origin": 10.0,
                                     "false_easting": 5.0, "false_northing": -7.0, **SPHERE},
    "albers_conical_equal_area": {"standard_parallel": [29.5, 45.5], "longitude_of_central_meridian": -96.0,
                                  "latitude_of_projection_origin": 23.0, **GRS80},
    "azimuthal_equidistant": {"latitude_of_projection_origin": 20.0, "longitude_of_projection_origin": 30.0, **SPHERE},
    "lambert_conformal_conic": {"standard_parallel": [30.0, 60.0], "longitude_of_central_meridian": -97.0,
                                "latitude_of_projection_origin": 40.0, **SPHERE},
    "lambert_conformal_conic 1": {"standard_parallel": 46.5, "longitude_of_central_meridian": 3.0,
                                  "latitude_of_projection_origin": 46.5, **GRS80},
    "lambert_cylindrical_equal_area": {"standard_parallel": 30.0, "longitude_of_central_meridian": 0.0, **GRS80},
    "mercator": {"standard_parallel": 20.0, "longitude_of_projection_origin": 100.0, **GRS80},
    "mercator 1": {"scale_factor_at_projection_origin": 0.9996, "longitude_of_projection_origin": 100.0, **GRS80},
    "orthographic": {"latitude_of_projection_origin": 20.0, "longitude_of_projection_origin": 10.0, **SPHERE},
    "polar_stereographic": {"straight_vertical_longitude_from_pole": -45.0, "latitude_of_projection_origin": 90.0,
                            "standard_parallel": 70.0, **GRS80},
    "polar_stereographic 1": {"straight_vertical_longitude_from_pole": 0.0, "latitude_of_projection_origin": -90.0,
                              "scale_factor_at_projection_origin": 0.994, **GRS80},
    "stereographic": {"latitude_of_projection_origin": 52.0, "longitude_of_projection_origin": 5.0,
                      "scale_factor_at_projection_origin": 0.9999, **SPHERE},
    "transverse_mercator": {"latitude_of_projection_origin": 49.0, "longitude_of_central_meridian": -2.0,
                            "scale_factor_at_central_meridian": 0.9996012717, "false_easting": 4e5, "false_northing": -1e5, **AIRY},
    "latitude_longitude": {**SPHERE},
    "rotated_latitude_longitude": {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0, **SPHERE},
}
# Systems without a code: the attribute of the grid mapping, the version of WKT (or a PROJ string), the system.
SYSTEMS = {
    **{f"proj_{place}": ("proj4", None, text) for place, text in enumerate([
        "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=40 +lon_0=-97 +R=6370000 +units=m +no_defs",
        "+proj=lcc +lat_1=46.5 +lat_0=46.5 +lon_0=3 +x_0=600000 +y_0=200000 +a=6378249.2 +b=6356515 +units=m",
        "+proj=utm +zone=33 +ellps=intl +units=m", "+proj=tmerc +lat_0=1 +lon_0=9 +k=0.9999 +x_0=5 +ellps=bessel",
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +R=6371229", "+proj=stere +lat_0=-90 +k=0.994 +lon_0=0 +ellps=GRS80",
        "+proj=stere +lat_0=52 +lon_0=5 +k=0.9999 +R=6371000", "+proj=merc +lat_ts=20 +lon_0=100 +ellps=GRS80",
        "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83 +x_0=7", "+proj=longlat +R=6371229 +no_defs",
        "+proj=laea +lat_0=10 +lon_0=3 +R=6371000", "+proj=sinu +lon_0=0 +R=6371007.181", "+proj=cea +lat_ts=30 +R=6371228",
        "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +R=6371229", "+proj=aeqd +lat_0=53 +lon_0=24 +ellps=WGS84"])},
    **{f"wkt2_{name}": ("crs_wkt", "WKT2_2019", text) for name, text in {
        "lcc1": "+proj=lcc +lat_1=46.5 +lat_0=46.5 +lon_0=3 +k_0=0.9998 +x_0=6e5 +R=6371229", "moll": "+proj=moll +lon_0=10 +R=6371000",
        "geos": "+proj=geos +h=35785831 +lon_0=10 +sweep=x +ellps=GRS80", "igh": "+proj=igh +R=6371000", "robin": "+proj=robin +R=6371000",
        "eqc": "+proj=eqc +lat_ts=30 +lon_0=10 +ellps=GRS80", "eqc_sphere": "+proj=eqc +lat_ts=30 +lon_0=10 +R=6371000",
        "cass": "+proj=cass +lat_0=10 +lon_0=20 +ellps=intl", "gnom": "+proj=gnom +lat_0=10 +lon_0=20 +R=6371000",
        "mill": "+proj=mill +lon_0=10 +R=6371000", "poly": "+proj=poly +lat_0=10 +lon_0=20 +ellps=GRS80",
        "vandg": "+proj=vandg +lon_0=10 +R=6371000", "sterea": "+proj=sterea +lat_0=52 +lon_0=5 +k_0=0.9999 +ellps=bessel",
        "eqdc": "+proj=eqdc +lat_1=30 +lat_2=50 +lat_0=10 +lon_0=20 +ellps=GRS80", "paris": "+proj=longlat +pm=paris +R=6371000",
        "feet": "+proj=tmerc +lat_0=20 +lon_0=10 +k_0=0.9999 +ellps=GRS80 +units=us-ft +x_0=1000",
        "yards": "+proj=tmerc +lat_0=20 +lon_0=10 +k_0=0.9999 +ellps=GRS80 +to_meter=0.9144 +x_0=1000",
        "omerc": "+proj=omerc +lat_0=4 +lonc=115 +alpha=53 +k=0.99984 +gamma=53 +ellps=evrstSS",
        "rotated": "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +R=6371229"}.items()},
    **{f"wkt1_{name}": ("spatial_ref", "WKT1_GDAL", text) for name, text in {
        "stere": "+proj=stere +lat_0=-90 +lat_ts=-71 +lon_0=0 +datum=WGS84", "cea": "+proj=cea +lat_ts=30 +lon_0=3 +ellps=GRS80"}.items()},
    **{f"esri_{name}": ("esri_pe_string", "WKT1_ESRI", text) for name, text in {
        "stere": "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84", "lcc": "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=40 +lon_0=-97 +R=6370000",
        "laea": "+proj=laea +lat_0=10 +lon_0=3 +R=6371000", "tmerc": "+proj=tmerc +lat_0=10 +lon_0=3 +k=0.9999 +datum=WGS84",
        "aea": "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83 +x_0=7"}.items()},
}
TIMES = {"noleap": 60000, "360_day": 59, "proleptic_gregorian": 7000}


def store(name):
    return os.path.join(DIRECTORY, name)


def create(group, name, data, names=None, version=3, chunks=None, **attributes):
    data = np.asarray(data)
    more = {"dimension_names": names} if version == 3 and names else {}
    if version == 2 and names:
        attributes["_ARRAY_DIMENSIONS"] = list(names)
    array = group.create_array(name, shape=data.shape, dtype=data.dtype, chunks=chunks or tuple(min(n, 16) for n in data.shape),
                               attributes=attributes, **more)
    array[...] = data
    return array


def values(*shape):
    return rng.integers(0, 1000, shape, dtype="i2")


def write_rasters():
    place = {"proj:code": "EPSG:32633", "spatial:transform": TRANSFORM, "spatial:dimensions": ["y", "x"]}
    group = zarr.create_group(store("geozarr"), zarr_format=3, attributes=place)
    create(group, "profile", values(20, 30), ("time", "lat"), _FillValue=7, scale_factor=0.5, add_offset=-3.0)
    create(group, "B02", values(20, 30), ("y", "x"), _FillValue=7, scale_factor=0.5, add_offset=-3.0, units="K")
    create(group, "cube", values(2, 20, 30), ("time", "y", "x"), chunks=(1, 16, 16))
    create(group, "time", [0, 31], ("time",), units="days since 2000-01-01")
    create(group, "spectra", values(4, 5), ("time5", "wavelength"))
    # A transform of its own, another system, one that is turned, and one that has its coordinates.
    create(group, "moved", values(20, 30), ("y", "x"), **{"spatial:transform": [10.0, 0.0, 600000.0, 0.0, -20.0, 5000000.0]})
    below = group.create_group("turned", attributes={**place, "spatial:transform": [10.0, 1.0, 500000.0, 2.0, -20.0, 5000000.0]})
    create(below, "a", values(20, 30), ("y", "x"))
    below = group.create_group("own", attributes={"proj:code": "EPSG:32633"})
    create(below, "a", values(20, 30), ("y", "x"))
    create(below, "x", 500005 + 10.0 * np.arange(30), ("x",), units="m")
    create(below, "y", 4999990 - 20.0 * np.arange(20), ("y",), units="m")
    below = group.create_group("plain", attributes={"note": "nothing says where it is"})
    create(below, "a", values(20, 30), ("y", "x"))
    laea = CRS.from_user_input("+proj=laea +lat_0=10 +lon_0=3 +R=6371000 +units=m")
    below = group.create_group("text", attributes={"proj:wkt2": laea.to_wkt(pretty=True), "spatial:transform": TRANSFORM})
    create(below, "a", values(20, 30), ("y", "x"))
    codes = zarr.create_group(store("codes"), zarr_format=3)
    for code in CODES:
        one = codes.create_group(str(code), attributes={"proj:code": f"EPSG:{code}", "spatial:transform": [1e-3, 0, 3, 0, -1e-3, 40]})
        create(one, "a", values(4, 5), ("y", "x"))
    mappings = zarr.create_group(store("mappings"), zarr_format=2)
    for name, attributes in MAPPINGS.items():
        one = mappings.create_group(name.replace(" ", "_"))
        name = name.split()[0]
        x, y, units = ("rlon", "rlat", "degrees") if name.startswith("rotated") else ("x", "y", "m")
        names = ("grid_longitude", "grid_latitude") if x == "rlon" else ("projection_x_coordinate", "projection_y_coordinate")
        if name.startswith("lat"):
            x, y, units, names = "lon", "lat", None, ("longitude", "latitude")
        more = {"units": units} if units else {}
        create(one, "a", values(20, 30), (y, x), 2, grid_mapping="crs")
        create(one, x, 0.5 + np.arange(30.0), (x,), 2, standard_name=names[0], **({**more} or {"units": "degrees_east"}))
        create(one, y, 19.5 - np.arange(20.0), (y,), 2, standard_name=names[1], **({**more} or {"units": "degrees_north"}))
        create(one, "crs", np.int32(0), (), 2, grid_mapping_name=name, **attributes)
    systems = zarr.create_group(store("systems"), zarr_format=3, attributes={})
    for name, (attribute, version, text) in SYSTEMS.items():
        one = systems.create_group(name, attributes={"spatial:transform": TRANSFORM, "spatial:dimensions": ["y", "x"]})
        create(one, "a", values(4, 5), ("y", "x"), grid_mapping="crs")
        create(one, "crs", np.int32(0), (), **{attribute: CRS.from_user_input(text).to_wkt(version) if version else text})
    # The array itself has the text; two texts mean the same system.
    text = SYSTEMS["proj_0"][2]
    create(systems, "own", values(4, 5), ("y", "x"), esri_pe_string=CRS.from_user_input(text).to_wkt("WKT1_ESRI"), proj4=text,
           **{"spatial:transform": TRANSFORM})
    # As rioxarray and xarray write it with an `encoding`: no attribute names the grid mapping; bands have names.
    for version in 2, 3:
        one = zarr.create_group(store(f"default{version}"), zarr_format=version)
        create(one, "a", values(3, 20, 30), ("band", "y", "x"), version)
        create(one, "x", 500005 + 10.0 * np.arange(30), ("x",), version)
        create(one, "y", 4999990 - 20.0 * np.arange(20), ("y",), version)
        create(one, "band", np.array(["B02", "B8A", ""], "U3" if version == 2 else "T"), ("band",), version)
        create(one, "spatial_ref", np.int64(0), (), version, crs_wkt=CRS.from_epsg(32633).to_wkt())
    times = zarr.create_group(store("times"), zarr_format=3)
    for calendar, first in TIMES.items():
        one = times.create_group(calendar)
        create(one, "a", values(2, 4, 5), ("t", "y", "x"))
        create(one, "t", [first, first + 1], ("t",), units="days since 1850-01-01", calendar=calendar)


def write_pyramids():
    fine, factors = values(64, 96), (1, 2, 4)
    levels = [fine[::factor, ::factor] for factor in factors]
    def places(group, factor, version=3):
        create(group, "x", 500000 + 10.0 * factor * (np.arange(96 // factor) + 0.5), ("x",), version, units="m")
        create(group, "y", 5000000 - 10.0 * factor * (np.arange(64 // factor) + 0.5), ("y",), version, units="m")
    # eopf-geozarr before it wrote a layout: groups with the names of the tile matrices.
    matrices = [{"id": str(n), "scaleDenominator": 35714.28 * f, "cellSize": 10.0 * f, "pointOfOrigin": [500000.0, 5000000.0],
                 "tileWidth": 32, "tileHeight": 32, "matrixWidth": 3, "matrixHeight": 2} for n, f in enumerate(factors)]
    root = zarr.create_group(store("tms"), zarr_format=3, attributes={"multiscales": {
        "tile_matrix_set": {"id": "Native_CRS_32633", "supportedCRS": "EPSG:32633", "orderedAxes": ["X", "Y"], "tileMatrices": matrices},
        "resampling_method": "average"}})
    named = zarr.create_group(store("tms_named"), zarr_format=3, attributes={"multiscales": {
        "tile_matrix_set": "WebMercatorQuad", "tile_matrix_limits": {str(n): {} for n in range(3)}, "resampling_method": "nearest"}})
    pyramid = zarr.create_group(store("ndpyramid"), zarr_format=2, attributes={"multiscales": [{
        "datasets": [{"path": str(n), "pixels_per_tile": 128, "crs": "EPSG:32633"} for n in range(3)], "type": "reduce",
        "metadata": {"method": "pyramid_coarsen", "version": "0.1"}}]})
    for place, (level, factor) in enumerate(zip(levels, factors)):
        for group, version in ((root, 3), (named, 3), (pyramid, 2)):
            one = group.create_group(str(place))
            create(one, "b02", level, ("y", "x"), version, grid_mapping="spatial_ref")
            create(one, "spatial_ref", np.int64(0), (), version, crs_wkt=CRS.from_epsg(32633).to_wkt())
            places(one, factor, version)
        # xcube: data sets side by side in a directory without metadata.
        one = zarr.create_group(store(f"cube.levels/{place}.zarr"), zarr_format=2)
        create(one, "b02", level, ("y", "x"), 2, grid_mapping="crs")
        create(one, "crs", np.int64(0), (), 2, crs_wkt=CRS.from_epsg(32633).to_wkt())
        places(one, factor, 2)
    with open(store("cube.levels/.zlevels"), "w") as file:
        json.dump({"version": "1.0", "num_levels": 3}, file)
    image = zarr.create_group(store("ome"), zarr_format=2)
    for level in range(2):
        create(image, str(level), values(2, 4, 8 >> level, 10 >> level), None, 2)
    image.attrs["multiscales"] = [{"version": "0.4", "axes": [
        {"name": "c", "type": "channel"}, *({"name": n, "type": "space", "unit": "micrometer"} for n in "zyx")],
        "datasets": [{"path": str(n), "coordinateTransformations": [
            {"type": "scale", "scale": [1.0, 2.0, 0.25 * 2 ** n, 0.5 * 2 ** n]},
            {"type": "translation", "translation": [0.0, 10.0, 0.0, 0.0]}]} for n in range(2)]}]


bad, counts = [], {"rasters": 0, "systems": 0, "overviews": 0}


def equal(what, got, expected):
    if isinstance(expected, (float, np.ndarray)) or isinstance(expected, list) and all(isinstance(n, (int, float)) for n in expected):
        same = got is not None and np.shape(got) == np.shape(expected) and np.allclose(got, expected, rtol=1e-12, atol=1e-9, equal_nan=True)
    else:
        same = got == expected
    if not same:
        bad.append(f"{what}: {str(got)[:300]!r} is not {str(expected)[:300]!r}")


def file(node, suffix, name=None):
    return os.path.join(sys.argv[3], node, ".zarrfs", (name or os.path.basename(node)) + suffix)


def info(path, **environment):
    done = subprocess.run(["gdalinfo", "-json", path], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode or lines:
        bad.append(f"gdalinfo {path}: {done.returncode} {lines}")
        return {}
    return json.loads(done.stdout)


def check_system(what, wkt, expected):
    """Whether both mean the same places on the same figure of the Earth."""
    counts["systems"] += 1
    if not wkt:
        bad.append(f"{what}: no system")
        return
    crs = CRS.from_wkt(wkt)
    if crs.equals(expected, ignore_axis_order=True):
        return
    figure = [[c.ellipsoid.semi_major_metre, c.ellipsoid.inverse_flattening] for c in (crs, expected)]
    equal(f"{what}: figure", figure[0], figure[1])
    longitude, latitude = np.meshgrid(np.linspace(-175, 175, 15), np.linspace(-80, 80, 15))
    # The base of a system is one of its own figure, so that no datum is changed.
    places = [Transformer.from_crs(c.source_crs or c.geodetic_crs, c, always_xy=True).transform(longitude, latitude)
              if c.is_projected or c.is_derived else (longitude, latitude) for c in (crs, expected)]
    for got, wanted in zip(*places):
        near = np.isclose(got, wanted, rtol=1e-9, atol=1e-6) | (~np.isfinite(got) & ~np.isfinite(wanted))
        if not near.all():
            bad.append(f"{what}: {wkt} is not {expected.to_wkt()}")
            return


def check_alone(node, crs):
    """The system in the `.tif` itself, without the file beside it."""
    with rasterio.Env(GDAL_PAM_ENABLED="NO"), rasterio.open(file(node, ".tif")) as there:
        check_system(f"{node} tif alone", there.crs and there.crs.to_wkt(), crs)


def check_systems():
    for name, (_, _, text) in SYSTEMS.items():
        crs = CRS.from_user_input(text)
        check_alone(f"systems/{name}/a", crs)
        # Another version of GDAL.
        if name in ("proj_0", "wkt2_rotated", "wkt2_yards", "wkt2_paris", "wkt1_stere"):
            found = info(file(f"systems/{name}/a", ".tif"), GDAL_PAM_ENABLED="NO")
            check_system(f"{name} in gdalinfo", found.get("coordinateSystem", {}).get("wkt", ""), crs)
        with rasterio.open(file(f"systems/{name}/a", ".tif")) as there:
            check_system(f"{name} beside the file", there.crs and there.crs.to_wkt(), crs)
    check_alone("systems/own", CRS.from_user_input(SYSTEMS["proj_0"][2]))


def check_place(node, transform, crs, dataset=None, has_map_info=True, has_map_system=True):
    """`transform` in the order of rasterio; `dataset` the group whose `.nc` has it."""
    counts["rasters"] += 1
    a, b, c, d, e, f = transform
    paths = {"tif": file(node, ".tif"), "vrt": file(node, ".vrt")}
    if has_map_info:
        paths["bin"] = file(node, ".bin")
    if dataset is not None:
        name = os.path.basename(node)
        paths["nc"] = f'NETCDF:"{file(dataset, ".nc", os.path.basename(dataset))}":{name}'
        paths["cdf.nc"] = f'NETCDF:"{file(dataset, ".cdf.nc", os.path.basename(dataset))}":{name}'
    data = np.asarray(zarr.open_array(store(node), mode="r")[...])
    for kind, path in paths.items():
        if kind == "bin" and not has_map_system:
            # The header supports WKT 1 only, so the file has no CRS. (gdalinfo warns of axes without a CRS.)
            with rasterio.open(path) as there:
                equal(f"{node}: transform of .hdr", list(there.transform)[:6], transform)
                equal(f"{node}: no system", there.crs is None or not (there.crs.is_projected or there.crs.is_geographic), True)
                equal(f"{node}: pixels of .hdr", there.read().reshape(data.shape), data)
            continue
        found = info(path)
        equal(f"{node} {kind}: transform", found.get("geoTransform"), [c, a, b, f, d, e])
        system = found.get("coordinateSystem", {}).get("wkt", "")
        check_system(f"{node} {kind}", system, crs)
        if kind != "cdf.nc":
            with rasterio.open(path) as there:
                equal(f"{node} {kind}: pixels", there.read().reshape(data.shape), data)
    check_alone(node, crs)
    has_code = os.path.exists(file(node, ".tif.aux.xml"))
    equal(f"{node}: aux.xml", has_code, crs.to_epsg(100) is None)
    equal(f"{node}: aux.xml is listed", has_code, os.path.basename(file(node, ".tif.aux.xml")) in os.listdir(os.path.dirname(file(node, ""))))


def check_netcdf():
    utm = CRS.from_epsg(32633)
    check_place("geozarr/B02", TRANSFORM, utm, "geozarr")
    check_place("geozarr/cube", TRANSFORM, utm, "geozarr")
    check_place("geozarr/own/a", TRANSFORM, utm, "geozarr/own")
    laea = CRS.from_user_input("+proj=laea +lat_0=10 +lon_0=3 +R=6371000 +units=m")
    check_place("geozarr/text/a", TRANSFORM, laea, "geozarr/text", has_map_system=False)
    check_place("geozarr/turned/a", [10.0, 1.0, 500000.0, 2.0, -20.0, 5000000.0], utm, has_map_info=False)
    equal("nothing", info(file("geozarr/plain/a", ".vrt")).get("geoTransform"), None)
    for suffix in (".nc", ".cdf.nc"):
        with xr.open_dataset(file("geozarr", suffix), decode_coords="all") as group:
            equal("coordinates across", group.spectra.dims, ("time5", "wavelength"))
            equal("no mapping", "grid_mapping" in group.spectra.encoding, False)
            for name in ("B02", "cube"):
                mapping = group[name].encoding["grid_mapping"]
                check_system("crs_wkt", group[mapping].attrs["crs_wkt"], utm)
                equal("GeoTransform", [float(n) for n in group[mapping].attrs["GeoTransform"].split()], [500000.0, 10.0, 0.0, 5000000.0, 0.0, -20.0])
                check_system("CF", CRS.from_cf({k: v for k, v in group[mapping].attrs.items() if k not in ("crs_wkt", "spatial_ref")}).to_wkt(), utm)
            # Two arrays have different georeferencing for x, and groups in the file have y without georeferencing or with
            # another one: shared coordinates would be wrong for one of them.
            equal("kept separate", ("x" in group, "y" in group, group.moved.encoding["grid_mapping"] != mapping), (False, suffix == ".cdf.nc", True))
        with xr.open_dataset(file("geozarr/turned", suffix)) as group:
            equal("turned", list(group.coords), [])
    with xr.open_dataset(file("geozarr/text", ".nc"), decode_coords="all") as group:
        equal("x", group.x.values, 500005 + 10.0 * np.arange(30))
        equal("y", group.y.values, 4999990 - 20.0 * np.arange(20))
        equal("units", (group.x.attrs["units"], group.y.attrs["standard_name"]), ("m", "projection_y_coordinate"))
    with xr.open_dataset(file("geozarr/own", ".nc")) as group:
        equal("its own coordinates", (group.x.attrs, "spatial_ref" in group), ({"units": "m"}, True))
    with netCDF4.Dataset(file("mappings/sinusoidal", ".nc")) as group:
        equal("its own mapping", sorted(group.variables), ["a", "crs", "x", "y"])
    for code in CODES:
        with netCDF4.Dataset(file(f"codes/{code}", ".nc")) as group:
            check_system(f"EPSG:{code}", group["spatial_ref"].crs_wkt, CRS.from_epsg(code))


def check_sidecars():
    for suffix in (".vrt", ".bin", ".tif"):
        with rasterio.open(file("geozarr/B02", suffix)) as raster:
            equal(f"{suffix}: packing", (raster.nodata, raster.scales, raster.offsets), (7.0, (0.5,), (-3.0,)))
        with rasterio.open(file("geozarr/cube", suffix)) as raster:
            equal(f"{suffix}: bands", raster.descriptions, ("time=2000-01-01T00:00:00", "time=2000-02-01T00:00:00"))
        for calendar, first in TIMES.items():
            with rasterio.open(file(f"times/{calendar}/a", suffix)) as raster:
                dates = [cftime.num2date(n, "days since 1850-01-01", calendar).isoformat() for n in (first, first + 1)]
                equal(f"{suffix}: {calendar}", raster.descriptions, tuple("t=" + date for date in dates))
    # The meaning of the elements does not depend on the order of the axes.
    for suffix in (".vrt", ".bin"):
        with rasterio.open(file("geozarr/profile", suffix)) as raster:
            equal(f"profile{suffix}", (raster.nodata, raster.scales, raster.offsets), (7.0, (0.5,), (-3.0,)))
    header = nrrd.read_header(file("ome/1", ".nhdr"))
    equal("spacings", header["spacings"], np.array([1.0, 0.5, 2.0, 1.0]))
    equal("places", header["axis mins"], np.array([0.0, 0.0, 10.0, 0.0]))
    equal("units", header["units"], ["micrometer"] * 3 + [""])
    data, header = nrrd.read(file("geozarr/own/a", ".nhdr"))
    equal("elements", data.T, zarr.open_array(store("geozarr/own/a"), mode="r")[...])
    equal("spacings of coordinates", header["spacings"], np.array([10.0, -20.0]))
    equal("spacings of a transform", nrrd.read_header(file("geozarr/cube", ".nhdr"))["spacings"][:2], np.array([10.0, -20.0]))
    equal("no spacings", "spacings" in nrrd.read_header(file("geozarr/plain/a", ".nhdr")), False)
    text = open(file("geozarr/B02", ".hdr")).read()
    equal("map info", re.search("map info = .*", text).group(), "map info = {UTM, 1, 1, 500000, 5000000, 10, 20, 33, North, WGS-84, units=Meters}")
    equal("ESRI", 'PROJCS["WGS_1984_UTM_Zone_33N"' in text, True)


def check_pyramids():
    for group, names in (("tms", "012"), ("tms_named", "012"), ("ndpyramid", "012"), ("cube.levels", ("0.zarr", "1.zarr", "2.zarr"))):
        nodes = [f"{group}/{name}/b02" for name in names]
        levels = [zarr.open_array(store(node), mode="r")[...] for node in nodes]
        for place, node in enumerate(nodes):
            with rasterio.open(file(node, ".tif")) as raster:
                equal(f"{node}: overviews", len(raster.overviews(1)), 2 - place)
                equal(f"{node}: pixels", raster.read(1), levels[place])
            for overview, level in enumerate(levels[place + 1:]):
                with rasterio.open(file(node, ".tif"), overview_level=overview) as raster:
                    equal(f"{node}: overview {overview}", raster.read(1), level)
                counts["overviews"] += 1


def check_mappings():
    for name, attributes in MAPPINGS.items():
        node = "mappings/" + name.replace(" ", "_")
        expected = CRS.from_cf({"grid_mapping_name": name.split()[0], **attributes})
        check_place(node + "/a", [1.0, 0.0, 0.0, 0.0, -1.0, 20.0], expected, has_map_system=not name.startswith("rotated"))


def check_defaults():
    for version in 2, 3:
        check_place(f"default{version}/a", TRANSFORM, CRS.from_epsg(32633))
        for suffix in ".tif", ".vrt", ".bin":
            with rasterio.open(file(f"default{version}/a", suffix)) as there:
                equal(f"{suffix} of v{version}: bands", there.descriptions, ("band=B02", "band=B8A", "band[2]"))
        with open(file(f"default{version}/a", "", "README.txt")) as readme:
            equal("a note of the system", "which no attribute grid_mapping names" in readme.read(), True)


def check():
    check_defaults()
    check_netcdf()
    check_mappings()
    check_systems()
    check_sidecars()
    check_pyramids()
    for line in bad[:60]:
        print(line[:900])
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        zarr.create_group(DIRECTORY, zarr_format=3)
        write_rasters()
        write_pyramids()
    else:
        check()
