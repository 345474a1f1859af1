"""JSON bodies that are wrong: types, counts, nesting, text. Always a 4xx with a reason, and the daemon as before."""

import json
import time

import numpy as np
import pytest

from support import weights_file
from support.daemon import PATIENCE


def refuse(client, body, status=(400,), needle=None, path="/v1/matmul"):
    reply = client.post_json(body, path=path)
    assert reply.status in status, reply
    assert reply.header("content-type").split(";")[0] == "application/json", reply.headers
    answer = reply.json()
    assert isinstance(answer["error"], str) and answer["error"], reply
    if needle is not None:
        for text in [needle] if isinstance(needle, str) else needle:
            assert text in answer["error"], answer
    return answer["error"]


# --- C23: ill-typed values where a tensor or a word is expected -----------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "x",
    ['"[-1]"', "{}", "null", "1.5", "true", '"1"', '[true,1,2,3]', '["1",2,3,4]', "[null,1,2,3]", "[{},1,2,3]", "[[1,2,3,4],null]",
     "[[[1,2,3,4]]]", "[[1,2,3,4],[1,2,3]]", "[1,[2],3,4]", "[[1,2,3,4],5]", "[[]]", "[[],[]]", "[[[]]]", "[1]", "[[1]]", "[NaN,0,0,0]",
     "[Infinity,0,0,0]", "[1e400,0,0,0]", "[-1e999,0,0,0]", "[01,0,0,0]", "[1.,0,0,0]", "[.5,0,0,0]", "[+1,0,0,0]", "[1e,0,0,0]", "[0x1,0,0,0]",
     "[1,2,3,4,]", "[,1,2,3,4]", "[1 2,3,4]", "[1,2,3,4", "[--1,0,0,0]", "[1,0,0,0]]"],
)
def test_c23_ill_typed_x_is_refused(daemon, client, x):
    refuse(client, '{"model": "exact", "x": %s}' % x)
    daemon.check_alive()


@pytest.mark.sanitizer
@pytest.mark.parametrize("member", ["model", "dtype", "out_dtype", "epilogue", "id"])
@pytest.mark.parametrize("value", ["-1", "1.5", "true", "null", "{}", "[]", "[1]", '""', '"\\u0000"', '"' + "x" * 300 + '"'])
def test_c23_ill_typed_member_is_refused(client, member, value):
    members = {"model": '"exact"', "x": "[[1,2,3,4]]", member: value}
    refuse(client, "{" + ",".join(f'"{name}": {text}' for name, text in members.items()) + "}", status=(400, 404))


@pytest.mark.sanitizer
@pytest.mark.parametrize("body", ["", " ", "null", "true", "1", '"x"', "[]", "[{}]", "{", "{}", '{"model"}', "{'model': 'exact'}", '{"model":"exact","x":[[1,2,3,4]]} x',
                                  '{"model":"exact","x":[[1,2,3,4]]}{}', '\ufeff{"model":"exact","x":[[1,2,3,4]]}', '{"model":"exact"}', '{"x":[[1,2,3,4]]}'])
def test_c23_body_that_is_no_request_is_refused(client, body):
    refuse(client, body)


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "body",
    [b'{"model":"exact","model":"gate","x":[[1,2,3,4]]}', b'{"x":[[1,2,3,4]],"model":"exact","x":[[1,2,3,4]]}', b'{"model":"ex\tact","x":[[1,2,3,4]]}',
     b'{"model":"\xff","x":[[1,2,3,4]]}', b'{"model":"\xc0\xaf","x":[[1,2,3,4]]}', b'{"model":"\xed\xa0\x80","x":[[1,2,3,4]]}', b'{"id":"\\ud800","model":"exact","x":[]}',
     b'{"id":"\\udc00\\ud800","model":"exact","x":[]}', b'{"id":"\\u12","model":"exact","x":[]}', b'{"id":"\\x41","model":"exact","x":[]}', b'\x00', b'{"model":"exact","x":[]}\x00'],
)
def test_c23_text_that_is_not_strict_json_is_refused(client, body):
    refuse(client, body)


@pytest.mark.sanitizer
def test_unknown_member_is_refused_by_name(client):
    refuse(client, {"model": "exact", "x": [[1, 2, 3, 4]], "epilog": "relu"}, needle="epilog")


def test_unknown_model_is_404_with_the_name_escaped(client):
    reply = client.post_json({"model": "no.such-model", "x": [[1]]})
    assert reply.status == 404 and "no.such-model" in reply.json()["error"], reply
    for name in ('a"b', "a\nb", "../../etc/passwd", "\u00e9", "a b"):
        reply = client.post_json({"model": name, "x": [[1, 2, 3, 4]]})
        assert reply.status in (400, 404) and reply.json()["error"], reply
        assert b"\n" not in reply.body.strip()


# --- C25: counts ------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("count", [7167, 7169])
def test_c25_wrong_row_length_names_expected_and_found(daemon, client, count):
    refuse(client, {"model": "gate", "x": [[0] * count]}, needle=("7168", str(count), "x"))
    refuse(client, {"model": "gate", "x": [0] * count}, needle=("7168", str(count), "x"))
    daemon.check_alive()


@pytest.mark.sanitizer
def test_c25_ragged_rows_name_the_row(client):
    error = refuse(client, {"model": "gate", "x": [[0] * 7168, [0] * 7167]}, needle=("x", "7168", "7167"))
    assert "1" in error
    # Right total, wrong rows.
    refuse(client, {"model": "gate", "x": [[0] * 7167, [0] * 7169]}, needle=("x[1]", "7167", "7169"))


@pytest.mark.sanitizer
def test_c25_right_count_in_another_nesting_is_refused(client):
    refuse(client, {"model": "exact", "x": [[1], [2], [3], [4]]}, needle="4")
    refuse(client, {"model": "exact", "x": [[[1, 2], [3, 4]]]})
    refuse(client, {"model": "exact", "x": [1, 2, 3, 4, 5, 6, 7, 8]})


def test_c25_flat_and_nested_forms_give_the_same_answer(client, models):
    row = models["gate"].rows(1)[0].tolist()
    assert client.post_json({"model": "gate", "x": row}).json()["y"] == client.post_json({"model": "gate", "x": [row]}).json()["y"]


# --- C28: 16-bit floats -------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype,bytes_of_pi", [("bf16", "4940"), ("fp16", "4842")])
def test_c28_sixteen_bit_types_are_not_mixed_up(client, models, dtype, bytes_of_pi):
    x = np.array([[0, 3.140625, 0, 0]], np.float32)
    body = weights_file.encode(x, dtype)
    assert body[2:4].hex() == bytes_of_pi
    expected = (3.140625 * models["exact"].kn[1]).tolist()
    answer = client.post_raw(body, f"model=exact&dtype={dtype}", accept="application/json").json()
    assert answer["y"][0] == expected
    assert client.post_json({"model": "exact", "dtype": dtype, "x": x.tolist()}).json()["y"][0] == expected
    raw = client.post_raw(body, f"model=exact&dtype={dtype}&out_dtype={dtype}")
    assert raw.body == weights_file.encode(np.array(expected, np.float32), dtype)
    other = "fp16" if dtype == "bf16" else "bf16"
    assert client.post_raw(body, f"model=exact&dtype={other}", accept="application/json").json()["y"][0] != expected


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype,value", [("fp16", "65520"), ("fp16", "-1e300"), ("bf16", "3.4e38"), ("fp32", "3.5e38"), ("fp32", "-1e308")])
def test_c28_value_beyond_the_type_is_refused(client, dtype, value):
    for body in ('{"model":"exact","dtype":"%s","x":[[0,%s,0,0]]}', '{"x":[[0,%s,0,0]],"dtype":"%s","model":"exact"}'):
        text = body % ((dtype, value) if body.index("dtype") < body.index('"x"') else (value, dtype))
        reply = client.post_json(text)
        assert reply.status == 400 and reply.json()["status"] == "BAD_VALUE" and dtype in reply.json()["error"], reply


@pytest.mark.sanitizer
def test_c28_largest_finite_value_is_taken(client):
    assert client.post_json({"model": "exact", "dtype": "fp16", "x": [[0, 65504.0, 0, 0]]}).json()["y"][0][0] == 65504 * 3


# --- C31: deep nesting ---------------------------------------------------------------------------------------------


def nests(depth):
    yield '{"x":' + "[" * depth + "]" * depth + "}"
    yield '{"model":"exact","x":' + "[" * depth
    yield '{"model":"exact","unknown":' + "[" * depth + "]" * depth + ',"x":[[1,2,3,4]]}'
    yield '{"model":"exact","id":' + '{"a":' * depth + "1" + "}" * depth + "}"
    yield "[" * depth + "]" * depth
    yield '{"a":' * depth
    yield '{"a":[[1]],"b":' + "[" * depth + "1" + "]" * depth + "}"


@pytest.mark.sanitizer
@pytest.mark.parametrize("depth", [33, 10_000, 1_000_000])
@pytest.mark.parametrize("kind", range(7))
def test_c31_deep_nesting_is_refused(daemon, client, depth, kind):
    body = list(nests(depth))[kind].encode()
    before, began = daemon.rss_bytes(), time.monotonic()
    refuse(client, body)
    assert time.monotonic() - began < 10 * PATIENCE  # a hang, not a slow machine
    assert daemon.rss_bytes() - before < 4 * len(body) + (32 << 20)
    daemon.check_alive()


@pytest.mark.sanitizer
def test_c31_a_million_members_and_long_strings_are_bounded(daemon, client):
    before = daemon.rss_bytes()
    many = ",".join(f'"k{index}":1' for index in range(300_000))
    refuse(client, '{"model":"exact","x":[[1,2,3,4]],%s}' % many, status=(400, 413))
    refuse(client, '{"model":"exact","x":[[1,2,3,4]],"id":"%s"}' % ("y" * 5_000_000), status=(400, 413))
    refuse(client, '{"model":"exact","x":[[1,2,3,4]],"%s":1}' % ("y" * 5_000_000), status=(400, 413))
    refuse(client, '{"model":"exact","x":[[%s,2,3,4]]}' % ("1" * 5_000_000), status=(400, 413))
    assert daemon.rss_bytes() - before < 64 << 20
    daemon.check_alive()


def test_space_between_tokens_is_free(client):
    body = ' \n\t{ "model" :\r\n"exact" , "x" : [ [ 1 , 2e0 , 3.0 , 4E+0 ] ] } \n' + " " * 100_000
    assert client.post_json(body).json()["y"] == [[60, 70, 80]]


def test_escapes_in_member_names_and_values_are_understood(client):
    assert client.post_json('{"m\\u006fdel":"\\u0065xact","x":[[1,2,3,4]]}').json()["y"] == [[60, 70, 80]]


def test_error_answers_do_not_cost_the_connection(client):
    """All on one connection: a refusal leaves it usable."""
    for _ in range(3):
        refuse(client, '{"model": "exact", "x": [[1,2,3]]}')
        first = client.connection.sock
        assert client.post_json({"model": "exact", "x": [[1, 2, 3, 4]]}).json()["y"] == [[60, 70, 80]]
        assert client.connection.sock is first is not None


def test_error_text_is_json_whatever_was_sent(client):
    for text in ('"', "\\", "\x7f", "\u2028", "</script>"):
        reply = client.post_json(json.dumps({"model": "exact", "x": [[1, 2, 3, 4]], text: 1}))
        assert reply.status == 400 and isinstance(json.loads(reply.body)["error"], str)
