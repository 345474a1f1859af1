#!/usr/bin/env bash
# packages.sh: build the Debian packages.
#
#   bash deploy/packages.sh [--build DIR] [--out DIR] [CMAKE-OPTION...]
#
# decomposekd, decomposek, libdecomposek0, libdecomposek-client0 and libdecomposek-dev, and decomposekd-cuda where the CUDA
# toolkit is found (-DDK_CUDA=OFF for none). Default: build/packages, dist.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/packages
out=dist
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --build) build=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -D*) options+=("$1"); shift ;;
        *) echo "packages.sh: unknown argument '$1' (try --help)" >&2; exit 2 ;;
    esac
done
command -v dpkg-shlibdeps >/dev/null || { echo "packages.sh: dpkg-shlibdeps is missing: apt-get install -y dpkg-dev" >&2; exit 2; }

# Prefix /usr also chooses Debian's library folder; packaged programs need no run path.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_INSTALL_RPATH=ON \
    -DDK_BUILD_TESTS=OFF -DDK_INSTALL_SYSTEM=ON -DDK_SYSTEMD=ON "${options[@]}"
cmake --build "$build" ${DK_JOBS:+-j "$DK_JOBS"}
mkdir -p "$out"
rm -rf "$build/debs"
umask 022
(cd "$build" && cpack -G DEB -B debs)
for package in "$build"/debs/*.deb; do
    cp "$package" "$out/"
    echo "$out/${package##*/}"
done
