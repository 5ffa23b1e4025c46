#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Makes smollm2-dspark.gguf, the drafter of SmolLM2-135M-Instruct: the exact commands, start to end. Four hours on two cores.
#
#   examples/models/smollm2.sh DATA OUT
#
# DATA is a folder with gsm8k_train.jsonl, humaneval.jsonl, mt_bench.jsonl, spec_bench_question.jsonl,
# taskmaster4_dialogs.jsonl and tiny_shakespeare.txt; of the benchmarks what judges is held back. The rest comes from
# Debian 12: the standard library of Python 3.11 as it is installed, and packages of documentation, which are fetched but
# not installed. Python needs the package gguf. Interrupted, it goes on where it was when it is called again.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
data="$(cd "$1" && pwd)"
mkdir -p "$2"
cd "$2"

target="$("${root}/examples/models/fetch.sh")"
cmake -S "${root}" --preset examples >/dev/null
cmake --build "${root}/build/examples" --target train
train="${root}/build/examples/examples/train/train"

if [[ ! -d packages ]]; then
    mkdir -p fetched
    (cd fetched && apt-get download python3.11-doc sqlite3-doc postgresql-doc-15 python-django-doc rust-doc wordnet-base)
    for package in fetched/*.deb; do dpkg -x "${package}" packages; done
fi
documents=packages/usr/share/doc

if [[ ! -e prompts/judge.jsonl ]]; then
    left_out=('*/test*/*' '*/dist-packages/*' '*/lib2to3/*' '*/idlelib/*' '*/encodings/*' '*-edition/*' '*/release-*'
        '*/releaselog/*' '*/c3ref/*' '*/changes.html' '*/news.html' '*/bookindex.html' '*/print.html')
    python3 "${root}/examples/train/prompts.py" --out prompts --gsm8k "${data}/gsm8k_train.jsonl" \
        --humaneval "${data}/humaneval.jsonl" --mt-bench "${data}/mt_bench.jsonl" \
        --spec-bench "${data}/spec_bench_question.jsonl" --taskmaster "${data}/taskmaster4_dialogs.jsonl" \
        --shakespeare "${data}/tiny_shakespeare.txt" --python-source /usr/lib/python3.11 \
        --wordnet packages/usr/share/wordnet \
        --documentation "${documents}"/python3.11/html/{tutorial,howto,faq,library,using,reference} \
        "${documents}/sqlite3" "${documents}/postgresql-doc-15/html" \
        "${documents}"/python-django-doc/html/{intro,topics,howto,faq,misc} \
        "${documents}"/rust-doc/html/{book,nomicon,reference} --leave-out "${left_out[@]}"
fi
# Long prompts cost time and are not learned from.
for part in train validation; do
    [[ -e prompts/short_${part}.jsonl ]] || python3 - "prompts/${part}.jsonl" >"prompts/short_${part}.jsonl" <<'EOF'
import json, sys
for line in open(sys.argv[1]):
    if sum(len(turn["content"]) for turn in json.loads(line)["messages"]) <= 650:
        sys.stdout.write(line)
EOF
done

# As the model's authors advise to sample, and at temperature 1.
write=("${train}" texts --target "${target}" --features 8,17,26 --at-once 16 --longest 448 --max-new-tokens 224)
advised=(--temperature 0.2 --top-p 0.9 --corpus prompts/short_train.jsonl --out recorded)
draft=("${train}" draft --target "${target}" --recorded recorded --validation unseen --vocabulary vocabulary.safetensors
    --mask-token '<reponame>' --block-size 6 --rank 128 --batch-tokens 4096 --anchors 0.25 --bf16)
if [[ ! -e first.done ]]; then
    "${write[@]}" --temperature 0.2 --top-p 0.9 --corpus prompts/short_validation.jsonl --texts 240 --out unseen
    "${write[@]}" "${advised[@]}" --texts 7600
    [[ -e vocabulary.safetensors ]] ||
        "${train}" vocabulary --recorded recorded --tokens 16384 --out vocabulary.safetensors
    "${draft[@]}" --start-layer 29 --steps 3600 --learning-rate 0.001 --validate-steps 400 --out first
    touch first.done
fi
# Then from there, on two and a half times as many texts.
"${write[@]}" --temperature 1 --seed 1000003 --corpus prompts/short_train.jsonl --texts 3000 --out recorded_warm
"${write[@]}" "${advised[@]}" --texts 18000
more=("${draft[@]}" --recorded recorded_warm --steps 2400 --learning-rate 0.0006)
"${more[@]}" --start-from first --validate-steps 200 --out second
# Schedules verify two or three tokens of a block: the first positions are to be right.
"${more[@]}" --start-from second --decay 2 --seed 2 --validate-steps 400 --out dspark

# Temperatures for the confidences, on prompts that were not trained on.
cmake --build "${root}/build/examples" --target evaluate
"${root}/build/examples/examples/evaluate" calibration --target "${target}" --draft dspark=dspark \
    --prompts prompts/short_validation.jsonl --texts 40 --tokens 200 --rounds 5000 --temperature 0.2 --top-p 0.9 \
    --cooler 1 --store
python3 "${root}/examples/train/to_gguf.py" dspark --out smollm2-dspark.gguf --type Q4_1
