#!/usr/bin/env bash
# Installs what is missing, builds and passes the tests. Without options at most 20 minutes on 2 cores; --full adds the
# sanitizers, the whole op matrix, the layout tests without passes, a build of the benchmarks and clang-tidy.
#
#   scripts/test.sh [--full]
set -euo pipefail
cd "$(dirname "$0")/.."
full=0
for option in "$@"; do
  case "$option" in
    --full) full=1 ;;
    *) echo "usage: scripts/test.sh [--full]" >&2; exit 64 ;;
  esac
done

export TESSERA_PIN=off  # several tests run at a time: their threads go where there is room

say() { printf '\n== %s (%d min)\n' "$1" $((SECONDS / 60)); }
build() {  # build PRESET [target...]
  local preset=$1; shift
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$(nproc)" ${*:+--target "$@"} | tail -n 1
}

say "packages"
scripts/install_packages.sh

say "layers, sizes, format"
python3 scripts/check_layers.py
python3 scripts/sizes.py
git ls-files '*.h' '*.cpp' | xargs clang-format --dry-run -Werror

say "release build"
build release

say "tests"
ctest --test-dir build/release --output-on-failure -j "$(nproc)" -LE serial
ctest --test-dir build/release --output-on-failure -L serial --no-tests=ignore

say "demo, 50 steps"
scripts/demo.sh --short

if [ "$full" = 1 ]; then
  say "the whole op matrix"
  TESSERA_FULL_MATRIX=1 build/release/tests/tessera_layouts_tests --gtest_brief=1 --gtest_filter='*Matrix*'

  say "the layout tests with every pass left out"
  TESSERA_WITHOUT=all build/release/tests/tessera_layouts_tests --gtest_brief=1

  say "benchmarks"
  cmake --preset release -DTESSERA_BENCHMARKS=ON >/dev/null
  cmake --build --preset release -j "$(nproc)" | tail -n 1

  say "address and undefined-behaviour sanitizers"
  build asan tessera_{unit,ops,golden,error,train,layouts}_tests
  # libdnnl and libgomp are not instrumented: what they keep until exit is not ours.
  export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  ctest --test-dir build/asan --output-on-failure -j "$(nproc)" -R '^(unit|ops|golden|error)$'
  build/asan/tests/tessera_train_tests --gtest_brief=1 --gtest_filter='-*EveryMesh*:Kill*'
  # One op in eight of the matrix, simulated; the unit tests run every op on threads of [2,2] and [4,2].
  GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=3 build/asan/tests/tessera_layouts_tests --gtest_brief=1 --gtest_filter='*Matrix*'

  say "thread sanitizer"
  build tsan tessera_unit_tests tessera_train_tests
  export TSAN_OPTIONS=suppressions=$PWD/scripts/tsan.supp:halt_on_error=1
  # The sanitizer keeps mappings of every thread that ever ran, and a process may have 65,530 of them.
  for shard in 0 1 2 3 4 5; do
    GTEST_TOTAL_SHARDS=6 GTEST_SHARD_INDEX=$shard build/tsan/tests/tessera_unit_tests --gtest_brief=1 \
      --gtest_filter='Comm*:*Session*:*Executor*:Store*:*Pool*:Team*:Gemm*:*Waiting*:Cpu*'
  done
  build/tsan/tests/tessera_train_tests --gtest_brief=1 --gtest_filter='Trainer.LossFalls:Trainer.StopFlag*'

  say "clang-tidy"
  scripts/tidy.sh
fi
say "done"
ctest --test-dir build/release -N | tail -n 1
