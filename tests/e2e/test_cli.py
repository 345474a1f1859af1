"""The command line against a running daemon, and the shell scripts of deploy/ against it."""

import json
import os
import subprocess

import numpy as np
import pytest

from support import reference, weights_file
from support.daemon import CLI, PATIENCE, clean_environment, free_port

DEPLOY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../deploy"))


def run(*arguments, stdin=None, **env):
    return subprocess.run([CLI, *map(str, arguments)], input=stdin, capture_output=True, timeout=60 * PATIENCE, env={**clean_environment(), **env})


def good(*arguments, **options):
    result = run(*arguments, **options)
    assert result.returncode == 0, (arguments, result.stderr.decode())
    return result.stdout


@pytest.mark.sanitizer
def test_infer_npy_gives_the_daemons_bits(daemon, client, models, tmp_path):
    gate = models["gate"]
    x = gate.rows(5)
    np.save(tmp_path / "x.npy", x)
    good("infer", "--url", daemon.url, "--model", "gate", "--output", tmp_path / "y.npy", tmp_path / "x.npy")
    expected = np.array(client.post_json({"model": "gate", "x": x.tolist()}).json()["y"], np.float32)
    reference.assert_same_bits(np.load(tmp_path / "y.npy"), expected)
    good("infer", "--url", daemon.url, "--model", "gate", "--json-body", "--output", tmp_path / "j.npy", tmp_path / "x.npy")
    reference.assert_same_bits(np.load(tmp_path / "j.npy"), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infer_takes_each_float_npy(daemon, models, tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3, 4]], dtype))
    answer = json.loads(good("infer", "--url", daemon.url, "--model", "exact", "--json", tmp_path / "x.npy"))
    assert answer["y"] == [[60, 70, 80]] and answer["shape"] == [1, 3]


@pytest.mark.sanitizer
def test_infer_from_standard_input_and_raw_files(daemon, models, tmp_path):
    exact = models["exact"]
    raw = weights_file.encode(np.array([[1, 2, 3, 4], [0, 0, 0, 1]]), "fp32")
    np.save(tmp_path / "x.npy", np.array([1, 2, 3, 4], np.float32))
    from_npy = json.loads(good("infer", "--url", daemon.url, "--model", "exact", "--json", "-", stdin=(tmp_path / "x.npy").read_bytes()))
    assert from_npy["y"] == [[60, 70, 80]]
    from_raw = json.loads(good("infer", "--url", daemon.url, "--model", "exact", "--json", "--raw", "--dtype", "fp32", "-", stdin=raw))
    assert from_raw["y"] == [[60, 70, 80], exact.kn[3].tolist()]
    good("infer", "--url", daemon.url, "--model", "exact", "--raw", "--dtype", "fp32", "--output", tmp_path / "y.bin", "-", stdin=raw)
    assert (tmp_path / "y.bin").read_bytes() == np.array(from_raw["y"], np.float32).tobytes()


def test_infer_random_is_seeded(daemon, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        good("infer", "--url", daemon.url, "--model", "gate", "--random", "4", "--seed", seed, "--output", tmp_path / f"{name}.npy")
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    assert a.shape == (4, 256) and (a == b).all() and not (a == c).all()
    text = good("infer", "--url", daemon.url, "--model", "gate", "--random", "2").decode()
    for word in ("timing_us", "kernel", "plan", "split_k"):
        assert word in text


def test_infer_zero_rows(daemon):
    assert json.loads(good("infer", "--url", daemon.url, "--model", "gate", "--json", "--random", "0"))["shape"] == [0, 256]


@pytest.mark.sanitizer
def test_infer_errors_say_why(daemon, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 5)))
    url = ("--url", daemon.url)
    for arguments, code, needles in (
        (("infer", *url, "--model", "nobody", "--random", "1"), 1, ["nobody"]),
        (("infer", *url, "--model", "exact", tmp_path / "x.npy"), 1, ["5", "4"]),
        (("infer", *url, "--model", "exact", tmp_path / "absent.npy"), 1, ["absent.npy"]),
        (("infer", *url, "--model", "exact"), 2, []),
        (("infer", *url, "--random", "1"), 2, ["--model"]),
        (("infer", *url, "--model", "exact", "--randm", "1"), 2, ["randm", "random"]),
        (("infr",), 2, ["infr", "infer"]),
        ((), 2, ["usage"]),
        (("models", "--url", f"http://127.0.0.1:{free_port()}"), 1, ["127.0.0.1"]),
        (("models", "--url", "gopher://x"), 2, ["gopher"]),
    ):
        result = run(*arguments)
        text = result.stderr.decode()
        assert result.returncode == code and text, (arguments, result.returncode, text)
        for needle in needles:
            assert needle in text, (arguments, needle, text)


def test_models_and_plans(daemon, models):
    text = good("models", "--url", daemon.url).decode()
    assert all(name in text for name in models)
    listed = json.loads(good("models", "--url", daemon.url, "--json"))
    assert {model["name"] for model in listed["models"]} == set(models)
    plans = good("plans", "--url", daemon.url).decode()
    assert "gate" in plans and "cpu" in plans
    assert json.loads(good("plans", "--url", daemon.url, "--json"))["plans"]
    assert good("models", DECOMPOSEK_URL=daemon.url).decode() == text


def test_cli_over_the_unix_socket(start, tmp_path):
    path = tmp_path / "http.sock"
    daemon = start("--backend=cpu", f"--http-socket={path}")
    assert "exact" in good("models", "--unix-socket", path).decode()
    daemon.stop_cleanly()


@pytest.mark.parametrize("tool", ["jq", "python3"])
def test_smoke_script_passes(daemon, tmp_path, tool):
    """Both ways to read JSON: a PATH that holds only what the script says it needs."""
    import shutil

    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "curl", "mktemp", "rm", "head", "grep", "tr", "cat", tool):
        found = shutil.which(name, path="/usr/bin:/bin") or shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed")
        (tools / name).symlink_to(found)
    result = subprocess.run(["bash", f"{DEPLOY}/smoke.sh", daemon.url], capture_output=True, text=True, timeout=120, env={"PATH": str(tools)}, cwd="/")
    assert result.returncode == 0 and "0 failed" in result.stdout, result.stdout + result.stderr
    assert result.stdout.count("\nok ") >= 18, result.stdout


def test_smoke_script_fails_where_nothing_answers():
    result = subprocess.run(["bash", f"{DEPLOY}/smoke.sh", f"http://127.0.0.1:{free_port()}"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and "FAIL" in result.stdout
    assert subprocess.run(["bash", f"{DEPLOY}/smoke.sh"], capture_output=True, timeout=20).returncode == 2


def test_quickstart_checker_finds_a_wrong_answer(daemon, models, tmp_path):
    """The reference check of the quickstart must be able to fail."""
    checker = f"{DEPLOY}/check_answer.py"
    make = subprocess.run(["/usr/bin/python3", checker, "make", "2", "7168", "1", tmp_path / "x.npy", tmp_path / "body.json"], capture_output=True, text=True)
    assert make.returncode == 0, make.stderr
    answer = daemon.post_json((tmp_path / "body.json").read_bytes()).json()
    (tmp_path / "plans.json").write_bytes(daemon.get("/v1/plans").body)

    def check(found):
        (tmp_path / "answer.json").write_text(json.dumps(found))
        command = ["/usr/bin/python3", checker, "check", models["gate"].path, "w", tmp_path / "x.npy", tmp_path / "answer.json", "--plans", tmp_path / "plans.json"]
        return subprocess.run(command, capture_output=True, text=True)

    assert check(answer).returncode == 0, check(answer).stdout + check(answer).stderr
    answer["y"][1][200] += 1e-3
    assert check(answer).returncode == 1
    answer["y"][1][200] = None
    assert check(answer).returncode == 1
