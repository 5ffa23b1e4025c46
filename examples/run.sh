#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Speculative decoding on real text: installs what is missing, builds the examples and runs the main one.
#
#   examples/run.sh [arguments of the example, --help shows them]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "${root}/cmake/require_packages.sh"

require_packages build-essential cmake ninja-build libeigen3-dev libcli11-dev nlohmann-json3-dev libpcre2-dev \
    libutf8proc-dev

# Arguments may name files: the example runs where the user is, and building stays silent unless it fails.
log="$(mktemp)"
trap 'rm -f "${log}"' EXIT
echo "building the examples in ${root}/build/examples"
if ! (cd "${root}" && cmake --preset examples && cmake --build --preset examples -j "$(nproc)") >"${log}" 2>&1; then
    cat "${log}" >&2
    exit 1
fi
if [[ ! -x "${root}/build/examples/examples/ngram" ]]; then
    echo "examples/ngram was not built: it needs Eigen >= 3.4 and CLI11" >&2
    exit 1
fi
"${root}/build/examples/examples/ngram" "$@"
