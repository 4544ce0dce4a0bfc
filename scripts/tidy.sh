#!/usr/bin/env bash
# clang-tidy over every source of src/ and tools/ as it stands alone: no precompiled header, no unity file. Warnings of the
# compiler are GCC's business (-w).
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release -B build/tidy -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DTESSERA_TESTS=OFF -DTESSERA_EXAMPLES=OFF >/dev/null
git ls-files 'src/*.cpp' 'tools/*.cpp' | xargs -P "$(nproc)" -n 4 clang-tidy-16 --quiet -p build/tidy --extra-arg=-w \
  2> >(grep -v 'warnings\? generated' >&2)
