#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The whole test suite, from a clean clone: installs what is missing, configures, builds, runs.
#
#   tests/run.sh               g++ (release) and clang++-19 with ASan + UBSan (without the tests tagged [long])
#   tests/run.sh --gcc-only    g++ alone, where there is no clang++-19
#
# Both builds are tested in one run of ctest, whose summary comes last and counts everything: tests of the second build
# are named asan.*, and a build that fails is a failed test as well. Other arguments go to ctest: tests/run.sh -L unit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source cmake/require_packages.sh

presets=(release asan)
if [[ ${1:-} == --gcc-only ]]; then
    presets=(release)
    shift
fi

require_packages build-essential cmake ninja-build catch2 libeigen3-dev libxsimd-dev nlohmann-json3-dev \
    libbenchmark-dev libcli11-dev libpcre2-dev libutf8proc-dev python3
if [[ " ${presets[*]} " == *" asan "* ]]; then
    require_packages clang-19 libclang-rt-19-dev
    if ! command -v clang++-19 >/dev/null; then
        echo "clang++-19 is missing: install clang-19 and libclang-rt-19-dev, or run tests/run.sh --gcc-only" >&2
        exit 1
    fi
fi

jobs=$(nproc)
failed=0
for preset in "${presets[@]}"; do
    cmake --preset "${preset}"
    # Keeps going, so that ctest can report on all the rest.
    cmake --build "build/${preset}" -j "${jobs}" -- -k 0 || failed=1
done

# A tree of its own that holds both builds, for one summary.
mkdir -p build/all
: >build/all/CTestTestfile.cmake
for preset in "${presets[@]}"; do
    echo "subdirs(\"${PWD}/build/${preset}\")" >>build/all/CTestTestfile.cmake
done

export UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir build/all -j "${jobs}" --output-on-failure --no-tests=error "$@" || failed=1
exit "${failed}"
