# SPDX-License-Identifier: MIT
#
# For our shell scripts: require_packages <package>... installs Debian packages that are missing, where that is
# possible, and otherwise says what to install. Sourced, not run.

require_packages() {
    # Elsewhere than on Debian and Ubuntu the packages have other names: CMake will say what it does not find.
    command -v dpkg-query >/dev/null || return 0

    local package
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "${package}" 2>/dev/null | grep -q 'ok installed' || missing+=("${package}")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0

    local as_root=()
    if [[ ${EUID} -ne 0 ]]; then
        if ! command -v sudo >/dev/null; then
            echo "missing packages: ${missing[*]}; install them as root: apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "installing ${missing[*]}"
    if ! "${as_root[@]}" apt-get update -qq ||
        ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null; then
        echo "could not install ${missing[*]}" >&2
        return 1
    fi
}
