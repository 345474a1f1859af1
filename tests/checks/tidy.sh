#!/usr/bin/env bash
# clang-tidy on the C files of the product, two at a time. Usage: tidy.sh BUILD_DIR (with compile_commands.json)
set -euo pipefail
build=$(cd "${1:?build directory}" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
commands=$build/compile_commands.json
[ -f "$commands" ] || {
    echo "tidy: no $commands"
    exit 1
}
# Only files of the product that this build compiles: their flags are known.
mapfile -t files < <(python3 - "$commands" "$root" <<'PYTHON'
import json, os, sys
commands, root = sys.argv[1:]
names = {os.path.relpath(os.path.join(e["directory"], e["file"]), root) for e in json.load(open(commands))}
print("\n".join(sorted(n for n in names if n.endswith(".c") and n.split("/")[0] in ("proto", "kernels", "server", "client"))))
PYTHON
)
if [ "${#files[@]}" -eq 0 ] || [ -z "${files[0]}" ]; then
    echo "tidy: no file to check"
    exit 1
fi
set +e
printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P 2 clang-tidy --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option 2>&1 |
    grep -vE '^[0-9]+ warnings? generated\.$|^Suppressed |^Use -header-filter'
status=${PIPESTATUS[1]} # of xargs: 123 when any file had a finding
set -e
[ "$status" -eq 0 ] || exit 1
echo "tidy: ${#files[@]} files"
