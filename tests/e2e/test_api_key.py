"""--api-key-file: who may enter, what a refusal says, rotation at SIGHUP, and that a key is never shown."""

import os
import signal
import subprocess

import pytest

from support.daemon import CLI, clean_environment, eventually
from support.http import raw_request

KEYS = ("first-key-0123456789", "second-key-0123456789")
GOOD = {"model": "exact", "x": [[1, 2, 3, 4]]}
ROUTES = [("GET", "/"), ("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/v1/plans"), ("POST", "/v1/matmul"), ("GET", "/nothing"), ("OPTIONS", "/v1/models")]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def guarded(start, tmp_path):
    path = tmp_path / "keys"
    path.write_text("# two at once\n" + "\n".join(KEYS) + "\n")
    path.chmod(0o600)
    daemon = start("--log-level=debug", f"--api-key-file={path}", ready=False)
    daemon.wait_ready()
    yield daemon, path
    log = daemon.log()
    assert not any(key in log for key in KEYS)


@pytest.mark.sanitizer
@pytest.mark.parametrize("method,route", ROUTES)
def test_without_a_key_every_route_but_health_is_401(guarded, method, route):
    daemon, _ = guarded
    body = b"{}" if method == "POST" else None
    with daemon.client() as client:
        for headers in ({}, bearer("wrong-key-0123456789"), {"Authorization": f"Basic {KEYS[0]}"}, {"Authorization": KEYS[0]}):
            reply = client.request(method, route, body, headers)
            assert reply.status == 401 and reply.header("www-authenticate", "").startswith("Bearer"), (headers, reply)
            answer = reply.json()
            assert answer["status"] == "UNAUTHORIZED" and not any(key in answer["error"] for key in KEYS)
        sock = client.connection.sock
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert client.request("GET", path).status == 200
            assert client.request("HEAD", path).status == 200
        assert client.connection.sock is sock is not None, "a refusal closed the connection"


@pytest.mark.sanitizer
def test_every_key_of_the_file_opens_and_refusals_are_counted(guarded):
    daemon, _ = guarded
    with daemon.client() as client:
        assert client.request("POST", "/v1/matmul", b"x" * 5000).status == 401
        for key in KEYS:
            assert client.post_json(GOOD, headers=bearer(key)).json()["y"] == [[60, 70, 80]]
            assert client.get("/v1/models", **bearer(key)).status == 200
            assert client.get("/nothing", **bearer(key)).status == 404
        metrics = client.get("/metrics", **bearer(KEYS[0])).body.decode()
    assert "decomposek_http_unauthorized_total 1\n" in metrics


@pytest.mark.sanitizer
def test_two_authorization_headers_are_refused(guarded):
    daemon, _ = guarded
    head = f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEYS[0]}\r\nauthorization: Bearer wrong\r\n\r\n"
    reply = raw_request(daemon.port, head.encode())
    assert reply.status == 400 and KEYS[0] not in reply.body.decode()


def test_large_body_without_a_key_gets_its_401(guarded):
    daemon, _ = guarded
    with daemon.client() as client:
        assert client.request("POST", "/v1/matmul", b"x" * (4 << 20)).status == 401


@pytest.mark.sanitizer
def test_sighup_rotates_and_a_bad_file_keeps_the_old_keys(guarded):
    daemon, path = guarded

    def status(key):
        return daemon.get("/v1/models", **bearer(key)).status

    path.write_text(KEYS[1] + "\n")
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: status(KEYS[0]) == 401, what="the removed key")
    assert status(KEYS[1]) == 200
    path.write_text("short\n")
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: "api_keys_reload_failed" in daemon.log(), what="the refusal of the file")
    assert status(KEYS[1]) == 200 and status("short") == 401


@pytest.mark.parametrize("text", ["", "# nothing\n", "short\n", "two words-in-it\n"])
def test_a_file_without_a_usable_key_ends_the_start(start, tmp_path, text):
    path = tmp_path / "keys"
    path.write_text(text)
    daemon = start(f"--api-key-file={path}", ready=False)
    assert daemon.wait_exit() == 1 and "api_keys_unusable" in daemon.log()
    assert text == "" or text.strip() not in daemon.log()


def test_a_missing_file_ends_the_start(start):
    daemon = start("--api-key-file=/nonexistent/keys", ready=False)
    assert daemon.wait_exit() == 1 and "/nonexistent/keys" in daemon.log()


def test_a_file_that_everybody_may_read_is_warned_about(start, tmp_path):
    path = tmp_path / "keys"
    path.write_text(KEYS[0])
    path.chmod(0o644)
    daemon = start(f"--api-key-file={path}", ready=False)
    daemon.wait_ready()
    assert "api_key_file_open" in daemon.log()


def run_cli(daemon, *arguments, **variables):
    environment = {**clean_environment(), **variables}
    return subprocess.run([CLI, "models", "--url", daemon.url, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def test_cli_sends_the_key_of_its_file_or_variable(guarded, tmp_path):
    daemon, path = guarded
    assert run_cli(daemon, "--api-key-file", str(path)).returncode == 0
    assert run_cli(daemon, DECOMPOSEK_API_KEY=KEYS[1]).returncode == 0
    refused = run_cli(daemon)
    assert refused.returncode == 1 and "401" in refused.stderr
    wrong = run_cli(daemon, DECOMPOSEK_API_KEY="wrong-key-0123456789")
    assert wrong.returncode == 1 and "wrong-key" not in wrong.stderr
    malformed = run_cli(daemon, DECOMPOSEK_API_KEY="line\r\nX-Smuggled: 1")
    assert malformed.returncode == 2 and "Smuggled" not in malformed.stderr
    assert run_cli(daemon, "--api-key-file", os.path.join(str(tmp_path), "absent")).returncode == 1
