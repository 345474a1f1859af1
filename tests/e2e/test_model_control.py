"""Model control over HTTP: switched off, refusals, uploads, removal, and races with inference."""

import random
import signal
import threading
import time

import numpy as np
import pytest

from support.daemon import PATIENCE, SANITIZER, eventually
from support.files import constant_model, safetensors_bytes
from support.http import ReplyReader, connect
from support.weights_file import raw_file

REPOSITORY = ("/v2/repository/index", "/v2/repository/models/exact/load", "/v2/repository/models/exact/unload")
PLAIN = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def open_daemon(start):
    daemon = start("--allow-model-control", "--max-models=4", f"--max-upload-bytes={1 << 20}", "--max-tokens=64", "--drain-grace-ms=0")
    yield daemon
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.fixture
def client(open_daemon):
    with open_daemon.client() as connection:
        yield connection


def put(client, name, body, query="", headers=PLAIN):
    return client.request("PUT", f"/v1/models/{name}{query}", body, headers)


def matmul(client, name, x):
    return client.post_json({"model": name, "x": [x]})


def index(client, body=b""):
    reply = client.request("POST", "/v2/repository/index", body)
    assert reply.status == 200, reply
    return {entry["name"]: entry["state"] for entry in reply.json()}


# --- switched off ---------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_switched_off_every_change_is_403_and_changes_nothing(start):
    daemon = start()
    with daemon.client() as client:
        replies = [client.request("POST", path, b"{}") for path in REPOSITORY]
        replies += [put(client, "exact", constant_model(3, 4, 1)), client.request("DELETE", "/v1/models/exact")]
        for reply in replies:
            assert reply.status == 403 and "--allow-model-control" in reply.json()["error"], reply
        assert client.get("/v1/models/exact").json()["k"] == 4
        big = client.request("PUT", "/v1/models/exact", b"x" * (3 << 20))
        assert big.status == 403
    daemon.check_alive()


@pytest.mark.sanitizer
def test_get_of_one_model_says_what_the_list_says(client):
    listed = client.get("/v1/models").json()["models"][0]
    assert client.get("/v1/models/exact").json() == listed
    head = client.request("HEAD", "/v1/models/exact")
    assert head.status == 200 and head.body == b""
    missing = client.get("/v1/models/nobody")
    assert missing.status == 404 and "nobody" in missing.json()["error"]
    assert client.request("POST", "/v1/models/exact", b"{}").status == 405


# --- uploads --------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_an_upload_serves_is_replaced_and_is_removed(client):
    created = put(client, "fresh", constant_model(5, 3, 2))
    assert created.status == 201, created
    model = created.json()
    assert (model["name"], model["n"], model["k"], model["version"], model["source"]) == ("fresh", 5, 3, 1, "upload")
    assert matmul(client, "fresh", [1, 2, 3]).json()["y"] == [[12] * 5]
    replaced = put(client, "fresh", constant_model(2, 4, 1))  # another shape
    assert replaced.status == 200 and replaced.json()["version"] == 2, replaced
    assert matmul(client, "fresh", [1, 2, 3, 4]).json()["y"] == [[10, 10]]
    assert matmul(client, "fresh", [1, 2, 3]).status == 400
    assert index(client) == {"exact": "READY", "fresh": "READY"}
    gone = client.request("DELETE", "/v1/models/fresh")
    assert gone.status == 200 and gone.json() == {}, gone
    assert matmul(client, "fresh", [1, 2, 3, 4]).status == 404
    assert client.request("DELETE", "/v1/models/fresh").status == 404
    assert index(client) == {"exact": "READY"}


@pytest.mark.sanitizer
def test_the_query_chooses_tensor_bias_layout_and_epilogue(client):
    kn = np.arange(6, dtype=np.float32).reshape(2, 3)
    body = safetensors_bytes({"a": (kn, "fp32"), "b b": (kn, "fp32"), "bias": (np.float32([-100, 0, 1]), "fp32")})
    reply = put(client, "fresh", body, "?tensor=b%20b&bias=bias&layout=kn&epilogue=relu")
    assert reply.status == 201 and reply.json()["tensor"] == "b b" and reply.json()["has_bias"], reply
    assert matmul(client, "fresh", [1, 1]).json()["y"] == [[0, 5, 8]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("query,status,text", [
    ("?tensor=absent", 400, "absent"), ("?bias=absent", 400, "absent"), ("?layout=ab", 400, "nk or kn"), ("?epilogue=tanh", 400, "sigmoid"),
    ("?tensor=", 400, "tensor"), ("?colour=red", 400, "colour"), ("?layout=nk&layout=nk", 400, "twice"), ("?tensor=%zz", 400, ""), ("?layout", 400, "layout"),
])
def test_bad_queries_are_refused(client, query, status, text):
    reply = put(client, "fresh", constant_model(2, 2, 1), query)
    assert reply.status == status and text in reply.json()["error"], reply
    assert client.get("/v1/models/fresh").status == 404


HEADER = {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}


@pytest.mark.sanitizer
@pytest.mark.parametrize("body", [
    b"", b"\0" * 7, b"\0" * 8, b"not a safetensors file at all", raw_file(HEADER, b"\0" * 15), raw_file(HEADER, b"\0" * 17),
    raw_file(HEADER, b"\0" * 16, header_length=2**63), raw_file(HEADER, b"\0" * 16, header_length=10**6), raw_file("[]", b""), raw_file("{}", b""),
    raw_file({"w": {**HEADER["w"], "dtype": "I64"}}, b"\0" * 16), raw_file({"w": {**HEADER["w"], "shape": [4]}}, b"\0" * 16),
    raw_file({"w": {**HEADER["w"], "data_offsets": [16, 0]}}, b"\0" * 16), raw_file({"w": {**HEADER["w"], "shape": [2**63, 2**63]}}, b"\0" * 16),
], ids=lambda body: str(len(body)))
def test_c56_an_upload_that_lies_is_refused_and_the_old_model_serves_on(client, body):
    reply = put(client, "exact", body)
    assert 400 <= reply.status < 500 and reply.json()["error"].startswith("model 'exact': upload"), reply
    assert matmul(client, "exact", [1, 2, 3, 4]).json()["y"] == [[60, 70, 80]]


@pytest.mark.sanitizer
def test_refusals_by_limit_name_both_numbers(start):
    daemon = start("--allow-model-control", "--max-models=2", f"--max-upload-bytes={1 << 20}", "--adhoc-max-bytes=0", "--max-tokens=64", "--threads=2", f"--max-body-bytes={1 << 16}")
    with daemon.client() as client:
        large = put(client, "fresh", b"\0" * ((1 << 20) + 1))
        assert large.status == 413 and str(1 << 20) in large.json()["error"], large
        wide = put(client, "fresh", constant_model(1, 20000, 1))  # 160,000 bytes a row, buffers of 64 KiB
        assert wide.status == 413, wide
        assert "bytes" in wide.json()["error"] and "--" in wide.json()["error"]
        deep = put(client, "fresh", constant_model(31, 7000, 1))  # split over K: needs a workspace that was not reserved
        assert deep.status == 413 and "--workspace-bytes" in deep.json()["error"], deep
        assert put(client, "fresh", constant_model(2, 2, 1)).status == 201
        one_more = put(client, "more", constant_model(2, 2, 1))
        assert one_more.status == 413 and "--max-models" in one_more.json()["error"], one_more
        assert put(client, "fresh", constant_model(3, 2, 1)).status == 200
    daemon.check_alive()


@pytest.mark.sanitizer
def test_reserved_workspace_lets_a_larger_model_in(start):
    daemon = start("--allow-model-control", "--adhoc-max-bytes=0", "--max-tokens=64", "--threads=2", "--workspace-bytes=64MiB", f"--max-body-bytes={1 << 20}")
    with daemon.client() as client:
        assert put(client, "deep", constant_model(31, 7000, 1)).status == 201
        assert matmul(client, "deep", [1] * 7000).json()["y"] == [[7000] * 31]


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["a%20b", "..", "%2e%2e", "a%2Fb", "x" * 65, "%00", "a/b", "%C3%BC"])
def test_c38_names_that_no_model_can_have_are_refused(client, name):
    for method in ("PUT", "DELETE", "GET"):
        reply = client.request(method, f"/v1/models/{name}", constant_model(2, 2, 1) if method == "PUT" else None)
        assert reply.status in (400, 404) and reply.json()["error"], (method, reply)
    assert list(index(client)) == ["exact"]


@pytest.mark.sanitizer
def test_media_types_codings_and_chunks(client, open_daemon):
    body = constant_model(2, 2, 1)
    assert put(client, "fresh", body, headers={"Content-Type": "application/json"}).status == 415
    assert put(client, "fresh", body, headers={"Content-Encoding": "br", **PLAIN}).status == 415
    assert put(client, "fresh", body, headers={}).status == 201
    with connect(open_daemon.port) as sock:  # chunked, one byte each
        sock.sendall(b"PUT /v1/models/fresh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sock.sendall(b"".join(b"1\r\n" + body[i : i + 1] + b"\r\n" for i in range(len(body))) + b"0\r\n\r\n")
        assert ReplyReader(sock).read().status == 200
    with connect(open_daemon.port) as sock:  # more than the limit, without saying so beforehand
        sock.sendall(b"PUT /v1/models/fresh HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"\0" * 65536 + b"\r\n"
        try:
            for _ in range(40):
                sock.sendall(chunk)
        except OSError:
            pass
        assert ReplyReader(sock).read().status == 413
    assert client.get("/v1/models/fresh").json()["version"] == 2


@pytest.mark.sanitizer
def test_one_upload_at_a_time_and_an_aborted_one_frees_the_place(client, open_daemon):
    received = open_daemon.metric("decomposek_http_received_bytes_total")
    with connect(open_daemon.port) as sock:
        sock.sendall(b"PUT /v1/models/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 10)
        eventually(lambda: open_daemon.metric("decomposek_http_received_bytes_total") == received + 10, what="the first upload")
        busy = put(client, "fresh", constant_model(2, 2, 1))
        assert busy.status == 503 and busy.header("retry-after") and busy.json()["status"] == "BUSY", busy
    eventually(lambda: put(client, "fresh", constant_model(2, 2, 1)).status in (200, 201), what="a free place")
    assert client.get("/v1/models/slow").status == 404


# --- the repository -------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_unload_and_load_of_a_configured_model(client):
    assert client.request("POST", "/v2/repository/models/exact/unload", b'{"parameters":{"unload_dependents":false}}').status == 200
    assert matmul(client, "exact", [1, 2, 3, 4]).status == 404
    assert index(client) == {"exact": "UNAVAILABLE"} and index(client, b'{"ready":true}') == {}
    assert client.get("/v1/models").json() == {"models": []} and client.get("/").status == 200 and client.get("/v1/plans").status == 200
    assert client.request("POST", "/v2/repository/models/exact/unload").status == 200  # nothing left to do
    assert client.request("POST", "/v2/repository/models/exact/load", b"{}").status == 200
    assert matmul(client, "exact", [1, 2, 3, 4]).json()["y"] == [[60, 70, 80]]
    assert client.get("/v1/models/exact").json()["version"] == 2


@pytest.mark.sanitizer
def test_an_upload_over_a_configured_model_lasts_until_it_is_loaded(client, open_daemon):
    assert put(client, "exact", constant_model(1, 2, 1)).status == 200
    open_daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: "reloaded" in open_daemon.log(), what="the reload")
    assert matmul(client, "exact", [1, 2]).json()["y"] == [[3]]
    assert client.request("POST", "/v2/repository/models/exact/load").status == 200
    assert matmul(client, "exact", [1, 2, 3, 4]).json()["y"] == [[60, 70, 80]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("path,body,status", [
    ("models/nobody/load", b"", 404), ("models/nobody/unload", b"", 404), ("models/exact/load", b"{", 400), ("models/exact/load", b"[]", 400),
    ("models/exact/load", b'{"parameters":{"config":"{}"}}', 501), ("models/exact/load", b'{"parameters":7}', 400),
    ("models/exact/unload", b'{"parameters":{"unload_dependents":1}}', 400), ("index", b'{"ready":"yes"}', 400), ("index", b"\xff", 400),
    ("models/exact/load", b'{"parameters":{"x":' + b"[" * 100000 + b"]" * 100000 + b"}}", 400), ("index", b'{"a":"' + b"x" * 70000 + b'"}', 413),
], ids=lambda value: str(value)[:40])
def test_c31_repository_bodies_that_are_refused(client, path, body, status):
    reply = client.request("POST", f"/v2/repository/{path}", body)
    assert reply.status == status and reply.json()["error"], reply
    assert index(client) == {"exact": "READY"}


@pytest.mark.sanitizer
def test_an_uploaded_model_cannot_be_loaded_again(client):
    put(client, "fresh", constant_model(2, 2, 1))
    reply = client.request("POST", "/v2/repository/models/fresh/load")
    assert reply.status == 400 and "upload" in reply.json()["error"], reply
    assert client.request("POST", "/v2/repository/models/fresh/unload").status == 200
    assert index(client) == {"exact": "READY"}


@pytest.mark.sanitizer
def test_changes_are_counted_and_logged(client, open_daemon):
    put(client, "fresh", constant_model(2, 2, 1))
    client.request("POST", "/v2/repository/models/nobody/load")
    assert open_daemon.metric("decomposek_model_changes_total") == 1
    assert open_daemon.metric("decomposek_model_change_failures_total") == 1
    assert "model_loaded name=fresh file=upload" in open_daemon.log() and "model_change_refused" in open_daemon.log()
    before = open_daemon.metric("decomposek_weights_bytes")
    client.request("DELETE", "/v1/models/fresh")
    assert open_daemon.metric("decomposek_weights_bytes") < before


# --- races ----------------------------------------------------------------------------------------------------------


def in_threads(*loops):
    failures = []

    def guard(loop):
        try:
            loop()
        except Exception as failure:  # noqa: BLE001 - reported below, in the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=guard, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.sanitizer
def test_load_infer_and_unload_in_loops(open_daemon):
    """Answers are those of one version, whole, or a clean 404; nothing else, and health stays quick."""
    rounds = 60 if SANITIZER else 200
    over = threading.Event()
    seen = {"ok": 0, "gone": 0}

    def change():
        chance = random.Random(1)
        try:
            with open_daemon.client() as client:
                for _ in range(rounds):
                    what = chance.randrange(4)
                    if what == 0:
                        reply = client.request("POST", "/v2/repository/models/exact/unload")
                    elif what == 1:
                        reply = client.request("POST", "/v2/repository/models/exact/load")
                    elif what == 2:
                        reply = put(client, "exact", constant_model(3, 4, chance.choice((1, 2))))
                    else:
                        reply = client.request("DELETE", "/v1/models/exact")
                    assert reply.status in (200, 201, 503), reply
                assert client.request("POST", "/v2/repository/models/exact/load").status == 200
        finally:
            over.set()

    def upload_and_drop():
        try:
            with open_daemon.client() as client:
                for i in range(rounds):
                    reply = put(client, f"m{i % 2}", constant_model(1 + i % 5, 1 + i % 7, 1))
                    assert reply.status in (200, 201, 503), reply
                    client.request("DELETE", f"/v1/models/m{i % 2}")
        finally:
            over.wait()

    def infer():
        answers = ([[60, 70, 80]], [[10, 10, 10]], [[20, 20, 20]])
        with open_daemon.client() as client:
            while not over.is_set() or seen["ok"] == 0:
                reply = matmul(client, "exact", [1, 2, 3, 4])
                if reply.status == 200:
                    assert reply.json()["y"] in answers, reply
                    seen["ok"] += 1
                else:
                    assert reply.status == 404, reply
                    seen["gone"] += 1

    def look():
        with open_daemon.client() as client:
            while not over.is_set():
                assert client.get("/v1/models").status == client.get("/v1/plans").status == client.get("/").status == 200
                assert index(client)
                began = time.monotonic()
                assert client.get("/v2/health/live").status == 200
                assert time.monotonic() - began < 5 * PATIENCE, "health waited for a load"

    in_threads(change, upload_and_drop, infer, infer, look)
    assert seen["ok"] > 0


@pytest.mark.sanitizer
def test_a_stop_in_the_middle_of_changes_is_clean(start):
    daemon = start("--allow-model-control", "--drain-grace-ms=0")
    over = threading.Event()

    def change():
        body = constant_model(64, 512, 1)
        try:
            with daemon.client() as client:
                while not over.is_set():
                    if put(client, "fresh", body).status == 503 and not daemon.get("/v2/health/ready").status == 200:
                        break
        except OSError:
            pass  # the daemon is gone: what was asked for

    threads = [threading.Thread(target=change) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3 * PATIENCE)
    try:
        daemon.stop_cleanly()
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_memory_comes_back_after_many_uploads(open_daemon):
    body = constant_model(128, 1024, 1)
    with open_daemon.client() as client:
        for _ in range(10):
            put(client, "fresh", body)
        client.request("DELETE", "/v1/models/fresh")
        before, descriptors = open_daemon.rss_bytes(), open_daemon.fd_count()
        for _ in range(60):
            assert put(client, "fresh", body).status == 201
            assert client.request("DELETE", "/v1/models/fresh").status == 200
        assert open_daemon.rss_bytes() - before < 8 << 20
        assert open_daemon.fd_count() <= descriptors
