#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The library on AArch64, from another machine: every header compiles with a cross compiler, and the vector code runs under
# an emulator of the processor, against the same tests as everywhere. So do the example engine's packed weights.
#
#   tests/aarch64.sh <file that includes all headers> <folder for what is built>
#
# On Debian: g++-12-aarch64-linux-gnu (or g++-aarch64-linux-gnu) and qemu-user-static. Without a cross compiler it ends
# with 77, which ctest takes for "skipped"; without an emulator, or with a Catch2 that is more than a header, it compiles
# only. No speed can be learned from this.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
everything=$1
work=$2

first_of() {
    local name
    for name in "$@"; do
        if command -v "${name}"; then return 0; fi
    done
    return 1
}
if ! compiler="$(first_of aarch64-linux-gnu-g++{,-16,-15,-14,-13,-12})"; then
    echo "skipped: no g++ for aarch64-linux-gnu"
    exit 77
fi

# Headers of libraries do not depend on the processor, those of the system do: only the former may be seen.
mkdir -p "${work}/include"
for library in /usr/include/{catch2,nlohmann,xsimd,xtl} /usr/include/eigen3/Eigen; do
    [[ ! -d ${library} ]] || ln -sfn "${library}" "${work}/include/$(basename "${library}")"
done
flags=(-std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror
    -I "${root}/include" -I "${root}/tests" -isystem "${work}/include")

echo "${compiler}: every header"
"${compiler}" "${flags[@]}" -O1 -c "${everything}" -o "${work}/everything.o"

if ! emulator="$(first_of qemu-aarch64-static qemu-aarch64)" || [[ ! -f ${work}/include/catch2/catch.hpp ]]; then
    echo "compiled; not run: no qemu-aarch64, or Catch2 is not of one header"
    exit 0
fi
if [[ ! -f ${work}/main.o ]]; then
    printf '#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n' >"${work}/main.cpp"
    "${compiler}" -std=c++20 -isystem "${work}/include" -c "${work}/main.cpp" -o "${work}/main.o"
fi
# Every table of vector code, and a short test case that says which ones it ran: that neon was among them.
for test in row_kernels:"row kernels: the mode*" head_kernels:"head kernels: int8*"; do
    name="${test%%:*}"
    "${compiler}" "${flags[@]}" -O1 -static "${root}/tests/unit/detail/${name}.test.cpp" "${work}/main.o" -o "${work}/${name}"
    echo "${emulator}: tests/unit/detail/${name}.test.cpp"
    "${emulator}" "${work}/${name}"
    "${emulator}" "${work}/${name}" -s "${test#*:}" | grep 'neon' >/dev/null
done

# The engine's products with packed weights, whose bits must not depend on the batch on any processor.
kernels=(-std=c++20 -O3 -ffp-contract=fast -I "${root}/include" -I "${root}/examples")
objects=()
for source in kernels_portable kernels_quantised_portable kernels_quantised_neon; do
    march=()
    [[ ${source} != kernels_quantised_neon ]] || march=(-march=armv8.2-a+dotprod)
    "${compiler}" "${kernels[@]}" "${march[@]}" -c "${root}/examples/engine/${source}.cpp" -o "${work}/${source}.o"
    objects+=("${work}/${source}.o")
done
"${compiler}" "${flags[@]}" -I "${root}/examples" -O1 -static "${root}/tests/engine/quantised.test.cpp" \
    "${root}"/examples/engine/{kernels,quantised,huge_pages,thread_pool}.cpp "${objects[@]}" "${work}/main.o" \
    -o "${work}/quantised"
echo "${emulator}: tests/engine/quantised.test.cpp"
"${emulator}" "${work}/quantised"
