"""POST /v1/matmul with JSON: models, sizes, types, epilogues, and ad hoc products."""

import itertools

import numpy as np
import pytest

from support import reference, weights_file

DTYPES = ("fp32", "bf16", "fp16")


def ask(client, **body):
    reply = client.post_json(body)
    assert reply.status == 200, reply
    assert reply.header("content-type").split(";")[0] == "application/json"
    return reply.json()


def plan_of(answer, k):
    """The plan of an answer with a chunk length: S chunks of K imply one, up to the kernels' alignment."""
    plan = dict(answer["plan"])
    plan.setdefault("chunk_k", min(k, -(-k // plan["split_k"] // 64) * 64))
    return plan


@pytest.mark.sanitizer
def test_matmul_by_hand(client):
    answer = ask(client, model="exact", x=[[1, 2, 3, 4]])
    assert answer["model"] == "exact" and answer["shape"] == [1, 3] and answer["dtype"] == "fp32"
    assert answer["y"] == [[60, 70, 80]]
    assert set(answer["timing_us"]) == {"queue", "kernel", "total"}
    assert all(value >= 0 for value in answer["timing_us"].values())
    assert answer["timing_us"]["kernel"] <= answer["timing_us"]["total"]
    assert answer["plan"]["bucket"] == 1 and answer["plan"]["split_k"] >= 1 and answer["plan"]["backend"] == "cpu"
    assert answer["plan"]["variant"]


@pytest.mark.sanitizer
def test_matmul_flat_x_is_one_row(client):
    assert ask(client, model="exact", x=[1, 2, 3, 4])["y"] == [[60, 70, 80]]


@pytest.mark.sanitizer
@pytest.mark.parametrize("t", [1, 2, 17, 64, 65])
def test_matmul_gate_is_within_the_bound(client, models, t):
    gate = models["gate"]
    x = gate.rows(t)
    answer = ask(client, model="gate", x=x.tolist())
    assert answer["shape"] == [t, 256]
    gate.check(answer["y"], x, plan_of(answer, gate.k))


@pytest.mark.parametrize("t", [300, 513])
def test_matmul_more_rows_than_max_tokens_is_cut_in_pieces(client, models, t):
    gate = models["gate"]
    x = gate.rows(t)
    answer = ask(client, model="gate", x=x.tolist())
    assert answer["shape"] == [t, 256] and answer["plan"]["pieces"] == -(-t // 256)
    gate.check(answer["y"], x, plan_of(answer, gate.k))


@pytest.mark.parametrize("name", ["gate-fp16", "gate-fp32", "kn", "relu", "sigmoid"])
@pytest.mark.parametrize("t", [1, 5])
def test_matmul_every_model(client, models, name, t):
    model = models[name]
    x = model.rows(t)
    answer = ask(client, model=name, x=x.tolist())
    model.check(answer["y"], x, plan_of(answer, model.k))


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype,out_dtype,epilogue", itertools.product(DTYPES, DTYPES, reference.EPILOGUES))
def test_matmul_types_and_epilogues(client, models, dtype, out_dtype, epilogue):
    model = models["relu"]
    x = model.rows(3, dtype=dtype)
    answer = ask(client, model="relu", x=x.tolist(), dtype=dtype, out_dtype=out_dtype, epilogue=epilogue)
    assert answer["dtype"] == out_dtype
    model.check(answer["y"], x, plan_of(answer, model.k), out_dtype, epilogue)
    values = np.array(answer["y"], np.float32)
    reference.assert_same_bits(values, weights_file.rounded(values, out_dtype), "values of the output type only")


@pytest.mark.parametrize("order", ["model first", "model last"])
@pytest.mark.parametrize(
    "dtype,text,value",
    [
        ("bf16", "1.00390625", 1.0),  # a tie goes to the even neighbour
        ("bf16", "1.01171875", 1.015625),
        ("bf16", "1.003906250001", 1.0078125),  # above the tie, though not in fp32: rounded once
        ("fp16", "1.00048828125", 1.0),
        ("fp16", "1.000488281250001", 1.0009765625),
        ("fp32", "16777217", 16777216.0),
        ("fp32", "16777217.0000001", 16777218.0),
        ("fp32", "-0.1e1", -1.0),
        ("fp16", "5.960464477539063e-08", 2.0**-24),
        ("bf16", "9.183549615799121e-41", 2.0**-133),
    ],
)
def test_matmul_x_is_rounded_once_to_nearest_even(client, models, dtype, text, value, order):
    members = ['"model": "exact", "dtype": "%s"' % dtype, '"x": [[0, %s, 0, 0]]' % text]
    if order == "model last":
        members.reverse()
    reply = client.post_json("{" + ", ".join(members) + "}")
    assert reply.status == 200, reply
    expected = (np.float32(value) * models["exact"].kn[1]).astype(np.float32)
    reference.assert_same_bits(np.array(reply.json()["y"][0], np.float32), expected)


@pytest.mark.sanitizer
def test_matmul_model_before_or_after_x_gives_the_same_bits(client, models):
    x = models["gate"].rows(3, dtype="fp32").tolist()
    first = client.post_json({"model": "gate", "x": x}).json()
    last = client.post_json({"x": x, "model": "gate"}).json()
    assert first["y"] == last["y"]
    with_types = client.post_json({"dtype": "fp16", "model": "gate", "x": x}).json()
    types_last = client.post_json({"x": x, "model": "gate", "dtype": "fp16"}).json()
    assert with_types["y"] == types_last["y"]


def test_matmul_same_input_same_bits_alone_and_in_company(client, models):
    gate = models["gate"]
    x = gate.rows(33)
    together = ask(client, model="gate", x=x.tolist())["y"]
    assert ask(client, model="gate", x=x.tolist())["y"] == together
    for row in (0, 7, 32):
        assert ask(client, model="gate", x=[x[row].tolist()])["y"][0] == together[row]


def test_matmul_id_comes_back(client):
    assert ask(client, model="exact", x=[], id="job-\u00e9-7")["id"] == "job-\u00e9-7"
    assert "id" not in ask(client, model="exact", x=[])


@pytest.mark.sanitizer
def test_bias_of_the_request_replaces_the_models_own(client, models):
    model = models["relu"]
    x = model.rows(2)
    bias = np.linspace(-1, 1, model.n).astype(np.float32)
    for members in ({"model": "relu", "x": x.tolist(), "bias": bias.tolist()}, {"bias": bias.tolist(), "x": x.tolist(), "model": "relu"}):
        answer = ask(client, **members)
        plan = plan_of(answer, model.k)
        expected = reference.product(x, model.kn, bias, "relu")
        reference.assert_close(answer["y"], expected, reference.bound(x, model.kn, plan["chunk_k"], plan["split_k"], "fp32", bias, "relu"))
    reply = client.post_json({"model": "relu", "x": x.tolist(), "bias": [1, 2]})
    assert reply.status == 400 and "bias" in reply.json()["error"], reply


# --- ad hoc -----------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_ad_hoc_by_hand(client):
    answer = ask(client, a=[[1, 2, 3], [4, 5, 6]], b=[[7, 8], [9, 10], [11, 12]])
    assert answer["y"] == [[58, 64], [139, 154]] and answer["shape"] == [2, 2]
    assert answer.get("model") is None


@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype,layout,epilogue", itertools.product(DTYPES, ("kn", "nk"), reference.EPILOGUES))
def test_ad_hoc_types_layouts_and_bias(client, dtype, layout, epilogue):
    random = np.random.default_rng(5)
    m, n, k = 3, 17, 130
    a = weights_file.rounded(random.standard_normal((m, k)), dtype)
    b = weights_file.rounded(random.standard_normal((k, n)), dtype)
    bias = random.standard_normal(n).astype(np.float32)
    answer = ask(client, a=a.tolist(), b=(b if layout == "kn" else b.T).tolist(), bias=bias.tolist(), dtype=dtype,
                 b_layout=layout, epilogue=epilogue)
    plan = plan_of(answer, k)
    expected = reference.product(a, b, bias, epilogue)
    allowed = reference.bound(a, b, plan["chunk_k"], plan["split_k"], "fp32", bias, epilogue)
    reference.assert_close(answer["y"], expected, allowed)


def test_ad_hoc_members_in_any_order(client):
    parts = {"a": "[[1,2],[3,4]]", "b": "[[5,6],[7,8]]", "bias": "[1,2]", "dtype": '"bf16"', "epilogue": '"relu"'}
    for order in itertools.permutations(parts):
        reply = client.post_json("{" + ",".join(f'"{name}":{parts[name]}' for name in order) + "}")
        assert reply.status == 200 and reply.json()["y"] == [[20, 24], [44, 52]], (order, reply)


@pytest.mark.parametrize(
    "body",
    [
        {"a": [[1, 2]], "b": [[1], [2], [3]]},
        {"a": [[1, 2]], "b": [[1, 2]], "b_layout": "kn"},
        {"a": [[1, 2]]},
        {"b": [[1, 2]]},
        {"a": [[1, 2]], "b": [[1], [2]], "bias": [1, 2]},
        {"a": [[1, 2]], "b": [[1], [2]], "x": [[1, 2]]},
        {"a": [[1, 2]], "b": [[1], [2]], "model": "exact"},
        {"a": [], "b": []},
        {"a": [[1, 2]], "b": [[]]},
    ],
)
def test_ad_hoc_mismatch_is_refused(client, body):
    reply = client.post_json(body)
    assert reply.status == 400 and reply.json()["error"], reply
