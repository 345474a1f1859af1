"""wrk: thousands of requests over kept connections; every answer is a 200, and nothing is left behind."""

import re
import subprocess

import pytest

from support.daemon import eventually
from support.notes import note

SCRIPTS = {
    "v1": 'wrk.method = "POST"\nwrk.path = "/v1/matmul"\nwrk.body = \'{"model":"small","x":[%s]}\'\n' % ",".join(["1"] * 64),
    "v2-json": 'wrk.method = "POST"\nwrk.path = "/v2/models/small/infer"\nwrk.body = \'{"inputs":[{"name":"x","shape":[1,64],"datatype":"FP32","data":[%s]}]}\'\n' % ",".join(["1"] * 64),
    "v2-raw": 'wrk.method = "POST"\nwrk.path = "/v2/models/small/infer"\nwrk.headers["Inference-Header-Content-Length"] = "0"\nwrk.body = string.rep("\\0", 256)\n',
    "mixed": """
local paths = {"/v2/health/live", "/metrics", "/v2/models/small/stats", "/v1/models", "/v2/models/small"}
local at = 0
request = function() at = at + 1; return wrk.format("GET", paths[at % #paths + 1]) end
""",
}
REPORT = "\ndone = function(s, l) io.write(string.format('requests=%d status=%d connect=%d read=%d write=%d timeout=%d\\n', s.requests, s.errors.status, s.errors.connect, s.errors.read, s.errors.write, s.errors.timeout)) end\n"


@pytest.mark.parametrize("connections", [1, 64])
@pytest.mark.parametrize("kind", SCRIPTS)
def test_load(daemon, tmp_path, kind, connections):
    (tmp_path / "load.lua").write_text(SCRIPTS[kind] + REPORT)
    run = subprocess.run(["wrk", "-t1", f"-c{connections}", "-d2s", "--timeout", "10s", "-s", str(tmp_path / "load.lua"), daemon.url], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    counts = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", run.stdout)}
    assert counts["requests"] > 50, run.stdout
    assert counts["status"] == counts["connect"] == counts["read"] == counts["write"] == counts["timeout"] == 0, counts
    note(f"wrk {kind} c={connections}: {counts['requests'] / 2:.0f} requests/s")
    eventually(lambda: daemon.metric("decomposek_in_flight_requests") == 0 and daemon.metric("decomposek_http_connections") <= 3, what="nothing left")
