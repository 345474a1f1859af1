"""A strict reading of /metrics, text and OpenMetrics: families, histograms, counters."""

import math

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

# What a current Prometheus sends.
PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def check_structure(text):
    """One HELP and one TYPE for each family, before its samples; its lines together; no series twice."""
    seen_families, current, series, typed, helped = [], None, set(), {}, set()
    for line in text.splitlines():
        if line == "# EOF":
            continue
        assert line and line == line.strip(), f"blank or padded line {line!r}"
        if line.startswith("#"):
            _, keyword, name, *rest = line.split(" ", 3)
            assert keyword in ("HELP", "TYPE", "UNIT"), line
            if keyword == "TYPE":
                assert name not in typed, f"TYPE of {name} twice"
                typed[name] = rest[0]
            elif keyword == "HELP":
                assert name not in helped and rest and rest[0], f"HELP of {name} twice or empty"
                helped.add(name)
        else:
            key, _, value = line.rpartition(" ")
            float(value)
            assert key not in series, f"series twice: {key}"
            series.add(key)
            name = key.split("{")[0]
            name = next((name.removesuffix(end) for end in ("_bucket", "_sum", "_count", "_total") if name.removesuffix(end) in typed and name not in typed), name)
        if name != current:
            assert name not in seen_families, f"lines of {name} are not together"
            seen_families.append(name)
            current = name
    assert set(typed) == helped
    return series


def histograms(families):
    """(family, labels) -> [(upper bound, cumulative count)], sum, count."""
    found = {}
    for family in families:
        if family.type != "histogram":
            continue
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            buckets, parts = found.setdefault((family.name, labels), ([], {}))
            if sample.name.endswith("_bucket"):
                buckets.append((float(sample.labels["le"]), sample.value))
            else:
                parts[sample.name.rpartition("_")[2]] = sample.value
    return found


def check_scrape(text, is_openmetrics):
    """Parse strictly and check every histogram; returns {series key: value} of counters."""
    check_structure(text)
    assert text.endswith("# EOF\n") == is_openmetrics
    families = list((parse_openmetrics if is_openmetrics else parse_text)(text))
    assert families
    for (name, labels), (buckets, parts) in histograms(families).items():
        bounds = [bound for bound, _ in buckets]
        counts = [count for _, count in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf, (name, labels, bounds)
        assert counts == sorted(counts) and counts[0] >= 0, (name, labels, counts)
        assert counts[-1] == parts["count"], (name, labels, counts[-1], parts)
        assert parts["sum"] >= 0 and (parts["count"] > 0 or parts["sum"] == 0), (name, labels, parts)
    counters = {}
    for family in families:
        for sample in family.samples:
            assert not math.isnan(sample.value), sample
            if family.type == "counter" or sample.name.endswith(("_bucket", "_count", "_sum")):
                if family.type == "counter":
                    assert sample.name.endswith("_total"), sample
                counters[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return counters
