"""Clients that misbehave: gone in the middle, too many, too slow, and bodies of every size."""

import json
import random
import socket
import struct
import threading
import time

import pytest

from support import weights_file
from support.daemon import PATIENCE, SANITIZER, eventually
from support.http import ReplyReader, UnixConnection, connect
from support.notes import note

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'
GOOD_HEAD = b"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(GOOD)


def raw_head(path, length):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nAccept: application/octet-stream\r\nContent-Length: {length}\r\n\r\n").encode()


def drop(sock, reset):
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# --- C43 ------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_c43_clients_that_leave_in_the_middle(start, models, tmp_path):
    path = str(tmp_path / "http.sock")
    # Few request buffers: which of them were touched at first is chance.
    daemon = start(f"--http-socket={path}", "--backend=cpu", "--max-tokens=64", "--small-slabs=4", "--large-slabs=2",
                   "--max-in-flight=64", model_names=("exact", "gate"))
    body = weights_file.encode(models["gate"].rows(64), "bf16")
    small = weights_file.encode(models["gate"].rows(1), "bf16")
    rand = random.Random(43)

    def open_socket(over_unix):
        if not over_unix:
            return connect(daemon.port)
        connection = UnixConnection(path, 30)
        connection.connect()
        return connection.sock

    def abort_one(index):
        sock = open_socket(index % 4 == 0)
        try:
            kind = index % 5
            if kind == 0:  # while the header comes
                sock.sendall(raw_head("/v1/matmul?model=gate", len(body))[: rand.randrange(1, 120)])
            elif kind == 1:  # while a raw body comes
                sock.sendall(raw_head("/v1/matmul?model=gate", len(body)) + body[: rand.randrange(len(body))])
            elif kind == 2:  # while a JSON body comes
                text = b'{"model":"gate","x":[[' + b"0.5," * rand.randrange(5000)
                sock.sendall(b"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n" + text)
            elif kind == 3:  # while it computes
                sock.sendall(raw_head("/v1/matmul?model=gate", len(small)) + small)
            else:  # while the answer goes out
                sock.sendall(raw_head("/v1/matmul?model=gate", len(body)) + body)
                sock.recv(rand.randrange(1, 2000))
        except OSError:
            pass
        drop(sock, reset=rand.random() < 0.7)

    def level():
        return daemon.fd_count()

    total = 600 if SANITIZER else 5000
    for index in range(total // 10):  # warm-up: pools and caches reach their size
        abort_one(index)
    eventually(lambda: daemon.metric("decomposek_http_connections") <= 1, 20, "connections of gone clients closed")
    fds, rss = level(), daemon.rss_bytes()
    for index in range(total):
        abort_one(index)
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, 10, "in-flight gauge at 0")
    eventually(lambda: level() <= fds + 2, 10, "descriptors back at the start level")
    if not SANITIZER:
        # 4 small and 2 large buffers take 16 MiB; a leak of 5 KiB a client would be more than this.
        eventually(lambda: daemon.rss_bytes() <= rss + (24 << 20), 10, "RSS back at the start level")
    for slabs in ("small", "large"):
        eventually(lambda: daemon.metric(f"decomposek_slabs_{slabs}_used") == 0, 10, f"{slabs} request buffers back")
    daemon.check_alive()
    daemon.stop_cleanly()


# --- C44 ------------------------------------------------------------------------------------------------------------


def test_c44_out_of_descriptors(start):
    daemon = start("--backend=cpu", "--spin-us=0", prefix=("prlimit", "--nofile=64"))
    seconds = 8
    with daemon.client() as live:
        assert live.post_json(GOOD).status == 200
        idle, log_before = [], len(daemon.log())
        for _ in range(200):
            sock = socket.socket()
            sock.settimeout(2)
            try:
                sock.connect(("127.0.0.1", daemon.port))
            except OSError:
                sock.close()
                continue
            idle.append(sock)
        cpu_before, answered, deadline = daemon.cpu_seconds(), 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert live.post_json(GOOD).json()["y"] == [[60, 70, 80]]
            answered += 1
            time.sleep(0.25)
        share = (daemon.cpu_seconds() - cpu_before) / seconds
        lines = daemon.log()[log_before:].count("\n")
        note(f"out of descriptors: {share:.1%} of a core, {lines} log lines, {answered} live answers")
        assert share < 0.5, f"{share:.0%} of a core while out of descriptors"
        assert lines < 10 * seconds, f"{lines} log lines in {seconds} s"
        for sock in idle:
            sock.close()
        eventually(lambda: fresh_connection_works(daemon), 10, "recovery after the idle clients left")
    daemon.check_alive()
    daemon.stop_cleanly()


def fresh_connection_works(daemon):
    try:
        return daemon.post_json(GOOD).status == 200
    except OSError:
        return False


@pytest.mark.sanitizer
def test_connections_over_the_limit_do_not_stop_the_rest(start):
    daemon = start("--backend=cpu", "--max-connections=16")
    with daemon.client() as live:
        assert live.post_json(GOOD).status == 200
        idle = [connect(daemon.port) for _ in range(40)]
        assert live.post_json(GOOD).json()["y"] == [[60, 70, 80]]
        for sock in idle:
            sock.close()
    eventually(lambda: fresh_connection_works(daemon), 10, "recovery")
    daemon.stop_cleanly()


# --- C45 ------------------------------------------------------------------------------------------------------------


class Dribble:
    """Sockets that send one byte at a time; knows which the daemon ended, and with what."""

    def __init__(self, port, count, first, rest):
        self.rest, self.open, self.answers = rest, [], []
        for _ in range(count):
            sock = connect(port)
            sock.sendall(first)
            sock.setblocking(False)
            self.open.append(sock)
        self.sent = 0

    def step(self):
        byte = self.rest[self.sent % len(self.rest)].to_bytes(1, "little")
        self.sent += 1
        for sock in list(self.open):
            try:
                sock.send(byte)
                data = sock.recv(4096)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            self.answers.append(data[:12])
            sock.close()
            self.open.remove(sock)

    def close(self):
        for sock in self.open:
            sock.close()


@pytest.mark.sanitizer
def test_c45_slow_senders_and_idle_holders_are_ended(start):
    daemon = start("--backend=cpu", "--header-timeout-ms=1500", "--body-timeout-ms=2000", "--idle-timeout-ms=2500")
    head = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX-Slow: "
    slow_heads = Dribble(daemon.port, 60 if SANITIZER else 500, head, b"abcdefgh")
    slow_bodies = Dribble(daemon.port, 20 if SANITIZER else 100, GOOD_HEAD[: GOOD_HEAD.index(b"Content-Length")] + b"Content-Length: 4096\r\n\r\n{", b" ")
    idle = [connect(daemon.port) for _ in range(20)]
    times, deadline = [], time.monotonic() + 20 * PATIENCE
    with daemon.client() as normal:
        while (slow_heads.open or slow_bodies.open) and time.monotonic() < deadline:
            slow_heads.step()
            slow_bodies.step()
            for _ in range(5):
                began = time.monotonic()
                assert normal.post_json(GOOD).json()["y"] == [[60, 70, 80]]
                times.append(time.monotonic() - began)
            time.sleep(0.1)  # a byte each 100 ms: never idle, so only a total deadline ends them
    assert not slow_heads.open, f"{len(slow_heads.open)} header dribblers still hold a connection"
    assert not slow_bodies.open, f"{len(slow_bodies.open)} body dribblers still hold a connection"
    times.sort()
    note(f"among slow senders: p50 {times[len(times) // 2] * 1000:.2f} ms, p99 {times[len(times) * 99 // 100] * 1000:.2f} ms")
    for answer in slow_heads.answers + slow_bodies.answers:
        assert answer in (b"", b"HTTP/1.1 408"), answer
    assert b"HTTP/1.1 408" in slow_bodies.answers, "a late body gets its 408"
    for sock in idle:
        sock.settimeout(20 * PATIENCE)
        try:
            assert sock.recv(100)[:12] in (b"", b"HTTP/1.1 408")
        except ConnectionResetError:
            pass
        sock.close()
    daemon.check_alive()
    daemon.stop_cleanly()


def test_c45_a_reader_that_never_reads_is_ended(start, models):
    """Its answer is larger than the socket buffers: the daemon must not hold slab and connection for ever."""
    daemon = start("--backend=cpu", "--max-tokens=256", f"--max-body-bytes={64 << 20}", "--large-slabs=2", "--body-timeout-ms=2000", "--idle-timeout-ms=2000", model_names=("exact", "gate"))
    body = weights_file.encode(models["gate"].rows(1200), "bf16")
    deaf = []
    for _ in range(8):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", daemon.port))
        sock.settimeout(30)
        head = raw_head("/v1/matmul?model=gate", len(body)).replace(b"octet-stream\r\nContent-Length", b"json\r\nContent-Length")
        try:
            sock.sendall(head + body)
        except OSError:
            pass
        deaf.append(sock)
    assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    eventually(lambda: daemon.metric("decomposek_slabs_large_used") == 0, 30, "slabs of deaf readers freed")
    eventually(lambda: daemon.metric("decomposek_http_connections") <= 2, 30, "deaf readers disconnected")
    for sock in deaf:
        sock.close()
    daemon.check_alive()
    daemon.stop_cleanly()


# --- C40 ------------------------------------------------------------------------------------------------------------


def json_rows(t):
    row = b"[" + b",".join([b"0.123456", b"-1.5", b"3", b"2e-3"] * 1792) + b"]"
    return b'{"model":"gate","x":[' + b",".join([row] * t) + b"]}"


def test_c40_parsing_time_is_linear_and_others_are_served(daemon):
    """8 -> 512 rows is 64 times the numbers. A quadratic parser would be 64 times slower for each number."""
    seconds = {}
    health = []
    stop = threading.Event()

    def poll():
        with daemon.client() as other:
            while not stop.is_set():
                began = time.monotonic()
                assert other.get("/v2/health/live").status == 200
                health.append(time.monotonic() - began)
                time.sleep(0.002)

    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        for t in (8, 64, 512):
            body = json_rows(t)
            best = float("inf")
            for _ in range(3 if t < 512 else 2):
                with daemon.client() as client:
                    began = time.monotonic()
                    reply = client.post_json(body)
                    best = min(best, time.monotonic() - began)
                assert reply.status == 200 and reply.json()["shape"] == [t, 256], reply
            seconds[t] = best
    finally:
        stop.set()
        watcher.join()
    health.sort()
    numbers = 7168
    note(
        "JSON bodies: "
        + ", ".join(f"T={t} {s * 1000:.1f} ms ({s / t / numbers * 1e9:.0f} ns a number, all in)" for t, s in seconds.items())
        + f"; health meanwhile p50 {health[len(health) // 2] * 1000:.2f} ms, max {health[-1] * 1000:.2f} ms"
    )
    # Eight times the work in each step; a square law would show 64.
    assert seconds[512] / seconds[64] < 24, seconds


@pytest.mark.sanitizer
def test_c40_a_big_body_in_small_pieces(daemon):
    """Every split of the body must be taken: pieces of odd sizes, in the middle of numbers and names."""
    body = json_rows(3)
    whole = daemon.post_json(body).json()["y"]
    for size in (1009, 7, 1):
        part = body if size > 7 else json_rows(1)
        with connect(daemon.port) as sock:
            sock.sendall(b"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(part))
            for at in range(0, len(part), size):
                sock.sendall(part[at : at + size])
            reply = ReplyReader(sock).read()
        assert reply.status == 200 and json.loads(reply.body)["y"] == whole[: 3 if size > 7 else 1]
