#!/usr/bin/env bash
# Builds and tests: tools/test.sh [PRESET [CTEST ARGUMENTS...]]    (presets: release, debug, asan, tsan)
set -euo pipefail
cd "$(dirname "$0")/.."

preset="${1:-release}"
shift || true
# NVRTC from tools/setup.sh, unless an environment of the caller's is active.
if [[ -z "${VIRTUAL_ENV:-}" && -d build/python ]]; then export VIRTUAL_ENV="$PWD/build/python"; fi

cmake --preset "$preset"
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel "$(nproc)" "$@"
