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
# The writers of other conventions, with what of their dependencies the first environment lacks. Their packages name more
# (servers, pictures, S3), which they do not need to write; spatialdata would be 1.4 GB.
writers="rioxarray==0.19.0 tensorstore==0.1.86 ml_dtypes==0.6.0 nifti-zarr==1.0.0rc8 ome-zarr==0.18.0 webknossos==4.3.3"
writers+=" dask==2026.8.0 cloudpickle==3.1.3 fsspec==2026.9.0 toolz==1.2.0 partd==1.4.2 locket==1.0.0 zipp==4.1.2"
writers+=" importlib_metadata==10.2.0 scikit-image==0.26.0 lazy-loader==0.6 lazy-importer==0.1.0 Deprecated==1.3.1"
writers+=" wrapt==2.5.2 ome-zarr-models==1.7 pydantic-zarr==0.9.2 rangehttpserver==1.4.0 attrs==26.1.0 cattrs==26.2.1"
writers+=" boltons==26.2.0 cluster_tools==4.3.3 httpx==0.27.2 httpcore==1.0.9 h11==0.16.0 anyio==4.14.2 sniffio==1.3.1"
writers+=" idna==3.20 natsort==8.4.0 click==8.1.8 rich==13.8.1 Pygments==2.21.0 markdown-it-py==4.3.0 mdurl==0.1.2"
writers+=" psutil==6.0.0 python-dotenv==1.2.4 universal_pathlib==0.3.10 pathlib_abc==0.5.2 loxun==2.0 wkw==1.1.24"
writers+=" lz4==4.4.5 imageio==2.38.1 networkx==3.2.1 PyYAML==6.0.4 protobuf==6.33.6 cffi==2.1.1 pycparser==3.12"
# The writer of VCF Zarr, and its own conversion to PLINK and BGEN.
vcf="bio2zarr[vcf]==0.2.1 vcztools==0.2.0"
# Readers of BGEN; bgen-reader needs versions of dask and pandas that the other environments do not have.
bgen="bgen==1.10.3 bgen-reader==4.0.9 cbgen==1.0.6 numpy==2.4.6"
# The newest releases, which need a newer Python than Debian 12 has.
newest="zarr==3.4.2 anndata==0.13.4 icechunk==2.3.0"
# The last wheel with a libhdf5 of 1.8 (1.8.18); only that library of it is used.
hdf5="h5py==2.7.1"
jsfive="jsfive@0.4.2"

need ncdump:netcdf-bin h5dump:hdf5-tools ncks:nco cdo:cdo gdalinfo:gdal-bin listgeo:geotiff-bin \
    tiffinfo:libtiff-tools octave:octave fitsverify:fitsverify Rscript:r-base-core \
    vips:libvips-tools /usr/share/java/ij.jar:imagej \
    /usr/lib/python3/dist-packages/osgeo_utils:python3-gdal xvfb-run:xvfb xauth:xauth \
    plink1.9:plink1.9 plink2:plink2 tabix:tabix
[ -d /usr/share/doc/octave-netcdf ] || install_packages octave-netcdf
# shellcheck disable=SC2086
need_venv "$here/.venv" $requirements
# shellcheck disable=SC2086
need_venv "$here/.venv-ngff" $ngff
# shellcheck disable=SC2086
need_venv "$here/.venv-vcf" $vcf
# shellcheck disable=SC2086
need_venv "$here/.venv-bgen" $bgen
for minor in 12 13 14; do
    if python=$(python_of "$minor"); then
        # shellcheck disable=SC2086
        need_venv_of "$python" "$here/.venv-newest" $newest
        break
    fi
done

# need_venv_before DIRECTORY REQUIREMENT...: an environment whose packages come before those of the first one.
need_venv_before() {
    local directory=$1 packages
    shift
    [ "$(cat "$directory/stamp" 2>/dev/null)" != "$* $requirements" ] || return 0
    say "creating $directory"
    rm -rf "$directory"
    python3 -m venv "$directory"
    packages=$(cd "$directory"/lib/python3*/site-packages && pwd)
    (cd "$here/.venv"/lib/python3*/site-packages && pwd) >"$packages/behind.pth"
    "$directory/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$* $requirements" >"$directory/stamp"
}

# anndata needs another pandas than other programs may.
need_venv_before "$here/.venv-anndata" "$anndata"
# shellcheck disable=SC2086
need_venv_before "$here/.venv-writers" --no-deps $writers

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

genotypes=$root/target/fixtures/vcf
stamp=$(cat "$here/plink.py" "$here/setup.sh" | sha256sum)
if [ "$(cat "$genotypes/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$genotypes"
    mkdir -p "$genotypes"
    "$here/.venv-vcf/bin/python" "$here/plink.py" "$genotypes"
    echo "$stamp" >"$genotypes/stamp"
fi

genotypes=$root/target/fixtures/bgen
stamp=$(cat "$here/bgen_files.py" "$here/setup.sh" | sha256sum)
if [ "$(cat "$genotypes/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$genotypes"
    mkdir -p "$genotypes"
    "$here/.venv-vcf/bin/python" "$here/bgen_files.py" write "$genotypes"
    echo "$stamp" >"$genotypes/stamp"
fi
