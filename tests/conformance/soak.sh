#!/usr/bin/env bash
# soak.sh SECONDS: schemathesis in a loop and a mutating body fuzzer, both over HTTP against daemons built with ASan and UBSan.
# Ends non-zero at any 5xx (501 and 503 are answers, not faults), crash, wrong answer or sanitizer report; see README.md.
# environment: DK_BIN_DIR (default build/asan/bin), DK_PYTHON (an interpreter with requirements.txt), DK_SOAK_DIR (artifacts)
set -uo pipefail
[ $# -eq 1 ] && [[ $1 =~ ^[0-9]+$ ]] || { echo "usage: soak.sh SECONDS" >&2; exit 2; }
seconds=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${DK_PYTHON:-$root/build/venv-conformance/bin/python}
artifacts=${DK_SOAK_DIR:-$root/build/soak}
export DK_BIN_DIR=${DK_BIN_DIR:-$root/build/asan/bin} DK_SANITIZER=asan
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export DK_SCHEMATHESIS_EXAMPLES=${DK_SCHEMATHESIS_EXAMPLES:-60} PYTHONDONTWRITEBYTECODE=1
mkdir -p "$artifacts"
failed=0 rounds=0
"$python" "$here/soak_fuzz.py" --seconds "$seconds" --artifacts "$artifacts" >"$artifacts/fuzz.log" 2>&1 &
fuzz=$!
trap 'kill "$fuzz" 2>/dev/null' EXIT
while [ "$SECONDS" -lt "$seconds" ] && [ "$failed" -eq 0 ] && kill -0 "$fuzz" 2>/dev/null; do
    rounds=$((rounds + 1))
    (cd "$root" && "$python" -m pytest -c tests/conformance/pytest.ini -o timeout=1800 -p no:cacheprovider -q -x \
        tests/conformance/test_openapi.py -k schemathesis) >"$artifacts/schemathesis-$rounds.log" 2>&1 || failed=1
    grep '^note ' "$artifacts/schemathesis-$rounds.log"
done
if [ "$failed" -ne 0 ]; then
    echo "FAILED: schemathesis, round $rounds"
    tail -n 60 "$artifacts/schemathesis-$rounds.log"
    kill "$fuzz" 2>/dev/null
fi
wait "$fuzz" || { failed=1; echo "FAILED: the fuzzer"; }
trap - EXIT
tail -n 20 "$artifacts/fuzz.log"
echo "$rounds rounds of schemathesis, $SECONDS s"
exit "$failed"
