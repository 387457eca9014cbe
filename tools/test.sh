#!/usr/bin/env bash
# Builds and tests: tools/test.sh [PRESET [CTEST ARGUMENTS...]]    (presets: release, debug, asan, tsan)
# The Python package is tested too, with preset release and without further arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

preset="${1:-release}"
shift || true
# NVRTC from tools/setup.sh, unless an environment of the caller's is active.
if [[ -z "${VIRTUAL_ENV:-}" && -d build/python ]]; then export VIRTUAL_ENV="$PWD/build/python"; fi

cmake --preset "$preset"
cmake --build --preset "$preset"
# One more than there are processors: some tests wait.
ctest --preset "$preset" --parallel "$(($(nproc) + 1))" "$@"
if [[ "$preset" == release && $# == 0 ]]; then
  if [[ -e build/python/requirements.txt ]]; then
    tools/test_python.sh
  else
    echo "Python package: not tested; tools/setup.sh installs what that takes"
  fi
fi
