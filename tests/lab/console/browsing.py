"""What the runs of the console in Chromium share: a console's process, a browser's page that notes what goes wrong.

I/O: processes, a browser.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, ViewportSize, sync_playwright

from stratalog.clients.console.application import Console
from tests.lab.real.harness.broker_processes import ServerProcess
from tests.waiting import wait_until

FLAGS = (
    "--no-sandbox",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE = 1_440
VIOLATIONS = (
    "window.violations = []; document.addEventListener('securitypolicyviolation', "
    "event => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));"
)
"""Notes what the content security policy forbade, before a page's own script runs."""


class ConsoleProcess(ServerProcess):
    """`strata console` in a process of its own, at a free port. In a `with` block."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "stratalog", "console", *arguments, "--listen", "127.0.0.1:0"]
        super().__init__("console", command, folder / "console.out", "until Ctrl-C.")

    @property
    def url(self) -> str:
        found = re.search(r"http://[\d.:]+", self.output())
        assert found is not None, self.output()
        return found[0]

    def memory_mib(self, what: str = "VmRSS") -> int:
        """`VmHWM`: the most so far."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith(what))) // 1_024


def cpu_s(server: ServerProcess) -> float:
    """Processor time of a process so far, without that of its children."""
    fields = Path(f"/proc/{server.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Noted:
    """What went wrong in a page: dialogs, which are closed, scripts that failed, what a policy forbade. Playwright puts
    attributes of its own on it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def error(self, error: Error) -> None:
        self.events.append(f"a script failed: {error}")

    def dialog(self, dialog: Dialog) -> None:
        self.events.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def message(self, message: ConsoleMessage) -> None:
        """A page with a status above 399 is no fault of a script."""
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.events.append(f"the browser's console: {message.text}")

    def taken(self, page: Page) -> list[str]:
        """All since the last call."""
        found = [*self.events, *page.evaluate("(window.violations || []).splice(0)")]
        self.events.clear()
        return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        yield browser
        browser.close()


def noting_page(browser: Browser, width: int = WIDE, **context: Any) -> tuple[Page, Noted]:
    """A page of a context of its own, and what goes wrong in it."""
    made = browser.new_context(viewport=ViewportSize(width=width, height=900), **context)
    made.add_init_script(VIOLATIONS)
    page, noted = made.new_page(), Noted()
    page.on("pageerror", noted.error)
    page.on("dialog", noted.dialog)
    page.on("console", noted.message)
    return page, noted


@contextmanager
def served(console: Console) -> Iterator[str]:
    """The console's address while it is served by a thread of this process."""
    server = uvicorn.Server(uvicorn.Config(console.application(), port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server")
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def wider_than_window(page: Page) -> int:
    """By how many pixels the page is wider than its window; 0 when it is not."""
    return max(0, int(page.evaluate("document.documentElement.scrollWidth - innerWidth")))
