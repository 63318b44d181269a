"""A notebook, in a kernel of Jupyter."""

from pathlib import Path

import pytest

from conftest import mounts_below

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")


def test_a_mount_lasts_from_cell_to_cell_and_ends_with_the_kernel(scratch: Path, tmp_path: Path) -> None:
    cells = [
        "import zarrfs, xarray\nm = zarrfs.mount('demo:')\nm",
        "zarrfs.tree('demo:', path='v3')",
        "data = xarray.open_dataset('demo:', engine='zarrfs', group='v3')\nfloat(data.t2m.mean())",
        "zarrfs.info('/none')",
        "print(m.nc.exists())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", allow_errors=True)
    client.execute(cwd=str(tmp_path))
    shown = [cell["outputs"] for cell in notebook.cells]
    for outputs in shown[:2]:
        assert "t2m (time: 12, lat: 32, lon: 64) float32" in outputs[0]["data"]["text/html"], outputs
    assert float(shown[2][0]["data"]["text/plain"]) == pytest.approx(275.6, abs=0.1)
    assert shown[3][0]["ename"] == "ZarrfsError" and "/none" in shown[3][0]["evalue"]
    assert shown[4][0]["text"] == "True\n"
    # The kernel has ended, and its mounts with it.
    assert not mounts_below(scratch)
