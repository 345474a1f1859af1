"""libdecomposek_client through ctypes: each test drives the very library that programs link."""

import ctypes
import os

import numpy as np
import pytest

from . import weights_file
from .daemon import BIN_DIR, SANITIZER
from .ring import DTYPE, STATUS

LIBRARY = os.path.join(BIN_DIR, "../lib/libdecomposek_client.so")
EPILOGUE = {"none": 0, "relu": 1, "sigmoid": 2}
LAYOUT = {"kn": 0, "nk": 1}
NO_SPIN = 0xFFFFFFFF
needs_library = pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer's library does not load into a Python without it; shm_victim covers it")


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 384)]


class Options(ctypes.Structure):
    _fields_ = [("data_bytes", ctypes.c_uint64), ("ring_entries", ctypes.c_uint32), ("timeout_ms", ctypes.c_uint32), ("spin_us", ctypes.c_uint32),
                ("is_reconnecting", ctypes.c_bool), ("api_key", ctypes.c_char_p), ("reserved", ctypes.c_uint64 * 8)]


class Info(ctypes.Structure):
    _fields_ = [("transport", ctypes.c_char_p), ("is_connected", ctypes.c_bool), ("ring_entries", ctypes.c_uint32), ("in_flight", ctypes.c_uint32),
                ("data_bytes", ctypes.c_uint64), ("session_count", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 4)]


class ModelInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 65), ("n", ctypes.c_uint64), ("k", ctypes.c_uint64), ("dtype", ctypes.c_int), ("epilogue", ctypes.c_int),
                ("has_bias", ctypes.c_bool), ("version", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 4)]


class Weights(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint64), ("k", ctypes.c_uint64), ("dtype", ctypes.c_int), ("layout", ctypes.c_int), ("epilogue", ctypes.c_int),
                ("data", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("reserved", ctypes.c_uint64 * 4)]


class Request(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_uint64), ("a", ctypes.c_void_p), ("c", ctypes.c_void_p), ("a_dtype", ctypes.c_int), ("c_dtype", ctypes.c_int),
                ("has_epilogue", ctypes.c_bool), ("epilogue", ctypes.c_int), ("timeout_ms", ctypes.c_uint32), ("user_data", ctypes.c_void_p),
                ("reserved", ctypes.c_uint64 * 8)]


class Timing(ctypes.Structure):
    _fields_ = [("queue_ns", ctypes.c_uint64), ("kernel_ns", ctypes.c_uint64), ("server_ns", ctypes.c_uint64), ("round_trip_ns", ctypes.c_uint64)]


class Completion(ctypes.Structure):
    _fields_ = [("user_data", ctypes.c_void_p), ("status", ctypes.c_int), ("message", ctypes.c_char_p), ("timing", Timing), ("reserved", ctypes.c_uint64 * 2)]


class Failed(Exception):
    def __init__(self, status, message):
        self.status, self.message = STATUS[status], message.decode()
        super().__init__(f"{self.status}: {self.message}")


_library = None


def library():
    global _library
    if _library is None:
        _library = ctypes.CDLL(LIBRARY)
        _library.dk_client_poll.restype = ctypes.c_size_t
        _library.dk_client_model_get_info.restype = ctypes.POINTER(ModelInfo)
        _library.dk_client_version.restype = ctypes.c_char_p
    return _library


def call(name, *arguments):
    """A function whose last parameter is the error."""
    error = Error()
    status = getattr(library(), name)(*arguments, ctypes.byref(error))
    if status != 0:
        assert error.status == status and error.message, name
        raise Failed(status, error.message)


class Client:
    def __init__(self, address, **options):
        for name in ("api_key",):
            if name in options:
                options[name] = options[name].encode()
        self.pointer = ctypes.c_void_p()
        self.requests = {}  # keeps the operands of requests in flight alive
        call("dk_client_open", address.encode(), ctypes.byref(Options(**options)), ctypes.byref(self.pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.pointer:
            library().dk_client_close(self.pointer)
            self.pointer = None

    @property
    def info(self):
        info = Info()
        library().dk_client_get_info(self.pointer, ctypes.byref(info))
        return info

    def reconnect(self):
        call("dk_client_reconnect", self.pointer)

    def models(self, capacity=64):
        infos, count = (ModelInfo * capacity)(), ctypes.c_size_t()
        call("dk_client_list_models", self.pointer, infos, ctypes.c_size_t(capacity), ctypes.byref(count))
        return infos[: min(count.value, capacity)]

    def model(self, name):
        return Model(self, name)

    def load_model(self, name, kn, dtype="fp32", layout="kn", bias=None, epilogue="none", timeout_ms=0):
        values = np.asarray(kn, np.float32)
        data = ctypes.create_string_buffer(weights_file.encode(values if layout == "kn" else values.T.copy(), dtype))
        bias = None if bias is None else np.ascontiguousarray(bias, np.float32)
        weights = Weights(n=values.shape[1], k=values.shape[0], dtype=DTYPE[dtype], layout=LAYOUT[layout], epilogue=EPILOGUE[epilogue],
                          data=ctypes.addressof(data), bias=None if bias is None else bias.ctypes.data)
        call("dk_client_load_model", self.pointer, name.encode(), ctypes.byref(weights), ctypes.c_uint32(timeout_ms))

    def buffer(self, size):
        out = ctypes.c_void_p()
        call("dk_client_buffer_acquire", self.pointer, ctypes.c_size_t(size), ctypes.byref(out))
        return out.value

    def release(self, buffer):
        library().dk_client_buffer_release(self.pointer, ctypes.c_void_p(buffer))

    def wait(self, timeout_ms=0, capacity=64):
        done, count = (Completion * capacity)(), ctypes.c_size_t()
        call("dk_client_wait", self.pointer, ctypes.c_uint32(timeout_ms), done, ctypes.c_size_t(capacity), ctypes.byref(count))
        return self._outcomes(done, count.value)

    def poll(self, capacity=64):
        done = (Completion * capacity)()
        return self._outcomes(done, library().dk_client_poll(self.pointer, done, ctypes.c_size_t(capacity)))

    def _outcomes(self, done, count):
        """[(user_data, status, decoded c or the message)]"""
        outcomes = []
        for completion in done[:count]:
            key = completion.user_data or 0
            _, c, dtype, shape = self.requests.pop(key)
            value = completion.message.decode() if completion.status else weights_file.decode(c.raw, dtype)[: shape[0] * shape[1]].reshape(shape)
            outcomes.append((key, STATUS[completion.status], value))
        return outcomes


class Model:
    def __init__(self, client, name):
        self.client, self.pointer = client, ctypes.c_void_p()
        call("dk_client_model_open", client.pointer, name.encode(), ctypes.byref(self.pointer))

    @property
    def info(self):
        return library().dk_client_model_get_info(self.pointer).contents

    def _request(self, x, dtype, out_dtype, epilogue, timeout_ms, user_data=0):
        rows = len(x)
        a = ctypes.create_string_buffer(weights_file.encode(np.asarray(x, np.float32), dtype))
        c = ctypes.create_string_buffer(rows * self.info.n * (4 if out_dtype == "fp32" else 2))
        request = Request(rows=rows, a=ctypes.addressof(a), c=ctypes.addressof(c), a_dtype=DTYPE[dtype], c_dtype=DTYPE[out_dtype],
                          has_epilogue=epilogue is not None, epilogue=EPILOGUE[epilogue or "none"], timeout_ms=timeout_ms, user_data=user_data)
        return request, a, c

    def infer_bytes(self, x, dtype="fp32", out_dtype="fp32", epilogue=None, timeout_ms=0, timing=None):
        request, _, c = self._request(x, dtype, out_dtype, epilogue, timeout_ms)
        call("dk_client_infer", self.pointer, ctypes.byref(request), ctypes.byref(timing) if timing else None)
        return c.raw[: len(x) * self.info.n * (4 if out_dtype == "fp32" else 2)]

    def infer(self, x, dtype="fp32", out_dtype="fp32", **options):
        return weights_file.decode(self.infer_bytes(x, dtype, out_dtype, **options), out_dtype).reshape(len(x), self.info.n)

    def submit(self, x, user_data, dtype="fp32", out_dtype="fp32", epilogue=None, timeout_ms=0):
        request, a, c = self._request(x, dtype, out_dtype, epilogue, timeout_ms, user_data)
        call("dk_client_submit", self.pointer, ctypes.byref(request))
        self.client.requests[user_data] = (a, c, out_dtype, (len(x), self.info.n))


def over_http(daemon, model, x, dtype, out_dtype="fp32", epilogue=None):
    query = f"model={model}&dtype={dtype}&out_dtype={out_dtype}" + (f"&epilogue={epilogue}" if epilogue else "")
    reply = daemon.post_raw(weights_file.encode(x, dtype), query)
    assert reply.status == 200, reply
    return reply.body


def start_ring(start, tmp_path, *flags, **options):
    daemon = start("--backend=cpu", "--max-tokens=64", f"--shm-socket={tmp_path}/r.sock", *flags, **options)
    daemon.address = f"unix:{tmp_path}/r.sock"
    return daemon
