#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmarks of the kernels, on the GPU of this machine: builds them into one program, runs it, prints one table.
#
#   bench/cuda/run.sh                   all cases
#   bench/cuda/run.sh --filter 'R:128'  those whose name has a match
#   bench/cuda/run.sh verify chain      bench/cuda/verify.cu and chain.cu alone
#
# Needs nvcc 13 and a GPU of compute capability 8.0 or more; cuBLAS for the floor of products. What was measured goes to
# build/cuda/bench/cases.jsonl as it comes; bars.json says what is asked. Where there is a GPU and no nvcc:
# tests/cuda/visit.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

wanted=()
filter=()
while (($# > 0)); do
    case $1 in
    --filter) filter=(--filter "${2:?bench/cuda/run.sh: --filter needs an expression}") && shift 2 ;;
    -*) echo "bench/cuda/run.sh: unknown option $1" >&2 && exit 2 ;;
    *) wanted+=("$1") && shift ;;
    esac
done
[[ ${#wanted[@]} -gt 0 ]] || for source in bench/cuda/*.cu; do wanted+=("$(basename "${source}" .cu)"); done

nvcc="$(command -v nvcc || true)"
[[ -n ${nvcc} ]] || nvcc=/usr/local/cuda/bin/nvcc
if [[ ! -x ${nvcc} ]]; then
    echo "bench/cuda/run.sh: no nvcc; install CUDA 13 or put its bin folder on the PATH" >&2
    exit 77
fi
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "bench/cuda/run.sh: no GPU answers (nvidia-smi -L)" >&2
    exit 77
fi

build=build/cuda/bench
mkdir -p "${build}"
flags=(-std=c++20 -O3 -arch=native -Iinclude)
"${nvcc}" --version | tail -n 1 >"${build}/compiler.txt"
echo "${flags[*]}" >>"${build}/compiler.txt"
echo "building the benchmarks in ${PWD}/${build}" >&2
objects=("${build}/cases.o")
"${nvcc}" "${flags[@]}" -c bench/cuda/cases.cpp -o "${build}/cases.o" &
pids=($!)
for name in "${wanted[@]}"; do
    "${nvcc}" "${flags[@]}" -c "bench/cuda/${name}.cu" -o "${build}/${name}.o" &
    pids+=($!)
    objects+=("${build}/${name}.o")
done
for pid in "${pids[@]}"; do wait "${pid}"; done
"${nvcc}" -arch=native "${objects[@]}" -o "${build}/bench" -ldl

"${build}/bench" ${filter[@]+"${filter[@]}"} | grep --line-buffered -v '"begins"' | tee "${build}/cases.jsonl" >&2
python3 bench/table.py "${build}/cases.jsonl" --rules bench/cuda/bars.json
