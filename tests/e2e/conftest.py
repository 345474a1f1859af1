"""Fixtures: the standard models, one shared daemon that serves them, and a factory for daemons of a test's own."""

import pytest

from support.daemon import CLI, DAEMON, Daemon
from support.models import standard_models
from support.notes import NOTES

KNOWN_GOOD = {"model": "exact", "x": [[1, 2, 3, 4], [5, 6, 7, 8]]}


def pytest_sessionstart(session):
    import os

    for program in (DAEMON, CLI):
        if not os.access(program, os.X_OK):
            pytest.exit(f"{program} is not there: build first, or set DK_BIN_DIR", returncode=3)


def pytest_terminal_summary(terminalreporter):
    for text in NOTES:
        terminalreporter.write_line(f"note {text}")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return standard_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def shared_daemon(models, tmp_path_factory):
    """--max-tokens 256 so that T = 300 and more are cut; few slabs, so that it stays small."""
    daemon = Daemon(
        ["--backend=cpu", "--max-tokens=256", f"--max-body-bytes={160 << 20}", "--large-slabs=2", "--small-slabs=16",
         *(model.flag for model in models.values())],
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
    """The shared daemon; after the test it must be alive and right."""
    yield shared_daemon
    shared_daemon.check_alive()


@pytest.fixture
def client(daemon):
    with daemon.client() as connection:
        yield connection


@pytest.fixture
def start(models, tmp_path):
    """start(*flags, models=[names], ready=True, ...) -> Daemon, killed at the end at the latest."""
    started = []

    def start_one(*flags, model_names=("exact",), ready=True, **options):
        daemon = Daemon(
            [*(models[name].flag for name in model_names), *flags],
            log_path=tmp_path / f"daemon-{len(started)}.log",
            **options,
        )
        started.append(daemon)
        if ready:
            daemon.wait_ready()
            if "exact" in model_names:
                daemon.remember(KNOWN_GOOD)
        return daemon

    yield start_one
    for daemon in started:
        daemon.kill()
        daemon.check_log()
