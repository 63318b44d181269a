#!/usr/bin/env python3
"""Grid mappings of CF 1.13, Appendix F: `mappings.py write DIRECTORY`, `mappings.py check DIRECTORY MOUNT`,
`mappings.py assumed DIRECTORY MOUNT`.

The first writes a store with xarray for each case. The second compares the system in `.tif`, `.vrt` and `.nc` of
each with that of pyproj, and with that of GDAL on the `.nc` where GDAL reads the grid mapping; the third in a mount
with `--assume-wgs84`. Prints the counts; exits with 1 if anything differs.
"""
import json
import os
import sys

import numpy as np
import rasterio
import xarray as xr
import zarr
from georef import bad, check_alone, check_system, counts, equal, file, info, store
from pyproj import CRS

GRS80 = {"semi_major_axis": 6378137.0, "inverse_flattening": 298.257222101}
ELLPS, PARALLEL, SCALE = "+ellps=GRS80 ", "standard_parallel", "scale_factor_at_projection_origin"
LAT, LON, MERIDIAN = "latitude_of_projection_origin", "longitude_of_projection_origin", "longitude_of_central_meridian"
STRAIGHT, HEIGHT = "straight_vertical_longitude_from_pole", "perspective_point_height"
# As pyproj writes them without `crs_wkt`; for 2056, pyproj itself reads another angle of the grid.
CODES = [3031, 3411, 3412, 3413, 3976, 3995, 3996, 32661, 32761, 5041, 2056, 2154, 27700, 3035, 5070, 3395, 3832, 6933, 25832, 4326]
# Name: grid_mapping_name, attributes, the system as a PROJ string (None: as pyproj reads the attributes), whether
# GDAL reads the same from the `.nc`.
CASES = {
    "polar_text": ("polar_stereographic", {PARALLEL: "70.0", STRAIGHT: "-45", **GRS80}, ELLPS + "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45", True),
    "polar_both": ("polar_stereographic", {PARALLEL: -71.0, SCALE: 1.0, LAT: -90.0, STRAIGHT: 3.0, **GRS80}, None, True),
    "polar_repeated": ("polar_stereographic", {PARALLEL: 70.0, LAT: 70.0, STRAIGHT: 3.0, **GRS80}, None, True),
    "polar_plain": ("polar_stereographic", {LAT: 90.0, STRAIGHT: 3.0, **GRS80}, None, True),
    "polar_pole": ("polar_stereographic", {PARALLEL: 90.0, SCALE: 0.994, STRAIGHT: 3.0, **GRS80},
                   ELLPS + "+proj=stere +lat_0=90 +k=0.994 +lon_0=3", False),
    "mercator_zero": ("mercator", {PARALLEL: 0.0, SCALE: 0.997, LON: 110.0, **GRS80}, None, False),
    "mercator_one": ("mercator", {PARALLEL: 20.0, SCALE: 1.0, LON: 110.0, **GRS80}, ELLPS + "+proj=merc +lat_ts=20 +lon_0=110", True),
    "cylinder_scale": ("lambert_cylindrical_equal_area", {SCALE: 0.9, MERIDIAN: 10.0, **GRS80}, None, False),
    "cone_scale": ("lambert_conformal_conic", {LAT: 46.5, PARALLEL: 46.5, SCALE: 0.9999, MERIDIAN: 3.0, **GRS80},
                   ELLPS + "+proj=lcc +lat_1=46.5 +lat_0=46.5 +lon_0=3 +k_0=0.9999", True),
    "cone_origin": ("lambert_conformal_conic", {LAT: 46.5, MERIDIAN: 3.0, **GRS80}, ELLPS + "+proj=lcc +lat_1=46.5 +lat_0=46.5 +lon_0=3", True),
    "cone_no_origin": ("lambert_conformal_conic", {PARALLEL: 46.5, MERIDIAN: 3.0, **GRS80}, None, False),
    "cone_text": ("lambert_conformal_conic", {LAT: 40.0, PARALLEL: "30, 60", MERIDIAN: -97.0, **GRS80}, None, True),
    "cone_gdal": ("lambert_conformal_conic", {LAT: 40.0, "standard_parallel_1": 30.0, "standard_parallel_2": 60.0, MERIDIAN: -97.0, **GRS80},
                  ELLPS + "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=40 +lon_0=-97", True),
    "transverse": ("transverse_mercator", {MERIDIAN: 9.0, **GRS80}, None, True),
    "stereographic": ("stereographic", {LAT: 52.0, LON: 5.0, **GRS80}, None, True),
    "geostationary_x": ("geostationary", {HEIGHT: 35786023.0, LON: -75.0, "sweep_angle_axis": "x", **GRS80}, None, True),
    "geostationary_y": ("geostationary", {HEIGHT: 35785831.0, LON: 9.5, "sweep_angle_axis": "y", **GRS80}, None, True),
    "geostationary_fixed": ("geostationary", {HEIGHT: 35786023.0, LON: -75.0, "fixed_angle_axis": "y", **GRS80}, None, False),
    "vertical": ("vertical_perspective", {HEIGHT: 2e6, LAT: 20.0, LON: 10.0, **GRS80}, None, False),
    "oblique": ("oblique_mercator", {"azimuth_of_central_line": 53.3, LAT: 4.0, LON: 115.0, SCALE: 0.99984, "false_easting": 7.0, **GRS80},
                ELLPS + "+proj=omerc +lat_0=4 +lonc=115 +alpha=53.3 +k=0.99984 +x_0=7", False),
    "named": ("sinusoidal", {LON: 0.0, "reference_ellipsoid_name": "GRS 1980"}, None, False),
    "wgs84": ("sinusoidal", {LON: 0.0, "horizontal_datum_name": "WGS84"}, "+proj=sinu +datum=WGS84", False),
    "major_only": ("sinusoidal", {LON: 0.0, "reference_ellipsoid_name": "WGS 84", "semi_major_axis": 6378137.0}, "+proj=sinu +ellps=WGS84", False),
    "radius_twice": ("sinusoidal", {LON: 0.0, "earth_radius": 6371007.181, "semi_major_axis": 6371007.181}, "+proj=sinu +R=6371007.181", False),
    "old_radius": ("sinusoidal", {LON: 0.0, "spherical_earth_radius_meters": 6371007.181}, "+proj=sinu +R=6371007.181", False),
    "paris": ("lambert_conformal_conic", {LAT: 46.8, PARALLEL: [45.9, 47.7], MERIDIAN: 0.0, "longitude_of_prime_meridian": 2.337229166666667, **GRS80}, None, True),
    "shifted": ("transverse_mercator", {MERIDIAN: 9.0, "towgs84": [1.0, 2.0, 3.0], **GRS80}, None, False),
    "rotated_unnamed": (None, {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0, "earth_radius": 6371229.0},
                        "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +R=6371229", False),
    "wkt_first": ("transverse_mercator", {MERIDIAN: 3.0, "crs_wkt": CRS.from_epsg(32633).to_wkt(), **GRS80}, "EPSG:32633", True),
}
# No system, and what README.txt says of it.
REFUSED = {
    "no_figure": ("polar_stereographic", {PARALLEL: 70.0, STRAIGHT: -45.0}, "--assume-wgs84"),
    "hemispheres": ("polar_stereographic", {PARALLEL: 70.0, LAT: -90.0, STRAIGHT: -45.0, **GRS80}, "other hemisphere"),
    "no_pole": ("polar_stereographic", {SCALE: 0.994, STRAIGHT: -45.0, **GRS80}, "no standard_parallel or latitude_of_projection_origin"),
    "two_figures": ("mercator", {SCALE: 1.0, LON: 0.0, "semi_minor_axis": 6.3e6, **GRS80}, "two figures of the Earth"),
    "two_scales": ("mercator", {PARALLEL: 20.0, SCALE: 0.9, LON: 0.0, **GRS80}, "both a standard parallel and a scale factor"),
    "two_longitudes": ("sinusoidal", {LON: 1.0, MERIDIAN: 2.0, **GRS80}, "two numbers"),
    "off_equator": ("geostationary", {HEIGHT: 35786023.0, LAT: 10.0, LON: -75.0, **GRS80}, "is not the equator"),
    "one_axis": ("geostationary", {HEIGHT: 35786023.0, LON: -75.0, "sweep_angle_axis": "x", "fixed_angle_axis": "x", **GRS80}, "are one axis"),
    "healpix": ("healpix", {"healpix_order": 3, **GRS80}, "no WKT for this grid_mapping_name"),
}
# PROJJSON without a code.
JSON = {"laea": "+proj=laea +lat_0=10 +lon_0=3 +R=6371000", "meridian": "+proj=lcc +lat_1=30 +lat_2=60 +lon_0=3 +ellps=GRS80 +pm=2.5",
        "geos": "+proj=geos +h=35785831 +lon_0=10 +sweep=x +ellps=GRS80", "moll": "+proj=moll +lon_0=10 +R=6371000"}
GEOS = "+proj=geos +h=35785831 +lon_0=9.5 +sweep=x +ellps=WGS84 +units=m"
TRANSFORM = [1000.0, 0.0, -500.0, 0.0, -1000.0, 2500.0]
ABI = {HEIGHT: 35786023.0, LON: -75.0, "sweep_angle_axis": "x", **GRS80}
ABI_CRS = CRS.from_cf({"grid_mapping_name": "geostationary", **ABI})


def coordinates(name, unit=1.0):
    """Coordinates of 4 x 3 pixels of 1000 m, or of `unit` times so much."""
    if name and name.startswith("latitude"):
        return {"lat": ("lat", [2.0, 1.0, 0.0], {"units": "degrees_north", "standard_name": "latitude"}),
                "lon": ("lon", [0.0, 1.0, 2.0, 3.0], {"units": "degrees_east", "standard_name": "longitude"})}
    names, units = (("grid_longitude", "grid_latitude"), "degrees") if name is None else (("projection_x_coordinate", "projection_y_coordinate"), "m")
    y, x = 1000.0 * unit * np.arange(2.0, -1.0, -1.0), 1000.0 * unit * np.arange(4.0)
    return {"y": ("y", y, {"units": units, "standard_name": names[1]}), "x": ("x", x, {"units": units, "standard_name": names[0]})}


def write_one(name, mapping, attributes, axes=None, scalars=None, encoding=None, **more):
    axes = axes or coordinates(mapping, 1.0 if mapping else 1e-3)
    crs = {**({"grid_mapping_name": mapping} if mapping else {}), **attributes}
    more = {key: value for key, value in {"grid_mapping": "crs", **more}.items() if value is not None}
    data = xr.Dataset({"v": (tuple(axes)[:2], np.arange(12, dtype="f4").reshape(3, 4), more),
                       **{key: ((), 0, value) for key, value in (scalars or {"crs": crs}).items()}}, axes)
    data.to_zarr(store(name), zarr_format=3, consolidated=False, encoding=encoding)


def scan_angles(units, size, name="projection_{}_coordinate"):
    axes = coordinates("geostationary", 1.0 / ABI[HEIGHT] / size)
    return {key: (key, values, {"standard_name": name.format(key), **({"units": units} if units else {})}) for key, (_, values, _) in axes.items()}


ANGLES = {"rad": ("rad", 1.0), "microradian": ("microradian", 1e-6), "degrees": ("degrees", np.pi / 180), "angular": (None, 1.0)}


def write():
    zarr.create_group(sys.argv[2], zarr_format=3)
    for code in CODES:
        members = CRS.from_epsg(code).to_cf()
        members.pop("crs_wkt")
        write_one(f"code{code}", members.pop("grid_mapping_name"), members)
    for name, (mapping, attributes, *_) in {**CASES, **REFUSED}.items():
        write_one(name, mapping, attributes)
    for name, (units, size) in ANGLES.items():
        axes = scan_angles(units, size, "projection_{}_angular_coordinate" if name == "angular" else "projection_{}_coordinate")
        write_one(f"scan_{name}", "geostationary", ABI, axes)
    write_one("scan_wkt", "geostationary", {"crs_wkt": ABI_CRS.to_wkt(), **ABI}, scan_angles("rad", 1.0))
    # As GOES-R ABI has them: packed in 16 bits.
    packed = {key: (key, np.arange(n, dtype="i2"), {"units": "rad", "standard_name": f"projection_{key}_coordinate", "scale_factor": scale, "add_offset": offset})
              for key, n, scale, offset in (("y", 3, -5.6e-5, 0.028212), ("x", 4, 5.6e-5, -0.051844))}
    write_one("scan_packed", "geostationary", ABI, packed)
    # Two systems for one array (CF 1.13, 5.6).
    axes = {**coordinates("utm"), "lat": (("y", "x"), np.zeros((3, 4)), {"units": "degrees_north"}), "lon": (("y", "x"), np.zeros((3, 4)), {"units": "degrees_east"})}
    utm, wgs84 = CRS.from_epsg(32633).to_cf(), CRS.from_epsg(4326).to_cf()
    for name, text in {"extended": "utm: x y wgs: lat lon", "extended_other_order": "wgs: lat lon utm: y x", "extended_only": "utm: x y",
                       "extended_none": "wgs: lat lon"}.items():
        write_one(name, None, {}, axes, {"utm": utm, "wgs": wgs84}, grid_mapping=text)


    # Systems by other conventions than CF, and grid mappings that are none.
    empty, wkt, proj = {"spatial_ref": {"GeoTransform": "-500 1000 0 2500 0 -1000"}}, CRS.from_epsg(32633).to_wkt(), {"proj:code": "EPSG:32633"}
    for name, text in JSON.items():
        more = {"spatial:transform": TRANSFORM, "proj:projjson": CRS.from_user_input(text).to_json_dict()}
        write_one(f"json_{name}", "utm", {}, scalars={"other": {}}, grid_mapping=None, **more)
    # The same system as WKT and as PROJJSON, whose texts differ.
    moll = CRS.from_user_input(JSON["moll"])
    write_one("json_wkt", "utm", {}, scalars={"other": {}}, grid_mapping=None, **{
        "spatial:transform": TRANSFORM, "proj:wkt2": moll.to_wkt(), "proj:projjson": moll.to_json_dict()})
    write_one("proj_geos", "utm", {}, scalars={"other": {}}, grid_mapping=None, proj4=GEOS)
    for name, (scalars, more) in {
        "answer_code": (empty, {"grid_mapping": None, **proj}), "answer_nowhere": ({"other": {}}, {"grid_mapping": "nowhere", **proj}),
        "answer_empty": (empty, {"grid_mapping": "spatial_ref", **proj}), "answer_default": ({"spatial_ref": {"crs_wkt": wkt}}, {"grid_mapping": None}),
        "answer_own": ({"other": {}}, {"grid_mapping": None, "proj4": "+proj=utm +zone=33 +datum=WGS84 +units=m"}),
        "answer_gdal": ({"other": {}}, {"grid_mapping": None, "_CRS": {"wkt": wkt}}),
    }.items():
        write_one(name, "utm", {}, scalars=scalars, **more)
    # Grid mappings of a group above (CF 1.13, 2.7), and files of one array.
    plain = {"v": {"compressors": None}}
    write_one("above/below", "utm", {}, scalars={"other": {}}, encoding=plain)
    write_one("packed", "transverse_mercator", {"crs_wkt": wkt}, encoding=plain)
    above = xr.Dataset({"crs": ((), 0, {"crs_wkt": wkt})})
    above.to_zarr(store("above"), zarr_format=3, consolidated=False, mode="a")
    write_one("assumed_degrees", "latitude", {}, coordinates("latitude"), {"other": {}}, grid_mapping=None)
    write_one("assumed_figure", *REFUSED["no_figure"][:2])


# Those that another version of GDAL, that of the distribution, reads too.
OLDER = {"code3413", "geostationary_x", "vertical", "oblique", "shifted", "scan_rad", "extended"}


def opened(what, path, crs, transform=None):
    with rasterio.open(path) as there:
        check_system(what, there.crs and there.crs.to_wkt(), crs)
        if transform is not None:
            equal(f"{what}: transform", list(there.transform)[:6], transform)


def netcdf(node, name):
    return f"netcdf:{file(node, '.nc', name)}:v"


def check_one(node, crs, transform=TRANSFORM, is_in_gdal=True):
    """`is_in_gdal` says whether GDAL reads the grid mapping in the `.nc`."""
    counts["rasters"] += 1
    array = f"{node}/v"
    check_alone(array, crs)
    opened(f"{node} tif", file(array, ".tif"), crs, transform)
    opened(f"{node} vrt", file(array, ".vrt"), crs, transform)
    if is_in_gdal:
        opened(f"{node} nc", netcdf(node, os.path.basename(node)), crs, transform)
    if node in OLDER:
        found = info(file(array, ".tif"), GDAL_PAM_ENABLED="NO")
        check_system(f"{node} in gdalinfo", found.get("coordinateSystem", {}).get("wkt", ""), crs)


def check():
    degrees = [1.0, 0.0, -0.5, 0.0, -1.0, 2.5]
    for code in CODES:
        check_one(f"code{code}", CRS.from_epsg(code), degrees if code == 4326 else TRANSFORM, code != 2056)
    for name, (mapping, attributes, text, is_in_gdal) in CASES.items():
        crs = CRS.from_user_input(text) if text else CRS.from_cf({"grid_mapping_name": mapping, **attributes})
        check_one(name, crs, TRANSFORM if mapping else degrees, is_in_gdal)
    for name, (_, _, reason) in REFUSED.items():
        with rasterio.open(file(f"{name}/v", ".tif")) as there:
            equal(f"{name}: no system", there.crs, None)
        with open(file(f"{name}/v", "", "README.txt")) as readme:
            equal(f"{name}: {reason}", reason in readme.read(), True)
    for name in ANGLES:
        check_one(f"scan_{name}", ABI_CRS, is_in_gdal=name in ("rad", "microradian"))
    check_one("scan_wkt", ABI_CRS, is_in_gdal=False)
    height = ABI[HEIGHT]
    check_one("scan_packed", ABI_CRS, [5.6e-5 * height, 0.0, (-0.051844 - 2.8e-5) * height, 0.0, -5.6e-5 * height, (0.028212 + 2.8e-5) * height])
    for name in ("extended", "extended_other_order", "extended_only"):
        check_one(name, CRS.from_epsg(32633))
    with rasterio.open(file("extended_none/v", ".tif")) as there:
        equal("extended_none: no system", there.crs, None)
    for name, text in JSON.items():
        check_one(f"json_{name}", CRS.from_user_input(text))
    check_one("json_wkt", CRS.from_user_input(JSON["moll"]))
    check_one("proj_geos", CRS.from_user_input(GEOS))
    for name in ("code", "nowhere", "empty", "default", "own", "gdal"):
        check_one(f"answer_{name}", CRS.from_epsg(32633))
    check_one("above/below", CRS.from_epsg(32633))
    for node in "above/below/v", "packed/v":
        opened(f"{node} packed.nc", netcdf(node, "v.packed"), CRS.from_epsg(32633))
    with rasterio.open(file("assumed_degrees/v", ".tif")) as there:
        equal("assumed_degrees: no system", there.crs, None)
    report()


def check_assumed():
    """In a mount with `--assume-wgs84`."""
    check_one("assumed_degrees", CRS.from_epsg(4326), [1.0, 0.0, -0.5, 0.0, -1.0, 2.5])
    check_one("assumed_figure", CRS.from_user_input("+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84"))
    report()


def report():
    for line in bad[:60]:
        print(line[:900], file=sys.stderr)
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    {"write": write, "check": check, "assumed": check_assumed}[sys.argv[1]]()
