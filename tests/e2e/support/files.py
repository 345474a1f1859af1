"""Safetensors files as bytes, for uploads."""

import json

import numpy as np

from .weights_file import SAFETENSORS_NAME, encode, raw_file


def safetensors_bytes(tensors: dict) -> bytes:
    """name -> (values, native dtype)."""
    header, data = {}, b""
    for name, (values, dtype) in tensors.items():
        body = encode(values, dtype)
        header[name] = {"dtype": SAFETENSORS_NAME[dtype], "shape": list(np.shape(values)), "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    return raw_file(json.dumps(header), data)


def constant_model(n, k, value, dtype="fp32") -> bytes:
    """All weights alike: every logit is value * sum(x)."""
    return safetensors_bytes({"w": (np.full((n, k), value, np.float32), dtype)})
