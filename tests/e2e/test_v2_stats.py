"""The statistics extension, and what perf_analyzer reads from it."""

import json
import re
import threading

import pytest

from support import oip
from support.daemon import eventually

X = [[1, 2, 3, 4], [5, 6, 7, 8]]
DURATIONS = {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"}


def stats_of(client, path="/v2/models/exact/stats"):
    reply = client.get(path)
    assert reply.status == 200, reply
    assert not re.search(rb"[0-9][.eE]", reply.body), "an unsigned integer is printed as one"
    return reply.json()["model_stats"]


@pytest.mark.sanitizer
def test_all_models_in_one_list(client, models):
    names = [entry["name"] for entry in stats_of(client, "/v2/models/stats")]
    assert sorted(names) == sorted(models) and len(set(names)) == len(names)
    for entry in stats_of(client, "/v2/models/stats"):
        assert entry["version"] == "1" and set(entry["inference_stats"]) == DURATIONS
        assert all(isinstance(value["count"], int) and isinstance(value["ns"], int) for value in entry["inference_stats"].values())
        assert entry["memory_usage"][0]["byte_size"] > 0 and entry["memory_usage"][0]["type"] == "CPU"
    assert stats_of(client, "/v2/models/exact/versions/1/stats")[0]["name"] == "exact"


@pytest.mark.sanitizer
def test_counts_are_exact(start):
    daemon = start()
    with daemon.client() as client:
        before = stats_of(client)[0]
        for _ in range(3):
            oip.answer(oip.post(client, "exact", oip.json_body(X)))
        oip.answer(oip.post(client, "exact", b"", 0))  # no rows: a success without launch
        oip.refused(oip.post(client, "exact", oip.json_body(X, shape=[2, 5])))
        oip.refused(oip.post(client, "nope", oip.json_body(X)), (404,))
        after = eventually(lambda: (lambda entry: entry if entry["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 4 else None)(stats_of(client)[0]), what="four successes")
        assert after["inference_count"] - before["inference_count"] == 6
        assert after["execution_count"] - before["execution_count"] == 3
        assert after["last_inference"] >= before["last_inference"] > 1_600_000_000_000
        old, new = before["inference_stats"], after["inference_stats"]
        assert new["fail"]["count"] - old["fail"]["count"] == 1
        for name in ("queue", "compute_input", "compute_infer", "compute_output"):
            assert new[name]["count"] - old[name]["count"] == 4
        parts = sum(new[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
        assert parts <= new["success"]["ns"] < parts * 1.5 + 1_000_000
        batches = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in after["batch_stats"]}
        old_batches = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in before["batch_stats"]}
        assert batches[2] - old_batches.get(2, 0) == 3 and set(batches) == {2}


@pytest.mark.sanitizer
def test_counts_under_load_lose_nothing(daemon):
    def count():
        with daemon.client() as client:
            entry = stats_of(client)[0]
            return entry["inference_stats"]["success"]["count"], entry["inference_count"]

    header, data = oip.binary_body(X)
    before = count()

    def ask():
        with daemon.client() as client:
            for _ in range(50):
                oip.answer(oip.post(client, "exact", header + data, len(header)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: count() == (before[0] + 200, before[1] + 400), what="200 successes of 2 rows")


@pytest.mark.sanitizer
def test_numbers_beyond_a_double_are_taken_as_they_are(client):
    """2^53 + 1 rows in a shape must be refused as that number, not as 2^53."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [2**53 + 1, 4], "datatype": "FP32", "data": []}]})
    assert str(2**53 + 1) in oip.refused(oip.post(client, "exact", body)) or str(4 * (2**53 + 1)) in oip.refused(oip.post(client, "exact", body))
