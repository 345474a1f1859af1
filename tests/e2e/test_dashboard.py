"""The rules, the alerts and every query of the Grafana dashboard, against a real Prometheus that scrapes a loaded daemon."""

import json
import math
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

from support import oip, weights_file
from support.daemon import eventually, free_port
from support.notes import note

DEPLOY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../deploy"))
TRACE = "0af7651916cd43dd8448eb211c80319c"


def promtool(*arguments):
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120)


def test_rules_pass_promtool_and_every_alert_has_a_test_that_fires(tmp_path):
    checked = promtool("check", "rules", f"{DEPLOY}/prometheus/rules.yml")
    assert checked.returncode == 0 and "SUCCESS" in checked.stdout, checked.stdout + checked.stderr
    tested = promtool("test", "rules", f"{DEPLOY}/prometheus/rules_test.yml")
    assert tested.returncode == 0 and "SUCCESS" in tested.stdout, tested.stdout + tested.stderr
    with open(f"{DEPLOY}/prometheus/rules.yml") as file:
        alerts = {rule["alert"] for group in yaml.safe_load(file)["groups"] for rule in group["rules"] if "alert" in rule}
    with open(f"{DEPLOY}/prometheus/rules_test.yml") as file:
        cases = [case for test in yaml.safe_load(file)["tests"] for case in test.get("alert_rule_test", [])]
    fire, quiet = ({case["alertname"] for case in cases if bool(case["exp_alerts"]) == fires} for fires in (True, False))
    assert alerts == fire == quiet and len(alerts) >= 10
    # The tests can fail: an alert that never fires is found out.
    shutil.copy(f"{DEPLOY}/prometheus/rules_test.yml", tmp_path)
    text = open(f"{DEPLOY}/prometheus/rules.yml").read()
    (tmp_path / "rules.yml").write_text(text.replace("decomposek_ready == 0", "decomposek_ready == 2"))
    assert promtool("test", "rules", str(tmp_path / "rules_test.yml")).returncode != 0


class Prometheus:
    def __init__(self, folder, daemon_port):
        self.port = free_port()
        shutil.copytree(f"{DEPLOY}/prometheus", folder / "config")
        text = open(f"{DEPLOY}/prometheus/prometheus.yml").read()
        changed = text.replace("127.0.0.1:8000", f"127.0.0.1:{daemon_port}").replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
        assert changed.count("1s") >= 2 and str(daemon_port) in changed, "the example configuration changed its shape"
        (folder / "config/prometheus.yml").write_text(changed)
        checked = promtool("check", "config", str(folder / "config/prometheus.yml"))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/config/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{self.port}",
                 "--enable-feature=exemplar-storage"], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)

    def get(self, path, **parameters):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as reply:
            return json.load(reply)["data"]

    def query(self, expression):
        try:
            return self.get("/api/v1/query", query=expression)["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it reads its empty database
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except OSError:
            return []

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def dashboard_queries():
    with open(f"{DEPLOY}/grafana/decomposek.json") as file:
        dashboard = json.load(file)
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert names == {"datasource", "job", "instance", "shape"}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        assert panel["type"] in ("row", "timeseries", "stat") and panel["title"]
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "20s")
            for name in names:
                text = text.replace(f"${name}", ".*")
            assert "$" not in text, text
            yield panel["title"], text
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            for name in names:
                selector = selector.replace(f"${name}", ".*")
            yield f"variable {variable['name']}", f'count by ({label}) ({selector})'


def all_transports(daemon, models):
    """Some of everything, traced."""
    gate, headers = models["gate"], {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    with daemon.client() as client:
        for t in (1, 5):
            body = weights_file.encode(gate.rows(t), "bf16")
            for _ in range(20):
                assert client.post_raw(body, "model=gate", headers=headers).status == 200
        assert client.post_json({"model": "gate", "x": gate.rows(1).tolist()}, headers=headers).status == 200
        assert client.post_json({"a": [[1]], "b": [[2]]}).status == 200
        assert oip.post(client, "gate", oip.json_body(gate.rows(1))).status == 200
        assert oip.post_binary(client, "gate", gate.rows(2)).status == 200
        assert client.post_json({"model": "gate", "x": [[1]]}).status == 400


def has_value(result):
    return any(not math.isnan(float(sample["value"][1])) for sample in result)


def test_every_query_of_the_dashboard_returns_data(start, models, tmp_path):
    daemon = start("--backend=cpu", "--max-tokens=8", model_names=("exact", "gate"))
    prometheus = Prometheus(tmp_path, daemon.port)
    try:
        eventually(lambda: has_value(prometheus.query("up == 1")), 60, "first scrape")
        queries = list(dashboard_queries())
        missing, deadline = queries, time.monotonic() + 60
        while missing and time.monotonic() < deadline:
            all_transports(daemon, models)
            time.sleep(1)
            missing = [(title, text) for title, text in missing if not has_value(prometheus.query(text))]
        assert not missing, f"no data for {len(missing)} of {len(queries)}: {missing[:5]}"
        note(f"Grafana: {len(queries)} queries return data")
        recorded = [rule["name"] for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"] if rule["type"] == "recording"]
        assert len(recorded) >= 7
        for name in recorded:
            eventually(lambda: has_value(prometheus.query(name)), 60, name)
        firing = prometheus.query('ALERTS{alertstate="firing"}')
        assert not firing, firing
        exemplars = eventually(
            lambda: prometheus.get("/api/v1/query_exemplars", query="decomposek_request_duration_seconds_bucket", start=time.time() - 300, end=time.time() + 5), 30, "exemplars")
        labels = [exemplar["labels"] for series in exemplars for exemplar in series["exemplars"]]
        assert labels and all(label == {"trace_id": TRACE} for label in labels)
        families = set(re.findall(r"^# TYPE (\w+)", daemon.get("/metrics").body.decode(), re.M))
        shown = " ".join(text for _, text in queries)
        left_out = [family for family in families if not re.search(rf"\b{family}(_bucket|_sum|_count)?\b", shown)]
        assert not left_out, f"not on the dashboard: {left_out}"
        daemon.stop_cleanly()
    finally:
        prometheus.stop()
