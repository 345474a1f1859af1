#!/usr/bin/env bash
# What the libraries export: libdecomposek only dk_* and all of its header, the plugin its one entry, and no
# archive of ours a global name outside dk_. Usage: names.sh BUILD_DIR
set -euo pipefail
build=$(cd "${1:?build directory}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
failed=0

say_bad() {
    echo "names: $1"
    failed=1
}

shared=$(find "$build/lib" -maxdepth 1 -name 'libdecomposek.so.*' -type f | head -n 1)
[ -n "$shared" ] || {
    echo "names: no libdecomposek.so in $build/lib"
    exit 1
}
exported=$(nm -D --defined-only "$shared" | awk '{print $3}' | sed 's/@.*//' | sort -u)
[ -n "$exported" ] || say_bad "libdecomposek.so exports nothing"
foreign=$(grep -v '^dk_' <<<"$exported" || true)
[ -z "$foreign" ] || say_bad "libdecomposek.so exports names that are not ours: $(echo "$foreign" | tr '\n' ' ')"

# Each function that a public header marks DK_API is there.
declared=$(cat "$root"/proto/{status,dtype,gemm}.h "$root"/kernels/include/decomposek.h | tr '\n' ' ' |
    grep -oE 'DK_API[^;(]*[ *]dk_[a-z0-9_]+ *\(' | grep -oE 'dk_[a-z0-9_]+ *\($' | tr -d ' (' | sort -u)
[ -n "$declared" ] || say_bad "no DK_API function found in the public headers"
absent=$(comm -23 <(echo "$declared") <(echo "$exported"))
[ -z "$absent" ] || say_bad "declared but not exported: $(echo "$absent" | tr '\n' ' ')"
extra=$(comm -13 <(echo "$declared") <(echo "$exported"))
[ -z "$extra" ] || say_bad "exported but in no public header: $(echo "$extra" | tr '\n' ' ')"

readelf -d "$shared" | grep -qE 'SONAME.*libdecomposek\.so\.[0-9]+' || say_bad "libdecomposek.so has no SONAME"

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

[ "$failed" -eq 0 ] && echo "names: $(wc -l <<<"$exported") exported, $archives archives"
exit "$failed"
