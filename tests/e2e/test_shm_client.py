"""The C client library against a real daemon: shared memory and HTTP, equal answers, faults, drain, killed clients."""

import itertools
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

from support import reference, weights_file
from support.cclient import CANNOT_LOAD, NO_SPIN, Client, Failed, Timing
from support.daemon import BIN_DIR, PATIENCE, SANITIZER, eventually
from support.notes import note

needs_library = pytest.mark.skipif(CANNOT_LOAD, reason="a sanitizer's library does not load into Python; shm_victim covers it")
VICTIM = os.path.join(BIN_DIR, "shm_victim")
KILLS = int(os.environ.get("DK_SHM_KILLS", "200"))
DTYPES = ("fp32", "bf16", "fp16")


@pytest.fixture(scope="module")
def ring_daemon(models, tmp_path_factory):
    from support.daemon import Daemon

    folder = tmp_path_factory.mktemp("ring")
    daemon = Daemon(
        ["--backend=cpu", "--max-tokens=256", f"--max-body-bytes={160 << 20}", "--large-slabs=2", "--small-slabs=16",
         f"--shm-socket={folder}/ring.sock", "--shm-load-models", "--shm-allow-uid=any", *(model.flag for model in models.values())],
        log_path=folder / "daemon.log",
    )
    daemon.address = f"unix:{folder}/ring.sock"
    try:
        daemon.wait_ready()
        daemon.remember({"model": "exact", "x": [[1, 2, 3, 4], [5, 6, 7, 8]]})
        yield daemon
        daemon.stop_cleanly()
    finally:
        daemon.kill()


@pytest.fixture
def daemon(ring_daemon):
    yield ring_daemon
    ring_daemon.check_alive()


@pytest.fixture(params=["shm", "http"])
def address(request, daemon):
    return daemon.address if request.param == "shm" else daemon.url


def over_http(daemon, model, x, dtype, out_dtype="fp32", epilogue=None):
    query = f"model={model}&dtype={dtype}&out_dtype={out_dtype}" + (f"&epilogue={epilogue}" if epilogue else "")
    reply = daemon.post_raw(weights_file.encode(x, dtype), query)
    assert reply.status == 200, reply
    return reply.body


def start_ring(start, tmp_path, *flags, **options):
    daemon = start("--backend=cpu", "--max-tokens=64", f"--shm-socket={tmp_path}/r.sock", *flags, **options)
    daemon.address = f"unix:{tmp_path}/r.sock"
    return daemon


# --- right answers -----------------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize("name,t", [*(("gate", t) for t in (0, 1, 2, 17, 64, 65, 256, 300)), ("kn", 4097), ("gate-fp16", 4097)])
def test_any_t_gives_the_bits_of_v1(daemon, address, models, name, t):
    """A data area of 1 MiB: from T = 65 on the rows go in pieces."""
    model = models[name]
    x = model.rows(t)
    with Client(address, data_bytes=1 << 20) as client:
        assert client.model(name).infer_bytes(x, model.dtype) == over_http(daemon, name, x, model.dtype)


@needs_library
@pytest.mark.parametrize("dtype,out_dtype", itertools.product(DTYPES, repeat=2))
def test_all_types_give_the_bits_of_v1(daemon, address, models, dtype, out_dtype):
    with Client(address) as client:
        for name, epilogue in (("kn", None), ("sigmoid", None), ("sigmoid", "relu"), ("relu", "none"), ("gate-fp16", "sigmoid")):
            x = models[name].rows(5, dtype=dtype)
            got = client.model(name).infer_bytes(x, dtype, out_dtype, epilogue=epilogue)
            assert got == over_http(daemon, name, x, dtype, out_dtype, epilogue), (name, epilogue)


@needs_library
def test_answers_are_right_by_the_numeric_contract(daemon, address, models):
    with Client(address) as client:
        for name in ("gate", "relu", "kn"):
            model = models[name]
            x = model.rows(9)
            plan = daemon.post_json({"model": name, "x": x.tolist()}).json()["plan"]
            k = model.k
            plan["chunk_k"] = -(-k // plan["split_k"])
            model.check(client.model(name).infer(x, model.dtype), x, plan, what=name)


@needs_library
def test_models_and_timing_say_what_v1_says(daemon, address, models):
    with Client(address) as client:
        listed = {info.name.decode(): info for info in client.models()}
        assert set(listed) == set(models)
        for entry in daemon.get("/v1/models").json()["models"]:
            info = listed[entry["name"]]
            assert (info.n, info.k, info.has_bias, info.version) == (entry["n"], entry["k"], entry["has_bias"], entry["version"])
        assert len(client.models(capacity=2)) == 2
        timing = Timing()
        client.model("gate").infer(models["gate"].rows(4), "bf16", timing=timing)
        assert 0 < timing.kernel_ns < timing.round_trip_ns


@needs_library
def test_many_in_flight_come_back_each_with_its_own(daemon, address, models):
    model = models["kn"]
    with Client(address, ring_entries=32) as client:
        handle = client.model("kn")
        expected, seen, started = {}, 0, 0
        for number in range(1, 301):
            while client.info.in_flight == 32:
                seen += check_outcomes(client.wait(), expected)
            x = model.rows(number % 7, seed=number)
            expected[number] = over_http(daemon, "kn", x, "bf16") if number % 10 == 0 else None
            handle.submit(x, number, "bf16")
            started += 1
        while client.info.in_flight:
            seen += check_outcomes(client.wait(), expected)
        assert seen == started == 300


def check_outcomes(outcomes, expected):
    for number, status, value in outcomes:
        assert status == "OK", value
        if expected[number] is not None:
            assert value.astype(np.float32).tobytes() == expected[number]
    return len(outcomes)


@needs_library
def test_many_sessions_do_not_mix(daemon, models):
    """Threads with a client each; ctypes leaves the interpreter's lock, so that they really run side by side."""
    model, failures = models["kn"], []
    wanted = [over_http(daemon, "kn", model.rows(3, seed=i), "bf16") for i in range(8)]

    def work(index):
        try:
            with Client(daemon.address, ring_entries=4, data_bytes=1 << 16, spin_us=NO_SPIN if index % 2 else 50) as client:
                handle = client.model("kn")
                for _ in range(100):
                    assert handle.infer_bytes(model.rows(3, seed=index), "bf16") == wanted[index]
        except BaseException as error:  # noqa: B036
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures, failures[0]


@needs_library
def test_special_values_travel_unchanged(daemon, address):
    x = np.array([[np.nan, 1, 2, 3], [np.inf, 0, 0, 0], [-0.0, 0, 0, 0]], np.float32)
    with Client(address) as client:
        assert client.model("exact").infer_bytes(x) == over_http(daemon, "exact", x, "fp32")


@needs_library
def test_pushed_weights_serve_their_own_session(daemon, models):
    model = models["relu"]
    x = model.rows(6, dtype="fp32")
    with Client(daemon.address) as client, Client(daemon.address) as other:
        client.load_model("mine", model.kn, "fp32", layout="nk", bias=model.bias, epilogue="relu")
        assert client.model("mine").infer_bytes(x) == over_http(daemon, "relu", x, "fp32")
        with pytest.raises(Failed, match="NOT_FOUND"):
            other.model("mine")
        handle = client.model("mine")
        client.load_model("mine", np.zeros((model.k, model.n)), "bf16")
        assert not handle.infer(x).any()
    with Client(daemon.url) as client, pytest.raises(Failed, match="UNSUPPORTED.*mine"):
        client.load_model("mine", model.kn)


@needs_library
def test_direct_buffers_need_no_copy(daemon, models):
    import ctypes

    from support.cclient import DTYPE, Request, call

    model = models["kn"]
    x = model.rows(16)
    with Client(daemon.address) as client:
        handle = client.model("kn")
        a, c = client.buffer(16 * 500 * 2), client.buffer(16 * 48 * 4)
        ctypes.memmove(a, weights_file.encode(x, "bf16"), 16 * 500 * 2)
        request = Request(rows=16, a=a, c=c, a_dtype=DTYPE["bf16"], c_dtype=DTYPE["fp32"])
        call("dk_client_infer", handle.pointer, ctypes.byref(request), None)
        assert ctypes.string_at(c, 16 * 48 * 4) == over_http(daemon, "kn", x, "bf16")
        client.release(a)
        client.release(c)


# --- examples, locale --------------------------------------------------------------------------------------


@pytest.mark.sanitizer
@pytest.mark.parametrize("arguments", [["blocking"], ["pipeline", "500"]], ids=["blocking", "pipeline"])
def test_examples_run(daemon, address, arguments):
    name, *count = arguments
    result = subprocess.run([os.path.join(BIN_DIR, f"example_{name}"), address, "gate", *count], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert result.returncode == 0, result.stderr
    assert "500 products" in result.stdout if count else result.stdout.count("y[") == 4, result.stdout
    result = subprocess.run([os.path.join(BIN_DIR, f"example_{name}"), address, "no-such"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "NOT_FOUND" in result.stderr and "no-such" in result.stderr


@needs_library
def test_c42_client_library_does_not_depend_on_the_locale(daemon, models, tmp_path):
    from test_locale import compile_locale

    compile_locale(tmp_path, "de_DE")
    program = f"""
import locale, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
locale.setlocale(locale.LC_ALL, '')
from support.cclient import Client, Timing
import numpy as np
print(locale.localeconv()['decimal_point'])
for address in {[daemon.address, daemon.url]!r}:
    with Client(address) as client:
        timing = Timing()
        y = client.model('exact').infer(np.array([[0.5, 1e-3, -2.25, 0.0001]], np.float32), timing=timing)
        print(y.tobytes().hex(), timing.kernel_ns > 0, [m.n for m in client.models()])
"""
    import sys

    answers = []
    for name in ("C", "de_DE.UTF-8"):
        env = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": name, "LANGUAGE": ""}
        result = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        answers.append(result.stdout.splitlines())
    assert [answers[0][0], answers[1][0]] == [".", ","]
    assert answers[0][1:] == answers[1][1:]


# --- clear errors ------------------------------------------------------------------------------------------


@needs_library
def test_wrong_paths_are_named(daemon, tmp_path):
    for address, status in ((f"unix:{tmp_path}/none.sock", "UNAVAILABLE"), ("http://127.0.0.1:1", "UNAVAILABLE")):
        with pytest.raises(Failed) as failed:
            Client(address)
        assert failed.value.status == status and address.partition(":")[2].strip("/") in failed.value.message


@needs_library
def test_the_http_socket_is_not_the_ring_socket(start, tmp_path):
    start("--backend=cpu", f"--http-socket={tmp_path}/http.sock")
    with pytest.raises(Failed, match="--shm-socket") as failed:
        Client(f"unix:{tmp_path}/http.sock")
    assert failed.value.status == "UNSUPPORTED"


@needs_library
def test_limits_of_the_daemon_are_named(start, tmp_path):
    daemon = start_ring(start, tmp_path, "--shm-sessions=2", "--shm-session-bytes=1MiB", "--shm-total-bytes=1MiB")
    with pytest.raises(Failed) as failed:
        Client(daemon.address, data_bytes=2 << 20)
    assert failed.value.status == "TOO_LARGE" and "shm-session-bytes" in failed.value.message
    with Client(daemon.address, data_bytes=700 << 10):
        with pytest.raises(Failed) as failed:
            Client(daemon.address, data_bytes=700 << 10)
        assert failed.value.status == "BUSY"
        with Client(daemon.address, data_bytes=1 << 16):
            with pytest.raises(Failed) as failed:
                Client(daemon.address, data_bytes=1 << 16)
            assert failed.value.status == "BUSY" and "shm-sessions" in failed.value.message
    with Client(daemon.address, data_bytes=1 << 16) as client, pytest.raises(Failed) as failed:
        client.load_model("mine", np.zeros((4, 3)))
    assert failed.value.status == "FORBIDDEN"


@needs_library
@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_another_user_is_refused(start, tmp_path):
    """The socket itself open to all: what refuses is the daemon's look at the peer."""
    daemon = start_ring(start, tmp_path, "--shm-socket-mode=0666")
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith(("/tmp/", os.environ.get("TMPDIR", "/tmp") + "/")):
            folder.chmod(0o755)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        text = "opened"
        try:
            os.setgid(12345)
            os.setuid(12345)
            Client(daemon.address)
        except Failed as failed:
            text = str(failed)
        except BaseException as error:  # noqa: B036
            text = repr(error)
        os.write(write_end, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    text = os.read(read_end, 4096).decode()
    assert text.startswith("FORBIDDEN") and "12345" in text, text


# --- the daemon goes away ----------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize("spin_us", [0, NO_SPIN], ids=["spin", "sleep"])
def test_a_killed_daemon_ends_calls_in_time_and_reconnect_works(start, tmp_path, models, spin_us):
    daemon = start_ring(start, tmp_path, model_names=("exact", "gate"))
    client = Client(daemon.address, timeout_ms=20_000, spin_us=spin_us, data_bytes=64 << 20)
    gate, exact = client.model("gate"), client.model("exact")
    before = exact.infer(np.ones((1, 4)))
    for number in range(1, 9):
        gate.submit(models["gate"].rows(300), number, "bf16")
    daemon.process.kill()
    killed = time.monotonic()
    ends = []
    while client.info.in_flight:
        ends += client.wait()
    assert time.monotonic() - killed < 10  # far below the timeout of 20 s
    assert [number for number, _, _ in ends] == list(range(1, 9))
    statuses = [status for _, status, _ in ends]
    assert "UNAVAILABLE" in statuses and set(statuses) <= {"OK", "UNAVAILABLE"}
    for call in (lambda: exact.infer(np.ones((1, 4))), client.models, lambda: client.model("gate"), client.reconnect):
        with pytest.raises(Failed) as failed:
            call()
        assert failed.value.status == "UNAVAILABLE"
    daemon.wait_exit()
    start_ring(start, tmp_path, model_names=("exact", "gate"))  # replaces the stale socket
    client.reconnect()
    assert (exact.infer(np.ones((1, 4))) == before).all() and client.info.session_count == 2
    client.close()


@needs_library
def test_a_reconnecting_client_survives_a_restart_by_itself(start, tmp_path):
    daemon = start_ring(start, tmp_path)
    with Client(daemon.address, is_reconnecting=True) as client:
        exact = client.model("exact")
        before = exact.infer(np.ones((1, 4)))
        daemon.process.kill()
        daemon.wait_exit()
        start_ring(start, tmp_path)
        assert (exact.infer(np.ones((1, 4))) == before).all()


@needs_library
def test_an_http_client_survives_a_restart_by_itself(start):
    daemon = start("--backend=cpu")
    with Client(daemon.url) as client:
        exact = client.model("exact")
        before = exact.infer(np.ones((1, 4)))
        daemon.process.kill()
        daemon.wait_exit()
        with pytest.raises(Failed) as failed:
            exact.infer(np.ones((1, 4)))
        assert failed.value.status == "UNAVAILABLE"
        start("--backend=cpu", port=daemon.port)
        assert (exact.infer(np.ones((1, 4))) == before).all()


@needs_library
def test_a_stopped_daemon_is_a_timeout_and_no_hang(start, tmp_path):
    daemon = start_ring(start, tmp_path)
    with Client(daemon.address) as client:
        exact = client.model("exact")
        daemon.process.send_signal(signal.SIGSTOP)
        eventually(lambda: open(f"/proc/{daemon.pid}/stat").read().rpartition(")")[2].split()[0] == "T", what="the stop")
        try:
            with pytest.raises(Failed) as failed:
                exact.infer(np.ones((1, 4)), timeout_ms=100)
            assert failed.value.status == "TIMEOUT"
            with pytest.raises(Failed) as failed:
                Client(daemon.address, timeout_ms=100)
            assert failed.value.status == "TIMEOUT"
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert exact.infer(np.ones((1, 4))).shape == (1, 3)


@needs_library
def test_c68_a_drain_finishes_what_was_accepted(start, tmp_path, models):
    daemon = start_ring(start, tmp_path, model_names=("gate", "exact"))
    x = models["gate"].rows(64)
    wanted = over_http(daemon, "gate", x, "bf16")
    with Client(daemon.address) as client:
        gate = client.model("gate")
        answered, refused, number = 0, 0, 0
        daemon.process.send_signal(signal.SIGTERM)
        while not refused:
            number += 1
            try:
                gate.submit(x, number, "bf16")
                outcomes = client.wait(20_000)
            except Failed as failed:
                assert failed.status == "UNAVAILABLE", failed
                refused += 1
                continue
            for _, status, value in outcomes:
                assert status in ("OK", "UNAVAILABLE"), value
                if status == "OK":
                    assert value.astype(np.float32).tobytes() == wanted
                    answered += 1
                else:
                    refused += 1
        note(f"shm drain: {answered} answered after SIGTERM, then refused")
    assert daemon.wait_exit() == 0


@needs_library
def test_reloads_while_submitting_lose_nothing(start, tmp_path, models):
    daemon = start_ring(start, tmp_path, model_names=("exact", "kn"))
    x = models["kn"].rows(3)
    wanted = over_http(daemon, "kn", x, "bf16")
    with Client(daemon.address) as client:
        kn = client.model("kn")
        for number in range(1, 400):
            if number % 20 == 0:
                daemon.process.send_signal(signal.SIGHUP)
            assert kn.infer_bytes(x, "bf16") == wanted
        eventually(lambda: daemon.get("/v1/models").json()["models"][0]["version"] > 1, what="a reload")


# --- clients that are killed -------------------------------------------------------------------------------


def level(daemon):
    with open(f"/proc/{daemon.pid}/maps") as file:
        maps = file.readlines()
    return daemon.fd_count(), len(maps), sum("memfd" in line for line in maps)


def run_victims(daemon, count, *flags, parallel=4, seed=1):
    result = subprocess.run([VICTIM, daemon.address, "kn", str(count), str(seed), str(parallel), *flags], capture_output=True, text=True, timeout=3000 * PATIENCE)
    assert result.returncode == 0, result.stdout + result.stderr
    words = result.stdout.split()
    return dict(zip(words[::2], map(int, words[1::2])))


@pytest.mark.sanitizer
def test_clients_of_every_kind_side_by_side(start, tmp_path):
    daemon = start_ring(start, tmp_path, model_names=("exact", "kn"))
    counts = run_victims(daemon, 12 if SANITIZER else 24, "--live", parallel=6)
    assert counts["bad"] == 0 and counts["failed"] == 0 and counts["completed"] > 1000
    daemon.check_alive()
    daemon.stop_cleanly()


@pytest.mark.sanitizer
def test_c43_clients_killed_at_random_points_leave_nothing_behind(start, tmp_path):
    """DK_SHM_KILLS=10000 for the long form."""
    daemon = start_ring(start, tmp_path, model_names=("exact", "kn"))
    run_victims(daemon, 40, parallel=8)  # warm: allocator, log, thread stacks
    eventually(lambda: daemon.metric("decomposek_shm_sessions") == 0, what="no session")
    daemon.get("/metrics")
    time.sleep(0.2)
    before, rss_before = level(daemon), daemon.rss_bytes()
    began = time.monotonic()
    counts = run_victims(daemon, KILLS, seed=2)
    seconds = time.monotonic() - began
    assert counts["bad"] == 0 and counts["completed"] > 0
    eventually(lambda: daemon.metric("decomposek_shm_sessions") == 0 and daemon.metric("decomposek_shm_bytes") == 0, what="no session")
    eventually(lambda: level(daemon)[0] <= before[0] and level(daemon)[2] == 0, what=f"descriptors and mappings of the start, {before}")
    after, rss_after = level(daemon), daemon.rss_bytes()
    note(f"shm kill loop: {KILLS} clients killed in {seconds:.1f} s, {counts['opened']} sessions, {counts['completed']} requests; "
         f"descriptors {before[0]} -> {after[0]}, mappings {before[1]} -> {after[1]}, RSS {rss_before >> 10} -> {rss_after >> 10} KiB")
    assert after[1] <= before[1] + 4  # the allocator may split one of its own
    if not SANITIZER:
        assert rss_after - rss_before < 8 << 20
    daemon.check_alive()
    with_client = run_victims(daemon, 4, "--live")
    assert with_client["failed"] == 0
    daemon.stop_cleanly()
