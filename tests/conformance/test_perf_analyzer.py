"""perf_analyzer, the load generator of Triton: every batch size and concurrency, over HTTP and shared memory."""

import csv
import os
import shutil
import subprocess

import pytest

from support.daemon import clean_environment
from support.notes import note


# Three windows of 50 requests, more when they differ wildly: this asks whether it works, not how fast. (--request-count would be
# simpler, but with several connections the program sometimes never ends, all its requests long answered.)
WINDOWS = ("--measurement-mode", "count_windows", "--measurement-request-count", "50", "--measurement-interval", "200",
           "--stability-percentage", "999", "--max-trials", "30")


@pytest.fixture(scope="session")
def program():
    path = shutil.which("perf_analyzer", path=os.environ.get("DK_PERF_ANALYZER") or os.environ["PATH"])
    assert path, "no perf_analyzer: tests/conformance/perf_analyzer.sh unpacks it, DK_PERF_ANALYZER names its folder"
    return path


def analyze(program, daemon, tmp_path, model, batch, concurrency, *flags):
    report = tmp_path / "report.csv"
    command = [program, "-m", model, "-u", f"127.0.0.1:{daemon.port}", "-i", "http", "-b", str(batch), "--concurrency-range", str(concurrency),
               *WINDOWS, "-f", str(report), *flags]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_environment(), cwd=tmp_path)
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    assert "Failed" not in run.stdout, run.stdout[-3000:]
    with open(report) as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1, rows
    return rows[0]


@pytest.mark.parametrize("memory", ["none", "system"])
@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_every_batch_and_concurrency(program, daemon, tmp_path, batch, concurrency, memory):
    before = daemon.get("/v2/models/small/stats").json()["model_stats"][0]
    row = analyze(program, daemon, tmp_path, "small", batch, concurrency, "--shared-memory", memory)
    after = daemon.get("/v2/models/small/stats").json()["model_stats"][0]
    assert int(row["Concurrency"]) == concurrency
    rate = float(row["Inferences/Second"])
    assert rate > 0 and float(row["p99 latency"]) >= float(row["p50 latency"]) > 0, row
    rows = after["inference_count"] - before["inference_count"]
    requests = after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"]
    assert requests > 20 and rows == batch * requests
    assert after["inference_stats"]["fail"]["count"] == before["inference_stats"]["fail"]["count"]
    assert daemon.get("/v2/systemsharedmemory/status").json() == []
    note(f"perf_analyzer b={batch} concurrency={concurrency} shared-memory={memory}: {rate:.0f} rows/s, p50 {row['p50 latency']} us, p99 {row['p99 latency']} us")


@pytest.mark.parametrize("flags", [("--input-tensor-format", "json"), ("--output-tensor-format", "json"), ("--input-data", "zero"), ("--async",)], ids=lambda f: f[0][2:])
def test_other_ways_to_send(program, daemon, tmp_path, flags):
    assert float(analyze(program, daemon, tmp_path, "small", 4, 4, *flags)["Inferences/Second"]) > 0


def test_random_bytes_as_bf16_of_the_router_shape(program, daemon, tmp_path):
    """Its default input is random bytes: NaN and infinities are among them."""
    assert float(analyze(program, daemon, tmp_path, "gate", 8, 4)["Inferences/Second"]) > 0
