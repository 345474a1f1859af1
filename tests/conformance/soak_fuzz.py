"""Mutated bodies and headers over HTTP for a given time: python soak_fuzz.py --seconds N --artifacts DIR [--seed S].

Ends non-zero at the first answer that no client should get (a 5xx but 501 and 503), the first connection that ends without an
answer although the request was complete, a daemon that died or gives another answer to a known-good request, or a sanitizer report.
The request that did it lies in DIR. The last line says how many requests got which status."""

import argparse
import collections
import glob
import gzip
import json
import os
import random
import re
import signal
import struct
import sys
import tempfile
import threading
import time
import zlib

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e")]

from support.daemon import Daemon  # noqa: E402
from support.files import constant_model  # noqa: E402
from support.http import ReplyReader, connect  # noqa: E402
from support.models import standard_models  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KNOWN_GOOD = {"model": "exact", "x": [[1, 2, 3, 4], [5, 6, 7, 8]]}
INFER = "/v2/models/exact/infer"
NUMBERS = [b"0", b"-1", b"1", b"2", b"1e308", b"1e999", b"-0", b"18446744073709551615", b"18446744073709551616", b"9223372036854775808", b"4294967296", b"1.5", b"null", b'"4"', b"[]", b"{}", b"true"]
LENGTHS = ["0", "1", "-1", "999999", "18446744073709551615", "x", "", "+5", "5 "]


def infer_json(**extra):
    return json.dumps({"id": "7", "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [[1, 2, 3, 4], [5, 6, 7, 8]]}], "outputs": [{"name": "logits"}], **extra}).encode()


def infer_binary():
    head = json.dumps({"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32}}], "outputs": [{"name": "logits", "parameters": {"binary_data": True}}]}).encode()
    return head + struct.pack("<8f", *range(8)), {"Inference-Header-Content-Length": str(len(head))}


def infer_shared():
    return json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 16, "shared_memory_offset": 0}}],
                       "outputs": [{"name": "logits", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 12, "shared_memory_offset": 32}}]}).encode()


def seeds(shm_key):
    """(method, path, headers, body)"""
    binary, framing = infer_binary()
    found = [
        ("POST", INFER, {}, infer_json()),
        ("POST", INFER, {}, infer_json(parameters={"priority": 1, "timeout": 1000000, "binary_data_output": True})),
        ("POST", INFER, framing, binary),
        ("POST", INFER, {"Inference-Header-Content-Length": "0"}, b"\0" * 64),
        ("POST", INFER, {"Content-Encoding": "gzip", **framing}, gzip.compress(binary)),
        ("POST", INFER, {"Content-Encoding": "deflate"}, zlib.compress(infer_json())),
        ("POST", INFER, {}, infer_shared()),
        ("POST", "/v1/matmul", {}, json.dumps(KNOWN_GOOD).encode()),
        ("POST", "/v1/matmul", {}, json.dumps({"a": [[1, 2]], "b": [[1], [2]], "bias": [1], "dtype": "bf16", "epilogue": "relu"}).encode()),
        ("POST", "/v1/matmul?model=exact&dtype=fp32", {"Content-Type": "application/octet-stream"}, b"\0" * 48),
        ("PUT", "/v1/models/victim?layout=nk", {}, constant_model(3, 4, 1)),
        ("DELETE", "/v1/models/victim", {}, b""),
        ("POST", "/v2/repository/index", {}, b'{"ready":true}'),
        ("POST", "/v2/repository/models/kn/load", {}, b'{"parameters":{"config":1}}'),
        ("POST", "/v2/repository/models/kn/unload", {}, b'{"parameters":{"unload_dependents":false}}'),
        ("POST", "/v2/systemsharedmemory/region/r/register", {}, json.dumps({"key": shm_key, "offset": 0, "byte_size": 64}).encode()),
        ("POST", "/v2/systemsharedmemory/region/r/unregister", {}, b""),
        ("POST", "/v2/cudasharedmemory/region/r/register", {}, b'{"raw_handle":{"b64":"AAAA"},"device_id":0,"byte_size":16}'),
    ]
    found *= 20  # as much weight as all the files together, most of which are refused as they are
    for path in glob.glob(os.path.join(HERE, "json/*/*.json")):
        with open(path, "rb") as file:
            found.append(("POST", INFER, {}, file.read()))
    for path in glob.glob(os.path.join(HERE, "../fuzz/corpus/safetensors/*")):
        with open(path, "rb") as file:
            found.append(("PUT", "/v1/models/victim", {}, file.read()))
    return found


class Mutator:
    def __init__(self, chance, pool):
        self.chance, self.pool = chance, pool

    def body(self, body):
        chance = self.chance
        for _ in range(chance.choice((0, 1, 1, 1, 2, 4, 8))):
            at, data = chance.randrange(len(body) + 1), bytearray(body)
            what = chance.randrange(9)
            if what == 0 and body:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            elif what == 1:
                data[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 1, 2, 16, 300))))
            elif what == 2:
                del data[at : at + chance.choice((1, 1, 2, 10, 1000))]
            elif what == 3:
                del data[at:]
            elif what == 4:
                piece = data[at : at + chance.choice((1, 4, 30, 500))]
                data[at:at] = piece * chance.choice((1, 2, 50))
            elif what == 5:
                other = chance.choice(self.pool)[3]
                data[at:] = other[chance.randrange(len(other) + 1) :]
            elif what == 6:
                numbers = list(re.finditer(rb"-?\d+(\.\d+)?", body))
                if numbers:
                    hit = chance.choice(numbers)
                    data[hit.start() : hit.end()] = chance.choice(NUMBERS)
            elif what == 7:
                data[at:at] = chance.choice((b"[", b"{", b'"', b",", b"\\u0000", b"\\ud800", b"\xff", b"\0", b"[" * 5000, b'{"a":' * 40))
            else:
                data[at:at] = struct.pack("<Q", chance.choice((0, 1, 2**31, 2**32, 2**63, 2**64 - 1, len(body))))
            body = bytes(data)[: 1 << 20]
        return body

    def request(self):
        """Head, what follows it in pieces, and whether the request is complete."""
        chance = self.chance
        method, path, headers, body = chance.choice(self.pool)
        headers, body = dict(headers), self.body(body)
        if chance.random() < 0.1:
            headers["Inference-Header-Content-Length"] = chance.choice([*LENGTHS, str(chance.randrange(len(body) + 2))])
        if chance.random() < 0.05:
            headers["Content-Encoding"] = chance.choice(("gzip", "deflate", "identity", "br", ""))
        if chance.random() < 0.05:
            body = chance.choice((gzip.compress, zlib.compress))(body)
        if chance.random() < 0.1:
            headers["Accept"] = chance.choice(("application/octet-stream", "*/*", "application/json", "text/html;q=0"))
        if chance.random() < 0.1:
            headers["Accept-Encoding"] = chance.choice(("gzip", "deflate", "gzip;q=0", "*"))
        if chance.random() < 0.03:
            path = path.replace("exact", chance.choice(("nobody", "gate", "%65xact", "exact/versions/1", "exact/versions/2")))
        is_chunked = chance.random() < 0.2
        headers["Transfer-Encoding" if is_chunked else "Content-Length"] = "chunked" if is_chunked else str(len(body))
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        cuts = sorted(chance.randrange(len(body) + 1) for _ in range(chance.choice((0, 0, 1, 3, 8))))
        pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)])]
        if is_chunked:
            pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece] + [b"0\r\n\r\n"]
        is_complete = chance.random() > 0.03
        return head.encode("latin-1"), pieces if is_complete else pieces[: len(pieces) // 2], is_complete


class Fuzzer:
    def __init__(self, daemon, pool, artifacts, seed, seconds):
        self.daemon, self.pool, self.artifacts, self.seed = daemon, pool, artifacts, seed
        self.deadline = time.monotonic() + seconds
        self.statuses, self.failure, self.lock = collections.Counter(), None, threading.Lock()

    def fail(self, what, data):
        with self.lock:
            if self.failure is None:
                self.failure = what
                with open(os.path.join(self.artifacts, "request"), "wb") as file:
                    file.write(data)

    def exchange(self, sock, reader, mutator):
        """False: the connection is used up."""
        head, pieces, is_complete = mutator.request()
        data = head + b"".join(pieces)
        try:
            sock.sendall(head)
            for piece in pieces:
                sock.sendall(piece)
            if not is_complete:
                return False
            reply = reader.read()
        except OSError as gone:
            self.fail(f"no answer to a complete request: {gone!r}", data)
            return False
        self.statuses[reply.status] += 1
        if reply.status >= 500 and reply.status not in (501, 503):
            self.fail(f"status {reply.status}: {reply.body[:300]!r}", data)
        if reply.status >= 400 and not reply.json()["error"]:
            self.fail("an error without a text", data)
        return reply.header("connection", "") != "close"

    def run(self, index):
        mutator = Mutator(random.Random(f"{self.seed}-{index}"), self.pool)
        while time.monotonic() < self.deadline and self.failure is None:
            try:
                with connect(self.daemon.port, timeout=120) as sock:
                    reader = ReplyReader(sock)
                    for _ in range(50):
                        if time.monotonic() >= self.deadline or self.failure is not None or not self.exchange(sock, reader, mutator):
                            break
            except Exception as failure:  # noqa: BLE001 - reported by the main thread
                self.fail(f"{failure!r}", b"")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--artifacts", required=True)
    parser.add_argument("--seed", default=str(time.time_ns()))
    arguments = parser.parse_args()
    os.makedirs(arguments.artifacts, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the finally below
    key = f"/dk-soak-{os.getpid()}"
    with open("/dev/shm" + key, "wb") as file:
        file.write(b"\0" * 64)
    with tempfile.TemporaryDirectory() as folder:
        models = standard_models(folder)
        flags = ["--allow-client-shm", "--allow-model-control", "--max-upload-bytes=1MiB", "--max-body-bytes=1MiB", "--max-tokens=64", "--max-models=8"]
        daemon = Daemon([*flags, *(models[name].flag for name in ("exact", "gate", "kn"))], log_path=os.path.join(arguments.artifacts, "daemon.log"))
        try:
            daemon.wait_ready()
            daemon.remember(KNOWN_GOOD)
            fuzzer = Fuzzer(daemon, seeds(key), arguments.artifacts, arguments.seed, arguments.seconds)
            threads = [threading.Thread(target=fuzzer.run, args=(i,)) for i in range(4)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(2)
                daemon.check_alive()
            for thread in threads:
                thread.join()
            daemon.check_alive()
            daemon.stop_cleanly()
        finally:
            daemon.kill()
            os.unlink("/dev/shm" + key)
    print(f"fuzz seed {arguments.seed}: {sum(fuzzer.statuses.values())} requests, by status {dict(sorted(fuzzer.statuses.items()))}")
    if fuzzer.failure:
        sys.exit(f"FAILED: {fuzzer.failure} (the request: {arguments.artifacts}/request)")


if __name__ == "__main__":
    main()
