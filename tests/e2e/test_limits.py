"""Bounded resources: what is used up is answered 503 with Retry-After, and comes back; limits are named."""

import numpy as np
import pytest

from support import weights_file
from support.daemon import eventually
from support.http import ReplyReader, connect

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'


def busy(reply):
    assert reply.status == 503 and reply.json()["status"] == "BUSY" and int(reply.header("retry-after")) >= 1, reply


def half_sent(daemon, length, sent):
    """A raw request for model gate whose body stops half way: it holds what its bytes needed so far."""
    sock = connect(daemon.port)
    sock.sendall(f"POST /v1/matmul?model=gate HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n".encode() + b"\0" * sent)
    return sock


@pytest.mark.sanitizer
def test_large_buffers_used_up_are_503_and_come_back(start, models):
    daemon = start("--backend=cpu", "--max-tokens=64", "--large-slabs=1", "--small-slabs=1", "--small-slab-rows=8", f"--max-body-bytes={32 << 20}", model_names=("exact", "gate"))
    row = models["gate"].k * 2
    holder = half_sent(daemon, row * 200, row * 150)
    eventually(lambda: daemon.metric("decomposek_slabs_large_used") == 1, 10, "the large buffer is taken")
    body = weights_file.encode(models["gate"].rows(200), "bf16")
    busy(daemon.post_raw(body, "model=gate"))
    busy(daemon.post_json({"model": "gate", "x": models["gate"].rows(200).tolist()}))
    assert daemon.post_json(GOOD).status == 200, "small requests do not need a large buffer"
    refused = daemon.metric("decomposek_http_refused_total")
    assert refused >= 2
    holder.close()
    eventually(lambda: daemon.metric("decomposek_slabs_large_used") == 0, 10, "the large buffer is free again")
    assert daemon.post_raw(body, "model=gate").status == 200
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_too_many_in_flight_are_503_with_retry_after(start, models):
    """One job at a time: of many sent at once some are computed, the rest are told to come again."""
    daemon = start("--backend=cpu", "--max-tokens=64", "--max-in-flight=1", "--queue-depth=1", "--large-slabs=1", model_names=("exact", "gate"))
    body = weights_file.encode(models["gate"].rows(64), "bf16")
    head = f"POST /v1/matmul?model=gate HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nAccept: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    expected = daemon.post_raw(body, "model=gate").body
    found = {200: 0, 503: 0}
    for _ in range(10):
        sockets = [connect(daemon.port) for _ in range(12)]
        for sock in sockets:
            sock.sendall(head + body[:-1])
        for sock in sockets:
            sock.sendall(body[-1:])
        for sock in sockets:
            reply = ReplyReader(sock).read()
            found[reply.status] += 1
            if reply.status == 200:
                assert reply.body == expected
            else:
                busy(reply)
            sock.close()
    assert found[200] > 0 and found[503] > 0, found
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, 10, "none in flight")
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_ad_hoc_products_have_their_limit(start):
    daemon = start("--backend=cpu", "--max-tokens=16", "--adhoc-max-bytes=64KiB")
    small = {"a": [[1.0] * 64], "b": [[1.0] * 8] * 64}
    assert daemon.post_json(small).json()["y"] == [[64.0] * 8]
    reply = daemon.post_json({"a": [[1.0] * 1000], "b": [[1.0] * 300] * 1000})
    assert reply.status == 413 and reply.json()["status"] == "TOO_LARGE", reply
    assert daemon.post_json(small).json()["y"] == [[64.0] * 8]
    daemon.check_alive()
    daemon.stop_cleanly()


def test_ad_hoc_products_can_be_switched_off(start):
    daemon = start("--backend=cpu", "--adhoc-max-bytes=0")
    reply = daemon.post_json({"a": [[1]], "b": [[1]]})
    assert reply.status == 403 and reply.json()["status"] == "FORBIDDEN", reply
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_more_rows_than_the_small_buffers_hold_move_up(start, models):
    """A body starts in a small buffer and moves to a larger one as it grows: the bits must not change."""
    daemon = start("--backend=cpu", "--max-tokens=64", "--small-slab-rows=4", "--small-slabs=2", "--large-slabs=2", f"--max-body-bytes={16 << 20}", model_names=("exact", "gate"))
    gate = models["gate"]
    x = gate.rows(70)
    whole = np.frombuffer(daemon.post_raw(weights_file.encode(x, "bf16"), "model=gate").body, np.float32).reshape(70, -1)
    for t in (1, 2, 4, 5, 9, 70):
        raw = daemon.post_raw(weights_file.encode(x[:t], "bf16"), "model=gate")
        assert raw.status == 200 and raw.body == whole[:t].tobytes(), t
        for members in ({"model": "gate", "x": x[:t].tolist()}, {"x": x[:t].tolist(), "model": "gate"}):
            reply = daemon.post_json(members, headers={"Accept": "application/octet-stream"})
            assert reply.status == 200 and reply.body == whole[:t].tobytes(), (t, list(members))
    daemon.stop_cleanly()
