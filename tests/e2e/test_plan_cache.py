"""C72 and C74: measured plans are kept for the next start, and nothing that may be in the file's place stops one."""

import os
import subprocess

import pytest

from support.daemon import BIN_DIR, CLI, clean_environment

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'
FLAGS = ("--backend=cpu", "--max-tokens=16", "--drain-grace-ms=0")
BUCKETS = 5
TUNER = os.path.join(BIN_DIR, "decomposek-tune")


def serves(daemon):
    for t in range(1, 18):
        answer = daemon.post_json({"model": "exact", "x": [[1, 2, 3, 4]] * t})
        assert answer.json()["y"] == [[60, 70, 80]] * t
    daemon.stop_cleanly()
    return daemon.log()


def warnings(log):
    return [line for line in log.splitlines() if "level=warn" in line and "plan_cache" in line]


def test_plans_measured_at_startup_are_used_by_the_next_start(start, tmp_path):
    cache = tmp_path / "plans"
    log = serves(start(*FLAGS, f"--plan-cache={cache}", "--tune=startup"))
    assert log.count("plan_tuned") == BUCKETS and not warnings(log)
    written = cache.read_bytes()
    assert written.startswith(b"decomposek-plans ") and written.count(b"\nplan ") == BUCKETS
    log = serves(start(*FLAGS, f"--plan-cache={cache}", "--tune=startup"))
    assert "plan_tuned" not in log and f"plans={BUCKETS}" in log
    log = serves(start(*FLAGS, f"--plan-cache={cache}"))  # without tuning the cache serves as well
    assert f"plans={BUCKETS}" in log
    assert cache.read_bytes() == written


def test_background_tuning_serves_meanwhile_and_writes_the_cache(start, tmp_path):
    cache = tmp_path / "plans"
    daemon = start(*FLAGS, f"--plan-cache={cache}", "--tune=background")
    for _ in range(2000):
        assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
        if cache.exists():
            break
    assert cache.exists()
    serves(daemon)


def test_check_config_with_tuning_is_a_way_to_tune_and_exit(start, models, tmp_path):
    cache = tmp_path / "plans"
    daemon = start(*FLAGS, f"--plan-cache={cache}", "--tune=startup", "--check-config", ready=False)
    assert daemon.wait_exit() == 0
    assert cache.read_bytes().count(b"\nplan ") == BUCKETS


def broken_files(good: bytes):
    lines = good.splitlines(keepends=True)
    head, plans = b"".join(lines[:6]), b"".join(lines[6:])
    return {
        "empty": b"",
        "truncated": good[: len(good) * 2 // 3],
        "header only, cut": good[:25],
        "garbage": bytes(range(256)) * 20,
        "old version": good.replace(b"decomposek-plans 1", b"decomposek-plans 0"),
        "another device": good.replace(b"\ndevice ", b"\ndevice Not "),
        "another product": good.replace(b"\nproduct ", b"\nproduct 9."),
        "split 0": head + plans.replace(b" split=1 ", b" split=0 "),
        "split -1": head + plans.replace(b" split=1 ", b" split=-1 "),
        "split 10^9": head + plans.replace(b" split=1 ", b" split=1000000000 "),
        "unknown kernel": head + plans.replace(b" variant=", b" variant=new_"),
        "too large": good + b"#" * (3 << 20),
    }


def test_c72_broken_files_warn_once_and_are_replaced(start, tmp_path):
    cache = tmp_path / "plans"
    serves(start(*FLAGS, f"--plan-cache={cache}", "--tune=startup"))
    good = cache.read_bytes()
    for what, text in broken_files(good).items():
        assert text != good, what
        cache.write_bytes(text)
        log = serves(start(*FLAGS, f"--plan-cache={cache}"))
        assert len(warnings(log)) == 1, f"{what}: {log}"
        assert cache.read_bytes() == text, what  # not ours to touch unless we measure
        log = serves(start(*FLAGS, f"--plan-cache={cache}", "--tune=startup"))
        assert len(warnings(log)) == 1, f"{what}: {log}"
        log = serves(start(*FLAGS, f"--plan-cache={cache}", "--tune=startup"))
        assert not warnings(log) and "plan_tuned" not in log, f"{what}: {log}"


@pytest.mark.parametrize("tune", ["off", "startup"])
def test_c72_folder_in_the_files_place_serves(start, tmp_path, tune):
    cache = tmp_path / "plans"
    cache.mkdir()
    log = serves(start(*FLAGS, f"--plan-cache={cache}", f"--tune={tune}"))
    assert "plan_cache_ignored" in log
    assert ("tuning_failed" in log) == (tune == "startup")  # measured, not kept
    assert os.listdir(cache) == []


def test_c72_two_daemons_with_one_cache_leave_a_valid_file(start, tmp_path):
    cache = tmp_path / "plans"
    daemons = [
        start(*FLAGS, f"--plan-cache={cache}", "--tune=startup", model_names=("exact", name), ready=False)
        for name in ("kn", "relu")
    ]
    for daemon in daemons:
        daemon.wait_ready()
        serves(daemon)
    log = serves(start(*FLAGS, f"--plan-cache={cache}", model_names=("exact", "kn", "relu")))
    assert not warnings(log)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("plans.")]


def test_c72_killed_while_tuning_leaves_the_old_or_the_new_file(start, tmp_path):
    cache = tmp_path / "plans"
    serves(start(*FLAGS, f"--plan-cache={cache}", "--tune=startup"))
    daemon = start(*FLAGS, f"--plan-cache={cache}", "--tune=startup", model_names=("exact", "gate", "kn"), ready=False)
    while "plan_tuned" not in daemon.log():
        assert daemon.process.poll() is None, daemon.log()
    daemon.kill()
    log = serves(start(*FLAGS, f"--plan-cache={cache}"))
    assert not warnings(log) and f"plans={BUCKETS}" in log


def test_c74_without_a_home_tuning_warns_and_serves(start, tmp_path):
    folder = tmp_path / "cwd"
    folder.mkdir()
    log = serves(start(*FLAGS, "--tune=startup", prefix=("env", "-i"), cwd=folder))
    assert len(warnings(log)) == 1 and "plan_cache_off" in log
    assert os.listdir(folder) == []


def test_c74_nothing_is_written_without_tuning(start, tmp_path):
    log = serves(start(*FLAGS, env={"HOME": str(tmp_path / "home")}))
    assert not warnings(log) and not (tmp_path / "home").exists()


def test_default_place_is_below_the_cache_folder(start, tmp_path):
    serves(start(*FLAGS, "--tune=startup", env={"HOME": str(tmp_path / "home")}))
    assert (tmp_path / "home/.cache/decomposek/plans").read_bytes().startswith(b"decomposek-plans ")
    serves(start(*FLAGS, "--tune=startup", env={"HOME": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path / "xdg")}))
    assert (tmp_path / "xdg/decomposek/plans").exists()
    serves(start(*FLAGS, "--tune=startup", "--plan-cache=off", env={"HOME": str(tmp_path / "off")}))
    assert not (tmp_path / "off").exists()


# --- decomposek tune --------------------------------------------------------------------------------------------------


def tune(*arguments, program=(CLI, "tune"), env=None):
    return subprocess.run(
        [*program, *map(str, arguments)], capture_output=True, text=True, timeout=120, env=env or clean_environment()
    )


def test_tune_command_writes_a_cache_that_the_daemon_uses(start, tmp_path):
    cache = tmp_path / "plans"
    first = tune("--backend=cpu", "--shape=4,3,fp32", "--max-tokens=16", f"--plan-cache={cache}")
    assert first.returncode == 0, first.stderr
    assert "0 plans" in first.stdout and cache.read_bytes().count(b"\nplan ") == BUCKETS
    log = serves(start(*FLAGS, f"--plan-cache={cache}"))
    assert f"event=plans_tuned model=exact plans={BUCKETS}" in log
    again = tune("--backend=cpu", "--shape=4,3,fp32", "--max-tokens=16", f"--plan-cache={cache}", program=(TUNER,))
    assert again.returncode == 0 and f"({BUCKETS} buckets known already)" in again.stdout


@pytest.mark.parametrize(
    "argument, word",
    [("--shape=0,3", "shape"), ("--shape=7168", "shape"), ("--shape=7168,256,fp8", "shape"), ("--shape=8,8,bf16,xx", "shape"),
     ("--max-tokens=0", "max-tokens"), ("--backend=tpu", "backend"), ("--no-such", "no-such"), ("extra", "extra")],
)
def test_tune_command_refuses_what_it_does_not_understand(tmp_path, argument, word):
    result = tune(argument, f"--plan-cache={tmp_path / 'plans'}")
    assert result.returncode == 2 and word in result.stderr
    assert not (tmp_path / "plans").exists()


def test_tune_command_says_where_it_cannot_write(tmp_path):
    result = tune("--backend=cpu", "--shape=4,3", "--max-tokens=1", "--plan-cache=/nonexistent/plans")
    assert result.returncode == 1 and "/nonexistent/plans" in result.stderr


def test_tune_command_has_help():
    result = tune("--help")
    assert result.returncode == 0 and "--shape" in result.stdout
