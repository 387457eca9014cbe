#!/usr/bin/env bash
# Reads every template alone with clang and clang-tidy, without a CUDA toolkit: tools/lint_templates.sh [SUFFIX]
# (default -19: clang++-19 and clang-tidy-19). Exit code 1 if there is any finding.
set -euo pipefail
cd "$(dirname "$0")/.."
suffix="${1--19}"

options=(-x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_80 -std=c++17 -Itemplates
         -include templates/lint/dialect.cuh -Wall -Wextra -Werror -Wno-unknown-cuda-version
         # A header read as if it were a source: its one #pragma once is not at fault.
         -Wno-pragma-once-outside-header -Wno-unused-function -Wno-unused-const-variable)

failed=0
count=0
read_alone() {
  count=$((count + 1))
  "clang++$suffix" "${options[@]}" "${@:2}" -fsyntax-only "$1" || failed=1
  if ! report="$("clang-tidy$suffix" --quiet "$1" -- "${options[@]}" "${@:2}" 2>&1)"; then
    printf '%s\n' "$report"
    failed=1
  fi
}

while IFS= read -r template; do
  # The stand-in for the spec has the tile and the shared memory of one family and direction at a time.
  case "$template" in
    */backward_mma.cuh) read_alone "$template" -DFLASHSPAN_LINT_BACKWARD ;;
    */backward_query_pass.cuh)
      read_alone "$template" -DFLASHSPAN_LINT_HOPPER -DFLASHSPAN_LINT_BACKWARD -DFLASHSPAN_LINT_TWO_PASSES ;;
    */backward_hopper.cuh | */backward_keys.cuh | */backward_roles.cuh | */backward_query_sums.cuh) read_alone "$template" -DFLASHSPAN_LINT_HOPPER -DFLASHSPAN_LINT_BACKWARD ;;
    */forward_hopper.cuh) read_alone "$template" -DFLASHSPAN_LINT_HOPPER ;;
    */backward_score.cuh) read_alone "$template" -DFLASHSPAN_LINT_SCORE ;;
    *) read_alone "$template" ;;
  esac
done < <(find templates -name '*.cuh' -not -path 'templates/lint/*' | sort)

if ((failed != 0)); then
  echo "lint_templates: findings in the templates"
  exit 1
fi
echo "lint_templates: $count templates, no findings"
