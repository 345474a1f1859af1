"""Throughput of 1, 2 and 3 daemons behind the example HAProxy configuration, as a Markdown table. Nothing is asserted.

    build/venv-tests/bin/python tests/bench/bench_scaling.py [SECONDS]

Each daemon has one compute thread and the same weights ([T,7168] @ [7168,256], bf16, T = 1, raw bodies, 16 keep-alive
connections of wrk). Daemons, HAProxy and wrk share the processors of this machine: daemons scale only while processors
are left over, so the table also says how many there are.
"""

import os
import platform
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))

from support import weights_file  # noqa: E402
from support.daemon import Daemon  # noqa: E402
from support.haproxy import Haproxy  # noqa: E402
from support.models import Model  # noqa: E402

CONNECTIONS = 16
SCRIPT = """local file = io.open("{body}", "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Accept"] = "application/octet-stream"
"""


def measure(port, folder, seconds):
    """(requests a second, p50, p99, requests that failed), as wrk prints them."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", f"{folder}/load.lua", f"http://127.0.0.1:{port}/v1/matmul?model=gate"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True).stdout

    def found(pattern, default=None):
        match = re.search(pattern, output, re.M)
        return match.group(1) if match else default

    return found(r"Requests/sec:\s+([\d.]+)"), found(r"^\s+50%\s+(\S+)"), found(r"^\s+99%\s+(\S+)"), found(r"Non-2xx or 3xx responses: (\d+)", "0")


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"{os.cpu_count()} processors, {platform.processor() or platform.machine()}, load average {os.getloadavg()[0]:.1f}, {seconds} s each\n")
    print("| daemons | requests a second | p50 | p99 | failed |\n|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        model = Model("gate", 256, 7168, seed=11).write(folder)
        with open(f"{folder}/body", "wb") as file:
            file.write(weights_file.encode(model.rows(1), "bf16"))
        with open(f"{folder}/load.lua", "w") as file:
            file.write(SCRIPT.replace("{body}", f"{folder}/body"))
        for count in (1, 2, 3):
            daemons = [Daemon([model.flag, "--backend=cpu", "--max-tokens=8", "--threads=1"], log_path=f"{folder}/daemon{index}.log") for index in range(count)]
            proxy = None
            try:
                for daemon in daemons:
                    daemon.wait_ready()
                proxy = Haproxy(folder, [daemon.port for daemon in daemons])
                print(f"| {count} | {' | '.join(measure(proxy.port, folder, seconds))} |", flush=True)
            finally:
                if proxy is not None:
                    proxy.stop()
                for daemon in daemons:
                    daemon.kill()


if __name__ == "__main__":
    main()
