"""The numeric contract in fp64: reference, per-element bound, and a comparison that names the worst element."""

import math

import numpy as np

OUTPUT_ROUNDING = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}
# Half of the smallest subnormal step: what rounding costs near zero.
OUTPUT_FLOOR = {"fp32": 2.0**-150, "bf16": 2.0**-134, "fp16": 2.0**-25}
EPILOGUES = ("none", "relu", "sigmoid")


def product(a, b, bias=None, epilogue="none"):
    """epilogue(a @ b + bias) in fp64; a [m,k], b [k,n] hold what the daemon sees after its input rounding."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(all="ignore"):
        y = a @ b
        if bias is not None:
            y = y + np.asarray(bias, np.float64)
        if epilogue == "relu":
            y = np.where(np.isnan(y), y, np.maximum(y, 0.0))
        elif epilogue == "sigmoid":
            y = 1.0 / (1.0 + np.exp(-y))
    return y


def bound(a, b, chunk_k, split_k, out_dtype="fp32", bias=None, epilogue="none"):
    """Allowed |got - reference| for each element: depth * 2^-23 * sum|a*b|, then the output's rounding."""
    magnitude = np.abs(np.asarray(a, np.float64)) @ np.abs(np.asarray(b, np.float64))
    allowed = (math.ceil(chunk_k / 16) + split_k) * 2.0**-23 * magnitude
    reference = product(a, b, bias, epilogue)
    if bias is not None:
        allowed = allowed + 2.0**-23 * (magnitude + np.abs(np.asarray(bias, np.float64)))
    if epilogue == "sigmoid":
        # Its slope is at most 1/4; evaluating it in fp32 costs a few roundings of a value below 1.
        allowed = allowed / 4 + 4 * 2.0**-23 * reference
    return allowed * (1 + 1e-6) + OUTPUT_ROUNDING[out_dtype] * (np.abs(reference) + allowed) + OUTPUT_FLOOR[out_dtype]


def assert_close(got, reference, allowed, what=""):
    got = np.asarray(got, np.float64)
    assert got.shape == reference.shape, f"{what}: shape {got.shape}, expected {reference.shape}"
    if got.size == 0:
        return
    with np.errstate(invalid="ignore"):
        excess = np.abs(got - reference) / allowed
    excess = np.where(np.isnan(excess), np.inf, excess)  # a NaN is a failure
    where = np.unravel_index(np.argmax(excess), got.shape)
    assert excess[where] <= 1.0, (
        f"{what}: element {tuple(int(i) for i in where)} is {got[where]!r}, reference {reference[where]!r}, "
        f"allowed error {allowed[where]:.3g}, found {abs(got[where] - reference[where]):.3g}"
    )


def assert_same_bits(got, expected, what=""):
    """Bit for bit, so that -0 and the payload of a NaN count as well."""
    got, expected = np.ascontiguousarray(got, np.float32), np.ascontiguousarray(expected, np.float32)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    different = got.view(np.uint32) != expected.view(np.uint32)
    if different.any():
        where = tuple(int(i) for i in np.argwhere(different)[0])
        raise AssertionError(f"{what}: {int(different.sum())} elements differ, first {where}: {got[where]!r}, expected {expected[where]!r}")
