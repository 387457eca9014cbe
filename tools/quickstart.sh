#!/usr/bin/env bash
# From a bare Debian 12 to attention under the twelve FlashMask families: tools/quickstart.sh [FOLDER]
# Installs, builds, then runs every family forward and backward at 8192 tokens on the GPU; without one, counts tiles at
# 8192 tokens and runs on the CPU at 1024. Pictures and mask files go to FOLDER (default: build/quickstart).
set -euo pipefail
cd "$(dirname "$0")/.."

folder="${1:-build/quickstart}"
tools/setup.sh --without-python
# NVRTC from tools/setup.sh, unless an environment of the caller's is active.
if [[ -z "${VIRTUAL_ENV:-}" && -d build/python ]]; then export VIRTUAL_ENV="$PWD/build/python"; fi

cmake --preset release >/dev/null
cmake --build --preset release --target flashspan_command flashmask_families
flashspan=build/release/tools/flashspan
families=build/release/examples/flashmask_families

echo
"$flashspan" doctor
echo
if "$flashspan" doctor --json | grep -q '"cuda:'; then
  "$families" --length 8192 --heads 32 --head-dim 128 --dtype bf16 --pictures "$folder" --save "$folder/masks"
else
  "$families" --length 8192 --only-count --pictures "$folder" --save "$folder/masks"
  echo
  "$families" --length 1024 --heads 2 --head-dim 64 --dtype bf16 --device cpu --repeats 1
fi
echo
echo "pictures are in $folder; one of them as text:"
"$flashspan" picture --mask "$folder/masks/share_question.json" --columns 64
echo "next: $flashspan explain --mask $folder/masks/share_question.json"
