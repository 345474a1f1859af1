"""The JSON suite over HTTP: what is valid must be taken, what is not must be 400, and the server goes on."""

import os

import pytest

FOLDER = os.path.join(os.path.dirname(__file__), "json")


def bodies(kind):
    names = sorted(os.listdir(os.path.join(FOLDER, kind)))
    assert len(names) > 20
    return names


def send(daemon, kind, name):
    with open(os.path.join(FOLDER, kind, name), "rb") as file:
        body = file.read()
    with daemon.client() as client:
        reply = client.request("POST", "/v2/models/exact/infer", body, {"Content-Type": "application/json"})
        assert client.get("/v2/health/live").status == 200
    return reply


@pytest.mark.parametrize("name", bodies("valid"))
def test_valid_json_is_taken(shared_daemon, name):
    reply = send(shared_daemon, "valid", name)
    assert reply.status == 200, reply
    assert reply.json()["outputs"][0]["name"] == "logits"


@pytest.mark.parametrize("name", bodies("invalid"))
def test_invalid_json_is_400(shared_daemon, name):
    reply = send(shared_daemon, "invalid", name)
    assert reply.status == 400 and reply.json()["error"], reply


def test_the_server_is_right_after_all_of_it(daemon):
    for name in bodies("invalid"):
        send(daemon, "invalid", name)
