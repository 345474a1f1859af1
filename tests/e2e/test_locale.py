"""C42: a locale whose decimal mark is a comma changes nothing."""

import json
import os
import subprocess

import pytest

from support.daemon import CLI, clean_environment


def compile_locale(folder, name):
    """Build the locale into a private folder (LOCPATH), so that the machine need not have it."""
    target = folder / f"{name}.UTF-8"
    result = subprocess.run(["localedef", "-i", name, "-f", "UTF-8", str(target)], capture_output=True, text=True)
    if not target.exists():
        pytest.skip(f"localedef cannot build {name}: {result.stderr.strip()[:200]}")


@pytest.fixture(scope="module", params=["de_DE", "fr_FR"])
def comma_environment(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("locales")
    compile_locale(folder, request.param)
    env = {**clean_environment(), "LOCPATH": str(folder), "LC_ALL": f"{request.param}.UTF-8", "LANG": f"{request.param}.UTF-8", "LANGUAGE": ""}
    # The locale really has a comma, or the test proves nothing.
    probe = "import locale; locale.setlocale(locale.LC_ALL, ''); print(locale.localeconv()['decimal_point'])"
    found = subprocess.run(["/usr/bin/python3", "-c", probe], env=env, capture_output=True, text=True, check=True).stdout.strip()
    assert found == ",", f"decimal point is {found!r}"
    return env


BODY = '{"model": "gate-fp32", "x": [%s]}' % ",".join(["0.5", "1e-3", "-2.25E+1", "0.0001"] * 250)


def test_c42_json_and_metrics_do_not_depend_on_the_locale(start, comma_environment, tmp_path):
    config = tmp_path / "daemon.conf"
    config.write_text("max-tokens = 64\nbackend = cpu\nspin-us = 10\n")
    flags, names = (f"--config={config}", "--large-slabs=1"), ("exact", "gate-fp32")
    plain = start(*flags, model_names=names, env={**clean_environment(), "LC_ALL": "C"})
    comma = start(*flags, model_names=names, env=comma_environment)
    answers = [daemon.post_json(BODY).json() for daemon in (plain, comma)]
    assert answers[0]["y"] == answers[1]["y"] and answers[0]["y"][0][0] != 0
    for route in ("/v1/models", "/v1/plans"):
        assert plain.get(route).body == comma.get(route).body

    def series(daemon):
        lines = daemon.get("/metrics").body.decode().splitlines()
        assert not [line for line in lines if not line.startswith("#") and "," in line.rpartition(" ")[2]]
        return [line if line.startswith("#") else line.rpartition(" ")[0] for line in lines]

    assert series(plain) == series(comma)  # the same names and labels (le="0.001"), in the same order
    plain.stop_cleanly()
    comma.stop_cleanly()


def test_c42_cli_does_not_depend_on_the_locale(start, models, comma_environment, tmp_path):
    daemon = start("--backend=cpu", model_names=("exact", "gate-fp32"))
    outputs = []
    for env in ({**clean_environment(), "LC_ALL": "C"}, comma_environment):
        listed = subprocess.run([CLI, "models", "--url", daemon.url], env=env, capture_output=True, text=True, timeout=60)
        assert listed.returncode == 0, listed.stderr
        out = tmp_path / f"y-{len(outputs)}.npy"
        ran = subprocess.run([CLI, "infer", "--url", daemon.url, "--model", "gate-fp32", "--random", "3", "--seed", "5", "--output", str(out)], env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        outputs.append((listed.stdout, out.read_bytes()))
    assert outputs[0] == outputs[1]
    daemon.stop_cleanly()


def test_c42_demo_checkpoint_does_not_depend_on_the_locale(comma_environment, tmp_path):
    configs = []
    for index, env in enumerate(({**clean_environment(), "LC_ALL": "C"}, comma_environment)):
        folder = tmp_path / str(index)
        subprocess.run([CLI, "demo-checkpoint", str(folder)], env=env, check=True, timeout=120, capture_output=True)
        configs.append({name: (folder / name).read_bytes() for name in sorted(os.listdir(folder)) if name.endswith(".json")})
    assert configs[0] == configs[1] and json.loads(configs[1]["config.json"])["routed_scaling_factor"] == 2.5
