#!/usr/bin/env bash
# What `cmake --install` lays down is enough: a pkg-config consumer builds and runs, the daemon starts from
# there, and nothing of it needs a CUDA library. Usage: install.sh BUILD_DIR
set -euo pipefail
build=$(cd "${1:?build directory}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
daemon_pid=
cleanup() {
    if [ -n "$daemon_pid" ]; then
        kill "$daemon_pid" 2>/dev/null || true
        wait "$daemon_pid" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "install: $1"
    exit 1
}

prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || fail "cmake --install failed: $(tail -n 5 "$work/install.log")"
for file in bin/decomposekd bin/decomposek; do
    [ -x "$prefix/$file" ] || fail "$file was not installed"
done
pc=$(find "$prefix" -name decomposek.pc)
[ -n "$pc" ] || fail "decomposek.pc was not installed"
libdir=$(dirname "$(dirname "$pc")")
[ -e "$libdir/libdecomposek.so" ] || fail "libdecomposek.so was not installed beside decomposek.pc"
if grep -rIl --include='*.pc' --include='*.h' -e "$build" "$prefix"; then
    fail "an installed file names the build folder"
fi

export PKG_CONFIG_PATH=$libdir/pkgconfig
# The prefix is not the configured one: pkg-config has to relocate it.
read -r -a flags <<<"$(pkg-config --define-prefix --cflags --libs decomposek)"
[ "$(pkg-config --modversion decomposek)" = "$("$prefix/bin/decomposek" --version | awk '{print $NF}')" ] ||
    fail "decomposek.pc and decomposek --version disagree"
mkdir "$work/away" && cd "$work/away"
cc -std=c17 -Wall -Wextra -Werror "$here/consumer/consumer.c" -o consumer "${flags[@]}" || fail "the C consumer does not build"
c++ -std=c++17 -Wall -Wextra -Werror "$here/consumer/consumer.cpp" -o consumer_cpp "${flags[@]}" ||
    fail "the C++ consumer does not build"
LD_LIBRARY_PATH=$libdir ./consumer || fail "the C consumer fails"
LD_LIBRARY_PATH=$libdir ./consumer_cpp || fail "the C++ consumer fails"

# The C client, as a shared library and as an archive.
[ -n "$(find "$prefix" -name decomposek_client.pc)" ] || fail "decomposek_client.pc was not installed"
read -r -a flags <<<"$(pkg-config --define-prefix --cflags --libs decomposek_client)"
read -r -a static_flags <<<"$(pkg-config --define-prefix --static --cflags --libs decomposek_client)"
cc -std=c11 -Wall -Wextra -Werror "$here/consumer/client.c" -o client "${flags[@]}" || fail "the client's C consumer does not build"
c++ -std=c++17 -Wall -Wextra -Werror "$here/consumer/client.cpp" -o client_cpp "${flags[@]}" ||
    fail "the client's C++ consumer does not build"
cc -std=c17 -Wall -Wextra -Werror "$here/consumer/client.c" -o client_static "${static_flags[@]/-ldecomposek_client/-l:libdecomposek_client.a}" ||
    fail "the client's archive does not link"
ldd client_static | grep -q libdecomposek && fail "the static consumer needs a shared library of ours"
LD_LIBRARY_PATH=$libdir ./client_cpp || fail "the client's C++ consumer fails"

for program in "$prefix/bin/decomposekd" "$prefix/bin/decomposek" "$libdir/libdecomposek.so" "$libdir/libdecomposek_client.so"; do
    needed=$(ldd "$program")
    grep -qi 'not found' <<<"$needed" && fail "$program misses a library: $needed"
    grep -qiE 'libcuda|libcublas|libnv' <<<"$needed" && fail "$program needs a CUDA library: $needed"
    readelf -d "$program" | grep -E 'R(UN)?PATH' | grep -q "$build" && fail "$program searches the build folder"
done

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$prefix/bin/decomposekd" --port "$port" --shm-socket "$work/ring.sock" >"$work/daemon.log" 2>&1 &
daemon_pid=$!
for _ in $(seq 100); do
    curl -fsS -o "$work/ready" "http://127.0.0.1:$port/v2/health/ready" 2>/dev/null && break
    kill -0 "$daemon_pid" 2>/dev/null || fail "the installed daemon ended: $(tail -n 5 "$work/daemon.log")"
    sleep 0.1
done
answer=$(curl -fsS -H 'Content-Type: application/json' -d '{"a": [[1,2]], "b": [[3],[4]]}' "http://127.0.0.1:$port/v1/matmul") ||
    fail "the installed daemon does not answer: $(tail -n 5 "$work/daemon.log")"
grep -q '"y": *\[\[11\]\]' <<<"$answer" || fail "wrong answer of the installed daemon: $answer"
for consumer in ./client ./client_static; do
    LD_LIBRARY_PATH=$libdir "$consumer" "unix:$work/ring.sock" "http://127.0.0.1:$port" || fail "$consumer does not reach the installed daemon"
done
kill "$daemon_pid"
wait "$daemon_pid" || fail "the installed daemon did not end cleanly: $(tail -n 5 "$work/daemon.log")"
daemon_pid=
echo "install: consumer, daemon and libraries are right"
