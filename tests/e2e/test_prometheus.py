"""A real Prometheus scrapes the daemon; its query API gives the p99 of each shape."""

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

from support import weights_file
from support.daemon import eventually, free_port
from support.notes import note

CONFIG = os.path.join(os.path.dirname(__file__), "../../deploy/prometheus/prometheus.yml")
P99 = "histogram_quantile(0.99, sum by (le, shape, t_bucket) (rate(decomposek_request_duration_seconds_bucket[10s])))"


def query(port, expression):
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            answer = json.load(reply)
    except OSError:
        return []
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def scrape_errors(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as reply:
        return [target["lastError"] for target in json.load(reply)["data"]["activeTargets"]]


def test_prometheus_returns_the_p99_of_each_shape(start, models, tmp_path):
    daemon = start("--backend=cpu", "--max-tokens=64", model_names=("exact", "gate", "kn"))
    config = open(CONFIG).read().replace("127.0.0.1:8000", f"127.0.0.1:{daemon.port}").replace("scrape_interval: 15s", "scrape_interval: 1s")
    assert f"127.0.0.1:{daemon.port}" in config and "scrape_interval: 1s" in config, "the example configuration changed its shape"
    (tmp_path / "prometheus.yml").write_text(config)
    shutil.copy(os.path.join(os.path.dirname(CONFIG), "rules.yml"), tmp_path)
    checked = subprocess.run(["promtool", "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    port = free_port()
    with open(tmp_path / "prometheus.log", "wb") as log:
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=tmp_path,
        )
    try:
        eventually(lambda: query(port, "up") and query(port, "up")[0]["value"][1] == "1", 30, "first scrape")
        gate, kn = (weights_file.encode(models[name].rows(t), "bf16") for name, t in (("gate", 1), ("kn", 20)))
        wanted = {("7168x256", "1"), ("500x48", "32")}

        def quantiles():
            with daemon.client() as client:
                for _ in range(50):
                    assert client.post_raw(gate, "model=gate").status == client.post_raw(kn, "model=kn").status == 200
            time.sleep(0.2)
            found = {(r["metric"]["shape"], r["metric"]["t_bucket"]): float(r["value"][1]) for r in query(port, P99)}
            return {key: found[key] for key in wanted} if all(found.get(key, 0) > 0 for key in wanted) else None

        found = eventually(quantiles, 30, "p99 of both shapes")
        for (shape, bucket), seconds in sorted(found.items()):
            note(f"Prometheus: p99 of {shape} t_bucket {bucket} is {seconds * 1e6:.0f} us")
            assert 0 < seconds < 10
        assert scrape_errors(port) == [""]
        version = query(port, "decomposek_info")
        assert len(version) == 1 and version[0]["metric"]["backend"] == "cpu"
        daemon.stop_cleanly()
        eventually(lambda: query(port, "up")[0]["value"][1] == "0", 10, "the target goes down with the daemon")
    finally:
        prometheus.terminate()
        prometheus.wait(20)
