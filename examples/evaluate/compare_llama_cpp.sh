#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The example engine beside llama.cpp, on the same file, tokens, threads and machine:
#
#   examples/evaluate/compare_llama_cpp.sh speed         plain decoding and prompt lookup of both; passes of 1 to 8 rows
#   examples/evaluate/compare_llama_cpp.sh perplexity    of 100 texts, ours beside llama.cpp's
#
# It builds generate and evaluate, fetches the model (98 MB) and has cmake/fetch_llama.sh install llama-cpp-python, which
# compiles llama.cpp for this machine: some five minutes on two cores, once. --inside compares our speculation in llama.cpp
# instead of our engine. --help after the word shows the flags.
# SURELEAP_LLAMA_CPP names another Python that has llama-cpp-python; it is then used as it is.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
source "${root}/cmake/require_packages.sh"

if [[ ${1:-} != speed && ${1:-} != perplexity ]]; then
    sed -n '4,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
fi

require_packages build-essential cmake ninja-build python3 python3-venv libeigen3-dev libcli11-dev nlohmann-json3-dev \
    libpcre2-dev libutf8proc-dev

log="$(mktemp)"
trap 'rm -f "${log}"' EXIT
quietly() {
    [[ -z $1 ]] || echo "$1" >&2
    shift
    if ! "$@" >"${log}" 2>&1; then
        cat "${log}" >&2
        exit 1
    fi
}

given=" $* "
python="${SURELEAP_LLAMA_CPP:-}"
if [[ -z ${python} ]]; then
    env -u SURELEAP_LLAMA_PREFIX "${root}/cmake/fetch_llama.sh" >/dev/null
    python="${root}/build/llama_cpp/bin/python3"
fi

folder="${root}/build/examples/examples"
if [[ ${given} != *" --programs"* ]]; then
    targets=(generate evaluate)
    configure=()
    if [[ ${given} == *" --inside "* ]]; then
        targets=(llama_generate llama_bench)
        configure=(-D "llama_ROOT=$("${python}" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')")
    fi
    quietly "building our programs in ${root}/build/examples" cmake -S "${root}" --preset examples "${configure[@]}"
    quietly "" cmake --build "${root}/build/examples" --target "${targets[@]}" -j "$(nproc)"
fi

arguments=("$@")
[[ ${given} == *" --programs"* ]] || arguments+=(--programs "${folder}")
[[ ${given} == *" --target"* ]] || arguments+=(--target "$("${root}/examples/models/fetch.sh")")
"${python}" "${root}/examples/evaluate/compare_llama_cpp.py" "${arguments[@]}"
