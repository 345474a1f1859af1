"""HTTP itself: routes, methods, HEAD, Expect, names in URLs, lengths that contradict, media types."""

import json
import socket
import time

import pytest

from support.daemon import PATIENCE
from support.http import ReplyReader, connect, raw_request
from support.notes import note

GET_ROUTES = ("/", "/v1/models", "/v1/plans", "/metrics", "/v2/health/live", "/v2/health/ready")
GOOD = json.dumps({"model": "exact", "x": [[1, 2, 3, 4]]}).encode()


def post_head(length, *extra, path="/v1/matmul", content_type="application/json"):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {content_type}", *extra]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.sanitizer
@pytest.mark.parametrize("route", GET_ROUTES)
def test_c39_head_is_get_without_the_body(client, route):
    get = client.request("GET", route)
    head = client.request("HEAD", route)
    assert get.status == head.status == 200 and head.body == b"" and get.body
    assert head.header("content-type") == get.header("content-type")


@pytest.mark.sanitizer
def test_c39_two_pipelined_heads_and_a_get_on_one_connection(daemon):
    with connect(daemon.port) as sock:
        head = "HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\nHEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        sock.sendall((head + "GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n").encode())
        reader = ReplyReader(sock)
        assert [reader.read("HEAD").status, reader.read("HEAD").status, reader.read("GET").status] == [200, 200, 200]


@pytest.mark.sanitizer
@pytest.mark.parametrize("route", GET_ROUTES)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_405_names_what_is_allowed(client, route, method):
    reply = client.request(method, route, b"{}", {"Content-Type": "application/json"})
    assert reply.status == 405 and reply.json()["error"], reply
    allowed = {word.strip() for word in reply.header("allow").split(",")}
    assert {"GET", "HEAD"} <= allowed and method not in allowed


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_405_on_matmul_names_post(client, method):
    reply = client.request(method, "/v1/matmul")
    assert reply.status == 405 and "POST" in reply.header("allow"), reply


def test_head_on_matmul_is_not_an_error_of_ours(client):
    reply = client.request("HEAD", "/v1/matmul")
    assert reply.status == 405 and "POST" in reply.header("allow") and reply.body == b""


@pytest.mark.sanitizer
@pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/", "/v1/matmul/x", "/v3/health/live", "/v1//models", "/metricsx", "/favicon.ico"])
def test_404_names_the_path(client, path):
    for method in ("GET", "POST"):
        reply = client.request(method, path, b"{}" if method == "POST" else None, {"Content-Type": "application/json"})
        assert reply.status == 404 and reply.json()["error"], reply


@pytest.mark.sanitizer
def test_refused_post_with_a_body_keeps_the_connection(client):
    reply = client.request("POST", "/nothing", b"x" * 500_000)
    assert reply.status == 404
    sock = client.connection.sock
    assert client.request("GET", "/v2/health/live").status == 200 and client.connection.sock is sock is not None


def test_refused_post_with_a_huge_body_gets_its_status_line(daemon):
    """More than is drained before the answer: the answer still arrives, then the connection may close."""
    with connect(daemon.port) as sock:
        sock.sendall(post_head(8 << 20, path="/nothing"))
        try:
            for _ in range(8):
                sock.sendall(b"x" * (1 << 20))
        except OSError:
            pass
        assert ReplyReader(sock).read().status == 404


# --- bodies: type, coding, length -----------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_media_types_that_are_json(client, content_type):
    reply = client.request("POST", "/v1/matmul", GOOD, {"Content-Type": content_type})
    assert reply.status == 200 and reply.json()["y"] == [[60, 70, 80]], reply


def test_body_without_a_media_type_or_with_curls_default_is_json(client, daemon):
    reply = client.request("POST", "/v1/matmul", GOOD, {"Content-Type": "application/x-www-form-urlencoded"})
    assert reply.status == 200 and reply.json()["y"] == [[60, 70, 80]], reply
    bare = f"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nContent-Length: {len(GOOD)}\r\n\r\n".encode() + GOOD
    assert raw_request(daemon.port, bare).json()["y"] == [[60, 70, 80]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("route", [*GET_ROUTES, "/v1/matmul"])
def test_options_names_the_methods(client, route):
    reply = client.request("OPTIONS", route)
    assert reply.status in (200, 204) and "OPTIONS" in reply.header("allow"), reply
    assert ("POST" if route == "/v1/matmul" else "GET") in reply.header("allow")


@pytest.mark.sanitizer
@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "application/jsonx", "application/json; charset=utf-16"])
def test_other_media_types_are_415(client, content_type):
    reply = client.request("POST", "/v1/matmul", GOOD, {"Content-Type": content_type})
    assert reply.status == 415 and reply.json()["error"], reply


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip", "deflate", "gzip, br"])
def test_content_coding_is_understood_or_415(client, coding):
    reply = client.request("POST", "/v1/matmul", GOOD, {"Content-Type": "application/json", "Content-Encoding": coding})
    assert reply.status in (400, 415) and reply.json()["error"], reply


@pytest.mark.sanitizer
def test_contradicting_lengths_are_refused(daemon):
    for extra in (("Content-Length: 5",), ("Transfer-Encoding: chunked",)):
        reply = raw_request(daemon.port, post_head(len(GOOD), *extra) + GOOD)
        assert reply.status == 400, reply
    for value in ("-1", "abc", "99999999999999999999999", "0x10"):
        reply = raw_request(daemon.port, post_head(value) + GOOD)
        assert 400 <= reply.status < 500, (value, reply)


@pytest.mark.sanitizer
def test_bytes_that_are_not_http_do_no_harm(daemon):
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"\0" * 1000, b"GET\r\n\r\n", b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"G" * 100_000, b"GET /" + b"a" * 300_000):
        with connect(daemon.port) as sock:
            try:
                sock.sendall(noise)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except OSError:
                pass
    daemon.check_alive()


@pytest.mark.sanitizer
def test_body_over_the_limit_is_413(start):
    daemon = start(f"--max-body-bytes={1 << 20}", "--backend=cpu")
    for content_type, path in (("application/json", "/v1/matmul"), ("application/octet-stream", "/v1/matmul?model=exact")):
        with connect(daemon.port) as sock:
            sock.sendall(post_head((1 << 20) + 1, content_type=content_type, path=path))
            try:
                sock.sendall(b" " * (1 << 20))
            except OSError:
                pass
            reply = ReplyReader(sock).read()
            assert reply.status == 413 and str(1 << 20) in reply.json()["error"], reply
        # Without a length the limit is met while the chunks come in.
        with connect(daemon.port) as sock:
            sock.sendall(post_head(None, "Transfer-Encoding: chunked", content_type=content_type, path=path))
            chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
            try:
                for _ in range(40):
                    sock.sendall(chunk)
                sock.sendall(b"0\r\n\r\n")
            except OSError:
                pass
            assert ReplyReader(sock).read().status == 413
    daemon.check_alive()
    daemon.stop_cleanly()


# --- C36 ----------------------------------------------------------------------------------------------------------------


def expect_exchange(daemon, head, body):
    """(interim status or None, final reply, seconds): the body is sent only after an interim 100."""
    with connect(daemon.port) as sock:
        began = time.monotonic()
        sock.sendall(head)
        reader = ReplyReader(sock)
        reply = reader.read()
        if reply.status == 100:
            sock.sendall(body)
            return 100, reader.read(), time.monotonic() - began
        return None, reply, time.monotonic() - began


@pytest.mark.sanitizer
def test_c36_expect_continue_gets_its_interim_answer(daemon, models):
    rows = 128
    body = b"\0" * (rows * 7168 * 2)
    head = post_head(len(body), "Expect: 100-continue", content_type="application/octet-stream", path="/v1/matmul?model=gate")
    interim, reply, seconds = expect_exchange(daemon, head, body)
    assert interim == 100 and reply.status == 200, reply
    assert seconds < 5 * PATIENCE  # curl gives up waiting after 1 s; a client that waits for ever must not hang


@pytest.mark.sanitizer
@pytest.mark.parametrize("path,length,status", [("/nothing", 2 << 20, 404), ("/v1/matmul?model=nobody", 2 << 20, 404), ("/v1/matmul?model=gate", 1 << 40, 413), ("/metrics", 2 << 20, 405)])
def test_c36_expect_continue_is_refused_before_the_body(daemon, path, length, status):
    head = post_head(length, "Expect: 100-continue", content_type="application/octet-stream", path=path)
    interim, reply, _ = expect_exchange(daemon, head, b"")
    assert interim is None and reply.status == status and reply.json()["error"], reply


@pytest.mark.parametrize("value", ["200-ok", "100-continue, fancy"])
def test_c36_other_expectations_are_417_or_ignored(daemon, value):
    reply = raw_request(daemon.port, post_head(len(GOOD), f"Expect: {value}") + GOOD)
    assert reply.status in (200, 417), reply


def test_c36_curl_does_not_wait(daemon, tmp_path):
    import subprocess

    path = tmp_path / "body"
    path.write_bytes(b"\0" * (7168 * 2 * 146))
    out = subprocess.run(
        ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{time_total}", "-H", "Expect: 100-continue", "-H", "Content-Type: application/octet-stream",
         "--data-binary", f"@{path}", f"{daemon.url}/v1/matmul?model=gate"],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout.split()
    assert out[0] == "200"
    note(f"curl with Expect: 100-continue and 2 MB took {float(out[1]) * 1000:.1f} ms")


# --- C38 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "name,statuses",
    [("exact", (200,)), ("%65xact", (200,)), ("ex%61ct", (200,)), ("%2565xact", (400, 404)), ("a%20b", (400, 404)), ("a%2Fb", (400, 404)), ("%00", (400, 404)), ("exact%00", (400, 404)),
     ("%zz", (400, 404)), ("%", (400, 404)), ("%f", (400, 404)), ("%ff", (400, 404)), ("%c0%af", (400, 404)), ("..", (400, 404)), ("%2e%2e", (400, 404)), ("..%2f..%2fetc%2fpasswd", (400, 404)), ("%22%3Cb%3E", (400, 404))],
)
def test_c38_model_name_in_the_query(daemon, name, statuses):
    head = post_head(16, path=f"/v1/matmul?model={name}&dtype=fp32", content_type="application/octet-stream")
    reply = raw_request(daemon.port, head + b"\0" * 16)
    assert reply.status in statuses, reply
    if reply.status != 200:
        assert isinstance(reply.json()["error"], str)
    daemon.check_alive()


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "target,statuses",
    [("/v1/../metrics", (400, 404)), ("/v1/%2e%2e/metrics", (400, 404)), ("/../../etc/passwd", (400, 404)), ("/v2/health/%6cive", (200, 404)), ("/v2/health/live/", (200, 404)), ("/v2/v2/health/live", (404,)),
     ("/v2/health/live?x=%zz", (200, 400)), ("/v2/health/live%00", (400, 404)), ("/%ff", (400, 404)), ("/v2/health/live#x", (200, 400, 404)), ("*", (400, 404))],
)
def test_c38_odd_spellings_of_a_path(daemon, target, statuses):
    reply = raw_request(daemon.port, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"))
    assert reply.status in statuses, reply
    assert b"root:" not in reply.body


# --- what the information routes say --------------------------------------------------------------------------------------


def test_models_lists_what_is_served(client, models):
    listed = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    assert set(listed) == set(models)
    for name, model in models.items():
        found = listed[name]
        assert (found["n"], found["k"], found["dtype"], found["layout"], found["epilogue"]) == (model.n, model.k, model.dtype, model.layout, model.epilogue)


def test_plans_cover_every_model_and_bucket(client, models):
    plans = client.get("/v1/plans").json()["plans"]
    buckets = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256]
    for name, model in models.items():
        mine = [plan for plan in plans if plan["model"] == name]
        assert [plan["bucket"] for plan in mine] == buckets
        for plan in mine:
            assert -(-model.k // plan["chunk_k"]) == plan["split_k"] and plan["variant"], plan
