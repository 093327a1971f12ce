"""A headless Chromium, spoken to by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A browser that updates itself, or asks who is there, has no place in a test.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 60.0


def chromium() -> str | None:
    """The program, where there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class LeftError(Exception):
    """The page was left while it was asked."""


class Tab:
    """One page of a browser. `requests` are the addresses that it has asked for, `complaints` what
    it has said in its console, and errors of its scripts."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser reads commands from its file descriptor 3, and answers on 4.
        shell = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        words = [str(to_browser), str(from_browser), program, *FLAGS, f"--user-data-dir={profile}"]
        self._browser = subprocess.Popen(
            ["bash", "-c", shell, words[0], words[1], *words[2:], "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._left, self._number = b"", 0
        self.requests, self.complaints = list[str](), list[str]()
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Tab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._browser.terminate()
        self._browser.wait(SECONDS)
        os.close(self._write)
        os.close(self._read)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                if "navigated or closed" in heard.get("error", {}).get("message", ""):
                    raise LeftError(heard["error"]["message"])
                assert "error" not in heard, heard
                found: dict[str, Any] = heard["result"]
                return found

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = os.read(self._read, 1 << 16)
            assert data, "the browser has ended"
            self._left += data
        line, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        said = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        if message.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
            self.complaints.append(json.dumps(said))
        return message

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self._holds(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def _holds(self, expression: str) -> bool:
        try:
            return self.evaluate(expression) is True
        except LeftError:
            return False

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def key(self, key: str, **more: Any) -> None:
        """Press and release a key, as a keyboard does."""
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, **more)

    def type(self, text: str) -> None:
        """Put a text where the cursor stands."""
        self._call("Input.insertText", text=text)

    def as_on(self, width: int, scheme: str = "light") -> None:
        """Show the page as on a screen of this width, in a `light` or `dark` scheme."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=844,
                   deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        self._call("Emulation.setEmulatedMedia",
                   features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip

    def look(self, path: Path) -> None:
        """A picture of the whole page."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def tab(program: str) -> Iterator[Tab]:
    """A page of a new browser, which leaves nothing behind."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Tab(program, Path(profile)) as found,
    ):
        yield found
