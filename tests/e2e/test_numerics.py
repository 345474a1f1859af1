"""Numerics of the case list over HTTP: NaN and infinities, zero tokens, all T against one bound, odd K and N."""

import numpy as np
import pytest

from support import reference, weights_file
from support.models import Model


def raw(client, model, x, dtype="fp32", expect=200, **extra):
    query = "&".join([f"model={model.name}", f"dtype={dtype}", *(f"{k}={v}" for k, v in extra.items())])
    reply = client.post_raw(weights_file.encode(x, dtype), query)
    assert reply.status == expect, reply
    return weights_file.decode(reply.body, extra.get("out_dtype", "fp32")).reshape(len(x), model.n)


def worst_plan(client, name):
    """The plan with the loosest bound over all buckets: one bound then holds for every T."""
    plans = [p for p in client.get("/v1/plans").json()["plans"] if p["model"] == name]
    assert plans
    return max(plans, key=lambda plan: -(-plan["chunk_k"] // 16) + plan["split_k"])


# --- C04 ----------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 5000, 7167])
@pytest.mark.parametrize("t", [4, 40])
def test_c04_non_finite_row_stays_in_its_row(client, models, value, column, t):
    gate = models["gate"]
    x = gate.rows(t, dtype="fp32")
    clean = raw(client, gate, x)
    bad = x.copy()
    bad[2, column] = value
    got = raw(client, gate, bad)
    others = [row for row in range(t) if row != 2]
    reference.assert_same_bits(got[others], clean[others], "rows beside the bad one")
    with np.errstate(invalid="ignore"):
        expected = bad[2].astype(np.float64) @ gate.kn.astype(np.float64)
    assert not np.isfinite(got[2]).any(), "the bad row hides that it is bad"
    np.testing.assert_array_equal(np.isnan(got[2]), np.isnan(expected))
    np.testing.assert_array_equal(got[2][np.isinf(expected)], expected[np.isinf(expected)])
    reference.assert_same_bits(raw(client, gate, x), clean, "the next request")


@pytest.mark.parametrize("epilogue", ["none", "relu", "sigmoid"])
@pytest.mark.parametrize("out_dtype", ["fp32", "bf16", "fp16"])
def test_c04_nan_survives_every_epilogue_and_type(client, models, epilogue, out_dtype):
    gate = models["gate"]
    x = gate.rows(3, dtype="fp32")
    x[1, 100] = np.nan
    got = raw(client, gate, x, epilogue=epilogue, out_dtype=out_dtype)
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()


def test_c04_non_finite_answers_in_json_are_null_and_counted(client, models):
    gate = models["gate"]
    x = gate.rows(2, dtype="fp32")
    x[1, 3] = np.nan
    reply = client.post_raw(weights_file.encode(x, "fp32"), "model=gate&dtype=fp32", accept="application/json")
    answer = reply.json()
    assert answer["y"][1] == [None] * 256 and None not in answer["y"][0] and answer["non_finite"] == 256


def test_c04_nan_among_concurrent_requests(daemon, models):
    """Rows of several clients may share a batch: a NaN of one must not reach the others."""
    import threading

    gate, failures = models["gate"], []
    bad = gate.rows(1, dtype="fp32")
    bad[0, 0] = np.nan

    def work(index):
        with daemon.client() as client:
            x = gate.rows(1, seed=index, dtype="fp32")
            expected = None
            for _ in range(40):
                got = raw(client, gate, bad if index % 3 == 0 else x)
                if index % 3 == 0:
                    if not np.isnan(got).all():
                        failures.append(f"client {index}: the NaN row came back finite")
                elif expected is None:
                    expected = got
                elif not np.array_equal(got, expected):
                    failures.append(f"client {index}: another answer")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(9)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures, failures[:3]


# --- C13 ----------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_c13_zero_tokens(client, models):
    gate, exact = models["gate"], models["exact"]
    before = raw(client, gate, gate.rows(1), "bf16")
    for x in ("[]", "[ ]"):
        reply = client.post_json('{"model": "gate", "x": %s}' % x)
        assert reply.status == 200, reply
        answer = reply.json()
        assert answer["shape"] == [0, 256] and answer["y"] == []
    for dtype in ("fp32", "bf16", "fp16"):
        reply = client.post_raw(b"", f"model=gate&dtype={dtype}")
        assert reply.status == 200 and reply.body == b"" and reply.header("content-length") == "0", reply
    assert client.post_raw(b"", "model=gate", accept="application/json").json()["shape"] == [0, 256]
    reference.assert_same_bits(raw(client, gate, gate.rows(1), "bf16"), before, "the next request")
    assert client.post_json({"model": "exact", "x": [[1, 0, 0, 0]]}).json()["y"] == [exact.kn[0].tolist()]


# --- C14 ----------------------------------------------------------------------------------------------------

EVERY_T = [*range(1, 34), 63, 64, 65, 127, 128, 129, 255, 257, 1000]


def test_c14_every_t_within_one_bound(client, models):
    gate = models["gate"]
    x = gate.rows(1000)
    plan = worst_plan(client, "gate")
    expected = reference.product(x, gate.kn)
    allowed = reference.bound(x, gate.kn, plan["chunk_k"], plan["split_k"])
    # The bound must tell true fp32 accumulation from something coarser: a bf16 rounding of the answer breaks it.
    coarse = weights_file.rounded(expected.astype(np.float32), "bf16").astype(np.float64)
    assert (np.abs(coarse - expected) > allowed).mean() > 0.5
    for t in EVERY_T:
        got = raw(client, gate, x[:t], "bf16")
        reference.assert_close(got, expected[:t], allowed[:t], f"T={t}")


def test_c14_rows_do_not_depend_on_t(client, models):
    """The own kernels promise it (no --cpu-blas here)."""
    gate = models["gate"]
    x = gate.rows(300)
    whole = raw(client, gate, x, "bf16")
    for t in (1, 2, 3, 5, 8, 16, 17, 31, 64, 65, 129, 257):
        reference.assert_same_bits(raw(client, gate, x[:t], "bf16"), whole[:t], f"T={t}")


def test_c14_cancelling_sums_within_the_bound(client, models):
    gate = models["gate"]
    half = gate.rows(7)[:, : gate.k // 2]
    x = np.concatenate([half * 4096, -half * 4096], axis=1)
    x[:, -1] += 1.0
    x = weights_file.rounded(x, "bf16")
    plan = worst_plan(client, "gate")
    got = raw(client, gate, x, "bf16")
    reference.assert_close(got, reference.product(x, gate.kn), reference.bound(x, gate.kn, plan["chunk_k"], plan["split_k"]))


# --- C18 ----------------------------------------------------------------------------------------------------

ODD_K, ODD_N = (7177, 7169, 1, 31, 8192, 14400), (1, 255, 257)


@pytest.mark.sanitizer
def test_c18_k_that_no_split_divides(start, tmp_path):
    odd = [Model(f"m{k}x{n}", n, k, seed=k + n).write(tmp_path) for k in ODD_K for n in ODD_N]
    daemon = start(*(model.flag for model in odd), "--max-tokens=64", "--large-slabs=1", "--small-slabs=4", "--backend=cpu", model_names=())
    with daemon.client() as client:
        plans = {}
        for plan in client.get("/v1/plans").json()["plans"]:
            assert -(-plan["k"] // plan["chunk_k"]) == plan["split_k"], plan
            plans[plan["model"], plan["bucket"]] = plan
        for model in odd:
            for t in (1, 5, 16, 17, 64):
                x = model.rows(t)
                plan = plans[model.name, 1 << (t - 1).bit_length()]
                model.check(raw(client, model, x, "bf16"), x, plan, what=f"{model.name} T={t}")
    daemon.stop_cleanly()


@pytest.mark.sanitizer
@pytest.mark.parametrize("layout", ["nk", "kn"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_c18_exact_sums_match_bit_for_bit(start, tmp_path, dtype, layout):
    """Small integers: every partial sum is exact, so any order of summation must give these very bits."""
    random = np.random.default_rng(3)
    odd = []
    for k, n in ((1, 1), (31, 255), (997, 33), (7177, 257)):
        model = Model(f"e{k}x{n}", n, k, dtype=dtype, layout=layout)
        odd.append(model.write_values(tmp_path, random.integers(-3, 4, (k, n))))
    daemon = start(*(model.flag for model in odd), "--max-tokens=64", "--large-slabs=1", "--small-slabs=4", "--backend=cpu", model_names=())
    with daemon.client() as client:
        for model in odd:
            for t in (1, 3, 17, 65):
                x = random.integers(-3, 4, (t, model.k)).astype(np.float32)
                reference.assert_same_bits(raw(client, model, x, dtype), (x.astype(np.int64) @ model.kn.astype(np.int64)).astype(np.float32), f"{model.name} T={t}")
    daemon.stop_cleanly()
