"""Start a decomposekd, wait until it is ready, and end it so that every unclean exit is seen."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import time

from .http import Client

BIN_DIR = os.environ.get("DK_BIN_DIR") or os.path.join(os.path.dirname(__file__), "../../../build/cpu/bin")
BIN_DIR = os.path.abspath(BIN_DIR)
DAEMON, CLI = os.path.join(BIN_DIR, "decomposekd"), os.path.join(BIN_DIR, "decomposek")
SANITIZER = os.environ.get("DK_SANITIZER", "")
# Sanitizers slow everything down; deadlines of the tests are generous anyway, never a measurement.
PATIENCE = 6 if SANITIZER else 1
SANITIZER_REPORT = re.compile(r"(ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|runtime error:|SUMMARY: \w+Sanitizer).*")
PAGE = os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def clean_environment() -> dict:
    """The test's own environment without settings of the daemon or of a supervisor."""
    foreign = ("DECOMPOSEK_", "LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET")
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)}


def die_with_parent():
    """Runs in the child before exec: a test run that is killed leaves no daemon behind (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Daemon:
    """arguments: flags after the program. `port` None: a free one. `prefix`: a command that execs the daemon."""

    def __init__(self, arguments=(), port=None, env=None, prefix=(), cwd=None, log_path=None, flags=True, program=DAEMON, pass_fds=()):
        self.port = port or free_port()
        self.log_path = str(log_path)
        own = ["--port", str(self.port)] if flags else []
        self.command = [*map(str, prefix), program, *own, *map(str, arguments)]
        self.log_file = open(self.log_path, "ab")
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=self.log_file, cwd=cwd,
            env=clean_environment() if env is None else env, preexec_fn=die_with_parent, pass_fds=pass_fds,
        )
        self.baseline = None

    @property
    def pid(self):
        return self.process.pid

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        with open(self.log_path, "rb") as file:
            return file.read().decode("utf-8", "replace")

    def client(self, timeout=60 * PATIENCE) -> Client:
        return Client(port=self.port, timeout=timeout)

    def get(self, path, **headers):
        with self.client() as client:
            return client.get(path, **headers)

    def post_json(self, body, **kwargs):
        with self.client() as client:
            return client.post_json(body, **kwargs)

    def post_raw(self, body, query, **kwargs):
        with self.client() as client:
            return client.post_raw(body, query, **kwargs)

    def wait_ready(self, seconds=60):
        deadline = time.monotonic() + seconds * PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with status {self.process.returncode}:\n{self.log()[-3000:]}")
            try:
                if self.get("/v2/health/ready").status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"not ready in time:\n{self.log()[-3000:]}")

    def wait_exit(self, seconds=30) -> int:
        try:
            return self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds * PATIENCE} s:\n{self.log()[-3000:]}") from None

    def stop(self, number=signal.SIGTERM, seconds=30) -> int:
        """Ask it to end; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.wait_exit(seconds)
        self.log_file.close()
        return status

    def stop_cleanly(self):
        assert self.process.poll() is None, f"it was gone, status {self.process.returncode}:\n{self.log()[-3000:]}"
        status = self.stop()
        assert status == 0, f"exit status {status} after SIGTERM:\n{self.log()[-3000:]}"
        self.check_log()

    def check_log(self):
        report = SANITIZER_REPORT.search(self.log())
        assert not report, f"sanitizer report:\n{self.log()[report.start() - 200 : report.start() + 6000]}"

    def kill(self):
        """For cleanup only: make sure that nothing is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log_file.close()

    # ALIVE of the case list: same process, health answers, a known answer is still the same.
    def remember(self, body):
        """Take the answer to `body` as the known-good one."""
        self.baseline = (body, self.known_answer(body))

    def known_answer(self, body):
        reply = self.post_json(body)
        assert reply.status == 200, reply
        answer = reply.json()
        return answer["shape"], answer["y"]

    def check_alive(self):
        assert self.process.poll() is None, f"the daemon died, status {self.process.returncode}:\n{self.log()[-3000:]}"
        assert self.get("/v2/health/live").status == 200
        body, answer = self.baseline
        assert self.known_answer(body) == answer, "the known-good answer changed"

    # Counters of the process, from /proc.
    def rss_bytes(self) -> int:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * PAGE

    def peak_rss_bytes(self) -> int:
        with open(f"/proc/{self.pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

    def fd_count(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu_seconds(self) -> float:
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name, **labels) -> float:
        """One sample of /metrics; 0.0 is a value, a missing series is an error."""
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(self.get("/metrics").body.decode()):
            for sample in family.samples:
                if sample.name == name and all(sample.labels.get(k) == v for k, v in labels.items()):
                    return sample.value
        raise AssertionError(f"no series {name} {labels}")


def eventually(condition, seconds=10, what="condition"):
    """Poll until condition() is true; its last value is returned."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true in {seconds * PATIENCE} s (last: {value!r})")
        time.sleep(0.05)
