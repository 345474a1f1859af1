"""A headless Chromium, driven over its DevTools socket: load a page, ask the document, take a picture."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

import websocket

from .daemon import die_with_parent


class Chromium:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="chromium-")
        self.log = open(os.path.join(self.profile, "log"), "wb")
        # No sandbox: the tests run as root in containers. The rest keeps it from talking to anybody.
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server", "--remote-debugging-port=0",
             "--remote-allow-origins=*", f"--user-data-dir={self.profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=die_with_parent,
        )
        self.socket, self.turn, self.session, self.events = None, 0, None, []
        try:
            self.socket = websocket.create_connection(self._address(), timeout=60)
            target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
            self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def _address(self):
        path = os.path.join(self.profile, "DevToolsActivePort")
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and self.process.poll() is None:
            if os.path.exists(path) and len(lines := open(path).read().split("\n")) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.1)
        raise AssertionError("chromium did not start:\n" + open(os.path.join(self.profile, "log")).read()[-3000:])

    def close(self):
        if self.socket is not None:
            try:
                self.session = None
                self.call("Browser.close")
            except (OSError, AssertionError, websocket.WebSocketException):
                pass
            self.socket.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, **parameters):
        self.turn += 1
        message = {"id": self.turn, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.turn:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width=1280, height=900, is_phone=False, scheme="light", has_script=True):
        self._go("about:blank")  # so that nothing of the page before is counted
        self.events.clear()
        self.look(width, height, is_phone, scheme)
        self.call("Emulation.setScriptExecutionDisabled", value=not has_script)
        self._go(url)

    def look(self, width=1280, height=900, is_phone=False, scheme="light"):
        """Another screen for the page that is open."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _go(self, url):
        seen = len(self.events)
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + 60
        while not any(event["method"] == "Page.loadEventFired" for event in self.events[seen:]):
            assert time.monotonic() < deadline, "the page did not load"
            self.ask("1")
            time.sleep(0.05)

    def ask(self, expression):
        """The value of a JavaScript expression in the page; works also where the page's own scripts are off."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def eventually(self, expression, seconds=30):
        deadline = time.monotonic() + seconds
        while not (value := self.ask(expression)):
            assert time.monotonic() < deadline, f"{expression} did not come true"
            time.sleep(0.1)
        return value

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]))

    def requested(self):
        """URLs that the page asked for since open()."""
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """Errors of the console: exceptions, refused loads, violations of the content security policy."""
        found = [event["params"]["exceptionDetails"] for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        found += [event["params"]["entry"] for event in self.events if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error"]
        return found
