"""The shared-memory ring against its targets, with a bare futex ping-pong in the same run. Prints a table and JSON; asserts nothing.

Usage: bench_ring.py [--bin-dir build/release/bin] [--seconds 2] [--rounds 3] [--cpus 0,1] [--json FILE]
Client and daemon are pinned to one processor each, as are the two processes of the ping-pong; wants a quiet machine. The
rounds of ring and ping-pong alternate, the medians are compared.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
K, N = 64, 16


def write_weights(path):
    """One bf16 [N, K] tensor; the values do not matter for time, and these are finite."""
    values = b"".join(struct.pack("<H", 0x3C00 + (i * 37) % 256) for i in range(N * K))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [N, K], "data_offsets": [0, len(values)]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + values)


class Daemon:
    """decomposekd on one processor with one compute thread."""

    def __init__(self, bin_dir, folder, cpu, spin_us):
        weights = os.path.join(folder, "tiny.safetensors")
        if not os.path.exists(weights):
            write_weights(weights)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url, self.ring = f"http://127.0.0.1:{port}", os.path.join(folder, "ring.sock")
        self.log = open(os.path.join(folder, "daemon.log"), "ab")
        command = ["taskset", "-c", str(cpu), os.path.join(bin_dir, "decomposekd"), "--port", str(port), "--backend=cpu", "--threads=1", f"--spin-us={spin_us}", f"--shm-socket={self.ring}", "--model", f"tiny={weights}"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 30
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"bench_ring: the daemon is not ready, see {self.log.name}")
            time.sleep(0.05)

    def is_ready(self):
        try:
            return urllib.request.urlopen(self.url + "/v2/health/ready", timeout=1).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(30) != 0:
            sys.exit(f"bench_ring: the daemon ended with status {self.process.returncode}, see {self.log.name}")
        self.log.close()


def bench(arguments, daemon, *flags):
    client_cpu = arguments.cpus.split(",")[0]
    command = ["taskset", "-c", client_cpu, os.path.join(arguments.bin_dir, "decomposek"), "bench", "--json", "--transport", "shm", "--shm-socket", daemon.ring, "--url", daemon.url, "--model", "tiny", "--duration", str(arguments.seconds), "--warmup", "0.5", *flags]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    result = report["results"][0]
    if result["failed"]:
        sys.exit(f"bench_ring: {result['failed']} requests failed: {result['failures']}")
    return result, report


def pingpong(arguments, kind):
    command = [os.path.join(arguments.bin_dir, "wake_pingpong"), kind, str(int(20000 * arguments.seconds)), *arguments.cpus.split(",")]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def median_of(results, *path):
    values = []
    for value in results:
        for key in path:
            value = value[key]
        values.append(value)
    return statistics.median(values)


def measure_spinning(arguments, folder, found):
    """Nobody sleeps: 100 ms of looking on both sides. Then the daemon idles, and its processor time is read."""
    daemon = Daemon(arguments.bin_dir, folder, arguments.cpus.split(",")[1], 100000)
    spinning, many, spins = [], [], []
    for _ in range(arguments.rounds):
        spins.append(pingpong(arguments, "spin"))
        result, report = bench(arguments, daemon, "--spin-us", "1000000")
        spinning.append(result)
        many.append(bench(arguments, daemon, "--spin-us", "1000000", "--inflight", "64")[0])
    found["server"], found["commit"] = report["server"], report["commit"]
    found["spinning"] = {name: median_of(spinning, part, quantile) for name, part, quantile in (("p50", "latency_us", "p50"), ("p99", "latency_us", "p99"), ("kernel_p50", "kernel_us", "p50"), ("above_kernel_p50", "above_kernel_us", "p50"), ("above_kernel_p99", "above_kernel_us", "p99"))}
    found["spinning"]["pingpong_spin_p50"] = median_of(spins, "p50")
    found["in_flight_64"] = {"requests_per_s": median_of(many, "requests_per_s"), "p50": median_of(many, "latency_us", "p50")}
    time.sleep(1)  # past the spin time
    began, cpu = time.monotonic(), daemon.cpu_seconds()
    time.sleep(5)
    found["idle_cpu_percent"] = 100 * (daemon.cpu_seconds() - cpu) / (time.monotonic() - began)
    daemon.stop()


def measure_sleeping(arguments, folder, found):
    """Both sides sleep at once: each round trip is two wake-ups, as in the ping-pong."""
    daemon = Daemon(arguments.bin_dir, folder, arguments.cpus.split(",")[1], 1)
    kinds = ("futex", "eventfd", "mixed")
    bare, sleeping = {kind: [] for kind in kinds}, []
    for _ in range(arguments.rounds):
        for kind in kinds:
            bare[kind].append(pingpong(arguments, kind))
        sleeping.append(bench(arguments, daemon, "--spin-us", "0")[0])
    daemon.stop()
    found["sleeping"] = {"p50": median_of(sleeping, "latency_us", "p50"), "p99": median_of(sleeping, "latency_us", "p99"), "above_kernel_p50": median_of(sleeping, "above_kernel_us", "p50")}
    found["pingpong"] = {kind: {"p50": median_of(bare[kind], "p50"), "p99": median_of(bare[kind], "p99")} for kind in kinds}
    found["sleeping"]["ratio_to_futex"] = found["sleeping"]["above_kernel_p50"] / found["pingpong"]["futex"]["p50"]


def print_table(found):
    spinning, sleeping, bare = found["spinning"], found["sleeping"], found["pingpong"]
    rows = (
        ("spinning round trip, p50 / p99", f"{spinning['p50']:.2f} / {spinning['p99']:.2f} us", ""),
        ("  time in the kernels, p50", f"{spinning['kernel_p50']:.2f} us", ""),
        ("  above it, p50 / p99", f"{spinning['above_kernel_p50']:.2f} / {spinning['above_kernel_p99']:.2f} us", "<= 1.50 (p50)"),
        ("  bare flag there and back, p50", f"{spinning['pingpong_spin_p50']:.2f} us", ""),
        ("64 in flight", f"{found['in_flight_64']['requests_per_s']:,.0f} requests/s", ">= 1,500,000"),
        ("sleeping round trip, p50 / p99", f"{sleeping['p50']:.2f} / {sleeping['p99']:.2f} us", ""),
        ("  above the kernels, p50", f"{sleeping['above_kernel_p50']:.2f} us", ""),
        ("  bare futex, p50 / p99", f"{bare['futex']['p50']:.2f} / {bare['futex']['p99']:.2f} us", ""),
        ("  bare eventfd + epoll, p50", f"{bare['eventfd']['p50']:.2f} us", ""),
        ("  bare eventfd there, futex back, p50", f"{bare['mixed']['p50']:.2f} us", ""),
        ("  ratio to the bare futex", f"{sleeping['ratio_to_futex']:.2f}", "<= 1.20"),
        ("idle daemon", f"{found['idle_cpu_percent']:.2f} % of a processor", "< 1.00"),
    )
    server = found["server"] or {}
    print(f"K = {K}, N = {N}, bf16, one row; {server.get('device')}, {server.get('isa')}; commit {found['commit']}; processors {found['cpus']}")
    print(f"{'':40} {'measured':>24}   target")
    for name, value, target in rows:
        print(f"{name:40} {value:>24}   {target}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus", default="0,1", help="of the client, of the daemon")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    found = {"k": K, "n": N, "cpus": arguments.cpus}
    with tempfile.TemporaryDirectory() as folder:
        measure_spinning(arguments, folder, found)
        measure_sleeping(arguments, folder, found)
    print_table(found)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
