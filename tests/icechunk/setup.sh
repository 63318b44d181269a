#!/usr/bin/env bash
# Installs icechunk 1 in an environment beside this file, and puts a repository of each version of the format
# into target/fixtures/icechunk: icechunk 1 writes version 1; icechunk-v2.zip is what icechunk 2.3 wrote with
# the same script, for which it needs Python 3.12. Does nothing when all is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$here/../../scripts/common.sh"
fixtures=$root/target/fixtures/icechunk

requirements="icechunk==1.1.21 zarr==3.1.6 numcodecs==0.16.6 numpy==2.4.6"

# shellcheck disable=SC2086
need_venv "$here/.venv" $requirements

stamp=$(cat "$here/make.py" "$here/setup.sh" "$here/icechunk-v2.zip" | sha256sum)
if [ "$(cat "$fixtures/stamp" 2>/dev/null)" != "$stamp" ]; then
    say "writing Icechunk repositories"
    rm -rf "$fixtures"
    mkdir -p "$fixtures"
    "$here/.venv/bin/python" "$here/make.py" write "$fixtures/v1" >/dev/null
    unzip -q "$here/icechunk-v2.zip" -d "$fixtures/v2"
    echo "$stamp" >"$fixtures/stamp"
fi
