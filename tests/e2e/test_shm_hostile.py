"""The native ring against clients that are wrong, foreign, greedy, silent or malicious. The daemon answers with a reason, drops that
client at most, and serves the others."""

import fcntl
import os
import pathlib
import random
import signal
import struct
import subprocess
import tempfile
import time

import numpy as np
import pytest

from support import ring
from support.daemon import PATIENCE, eventually
from support.ring import Refused, Ring, Socket, hello, packet

X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)


def serve(start, tmp_path, *flags, **options):
    daemon = start("--backend=cpu", f"--shm-socket={tmp_path / 'ring'}", "--drain-grace-ms=50", *flags, **options)
    daemon.ring = tmp_path / "ring"
    return daemon


@pytest.fixture
def daemon(start, tmp_path):
    daemon = serve(start, tmp_path)
    yield daemon
    daemon.check_alive()
    assert_serves(daemon)
    daemon.stop_cleanly()


def assert_right(session, models, **fields):
    model = session.open_model("exact")
    session.write(0, X.tobytes())
    session.write(4096, b"\xff" * 24)
    done = session.run(model_id=model["id"], rows=2, **fields)
    assert done["status"] == "OK", done
    assert np.array_equal(np.frombuffer(session.read(4096, 24), np.float32).reshape(2, 3), X @ models_exact(models))


def models_exact(models):
    return models["exact"].kn if models else np.arange(12, dtype=np.float32).reshape(4, 3)


def assert_serves(daemon):
    with Ring(daemon.ring) as session:
        assert_right(session, None)


def refusal(daemon, *messages):
    """What the daemon says to these packets on a new connection; it must end the connection after it."""
    with Socket(daemon.ring, timeout=10 * PATIENCE) as sock:
        for message in messages:
            sock.send(message)
        with pytest.raises(Refused) as caught:
            while True:
                sock.expect("nothing that is ever sent" if len(messages) == 1 else "WELCOME")
        assert sock.ended()
        return caught.value


@pytest.mark.sanitizer
def test_malformed_first_packets_are_refused_with_a_reason(daemon):
    good = hello()
    cases = [
        (b"x", "BAD_REQUEST", "1 bytes, expected at least 16"),
        (good[:15], "BAD_REQUEST", "15 bytes"),
        (good[:47], "BAD_REQUEST", "HELLO of 47 bytes"),
        (good + b"\0", "BAD_REQUEST", "HELLO of 49 bytes"),
        (good + b"\0" * 4000, "BAD_REQUEST", "HELLO of 4048 bytes"),
        (packet("HELLO", good[16:], magic=1), "BAD_REQUEST", "starts with 00000001"),
        (packet("HELLO", good[16:], version=2), "UNSUPPORTED", "version 2, expected version 1"),
        (packet("HELLO", good[16:], length=47), "BAD_REQUEST", "that says 47"),
        (packet("HELLO", good[16:], reserved=1), "BAD_REQUEST", "reserved word is 1"),
        (packet(0), "BAD_REQUEST", "kind 0"),
        (packet(999), "BAD_REQUEST", "kind 999"),
        (packet("STARTED"), "BAD_REQUEST", "kind 8, which the client does not send"),
        (packet("MAPPED"), "BAD_REQUEST", "MAPPED came where HELLO was expected"),
        (packet("OPEN_MODEL", ring.name_field("exact")), "BAD_REQUEST", "OPEN_MODEL came where HELLO"),
        (hello(reserved=5), "BAD_REQUEST", "reserved word is 5"),
        (hello(ring_version=2), "UNSUPPORTED", "a ring of version 2, expected version 1"),
        (hello(header=256), "UNSUPPORTED", "another ABI"),
        (hello(submission=128), "UNSUPPORTED", "another ABI"),
        (hello(completion=32), "UNSUPPORTED", "another ABI"),
        (hello(entries=0), "BAD_VALUE", "0 ring entries"),
        (hello(entries=3), "BAD_VALUE", "3 ring entries"),
        (hello(entries=8192), "BAD_VALUE", "8192 ring entries"),
        (hello(data_bytes=0), "BAD_VALUE", "0 bytes of data"),
        (hello(data_bytes=2**64 - 1), "BAD_VALUE", "bytes of data"),
        (hello(data_bytes=2**62), "TOO_LARGE", "--shm-session-bytes"),
    ]
    for message, status, text in cases:
        found = refusal(daemon, message)
        assert (found.kind, found.status) == ("ERROR", status) and text in found.text, (message[:20], str(found))
    assert daemon.metric("decomposek_shm_refused_total") == len(cases)


def test_messages_in_the_wrong_order_are_refused(daemon):
    assert "HELLO came where MAPPED was expected" in refusal(daemon, hello(), hello()).text
    with Ring(daemon.ring) as session:
        session.send(packet("MAPPED"))
        with pytest.raises(Refused, match="GOODBYE BAD_REQUEST: MAPPED came where a request was expected"):
            session.expect("STARTED")
        assert session.ended()


@pytest.mark.sanitizer
def test_random_packets_change_nothing(daemon):
    rng = random.Random(5)
    fds = daemon.fd_count()
    for _ in range(300):
        with Socket(daemon.ring, timeout=10 * PATIENCE) as sock:
            for _ in range(rng.randrange(1, 4)):
                kind = rng.randrange(0, 13)
                body = rng.randbytes(rng.choice([0, 8, 32, 72, 120, rng.randrange(600)]))
                message = bytearray(rng.choice([packet(kind, body), hello(), packet("MAPPED"), rng.randbytes(48)]))
                if message and rng.random() < 0.3:
                    message[rng.randrange(len(message))] ^= 1 << rng.randrange(8)
                try:
                    sock.send(bytes(message))
                except OSError:
                    break
    eventually(lambda: daemon.fd_count() <= fds, what="descriptors back at the start")
    assert daemon.metric("decomposek_shm_bytes") == 0


def test_names_that_cannot_be_are_errors_and_the_session_goes_on(daemon, models):
    with Ring(daemon.ring) as session:
        for name, status in (("nope", "NOT_FOUND"), ("", "BAD_VALUE"), ("a/b", "BAD_VALUE"), ("..", "BAD_VALUE"), ("x" * 65, "BAD_VALUE")):
            with pytest.raises(Refused) as caught:
                session.open_model(name)
            assert caught.value.kind == "ERROR" and caught.value.status == status, (name, caught.value)
        with pytest.raises(Refused, match="ERROR NOT_FOUND: model 1: there are 1"):
            session.list_model(1)
        assert session.list_model(0)["name"] == "exact"
        assert session.open_model("exact")["id"] == session.open_model("exact")["id"] == 0
        assert_right(session, models)


def test_pushing_weights_is_off_by_default(daemon):
    with Ring(daemon.ring) as session:
        assert session.can_load == 0
        with pytest.raises(Refused, match="ERROR FORBIDDEN: pushing weights is switched off"):
            session.load_model("mine", n=3, k=4)


def test_pushed_weights_belong_to_their_session_and_are_bounded(start, tmp_path):
    daemon = serve(start, tmp_path, "--shm-load-models", "--shm-session-bytes=2MiB")
    w = np.arange(20, dtype=np.float32).reshape(5, 4)
    with Ring(daemon.ring) as session, Ring(daemon.ring) as other:
        session.write(0, w.tobytes())
        own = session.load_model("exact", n=5, k=4)  # hides the daemon's in this session only
        assert (own["n"], own["version"]) == (5, 1)
        assert other.open_model("exact")["n"] == 3
        with pytest.raises(Refused, match="NOT_FOUND"):
            session.write(0, w.tobytes()), session.load_model("mine", n=5, k=4), other.open_model("mine")
        session.write(0, X.tobytes())
        assert session.run(model_id=own["id"], rows=2)["status"] == "OK"
        assert np.array_equal(np.frombuffer(session.read(4096, 40), np.float32).reshape(2, 5), X @ w.T)
        session.write(0, (w * 2).tobytes())
        assert session.load_model("exact", n=5, k=4)["version"] == 2
        session.write(0, X.tobytes())
        assert session.run(model_id=own["id"], rows=2)["version"] == 2
        assert np.array_equal(np.frombuffer(session.read(4096, 40), np.float32).reshape(2, 5), X @ w.T * 2)
        for fields, status in [
            (dict(n=0, k=4), "BAD_SHAPE"), (dict(n=5, k=0), "BAD_SHAPE"), (dict(n=2**40, k=4), "BAD_SHAPE"), (dict(n=5, k=4, dtype=3), "BAD_DTYPE"),
            (dict(n=5, k=4, layout=2), "BAD_VALUE"), (dict(n=5, k=4, epilogue=9), "BAD_VALUE"), (dict(n=5, k=4, has_bias=2), "BAD_VALUE"),
            (dict(n=5, k=4, weights_offset=4), "BAD_VALUE"), (dict(n=5, k=4, weights_offset=65536), "BAD_VALUE"),
            (dict(n=5, k=4, weights_offset=2**64 - 64), "BAD_VALUE"), (dict(n=5, k=4, has_bias=1, bias_offset=2**63), "BAD_VALUE"),
            (dict(n=1, k=16000), "TOO_LARGE"),  # padded to 64 columns it would be above the cap
        ]:
            with pytest.raises(Refused) as caught:
                session.load_model("bad", **fields)
            assert caught.value.status == status, (fields, caught.value)
    eventually(lambda: daemon.metric("decomposek_shm_bytes") == 0, what="everything given back")
    daemon.stop_cleanly()


def test_bad_requests_hurt_nobody(daemon, models):
    with Ring(daemon.ring) as session, Ring(daemon.ring) as other:
        model = session.open_model("exact")["id"]
        for fields, status, detail in [
            (dict(model_id=1), "NOT_FOUND", 1), (dict(model_id=2**32 - 1), "NOT_FOUND", 1), (dict(rows=2**24 + 1), "BAD_SHAPE", 3),
            (dict(a_dtype=3), "BAD_DTYPE", 4), (dict(c_dtype=255), "BAD_DTYPE", 5), (dict(epilogue=3), "BAD_VALUE", 6), (dict(flags=1), "BAD_VALUE", 7),
            (dict(reserved=(0, 1)), "BAD_VALUE", 7), (dict(a_offset=32), "BAD_VALUE", 8), (dict(c_offset=4100), "BAD_VALUE", 9),
            (dict(a_offset=65536), "BAD_VALUE", 10), (dict(a_offset=2**64 - 64), "BAD_VALUE", 10), (dict(c_offset=2**63), "BAD_VALUE", 11),
            (dict(rows=2**24), "BAD_VALUE", 10), (dict(a_offset=0, c_offset=0), "BAD_VALUE", 12),
            (dict(submitted_ns=1, timeout_us=1), "TIMEOUT", 13),
        ]:
            done = session.run(user_data=77, **{"model_id": model, **fields})
            assert (done["user_data"], done["status"], done["detail"]) == (77, status, detail), fields
        assert_right(session, models)
        assert_right(other, models)


BREAKS = {
    "tail far ahead": lambda s: s.set_word(ring.SUBMISSION_TAIL, 17),
    "tail one back": lambda s: s.set_word(ring.SUBMISSION_TAIL, -1),
    "more than entries in flight": lambda s: [s.put() for _ in range(32)] and (s.set_word(ring.SUBMISSION_TAIL, 16), time.sleep(0.2), s.set_word(ring.SUBMISSION_TAIL, 32)),
    "head beyond the completions": lambda s: [s.put() for _ in range(17)] and (s.set_word(ring.COMPLETION_HEAD, 99), s.set_word(ring.SUBMISSION_TAIL, 16), s.ring(), time.sleep(0.2), s.set_word(ring.SUBMISSION_TAIL, 17)),
}


@pytest.mark.sanitizer
@pytest.mark.parametrize("what", BREAKS)
def test_client_that_breaks_the_rules_is_dropped_with_a_reason(daemon, models, what):
    with Ring(daemon.ring) as session, Ring(daemon.ring) as other:
        BREAKS[what](session)
        session.ring()
        with pytest.raises(Refused, match="GOODBYE BAD_REQUEST: .*the ring has 16 entries"):
            session.expect("MODEL")
        assert session.ended()
        assert session.word(ring.SERVER_STATE) == 2
        assert_right(other, models)
    assert daemon.metric("decomposek_shm_dropped_total") == 1
    assert "event=shm_session_dropped" in daemon.log()


@pytest.mark.sanitizer
def test_scribbling_over_everything_drops_at_most_the_scribbler(daemon, models):
    rng = random.Random(9)
    with Ring(daemon.ring) as other:
        for round in range(20):
            with Ring(daemon.ring, entries=rng.choice([1, 4, 64])) as session:
                session.open_model("exact")
                for _ in range(30):
                    at = rng.choice([0, 64, 128, 192, 256, session.submissions, session.completions, rng.randrange(session.bytes)])
                    noise = rng.randbytes(rng.choice([4, 8, 64, 512]))[: session.bytes - at]
                    session.memory[at : at + len(noise)] = noise
                    try:
                        session.ring()
                    except BlockingIOError:
                        pass
            assert_right(other, models)
    eventually(lambda: daemon.metric("decomposek_shm_sessions") == 0, what="no session left")


def test_saturated_doorbell_blocks_nobody(daemon, models):
    with Ring(daemon.ring) as session, Ring(daemon.ring) as other:
        os.write(session.doorbell_fd, struct.pack("<Q", 2**64 - 2))
        with pytest.raises(BlockingIOError):
            session.ring()
        assert_right(other, models)
        os.read(session.doorbell_fd, 8)
        assert_right(session, models)
        flags = fcntl.fcntl(session.doorbell_fd, fcntl.F_GETFL)
        fcntl.fcntl(session.doorbell_fd, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)  # the daemon's copy blocks now as well
        assert_right(session, models)
        assert_right(other, models)


def test_memory_cannot_be_resized_punched_or_mapped_again(daemon, models):
    with Ring(daemon.ring) as session:
        for attempt in (
            lambda: os.ftruncate(session.memory_fd, 0),
            lambda: os.ftruncate(session.memory_fd, session.bytes + 4096),
            lambda: ring.mmap.mmap(session.memory_fd, session.bytes),
            lambda: os.pwrite(session.memory_fd, b"x", 0),
            lambda: session.memory.madvise(ring.mmap.MADV_REMOVE),
            lambda: fcntl.fcntl(session.memory_fd, 1033, 8),  # F_ADD_SEALS, F_SEAL_WRITE
        ):
            with pytest.raises(OSError):
                attempt()
        assert_right(session, models)


def test_greedy_clients_are_refused_and_get_memory_again_later(start, tmp_path):
    daemon = serve(start, tmp_path, "--shm-sessions=3", "--shm-session-bytes=1MiB", "--shm-total-bytes=2MiB")
    with pytest.raises(Refused, match="ERROR TOO_LARGE: .* the limit is 1048576"):
        Ring(daemon.ring, data_bytes=1 << 20)
    with Ring(daemon.ring, data_bytes=1_000_000), Ring(daemon.ring, data_bytes=1_000_000) as second:
        with pytest.raises(Refused, match="ERROR BUSY: .*--shm-total-bytes"):
            Ring(daemon.ring, data_bytes=1_000_000)
        with Ring(daemon.ring, data_bytes=4096):
            with pytest.raises(Refused, match="ERROR BUSY: 3 clients are connected, the limit"):
                Ring(daemon.ring, data_bytes=4096)
        second.send(packet("CLOSE"))
        with pytest.raises(Refused, match="GOODBYE OK"):
            second.expect("MODEL")
        assert second.ended()
        eventually(lambda: daemon.metric("decomposek_shm_sessions") == 1, what="two sessions gone")
        with Ring(daemon.ring, data_bytes=1_000_000) as third:
            assert_right(third, None)
    daemon.stop_cleanly()


def test_silent_client_is_shown_the_door(start, tmp_path):
    daemon = serve(start, tmp_path, "--header-timeout-ms=200")
    with Socket(daemon.ring, timeout=10 * PATIENCE) as sock:
        with pytest.raises(Refused, match="ERROR TIMEOUT"):
            sock.expect("WELCOME")
        assert sock.ended()
    with Ring(daemon.ring) as session:  # a session that is served may stay as long as it likes
        time.sleep(0.6)
        assert_right(session, None)
    daemon.stop_cleanly()


def test_client_that_does_not_read_is_dropped(daemon, models):
    with Ring(daemon.ring) as session, Ring(daemon.ring) as other:
        session.socket.settimeout(0.5)
        with pytest.raises(OSError):
            for _ in range(100_000):
                session.send(packet("LIST_MODEL", struct.pack("<II", 0, 0)))
        assert_right(other, models)
        eventually(lambda: daemon.metric("decomposek_shm_sessions") == 1, what="dropped")


def test_descriptors_that_a_client_sends_are_closed(daemon):
    fds = daemon.fd_count()
    with Ring(daemon.ring) as session:
        for _ in range(50):
            ring.socket.send_fds(session.socket, [packet("LIST_MODEL", struct.pack("<II", 0, 0))], [0, 1, 2])
            session.expect("MODEL")
    eventually(lambda: daemon.fd_count() <= fds, what="descriptors back at the start")


def as_stranger(path, uid, gid):
    """What a client of that user and group is told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            Ring(path)
            text = "served"
        except BaseException as error:
            text = str(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as file:
        return file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
@pytest.mark.parametrize("flags, expected", [
    ((), "ERROR FORBIDDEN: user 12345, group 23456"),
    (("--shm-allow-uid=1,2",), "ERROR FORBIDDEN"),
    (("--shm-allow-uid=1,12345",), "served"),
    (("--shm-allow-gid=23456",), "served"),
    (("--shm-allow-gid=any",), "served"),
])
def test_strangers_need_to_be_allowed(start, flags, expected):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        daemon = serve(start, pathlib.Path(folder), "--shm-socket-mode=0666", *flags)
        assert expected in as_stranger(daemon.ring, 12345, 23456)
        daemon.stop_cleanly()


@pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0, reason="needs root and mount namespaces")
@pytest.mark.parametrize("size", ["4k", "1m"])
def test_c52_size_of_dev_shm_does_not_matter(start, tmp_path, size):
    script = f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"'
    daemon = serve(start, tmp_path, prefix=("unshare", "-m", "sh", "-c", script, "sh"))
    with Ring(daemon.ring, data_bytes=8 << 20) as session:
        session.write(0, b"\1" * (8 << 20))  # every page is there: no SIGBUS
        assert_right(session, None)
    daemon.stop_cleanly()


def test_c52_shortage_of_memory_is_said_clearly(start, tmp_path):
    daemon = serve(start, tmp_path, prefix=("prlimit", "--fsize=1048576"))
    with pytest.raises(Refused, match=r"ERROR NO_MEMORY: cannot reserve \d+ bytes of shared memory: File too large"):
        Ring(daemon.ring, data_bytes=4 << 20)
    with Ring(daemon.ring) as session:
        assert_right(session, None)
    daemon.stop_cleanly()


def test_second_daemon_does_not_take_the_socket(daemon, start, tmp_path):
    second = start("--backend=cpu", f"--shm-socket={daemon.ring}", ready=False)
    assert second.wait_exit() == 1
    assert "another instance" in second.log()


@pytest.mark.sanitizer
def test_c68_sessions_are_told_that_the_daemon_stops(start, tmp_path):
    daemon = serve(start, tmp_path, "--drain-grace-ms=300")
    with Ring(daemon.ring) as session:
        model = session.open_model("exact")["id"]
        daemon.process.send_signal(signal.SIGTERM)
        assert session.run(model_id=model)["status"] == "OK"  # the grace
        with pytest.raises(Refused, match="GOODBYE UNAVAILABLE: the daemon is stopping"):
            session.expect("MODEL")
        statuses = set()
        while session.word(ring.SERVER_STATE) != 2:
            if session.tail == session.head:
                session.put(model_id=model)
                session.publish()
            if session.word(ring.COMPLETION_TAIL) != session.head:
                statuses.add(session.take()["status"])
        assert statuses <= {"OK", "UNAVAILABLE"}
        assert session.ended()
    assert daemon.wait_exit() == 0
    assert not daemon.ring.exists()
    daemon.check_log()


def test_daemon_that_never_had_a_client_sleeps(daemon):
    with Ring(daemon.ring) as session:
        assert_right(session, None)
        time.sleep(0.2)
        before = daemon.cpu_seconds()
        time.sleep(1)
        assert daemon.cpu_seconds() - before < 0.1  # ten times what it may take, ten times below a spinning core
        assert session.word(ring.NEEDS_WAKEUP) == 1
