"""Bytes that are not HTTP, or HTTP that lies: each gets a 4xx or a closed connection, and the server goes on.

The set beside each probe: the statuses that are right; CLOSE where the connection may end without one. Where libmicrohttpd
answers by itself (PROTOCOL.md: exempt) the set is what it does: it cuts a header value at a NUL, drops a header without a name,
and answers 500 to a chunk line that is longer than its buffer."""

import json
import select
import socket
import struct
import time

import pytest

from support.daemon import eventually
from support.http import ReplyReader, connect

CLOSE = 0
BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
N = len(BODY)


def post(*headers, body=BODY, path="/v2/models/exact/infer", version="HTTP/1.1"):
    head = "\r\n".join([f"POST {path} {version}", "Host: x", *headers]).encode("latin-1")
    return head + b"\r\n\r\n" + body


def get(line="GET /v2/health/live HTTP/1.1", *headers):
    return "\r\n".join([line, "Host: x", *headers]).encode("latin-1") + b"\r\n\r\n"


def chunked(*chunks, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end


TE = "Transfer-Encoding: chunked"
PROBES = {
    # where the body ends is said twice, or wrongly
    "length_twice_equal": (post(f"Content-Length: {N}", f"Content-Length: {N}"), {400}),
    "length_twice_other": (post(f"Content-Length: {N}", "Content-Length: 3"), {400}),
    "length_list": (post(f"Content-Length: {N}, {N}"), {400}),
    "length_and_chunked": (post(f"Content-Length: {N}", TE, body=chunked(BODY)), {400}),
    "chunked_and_length": (post(TE, f"Content-Length: {N}", body=chunked(BODY)), {400}),
    "length_negative": (post("Content-Length: -1"), {400, CLOSE}),
    "length_plus": (post(f"Content-Length: +{N}"), {400, CLOSE}),
    "length_hex": (post("Content-Length: 0x10"), {400, CLOSE}),
    "length_float": (post("Content-Length: 1.0"), {400, CLOSE}),
    "length_empty": (post("Content-Length: "), {400, CLOSE}),
    "length_text": (post("Content-Length: many"), {400, CLOSE}),
    "length_2_64": (post("Content-Length: 18446744073709551616"), {400, 413, CLOSE}),
    "length_2_63": (post("Content-Length: 9223372036854775808", body=b""), {413}),
    "length_beyond_limit": (post(f"Content-Length: {1 << 40}", body=b""), {413}),
    "length_name_with_space": (post(f"Content-Length : {N}"), {400, CLOSE}),
    "length_name_with_tab": (post(f"Content-Length\t: {N}"), {400, CLOSE}),
    "coding_unknown": (post("Transfer-Encoding: gzip, chunked", body=chunked(BODY)), {400, 415, CLOSE}),
    "coding_cow": (post("Transfer-Encoding: cow", body=BODY), {400, 415, CLOSE}),
    "coding_twice": (post(TE, TE, body=chunked(BODY)), {400}),
    "coding_identity_and_length": (post("Transfer-Encoding: identity", f"Content-Length: {N}"), {400, 415}),
    # chunks
    "chunk_size_text": (post(TE, body=b"zz\r\n" + BODY), {400, CLOSE}),
    "chunk_size_negative": (post(TE, body=b"-5\r\n" + BODY), {400, CLOSE}),
    "chunk_size_2_64": (post(TE, body=b"10000000000000000\r\n" + BODY), {400, 413, CLOSE}),
    "chunk_size_huge": (post(TE, body=b"7fffffffffffffff\r\n" + BODY + b"\r\n0\r\n\r\n"), {400, 413, CLOSE}),
    "chunk_size_empty": (post(TE, body=b"\r\n" + BODY), {400, CLOSE}),
    "chunk_without_end": (post(TE, body=b"4\r\n" + BODY[:4] + b"junk"), {400, CLOSE}),
    "chunk_extension_long": (post(TE, body=b"4;" + b"a" * 300_000 + b"\r\n"), {400, 413, 500, CLOSE}),
    "chunk_trailer_flood": (post(TE, body=chunked(BODY, end=b"0\r\n" + b"X: y\r\n" * 40_000 + b"\r\n")), {200, 400, 413, 431, CLOSE}),
    # request lines
    "line_empty": (b"\r\n\r\n\r\n\r\n", {400, CLOSE}),
    "line_one_word": (b"GET\r\n\r\n", {400, CLOSE}),
    "line_no_version": (b"GET /v2/health/live\r\n\r\n", {200, 400, CLOSE}),
    "line_http_2": (get("GET /v2/health/live HTTP/2.0"), {200, 400, 505, CLOSE}),
    "line_http_9": (get("GET /v2/health/live HTTP/9.9"), {200, 400, 505, CLOSE}),
    "line_bad_version": (get("GET /v2/health/live HTTQ/1.1"), {400, 505, CLOSE}),
    "line_h2_preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405, 505, CLOSE}),
    "line_tls_hello": (bytes.fromhex("16030100c8010000c403033a") + b"\x00" * 190, {400, CLOSE}),
    "line_no_slash": (get("GET v2/health/live HTTP/1.1"), {400, 404, CLOSE}),
    "line_star": (get("OPTIONS * HTTP/1.1"), {400, 404, CLOSE}),
    "line_long_target": (get("GET /" + "a" * 5000 + " HTTP/1.1"), {400, 414}),
    "line_huge_target": (get("GET /" + "a" * 400_000 + " HTTP/1.1"), {400, 413, 414, 431, CLOSE}),
    "line_long_method": (get("A" * 5000 + " / HTTP/1.1"), {400, 404, 405, 501, CLOSE}),
    "line_absolute": (get("GET http://other.example/v2/health/live HTTP/1.1"), {200}),
    "line_connect": (get("CONNECT example.org:443 HTTP/1.1"), {400, 404, 405, CLOSE}),
    "line_trace": (get("TRACE /v2/health/live HTTP/1.1"), {405}),
    "line_spaces": (get("GET  /v2/health/live  HTTP/1.1"), {200, 400, 404, CLOSE}),
    "line_nul": (b"GET /v2/health/li\0ve HTTP/1.1\r\nHost: x\r\n\r\n", {400, 404, CLOSE}),
    "line_bare_lf": (b"GET /v2/health/live HTTP/1.1\nHost: x\n\n", {200, 400, CLOSE}),
    "line_bare_cr": (b"GET /v2/health/live HTTP/1.1\rHost: x\r\r", {400, 408, CLOSE}),
    # headers
    "header_nul_in_value": (b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", {200, 400, CLOSE}),
    "header_nul_in_name": (b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nX\0Y: a\r\n\r\n", {400, CLOSE}),
    "header_without_colon": (get("GET /v2/health/live HTTP/1.1", "just words"), {200, 400, CLOSE}),
    "header_empty_name": (get("GET /v2/health/live HTTP/1.1", ": value"), {200, 400, CLOSE}),
    "header_obs_fold": (get("GET /v2/health/live HTTP/1.1", "X: a\r\n b"), {200, 400, CLOSE}),
    "header_obs_fold_length": (post("Content-Length:\r\n " + str(N)), {200, 400, CLOSE}),
    "header_first_folded": (b"GET /v2/health/live HTTP/1.1\r\n Host: x\r\n\r\n", {200, 400, CLOSE}),
    "header_flood_count": (get("GET /v2/health/live HTTP/1.1", *[f"X-{i}: y" for i in range(40_000)]), {200, 400, 413, 431, CLOSE}),
    "header_flood_one": (get("GET /v2/health/live HTTP/1.1", "X: " + "y" * 1_000_000), {400, 413, 431, CLOSE}),
    "header_control": (get("GET /v2/health/live HTTP/1.1", "X: a\x01b"), {400, CLOSE}),
    "header_8_bit": (get("GET /v2/health/live HTTP/1.1", "X: \xff\xfe"), {200, 400}),
    "header_host_twice": (get("GET /v2/health/live HTTP/1.1", "Host: y"), {200, 400}),
    "header_host_missing": (b"GET /v2/health/live HTTP/1.1\r\n\r\n", {200, 400}),
    "header_accept_junk": (get("GET /metrics HTTP/1.1", "Accept: ;;q=,,,/;q=9e99;" + "," * 5000), {200, 400}),
    "header_expect_unknown": (post("Expect: 200-ok", f"Content-Length: {N}"), {417}),
    "header_inference_twice": (post(f"Content-Length: {N}", "Inference-Header-Content-Length: 0", f"Inference-Header-Content-Length: {N}"), {400}),
    "header_encoding_twice": (post(f"Content-Length: {N}", "Content-Encoding: gzip", "Content-Encoding: identity"), {400, 415}),
    # targets
    "target_bad_escape": (get("GET /v2/models/%zz HTTP/1.1"), {400}),
    "target_half_escape": (get("GET /v2/models/% HTTP/1.1"), {400}),
    "target_nul_escape": (get("GET /v2/models/a%00b HTTP/1.1"), {400}),
    "target_dots": (get("GET /v2/models/../../etc/passwd HTTP/1.1"), {400, 404}),
    "target_bad_utf8": (get("GET /v2/models/%ff%fe HTTP/1.1"), {400}),
    "target_query_flood": (post(f"Content-Length: {N}", path="/v1/matmul?" + "&".join(f"a{i}=b" for i in range(150))), {400}),
    # bodies
    "body_none": (post(body=b""), {400, 411}),
    "body_one_byte": (post("Content-Length: 1", body=b"{"), {400}),
    "body_chunked_good": (post(TE, body=chunked(*[BODY[i : i + 1] for i in range(N)])), {200}),
    "body_chunked_empty": (post(TE, body=b"0\r\n\r\n"), {400}),
    "body_on_get": (get("GET /v2/health/live HTTP/1.1", "Content-Length: 5") + b"hello", {200}),
    "junk": (bytes(range(256)) * 64, {400, CLOSE}),
    "nothing_but_nul": (b"\0" * 5000, {400, CLOSE}),
}


def exchange(port, data):
    """The status of the first answer, CLOSE when the connection ended without one."""
    with connect(port, timeout=20) as sock:
        try:
            sock.sendall(data)
        except OSError:
            pass
        if not select.select([sock], [], [], 1.5)[0]:  # it waits for more: there is none
            sock.shutdown(socket.SHUT_WR)
        try:
            reply = ReplyReader(sock).read()
        except OSError:
            return CLOSE, None
        return reply.status, reply


@pytest.mark.parametrize("name", PROBES)
def test_probe(daemon, name):
    data, want = PROBES[name]
    status, reply = exchange(daemon.port, data)
    assert status in want, (status, reply)
    if status in (400, 404, 405, 413, 415, 417) and reply.header("content-type") == "application/json":
        assert reply.json()["error"]


@pytest.mark.parametrize("first", ["length_twice_equal", "length_twice_other", "length_and_chunked", "chunked_and_length", "coding_cow", "coding_twice", "length_list"])
def test_after_doubtful_framing_the_connection_is_closed(daemon, first):
    """What follows may be the rest of the body or a smuggled request: it must not be answered."""
    with connect(daemon.port, timeout=20) as sock:
        sock.sendall(PROBES[first][0] + get("GET /v1/models HTTP/1.1"))
        data = b""
        try:
            while part := sock.recv(65536):
                data += part
        except ConnectionResetError:
            pass
        assert b'"models"' not in data and b"200 OK" not in data, data[:500]


def test_pipelined_requests_are_answered_in_order(daemon):
    bodies = [json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [i] * 4}]}).encode() for i in range(50)]
    stream = b"".join(post(f"Content-Length: {len(body)}", body=body) + get() for body in bodies)
    with connect(daemon.port) as sock:
        sock.sendall(stream)
        reader = ReplyReader(sock)
        for i in range(50):
            assert reader.read().json()["outputs"][0]["data"] == [18 * i, 22 * i, 26 * i]
            assert reader.read().json() == {"live": True}


def test_a_pipelined_refusal_does_not_disturb_its_neighbours(daemon):
    good, bad = post(f"Content-Length: {N}"), post("Content-Length: 2", body=b"{]")
    with connect(daemon.port) as sock:
        sock.sendall((good + bad) * 20)
        reader = ReplyReader(sock)
        assert [reader.read().status for _ in range(40)] == [200, 400] * 20


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_c43_clients_that_leave_at_every_byte(daemon, how):
    """After each prefix of a request the client is gone; nothing stays behind."""
    fds = daemon.fd_count()
    data = post(f"Content-Length: {N}")
    for cut in range(0, len(data) + 1, 3):
        sock = connect(daemon.port)
        if how == "rst":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(data[:cut])
        sock.close()
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, what="no request in flight")
    eventually(lambda: daemon.fd_count() <= fds + 2, seconds=15, what="descriptors back")


def test_one_byte_at_a_time_is_still_a_request(daemon):
    with connect(daemon.port) as sock:
        for byte in post(f"Content-Length: {N}"):
            sock.sendall(bytes([byte]))
        assert ReplyReader(sock).read().json()["outputs"][0]["data"] == [60, 70, 80]


def test_c45_dribbled_heads_do_not_slow_others(daemon):
    socks = [connect(daemon.port) for _ in range(200)]
    try:
        for turn in range(4):
            for sock in socks:
                sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nX: "[turn * 7 : turn * 7 + 7])
            began = time.monotonic()
            assert daemon.get("/v2/health/live").status == 200
            assert time.monotonic() - began < 5
    finally:
        for sock in socks:
            sock.close()
