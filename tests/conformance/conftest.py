"""One daemon with every door open; after each test it must be alive and right."""

import os

import pytest

from support.daemon import CLI, DAEMON, Daemon
from support.models import Model, standard_models
from support.notes import NOTES

KNOWN_GOOD = {"model": "exact", "x": [[1, 2, 3, 4], [5, 6, 7, 8]]}


def pytest_sessionstart(session):
    for program in (DAEMON, CLI):
        if not os.access(program, os.X_OK):
            pytest.exit(f"{program} is not there: build first, or set DK_BIN_DIR", returncode=3)


def pytest_terminal_summary(terminalreporter):
    for text in NOTES:
        terminalreporter.write_line(f"note {text}")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {**standard_models(folder), "small": Model("small", 16, 64, dtype="fp32", seed=17).write(folder)}


@pytest.fixture(scope="session")
def shared_daemon(models, tmp_path_factory):
    daemon = Daemon(
        ["--backend=cpu", "--allow-client-shm", "--allow-model-control", f"--max-upload-bytes={8 << 20}", "--max-tokens=256",
         f"--max-body-bytes={32 << 20}", "--large-slabs=4", "--small-slabs=32", *(model.flag for model in models.values())],
        log_path=tmp_path_factory.mktemp("shared") / "daemon.log",
    )
    try:
        daemon.wait_ready()
        daemon.remember(KNOWN_GOOD)
        yield daemon
        daemon.stop_cleanly()
    finally:
        daemon.kill()


@pytest.fixture
def daemon(shared_daemon):
    yield shared_daemon
    shared_daemon.check_alive()


@pytest.fixture
def authority(daemon):
    """host:port, as tritonclient wants it."""
    return f"127.0.0.1:{daemon.port}"
