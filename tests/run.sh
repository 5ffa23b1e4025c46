#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The tests, from a clean clone: installs what is missing, configures, builds, runs.
#
#   tests/run.sh               g++, optimised: the library, the engine, what must not compile, the package; minutes
#   tests/run.sh block         what belongs to a header: every test with `block` in its name, or else every unit test that
#                              includes block.hpp
#   tests/run.sh --ci          the same, and the kernels in the emulator; what carves memory once more with clang++-19 and
#                              ASan + UBSan (without the test cases tagged [long]): half an hour of two cores
#   tests/run.sh --all         everything: large examples, benchmarks, fuzzing, soak, both compilers, nearly all once more with
#                              sanitizers: two hours of two cores
#   tests/run.sh --ci --gcc-only, --all --gcc-only    where there is no clang++-19
#   tests/run.sh --compiler clang++    with this compiler in the place of g++; beside --ci and --all too
#
# Both builds are tested in one run of ctest, whose summary comes last and counts everything: tests of the second build are named
# asan.*, and with --all a build that fails is a failed test as well. What follows `--` goes to ctest: tests/run.sh -- -L unit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source cmake/require_packages.sh

presets=(test)
all=no
gcc_only=no
compiler=()
name=
while [[ $# -gt 0 ]]; do
    case $1 in
        --ci) presets=(ci asan-ci) ;;
        --all)
            presets=(release asan)
            all=yes
            ;;
        --gcc-only) gcc_only=yes ;;
        --compiler)
            if ! command -v "${2:-}" >/dev/null; then
                echo "tests/run.sh: --compiler is '${2:-}', expected a C++ compiler" >&2
                exit 2
            fi
            compiler=(-D "CMAKE_CXX_COMPILER=$2")
            shift
            ;;
        --)
            shift
            break
            ;;
        -*)
            echo "tests/run.sh: $1 is no flag of it; what ctest is to see stands behind --" >&2
            exit 2
            ;;
        *) name=$1 ;;
    esac
    shift
done
[[ ${gcc_only} == no ]] || presets=("${presets[0]}")

require_packages build-essential cmake ninja-build catch2 libeigen3-dev libxsimd-dev nlohmann-json3-dev \
    libbenchmark-dev libcli11-dev libpcre2-dev libutf8proc-dev pkgconf python3 python3-venv clang-format-19
require_packages libopenmpi-dev openmpi-bin || echo "no MPI could be installed: ranks.* are left out"
[[ ${all} == no ]] || require_packages clang-tidy-19 python3-dev
[[ ${all} == no ]] || require_packages chromium chromium-driver || echo "no browser could be installed: docs.site is skipped"
if [[ ${presets[*]} == *asan* ]]; then
    require_packages clang-19 libclang-rt-19-dev
    if ! command -v clang++-19 >/dev/null; then
        echo "clang++-19 is missing: install clang-19 and libclang-rt-19-dev, or add --gcc-only" >&2
        exit 1
    fi
fi

# What needs a real model is skipped where none can be fetched.
if [[ ${all} == yes && -z ${SURELEAP_SMOLLM2_GGUF:-} ]]; then
    SURELEAP_SMOLLM2_GGUF="$(examples/models/fetch.sh 2>/dev/null)" ||
        echo "no real model could be fetched: tests of it are skipped"
    export SURELEAP_SMOLLM2_GGUF
fi
if [[ ${all} == yes && -z ${SURELEAP_CODER_GGUF:-} ]]; then
    SURELEAP_CODER_GGUF="$(examples/models/fetch.sh coder 2>/dev/null)" ||
        echo "no model of code could be fetched: tests of it are skipped"
    export SURELEAP_CODER_GGUF
fi

# NumPy and a grammar engine, for the tests c.python and c.grammar, and a disassembler for nvcc.code_size. They come from
# PyPI: the python3 that is found first need not be the one that the system's packages are for.
if [[ ${all} == yes && ! -x build/python/bin/python3 ]]; then
    if ! { python3 -m venv build/python && build/python/bin/pip -q install numpy llguidance nvidia-cuda-nvdisasm; }; then
        rm -rf build/python
        echo "nothing could be installed from PyPI: c.python, c.grammar and nvcc.code_size are skipped where the system lacks it"
    fi
fi

# What needs llama.cpp is left out where it cannot be fetched and built.
if [[ (${all} == yes || ${name} == *llama*) && -z ${llama_ROOT:-} ]]; then
    if llama_ROOT="$(cmake/fetch_llama.sh --for-tests)"; then
        export llama_ROOT
    else
        unset llama_ROOT
        echo "no llama.cpp could be made: tests of it are left out"
    fi
fi

jobs=$(nproc)
export UBSAN_OPTIONS=print_stacktrace=1

if [[ -n ${name} ]]; then
    cmake --preset test "${compiler[@]}" >/dev/null
    mapfile -t known < <(ninja -C build/test -t targets all |
        sed -nE 's/^((unit|property|golden|static|engine|llama|c)\.[a-z0-9_.]*): phony.*/\1/p' | sort -u)
    mapfile -t targets < <(printf '%s\n' "${known[@]}" | grep -F -- "${name}")
    if [[ ${#targets[@]} -eq 0 ]]; then # a header whose tests are named after what it is part of
        mapfile -t targets < <(grep -lrE "#include <sureleap/([a-z0-9_]+/)*${name##*/}\.hpp>" tests/unit |
            sed -E 's|^tests/unit/(.*)\.test\.cpp$|unit/\1|; s|/|.|g' | grep -Fx -f <(printf '%s\n' "${known[@]}"))
    fi
    if [[ ${#targets[@]} -eq 0 ]]; then
        echo "tests/run.sh: no test has '${name}' in its name, and no unit test includes ${name##*/}.hpp;" \
            "ctest --test-dir build/test -N lists them" >&2
        exit 2
    fi
    cmake --build build/test -j "${jobs}" --target "${targets[@]}"
    exec ctest --test-dir build/test -j "${jobs}" --output-on-failure --no-tests=error \
        -R "^($(IFS='|' && echo "${targets[*]//./\\.}"))([.](avx512|avx2|neon|scalar))?$" "$@"
fi

failed=0
for preset in "${presets[@]}"; do
    if [[ ${preset} == asan* ]]; then cmake --preset "${preset}"; else cmake --preset "${preset}" "${compiler[@]}"; fi
    # Keeps going, so that ctest can report on all the rest.
    cmake --build --preset "${preset}" -j "${jobs}" -- -k 0 || failed=1
done

# A tree of its own that holds all builds, for one summary.
mkdir -p build/all
: >build/all/CTestTestfile.cmake
for preset in "${presets[@]}"; do
    echo "subdirs(\"${PWD}/build/${preset}\")" >>build/all/CTestTestfile.cmake
done
[[ ${all} == yes ]] || set -- -LE '^(example|build)$' "$@"
ctest --test-dir build/all -j "${jobs}" --output-on-failure --no-tests=error "$@" || failed=1
exit "${failed}"
