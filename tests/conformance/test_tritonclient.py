"""tritonclient.http, unmodified: every call that applies, JSON and binary, 16-bit floats, compression, wrong inputs."""

import gzip
import json
import zlib

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from support.reference import assert_same_bits
from triton_calls import DATATYPE, make_input, plan_of


@pytest.fixture
def client(authority):
    with triton.InferenceServerClient(authority, network_timeout=60, connection_timeout=60) as connection:
        yield connection


# --- health, metadata, statistics -----------------------------------------------------------------------------------


def test_health_and_readiness(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("gate") and client.is_model_ready("gate", "1")
    assert not client.is_model_ready("nobody") and not client.is_model_ready("gate", "2")


def test_server_metadata_lists_what_is_on(client):
    metadata = client.get_server_metadata()
    assert metadata["name"] == "decomposek" and metadata["version"]
    assert {"binary_tensor_data", "statistics", "model_configuration", "system_shared_memory", "model_repository"} <= set(metadata["extensions"])
    assert "cuda_shared_memory" not in metadata["extensions"]


@pytest.mark.parametrize("version", ["", "1"])
def test_model_metadata_and_config_agree(client, models, version):
    for model in models.values():
        metadata, config = client.get_model_metadata(model.name, version), client.get_model_config(model.name, version)
        datatype = DATATYPE[model.dtype]
        assert metadata["inputs"] == [{"name": "x", "datatype": datatype, "shape": [-1, model.k]}]
        assert metadata["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, model.n]}]
        assert config["max_batch_size"] == 256
        assert [(t["name"], t["data_type"], t["dims"]) for t in config["input"]] == [("x", f"TYPE_{datatype}", [model.k])]
        assert [(t["name"], t["dims"]) for t in config["output"]] == [("logits", [model.n])]


def test_statistics_count_requests_and_rows(client):
    def read():
        stats = client.get_inference_statistics("small")["model_stats"]
        assert len(stats) == 1 and stats[0]["name"] == "small" and stats[0]["version"] == "1"
        return stats[0]

    before = read()
    for rows in (1, 3, 8):
        client.infer("small", [make_input(np.ones((rows, 64)), "FP32")])
    with pytest.raises(InferenceServerException):
        client.infer("small", [make_input(np.ones((1, 63)), "FP32")])
    after = read()
    assert after["inference_count"] - before["inference_count"] == 12
    for name in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][name]["count"] - before["inference_stats"][name]["count"] == 3, name
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    assert after["inference_stats"]["fail"]["count"] - before["inference_stats"]["fail"]["count"] == 1
    assert after["last_inference"] >= before["last_inference"] > 1_600_000_000_000 or before["last_inference"] == 0
    assert {entry["name"] for entry in client.get_inference_statistics()["model_stats"]} >= {"small", "gate", "exact"}


# --- infer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 65, 300])
@pytest.mark.parametrize("name", ["gate", "gate-fp16", "gate-fp32", "relu", "sigmoid"])
def test_binary_infer_is_right(client, daemon, models, name, rows):
    model = models[name]
    x = model.rows(rows)
    result = client.infer(name, [make_input(x, DATATYPE[model.dtype])], request_id="7")
    y = result.as_numpy("logits")
    assert y.shape == (rows, model.n) and y.dtype == np.float32
    model.check(y, x, plan_of(daemon, name, rows))
    response = result.get_response()
    assert response["id"] == "7" and response["model_name"] == name and response["model_version"] == "1"


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BF16"])
@pytest.mark.parametrize("name", ["gate-fp32", "gate-fp16"])
def test_every_input_type_goes_with_every_model(client, daemon, models, name, datatype):
    model = models[name]
    x = model.rows(5, dtype={"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}[datatype])
    model.check(client.infer(name, [make_input(x, datatype)]).as_numpy("logits"), x, plan_of(daemon, name, 5))


def test_c28_bf16_and_fp16_are_never_mixed_up(client):
    """3.140625 is 49 40 as BF16 and 48 42 as FP16: read the wrong way round it is far off."""
    x = np.full((1, 4), 3.140625, np.float32)
    want = x @ np.arange(12, dtype=np.float32).reshape(4, 3)
    for datatype in ("BF16", "FP16", "FP32"):
        assert (client.infer("exact", [make_input(x, datatype)]).as_numpy("logits") == want).all(), datatype


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_16_bit_outputs_are_the_rounded_fp32_ones(client, datatype):
    x = np.float32([[0.1, 1.7, -3.3, 100.25]])
    full = client.infer("exact", [make_input(x, "FP32")]).as_numpy("logits")
    short = client.infer("exact", [make_input(x, "FP32")], parameters={"output_datatype": datatype})
    from triton_calls import NUMPY_TYPE

    assert short.get_output("logits")["datatype"] == datatype
    assert (np.asarray(short.as_numpy("logits"), np.float32) == full.astype(NUMPY_TYPE[datatype]).astype(np.float32)).all()


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("datatype", ["FP32", "FP16"])
def test_c25_json_and_binary_give_the_same_bits(client, models, datatype, binary_in, binary_out):
    x = models["gate-fp16"].rows(3)
    want = client.infer("gate-fp16", [make_input(x, datatype)]).as_numpy("logits")
    outputs = [triton.InferRequestedOutput("logits", binary_data=binary_out)]
    result = client.infer("gate-fp16", [make_input(x, datatype, binary_in)], outputs=outputs)
    assert ("data" in result.get_output("logits")) == (not binary_out)
    assert_same_bits(result.as_numpy("logits"), want)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("binary", [True, False])
def test_c13_zero_rows_are_a_request_like_any_other(client, binary, rows):
    result = client.infer("exact", [make_input(np.zeros((rows, 4)), "FP32", binary)], outputs=[triton.InferRequestedOutput("logits", binary_data=binary)])
    assert result.get_output("logits")["shape"] == [rows, 3]
    if rows:
        assert (result.as_numpy("logits") == 0).all()


def test_nan_and_infinities_come_through_binary_and_stay_in_their_row(client):
    x = np.float32([[1, 2, 3, 4], [np.nan, 0, 0, 0], [np.inf, 0, 0, 0], [5, 6, 7, 8]])
    y = client.infer("exact", [make_input(x, "FP32")]).as_numpy("logits")
    assert (y[0] == [60, 70, 80]).all() and np.isnan(y[1]).all() and not np.isfinite(y[2]).any()
    assert (y[3] == client.infer("exact", [make_input(x[3:], "FP32")]).as_numpy("logits")[0]).all()
    json_result = client.infer("exact", [make_input(x[:2], "FP32")], outputs=[triton.InferRequestedOutput("logits", binary_data=False)])
    assert json_result.get_output("logits")["data"] == [60, 70, 80, None, None, None]


@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_compression_both_ways(client, models, request_coding, response_coding, binary):
    x = models["gate-fp32"].rows(40)
    want = client.infer("gate-fp32", [make_input(x, "FP32")]).as_numpy("logits")
    result = client.infer(
        "gate-fp32", [make_input(x, "FP32", binary)], outputs=[triton.InferRequestedOutput("logits", binary_data=binary)],
        request_compression_algorithm=request_coding, response_compression_algorithm=response_coding)
    assert_same_bits(result.as_numpy("logits"), want)


@pytest.mark.parametrize("keywords", [{"priority": 1}, {"priority": 2}, {"timeout": 10_000_000}, {"parameters": {"anything": "goes", "n": 1, "b": True}}, {"request_id": "grüße"}])
def test_parameters_are_taken(client, keywords):
    result = client.infer("exact", [make_input(np.ones((1, 4)), "FP32")], **keywords)
    assert (result.as_numpy("logits") == [[18, 22, 26]]).all()
    assert result.get_response().get("id", "") == keywords.get("request_id", "")


def test_async_infer_gives_each_its_own_answer(authority):
    with triton.InferenceServerClient(authority, concurrency=8) as client:
        handles = [client.async_infer("exact", [make_input(np.full((1, 4), i), "FP32")], request_id=str(i)) for i in range(100)]
        for i, handle in enumerate(handles):
            result = handle.get_result(timeout=60)
            assert (result.as_numpy("logits") == [[18 * i, 22 * i, 26 * i]]).all() and result.get_response()["id"] == str(i)


def test_body_helpers_of_the_client_round_trip(client, daemon):
    body, length = triton.InferenceServerClient.generate_request_body([make_input(np.ones((2, 4)), "FP32")])
    with daemon.client() as plain:
        reply = plain.request("POST", "/v2/models/exact/infer", body, {"Inference-Header-Content-Length": str(length)})
    result = triton.InferenceServerClient.parse_response_body(reply.body, header_length=int(reply.header("inference-header-content-length")))
    assert (result.as_numpy("logits") == [[18, 22, 26]] * 2).all()


# --- refusals -------------------------------------------------------------------------------------------------------


def refusal(call, *arguments, **keywords):
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **keywords)
    return str(caught.value)


def test_wrong_inputs_are_named(client):
    good = make_input(np.ones((1, 4)), "FP32")
    assert "nobody" in refusal(client.infer, "nobody", [good])
    assert "2" in refusal(client.infer, "exact", [good], model_version="2")
    assert "4" in refusal(client.infer, "exact", [make_input(np.ones((1, 5)), "FP32")])
    assert "shape" in refusal(client.infer, "exact", [make_input(np.ones(4), "FP32")])
    for datatype, value in (("INT32", np.ones((1, 4), np.int32)), ("FP64", np.ones((1, 4))), ("BYTES", np.array([["a"] * 4], object))):
        tensor = triton.InferInput("x", [1, 4], datatype)
        tensor.set_data_from_numpy(value)
        assert datatype in refusal(client.infer, "exact", [tensor])
    other = triton.InferInput("y", [1, 4], "FP32")
    other.set_data_from_numpy(np.ones((1, 4), np.float32))
    assert '"y"' in refusal(client.infer, "exact", [other]) or "'y'" in refusal(client.infer, "exact", [other])
    assert refusal(client.infer, "exact", [good, good]) and refusal(client.infer, "exact", [])
    assert "absent" in refusal(client.infer, "exact", [good], outputs=[triton.InferRequestedOutput("absent")])
    assert refusal(client.infer, "exact", [good], outputs=[triton.InferRequestedOutput("logits", class_count=3)])


def test_c27_a_binary_size_that_lies_is_refused(client):
    tensor = make_input(np.ones((1, 4)), "FP32")
    for size in (0, 12, 15, 17, 2**63, -1, 1.5, "16"):
        tensor._parameters["binary_data_size"] = size
        assert refusal(client.infer, "exact", [tensor]), size


def test_unsupported_calls_are_clean_errors(client):
    for call in (client.get_trace_settings, client.get_log_settings, lambda: client.update_log_settings({}), lambda: client.update_trace_settings(settings={})):
        assert refusal(call)
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_cuda_shared_memory()
    assert "cuda" in refusal(client.register_cuda_shared_memory, "r", b"\0" * 64, 0, 16).lower()


def test_what_a_body_says_after_decompression_counts(daemon):
    """A compressed body with a wrong length, a broken stream, and one that is something else."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
    with daemon.client() as client:
        def post(data, coding):
            return client.request("POST", "/v2/models/exact/infer", data, {"Content-Encoding": coding})

        assert post(gzip.compress(body), "gzip").json()["outputs"][0]["data"] == [60, 70, 80]
        assert post(zlib.compress(body), "deflate").json()["outputs"][0]["data"] == [60, 70, 80]
        for data, coding in ((gzip.compress(body)[:-9], "gzip"), (body, "gzip"), (zlib.compress(body), "gzip"), (gzip.compress(body) + b"x", "gzip"), (b"", "gzip")):
            reply = post(data, coding)
            assert reply.status == 400 and reply.json()["error"], (coding, reply)
        for coding in ("br", "zstd", "gzip, gzip"):
            reply = post(body, coding)
            assert reply.status == 415 and "gzip" in reply.header("accept-encoding"), reply
