#!/bin/sh
# Install groundmetric and all that it needs from this folder, without internet: sh install.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-groundmetric-venv}
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$here" "groundmetric[$(cat "$here/extras")]"
"$venv/bin/groundmetric" --help > /dev/null
echo "installed: $venv/bin/groundmetric"
