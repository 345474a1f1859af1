#!/usr/bin/env bash
# What the libraries export: libdecomposek and libdecomposek_client only dk_* and all of their headers, the plugin its one entry, and no
# archive of ours a global name outside dk_. Usage: names.sh BUILD_DIR
set -euo pipefail
build=$(cd "${1:?build directory}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
failed=0

say_bad() {
    echo "names: $1"
    failed=1
}

# check_library NAME HEADER: exports exactly what its header and those of proto/ mark DK_API, and has a SONAME.
check_library() {
    local name=$1 header=$2 shared declared foreign absent extra
    shared=$(find "$build/lib" -maxdepth 1 -name "$name.so.*" -type f | head -n 1)
    [ -n "$shared" ] || {
        say_bad "no $name.so in $build/lib"
        return
    }
    # Names of symbol versions are listed like symbols, of type A.
    exported=$(nm -D --defined-only "$shared" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort -u)
    [ -n "$exported" ] || say_bad "$name.so exports nothing"
    foreign=$(grep -v '^dk_' <<<"$exported" || true)
    [ -z "$foreign" ] || say_bad "$name.so exports names that are not ours: $(echo "$foreign" | tr '\n' ' ')"
    declared=$(cat "$root"/proto/{status,dtype,gemm}.h "$root/$header" | tr '\n' ' ' |
        grep -oE 'DK_API[^;(]*[ *]dk_[a-z0-9_]+ *\(' | grep -oE 'dk_[a-z0-9_]+ *\($' | tr -d ' (' | sort -u)
    [ -n "$declared" ] || say_bad "no DK_API function found in $header"
    absent=$(comm -23 <(echo "$declared") <(echo "$exported"))
    [ -z "$absent" ] || say_bad "$name: declared but not exported: $(echo "$absent" | tr '\n' ' ')"
    extra=$(comm -13 <(echo "$declared") <(echo "$exported"))
    [ -z "$extra" ] || say_bad "$name: exported but in no public header: $(echo "$extra" | tr '\n' ' ')"
    readelf -d "$shared" | grep -qE "SONAME.*$name\.so\.[0-9]+" || say_bad "$name.so has no SONAME"
    total=$((total + $(wc -l <<<"$exported")))
}
total=0
check_library libdecomposek kernels/include/decomposek.h
[ -e "$build/lib/libdk_client_lib.a" ] && check_library libdecomposek_client client/include/decomposek_client.h

plugin=$build/lib/libdecomposek_cuda.so
if [ -e "$plugin" ]; then
    foreign=$(nm -D --defined-only "$plugin" | awk '{print $3}' | sed 's/@.*//' | grep -vx 'dk_cuda_plugin' || true)
    [ -z "$foreign" ] || say_bad "the plugin exports more than its entry: $(echo "$foreign" | head -n 5 | tr '\n' ' ')"
fi

archives=0
while IFS= read -r archive; do
    archives=$((archives + 1))
    foreign=$(nm --defined-only -g "$archive" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -v '^dk_' |
        grep -vE '^(__odr_asan|__asan|\.L)' || true)
    [ -z "$foreign" ] || say_bad "$(basename "$archive") has global names outside dk_: $(echo "$foreign" | head -n 5 | tr '\n' ' ')"
done < <(find "$build/lib" -maxdepth 1 -name 'libdk_*.a' | sort)
[ "$archives" -gt 0 ] || say_bad "no archive found in $build/lib"

[ "$failed" -eq 0 ] && echo "names: $total exported, $archives archives"
exit "$failed"
