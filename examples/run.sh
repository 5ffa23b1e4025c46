#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Speculative decoding with the models in examples/models: installs what is missing, builds the examples, answers a
# question with a drafter and without.
#
#   examples/run.sh [flags of generate]         examples/run.sh --prompt "def is_prime(n):" --temperature 0.7
#   examples/run.sh real [flags of generate]    a real language model, which it fetches once (98 MB), with prompt lookup
#   examples/run.sh serve [flags of serve]      simulates a server under load: schedules side by side
#
# --help after any of them shows the flags.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "${root}/cmake/require_packages.sh"

program=generate
real=
if [[ ${1:-} == serve ]]; then
    program=$1
    shift
elif [[ ${1:-} == real ]]; then
    shift
    if ! real="$("${root}/examples/models/fetch.sh")"; then
        echo "the model could not be fetched: examples/run.sh without \`real\` runs the small one in the repository" >&2
        exit 1
    fi
fi

require_packages build-essential cmake ninja-build libeigen3-dev libcli11-dev nlohmann-json3-dev libpcre2-dev \
    libutf8proc-dev

# Arguments may name files: the example runs where the user is. Building shows how far it is, and its output if it fails.
log="$(mktemp)"
trap 'rm -f "${log}"' EXIT
echo "building ${program} in ${root}/build/examples" >&2
end=$'\n'
[[ ! -t 2 ]] || end=$'\r'
if ! (cd "${root}" && cmake --preset examples && cmake --build build/examples --target "${program}" -j "$(nproc)") 2>&1 |
    tee "${log}" | while read -r line; do
        [[ ! ${line} =~ ^(\[[0-9]+/[0-9]+\]) ]] || printf '%s %s' "${BASH_REMATCH[1]}" "${end}" >&2
    done; then
    cat "${log}" >&2
    exit 1
fi
binary="${root}/build/examples/examples/${program}"
if [[ ! -x ${binary} ]]; then
    echo "${program} was not built: it needs Eigen >= 3.4, CLI11, nlohmann json, PCRE2 and utf8proc" >&2
    exit 1
fi

arguments=("$@")
# What the user says comes later, and counts.
given=" $* "
if [[ -n ${real} ]]; then
    arguments+=(--target "${real}" --chat)
    [[ ${given} == *" --draft "* || ${given} == *" --draft="* ]] || arguments+=(--draft lookup --block-size 4)
    [[ ${given} =~ \ --(prompt|prompt-file|tokens)[=\ ] ]] || arguments+=(--prompt "Write a Python function that returns the n-th Fibonacci number, and explain it.")
    # As the model's authors advise; and the rule whose output can be compared token by token.
    [[ ${given} =~ \ --(temperature|top-p)[=\ ] ]] || arguments+=(--temperature 0.2 --top-p 0.9)
    [[ ${given} =~ \ --(rule|seed)[=\ ] ]] || arguments+=(--rule coupled --seed 13)
elif [[ ${program} == generate ]]; then
    [[ ${given} == *" --target "* || ${given} == *" --target="* ]] || arguments+=(--target "${root}/examples/models/target")
    [[ ${given} == *" --draft "* || ${given} == *" --draft="* ]] || arguments+=(--draft "${root}/examples/models/dspark")
    [[ ${given} =~ \ --(prompt|prompt-file|tokens)[=\ ] ]] || arguments+=(--prompt "Question: Tom has 5 boxes with 12 apples each. He sells 18 apples. How many apples are left?
Answer:")
    # The rule whose output can be compared token by token.
    [[ ${given} =~ \ --(rule|seed)[=\ ] ]] || arguments+=(--rule coupled --seed 13)
fi
"${binary}" "${arguments[@]}"
