"""Bodies of the Open Inference Protocol v2, made and taken apart by hand: no client library in between."""

import json

import numpy as np

from . import weights_file

LENGTH_HEADER = "Inference-Header-Content-Length"
NAMES = {"fp32": "FP32", "bf16": "BF16", "fp16": "FP16"}
KNOWN_DTYPE = {oip: native for native, oip in NAMES.items()}


def infer_path(model, version=None):
    return f"/v2/models/{model}{f'/versions/{version}' if version else ''}/infer"


def json_body(x, dtype="fp32", shape=None, outputs=None, **members) -> dict:
    """x: nested list or array; data goes flat, as clients send it."""
    values = np.asarray(x, np.float64)
    body = {
        "inputs": [{"name": "x", "shape": list(values.shape if shape is None else shape), "datatype": NAMES[dtype], "data": values.ravel().tolist()}],
        **members,
    }
    if outputs is not None:
        body["outputs"] = outputs
    return body


def binary_body(x, dtype="fp32", outputs=None, size=None, shape=None, binary_output=True, **members):
    """(header, tensor): the JSON part and the bytes behind it."""
    values = np.asarray(x, np.float32)
    data = weights_file.encode(values, dtype)
    header = {
        "inputs": [
            {"name": "x", "shape": list(values.shape if shape is None else shape), "datatype": NAMES[dtype],
             "parameters": {"binary_data_size": len(data) if size is None else size}},
        ],
        "parameters": {"binary_data_output": binary_output, **members.pop("parameters", {})},
        **members,
    }
    if outputs is not None:
        header["outputs"] = outputs
    return json.dumps(header).encode(), data


def post(client, model, body, header_length=None, headers=None):
    """POST as Python clients do: no Content-Type, lower-case header names. `body`: bytes, text or an object."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    extra = {LENGTH_HEADER.lower(): str(header_length)} if header_length is not None else {}
    return client.request("POST", infer_path(model), body, {**extra, **(headers or {})})


def post_binary(client, model, x, dtype="fp32", headers=None, **options):
    header, data = binary_body(x, dtype, **options)
    return post(client, model, header + data, len(header), headers)


def answer(reply, name="logits") -> np.ndarray:
    """The output of a successful answer as fp32 (or its exact values), in its shape; checks the framing."""
    assert reply.status == 200, reply
    length = reply.header(LENGTH_HEADER)
    if length is None:
        assert reply.header("content-type") == "application/json", reply.headers
        head, tail = json.loads(reply.body, parse_constant=lambda text: pytest_fail(text)), b""
    else:
        assert reply.header("content-type") == "application/octet-stream", reply.headers
        head, tail = json.loads(reply.body[: int(length)]), reply.body[int(length) :]
    (output,) = head["outputs"]
    assert output["name"] == name and head["model_version"] == "1", head
    shape = output["shape"]
    if "data" in output:
        assert len(output["data"]) == int(np.prod(shape)), head
        return np.asarray([np.nan if value is None else value for value in output["data"]], np.float64).astype(np.float32).reshape(shape)
    size = output["parameters"]["binary_data_size"]
    assert size == len(tail), (size, len(tail))
    return weights_file.decode(tail, KNOWN_DTYPE[output["datatype"]]).reshape(shape)


def pytest_fail(text):
    raise AssertionError(f"{text} is not JSON")


def refused(reply, status=(400,), needle=None) -> str:
    """The text of an error answer that is as it must be."""
    assert reply.status in status, reply
    assert reply.header("content-type").split(";")[0] == "application/json", reply.headers
    text = reply.json()["error"]
    assert isinstance(text, str) and text, reply
    for word in [needle] if isinstance(needle, str) else needle or ():
        assert word in text, text
    return text
