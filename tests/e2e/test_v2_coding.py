"""Compressed bodies and answers, bombs, broken streams; and C36, Expect, on /v2."""

import gzip
import json
import time
import zlib

import numpy as np
import pytest

from support import oip
from support.daemon import PATIENCE
from support.http import ReplyReader, connect, read_reply

CODE = {"gzip": gzip.compress, "deflate": zlib.compress, "x-gzip": gzip.compress, "GZip": gzip.compress}
DECODE = {"gzip": gzip.decompress, "deflate": zlib.decompress}
X = [[1, 2, 3, 4], [5, 6, 7, 8]]
Y = [[60, 70, 80], [132, 158, 184]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("coding", CODE)
def test_compressed_bodies_of_every_form(client, coding):
    code, headers = CODE[coding], {"Content-Encoding": coding}
    header, data = oip.binary_body(X)
    assert oip.answer(oip.post(client, "exact", code(json.dumps(oip.json_body(X)).encode()), None, headers)).tolist() == Y
    assert oip.answer(oip.post(client, "exact", code(header + data), len(header), headers)).tolist() == Y
    assert oip.answer(oip.post(client, "exact", code(data), 0, headers)).tolist() == Y
    assert oip.answer(oip.post(client, "exact", code(b""), 0, headers)).shape == (0, 3)


@pytest.mark.sanitizer
def test_v1_takes_compressed_bodies_too(client):
    body = gzip.compress(b'{"model":"exact","x":[[1,2,3,4]]}')
    assert client.post_json(body, headers={"Content-Encoding": "gzip"}).json()["y"] == [[60, 70, 80]]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_large_compressed_body_is_read_in_turns(client, models, coding):
    """Many MB from few: decompressing takes several turns, and the bits are those of the plain request."""
    model = models["gate"]
    x = np.tile(model.rows(4), (150, 1))
    header, data = oip.binary_body(x, "bf16")
    plain = oip.answer(oip.post(client, "gate", header + data, len(header)))
    packed = CODE[coding](header + data)
    assert (oip.answer(oip.post(client, "gate", packed, len(header), {"Content-Encoding": coding})) == plain).all()
    zeros = oip.binary_body(np.zeros((1000, 7168)), "bf16")
    packed = CODE[coding](b"".join(zeros))
    assert len(packed) < len(zeros[1]) // 200
    assert not oip.answer(oip.post(client, "gate", packed, len(zeros[0]), {"Content-Encoding": coding})).any()


@pytest.mark.sanitizer
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_body_in_any_packets(daemon, coding):
    header, data = oip.binary_body(X)
    body = CODE[coding](header + data)
    for step in (1, 10):
        with connect(daemon.port) as sock:
            head = f"POST /v2/models/exact/infer HTTP/1.1\r\nHost: x\r\n{oip.LENGTH_HEADER}: {len(header)}\r\nContent-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n\r\n"
            sock.sendall(head.encode())
            for first in range(0, len(body), step):
                piece = body[first : first + step]
                sock.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            sock.sendall(b"0\r\n\r\n")
            assert oip.answer(read_reply(sock, "POST")).tolist() == Y


@pytest.mark.sanitizer
@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, deflate", "gzip, gzip", "gzip;q=1", "aws-chunked"])
def test_unknown_codings_are_415_and_name_the_known(client, coding):
    for path in (oip.infer_path("exact"), "/v1/matmul"):
        reply = client.request("POST", path, b"{}", {"Content-Encoding": coding})
        oip.refused(reply, (415,))
        assert {word.strip() for word in reply.header("accept-encoding").split(",")} == {"gzip", "deflate"}


@pytest.mark.sanitizer
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_broken_streams_are_400(daemon, client, coding):
    header, data = oip.binary_body(X)
    body, headers = CODE[coding](header + data), {"Content-Encoding": coding}
    for bad in (body[:-1], body[:10], body[:1], body[:-4] + b"\0\0\0\0", body + b"x", header + data, DECODE and CODE["deflate" if coding == "gzip" else "gzip"](header + data), b"\0" * 100):
        oip.refused(oip.post(client, "exact", bad, len(header), headers))
    oip.refused(oip.post(client, "exact", CODE[coding](header + data + b"x"), len(header), headers))  # one byte too many inside
    oip.refused(oip.post(client, "exact", CODE[coding](header + data[:-1]), len(header), headers))
    assert oip.answer(oip.post(client, "exact", body, len(header), headers)).tolist() == Y
    daemon.check_alive()


def bomb(megabytes, coding):
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    block = b" " * (1 << 20)
    return b"".join(compressor.compress(block) for _ in range(megabytes)) + compressor.flush()


@pytest.mark.sanitizer
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_zip_bomb_is_413_at_the_limit(start, coding):
    """128 MiB of blanks in 0.6 MB: refused when the limit is reached, in memory bounded by it."""
    daemon = start("--max-body-bytes=16MiB")
    body = bomb(128, coding)
    before = daemon.peak_rss_bytes()
    with daemon.client() as client:
        for length in (None, 0, 1 << 28):
            oip.refused(oip.post(client, "exact", body, length, {"Content-Encoding": coding}), (413,))
    if PATIENCE == 1:
        assert daemon.peak_rss_bytes() - before < 24 << 20
    daemon.check_alive()
    daemon.stop_cleanly()


def test_bomb_does_not_hold_up_the_thread(start):
    daemon = start("--http-threads=1", "--max-body-bytes=2GiB")
    body = bomb(300, "gzip")
    with daemon.client() as slow, daemon.client() as quick:
        slow.connection.request("POST", oip.infer_path("exact"), body, {"Content-Encoding": "gzip"})
        worst, count, finished = 0.0, 0, False
        slow.connection.sock.setblocking(False)
        while not finished and count < 100000:
            began = time.monotonic()
            assert quick.get("/v2/health/live").status == 200
            worst, count = max(worst, time.monotonic() - began), count + 1
            try:
                finished = bool(slow.connection.sock.recv(1, 2))  # MSG_PEEK
            except BlockingIOError:
                pass
        slow.connection.sock.setblocking(True)
        response = slow.connection.getresponse()
        assert response.status == 400 and json.loads(response.read())["error"]
        assert count > 20, "health was asked only after the bomb"
    daemon.check_alive()


@pytest.mark.sanitizer
def test_compressed_bodies_are_bounded_in_number(start):
    """Each holds a window of 40 KiB: as many as requests in flight."""
    daemon = start("--max-in-flight=3")
    header, data = oip.binary_body(X)
    body = gzip.compress(header + data)
    head = f"POST /v2/models/exact/infer HTTP/1.1\r\nHost: x\r\n{oip.LENGTH_HEADER}: {len(header)}\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    socks = []
    deadline = time.monotonic() + 20 * PATIENCE
    while True:  # until three unfinished ones hold all room; those that find none are refused when their body is there
        socks.append(connect(daemon.port))
        socks[-1].sendall(head + body[:-1])
        with connect(daemon.port) as sock:
            sock.sendall(head + body)
            reply = read_reply(sock, "POST")
        if reply.status == 503 or time.monotonic() > deadline:
            break
    oip.refused(reply, (503,))
    replies = []
    for sock in socks:
        sock.sendall(body[-1:])
        replies.append(read_reply(sock, "POST"))
        sock.close()
    assert sorted(reply.status for reply in replies) == [200] * 3 + [503] * (len(socks) - 3), replies
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
@pytest.mark.parametrize("accept,coding", [("gzip", "gzip"), ("deflate", "deflate"), ("gzip, deflate", "gzip"), ("deflate;q=1, gzip;q=0.5", "deflate"), ("br, gzip;q=0.1", "gzip")])
def test_answers_are_compressed_when_asked(client, models, accept, coding):
    x = models["gate"].rows(8)
    plain = oip.answer(oip.post_binary(client, "gate", x, "bf16"))
    for binary_output in (True, False):
        reply = oip.post_binary(client, "gate", x, "bf16", binary_output=binary_output, headers={"Accept-Encoding": accept})
        assert reply.header("content-encoding") == coding and reply.header("vary") == "Accept-Encoding"
        reply.body = DECODE[coding](reply.body)
        assert (oip.answer(reply) == plain).all()  # the length header counts decompressed bytes


@pytest.mark.sanitizer
@pytest.mark.parametrize("accept", ["identity", "gzip;q=0", "br", "*", "", "gzip;q=0, deflate;q=0, *;q=1"])
def test_answers_are_plain_otherwise(client, models, accept):
    reply = oip.post_binary(client, "gate", models["gate"].rows(8), "bf16", headers={"Accept-Encoding": accept})
    assert reply.header("content-encoding") is None and oip.answer(reply).shape == (8, 256)


@pytest.mark.sanitizer
def test_small_answers_and_errors_are_plain(client):
    reply = oip.post_binary(client, "exact", X, headers={"Accept-Encoding": "gzip"})
    assert reply.header("content-encoding") is None and oip.answer(reply).tolist() == Y
    reply = oip.post(client, "exact", "{", None, {"Accept-Encoding": "gzip"})
    assert reply.header("content-encoding") is None and oip.refused(reply)


@pytest.mark.sanitizer
def test_c36_expect_is_answered_before_the_body(daemon):
    body = json.dumps(oip.json_body(np.ones((300, 4)))).encode()

    def head(model, length, *extra):
        return "\r\n".join([f"POST {oip.infer_path(model)} HTTP/1.1", "Host: x", f"Content-Length: {length}", "Expect: 100-continue", *extra, "", ""]).encode()

    with connect(daemon.port) as sock:  # good: an interim answer, then the real one
        sock.sendall(head("exact", len(body)))
        reader = ReplyReader(sock)
        assert reader.read("POST").status == 100
        sock.sendall(body)
        assert oip.answer(reader.read("POST")).shape == (300, 3)
    for model, length, extra, status in (("nope", 2 << 20, (), 404), ("gate", 1 << 40, (), 413), ("exact", 2 << 20, (f"{oip.LENGTH_HEADER}: x",), 400),
                                         ("exact", 2 << 20, ("Content-Encoding: br",), 415), ("exact", 17, (f"{oip.LENGTH_HEADER}: 0",), 400)):
        with connect(daemon.port) as sock:  # refused: at once, without the body
            sock.sendall(head(model, length, *extra))
            oip.refused(read_reply(sock, "POST"), (status,))
