"""A real browser for the page's tests: headless Chromium, driven over its debugging pipe.

The one idea: commands go in on file descriptor 3 and answers come out on 4, each a JSON text ended by a zero byte, so no
port, no web socket and no driver package is needed. Waiting happens inside the page, on its own frames; nothing here sleeps.

Source: Chrome DevTools Protocol, domains Target, Page, Runtime, Input; `--remote-debugging-pipe`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)
MAX_WAIT_MS = 60_000


class Browser:
    """One Chromium with one tab. A context manager: leaving it ends the process."""

    def __init__(self, profile: Path, width: int = 1000, height: int = 800) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert program, "these tests need Chromium; .ci/run installs it"
        commands_read, self._commands = _high_pipe()
        self._answers, answers_write = _high_pipe()
        inherited = ["bash", "-c", f'exec "$@" 3<&{commands_read} 4>&{answers_write}', "bash"]
        command = [*inherited, program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        self._process = subprocess.Popen(command, pass_fds=(commands_read, answers_write), stderr=subprocess.DEVNULL)
        os.close(commands_read)
        os.close(answers_write)
        self._rest = b""
        self._last_id = 0
        self._num_loads = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """Uncaught exceptions and refusals of the content security policy that the page reported so far."""
        self._attach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def _attach(self) -> None:
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(target for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """Run one command of the protocol and give its result. Errors: AssertionError when the browser refuses it."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._last_id:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._answers, 1 << 16)
            assert data, "the browser ended"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Page.loadEventFired":
            self._num_loads += 1
        elif event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["source"] == "security":
            self.problems.append(event["params"]["entry"]["text"])

    def open(self, url: str) -> None:
        """Go to an address and wait until the page has loaded."""
        loads_before = self._num_loads
        self.send("Page.navigate", url=url)
        while self._num_loads == loads_before:
            self._note(self._receive())

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited. Errors: AssertionError when it throws."""
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Return once the condition holds, looked at on every frame. Errors: AssertionError after a minute."""
        is_met = self.value(
            f"""new Promise((resolve) => {{
                const until = performance.now() + {MAX_WAIT_MS};
                const look = () => ({condition}) ? resolve(true) : performance.now() > until ? resolve(false) : setTimeout(look, 10);
                look();
            }})"""
        )
        assert is_met, f"{condition} did not come true; the page shows: {self.value('document.body.innerText')}"

    def type(self, text: str) -> None:
        """Type text into the element that has the focus."""
        self.send("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release one key."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
        keys = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown", **keys, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **keys)

    def click(self, selector: str) -> None:
        """Click an element as its user would, at its middle."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.value(f"(() => {{ const b = {box}; return [b.x + b.width / 2, b.y + b.height / 2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose ends are clear of the numbers 3 and 4."""
    low = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
    for end in low:
        os.close(end)
    return read, write
