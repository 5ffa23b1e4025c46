#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Speculative decoding on a real language model: fetches the model once (98 MB), installs what is missing, builds the
# program, answers a question with a drafter and without.
#
#   examples/run.sh [flags of generate]          examples/run.sh --prompt "Why is the sky blue?" --temperature 0.7
#   examples/run.sh --chat                       a conversation, answered line by line
#   examples/run.sh coder [FILE "WHAT TO CHANGE"] [flags of generate]
#                                                Qwen2.5-Coder-0.5B (491 MB, fetched once) writes a file of yours, or one
#                                                of ours, with the change; drafts are looked up in the file
#   examples/run.sh small [flags of generate]    the small model in the repository, without a download
#   examples/run.sh ranks N [flags of generate]  the same by N processes of mpirun, each with a share of the model
#   examples/run.sh serve [flags of serve]       simulates a server under load: schedules side by side
#   examples/run.sh llama [-np N] [--model FILE.gguf] [--draft dspark|lookup|FILE.gguf] [flags of generate]
#                                                the same with llama.cpp as the engine, N texts at once; builds libllama once
#
# --help after any of them shows the flags. Where the model cannot be fetched, the small one takes its place.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "${root}/cmake/require_packages.sh"

program=generate
small=
edited=
drafter="${root}/examples/models/smollm2-dspark.gguf"
configure=()
if [[ ${1:-} == serve ]]; then
    program=$1
    shift
elif [[ ${1:-} == llama ]]; then
    program=$1
    shift
    # The words that llama.cpp's own programs use, and a name for the drafter that is shipped.
    words=()
    for word in "$@"; do
        case ${word} in
            -np) word=--copies ;;
            --model | -m) word=--target ;;
        esac
        words+=("${word}")
        if [[ ${words[*]: -2} == "--draft dspark" ]]; then
            words[-1]="${drafter}"
            words+=(--join-lookup)
        fi
    done
    set -- "${words[@]}"
elif [[ ${1:-} == small ]]; then
    small=yes
    shift
elif [[ ${1:-} == coder ]]; then
    edited="${root}/examples/models/ledger.py"
    change="Rename the class Ledger to Accounts."
    shift
    if [[ $# -gt 0 && $1 != -* ]]; then
        [[ -r $1 && ${2:--} != -* ]] ||
            { echo "coder has '$1', expected a file, and after it in one argument what to change" >&2 && exit 2; }
        edited=$1
        change=$2
        shift 2
    fi
fi
launcher=()
configure+=(-D SURELEAP_WITH_MPI=OFF)
if [[ ${1:-} == ranks ]]; then
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "ranks is '${2:-}', expected a number" >&2 && exit 2; }
    launcher=(mpirun -n "$2")
    configure=(-D SURELEAP_WITH_MPI=ON)
    # More ranks than cores, and in containers as root.
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    shift 2
fi

# What the user says counts. given <name>...: whether he gave one of these flags.
flags=("$@")
given() {
    local flag name
    for flag in "${flags[@]}"; do
        for name in "$@"; do
            [[ ${flag} != "--${name}" && ${flag} != "--${name}="* ]] || return 0
        done
    done
    return 1
}

target="${root}/examples/models/target"
if [[ ${program} != serve && -z ${small} ]] && ! given target help; then
    real=
    [[ -z ${edited} ]] ||
        real="$(otherwise="SmolLM2 takes its place" "${root}/examples/models/fetch.sh" coder)" || true
    export otherwise="the small model in the repository takes its place"
    if [[ -n ${real} ]] || real="$("${root}/examples/models/fetch.sh")"; then
        target="${real}"
    else
        small=yes
    fi
fi
# The change goes behind the file. All of it may be written, in tokens of two characters at least.
if [[ -n ${edited} && -z ${small} ]] && ! given help; then
    given draft || set -- "$@" --draft lookup
    given block-size || set -- "$@" --block-size 15
    given prompt prompt-file tokens || set -- "$@" --chat --prompt "$(printf '```%s\n%s\n```\n\n%s %s' "${edited##*.}" \
        "$(cat "${edited}")" "${change}" "Answer with the whole file.")"
    given max-new-tokens || set -- "$@" --max-new-tokens $(($(wc -c <"${edited}") / 2))
    given temperature || set -- "$@" --temperature 0
    flags=("$@")
fi

require_packages build-essential cmake ninja-build libcli11-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev
[[ -z ${launcher[*]} ]] || require_packages libopenmpi-dev openmpi-bin
built=${program}
if [[ ${program} == llama ]]; then
    if [[ -n ${small} ]]; then
        echo "llama.cpp reads GGUF files, which the small models are not; --model FILE.gguf names one" >&2
        exit 1
    fi
    require_packages python3-venv
    prefix="$("${root}/cmake/fetch_llama.sh")"
    configure+=(-D "llama_ROOT=${prefix}")
    built=llama_generate
fi

# Arguments may name files: the example runs where the user is. Building shows how far it is, and its output if it fails.
log="$(mktemp)"
trap 'rm -f "${log}"' EXIT
echo "building ${program} in ${root}/build/examples" >&2
end=$'\n'
[[ ! -t 2 ]] || end=$'\r'
if ! (cd "${root}" && cmake --preset examples "${configure[@]}" &&
    cmake --build build/examples --target "${built}" -j "$(nproc)") 2>&1 |
    tee "${log}" | while read -r line; do
        [[ ! ${line} =~ ^(\[[0-9]+/[0-9]+\]) ]] || printf '%s %s' "${BASH_REMATCH[1]}" "${end}" >&2
    done; then
    cat "${log}" >&2
    exit 1
fi
binary="${root}/build/examples/examples/${program}"
if [[ ! -x ${binary} ]]; then
    echo "${program} was not built: it needs CLI11, nlohmann json, PCRE2 and utf8proc" >&2
    exit 1
fi

arguments=("$@")
if [[ ${program} == generate ]] && given target; then
    : # whoever names a model says the rest as well
elif [[ ${program} != serve ]] && ! given help; then
    given target || arguments+=(--target "${target}")
    if [[ -n ${small} ]]; then
        given draft || arguments+=(--draft "${root}/examples/models/dspark")
        given prompt prompt-file tokens chat || arguments+=(--prompt "Question: Tom has 5 boxes with 12 apples each. He sells 18 apples. How many apples are left?
Answer:")
    else
        if given draft; then
            :
        elif [[ -e ${drafter} ]] && ! given target; then
            arguments+=(--draft "${drafter}" --join-lookup)
        else
            arguments+=(--draft lookup)
            given block-size || arguments+=(--block-size 4)
        fi
        given prompt prompt-file tokens chat ||
            arguments+=(--prompt "Write a Python function that returns the n-th Fibonacci number, and explain it.")
        given tokens chat || arguments+=(--chat)
        # As the model's authors advise.
        given temperature top-p || arguments+=(--temperature 0.2 --top-p 0.9)
    fi
    # The rule whose output can be compared token by token.
    given rule seed || arguments+=(--rule coupled --seed 13)
fi
"${launcher[@]}" "${binary}" "${arguments[@]}"
