"""C76, the short form: many requests on few connections, and memory that stays where it was."""

import socket
import struct

import numpy as np
import pytest

from support.daemon import SANITIZER, eventually
from support.http import ReplyReader, connect
from support.notes import note

REQUESTS = 100_000


def pipeline(sock, request, count, answer_bytes):
    """Send `count` equal requests in one go and read as many answers; returns the distinct status lines."""
    sock.sendall(request * count)
    got, statuses = b"", set()
    while count:
        got += sock.recv(1 << 18) or pytest.fail("closed in the middle")
        while count and (end := got.find(b"\r\n\r\n")) >= 0:
            head = got[:end]
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(got) < end + 4 + length:
                break
            statuses.add(head.split(b"\r\n", 1)[0])
            assert length == answer_bytes or answer_bytes is None, head
            got = got[end + 4 + length :]
            count -= 1
    return statuses


@pytest.mark.skipif(bool(SANITIZER), reason="memory of a sanitizer build says nothing")
def test_c76_memory_is_flat_over_100000_requests(start):
    daemon = start("--backend=cpu", "--max-tokens=64", "--large-slabs=1", model_names=("exact", "kn"))
    body = np.zeros(500, np.uint16).tobytes()
    good = (f"POST /v1/matmul?model=kn HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nAccept: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body
    many = (f"POST /v1/matmul?model=kn HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nAccept: application/octet-stream\r\nContent-Length: {len(body) * 3}\r\n\r\n").encode() + body * 3
    text = b'{"model":"exact","x":[[1,2,3,4]]}'
    as_json = (f"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n").encode() + text
    bad_text = b'{"model":"exact","x":[[1,2,3]]}'
    bad = (f"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(bad_text)}\r\n\r\n").encode() + bad_text
    rss, fds, sent = [], [], 0
    sockets = [connect(daemon.port) for _ in range(4)]
    while sent < REQUESTS:
        for index, sock in enumerate(sockets):
            assert pipeline(sock, good, 70, 192) == {b"HTTP/1.1 200 OK"}
            assert pipeline(sock, many, 10, 576) == {b"HTTP/1.1 200 OK"}
            assert pipeline(sock, as_json, 10, None) == {b"HTTP/1.1 200 OK"}
            assert pipeline(sock, bad, 10, None) == {b"HTTP/1.1 400 Bad Request"}
            sent += 100
        if sent % 1000 < 400:  # 1 % go away in the middle, on connections of their own
            gone = connect(daemon.port)
            gone.sendall(good[: len(good) // 2])
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
        rss.append((sent, daemon.rss_bytes()))
        fds.append(daemon.fd_count())
    second_half = [(at, size) for at, size in rss if at > REQUESTS // 2]
    slope = np.polyfit([at for at, _ in second_half], [size for _, size in second_half], 1)[0] * 1000
    note(f"{REQUESTS} requests: RSS {rss[0][1] >> 10} KiB at first, {rss[-1][1] >> 10} KiB at last, slope {slope:.0f} bytes for 1,000; descriptors {min(fds)}..{max(fds)}")
    assert slope < 1024, f"RSS grows by {slope:.0f} bytes for 1,000 requests"
    eventually(lambda: daemon.fd_count() <= fds[0] + 1, 10, "descriptors at the start level")
    for sock in sockets:
        sock.close()
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_many_clients_at_once_each_get_their_own_answer(daemon, models):
    """Pipelined requests with different rows, on several connections: no answer may go to another."""
    model = models["exact"]
    sockets = [connect(daemon.port) for _ in range(8)]
    for turn in range(5):
        for index, sock in enumerate(sockets):
            for step in range(10):
                text = b'{"model":"exact","x":[[%d,%d,0,1]],"id":"%d.%d"}' % (index, step, index, step)
                sock.sendall(b"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        for index, sock in enumerate(sockets):
            reader = ReplyReader(sock)
            for step in range(10):
                answer = reader.read().json()
                assert answer["id"] == f"{index}.{step}"
                assert answer["y"] == [(np.array([index, step, 0, 1], np.float32) @ model.kn).tolist()]
    for sock in sockets:
        sock.close()
