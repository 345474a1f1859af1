"""The daemon's command line: help, usage errors, and where a setting comes from."""

import json
import re
import subprocess

import pytest

from support.daemon import DAEMON, PATIENCE, clean_environment, free_port

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'


def run(*arguments, **env):
    return subprocess.run([DAEMON, *arguments], capture_output=True, text=True, timeout=30 * PATIENCE, env={**clean_environment(), **env})


def test_help_names_every_option_and_exit_codes():
    result = run("--help")
    assert result.returncode == 0 and not result.stderr
    for option in ("--model", "--host", "--port", "--http-socket", "--max-tokens", "--max-body-bytes", "--backend", "--drain-grace-ms", "--log-format", "--config", "--header-timeout-ms"):
        assert option in result.stdout, option
    for word in ("DECOMPOSEK_", "4096", "8000"):
        assert word in result.stdout, word
    version = run("--version")
    assert version.returncode == 0 and re.search(r"\d+\.\d+\.\d+", version.stdout)


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "arguments,env,needles",
    [
        (["--max-token=1"], {}, ["--max-token", "max-tokens"]),
        (["--port=70000"], {}, ["--port", "70000", "65535"]),
        (["--port=-1"], {}, ["-1"]),
        (["--port"], {}, ["port"]),
        (["--port="], {}, ["port"]),
        (["stray"], {}, ["stray"]),
        (["--backend=tpu"], {}, ["tpu", "cpu", "cuda"]),
        (["--model=x"], {}, ["x"]),
        (["--model=a/b=/f"], {}, ["a/b"]),
        (["--model=a=/f,layout=mk"], {}, ["mk"]),
        (["--model=a=/f,colour=red"], {}, ["colour"]),
        (["--model=a=/f", "--model=a=/g"], {}, ["a"]),
        (["--max-tokens=0"], {}, ["max-tokens", "0"]),
        ([], {"DECOMPOSEK_PORT": "many"}, ["DECOMPOSEK_PORT", "many"]),
        (["--config=/nonexistent.conf"], {}, ["/nonexistent.conf"]),
    ],
)
def test_usage_errors_exit_2_and_quote_the_value(arguments, env, needles):
    result = run(*arguments, **env)
    assert result.returncode == 2, (result.returncode, result.stderr)
    for needle in needles:
        assert needle in result.stderr, (needle, result.stderr)


def test_bad_line_of_a_config_file_is_named(tmp_path):
    path = tmp_path / "bad.conf"
    path.write_text("# comment\nmax-tokens = 64\nport = many\n")
    result = run(f"--config={path}")
    assert result.returncode == 2 and "bad.conf:3" in result.stderr and "many" in result.stderr, result.stderr


def test_flags_beat_environment_beats_file(start, models, tmp_path):
    ports = [free_port() for _ in range(3)]
    path = tmp_path / "daemon.conf"
    path.write_text(f"# all three say a port\nport = {ports[2]}\nmax-tokens = 16\nbackend = cpu\nmodel = exact={models['exact'].path},tensor=w\n")
    environment = {**clean_environment(), "DECOMPOSEK_CONFIG": str(path)}

    def start_with(port, *flags, **env):
        daemon = start(*flags, model_names=(), flags=False, port=port, env={**environment, **env})
        assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
        buckets = [plan["bucket"] for plan in daemon.get("/v1/plans").json()["plans"]]
        daemon.stop_cleanly()
        return max(buckets)

    assert start_with(ports[2]) == 16
    assert start_with(ports[1], DECOMPOSEK_PORT=str(ports[1]), DECOMPOSEK_MAX_TOKENS="32") == 32
    assert start_with(ports[0], f"--port={ports[0]}", "--max-tokens=8", DECOMPOSEK_PORT=str(ports[1]), DECOMPOSEK_MAX_TOKENS="32") == 8


def test_json_log_lines_parse(start):
    daemon = start("--backend=cpu", "--log-format=json", "--log-level=debug")
    daemon.post_json('{"model":"a\\"b\\nc","x":[]}')
    daemon.stop_cleanly()
    # Standard output has the one line for people and scripts; the log is standard error.
    lines = [line for line in daemon.log().splitlines() if not line.startswith("decomposekd ready ")]
    assert len(lines) >= 3 and all(isinstance(json.loads(line), dict) for line in lines)
