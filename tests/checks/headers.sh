#!/usr/bin/env bash
# Every header compiles alone, twice in one unit; the public ones in strict C11, C17 and C++17 as well. Usage: headers.sh [ROOT]
set -euo pipefail
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
cd "$root"
cc=${CC:-cc} cxx=${CXX:-c++}
public=(proto/status.h proto/dtype.h proto/gemm.h kernels/include/decomposek.h client/include/decomposek_client.h)
includes=(-I. -Ikernels/include -Iclient/include)
warnings=(-Wall -Wextra -Wconversion -Wshadow -Wvla -Werror)
read -r -a library_flags <<<"$(pkg-config --cflags libmicrohttpd libuv libcjson libcurl)"
failed=0 count=0

# compiles_alone LANGUAGE HEADER COMPILER...: a unit that holds nothing but the header, included twice.
compiles_alone() {
    local language=$1 header=$2
    shift 2
    count=$((count + 1))
    if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        "$@" -fsyntax-only "${includes[@]}" "${library_flags[@]}" "${warnings[@]}" -x "$language" -; then
        echo "headers: $header does not compile alone ($language)"
        failed=1
    fi
}

# *_table.h are bodies of tables that the including unit completes; CUDA headers need nvcc.
while IFS= read -r header; do
    compiles_alone c "$header" "$cc" -std=c17 -D_GNU_SOURCE -Wstrict-prototypes
done < <(find proto kernels server client -name '*.h' -not -path 'kernels/cuda/*' -not -name '*_table.h' | sort)
for header in "${public[@]}"; do
    # A foreign program defines nothing for us: no _GNU_SOURCE, strict modes.
    for standard in c11 c17; do
        compiles_alone c "$header" "$cc" -std=$standard -pedantic -Wstrict-prototypes
    done
    compiles_alone c++ "$header" "$cxx" -std=c++17
done
[ "$count" -gt "${#public[@]}" ] || failed=1
[ "$failed" -eq 0 ] && echo "headers: $count compilations"
exit "$failed"
