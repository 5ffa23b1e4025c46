#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# A visit to a machine with a GPU, which may be short and have nothing but a driver and Python: visit.py says what and how.
#
#   tests/cuda/visit.sh build                   here, without a GPU: packs what travels into build/visit/visit.tar.xz
#   tests/cuda/visit.sh run [STAGE...]          there, 9.5 minutes: correctness, times, profiles
#   tests/cuda/visit.sh sanitize [CASE_REGEX]   there, 3 minutes: compute-sanitizer, then benchmarks that match
exec python3 "$(dirname "${BASH_SOURCE[0]}")/visit.py" "$@"
