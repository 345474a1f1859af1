"""The small models that most tests use: seeded weights, the file they are written to, and their flags."""

import dataclasses
import os

import numpy as np

from . import reference, weights_file


@dataclasses.dataclass
class Model:
    name: str
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "nk"
    epilogue: str = "none"
    with_bias: bool = False
    seed: int = 1
    kn: np.ndarray = None  # [k, n], the values after rounding to dtype
    bias: np.ndarray = None  # [n] fp32
    path: str = ""

    def write(self, folder):
        random = np.random.default_rng(self.seed)
        values = weights_file.rounded(random.standard_normal((self.k, self.n)) / np.sqrt(self.k), self.dtype)
        return self.write_values(folder, values, random.standard_normal(self.n).astype(np.float32) if self.with_bias else None)

    def write_values(self, folder, kn, bias=None):
        self.kn, self.bias = np.asarray(kn, np.float32), bias
        self.path = os.path.join(str(folder), f"{self.name}.safetensors")
        tensors = {"w": (self.kn.T.copy() if self.layout == "nk" else self.kn, self.dtype)}
        if bias is not None:
            tensors["b"] = (bias, "fp32")
        weights_file.write(self.path, tensors)
        return self

    @property
    def flag(self):
        extra = ",bias=b" if self.bias is not None else ""
        return f"--model={self.name}={self.path},tensor=w{extra},layout={self.layout},epilogue={self.epilogue}"

    def rows(self, t, seed=7, dtype=None) -> np.ndarray:
        """Seeded activations [t, k], already rounded to `dtype` (default: the model's)."""
        values = np.random.default_rng([seed, t]).standard_normal((t, self.k))
        return weights_file.rounded(values, dtype or self.dtype)

    def check(self, got, x, plan, out_dtype="fp32", epilogue=None, what=""):
        """Compare an answer with fp64 under the bound of the plan that made it."""
        epilogue = epilogue or self.epilogue
        expected = reference.product(x, self.kn, self.bias, epilogue)
        allowed = reference.bound(x, self.kn, plan["chunk_k"], plan["split_k"], out_dtype, self.bias, epilogue)
        reference.assert_close(np.asarray(got, np.float64).reshape(expected.shape), expected, allowed, what or self.name)


def standard_models(folder) -> dict:
    models = [
        Model("gate", 256, 7168, seed=11),
        Model("gate-fp16", 24, 1000, dtype="fp16", seed=12),
        Model("gate-fp32", 24, 1000, dtype="fp32", seed=13),
        Model("kn", 48, 500, layout="kn", seed=14),
        Model("relu", 31, 333, dtype="fp32", epilogue="relu", with_bias=True, seed=15),
        Model("sigmoid", 40, 96, epilogue="sigmoid", with_bias=True, seed=16),
    ]
    written = {model.name: model.write(folder) for model in models}
    # Weights 0..11 and no rounding anywhere: answers can be written down by hand.
    exact = Model("exact", 3, 4, dtype="fp32")
    written["exact"] = exact.write_values(folder, np.arange(12, dtype=np.float32).reshape(4, 3))
    return written
