"""Inputs and outputs of tritonclient for our one-input, one-output models."""

import ml_dtypes
import numpy as np
import tritonclient.http as triton

NUMPY_TYPE = {"FP32": np.float32, "FP16": np.float16, "BF16": ml_dtypes.bfloat16}
DATATYPE = {"fp32": "FP32", "fp16": "FP16", "bf16": "BF16"}


def make_input(rows, datatype, binary=True):
    """rows: fp32 values that `datatype` holds exactly."""
    tensor = triton.InferInput("x", list(rows.shape), datatype)
    tensor.set_data_from_numpy(np.asarray(rows, np.float32).astype(NUMPY_TYPE[datatype]), binary_data=binary)
    return tensor


def plan_of(daemon, model, rows):
    """The plan that computed so many rows, for the error bound."""
    plans = [plan for plan in daemon.get("/v1/plans").json()["plans"] if plan["model"] == model]
    return next((plan for plan in plans if plan["bucket"] >= rows), plans[-1])
