#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The benchmarks of the kernels, on the GPU of this machine: builds them, runs them, prints one table.
#
#   bench/cuda/run.sh                   all of them, five repetitions
#   bench/cuda/run.sh --quick           one short run of the shapes that have a bar
#   bench/cuda/run.sh verify            this program alone: bench/cuda/verify.cu
#   bench/cuda/run.sh --filter 'R:128'  these cases alone
#
# Needs nvcc 13 with cuBLAS, a GPU of compute capability 8.0 or more and Google Benchmark (libbenchmark-dev, or CPATH and LIBRARY_PATH that
# lead to it). What was measured goes to build/cuda/bench/out/all.json; bars.json says what is asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source cmake/require_packages.sh

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
if ! echo '#include <benchmark/benchmark.h>' | g++ -x c++ -fsyntax-only - 2>/dev/null; then
    require_packages libbenchmark-dev
fi

build=build/cuda
flags=(-std=c++20 -O3 -arch=native -Iinclude -Ibench/cuda)
mkdir -p "${build}/bench"
"${nvcc}" --version | tail -n 1 >"${build}/compiler.txt"
echo "${flags[*]}" >>"${build}/compiler.txt"
echo "building the benchmarks in ${PWD}/${build}/bench" >&2
failed=0
pids=()
for source in bench/cuda/*.cu; do
    "${nvcc}" "${flags[@]}" "${source}" -o "${build}/bench/bench.$(basename "${source}" .cu)" \
        -lbenchmark -lbenchmark_main -lcublas -lpthread &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "${pid}" || failed=1; done
[[ ${failed} == 0 ]] || exit 1

python3 bench/suite.py --build "${build}" --bars bench/cuda/bars.json --out "${build}/bench/out" "$@"
