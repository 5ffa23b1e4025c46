#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmarks: installs what is missing, builds them, runs them, prints one table.
#
#   bench/run.sh                        all of them, five repetitions: some ten minutes
#   bench/run.sh --quick                one short run of the shapes that have a bar: about a minute
#   bench/run.sh verify round           these programs alone: bench/verify.cpp, bench/round.cpp
#   bench/run.sh --filter 'V:151936'    these cases alone
#   bench/run.sh compile                what a compiler takes for the headers and the first example: two minutes
#   bench/compare.py BEFORE AFTER       two builds of them in turns: is the second slower?
#   bench/run.sh --docs                 writes the tables and figures of docs/performance.md as well
#
# What each program measured goes to build/bench/results/<program>.json, all together to all.json beside them. bars.json says
# what is asked of whom. Other flags: python3 bench/suite.py --help
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source cmake/require_packages.sh

if [[ ${1:-} == compile ]]; then
    require_packages build-essential python3
    exec python3 bench/compile.py "${@:2}"
fi

docs=no
arguments=()
for argument in "$@"; do
    if [[ ${argument} == --docs ]]; then docs=yes; else arguments+=("${argument}"); fi
done

require_packages build-essential cmake ninja-build python3 libbenchmark-dev libeigen3-dev libxsimd-dev \
    nlohmann-json3-dev libpcre2-dev libutf8proc-dev
python=/usr/bin/python3 # the one that python3-matplotlib belongs to
[[ -x ${python} ]] || python=python3
[[ ${docs} == no ]] || "${python}" -c 'import matplotlib' 2>/dev/null || require_packages python3-matplotlib

log="$(mktemp)"
trap 'rm -f "${log}"' EXIT
echo "building the benchmarks in ${PWD}/build/bench" >&2
if ! (cmake --preset bench && cmake --build --preset bench -j "$(nproc)") >"${log}" 2>&1; then
    cat "${log}" >&2
    exit 1
fi

"${python}" bench/suite.py --build build/bench --out build/bench/results "${arguments[@]}"
if [[ ${docs} == yes ]]; then
    "${python}" bench/plot.py build/bench/results/all.json --out docs/figures
    "${python}" docs/figures/tables.py build/bench/results/all.json
fi
