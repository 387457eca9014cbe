#!/usr/bin/env bash
# Looks for inputs that break a reader: tests/fuzz/run.sh [SECONDS] [READER...]. Needs clang++-19 (tools/setup.sh --with-lint).
# Ends with an error at the first fault, and leaves the input in build/fuzz/. New inputs stay in build/fuzz/corpus; to
# keep those that reach something new: build/fuzz/tests/fuzz_READER -merge=1 tests/fuzz/corpus/READER build/fuzz/corpus/READER
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds="${1:-60}"
shift || true
readers=("$@")
if ((${#readers[@]} == 0)); then readers=(mask_parser entry_file bundle_file service_request); fi

cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g1 -DCMAKE_CXX_COMPILER=clang++-19 \
  -DFLASHSPAN_SANITIZE=address,undefined -DFLASHSPAN_BUILD_FUZZERS=ON -DFLASHSPAN_BUILD_CPU=OFF -DFLASHSPAN_BUILD_C=OFF \
  -DFLASHSPAN_BUILD_NETWORK=OFF -DFLASHSPAN_BUILD_TOOLS=OFF -DFLASHSPAN_BUILD_BENCH=OFF >/dev/null
cmake --build build/fuzz --target "${readers[@]/#/fuzz_}"
for reader in "${readers[@]}"; do
  mkdir -p "build/fuzz/corpus/$reader"
  echo "== $reader: $seconds seconds"
  build/fuzz/tests/fuzz_"$reader" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$reader-" "build/fuzz/corpus/$reader" "tests/fuzz/corpus/$reader" 2>&1 | tail -n 12
done
