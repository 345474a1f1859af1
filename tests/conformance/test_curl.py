"""curl as people use it: --data-binary with raw rows, JSON from the shell, uploads; and Expect: 100-continue."""

import json
import subprocess

import numpy as np
import pytest

from support.files import constant_model
from support.reference import assert_same_bits
from support.weights_file import encode


def curl(*arguments, data=None):
    run = subprocess.run(["curl", "-sS", "-i", "--max-time", "60", *arguments], input=data, capture_output=True, timeout=90)
    assert run.returncode == 0, run.stderr
    rest = run.stdout
    while True:  # interim answers come first
        head, _, rest = rest.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        if status >= 200:
            break
    return status, {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}, rest


@pytest.mark.parametrize("dtype,datatype", [("bf16", "gate"), ("fp16", "gate-fp16"), ("fp32", "gate-fp32")])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_raw_rows(daemon, models, tmp_path, dtype, datatype, rows):
    model = models[datatype]
    x = model.rows(rows)
    (tmp_path / "x.bin").write_bytes(encode(x, dtype))
    status, headers, body = curl("--data-binary", f"@{tmp_path}/x.bin", "-H", "Content-Type: application/octet-stream",
                                 "-H", "Inference-Header-Content-Length: 0", f"{daemon.url}/v2/models/{model.name}/infer")
    assert status == 200 and headers["content-type"] == "application/octet-stream", body[:300]
    length = int(headers["inference-header-content-length"])
    answer = json.loads(body[:length])
    assert answer["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [rows, model.n], "parameters": {"binary_data_size": rows * model.n * 4}}]
    status, _, native = curl("--data-binary", f"@{tmp_path}/x.bin", "-H", "Content-Type: application/octet-stream", "-H", "Accept: application/octet-stream",
                             f"{daemon.url}/v1/matmul?model={model.name}")
    assert status == 200
    assert_same_bits(np.frombuffer(body[length:], np.float32), np.frombuffer(native, np.float32))


@pytest.mark.parametrize("size", [1, 15, 17, 4 * 4 * 3 + 2])
def test_raw_rows_that_are_not_whole_are_refused(daemon, size):
    status, _, body = curl("--data-binary", "@-", "-H", "Inference-Header-Content-Length: 0", f"{daemon.url}/v2/models/exact/infer", data=b"\0" * size)
    assert status == 400 and json.loads(body)["status"] == "BAD_SHAPE"


@pytest.mark.parametrize("header", ["-1", "1e3", "0x10", "99999999999999999999999", "+5", "5 5", "1000000"])
def test_c27_header_lengths_that_are_none(daemon, header):
    status, _, body = curl("--data-binary", "@-", "-H", f"Inference-Header-Content-Length: {header}", f"{daemon.url}/v2/models/exact/infer", data=b"{}")
    assert status == 400 and json.loads(body)["error"]


def test_json_with_curls_default_media_type(daemon):
    status, _, body = curl("-d", '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}', f"{daemon.url}/v2/models/exact/infer")
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == [60, 70, 80]


def test_upload_and_removal(daemon, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(constant_model(2, 3, 1))
    status, _, body = curl("-T", f"{tmp_path}/w.safetensors", f"{daemon.url}/v1/models/curled?epilogue=relu")
    assert status == 201 and json.loads(body)["epilogue"] == "relu"
    status, _, body = curl("-d", '{"model":"curled","x":[1,2,3]}', f"{daemon.url}/v1/matmul")
    assert json.loads(body)["y"] == [[6, 6]]
    assert curl("-X", "DELETE", f"{daemon.url}/v1/models/curled")[0] == 200


@pytest.mark.parametrize("path,status", [("exact", 200), ("nobody", 404)])
def test_c36_expect_continue(daemon, path, status):
    rows = 30000
    got, _, _ = curl("-H", "Expect: 100-continue", "-H", "Inference-Header-Content-Length: 0", "--data-binary", "@-", f"{daemon.url}/v2/models/{path}/infer", data=b"\0" * (16 * rows))
    assert got == status


def test_compressed_answers(daemon):
    status, headers, _ = curl("-H", "Accept-Encoding: gzip", "-d", json.dumps({"inputs": [{"name": "x", "shape": [200, 4], "datatype": "FP32", "data": [1] * 800}]}),
                              f"{daemon.url}/v2/models/exact/infer")
    assert status == 200 and headers["content-encoding"] == "gzip"
    run = subprocess.run(["curl", "-sS", "--compressed", "-d", '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}',
                          f"{daemon.url}/v2/models/exact/infer"], capture_output=True, timeout=60, check=True)
    assert json.loads(run.stdout)["outputs"][0]["data"] == [60, 70, 80]
