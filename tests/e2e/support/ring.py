"""The native ring by hand: packets, descriptors and words in shared memory, so that a test can send anything."""

import array
import mmap
import os
import socket
import struct
import time

MAGIC, VERSION = 0x48534B44, 1
RING_VERSION, HEADER_BYTES, ENTRY_BYTES = 1, 320, 64
KINDS = ["NONE", "HELLO", "MAPPED", "OPEN_MODEL", "LIST_MODEL", "LOAD_MODEL", "CLOSE", "WELCOME", "STARTED", "MODEL", "ERROR", "GOODBYE"]
KIND = {name: number for number, name in enumerate(KINDS)}
STATUS = ["OK", "BAD_REQUEST", "BAD_JSON", "BAD_SHAPE", "BAD_DTYPE", "BAD_VALUE", "UNAUTHORIZED", "FORBIDDEN", "NOT_FOUND", "METHOD_NOT_ALLOWED",
          "TIMEOUT", "TOO_LARGE", "UNSUPPORTED_MEDIA", "EXPECTATION_FAILED", "CANCELLED", "NO_MEMORY", "INTERNAL", "DEVICE_FAILED", "UNSUPPORTED",
          "BUSY", "UNAVAILABLE", "IO_ERROR", "BAD_FILE"]
DTYPE = {"fp32": 0, "bf16": 1, "fp16": 2}
MODEL_EPILOGUE = 0xFF
# Offsets in the mapping.
SUBMISSION_TAIL, COMPLETION_HEAD, CLIENT_WAITS, NEEDS_WAKEUP, COMPLETION_TAIL, SERVER_STATE = 64, 128, 132, 192, 256, 260


def packet(kind, body=b"", magic=MAGIC, version=VERSION, length=None, reserved=0):
    length = 16 + len(body) if length is None else length
    return struct.pack("<IHHII", magic, version, KIND.get(kind, kind), length, reserved) + body


def hello(entries=16, data_bytes=1 << 16, ring_version=RING_VERSION, header=HEADER_BYTES, submission=ENTRY_BYTES, completion=ENTRY_BYTES, reserved=0):
    return packet("HELLO", struct.pack("<6IQ", ring_version, header, submission, completion, entries, reserved, data_bytes))


def name_field(name):
    return name.encode().ljust(72, b"\0")


class Refused(Exception):
    def __init__(self, kind, status, text):
        super().__init__(f"{kind} {status}: {text}")
        self.kind, self.status, self.text = kind, status, text


class Socket:
    """The handshake socket alone."""

    def __init__(self, path, timeout=10):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))

    def send(self, data):
        self.socket.send(data)

    def receive(self):
        """(kind, body, descriptors); None at the end of file."""
        fds = array.array("i")
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(16))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if not data:
            return None
        magic, version, kind, length, reserved = struct.unpack_from("<IHHII", data)
        assert (magic, version, length, reserved) == (MAGIC, VERSION, len(data), 0)
        return KINDS[kind], data[16:], list(fds)

    def expect(self, wanted):
        message = self.receive()
        assert message is not None, f"end of file instead of {wanted}"
        kind, body, fds = message
        if kind != wanted and kind in ("ERROR", "GOODBYE"):
            status, _ = struct.unpack_from("<II", body)
            raise Refused(kind, STATUS[status], body[8:].split(b"\0")[0].decode())
        assert kind == wanted, (kind, wanted)
        return body, fds

    def ended(self):
        """The daemon has closed: nothing but end of file comes."""
        try:
            return self.receive() is None
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Ring(Socket):
    """A whole session. Nothing here is fast; everything can be overwritten."""

    def __init__(self, path, entries=16, data_bytes=1 << 16, timeout=10):
        super().__init__(path, timeout)
        self.entries, self.tail, self.head = entries, 0, 0
        try:
            self.send(hello(entries, data_bytes))
        except BrokenPipeError:
            pass  # refused at once: the reason is there to be read
        body, fds = self.expect("WELCOME")
        self.memory_fd, self.doorbell_fd = fds
        (self.session_id, count, self.submissions, self.completions, self.data, self.data_bytes, self.bytes, self.max_rows, self.can_load,
         self.model_count, self.pid) = struct.unpack_from("<QI4xQQQQQIIII", body)
        assert count == entries
        self.memory = mmap.mmap(self.memory_fd, self.bytes)
        self.send(packet("MAPPED"))
        self.expect("STARTED")

    def word(self, offset):
        return struct.unpack_from("<I", self.memory, offset)[0]

    def set_word(self, offset, value):
        struct.pack_into("<I", self.memory, offset, value & 0xFFFFFFFF)

    def model(self, message):
        self.send(message)
        body, _ = self.expect("MODEL")
        keys = ("id", "dtype", "n", "k", "version", "epilogue", "has_bias", "layout", "reserved")
        found = dict(zip(keys, struct.unpack_from("<IIQQQIIII", body)))
        found["name"] = body[48:].split(b"\0")[0].decode()
        return found

    def open_model(self, name):
        return self.model(packet("OPEN_MODEL", name_field(name)))

    def list_model(self, index):
        return self.model(packet("LIST_MODEL", struct.pack("<II", index, 0)))

    def load_model(self, name, n, k, weights_offset=0, bias_offset=0, dtype="fp32", layout=1, epilogue=0, has_bias=0):
        return self.model(packet("LOAD_MODEL", name_field(name) + struct.pack("<QQQQIIII", n, k, weights_offset, bias_offset, DTYPE.get(dtype, dtype), layout, epilogue, has_bias)))

    def write(self, offset, data):
        self.memory[self.data + offset : self.data + offset + len(data)] = data

    def read(self, offset, length):
        return bytes(self.memory[self.data + offset : self.data + offset + length])

    def put(self, user_data=1, a_offset=0, c_offset=4096, model_id=0, rows=1, submitted_ns=0, timeout_us=0, a_dtype="fp32", c_dtype="fp32",
            epilogue=MODEL_EPILOGUE, flags=0, reserved=(0, 0)):
        entry = struct.pack("<QQQIIQIBBBBQQ", user_data, a_offset, c_offset, model_id, rows, submitted_ns, timeout_us, DTYPE.get(a_dtype, a_dtype),
                            DTYPE.get(c_dtype, c_dtype), epilogue, flags, *reserved)
        at = self.submissions + self.tail % self.entries * ENTRY_BYTES
        self.memory[at : at + ENTRY_BYTES] = entry
        self.tail = (self.tail + 1) & 0xFFFFFFFF

    def publish(self):
        self.set_word(SUBMISSION_TAIL, self.tail)
        if self.word(NEEDS_WAKEUP):
            self.ring()

    def ring(self):
        os.write(self.doorbell_fd, struct.pack("<Q", 1))

    def take(self, seconds=10):
        """The next completion."""
        deadline = time.monotonic() + seconds
        while self.word(COMPLETION_TAIL) == self.head:
            assert time.monotonic() < deadline, "no completion"
            time.sleep(0.0002)
        at = self.completions + self.head % self.entries * ENTRY_BYTES
        keys = ("user_data", "status", "detail", "queue_ns", "kernel_ns", "pieces", "bucket_rows", "split_k", "reserved", "version")
        found = dict(zip(keys, struct.unpack_from("<QIIQQIIIIQ", self.memory, at)))
        found["status"] = STATUS[found["status"]]
        self.head = (self.head + 1) & 0xFFFFFFFF
        self.set_word(COMPLETION_HEAD, self.head)
        return found

    def run(self, **fields):
        self.put(**fields)
        self.publish()
        return self.take()

    def close(self):
        super().close()
        if hasattr(self, "memory"):
            self.memory.close()
            os.close(self.memory_fd)
            os.close(self.doorbell_fd)
