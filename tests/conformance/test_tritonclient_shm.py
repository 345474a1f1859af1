"""System shared memory through tritonclient: the good way, regions that lie, and unregister races."""

import os
import random
import threading
import uuid

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from support.daemon import eventually
from triton_calls import make_input


@pytest.fixture
def client(authority):
    with triton.InferenceServerClient(authority, concurrency=4) as connection:
        connection.unregister_system_shared_memory()
        yield connection
        connection.unregister_system_shared_memory()


@pytest.fixture
def create():
    """create(bytes) -> handle, key; removed afterwards."""
    handles = []

    def one(size):
        key = f"/dk-{uuid.uuid4().hex[:12]}"
        handles.append(shm.create_shared_memory_region(key[1:], key, size))
        return handles[-1], key

    yield one
    for handle in handles:
        shm.destroy_shared_memory_region(handle)


def shm_input(rows, region, offset=0, size=None, datatype="FP32", k=4):
    tensor = triton.InferInput("x", [rows, k], datatype)
    tensor.set_shared_memory(region, rows * k * 4 if size is None else size, offset)
    return tensor


def shm_output(region, size, offset=0):
    output = triton.InferRequestedOutput("logits")
    output.set_shared_memory(region, size, offset)
    return output


def refusal(call, *arguments, **keywords):
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **keywords)
    return str(caught.value)


X = np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])
Y = np.float32([[60, 70, 80], [132, 158, 184]])


def test_input_and_output_in_shared_memory(client, create):
    handle, key = create(4096)
    shm.set_shared_memory_region(handle, [X], offset=64)
    client.register_system_shared_memory("both", key, 4096)
    status = client.get_system_shared_memory_status()
    assert status == [{"name": "both", "key": key, "offset": 0, "byte_size": 4096}] == client.get_system_shared_memory_status("both")
    result = client.infer("exact", [shm_input(2, "both", 64)], outputs=[shm_output("both", Y.nbytes, 1024)])
    output = result.get_output("logits")
    assert "data" not in output and "parameters" not in output
    assert (shm.get_contents_as_numpy(handle, np.float32, [2, 3], 1024) == Y).all()
    client.unregister_system_shared_memory("both")
    assert client.get_system_shared_memory_status() == []


def test_one_side_only_and_offset_of_the_registration(client, create):
    handle, key = create(4096)
    shm.set_shared_memory_region(handle, [X], offset=512 + 128)
    client.register_system_shared_memory("in", key, 4096 - 512, offset=512)
    assert (client.infer("exact", [shm_input(2, "in", 128)]).as_numpy("logits") == Y).all()
    client.infer("exact", [make_input(X, "FP32")], outputs=[shm_output("in", Y.nbytes, 0)])
    assert (shm.get_contents_as_numpy(handle, np.float32, [2, 3], 512) == Y).all()  # the offset counts once


def test_a_large_batch_goes_through(client, create, models):
    model, rows = models["gate-fp32"], 200
    x = model.rows(rows)
    want = client.infer("gate-fp32", [make_input(x, "FP32")]).as_numpy("logits")
    handle, key = create(x.nbytes + want.nbytes)
    shm.set_shared_memory_region(handle, [x])
    client.register_system_shared_memory("large", key, x.nbytes + want.nbytes)
    client.infer("gate-fp32", [shm_input(rows, "large", k=1000)], outputs=[shm_output("large", want.nbytes, x.nbytes)])
    assert (shm.get_contents_as_numpy(handle, np.float32, list(want.shape), x.nbytes) == want).all()


# --- C46: regions that lie ------------------------------------------------------------------------------------------


def test_c46_regions_that_do_not_fit_their_object_are_refused(client, create):
    _, key = create(4096)
    size = os.stat("/dev/shm" + key).st_size
    for byte_size, offset in ((size + 1, 0), (0, 0), (2**63, 0), (2**63 - 1, 0), (2**64 - 1, 0), (1, size), (size, 1), (8, 2**63 - 4), (8, 2**64 - 4)):
        assert refusal(client.register_system_shared_memory, "bad", key, byte_size, offset=offset), (byte_size, offset)
    assert client.get_system_shared_memory_status() == []


def test_c46_keys_that_are_no_object_are_refused(client, tmp_path):
    folder, fifo, closed = (f"/dk-{kind}-{uuid.uuid4().hex[:8]}" for kind in ("dir", "fifo", "closed"))
    os.mkdir("/dev/shm" + folder)
    os.mkfifo("/dev/shm" + fifo)
    os.symlink("/etc/passwd", "/dev/shm" + closed)
    try:
        for key in (folder, fifo, closed, "/absent-key", "", "/", "//", "/a/b", "../etc/passwd", "/..", "/.", "x" * 300):
            assert refusal(client.register_system_shared_memory, "bad", key, 16), key
    finally:
        os.rmdir("/dev/shm" + folder)
        os.unlink("/dev/shm" + fifo)
        os.unlink("/dev/shm" + closed)
    assert client.get_system_shared_memory_status() == []


def test_names_twice_unknown_names_and_bad_names(client, create):
    _, key = create(4096)
    client.register_system_shared_memory("once", key, 64)
    assert "once" in refusal(client.register_system_shared_memory, "once", key, 128)
    assert client.get_system_shared_memory_status("once")[0]["byte_size"] == 64
    assert refusal(client.get_system_shared_memory_status, "absent")
    client.unregister_system_shared_memory("absent")
    for name in ("a b", "x" * 65, "ü"):
        assert refusal(client.register_system_shared_memory, name, key, 64)


def test_requests_beyond_their_region_are_refused(client, create):
    handle, key = create(4096)
    shm.set_shared_memory_region(handle, [X])
    client.register_system_shared_memory("r", key, 64)
    assert (client.infer("exact", [shm_input(2, "r", 32)]).get_output("logits")["shape"]) == [2, 3]
    for offset, size in ((33, None), (64, None), (2**63, None), (2**64 - 16, None), (0, 16), (0, 31), (0, 33), (0, 2**63)):
        assert refusal(client.infer, "exact", [shm_input(2, "r", offset, size)]), (offset, size)
    assert refusal(client.infer, "exact", [shm_input(2, "absent")])
    for offset, size in ((41, 24), (0, 23), (0, 65), (2**64 - 8, 24)):
        assert refusal(client.infer, "exact", [make_input(X, "FP32")], outputs=[shm_output("r", size, offset)]), (offset, size)


def test_an_object_that_shrank_is_an_error_not_a_signal(client, create):
    handle, key = create(8192)
    shm.set_shared_memory_region(handle, [X])
    client.register_system_shared_memory("shrunk", key, 8192)
    os.truncate("/dev/shm" + key, 8)
    try:
        assert "shrunk" in refusal(client.infer, "exact", [shm_input(2, "shrunk")])
    finally:
        os.truncate("/dev/shm" + key, 8192)


def test_switched_off_without_the_flag(models, tmp_path):
    from support.daemon import Daemon

    daemon = Daemon([models["exact"].flag], log_path=tmp_path / "log").wait_ready()
    try:
        with triton.InferenceServerClient(f"127.0.0.1:{daemon.port}") as client:
            assert "--allow-client-shm" in refusal(client.register_system_shared_memory, "r", "/k", 16)
            assert "system_shared_memory" not in client.get_server_metadata()["extensions"]
            assert "model_repository" not in client.get_server_metadata()["extensions"]
        daemon.stop_cleanly()
    finally:
        daemon.kill()


# --- C49: unregister while in use -----------------------------------------------------------------------------------


def test_c49_unregister_and_register_anew_while_requests_run(client, authority, create, daemon):
    """An answer is that of one of the two objects or a clean 400; never a mixture, never stale memory."""
    rows, rounds = 64, 300
    handles = [create(rows * 4 * 4) for _ in range(2)]
    for value, (handle, _) in enumerate(handles, start=1):
        shm.set_shared_memory_region(handle, [np.full((rows, 4), value, np.float32)])
    answers = [np.float32([[18, 22, 26]] * rows) * value for value in (1, 2)]
    over, failures, seen = threading.Event(), [], [0, 0]

    def infer():
        try:
            with triton.InferenceServerClient(authority) as mine:
                while not over.is_set():
                    try:
                        y = mine.infer("exact", [shm_input(rows, "race")]).as_numpy("logits")
                    except InferenceServerException as refused:
                        assert "race" in str(refused), refused
                        seen[1] += 1
                        continue
                    assert any((y == answer).all() for answer in answers), y
                    seen[0] += 1
        except BaseException as failure:  # noqa: BLE001 - reported below
            failures.append(failure)

    threads = [threading.Thread(target=infer) for _ in range(3)]
    for thread in threads:
        thread.start()
    chance = random.Random(1)
    for i in range(rounds):
        client.unregister_system_shared_memory("race" if chance.random() < 0.8 else "")
        client.register_system_shared_memory("race", handles[i % 2][1], rows * 16)
        if i % 10 == 0:
            client.get_system_shared_memory_status()
    eventually(lambda: seen[0] > 0 or failures, what="an answer")
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    client.unregister_system_shared_memory()
    assert client.get_system_shared_memory_status() == []
    assert "race" in refusal(client.infer, "exact", [shm_input(rows, "race")])
    for _, key in handles:
        eventually(lambda: key not in open(f"/proc/{daemon.pid}/maps").read(), what="no mapping left")
        eventually(lambda: not any(key in link for link in descriptors(daemon)), what="no descriptor left")


def descriptors(daemon):
    links = []
    for fd in os.listdir(f"/proc/{daemon.pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{daemon.pid}/fd/{fd}"))
        except OSError:
            pass
    return links
