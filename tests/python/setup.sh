#!/usr/bin/env bash
# Makes an environment with pytest for each Python (3.9 and newer) that is here, in .venvs/3.N beside this
# file. That of python3 has what the wheel is checked with as well, and is .venvs/main. Does nothing when all
# is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$here/../../scripts/common.sh"

# The last ones for Python 3.9.
pytest="pytest==8.4.2"
mypy="mypy==1.19.1"
checks="$mypy twine==7.0.0 auditwheel==6.8.2 check-jsonschema==0.39.0 zizmor==1.32.0"
checks+=" xarray==2026.9.0 h5netcdf==1.8.2 h5py==3.16.0 zarr==3.1.6 dask==2026.8.0 distributed==2026.8.0"
checks+=" fsspec==2026.9.0 nbclient==0.11.0 ipykernel==7.4.0"

need readelf:binutils
python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv

# venv NAME PYTHON REQUIREMENTS
venv() {
    local directory=$here/.venvs/$1
    [ "$(cat "$directory/stamp" 2>/dev/null)" = "$3" ] && return
    say "creating $directory"
    rm -rf "$directory"
    "$2" -m venv "$directory"
    # shellcheck disable=SC2086
    "$directory/bin/pip" install --quiet --disable-pip-version-check $3
    echo "$3" >"$directory/stamp"
}

venv main python3 "$pytest $checks"
main=$(python3 -c 'import sys; print(sys.version_info.minor)')
for minor in $(seq 9 20); do
    if [ "$minor" != "$main" ] && python=$(python_of "$minor"); then
        venv "3.$minor" "$python" "$pytest"
    fi
done
