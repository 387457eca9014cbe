#!/usr/bin/env bash
# Installs the Python package into build/python and tests it: tools/test_python.sh [PYTEST ARGUMENTS...]
# The library is the one of preset release, which is built (tools/test.sh) or built now; pip compiles what it lacks.
set -euo pipefail
cd "$(dirname "$0")/.."

build/python/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall . \
  --config-settings build-dir=build/release --config-settings cmake.define.CMAKE_INSTALL_PREFIX=/usr/local \
  --config-settings cmake.build-type=RelWithDebInfo \
  --config-settings cmake.define.FLASHSPAN_BUILD_TOOLS=ON --config-settings cmake.define.FLASHSPAN_BUILD_TESTS=ON \
  --config-settings cmake.define.FLASHSPAN_BUILD_BENCH=ON
build/python/bin/mypy
build/python/bin/python3 -m pytest -q python/tests "$@"
