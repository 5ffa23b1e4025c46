#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Provides libllama once, and prints the prefix of its CMake package:
#
#   cmake/fetch_llama.sh                as `pip install llama-cpp-python` builds it for this machine, with the Python package
#   cmake/fetch_llama.sh --for-tests    the same sources as tests want them, in a fraction of the time
#   cmake -D llama_ROOT="$(cmake/fetch_llama.sh)" ...
#
# llama.cpp 0.5.0 (MIT) comes as the sources that the PyPI package llama-cpp-python carries. They count only if their SHA-256 is
# the expected one. All lies in build/llama_cpp. What is there is taken, with --for-tests either build, and SURELEAP_LLAMA_PREFIX
# names a prefix to take instead. Where it cannot be had, one line on stderr says why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=llama-cpp-python
version=0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
folder="${PWD}/build/llama_cpp"
for_tests="${folder}/for_tests"

fail() {
    echo "fetch_llama.sh: $1" >&2
    exit 1
}

case ${1:-} in
    "") speed=full ;;
    --for-tests) speed=tests ;;
    *) fail "$1 is no flag of it, expected --for-tests or none" ;;
esac

# ---- what is there ------------------------------------------------------------------------------------------------

package=lib/cmake/llama/llama-config.cmake
if [[ -n ${SURELEAP_LLAMA_PREFIX:-} ]]; then
    [[ -e ${SURELEAP_LLAMA_PREFIX}/${package} ]] ||
        fail "there is no ${package} in SURELEAP_LLAMA_PREFIX, ${SURELEAP_LLAMA_PREFIX}"
    echo "${SURELEAP_LLAMA_PREFIX}"
    exit
fi
for prefix in "${folder}"/lib/python3*/site-packages "${for_tests}"; do
    [[ ${prefix} != "${for_tests}" || ${speed} == tests ]] || continue
    if [[ -e ${prefix}/${package} ]]; then
        echo "${prefix}"
        exit
    fi
done

# ---- sources ------------------------------------------------------------------------------------------------------

mkdir -p "${folder}"
work="$(mktemp -d "${folder}/work.XXXXXX")"
trap 'rm -rf "${work}"' EXIT

# The last thing that went wrong, in a line.
reason() {
    local line
    line="$(sed -nE "s/.*\[Errno [-0-9]+\] ([^'\"]*)['\"].*/\1/p" "${work}/log" | tail -n 1)"
    [[ -n ${line} ]] || line="$(sed -nE 's/^ *(CMake Error|ERROR:|FAILED:|ninja: error:) *//p' "${work}/log" | tail -n 1)"
    echo "${line:-$(tail -n 1 "${work}/log")}"
}

# Shows how far a build is: ninja counts.
counting() {
    local line end=$'\n'
    [[ ! -t 2 ]] || end=$'\r'
    tee -a "${work}/log" | while read -r line; do
        [[ ! ${line} =~ (\[[0-9]+/[0-9]+\]) ]] || printf '%s %s' "${BASH_REMATCH[1]}" "${end}" >&2
    done
}

python="${folder}/bin/python3"
if ! "${python}" -m pip --version >/dev/null 2>&1; then
    python3 -m venv "${folder}" >"${work}/log" 2>&1 ||
        fail "python3 makes no virtual environment (Debian: python3-venv): $(reason)"
fi
sources="${folder}/${name//-/_}-${version}.tar.gz"
if [[ ! -e ${sources} ]]; then
    # The progress bar is on stdout, so a terminal sees it.
    "${python}" -m pip --disable-pip-version-check download --retries 2 --no-deps --no-binary :all: --dest "${work}" \
        "${name}==${version}" >&2 2>"${work}/log" ||
        fail "${name} ${version} could not be fetched from the package index ($(reason))"
    mv "${work}/${sources##*/}" "${sources}"
fi
found="$(sha256sum "${sources}" | cut -d' ' -f1)"
[[ ${found} == "${sum}" ]] || fail "${sources} has the SHA-256 ${found}, expected ${sum}: remove it"

# ---- the build ----------------------------------------------------------------------------------------------------

jobs="$(nproc)"
if [[ ${speed} == full ]]; then
    echo "building ${name} ${version}, some minutes" >&2
    CMAKE_BUILD_PARALLEL_LEVEL="${jobs}" CMAKE_GENERATOR=Ninja \
        "${python}" -m pip --disable-pip-version-check install --verbose "${sources}" 2>&1 | counting ||
        fail "${name} ${version} could not be built ($(reason))"
    "${python}" -c 'import sysconfig; print(sysconfig.get_path("platlib"))'
    exit
fi

# Libraries alone, and little optimised. Of ggml the plain products, with which a row of logits depends neither on the batch that
# it is in (tests/llama/tiny_models.test.cpp) nor, on x86-64, on the machine.
echo "building libllama of ${name} ${version} for tests, a minute or two" >&2
tar -xzf "${sources}" -C "${work}" --strip-components 3 --wildcards \
    '*/vendor/llama.cpp/'{CMakeLists.txt,LICENSE,cmake,ggml,include,src,vendor}
{
    cmake -S "${work}" -B "${work}/build" -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_INSTALL_PREFIX="${work}/installed" \
        -D CMAKE_INSTALL_RPATH='$ORIGIN' \
        -D CMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG" -D CMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" \
        -D LLAMA_BUILD_COMMON=OFF -D LLAMA_BUILD_TESTS=OFF -D LLAMA_BUILD_TOOLS=OFF -D LLAMA_BUILD_EXAMPLES=OFF \
        -D LLAMA_BUILD_APP=OFF -D GGML_NATIVE=OFF -D GGML_OPENMP=OFF -D GGML_LLAMAFILE=OFF -D GGML_CPU_REPACK=OFF &&
        cmake --build "${work}/build" -j "${jobs}" &&
        cmake --install "${work}/build"
} 2>&1 | counting || fail "libllama of ${name} ${version} could not be built ($(reason))"
mkdir "${work}/installed/src"
mv "${work}/src/llama-ext.h" "${work}/installed/src/"  # what sureleap/ext/llama/layer_inputs.hpp includes
mv "${work}/installed" "${for_tests}"
echo "${for_tests}"
