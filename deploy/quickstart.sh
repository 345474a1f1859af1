#!/usr/bin/env bash
# From nothing to checked answers: install, build, make a demo checkpoint, serve it, ask it by curl and by the
# command line, compare with an fp64 reference. Usage: quickstart.sh [--keep] [--port N]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. deploy/dependencies.sh

keep='' port=''
usage() {
    echo "usage: quickstart.sh [--keep] [--port N]"
    echo "  --keep    leave the daemon running and say how to stop it"
    echo "  --port N  use this port (default: 8000, or any free one when 8000 is taken)"
}
while [ $# -gt 0 ]; do
    case $1 in
        --keep) keep=1 ;;
        --port)
            port=${2:-}
            [[ $port =~ ^[0-9]+$ ]] && [ "$port" -ge 1 ] && [ "$port" -le 65535 ] || {
                echo "quickstart: --port wants 1..65535, not '${2:-}'" >&2
                exit 2
            }
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            echo "quickstart: unknown argument '$1'" >&2
            usage >&2
            exit 2
            ;;
    esac
    shift
done

build_root=${DK_BUILD_ROOT:-$root/build}
[[ $build_root == /* ]] || build_root=$root/$build_root
build=$build_root/release demo=$build_root/demo work=$build_root/quickstart
python=''
daemon_pid='' step=start
mkdir -p "$work"
log=$work/daemon.log

stop_daemon() { # the daemon's exit status
    [ -n "$daemon_pid" ] || return 0
    local pid=$daemon_pid status=0
    daemon_pid=
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" || status=$?
    return "$status"
}
on_exit() {
    local status=$?
    trap - EXIT
    if [ "$status" -ne 0 ]; then
        echo >&2
        echo "quickstart failed while: $step" >&2
        if [ "$step" = "building" ] && [ -s "$work/build.log" ]; then
            tail -n 30 "$work/build.log" >&2
        elif [ -s "$log" ]; then
            echo "end of the daemon's log ($log):" >&2
            tail -n 20 "$log" >&2
        fi
    fi
    stop_daemon || true
    exit "$status"
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
say() {
    step=$1
    echo "== $1"
}

rm -f "$log" "$work/build.log"
step="installing packages"
dk_install_dependencies build
python=$(dk_python)

say "building"
build() {
    local targets=(decomposekd decomposek-cli)
    cmake --preset release -B "$build" || return 1
    # The plugin takes a while to compile: only where there is a device for it.
    if [ -e /dev/nvidiactl ] && cmake --build "$build" --target help | grep -q '^decomposek_cuda:'; then
        targets+=(decomposek_cuda)
    fi
    cmake --build "$build" --target "${targets[@]}"
}
build >"$work/build.log" 2>&1 || exit 1
daemon=$build/bin/decomposekd cli=$build/bin/decomposek
echo "   $("$daemon" --version) in $build/bin"

say "making the demo checkpoint"
tensor=model.layers.3.mlp.gate.weight
if ! [ -s "$demo/model.safetensors.index.json" ]; then
    rm -rf "$demo.part" "$demo"
    "$cli" demo-checkpoint "$demo.part" >"$work/demo.log" 2>&1 || {
        cat "$work/demo.log" >&2
        false
    }
    mv "$demo.part" "$demo"
fi
weights=$demo/$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["weight_map"][sys.argv[2]])' \
    "$demo/model.safetensors.index.json" "$tensor")
"$cli" check "$weights" >"$work/check.log" || {
    cat "$work/check.log" >&2
    false
}
echo "   $weights"

say "starting the daemon"
if [ -z "$port" ]; then
    port=$("$python" - <<'PYTHON'
import socket
for wanted in (8000, 0):
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", wanted))
        except OSError:
            continue
        print(sock.getsockname()[1])
        break
PYTHON
    )
fi
url=http://127.0.0.1:$port
command=("$daemon" --host 127.0.0.1 --port "$port" --model "gate=$weights,tensor=$tensor")
echo "   ${command[*]}"
if [ -n "$keep" ]; then # a session of its own: closing this terminal must not end it
    log=$work/daemon-$port.log # its own, appended: another quickstart must not take it away
    setsid "${command[@]}" >>"$log" 2>&1 </dev/null &
else
    "${command[@]}" >"$log" 2>&1 </dev/null &
fi
daemon_pid=$!
ready=''
for _ in $(seq 600); do
    if ! kill -0 "$daemon_pid" 2>/dev/null; then
        echo "the daemon ended before it was ready" >&2
        exit 1
    fi
    # Another program on that port could answer, but not name our model.
    if curl -fsS "$url/v2/health/ready" >/dev/null 2>&1 && curl -fsS "$url/v1/models" 2>/dev/null | grep -q '"gate"'; then
        ready=1
        break
    fi
    sleep 0.1
done
[ -n "$ready" ] || {
    echo "the daemon was not ready within 60 s" >&2
    exit 1
}
grep 'backend=' "$log" | tail -n 1 | sed 's/^/   /' || true

say "asking"
curl -fsS "$url/v1/plans" -o "$work/plans.json"
one_liner="$python -c 'import json; print(json.dumps({\"model\": \"gate\", \"x\": [[1.0] * 7168]}))' | curl -sS -H 'Content-Type: application/json' -d @- $url/v1/matmul"
echo "$one_liner"
eval "$one_liner" >"$work/one.json"
"$python" - "$work/one.json" <<'PYTHON'
import json, sys
answer = json.load(open(sys.argv[1]))
if answer.get("shape") != [1, 256]:
    sys.exit(f"unexpected answer: {str(answer)[:300]}")
text = open(sys.argv[1]).read()
print("  " + text[:110] + " ... " + text[text.index('"timing_us"'):].strip())
PYTHON
for t in 1 17 256; do
    x=$work/x-$t.npy body=$work/body-$t.json
    "$python" deploy/check_answer.py make "$t" 7168 "$t" "$x" "$body"
    echo "T=$t, JSON by curl:"
    code=$(curl -sS -o "$work/answer-$t.json" -w '%{http_code} %{time_total}' -H 'Content-Type: application/json' --data-binary "@$body" "$url/v1/matmul")
    if [ "${code%% *}" != 200 ]; then
        echo "HTTP ${code%% *}: $(head -c 500 "$work/answer-$t.json")" >&2
        exit 1
    fi
    "$python" deploy/check_answer.py check "$weights" "$tensor" "$x" "$work/answer-$t.json" --plans "$work/plans.json"
    echo "  curl took ${code##* } s for a body of $(stat -c %s "$body") bytes"
    echo "T=$t, raw by decomposek infer:"
    "$cli" infer --url "$url" --model gate --json --output "$work/y-$t.npy" "$x" >"$work/cli-$t.json"
    "$python" deploy/check_answer.py check "$weights" "$tensor" "$x" "$work/cli-$t.json" --values "$work/y-$t.npy" --plans "$work/plans.json"
done

say "latency by shape and bucket, from $url/metrics"
curl -fsS "$url/metrics" -o "$work/metrics.txt"
# The sum and count of each histogram that has seen a request.
awk '/^decomposek_(request|kernel)_duration_seconds_sum\{.*shape="7168x256"/ { sum = $0 }
    /^decomposek_(request|kernel)_duration_seconds_count\{.*shape="7168x256"/ && $2 > 0 { print "   " sum; print "   " $0 }' "$work/metrics.txt"

if [ -n "$keep" ]; then
    echo "$daemon_pid" >"$work/daemon.pid"
    say "it keeps running"
    echo "   pid $daemon_pid, $url, log $log"
    echo "   stop it with: kill $daemon_pid"
    daemon_pid=
    exit 0
fi
say "stopping"
status=0
stop_daemon || status=$?
if [ "$status" -ne 0 ]; then
    echo "the daemon ended with status $status" >&2
    exit 1
fi
echo "   the daemon ended with status 0; every answer was within the bound"
