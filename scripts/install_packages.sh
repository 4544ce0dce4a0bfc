#!/usr/bin/env bash
# Installs the Debian packages that the build, the tests and the demo need; does nothing when all are there.
set -euo pipefail
packages=(g++ cmake ninja-build ccache pkg-config git ca-certificates
  libdnnl-dev libhwy-dev libfmt-dev libspdlog-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  libsentencepiece-dev sentencepiece libprotobuf-dev protobuf-compiler libssl-dev libzstd-dev zlib1g-dev libhwloc-dev
  libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy-16 libomp-16-dev python3 strace valgrind lz4 dataset-fashion-mnist)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=(); [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
