"""`decomposek bench` against a real daemon, over each transport: the requests it reports are those the daemon counted."""

import json
import os
import signal
import subprocess
import time

import pytest

from support.daemon import BIN_DIR, CLI, PATIENCE, clean_environment, eventually, free_port

SHORT = ("--duration", str(0.5 * PATIENCE), "--warmup", "0.05")


def run(*arguments, **env):
    return subprocess.run([CLI, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=120 * PATIENCE, env={**clean_environment(), **env})


def report(*arguments, **env):
    for _ in range(5):
        result = run(*arguments, *SHORT, "--json", **env)
        assert result.stdout, (arguments, result.stderr)
        found = json.loads(result.stdout)
        # A busy machine may give the programs no turn for a whole window: nothing answered, nothing failed. Then another one.
        if all(part["ok"] or part["failed"] for part in found["results"]):
            break
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return found


def check_result(result, rows):
    assert result["rows"] == rows and result["ok"] > 0 and result["failed"] == 0 and result["failures"] == {}
    times = [result["latency_us"][name] for name in ("min", "p50", "p90", "p99", "p99.9", "max")]
    assert times == sorted(times) and times[0] > 0
    assert result["latency_us"]["count"] == result["ok"] and result["rows_per_s"] == pytest.approx(rows * result["requests_per_s"])


@pytest.fixture
def bench_daemon(start, tmp_path):
    daemon = start("--backend=cpu", f"--http-socket={tmp_path}/http.sock", f"--shm-socket={tmp_path}/ring.sock", model_names=("exact", "gate"))
    daemon.folder = tmp_path
    yield daemon
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_http_reports_each_rows_value_and_who_answered(bench_daemon):
    before = bench_daemon.metric("decomposek_requests_total", model="gate", outcome="ok")
    found = report("--url", bench_daemon.url, "--model", "gate", "--rows", "1,3", "--clients", 2, "--inflight", 2)
    for result, rows in zip(found["results"], (1, 3), strict=True):
        check_result(result, rows)
        assert result["kernel_us"]["count"] == result["ok"]
    assert found["transport"] == "http" and found["protocol"] == "v1" and found["server"]["backend"] == "cpu"
    assert found["model"] == {"name": "gate", "k": 7168, "n": 256, "dtype": "bf16"} and found["load"]["loop"] == "closed"
    sent = bench_daemon.metric("decomposek_requests_total", model="gate", outcome="ok") - before
    assert sent >= sum(result["ok"] for result in found["results"]) + 6  # the warm-up and the checked answers as well


def test_http_over_the_unix_socket_and_with_another_dtype(bench_daemon):
    found = report("--unix-socket", f"{bench_daemon.folder}/http.sock", "--model", "exact", "--dtype", "fp16")
    check_result(found["results"][0], 1)
    assert found["x_dtype"] == "fp16"


@pytest.mark.parametrize(
    "extra", [(), ("--copy",), ("--spin-us", "0"), pytest.param(("--clients", "3"), marks=pytest.mark.sanitizer), ("--dtype", "fp32")]
)
def test_shm_reports_what_the_daemon_counted(bench_daemon, extra):
    found = report("--transport", "shm", "--shm-socket", f"{bench_daemon.folder}/ring.sock", "--url", bench_daemon.url, "--model", "gate", "--rows", "1,5", "--inflight", 8, *extra)
    for result, rows in zip(found["results"], (1, 5), strict=True):
        check_result(result, rows)
        assert result["kernel_us"]["count"] > 0
    assert found["server"]["backend"] == "cpu" and found["is_copying"] == ("--copy" in extra)
    assert bench_daemon.metric("decomposek_requests_total", model="gate", outcome="ok") >= sum(result["ok"] for result in found["results"])


def test_shm_without_http_says_that_the_server_is_unknown(bench_daemon):
    found = report("--transport", "shm", "--shm-socket", f"{bench_daemon.folder}/ring.sock", "--url", f"http://127.0.0.1:{free_port()}", "--model", "exact")
    check_result(found["results"][0], 1)
    assert found["server"] is None


@pytest.mark.parametrize("arrivals", ["poisson", "constant"])
@pytest.mark.parametrize("transport", ["http", "shm", "inproc"])
def test_open_loop_sends_what_was_due(bench_daemon, transport, arrivals):
    extra = ("--shm-socket", f"{bench_daemon.folder}/ring.sock") if transport == "shm" else ()
    clients = () if transport == "inproc" else ("--clients", 4)
    found = report("--transport", transport, "--url", bench_daemon.url, "--model", "exact", "--rate", 200, "--arrivals", arrivals, *clients, *extra)
    result, load = found["results"][0], found["load"]
    assert load["loop"] == "open" and load["rate"] == 200 and load["arrivals"] == arrivals
    assert result["failed"] == 0 and result["latency_us"]["count"] == result["ok"] + result["unsent"]
    due = result["ok"] + result["unsent"]
    assert due == 100 * PATIENCE if arrivals == "constant" else 50 * PATIENCE <= due <= 150 * PATIENCE  # five deviations


def test_a_rate_that_cannot_be_reached_is_said(bench_daemon):
    result = run("--url", bench_daemon.url, "--model", "gate", "--rows", "64", "--rate", 1000000, *SHORT)
    assert result.returncode == 0 and "THE RATE WAS NOT REACHED" in result.stdout, result.stdout + result.stderr


def test_inproc_needs_no_daemon():
    found = report("--transport", "inproc", "--shape", "64,16,fp32", "--rows", "1,4", "--backend", "cpu", "--compute-threads", 1)
    for result, rows in zip(found["results"], (1, 4), strict=True):
        check_result(result, rows)
    assert found["server"]["backend"] == "cpu" and found["model"]["dtype"] == "fp32"


def test_refusals_are_counted_by_status_and_end_with_1(start):
    """Four requests at once where two may be in flight: some are busy, and the report says so."""
    daemon = start("--backend=cpu", "--max-in-flight=1", model_names=("exact", "gate"))
    result = run("--url", daemon.url, "--model", "gate", "--rows", "64", "--clients", 4, "--json", *SHORT)
    found = json.loads(result.stdout)["results"][0]
    assert found["failed"] == sum(found["failures"].values()) == found["failures"]["503"] > 0
    assert result.returncode == (0 if found["ok"] else 1)
    daemon.stop_cleanly()


def test_a_daemon_that_dies_in_the_middle_is_counted(start):
    daemon = start("--backend=cpu")
    process = subprocess.Popen([CLI, "bench", "--url", daemon.url, "--model", "exact", "--duration", "2", "--warmup", "0.01", "--json", "--progress"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    time.sleep(0.7 * PATIENCE)
    daemon.process.kill()
    out, progress = process.communicate(timeout=60 * PATIENCE)
    found = json.loads(out)["results"][0]
    assert found["ok"] > 0 and found["failures"]["CONNECTION"] > 0 and process.returncode == 0
    assert "requests/s" in progress and "rows 1: " in progress
    daemon.process.wait()


def test_ctrl_c_shows_what_was_measured(daemon):
    process = subprocess.Popen([CLI, "bench", "--url", daemon.url, "--model", "exact", "--duration", "600", "--warmup", "0.01", "--json"], stdout=subprocess.PIPE, text=True, env=clean_environment())
    time.sleep(0.7 * PATIENCE)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60 * PATIENCE)
    found = json.loads(out)["results"][0]
    assert process.returncode == 0 and found["is_stopped"] and 0 < found["seconds"] < 600 and found["ok"] > 0


def test_the_report_goes_to_a_file_too(daemon, tmp_path):
    result = run("--url", daemon.url, "--model", "exact", "--report", tmp_path / "r.json", *SHORT)
    assert result.returncode == 0 and "P99.9" in result.stdout and "FAILED" in result.stdout
    assert json.loads((tmp_path / "r.json").read_text())["results"][0]["ok"] > 0
    assert run("--url", daemon.url, "--model", "exact", "--report", tmp_path / "no" / "r.json", *SHORT).returncode == 1


def test_errors_say_why(daemon):
    url = ("--url", daemon.url)
    for arguments, code, needles in (
        ((*url,), 2, ["--model"]),
        ((*url, "--model", "nobody"), 1, ["nobody", "exact"]),
        ((*url, "--model", "exact", "--rows", "1,x"), 2, ["1,x"]),
        ((*url, "--model", "exact", "--rows", "0"), 2, ["'0'"]),
        ((*url, "--model", "exact", "--rows", "1,"), 2, ["'1,'"]),
        ((*url, "--model", "exact", "--transport", "tcp"), 2, ["tcp", "inproc"]),
        ((*url, "--model", "exact", "--protocol", "v3"), 2, ["v3"]),
        ((*url, "--model", "exact", "--arrivals", "never"), 2, ["never"]),
        ((*url, "--model", "exact", "--threads", "2"), 2, ["--threads 2"]),
        ((*url, "--model", "exact", "--shape", "1,2"), 2, ["inproc"]),
        ((*url, "--model", "exact", "--transport", "shm"), 2, ["--shm-socket"]),
        ((*url, "--model", "exact", "--transport", "shm", "--shm-socket", "/nowhere/ring.sock"), 1, ["/nowhere/ring.sock"]),
        ((*url, "--model", "exact", "--transport", "shm", "--shm-socket", "/" + "p" * 300), 2, ["ppp"]),
        (("--transport", "inproc"), 2, ["--shape"]),
        (("--transport", "inproc", "--shape", "7168"), 2, ["7168"]),
        (("--transport", "inproc", "--shape", "8,8", "--clients", "2"), 2, ["one caller"]),
        (("--transport", "inproc", "--shape", "8,8", "--backend", "gpu"), 2, ["gpu"]),
        (("--transport", "inproc", "--shape", "8,8", "--rows", "100000"), 1, ["100000"]),
        (("--url", f"http://127.0.0.1:{free_port()}", "--model", "exact"), 1, ["127.0.0.1"]),
        ((*url, "--model", "exact", "--rows", "16777216"), 1, []),
    ):
        result = run(*arguments, *SHORT)
        assert result.returncode == code and result.stderr, (arguments, result.returncode, result.stdout, result.stderr)
        for needle in needles:
            assert needle in result.stderr, (arguments, needle, result.stderr)


def test_inproc_without_its_program_says_what_is_missing(tmp_path):
    alone = tmp_path / "decomposek"
    os.link(CLI, alone) if os.stat(CLI).st_dev == os.stat(tmp_path).st_dev else alone.write_bytes(open(CLI, "rb").read())
    alone.chmod(0o755)
    result = subprocess.run([alone, "bench", "--transport", "inproc", "--shape", "8,8", *SHORT], capture_output=True, text=True, timeout=60, env={**clean_environment(), "PATH": "/nonexistent", "LD_LIBRARY_PATH": os.path.join(os.path.dirname(BIN_DIR), "lib")})
    assert result.returncode == 1 and "decomposek-bench-inproc" in result.stderr, result.stderr


def test_the_inproc_program_refuses_bad_options():
    program = os.path.join(BIN_DIR, "decomposek-bench-inproc")
    for arguments, code in ((("--help",), 0), (("--version",), 0), (("--rows", "0"), 2), (("--shape", "1"), 2), (("--shape", "0,1"), 2), (("--dtype", "int8"), 2), (("--rate", "-1"), 2), (("--duration-ms", "x"), 2), (("x",), 2), (("--nope",), 2)):
        result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
        assert result.returncode == code and (result.stdout if code == 0 else result.stderr), (arguments, result)


def test_the_daemon_is_still_there_afterwards(daemon):
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0, what="no request in flight")
