"""The engine of xarray, compared with that for Zarr."""

import os
from pathlib import Path
from typing import List

import pytest

import zarrfs

xarray = pytest.importorskip("xarray")
numpy = pytest.importorskip("numpy")
pytest.importorskip("h5netcdf")


@pytest.fixture(params=[2, 3])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A store with missing values, times, scale and offset, texts and a group, as xarray writes it."""
    pytest.importorskip("zarr")
    values = numpy.random.default_rng(1).random((6, 4, 5), dtype="f4")
    values[0, 0, 0] = numpy.nan
    days = numpy.datetime64("2020-01-01", "ns") + numpy.arange(6) * numpy.timedelta64(1, "D")
    dataset = xarray.Dataset(
        {
            "sst": (("time", "lat", "lon"), values, {"units": "K"}),
            "packed": (("lat", "lon"), values[1]),
            "name": ("time", numpy.array(list("abcdef"), dtype=object)),
        },
        coords={"time": days, "lat": numpy.linspace(-90, 90, 4), "lon": numpy.arange(5.0)},
        attrs={"title": "sea"},
    )
    packed = {"dtype": "i2", "scale_factor": 0.001, "add_offset": 1.0, "_FillValue": -9}
    path = tmp_path / "sea.zarr"
    deep = dataset.isel(time=slice(2)).rename(time="day", lat="y", lon="x")
    tree = xarray.DataTree.from_dict({"/": dataset, "/deep": deep})
    tree.to_zarr(path, mode="w", zarr_format=request.param, encoding={"/": {"packed": packed}})
    return path


def left() -> List[zarrfs.MountedSource]:
    """The private mounts of this test."""
    private = Path(os.environ["TMPDIR"])
    return [mount for mount in zarrfs.mounts() if private in mount.mountpoint.parents]


def test_a_data_set_is_that_of_the_engine_for_zarr(store: Path) -> None:
    with xarray.open_dataset(store, engine="zarrfs") as own:
        [mount] = left()
        assert mount.source == str(store)
        with xarray.open_dataset(store, engine="zarr") as other:
            xarray.testing.assert_identical(own.load(), other.load())
        assert own["packed"].dtype == other["packed"].dtype
    assert not left()
    for decode in (True, False):
        with xarray.open_dataset(store, engine="zarrfs", group="deep", mask_and_scale=decode, decode_times=decode) as own:
            assert own.sizes["day"] == 2 and numpy.issubdtype(own["day"].dtype, numpy.datetime64) == decode
            part = own["sst"][1, 1:3]
            assert part.shape == (2, 5)
            expected = xarray.open_zarr(store, group="deep")["sst"][1, 1:3]
            numpy.testing.assert_array_equal(part, expected)
    assert not left()


def test_all_groups_are_opened_and_closed(store: Path) -> None:
    with xarray.open_datatree(store, engine="zarrfs") as tree:
        assert tree.groups == ("/", "/deep") and len(left()) == 1
        assert tree["deep/sst"].shape == (2, 4, 5)
    assert not left()
    groups = xarray.open_groups(store, engine="zarrfs", group="deep")
    assert list(groups) == ["/"]
    groups["/"].close()
    assert not left()


def test_an_array_is_opened_with_its_coordinates(store: Path) -> None:
    with xarray.open_dataset(store, engine="zarrfs", group="sst", options={"ttl": "inf"}) as own:
        assert list(own.data_vars) == ["sst"] and set(own.coords) == {"time", "lat", "lon"}
    assert not left()


def test_chunks_are_read_when_they_are_needed(store: Path) -> None:
    pytest.importorskip("dask")
    with xarray.open_dataset(store, engine="zarrfs", chunks={"time": 1}) as own:
        assert own["sst"].chunks == ((1,) * 6, (4,), (5,))
        assert float(own["sst"].max()) == float(xarray.open_zarr(store)["sst"].max())


def test_a_mount_is_not_unmounted() -> None:
    with zarrfs.mount("demo:") as m:
        for _ in range(2):
            with xarray.open_dataset(m, group="v3") as dataset:
                assert dataset["t2m"].shape == (12, 32, 64)
        with pytest.raises(ValueError, match="mounted already"):
            xarray.open_dataset(m, options={"ttl": "1s"})


def test_failures_leave_no_mount() -> None:
    for source, more, kind in [("/none", {}, "not_found"), ("demo:", {"group": "v4"}, "not_found")]:
        with pytest.raises(zarrfs.ZarrfsError) as caught:
            xarray.open_dataset(source, engine="zarrfs", **more)
        assert caught.value.kind == kind
    assert not left()
