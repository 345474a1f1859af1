#!/bin/sh
# exported_symbols.sh LIBRARY INCLUDE_ROOT: the shared library exports the functions its headers mark DK_API, no others.
set -eu
library=$1 root=$2
wanted=$(mktemp) found=$(mktemp)
trap 'rm -f "$wanted" "$found"' EXIT
headers="$root/kernels/include/decomposek.h $root/proto/status.h $root/proto/dtype.h $root/proto/gemm.h"
# The first dk_ name followed by "(" after DK_API.
sed -n 's/^DK_API .*[ *]\(dk_[a-z0-9_]*\)(.*/\1/p' $headers | sort -u >"$wanted"
nm -D --defined-only "$library" | awk '{print $3}' | grep -v -e '^_init$' -e '^_fini$' | sort -u >"$found"
test -s "$wanted"
diff "$wanted" "$found"
