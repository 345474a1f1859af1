#!/usr/bin/env bash
# Every C, C++ and CUDA file is as clang-format leaves it. Usage: format.sh [ROOT]
set -euo pipefail
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
cd "$root"

mapfile -d '' files < <(find proto kernels server client tests -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) -print0 | sort -z)
if [ "${#files[@]}" -eq 0 ]; then
    echo "format: no source file found under $root"
    exit 1
fi
clang-format --dry-run --Werror "${files[@]}"
echo "format: ${#files[@]} files"
