#!/usr/bin/env bash
# image.sh: build the target `cpu` of deploy/Dockerfile and run it as a restricted pod would (C74): read-only root, a uid
# that nobody knows, no environment, no capabilities. As root on Debian, with debootstrap, buildah and bubblewrap; takes
# minutes, so tests/run.sh leaves it out. No registry is asked: the base image is made here.
#
#   bash tests/deploy/image.sh [--base DIR]    # DIR: what `debootstrap --variant=minbase bookworm DIR` made; kept
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
base=''
[ "${1:-}" != --base ] || base=${2:?a folder}
work=$(mktemp -d)
pid=''
cleanup() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    buildah umount -a >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "image: $1" >&2
    exit 1
}
for tool in debootstrap buildah bwrap curl; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install -y debootstrap buildah crun bubblewrap curl"
done

printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/graph"\nrunroot = "%s/run"\n' "$work" "$work" >"$work/storage.conf"
export CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot
if [ -z "$base" ]; then
    base=$work/base
    debootstrap --variant=minbase bookworm "$base" >"$work/debootstrap.log" || fail "debootstrap failed: $(tail -n 3 "$work/debootstrap.log")"
fi
printf 'FROM scratch\nADD . /\nCMD ["/bin/sh"]\n' >"$work/base.Dockerfile"
buildah bud -q -f "$work/base.Dockerfile" -t docker.io/library/debian:bookworm-slim "$base" >/dev/null
buildah bud --pull-never --ignorefile deploy/Dockerfile.dockerignore -f deploy/Dockerfile --target cpu -t decomposek:cpu . \
    >"$work/build.log" 2>&1 || fail "the build failed: $(tail -n 20 "$work/build.log")"
container=$(buildah from --pull-never decomposek:cpu)
image=$(buildah mount "$container")
buildah inspect --type image decomposek:cpu | python3 -c '
import json, sys
config = json.load(sys.stdin)["OCIv1"]["config"]
assert config["User"] == "10001:10001" and config["Entrypoint"] == ["/usr/bin/decomposekd"], config'

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$work/weights"
chroot "$image" /usr/bin/decomposek demo-checkpoint --layers 1 /tmp/demo >/dev/null
mv "$image"/tmp/demo/*.safetensors "$work/weights/gate.safetensors"
rm -r "$image/tmp/demo"
chmod 755 "$work" "$work/weights"
chmod 644 "$work/weights/gate.safetensors"
bwrap --unshare-user --uid 1234567 --gid 1234567 --unshare-pid --unshare-ipc --unshare-uts --ro-bind "$image" / --dev /dev --proc /proc \
    --ro-bind "$work/weights" /mnt --clearenv --cap-drop ALL --die-with-parent -- \
    /usr/bin/decomposekd --port "$port" --model=gate=/mnt/gate.safetensors,tensor=model.layers.3.mlp.gate.weight >"$work/daemon.log" 2>&1 &
pid=$!
for _ in $(seq 200); do
    curl -fs -o /dev/null "http://127.0.0.1:$port/v2/health/ready" && break
    kill -0 "$pid" 2>/dev/null || fail "the daemon ended: $(cat "$work/daemon.log")"
    sleep 0.1
done
answer=$(curl -fsS -d '{"a": [[1,2]], "b": [[3],[4]]}' "http://127.0.0.1:$port/v1/matmul") || fail "no answer: $(cat "$work/daemon.log")"
grep -q '"y": *\[\[11\]\]' <<<"$answer" || fail "wrong answer: $answer"
curl -fsS "http://127.0.0.1:$port/v2/models/gate" >/dev/null || fail "the model does not serve"
[ "$(grep -c level=warn "$work/daemon.log")" -le 1 ] || fail "more than one warning: $(cat "$work/daemon.log")"
kill "$(pgrep -P "$(pgrep -P "$pid")")" # bwrap, its init, the daemon
timeout 60 tail --pid="$pid" -f /dev/null || fail "it does not end"
wait "$pid" || fail "it did not end cleanly: $(tail -n 3 "$work/daemon.log")"
pid=''
echo "image: built by $(buildah --version | cut -d' ' -f1-3), $(du -sm "$image" | cut -f1) MB; serves with a read-only root as uid 1234567"
