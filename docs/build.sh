#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The site of docs/*.md and the headers: build/docs/site/index.html, which needs no server and no network to be read.
#
#   docs/build.sh             half a minute, and half a minute more the first time (MkDocs Material and libclang, from PyPI)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source cmake/require_packages.sh
require_packages python3 python3-venv g++

environment=build/docs/venv
if [[ ! -f ${environment}/complete ]]; then
    rm -rf "${environment}"
    python3 -m venv "${environment}"
    "${environment}/bin/pip" -q install 'mkdocs-material==9.*' 'mkdocs==1.6.*' 'libclang==18.*'
    touch "${environment}/complete"
fi
"${environment}/bin/python" docs/site/pages.py build/docs/pages
NO_MKDOCS_2_WARNING=1 "${environment}/bin/mkdocs" --quiet build --strict -f docs/site/mkdocs.yml
echo "build/docs/site/index.html"
