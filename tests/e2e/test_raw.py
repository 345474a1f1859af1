"""POST /v1/matmul with a raw body: same bits as JSON, sizes that do not add up, both kinds of answer."""

import itertools

import numpy as np
import pytest

from support import reference, weights_file


def raw_answer(reply, n, out_dtype="fp32"):
    assert reply.status == 200, reply
    assert reply.header("content-type") == "application/octet-stream", reply.headers
    assert int(reply.header("content-length")) == len(reply.body)
    return weights_file.decode(reply.body, out_dtype).reshape(-1, n)


@pytest.mark.sanitizer
@pytest.mark.parametrize("t", [0, 1, 17, 64, 65, 300])
def test_raw_and_json_give_the_same_bits(client, models, t):
    gate = models["gate"]
    x = gate.rows(t)
    raw = raw_answer(client.post_raw(weights_file.encode(x, "bf16"), "model=gate&dtype=bf16"), gate.n)
    json_answer = client.post_json({"model": "gate", "x": x.tolist()}).json()
    reference.assert_same_bits(raw, np.array(json_answer["y"], np.float32).reshape(t, gate.n))


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype,out_dtype", itertools.product(("fp32", "bf16", "fp16"), repeat=2))
def test_raw_types(client, models, dtype, out_dtype):
    model = models["sigmoid"]
    x = model.rows(5, dtype=dtype)
    query = f"model=sigmoid&dtype={dtype}&out_dtype={out_dtype}&epilogue=relu"
    got = raw_answer(client.post_raw(weights_file.encode(x, dtype), query), model.n, out_dtype)
    as_json = client.post_json({"model": "sigmoid", "x": x.tolist(), "dtype": dtype, "out_dtype": out_dtype, "epilogue": "relu"}).json()
    reference.assert_same_bits(got, np.array(as_json["y"], np.float32))


@pytest.mark.sanitizer
def test_raw_answer_headers_say_what_json_says(client, models):
    body = weights_file.encode(models["kn"].rows(3), "bf16")
    reply = client.post_raw(body, "model=kn&out_dtype=fp16&id=q.7")
    assert reply.header("x-decomposek-shape") == "3,48" and reply.header("x-decomposek-dtype") == "fp16"
    assert reply.header("x-decomposek-id") == "q.7"
    timing = dict(pair.split("=") for pair in reply.header("x-decomposek-timing-us").split(" "))
    assert {"queue", "kernel", "total"} <= set(timing) and 0 <= float(timing["kernel"]) <= float(timing["total"])
    plan = dict(pair.split("=") for pair in reply.header("x-decomposek-plan").split(" "))
    as_json = client.post_raw(body, "model=kn", accept="application/json").json()["plan"]
    assert plan == {name: str(value) for name, value in as_json.items()}


def test_raw_default_dtype_is_the_weights_type(client, models):
    model = models["gate-fp16"]
    x = model.rows(2)
    plain = raw_answer(client.post_raw(weights_file.encode(x, "fp16"), "model=gate-fp16"), model.n)
    named = raw_answer(client.post_raw(weights_file.encode(x, "fp16"), "model=gate-fp16&dtype=fp16"), model.n)
    reference.assert_same_bits(plain, named)


def test_raw_body_with_json_answer(client, models):
    model = models["kn"]
    x = model.rows(3)
    body = weights_file.encode(x, "bf16")
    for accept in ("application/json", "*/*"):
        reply = client.post_raw(body, "model=kn&id=q7", accept=accept)
        assert reply.status == 200 and reply.header("content-type").split(";")[0] == "application/json", reply
        answer = reply.json()
        assert answer["shape"] == [3, model.n] and answer["id"] == "q7"
        as_raw = raw_answer(client.post_raw(body, "model=kn"), model.n)
        reference.assert_same_bits(np.array(answer["y"], np.float32), as_raw)


def test_json_body_with_raw_answer(client, models):
    model = models["kn"]
    x = model.rows(3)
    reply = client.post_json({"model": "kn", "x": x.tolist()}, headers={"Accept": "application/octet-stream"})
    got = raw_answer(reply, model.n)
    reference.assert_same_bits(got, np.array(client.post_json({"model": "kn", "x": x.tolist()}).json()["y"], np.float32))


@pytest.mark.sanitizer
def test_raw_chunked_body_is_the_same(client, models):
    model = models["kn"]
    body = weights_file.encode(model.rows(9), "bf16")
    expected = client.post_raw(body, "model=kn")
    pieces = (body[i : i + 77] for i in range(0, len(body), 77))
    client.connection.request(
        "POST", "/v1/matmul?model=kn", body=pieces, encode_chunked=True,
        headers={"Content-Type": "application/octet-stream", "Accept": "application/octet-stream", "Transfer-Encoding": "chunked"},
    )
    response = client.connection.getresponse()
    assert response.status == 200 and response.read() == expected.body


# --- C27: sizes that do not add up --------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("extra", [1, -1, 2, -2, 7, 3 * 7168, -7168])
def test_c27_raw_body_that_is_not_whole_rows_is_refused(client, models, extra):
    body = weights_file.encode(models["gate"].rows(4), "bf16")
    body = body + b"\0" * extra if extra > 0 else body[:extra]
    reply = client.post_raw(body, "model=gate")
    assert reply.status == 400, reply
    error = reply.json()["error"]
    assert str(len(body)) in error and str(7168 * 2) in error, error


@pytest.mark.sanitizer
def test_c27_body_of_the_wrong_item_size_is_refused(client, models):
    body = weights_file.encode(models["exact"].rows(3, dtype="fp16"), "fp16")  # 3 rows of 8 bytes are not rows of 16
    assert client.post_raw(body, "model=exact&dtype=fp32").status == 400
    assert client.post_raw(body, "model=exact&dtype=fp16").status == 200


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "query",
    ["", "dtype=bf16", "model=", "model=gate&dtype=FP99", "model=gate&dtype=int32", "model=gate&dtype=", "model=gate&dtype",
     "model=gate&out_dtype=int32", "model=gate&epilogue=gelu", "model=gate&shape=1", "model=gate&model=gate", "model=gate&dtyp=bf16",
     "model=gate&dtype=BF16", "model=gate&dtype=bf16%20", "model=gate%00", "model=gate&id=" + "x" * 65],
)
def test_raw_bad_query_is_refused(client, models, query):
    body = weights_file.encode(models["gate"].rows(1), "bf16")
    reply = client.post_raw(body, query)
    assert reply.status in (400, 404) and reply.json()["error"], reply


def test_raw_unknown_model_is_404(client):
    reply = client.post_raw(b"\0" * 64, "model=nobody")
    assert reply.status == 404 and "nobody" in reply.json()["error"], reply
