#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Makes the models of this folder: the exact commands, start to end. An hour and a half on two cores.
#
#   examples/models/make.sh DATA OUT
#
# DATA is a folder with gsm8k_train.jsonl, taskmaster4_dialogs.jsonl and tiny_shakespeare.txt (README.md says what they
# are). The rest comes from Debian 12: the standard library of Python 3.11 as it is installed, and two packages of
# documentation, which are fetched but not installed. Interrupted, it goes on where it was when it is called again.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
data="$(cd "$1" && pwd)"
mkdir -p "$2"
cd "$2"

cmake -S "${root}" --preset examples >/dev/null
cmake --build "${root}/build/examples" --target train
train="${root}/build/examples/examples/train/train"

if [[ ! -d packages ]]; then
    mkdir -p fetched
    (cd fetched && apt-get download python3.11-doc sqlite3-doc)
    for package in fetched/*.deb; do dpkg -x "${package}" packages; done
fi
documents=packages/usr/share/doc

if [[ ! -e corpus/train.jsonl ]]; then
    left_out=('*/test/*' '*/tests/*' '*/encodings/*' '*/pydoc_data/*' '*/dist-packages/*' '*/idlelib/*' '*/tkinter/*'
        '*/lib2to3/*' '*/config-*' '*_sysconfigdata*' '*/c3ref/*' '*/releaselog/*' '*/session/*' '*/search.d/*'
        '*/requirements.html' '*/changes.html' '*/chronology.html' '*crossref.html' '*/sqlite3/syntax/*'
        '*keyword_index.html' '*/sitemap.html' '*/news.html' '*/oldnews.html' '*/syntaxdiagrams.html' '*/capi3ref.html'
        '*/opcode.html' '*/consortium_agreement*' '*/download.html' '*/shortnames.html' '*/doclist.html' '*/cves.html')
    python3 "${root}/examples/train/corpus.py" --out corpus --gsm8k "${data}/gsm8k_train.jsonl" \
        --taskmaster "${data}/taskmaster4_dialogs.jsonl" --shakespeare "${data}/tiny_shakespeare.txt" \
        --python-source /usr/lib/python3.11 \
        --documentation "${documents}"/python3.11/html/{tutorial,howto,faq} "${documents}/sqlite3" \
        --leave-out "${left_out[@]}"
fi
[[ -e corpus/tokenizer.json ]] || "${train}" tokenizer --corpus corpus/train.jsonl --domain-bytes 3500000 --out corpus/tokenizer.json

[[ -e target/model.safetensors ]] ||
    "${train}" target --corpus corpus/train.jsonl --validation corpus/test.jsonl --tokenizer corpus/tokenizer.json \
        --repeat chat=3 --steps 2800 --batch-tokens 4096 --learning-rate 0.0025 --warm-up 200 --out target
[[ -e own.safetensors ]] ||
    "${train}" texts --target target --corpus corpus/train.jsonl --repeat chat=3 --texts 14000 --out own.safetensors
[[ -e dspark/model.safetensors ]] ||
    "${train}" draft --target target --data own.safetensors --steps 6000 --batch-tokens 2048 --anchors 0.2 \
        --learning-rate 0.003 --warm-up 200 --out dspark
