"""The C client library when things end: the daemon killed, stopped, drained, reloaded; and clients killed at any point."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest

from support.cclient import NO_SPIN, Client, Failed, needs_library, over_http, start_ring
from support.daemon import BIN_DIR, PATIENCE, SANITIZER, eventually
from support.notes import note

VICTIM = os.path.join(BIN_DIR, "shm_victim")
KILLS = int(os.environ.get("DK_SHM_KILLS", "200"))


# --- the daemon goes away ----------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize("spin_us", [0, NO_SPIN], ids=["spin", "sleep"])
def test_a_killed_daemon_ends_calls_in_time_and_reconnect_works(start, tmp_path, models, spin_us):
    daemon = start_ring(start, tmp_path, model_names=("exact", "gate"))
    client = Client(daemon.address, timeout_ms=20_000, spin_us=spin_us, data_bytes=64 << 20)
    gate, exact = client.model("gate"), client.model("exact")
    before = exact.infer(np.ones((1, 4)))
    for number in range(1, 9):
        gate.submit(models["gate"].rows(300), number, "bf16")
    daemon.process.kill()
    killed = time.monotonic()
    ends = []
    while client.info.in_flight:
        ends += client.wait()
    assert time.monotonic() - killed < 10  # far below the timeout of 20 s
    assert [number for number, _, _ in ends] == list(range(1, 9))
    statuses = [status for _, status, _ in ends]
    assert "UNAVAILABLE" in statuses and set(statuses) <= {"OK", "UNAVAILABLE"}
    for call in (lambda: exact.infer(np.ones((1, 4))), client.models, lambda: client.model("gate"), client.reconnect):
        with pytest.raises(Failed) as failed:
            call()
        assert failed.value.status == "UNAVAILABLE"
    daemon.wait_exit()
    start_ring(start, tmp_path, model_names=("exact", "gate"))  # replaces the stale socket
    client.reconnect()
    assert (exact.infer(np.ones((1, 4))) == before).all() and client.info.session_count == 2
    client.close()


@needs_library
def test_a_reconnecting_client_survives_a_restart_by_itself(start, tmp_path):
    daemon = start_ring(start, tmp_path)
    with Client(daemon.address, is_reconnecting=True) as client:
        exact = client.model("exact")
        before = exact.infer(np.ones((1, 4)))
        daemon.process.kill()
        daemon.wait_exit()
        start_ring(start, tmp_path)
        assert (exact.infer(np.ones((1, 4))) == before).all()


@needs_library
def test_an_http_client_survives_a_restart_by_itself(start):
    daemon = start("--backend=cpu")
    with Client(daemon.url) as client:
        exact = client.model("exact")
        before = exact.infer(np.ones((1, 4)))
        daemon.process.kill()
        daemon.wait_exit()
        with pytest.raises(Failed) as failed:
            exact.infer(np.ones((1, 4)))
        assert failed.value.status == "UNAVAILABLE"
        start("--backend=cpu", port=daemon.port)
        assert (exact.infer(np.ones((1, 4))) == before).all()


@needs_library
def test_a_stopped_daemon_is_a_timeout_and_no_hang(start, tmp_path):
    daemon = start_ring(start, tmp_path)
    with Client(daemon.address) as client:
        exact = client.model("exact")
        daemon.process.send_signal(signal.SIGSTOP)
        eventually(lambda: open(f"/proc/{daemon.pid}/stat").read().rpartition(")")[2].split()[0] == "T", what="the stop")
        try:
            with pytest.raises(Failed) as failed:
                exact.infer(np.ones((1, 4)), timeout_ms=100)
            assert failed.value.status == "TIMEOUT"
            with pytest.raises(Failed) as failed:
                Client(daemon.address, timeout_ms=100)
            assert failed.value.status == "TIMEOUT"
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert exact.infer(np.ones((1, 4))).shape == (1, 3)


@needs_library
def test_c68_a_drain_finishes_what_was_accepted(start, tmp_path, models):
    daemon = start_ring(start, tmp_path, model_names=("gate", "exact"))
    x = models["gate"].rows(64)
    wanted = over_http(daemon, "gate", x, "bf16")
    with Client(daemon.address) as client:
        gate = client.model("gate")
        answered, refused, number = 0, 0, 0
        daemon.process.send_signal(signal.SIGTERM)
        while not refused:
            number += 1
            try:
                gate.submit(x, number, "bf16")
                outcomes = client.wait(20_000)
            except Failed as failed:
                assert failed.status == "UNAVAILABLE", failed
                refused += 1
                continue
            for _, status, value in outcomes:
                assert status in ("OK", "UNAVAILABLE"), value
                if status == "OK":
                    assert value.astype(np.float32).tobytes() == wanted
                    answered += 1
                else:
                    refused += 1
        note(f"shm drain: {answered} answered after SIGTERM, then refused")
    assert daemon.wait_exit() == 0


@needs_library
def test_reloads_while_submitting_lose_nothing(start, tmp_path, models):
    daemon = start_ring(start, tmp_path, model_names=("exact", "kn"))
    x = models["kn"].rows(3)
    wanted = over_http(daemon, "kn", x, "bf16")
    with Client(daemon.address) as client:
        kn = client.model("kn")
        for number in range(1, 400):
            if number % 20 == 0:
                daemon.process.send_signal(signal.SIGHUP)
            assert kn.infer_bytes(x, "bf16") == wanted
        eventually(lambda: daemon.get("/v1/models").json()["models"][0]["version"] > 1, what="a reload")


# --- clients that are killed -------------------------------------------------------------------------------


def level(daemon):
    with open(f"/proc/{daemon.pid}/maps") as file:
        maps = file.readlines()
    return daemon.fd_count(), len(maps), sum("memfd" in line for line in maps)


def run_victims(daemon, count, *flags, parallel=4, seed=1):
    result = subprocess.run([VICTIM, daemon.address, "kn", str(count), str(seed), str(parallel), *flags], capture_output=True, text=True, timeout=3000 * PATIENCE)
    assert result.returncode == 0, result.stdout + result.stderr
    words = result.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2])))


@pytest.mark.sanitizer
def test_clients_of_every_kind_side_by_side(start, tmp_path):
    daemon = start_ring(start, tmp_path, model_names=("exact", "kn"))
    counts = run_victims(daemon, 12 if SANITIZER else 24, "--live", parallel=6)
    assert counts["bad"] == 0 and counts["failed"] == 0 and counts["completed"] > 1000
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_c43_clients_killed_at_random_points_leave_nothing_behind(start, tmp_path):
    """DK_SHM_KILLS=10000 for the long form."""
    daemon = start_ring(start, tmp_path, model_names=("exact", "kn"))
    run_victims(daemon, 40, parallel=8)  # warm: allocator, log, thread stacks
    eventually(lambda: daemon.metric("decomposek_shm_sessions") == 0, what="no session")
    daemon.get("/metrics")
    time.sleep(0.2)
    before, rss_before = level(daemon), daemon.rss_bytes()
    began = time.monotonic()
    counts = run_victims(daemon, KILLS, seed=2)
    seconds = time.monotonic() - began
    assert counts["bad"] == 0 and counts["completed"] > 0
    eventually(lambda: daemon.metric("decomposek_shm_sessions") == 0 and daemon.metric("decomposek_shm_bytes") == 0, what="no session")
    eventually(lambda: level(daemon)[0] <= before[0] and level(daemon)[2] == 0, what=f"descriptors and mappings of the start, {before}")
    after, rss_after = level(daemon), daemon.rss_bytes()
    note(f"shm kill loop: {KILLS} clients killed in {seconds:.1f} s, {counts['opened']} sessions, {counts['completed']} requests; "
         f"descriptors {before[0]} -> {after[0]}, mappings {before[1]} -> {after[1]}, RSS {rss_before >> 10} -> {rss_after >> 10} KiB")
    assert after[1] <= before[1] + 4  # the allocator may split one of its own
    if not SANITIZER:
        assert rss_after - rss_before < 8 << 20
    daemon.check_alive()
    with_client = run_victims(daemon, 4, "--live")
    assert with_client["failed"] == 0
    daemon.stop_cleanly()
