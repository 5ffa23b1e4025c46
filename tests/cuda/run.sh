#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The kernels on a real GPU: builds the programs of tests/cuda/device and, against CUDA itself, the tests that otherwise run
# in the emulator; runs all; runs them again under compute-sanitizer where it is installed.
#
#   tests/cuda/run.sh                    everything
#   tests/cuda/run.sh --no-sanitizer     what can be seen without it
#   tests/cuda/run.sh verify chain       these alone: tests/cuda/verify.test.cpp, tests/cuda/device/chain.cu
#
# Prints one line for each program and tool, and a summary. Ends with 77, which ctest takes for "skipped", where there is no nvcc
# or no GPU. Needs nvcc 13 and Catch2, and fails without. NVCC names another compiler. Where there is a GPU and neither:
# tests/cuda/visit.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

sanitize=1
wanted=()
for argument in "$@"; do
    case ${argument} in
    --no-sanitizer) sanitize=0 ;;
    -*) echo "tests/cuda/run.sh: unknown option ${argument}" >&2 && exit 2 ;;
    *) wanted+=("${argument}") ;;
    esac
done

nvcc="${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}"
if ! command -v "${nvcc}" >/dev/null; then
    echo "skipped: no nvcc; install CUDA 13, or name it in NVCC"
    exit 77
fi
if ! gpu="$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)" || [[ -z ${gpu} ]]; then
    echo "skipped: no GPU answers (nvidia-smi)"
    exit 77
fi
sanitizer="$(command -v compute-sanitizer || echo "$(dirname "$(command -v "${nvcc}")")/compute-sanitizer")"
if [[ ${sanitize} == 1 && ! -x ${sanitizer} ]]; then
    echo "compute-sanitizer is not installed: memory, races and barriers are not checked"
    sanitize=0
fi

build=build/cuda/tests
mkdir -p "${build}"
flags=(-x cu -std=c++20 -O2 -lineinfo -arch=native -Werror all-warnings -Iinclude -Itests
    -DSURELEAP_TEST_QUICK=0 "-DSURELEAP_TESTS_DIR=\"${PWD}/tests\"" "-DSURELEAP_GOLDEN_DEFAULT_DIR=\"${PWD}/tests/golden\"")

# Catch2's own main: part of its library, or compiled here for 2.13, where it is a header.
catch=()
has_header() { echo "#include <$1>" | g++ -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; }
if has_header catch2/catch_test_macros.hpp; then
    catch=(-lCatch2Main -lCatch2)
elif has_header catch2/catch.hpp; then
    printf '#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n' >"${build}/catch_main.cpp"
    g++ -std=c++20 -O1 -c "${build}/catch_main.cpp" -o "${build}/catch_main.o"
    catch=(-Xlinker "${build}/catch_main.o")
else
    echo "tests/cuda/run.sh: Catch2 is not installed, and nearly all tests need it: install catch2 (tests/cuda/visit.sh brings it along)" >&2
    exit 1
fi

name_of() {
    local name
    name="$(basename "$1")"
    echo "${name%%.*}"
}

echo "${gpu}; building in ${PWD}/${build}"
names=()
for source in tests/cuda/device/*.cu tests/cuda/*.test.cpp; do
    name="$(name_of "${source}")"
    [[ ${name} != emulator_* ]] || continue  # the emulator's own
    [[ ${#wanted[@]} -eq 0 || " ${wanted[*]} " == *" ${name} "* ]] || continue
    link=()
    [[ ${source} == *.cu ]] || link=("${catch[@]}")
    if [[ ${name} == nccl ]]; then
        if ! echo "#include <nccl.h>" | "${nvcc}" -x cu -E - >/dev/null 2>&1; then
            echo "NCCL is not installed: nccl is left out"
            continue
        fi
        link=(-lnccl)
    fi
    while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
    rm -f "${build}/${name}"
    "${nvcc}" "${flags[@]}" "${source}" -o "${build}/${name}" "${link[@]}" >"${build}/${name}.build.txt" 2>&1 &
    names+=("${name}")
done
if [[ ${#names[@]} -eq 0 ]]; then
    echo "there is no such test: ${wanted[*]}" >&2
    exit 2
fi
wait

passed=0
failed=()
# report <what> <file with the output> <command>...
report() {
    local what=$1 output=$2 start=${SECONDS} status=0
    shift 2
    timeout 900 "$@" >"${output}" 2>&1 || status=$?
    if [[ ${status} == 0 ]]; then
        passed=$((passed + 1))
        printf 'passed  %-40s %4d s\n' "${what}" $((SECONDS - start))
    else
        failed+=("${what}")
        printf 'FAILED  %-40s %4d s, status %d; the end of %s:\n' "${what}" $((SECONDS - start)) "${status}" "${output}"
        tail -n 30 "${output}"
    fi
}

for name in "${names[@]}"; do
    if [[ ! -x ${build}/${name} ]]; then
        failed+=("${name} (build)")
        printf 'FAILED  %-40s does not compile:\n' "${name}"
        tail -n 30 "${build}/${name}.build.txt"
        continue
    fi
    report "${name}" "${build}/${name}.txt" "${build}/${name}"
    [[ ${sanitize} == 1 ]] || continue
    for tool in memcheck racecheck synccheck; do
        report "${name}, ${tool}" "${build}/${name}.${tool}.txt" \
            "${sanitizer}" --tool "${tool}" --error-exitcode 9 --report-api-errors no --launch-timeout 600 "${build}/${name}"
    done
done

echo "${passed} passed, ${#failed[@]} failed"
for what in "${failed[@]}"; do echo "    ${what}"; done
[[ ${#failed[@]} -eq 0 ]]
