"""C63 and C64: content types, exposition rules, and numbers that agree with what was sent, also under load."""

import gzip
import subprocess
import threading

import pytest

from support import weights_file
from support.daemon import SANITIZER
from support.http import raw_request
from support.scrape import PROMETHEUS_ACCEPT, check_scrape

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


# --- C63 --------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("accept", [None, "*/*", "text/plain", "text/plain;version=0.0.4", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json", "",
                                    "text/plain;q=0.9,application/openmetrics-text;q=0.5", "application/openmetrics-text;q=0,text/plain"])
def test_c63_plain_content_type(client, accept):
    reply = client.request("GET", "/metrics", headers={} if accept is None else {"Accept": accept})
    assert reply.status == 200 and reply.header("content-type") == TEXT_TYPE, reply.headers
    check_scrape(reply.body.decode(), is_openmetrics=False)


@pytest.mark.sanitizer
@pytest.mark.parametrize("accept", [PROMETHEUS_ACCEPT, "application/openmetrics-text; version=1.0.0", "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.3"])
def test_c63_openmetrics_content_type(client, accept):
    reply = client.request("GET", "/metrics", headers={"Accept": accept})
    assert reply.status == 200, reply
    media, *parameters = [part.strip() for part in reply.header("content-type").split(";")]
    assert media == "application/openmetrics-text" and "version=1.0.0" in parameters and "charset=utf-8" in parameters
    check_scrape(reply.body.decode(), is_openmetrics=True)


def test_c63_gzip_when_asked(client):
    plain = client.get("/metrics")
    packed = client.get("/metrics", Accept_Encoding="gzip")
    assert plain.header("content-encoding") is None
    assert packed.header("content-encoding") == "gzip" and packed.header("content-type") == TEXT_TYPE
    check_scrape(gzip.decompress(packed.body).decode(), is_openmetrics=False)
    assert client.get("/metrics", Accept_Encoding="gzip;q=0").header("content-encoding") is None
    head = client.request("HEAD", "/metrics", headers={"Accept-Encoding": "gzip"})
    assert head.status == 200 and head.body == b""


# --- C64 --------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitizer
def test_c64_histograms_are_cumulative_in_every_scrape_under_load(start, models):
    daemon = start("--backend=cpu", "--max-tokens=4", model_names=("exact", "gate"))
    body = weights_file.encode(models["gate"].rows(1), "bf16")
    stop, failures = threading.Event(), []

    def load(index):
        with daemon.client() as client:
            while not stop.is_set():
                if client.post_raw(body, "model=gate").status != 200:
                    failures.append("load")
                client.post_json(b'{"model":"exact","x":[[1,2,3]]}' if index == 0 else b'{"a":[[1]],"b":[[2]]}')

    threads = [threading.Thread(target=load, args=(index,)) for index in range(3)]
    [thread.start() for thread in threads]
    try:
        before = {}
        with daemon.client() as scraper:
            for turn in range(60 if SANITIZER else 1000):
                is_openmetrics = turn % 2 == 1
                reply = scraper.request("GET", "/metrics", headers={"Accept": PROMETHEUS_ACCEPT} if is_openmetrics else {})
                # The cheap rules each time, the strict parsers each tenth time: they take most of a second core.
                text = reply.body.decode()
                if turn % 10 < 2:
                    counters = check_scrape(text, is_openmetrics)
                    fallen = [key for key, value in before.items() if counters.get(key, -1) < value]
                    assert not fallen, f"counters fell or vanished: {fallen[:3]}"
                    before = counters
                else:
                    check_plus_inf(text)
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert not failures
    daemon.stop_cleanly()


def check_plus_inf(text):
    """`+Inf` equals _count for every histogram of one scrape, without a parser."""
    last = {}
    for line in text.splitlines():
        if 'le="+Inf"' in line:
            key, value = line.rsplit(" ", 1)
            name, labels = key.split("_bucket{", 1)
            labels = ",".join(part for part in labels.rstrip("}").split(",") if not part.startswith("le="))
            last[name, labels] = value
        elif "_count" in line and not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            name, _, labels = key.partition("_count")
            assert last.pop((name, labels.strip("{}")), value) == value, line
    assert not last, f"no _count for {list(last)[:3]}"


def test_c64_promtool_finds_nothing(daemon):
    for _ in range(2):
        text = daemon.get("/metrics").body
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
        assert result.returncode == 0, (result.stdout + result.stderr).decode()
        daemon.post_json(b'{"model":"exact","x":[[1,2,3,4]]}')


@pytest.mark.sanitizer
def test_series_of_loaded_models_exist_before_the_first_request(start, models):
    daemon = start("--backend=cpu", "--max-tokens=8", model_names=("exact", "gate"))
    text = daemon.get("/metrics").body.decode()
    for shape in ("7168x256", "4x3"):
        for bucket in (1, 2, 4, 8):
            assert f'decomposek_request_duration_seconds_bucket{{shape="{shape}",t_bucket="{bucket}"' in text, (shape, bucket)
    assert 'backend="cpu"' in text and "decomposek_info{" in text
    daemon.stop_cleanly()


def sums(daemon, name):
    """Sum over all label sets whose labels match; {labels: value}."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(daemon.get("/metrics").body.decode())
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.sanitizer
def test_counts_agree_with_what_was_sent(start, models):
    daemon = start("--backend=cpu", "--max-tokens=64", model_names=("exact", "gate"))
    body = weights_file.encode(models["gate"].rows(5), "bf16")
    with daemon.client() as client:
        for _ in range(7):
            assert client.post_raw(body, "model=gate").status == 200
        for _ in range(3):
            assert client.post_json({"model": "gate", "x": models["gate"].rows(1).tolist()}).status == 200
        for _ in range(2):
            assert client.post_json({"model": "gate", "x": [[1]]}).status == 400
        for t in range(4):
            assert client.post_json({"a": [[1, 2]] * (t + 1), "b": [[1], [2]]}).status == 200
    request = sums(daemon, "decomposek_request_duration_seconds_count")
    by_bucket = {}
    for labels, value in request.items():
        labels = dict(labels)
        key = labels["shape"], labels["t_bucket"]
        by_bucket[key] = by_bucket.get(key, 0) + value
    assert by_bucket["7168x256", "8"] == 7 and by_bucket["7168x256", "1"] == 3
    assert by_bucket["7168x256", "2"] == 0
    assert sum(value for (shape, _), value in by_bucket.items() if shape == "other") == 4, by_bucket
    rows = sums(daemon, "decomposek_rows_total")
    assert sum(value for labels, value in rows.items() if dict(labels).get("model") == "gate") == 7 * 5 + 3
    outcomes = {}
    for labels, value in sums(daemon, "decomposek_requests_total").items():
        outcome = dict(labels)["outcome"]
        outcomes[outcome] = outcomes.get(outcome, 0) + value
    assert outcomes["ok"] == 7 + 3 + 4 + 1, outcomes  # one by the fixture, to know a good answer
    assert daemon.metric("decomposek_http_refused_total") >= 2
    assert daemon.metric("decomposek_ready") == 1 and daemon.metric("decomposek_in_flight_requests") == 0
    for family in ("queue", "kernel", "request"):
        name = f"decomposek_{family}_duration_seconds"
        assert any(labels for labels in sums(daemon, name + "_count")), name
    daemon.stop_cleanly()


def test_a_client_cannot_make_series(daemon):
    with daemon.client() as client:
        client.post_json({"a": [[1]], "b": [[1]]})  # the series of what was met once exist now
        before = len(client.get("/metrics").body.decode().splitlines())
        for index in range(1, 40):
            client.post_json({"model": f"invented{index}", "x": [[1]]})
            client.post_json({"a": [[1] * index], "b": [[1] * (index + 3)] * index})
        assert len(client.get("/metrics").body.decode().splitlines()) == before


# --- exemplars --------------------------------------------------------------------------------------------------------

TRACE = "0af7651916cd43dd8448eb211c80319c"


def traced_buckets(daemon):
    """[(shape, transport, labels of the exemplar, its value, le)] of an OpenMetrics scrape; the plain text has none."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    with daemon.client() as client:
        assert b"trace_id" not in client.get("/metrics").body and b" # " not in client.get("/metrics").body
        text = client.request("GET", "/metrics", headers={"Accept": PROMETHEUS_ACCEPT}).body.decode()
    check_scrape(text, is_openmetrics=True)
    return [
        (sample.labels["shape"], sample.labels["transport"], sample.exemplar.labels, sample.exemplar.value, float(sample.labels["le"]))
        for family in text_string_to_metric_families(text) for sample in family.samples if sample.exemplar
    ]


@pytest.mark.sanitizer
def test_a_sampled_traceparent_becomes_an_exemplar(start, models):
    daemon = start("--backend=cpu", "--max-tokens=8", model_names=("exact", "gate"))
    with daemon.client() as client:
        parent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "vendor=x"}
        assert client.post_raw(weights_file.encode(models["gate"].rows(1), "bf16"), "model=gate", headers=parent).status == 200
        assert client.post_json({"model": "exact", "x": [[1, 2, 3, 4]]}, headers=parent).status == 200
        assert client.request("POST", "/v2/models/exact/infer", b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}', parent).status == 200
    found = traced_buckets(daemon)
    assert {("7168x256", "http_raw"), ("4x3", "http_oip_json")} <= {(shape, transport) for shape, transport, *_ in found}
    for _, _, labels, value, bound in found:
        assert labels == {"trace_id": TRACE} and 0 < value <= bound
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_other_traceparents_leave_no_trace_and_refuse_nothing(start):
    daemon = start("--backend=cpu", "--max-tokens=8")
    good = f"00-{TRACE}-b7ad6b7169203331-01"
    bad = ["", "x", good[:-2] + "00", good[:-1], good + "-more", good.upper(), "ff" + good[2:], f"00-{'0' * 32}-b7ad6b7169203331-01", f"00-{TRACE}-{'0' * 16}-01",
           f'00-{TRACE[:20]}"}} 1 # {{a="b-b7ad6b7169203331-01', "00-" + "é" * 32 + "-b7ad6b7169203331-01", "a" * 4000]
    with daemon.client() as client:
        for text in bad:
            assert client.post_json({"model": "exact", "x": [[1, 2, 3, 4]]}, headers={"traceparent": text.encode("utf-8")}).status == 200, text
    body = b'{"model":"exact","x":[[1,2,3,4]]}'
    twice = f"POST /v1/matmul HTTP/1.1\r\nHost: x\r\nTraceparent: {good}\r\ntraceparent: {good}\r\nContent-Length: {len(body)}\r\n\r\n"
    assert raw_request(daemon.port, twice.encode() + body).status == 200
    assert traced_buckets(daemon) == []
    daemon.stop_cleanly()
