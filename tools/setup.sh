#!/usr/bin/env bash
# Installs what Flashspan is built from on Debian 12 (or Ubuntu): tools/setup.sh [--with-lint] [--without-python]
# Packages that are there already are left alone. What the Python package is built and tested with goes into build/python:
# PyTorch among it (about 5 GB, most of it CUDA libraries that its wheel cannot be imported without), and with it NVRTC, so
# that GPU code can be compiled without a CUDA toolkit; a GPU is not needed for that. --without-python installs NVRTC's
# wheel alone, and that only where there is no toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build python3-dev python3-venv pkg-config
  llvm-19-dev libtbb-dev libzstd-dev libxml2-dev
  libcurl4-openssl-dev libmicrohttpd-dev libhiredis-dev libssl-dev redis-server
  libspdlog-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libpng-dev zlib1g-dev libdlpack-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
nvrtc_version=13.0.88  # the one that PyTorch's wheel brings
if [[ " $* " == *" --with-lint "* ]]; then
  packages+=(clang-19 libclang-rt-19-dev clang-tidy-19 clang-format-19)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]})); then
  as_root=()
  if [[ "$(id -u)" != 0 ]]; then as_root=(sudo); fi
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null
fi

has_nvrtc() {
  local found
  for found in "${CUDA_HOME:-/nonexistent}"/lib64/libnvrtc.so.1[23] /usr/local/cuda*/lib64/libnvrtc.so.1[23] \
    "${VIRTUAL_ENV:-/nonexistent}"/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]; do
    if [[ -e "$found" ]]; then return 0; fi
  done
  return 1
}
install_into_python() {
  echo "installing: $* (into build/python)"
  [[ -x build/python/bin/python3 ]] || /usr/bin/python3 -m venv build/python
  build/python/bin/pip install --quiet --disable-pip-version-check "$@"
}
if [[ " $* " == *" --without-python "* ]]; then
  if [[ "$(uname -m)" == x86_64 && ! -x build/python/bin/python3 ]] && ! has_nvrtc; then
    install_into_python "nvidia-cuda-nvrtc==$nvrtc_version"
  fi
elif ! cmp -s python/requirements.txt build/python/requirements.txt; then
  install_into_python --requirement python/requirements.txt
  cp python/requirements.txt build/python/requirements.txt
fi
echo "setup: ready"
