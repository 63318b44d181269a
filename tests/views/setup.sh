#!/usr/bin/env bash
# Installs the programs that the computed files are opened with: those of netCDF, HDF5, GDAL and
# TIFF from the distribution, their Python libraries in environments beside this file, HDF5 1.8 in
# .hdf5-1.8, jsfive in node_modules. Writes the stores that they are compared with, in
# target/fixtures/formats. Does nothing when all is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
fixtures=$root/target/fixtures/formats

requirements="numpy==2.4.6 zarr==3.1.6 numcodecs==0.16.6 xarray==2026.9.0 scipy==1.17.1"
requirements+=" netCDF4==1.7.5.1.post1 h5py==3.16.0 h5netcdf==1.8.2"
requirements+=" ome-types==0.7.0 xmlschema==4.3.2"
requirements+=" pyfive==1.3.0 tifffile==2026.3.3 rasterio==1.4.4 pyproj==3.7.2 pynrrd==1.1.3"
# Readers of images and volumes.
requirements+=" nibabel==5.4.2 SimpleITK==2.5.3 mrcfile==1.5.4 astropy==8.0.2 pillow==13.0.0"
# Readers of tables.
requirements+=" pyarrow==26.0.1 pandas==3.1.1 duckdb==2.0.0"
anndata="anndata==0.12.19"
# The writer of OME-Zarr 0.4 to 0.6.
ngff="ngff-zarr==0.50.0 numpy==2.4.6"
# The last wheel with a libhdf5 of 1.8 (1.8.18); only that library of it is used.
hdf5="h5py==2.7.1"
jsfive="jsfive@0.4.2"

need ncdump:netcdf-bin h5dump:hdf5-tools ncks:nco cdo:cdo gdalinfo:gdal-bin listgeo:geotiff-bin \
    tiffinfo:libtiff-tools octave:octave fitsverify:fitsverify Rscript:r-base-core \
    vips:libvips-tools /usr/share/java/ij.jar:imagej \
    /usr/lib/python3/dist-packages/osgeo_utils:python3-gdal xvfb-run:xvfb xauth:xauth
[ -d /usr/share/doc/octave-netcdf ] || install_packages octave-netcdf
# shellcheck disable=SC2086
need_venv "$here/.venv" $requirements
# shellcheck disable=SC2086
need_venv "$here/.venv-ngff" $ngff

# anndata needs another pandas than other programs may: that comes before the packages of the first environment.
cells=$here/.venv-anndata
if [ "$(cat "$cells/stamp" 2>/dev/null)" != "$anndata $requirements" ]; then
    say "creating $cells"
    rm -rf "$cells"
    python3 -m venv "$cells"
    packages=$(cd "$cells"/lib/python3*/site-packages && pwd)
    (cd "$here/.venv"/lib/python3*/site-packages && pwd) >"$packages/behind.pth"
    "$cells/bin/pip" install --quiet --disable-pip-version-check "$anndata"
    echo "$anndata $requirements" >"$cells/stamp"
fi

if [ "$(uname -m)" = x86_64 ] && [ "$(cat "$here/.hdf5-1.8/stamp" 2>/dev/null)" != "$hdf5" ]; then
    say "installing HDF5 1.8 into $here"
    rm -rf "$here/.hdf5-1.8"
    mkdir "$here/.hdf5-1.8"
    "$here/.venv/bin/pip" download --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --python-version 3.6 --platform manylinux1_x86_64 \
        --dest "$here/.hdf5-1.8" "$hdf5"
    (cd "$here/.hdf5-1.8" && python3 -m zipfile -e h5py-*.whl . && mv h5py/.libs lib && rm -r h5py*)
    echo "$hdf5" >"$here/.hdf5-1.8/stamp"
fi

if [ "$(cat "$here/node_modules/stamp" 2>/dev/null)" != "$jsfive" ]; then
    say "installing jsfive into $here"
    rm -rf "$here/node_modules"
    # Node.js is that of the servers; a machine's own npm knows how this machine reaches packages.
    node=$here/../servers/.venv/bin
    [ -x "$node/node" ] || "$here/../servers/setup.sh"
    npm=$(command -v npm) || npm=$node/npm
    PATH=$PATH:$node "$npm" install --prefix "$here" --no-save --no-package-lock --no-audit \
        --no-fund --loglevel=error "$jsfive" >/dev/null
    echo "$jsfive" >"$here/node_modules/stamp"
fi

stamp=$(cat "$here/climate.py" "$here/large.py" "$here/setup.sh" | sha256sum)
if [ "$(cat "$fixtures/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$fixtures"
    mkdir -p "$fixtures"
    "$here/.venv/bin/python" "$here/climate.py" "$fixtures"
    "$here/.venv/bin/python" "$here/large.py" "$fixtures"
    echo "$stamp" >"$fixtures/stamp"
fi
