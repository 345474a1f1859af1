"""System shared memory of clients: registration against odd objects, use, races, a full /dev/shm."""

import os
import threading

import numpy as np
import pytest

from support import oip
from support.daemon import DAEMON, PATIENCE, Daemon, eventually

X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
Y = [[60, 70, 80], [132, 158, 184]]
ON = "--allow-client-shm"


@pytest.fixture
def shm():
    """make(name, bytes or size) -> path in /dev/shm; removed afterwards. Names carry the process id."""
    made = []

    def make(name, content=4096):
        path = f"/dev/shm/dk-test-{os.getpid()}-{name}"
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else b"\0" * content)
        made.append(path)
        return path

    yield make
    for path in made:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        elif os.path.lexists(path):
            os.unlink(path)


@pytest.fixture(scope="module")
def shared_shm_daemon(models, tmp_path_factory):
    daemon = Daemon([models["exact"].flag, models["gate"].flag, "--max-tokens=256", ON, "--max-client-regions=8"], log_path=tmp_path_factory.mktemp("shm") / "daemon.log")
    try:
        daemon.wait_ready()
        daemon.remember({"model": "exact", "x": [[1, 2, 3, 4]]})
        yield daemon
        daemon.stop_cleanly()
    finally:
        daemon.kill()


@pytest.fixture
def shm_daemon(shared_shm_daemon):
    with shared_shm_daemon.client() as client:
        assert client.request("POST", "/v2/systemsharedmemory/unregister").status == 200
    yield shared_shm_daemon
    with shared_shm_daemon.client() as client:
        assert client.request("POST", "/v2/systemsharedmemory/unregister").status == 200
    shared_shm_daemon.check_alive()


@pytest.fixture
def client(shm_daemon):
    with shm_daemon.client() as connection:
        yield connection


def key_of(path):
    return "/" + os.path.basename(path)


def register(client, name, path, size, offset=None, key=None):
    body = {"key": key_of(path) if key is None else key, "byte_size": size, **({} if offset is None else {"offset": offset})}
    return client.post_json(body, path=f"/v2/systemsharedmemory/region/{name}/register")


def unregister(client, name=None):
    return client.request("POST", f"/v2/systemsharedmemory{f'/region/{name}' if name else ''}/unregister")


def status(client, name=None):
    return client.get(f"/v2/systemsharedmemory{f'/region/{name}' if name else ''}/status").json()


def place(region, size, offset=None):
    return {"shared_memory_region": region, "shared_memory_byte_size": size, **({} if offset is None else {"shared_memory_offset": offset})}


def infer(client, inputs, outputs=None, shape=(2, 4), datatype="FP32", model="exact"):
    body = {"inputs": [{"name": "x", "shape": list(shape), "datatype": datatype, "parameters": inputs}]}
    if outputs is not None:
        body["outputs"] = [{"name": "logits", "parameters": outputs}]
    return oip.post(client, model, body)


@pytest.mark.sanitizer
def test_switched_off_is_403(daemon, shm):
    path = shm("off")
    with daemon.client() as client:
        oip.refused(register(client, "r", path, 16), (403,), needle="--allow-client-shm")
        oip.refused(unregister(client), (403,))
        oip.refused(client.get("/v2/systemsharedmemory/status"), (403,))
        oip.refused(infer(client, place("r", 32)), (403,))


@pytest.mark.sanitizer
def test_cuda_memory_is_none(client):
    for path in ("/v2/cudasharedmemory/unregister", "/v2/cudasharedmemory/region/r/unregister"):
        assert client.request("POST", path).status == 200
    assert client.get("/v2/cudasharedmemory/status").json() == []
    oip.refused(client.get("/v2/cudasharedmemory/region/r/status"), (404,))
    oip.refused(client.post_json({"raw_handle": {"b64": "AA=="}, "device_id": 0, "byte_size": 4}, path="/v2/cudasharedmemory/region/r/register"), (501,))


@pytest.mark.sanitizer
def test_status_is_always_a_list(client, shm):
    path = shm("a", 4096)
    assert status(client) == []
    oip.refused(client.get("/v2/systemsharedmemory/region/in/status"), (404,), needle="in")
    assert register(client, "in", path, 4096).status == 200
    assert register(client, "out", path, 96, 4000).status == 200
    assert status(client, "in") == [{"name": "in", "key": key_of(path), "offset": 0, "byte_size": 4096}]
    assert [region["name"] for region in status(client)] == ["in", "out"] and status(client, "out")[0]["offset"] == 4000
    assert unregister(client, "in").status == unregister(client, "in").status == unregister(client, "never").status == 200
    assert [region["name"] for region in status(client)] == ["out"]
    assert unregister(client).status == 200 and status(client) == []


@pytest.mark.sanitizer
@pytest.mark.parametrize("size", [4097, 0, 2**63, 2**63 - 1, 2**64 - 1, 2**64, -1, 1.5, "4096", None, True])
def test_c46_sizes_beyond_the_object(client, shm, size):
    oip.refused(register(client, "r", shm("a"), size))
    assert status(client) == []


@pytest.mark.sanitizer
@pytest.mark.parametrize("offset,size", [(1, 4096), (4096, 1), (2**64 - 1, 1), (2**63, 2**63), (2**63 - 1, 1), (2**64 - 4096, 4096), (-1, 1), (1.5, 1), ("0", 1)])
def test_c46_offsets_beyond_the_object(client, shm, offset, size):
    oip.refused(register(client, "r", shm("a"), size, offset))
    assert status(client) == []


@pytest.mark.sanitizer
@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "link-out", "missing", "socket"])
def test_c46_keys_that_are_no_plain_object(shm_daemon, client, shm, kind):
    path, _ = shm(f"odd-{kind}"), status(client)
    fds = shm_daemon.fd_count()  # with the client's connection
    os.unlink(path)
    if kind == "folder":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink(os.path.basename(shm("target")), path)
    elif kind == "link-out":
        os.symlink("/etc/passwd", path)
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(path)
    oip.refused(register(client, "r", path, 16), needle=key_of(path))
    assert status(client) == []
    eventually(lambda: shm_daemon.fd_count() <= fds, what="descriptors closed")


@pytest.mark.sanitizer
@pytest.mark.parametrize("key", ["", "/", "//", ".", "..", "/..", "/../etc/passwd", "a/b", "/a/b", "../../etc/passwd", "x" * 256, 7, None, [], "a\0b"])
def test_c46_keys_that_are_no_names(client, key):
    oip.refused(client.post_json({"key": key, "byte_size": 16}, path="/v2/systemsharedmemory/region/r/register"))
    assert status(client) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a daemon of another user")
def test_c46_key_without_permission(shm, models, tmp_path):
    """The daemon as an ordinary user, the object root's."""
    program, weights = tmp_path / "decomposekd", tmp_path / "exact.safetensors"
    program.write_bytes(open(DAEMON, "rb").read())
    weights.write_bytes(open(models["exact"].path, "rb").read())
    for path, mode in ((program, 0o755), (weights, 0o644), *((folder, 0o755) for folder in [tmp_path, *tmp_path.parents][:4])):
        os.chmod(path, mode)
    secret, open_to_all = shm("secret"), shm("open")
    os.chmod(secret, 0o600)
    os.chmod(open_to_all, 0o666)
    prefix = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=-all")
    daemon = Daemon([ON, f"--model=exact={weights},tensor=w"], prefix=prefix, program=str(program), log_path=tmp_path / "daemon.log")
    try:
        daemon.wait_ready()
        with daemon.client() as client:
            oip.refused(register(client, "r", secret, 16), needle="may not")
            assert status(client) == []
            assert register(client, "r", open_to_all, 16).status == 200
        daemon.stop_cleanly()
    finally:
        daemon.kill()


@pytest.mark.sanitizer
def test_register_body_must_be_right(client, shm):
    path = shm("a")
    for body in ("", "{", "[]", "null", "{}", '{"key":"/a"}', '{"byte_size":16}', '{"key":"/a","key":"/a","byte_size":16}'):
        oip.refused(client.post_json(body, path="/v2/systemsharedmemory/region/r/register"))
    for name in ("a%20b", "a%2Fb", "..", "x" * 65, "%C3%A9"):
        oip.refused(register(client, name, path, 16))
    assert register(client, "x" * 64, path, 16).status == 200
    assert register(client, "-._A9", path, 16, key="//" + os.path.basename(path)).status == 200  # clients may create //k
    assert register(client, "plain", path, 16, key=os.path.basename(path)).status == 200
    oip.refused(register(client, "plain", path, 16), needle="plain")  # taken


@pytest.mark.sanitizer
def test_number_of_regions_is_bounded(client, shm):
    path = shm("a")
    for i in range(8):
        assert register(client, f"r{i}", path, 16).status == 200
    reply = register(client, "r8", path, 16)
    assert reply.status == 503 and "8" in oip.refused(reply, (503,))
    assert unregister(client, "r3").status == 200 and register(client, "r8", path, 16).status == 200


@pytest.mark.sanitizer
def test_input_and_output_in_shared_memory(client, shm):
    path = shm("io", b"\x7f" * 100 + X.tobytes() + b"\x7f" * 100)
    assert register(client, "io", path, 232).status == 200
    reply = infer(client, place("io", 32, 100), place("io", 24, 150))
    assert reply.json()["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [2, 3]}], reply
    assert reply.header(oip.LENGTH_HEADER) is None and reply.header("content-type") == "application/json"
    content = open(path, "rb").read()
    assert np.frombuffer(content[150:174], np.float32).reshape(2, 3).tolist() == Y
    assert content[:100] == b"\x7f" * 100 and content[100:132] == X.tobytes() and content[174:] == b"\x7f" * (232 - 174)


@pytest.mark.sanitizer
def test_offset_of_the_registration_counts_once(client, shm):
    path = shm("offset", b"\0" * 64 + X.tobytes() + b"\0" * 64)
    assert register(client, "r", path, 96, 64).status == 200
    assert oip.answer(infer(client, place("r", 32))).tolist() == Y
    oip.refused(infer(client, place("r", 32, 65)), needle="96")


@pytest.mark.sanitizer
def test_shared_memory_on_one_side_only(client, shm):
    path = shm("side", X.tobytes() + b"\0" * 164)
    assert register(client, "r", path, 196).status == 200
    assert oip.answer(infer(client, place("r", 32))).tolist() == Y
    assert oip.answer(infer(client, place("r", 32), {"binary_data": True})).tolist() == Y
    for reply in (oip.post(client, "exact", oip.json_body(X, outputs=[{"name": "logits", "parameters": place("r", 24, 40)}])),
                  oip.post_binary(client, "exact", X, outputs=[{"name": "logits", "parameters": place("r", 64, 100)}])):
        assert "data" not in reply.json()["outputs"][0]
    content = open(path, "rb").read()
    assert np.frombuffer(content[40:64], np.float32).reshape(2, 3).tolist() == Y
    assert np.frombuffer(content[100:124], np.float32).reshape(2, 3).tolist() == Y
    assert not any(content[32:40] + content[64:100] + content[124:])


@pytest.mark.sanitizer
def test_places_that_do_not_fit_are_refused(client, shm):
    path = shm("fit", X.tobytes() + b"\x7f" * 64)
    assert register(client, "r", path, 96).status == 200
    for inputs in (place("r", 31), place("r", 33), place("r", 0), place("r", 96), place("r", 32, 65), place("r", 32, 2**64 - 1), place("r", 32, 2**64 - 32), place("r", 2**64 - 1),
                   place("r", 32, -1), place("r", "32"), place("s", 32), place("", 32), place("r s", 32), {"shared_memory_region": "r"}, {"shared_memory_byte_size": 32}, place(7, 32)):
        oip.refused(infer(client, inputs))
    for outputs in (place("r", 23), place("r", 0), place("r", 24, 73), place("r", 97), place("r", 24, 2**64 - 24), place("s", 24), {"shared_memory_region": "r"},
                    {**place("r", 24), "binary_data": True}):
        oip.refused(infer(client, place("r", 32), outputs))
    assert open(path, "rb").read() == X.tobytes() + b"\x7f" * 64
    oip.refused(infer(client, place("gone", 32)), needle="gone")


@pytest.mark.sanitizer
def test_c13_zero_rows_in_shared_memory(client, shm):
    path = shm("zero", X.tobytes())
    assert register(client, "r", path, 32).status == 200
    assert oip.answer(infer(client, place("r", 0), shape=(0, 4))).shape == (0, 3)
    assert infer(client, place("r", 0, 32), place("r", 0), shape=(0, 4)).json()["outputs"][0]["shape"] == [0, 3]
    assert oip.answer(infer(client, place("r", 32))).tolist() == Y


def test_large_tensors_are_copied_in_turns(client, shm, models):
    """More than one turn of 4 MiB each way."""
    x = np.tile(models["gate"].rows(8, dtype="fp32"), (250, 1))
    path, out = shm("large", x.astype(np.float32).tobytes()), shm("large-out", 2000 * 1024)
    assert register(client, "x", path, x.size * 4).status == 200 and register(client, "y", out, 2000 * 1024).status == 200
    reply = infer(client, place("x", x.size * 4), place("y", 2000 * 1024), shape=x.shape, model="gate")
    assert reply.status == 200, reply
    got = np.fromfile(out, np.float32).reshape(2000, 256)
    expected = oip.answer(oip.post_binary(client, "gate", x[:8]))
    assert (got == np.tile(expected, (250, 1))).all()


@pytest.mark.sanitizer
def test_c46_object_made_shorter_after_registration(shm_daemon, client, shm):
    """A short read, not a SIGBUS."""
    path = shm("short", X.tobytes() + b"\0" * 4096)
    assert register(client, "r", path, 4000).status == 200
    os.truncate(path, 16)
    oip.refused(infer(client, place("r", 32)), needle="r")
    oip.refused(infer(client, place("r", 16), place("r", 24, 64), shape=(1, 4)))
    assert os.path.getsize(path) == 16
    assert oip.answer(infer(client, place("r", 16), shape=(1, 4))).tolist() == Y[:1]
    os.unlink(path)
    assert oip.answer(infer(client, place("r", 16), shape=(1, 4))).tolist() == Y[:1]  # the object lives on


@pytest.mark.sanitizer
def test_c49_unregister_and_register_race_with_infer(shm_daemon, shm):
    """Each answer is right for one of the two objects, or 400 for an unknown region; in the end nothing is left."""
    first, second = shm("race-a", X.tobytes()), shm("race-b", (X * 2).tobytes())
    wanted = (Y, (2 * np.array(Y)).tolist())
    fds, rounds, mistakes, served = shm_daemon.fd_count(), 1000 if PATIENCE == 1 else 150, [], [0]
    stop = threading.Event()

    def ask():
        with shm_daemon.client() as client:
            while not stop.is_set():
                reply = infer(client, place("r", 32))
                if reply.status == 400:
                    if "region" not in reply.json()["error"]:
                        mistakes.append(reply)
                elif reply.status != 200 or oip.answer(reply).tolist() not in wanted:
                    mistakes.append(reply)
                else:
                    served[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    with shm_daemon.client() as client:
        for i in range(rounds):
            assert register(client, "r", (first, second)[i % 2], 32).status == 200
            assert unregister(client, None if i % 3 == 0 else "r").status == 200
        assert register(client, "r", first, 32).status == 200
        assert oip.answer(infer(client, place("r", 32))).tolist() == Y
        stop.set()
        for thread in threads:
            thread.join()
        assert unregister(client).status == 200 and status(client) == []
        oip.refused(infer(client, place("r", 32)), needle="r")
    assert not mistakes, mistakes[:3]
    assert served[0] > 0
    eventually(lambda: shm_daemon.fd_count() <= fds, what="descriptors of regions closed")
    maps = open(f"/proc/{shm_daemon.pid}/maps").read()
    assert "dk-test-" not in maps


def can_unshare():
    import subprocess

    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs root and mount namespaces")
@pytest.mark.parametrize("size", ["4k", "1m"])
def test_c52_full_dev_shm_is_an_error_not_a_signal(models, tmp_path, size):
    """An object that truncate made has no pages behind it: writing the answer finds no space."""
    script = f"mount --make-rprivate / && mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$@\""
    daemon = Daemon([models["exact"].flag, ON], prefix=("unshare", "-m", "sh", "-c", script, "sh"), log_path=tmp_path / "daemon.log")
    try:
        daemon.wait_ready()
        daemon.remember({"model": "exact", "x": [[1, 2, 3, 4]]})
        folder = f"/proc/{daemon.pid}/root/dev/shm"
        with open(f"{folder}/big", "wb") as file:
            file.truncate(4 << 20)
        with daemon.client() as client:
            assert client.post_json({"key": "/big", "byte_size": 4 << 20}, path="/v2/systemsharedmemory/region/r/register").status == 200
            rows = 200_000  # 3.2 MB of zeros in, 2.4 MB out: more than there is
            reply = infer(client, place("r", rows * 16), place("r", rows * 12), shape=(rows, 4))
            oip.refused(reply, needle="no space")
            assert oip.answer(infer(client, place("r", 16, 3 << 20), shape=(1, 4))).tolist() == [[0, 0, 0]]
        daemon.check_alive()
        daemon.stop_cleanly()
    finally:
        daemon.kill()
