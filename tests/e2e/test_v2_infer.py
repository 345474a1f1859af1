"""POST /v2/models/{m}/infer: every form of input and output against fp64, zero rows, parameters, framing."""

import json
import struct

import numpy as np
import pytest

from support import oip, weights_file
from support.daemon import eventually
from support.http import connect, read_reply

X = [[1, 2, 3, 4], [5, 6, 7, 8]]
Y = [[60, 70, 80], [132, 158, 184]]


@pytest.mark.sanitizer
def test_json_in_json_out(client):
    reply = oip.post(client, "exact", oip.json_body(X, id="seven"))
    assert reply.json() == {"id": "seven", "model_name": "exact", "model_version": "1",
                            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [2, 3], "data": [60, 70, 80, 132, 158, 184]}]}
    assert reply.header(oip.LENGTH_HEADER) is None and reply.header("content-type") == "application/json"
    assert "id" not in oip.post(client, "exact", oip.json_body(X)).json()
    assert oip.answer(client.request("POST", oip.infer_path("exact", 1), json.dumps(oip.json_body(X)))).tolist() == Y


@pytest.mark.sanitizer
def test_json_with_the_length_of_all_of_it(client):
    """What the C++ client always sends."""
    body = json.dumps(oip.json_body(X)).encode()
    assert oip.answer(oip.post(client, "exact", body, len(body))).tolist() == Y


@pytest.mark.sanitizer
@pytest.mark.parametrize("binary_output", [True, False])
def test_c27_binary_in(client, binary_output):
    reply = oip.post_binary(client, "exact", X, binary_output=binary_output)
    assert oip.answer(reply).tolist() == Y
    if binary_output:
        assert len(reply.body) == int(reply.header(oip.LENGTH_HEADER)) + 4 * 3 * 2 == int(reply.header("content-length"))
    else:
        assert reply.header(oip.LENGTH_HEADER) is None


@pytest.mark.sanitizer
def test_outputs_by_list(client):
    for parameters, is_binary in (({"binary_data": True}, True), ({"binary_data": False}, False), ({}, False)):
        reply = oip.post_binary(client, "exact", X, outputs=[{"name": "logits", "parameters": parameters}])
        assert oip.answer(reply).tolist() == Y
        assert (reply.header(oip.LENGTH_HEADER) is not None) == is_binary
    reply = oip.post(client, "exact", oip.json_body(X, outputs=[{"name": "logits", "parameters": {"binary_data": True}}]))
    assert oip.answer(reply).tolist() == Y and reply.header(oip.LENGTH_HEADER)
    oip.refused(oip.post(client, "exact", oip.json_body(X, outputs=[{"name": "y"}])), needle=("y", "logits"))
    oip.refused(oip.post(client, "exact", oip.json_body(X, outputs=[{"name": "logits"}, {"name": "logits"}])))


@pytest.mark.sanitizer
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_raw_body(client, rows):
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    reply = oip.post(client, "exact", x.tobytes(), 0)
    assert oip.answer(reply).tolist() == (x @ np.arange(12, dtype=np.float32).reshape(4, 3)).tolist()
    assert reply.header("content-type") == "application/octet-stream"


@pytest.mark.sanitizer
def test_raw_body_must_be_whole_rows(client):
    for size in (1, 15, 17, 31):
        oip.refused(oip.post(client, "exact", b"\0" * size, 0), needle=str(size))


@pytest.mark.sanitizer
@pytest.mark.parametrize("name,dtype", [("gate", "bf16"), ("gate", "fp32"), ("gate-fp16", "fp16"), ("gate-fp32", "fp32"), ("gate-fp32", "bf16"), ("relu", "fp32"), ("sigmoid", "bf16"), ("kn", "fp16")])
def test_all_forms_give_the_same_bits(client, models, plan_of, name, dtype):
    model = models[name]
    x = model.rows(5, dtype=dtype)
    binary = oip.answer(oip.post_binary(client, name, x, dtype))
    model.check(binary, x, plan_of(name, 5))
    assert (oip.answer(oip.post(client, name, oip.json_body(x, dtype))) == binary).all()  # shortest decimals read back
    assert (oip.answer(oip.post_binary(client, name, x, dtype, binary_output=False)) == binary).all()
    if dtype == model.dtype:
        raw = oip.post(client, name, weights_file.encode(x, dtype), 0)
        assert (oip.answer(raw) == binary).all()


@pytest.fixture
def plan_of(daemon):
    plans = daemon.get("/v1/plans").json()["plans"]

    def find(name, rows):
        return next(plan for plan in plans if plan["model"] == name and plan["bucket"] >= rows)

    return find


@pytest.mark.parametrize("rows", [63, 256, 257, 700])
def test_many_rows(client, models, plan_of, rows):
    """Over the largest bucket (256) the request is cut into pieces."""
    model = models["gate"]
    x = model.rows(rows)
    got = oip.answer(oip.post_binary(client, "gate", x, "bf16"))
    assert got.shape == (rows, 256)
    for first in range(0, rows, 256):
        part = x[first : first + 256]
        model.check(got[first : first + 256], part, plan_of("gate", len(part)))
    assert (oip.answer(oip.post_binary(client, "gate", x, "bf16", binary_output=False)) == got).all()


@pytest.mark.sanitizer
def test_c28_bf16_is_not_fp16(client):
    """3.140625 is 49 40 as BF16 and 48 42 as FP16."""
    for dtype, bits in (("BF16", 0x4049), ("FP16", 0x4248)):
        data = struct.pack("<4H", bits, 0, 0, 0)
        header = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": dtype, "parameters": {"binary_data_size": 8}}]}).encode()
        assert oip.answer(oip.post(client, "exact", header + data, len(header))).tolist() == [[0, 3.140625, 6.28125]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype,number,rounded", [("bf16", 1 + 2**-8, 1), ("bf16", 1 + 3 * 2**-8, 1 + 2**-6), ("fp16", 1 + 2**-11, 1), ("fp16", 1 + 3 * 2**-11, 1 + 2**-9)])
def test_c28_json_numbers_round_to_nearest_even(client, dtype, number, rounded):
    assert oip.answer(oip.post(client, "exact", oip.json_body([[0, 0, 0, number]], dtype))).tolist() == [[9 * rounded, 10 * rounded, 11 * rounded]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_output_datatype_by_parameter(client, dtype):
    """`output_datatype` is ours; without it logits are FP32."""
    reply = oip.post_binary(client, "exact", X, parameters={"output_datatype": oip.NAMES[dtype]})
    assert oip.answer(reply).tolist() == weights_file.rounded(np.array(Y, np.float32), dtype).tolist()
    assert len(reply.body) - int(reply.header(oip.LENGTH_HEADER)) == 6 * (4 if dtype == "fp32" else 2)
    for wrong in ("INT32", "fp32", "", 7, None, "FP64"):
        oip.refused(oip.post(client, "exact", oip.json_body(X, parameters={"output_datatype": wrong})))


@pytest.mark.sanitizer
def test_c13_zero_rows_in_every_form(daemon, client):
    forms = [
        oip.post(client, "exact", {"inputs": [{"name": "x", "shape": [0, 4], "datatype": "FP32", "data": []}]}),
        oip.post_binary(client, "exact", np.zeros((0, 4))),
        oip.post_binary(client, "exact", np.zeros((0, 4)), binary_output=False),
        oip.post(client, "exact", b"", 0),
    ]
    for reply in forms:
        assert oip.answer(reply).shape == (0, 3), reply
        assert oip.answer(oip.post(client, "exact", oip.json_body(X))).tolist() == Y
    daemon.check_alive()


@pytest.mark.sanitizer
def test_non_finite_values_are_exact_in_binary_and_null_in_json(client):
    x = np.zeros((3, 4), np.float32)
    x[0, 3], x[1, 3], x[2, 3] = np.nan, np.inf, -np.inf
    got = oip.answer(oip.post_binary(client, "exact", x))
    assert np.isnan(got[0]).all() and (got[1, 1:] == np.inf).all() and (got[2, 1:] == -np.inf).all()
    reply = oip.post_binary(client, "exact", x, binary_output=False)
    assert reply.json()["outputs"][0]["data"] == [None] * 9 and b"NaN" not in reply.body and b"nf" not in reply.body.replace(b"infer", b"")


@pytest.mark.sanitizer
def test_flat_and_nested_data_are_the_same(client):
    nested = {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": X}]}
    assert oip.answer(oip.post(client, "exact", nested)).tolist() == Y


@pytest.mark.sanitizer
def test_order_of_members_does_not_matter(client):
    """`datatype` behind `data`: the numbers wait unrounded."""
    body = '{"outputs":[{"name":"logits"}],"inputs":[{"data":[1,2,3,4],"shape":[1,4],"name":"x","datatype":"BF16"}],"id":"z"}'
    assert oip.answer(oip.post(client, "exact", body)).tolist() == [[60, 70, 80]]


@pytest.mark.sanitizer
def test_members_beside_the_protocol_are_ignored(client):
    body = oip.json_body(X, parameters={"sequence_id": 0, "my_note": "x", "number": 1.5, "flag": True}, extra={"a": [1, {"b": None}]})
    assert oip.answer(oip.post(client, "exact", body)).tolist() == Y


@pytest.mark.sanitizer
@pytest.mark.parametrize("priority", [0, 1, 2, 3, 2**32, 2**64 - 1])
def test_priorities_are_taken(client, priority):
    assert oip.answer(oip.post(client, "exact", oip.json_body(X, parameters={"priority": priority}))).tolist() == Y


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["priority", "timeout"])
@pytest.mark.parametrize("value", [-1, 1.5, "x", True, None, 2**64])
def test_priority_and_timeout_are_unsigned_integers(client, name, value):
    oip.refused(oip.post(client, "exact", oip.json_body(X, parameters={name: value})), needle=name)


@pytest.mark.sanitizer
def test_timeout_that_has_passed_is_408_and_not_computed(daemon, client):
    """One microsecond is over before any job starts."""
    before = daemon.get("/v2/models/exact/stats").json()["model_stats"][0]
    reply = oip.post(client, "exact", oip.json_body(X, parameters={"timeout": 1}))
    oip.refused(reply, (408,), needle="timeout")
    after = daemon.get("/v2/models/exact/stats").json()["model_stats"][0]
    assert after["execution_count"] == before["execution_count"]
    assert after["inference_stats"]["fail"]["count"] == before["inference_stats"]["fail"]["count"] + 1
    assert oip.answer(oip.post(client, "exact", oip.json_body(X, parameters={"timeout": 60_000_000}))).tolist() == Y
    assert oip.answer(oip.post(client, "exact", oip.json_body(X, parameters={"timeout": 2**64 - 1}))).tolist() == Y


@pytest.mark.sanitizer
@pytest.mark.parametrize("cut", [1, 7, 64, 1000])
def test_body_in_any_packets(daemon, models, cut):
    """The tensor lands right wherever the JSON part ends and however the bytes come."""
    x = models["kn"].rows(3, dtype="fp32")
    header, data = oip.binary_body(x, "fp32")
    with daemon.client() as client:
        expected = oip.answer(oip.post(client, "kn", header + data, len(header)))
    for padding in (0, 1, 3, 13):
        padded = header + b" " * padding
        body = padded + data
        with connect(daemon.port) as sock:
            head = f"POST /v2/models/kn/infer HTTP/1.1\r\nHost: x\r\n{oip.LENGTH_HEADER}: {len(padded)}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            stream = head + body
            step = max(cut, len(stream) // 300)
            for first in range(0, len(stream), step):
                sock.sendall(stream[first : first + step])
            assert (oip.answer(read_reply(sock, "POST")) == expected).all()


@pytest.mark.sanitizer
def test_chunked_binary_body(daemon):
    header, data = oip.binary_body(X)
    body = header + data
    with connect(daemon.port) as sock:
        sock.sendall(f"POST /v2/models/exact/infer HTTP/1.1\r\nHost: x\r\n{oip.LENGTH_HEADER}: {len(header)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for first in range(0, len(body), 50):
            piece = body[first : first + 50]
            sock.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        assert oip.answer(read_reply(sock, "POST")).tolist() == Y


def test_transports_are_counted_apart(daemon, client):
    def count(transport):
        return daemon.metric("decomposek_request_duration_seconds_count", shape="1000x24", t_bucket="2", transport=transport)

    before = {name: count(name) for name in ("http_oip_json", "http_oip_binary", "http_json")}
    x = np.ones((2, 1000))
    oip.answer(oip.post(client, "gate-fp32", oip.json_body(x)))
    for _ in range(2):
        oip.answer(oip.post_binary(client, "gate-fp32", x))
    eventually(lambda: count("http_oip_json") == before["http_oip_json"] + 1 and count("http_oip_binary") == before["http_oip_binary"] + 2, what="counters")
    assert count("http_json") == before["http_json"]
