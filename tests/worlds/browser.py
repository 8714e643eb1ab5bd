"""A headless Chromium, driven by its DevTools protocol over a pipe, without a driver or library."""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.servers.s3_gateway import program
from tests.worlds.waiting import PATIENCE_SECONDS, wait_until

__all__ = ["Page", "browser_page"]

OPTIONS = (
    "--headless",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--autoplay-policy=no-user-gesture-required",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Page:
    """A tab of the browser.

    Attributes:
        events: messages that the browser has sent by itself, in their order.
    """

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._received = b""
        self._calls = 0
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.setCacheDisabled", cacheDisabled=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters} | self._session
        self._pipe.sendall(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._calls:
                assert "error" not in answer, (method, answer)
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            data = self._pipe.recv(1 << 20)
            assert data, "the browser has ended"
            self._received += data
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))

    def open(self, url: str) -> None:
        """Go to a URL, and wait until it is loaded."""
        failure = self.call("Page.navigate", url=url).get("errorText")
        assert failure is None, (url, failure)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def run(self, script: str) -> Any:
        """Evaluate an expression of JavaScript in the page, and return its value. Promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true. The page may change meanwhile."""

        def holds() -> bool:
            answer = self.call("Runtime.evaluate", expression=condition, returnByValue=True)
            return bool(answer["result"].get("value")) and "exceptionDetails" not in answer

        wait_until(holds)

    def click(self, element: str) -> None:
        """Click with the mouse on an element, which is an expression of JavaScript."""
        place = (
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); return e.getClientRects()[0].toJSON(); }})({element})"
        )
        box = self.run(place)
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def prefer(self, scheme: str) -> None:
        """Make the user prefer a color scheme: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, file: Path) -> None:
        """Write a picture of the window (PNG)."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def seen(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of one kind until now."""
        self.call("Runtime.evaluate", expression="0")  # receive what is underway
        return [event["params"] for event in self.events if event.get("method") == method]


@contextlib.contextmanager
def browser_page(folder: Path) -> Iterator[Page]:
    """Start a browser, and end it after the `with` block.

    Args:
        folder: An empty folder for its files.
    """
    path = program("chromium")
    if path is None or shutil.which("bash") is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    ours, its = socket.socketpair()
    # The browser reads from descriptor 3 and writes to 4.
    pipes = f'exec "$@" 3<&{its.fileno()} 4>&{its.fileno()}'
    command = ["bash", "-c", pipes, "bash", path, *OPTIONS, f"--user-data-dir={folder}"]
    process = subprocess.Popen(
        command,
        pass_fds=(its.fileno(),),
        env=os.environ | {"HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    its.close()
    ours.settimeout(PATIENCE_SECONDS)
    with ours:
        try:
            yield Page(ours)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
