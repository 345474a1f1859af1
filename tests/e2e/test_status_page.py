"""The status page: in a real browser its numbers are those of /metrics; without scripts it is a plain table."""

import os
import re
import shutil
import threading
import time

import pytest

from support import weights_file
from support.chromium import Chromium
from support.daemon import eventually
from support.notes import note

BROWSER_ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PAGE_BUDGET_BYTES = 60_000
PICTURES = os.environ.get("DK_PICTURES", "")


@pytest.fixture(scope="module")
def browser():
    assert shutil.which("chromium"), "chromium is not installed: bash deploy/dependencies.sh test"
    browser = Chromium()
    yield browser
    browser.close()


@pytest.fixture
def loaded(start, models):
    """A daemon after a known load: three shapes, several buckets, some errors, a request without a model."""
    daemon = start("--backend=cpu", "--max-tokens=64", model_names=("exact", "gate", "kn", "relu"))
    with daemon.client() as client:
        for t, count in ((1, 20), (5, 10), (64, 3)):
            body = weights_file.encode(models["gate"].rows(t), "bf16")
            for _ in range(count):
                assert client.post_raw(body, "model=gate").status == 200
        for _ in range(7):
            assert client.post_json({"model": "kn", "x": models["kn"].rows(2).tolist()}).status == 200
        assert client.post_json({"a": [[1, 2]], "b": [[1], [2]]}).status == 200
        for _ in range(4):
            assert client.post_json({"model": "gate", "x": [[1]]}).status == 400
    return daemon


def scrape(daemon):
    """What the page should show, computed from /metrics by other code than the page's."""
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(daemon.get("/metrics").body.decode()))
    samples = [sample for family in families for sample in family.samples]
    cells, models = {}, {}
    for sample in samples:
        if sample.name == "decomposek_request_duration_seconds_bucket":
            cell = cells.setdefault((sample.labels["shape"], sample.labels["t_bucket"]), {})
            bound = float(sample.labels["le"])
            cell[bound] = cell.get(bound, 0) + sample.value
        elif sample.name == "decomposek_requests_total":
            models.setdefault(sample.labels["model"], {})[sample.labels["outcome"]] = int(sample.value)
        elif sample.name == "decomposek_rows_total":
            models.setdefault(sample.labels["model"], {})["rows"] = int(sample.value)
    plain = {sample.name: sample.value for sample in samples if not sample.labels}
    latency = {
        key: [str(int(cell[float("inf")])), in_us(quantile(cell, 0.5)), in_us(quantile(cell, 0.99))] for key, cell in cells.items() if cell[float("inf")] > 0
    }
    return latency, models, plain


def quantile(cell, q):
    bounds = sorted(cell)
    rank, low, below = q * cell[bounds[-1]], 0.0, 0
    for bound in bounds[:-1]:
        if cell[bound] >= rank and cell[bound] > below:
            return low + (bound - low) * (rank - below) / (cell[bound] - below)
        low, below = bound, cell[bound]
    return bounds[-2]


def in_us(seconds):
    tenths = int(seconds * 1e7 + 0.5)
    return f"{tenths // 10}.{tenths % 10}" if tenths < 1000 else str(int(seconds * 1e6 + 0.5))


TABLE = "[...document.querySelectorAll('#latency tr')].map(r => [...r.children].map(c => c.textContent))"
MODELS = """Object.fromEntries([...document.querySelectorAll('#models tr[data-model]')].map(r => [r.dataset.model,
    Object.fromEntries([...r.querySelectorAll('[data-of]')].map(c => [c.dataset.of, c.textContent]))]))"""
SERIES = "Object.fromEntries([...document.querySelectorAll('[data-series]')].map(c => [c.dataset.series, c.textContent]))"
OF_THE_SCRAPE = ("decomposek_http_connections",)  # the browser and the test are connections themselves


def assert_shows(browser, daemon):
    latency, models, plain = scrape(daemon)
    shown = {(row[0], row[1]): row[2:5] for row in browser.ask(TABLE)}
    assert shown.keys() == latency.keys() and len(shown) >= 5
    for key, (count, *times) in shown.items():
        assert count == latency[key][0]
        for text, expected in zip(times, latency[key][1:]):  # the last digit may fall the other way at a tie
            assert text == expected or abs(float(text) - float(expected)) <= (0.11 if "." in text else 1.01), (key, shown[key], latency[key])
    assert browser.ask(MODELS) == {name: {of: str(value) for of, value in counters.items()} for name, counters in models.items()}
    series = browser.ask(SERIES)
    assert len(series) > 20
    for name, text in series.items():
        if name not in OF_THE_SCRAPE:
            assert float(text) == plain[name], (name, text, plain[name])
    errors = sum(value for counters in models.values() for of, value in counters.items() if of not in ("ok", "rows"))
    requests = sum(value for counters in models.values() for of, value in counters.items() if of != "rows")
    assert browser.ask("document.getElementById('all-errors').textContent") == str(errors) and errors == 4
    assert browser.ask("document.getElementById('all-requests').textContent") == str(requests)
    jobs = plain["decomposek_batch_jobs_sum"] / plain["decomposek_batch_jobs_count"]
    assert abs(float(browser.ask("document.getElementById('launch-jobs').textContent")) - jobs) <= 0.051


def assert_stays_home(browser, daemon):
    assert not browser.complaints(), browser.complaints()
    foreign = [url for url in browser.requested() if not url.startswith((daemon.url + "/", "data:"))]
    assert not foreign, foreign


def test_page_shows_the_numbers_of_metrics(browser, loaded):
    browser.open(loaded.url + "/")
    browser.eventually("document.querySelectorAll('#plot-rate path').length == 2")
    assert_shows(browser, loaded)
    assert browser.ask("document.getElementById('state').textContent") == "ready"
    assert browser.ask("getComputedStyle(document.getElementById('now-p50').parentElement).display") == "block"
    assert_stays_home(browser, loaded)
    paths = {re.sub(r"^https?://[^/]+", "", url) for url in browser.requested() if url.startswith("http")}
    assert paths == {"/", "/status.css", "/status.js", "/metrics"}
    loaded.stop_cleanly()


def test_page_without_scripts_is_a_plain_table_with_the_same_numbers(browser, loaded):
    browser.open(loaded.url + "/", has_script=False)
    assert_shows(browser, loaded)
    assert browser.ask("getComputedStyle(document.querySelector('section.live')).display") == "none"
    assert browser.ask("getComputedStyle(document.getElementById('now-p50').parentElement).display") == "none"
    plans = browser.ask("[...document.querySelectorAll('table')[2].querySelectorAll('tbody tr')].map(r => [...r.children].map(c => c.textContent))")
    wanted = {(plan["model"], plan["variant"]) for plan in loaded.get("/v1/plans").json()["plans"]}
    assert {(row[0], row[2]) for row in plans} == wanted
    assert_stays_home(browser, loaded)
    loaded.stop_cleanly()


def test_page_follows_the_load_and_says_when_the_daemon_is_gone(browser, loaded, models):
    body, stop = weights_file.encode(models["gate"].rows(1), "bf16"), threading.Event()

    def load():
        with loaded.client() as client:
            while not stop.is_set():
                client.post_raw(body, "model=gate")
                time.sleep(0.002)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        browser.open(loaded.url + "/")
        browser.eventually("Number(document.getElementById('now-requests').textContent) > 1", 60)
        browser.eventually("Number(document.getElementById('now-p99').textContent) > 0 && Number(document.getElementById('now-rows').textContent) > 1")
        browser.eventually("[...document.querySelectorAll('#latency tr')].some(r => r.children[0].textContent == '7168x256' && Number(r.children[5].textContent) > 1)")
        browser.eventually("document.querySelector('#plot-time path').getAttribute('d').includes('L')", 60)
        for name, size in (("desktop", {"width": 1280, "height": 900}), ("phone", {"width": 390, "height": 844, "is_phone": True})):
            for scheme in ("light", "dark"):
                browser.look(scheme=scheme, **size)
                assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth"), f"{name}: the page is wider than the screen"
                ground = browser.ask("getComputedStyle(document.body).backgroundColor")
                assert (max(map(int, re.findall(r"\d+", ground)[:3])) < 80) == (scheme == "dark"), ground
                if PICTURES:
                    browser.picture(os.path.join(PICTURES, f"status-{name}-{scheme}.png"))
        assert_stays_home(browser, loaded)
    finally:
        stop.set()
        thread.join()
    loaded.stop_cleanly()
    browser.eventually("document.getElementById('state').textContent == 'no answer'", 60)


def test_page_is_small_and_allows_nothing_from_elsewhere(loaded):
    sizes = {}
    for path, media in (("/", "text/html; charset=utf-8"), ("/status.css", "text/css; charset=utf-8"), ("/status.js", "text/javascript; charset=utf-8")):
        reply = loaded.get(path, Accept=BROWSER_ACCEPT)
        assert reply.status == 200 and reply.header("content-type") == media
        policy = dict(part.strip().split(" ", 1) for part in reply.header("content-security-policy").split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert reply.header("x-content-type-options") == "nosniff" and reply.header("referrer-policy") == "no-referrer"
        assert "{{" not in reply.body.decode() and "://" not in reply.body.decode().replace("http://www.w3.org/2000/svg", "")
        sizes[path] = len(reply.body)
        head = loaded.client().request("HEAD", path, headers={"Accept": BROWSER_ACCEPT})
        assert head.status == 200 and head.body == b"" and int(head.header("content-length")) == sizes[path]
    note(f"status page: {sizes}")
    assert sum(sizes.values()) < PAGE_BUDGET_BYTES
    loaded.stop_cleanly()


@pytest.mark.sanitizer
@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/plain", "text/*", "text/html;q=0"])
def test_index_is_plain_text_for_programs(client, accept):
    reply = client.request("GET", "/", headers={} if accept is None else {"Accept": accept})
    assert reply.status == 200 and reply.header("content-type") == "text/plain; charset=utf-8" and reply.header("vary") == "Accept"
    text = reply.body.decode()
    assert text.startswith("decomposek ") and "state: ready" in text and "gate" in text and "\nbackend: " in text and "<" not in text.replace("<html", "")
    for route in ("/metrics", "/v1/models", "/v1/plans", "/v2/health/ready"):
        assert f" {route}  " in text


@pytest.mark.sanitizer
def test_page_is_complete_while_models_come_and_go(start, models):
    daemon = start("--backend=cpu", "--max-tokens=8", "--allow-model-control", model_names=("exact", "kn"))
    page = daemon.get("/", Accept=BROWSER_ACCEPT).body.decode()
    assert 'data-model="kn"' in page and "500x48" in page and page.rstrip().endswith("</html>")
    with daemon.client() as client:
        assert client.request("DELETE", "/v1/models/kn").status in (200, 204)
    eventually(lambda: 'data-model="kn"' not in daemon.get("/", Accept=BROWSER_ACCEPT).body.decode(), 10, "the removed model leaves the page")
    daemon.stop_cleanly()
