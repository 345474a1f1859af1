"""C43 on /v2: clients that go away while sending, waiting or reading."""

import random
import socket
import struct
import time

import numpy as np
import pytest

from support import oip
from support.daemon import PATIENCE, eventually
from support.http import connect


def request_bytes(model, x, dtype):
    header, data = oip.binary_body(x, dtype)
    head = f"POST {oip.infer_path(model)} HTTP/1.1\r\nHost: x\r\n{oip.LENGTH_HEADER}: {len(header)}\r\nContent-Length: {len(header) + len(data)}\r\n\r\n"
    return head.encode() + header + data


@pytest.mark.sanitizer
def test_c43_aborts_at_any_point(start, models):
    daemon = start(model_names=("exact", "gate"))
    randomness = random.Random(7)
    small = request_bytes("exact", np.ones((2, 4)), "fp32")
    large = request_bytes("gate", np.ones((64, 7168)), "bf16")
    with daemon.client() as client:
        oip.answer(oip.post_binary(client, "gate", np.ones((64, 7168)), "bf16"))
    fds, rss, count = daemon.fd_count(), None, 1000 if PATIENCE == 1 else 200
    for i in range(count):
        if i == count // 2:
            rss = daemon.rss_bytes()  # by now most buffers that this load needs have been touched
        data = large if i % 10 == 0 else small
        with connect(daemon.port) as sock:
            cut = randomness.randrange(len(data) + 1)
            sock.sendall(data[:cut])
            if randomness.random() < 0.3:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST instead of FIN
            elif cut == len(data) and randomness.random() < 0.5:
                sock.recv(20)
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, what="in flight 0")
    eventually(lambda: daemon.fd_count() <= fds + 2, what="descriptors closed")
    if PATIENCE == 1:
        assert daemon.rss_bytes() - rss < 64 << 20  # a leak of what one upload held would be 400 MB; slopes are for the soak
    daemon.check_alive()
    daemon.stop_cleanly()


def test_c43_queued_job_of_a_client_that_left_is_dropped(start, models):
    """One slow job in front; those behind it are gone before their turn."""
    daemon = start("--threads=1", "--max-tokens=512", model_names=("exact", "gate"))
    slow, queued = request_bytes("gate", np.ones((3000, 7168)), "bf16"), request_bytes("exact", np.ones((2, 4)), "fp32")
    cancelled = lambda: daemon.metric("decomposek_requests_total", model="exact", outcome="cancelled")
    before = cancelled()
    for attempt in range(10):
        with connect(daemon.port) as first:
            first.sendall(slow)
            socks = [connect(daemon.port) for _ in range(5)]
            for sock in socks:
                sock.sendall(queued)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            time.sleep(0.02)
            for sock in socks:
                sock.close()
            assert first.recv(12) == b"HTTP/1.1 200"
        if cancelled() > before:  # else the slow one was done before they left
            break
    else:
        raise AssertionError("no job was dropped")
    executed = daemon.get("/v2/models/exact/stats").json()["model_stats"][0]
    assert executed["inference_stats"]["fail"]["count"] >= cancelled() - before
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, what="in flight 0")
    daemon.check_alive()


@pytest.mark.sanitizer
def test_c43_reader_that_never_reads_holds_no_buffer(start, models):
    """Large answers wait in copies, not in request buffers; others are served."""
    daemon = start("--large-slabs=1", "--max-tokens=256", "--body-timeout-ms=3000", model_names=("exact", "gate"))
    data = request_bytes("gate", np.ones((400, 7168)), "bf16")
    socks = []
    for _ in range(4):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", daemon.port))
        sock.sendall(data)
        socks.append(sock)
        eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, what="answered")
    with daemon.client() as client:
        assert oip.answer(oip.post_binary(client, "gate", np.ones((400, 7168)), "bf16")).shape == (400, 256)
    for sock in socks:
        sock.close()
    daemon.check_alive()
    daemon.stop_cleanly()
