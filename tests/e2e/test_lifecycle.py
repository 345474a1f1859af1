"""Start, reload, drain and end: C68, C69, C70 and SIGHUP."""

import errno
import os
import re
import shutil
import signal
import socket
import threading
import time

import numpy as np
import pytest

from support import weights_file
from support.daemon import PATIENCE, Daemon, eventually
from support.http import Client

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'


# --- C68 --------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_c68_drain_loses_no_request(start, models, number):
    daemon = start("--backend=cpu", "--max-tokens=64", "--drain-grace-ms=1000", model_names=("exact", "gate"))
    body = weights_file.encode(models["gate"].rows(4), "bf16")
    expected = daemon.post_raw(body, "model=gate").body
    events, stop = [], threading.Event()

    def work():
        client = daemon.client()
        while not stop.is_set():
            began = time.monotonic()
            try:
                reply = client.post_raw(body, "model=gate")
                events.append((began, reply.status, reply.body == expected))
            except (OSError, Exception) as error:  # noqa: BLE001 - the kind is judged below
                events.append((began, type(error).__name__, error))
                client.close()
                if not isinstance(error, ConnectionRefusedError):
                    continue
                return

    def watch():
        with daemon.client() as client:
            while not stop.is_set():
                try:
                    readiness.append((time.monotonic(), client.get("/v2/health/ready").status))
                except OSError:
                    return
                time.sleep(0.005)

    readiness = []
    threads = [threading.Thread(target=work) for _ in range(8 if PATIENCE > 1 else 32)] + [threading.Thread(target=watch)]
    [thread.start() for thread in threads]
    time.sleep(0.5 * PATIENCE)
    daemon.process.send_signal(number)
    signalled = time.monotonic()
    status = daemon.wait_exit(20)
    stop.set()
    [thread.join() for thread in threads]
    assert status == 0, daemon.log()[-2000:]
    answers = [event for event in events if isinstance(event[1], int)]
    assert {status for _, status, _ in answers} <= {200, 503}, {status for _, status, _ in answers}
    assert all(same for _, status, same in answers if status == 200), "a wrong answer while draining"
    assert any(began > signalled and status == 200 for began, status, _ in answers), "nothing was served in the grace period"
    assert any(at > signalled and status == 503 for at, status in readiness), "ready never turned 503"
    # A request may meet a closed port, never an answer cut in the middle.
    kinds = {kind for _, kind, _ in events if not isinstance(kind, int)}
    assert kinds <= {"ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected", "BrokenPipeError"}, kinds
    early = [event for event in events if not isinstance(event[1], int) and event[0] < signalled + 0.5]
    assert not early, f"refused within the grace period: {early[:3]}"
    daemon.check_log()


def test_c68_a_signal_right_after_listen_is_a_clean_stop(start):
    """Once the port answers, SIGTERM must find a handler: never death by signal with the work of the start left behind."""
    for _ in range(20):
        daemon = start("--backend=cpu", "--drain-grace-ms=0", ready=False)
        deadline = time.monotonic() + 20 * PATIENCE
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", daemon.port)) == 0:
                    break
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait_exit(20) == 0, daemon.log()[-2000:]


@pytest.mark.sanitizer
def test_c68_second_signal_ends_it_at_once(start):
    daemon = start("--backend=cpu", "--drain-grace-ms=60000")
    daemon.process.send_signal(signal.SIGTERM)
    eventually(lambda: daemon.get("/v2/health/ready").status == 503, 5, "ready is 503")
    assert daemon.get("/v2/health/live").status == 200
    assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait_exit(5) != -signal.SIGKILL
    with pytest.raises(OSError):
        daemon.get("/v2/health/live")


def test_c68_a_stuck_client_does_not_hold_the_drain_for_ever(start):
    daemon = start("--backend=cpu", "--drain-grace-ms=100", "--drain-limit-ms=1500")
    sock = socket.create_connection(("127.0.0.1", daemon.port))
    sock.sendall(b"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    time.sleep(0.2)
    began = time.monotonic()
    status = daemon.stop(seconds=15)
    assert status in (0, 1) and time.monotonic() - began < 10 * PATIENCE
    sock.close()


def test_c68_own_files_are_removed(start, tmp_path):
    path = tmp_path / "http.sock"
    daemon = start("--backend=cpu", f"--http-socket={path}")
    assert path.is_socket()
    daemon.stop_cleanly()
    assert not path.exists()


# --- C69 --------------------------------------------------------------------------------------------------------------


def over_unix(path):
    with Client(unix_path=str(path), timeout=10 * PATIENCE) as client:
        reply = client.post_json(GOOD)
        assert reply.status == 200, reply
        return reply.json()["y"]


@pytest.mark.sanitizer
def test_c69_unix_socket_serves_with_its_mode(start, tmp_path):
    path = tmp_path / "http.sock"
    daemon = start("--backend=cpu", f"--http-socket={path}", "--http-socket-mode=0600")
    assert path.stat().st_mode & 0o777 == 0o600
    assert over_unix(path) == [[60, 70, 80]]
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_c69_stale_socket_is_replaced(start, tmp_path):
    path = tmp_path / "http.sock"
    first = start("--backend=cpu", f"--http-socket={path}")
    first.process.kill()
    first.process.wait()
    assert path.is_socket()
    second = start("--backend=cpu", f"--http-socket={path}")
    assert over_unix(path) == [[60, 70, 80]]
    second.stop_cleanly()


@pytest.mark.sanitizer
def test_c69_live_socket_is_not_stolen(start, tmp_path):
    path = tmp_path / "http.sock"
    first = start("--backend=cpu", f"--http-socket={path}")
    inode = path.stat().st_ino
    second = start("--backend=cpu", f"--http-socket={path}", ready=False)
    assert second.wait_exit(5) == 1
    assert "http.sock" in second.log()
    assert path.stat().st_ino == inode and over_unix(path) == [[60, 70, 80]]
    first.stop_cleanly()


@pytest.mark.parametrize("kind", ["file", "symlink", "symlink to a socket", "folder"])
def test_c69_what_is_no_socket_is_never_removed(start, tmp_path, kind):
    path, target = tmp_path / "thing", tmp_path / "target"
    if kind == "file":
        path.write_text("precious")
    elif kind == "symlink":
        target.write_text("precious")
        path.symlink_to(target)
    elif kind == "symlink to a socket":
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(target))
        stale.close()
        path.symlink_to(target)
    else:
        path.mkdir()
    before = os.lstat(path)
    daemon = start("--backend=cpu", f"--http-socket={path}", ready=False)
    assert daemon.wait_exit(5) in (1, 2) and "thing" in daemon.log()
    after = os.lstat(path)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    if target.exists() and kind == "symlink":
        assert target.read_text() == "precious"


def test_c69_of_ten_starters_exactly_one_wins(start, tmp_path):
    path = tmp_path / "http.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    racers = [start("--backend=cpu", "--threads=1", f"--http-socket={path}", ready=False) for _ in range(10)]
    eventually(lambda: sum(racer.process.poll() is None for racer in racers) == 1, 20, "nine gave up")
    winner = next(racer for racer in racers if racer.process.poll() is None)
    assert all(racer.process.returncode == 1 for racer in racers if racer is not winner)
    winner.wait_ready()
    assert over_unix(path) == [[60, 70, 80]]
    winner.stop_cleanly()


# --- C70 --------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_c70_second_instance_on_a_port_fails_fast(start, host):
    first = start("--backend=cpu", f"--host={host}", ready=False)
    eventually(lambda: is_ready(host, first.port), 20, "first instance is ready")
    began = time.monotonic()
    # A weights file that does not exist: the port must be refused before anything is loaded.
    second = start("--backend=cpu", f"--host={host}", "--model=late=/nonexistent.safetensors", ready=False, port=first.port)
    assert second.wait_exit(5) == 1
    assert time.monotonic() - began < 2 * PATIENCE
    text = second.log()
    assert str(first.port) in text and os.strerror(errno.EADDRINUSE) in text and "nonexistent" not in text.split("error", 1)[-1], text
    assert first.process.poll() is None
    first.stop_cleanly()


def is_ready(host, port):
    try:
        with Client(host, port, timeout=5) as client:
            return client.get("/v2/health/ready").status == 200
    except OSError:
        return False


@pytest.mark.sanitizer
def test_c70_restart_right_after_a_crash_works(start):
    first = start("--backend=cpu")
    with first.client() as client:
        assert client.post_json(GOOD).status == 200  # a connection that ends in TIME_WAIT on the daemon's side
        first.process.kill()
        first.process.wait()
    second = start("--backend=cpu", port=first.port)
    assert second.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    second.stop_cleanly()


def test_port_0_is_picked_and_logged(models, tmp_path):
    daemon = Daemon([models["exact"].flag, "--port=0", "--backend=cpu"], log_path=tmp_path / "log", flags=False)
    try:
        found = eventually(lambda: re.search(r"port=\"?(\d+)|127\.0\.0\.1:(\d+)", daemon.log()), 20, "the port in the log")
        daemon.port = int(found.group(1) or found.group(2))
        assert daemon.port > 0
        daemon.wait_ready()
        assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
        daemon.stop_cleanly()
    finally:
        daemon.kill()


# --- reload -----------------------------------------------------------------------------------------------------------


def test_health_before_the_models_are_loaded(tmp_path, models):
    """live at once, ready only when models serve: seen by polling from the first moment on."""
    daemon = Daemon([models["gate"].flag, "--backend=cpu"], log_path=tmp_path / "log")
    seen = set()
    try:
        deadline = time.monotonic() + 20 * PATIENCE
        while time.monotonic() < deadline and (200 not in seen):
            try:
                with daemon.client() as client:
                    status = client.get("/v2/health/ready").status
                    seen.add(status)
                    if status == 503:
                        assert client.get("/v2/health/live").status == 200
                    else:
                        assert len(client.get("/v1/models").json()["models"]) == 1
            except OSError:
                pass
        assert 200 in seen and seen <= {200, 503}, seen
        daemon.stop_cleanly()
    finally:
        daemon.kill()


@pytest.mark.sanitizer
def test_sighup_reloads_and_a_bad_file_keeps_the_old(start, tmp_path, models):
    path, new = tmp_path / "live.safetensors", tmp_path / "new.safetensors"
    shutil.copy(models["exact"].path, path)
    daemon = start(f"--model=live={path},tensor=w", "--backend=cpu")

    def ask():
        return daemon.post_json('{"model":"live","x":[[1,0,0,0]]}').json()["y"]

    first = ask()
    reloads, failures = daemon.metric("decomposek_reloads_total"), daemon.metric("decomposek_reload_failures_total")
    weights_file.write(new, {"w": (np.full((3, 4), 7), "fp32")})
    os.replace(new, path)
    assert ask() == first, "nobody asked for a reload yet"
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: ask() == [[7, 7, 7]], 10, "the new weights serve")
    eventually(lambda: daemon.metric("decomposek_reloads_total") > reloads, 10, "the reload is counted")
    for bad in (b"", b"garbage" * 10, (tmp_path / "live.safetensors").read_bytes()[:-3]):
        new.write_bytes(bad)
        os.replace(new, path)
        daemon.process.send_signal(signal.SIGHUP)
        failures += 1
        eventually(lambda: daemon.metric("decomposek_reload_failures_total") == failures, 10, "the failure is counted")
        assert ask() == [[7, 7, 7]] and daemon.get("/v2/health/ready").status == 200
    assert "live.safetensors" in daemon.log()
    daemon.check_alive()
    daemon.stop_cleanly()


def test_sighup_under_load_answers_with_old_or_new_never_a_mix(start, tmp_path):
    path = tmp_path / "live.safetensors"
    versions = [np.full((64, 512), value, np.float32) for value in (1, 2)]

    def publish(version):
        weights_file.write(tmp_path / "next", {"w": (versions[version], "fp32")})
        os.replace(tmp_path / "next", path)

    publish(0)
    daemon = start(f"--model=live={path},tensor=w", "--backend=cpu", "--max-tokens=64")
    body, stop, wrong = weights_file.encode(np.ones((8, 512)), "fp32"), threading.Event(), []
    allowed = [np.full((8, 64), 512 * value, np.float32).tobytes() for value in (1, 2)]

    def work():
        with daemon.client() as client:
            while not stop.is_set():
                reply = client.post_raw(body, "model=live")
                if reply.status != 200 or reply.body not in allowed:
                    wrong.append(reply)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    for turn in range(20):
        publish((turn + 1) % 2)
        daemon.process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    stop.set()
    [thread.join() for thread in threads]
    assert not wrong, wrong[:2]
    daemon.check_alive()
    daemon.stop_cleanly()
