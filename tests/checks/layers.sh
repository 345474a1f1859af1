#!/usr/bin/env bash
# The direction of dependency, read off the #include lines: proto <- kernels <- server, proto <- client.
# Usage: layers.sh [ROOT]       check the tree
#        layers.sh --self-test  show that planted violations are found
set -euo pipefail

# folder_of_layer -> extended regular expression of the quoted includes it may have.
declare -A allowed_quoted=(
    [proto]='^proto/'
    [kernels]='^(proto/|kernels/|decomposek\.h$)'
    [server]='^(proto/|server/|decomposek\.h$)'
    [client]='^(proto/|client/|decomposek_client\.h$)'
)
# folder_of_layer -> extended regular expression of the system headers it must not have.
gpu='cuda|cublas|cooperative_groups|nv/|cub/|thrust/|cutlass/|mma\.h'
declare -A forbidden_system=(
    [proto]="^($gpu|microhttpd|uv\.h|curl/|cblas|pthread|threads\.h|sys/socket|sys/mman|netinet/|arpa/|fcntl|unistd|poll\.h)"
    [kernels]="^($gpu|microhttpd|uv\.h|curl/|cjson/|cJSON|sys/socket|netinet/|arpa/)"
    [kernels/cuda]='^(microhttpd|uv\.h|curl/|cjson/|cJSON|sys/socket|netinet/|arpa/|cblas)'
    [server]="^($gpu|curl/|cblas)"
    [client]="^($gpu|microhttpd|uv\.h|cblas)"
)

# Print "FILE:LINE: reason" for each forbidden include under $1.
list_violations() {
    local root=$1 layer file
    for layer in proto kernels server client; do
        [ -d "$root/$layer" ] || continue
        while IFS= read -r -d '' file; do
            list_file_violations "$layer" "$file"
        done < <(find "$root/$layer" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \
            -o -name '*.hpp' -o -name '*.def' -o -name '*.inc' -o -name '*.S' \) -print0 | sort -z)
    done
}

list_file_violations() {
    local layer=$1 file=$2 number line target system=$1
    case $file in */kernels/cuda/*) system=kernels/cuda ;; esac
    while IFS=: read -r number line; do
        if [[ $line =~ ^[[:space:]]*\#[[:space:]]*include(_next)?[[:space:]]*\"([^\"]*)\" ]]; then
            target=${BASH_REMATCH[2]}
            if [[ $target == *..* ]]; then
                echo "$file:$number: \"$target\" goes up a folder; write it from the repository root"
            elif [[ ! $target =~ ${allowed_quoted[$layer]} ]]; then
                echo "$file:$number: $layer/ must not include \"$target\""
            fi
        elif [[ $line =~ ^[[:space:]]*\#[[:space:]]*include(_next)?[[:space:]]*\<([^\>]*)\> ]]; then
            target=${BASH_REMATCH[2]}
            if [[ $target =~ ^(proto|kernels|server|client|tests)/ || $target == decomposek* || $target == *..* ]]; then
                echo "$file:$number: <$target> is ours: use quotes"
            elif [[ $target =~ ${forbidden_system[$system]} ]]; then
                echo "$file:$number: $system/ must not include <$target>"
            fi
        else
            echo "$file:$number: an include that this check cannot read: $line"
        fi
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' "$file" || true)
}

# plant FILE LINE WANT: a tree with only this include must be refused (WANT=bad) or accepted (WANT=good).
plant() {
    local tree found
    tree=$(mktemp -d)
    mkdir -p "$tree/$(dirname "$1")"
    printf '/* planted */\n%s\n' "$2" >"$tree/$1"
    found=$(list_violations "$tree")
    rm -rf "$tree"
    if [ "$3" = bad ] && [ -z "$found" ]; then
        echo "layers self-test: not found: $1: $2"
        return 1
    fi
    if [ "$3" = good ] && [ -n "$found" ]; then
        echo "layers self-test: refused though allowed: $found"
        return 1
    fi
}

self_test() {
    local failed=0
    while IFS='|' read -r file line want; do
        plant "$file" "$line" "$want" || failed=1
    done <<'CASES'
proto/a.c|#include "kernels/backend.h"|bad
proto/a.c|#include "server/log.h"|bad
proto/a.c|#include "decomposek.h"|bad
proto/a.h|#include <pthread.h>|bad
proto/a.h|#include <cuda_runtime.h>|bad
proto/a.c|#include <cjson/cJSON.h>|good
kernels/a.c|#include "server/log.h"|bad
kernels/cpu/a.c|#include "client/http_client.h"|bad
kernels/cpu/a.c|#include <cuda_runtime.h>|bad
kernels/cpu/a.c|#include <microhttpd.h>|bad
kernels/cuda/a.cu|#include <cuda_runtime.h>|good
kernels/cuda/a.cu|#include "kernels/backend.h"|good
kernels/cuda/a.cuh|#  include "server/config.h"|bad
server/a.c|#include "kernels/backend.h"|bad
server/a.c|#include "client/http_client.h"|bad
server/a.c|#include "tests/unit/x.h"|bad
server/a.c|#include "../kernels/backend.h"|bad
server/a.c|#include <kernels/backend.h>|bad
server/a.c|#include "log.h"|bad
server/a.c|#include <cublas_v2.h>|bad
server/a.c|#include "decomposek.h"|good
server/a.c|#include "proto/status.h"|good
client/cli/a.c|#include "server/log.h"|bad
client/cli/a.c|#include "decomposek.h"|bad
client/cli/a.c|#include <curl/curl.h>|good
client/a.c|#include SOME_MACRO|bad
CASES
    [ "$failed" -eq 0 ] && echo "layers self-test: every planted include judged right"
    return "$failed"
}

if [ "${1:-}" = --self-test ]; then
    self_test
    exit
fi
root=$(cd "${1:-$(dirname "$0")/../..}" && pwd)
violations=$(list_violations "$root")
if [ -n "$violations" ]; then
    echo "$violations"
    exit 1
fi
echo "layers: no forbidden include"
