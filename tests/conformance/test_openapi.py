"""proto/openapi.yaml against the running daemon: the same routes and methods, the flags it names, and what
schemathesis makes of it (DK_SCHEMATHESIS_EXAMPLES requests an operation, 15 by default)."""

import collections
import os
import re
import subprocess

import hypothesis
import pytest
import schemathesis
import yaml
from schemathesis.specs.openapi import checks as openapi

from support.daemon import DAEMON
from support.files import constant_model
from support.notes import note

PATH = os.path.join(os.path.dirname(__file__), "../../proto/openapi.yaml")
METHODS = ("get", "post", "put", "delete")


def load():
    with open(PATH) as file:
        return yaml.safe_load(file)


def described():
    """Path template -> methods, as the file says."""
    return {path: {method.upper() for method in item if method in METHODS} for path, item in load()["paths"].items()}


def served(daemon):
    """Path template -> methods, as the route table says: the index lists it, an optional group in brackets."""
    page = daemon.get("/").body.decode()
    table = page.partition("\nroutes:\n")[2]
    found = {}
    with daemon.client() as client:
        for pattern in re.findall(r"^  [A-Z]+ (\S+)  ", table, re.M):
            for path in {re.sub(r"\[.*\]", "", pattern), pattern.replace("[", "").replace("]", "")}:
                real = path.replace("{model}", "exact").replace("{version}", "1").replace("{region}", "r")
                allow = client.request("OPTIONS", real).header("allow")
                found[path] = {word.strip() for word in allow.split(",")} - {"HEAD", "OPTIONS"}
    return found


def test_the_file_describes_the_route_table_and_nothing_else(daemon):
    routes = served(daemon)
    assert len(routes) > 20
    assert described() == routes


def test_every_operation_says_how_it_fails():
    names = collections.Counter()
    for path, item in load()["paths"].items():
        for method, operation in item.items():
            names[operation["operationId"]] += 1
            assert {"400", "413"} <= set(operation["responses"]), (path, method)
            assert operation["summary"] and operation["tags"], (path, method)
    assert max(names.values()) == 1


def test_the_flags_it_names_exist():
    text = open(PATH).read()
    flags = set(re.findall(r"--[a-z][a-z-]+", text))
    known = set(re.findall(r"--[a-z][a-z-]+", subprocess.run([DAEMON, "--help"], capture_output=True, text=True, check=True).stdout))
    assert flags and flags <= known, flags - known


def test_the_statuses_are_those_of_the_error_table():
    text = open(os.path.join(os.path.dirname(PATH), "PROTOCOL.md")).read()
    table = {int(code) for code in re.findall(r"^\| `[A-Z_]+` \| (\d+) \|", text, re.M)}
    used = {int(code) for item in load()["paths"].values() for operation in item.values() for code in operation["responses"]}
    assert used - {200, 201} <= table, used - table


# --- schemathesis ---------------------------------------------------------------------------------------------------

SCHEMA = schemathesis.openapi.from_path(PATH)
CHECKS = [openapi.status_code_conformance, openapi.content_type_conformance, openapi.response_headers_conformance, openapi.response_schema_conformance]
SEEN = collections.Counter()
STANDARD = ("gate", "gate-fp16", "gate-fp32", "kn", "relu", "sigmoid", "exact", "small")


@pytest.fixture(scope="module")
def target(shared_daemon):
    """Models that the requests may change, so that other tests keep theirs."""
    with shared_daemon.client() as client:
        assert client.request("PUT", "/v1/models/victim", constant_model(3, 4, 1)).status == 201
    yield shared_daemon
    with shared_daemon.client() as client:  # the first connection has idled too long by now
        client.request("DELETE", "/v1/models/victim")
        assert client.request("POST", "/v2/repository/models/kn/load").status == 200
        client.request("POST", "/v2/systemsharedmemory/unregister")
    shared_daemon.check_alive()
    note(f"schemathesis: {sum(SEEN.values())} requests, by status {dict(sorted(SEEN.items()))}")


def aim(case):
    """Half of the names are ones that exist: random ones only ever meet 404. What changes models has its own."""
    name = (case.path_parameters or {}).get("model")
    if name is None:
        return
    changes = case.method in ("PUT", "DELETE") or "repository" in case.path
    if len(name) % 2 or (changes and name in STANDARD):
        case.path_parameters["model"] = ("kn" if "repository" in case.path else "victim") if changes else "exact"


@SCHEMA.parametrize()
@hypothesis.settings(max_examples=int(os.environ.get("DK_SCHEMATHESIS_EXAMPLES", "15")), deadline=None, derandomize="DK_SCHEMATHESIS_EXAMPLES" not in os.environ,
                     suppress_health_check=list(hypothesis.HealthCheck), database=None)
def test_schemathesis(target, case):
    aim(case)
    response = case.call(base_url=target.url, timeout=60)
    SEEN[response.status_code] += 1
    # 501 and 503 are answers that the file describes; any other 5xx is a fault.
    assert response.status_code < 500 or response.status_code in (501, 503), (response.status_code, response.text)
    case.validate_response(response, checks=CHECKS)
