"""A plain HTTP client over TCP or a UNIX socket, and raw sockets for what a polite client cannot send."""

import http.client
import json
import socket


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def header(self, name, default=None):
        return self.headers.get(name.lower(), default)

    def __repr__(self):
        return f"Reply({self.status}, {self.body[:200]!r})"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.unix_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


class Client:
    """One keep-alive connection; reconnects by itself after the server closed it."""

    def __init__(self, host="127.0.0.1", port=None, unix_path=None, timeout=60):
        self.connection = UnixConnection(unix_path, timeout) if unix_path else http.client.HTTPConnection(host, port, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()

    def request(self, method, path, body=None, headers=None) -> Reply:
        try:
            self.connection.request(method, path, body=body, headers=headers or {})
        except (BrokenPipeError, ConnectionResetError):
            # Refused in the middle of a large body: the answer is there all the same, or the line below fails.
            pass
        response = self.connection.getresponse()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def get(self, path, **headers) -> Reply:
        return self.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post_json(self, body, path="/v1/matmul", headers=None) -> Reply:
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode("utf-8", "surrogatepass")
        return self.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})

    def post_raw(self, body: bytes, query: str, accept="application/octet-stream", headers=None) -> Reply:
        all_headers = {"Content-Type": "application/octet-stream", "Accept": accept, **(headers or {})}
        return self.request("POST", f"/v1/matmul?{query}", body, all_headers)


def connect(port, timeout=30) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_reply(sock, method="GET") -> Reply:
    """Parse exactly one response; bytes of a following one stay readable only through http.client's buffer, so
    use ReplyReader for pipelined requests."""
    return ReplyReader(sock).read(method)


class ReplyReader:
    """Reads responses one after the other from a socket, keeping what came early."""

    def __init__(self, sock):
        self.file = sock.makefile("rb")

    def read(self, method="GET") -> Reply:
        status_line = self.file.readline()
        if not status_line:
            raise ConnectionError("closed without a status line")
        version, status, *_ = status_line.decode("latin-1").split(" ", 2)
        assert version.startswith("HTTP/1."), status_line
        headers = {}
        while (line := self.file.readline()) not in (b"\r\n", b"\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(status)
        if method == "HEAD" or status in (204, 304) or 100 <= status < 200:
            return Reply(status, headers, b"")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int(self.file.readline().split(b";")[0], 16):
                body += self.file.read(size)
                self.file.readline()
            while self.file.readline() not in (b"\r\n", b"\n", b""):
                pass
        elif "content-length" in headers:
            body = self.file.read(int(headers["content-length"]))
        else:
            body = self.file.read()
        return Reply(status, headers, body)


def raw_request(port, data: bytes, method="GET", timeout=30) -> Reply:
    """Send bytes as they are on a fresh connection and read one response."""
    with connect(port, timeout) as sock:
        sock.sendall(data)
        return read_reply(sock, method)
