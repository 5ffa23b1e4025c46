#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What drafts from the file itself are worth where a model writes it again with a change: tokens a second of 20 edits,
# plain, with lookup, and with lookup that learns how sure it is.
#
#   examples/evaluate/edits.sh [flags of evaluate]     such as --tokens 400 (of an answer), --texts 2 (of a kind)
#
# edits.jsonl has the edits, of files of this repository: names that change, parameters that come, comments that are
# translated. The model is Qwen2.5-Coder-0.5B-Instruct (examples/models/fetch.sh), or SmolLM2 where it cannot be fetched.
# Whether it does what it is told is not judged: lookup gives the tokens of plain decoding, which evaluate checks.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
source "${root}/cmake/require_packages.sh"
require_packages build-essential cmake ninja-build python3 libcli11-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev

target="$(otherwise="SmolLM2 takes its place" "${root}/examples/models/fetch.sh" coder)" ||
    target="$("${root}/examples/models/fetch.sh")"

work="$(mktemp -d)"
trap 'rm -rf "${work}"' EXIT
python3 - "${root}" >"${work}/prompts.jsonl" <<'EOF'
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
for line in open(root / "examples/evaluate/edits.jsonl"):
    edit = json.loads(line)
    text = (root / edit["file"]).read_text()
    language = edit["file"].rsplit(".", 1)[1]
    content = f"```{language}\n{text}```\n\n{edit['change']} Answer with the whole file."
    print(json.dumps({"domain": edit["domain"], "messages": [{"role": "user", "content": content}]}))
EOF

echo "building evaluate in ${root}/build/examples" >&2
if ! (cmake -S "${root}" --preset examples &&
    cmake --build "${root}/build/examples" --target evaluate -j "$(nproc)") >"${work}/log" 2>&1; then
    cat "${work}/log" >&2
    exit 1
fi
"${root}/build/examples/examples/evaluate" speed --target "${target}" --draft lookup=lookup --draft found=lookup+none \
    --prompts "${work}/prompts.jsonl" --temperature 0 --repeats 1 "$@"
