"""The Debian packages: contents, dependencies, and a life from install to purge in a throw-away copy of this system."""

import os
import re
import subprocess

import pytest

from conftest import NOTES, ROOT

NAMES = {"decomposekd", "decomposek", "libdecomposek0", "libdecomposek-client0", "libdecomposek-dev"}


def field(path, name):
    return subprocess.run(["dpkg-deb", "-f", path, name], capture_output=True, text=True, check=True).stdout.strip()


def files(path):
    lines = subprocess.run(["dpkg-deb", "-c", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[5].lstrip("."): (line.split()[0], line.split()[1]) for line in lines}


def test_all_packages_are_there_with_one_version(packages):
    assert NAMES <= set(packages), set(packages)
    version = re.search(r"^project\(decomposek VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
    assert {field(path, "Version") for path in packages.values()} == {version}
    NOTES.append("packages: " + ", ".join(f"{name} {packages[name].stat().st_size // 1024} KB" for name in sorted(NAMES)))


def test_files_belong_to_root_and_none_is_in_two_packages(packages):
    seen = {}
    for name in NAMES:
        for path, (mode, owner) in files(packages[name]).items():
            assert owner == "root/root" and (mode[0] == "l" or (mode[5] != "w" and mode[8] != "w")), (path, mode, owner)
            if not mode.startswith("d"):
                assert path not in seen, f"{path} is in {name} and {seen[path]}"
                seen[path] = name
    for path in ("/usr/bin/decomposekd", "/usr/bin/decomposek", "/lib/systemd/system/decomposekd.service", "/usr/lib/sysusers.d/decomposek.conf",
                 "/usr/lib/tmpfiles.d/decomposek.conf", "/etc/decomposek/decomposekd.conf", "/usr/share/man/man8/decomposekd.8.gz",
                 "/usr/include/decomposek/decomposek.h", "/usr/include/decomposek/decomposek_client.h"):
        assert path in seen, path


def test_dependencies_name_what_the_programs_need(packages, tmp_path):
    """NEEDED of each program, looked up in dpkg's own database, against Depends."""
    for name in ("decomposekd", "decomposek", "libdecomposek0", "libdecomposek-client0"):
        subprocess.run(["dpkg-deb", "-x", packages[name], tmp_path / name], check=True)
        binaries = [path for path in (tmp_path / name).rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
        assert binaries
        needed = set()
        for path in binaries:
            dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
            assert not re.search(r"R(UN)?PATH", dynamic), f"{path} has a run path"
            needed |= set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        depends = {re.match(r"[\w.+-]+", word.strip())[0] for word in re.split(r"[,|]", field(packages[name], "Depends"))}
        for library in needed - {"ld-linux-x86-64.so.2"}:
            owner = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True, check=True).stdout
            owners = {line.split(":")[0] for line in owner.splitlines()}
            assert owners & depends, f"{name} needs {library} of {owners}, depends on {depends}"
    assert field(packages["libdecomposek-dev"], "Depends").startswith("libdecomposek0 (= ")
    assert "/etc/decomposek/decomposekd.conf" in subprocess.run(["dpkg-deb", "-I", packages["decomposekd"], "conffiles"], capture_output=True, text=True, check=True).stdout


# $1: packages, separated by blanks; $2: port. An overlay over this system's root, so that nothing outside changes.
LIFE = r"""
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mount --rbind /proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mkdir /mnt/root/debs
cp $1 /mnt/root/debs/
cat >/mnt/root/life.sh <<'SCRIPT'
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
listing() { find /usr /etc /lib/systemd /var/lib/decomposek /var/cache/decomposek -xdev 2>/dev/null | grep -i decomposek | sort; }
listing >/before || true
dpkg -i /debs/*.deb
echo STEP installed
getent passwd decomposek
getent group decomposek-clients
[ "$(stat -c '%U:%G %a' /run/decomposek)" = "decomposek:decomposek-clients 750" ]
[ "$(stat -c '%U:%G %a' /var/lib/decomposek)" = "root:root 755" ]
dpkg --verify decomposekd decomposek libdecomposek0 libdecomposek-client0 libdecomposek-dev
ldconfig -p | grep libdecomposek.so.0
ldconfig -p | grep libdecomposek_client.so.0
systemd-analyze verify --man=no /lib/systemd/system/decomposekd.service /lib/systemd/system/decomposekd-*.socket
man -l /usr/share/man/man8/decomposekd.8.gz >/dev/null 2>&1 || [ ! -x /usr/bin/man ]
echo STEP files are right
install -d -o decomposek -m 700 /var/cache/decomposek
setpriv --reuid=decomposek --regid=decomposek-clients --init-groups --inh-caps=-all env -i /usr/bin/decomposekd --config /etc/decomposek/decomposekd.conf --port "$1" &
pid=$!
for i in $(seq 300); do curl -fs -o /dev/null "http://127.0.0.1:$1/v2/health/ready" && break; kill -0 $pid; sleep 0.1; done
curl -fsS -d '{"a": [[1,2]], "b": [[3],[4]]}' "http://127.0.0.1:$1/v1/matmul" | grep '"y": *\[\[11\]\]'
[ "$(stat -c '%U:%G %a' /run/decomposek/http.sock)" = "decomposek:decomposek-clients 660" ]
curl -fsS --unix-socket /run/decomposek/http.sock http://x/v2/health/live
kill $pid
wait $pid
echo STEP served
mkdir /link
cd /link
printf '#include <decomposek.h>\nint main(void) { struct dk_engine *e; return dk_engine_new(0, &e, 0) == DK_OK; }\n' >c.c
cc c.c -o c $(pkg-config --cflags --libs decomposek)
ldd ./c | grep '/lib.*libdecomposek.so.0'
printf 'int main(void) { return 0; }' | cc -xc - -o d $(pkg-config --cflags --libs decomposek_client)
echo STEP linked
echo '# mine' >>/etc/decomposek/decomposekd.conf
dpkg -i /debs/decomposekd_*.deb
grep '# mine' /etc/decomposek/decomposekd.conf
echo STEP upgrade keeps the configuration
dpkg -r decomposekd decomposek libdecomposek-dev libdecomposek0 libdecomposek-client0
[ ! -e /usr/bin/decomposekd ] && [ -e /etc/decomposek/decomposekd.conf ]
dpkg -P decomposekd decomposek libdecomposek-dev libdecomposek0 libdecomposek-client0
! dpkg-query -W -f '${db:Status-Status}\n' decomposekd 2>/dev/null | grep -v not-installed
listing >/after || true
diff /before /after
echo STEP purged
SCRIPT
exec chroot /mnt/root sh /life.sh "$2"
"""


def can_unshare():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs root and mount namespaces")
def test_install_serve_link_upgrade_remove_purge(packages):
    from conftest import free_port

    result = subprocess.run(
        ["unshare", "-m", "-p", "-f", "--kill-child", "sh", "-c", LIFE, "sh", " ".join(str(packages[name]) for name in sorted(NAMES)), str(free_port())],
        capture_output=True, text=True, timeout=240,
    )
    steps = re.findall(r"^STEP (.*)$", result.stdout, re.MULTILINE)
    assert result.returncode == 0 and steps[-1:] == ["purged"], f"after {steps}:\n{result.stdout[-2500:]}\n{result.stderr[-2500:]}"
    NOTES.append("packages: " + ", ".join(steps))
