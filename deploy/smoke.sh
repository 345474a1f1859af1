#!/usr/bin/env bash
# Smoke test of any running decomposekd, from outside: needs curl, and jq or python3. Usage: smoke.sh URL
set -uo pipefail
url=${1:-}
if [ $# -ne 1 ] || [[ $url != http://* && $url != https://* ]]; then
    echo "usage: smoke.sh URL, for example smoke.sh http://127.0.0.1:8000" >&2
    exit 2
fi
url=${url%/}
for program in curl mktemp; do
    command -v "$program" >/dev/null || {
        echo "smoke: $program is missing" >&2
        exit 2
    }
done
# query EXPRESSION: read one value of the JSON on standard input; the same few expressions for both tools.
if command -v jq >/dev/null; then
    query() { jq -rc "$1"; }
elif command -v python3 >/dev/null; then
    query() {
        python3 -c '
import json, re, sys
value = json.load(sys.stdin)
for name, index in re.findall(r"\.([a-z_]+)|\[(\d+)\]", sys.argv[1]):
    value = value[name] if name else value[int(index)]
print(value if isinstance(value, str) else json.dumps(value, separators=(",", ":")))' "$1"
    }
else
    echo "smoke: jq or python3 is missing" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/body" "$work/head"
ok=0 bad=0
result() { # NAME, status of the last command, detail
    if [ "$2" -eq 0 ]; then
        ok=$((ok + 1))
        echo "ok    $1"
    else
        bad=$((bad + 1))
        echo "FAIL  $1: $3"
    fi
}
# ask METHOD PATH [BODY] -> $status, $type, $work/body
ask() {
    local extra=()
    [ $# -ge 3 ] && extra=(-H 'Content-Type: application/json' --data-binary "$3")
    [ "$1" = HEAD ] && extra=(--head)
    local written
    written=$(curl -sS --max-time 30 -o "$work/body" -D "$work/head" -w '%{http_code}|%{content_type}' -X "$1" "${extra[@]}" "$url$2" 2>"$work/error") ||
        written="000|$(head -n 1 "$work/error")"
    status=${written%%|*} type=${written#*|}
}
expect_status() { # NAME STATUS
    [ "$status" = "$2" ]
    result "$1" $? "HTTP $status ($type), expected $2: $(head -c 300 "$work/body" 2>/dev/null)"
}
expect_value() { # NAME EXPRESSION VALUE
    local found
    found=$(query "$2" <"$work/body" 2>&1)
    [ "$found" = "$3" ]
    result "$1" $? "$2 is $found, expected $3: $(head -c 300 "$work/body")"
}
numbers() { # COUNT VALUE
    local text
    printf -v text "%*s" "$1" ""
    text=${text// /$2,}
    echo "[${text%,}]"
}

ask GET /v2/health/live
expect_status "live" 200
if [ "$status" = 000 ]; then
    echo "smoke: nothing answers at $url"
    echo "$ok ok, $bad failed"
    exit 1
fi
ask GET /v2/health/ready
expect_status "ready" 200
ask HEAD /v2/health/live
expect_status "HEAD on live" 200
ask GET /v1/models
expect_status "models" 200
name=$(query '.models[0].name' <"$work/body" 2>/dev/null)
k=$(query '.models[0].k' <"$work/body" 2>/dev/null)
n=$(query '.models[0].n' <"$work/body" 2>/dev/null)

if [[ $k =~ ^[0-9]+$ ]]; then
    ask POST /v1/matmul "{\"model\":\"$name\",\"x\":[$(numbers "$k" 0)]}"
    expect_status "T=1 of model $name" 200
    expect_value "T=1 shape" .shape "[1,$n]"
    ask POST /v1/matmul "{\"model\":\"$name\",\"x\":[$(numbers "$k" 0),$(numbers "$k" 1)],\"epilogue\":\"none\"}"
    expect_status "T=2 of model $name" 200
    expect_value "T=2 shape" .shape "[2,$n]"
    ask POST /v1/matmul "{\"model\":\"$name\",\"x\":[$(numbers $((k + 1)) 1)]}"
    expect_status "a row that is too long is refused" 400
else
    echo "note  no model is served: products of a model are not tried"
fi

ask POST /v1/matmul '{"a":[[1,2,3],[4,5,6]],"b":[[7,8],[9,10],[11,12]]}'
if [ "$status" = 403 ]; then
    echo "note  ad hoc products are switched off here"
else
    expect_status "ad hoc product" 200
    expect_value "ad hoc answer" .y "[[58,64],[139,154]]"
fi

ask POST /v1/matmul '{"model": "exact"'
expect_status "a cut body is refused" 400
query .error <"$work/body" >/dev/null 2>&1
result "the refusal says why" $? "no .error in $(head -c 300 "$work/body")"
ask POST /v1/matmul '{"model":"no-such-model","x":[[1]]}'
expect_status "an unknown model" 404
ask GET /no/such/route
expect_status "an unknown route" 404
ask GET /v1/matmul
expect_status "a wrong method" 405
tr -d '\r' <"$work/head" | grep -qi '^allow:.*POST'
result "the wrong method names POST" $? "no Allow: POST in the answer"

ask GET /metrics
expect_status "metrics" 200
[ "$type" = "text/plain; version=0.0.4; charset=utf-8" ]
result "metrics content type" $? "$type"
grep -q '^decomposek_request_duration_seconds_bucket{' "$work/body"
result "metrics has the request histogram" $? "no decomposek_request_duration_seconds_bucket"

echo "$ok ok, $bad failed"
[ "$bad" -eq 0 ]
