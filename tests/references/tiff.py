"""Writes TIFF files, references to them, and what is in them.

usage: tiff.py DIRECTORY

tiff.json and tiff.parq are the references of tifffile, with an array for each file; virtual-NAME.json and .parq
those of VirtualiZarr with virtual-tiff, which also writes the Icechunk repository tiff-icechunk, with a group for each
file. Expected arrays are what tifffile reads.
"""

import base64
import io
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import tifffile

warnings.simplefilter("ignore")
random = np.random.default_rng(3)
# A surface temperature: neighbours differ by little.
SST = (random.integers(-30, 30, (96, 160)).cumsum(axis=1) + 28000).astype("i2")
FLOATS = (SST * 0.001 + random.random(SST.shape) * 1e-4).astype("f4")
PIXELS = (random.integers(-9, 9, (64, 96, 3)).cumsum(axis=1) + 100).astype("u1")
TILES = {"tile": (32, 32)}

# The names of files, their arrays and the options of tifffile.
FILES = {
    "zstd_delta": (SST, TILES | {"compression": "zstd", "predictor": 2}),
    "zstd_delta_big": (SST, TILES | {"compression": "zstd", "predictor": 2, "byteorder": ">"}),
    "lzw_delta": (SST.astype("u4"), TILES | {"compression": "lzw", "predictor": 2}),
    "lzw_strips": (SST, {"compression": "lzw", "rowsperstrip": 16}),
    "lzw_pixels": (PIXELS, TILES | {"compression": "lzw", "predictor": 2, "photometric": "rgb"}),
    "wide_pixels": (PIXELS.astype("u2") * 257, TILES | {"compression": "zstd", "predictor": 2, "photometric": "rgb"}),
    "planes": (
        np.moveaxis(PIXELS, -1, 0).copy(),
        TILES | {"compression": "zstd", "predictor": 2, "photometric": "rgb", "planarconfig": "separate"},
    ),
    "deflate_floats": (FLOATS, TILES | {"compression": "deflate", "predictor": 3}),
    "deflate_floats_big": (FLOATS.astype("f8"), TILES | {"compression": "deflate", "predictor": 3, "byteorder": ">"}),
    "float_pixels": (
        PIXELS.astype("f4") / 7,
        TILES | {"compression": "zstd", "predictor": 3, "photometric": "rgb"},
    ),
    "packbits": (SST, {"compression": "packbits", "rowsperstrip": 32}),
    "packbits_labels": ((SST // 50 % 5).astype("u1"), TILES | {"compression": "packbits"}),
    "webp": (PIXELS, TILES | {"compression": "webp", "compressionargs": {"lossless": False}, "photometric": "rgb"}),
    "webp_alpha": (
        np.dstack([PIXELS, PIXELS[..., 0]]),
        TILES | {"compression": "webp", "photometric": "rgb", "extrasamples": ["unassalpha"]},
    ),
    "webp_opaque": (
        np.dstack([PIXELS, np.full_like(PIXELS[..., 0], 255)]),
        TILES | {"compression": "webp", "photometric": "rgb", "extrasamples": ["unassalpha"]},
    ),
    "jpegxl": (SST.astype("u2"), TILES | {"compression": "jpegxl"}),
    "jpegxl_pixels": (PIXELS, TILES | {"compression": "jpegxl", "photometric": "rgb"}),
    "jpegxl_floats": (FLOATS, TILES | {"compression": "jpegxl"}),
}
# Decoders of JPEG need not agree on each value.
JPEG = {
    "jpeg_gray": (PIXELS[..., 0].copy(), TILES | {"compression": "jpeg"}),
    "jpeg_pixels": (PIXELS, TILES | {"compression": "jpeg", "photometric": "rgb"}),
    "jpeg_subsampled": (PIXELS, TILES | {"compression": "jpeg", "photometric": "rgb", "subsampling": (2, 2)}),
    "jpegxl_lossy": (
        PIXELS,
        TILES | {"compression": "jpegxl", "compressionargs": {"distance": 2.0, "lossless": False}, "photometric": "rgb"},
    ),
}
# What virtual-tiff or zarr-python cannot read.
NOT_VIRTUAL = {"float_pixels", "webp_alpha", "webp_opaque", "jpeg_pixels", "jpeg_subsampled"}
NOT_VIRTUAL |= {"jpegxl", "jpegxl_pixels", "jpegxl_floats", "jpegxl_lossy"}
# Those whose codecs VirtualiZarr can write as references of kerchunk.
KERCHUNK = ["deflate_floats", "packbits"]


def expect(directory, name, values):
    path = directory / "expected" / f"{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def write_files(directory):
    for name, (values, options) in (FILES | JPEG).items():
        tifffile.imwrite(directory / f"{name}.tif", values, **options)
        kind = "tiff-jpeg" if name in JPEG else "tiff"
        expect(directory, f"{kind}/{name}", tifffile.imread(directory / f"{name}.tif"))


def write_parts(directory, references):
    """Chunks of JPEG without their tables, without a header, and without conversion of colours: Aperio, Hamamatsu."""
    import imagecodecs.numcodecs as codecs
    from imagecodecs import jpeg8_encode

    tile = PIXELS[:32, :32]
    converted = jpeg8_encode(tile, level=90)
    stored = jpeg8_encode(tile, level=90, colorspace="RGB", outcolorspace="RGB")
    segments, at = [], 2
    while converted[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(converted[at + 2 : at + 4], "big")
        segments.append(converted[at:end])
        at = end
    scan = converted[at:]
    is_table = [segment[1] in (0xDB, 0xC4) for segment in segments]
    tables = b"\xff\xd8" + b"".join(s for s, t in zip(segments, is_table) if t) + b"\xff\xd9"
    others = b"\xff\xd8" + b"".join(s for s, t in zip(segments, is_table) if not t) + scan
    header = converted[: at + 2 + int.from_bytes(converted[at + 2 : at + 4], "big")]
    parts = {
        "jpeg_tables": (others, {"tables": tables, "colorspace_data": 2}),
        "jpeg_header": (converted[len(header) : -2], {"header": header, "colorspace_data": 2}),
        "jpeg_stored": (stored, {"colorspace_jpeg": 2, "colorspace_data": 2}),
    }
    for name, (chunk, options) in parts.items():
        codec = codecs.Jpeg(**options)
        zarray = {"zarr_format": 2, "shape": [32, 32, 3], "chunks": [32, 32, 3], "dtype": "|u1", "order": "C"}
        zarray |= {"fill_value": 0, "filters": None, "compressor": codec.get_config()}
        references[f"{name}/.zarray"] = json.dumps(zarray)
        references[f"{name}/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["Y", "X", "S"]}'
        references[f"{name}/0.0.0"] = "base64:" + base64.b64encode(chunk).decode()
        expect(directory, f"tiff-jpeg/{name}", codec.decode(chunk))


def check_packed(mount, expected):
    """Compares each `.packed.tif` of JPEG tiles with the file that the references describe, both read by tifffile."""
    for name in [*JPEG, "jpeg_tables", "jpeg_stored"]:
        if "jpegxl" in name:
            continue
        with tifffile.TiffFile(mount / name / ".zarrfs" / f"{name}.packed.tif") as file:
            page = file.pages[0]
            assert page.compression == tifffile.COMPRESSION.JPEG, name
            assert (page.jpegtables is not None) == (name == "jpeg_tables"), name
            found = page.asarray()
        assert np.array_equal(found, np.load(expected / f"{name}.npy")), name
    # TIFF has no place for a part of the header.
    assert not (mount / "jpeg_header/.zarrfs/jpeg_header.packed.tif").exists()

def write_references(directory):
    from kerchunk.df import refs_to_dataframe

    references = {".zgroup": '{"zarr_format":2}'}
    for name in FILES | JPEG:
        with tifffile.imread(directory / f"{name}.tif", aszarr=True) as store:
            text = io.StringIO()
            store.write_fsspec(text, url="", groupname=name)
            # Each is a group with the array as its own keys.
            own = json.loads(text.getvalue())
            own.pop(".zgroup")
            references |= own
    write_parts(directory, references)
    (directory / "tiff.json").write_text(json.dumps(references))
    refs_to_dataframe({"version": 1, "refs": references}, str(directory / "tiff.parq"))


def write_virtual(directory):
    import icechunk
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF
    from virtualizarr import open_virtual_dataset

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{directory}/"
    local = icechunk.local_filesystem_store(str(directory))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, local))
    storage = icechunk.local_filesystem_storage(str(directory / "tiff-icechunk"))
    repository = icechunk.Repository.create(storage, config=config)
    session = repository.writable_session("main")
    for name in (FILES | JPEG).keys() - NOT_VIRTUAL:
        url = f"{prefix}{name}.tif"
        parser = VirtualTIFF(ifd=0)
        dataset = open_virtual_dataset(url, registry=registry, parser=parser, loadable_variables=[])
        dataset.vz.to_icechunk(session.store, group=name)
        values = tifffile.imread(directory / f"{name}.tif")
        is_pixels = values.ndim == 3 and values.shape[-1] in (3, 4)
        kind = "tiff-icechunk-jpeg" if name in JPEG else "tiff-icechunk"
        expect(directory, f"{kind}/{name}/0", np.moveaxis(values, -1, 0) if is_pixels else values)
        if name in KERCHUNK:
            for form, suffix in [("json", "json"), ("parquet", "parq")]:
                dataset.vz.to_kerchunk(str(directory / f"virtual-{name}.{suffix}"), format=form)
            expect(directory, f"virtual-{name}/0", values)
    session.commit("TIFF files")


def main():
    if sys.argv[1] == "check-packed":
        return check_packed(Path(sys.argv[2]), Path(sys.argv[3]))
    directory = Path(sys.argv[1]).absolute()
    write_files(directory)
    write_references(directory)
    write_virtual(directory)


if __name__ == "__main__":
    main()
