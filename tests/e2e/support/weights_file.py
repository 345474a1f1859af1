"""Our own writer of safetensors files: the tests must not trust the reader under test, nor its library."""

import json
import struct

import numpy as np


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """fp32 -> bf16 bits, round to nearest even; NaN stays NaN."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def bf16_values(bits: np.ndarray) -> np.ndarray:
    """bf16 bits -> fp32 values, exact."""
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Row-major bytes of fp32 values in a native dtype (fp32, bf16, fp16), rounded to nearest even."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if dtype == "bf16":
        return bf16_bits(values).tobytes()
    return values.astype({"fp32": np.float32, "fp16": np.float16}[dtype]).tobytes()


def decode(data: bytes, dtype: str) -> np.ndarray:
    """The inverse of encode: fp32 values, exact."""
    if dtype == "bf16":
        return bf16_values(np.frombuffer(data, dtype=np.uint16))
    return np.frombuffer(data, dtype={"fp32": np.float32, "fp16": np.float16}[dtype]).astype(np.float32)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """The fp32 values that remain after a trip through `dtype`."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    return decode(encode(values, dtype), dtype).reshape(values.shape)


SAFETENSORS_NAME = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def raw_file(header, data: bytes = b"", header_length=None) -> bytes:
    """A file from any header (dict, str or bytes), right or wrong; `header_length` lies when given."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    length = len(header) if header_length is None else header_length
    return struct.pack("<Q", length) + header + data


def write(path, tensors: dict) -> None:
    """tensors: name -> (values, native dtype); a correct file."""
    header, data = {}, b""
    for name, (values, dtype) in tensors.items():
        body = encode(values, dtype)
        header[name] = {
            "dtype": SAFETENSORS_NAME[dtype],
            "shape": list(np.shape(values)),
            "data_offsets": [len(data), len(data) + len(body)],
        }
        data += body
    with open(path, "wb") as file:
        file.write(raw_file(header, data))
