"""GET routes of /v2: server and model metadata, configuration, readiness; names and versions in paths."""

import pytest

from support import oip
from support.http import raw_request

MODELS_GET = ("", "/ready", "/config", "/stats")


@pytest.mark.sanitizer
def test_server_tells_what_it_implements(client):
    answer = client.get("/v2").json()
    assert answer["name"] == "decomposek" and isinstance(answer["version"], str)
    assert {"binary_tensor_data", "parameters", "model_configuration", "statistics"} <= set(answer["extensions"])
    assert not {"system_shared_memory", "cuda_shared_memory", "model_repository", "classification", "sequence", "trace", "logging"} & set(answer["extensions"])
    assert client.get("/v2/").json() == answer


def test_switches_show_in_the_extensions(start):
    daemon = start("--allow-client-shm", "--allow-model-control")
    extensions = daemon.get("/v2").json()["extensions"]
    assert {"system_shared_memory", "model_repository"} <= set(extensions) and "cuda_shared_memory" not in extensions


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ["gate", "gate-fp16", "gate-fp32", "relu"])
def test_metadata_and_config_describe_the_same_tensors(client, models, name):
    model = models[name]
    for version in ("", "/versions/1"):
        meta = client.get(f"/v2/models/{name}{version}").json()
        config = client.get(f"/v2/models/{name}{version}/config").json()
        datatype = oip.NAMES[model.dtype]
        assert meta["name"] == config["name"] == name and meta["versions"] == ["1"]
        assert meta["inputs"] == [{"name": "x", "datatype": datatype, "shape": [-1, model.k]}]
        assert meta["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, model.n]}]
        assert meta["platform"] == config["platform"] == "decomposek"
        assert config["max_batch_size"] == 256  # --max-tokens of the shared daemon
        assert config["input"] == [{"name": "x", "data_type": f"TYPE_{datatype}", "dims": [model.k]}]
        assert config["output"] == [{"name": "logits", "data_type": "TYPE_FP32", "dims": [model.n]}]
        assert config.get("model_transaction_policy", {}).get("decoupled", False) is False


@pytest.mark.sanitizer
@pytest.mark.parametrize("suffix", MODELS_GET)
def test_c38_unknown_models_and_versions_are_404(client, suffix):
    for name in ("nope", "exact2", "EXACT", "v2", "exact/versions/2", "exact/versions/0", "exact/versions/01", "exact/versions/x"):
        reply = client.get(f"/v2/models/{name}{suffix}")
        oip.refused(reply, (404,))
    assert client.get(f"/v2/models/exact/versions/1{suffix}").status == 200
    assert client.get(f"/v2/models/exact{suffix}/").status == 200  # a trailing slash is the same


# C38: a name is decoded once, is one segment, and never a path.
ODD_NAMES = {
    "a%20b": (404,), "a%2Fb": (404,), "a%2fb": (404,), "..": (404,), "%2e%2e": (404,), "%2e%2e%2f%2e%2e%2fetc%2fpasswd": (404,), ".": (404,),
    "%00": (400,), "exact%00": (400,), "%zz": (400,), "%": (400,), "%4": (400,), "%ff": (400,), "%c0%af": (400,), "%ed%a0%80": (400,),
    "%c3%a9": (404,), "%22%3E%3Cscript%3E": (404,), "a" * 65: (404,), "a" * 900: (404,), "a" * 2000: (400, 414), "%0a": (400,), "exact%20": (404,), "+exact": (404,),
    "%65xact": (200,), "%2565xact": (404,), "e%78act": (200,),
}


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: name[:24])
def test_c38_names_in_the_path(daemon, name):
    for method, suffix in (("GET", "/ready"), ("GET", ""), ("POST", "/infer")):
        body = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}' if method == "POST" else b""
        line = f"{method} /v2/models/{name}{suffix} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        reply = raw_request(daemon.port, line.encode() + body, method)
        assert reply.status in ODD_NAMES[name], (method, suffix, reply)
        if reply.status != 200:
            assert reply.json()["error"] and b"\n" not in reply.body.strip()


@pytest.mark.sanitizer
@pytest.mark.parametrize("path", ["/v2/models", "/v2/models/v2/models/exact/ready", "/v2/models/exact/infer/x", "/v2/models/exact/versions", "/v2/models/exact/versions/1/2",
                                  "/v2/models//ready", "/v2/v2", "/v2/systemsharedmemory", "/v2/systemsharedmemory/region/r", "/v2/models/exact/nothing"])
def test_c38_other_paths_are_404(client, path):
    for method in ("GET", "POST"):
        oip.refused(client.request(method, path, b"{}" if method == "POST" else None), (404,))


@pytest.mark.sanitizer
@pytest.mark.parametrize("path,allowed", [("/v2", "GET"), ("/v2/models/exact", "GET"), ("/v2/models/exact/ready", "GET"), ("/v2/models/exact/config", "GET"),
                                          ("/v2/models/exact/stats", "GET"), ("/v2/models/stats", "GET"), ("/v2/models/exact/infer", "POST"),
                                          ("/v2/systemsharedmemory/status", "GET"), ("/v2/systemsharedmemory/unregister", "POST"),
                                          ("/v2/cudasharedmemory/region/r/register", "POST")])
def test_405_names_the_verbs(client, path, allowed):
    wrong = "POST" if allowed == "GET" else "GET"
    for method in (wrong, "PUT", "DELETE", "PATCH"):
        reply = client.request(method, path, b"{}" if method != "GET" else None)
        oip.refused(reply, (405,))
        verbs = {word.strip() for word in reply.header("allow").split(",")}
        assert allowed in verbs and method not in verbs, reply.headers


@pytest.mark.sanitizer
@pytest.mark.parametrize("path", ["/v2", "/v2/models/exact", "/v2/models/exact/ready", "/v2/models/exact/config", "/v2/models/stats", "/v2/cudasharedmemory/status"])
def test_c39_head_is_get_without_the_body(client, path):
    get, head = client.request("GET", path), client.request("HEAD", path)
    assert get.status == head.status == 200 and head.body == b"" and get.body
    assert client.request("HEAD", "/v2/models/nope").status == 404


@pytest.mark.sanitizer
def test_model_is_not_ready_while_the_daemon_drains(start):
    daemon = start("--drain-grace-ms=1500")
    assert daemon.get("/v2/models/exact/ready").status == 200
    daemon.process.terminate()
    with daemon.client() as client:
        statuses = []
        while not statuses or statuses[-1] != 503:
            statuses.append(client.get("/v2/models/exact/ready").status)
        assert set(statuses) <= {200, 503}
        assert oip.answer(oip.post(client, "exact", oip.json_body([[1, 2, 3, 4]]))).tolist() == [[60, 70, 80]]  # still served
    assert daemon.wait_exit() == 0
