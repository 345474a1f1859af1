#!/usr/bin/env bash
# All checks and tests; the last line is "N passed, N failed, N skipped". See tests/README.md and --help.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
. deploy/dependencies.sh

stages=(deps format layers headers build tidy names unit e2e conformance fuzz install deploy cuda gpu quickstart asan tsan)
usage() {
    cat <<TEXT
usage: tests/run.sh [--quick] [--only STAGE[,STAGE]]... [--list] [-h|--help]
  --quick   leave out the sanitizer builds, the fuzzers, the packages with their tests and the quickstart
  --only    only these stages (what a stage needs is built all the same)
  --list    print the stages in order
environment: DK_BUILD_ROOT (default build), DK_JOBS (default: processors), DK_FUZZ_SECONDS (default 6)
exit: 0 when at least one test ran and none failed, 1 otherwise, 2 on a usage error
TEXT
}
only='' quick=''
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --only)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            only+=,$2
            shift
            ;;
        --list) printf '%s\n' "${stages[@]}"; exit 0 ;;
        -h | --help) usage; exit 0 ;;
        *) echo "run.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
    esac
    shift
done
for name in ${only//,/ }; do
    [[ " ${stages[*]} " == *" $name "* ]] || { echo "run.sh: no stage '$name' (see --list)" >&2; exit 2; }
done

build_root=${DK_BUILD_ROOT:-$root/build}
[[ $build_root == /* ]] || build_root=$root/$build_root
jobs=${DK_JOBS:-$(nproc)}
logs=$build_root/test-logs
mkdir -p "$logs" || exit 1
build_root=$(cd "$build_root" && pwd)
logs=$build_root/test-logs
rm -f "$logs"/*.log "$logs"/*.xml
passed=0 failed=0 skipped=0 failures=()
start_seconds=$SECONDS
# Whatever a test leaves behind lands here, is found at the end, and is removed.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/dk-tests.XXXXXX") || exit 1
export TMPDIR=$scratch
children=()
cleanup() {
    local pid
    for pid in "${children[@]:-}"; do
        [ -n "$pid" ] && kill -TERM -- "-$pid" 2>/dev/null
    done
    rm -rf "$scratch"
}
trap cleanup EXIT
trap 'echo "interrupted"; exit 1' INT TERM HUP

wanted() {
    [ -z "$only" ] || [[ ,$only, == *,$1,* ]]
}

say_pass() {
    passed=$((passed + 1))
    printf 'ok    %s%s\n' "$1" "${2:+ ($2)}"
}
say_fail() { # NAME REASON [LOG]
    failed=$((failed + 1))
    failures+=("$1")
    printf 'FAIL  %s (%s)\n' "$1" "$2"
    if [ -n "${3:-}" ] && [ -f "$3" ]; then
        printf '%s\n' "----- end of $3" "$(tail -n 60 "$3")" "-----"
    fi
}
say_skip() {
    skipped=$((skipped + 1))
    printf 'skip  %s (%s)\n' "$1" "$2"
}

# In a process group of its own, so that an interrupt ends all of it; no standard input.
run_logged() { # LOG SECONDS COMMAND...
    local log=$1 limit=$2 status
    shift 2
    echo "+ $*" >>"$log"
    setsid timeout -k 10 "$limit" "$@" >>"$log" 2>&1 </dev/null &
    children=("$!")
    wait "$!"
    status=$?
    children=()
    return "$status"
}

check() { # NAME SECONDS COMMAND...: one check, one count
    local name=$1 log=$logs/$1.log began=$SECONDS status
    run_logged "$log" "${@:2}"
    status=$?
    case $status in
        0) say_pass "$name" "$((SECONDS - began)) s" ;;
        124 | 137) say_fail "$name" "ran past $2 s" "$log" ;;
        *) say_fail "$name" "status $status" "$log" ;;
    esac
    return "$status"
}

# count NAME STATUS JUNIT LOG: add a JUnit file to the counts; a runner that died without one is a failure.
count() {
    local name=$1 status=$2 junit=$3 log=$4 began=$5 result p f s
    if ! result=$(python3 tests/checks/count_results.py "$junit" 2>>"$log"); then
        say_fail "$name" "the runner left no result, status $status" "$log"
        return 1
    fi
    read -r p f s <<<"${result%%$'\n'*}"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-5s %s: %d passed, %d failed, %d skipped (%d s)\n' "$([ "$f" -eq 0 ] && echo ok || echo FAIL)" \
        "$name" "$p" "$f" "$s" "$((SECONDS - began))"
    if [ "$f" -ne 0 ]; then
        while IFS= read -r test; do
            [ -n "$test" ] && failures+=("$name $test") && echo "      $test"
        done <<<"$(tail -n +2 <<<"$result")"
        printf '%s\n' "----- end of $log" "$(tail -n 120 "$log")" "-----"
    elif [ "$status" -ne 0 ]; then
        say_fail "$name" "no test failed but the runner ended with status $status" "$log"
    elif [ $((p + s)) -eq 0 ]; then
        say_fail "$name" "no test ran" "$log"
    fi
}

# build NAME PRESET TARGET...: configure and build once a run; counted the first time.
declare -A built=()
build() {
    local name=$1 preset=$2 key="$2 ${*:3}"
    [ -n "${built[$key]:-}" ] && return "${built[$key]}"
    check "$name" 1200 bash -euo pipefail -c '
        preset=$1 dir=$2 jobs=$3
        shift 3
        cmake --preset "$preset" -B "$dir"
        cmake --build "$dir" -j "$jobs" ${1:+--target "$@"}' build "$preset" "$build_root/$preset" "$jobs" "${@:3}"
    built[$key]=$?
    return "${built[$key]}"
}

# python_environment NAME FILE [FILES]: prints the interpreter of a virtual environment with the packages of FILE, and
# those of FILES without what they depend on.
python_environment() {
    local dir=$build_root/venv-$1 stamp
    stamp=$(sha256sum "${@:2}")
    if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$dir"
        "$(dk_python)" -m venv "$dir" >>"$logs/venv.log" 2>&1 &&
            "$dir/bin/pip" install -q --disable-pip-version-check -r "$2" >>"$logs/venv.log" 2>&1 &&
            { [ -z "${3:-}" ] ||
                "$dir/bin/pip" install -q --disable-pip-version-check --no-deps -r "$3" >>"$logs/venv.log" 2>&1; } ||
            return 1
        echo "$stamp" >"$dir/stamp"
    fi
    echo "$dir/bin/python"
}

run_ctest() { # NAME PRESET SECONDS [PREFIX...]
    local name=$1 dir=$build_root/$2 log=$logs/$1.log junit=$logs/$1.xml began=$SECONDS status
    run_logged "$log" "$3" "${@:4}" ctest --test-dir "$dir" --output-on-failure --no-tests=error \
        -LE 'gpu|bench' --output-junit "$junit"
    status=$?
    count "$name" "$status" "$junit" "$log" "$began"
}

run_pytest() { # NAME PRESET SECONDS MARK [PREFIX...]
    local name=$1 log=$logs/$1.log junit=$logs/$1.xml began=$SECONDS status python tools
    if ! python=$(python_environment tests tests/requirements.txt); then
        say_fail "$name" "no Python environment" "$logs/venv.log"
        return 1
    fi
    tools=$(dk_prometheus_tools "$build_root/tools/prometheus" 2>>"$logs/tools.log") ||
        { say_fail "$name" "no prometheus and promtool" "$logs/tools.log"; return 1; }
    PATH=$PATH:$tools DK_BIN_DIR=$build_root/$2/bin PYTHONDONTWRITEBYTECODE=1 \
        run_logged "$log" "$3" "${@:5}" "$python" -m pytest -c tests/e2e/pytest.ini -p no:cacheprovider \
        --basetemp "$scratch/pytest-$name" -m "$4" --junitxml "$junit" tests/e2e
    status=$?
    rm -rf "$scratch/pytest-$name"
    [ "$status" -eq 0 ] && grep '^note ' "$log"
    count "$name" "$status" "$junit" "$log" "$began"
}

stage_deps() { check deps 900 bash deploy/dependencies.sh test; }
stage_format() { check format 60 bash tests/checks/format.sh; }
stage_layers() {
    check layers_self_test 60 bash tests/checks/layers.sh --self-test
    check layers 60 bash tests/checks/layers.sh
}
stage_headers() { check headers 120 bash tests/checks/headers.sh; }
stage_build() { build build_cpu cpu; }
stage_tidy() { build build_cpu cpu && check tidy 600 bash tests/checks/tidy.sh "$build_root/cpu"; }
stage_names() { build build_cpu cpu && check names 60 bash tests/checks/names.sh "$build_root/cpu"; }
stage_unit() { build build_cpu cpu && run_ctest unit cpu 600; }
stage_e2e() { build build_cpu cpu && run_pytest e2e cpu 900 'not soak_only'; }
stage_conformance() {
    build build_cpu cpu || return
    local name=conformance log=$logs/conformance.log junit=$logs/conformance.xml began=$SECONDS status python tools
    if ! python=$(python_environment conformance tests/conformance/requirements.txt); then
        say_fail "$name" "no Python environment" "$logs/venv.log"
        return 1
    fi
    tools=$(DK_PYTHON=$python bash tests/conformance/perf_analyzer.sh "$build_root/tools/perf_analyzer" 2>>"$logs/tools.log") ||
        { say_fail "$name" "no perf_analyzer" "$logs/tools.log"; return 1; }
    DK_PERF_ANALYZER=$tools DK_BIN_DIR=$build_root/cpu/bin PYTHONDONTWRITEBYTECODE=1 \
        run_logged "$log" 900 "$python" -m pytest -c tests/conformance/pytest.ini -p no:cacheprovider \
        --basetemp "$scratch/pytest-$name" --junitxml "$junit" tests/conformance
    status=$?
    rm -rf "$scratch/pytest-$name"
    [ "$status" -eq 0 ] && grep '^note ' "$log"
    count "$name" "$status" "$junit" "$log" "$began"
}
stage_install() { build build_cpu cpu && check install 120 bash tests/checks/install.sh "$build_root/cpu"; }

# The packages are built anew: their prefix and library folder are compiled in.
stage_deploy() {
    check packages 600 env DK_JOBS="$jobs" bash deploy/packages.sh --build "$build_root/packages" \
        --out "$build_root/packages/dist" -DDK_CUDA=OFF || return
    local log=$logs/deploy.log junit=$logs/deploy.xml began=$SECONDS status python
    if ! python=$(python_environment deploy tests/deploy/requirements.txt tests/deploy/requirements-files.txt); then
        say_fail deploy "no Python environment" "$logs/venv.log"
        return 1
    fi
    DK_PACKAGES_DIR=$build_root/packages/dist PYTHONDONTWRITEBYTECODE=1 run_logged "$log" 600 "$python" -m pytest \
        -c tests/deploy/pytest.ini -p no:cacheprovider --basetemp "$scratch/pytest-deploy" --junitxml "$junit" tests/deploy
    status=$?
    rm -rf "$scratch/pytest-deploy"
    [ "$status" -eq 0 ] && grep '^note ' "$log"
    count deploy "$status" "$junit" "$log" "$began"
}

stage_fuzz() {
    local targets
    mapfile -t targets < <(basename -s .c -a tests/fuzz/fuzz_*.c)
    build build_fuzz fuzz "${targets[@]}" || return
    local binary name corpus found=0 seeds
    for binary in "$build_root"/fuzz/bin/fuzz_*; do
        [ -x "$binary" ] || continue
        found=1
        name=$(basename "$binary")
        seeds=(tests/fuzz/corpus/"${name#fuzz_}")
        [ -d "${seeds[0]}" ] || seeds=()
        corpus=$scratch/corpus-$name
        mkdir -p "$corpus" # new inputs go here, the seeds stay as they are
        check "$name" 180 "$binary" -max_total_time="${DK_FUZZ_SECONDS:-6}" -timeout=10 -rss_limit_mb=2048 \
            -artifact_prefix="$logs/$name-" -print_final_stats=1 "$corpus" "${seeds[@]}"
        rm -rf "$corpus"
    done
    [ "$found" -eq 1 ] || say_fail fuzz "no fuzz target was built"
}

have_nvcc() { command -v nvcc >/dev/null || [ -x "${CUDACXX:-/usr/local/cuda/bin/nvcc}" ]; }
have_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

stage_cuda() {
    if ! have_nvcc; then
        say_skip cuda_plugin "no nvcc on this machine"
        return
    fi
    build build_cuda_plugin release decomposek_cuda decomposekd decomposek || return
    check plugin_names 60 bash tests/checks/names.sh "$build_root/release"
}

stage_gpu() {
    if ! have_gpu || ! have_nvcc; then
        say_skip gpu "no GPU or no nvcc on this machine"
        return
    fi
    build build_release release || return
    local log=$logs/gpu.log junit=$logs/gpu.xml began=$SECONDS status
    run_logged "$log" 900 ctest --test-dir "$build_root/release" -L gpu --output-on-failure --no-tests=error --output-junit "$junit"
    status=$?
    count gpu "$status" "$junit" "$log" "$began"
}

stage_quickstart() {
    check quickstart 900 env DK_BUILD_ROOT="$build_root" bash deploy/quickstart.sh
}

stage_asan() {
    build build_asan asan || return
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
    export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
    run_ctest unit_asan asan 900
    DK_SANITIZER=asan run_pytest e2e_asan asan 900 sanitizer
}

stage_tsan() {
    build build_tsan tsan || return
    # The runtime of gcc 12 cannot map its shadow under the wide address randomisation of new kernels.
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    run_ctest unit_tsan tsan 900 setarch -R
    DK_SANITIZER=tsan run_pytest e2e_tsan tsan 900 sanitizer setarch -R
}

# Programs of this run that still live, and files that a test left in the scratch folder.
check_leftovers() {
    local left=() link target
    for link in /proc/[0-9]*/exe; do
        target=$(readlink "$link" 2>/dev/null) || continue
        [[ $target == "$build_root"/*/bin/* ]] && left+=("process ${link//[!0-9]/} $target")
    done
    for target in "$scratch"/*; do
        [ -e "$target" ] && left+=("file $target")
    done
    if [ "${#left[@]}" -eq 0 ]; then
        say_pass leftovers "no process and no file left behind"
    else
        printf '%s\n' "${left[@]}" >"$logs/leftovers.log"
        say_fail leftovers "${#left[@]} left behind" "$logs/leftovers.log"
    fi
}

for stage in "${stages[@]}"; do
    wanted "$stage" || continue
    if [ -n "$quick" ] && [[ " fuzz deploy quickstart asan tsan " == *" $stage "* ]]; then
        say_skip "$stage" "--quick"
        continue
    fi
    # shellcheck disable=SC2030,SC2031
    "stage_$stage" || { [ "$stage" = deps ] && [ "$failed" -gt 0 ] && break; }
done
if [ $((passed + failed)) -gt 0 ]; then
    check_leftovers
fi
echo "logs: $logs, $((SECONDS - start_seconds)) s"
for name in "${failures[@]:-}"; do
    [ -n "$name" ] && echo "failed: $name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
