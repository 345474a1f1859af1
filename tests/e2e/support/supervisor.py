"""The side of systemd that a service sees: a notification socket, sockets passed on, and threads held by ptrace."""

import ctypes
import os
import signal
import socket
import sys
import threading
import time

from .daemon import eventually

# Puts descriptors in place as 3, 4, ... and names them, as a supervisor does between fork and exec.
PASS_SOCKETS = """
import os, sys
fds, names, program = [int(fd) for fd in sys.argv[1].split(",")], sys.argv[2], sys.argv[3:]
high = [os.dup2(fd, 100 + i, inheritable=False) for i, fd in enumerate(fds)]
[os.close(fd) for fd in fds]
[os.dup2(fd, 3 + i, inheritable=True) for i, fd in enumerate(high)]
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=names)
os.execv(program[0], program)
"""


def passing(sockets):
    """Arguments of Daemon that pass [(name, socket)] on."""
    fds = [sock.fileno() for _, sock in sockets]
    names = ":".join(name for name, _ in sockets)
    return {"prefix": (sys.executable, "-c", PASS_SOCKETS, ",".join(map(str, fds)), names), "pass_fds": fds}


class Supervisor:
    """Listens on a notification socket; `events` is [(monotonic time, {name: value})] in order of arrival."""

    def __init__(self, folder):
        self.path = str(folder / "notify.sock")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.events = []
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while True:
            message = self.socket.recv(4096)
            if message == b"stop":
                return
            self.events.append((time.monotonic(), dict(line.split("=", 1) for line in message.decode().split("\n") if line)))

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"stop", self.path)
        self.thread.join()
        self.socket.close()

    def environment(self, base, watchdog_us=None):
        env = {**base, "NOTIFY_SOCKET": self.path}
        if watchdog_us:
            env["WATCHDOG_USEC"] = str(watchdog_us)
        return env

    def said(self, name, value=None):
        return [event for event in list(self.events) if name in event[1] and value in (None, event[1][name])]

    def wait(self, name, value=None, count=1, seconds=20):
        return eventually(lambda: self.said(name, value)[count - 1 : count], seconds, f"{name}={value or ''} number {count}")[0]


PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WAIT_ALL_KINDS = 17, 0x4206, 0x4207, 0x40000000


class HeldThread:
    """with HeldThread(pid, "dk-executor"): that one thread does not run, the others do."""

    def __init__(self, pid, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long
        names = {}
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm") as file:
                names[file.read().strip()] = int(tid)
        self.tid = pid if name is None else names[name]

    def call(self, request):
        if self.libc.ptrace(request, self.tid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def __enter__(self):
        self.call(PTRACE_SEIZE)
        self.call(PTRACE_INTERRUPT)
        status = os.waitpid(self.tid, WAIT_ALL_KINDS)[1]
        assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, status
        return self

    def __exit__(self, *_):
        self.call(PTRACE_DETACH)
