"""The C client library against a real daemon: equal answers over shared memory and HTTP, and clear errors."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from support import weights_file
from support.cclient import DTYPE, NO_SPIN, Client, Failed, Request, Timing, call, needs_library, over_http, start_ring
from support.daemon import BIN_DIR, PATIENCE, Daemon, eventually

DTYPES = ("fp32", "bf16", "fp16")


@pytest.fixture(scope="module")
def ring_daemon(models, tmp_path_factory):
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
    result = subprocess.run([os.path.join(BIN_DIR, f"example_{name}"), address, "kn", *count], capture_output=True, text=True, timeout=60 * PATIENCE)
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
    eventually(lambda: daemon.metric("decomposek_shm_sessions") == 0, what="the end of both sessions")
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
