"""The example HAProxy configuration, started on free ports in front of running daemons."""

import os
import subprocess
import urllib.request

from .daemon import die_with_parent, eventually, free_port

CONFIG = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../deploy/haproxy/haproxy.cfg"))
NAMES = ("one", "two", "three")


class Haproxy:
    """`ports`: of up to three daemons; the servers of the example beyond them are left out."""

    def __init__(self, folder, ports):
        self.port, self.statistics_port = free_port(), free_port()
        with open(CONFIG) as file:
            text = file.read()
        changes = {"127.0.0.1:8080": f"127.0.0.1:{self.port}", "127.0.0.1:8404": f"127.0.0.1:{self.statistics_port}"}
        for name, example, port in zip(NAMES, (8001, 8002, 8003), (*ports, None, None)):
            line = f"    server {name} 127.0.0.1:{example}\n"
            changes[line] = f"    server {name} 127.0.0.1:{port}\n" if port else ""
        for old, new in changes.items():
            assert text.count(old) == 1, f"the example configuration changed its shape: {old!r}"
            text = text.replace(old, new)
        self.path = os.path.join(str(folder), "haproxy.cfg")
        with open(self.path, "w") as file:
            file.write(text)
        self.log = open(os.path.join(str(folder), "haproxy.log"), "wb")
        self.process = subprocess.Popen(["haproxy", "-db", "-f", self.path], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=die_with_parent)
        eventually(lambda: set(self.states().values()) == {"UP"} or self.process.poll() is not None, 30, "all servers up")
        assert self.process.poll() is None, open(os.path.join(str(folder), "haproxy.log")).read()

    def statistics(self):
        """Server name -> {column: value}, from the CSV of the statistics page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.statistics_port}/;csv", timeout=5) as reply:
                head, *lines = reply.read().decode().lstrip("# ").strip().split("\n")
        except OSError:
            return {}
        rows = [dict(zip(head.split(","), line.split(","))) for line in lines]
        return {row["svname"]: row for row in rows if row["pxname"] == "daemons" and row["svname"] in NAMES}

    def states(self):
        return {name: row["status"].split(" ")[0] for name, row in self.statistics().items()}

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
