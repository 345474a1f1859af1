"""C56: weights files that lie. The daemon and `decomposek check` refuse each, naming file, tensor and reason."""

import json
import subprocess

import numpy as np
import pytest

from support import weights_file
from support.daemon import CLI, DAEMON, PATIENCE, SANITIZER_REPORT, clean_environment
from support.weights_file import raw_file


def entry(shape, begin, end, dtype="F32", **extra):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **extra}


DATA = bytes(32)
DEEP = "[" * 100_000
BAD_FILES = {
    "empty": b"",
    "seven bytes": b"\x01" * 7,
    "eight bytes": b"\x08\0\0\0\0\0\0\0",
    "header length 0": b"\0" * 8 + DATA,
    "header length 2^63": raw_file("{}", DATA, header_length=1 << 63),
    "header length 2^64-1": raw_file("{}", DATA, header_length=(1 << 64) - 1),
    "header length past the end": raw_file("{}", DATA, header_length=1000),
    "header length over the cap": raw_file("{}", DATA, header_length=100_000_001),
    "header is a list": raw_file("[]", DATA),
    "header is not JSON": raw_file("{'w': 1}", DATA),
    "header is not UTF-8": raw_file(b'{"\xff": 1}', DATA),
    "header is cut": raw_file('{"w": {"dtype": "F32"', DATA),
    "header with junk behind": raw_file('{}x', DATA),
    "header nests deep": raw_file('{"w": ' + DEEP, DATA),
    "shape bigger than the offsets": raw_file({"w": entry([4, 4], 0, 32)}, DATA),
    "shape smaller than the offsets": raw_file({"w": entry([1, 4], 0, 32)}, DATA),
    "begin after end": raw_file({"w": entry([2, 4], 32, 0)}, DATA),
    "end past the file": raw_file({"w": entry([2, 8], 0, 64)}, DATA),
    "offsets overflow": raw_file({"w": entry([2, 4], (1 << 64) - 32, (1 << 64) - 1)}, DATA),
    "shape overflows": raw_file({"w": entry([1 << 33, 1 << 33], 0, 32)}, DATA),
    "shape product wraps to the right size": raw_file({"w": entry([1 << 62, 32], 0, 32)}, DATA),
    "negative shape": raw_file({"w": entry([-2, -4], 0, 32)}, DATA),
    "fractional shape": raw_file('{"w":{"dtype":"F32","shape":[2.5,4],"data_offsets":[0,32]}}', DATA),
    "shape of strings": raw_file({"w": entry(["2", "4"], 0, 32)}, DATA),
    "shape missing": raw_file({"w": {"dtype": "F32", "data_offsets": [0, 32]}}, DATA),
    "offsets missing": raw_file({"w": {"dtype": "F32", "shape": [2, 4]}}, DATA),
    "one offset": raw_file({"w": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0]}}, DATA),
    "entry is a number": raw_file({"w": 5}, DATA),
    "rank 9": raw_file({"w": entry([1] * 7 + [2, 4], 0, 32)}, DATA),
    "overlap": raw_file({"w": entry([2, 3], 0, 24), "v": entry([4], 16, 32)}, DATA),
    "hole": raw_file({"w": entry([1, 4], 16, 32)}, DATA),
    "bytes behind the last tensor": raw_file({"w": entry([1, 4], 0, 16)}, DATA),
    "same name twice": raw_file('{"w":{"dtype":"F32","shape":[1,4],"data_offsets":[0,16]},"w":{"dtype":"F32","shape":[1,4],"data_offsets":[16,32]}}', DATA),
    "metadata is no object of strings": raw_file({"__metadata__": {"a": 1}, "w": entry([2, 4], 0, 32)}, DATA),
}
# Right files that still cannot be served as asked.
UNSERVABLE = {
    "unknown type": raw_file({"w": entry([2, 16], 0, 32, dtype="F8_E4M3")}, DATA),
    "integers": raw_file({"w": entry([2, 4], 0, 32, dtype="I32")}, DATA),
    "rank 1": raw_file({"w": entry([8], 0, 32)}, DATA),
    "rank 3": raw_file({"w": entry([2, 2, 2], 0, 32)}, DATA),
    "zero rows": raw_file({"w": entry([0, 4], 0, 0), "v": entry([8], 0, 32)}, DATA),
    "another name": raw_file({"v": entry([2, 4], 0, 32)}, DATA),
}


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE, env=clean_environment())
    text = result.stdout + result.stderr
    assert not SANITIZER_REPORT.search(text), text[-4000:]
    assert result.returncode >= 0, f"ended by signal {-result.returncode}: {text[-2000:]}"
    return result.returncode, text


def refuse_start(path, *needles):
    status, text = run(DAEMON, "--port=0", "--backend=cpu", "--max-tokens=16", "--check-config", f"--model=m={path},tensor=w")
    assert status in (1, 2), (status, text)
    for needle in (path.name, *needles):
        assert needle in text, (needle, text)
    return text


@pytest.mark.sanitizer
@pytest.mark.parametrize("fault", BAD_FILES)
def test_c56_daemon_refuses_a_lying_file(tmp_path, fault):
    path = tmp_path / "lies.safetensors"
    path.write_bytes(BAD_FILES[fault])
    refuse_start(path)


@pytest.mark.sanitizer
@pytest.mark.parametrize("fault", BAD_FILES)
def test_c56_check_says_what_is_wrong(tmp_path, fault):
    path = tmp_path / "lies.safetensors"
    path.write_bytes(BAD_FILES[fault])
    status, text = run(CLI, "check", str(path))
    assert status == 1 and "lies.safetensors" in text, (status, text)


@pytest.mark.sanitizer
@pytest.mark.parametrize("fault", UNSERVABLE)
def test_c56_daemon_refuses_a_tensor_it_cannot_serve(tmp_path, fault):
    path = tmp_path / "odd.safetensors"
    path.write_bytes(UNSERVABLE[fault])
    refuse_start(path, "w")


@pytest.mark.sanitizer
def test_c56_odd_things_at_the_path(tmp_path):
    import os

    folder, fifo, missing = tmp_path / "folder.safetensors", tmp_path / "fifo.safetensors", tmp_path / "missing.safetensors"
    folder.mkdir()
    os.mkfifo(fifo)
    for path in (folder, fifo, missing):
        refuse_start(path)


@pytest.mark.sanitizer
def test_c56_bias_that_does_not_fit_is_refused(tmp_path):
    path = tmp_path / "bias.safetensors"
    weights_file.write(path, {"w": (np.zeros((2, 4)), "fp32"), "b": (np.zeros(3), "fp32")})
    status, text = run(DAEMON, "--port=0", "--backend=cpu", "--check-config", f"--model=m={path},tensor=w,bias=b")
    assert status in (1, 2) and all(word in text for word in ("bias.safetensors", "b", "2", "3")), (status, text)


def test_c56_several_candidates_are_listed(tmp_path):
    path = tmp_path / "two.safetensors"
    weights_file.write(path, {"first.weight": (np.zeros((2, 4)), "fp32"), "second.weight": (np.zeros((2, 4)), "bf16")})
    status, text = run(DAEMON, "--port=0", "--backend=cpu", "--check-config", f"--model=m={path}")
    assert status in (1, 2) and "first.weight" in text and "second.weight" in text, (status, text)


@pytest.mark.sanitizer
def test_good_file_is_accepted_by_both(tmp_path):
    path = tmp_path / "good.safetensors"
    header = {"__metadata__": {"format": "pt"}, "w": entry([2, 4], 0, 32)}
    path.write_bytes(raw_file(json.dumps(header) + "   ", DATA))
    assert run(CLI, "check", str(path))[0] == 0
    assert run(DAEMON, "--port=0", "--backend=cpu", "--max-tokens=16", "--check-config", f"--model=m={path},tensor=w")[0] == 0


def test_demo_checkpoint_opens_with_the_reference_library(tmp_path):
    from safetensors import safe_open

    folder = tmp_path / "demo"
    assert run(CLI, "demo-checkpoint", str(folder))[0] == 0
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_size"], config["n_routed_experts"], config["topk_group"], config["num_experts_per_tok"]) == (7168, 256, 4, 8)
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    gates = [name for name in weight_map if name.endswith(".mlp.gate.weight")]
    assert gates and "model.layers.3.mlp.gate.weight" in gates
    for name, shard in weight_map.items():
        with safe_open(folder / shard, framework="np") as file:
            piece = file.get_slice(name)
            if name in gates:
                assert (piece.get_shape(), piece.get_dtype()) == ([256, 7168], "BF16")
            else:
                assert name.endswith(".mlp.gate.e_score_correction_bias")
                assert (piece.get_shape(), piece.get_dtype()) == ([256], "F32")
    again = tmp_path / "again"
    run(CLI, "demo-checkpoint", str(again))
    for name in sorted(path.name for path in folder.iterdir()):
        assert (folder / name).read_bytes() == (again / name).read_bytes(), f"{name} is not seeded"
