"""Writes GRIB messages with ecCodes, references to them, and the values that ecCodes reads.

usage: grib.py DIRECTORY

grib.json has an array of one message for each form of packing, with the codec grib of kerchunk; grib-v3 has the same
messages as Zarr v3 with the codec gribberish. scanned.json are the references of kerchunk to a file of four messages.
"""

import json
import sys
from pathlib import Path

import eccodes
import numpy as np

random = np.random.default_rng(7)
ROWS, COLUMNS = 23, 37
Y, X = np.mgrid[0:ROWS, 0:COLUMNS]
MISSING = 9999.0
EDITION_2 = ["simple", "complex", "complex_spatial_differencing", "ieee", "jpeg", "ccsds", "png"]
# ecCodes cannot write these.
NOT_WRITTEN = {("png", "missing"), ("png", "constant")}


def message(sample, packing, bits=16, decimal=None, kind="", step=0):
    """Returns a message, and its values as ecCodes reads them."""
    values = 280 + 15 * np.sin(X / 5) + 7 * np.cos(Y / 3) + random.normal(0, 0.5, X.shape)
    values = values.ravel()
    if kind == "constant":
        values[:] = 273.15
    handle = eccodes.codes_grib_new_from_samples(sample)
    grid = {
        "Ni": COLUMNS,
        "Nj": ROWS,
        "latitudeOfFirstGridPointInDegrees": 60.0,
        "latitudeOfLastGridPointInDegrees": 60.0 - (ROWS - 1),
        "longitudeOfFirstGridPointInDegrees": 0.0,
        "longitudeOfLastGridPointInDegrees": COLUMNS - 1.0,
        "iDirectionIncrementInDegrees": 1.0,
        "jDirectionIncrementInDegrees": 1.0,
        "stepRange": step,
        "packingType": f"grid_{packing}",
    }
    for name, value in grid.items():
        eccodes.codes_set(handle, name, value)
    if packing != "ieee":
        eccodes.codes_set(handle, "bitsPerValue", bits)
    if decimal is not None:
        eccodes.codes_set(handle, "decimalPrecision", decimal)
    if kind == "missing":
        eccodes.codes_set(handle, "bitmapPresent", 1)
        eccodes.codes_set(handle, "missingValue", 1e20)
        values[::7] = 1e20
    eccodes.codes_set_values(handle, values)
    encoded = eccodes.codes_get_message(handle)
    again = eccodes.codes_new_from_message(encoded)
    return encoded, eccodes.codes_get_array(again, "values").reshape(X.shape)


def messages():
    for packing in EDITION_2:
        for kind in ["", "missing", "constant"]:
            if (packing, kind) not in NOT_WRITTEN:
                yield f"{packing}_{kind}".rstrip("_"), message("GRIB2", packing, kind=kind)
        if packing not in ("ieee", "png"):
            yield f"{packing}_12", message("GRIB2", packing, bits=12, decimal=2)
            yield f"{packing}_24", message("GRIB2", packing, bits=24)
    yield "png_8", message("GRIB2", "png", bits=8)
    yield "simple_31", message("GRIB2", "simple", bits=31)
    for kind in ["", "missing", "constant"]:
        yield f"edition1_{kind}".rstrip("_"), message("GRIB1", "simple", kind=kind)
    yield "edition1_12", message("GRIB1", "simple", bits=12, decimal=1)


def expect(directory, name, values):
    path = directory / "expected" / f"{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def zarray(dtype):
    filters = [{"id": "grib", "var": "t", "dtype": np.dtype(dtype).name}]
    document = {"zarr_format": 2, "shape": X.shape, "chunks": X.shape, "dtype": dtype, "order": "C"}
    return json.dumps(document | {"fill_value": None, "compressor": None, "filters": filters})


def write_v3(directory, name, dtype, encoded):
    array = directory / "grib-v3" / name
    (array / "c" / "0").mkdir(parents=True)
    grid = {"name": "regular", "configuration": {"chunk_shape": X.shape}}
    document = {"zarr_format": 3, "node_type": "array", "shape": X.shape, "data_type": dtype, "chunk_grid": grid}
    document |= {"chunk_key_encoding": {"name": "default"}, "fill_value": "NaN"}
    document |= {"codecs": [{"name": "gribberish", "configuration": {"var": "t"}}]}
    (array / "zarr.json").write_text(json.dumps(document))
    (array / "c" / "0" / "0").write_bytes(encoded)


def write_messages(directory):
    references = {".zgroup": '{"zarr_format":2}'}
    (directory / "grib-v3").mkdir()
    (directory / "grib-v3" / "zarr.json").write_text('{"zarr_format":3,"node_type":"group"}')
    for name, (encoded, values) in messages():
        (directory / f"{name}.grib").write_bytes(encoded)
        for suffix, dtype in [("", "<f8"), ("_f4", "<f4")]:
            references[f"{name}{suffix}/.zarray"] = zarray(dtype)
            references[f"{name}{suffix}/0.0"] = [f"{name}.grib"]
            expect(directory, f"grib/{name}{suffix}", values.astype(dtype))
            write_v3(directory, name + suffix, np.dtype(dtype).name, encoded)
            without = np.where(values == MISSING, np.nan, values).astype(dtype)
            expect(directory, f"grib-v3/{name}{suffix}", without)
    (directory / "grib.json").write_text(json.dumps(references))


def write_scanned(directory):
    """A file of four steps, as `kerchunk.grib2` combines its messages."""
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.grib2 import scan_grib

    path = directory / "forecast.grib2"
    fields = [message("GRIB2", "ccsds", step=step) for step in (0, 6, 12, 18)]
    path.write_bytes(b"".join(encoded for encoded, _ in fields))
    combined = MultiZarrToZarr(
        scan_grib(str(path)), concat_dims=["step"], identical_dims=["latitude", "longitude"]
    ).translate()
    (directory / "scanned.json").write_text(json.dumps(combined))
    expect(directory, "scanned/t", np.stack([values for _, values in fields]))


def main():
    directory = Path(sys.argv[1]).absolute()
    write_messages(directory)
    write_scanned(directory)


if __name__ == "__main__":
    main()
