"""Writes TIFF files, references to them, and what is in them.

usage: tiff.py DIRECTORY

tiff.json and tiff.parq are the references of tifffile, with an array for each file; virtual-NAME.json and .parq
those of VirtualiZarr with virtual-tiff, which also writes the Icechunk repository tiff-icechunk, with a group for each
file. Expected arrays are what tifffile reads.
"""

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
}
# What virtual-tiff or zarr-python cannot read.
NOT_VIRTUAL = {"float_pixels"}
# Those whose codecs VirtualiZarr can write as references of kerchunk.
KERCHUNK = ["deflate_floats", "packbits"]


def expect(directory, name, values):
    path = directory / "expected" / f"{name}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)


def write_files(directory):
    for name, (values, options) in FILES.items():
        tifffile.imwrite(directory / f"{name}.tif", values, **options)
        expect(directory, f"tiff/{name}", tifffile.imread(directory / f"{name}.tif"))


def write_references(directory):
    from kerchunk.df import refs_to_dataframe

    references = {".zgroup": '{"zarr_format":2}'}
    for name in FILES:
        with tifffile.imread(directory / f"{name}.tif", aszarr=True) as store:
            text = io.StringIO()
            store.write_fsspec(text, url="", groupname=name)
            # Each is a group with the array as its own keys.
            own = json.loads(text.getvalue())
            own.pop(".zgroup")
            references |= own
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
    for name in FILES.keys() - NOT_VIRTUAL:
        url = f"{prefix}{name}.tif"
        parser = VirtualTIFF(ifd=0)
        dataset = open_virtual_dataset(url, registry=registry, parser=parser, loadable_variables=[])
        dataset.vz.to_icechunk(session.store, group=name)
        values = tifffile.imread(directory / f"{name}.tif")
        is_pixels = values.ndim == 3 and values.shape[-1] in (3, 4)
        expect(directory, f"tiff-icechunk/{name}/0", np.moveaxis(values, -1, 0) if is_pixels else values)
        if name in KERCHUNK:
            for form, suffix in [("json", "json"), ("parquet", "parq")]:
                dataset.vz.to_kerchunk(str(directory / f"virtual-{name}.{suffix}"), format=form)
            expect(directory, f"virtual-{name}/0", values)
    session.commit("TIFF files")


def main():
    directory = Path(sys.argv[1]).absolute()
    write_files(directory)
    write_references(directory)
    write_virtual(directory)


if __name__ == "__main__":
    main()
