"""`decomposek top`: against a real daemon, on a terminal and without one, and across a restart."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from support.daemon import CLI, PATIENCE, clean_environment, free_port
from test_locale import comma_environment  # noqa: F401 (a fixture)


def run(*arguments, env=None):
    return subprocess.run([CLI, "top", *map(str, arguments)], capture_output=True, text=True, timeout=60 * PATIENCE, env=env or clean_environment())


@pytest.fixture
def traffic(daemon):
    """Requests all the time, three rows each."""
    stop = threading.Event()

    def send():
        with daemon.client() as client:
            while not stop.is_set():
                client.post_json({"model": "exact", "x": [[1, 2, 3, 4]] * 3})
                client.post_json({"model": "exact", "x": [[1, 2]]})  # refused

    thread = threading.Thread(target=send)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.sanitizer
def test_once_shows_rates_by_shape(daemon, traffic):
    found = json.loads(run("--url", daemon.url, "--once", "--interval", "0.5", "--json").stdout)
    assert found["backend"] == "cpu" and found["is_ready"] and not found["is_restarted"]
    rows = {row["shape"]: row for row in found["shapes"]}
    busy, idle = rows["4x3"], rows["7168x256"]
    assert busy["requests_per_s"] > 0 and busy["failed_per_s"] == 0 and found["refused_per_s"] > 0
    assert busy["rows_per_s"] >= 2 * busy["requests_per_s"]  # three a request; the two counters are read one after the other
    assert 0 < busy["p50_us"] <= busy["p99_us"] and busy["kernel_mean_us"] > 0
    assert idle["requests_per_s"] == 0 and idle["p50_us"] is None
    assert found["shapes"][0]["shape"] == "4x3"  # the busiest first
    by_bucket = json.loads(run("--url", daemon.url, "--once", "--interval", "0.5", "--json", "--buckets").stdout)
    assert [(row["shape"], row["t_bucket"]) for row in by_bucket["shapes"]] == [("4x3", 4)]
    text = run("--url", daemon.url, "--once", "--interval", "0.5").stdout
    assert "requests/s" in text and "queue" in text and "\x1b" not in text
    assert "SHAPE" in text and "T " in run("--url", daemon.url, "--once", "--interval", "0.5", "--buckets").stdout


def test_without_a_terminal_tables_follow_each_other_until_a_signal(daemon):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([CLI, "top", "--url", daemon.url, "--interval", "0.1", "--json"], stdout=subprocess.PIPE, text=True, env=clean_environment())
        documents = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(number)
        process.stdout.read()
        assert process.wait(30 * PATIENCE) == 0 and all(document["interval_s"] >= 0.1 for document in documents)


def test_it_works_over_the_unix_socket(start, tmp_path):
    daemon = start("--backend=cpu", f"--http-socket={tmp_path}/http.sock")
    assert "4x3" in run("--unix-socket", tmp_path / "http.sock", "--once", "--interval", "0.1").stdout
    daemon.stop_cleanly()


def test_a_restart_is_waited_for_and_said(start):
    first = start("--backend=cpu")
    process = subprocess.Popen([CLI, "top", "--url", first.url, "--interval", "0.2", "--json", "--timeout", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    assert not json.loads(process.stdout.readline())["is_restarted"]
    first.stop_cleanly()
    assert first.url in process.stderr.readline()  # refused, or reset while it ended
    second = start("--backend=cpu", port=first.port)
    document = {"is_restarted": False}
    while not document["is_restarted"]:
        document = json.loads(process.stdout.readline())
    assert document["requests_per_s"] >= 0
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 0
    second.stop_cleanly()


class Terminal:
    """`decomposek top` on a pseudo-terminal of its own."""

    def __init__(self, *arguments, columns=100, rows=30):
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([CLI, "top", *arguments], stdin=self.slave, stdout=self.slave, stderr=self.slave, env=clean_environment(), start_new_session=True)
        self.seen = b""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, needle, seconds=20):
        deadline = time.monotonic() + seconds * PATIENCE
        while needle not in self.seen:
            assert time.monotonic() < deadline, (needle, self.seen[-2000:])
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)

    def finish(self):
        status = self.process.wait(30 * PATIENCE)
        while select.select([self.master], [], [], 0.1)[0]:
            self.seen += os.read(self.master, 65536)
        after = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
        assert after == self.before, "the terminal's mode was not given back"
        assert b"\x1b[?1049h" in self.seen and self.seen.rstrip().endswith(b"\x1b[?1049l") and b"\x1b[?25h" in self.seen
        return status


@pytest.mark.parametrize("end", ["q", "ctrl-c", "term"])
def test_a_terminal_is_given_back(daemon, end):
    terminal = Terminal("--url", daemon.url, "--interval", "0.1")
    terminal.read_until(b"7168x256")
    if end == "term":
        terminal.process.terminate()
    elif end == "ctrl-c":
        terminal.process.send_signal(signal.SIGINT)
    else:
        os.write(terminal.master, b"xq")
    assert terminal.finish() == 0


def test_a_resize_redraws_within_the_new_size(daemon):
    terminal = Terminal("--url", daemon.url, "--interval", "0.1")
    terminal.read_until(b"7168x256")
    terminal.resize(12, 3)
    terminal.process.send_signal(signal.SIGWINCH)
    time.sleep(0.5 * PATIENCE)
    terminal.seen = terminal.seen[:20]
    while select.select([terminal.master], [], [], 0)[0]:
        os.read(terminal.master, 65536)
    terminal.read_until(b"\x1b[H" b"decomposek 0")
    frame = terminal.seen.rpartition(b"\x1b[H")[2]
    terminal.read_until(frame + b"\x1b[K") if b"\x1b[J" not in frame else None
    os.write(terminal.master, b"q")
    assert terminal.finish() == 0
    frames = [part.partition(b"\x1b[J")[0] for part in terminal.seen.split(b"\x1b[H")[1:] if b"\x1b[J" in part]
    assert frames
    for frame in frames:
        lines = frame.replace(b"\x1b[K", b"").replace(b"\r", b"").split(b"\n")
        assert len(lines) <= 3 and all(len(line) <= 12 for line in lines), frame


def test_a_daemon_that_goes_away_is_shown_on_the_terminal(start):
    daemon = start("--backend=cpu")
    terminal = Terminal("--url", daemon.url, "--interval", "0.1")
    terminal.read_until(b"4x3")
    daemon.stop_cleanly()
    terminal.read_until(b"trying again")
    os.write(terminal.master, b"q")
    assert terminal.finish() == 0


def test_c42_top_and_bench_do_not_depend_on_the_locale(daemon, comma_environment):  # noqa: F811
    with daemon.client() as client:
        client.post_json({"model": "exact", "x": [[1, 2, 3, 4]]})
    result = run("--url", daemon.url, "--once", "--interval", "0.25", env=comma_environment)
    assert result.returncode == 0 and "," not in result.stdout.replace(" rows, ", " rows "), result.stdout
    assert json.loads(run("--url", daemon.url, "--once", "--interval", "0.25", "--json", env=comma_environment).stdout)["interval_s"] >= 0.25
    bench = subprocess.run([CLI, "bench", "--url", daemon.url, "--model", "exact", "--duration", "0.25", "--warmup", "0.05", "--json"], capture_output=True, text=True, timeout=60 * PATIENCE, env=comma_environment)
    assert bench.returncode == 0 and json.loads(bench.stdout)["load"]["duration_s"] == 0.25


def test_errors_say_why(daemon):
    for arguments, code, needle in (
        (("--url", f"http://127.0.0.1:{free_port()}"), 1, "127.0.0.1"),
        (("--url", f"http://127.0.0.1:{free_port()}", "--once"), 1, "127.0.0.1"),
        (("--url", daemon.url, "--interval", "0"), 2, "--interval"),
        (("--url", daemon.url, "--interval", "0,5"), 2, "0,5"),
        (("--url", daemon.url, "extra"), 2, "extra"),
        (("--url", daemon.url, "--bucket", "--once"), 2, "--buckets"),
    ):
        result = run(*arguments)
        assert result.returncode == code and needle in result.stderr, (arguments, result)
