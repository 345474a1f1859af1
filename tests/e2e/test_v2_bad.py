"""Infer bodies that are wrong: shapes, data, sizes, framing, nesting. Always a 4xx with a reason, and the daemon as before."""

import json
import time

import pytest

from support import oip
from support.daemon import PATIENCE

GOOD = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}


def infer(client, model="exact", **changes):
    """One input like GOOD with members changed; None removes a member."""
    members = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    return oip.post(client, model, {"inputs": [members]})


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "shape",
    ["[-1,4]", '"[-1]"', '"-1"', "{}", "null", "true", "4", "[1.5,4]", "[true,4]", '["1",4]', "[]", "[4]", "[1,1,4]", "[1,4,1]", "[4,1]", "[1,5]", "[1,3]", "[2,4]", "[0,4]", "[1,[4]]",
     "[null,4]", "[1e400,4]", "[18446744073709551616,4]", "[18446744073709551615,4]", "[4611686018427387904,4]", "[1,-4]", "[9223372036854775808,2]", "[1,1,1,1,1,1,1,1,4]", "[16777217,4]"],
)
def test_c23_shape_is_refused(daemon, client, shape):
    body = '{"inputs":[{"name":"x","shape":%s,"datatype":"FP32","data":[1,2,3,4]}]}' % shape
    oip.refused(oip.post(client, "exact", body), needle="shape" if "e400" not in shape else "1e400")
    daemon.check_alive()


@pytest.mark.sanitizer
def test_c23_decimals_as_dimensions_are_refused(client):
    """1e0 and 1.0 are numbers of JSON, but a dimension is written as an integer."""
    for text in ("1e0", "1.0", "10e-1", "-0"):
        oip.refused(oip.post(client, "exact", '{"inputs":[{"name":"x","shape":[%s,4],"datatype":"FP32","data":[1,2,3,4]}]}' % text), needle="shape")


@pytest.mark.sanitizer
@pytest.mark.parametrize("body", ["", " ", "null", "[]", "1", '"x"', "{", "{}", '{"inputs"}', '{"inputs":null}', '{"inputs":{}}', '{"inputs":[]}', '{"inputs":[1]}', '{"inputs":[null]}', '{"inputs":[[]]}',
                                  '{"inputs":"x"}', '{"inputs":[{}]}', "\ufeff{}", '{"inputs":[]} x', "{'inputs':[]}", '{"id":7,"inputs":[]}', '{"outputs":[]}'])
def test_c23_body_that_is_no_request_is_refused(client, body):
    oip.refused(oip.post(client, "exact", body))
    oip.refused(oip.post(client, "exact", body, len(body.encode())) if body else oip.post(client, "exact", body))


@pytest.mark.sanitizer
@pytest.mark.parametrize("member,value", [("id", 7), ("id", None), ("id", {}), ("id", "x" * 2000), ("parameters", []), ("parameters", 1), ("parameters", "x"), ("outputs", {}), ("outputs", "logits"),
                                          ("outputs", [1]), ("outputs", [{}]), ("outputs", [{"name": 1}]), ("outputs", [{"name": "logits", "parameters": []}]),
                                          ("outputs", [{"name": "logits", "parameters": {"binary_data": 1}}]), ("outputs", [{"name": "logits", "parameters": {"binary_data": "true"}}]),
                                          ("parameters", {"binary_data_output": 1}), ("parameters", {"binary_data_output": "x"}), ("parameters", {"triton_enable_empty_final_response": True})])
def test_c23_ill_typed_member_is_refused(client, member, value):
    oip.refused(oip.post(client, "exact", {"inputs": [GOOD], member: value}), needle=member if member != "parameters" else ())


@pytest.mark.sanitizer
@pytest.mark.parametrize("count", [0, 3, 5, 8])
def test_c25_count_of_numbers_must_fit_the_shape(client, count):
    text = oip.refused(infer(client, data=[1] * count), needle="x")
    assert str(count) in text and "4" in text


@pytest.mark.sanitizer
@pytest.mark.parametrize("data", [[[1, 2, 3], [4]], [[1, 2, 3, 4, 5]], [[[1, 2, 3, 4]]], [[1], [2], [3], [4]], [1, [2, 3, 4]], [[1, 2], [3, 4]], 1, "1234", {"0": 1}, [True, 2, 3, 4], ["1", 2, 3, 4],
                                  [None, 2, 3, 4], [[]], [[1, 2, 3, 4], []], True])
def test_c25_data_of_another_nesting_is_refused(client, data):
    oip.refused(infer(client, data=data))


@pytest.mark.sanitizer
def test_c25_rows_of_wrong_length_are_refused(client):
    oip.refused(infer(client, shape=[2, 4], data=[[1, 2, 3], [4, 5, 6, 7, 8]]))
    oip.refused(infer(client, model="gate", shape=[1, 7168], datatype="BF16", data=[0] * 7167), needle="7167")
    oip.refused(infer(client, model="gate", shape=[1, 7168], datatype="BF16", data=[0] * 7169), needle="7169")
    oip.refused(infer(client, model="gate", shape=[2, 7168], datatype="BF16", data=[[0] * 7167, [0] * 7169]))


@pytest.mark.sanitizer
@pytest.mark.parametrize("missing", ["shape", "datatype", "data", "name"])
def test_c25_missing_member_is_named(client, missing):
    oip.refused(infer(client, **{missing: None}), needle=missing)


@pytest.mark.sanitizer
@pytest.mark.parametrize("datatype", ["fp32", "FP99", "FP32 ", " FP32", "", "INT32", "BOOL", "BYTES", "FP64", "TYPE_FP32", 7, True])
def test_c25_datatype_is_refused(client, datatype):
    oip.refused(infer(client, datatype=datatype), needle="datatype")


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["", "y", "X", "x ", "x" * 100, 7])
def test_c25_input_must_be_x(client, name):
    oip.refused(infer(client, name=name))


@pytest.mark.sanitizer
def test_c25_more_inputs_than_the_model_has_are_refused(client):
    oip.refused(oip.post(client, "exact", {"inputs": [GOOD, {**GOOD, "name": "y"}]}), needle="inputs")
    oip.refused(oip.post(client, "exact", {"inputs": [GOOD, GOOD]}))
    oip.refused(oip.post(client, "exact", {"inputs": [GOOD] * 17}), status=(400, 413))


@pytest.mark.sanitizer
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "-1e999", "01", "1.", ".5", "+1", "1e", "0x1"])
def test_c25_numbers_are_strict(client, number):
    oip.refused(oip.post(client, "exact", '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[%s,2,3,4]}]}' % number))
    oip.refused(infer(client, datatype="FP16", data=[70000, 0, 0, 0]), needle="x")


def binary(client, parameters, data=b"\0" * 16, header_length=None, input_changes=None, extra=None):
    member = {key: value for key, value in {**GOOD, "data": None, "parameters": parameters, **(input_changes or {})}.items() if value is not None}
    header = json.dumps({"inputs": [member], **(extra or {})}).encode()
    return oip.post(client, "exact", header + data, len(header) if header_length is None else header_length)


@pytest.mark.sanitizer
@pytest.mark.parametrize("size", [0, 15, 17, 32, -1, -16, 16.5, "16", True, None, [16], 2**63, 2**64 - 1, 2**64, 2**64 + 16, 1e300])
def test_c27_binary_data_size_must_fit(daemon, client, size):
    oip.refused(binary(client, {"binary_data_size": size}))
    daemon.check_alive()


@pytest.mark.sanitizer
@pytest.mark.parametrize("size", [0, 1, 15, 17, 32, 4096])
def test_c27_tail_must_be_as_long_as_announced(client, size):
    oip.refused(binary(client, {"binary_data_size": 16}, b"\0" * size), needle="16")


@pytest.mark.sanitizer
@pytest.mark.parametrize("length", ["-1", "+5", "1.5", "1e2", "x", "", " ", "0x10", "18446744073709551616", "99999999999999999999999", "1000000", "1", "5"])
def test_c27_header_length_is_refused(client, length):
    oip.refused(binary(client, {"binary_data_size": 16}, header_length=length))


@pytest.mark.sanitizer
def test_c27_other_framing_mistakes(client):
    header, data = oip.binary_body([[1, 2, 3, 4]])
    oip.refused(oip.post(client, "exact", header + data))  # no length header: the tail is not JSON
    oip.refused(oip.post(client, "exact", header), needle=oip.LENGTH_HEADER)  # none, and no tail either
    for length in (len(header) - 1, len(header) + 1, len(header) + len(data)):
        oip.refused(oip.post(client, "exact", header + data, length))
    reply = client.request("POST", oip.infer_path("exact"), header + data, {oip.LENGTH_HEADER: f"{len(header)}, {len(header)}"})
    oip.refused(reply)
    oip.refused(binary(client, {"binary_data_size": 16}, input_changes={"data": [1, 2, 3, 4]}))
    oip.refused(binary(client, {"binary_data_size": 16, "shared_memory_region": "r", "shared_memory_byte_size": 16}))
    oip.refused(binary(client, {}))
    oip.refused(binary(client, None, b"\0" * 16, input_changes={"data": [1, 2, 3, 4]}))  # JSON data and a tail


@pytest.mark.sanitizer
def test_length_header_twice_is_refused(daemon):
    from support.http import raw_request

    header, data = oip.binary_body([[1, 2, 3, 4]])
    head = f"POST /v2/models/exact/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(header + data)}\r\n" + f"{oip.LENGTH_HEADER}: {len(header)}\r\n" * 2 + "\r\n"
    oip.refused(raw_request(daemon.port, head.encode() + header + data, "POST"))


@pytest.mark.sanitizer
def test_connection_stays_usable_after_each_refusal(daemon):
    header, data = oip.binary_body([[1, 2, 3, 4]])
    with daemon.client() as client:
        oip.answer(oip.post(client, "exact", header + data, len(header)))
        sock = client.connection.sock
        for body, length in ((header + data, None), (header + data + b"x", len(header)), (b"[" * 5000, None), (header + data, 5)):
            oip.refused(oip.post(client, "exact", body, length))
            oip.refused(oip.post(client, "nope", body, length), (404,))
        assert oip.answer(oip.post(client, "exact", header + data, len(header))).tolist() == [[60, 70, 80]]
        assert client.connection.sock is sock, "a refusal has closed the connection"


DEEP = 100_000
NESTS = {
    "data": '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":%s%s}]}' % ("[" * DEEP, "]" * DEEP),
    "parameters": '{"parameters":{"a":%s%s},"inputs":[]}' % ("[" * DEEP, "]" * DEEP),
    "unknown": '{"x":%s%s}' % ("[" * DEEP, "]" * DEEP),
    "objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "open": '{"inputs":' + "[" * DEEP,
    "inputs": '{"inputs":%s%s}' % ("[" * DEEP, "]" * DEEP),
    "shape": '{"inputs":[{"shape":%s%s}]}' % ("[" * DEEP, "]" * DEEP),
    "outputs": '{"outputs":%s%s,"inputs":[]}' % ('[{"parameters":' * DEEP, "}]" * DEEP),
}


@pytest.mark.sanitizer
@pytest.mark.parametrize("where", NESTS)
def test_c31_deep_nesting(daemon, client, where):
    """Refused in under a second, on infer and on every other route that reads JSON."""
    body = NESTS[where]
    before, began = daemon.peak_rss_bytes(), time.monotonic()
    oip.refused(oip.post(client, "exact", body), (400, 413))
    oip.refused(oip.post(client, "exact", body, len(body)), (400, 413))
    oip.refused(client.request("POST", "/v2/systemsharedmemory/region/r/register", body), (400, 403, 413))
    assert time.monotonic() - began < 3 * PATIENCE
    assert daemon.peak_rss_bytes() - before < 40 << 20
    daemon.check_alive()


@pytest.mark.sanitizer
def test_body_over_the_limit_is_413(start):
    daemon = start("--max-body-bytes=20000")
    with daemon.client() as client:
        oip.refused(oip.post(client, "exact", b" " * 20001), (413,))
        oip.refused(oip.post(client, "exact", b" " * (8 << 20)), (413,))
        assert oip.answer(oip.post(client, "exact", oip.json_body([[1, 2, 3, 4]]))).tolist() == [[60, 70, 80]]
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_infer_while_loading_or_stopping_is_503(start):
    daemon = start("--drain-grace-ms=0", "--drain-limit-ms=2000")
    with daemon.client() as client:
        oip.answer(oip.post(client, "exact", oip.json_body([[1, 2, 3, 4]])))
        daemon.process.terminate()
        try:
            while (reply := oip.post(client, "exact", oip.json_body([[1, 2, 3, 4]]))).status == 200:
                pass
            oip.refused(reply, (503,))
            assert reply.header("retry-after")
        except OSError:
            pass  # it was idle when the daemon closed it: no request was lost
    assert daemon.wait_exit() == 0
