"""Model control through tritonclient: index, load, unload, and uploads beside it."""

import threading

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from support.files import constant_model
from triton_calls import make_input


@pytest.fixture
def client(authority):
    with triton.InferenceServerClient(authority) as connection:
        yield connection


def states(client):
    return {entry["name"]: (entry["version"], entry["state"]) for entry in client.get_model_repository_index()}


def refusal(call, *arguments, **keywords):
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **keywords)
    return str(caught.value)


def test_unload_and_load(client):
    assert states(client)["kn"] == ("1", "READY")
    client.unload_model("kn")
    assert states(client)["kn"] == ("1", "UNAVAILABLE") and not client.is_model_ready("kn")
    assert "kn" in refusal(client.infer, "kn", [make_input(np.ones((1, 500)), "BF16")])
    client.load_model("kn")
    assert client.is_model_ready("kn") and states(client)["kn"] == ("1", "READY")
    assert client.infer("kn", [make_input(np.ones((1, 500)), "BF16")]).as_numpy("logits").shape == (1, 48)
    client.unload_model("kn", unload_dependents=True)
    client.load_model("kn")


def test_what_cannot_be_loaded_says_so(client):
    assert "nobody" in refusal(client.load_model, "nobody")
    assert "nobody" in refusal(client.unload_model, "nobody")
    assert refusal(client.load_model, "kn", config="{}")
    assert refusal(client.load_model, "kn", files={"file:1/model": b"x"})
    assert client.is_model_ready("kn")


def test_an_uploaded_model_serves_v2_clients(client, daemon):
    with daemon.client() as plain:
        assert plain.request("PUT", "/v1/models/pushed", constant_model(5, 3, 2, "bf16")).status == 201
        try:
            assert client.get_model_metadata("pushed")["inputs"] == [{"name": "x", "datatype": "BF16", "shape": [-1, 3]}]
            assert (client.infer("pushed", [make_input(np.ones((2, 3)), "BF16")]).as_numpy("logits") == 6).all()
            assert client.get_inference_statistics("pushed")["model_stats"][0]["inference_count"] == 2
        finally:
            assert plain.request("DELETE", "/v1/models/pushed").status == 200
    assert "pushed" not in states(client)


def test_v2_traffic_while_the_model_comes_and_goes(client, authority, daemon):
    over, failures, answered = threading.Event(), [], [0]

    def infer():
        try:
            with triton.InferenceServerClient(authority) as mine:
                while not over.is_set():
                    try:
                        y = mine.infer("coming", [make_input(np.ones((3, 4)), "FP32")]).as_numpy("logits")
                    except InferenceServerException as refused:
                        assert "coming" in str(refused)
                        continue
                    assert y.shape in ((3, 2), (3, 6)) and (y == y[0, 0]).all()
                    answered[0] += 1
        except BaseException as failure:  # noqa: BLE001 - reported below
            failures.append(failure)

    threads = [threading.Thread(target=infer) for _ in range(2)]
    for thread in threads:
        thread.start()
    with daemon.client() as plain:
        for i in range(60):
            assert plain.request("PUT", "/v1/models/coming", constant_model(2 + 4 * (i % 2), 4, 1 + i)).status in (200, 201)
            if i % 3 == 2:
                client.unload_model("coming")
        plain.request("PUT", "/v1/models/coming", constant_model(2, 4, 1))
        while answered[0] == 0 and not failures:
            pass
        over.set()
        for thread in threads:
            thread.join()
        assert plain.request("DELETE", "/v1/models/coming").status == 200
    assert not failures, failures
