#!/usr/bin/env bash
# Builds docs/ as HTML with Sphinx, warnings as errors: tools/build_docs.sh [FOLDER]    (default: build/docs)
# The reference comes from the docstrings of the package that is installed in build/python (tools/test_python.sh installs it).
set -euo pipefail
cd "$(dirname "$0")/.."

build/python/bin/python3 -m sphinx --fail-on-warning --keep-going --fresh-env --quiet --builder html docs "${1:-build/docs}"
