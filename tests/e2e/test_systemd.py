"""What a supervisor sees and gives: notification, watchdog, reload, socket activation (C68), and the unit files."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from support import weights_file
from support.daemon import DAEMON, PATIENCE, clean_environment, eventually
from support.http import Client
from support.notes import note
from support.supervisor import HeldThread, Supervisor, passing

GOOD = b'{"model":"exact","x":[[1,2,3,4]]}'
UNITS = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../deploy/systemd"))
HAS_SYSTEMD = b"libsystemd" in subprocess.run(["ldd", DAEMON], capture_output=True, check=True).stdout
speaks_systemd = pytest.mark.skipif(not HAS_SYSTEMD, reason="built without libsystemd")


@pytest.fixture
def supervisor(tmp_path):
    supervisor = Supervisor(tmp_path)
    yield supervisor
    supervisor.close()


# --- notification -----------------------------------------------------------------------------------------------------


@speaks_systemd
@pytest.mark.sanitizer
def test_c68_ready_is_said_only_when_models_serve(start, supervisor):
    daemon = start("--backend=cpu", ready=False, env=supervisor.environment(clean_environment()), model_names=("exact", "gate"))
    at, said = supervisor.wait("READY", "1", seconds=60)
    reply = daemon.post_json(GOOD)  # asked after READY: no waiting, no second try
    assert reply.status == 200 and reply.json()["y"] == [[60, 70, 80]], reply
    assert said["STATUS"] == f"Serving 2 models on {daemon.url}"
    assert supervisor.events[0][1] == {"STATUS": "Loading models"}, supervisor.events[:2]
    assert len(supervisor.said("READY")) == 1
    assert not supervisor.said("WATCHDOG"), "nobody asked for it"
    daemon.stop_cleanly()


@speaks_systemd
def test_c68_ready_is_never_said_when_loading_fails(start, supervisor, tmp_path):
    daemon = start(f"--model=m={tmp_path}/not\nREADY=1\nhere", "--backend=cpu", ready=False, env=supervisor.environment(clean_environment()))
    assert daemon.wait_exit(20) == 1
    at, said = eventually(lambda: [event for event in supervisor.events if event[1].get("STATUS", "").startswith("Loading failed")])[0]
    assert "not?READY=1?here" in said["STATUS"], said
    assert not supervisor.said("READY"), "a file name was taken for an assignment"


@speaks_systemd
@pytest.mark.sanitizer
def test_c68_stopping_is_said_before_the_drain(start, supervisor):
    daemon = start("--backend=cpu", "--drain-grace-ms=400", "--drain-limit-ms=7000", env=supervisor.environment(clean_environment()))
    supervisor.wait("READY")
    daemon.process.send_signal(signal.SIGTERM)
    at, said = supervisor.wait("STOPPING", "1")
    assert daemon.post_json(GOOD).status == 200, "the grace period serves"
    assert int(said["EXTEND_TIMEOUT_USEC"]) >= 7_400_000
    assert daemon.wait_exit(20) == 0
    assert not [event for event in supervisor.said("READY") if event[0] > at], "READY after STOPPING"


@speaks_systemd
@pytest.mark.sanitizer
def test_reload_is_announced_and_ends_ready_good_or_bad(start, supervisor, tmp_path, models):
    path = tmp_path / "live.safetensors"
    shutil.copy(models["exact"].path, path)
    daemon = start(f"--model=live={path},tensor=w", "--backend=cpu", env=supervisor.environment(clean_environment()))
    weights_file.write(tmp_path / "new", {"w": (np.full((3, 4), 7), "fp32")})
    os.replace(tmp_path / "new", path)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    daemon.process.send_signal(signal.SIGHUP)
    at, said = supervisor.wait("RELOADING", "1")
    assert before <= int(said["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    done, said = supervisor.wait("READY", count=2)
    assert done >= at and daemon.post_json('{"model":"live","x":[[1,0,0,0]]}').json()["y"] == [[7, 7, 7]]
    assert "failed" not in said["STATUS"]
    (tmp_path / "bad").write_bytes(b"garbage")
    os.replace(tmp_path / "bad", path)
    daemon.process.send_signal(signal.SIGHUP)
    assert "the last reload failed" in supervisor.wait("READY", count=3)[1]["STATUS"]
    daemon.stop_cleanly()


def test_a_supervisor_that_is_gone_changes_nothing(start, tmp_path):
    daemon = start("--backend=cpu", env={**clean_environment(), "NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "200000"})
    time.sleep(0.5)
    assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    assert daemon.log().count("notify_failed") in range(0, 4), daemon.log()
    daemon.stop_cleanly()


# --- watchdog ---------------------------------------------------------------------------------------------------------


def beats_within(supervisor, seconds):
    began = time.monotonic()
    time.sleep(seconds)
    return [at for at, _ in supervisor.said("WATCHDOG", "1") if at > began]


@speaks_systemd
@pytest.mark.parametrize("thread", ["dk-executor", None], ids=["executor", "control loop"])
def test_watchdog_is_fed_when_idle_and_not_when_a_thread_hangs(start, supervisor, thread):
    interval = 0.4 * PATIENCE
    daemon = start("--backend=cpu", env=supervisor.environment(clean_environment(), int(interval * 1e6)))
    supervisor.wait("READY")
    assert len(beats_within(supervisor, 4 * interval)) >= 4, "an idle daemon is alive"
    with HeldThread(daemon.pid, thread):
        time.sleep(interval)  # beats that were on their way
        assert not beats_within(supervisor, 4 * interval), "a daemon that hangs was called alive"
    eventually(lambda: beats_within(supervisor, interval), 20, "it is fed again")
    daemon.stop_cleanly()


@speaks_systemd
def test_watchdog_of_another_process_is_not_ours(start, supervisor):
    env = {**supervisor.environment(clean_environment(), 100_000), "WATCHDOG_PID": "1"}
    daemon = start("--backend=cpu", env=env)
    assert not beats_within(supervisor, 0.5)
    daemon.stop_cleanly()


# --- socket activation ------------------------------------------------------------------------------------------------


def listening(kind, address):
    sock = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX, kind)
    sock.bind(address)
    sock.listen(64)
    return sock


@pytest.fixture
def doors(tmp_path):
    sockets = [
        ("http", listening(socket.SOCK_STREAM, ("127.0.0.1", 0))),
        ("http-unix", listening(socket.SOCK_STREAM, str(tmp_path / "http.sock"))),
        ("shm", listening(socket.SOCK_SEQPACKET, str(tmp_path / "ring.sock"))),
    ]
    yield sockets
    for _, sock in sockets:
        sock.close()


@speaks_systemd
@pytest.mark.sanitizer
def test_passed_sockets_serve_and_outlive_the_daemon(start, doors, tmp_path):
    port = doors[0][1].getsockname()[1]
    for end in (signal.SIGTERM, signal.SIGKILL):
        daemon = start("--backend=cpu", "--drain-grace-ms=0", "--shm-allow-uid=any", port=port, **passing(doors))
        with Client(unix_path=str(tmp_path / "http.sock")) as client:
            assert client.post_json(GOOD).json()["y"] == [[60, 70, 80]]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ring:
            ring.connect(str(tmp_path / "ring.sock"))
            ring.sendall(b"nonsense")
            ring.settimeout(20)
            assert ring.recv(4096), "the ring's door does not answer"
        assert f"http://127.0.0.1:{port}" in daemon.log()
        assert not os.path.exists(tmp_path / "http.sock.lock"), "a passed socket is not ours to lock"
        daemon.stop(end)
        assert (tmp_path / "http.sock").is_socket() and (tmp_path / "ring.sock").is_socket()
    # Asked while nobody serves: the connection waits in the socket and is answered by the next instance.
    waiting = socket.create_connection(("127.0.0.1", port))
    waiting.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    daemon = start("--backend=cpu", port=port, **passing(doors))
    waiting.settimeout(20 * PATIENCE)
    assert waiting.recv(4096).startswith(b"HTTP/1.1 200")
    waiting.close()
    daemon.stop_cleanly()


@speaks_systemd
def test_one_passed_socket_leaves_the_other_doors_to_the_flags(start, doors, tmp_path):
    path = tmp_path / "own.sock"
    daemon = start("--backend=cpu", f"--http-socket={path}", port=doors[0][1].getsockname()[1], **passing(doors[:1]))
    with Client(unix_path=str(path)) as client:
        assert client.post_json(GOOD).status == 200
    daemon.stop_cleanly()
    assert not path.exists()


@speaks_systemd
@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "names, text",
    [
        (["web"], "a socket named 'web' was passed; FileDescriptorName= is one of http, http-unix, shm"),
        (["http-unix"], "the socket passed as 'http-unix' is not a listening UNIX stream socket"),
        (["shm"], "the socket passed as 'shm' is not a listening UNIX seqpacket socket"),
        (["http", "http"], "two sockets named 'http' were passed"),
    ],
)
def test_a_wrong_socket_is_refused_by_name(start, doors, names, text):
    sockets = [(name, doors[0][1].dup()) for name in names]
    daemon = start("--backend=cpu", ready=False, **passing(sockets))
    assert daemon.wait_exit(20) == 1
    [sock.close() for _, sock in sockets]
    assert text in daemon.log(), daemon.log()


@speaks_systemd
def test_a_socket_that_does_not_listen_is_refused(start):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        daemon = start("--backend=cpu", ready=False, **passing([("http", sock)]))
        assert daemon.wait_exit(20) == 1
    assert "is not a listening TCP socket" in daemon.log()


@speaks_systemd
@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not installed")
def test_systemd_socket_activate_starts_it_at_the_first_connection(start):
    from support.daemon import free_port

    port = free_port()
    activate = ("systemd-socket-activate", f"--listen=127.0.0.1:{port}", "--fdname=http")
    daemon = start("--backend=cpu", ready=False, port=port, prefix=activate)
    eventually(lambda: "Listening on" in daemon.log(), 20, "the launcher listens")
    assert "event=" not in daemon.log() and "backend" not in daemon.log(), "started before anybody asked"
    daemon.wait_ready()
    assert daemon.post_json(GOOD).json()["y"] == [[60, 70, 80]]
    daemon.stop_cleanly()


# --- unit files -------------------------------------------------------------------------------------------------------

needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")


@pytest.fixture
def units(tmp_path):
    """The units, with a program that is there."""
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    service = folder / "decomposekd.service"
    text = service.read_text()
    assert text.count("ExecStart=/usr/bin/decomposekd ") == 1
    service.write_text(text.replace("ExecStart=/usr/bin/decomposekd ", f"ExecStart={DAEMON} "))
    return folder


@needs_analyze
def test_units_pass_systemd_analyze_verify(units):
    files = sorted(units.glob("*.service")) + sorted(units.glob("*.socket"))
    assert len(files) == 4
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True)
    assert result.returncode == 0 and not re.search(r"decomposek.*(:|Unknown|ignor)", result.stderr), result.stderr


@needs_analyze
@pytest.mark.parametrize("drop_in, limit", [(None, 2.0), ("hardening-cpu.conf", 1.5)], ids=["gpu", "cpu"])
def test_exposure_score(units, drop_in, limit):
    """The limits are what the files reached when they were written: a hardening line that gets lost is seen."""
    service = units / "decomposekd.service"
    if drop_in:
        folder = units / "decomposekd.service.d"
        folder.mkdir()
        shutil.move(units / drop_in, folder / drop_in)
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"}
    target = service.name if drop_in else service
    result = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={limit * 10:.0f}", target], capture_output=True, text=True, env=env
    )
    score = re.search(r"Overall exposure level for decomposekd.service: ([\d.]+)", result.stdout)
    assert score and float(score[1]) <= limit, result.stdout[-2000:] + result.stderr
    note(f"systemd-analyze security, decomposekd.service{' + ' + drop_in if drop_in else ''}: {score[1]} of 10")


def settings(text):
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def test_unit_leaves_time_for_the_drain(start):
    with open(os.path.join(UNITS, "decomposekd.service")) as file:
        unit = settings(file.read())
    help_text = subprocess.run([DAEMON, "--help"], capture_output=True, text=True, check=True).stdout

    def default(option):
        return int(re.search(rf"--{option} .*?Default:\s+(\d+)", help_text, re.DOTALL)[1])

    assert int(unit["TimeoutStopSec"]) * 1000 > default("drain-grace-ms") + default("drain-limit-ms") + 5000


def test_shipped_configuration_is_accepted(tmp_path):
    """Every line of it, the commented options too."""
    with open(os.path.join(UNITS, "decomposekd.conf")) as file:
        text = file.read()
    lines = [re.sub(r"^# (?=[a-z-]+ = )", "", line) for line in text.splitlines()]
    text = "\n".join(lines).replace("/run/decomposek", str(tmp_path)).replace("/var/cache/decomposek", str(tmp_path)).replace("/etc/decomposek", str(tmp_path))
    text = text.replace("/var/lib/decomposek", str(tmp_path))
    weights_file.write(tmp_path / "gate.safetensors", {"w": (np.ones((3, 4)), "fp32")})
    (tmp_path / "api-keys").write_text("a-key-of-the-test\n")
    (tmp_path / "api-keys").chmod(0o400)
    path = tmp_path / "decomposekd.conf"
    path.write_text(text)
    result = subprocess.run([DAEMON, "--config", path, "--check-config"], capture_output=True, text=True, env=clean_environment())
    assert result.returncode == 0 and "configuration ok" in result.stdout, result.stderr + text
