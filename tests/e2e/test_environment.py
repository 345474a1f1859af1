"""C74 and C75: bare environments, read-only file systems, and machines whose GPU cannot be used."""

import os
import shutil
import subprocess

import pytest

from support.daemon import BIN_DIR, DAEMON, SANITIZER, clean_environment

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'
HAS_GPU = os.path.exists("/dev/nvidiactl")


def can_unshare():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


# --- C74 --------------------------------------------------------------------------------------------------------------


def test_c74_empty_environment(start):
    daemon = start("--backend=cpu", prefix=("env", "-i"))
    assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    daemon.stop_cleanly()


@pytest.mark.skipif(not can_unshare(), reason="needs root and mount namespaces")
def test_c74_read_only_root_random_uid_no_home(start, models, tmp_path, tmp_path_factory):
    """As a restricted pod runs it. The namespace has every mount read-only; the daemon and its weights are copied
    to a folder that any uid can read (a checkout under /root could not be reached by uid 12345)."""
    folder = tmp_path / "pod"
    folder.mkdir()
    shutil.copy(DAEMON, folder / "decomposekd")
    weights = shutil.copy(models["exact"].path, folder / "exact.safetensors")
    read_only = (
        "mount --make-rprivate / && mkdir -p /mnt && mount -t tmpfs -o size=64m tmpfs /mnt && cp \"$1\" \"$2\" /mnt/ && chmod 755 /mnt /mnt/* && "
        "mount -o remount,bind,ro /mnt && mount -o remount,bind,ro / && cd / && shift 2 && exec \"$@\""
    )
    daemon = start(
        "--backend=cpu", "--model=exact=/mnt/exact.safetensors,tensor=w",
        model_names=(),
        prefix=("unshare", "-m", "sh", "-c", read_only, "sh", folder / "decomposekd", weights, "setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=-all", "env", "-i"),
        program="/mnt/decomposekd",
    )
    with open(f"/proc/{daemon.pid}/status") as file:
        uids = next(line.split()[1:] for line in file if line.startswith("Uid:"))
    assert set(uids) == {"12345"}
    with open(f"/proc/{daemon.pid}/mounts") as file:
        root = [line.split()[3].split(",") for line in file if line.split()[1] == "/"]
    assert "ro" in root[-1], root
    assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    daemon.stop_cleanly()
    assert daemon.log().lower().count("warn") <= 1, daemon.log()


def test_c74_nothing_is_written_to_the_working_directory(start, tmp_path):
    folder = tmp_path / "cwd"
    folder.mkdir()
    daemon = start("--backend=cpu", cwd=folder, env={"HOME": str(folder), "TMPDIR": str(folder)})
    daemon.post_json(GOOD)
    daemon.stop_cleanly()
    assert list(folder.iterdir()) == []


# --- C75 --------------------------------------------------------------------------------------------------------------


def test_c75_no_program_needs_a_cuda_library():
    for program in os.listdir(BIN_DIR):
        if program in ("decomposekd", "decomposek"):
            needed = subprocess.run(["ldd", os.path.join(BIN_DIR, program)], capture_output=True, text=True, check=True).stdout
            assert "decomposek" not in SANITIZER and not any(word in needed for word in ("libcuda", "libcublas", "libnv")), needed


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
@pytest.mark.parametrize("value", [None, "", "-1", "7", "GPU-00000000-0000-0000-0000-000000000000", "MIG-00000000-0000-0000-0000-000000000000", "garbage"])
def test_c75_auto_serves_on_the_cpu_and_says_so(start, value):
    env = clean_environment()
    env.pop("CUDA_VISIBLE_DEVICES", None)
    if value is not None:
        env["CUDA_VISIBLE_DEVICES"] = value
    daemon = start("--backend=auto", env=env)
    assert daemon.post_json(GOOD).json()["plan"]["backend"] == "cpu"
    lines = [line for line in daemon.log().splitlines() if "backend=cpu" in line]
    assert len(lines) == 1, daemon.log()
    assert "cuda" in lines[0].lower(), f"the line does not say why not cuda: {lines[0]}"
    assert 'backend="cpu"' in daemon.get("/metrics").body.decode()
    assert daemon.get("/v1/plans").json()["engine"]["backend"] == "cpu"
    daemon.stop_cleanly()


@pytest.mark.sanitizer
@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
@pytest.mark.parametrize("plugin", [None, "/nonexistent/libdecomposek_cuda.so", "libc.so.6"])
def test_c75_cuda_required_exits_3_with_the_reason(start, plugin):
    flags = ["--backend=cuda"] + ([f"--cuda-plugin={plugin}"] if plugin else [])
    daemon = start(*flags, ready=False)
    assert daemon.wait_exit(5) == 3, daemon.log()
    text = daemon.log()
    assert "cuda" in text.lower() and text.count("\n") < 20, text
    if plugin:
        assert plugin in text, text
