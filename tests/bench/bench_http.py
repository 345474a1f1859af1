"""What the HTTP side costs: round trips, JSON, memory, health under load. Prints a table and JSON; asserts nothing.

Usage: bench_http.py [--bin-dir build/release/bin] [--requests 100000] [--json FILE]
Wants numpy (the tests' environment has it), wrk and a quiet machine. Clients and daemon share the processors: on two cores the numbers include that.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path.insert(0, os.path.join(ROOT, "tests/e2e"))


def pingpong(bin_dir, port, count, path, content_type, accept, body, header=None):
    command = [os.path.join(bin_dir, "http_pingpong"), str(port), str(count), path, content_type, accept, *([header] if header else [])]
    out = subprocess.run(command, input=body, capture_output=True, check=True).stdout
    found = json.loads(out)
    if found["status"] != 200:
        sys.exit(f"bench_http: HTTP {found['status']} from {path}")
    return found


def kernel_totals(daemon, bucket):
    """Seconds in kernels and their number so far, from the histogram of the gate's shape."""
    found = {"sum": 0.0, "count": 0.0}
    for line in daemon.get("/metrics").body.decode().splitlines():
        for part in found:
            if line.startswith(f"decomposek_kernel_duration_seconds_{part}{{") and 'shape="7168x256"' in line and f't_bucket="{bucket}"' in line:
                found[part] += float(line.rsplit(" ", 1)[1])
    return found["sum"], found["count"]


def mean_kernel_seconds(daemon, bucket):
    total, count = kernel_totals(daemon, bucket)
    return total / max(1.0, count)


def round_trips(daemon, bin_dir, gate):
    from support import weights_file

    raw, results = "application/octet-stream", {}
    for t, count in ((1, 5000), (16, 1000), (64, 300)):
        body = weights_file.encode(gate.rows(t), "bf16")
        results[f"raw T={t}"] = pingpong(bin_dir, daemon.port, count, "/v1/matmul?model=gate", raw, raw, body)
    text = json.dumps({"model": "gate", "x": gate.rows(1).tolist()}).encode()
    results["JSON T=1, JSON answer"] = pingpong(bin_dir, daemon.port, 2000, "/v1/matmul", "application/json", "application/json", text)
    return results


def against_echo(daemon, bin_dir, gate):
    """Binary /v2 infer beside a bare libmicrohttpd server that takes the same body and answers as many bytes: at once, or handed to another thread
    and back. In turns."""
    from support import oip
    from support.daemon import free_port

    raw, results = "application/octet-stream", {}
    threads = min(os.cpu_count(), 4)
    for t, count in ((1, 3000), (256, 200)):
        header, data = oip.binary_body(gate.rows(t), "bf16")
        length = f"{oip.LENGTH_HEADER}: {len(header)}"

        def infer():
            return pingpong(bin_dir, daemon.port, count, oip.infer_path("gate"), raw, raw, header + data, length)

        answer_bytes, before, peers = infer()["answer_bytes"], kernel_totals(daemon, t), {}
        try:
            for name, mode in (("echo", []), ("handover", ["handover"])):
                port = free_port()
                command = [os.path.join(bin_dir, "http_echo"), str(port), str(threads), str(answer_bytes), *mode]
                peers[name] = (port, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                peers[name][1].stdout.readline()
            turns = [[infer()["p50"], *(pingpong(bin_dir, port, count, "/", raw, raw, header + data, length)["p50"] for port, _ in peers.values())] for _ in range(5)]
        finally:
            for _, peer in peers.values():
                peer.stdin.close()
                peer.wait()
        after = kernel_totals(daemon, t)
        infer_p50, echo_p50, handover_p50 = (sorted(turn[i] for turn in turns)[2] for i in range(3))
        kernel = (after[0] - before[0]) / (after[1] - before[1]) * 1e6
        results[f"T={t}"] = {"body_bytes": len(header + data), "answer_bytes": answer_bytes, "echo_p50": echo_p50, "handover_p50": handover_p50, "infer_p50": infer_p50,
                             "kernel_mean": kernel, "above_echo_and_kernel": infer_p50 - echo_p50 - kernel, "above_handover_and_kernel": infer_p50 - handover_p50 - kernel,
                             "target_above_echo": 25 if t == 1 else 250}
    return results


def throughput(daemon, folder, seconds=3):
    """wrk, 16 connections, binary /v2 infer of one row of a model of K = 64, N = 16."""
    from support import oip

    header, data = oip.binary_body([[0.5] * 64], "bf16")
    script = os.path.join(folder, "infer.lua")
    with open(script, "w") as file:
        body = "".join(f"\\{byte:03d}" for byte in header + data)
        file.write(f'wrk.method = "POST"\nwrk.headers["{oip.LENGTH_HEADER}"] = "{len(header)}"\nwrk.body = "{body}"\n')
        file.write('function done(summary, latency) io.write(string.format("{\\"requests\\": %d, \\"us\\": %d, \\"bad\\": %d, \\"p50\\": %d, \\"p99\\": %d}", summary.requests, '
                   "summary.duration, summary.errors.status + summary.errors.read + summary.errors.write + summary.errors.timeout + summary.errors.connect, latency:percentile(50), latency:percentile(99))) end\n")
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", script, f"{daemon.url}{oip.infer_path('small')}"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(out[out.index("{"):])
    return {"requests_per_second": found["requests"] / found["us"] * 1e6, "bad": found["bad"], "p50_us": found["p50"], "p99_us": found["p99"], "target": 15000}


def poll_health(port, stop, sender):
    from support.http import Client

    times = []
    with Client(port=port) as client:
        while not stop.is_set():
            began = time.perf_counter()
            client.get("/v2/health/live")
            times.append((time.perf_counter() - began) * 1e6)
            time.sleep(0.001)
    sender.send(times)


def large_json(start_daemon, gate):
    """T = 512: time a number, peak RSS against the body, and health of others meanwhile. A fresh daemon."""
    daemon = start_daemon()
    numbers = 512 * 7168
    body = ('{"model":"gate","x":[' + ",".join("[" + ",".join(f"{v:.6f}" for v in row) + "]" for row in gate.rows(512)) + "]}").encode()
    # A process of its own: a thread would wait for this one's interpreter lock.
    receiver, sender = multiprocessing.Pipe(duplex=False)
    stop = multiprocessing.Event()
    watcher = multiprocessing.Process(target=poll_health, args=(daemon.port, stop, sender))
    rss_before, times = daemon.rss_bytes(), []
    try:
        with daemon.client() as client:
            watcher.start()
            time.sleep(0.5)
            for turn in range(4):
                began = time.perf_counter()
                reply = client.request("POST", "/v1/matmul", body, {"Content-Type": "application/json", "Accept": "application/octet-stream"})
                times.append(time.perf_counter() - began)
                if turn == 0:
                    peak_first = daemon.peak_rss_bytes()
                if reply.status != 200:
                    sys.exit(f"bench_http: {reply}")
    finally:
        stop.set()
    health = sorted(receiver.recv())
    watcher.join()
    kernel, best = mean_kernel_seconds(daemon, 512), sorted(times)[1]
    daemon.stop_cleanly()
    return {
        "body_bytes": len(body), "seconds": best, "kernel_seconds": kernel, "ns_per_number": (best - kernel) / numbers * 1e9, "bytes_per_number": len(body) / numbers,
        "peak_rss_growth_bytes": peak_first - rss_before, "peak_over_body": (peak_first - rss_before) / len(body),
        "health_count": len(health), "health_p50_us": health[len(health) // 2], "health_p99_us": health[len(health) * 99 // 100], "health_max_us": health[-1],
    }


def memory_over_time(daemon, bin_dir, gate, requests):
    from support import weights_file

    body = weights_file.encode(gate.rows(1), "bf16")
    raw, sizes = "application/octet-stream", [daemon.rss_bytes()]
    for _ in range(5):
        pingpong(bin_dir, daemon.port, max(1, requests // 5), "/v1/matmul?model=gate", raw, raw, body)
        sizes.append(daemon.rss_bytes())
    return {"requests": requests, "rss_bytes": sizes, "growth_after_first_fifth": sizes[-1] - sizes[1]}


def print_tables(report):
    print(f"{'round trip (us)':22} {'p50':>9} {'p90':>9} {'p99':>9}   above kernel: {'p50':>9} {'p90':>9} {'p99':>9}")
    for name, found in report["round_trips"].items():
        print(f"{name:22} " + " ".join(f"{found[q]:9.1f}" for q in ("p50", "p90", "p99")) + " " * 17 + " ".join(f"{found['above_kernel_' + q]:9.1f}" for q in ("p50", "p90", "p99")))
    print()
    print(f"{'binary /v2 infer (us)':22} {'p50':>9} {'kernel':>9} {'echo':>9} {'handover':>9}   without kernel, above echo, handover (to reach)")
    for name, found in report["against_echo"].items():
        print(f"{name:22} {found['infer_p50']:9.1f} {found['kernel_mean']:9.1f} {found['echo_p50']:9.1f} {found['handover_p50']:9.1f}   {found['above_echo_and_kernel']:9.1f} "
              f"{found['above_handover_and_kernel']:9.1f}   ({found['target_above_echo']})")
    found = report["throughput"]
    print(f"16 connections, K=64 N=16: {found['requests_per_second']:.0f} requests/s (to reach: {found['target']}), p50 {found['p50_us']} us, p99 {found['p99_us']} us, {found['bad']} bad")
    large = report["large_json"]
    print()
    print(f"JSON T=512, {large['body_bytes'] / 1e6:.1f} MB: {large['seconds'] * 1e3:.1f} ms all in, kernel {large['kernel_seconds'] * 1e3:.1f} ms, "
          f"{large['ns_per_number']:.1f} ns a number ({large['bytes_per_number']:.1f} bytes each) without the kernel")
    print(f"peak RSS growth {large['peak_rss_growth_bytes'] / 1e6:.1f} MB = {large['peak_over_body']:.2f} x the body")
    print(f"health GET meanwhile: p50 {large['health_p50_us']:.0f} us, p99 {large['health_p99_us']:.0f} us, max {large['health_max_us']:.0f} us of {large['health_count']}")
    memory = report["memory"]
    print(f"RSS over {memory['requests']} requests (MiB): " + " ".join(f"{size / 2**20:.2f}" for size in memory["rss_bytes"]))


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bin-dir", default=os.path.join(ROOT, "build/release/bin"))
    options.add_argument("--requests", type=int, default=100_000, help="of the memory run")
    options.add_argument("--json", help="write the report to this file as well")
    given = options.parse_args()
    os.environ["DK_BIN_DIR"] = os.path.abspath(given.bin_dir)
    from support.daemon import Daemon
    from support.models import Model

    with tempfile.TemporaryDirectory() as folder:
        gate = Model("gate", 256, 7168, seed=11).write(folder)
        small = Model("small", 16, 64, seed=12).write(folder)

        def start_daemon():
            flags = ["--backend=cpu", "--max-tokens=512", "--large-slabs=2", f"--max-body-bytes={128 << 20}", gate.flag, small.flag]
            return Daemon(flags, log_path=os.path.join(folder, "daemon.log")).wait_ready()

        daemon = start_daemon()
        try:
            report = {"cpus": os.cpu_count(), "version": subprocess.run([os.path.join(given.bin_dir, "decomposekd"), "--version"], capture_output=True, text=True).stdout.strip()}
            report["round_trips"] = round_trips(daemon, os.environ["DK_BIN_DIR"], gate)
            report["against_echo"] = against_echo(daemon, os.environ["DK_BIN_DIR"], gate)
            report["throughput"] = throughput(daemon, folder)
            report["memory"] = memory_over_time(daemon, os.environ["DK_BIN_DIR"], gate, given.requests)
            daemon.stop_cleanly()
            report["large_json"] = large_json(start_daemon, gate)
        finally:
            daemon.kill()
    print_tables(report)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(report, file, indent=1)
    else:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
