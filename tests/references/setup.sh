#!/usr/bin/env bash
# Installs kerchunk, VirtualiZarr, tifffile and ecCodes in an environment beside this file, and writes the files, the
# references to them and what is in them, in target/fixtures/references. Does nothing when all is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
fixtures=$root/target/fixtures/references

requirements="kerchunk==0.2.10 virtualizarr==2.5.1 fsspec==2026.9.0 obstore==0.12.1 obspec-utils==0.9.0"
requirements+=" fastparquet==2026.9.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6"
requirements+=" zarr==3.1.6 numcodecs==0.16.6 xarray==2026.9.0"
requirements+=" h5py==3.16.0 netCDF4==1.7.5.1.post1 scipy==1.17.1"
requirements+=" imagecodecs==2026.3.6 imagecodecs-numcodecs==2026.3.6 tifffile==2026.3.3"
requirements+=" eccodes==2.50.0 eccodeslib==2.50.0.33 cfgrib==0.9.15.1"
requirements+=" virtual_tiff==0.5.0 async-tiff==0.7.2 icechunk==1.1.21"

# shellcheck disable=SC2086
need_venv "$here/.venv" $requirements

# The references of VirtualiZarr have absolute paths.
stamp=$(echo "$root" | cat "$here"/*.py "$here/setup.sh" - | sha256sum)
if [ "$(cat "$fixtures/stamp" 2>/dev/null)" != "$stamp" ]; then
    say "writing references"
    rm -rf "$fixtures"
    "$here/.venv/bin/python" "$here/make.py" files "$fixtures"
    "$here/.venv/bin/python" "$here/tiff.py" "$fixtures" 2>/dev/null
    "$here/.venv/bin/python" "$here/grib.py" "$fixtures"
    echo "$stamp" >"$fixtures/stamp"
fi
