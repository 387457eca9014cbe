#!/usr/bin/env bash
# Builds the Python package's wheel, installs it into build/python and tests it: tools/test_python.sh [PYTEST ARGUMENTS...]
set -euo pipefail
cd "$(dirname "$0")/.."

tools/build_wheel.sh
build/python/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheel/flashspan-*.whl
build/python/bin/mypy &
checks_types=$!
# Each process compiles what its tests need: on a GPU that is most of the time.
processes=$(($(nproc) < 12 ? $(nproc) : 12))
build/python/bin/python3 -m pytest -q --numprocesses "$processes" --dist loadgroup python/tests "$@"
wait "$checks_types"
