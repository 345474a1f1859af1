#!/usr/bin/env bash
# perf_analyzer.sh DIR: unpack perf_analyzer under DIR and print the folder that holds its starter `perf_analyzer`.
#
# The package perf-analyzer of PyPI (0.1.0) is a placeholder without a program. The program itself lies in the Linux wheels of
# tritonclient; up to 2.51.0 they run on glibc 2.36 (Debian 12), from 2.52.0 on they ask for GLIBC_2.38 and GLIBCXX_3.4.32.
# It needs libb64 (Debian) and libcudart.so.12 (nvidia-cuda-runtime-cu12 of requirements.txt), also without a GPU.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: perf_analyzer.sh DIR" >&2; exit 2; }
version=2.51.0
digest=c485bb0123bdf310f90bc8b03d3489b28df2ffed55b30c7eee0b795b48113d52
python=${DK_PYTHON:-python3}
mkdir -p "$1"
dir=$(cd "$1" && pwd)
if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$digest" ]; then
    rm -rf "${dir:?}"/*
    "$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --platform manylinux1_x86_64 \
        -d "$dir" "tritonclient==$version" >&2
    wheel=("$dir"/tritonclient-*.whl)
    echo "$digest  ${wheel[0]}" | sha256sum -c --quiet >&2
    "$python" -m zipfile -e "${wheel[0]}" "$dir/wheel"
    rm "${wheel[0]}"
    mv "$dir/wheel/tritonclient-$version.data/data/bin/perf_analyzer" "$dir/program"
    rm -rf "$dir/wheel"
    chmod +x "$dir/program"
    if ! ldconfig -p | grep -q 'libb64\.so\.0d'; then # unpacked, not installed
        # As root apt would hand the download to user _apt, who may not write to a private folder.
        (cd "$dir" && apt-get -o APT::Sandbox::User=root download -q libb64-0d >&2)
        dpkg-deb -x "$dir"/libb64-0d_*.deb "$dir/libb64"
        rm "$dir"/libb64-0d_*.deb
    fi
    echo "$digest" >"$dir/stamp"
fi
cudart=$("$python" -c 'import nvidia.cuda_runtime as m; print(m.__path__[0])')/lib
libraries=$cudart
[ -d "$dir/libb64" ] && libraries+=:$(dirname "$(find "$dir/libb64" -name 'libb64.so.0d')")
mkdir -p "$dir/bin"
printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$dir/program" >"$dir/bin/perf_analyzer"
chmod +x "$dir/bin/perf_analyzer"
"$dir/bin/perf_analyzer" --version >&2
echo "$dir/bin"
